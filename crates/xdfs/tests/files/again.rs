//! Files whose session breaks, and that are opened again: the same, or told that it isn't.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use xdfs::{Client, ClientOptions, Code, Limits, LockRange, OpenOptions};
use xdfs_testkit::proxy::FaultProxy;

use crate::support::{Folders, Serving, client};
use crate::{both, open, pattern};

const HOUR: Duration = Duration::from_secs(3600);

/// A server behind a proxy, so that it has one address also when it is started anew.
struct Scene {
    folders: Folders,
    serving: Serving,
    proxy: FaultProxy,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let folders = Folders::new(seed);
        let serving = Serving::start(&folders.root(), |_| {});
        let proxy = FaultProxy::new(serving.addr).unwrap();
        Self {
            folders,
            serving,
            proxy,
        }
    }

    fn client(&self) -> Client {
        quick(self.proxy.addr())
    }

    /// Ends the server and starts it anew.
    fn restart(&mut self) {
        self.serving.stop();
        self.serving = Serving::start(&self.folders.root(), |_| {});
        self.proxy.set_target(self.serving.addr);
    }

    /// Ends every session of the clients, and not the server.
    fn cut(&self) {
        self.proxy.block_new(true);
        for connection in self.proxy.live() {
            self.proxy.cut(connection);
        }
    }
}

/// A client that gives its server up soon.
fn quick(addr: SocketAddr) -> Client {
    client(addr, |options: &mut ClientOptions| {
        options.limits = Limits {
            idle_timeout: Duration::from_secs(1),
            ..Limits::default()
        };
    })
}

#[test]
fn work_goes_on_when_the_server_was_started_anew() {
    let mut scene = Scene::new(1);
    let client = scene.client();
    let bytes = pattern(1, 2_000_000);
    let mut file = open(&client, "f", &both());
    for (n, piece) in bytes.chunks(100_000).enumerate() {
        file.write_all(piece).unwrap();
        if n % 7 == 3 {
            scene.restart();
        }
    }
    file.sync().unwrap();
    assert!(fs::read(scene.folders.there("f")).unwrap() == bytes);
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut read = vec![0; 1_000_000];
    file.read_exact(&mut read).unwrap();
    scene.restart();
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).unwrap();
    assert!(read == bytes[..1_000_000] && rest == bytes[1_000_000..]);
    scene.restart();
    assert_eq!(file.metadata().unwrap().size, 2_000_000);
    scene.restart();
    file.set_len(3).unwrap();
    file.close().unwrap();
    assert_eq!(fs::read(scene.folders.there("f")).unwrap(), bytes[..3]);
}

#[test]
fn another_file_in_its_place_is_told() {
    let mut scene = Scene::new(2);
    let client = scene.client();
    let file = open(&client, "f", &both());
    file.write_at(0, b"first").unwrap();
    file.sync().unwrap();
    fs::write(scene.folders.there("new"), b"second").unwrap();
    fs::rename(scene.folders.there("new"), scene.folders.there("f")).unwrap();
    // As long as it is open it is the first one.
    let mut now = [0; 5];
    file.read_at(0, &mut now).unwrap();
    assert_eq!(&now, b"first");
    scene.restart();
    let fault = file.read_at(0, &mut now).unwrap_err();
    assert_eq!((fault.code, &*fault.path), (Code::Stale, &b"f"[..]));
    file.write_at(0, b"never").unwrap_err();
    assert_eq!(file.sync().unwrap_err().code, Code::Stale);
    assert_eq!(fs::read(scene.folders.there("f")).unwrap(), b"second");
    // And so is none.
    let file = open(&client, "f", &both());
    fs::remove_file(scene.folders.there("f")).unwrap();
    scene.restart();
    assert_eq!(file.read_at(0, &mut now).unwrap_err().code, Code::Stale);
}

#[test]
fn a_removed_file_is_not_made_again() {
    let mut scene = Scene::new(3);
    let client = scene.client();
    let options = OpenOptions {
        truncate: true,
        ..both()
    };
    let kept = open(&client, "kept", &options);
    kept.write_at(0, b"content").unwrap();
    kept.sync().unwrap();
    let gone = open(&client, "gone", &options);
    fs::remove_file(scene.folders.there("gone")).unwrap();
    scene.restart();
    assert_eq!(gone.metadata().unwrap_err().code, Code::Stale);
    assert!(!scene.folders.there("gone").exists());
    assert_eq!(kept.metadata().unwrap().size, 7);
}

#[test]
fn locks_outlast_their_session_and_not_the_server() {
    let mut scene = Scene::new(4);
    let client = scene.client();
    let other = crate::support::client(scene.serving.addr, |_| {});
    let file = open(&client, "f", &both());
    assert!(
        file.lock(LockRange::ALL, true, HOUR, Duration::ZERO)
            .unwrap()
    );
    let rival = open(&other, "f", &both());
    scene.cut();
    let mut byte = [0];
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The session is given up, and until there is another one the lock is still held.
            while !stopped.load(Ordering::Relaxed) {
                assert!(
                    !rival
                        .lock(LockRange::ALL, true, HOUR, Duration::ZERO)
                        .unwrap()
                );
                scene.proxy.block_new(false);
                thread::sleep(Duration::from_millis(10));
            }
        });
        file.write_at(0, b"x").unwrap();
        file.sync().unwrap();
        file.read_at(0, &mut byte).unwrap();
        stopped.store(true, Ordering::Relaxed);
    });
    assert_eq!(&byte, b"x");
    drop((rival, other));
    // The locks of a server end with it, and that is told before anything is written.
    scene.restart();
    file.write_at(0, b"y").unwrap();
    assert_eq!(file.sync().unwrap_err().code, Code::LockLost);
    assert_eq!(fs::read(scene.folders.there("f")).unwrap(), b"x");
    assert!(
        file.lock(LockRange::ALL, true, HOUR, Duration::ZERO)
            .unwrap()
    );
    file.write_at(0, b"z").unwrap();
    file.close().unwrap();
    assert_eq!(fs::read(scene.folders.there("f")).unwrap(), b"z");
}

/// A lock that is lost takes the writes under it along, and no others.
#[test]
fn only_what_was_written_under_a_lost_lock_is_given_up() {
    let mut scene = Scene::new(8);
    let client = scene.client();
    let file = open(&client, "f", &both());
    let there = scene.folders.there("f");
    let range = |offset, length| LockRange {
        offset,
        length: Some(length),
    };
    let lock = || file.lock(range(0, 10), true, HOUR, Duration::ZERO).unwrap();
    file.write_at(0, &[b'.'; 40]).unwrap();
    file.sync().unwrap();
    assert!(lock());
    scene.restart();
    for (offset, bytes) in [(2, &b"ab"[..]), (20, b"cd"), (5, b"ef")] {
        file.write_at(offset, bytes).unwrap();
    }
    // The last one is only half under the lock, and half of it would be of no use.
    let fault = file.write_at(9, b"gh").unwrap_err();
    assert_eq!((fault.code, &*fault.path), (Code::LockLost, &b"f"[..]));
    let told = "bytes 2 to 3, 5 to 6, 9 to 10 ";
    assert!(fault.hint.contains(told), "{fault:?}");
    file.sync().unwrap();
    let expected = b"....................cd..................";
    assert_eq!(fs::read(&there).unwrap(), expected);
    // Bytes that were not even sent when the lock was found to be lost.
    assert!(lock());
    scene.restart();
    file.write_at(0, b"xyz").unwrap();
    let fault = file.read_at(30, &mut [0; 4]).unwrap_err();
    assert_eq!(fault.code, Code::LockLost);
    assert!(fault.hint.contains("bytes 0 to 2 "), "{fault:?}");
    file.close().unwrap();
    assert_eq!(fs::read(&there).unwrap(), expected);
}

#[test]
fn appending_is_not_done_twice() {
    let mut scene = Scene::new(5);
    let client = scene.client();
    let options = OpenOptions {
        append: true,
        create: true,
        ..OpenOptions::default()
    };
    let file = open(&client, "log", &options);
    let mut answered = 0;
    let mut uncertain = 0;
    for round in 0..12 {
        if round % 4 == 2 {
            scene.restart();
        }
        match file.append(b"record\n") {
            Ok(_) => answered += 1,
            Err(fault) => {
                assert!(fault.hint.contains("may have been done"), "{fault:?}");
                uncertain += 1;
            }
        }
    }
    file.close().unwrap();
    let found = fs::read(scene.folders.there("log")).unwrap();
    let records = found.len() / 7;
    assert!(found.chunks(7).all(|record| record == b"record\n"));
    assert!((answered..=answered + uncertain).contains(&records));
    assert!(answered >= 9, "{answered} were answered");
}

#[test]
fn a_client_that_is_closed_opens_no_session() {
    let scene = Scene::new(6);
    let client = scene.client();
    let file = open(&client, "f", &both());
    file.write_at(0, b"x").unwrap();
    file.sync().unwrap();
    client.close();
    file.write_at(0, b"y").unwrap();
    assert!(file.sync().is_err());
    assert!(file.read_at(0, &mut [0]).is_err());
    drop(file);
    assert_eq!(fs::read(scene.folders.there("f")).unwrap(), b"x");
}

#[test]
fn without_a_server_it_is_told_in_time_what_may_be_missing() {
    let mut scene = Scene::new(7);
    let client = scene.client();
    let options = OpenOptions {
        reconnect: Duration::from_millis(300),
        ..both()
    };
    let file = open(&client, "f", &options);
    scene.serving.stop();
    file.write_at(0, b"x").unwrap();
    let fault = file.sync().unwrap_err();
    assert!(fault.hint.contains("1 bytes"), "{fault:?}");
    // It goes on as soon as there is one.
    scene.serving = Serving::start(&scene.folders.root(), |_| {});
    scene.proxy.set_target(scene.serving.addr);
    file.write_at(1, b"z").unwrap();
    file.close().unwrap();
    assert_eq!(fs::read(scene.folders.there("f")).unwrap(), b"\0z");
}
