//! TLS with servers of HTTP: those of webhooks, and services behind a proxy.

use std::sync::Arc;

use ureq::tls::{RootCerts, TlsConfig};

/// The settings by which servers are trusted: the authorities of the system.
pub(crate) fn tls() -> TlsConfig {
    // An explicit provider: the default of the process could be another, or none.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    TlsConfig::builder()
        .root_certs(RootCerts::PlatformVerifier)
        .unversioned_rustls_crypto_provider(provider)
        .build()
}
