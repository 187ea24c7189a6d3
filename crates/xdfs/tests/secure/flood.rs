//! Ten thousand connections that never open, while a transfer goes on.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xdfs::{Client, LocalPlace};
use xdfs_testkit::wait;

use crate::world::{PATIENCE, Visit, World, assert_same, finish};

/// Connections that are opened in all, at least.
const FLOOD: usize = 10_000;
/// Connections that are held open at once: more than the server takes from an address, which is
/// 2048, so that it has all its places taken and has to turn others away all the time.
const HELD_MAX: usize = 2500;
/// Descriptors beside those of the flood.
const SPARE: u64 = 500;
/// Size of the file, and the rate at which it is sent: far less than what even a busy machine can
/// do. So it takes time, and what it takes longer among the flood isn't for want of a processor.
const BYTES: usize = 16 << 20;
const RATE: u64 = 24 << 20;
/// How often the rate is measured until it is good once.
const ATTEMPTS: usize = 3;

/// What the flood and the transfer know of each other.
#[derive(Default)]
struct Flood {
    opened: AtomicUsize,
    is_over: AtomicBool,
}

impl Flood {
    /// Opens connections until it is told that it is over, the last ones slowly.
    fn run(&self, addr: SocketAddr, held_max: usize) {
        let mut held = VecDeque::with_capacity(held_max);
        while !self.is_over.load(Ordering::Relaxed) {
            if held.len() == held_max {
                held.pop_front();
            }
            let mut stream = TcpStream::connect_timeout(&addr, PATIENCE).unwrap();
            let count = self.opened.fetch_add(1, Ordering::Relaxed);
            if count.is_multiple_of(2) {
                // The head of a record with a ClientHello of 512 bytes, and a part of it. It may
                // be cut off by now.
                let _ = stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]);
            }
            held.push_back(stream);
            if count >= FLOOD {
                thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

/// Ends the flood when it is dropped, so that a failed assertion doesn't leave it running.
struct Over<'a>(&'a Flood);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// Sends the file within a session that is open, and says how long it took.
fn send(world: &World, visit: &Visit, client: &Client, target: &str) -> Duration {
    let source = world.path("client/source");
    let place = LocalPlace::Path(source.clone());
    let start = Instant::now();
    let transfer = client.upload(&place, target.as_bytes(), &visit.transfer());
    let result = finish(transfer.unwrap()).unwrap();
    let took = start.elapsed();
    assert_eq!(result.bytes, BYTES as u64);
    assert_same(&source, &world.path("root").join(target));
    took
}

/// The transfer goes through whole and right whatever the machine does. That it doesn't fall under
/// half its rate is held against its own rate just before, in the same session, and the flood lasts
/// from before the first byte to after the last. Since both are bounded far below what the machine
/// can do they are the same when nothing is wrong. What else runs on the machine can make one
/// attempt slow, hardly all; a server that is busy with strangers is slow in all of them.
#[test]
fn a_transfer_keeps_its_rate_among_ten_thousand_half_open_connections() {
    let limit = xdfs_sys::limit::raise_descriptor_limit().unwrap_or(1024);
    // Both ends of a connection are in this process.
    let held_max = usize::try_from(limit.saturating_sub(SPARE) / 2).unwrap_or(HELD_MAX);
    let held_max = held_max.clamp(1, HELD_MAX);
    let world = World::new();
    let visit = world.visit("", vec![world.owner_key()]).channels(4);
    let visit = visit.rate(RATE);
    world.source(BYTES);
    let client = visit.connect().unwrap();
    // All its channels are open after this.
    send(&world, &visit, &client, "first");

    let mut ratios = Vec::new();
    while ratios.len() < ATTEMPTS {
        let before = send(&world, &visit, &client, "before");
        let flood = Flood::default();
        let during = thread::scope(|scope| {
            let over = Over(&flood);
            scope.spawn(|| flood.run(world.addr, held_max));
            let is_full = wait::until(PATIENCE, || {
                flood.opened.load(Ordering::Relaxed) >= held_max
            });
            assert!(is_full, "the flood did not rise");
            let mut times = Vec::new();
            let start = Instant::now();
            while times.is_empty() || flood.opened.load(Ordering::Relaxed) < FLOOD {
                times.push(send(&world, &visit, &client, "during"));
                assert!(start.elapsed() < PATIENCE, "the flood does not end");
            }
            drop(over);
            times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap()
        });
        assert!(flood.opened.load(Ordering::Relaxed) >= FLOOD);
        let ratio = before.as_secs_f64() / during.as_secs_f64();
        ratios.push(ratio);
        if ratio >= 0.5 {
            break;
        }
    }
    let best = ratios.iter().copied().fold(0.0, f64::max);
    assert!(best >= 0.5, "rates among the flood: {ratios:?}");

    // When it has passed others come in again.
    let comes_in = wait::until(PATIENCE, || {
        visit.upload(&world.path("client/source"), "/after").is_ok()
    });
    assert!(comes_in);
    assert_same(&world.path("client/source"), &world.path("root/after"));
}
