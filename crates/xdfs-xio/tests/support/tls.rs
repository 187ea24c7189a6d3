//! The driver `tls` with a configuration for both ends.

use std::sync::{Arc, LazyLock};

use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, ServerConfig};
use xdfs_xio::Driver;
use xdfs_xio::tls::{self, PROTOCOL};

/// The driver `tls`.
pub(crate) fn tls() -> Driver {
    tls::driver(configs())
}

/// The configurations, for other drivers.
pub(crate) fn configs() -> tls::Configs {
    let (server, client) = &*TLS;
    let server = Arc::clone(server);
    tls::Configs {
        client: Some((Arc::clone(client), "server.test".try_into().unwrap())),
        server: Some(Arc::new(move || Arc::clone(&server))),
    }
}

/// The configurations of both ends of TLS, with a certificate made for this run.
static TLS: LazyLock<(Arc<ServerConfig>, Arc<ClientConfig>)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["server.test".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    server.enable_secret_extraction = true;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client.enable_secret_extraction = true;
    (Arc::new(server), Arc::new(client))
});
