//! What the doors have in common: failures, limits, and the audit log.

use std::time::Duration;

use xdfs_proto::Code;
use xdfs_security::guard::Limits;

use crate::bearer;
use crate::house::{House, PASSWORD};
use crate::line;

const PEER: &str = "192.0.2.7:4000";
const FREE: u32 = 3;

/// Logs in at the door for requests; the session, for as long as it is held.
fn request(house: &House, peer: &str) -> Result<impl Sized + use<>, Code> {
    let head = bearer::head("GET /box/one", &house.token("storage.read:/box"));
    let admitted = bearer::log_in(&house.access, peer, &head);
    admitted
        .map(|(_, admission)| admission)
        .map_err(|fault| fault.code)
}

/// Wrong passwords of one user stop neither other users of the same address nor other proofs.
#[test]
fn who_failed_waits_and_nobody_else_does() {
    let house = House::new(Limits {
        failures_free: FREE,
        ..Limits::default()
    });
    line::visit(&house, PEER, |guest| {
        for _ in 0..=FREE {
            guest.log_in("bob", "wrong").unwrap_err();
        }
        assert_eq!(guest.log_in("bob", "wrong").unwrap_err(), "limit-exceeded");
        guest.log_in("alice", PASSWORD).unwrap();
    });
    line::visit(&house, PEER, |guest| {
        for _ in 0..=FREE {
            guest.log_in("alice", "wrong").unwrap_err();
        }
    });
    // From the same machine, by another port.
    let other = "192.0.2.7:5000";
    line::visit(&house, other, |alice| {
        assert_eq!(
            alice.log_in("alice", PASSWORD).unwrap_err(),
            "limit-exceeded"
        );
    });
    request(&house, other).map(drop).unwrap();
    house.clock.advance(Duration::from_secs(3));
    line::visit(&house, PEER, |alice| alice.log_in("alice", PASSWORD)).unwrap();
}

#[test]
fn guesses_at_a_user_count_from_wherever_they_come() {
    let house = House::new(Limits {
        guesses_free: FREE,
        ..Limits::default()
    });
    let guess = |last: u32, password: &str| {
        let peer = format!("192.0.2.{last}:4000");
        line::visit(&house, &peer, |guest| guest.log_in("alice", password))
    };
    for last in 1..=FREE {
        assert_eq!(guess(last, "wrong").unwrap_err(), "authentication-failed");
    }
    assert_eq!(guess(100, PASSWORD).unwrap_err(), "limit-exceeded");
    // That is about passwords alone.
    request(&house, "192.0.2.101:4000").map(drop).unwrap();
    house.clock.advance(Duration::from_secs(10));
    guess(100, PASSWORD).unwrap();
}

#[test]
fn a_user_has_one_limit_for_all_doors() {
    let house = House::new(Limits {
        sessions_per_user_max: 2,
        channels_per_user_max: 3,
        ..Limits::default()
    });
    let first = request(&house, PEER).unwrap();
    line::visit(&house, PEER, |alice| {
        alice.log_in("alice", PASSWORD).unwrap();
        assert_eq!(request(&house, PEER).err(), Some(Code::LimitExceeded));
        // Each session has a connection already.
        alice.join().unwrap();
        assert_eq!(alice.join().unwrap_err(), "limit-exceeded");
        drop(first);
        alice.join().unwrap();
        // The connections are used up, and not the sessions.
        assert_eq!(request(&house, PEER).err(), Some(Code::LimitExceeded));
    });
    let second = (
        request(&house, PEER).unwrap(),
        request(&house, PEER).unwrap(),
    );
    assert_eq!(request(&house, PEER).err(), Some(Code::LimitExceeded));
    drop(second);
    request(&house, PEER).map(drop).unwrap();
}

#[test]
fn refusals_alike_are_counted_for_each_door() {
    let house = House::new(Limits {
        failures_free: 100,
        guesses_free: 100,
        ..Limits::default()
    });
    for _ in 0..3 {
        line::visit(&house, PEER, |guest| guest.log_in("bob", "wrong")).unwrap_err();
        let head = bearer::head("GET /box/one", "no token");
        bearer::log_in(&house.access, PEER, &head)
            .map(drop)
            .unwrap_err();
    }
    // The next line also tells what was counted.
    house.clock.advance(Duration::from_secs(61));
    request(&house, PEER).map(drop).unwrap();
    let mut lines = house.audit(["door", "method", "result", "repeats"]);
    lines.sort();
    let failed = |door: &str, method: &str, repeats: &str| {
        [door, method, "authentication-failed", repeats].map(str::to_owned)
    };
    let expected = [
        failed("bearer", "token", ""),
        failed("bearer", "token", "2"),
        ["bearer", "token", "ok", ""].map(str::to_owned),
        failed("line", "password", ""),
        failed("line", "password", "2"),
    ];
    assert_eq!(lines, expected);
}
