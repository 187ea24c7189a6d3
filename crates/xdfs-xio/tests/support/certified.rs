//! Configurations of TLS with a certificate made for the run.

use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, ServerConfig};
use xdfs_xio::tls::{Configs, PROTOCOL};

/// A name for the certificate.
pub(crate) const NAME: &str = "server.test";

/// The configurations of both ends, with a certificate for these names. The first is the
/// one that the client asks for.
pub(crate) fn configs_for(names: Vec<String>) -> Configs {
    let name = names[0].clone().try_into().unwrap();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
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
    let server = Arc::new(server);
    Configs {
        client: Some((Arc::new(client), name)),
        server: Some(Arc::new(move || Arc::clone(&server))),
        secret: None,
    }
}
