//! Channels that break while calls are made: each is carried out once, and answered once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use xdfs::{Answer, Code};
use xdfs_testkit::proxy::{FaultProxy, Plan};
use xdfs_testkit::tree::Random;

use crate::place::{Place, make, make_files, rename};

/// Breaks a channel at random now and then, until dropped. The oldest stays: of the others none may
/// be open yet, and without an open channel the session would end.
struct Breaker {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u32>>,
}

impl Breaker {
    fn new(proxy: Arc<FaultProxy>, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut rng, mut broken) = (Random::new(seed), 0);
            while !stopped.load(Ordering::Relaxed) {
                let live = proxy.live();
                if live.len() > 2 {
                    let which = 1 + rng.below(live.len() as u64 - 1) as usize;
                    broken += u32::from(proxy.cut(live[which]));
                }
                thread::sleep(Duration::from_millis(5 + rng.below(20)));
            }
            broken
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// How many broke.
    fn end(mut self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

#[test]
fn calls_over_channels_that_break_are_carried_out_once() {
    for (seed, is_protected) in [(1, false), (2, true)] {
        let place = Place::new(seed, is_protected);
        let proxy = Arc::new(FaultProxy::new(place.serving.addr).unwrap());
        // So that there is always something on its way.
        proxy.set_plan(
            Plan::up(|f| f.delay = Duration::from_millis(2))
                .and_down(|f| f.delay = Duration::from_millis(2)),
        );
        let client = place.client_at(proxy.addr(), Some(6));
        make_files(&place.there("large"), 5_000);
        let breaker = Breaker::new(Arc::clone(&proxy), seed);
        for round in 0..10 {
            // A second attempt at any of them would be refused, since the name is taken or gone.
            let made: Vec<_> = (0..200)
                .map(|i| client.start_call(make(&format!("/{round} {i}"))).unwrap())
                .collect();
            for call in made {
                assert_eq!(call.wait().unwrap(), Answer::Done);
            }
            let renamed: Vec<_> = (0..200)
                .map(|i| {
                    let call = rename(&format!("/{round} {i}"), &format!("/done {round} {i}"));
                    client.start_call(call).unwrap()
                })
                .collect();
            for call in renamed {
                assert_eq!(call.wait().unwrap(), Answer::Done);
            }
            assert_eq!(client.list(b"/large").filter(Result::is_ok).count(), 5_000);
        }
        assert!(breaker.end() > 3, "nothing broke");
        let names = std::fs::read_dir(place.folders.root()).unwrap();
        let names: Vec<_> = names.map(|n| n.unwrap().file_name()).collect();
        let done = |n: &&std::ffi::OsString| n.as_encoded_bytes().starts_with(b"done ");
        assert_eq!(names.iter().filter(done).count(), 2_000);
        assert_eq!(names.len(), 2_001);
    }
}

#[test]
fn when_all_channels_are_gone_it_says_so() {
    let place = Place::new(3, false);
    let proxy = FaultProxy::new(place.serving.addr).unwrap();
    let client = place.client_at(proxy.addr(), Some(2));
    client.call(make("/a")).unwrap();
    proxy.set_plan(Plan::down(|f| f.delay = Duration::from_secs(5)));
    proxy.block_new(true);
    let pending: Vec<_> = (0..20)
        .map(|i| client.start_call(make(&format!("/{i}"))).unwrap())
        .collect();
    proxy.cut_all();
    for call in pending {
        // Some may have been answered before.
        if let Err(fault) = call.wait() {
            assert_eq!(fault.code, Code::ConnectionLost, "{fault:?}");
            assert!(fault.hint.contains("may have been done"), "{fault:?}");
            assert!(fault.path.starts_with(b"/"));
        }
    }
}
