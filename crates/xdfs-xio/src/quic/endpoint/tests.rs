//! The end of a thread whose socket has failed.

use std::io::IoSliceMut;

use super::*;
use crate::quic::QuicOptions;
use crate::stream::Stream as _;
use crate::tls;

const PATIENCE: Duration = Duration::from_secs(60);

/// Configurations of both ends, with a certificate of their own.
fn configs() -> tls::Configs {
    let made = rcgen::generate_simple_self_signed(["server.test".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.alpn_protocols = vec![tls::PROTOCOL.to_vec()];
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![tls::PROTOCOL.to_vec()];
    let server = Arc::new(server);
    tls::Configs {
        client: Some((Arc::new(client), "server.test".try_into().unwrap())),
        server: Some(Arc::new(move || Arc::clone(&server))),
        secret: None,
    }
}

/// A thread that has to end, say because its socket fails for good, doesn't leave its peers waiting
/// until they find the connection silent.
#[test]
fn the_end_of_an_endpoint_is_told_to_its_peers() {
    let configs = Arc::new(Configs::new(QuicOptions::default(), configs()));
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let backlog = Arc::new(Queue::new(1));
    let served = start(loopback, Arc::clone(&configs), Some(Arc::clone(&backlog)));
    let (address, _remote) = served.unwrap();
    let (_, mut engine) = build(loopback, Arc::clone(&configs), None).unwrap();
    let (config, name) = configs.client().unwrap();
    let channel = engine.shared.channel();
    let open = Open {
        peer: address,
        config,
        name,
        channel: Arc::clone(&channel),
    };
    engine.shared.requests().opens.push(open);
    engine.shared.wake();
    let (sender, _ended) = mpsc::channel();
    let until = Instant::now() + PATIENCE;
    let mut server = loop {
        assert!(Instant::now() < until, "no stream came");
        engine.turn(&sender).unwrap();
        if let Some(stream) = backlog.pop() {
            break stream;
        }
    };
    assert!(channel.finish_open().unwrap());
    engine.fail(&Failure::new(ErrorKind::Other, "a test"));
    let error = loop {
        assert!(Instant::now() < until, "nothing was told");
        match server.read_vectored(&mut [IoSliceMut::new(&mut [0])]) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
            }
            other => break other.unwrap_err(),
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}
