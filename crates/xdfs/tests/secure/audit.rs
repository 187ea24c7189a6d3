//! What the audit log tells, and what it doesn't.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use xdfs::Code;
use xdfs::security::Credential;
use xdfs_testkit::wait;

use crate::world::{PATIENCE, World};

fn lines(world: &World) -> Vec<Value> {
    fs::read_to_string(world.path("audit"))
        .unwrap_or_default()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Whether a line says all of this.
fn says(line: &Value, parts: &[(&str, Value)]) -> bool {
    parts.iter().all(|(name, value)| line[*name] == *value)
}

#[test]
fn the_log_says_who_did_what() {
    const PASSWORD: &str = "correct horse battery staple";
    const WRONG: &str = "incorrect donkey";
    let world = World::with(|security, folder| security.audit = Some(folder.join("audit")));
    world.add_password("alice", PASSWORD);
    let ticket = world.tickets.issue(Duration::from_secs(60), 1).unwrap();
    let key = world.owner_key();
    let source = world.source(3_000_000);
    let target = world.path("client/got");

    let owner = world.visit("", vec![key]).channels(4);
    owner.upload(&source, "/by-key").unwrap();
    let alice = world.visit("alice", vec![Credential::Password(PASSWORD.into())]);
    alice.download("/by-key", &target).unwrap();
    let wrong = world.visit("alice", vec![Credential::Password(WRONG.into())]);
    wrong.upload(&source, "/not-at-all").unwrap_err();
    let guest = world.visit("", vec![Credential::Ticket(ticket.clone())]);
    guest.upload(&source, "/by-ticket").unwrap();
    let again = guest.upload(&source, "/again").unwrap_err();
    assert_eq!(again.code, Code::AuthenticationFailed);
    alice.download("/missing", &target).unwrap_err();

    let expected: [&[(&str, Value)]; 8] = [
        &[
            ("event", "authenticate".into()),
            ("user", "owner".into()),
            ("method", "key".into()),
            ("result", "ok".into()),
        ],
        &[
            ("event", "upload".into()),
            ("user", "owner".into()),
            ("method", "key".into()),
            ("path", "/by-key".into()),
            ("bytes", 3_000_000.into()),
            ("result", "ok".into()),
        ],
        &[
            ("event", "authenticate".into()),
            ("user", "alice".into()),
            ("method", "password".into()),
            ("result", "ok".into()),
        ],
        &[
            ("event", "download".into()),
            ("user", "alice".into()),
            ("method", "password".into()),
            ("path", "/by-key".into()),
            ("bytes", 3_000_000.into()),
            ("result", "ok".into()),
        ],
        &[
            ("event", "authenticate".into()),
            ("user", "alice".into()),
            ("method", "password".into()),
            ("result", "authentication-failed".into()),
        ],
        &[
            ("event", "upload".into()),
            ("method", "ticket".into()),
            ("path", "/by-ticket".into()),
            ("result", "ok".into()),
        ],
        &[
            ("event", "authenticate".into()),
            ("method", "ticket".into()),
            ("result", "authentication-failed".into()),
        ],
        &[
            ("event", "refuse".into()),
            ("user", "alice".into()),
            ("path", "/missing".into()),
            ("result", "not-found".into()),
        ],
    ];
    for parts in expected {
        // A line may come after the client has its answer.
        let found = wait::until(PATIENCE, || lines(&world).iter().any(|l| says(l, parts)));
        assert!(found, "{parts:?} in {:#?}", lines(&world));
    }
    for line in lines(&world) {
        assert!(line["time"].is_string(), "{line}");
        let from = line["from"].as_str().unwrap();
        assert!(from.starts_with("127.0.0.1:"), "{line}");
    }
    let text = fs::read_to_string(world.path("audit")).unwrap();
    for secret in [PASSWORD, WRONG, &ticket, &ticket[20..]] {
        assert!(!text.contains(secret));
    }
    #[cfg(unix)]
    {
        let metadata = fs::metadata(world.path("audit")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
}

/// A transfer that is cut off has a line, too, with what came.
#[test]
fn the_log_says_what_did_not_end_well() {
    let world = World::with(|security, folder| security.audit = Some(folder.join("audit")));
    let proxy = xdfs_testkit::proxy::FaultProxy::new(world.addr).unwrap();
    let source = world.source(3_000_000);
    proxy.push_plan(xdfs_testkit::proxy::Plan::up(|faults| {
        faults.cut_after = Some(1_500_000);
    }));
    let visit = world.visit("", vec![world.owner_key()]).at(proxy.addr());
    visit.upload(&source, "/half").unwrap_err();
    let is_half = |line: &Value| {
        let bytes = line["bytes"].as_u64().unwrap_or_default();
        line["event"] == "upload" && line["result"] != "ok" && bytes < 1_500_000
    };
    let found = wait::until(PATIENCE, || lines(&world).iter().any(is_half));
    assert!(found, "{:#?}", lines(&world));
}

/// What peers call themselves can't make lines of its own.
#[test]
fn names_of_strangers_stay_in_their_line() {
    let world = World::with(|security, folder| security.audit = Some(folder.join("audit")));
    let mut raw = crate::raw::Raw::open(world.addr, &world.trust());
    let user = "eve\",\"result\":\"ok\"}\n{\"event\":\"upload";
    let fault = crate::raw::refused_auth(&mut raw, 2, user, b"no proof");
    assert_eq!(fault.code, Code::AuthenticationFailed, "{fault}");
    let lines = lines(&world);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0]["result"], "authentication-failed");
    assert_eq!(lines[0]["event"], "authenticate");
}
