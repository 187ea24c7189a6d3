//! Faults come where they should, and the same bytes meet the same ones.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::time::Duration;

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
    let registry = Registry::standard().with(super::driver());
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

/// Sends `len` zeros in calls of `call` bytes. Returns what arrived, the lengths that the calls of
/// both ends moved, and the error at the end if there was one.
fn send(ends: &mut Ends, len: usize, call: usize) -> (Vec<u8>, Vec<usize>, Option<ErrorKind>) {
    let mut poller = Poller::new().unwrap();
    ends.near.register(&mut poller, Token(1)).unwrap();
    ends.far.register(&mut poller, Token(2)).unwrap();
    let (content, mut space) = (vec![0; call], vec![9; call]);
    let (mut got, mut calls, mut sent) = (Vec::new(), Vec::new(), 0);
    while got.len() < len {
        let mut blocked = false;
        let rest = &content[..call.min(len - sent)];
        for result in [
            match rest {
                [] => Err(ErrorKind::WouldBlock.into()),
                rest => ends
                    .near
                    .write_vectored(&[IoSlice::new(rest)])
                    .inspect(|n| {
                        sent += n;
                    }),
            },
            ends.far
                .read_vectored(&mut [IoSliceMut::new(&mut space)])
                .inspect(|n| got.extend_from_slice(&space[..*n])),
        ] {
            match result {
                Ok(n) => calls.push(n),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if std::mem::replace(&mut blocked, true) {
                        let mut events = Vec::new();
                        poller
                            .wait(&mut events, Some(Duration::from_secs(30)))
                            .unwrap();
                        assert!(!events.is_empty(), "a wake-up was lost");
                    }
                }
                Err(e) => return (got, calls, Some(e.kind())),
            }
        }
    }
    (got, calls, None)
}

#[test]
fn the_text_of_a_stack_alone_makes_no_fault() {
    let refused = Registry::standard().build(&"memory,fault:lose=1".parse().unwrap());
    assert!(refused.is_err());
}

#[test]
fn the_same_bytes_meet_the_same_faults() {
    let run = |name: &str, call, seed| {
        let stack = format!("memory,fault:corrupt=500:short=300:delay=20K:delay_ms=2:seed={seed}");
        send(&mut connect(&stack, name), 100_000, call).0
    };
    let first = run("same", 1000, 7);
    assert!(first == run("same", 1000, 7));
    assert!(first == run("same", 77, 7), "calls of another length");
    assert!(first != run("same", 1000, 8));
    let changed = first.iter().filter(|byte| **byte != 0).count();
    assert!((150..260).contains(&changed), "{changed}");
    assert!(first.iter().all(|byte| byte.count_ones() <= 1));
}

#[test]
fn calls_are_short_and_delayed_and_all_arrives() {
    let mut ends = connect("memory,fault:short=100:delay=1000:delay_ms=1", "short");
    let (got, calls, error) = send(&mut ends, 50_000, 10_000);
    assert_eq!((got, error), (vec![0; 50_000], None));
    assert!(calls.iter().all(|n| *n < 200), "{calls:?}");
    for end in [&ends.near, &ends.far] {
        let delays = end.control("fault.delays").unwrap().to_string();
        assert!(
            (20..100).contains(&delays.parse::<u32>().unwrap()),
            "{delays}"
        );
    }
}

#[test]
fn a_connection_is_lost_at_its_byte_and_the_peer_sees_it() {
    let mut ends = connect("memory,fault:lose_after=12345", "lost");
    let (got, _, error) = send(&mut ends, 50_000, 1000);
    assert_eq!(error, Some(ErrorKind::ConnectionReset));
    assert!((11_000..=12_345).contains(&got.len()), "{}", got.len());
    assert_eq!(ends.near.control("fault.lost").unwrap().to_string(), "true");
    for _ in 0..2 {
        let refused = ends.near.write_vectored(&[IoSlice::new(b"x")]);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let refused = ends.near.read_vectored(&mut [IoSliceMut::new(&mut [0])]);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    // What was written before arrives, and then nothing.
    let (mut rest, mut all) = (vec![0; 5000], got.len());
    loop {
        match ends.far.read_vectored(&mut [IoSliceMut::new(&mut rest)]) {
            Ok(0) => break,
            Ok(n) => all += n,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::ConnectionReset);
                break;
            }
        }
    }
    assert_eq!(all, 12_345);
}

#[test]
fn losses_at_random_places_differ_between_streams() {
    let registry = Registry::standard().with(super::driver());
    let stack = "memory,fault:lose=10K:seed=3".parse().unwrap();
    let stack = registry.build(&stack).unwrap();
    let endpoint = Endpoint::memory("losses");
    let _listener = stack.listen(&endpoint).unwrap();
    let mut places = Vec::new();
    for _ in 0..5 {
        let mut near = stack.open(&endpoint).unwrap();
        let mut sent = 0;
        while let Ok(n) = near.write_vectored(&[IoSlice::new(&[0; 100])]) {
            sent += n;
        }
        assert!((1..20_480).contains(&sent), "{sent}");
        places.push(sent);
    }
    places.dedup();
    assert_eq!(places.len(), 5);
}
