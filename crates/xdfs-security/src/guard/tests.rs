//! Tests of `guard`.

use super::*;

fn limits() -> Limits {
    Limits {
        bytes_per_second_per_user_max: None,
        handshakes_max: 4,
        handshakes_per_address_max: 2,
        failures_free: 3,
        addresses_max: 8,
        sessions_per_user_max: 2,
        channels_per_user_max: 3,
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
    // A refusal takes no place.
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
    assert_eq!(guard.failed(v4(1), now), Duration::ZERO);
    assert_eq!(guard.failed(v4(1), now), Duration::ZERO);
    drop(guard.begin(v4(1), now).unwrap());
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] {
        assert_eq!(guard.failed(v4(1), now), at(seconds));
        assert_eq!(refused(guard.begin(v4(1), now)), seconds as u32 * 1000);
        let almost = now + at(seconds) - Duration::from_nanos(1);
        assert_eq!(refused(guard.begin(v4(1), almost)), 1);
        // Others aren't concerned.
        drop(guard.begin(v4(2), now).unwrap());
        now += at(seconds);
        drop(guard.begin(v4(1), now).unwrap());
    }
}

#[test]
fn very_many_failures_are_one_delay() {
    let mut failures = Failures::new(0, 1);
    for _ in 0..200 {
        failures.add(Network::of(v4(1)), at(0));
    }
    assert_eq!(failures.wait(Network::of(v4(1)), at(0)), Some(at(300)));
}

#[test]
fn time_and_success_forgive() {
    let guard = guard();
    for _ in 0..5 {
        guard.failed(v4(1), at(0));
    }
    // One second before the end all are remembered, and the time starts anew.
    assert_eq!(guard.failed(v4(1), at(899)), at(8));
    assert_eq!(guard.failed(v4(1), at(899 + 900)), Duration::ZERO);
    for _ in 0..5 {
        guard.failed(v4(1), at(2000));
    }
    guard.succeeded(v4(1));
    drop(guard.begin(v4(1), at(2000)).unwrap());
    assert_eq!(guard.failed(v4(1), at(2000)), Duration::ZERO);
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let guard = guard();
    for _ in 0..3 {
        guard.failed(v4(1), at(100));
    }
    assert_eq!(refused(guard.begin(v4(1), at(50))), 1000);
}

#[test]
fn an_ipv6_network_is_one_address() {
    let guard = guard();
    for last in ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::1"] {
        guard.failed(address(last), at(0));
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
        guard.failed(address("::ffff:192.0.2.1"), at(0));
    }
    refused(guard.begin(v4(1), at(0)));
    // Else all of IPv4 would be one network.
    drop(guard.begin(address("::ffff:192.0.2.2"), at(0)).unwrap());
}

#[test]
fn the_table_is_bounded() {
    let mut failures = Failures::new(3, 8);
    for last in 0..=255 {
        failures.add(Network::of(v4(last)), at(last.into()));
        assert!(failures.len() <= 8);
    }
    assert_eq!(failures.len(), 8);
    // All forgiven ones are forgotten, whatever they had.
    failures.add(Network::of(v4(1)), at(5000));
    assert_eq!(failures.len(), 1);
    let mut none = Failures::new(3, 0);
    none.add(Network::of(v4(1)), at(0));
    assert_eq!(none.len(), 0);
}

#[test]
fn an_address_is_not_flushed_by_failures_of_others() {
    let guard = guard();
    let (attacker, now) = (v4(1), at(0));
    for _ in 0..9 {
        guard.failed(attacker, now);
    }
    // Twice as many others as the table has places, each with as many failures as are free.
    for last in 100..116 {
        guard.failed(v4(last), now);
        guard.failed(v4(last), now);
    }
    assert_eq!(refused(guard.begin(attacker, now)), 64_000);
}

#[test]
fn who_was_displaced_comes_back_with_no_less() {
    let mut failures = Failures::new(3, 2);
    let [a, b, c] = [1, 2, 3].map(|last| Network::of(v4(last)));
    for network in [a, a, a, a, b, b, b, b, b] {
        failures.add(network, at(0));
    }
    // c takes the place of a, which had 4, and a that of b, which has 5, or c's.
    failures.add(c, at(1));
    assert_eq!(failures.wait(a, at(1)), None);
    failures.add(a, at(2));
    assert!(failures.wait(a, at(2)).unwrap() >= at(4));
}

#[test]
fn forgiven_records_make_room_before_others_are_displaced() {
    let mut failures = Failures::new(3, 2);
    let [old, b, c] = [1, 2, 3].map(|last| Network::of(v4(last)));
    for _ in 0..9 {
        failures.add(old, at(0));
    }
    for _ in 0..3 {
        failures.add(b, at(1000));
    }
    failures.add(c, at(1000));
    assert_eq!(failures.wait(c, at(1000)), None);
    assert_eq!(failures.wait(b, at(1000)), Some(at(1)));
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
