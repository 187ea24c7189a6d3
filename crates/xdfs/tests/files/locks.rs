//! Locks between clients: who is kept out, for how long, and what is told when a lock is lost.

use std::thread;
use std::time::{Duration, Instant};

use xdfs::{Client, Code, Fault, LockRange, OpenOptions, RemoteFile};

use crate::support::{Folders, PATIENCE, Serving, client};
use crate::{both, open};

const HOUR: Duration = Duration::from_secs(3600);

fn range(offset: u64, length: u64) -> LockRange {
    LockRange {
        offset,
        length: Some(length),
    }
}

fn take(file: &RemoteFile, range: LockRange, exclusive: bool) -> bool {
    file.lock(range, exclusive, HOUR, Duration::ZERO).unwrap()
}

struct Scene {
    _folders: Folders,
    _serving: Serving,
    clients: [Client; 2],
}

fn scene(seed: u64) -> Scene {
    let folders = Folders::new(seed);
    let serving = Serving::start(&folders.root(), |_| {});
    let clients = [(); 2].map(|()| client(serving.addr, |_| {}));
    Scene {
        _folders: folders,
        _serving: serving,
        clients,
    }
}

/// Tries until it is done, for as long as tests wait.
#[track_caller]
fn eventually(mut try_it: impl FnMut() -> bool) {
    let start = Instant::now();
    while !try_it() {
        assert!(start.elapsed() < PATIENCE, "it did not come");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn locks_keep_others_out_where_they_overlap() {
    let scene = scene(1);
    let [a, b] = scene.clients.each_ref().map(|c| open(c, "f", &both()));
    assert!(take(&a, range(10, 10), true));
    assert!(!take(&b, range(19, 1), false));
    assert!(!take(&b, LockRange::ALL, true));
    assert!(take(&b, range(20, 10), true));
    assert!(take(&b, range(0, 10), false));
    let held = b.test_lock(range(0, 100), false).unwrap().unwrap();
    assert_eq!((held.range, held.exclusive), (range(10, 10), true));
    assert_eq!(a.test_lock(range(0, 10), false).unwrap(), None);
    let held = a.test_lock(range(0, 10), true).unwrap().unwrap();
    assert_eq!((held.range, held.exclusive), (range(0, 10), false));
    // Shared by both, and not to be had alone.
    assert!(take(&a, range(0, 5), false));
    assert!(!take(&a, range(0, 5), true));
    // A part is given up.
    a.unlock(range(12, 3)).unwrap();
    assert!(take(&b, range(12, 3), true));
    assert!(!take(&b, range(11, 1), true));
    assert!(!take(&b, range(15, 1), true));
    // Closing gives up all of them, and so does dropping.
    a.close().unwrap();
    assert!(take(&b, LockRange::ALL, true));
    drop(b);
    let c = open(&scene.clients[0], "f", &both());
    assert!(take(&c, LockRange::ALL, true));
}

#[test]
fn another_file_is_another_matter() {
    let scene = scene(2);
    let [a, b] = scene.clients.each_ref();
    let (a, b) = (open(a, "f", &both()), open(b, "g", &both()));
    assert!(take(&a, LockRange::ALL, true));
    assert!(take(&b, LockRange::ALL, true));
}

#[test]
fn who_waits_gets_the_lock_when_it_is_free() {
    let scene = scene(3);
    let [a, b] = scene.clients.each_ref().map(|c| open(c, "f", &both()));
    assert!(take(&a, LockRange::ALL, true));
    // Many of one session wait, and the session goes on.
    let waiting: Vec<RemoteFile> = (0..40)
        .map(|_| open(&scene.clients[1], "f", &both()))
        .collect();
    thread::scope(|scope| {
        for file in waiting {
            scope.spawn(move || {
                assert!(file.lock(range(5, 1), true, HOUR, PATIENCE).unwrap());
                file.write_at(5, b"x").unwrap();
                file.close().unwrap();
            });
        }
        b.write_at(0, b"other work").unwrap();
        b.sync().unwrap();
        assert!(
            !b.lock(range(5, 1), true, HOUR, Duration::from_millis(30))
                .unwrap()
        );
        a.unlock(LockRange::ALL).unwrap();
    });
}

#[test]
fn a_lease_that_runs_out_is_told_to_its_holder() {
    let scene = scene(4);
    let [a, b] = scene.clients.each_ref().map(|c| open(c, "f", &both()));
    let second = Duration::from_secs(1);
    assert!(
        a.lock(LockRange::ALL, true, second, Duration::ZERO)
            .unwrap()
    );
    a.write_at(0, b"mine").unwrap();
    a.sync().unwrap();
    // Nothing is heard of it for longer than its lease.
    eventually(|| take(&b, LockRange::ALL, true));
    b.write_at(0, b"ours").unwrap();
    b.sync().unwrap();
    a.write_at(0, b"late").unwrap();
    assert_eq!(a.sync().unwrap_err().code, Code::LockLost);
    let mut now = [0; 4];
    b.read_at(0, &mut now).unwrap();
    assert_eq!(&now, b"ours");
    assert_eq!(a.renew().unwrap_err().code, Code::LockLost);
    assert!(!take(&a, LockRange::ALL, true));
    // Without a lock it is one of those that don't care.
    a.write_at(0, b"open").unwrap();
    a.sync().unwrap();
}

#[test]
fn every_use_renews_a_lease() {
    let scene = scene(5);
    let [a, b] = scene.clients.each_ref().map(|c| open(c, "f", &both()));
    let lease = Duration::from_secs(2);
    assert!(a.lock(LockRange::ALL, true, lease, Duration::ZERO).unwrap());
    let start = Instant::now();
    let mut round = 0;
    while start.elapsed() < 2 * lease {
        let before = Instant::now();
        match round % 3 {
            0 => a.renew().unwrap(),
            1 => drop(a.metadata().unwrap()),
            _ => drop(a.read_at(0, &mut [0]).unwrap()),
        }
        round += 1;
        let taken = take(&b, range(0, 1), true);
        // Unless this machine stood still for as long.
        assert!(!taken || before.elapsed() >= lease);
        if taken {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_lock_of_which_another_was_lost_is_not_half_believed() {
    let scene = scene(6);
    let [a, b] = scene.clients.each_ref().map(|c| open(c, "f", &both()));
    let second = Duration::from_secs(1);
    assert!(a.lock(range(0, 1), true, second, Duration::ZERO).unwrap());
    eventually(|| take(&b, range(0, 1), true));
    let fault = a.lock(range(5, 1), true, HOUR, Duration::ZERO).unwrap_err();
    assert_eq!(fault.code, Code::LockLost);
    assert!(take(&b, range(5, 1), true));
}

#[test]
fn what_a_file_is_open_for_decides_what_it_can_lock() {
    let scene = scene(7);
    drop(open(&scene.clients[0], "f", &both()));
    let reading = open(&scene.clients[0], "f", &OpenOptions::reading());
    assert!(take(&reading, range(0, 1), false));
    let fails = |result: Result<bool, Fault>| result.unwrap_err().code;
    let exclusive = reading.lock(range(0, 1), true, HOUR, Duration::ZERO);
    assert_eq!(fails(exclusive), Code::InvalidArgument);
    let empty = reading.lock(range(0, 0), false, HOUR, Duration::ZERO);
    assert_eq!(fails(empty), Code::InvalidArgument);
    let long = reading.lock(range(0, 1), false, 2 * HOUR, Duration::ZERO);
    assert_eq!(fails(long), Code::InvalidArgument);
    let none = reading.lock(range(0, 1), false, Duration::ZERO, Duration::ZERO);
    assert_eq!(fails(none), Code::InvalidArgument);
}
