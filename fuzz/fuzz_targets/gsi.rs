//! What peers of GSI show before they are known: certificates of proxies, and tokens of any kind.
//! No panic, bounded memory, and nobody without a certificate of the authority gets a context.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::{X509, X509Name};
use xdfs_gsi::proxy::{self, ProxyInfo};
use xdfs_gsi::{Acceptor, Credential, Trust};

static HOST: LazyLock<(Credential, Trust, tempfile::TempDir)> = LazyLock::new(|| {
    let (certificate, key) = host().expect("a certificate");
    let folder = tempfile::tempdir().expect("a directory");
    let credential = Credential::parse(&certificate, &key).expect("a credential");
    let trust = Trust::open(folder.path()).expect("a directory");
    (credential, trust, folder)
});

/// A certificate that is signed by itself, and its key, as PEM.
fn host() -> Result<(Vec<u8>, Vec<u8>), openssl::error::ErrorStack> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
    let mut name = X509Name::builder()?;
    name.append_entry_by_text("CN", "host")?;
    let name = name.build();
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_subject_name(&name)?;
    builder.set_issuer_name(&name)?;
    builder.set_not_before(&*Asn1Time::days_from_now(0)?)?;
    builder.set_not_after(&*Asn1Time::days_from_now(1)?)?;
    builder.set_pubkey(&key)?;
    builder.sign(&key, MessageDigest::sha256())?;
    Ok((builder.build().to_pem()?, key.private_key_to_pem_pkcs8()?))
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, data)) = data.split_first() else {
        return;
    };
    match kind % 3 {
        0 => {
            let _ = ProxyInfo::parse(data);
        }
        1 => {
            let _ = proxy::parse(data);
        }
        _ => {
            let (credential, trust, _) = &*HOST;
            let mut acceptor = Acceptor::new(credential, trust).expect("a context");
            let piece = usize::from(kind) + 1;
            let failed = data
                .chunks(piece)
                .any(|token| acceptor.step(token).is_err());
            assert!(failed || acceptor.established().is_none());
        }
    }
});
