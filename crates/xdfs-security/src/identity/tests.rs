//! Tests of `identity`.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rcgen::PublicKeyData;
use rustls::{
    AlertDescription, ClientConfig, Error, HandshakeKind, PeerIncompatible, ServerConnection,
};
use xdfs_proto::fault::Code;

use super::pair::{Authority, Made, connect};
use super::*;
use crate::trust::{NewHosts, TrustPolicy, TrustReason, client_fault, server_fault};

fn names() -> Vec<String> {
    vec!["localhost".to_owned(), "127.0.0.1".to_owned()]
}

#[test]
fn a_temporary_identity_is_another_one_each_time() {
    let one = ServerIdentity::temporary(&names()).unwrap();
    let other = ServerIdentity::temporary(&names()).unwrap();
    assert_ne!(one.fingerprint(), other.fingerprint());
    assert!(one.config(ClientCertificates::None).is_ok());
    // Its key stays out of logs.
    assert!(!format!("{one:?}").contains("key"));
    let bad = ServerIdentity::temporary(&["\u{e9}".to_owned()]);
    assert_eq!(bad.unwrap_err().code, Code::InvalidArgument);
}

/// A client that trusts any key on first use.
fn client(folder: &Path) -> TrustPolicy {
    TrustPolicy {
        known_hosts: folder.join("known_hosts"),
        pins: Vec::new(),
        roots: Vec::new(),
        system_roots: false,
        new_hosts: NewHosts::Accept,
    }
}

fn client_config(protocols: &[&str]) -> Arc<ClientConfig> {
    let folder = tempfile::tempdir().unwrap();
    let (config, _) = client(folder.path())
        .client_config("localhost", 1, None)
        .unwrap();
    let mut config = (*config).clone();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    Arc::new(config)
}

#[test]
fn an_identity_is_made_once_and_then_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("a/b");
    let made = ServerIdentity::load_or_make(&inner, &names()).unwrap();
    let again = ServerIdentity::load_or_make(&inner, &[]).unwrap();
    assert_eq!(made.fingerprint(), again.fingerprint());
    // 9999-12-31T23:59:59Z.
    assert_eq!(made.not_after(), 253_402_300_799);
    let text = fs::read_to_string(inner.join("server.key")).unwrap();
    assert!(text.starts_with("-----BEGIN PRIVATE KEY-----"));
    assert!(!inner.join("server.key.new").exists());
    assert!(!format!("{made:?}").contains("key:"));
}

#[cfg(unix)]
#[test]
fn what_is_made_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("identity");
    ServerIdentity::load_or_make(&inner, &names()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&inner), 0o700);
    assert_eq!(mode(&inner.join("server.key")), 0o600);
}

#[cfg(unix)]
#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    for mode in [0o644, 0o640, 0o604, 0o620] {
        let folder = tempfile::tempdir().unwrap();
        ServerIdentity::load_or_make(folder.path(), &names()).unwrap();
        let key = folder.path().join("server.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let fault = ServerIdentity::load_or_make(folder.path(), &names()).unwrap_err();
        assert_eq!(fault.code, Code::PermissionDenied);
        let place = key.display().to_string();
        assert!(fault.cause.contains(&place), "{fault}");
        assert!(fault.hint.contains("chmod 600"));
    }
}

#[test]
fn half_an_identity_is_neither_loaded_nor_made_anew() {
    for missing in ["server.key", "server.crt"] {
        let folder = tempfile::tempdir().unwrap();
        ServerIdentity::load_or_make(folder.path(), &names()).unwrap();
        fs::remove_file(folder.path().join(missing)).unwrap();
        let fault = ServerIdentity::load_or_make(folder.path(), &names()).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
        assert!(fault.to_string().contains(missing), "{fault}");
        assert!(!folder.path().join(missing).exists());
    }
}

#[test]
fn servers_that_start_at_once_have_one_identity() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("identity");
    let barrier = std::sync::Barrier::new(8);
    let seen: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    ServerIdentity::load_or_make(&inner, &names()).map(|i| i.fingerprint())
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let first = seen[0].clone().unwrap();
    assert!(seen.iter().all(|f| *f == Ok(first)), "{seen:?}");
}

#[test]
fn what_an_interrupted_start_left_is_no_hindrance() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("server.key.new"), "half").unwrap();
    fs::write(folder.path().join("server.crt.new"), "half").unwrap();
    ServerIdentity::load_or_make(folder.path(), &names()).unwrap();
}

#[test]
fn damaged_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = ServerIdentity::files(folder.path());
    let made = Made::alone("localhost");
    let code = || ServerIdentity::from_pem(&chain, &key).unwrap_err().code;

    assert_eq!(code(), Code::NotFound);
    for garbage in [
        "",
        "garbage",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nAAA",
        "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
    ] {
        made.write(folder.path());
        fs::write(&chain, garbage).unwrap();
        assert_eq!(code(), Code::InvalidArgument, "{garbage}");
    }
    for garbage in [
        "",
        "garbage",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    ] {
        made.write(folder.path());
        // Keeps the mode.
        fs::write(&key, garbage).unwrap();
        assert_eq!(code(), Code::InvalidArgument, "{garbage}");
    }
    made.write(folder.path());
    fs::write(&key, vec![b'x'; 70_000]).unwrap();
    assert_eq!(code(), Code::LimitExceeded);
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    assert_eq!(code(), Code::NotRegularFile);
}

#[test]
fn the_key_of_another_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    Made::alone("localhost").write(folder.path());
    let (chain, key) = ServerIdentity::files(folder.path());
    fs::write(&chain, Made::alone("localhost").certificate.pem()).unwrap();
    let fault = ServerIdentity::from_pem(&chain, &key).unwrap_err();
    assert_eq!(fault.code, Code::InvalidArgument);
    assert!(fault.cause.contains("belong"), "{fault}");
}

#[test]
fn a_name_that_no_certificate_can_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let fault = ServerIdentity::load_or_make(folder.path(), &["n\u{e4}me".to_owned()]).unwrap_err();
    assert_eq!(fault.code, Code::InvalidArgument);
    assert!(!folder.path().join("server.key").exists());
}

#[test]
fn the_fingerprint_is_that_of_the_public_key() {
    let made = Made::alone("localhost");
    let expected = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA256,
        &made.key.subject_public_key_info(),
    );
    let fingerprint = Fingerprint::of_certificate(made.certificate.der()).unwrap();
    assert_eq!(fingerprint.0, expected.as_ref());
    assert!(Fingerprint::of_certificate(&vec![0; 10].into()).is_err());
}

#[test]
fn fingerprints_have_one_spelling() {
    let text = "SHA256:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    let mut bytes = [0; 32];
    (0..).zip(&mut bytes).for_each(|(n, b)| *b = n);
    assert_eq!(Fingerprint(bytes).to_string(), text);
    assert_eq!(text.parse::<Fingerprint>().unwrap(), Fingerprint(bytes));
    for bad in [
        "",
        "SHA256:",
        &text[7..],
        &text[..49],
        &format!("{text}="),
        &format!("{text}A"),
        &text.replace("SHA256", "sha256"),
        &text.replace("SHA256", "SHA512"),
        // Bits beyond the digest.
        &text.replace("Hh8", "Hh9"),
        &text.replace("AAE", "A E"),
    ] {
        assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn fingerprints_survive_their_text(bytes: [u8; 32]) {
        let fingerprint = Fingerprint(bytes);
        prop_assert_eq!(fingerprint.to_string().parse::<Fingerprint>().unwrap(), fingerprint);
    }

    #[test]
    fn no_text_is_a_panic(text in "(SHA256:)?.{0,60}") {
        let _ = text.parse::<Fingerprint>();
    }
}

#[test]
fn a_client_with_other_protocols_only_is_refused() {
    let server = Made::alone("localhost")
        .identity()
        .config(ClientCertificates::None)
        .unwrap();
    let (seen, _) = connect(&client_config(&["h2", "xdfs/1"]), "localhost", &server).unwrap();
    assert_eq!(seen.alpn_protocol(), Some(ALPN));
    // Like tools that inspect certificates.
    let (seen, _) = connect(&client_config(&[]), "localhost", &server).unwrap();
    assert_eq!(seen.alpn_protocol(), None);
    let failure = connect(&client_config(&["h2"]), "localhost", &server).unwrap_err();
    let error = failure.server.unwrap();
    assert_eq!(error, Error::NoApplicationProtocol);
    assert_eq!(server_fault(&error).code, Code::ProtectionRefused);
    let alert = failure.client.unwrap();
    assert_eq!(
        alert,
        Error::AlertReceived(AlertDescription::NoApplicationProtocol)
    );
    assert_eq!(client_fault(&alert).code, Code::ProtectionRefused);
}

/// The server's response to a ClientHello (RFC 8446, section 4.1.2) with these additional
/// extensions.
fn answer(more: &[u8]) -> Error {
    let config = Made::alone("localhost")
        .identity()
        .config(ClientCertificates::None)
        .unwrap();
    let mut extensions = vec![
        0, 10, 0, 4, 0, 2, 0, 23, // supported_groups: secp256r1
        0, 13, 0, 4, 0, 2, 4, 3, // signature_algorithms: ecdsa_secp256r1_sha256
        0, 11, 0, 2, 1, 0, // ec_point_formats: uncompressed
    ];
    extensions.extend(more);
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    // No session, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, no compression.
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    body.extend([0, extensions.len() as u8]);
    body.extend(extensions);
    let length = body.len() as u8;
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(body);
    let mut server = ServerConnection::new(config).unwrap();
    server.read_tls(&mut record.as_slice()).unwrap();
    server.process_new_packets().unwrap_err()
}

#[test]
fn a_client_of_tls_1_2_is_refused() {
    // Without supported_versions, like clients of TLS 1.2; then with only 1.2 in it.
    for (more, reason) in [
        (
            [].as_slice(),
            PeerIncompatible::SupportedVersionsExtensionRequired,
        ),
        (
            &[0, 43, 0, 3, 2, 3, 3],
            PeerIncompatible::Tls12NotOfferedOrEnabled,
        ),
    ] {
        let error = answer(more);
        assert_eq!(error, Error::PeerIncompatible(reason));
        assert_eq!(server_fault(&error).code, Code::ProtectionRefused);
    }
}

#[test]
fn what_is_not_tls_is_refused() {
    let config = Made::alone("localhost")
        .identity()
        .config(ClientCertificates::None)
        .unwrap();
    let mut server = ServerConnection::new(config).unwrap();
    server
        .read_tls(&mut &b"GET / HTTP/1.1\r\n\r\n"[..])
        .unwrap();
    let error = server.process_new_packets().unwrap_err();
    assert_eq!(server_fault(&error).code, Code::ProtectionRefused);
}

#[test]
fn later_channels_resume_and_a_new_configuration_starts_over() {
    let identity = Made::alone("localhost").identity();
    let server = identity.config(ClientCertificates::None).unwrap();
    let client = client_config(&["xdfs/1"]);
    let (first, _) = connect(&client, "localhost", &server).unwrap();
    assert_eq!(first.handshake_kind(), Some(HandshakeKind::Full));
    for _ in 0..20 {
        let (next, end) = connect(&client, "localhost", &server).unwrap();
        assert_eq!(next.handshake_kind(), Some(HandshakeKind::Resumed));
        assert_eq!(end.handshake_kind(), Some(HandshakeKind::Resumed));
    }
    // Even for the same identity: its authorities may differ.
    let other = identity.config(ClientCertificates::None).unwrap();
    let (next, _) = connect(&client, "localhost", &other).unwrap();
    assert_eq!(next.handshake_kind(), Some(HandshakeKind::Full));
}

#[test]
fn channels_that_open_at_once_resume_too() {
    let server = Made::alone("localhost")
        .identity()
        .config(ClientCertificates::None)
        .unwrap();
    let client = client_config(&["xdfs/1"]);
    connect(&client, "localhost", &server).unwrap();
    // Each takes its ticket before any other is complete.
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut opened: Vec<_> = (0..TICKETS)
        .map(|_| rustls::ClientConnection::new(Arc::clone(&client), name.clone()).unwrap())
        .collect();
    for connection in &mut opened {
        let mut hello = Vec::new();
        connection.write_tls(&mut hello).unwrap();
        let mut end = ServerConnection::new(Arc::clone(&server)).unwrap();
        end.read_tls(&mut hello.as_slice()).unwrap();
        end.process_new_packets().unwrap();
        assert_eq!(end.handshake_kind(), Some(HandshakeKind::Resumed));
    }
}

#[test]
fn client_certificates_are_checked_if_shown() {
    let authority = Authority::new("clients");
    let stranger = Authority::new("others");
    let server = Made::alone("localhost")
        .identity()
        .config(ClientCertificates::Optional(vec![authority.root.clone()]))
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let open = |made: Option<&Made>| {
        let certificate = made.map(|m| (m.chain(), m.secret()));
        let (config, outcome) = client(folder.path())
            .client_config("localhost", 1, certificate)
            .unwrap();
        let result = connect(&config, "localhost", &server);
        assert!(matches!(outcome.reason(), Some(TrustReason::FirstUse(_))));
        result
    };
    let (_, end) = open(None).unwrap();
    assert!(end.peer_certificates().is_none());
    let good = authority.sign("client", 2020, 2100);
    let (_, end) = open(Some(&good)).unwrap();
    assert_eq!(end.peer_certificates().unwrap(), good.chain());
    for bad in [
        stranger.sign("client", 2020, 2100),
        authority.sign("client", 2020, 2021),
        Made::alone("client"),
    ] {
        let failure = open(Some(&bad)).unwrap_err();
        let fault = server_fault(&failure.server.unwrap());
        assert_eq!(fault.code, Code::AuthenticationFailed);
        assert_eq!(fault.side, xdfs_proto::fault::Side::Local);
        let fault = client_fault(&failure.client.unwrap());
        assert_eq!(fault.code, Code::AuthenticationFailed);
        assert_eq!(fault.side, xdfs_proto::fault::Side::Remote);
    }
}

#[test]
fn client_certificates_need_a_sound_authority() {
    let identity = Made::alone("localhost").identity();
    for roots in [Vec::new(), vec![vec![1, 2, 3].into()]] {
        let fault = identity
            .config(ClientCertificates::Optional(roots))
            .unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
    }
}

#[test]
fn without_authorities_no_client_certificate_is_asked_for() {
    let server = Made::alone("localhost")
        .identity()
        .config(ClientCertificates::None)
        .unwrap();
    let made = Made::alone("client");
    let folder = tempfile::tempdir().unwrap();
    let (config, _) = client(folder.path())
        .client_config("localhost", 1, Some((made.chain(), made.secret())))
        .unwrap();
    let (_, end) = connect(&config, "localhost", &server).unwrap();
    assert!(end.peer_certificates().is_none());
}

#[test]
fn a_renewed_certificate_is_picked_up_and_garbage_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = ServerIdentity::files(folder.path());
    let (old, new) = (Made::alone("localhost"), Made::alone("localhost"));
    old.write(folder.path());
    let reloading = Reloading::new(chain.clone(), key.clone(), ClientCertificates::None).unwrap();
    let start = Instant::now();
    let at = |seconds: u64| reloading.current_at(start + Duration::from_secs(seconds));
    let first = at(2);

    // Unchanged.
    assert!(Arc::ptr_eq(&first, &at(10)));
    // Garbage, only half of a new pair, a missing file: the old one stays.
    fs::write(&chain, "garbage").unwrap();
    assert!(Arc::ptr_eq(&first, &at(20)));
    fs::write(&chain, new.certificate.pem()).unwrap();
    assert!(Arc::ptr_eq(&first, &at(30)));
    fs::remove_file(&key).unwrap();
    assert!(Arc::ptr_eq(&first, &at(40)));
    assert_eq!(reloading.fingerprint(), old.identity().fingerprint());
    // The other half.
    new.write(folder.path());
    // Not within the same second.
    assert!(Arc::ptr_eq(
        &first,
        &reloading.current_at(start + Duration::from_millis(40_999))
    ));
    let second = at(41);
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(reloading.fingerprint(), new.identity().fingerprint());
    assert!(Arc::ptr_eq(&second, &at(50)));
    let (seen, _) = connect(&client_config(&["xdfs/1"]), "localhost", &second).unwrap();
    assert_eq!(seen.peer_certificates().unwrap(), new.chain());
    // A time that goes back, as with concurrent threads.
    assert!(Arc::ptr_eq(&second, &at(0)));
}

#[test]
fn a_key_has_one_derived_secret() {
    let folder = tempfile::tempdir().unwrap();
    let secret = || {
        let identity = ServerIdentity::load_or_make(folder.path(), &["localhost".to_owned()]);
        *identity.unwrap().derived_secret()
    };
    let first = secret();
    assert_eq!(first, secret());
    let (chain, key) = ServerIdentity::files(folder.path());
    let reloading = Reloading::new(chain, key, ClientCertificates::None).unwrap();
    let again = reloading.identity().unwrap();
    assert_eq!(&first, again.derived_secret());
    let other = ServerIdentity::temporary(&["localhost".to_owned()]).unwrap();
    assert_ne!(&first, other.derived_secret());
    assert!(!format!("{other:?}").contains("secret"));
}

#[test]
fn configurations_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Reloading>();
    shared::<ServerIdentity>();
    shared::<TrustPolicy>();
    shared::<crate::trust::TrustOutcome>();
}
