//! Tests of `gate`.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xdfs_access::Tickets;
use xdfs_security::export::{ExportConfig, ExportsConfig, GrantConfig, Rights};
use xdfs_security::password::{Parameters, PasswordClient, UsersFile};
use xdfs_security::ticket;
use xdfs_security::tunnel::TunnelRules;

use super::*;
use crate::security::{CurrentRules, Reach, ServerSecurity};

const PEER: &str = "192.0.2.1:40000";

/// A gate, and the rules by which it admits.
struct Entrance {
    rules: Arc<CurrentRules>,
    gate: SecureGate,
}

impl Entrance {
    fn new(settings: ServerSecurity, root: PathBuf) -> Self {
        let rules = CurrentRules::new(settings, root, false, Reach::default());
        let rules = Arc::new(rules.unwrap());
        let gate = SecureGate::new(Arc::<CurrentRules>::clone(&rules), None);
        Self { rules, gate }
    }

    fn reload(&self, settings: ServerSecurity, root: PathBuf) -> Result<(), Fault> {
        let tunnels = TunnelRules::default();
        let reach = Reach {
            tunnels,
            ..Reach::default()
        };
        self.rules.reload(settings, root, false, reach)
    }

    fn tickets(&self) -> Tickets {
        self.rules.tickets()
    }
}

impl Deref for Entrance {
    type Target = SecureGate;

    fn deref(&self) -> &SecureGate {
        &self.gate
    }
}

fn gate(folder: &Path) -> Entrance {
    let mut settings = ServerSecurity::new(folder.to_owned(), "owner".into());
    settings.limits.failures_free = 1;
    Entrance::new(settings, folder.to_owned())
}

fn begin(gate: &Entrance, peer: &str) -> Result<Verdict, Fault> {
    let protection = Protection {
        binding: [1; 32],
        peer_certificates: Vec::new(),
    };
    let request = AuthRequest {
        method: Method::Password.number(),
        user: "alice".into(),
        body: PasswordClient::begin().unwrap().1,
    };
    gate.begin(peer, &protection, &request)
}

/// Proofs started before the first failure don't bypass the delay.
#[test]
fn guesses_that_begin_together_wait_together() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path());
    let proofs: Vec<_> = (0..50)
        .map(|_| match begin(&gate, PEER).unwrap() {
            Verdict::Challenge(_, proof) => proof,
            other => panic!("{other:?}"),
        })
        .collect();
    let codes: Vec<Code> = proofs
        .into_iter()
        .map(|proof| proof.step(&[0; 32]).unwrap_err().code)
        .collect();
    assert_eq!(codes[0], Code::AuthenticationFailed);
    let guesses = codes
        .iter()
        .filter(|code| **code == Code::AuthenticationFailed);
    // Each failure doubles the delay, so even on a slow machine only a few get through.
    assert!(guesses.count() < 10, "{codes:?}");
    assert!(codes.contains(&Code::LimitExceeded), "{codes:?}");
    // Other addresses are still accepted.
    begin(&gate, "192.0.2.2:40000").unwrap();
}

fn public_gate(folder: &Path) -> Entrance {
    Entrance::new(public_settings(folder), folder.join("root"))
}

fn public_settings(folder: &Path) -> ServerSecurity {
    let mut settings = ServerSecurity::new(folder.join("server"), "owner".into());
    let export = ExportConfig {
        name: "public".into(),
        path: folder.join("root").to_str().unwrap().into(),
        make: true,
        public: true,
        ..ExportConfig::default()
    };
    settings.exports = Some(ExportsConfig {
        export: vec![export],
        ..ExportsConfig::default()
    });
    settings
}

/// Logs in without a proof, and returns whether that was accepted.
fn anonymous(gate: &Entrance, peer: &str) -> bool {
    log_in(gate, peer, Method::Anonymous, Vec::new()).is_ok()
}

fn log_in(
    gate: &Entrance,
    peer: &str,
    method: Method,
    body: Vec<u8>,
) -> Result<Arc<dyn Standing>, Fault> {
    let protection = Protection {
        binding: [1; 32],
        peer_certificates: Vec::new(),
    };
    let request = AuthRequest {
        method: method.number(),
        user: String::new(),
        body,
    };
    match gate.begin(peer, &protection, &request)? {
        Verdict::Admitted(grant) => Ok(grant.standing.unwrap()),
        other => panic!("{other:?}"),
    }
}

/// Sessions go on after a reload as long as their user has what it had.
#[test]
fn a_standing_follows_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let gate = public_gate(folder);
    let ticket = gate.tickets().issue(Duration::from_secs(60), 9).unwrap();
    let proof = || ticket::prove(&ticket, &[1; 32]).unwrap();
    let anonymous = log_in(&gate, PEER, Method::Anonymous, Vec::new()).unwrap();
    let owner = log_in(&gate, PEER, Method::Ticket, proof()).unwrap();
    let reload = |change: &dyn Fn(&mut ExportConfig)| {
        let mut settings = public_settings(folder);
        change(&mut settings.exports.as_mut().unwrap().export[0]);
        gate.reload(settings, folder.join("root"))
    };
    let are_valid = || (anonymous.is_valid(), owner.is_valid());
    reload(&|_| ()).unwrap();
    assert_eq!(are_valid(), (true, true));
    reload(&|export| export.anonymous = Some(Rights::ALL)).unwrap();
    assert_eq!(are_valid(), (true, true));
    // The owner has the rights of everybody here, and now another grant of them.
    reload(&|export| {
        export.public = false;
        export.grant.push(GrantConfig {
            user: Some("owner".into()),
            group: None,
            rights: Rights::READ | Rights::LIST,
        });
    })
    .unwrap();
    assert_eq!(are_valid(), (false, true));
    // Tickets are still known.
    log_in(&gate, PEER, Method::Ticket, proof()).unwrap();
    reload(&|export| export.path += "/below").unwrap();
    assert_eq!(are_valid(), (false, false));
    // What can't be used changes nothing.
    reload(&|export| export.name = "a/b".into()).unwrap_err();
    reload(&|_| ()).unwrap();
    assert_eq!(are_valid(), (true, true));
}

/// Anonymous logins don't allow more guesses.
#[test]
fn anonymous_logins_forgive_no_guesses() {
    let folder = tempfile::tempdir().unwrap();
    let gate = public_gate(folder.path());
    let mut checked = 0;
    for _ in 0..50 {
        if let Ok(Verdict::Challenge(_, proof)) = begin(&gate, PEER) {
            let fault = proof.step(&[0; 32]).unwrap_err();
            checked += u32::from(fault.code == Code::AuthenticationFailed);
        }
        anonymous(&gate, PEER);
    }
    // Three are free, and each further one doubles the delay, even on a slow machine.
    assert!((3..20).contains(&checked), "{checked}");
    assert!(anonymous(&gate, "192.0.2.2:40000"));
}

/// Unanswered challenges count as failures.
#[test]
fn who_goes_away_before_the_proof_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let gate = public_gate(folder.path());
    let mut begun = 0;
    while let Ok(Verdict::Challenge(_, proof)) = begin(&gate, PEER) {
        drop(proof);
        begun += 1;
        assert!(begun < 20, "they cost nothing");
    }
    assert!(begun >= 3, "{begun}");
    // The user isn't delayed: no password was tried.
    for peer in ["192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1", "192.0.2.5:1"] {
        for _ in 0..3 {
            begin(&gate, peer).map(drop).unwrap();
        }
    }
    begin(&gate, "192.0.2.9:1").map(drop).unwrap();
}

/// Guesses from many addresses delay password logins of that user only, and not logins by key.
#[test]
fn guesses_from_many_addresses_are_counted_together() {
    let folder = tempfile::tempdir().unwrap();
    let gate = public_gate(folder.path());
    let checked = |last: u32| {
        let peer = format!("192.0.2.{last}:40000");
        match begin(&gate, &peer) {
            Ok(Verdict::Challenge(_, proof)) => {
                proof.step(&[0; 32]).unwrap_err().code == Code::AuthenticationFailed
            }
            _ => false,
        }
    };
    let count = (1..=100).filter(|last| checked(*last)).count();
    assert!((10..20).contains(&count), "{count}");
    // A wrong key is refused as such.
    let protection = Protection {
        binding: [1; 32],
        peer_certificates: Vec::new(),
    };
    let request = AuthRequest {
        method: Method::Key.number(),
        user: "alice".into(),
        body: Vec::new(),
    };
    let fault = gate
        .begin("192.0.2.200:1", &protection, &request)
        .unwrap_err();
    assert_eq!(fault.code, Code::AuthenticationFailed, "{fault}");
}

/// Sessions of a front door that takes plain passwords count together with those of this one.
#[test]
fn sessions_by_another_door_count_too() {
    let folder = tempfile::tempdir().unwrap();
    let cheap = Parameters::new(7 * 1024, 1, 1).unwrap();
    let users = UsersFile::new(folder.path().join("users")).with_parameters(cheap);
    users.add("owner", "secret").unwrap();
    let mut settings = ServerSecurity::new(folder.path().to_owned(), "owner".into());
    settings.limits.sessions_per_user_max = 1;
    settings.limits.bytes_per_second_per_user_max = std::num::NonZeroU64::new(5);
    let gate = Entrance::new(settings, folder.path().to_owned());
    let ticket = gate.tickets().issue(Duration::from_secs(60), 9).unwrap();
    let protection = Protection {
        binding: [1; 32],
        peer_certificates: Vec::new(),
    };
    let request = AuthRequest {
        method: Method::Ticket.number(),
        user: String::new(),
        body: ticket::prove(&ticket, &protection.binding).unwrap(),
    };
    let here = || match gate.begin(PEER, &protection, &request) {
        Ok(Verdict::Admitted(admission)) => Ok(admission),
        Ok(other) => panic!("{other:?}"),
        Err(fault) => Err(fault.code),
    };
    let peer = Peer::new("other", PEER);
    let there = || {
        let evidence = Evidence::Password("secret");
        let access = gate.rules.access();
        let login = access.authenticate(&peer, "owner", evidence).unwrap();
        let admission = access.admit(&peer, &login);
        admission.map_err(|fault| fault.code)
    };
    let first = here().unwrap();
    assert_eq!(there().unwrap_err(), Code::LimitExceeded);
    let rate = first.rate.clone().unwrap();
    drop(first);
    let second = there().unwrap();
    assert_eq!(here().unwrap_err(), Code::LimitExceeded);
    assert!(Arc::ptr_eq(&rate, second.rate.as_ref().unwrap()));
}
