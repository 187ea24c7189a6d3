//! Certificates and keys from PEM files (RFC 7468).

use std::path::Path;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroize;

use super::file;
use crate::trusted::{self, Secrecy};

/// Maximum size of a file of certificates; system bundles have about 250 kB.
const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;
/// Maximum size of a key file; 16384 bits of RSA need 13 kB.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// Reads all certificates of a PEM file of at most 4 MiB, in order. Other sections are skipped.
///
/// # Errors
/// Those of [`trusted::read`]; `InvalidArgument` if there is no certificate or one is malformed.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let operation = "read the certificates";
    let text = trusted::read(operation, path, CERTIFICATES_BYTES_MAX, Secrecy::Public)?;
    let out = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem_fault(operation, path, &error))?;
    if out.is_empty() {
        return Err(pem_fault(operation, path, &pem::Error::NoItemsFound));
    }
    Ok(out)
}

/// Reads a private key from a PEM file: the first section of PKCS #8, PKCS #1 or SEC 1.
///
/// # Errors
/// Those of [`trusted::read`], for a secret; `InvalidArgument` if it has no key.
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, Fault> {
    let operation = "read the private key";
    let text = trusted::read(operation, path, KEY_BYTES_MAX, Secrecy::Secret)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| pem_fault(operation, path, &error))
}

fn pem_fault(operation: &str, path: &Path, error: &pem::Error) -> Fault {
    // The library's other messages quote the file, which may be a key.
    let (cause, hint) = match error {
        pem::Error::NoItemsFound => (
            "it has none in PEM",
            "encrypted keys and DER have to be converted first",
        ),
        _ => ("its PEM is damaged", ""),
    };
    Fault::new(Code::InvalidArgument, operation, cause)
        .path(file::bytes(path))
        .hint(hint)
}

/// A chain and its key, ready to sign. The key's bytes are wiped.
///
/// # Errors
/// `InvalidArgument` if the kind of key is not supported, or it isn't that of the first
/// certificate.
pub(crate) fn certified(
    chain: Vec<CertificateDer<'static>>,
    mut key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, Fault> {
    let operation = "use the private key";
    let signer = any_supported_type(&key);
    key.zeroize();
    let fault = |error: rustls::Error| match error {
        rustls::Error::InconsistentKeys(_) => Fault::new(
            Code::InvalidArgument,
            operation,
            "it doesn't belong to the certificate",
        )
        .hint("the first certificate of the chain has to be that of the key"),
        other => Fault::new(Code::InvalidArgument, operation, other.to_string()),
    };
    let certified = CertifiedKey::new(chain, signer.map_err(fault)?);
    certified.keys_match().map_err(fault)?;
    Ok(certified)
}
