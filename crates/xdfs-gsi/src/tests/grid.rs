//! An authority with its directory, and what it signs.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{
    BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName,
};
use openssl::x509::{
    X509, X509Builder, X509Crl, X509CrlBuilder, X509Extension, X509Name, X509RevokedBuilder,
};

use crate::{Credential, Trust};

pub(super) fn key() -> PKey<Private> {
    PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap()
}

pub(super) fn name(text: &str) -> X509Name {
    let mut builder = X509Name::builder().unwrap();
    for part in text.split('/').skip(1) {
        let (kind, value) = part.split_once('=').unwrap();
        builder.append_entry_by_text(kind, value).unwrap();
    }
    builder.build()
}

pub(super) fn in_days(days: i64) -> Asn1Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_secs()).unwrap();
    Asn1Time::from_unix(now + days * 86_400).unwrap()
}

/// A certificate that is to be made.
pub(super) struct Wanted {
    pub(super) subject: String,
    pub(super) key: PKey<Private>,
    /// Days from now.
    pub(super) valid: (i64, i64),
    pub(super) digest: MessageDigest,
    pub(super) version: i32,
    pub(super) extensions: Vec<X509Extension>,
}

impl Wanted {
    pub(super) fn new(subject: &str) -> Self {
        Self {
            subject: subject.to_owned(),
            key: key(),
            valid: (-1, 1),
            digest: MessageDigest::sha256(),
            version: 2,
            extensions: Vec::new(),
        }
    }

    pub(super) fn with(mut self, extension: X509Extension) -> Self {
        self.extensions.push(extension);
        self
    }

    /// Signed by `issuer`, or by itself.
    pub(super) fn signed(&self, issuer: Option<&Credential>) -> Credential {
        let own = name(&self.subject);
        let (issuer_name, signer) = match issuer {
            Some(issuer) => (issuer.certificate.subject_name(), &issuer.key),
            None => (&*own, &self.key),
        };
        let mut builder: X509Builder = X509::builder().unwrap();
        builder.set_version(self.version).unwrap();
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        random[0] &= 0x7f;
        let serial = BigNum::from_slice(&random).unwrap();
        let serial = Asn1Integer::from_bn(&serial).unwrap();
        builder.set_serial_number(&serial).unwrap();
        builder.set_issuer_name(issuer_name).unwrap();
        builder.set_subject_name(&own).unwrap();
        builder.set_not_before(&in_days(self.valid.0)).unwrap();
        builder.set_not_after(&in_days(self.valid.1)).unwrap();
        builder.set_pubkey(&self.key).unwrap();
        for extension in &self.extensions {
            builder.append_extension2(extension).unwrap();
        }
        builder.sign(signer, self.digest).unwrap();
        let chain = issuer.map(|issuer| {
            let all = std::iter::once(&issuer.certificate).chain(&issuer.chain);
            all.cloned().collect()
        });
        Credential {
            certificate: builder.build(),
            key: self.key.clone(),
            chain: chain.unwrap_or_default(),
        }
    }
}

/// A list of revoked certificates that is to be made.
pub(super) struct WantedList<'a> {
    pub(super) name: &'a Credential,
    pub(super) signer: &'a Credential,
    pub(super) revoked: &'a [&'a Credential],
    /// Days from now.
    pub(super) valid: (i64, i64),
    pub(super) digest: MessageDigest,
    pub(super) extensions: Vec<X509Extension>,
}

impl<'a> WantedList<'a> {
    pub(super) fn new(authority: &'a Credential, revoked: &'a [&'a Credential]) -> Self {
        Self {
            name: authority,
            signer: authority,
            revoked,
            valid: (-1, 1),
            digest: MessageDigest::sha256(),
            extensions: Vec::new(),
        }
    }

    /// In PEM.
    pub(super) fn signed(self) -> Vec<u8> {
        self.build().to_pem().unwrap()
    }

    pub(super) fn build(self) -> X509Crl {
        let mut list = X509CrlBuilder::new().unwrap();
        list.set_issuer_name(self.name.certificate.subject_name())
            .unwrap();
        list.set_last_update(&in_days(self.valid.0)).unwrap();
        list.set_next_update(&in_days(self.valid.1)).unwrap();
        for credential in self.revoked {
            let mut entry = X509RevokedBuilder::new().unwrap();
            let serial = credential.certificate.serial_number();
            entry.set_serial_number(serial).unwrap();
            entry.set_revocation_date(&in_days(-1)).unwrap();
            list.add_revoked(entry.build()).unwrap();
        }
        let authority_key = extension("2.5.29.35", false, &[0x30, 6, 0x80, 4, 1, 2, 3, 4]);
        list.append_extension(authority_key).unwrap();
        list.append_extension(extension("2.5.29.20", false, &[2, 1, 1]))
            .unwrap();
        for extension in self.extensions {
            list.append_extension(extension).unwrap();
        }
        list.sign(&self.signer.key, self.digest).unwrap();
        list.build().unwrap()
    }
}

pub(super) fn authority_extensions(wanted: Wanted) -> Wanted {
    wanted
        .with(BasicConstraints::new().critical().ca().build().unwrap())
        .with(usage_of(KeyUsage::new().key_cert_sign().crl_sign()))
}

pub(super) fn usage_of(usage: &mut KeyUsage) -> X509Extension {
    usage.critical().build().unwrap()
}

pub(super) fn purpose(add: impl FnOnce(&mut ExtendedKeyUsage)) -> X509Extension {
    let mut usage = ExtendedKeyUsage::new();
    add(&mut usage);
    usage.build().unwrap()
}

pub(super) fn dns_names(names: &[&str]) -> X509Extension {
    let issuer = X509::builder().unwrap();
    let context = issuer.x509v3_context(None, None);
    let mut alternative = SubjectAlternativeName::new();
    for name in names {
        match name.parse::<std::net::IpAddr>() {
            Ok(_) => alternative.ip(name),
            Err(_) => alternative.dns(name),
        };
    }
    alternative.build(&context).unwrap()
}

pub(super) fn extension(oid: &str, is_critical: bool, der: &[u8]) -> X509Extension {
    let oid = Asn1Object::from_str(oid).unwrap();
    let der = Asn1OctetString::new_from_bytes(der).unwrap();
    X509Extension::new_from_der(&oid, is_critical, &der).unwrap()
}

/// An authority, and the directory that has it.
pub(super) struct Grid {
    pub(super) authority: Credential,
    pub(super) directory: tempfile::TempDir,
}

impl Grid {
    pub(super) fn new() -> Self {
        let authority = authority_extensions(Wanted::new("/O=Grid/CN=Test CA")).signed(None);
        let grid = Self {
            authority,
            directory: tempfile::tempdir().unwrap(),
        };
        grid.install(&grid.authority);
        grid
    }

    pub(super) fn trust(&self) -> Trust {
        Trust::open(self.directory.path()).unwrap()
    }

    pub(super) fn path(&self, of: &Credential, ending: &str) -> std::path::PathBuf {
        let hash = of.certificate.subject_name_hash();
        self.directory.path().join(format!("{hash:08x}.{ending}"))
    }

    /// Puts an authority into the directory, which may sign for `/O=Grid`.
    pub(super) fn install(&self, authority: &Credential) {
        let pem = authority.certificate.to_pem().unwrap();
        fs::write(self.path(authority, "0"), pem).unwrap();
        let subject = crate::trust::name_of(&authority.certificate).unwrap();
        self.set_policy(authority, &subject, "/O=Grid/*");
    }

    pub(super) fn set_policy(&self, of: &Credential, subject: &str, pattern: &str) {
        let text = format!(
            "access_id_CA X509 '{subject}'\npos_rights globus CA:sign\n\
             cond_subjects globus '\"{pattern}\"'\n"
        );
        fs::write(self.path(of, "signing_policy"), text).unwrap();
    }

    /// Publishes a list of revoked certificates.
    pub(super) fn revoke(
        &self,
        signer: &Credential,
        revoked: &[&Credential],
        valid: (i64, i64),
        more: Option<X509Extension>,
    ) {
        let wanted = WantedList {
            signer,
            valid,
            extensions: more.into_iter().collect(),
            ..WantedList::new(&self.authority, revoked)
        };
        fs::write(self.path(&self.authority, "r0"), wanted.signed()).unwrap();
    }

    pub(super) fn user(&self, common_name: &str) -> Credential {
        Wanted::new(&format!("/O=Grid/CN={common_name}")).signed(Some(&self.authority))
    }
}

/// A day.
pub(super) const DAY: Duration = Duration::from_secs(86_400);
