//! The rate of throttled channels, and the wake-ups of waiting ones.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use xdfs_sys::poll::{Poller, Token};

use crate::endpoint::Endpoint;
use crate::registry::Registry;
use crate::stream::{Listener, Stream};

struct Ends {
    near: Box<dyn Stream>,
    far: Box<dyn Stream>,
    _listener: Box<dyn Listener>,
}

fn connect(stack: &str, name: &str) -> Ends {
    let registry = Registry::standard();
    let stack = registry.build(&stack.parse().unwrap()).unwrap();
    let endpoint = Endpoint::memory(name);
    let mut listener = stack.listen(&endpoint).unwrap();
    let near = stack.open(&endpoint).unwrap();
    let far = listener.accept().unwrap();
    Ends {
        near,
        far,
        _listener: listener,
    }
}

/// Sends over all `ends` until `time` has passed, waiting for events, and checks after each call
/// that no more than the limit has been sent. Returns the number of bytes and of waits.
fn send(ends: &mut [Ends], time: Duration, burst: u64, rate: u64, start: Instant) -> (u64, u64) {
    let mut poller = Poller::new().unwrap();
    for (index, end) in ends.iter_mut().enumerate() {
        end.near.register(&mut poller, Token(index)).unwrap();
    }
    let bytes = vec![1; 10_000];
    let mut space = vec![0; 10_000];
    let (mut sent, mut waits) = (0, 0);
    let mut ready = vec![true; ends.len()];
    while start.elapsed() < time {
        for (end, ready) in ends.iter_mut().zip(&mut ready) {
            while std::mem::take(ready) {
                match end.near.write_vectored(&[IoSlice::new(&bytes)]) {
                    Ok(n) => {
                        sent += n as u64;
                        *ready = true;
                        let got = end.far.read_vectored(&mut [IoSliceMut::new(&mut space)]);
                        assert_eq!(got.unwrap(), n);
                    }
                    Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
                }
                let limit = burst as f64 + rate as f64 * start.elapsed().as_secs_f64();
                assert!(sent as f64 <= limit, "{sent} bytes, {limit} allowed");
                if start.elapsed() >= time {
                    break;
                }
            }
        }
        if ready.iter().any(|ready| *ready) {
            continue;
        }
        waits += 1;
        let mut events = Vec::new();
        poller
            .wait(&mut events, Some(Duration::from_secs(30)))
            .unwrap();
        assert!(!events.is_empty(), "a wake-up was lost");
        for event in events {
            ready[event.token.0] |= event.writable;
        }
    }
    (sent, waits)
}

#[test]
fn a_stream_sends_no_more_than_its_rate() {
    let start = Instant::now();
    let mut ends = [connect("memory,throttle:rate=2M:burst=50K", "rate")];
    let (sent, waits) = send(
        &mut ends,
        Duration::from_secs(1),
        50 << 10,
        2_000_000,
        start,
    );
    // More than the burst, so that the waits have ended.
    assert!(sent > 60 << 10 && waits > 2, "{sent} {waits}");
    let waited = ends[0].near.control("throttle.waits").unwrap().to_string();
    assert!(
        waited.parse::<u64>().unwrap() >= waits - 1,
        "{waited} of {waits}"
    );
}

#[test]
fn streams_of_a_name_share_a_limit() {
    let start = Instant::now();
    let stack = "memory,throttle:rate=2M:burst=50K:name=shared";
    let mut ends = ["one", "two", "three"].map(|name| connect(stack, name));
    let (sent, _) = send(
        &mut ends,
        Duration::from_secs(1),
        50 << 10,
        2_000_000,
        start,
    );
    assert!(sent > 60 << 10, "{sent}");
}

#[test]
fn a_byte_at_a_time_is_waited_for() {
    let start = Instant::now();
    let mut ends = [connect("memory,throttle:rate=20:burst=1", "bytes")];
    let (sent, _) = send(&mut ends, Duration::from_millis(400), 1, 20, start);
    assert!(sent >= 2, "{sent}");
}

/// A limit that isn't used up isn't saved beyond the burst.
#[test]
fn a_pause_gains_no_more_than_the_burst() {
    let mut ends = connect("memory,throttle:rate=1:burst=1000", "pause");
    let content = vec![0; 5000];
    let sent = ends.near.write_vectored(&[IoSlice::new(&content)]).unwrap();
    assert_eq!(sent, 1000);
    let more = ends.near.write_vectored(&[IoSlice::new(&content)]);
    assert_eq!(more.unwrap_err().kind(), ErrorKind::WouldBlock);
    // A full transport takes nothing from the limit.
    let mut ends = connect("memory,throttle:rate=1:burst=4M", "full");
    let content = vec![0; 1 << 20];
    assert_eq!(
        ends.near.write_vectored(&[IoSlice::new(&content)]).unwrap(),
        1 << 20
    );
    for _ in 0..100 {
        let full = ends.near.write_vectored(&[IoSlice::new(&content)]);
        assert_eq!(full.unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    assert_eq!(
        ends.near.control("throttle.waits").unwrap().to_string(),
        "0"
    );
}

/// Alarms of a stream that left its poller, or is gone, don't go off there.
#[test]
fn a_stream_that_moves_takes_its_alarm_along() {
    let mut ends = connect("memory,throttle:rate=2000:burst=400", "moves");
    let mut pollers = [Poller::new().unwrap(), Poller::new().unwrap()];
    ends.near.register(&mut pollers[0], Token(1)).unwrap();
    while ends.near.write_vectored(&[IoSlice::new(&[0; 100])]).is_ok() {}
    ends.near.deregister(&mut pollers[0]).unwrap();
    let mut events = Vec::new();
    pollers[0].wait(&mut events, Some(Duration::ZERO)).unwrap();
    events.clear();
    ends.near.register(&mut pollers[1], Token(2)).unwrap();
    while ends.near.write_vectored(&[IoSlice::new(&[0; 100])]).is_ok() {}
    pollers[1].wait(&mut events, Some(Duration::ZERO)).unwrap();
    events.clear();
    pollers[1]
        .wait(&mut events, Some(Duration::from_secs(30)))
        .unwrap();
    assert!(
        events
            .iter()
            .any(|event| event.token == Token(2) && event.writable)
    );
    events.clear();
    pollers[0].wait(&mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!(events, []);
}
