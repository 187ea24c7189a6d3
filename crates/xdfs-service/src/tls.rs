//! TLS with servers of HTTP: those of webhooks, and services.

use std::path::Path;
use std::sync::Arc;

use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use xdfs::security::read_certificates;
use xdfs::security::trusted::{self, Secrecy};
use xdfs::{Code, Fault};

const READ_KEY: &str = "read the private key";
const KEY_BYTES_MAX: u64 = 64 << 10;

/// The settings by which servers are trusted: the authorities of the system. With a certificate the
/// client proves itself to those that ask for one.
pub(crate) fn tls(certificate: Option<ClientCert>) -> TlsConfig {
    // An explicit provider: the default of the process could be another, or none.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    TlsConfig::builder()
        .root_certs(RootCerts::PlatformVerifier)
        .client_cert(certificate)
        .unversioned_rustls_crypto_provider(provider)
        .build()
}

/// Reads a certificate chain and its private key, as PEM.
///
/// # Errors
/// A file can't be read, or other users may read the key.
pub(crate) fn client_certificate(chain: &Path, key: &Path) -> Result<ClientCert, Fault> {
    let certificates = read_certificates(chain)?;
    let certificates: Vec<_> = certificates
        .iter()
        .map(|der| Certificate::from_der(der).to_owned())
        .collect();
    let secret = trusted::read(READ_KEY, key, KEY_BYTES_MAX, Secrecy::Secret)?;
    let secret = PrivateKey::from_pem(&secret).map_err(|_| {
        // The message of the library may quote the key.
        let fault = Fault::new(Code::InvalidArgument, READ_KEY, "it has none in PEM");
        let fault = fault.path(key.as_os_str().as_encoded_bytes());
        fault.hint("encrypted keys and DER have to be converted first")
    })?;
    Ok(ClientCert::new_with_certs(&certificates, secret))
}
