//! Tests of `guard`.

use super::*;

const HERE: Network = Network::Here;

fn limits() -> Limits {
    Limits {
        bytes_per_second_per_user_max: None,
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
fn the_delay_doubles_up_to_its_bound() {
    let guard = guard();
    let mut now = at(10);
    let guess = |now| guard.may_guess(v4(1), "alice", now);
    assert_eq!(guard.failed(v4(1), "alice", now), Duration::ZERO);
    assert_eq!(guard.failed(v4(1), "alice", now), Duration::ZERO);
    guess(now).unwrap();
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] {
        assert_eq!(guard.failed(v4(1), "alice", now), at(seconds));
        assert_eq!(refused(guess(now)), seconds as u32 * 1000);
        let almost = now + at(seconds) - Duration::from_nanos(1);
        assert_eq!(refused(guess(almost)), 1);
        // Others aren't affected, neither there nor elsewhere.
        guard.may_guess(v4(1), "bob", now).unwrap();
        guard.may_guess(v4(2), "alice", now).unwrap();
        now += at(seconds);
        guess(now).unwrap();
    }
}

/// Behind one address, the failures of a few users are theirs alone, and an address that guesses at
/// many has to wait.
#[test]
fn an_address_waits_when_passwords_of_many_users_were_wrong() {
    let guard = Guard::new(Limits {
        addresses_max: 100,
        ..limits()
    });
    guard.succeeded(v4(1), "carol", "carol");
    let names: Vec<_> = (0..USERS_PER_ADDRESS).map(|i| format!("user{i}")).collect();
    // A broken job is repeated for an hour.
    for minute in 0..60 {
        guard.failed(v4(1), "broken", at(minute * 60));
    }
    let now = at(3600);
    for name in &names[..names.len() - 1] {
        guard.may_guess(v4(1), "bob", now).unwrap();
        guard.failed(v4(1), name, now);
    }
    refused(guard.may_guess(v4(1), "bob", now));
    // Who has logged in there before doesn't wait, nor do others elsewhere.
    guard.may_guess(v4(1), "carol", now).unwrap();
    guard.may_guess(v4(2), "bob", now).unwrap();
    // From then on each failure counts, also of those that have to wait themselves.
    let mut wait = 0;
    for round in 1..20 {
        let now = now + at(round * 300);
        guard.failed(v4(1), &names[0], now);
        guard.failed(v4(1), "broken", now);
        wait = refused(guard.may_guess(v4(1), "dave", now));
    }
    assert_eq!(wait, 300_000);
    guard
        .may_guess(v4(1), "dave", at(3600 + 20 * 300 + 900))
        .unwrap();
}

#[test]
fn very_many_failures_are_one_delay() {
    let mut failures = Failures::<_, 4>::new(0, 1, WAIT_MAX);
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
    guard.may_guess(v4(1), "alice", at(2000)).unwrap();
    assert_eq!(guard.failed(v4(1), "alice", at(2000)), Duration::ZERO);
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let guard = guard();
    for _ in 0..3 {
        guard.failed(v4(1), "alice", at(100));
    }
    assert_eq!(refused(guard.may_guess(v4(1), "alice", at(50))), 1000);
}

#[test]
fn a_network_is_one_address() {
    let guard = guard();
    for last in ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::1"] {
        guard.failed(address(last), "alice", at(0));
    }
    refused(guard.may_guess(address("2001:db8::3"), "alice", at(0)));
    let other = address("2001:db8:0:1::1");
    guard.may_guess(other, "alice", at(0)).unwrap();
    for _ in 0..3 {
        guard.failed(address("::ffff:192.0.2.1"), "alice", at(0));
    }
    refused(guard.may_guess(v4(1), "alice", at(0)));
}

#[test]
fn the_table_is_bounded() {
    let mut failures = Failures::<_, 4>::new(3, 8, WAIT_MAX);
    for last in 0..=255 {
        failures.add(Network::of(v4(last)), 0, at(last.into()));
        assert!(failures.len() <= 8);
    }
    assert_eq!(failures.len(), 8);
    // Forgiven ones are forgotten, whatever their count.
    failures.add(Network::of(v4(1)), 0, at(5000));
    assert_eq!(failures.len(), 1);
    let mut none = Failures::<_, 4>::new(3, 0, WAIT_MAX);
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
    assert_eq!(refused(guard.may_guess(attacker, "alice", now)), 64_000);
}

#[test]
fn who_was_displaced_comes_back_with_no_less() {
    let mut failures = Failures::<_, 4>::new(3, 2, WAIT_MAX);
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
    let mut failures = Failures::<_, 4>::new(3, 2, WAIT_MAX);
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
    guard.may_guess(v4(1), "alice", at(2)).unwrap();
    guard.failed(v4(1), "alice", at(2));
    guard.succeeded(v4(1), "mallory", "mallory");
    refused(guard.may_guess(v4(1), "alice", at(2)));
    // Attempts without a name are forgiven when the name is known.
    guard.failed(v4(2), "", at(2));
    guard.failed(v4(2), "", at(2));
    guard.succeeded(v4(2), "", "bob");
    assert_eq!(guard.failed(v4(2), "", at(2)), Duration::ZERO);
    guard.succeeded(v4(2), "bob", "bob");
    assert_eq!(guard.shared.lock().at_address.len(), 2);
}

/// More users than an address has shares for: failures not attributed to a user aren't forgiven.
#[test]
fn failures_at_many_users_are_not_forgiven_by_few() {
    let mut failures = Failures::<_, 4>::new(3, 8, WAIT_MAX);
    let network = Network::of(v4(1));
    for user in 0..7 {
        failures.add(network, user, at(0));
    }
    failures.forgive(network, 6);
    assert!(failures.wait(network, at(0)).is_some());
}

/// A user counts once at an address, however often a password is wrong, and anew after a success.
#[test]
fn users_with_wrong_passwords_count_once_at_their_address() {
    let guard = guard();
    let names: Vec<_> = (0..USERS_PER_ADDRESS).map(|i| format!("user{i}")).collect();
    let (last, first) = names.split_last().unwrap();
    for round in 0..10 {
        for name in first {
            guard.failed(v4(1), name, at(round * 600));
        }
    }
    guard.may_guess(v4(1), "bob", at(6000)).unwrap();
    guard.succeeded(v4(1), &names[0], &names[0]);
    guard.failed(v4(1), last, at(6000));
    guard.may_guess(v4(1), "bob", at(6000)).unwrap();
    guard.failed(v4(1), &names[0], at(6000));
    refused(guard.may_guess(v4(1), "bob", at(6000)));
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

#[test]
fn sessions_and_channels_of_a_user_are_bounded_and_given_back() {
    let guard = guard();
    let mut sessions = vec![
        guard.session("a", HERE).unwrap(),
        guard.session("a", HERE).unwrap(),
    ];
    refused(guard.session("a", HERE));
    let _other = guard.session("b", HERE).unwrap();
    let channels: Vec<_> = (0..3).map(|_| guard.channel("a", HERE).unwrap()).collect();
    refused(guard.channel("a", HERE));
    sessions.pop();
    sessions.push(guard.session("a", HERE).unwrap());
    refused(guard.session("a", HERE));
    drop((sessions, channels));
    let state = guard.shared.lock();
    assert_eq!((state.sessions.len(), state.channels.len()), (1, 0));
}

/// One network has a quarter of the places of anonymous users, whatever its addresses.
#[test]
fn a_network_has_a_share_of_the_places_of_anonymous_users() {
    let guard = Guard::new(Limits {
        sessions_per_user_max: 20,
        channels_per_user_max: 5,
        ..limits()
    });
    let take = |text: &str| guard.session(ANONYMOUS, Network::of(address(text)));
    let mut held: Vec<_> = (0..5).map(|_| take("192.0.2.1").unwrap()).collect();
    refused(take("192.0.2.1"));
    refused(take("::ffff:192.0.2.1"));
    held.extend((1..6).map(|n| take(&format!("2001:db8:0:{n}::1")).unwrap()));
    refused(take("2001:db8:0:8::1"));
    held.extend((2..12).map(|last| take(&format!("192.0.2.{last}")).unwrap()));
    // All of them are taken, and a refused one holds nothing.
    refused(take("192.0.2.50"));
    drop(held.remove(0));
    held.push(take("192.0.2.50").unwrap());
    // Of a few it has more.
    let channel = || guard.channel(ANONYMOUS, HERE);
    let channels: Vec<_> = (0..NETWORK_MIN).map(|_| channel().unwrap()).collect();
    refused(channel());
    // Others have their places wherever they come from.
    let users: Vec<_> = (0..20).map(|_| guard.session("a", HERE).unwrap()).collect();
    drop((held, channels, users));
    let state = guard.shared.lock();
    assert!(state.of_networks.is_empty() && state.sessions.is_empty());
}
