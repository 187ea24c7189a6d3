//! The server's key and certificate, and the TLS configuration with them.
//!
//! A server without a certificate from an authority creates a key at its first start, and clients
//! trust that key as with SSH: they compare its [`Fingerprint`]. A server with a chain from an
//! authority specifies the files, and [`Reloading`] follows their renewal.
//!
//! Invariants: servers speak TLS 1.3 only, one explicitly named provider, no early data. A private
//! key that others can read isn't used. Files are written under a temporary name and renamed.
//! Nothing here opens a connection.

pub(crate) mod file;
mod fingerprint;
mod pem;
mod reload;
mod server;
mod signature;
mod validity;

#[cfg(test)]
pub(crate) mod pair;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};

pub use fingerprint::Fingerprint;
pub(crate) use pem::certified;
pub use pem::{read_certificates, read_key};
pub use reload::Reloading;
pub use server::{ClientCertificates, ServerIdentity};
pub(crate) use signature::is_signed;
pub use validity::{Timeliness, Validity, minute};

/// The protocol name in TLS (ALPN, RFC 7301).
pub const ALPN: &[u8] = b"xdfs/1";

/// Maximum number of tickets that a client keeps per server, and so the number that it requests
/// (RFC 9149).
pub(crate) const TICKETS: u8 = 8;

/// The only cryptography provider, for TLS 1.3 only: the older version is compiled in for servers
/// of FTP and the web servers of token issuers, and not for channels. AES-128 comes first: it is as
/// strong as the key exchange and signatures around it, and faster than AES-256.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            cipher_suites: vec![
                TLS13_AES_128_GCM_SHA256,
                TLS13_AES_256_GCM_SHA384,
                TLS13_CHACHA20_POLY1305_SHA256,
            ],
            ..rustls::crypto::aws_lc_rs::default_provider()
        })
    });
    Arc::clone(&PROVIDER)
}

/// The same with TLS 1.2 for clients of FTP: with ephemeral keys and AEAD (RFC 9325, section 4.2).
pub(crate) fn ftp_provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut both = CryptoProvider::clone(&provider());
        both.cipher_suites.extend([
            TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ]);
        Arc::new(both)
    });
    Arc::clone(&PROVIDER)
}
