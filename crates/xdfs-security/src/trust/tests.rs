//! Tests of `trust`.

use std::fs;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, HandshakeKind, ProtocolVersion, ServerConfig, SupportedProtocolVersion,
};
use tempfile::TempDir;
use xdfs_proto::fault::{Code, Fault};

use super::*;
use crate::identity::pair::{Authority, Failure, Made, connect};
use crate::identity::{ClientCertificates, Fingerprint, ftp_provider};

const NAME: &str = "server.example";
const HOST: &str = "server.example:7070";

struct Client {
    _folder: TempDir,
    policy: TrustPolicy,
}

impl Client {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let policy = TrustPolicy {
            known_hosts: folder.path().join("known_hosts"),
            pins: Vec::new(),
            roots: Vec::new(),
            system_roots: false,
            new_hosts: NewHosts::Accept,
        };
        Self {
            _folder: folder,
            policy,
        }
    }

    fn with(change: impl FnOnce(&mut TrustPolicy)) -> Self {
        let mut client = Self::new();
        change(&mut client.policy);
        client
    }

    fn config(&self) -> (Arc<ClientConfig>, Arc<TrustOutcome>) {
        self.policy.client_config(NAME, 7070, None).unwrap()
    }

    /// Connects once, and returns the reason for trusting the server.
    fn try_out(&self, server: &Arc<ServerConfig>) -> Result<TrustReason, Fault> {
        let (config, outcome) = self.config();
        match connect(&config, NAME, server) {
            Ok(_) => Ok(outcome.reason().unwrap()),
            Err(failure) => {
                let fault = fault_of(&failure);
                assert_eq!(outcome.reason(), Some(TrustReason::Refused(fault.clone())));
                assert_eq!(outcome.fingerprint(), None);
                // A refused server is never remembered.
                assert!(!outcome.commit().unwrap());
                assert_eq!(fault.code, Code::ServerUntrusted);
                assert_eq!(fault.path, HOST.as_bytes());
                Err(fault)
            }
        }
    }

    fn known(&self) -> Vec<Fingerprint> {
        KnownHosts::load(&self.policy.known_hosts)
            .unwrap()
            .lookup(HOST)
    }

    fn learn(&self, fingerprint: Fingerprint) {
        KnownHosts::load(&self.policy.known_hosts)
            .unwrap()
            .add(HOST, fingerprint, "")
            .unwrap();
    }
}

fn fault_of(failure: &Failure) -> Fault {
    // The server learns it, too.
    let seen = server_fault(failure.server.as_ref().unwrap());
    assert_eq!(seen.code, Code::ServerUntrusted);
    client_fault(failure.client.as_ref().unwrap())
}

fn server(made: &Made) -> (Arc<ServerConfig>, Fingerprint) {
    let identity = made.identity();
    let config = identity.config(ClientCertificates::None).unwrap();
    (config, identity.fingerprint())
}

/// A server that presents one certificate and signs with the key of another.
fn impostor(shown: &Made, own: &Made) -> Arc<ServerConfig> {
    impostor_of(shown, own, &[&TLS13])
}

/// The same with these versions.
fn impostor_of(
    shown: &Made,
    own: &Made,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let key = CertifiedKey::new(shown.chain(), any_supported_type(&own.secret()).unwrap());
    let config = ServerConfig::builder_with_provider(ftp_provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    Arc::new(config)
}

#[test]
fn tls_1_2_is_for_servers_of_ftp_alone() {
    let (made, other) = (Made::alone(NAME), Made::alone(NAME));
    let older = impostor_of(&made, &made, &[&TLS12]);
    let client = Client::new();
    let failure = connect(&client.config().0, NAME, &older).unwrap_err();
    let fault = client_fault(failure.client.as_ref().unwrap());
    assert_eq!(fault.code, Code::ProtectionRefused);

    let ftp = || client.policy.ftp_client_config(NAME, 7070, None).unwrap();
    for (versions, wanted) in [
        (&[&TLS12][..], ProtocolVersion::TLSv1_2),
        (&[&TLS12, &TLS13], ProtocolVersion::TLSv1_3),
    ] {
        let (config, outcome) = ftp();
        let server = impostor_of(&made, &made, versions);
        let (seen, _) = connect(&config, NAME, &server).unwrap();
        assert_eq!(seen.protocol_version(), Some(wanted));
        let shown = made.identity().fingerprint();
        assert_eq!(outcome.fingerprint(), Some(shown));
        // The key is proved there too.
        let (config, outcome) = ftp();
        let failure = connect(&config, NAME, &impostor_of(&made, &other, versions));
        let fault = client_fault(failure.unwrap_err().client.as_ref().unwrap());
        assert_eq!(fault.code, Code::ServerUntrusted);
        assert_eq!(outcome.fingerprint(), None);
    }
}

#[test]
fn a_first_use_is_remembered_when_committed() {
    let client = Client::new();
    let (server, shown) = server(&Made::alone(NAME));
    let (config, outcome) = client.config();
    assert_eq!(outcome.reason(), None);
    assert!(!outcome.commit().unwrap());
    connect(&config, NAME, &server).unwrap();
    assert_eq!(outcome.reason(), Some(TrustReason::FirstUse(shown)));
    assert_eq!(outcome.fingerprint(), Some(shown));
    assert_eq!(client.known(), []);
    assert!(outcome.commit().unwrap());
    assert!(!outcome.commit().unwrap());
    assert_eq!(client.known(), [shown]);
    assert_eq!(client.try_out(&server), Ok(TrustReason::Known));
}

#[test]
fn a_changed_key_is_refused_with_both_fingerprints() {
    let client = Client::new();
    let (_, old) = server(&Made::alone(NAME));
    let (server, new) = server(&Made::alone(NAME));
    client.learn(old);
    let fault = client.try_out(&server).unwrap_err();
    assert!(fault.cause.contains(&old.to_string()), "{fault}");
    assert!(fault.cause.contains(&new.to_string()), "{fault}");
    let hint = format!("xdfs trust remove {HOST}");
    assert!(fault.hint.contains(&hint), "{}", fault.hint);
    assert_eq!(client.known(), [old]);
    // A host may have several keys.
    client.learn(new);
    assert_eq!(client.try_out(&server), Ok(TrustReason::Known));
}

#[test]
fn a_host_on_another_port_is_another_host() {
    let client = Client::new();
    let (_, other) = server(&Made::alone(NAME));
    let (server, shown) = server(&Made::alone(NAME));
    KnownHosts::load(&client.policy.known_hosts)
        .unwrap()
        .add("server.example:7071", other, "")
        .unwrap();
    assert_eq!(client.try_out(&server), Ok(TrustReason::FirstUse(shown)));
}

#[test]
fn new_hosts_can_be_refused() {
    let client = Client::with(|policy| policy.new_hosts = NewHosts::Refuse);
    let (server, shown) = server(&Made::alone(NAME));
    let fault = client.try_out(&server).unwrap_err();
    let hint = format!("xdfs trust add {HOST} {shown}");
    assert!(fault.hint.contains(&hint), "{}", fault.hint);
    client.learn(shown);
    assert_eq!(client.try_out(&server), Ok(TrustReason::Known));
}

#[test]
fn a_pin_alone_counts() {
    let authority = Authority::new("authority");
    let made = authority.sign(NAME, 2020, 2100);
    let (server, shown) = server(&made);
    let right = Client::with(|policy| policy.pins = vec![Fingerprint([1; 32]), shown]);
    // Even with an unreadable file.
    fs::write(&right.policy.known_hosts, "garbage").unwrap();
    assert_eq!(right.try_out_pinned(&server), Ok(TrustReason::Pinned));

    // Known and signed, but not pinned.
    let wrong = Client::with(|policy| {
        policy.pins = vec![Fingerprint([1; 32])];
        policy.roots = vec![authority.root.clone()];
    });
    wrong.learn(shown);
    let fault = wrong.try_out(&server).unwrap_err();
    assert!(fault.cause.contains(&shown.to_string()), "{fault}");
}

impl Client {
    fn try_out_pinned(&self, server: &Arc<ServerConfig>) -> Result<TrustReason, Fault> {
        let (config, outcome) = self.config();
        connect(&config, NAME, server).map_err(|failure| fault_of(&failure))?;
        assert!(!outcome.commit().unwrap());
        Ok(outcome.reason().unwrap())
    }
}

#[test]
fn an_authority_vouches_for_name_and_time() {
    let authority = Authority::new("authority");
    let stranger = Authority::new("stranger");
    let client = Client::with(|policy| policy.roots = vec![authority.root.clone()]);
    let outcome = |made: &Made| client.try_out(&server(made).0);

    assert_eq!(
        outcome(&authority.sign(NAME, 2020, 2100)),
        Ok(TrustReason::Authority)
    );
    for (made, reason) in [
        (
            authority.sign("other.example", 2020, 2100),
            "not valid for name",
        ),
        (authority.sign(NAME, 2020, 2021), "expired"),
        (authority.sign(NAME, 2100, 2101), "not valid yet"),
        (stranger.sign(NAME, 2020, 2100), "UnknownIssuer"),
        (Made::alone(NAME), "UnknownIssuer"),
    ] {
        // New hosts are accepted, but not where authorities were given.
        let fault = outcome(&made).unwrap_err();
        assert!(fault.cause.contains(reason), "{fault}");
    }
    // A server vouched for by an authority isn't remembered.
    assert_eq!(client.known(), []);
}

#[test]
fn the_name_of_the_policy_counts_and_not_that_of_the_connection() {
    let authority = Authority::new("authority");
    let client = Client::with(|policy| policy.roots = vec![authority.root.clone()]);
    let (server, _) = server(&authority.sign("other.example", 2020, 2100));
    let (config, _) = client.config();
    assert!(connect(&config, "other.example", &server).is_err());
}

#[test]
fn a_known_key_goes_before_an_authority() {
    let authority = Authority::new("authority");
    let client = Client::with(|policy| policy.roots = vec![authority.root.clone()]);
    let (signed, _) = server(&authority.sign(NAME, 2020, 2100));
    let (alone, shown) = server(&Made::alone(NAME));
    client.learn(shown);
    assert_eq!(client.try_out(&alone), Ok(TrustReason::Known));
    client.try_out(&signed).unwrap_err();
}

#[test]
fn an_old_certificate_does_not_matter_for_a_trusted_key() {
    let (server, shown) = server(&Made::alone_until("other.example", 2001));
    let known = Client::new();
    known.learn(shown);
    assert_eq!(known.try_out(&server), Ok(TrustReason::Known));
    let pinned = Client::with(|policy| policy.pins = vec![shown]);
    assert_eq!(pinned.try_out(&server), Ok(TrustReason::Pinned));
}

#[test]
fn the_system_does_not_vouch_for_a_self_signed_certificate() {
    let (server, shown) = server(&Made::alone(NAME));
    let client = Client::with(|policy| policy.system_roots = true);
    assert_eq!(client.try_out(&server), Ok(TrustReason::FirstUse(shown)));
    let client = Client::with(|policy| {
        policy.system_roots = true;
        policy.new_hosts = NewHosts::Refuse;
    });
    client.try_out(&server).unwrap_err();
}

#[test]
fn showing_the_certificate_is_not_having_its_key() {
    let authority = Authority::new("authority");
    let made = authority.sign(NAME, 2020, 2100);
    let thief = impostor(&made, &Made::alone(NAME));
    let shown = Fingerprint::of_certificate(made.certificate.der()).unwrap();
    let known = Client::new();
    known.learn(shown);
    for client in [
        known,
        Client::new(),
        Client::with(|policy| policy.pins = vec![shown]),
        Client::with(|policy| policy.roots = vec![authority.root.clone()]),
    ] {
        let fault = client.try_out(&thief).unwrap_err();
        assert!(fault.cause.contains("doesn't have the key"), "{fault}");
    }
}

#[test]
fn a_thief_at_the_first_use_does_not_keep_the_server_out() {
    let client = Client::new();
    let (real, shown) = server(&Made::alone(NAME));
    let thief = impostor(&Made::alone(NAME), &Made::alone(NAME));
    let (config, outcome) = client.config();
    connect(&config, NAME, &thief).unwrap_err();
    assert!(!outcome.commit().unwrap());
    connect(&config, NAME, &real).unwrap();
    assert!(outcome.commit().unwrap());
    assert_eq!(client.known(), [shown]);
}

#[test]
fn all_channels_of_a_first_use_show_one_key() {
    let client = Client::new();
    let (first, shown) = server(&Made::alone(NAME));
    let (second, other) = server(&Made::alone(NAME));
    let (config, outcome) = client.config();
    connect(&config, NAME, &first).unwrap();
    let fault = fault_of(&connect(&config, NAME, &second).unwrap_err());
    assert_eq!(fault.code, Code::ServerUntrusted);
    assert!(fault.cause.contains(&shown.to_string()), "{fault}");
    assert!(fault.cause.contains(&other.to_string()), "{fault}");
    assert_eq!(outcome.reason(), Some(TrustReason::Refused(fault)));
    assert_eq!(outcome.fingerprint(), Some(shown));
}

#[test]
fn of_two_first_uses_with_different_keys_one_is_committed() {
    let client = Client::new();
    let (first, shown) = server(&Made::alone(NAME));
    let (second, _) = server(&Made::alone(NAME));
    let (config, outcome) = client.config();
    let (config_other, outcome_other) = client.config();
    connect(&config, NAME, &first).unwrap();
    connect(&config_other, NAME, &second).unwrap();
    outcome.commit().unwrap();
    let fault = outcome_other.commit().unwrap_err();
    assert_eq!(fault.code, Code::ServerUntrusted);
    assert_eq!(client.known(), [shown]);
}

#[test]
fn a_resumed_channel_keeps_the_outcome() {
    let client = Client::new();
    let made = Made::alone(NAME);
    let (server, shown) = server(&made);
    let (config, outcome) = client.config();
    connect(&config, NAME, &server).unwrap();
    let (second, _) = connect(&config, NAME, &server).unwrap();
    assert_eq!(second.handshake_kind(), Some(HandshakeKind::Resumed));
    assert_eq!(outcome.reason(), Some(TrustReason::FirstUse(shown)));
    // Another policy has no tickets of this one.
    let (config, _) = client.config();
    let (third, _) = connect(&config, NAME, &server).unwrap();
    assert_eq!(third.handshake_kind(), Some(HandshakeKind::Full));
    assert_eq!(third.alpn_protocol(), Some(crate::identity::ALPN));
}

#[test]
fn damaged_settings_are_refused_before_a_connection() {
    let made = Made::alone(NAME);
    let client = Client::with(|policy| policy.roots = vec![vec![1, 2, 3].into()]);
    let code = |client: &Client, host: &str, certificate| {
        client
            .policy
            .client_config(host, 1, certificate)
            .unwrap_err()
            .code
    };
    assert_eq!(code(&client, NAME, None), Code::InvalidArgument);
    let client = Client::new();
    assert_eq!(code(&client, "a b", None), Code::InvalidArgument);
    let stranger = Some((made.chain(), Made::alone(NAME).secret()));
    assert_eq!(code(&client, NAME, stranger), Code::InvalidArgument);
    let empty = Some((Vec::new(), made.secret()));
    assert_eq!(code(&client, NAME, empty), Code::InvalidArgument);
    fs::write(&client.policy.known_hosts, "garbage").unwrap();
    assert_eq!(code(&client, NAME, None), Code::InvalidArgument);
}

#[test]
fn what_a_stranger_writes_cannot_move_the_cursor() {
    let authority = Authority::new("authority");
    let client = Client::with(|policy| policy.roots = vec![authority.root.clone()]);
    let made = authority.sign("\u{1b}[2Jother", 2020, 2100);
    let fault = client.try_out(&server(&made).0).unwrap_err();
    assert!(!fault.cause.contains(char::is_control), "{fault:?}");
}

#[test]
fn the_floor_is_tls_1_3() {
    let (config, _) = Client::new().config();
    let suites = config.crypto_provider().cipher_suites.iter();
    assert!(suites.clone().count() > 0);
    assert!(suites.clone().all(|s| s.tls13().is_some()));
    assert!(!config.enable_early_data);
}
