//! Tests of `guard`.

use super::*;

fn limits() -> Limits {
    Limits {
        bytes_per_second_per_user_max: None,
        handshakes_max: 4,
        handshakes_per_address_max: 2,
        failures_free: 3,
        guesses_free: 5,
        addresses_max: 8,
        sessions_per_user_max: 2,
        channels_per_user_max: 3,
        connections_per_user_max: 2,
    }
}

fn guard() -> Guard {
    Guard::new(limits())
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn v4(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[track_caller]
fn refused<T: fmt::Debug>(result: Result<T, Fault>) -> u32 {
    let fault = result.unwrap_err();
    assert_eq!(fault.code, Code::LimitExceeded, "{fault}");
    assert!(!fault.cause.is_empty() && !fault.hint.is_empty());
    match fault.retry {
        Retry::AfterMs(wait) if wait > 0 => wait,
        other => panic!("{other:?}"),
    }
}

#[test]
fn handshakes_of_an_address_are_bounded_and_given_back() {
    let guard = guard();
    let first = guard.begin(v4(1), at(0)).unwrap();
    let _second = guard.begin(v4(1), at(0)).unwrap();
    refused(guard.begin(v4(1), at(0)));
    let _other = guard.begin(v4(2), at(0)).unwrap();
    drop(first);
    let _third = guard.begin(v4(1), at(0)).unwrap();
    refused(guard.begin(v4(1), at(0)));
}

#[test]
fn handshakes_are_bounded_over_all_addresses() {
    let guard = guard();
    let mut running: Vec<_> = (1..=4)
        .map(|last| guard.begin(v4(last), at(0)).unwrap())
        .collect();
    refused(guard.begin(v4(5), at(0)));
    // A refusal takes no slot.
    let copy = guard.clone();
    refused(copy.begin(v4(5), at(0)));
    drop(copy);
    running.pop();
    running.push(guard.begin(v4(5), at(0)).unwrap());
    running.clear();
    let state = guard.shared.lock();
    assert_eq!((state.handshakes, state.by_network.len()), (0, 0));
}

#[test]
fn the_delay_doubles_up_to_its_bound() {
    let guard = guard();
    let mut now = at(10);
    assert_eq!(guard.failed(v4(1), "alice", now), Duration::ZERO);
    assert_eq!(guard.failed(v4(1), "alice", now), Duration::ZERO);
    drop(guard.begin(v4(1), now).unwrap());
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] {
        assert_eq!(guard.failed(v4(1), "alice", now), at(seconds));
        assert_eq!(refused(guard.begin(v4(1), now)), seconds as u32 * 1000);
        let almost = now + at(seconds) - Duration::from_nanos(1);
        assert_eq!(refused(guard.begin(v4(1), almost)), 1);
        // Others aren't affected.
        drop(guard.begin(v4(2), now).unwrap());
        now += at(seconds);
        drop(guard.begin(v4(1), now).unwrap());
    }
}

#[test]
fn very_many_failures_are_one_delay() {
    let mut failures = Failures::new(0, 1, WAIT_MAX);
    for _ in 0..200 {
        failures.add(Network::of(v4(1)), 0, at(0));
    }
    assert_eq!(failures.wait(Network::of(v4(1)), at(0)), Some(at(300)));
}

#[test]
fn time_and_success_forgive() {
    let guard = guard();
    for _ in 0..5 {
        guard.failed(v4(1), "alice", at(0));
    }
    // One second before the end all are remembered, and the time restarts.
    assert_eq!(guard.failed(v4(1), "alice", at(899)), at(8));
    assert_eq!(guard.failed(v4(1), "alice", at(899 + 900)), Duration::ZERO);
    for _ in 0..5 {
        guard.failed(v4(1), "alice", at(2000));
    }
    guard.succeeded(v4(1), "", "alice");
    drop(guard.begin(v4(1), at(2000)).unwrap());
    assert_eq!(guard.failed(v4(1), "alice", at(2000)), Duration::ZERO);
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let guard = guard();
    for _ in 0..3 {
        guard.failed(v4(1), "alice", at(100));
    }
    assert_eq!(refused(guard.begin(v4(1), at(50))), 1000);
}

#[test]
fn an_ipv6_network_is_one_address() {
    let guard = guard();
    for last in ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::1"] {
        guard.failed(address(last), "alice", at(0));
    }
    refused(guard.begin(address("2001:db8::3"), at(0)));
    drop(guard.begin(address("2001:db8:0:1::1"), at(0)).unwrap());
    let _first = guard.begin(address("2001:db8:0:2::1"), at(0)).unwrap();
    let _second = guard.begin(address("2001:db8:0:2::2"), at(0)).unwrap();
    refused(guard.begin(address("2001:db8:0:2::3"), at(0)));
}

#[test]
fn a_mapped_address_is_the_address() {
    let guard = guard();
    for _ in 0..3 {
        guard.failed(address("::ffff:192.0.2.1"), "alice", at(0));
    }
    refused(guard.begin(v4(1), at(0)));
    // Otherwise all of IPv4 would be one network.
    drop(guard.begin(address("::ffff:192.0.2.2"), at(0)).unwrap());
}

#[test]
fn the_table_is_bounded() {
    let mut failures = Failures::new(3, 8, WAIT_MAX);
    for last in 0..=255 {
        failures.add(Network::of(v4(last)), 0, at(last.into()));
        assert!(failures.len() <= 8);
    }
    assert_eq!(failures.len(), 8);
    // Forgiven ones are forgotten, whatever their count.
    failures.add(Network::of(v4(1)), 0, at(5000));
    assert_eq!(failures.len(), 1);
    let mut none = Failures::new(3, 0, WAIT_MAX);
    none.add(Network::of(v4(1)), 0, at(0));
    assert_eq!(none.len(), 0);
}

#[test]
fn an_address_is_not_flushed_by_failures_of_others() {
    let guard = guard();
    let (attacker, now) = (v4(1), at(0));
    for _ in 0..9 {
        guard.failed(attacker, "alice", now);
    }
    // Twice as many others as the table has slots, each with the maximum of free failures.
    for last in 100..116 {
        guard.failed(v4(last), "alice", now);
        guard.failed(v4(last), "alice", now);
    }
    assert_eq!(refused(guard.begin(attacker, now)), 64_000);
}

#[test]
fn who_was_displaced_comes_back_with_no_less() {
    let mut failures = Failures::new(3, 2, WAIT_MAX);
    let [a, b, c] = [1, 2, 3].map(|last| Network::of(v4(last)));
    for network in [a, a, a, a, b, b, b, b, b] {
        failures.add(network, 0, at(0));
    }
    // c replaces a, which had 4, and a then replaces b, which has 5, or c.
    failures.add(c, 0, at(1));
    assert_eq!(failures.wait(a, at(1)), None);
    failures.add(a, 0, at(2));
    assert!(failures.wait(a, at(2)).unwrap() >= at(4));
}

#[test]
fn forgiven_records_make_room_before_others_are_displaced() {
    let mut failures = Failures::new(3, 2, WAIT_MAX);
    let [old, b, c] = [1, 2, 3].map(|last| Network::of(v4(last)));
    for _ in 0..9 {
        failures.add(old, 0, at(0));
    }
    for _ in 0..3 {
        failures.add(b, 0, at(1000));
    }
    failures.add(c, 0, at(1000));
    assert_eq!(failures.wait(c, at(1000)), None);
    assert_eq!(failures.wait(b, at(1000)), Some(at(1)));
}

/// One's own account, or none at all, must not help to guess at those of others.
#[test]
fn a_success_forgives_what_failed_at_this_user_alone() {
    let guard = guard();
    for now in 0..2 {
        guard.failed(v4(1), "alice", at(now));
        guard.succeeded(v4(1), "", "mallory");
    }
    guard.failed(v4(1), "mallory", at(2));
    guard.succeeded(v4(1), "mallory", "mallory");
    drop(guard.begin(v4(1), at(2)).unwrap());
    guard.failed(v4(1), "alice", at(2));
    guard.succeeded(v4(1), "mallory", "mallory");
    refused(guard.begin(v4(1), at(2)));
    // Attempts without a name are forgiven when the name is known.
    guard.failed(v4(2), "", at(2));
    guard.failed(v4(2), "", at(2));
    guard.succeeded(v4(2), "", "bob");
    assert_eq!(guard.failed(v4(2), "bob", at(2)), Duration::ZERO);
    guard.succeeded(v4(2), "bob", "bob");
    assert_eq!(guard.shared.lock().failures.len(), 1);
}

/// More users than an address has shares for: failures not attributed to a user aren't forgiven.
#[test]
fn failures_at_many_users_are_not_forgiven_by_few() {
    let guard = guard();
    for user in ["a", "b", "c", "d", "e", "f", "g"] {
        guard.failed(v4(1), user, at(0));
    }
    guard.succeeded(v4(1), "g", "g");
    refused(guard.begin(v4(1), at(0)));
}

#[test]
fn a_user_under_attack_from_many_addresses_waits_and_not_for_long() {
    let guard = guard();
    let mut now = at(0);
    guard.succeeded(v4(9), "alice", "alice");
    for last in 10..15 {
        guard.may_guess(v4(last), "alice", now).unwrap();
        guard.guessed("alice", now);
    }
    for seconds in [1, 2, 4, 8, 8, 8, 8] {
        assert_eq!(
            refused(guard.may_guess(v4(1), "alice", now)),
            seconds * 1000
        );
        // Others don't wait, nor does the user at a familiar address.
        guard.may_guess(v4(1), "bob", now).unwrap();
        guard.may_guess(v4(9), "alice", now).unwrap();
        now += at(seconds.into());
        guard.may_guess(v4(1), "alice", now).unwrap();
        guard.guessed("alice", now);
    }
    // A login elsewhere doesn't give attackers new guesses.
    guard.succeeded(v4(7), "alice", "alice");
    refused(guard.may_guess(v4(1), "alice", now));
    guard.may_guess(v4(7), "alice", now).unwrap();
}

#[test]
fn familiar_addresses_are_bounded() {
    let mut familiar = Familiar::new(2);
    let [a, b, c] = [1, 2, 3].map(|last| Network::of(v4(last)));
    for network in [a, b, a, c] {
        familiar.add(network, 5);
    }
    let known = [a, b, c].map(|network| familiar.contains(network, 5));
    assert_eq!(known, [false, true, true]);
    assert!(!familiar.contains(c, 6));
    let mut none = Familiar::new(0);
    none.add(a, 5);
    assert!(!none.contains(a, 5));
}

/// A refused handshake takes no slot, neither in total nor of its address.
#[test]
fn refusals_take_no_place() {
    let guard = guard();
    let counts = || {
        let state = guard.shared.lock();
        let of_address = state.by_network.get(&Network::of(v4(1))).copied();
        (state.handshakes, state.by_network.len(), of_address)
    };
    let held = [guard.begin(v4(1), at(0)), guard.begin(v4(1), at(0))].map(Result::unwrap);
    let before = counts();
    for _ in 0..5 {
        refused(guard.begin(v4(1), at(0)));
        assert_eq!(counts(), before);
    }
    let others = [guard.begin(v4(2), at(0)), guard.begin(v4(2), at(0))].map(Result::unwrap);
    // Full for all addresses.
    refused(guard.begin(v4(3), at(0)));
    drop(others);
    assert_eq!(counts(), before);
    for now in 0..3 {
        guard.failed(v4(1), "alice", at(now));
    }
    refused(guard.begin(v4(1), at(2)));
    assert_eq!(counts(), before);
    drop(held);
    assert_eq!(counts(), (0, 0, None));
}

#[test]
fn sessions_and_channels_of_a_user_are_bounded_and_given_back() {
    let guard = guard();
    let mut sessions = vec![guard.session("a").unwrap(), guard.session("a").unwrap()];
    refused(guard.session("a"));
    let _other = guard.session("b").unwrap();
    let channels: Vec<_> = (0..3).map(|_| guard.channel("a").unwrap()).collect();
    refused(guard.channel("a"));
    sessions.pop();
    sessions.push(guard.session("a").unwrap());
    refused(guard.session("a"));
    drop((sessions, channels));
    let state = guard.shared.lock();
    assert_eq!((state.sessions.len(), state.channels.len()), (1, 0));
}

#[test]
fn no_places_at_all() {
    let guard = Guard::new(Limits {
        handshakes_per_address_max: 0,
        sessions_per_user_max: 0,
        ..limits()
    });
    refused(guard.begin(v4(1), at(0)));
    refused(guard.session("a"));
    let state = guard.shared.lock();
    assert_eq!((state.by_network.len(), state.sessions.len()), (0, 0));
}
