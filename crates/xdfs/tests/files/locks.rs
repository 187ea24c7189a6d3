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

/// A file of which another has now got the lock that was `range` of the first, and has written.
fn lost(scene: &Scene, range: LockRange, theirs: &[u8]) -> [RemoteFile; 2] {
    let [a, b] = scene.clients.each_ref().map(|c| open(c, "f", &both()));
    let second = Duration::from_secs(1);
    assert!(a.lock(range, true, second, Duration::ZERO).unwrap());
    eventually(|| take(&b, range, true));
    b.write_at(0, theirs).unwrap();
    b.sync().unwrap();
    [a, b]
}

#[test]
fn no_part_of_a_long_write_goes_on_without_its_lock() {
    let scene = scene(8);
    let theirs = vec![b'b'; 8 << 20];
    let [a, b] = lost(&scene, LockRange::ALL, &theirs);
    let fault = a.write_at(0, &vec![b'a'; 8 << 20]).unwrap_err();
    assert_eq!(fault.code, Code::LockLost);
    let end = format!("to {} under the lock", theirs.len() - 1);
    assert!(fault.hint.contains(&end), "{}", fault.hint);
    // What was under way is told as well.
    let _ = a.sync();
    let mut now = vec![0; theirs.len()];
    b.read_at(0, &mut now).unwrap();
    assert!(now == theirs);
}

#[test]
fn a_write_beside_a_lock_does_not_take_others_along() {
    let scene = scene(9);
    let [a, b] = lost(&scene, range(0, 10), b"bbbbbbbbbbBBBBBBBBBB");
    a.write_at(0, b"aaaaaaaaaa").unwrap();
    a.write_at(10, b"AAAAAAAAAA").unwrap();
    let fault = a.sync().unwrap_err();
    assert_eq!(fault.code, Code::LockLost);
    assert!(fault.hint.contains("bytes 0 to 9 under"), "{}", fault.hint);
    a.sync().unwrap();
    let mut now = [0; 20];
    b.read_at(0, &mut now).unwrap();
    assert_eq!(&now, b"bbbbbbbbbbAAAAAAAAAA");
}

#[test]
fn a_write_of_which_a_part_is_under_a_lost_lock_fails() {
    for (seed, is_one_call) in [(11, false), (12, true)] {
        let scene = scene(seed);
        let [a, b] = lost(&scene, range(5, 10), &[b'b'; 20]);
        let write = |at, bytes: &[u8]| {
            if is_one_call {
                a.write_vectored_at(&[(at, &bytes[..1]), (at + 1, &bytes[1..])])
            } else {
                a.write_at(at, bytes).and_then(|()| a.sync())
            }
        };
        let fault = write(0, &[b'a'; 20]).unwrap_err();
        assert_eq!(fault.code, Code::LockLost, "{fault}");
        assert!(fault.hint.contains("bytes 0 to 19 under"), "{}", fault.hint);
        a.sync().unwrap();
        let mut now = [0; 20];
        b.read_at(0, &mut now).unwrap();
        assert_eq!(&now, b"bbbbbbbbbbbbbbbbbbbb");
        // It is told once: there is no lock any more that could be lost.
        write(4, b"cc").unwrap();
        b.read_at(0, &mut now).unwrap();
        assert_eq!(&now, b"bbbbccbbbbbbbbbbbbbb");
    }
}

#[test]
fn a_write_that_reaches_over_a_lock_arrives_as_a_whole() {
    let scene = scene(13);
    let file = open(&scene.clients[0], "f", &both());
    for at in (0..200_000).step_by(1000) {
        assert!(take(&file, range(at + 300, 7), true));
    }
    let bytes: Vec<u8> = (0..200_000u64).map(|n| (n * n / 7) as u8).collect();
    file.write_at(0, &bytes).unwrap();
    file.sync().unwrap();
    let mut back = vec![0; bytes.len()];
    file.read_at(0, &mut back).unwrap();
    assert!(back == bytes);
    // As many pieces as a call may have, which are more when they are cut.
    let pieces: Vec<(u64, &[u8])> = (0..256).map(|n| (n * 230, &bytes[..230])).collect();
    file.write_vectored_at(&pieces).unwrap();
    file.read_at(0, &mut back[..256 * 230]).unwrap();
    assert!(
        back[..256 * 230]
            .chunks(230)
            .all(|piece| piece == &bytes[..230])
    );
    let many = vec![(0, &b"x"[..]); 257];
    let fault = file.write_vectored_at(&many).unwrap_err();
    assert_eq!(fault.code, Code::InvalidArgument);
}

#[test]
fn another_failure_does_not_hide_that_a_lock_was_lost() {
    let scene = scene(10);
    let [a, _b] = lost(&scene, range(0, 10), b"theirs");
    // No system has files that long.
    a.write_at(1 << 63, b"far").unwrap();
    a.write_at(0, b"mine").unwrap();
    let fault = a.sync().unwrap_err();
    assert_eq!(fault.code, Code::LockLost);
    assert!(fault.hint.contains("bytes 0 to 3 under"), "{}", fault.hint);
    assert_ne!(a.sync().unwrap_err().code, Code::LockLost);
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
