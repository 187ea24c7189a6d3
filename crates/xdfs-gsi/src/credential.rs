//! A certificate with its key and its chain.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use openssl::asn1::Asn1Time;
use openssl::pkey::{PKey, Private};
use openssl::x509::X509;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use xdfs_proto::{Code, Fault};
use xdfs_security::grid::distinguished_name;
use xdfs_security::trusted::{self, Secrecy};
use zeroize::Zeroizing;

use crate::failure;
use crate::proxy::{Form, proxy_of};
use crate::trust::CHAIN_MAX;

/// Bytes of the longest file of certificates and keys.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate, its key, and the certificates that it is derived from.
#[derive(Clone)]
pub struct Credential {
    pub(crate) certificate: X509,
    pub(crate) key: PKey<Private>,
    pub(crate) chain: Vec<X509>,
}

impl Credential {
    /// Reads the PEM of a certificate followed by its chain, and that of the key; both may be in
    /// one file, as proxies are.
    ///
    /// # Errors
    /// A file can't be read, has more than 1 MiB or 20 certificates, or lacks something; the key
    /// is encrypted, or isn't that of the first certificate; or, on Unix, other users could have
    /// written one of the files, or can read the key.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, Fault> {
        Self::open_with(certificate, key, || Ok(Zeroizing::new(String::new())))
    }

    /// The same, with a key that may be encrypted; then `ask` has the password.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and those of `ask`; the password is wrong.
    pub fn open_with(
        certificate: &Path,
        key: &Path,
        ask: impl FnOnce() -> Result<Zeroizing<String>, Fault>,
    ) -> Result<Self, Fault> {
        let chain = read(certificate, Secrecy::Public)?;
        let key_text = read(key, Secrecy::Secret)?;
        Self::parse_with(&chain, &key_text, ask).map_err(|fault| {
            let path = match fault.operation.ends_with("key") {
                true => key,
                false => certificate,
            };
            fault.path(path.as_os_str().as_encoded_bytes())
        })
    }

    /// The same from bytes.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn parse(chain: &[u8], key: &[u8]) -> Result<Self, Fault> {
        Self::parse_with(chain, key, || Ok(Zeroizing::new(String::new())))
    }

    fn parse_with(
        chain: &[u8],
        key: &[u8],
        ask: impl FnOnce() -> Result<Zeroizing<String>, Fault>,
    ) -> Result<Self, Fault> {
        let wrong = |operation, cause: &str| Fault::new(Code::InvalidArgument, operation, cause);
        let mut certificates = X509::stack_from_pem(chain)
            .map_err(|_| wrong("read the certificate", "it isn't PEM"))?;
        if certificates.len() > CHAIN_MAX {
            let cause = "there are more than 20 certificates";
            return Err(wrong("read the certificate", cause));
        }
        if certificates.is_empty() {
            return Err(wrong("read the certificate", "there is no certificate"));
        }
        let certificate = certificates.remove(0);
        let mut asked = Ok(());
        let parsed = PKey::private_key_from_pem_callback(key, |buffer| {
            let password = ask().unwrap_or_else(|fault| {
                asked = Err(fault);
                Zeroizing::default()
            });
            let password = password.as_bytes();
            let length = password.len().min(buffer.len());
            buffer[..length].copy_from_slice(&password[..length]);
            Ok(length)
        });
        asked?;
        let key = parsed.map_err(|_| {
            let cause = "there is no key in PEM, or it is encrypted and the password is missing or \
                         wrong";
            wrong("read the key", cause)
        })?;
        let own = certificate.public_key();
        if !own.is_ok_and(|own| own.public_eq(&key)) {
            return Err(wrong("read the key", "it isn't the key of the certificate"));
        }
        Ok(Self {
            certificate,
            key,
            chain: certificates,
        })
    }

    /// The PEM of a file for a proxy: the certificate, its key, and the chain.
    ///
    /// # Errors
    /// OpenSSL fails.
    pub fn to_pem(&self) -> Result<Zeroizing<Vec<u8>>, Fault> {
        let fault = failure("write a credential");
        let mut pem = Zeroizing::new(self.certificate.to_pem().map_err(&fault)?);
        // The form that older tools read, where the key has one.
        let key = match self.key.rsa() {
            Ok(rsa) => rsa.private_key_to_pem(),
            Err(_) => self.key.private_key_to_pem_pkcs8(),
        };
        pem.extend_from_slice(&Zeroizing::new(key.map_err(&fault)?));
        for certificate in &self.chain {
            pem.extend(certificate.to_pem().map_err(&fault)?);
        }
        Ok(pem)
    }

    /// All certificates in DER, the credential's own first.
    ///
    /// # Errors
    /// OpenSSL fails.
    pub fn to_der(&self) -> Result<Vec<Vec<u8>>, Fault> {
        let all = std::iter::once(&self.certificate).chain(&self.chain);
        let all = all.map(|certificate| certificate.to_der());
        all.collect::<Result<_, _>>()
            .map_err(failure("encode a certificate"))
    }

    /// What the certificates say. Nothing of it is verified.
    ///
    /// # Errors
    /// A certificate is malformed, is a proxy of a kind that isn't taken, or has a name that is no
    /// text.
    pub fn describe(&self) -> Result<Description, Fault> {
        let fault = failure("read a certificate");
        let ders = self.to_der()?;
        let mut proxies = Vec::new();
        let mut identity = None;
        for der in &ders {
            let (_, parsed) = X509Certificate::from_der(der)
                .map_err(|_| crate::refused("a certificate is malformed"))?;
            match proxy_of(&parsed)? {
                Some(proxy) => proxies.push(proxy),
                None => {
                    identity = Some(distinguished_name(der)?);
                    break;
                }
            }
        }
        let epoch = Asn1Time::from_unix(0).map_err(&fault)?;
        let mut ends_s = i64::MAX;
        let own = std::iter::once(&self.certificate).chain(&self.chain);
        for certificate in own.take(proxies.len() + 1) {
            let since = epoch.diff(certificate.not_after()).map_err(&fault)?;
            ends_s = ends_s.min(i64::from(since.days) * 86_400 + i64::from(since.secs));
        }
        Ok(Description {
            subject: crate::trust::name_of(&self.certificate)?,
            identity,
            form: proxies.first().map(|proxy| proxy.form),
            is_limited: proxies.iter().any(|proxy| proxy.is_limited),
            path_length: proxies.first().and_then(|proxy| proxy.path_length),
            key_bits: self.key.bits(),
            ends_s,
        })
    }
}

/// Removes the proxy of a file, also one that others can read. Its bytes are overwritten before, as
/// far as the file system does that in place.
///
/// # Errors
/// It can't be read or removed, it is a link, or it is no proxy.
pub fn remove_proxy(path: &Path) -> Result<(), Fault> {
    let name = path.as_os_str().as_encoded_bytes();
    let fault = |error: std::io::Error| Fault::from_io("remove the proxy", name, &error);
    let wrong = |cause| Fault::new(Code::InvalidArgument, "remove the proxy", cause).path(name);
    // Also no pipe, which would hold the call.
    if !fs::symlink_metadata(path).map_err(fault)?.is_file() {
        return Err(wrong("it isn't a regular file"));
    }
    let mut open = OpenOptions::new();
    open.read(true).write(true);
    #[cfg(unix)]
    {
        // Others can write to the usual place, and put something else there meanwhile.
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut open, flags.bits().cast_signed());
    }
    let mut file = open.open(path).map_err(fault)?;
    let mut bytes = Zeroizing::new(Vec::new());
    let read = (&file).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(fault)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong("it has more than 1 MiB, and is no proxy"));
    }
    // Not a file of something else, whose path was given by mistake.
    let found = Credential::parse(&bytes, &bytes).and_then(|credential| credential.describe());
    if found.map_err(|fault| fault.path(name))?.form.is_none() {
        return Err(wrong("it is a certificate of a user or host, and no proxy"));
    }
    file.rewind().map_err(fault)?;
    file.write_all(&vec![0; bytes.len()]).map_err(fault)?;
    file.sync_all().map_err(fault)?;
    fs::remove_file(path).map_err(fault)
}

/// What a credential says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its subject.
    pub subject: String,
    /// The subject of the user's certificate; `None` if that isn't in the chain.
    pub identity: Option<String>,
    /// The form of the proxy; `None` if it is none.
    pub form: Option<Form>,
    /// It or what it is made from is limited.
    pub is_limited: bool,
    /// Number of proxies that may be derived from it; `None` for any.
    pub path_length: Option<u32>,
    /// Bits of the key.
    pub key_bits: u32,
    /// When it, or what it is made from, ends first, in seconds since 1970.
    pub ends_s: i64,
}

impl fmt::Debug for Credential {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("subject", &self.certificate.subject_name())
            .finish_non_exhaustive()
    }
}

fn read(path: &Path, secrecy: Secrecy) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let operation = match secrecy {
        Secrecy::Secret => "read the key",
        Secrecy::Public => "read the certificate",
    };
    trusted::read(operation, path, FILE_BYTES_MAX, secrecy)
}
