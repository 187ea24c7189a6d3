//! The server's key and certificate, and the TLS configuration that is made of them.
//!
//! A server without an authority's certificate makes a key for itself at its first start, and
//! clients trust that key as they do with SSH: its [`Fingerprint`] is what they compare. A server
//! that has a chain from an authority gives the paths of its files, and [`Reloading`] follows their
//! renewal.
//!
//! Invariants: TLS 1.3 alone, one provider that is named explicitly, no early data. A private key
//! that others can read isn't used. What is written is written to another name first and then
//! renamed. Nothing here opens a connection.

pub(crate) mod file;
mod fingerprint;
mod pem;
mod reload;
mod server;

#[cfg(test)]
pub(crate) mod pair;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};

pub use fingerprint::Fingerprint;
pub(crate) use pem::certified;
pub use pem::{read_certificates, read_key};
pub use reload::Reloading;
pub use server::{ClientCertificates, ServerIdentity};

/// The name of the protocol in TLS (RFC 7301).
pub const ALPN: &[u8] = b"xdfs/1";

/// Tickets that a client can hold for one server, and so the most that it asks for (RFC 9149).
pub(crate) const TICKETS: u8 = 8;

/// The one provider of cryptography, for TLS 1.3 alone: the older version is compiled in for the
/// web servers of issuers, and isn't for channels. AES-128 comes first: it is as safe as the key
/// exchange and the signatures around it, and takes less time than AES-256.
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
