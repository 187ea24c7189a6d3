//! The emulated network keeps what was asked of it: delay, rate, queue, losses; and leaves nothing
//! behind. Skipped, with the reason, where a user can't make network namespaces.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use xdfs_testkit::process::Guard;
use xdfs_testkit::tree::random_bytes;
use xdfs_testkit::wait::until;
use xdfs_testkit::wan::Direction::{LeftToRight, RightToLeft};
use xdfs_testkit::wan::{Counters, Direction, Link, Plan, Side, Wan};

const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;

/// `None`, with the reason told, where there can't be one.
fn network(plan: Plan) -> Option<Wan> {
    match Wan::new(plan) {
        Ok(wan) => Some(wan),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            xdfs_testkit::skip::test(format_args!("no emulated network: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A socket on one host.
fn udp(side: &Side) -> (UdpSocket, SocketAddr) {
    let socket = side.run(|| UdpSocket::bind((side.address(), 0))).unwrap();
    let socket = socket.unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Both ends of a connection from the left host to an address of the right one.
fn connect(wan: &Wan, to: IpAddr) -> (TcpStream, TcpStream) {
    let listener = wan.right().run(|| TcpListener::bind((to, 0))).unwrap();
    let listener = listener.unwrap();
    let to = listener.local_addr().unwrap();
    let near = wan.left().run(|| TcpStream::connect(to)).unwrap().unwrap();
    let (far, _) = listener.accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (near, far)
}

fn counters(wan: &Wan, direction: Direction) -> Counters {
    wan.counters(direction).unwrap()
}

/// Packets that one direction has decided on.
fn decided(wan: &Wan, direction: Direction) -> u64 {
    let counters = counters(wan, direction);
    assert_eq!(counters.overrun, 0, "{counters:?}");
    counters.packets + counters.lost + counters.dropped
}

#[test]
fn a_round_trip_takes_both_delays() {
    let mut plan = Plan::new(Link::delay(ms(20)));
    plan.right_to_left = Link::delay(ms(5));
    let Some(wan) = network(plan) else { return };
    let (near, _) = udp(wan.left());
    let (far, far_address) = udp(wan.right());
    let mut best = Duration::MAX;
    for probe in 0..40_u32 {
        let start = Instant::now();
        near.send_to(&probe.to_le_bytes(), far_address).unwrap();
        let mut bytes = [0; 4];
        let (len, from) = far.recv_from(&mut bytes).unwrap();
        let there = start.elapsed();
        far.send_to(&bytes[..len], from).unwrap();
        near.recv(&mut bytes).unwrap();
        let trip = start.elapsed();
        assert_eq!(bytes, probe.to_le_bytes());
        assert!(there >= ms(20) && trip >= ms(25), "{there:?}, {trip:?}");
        best = best.min(trip);
    }
    println!("25 ms asked, {best:?} at best");
    // Ten times: a busy machine isn't a fault of the link.
    assert!(best < ms(250), "{best:?}");
}

#[test]
fn a_transfer_has_the_bandwidth() {
    const RATE: u64 = 20_000_000;
    const BYTES: u64 = 16_000_000;
    // What waits in the queue keeps the link busy when the sender is held up.
    let link = Link::delay(ms(1)).with_bandwidth(RATE);
    let link = link.with_queue(1_000_000);
    let Some(wan) = network(Plan::new(link)) else {
        return;
    };
    let asked = Duration::from_millis(BYTES * 1000 / RATE);
    let (mut near, mut far) = connect(&wan, wan.right().address());
    let before = counters(&wan, LeftToRight).bytes;
    let start = Instant::now();
    let sender = thread::spawn(move || {
        let chunk = vec![7; 64_000];
        for _ in 0..BYTES / 64_000 {
            near.write_all(&chunk).unwrap();
        }
    });
    let mut chunk = vec![0; 64_000];
    let mut left = BYTES;
    while left > 0 {
        let read = far.read(&mut chunk).unwrap();
        assert!(read > 0);
        left -= read as u64;
    }
    // No tolerance: the clock ran before the first byte, and stops after the last counted.
    let bytes = counters(&wan, LeftToRight).bytes - before;
    let took = start.elapsed();
    sender.join().unwrap();
    println!("{asked:?} asked, {took:?} for {bytes} bytes with headers");
    assert!(bytes > BYTES);
    assert!(took.as_secs_f64() >= bytes as f64 / RATE as f64);
    // Ten times: a busy machine isn't a fault of the link.
    assert!(took < 10 * asked, "{took:?}");
}

/// Sends numbered datagrams over a lossy link, and gives the numbers that were lost.
fn lost(seed: u64, count: u32) -> Option<BTreeSet<u32>> {
    let mut plan = Plan::new(Link::default()).with_seed(seed);
    plan.left_to_right.loss = 0.05;
    let wan = network(plan)?;
    let (near, _) = udp(wan.left());
    let (far, to) = udp(wan.right());
    let mut missing = BTreeSet::new();
    let mut bytes = [0; 1000];
    for first in (0..count).step_by(50) {
        // Few enough at a time for the buffer of the receiver.
        let numbers = first..first + 50;
        for number in numbers.clone() {
            bytes[..4].copy_from_slice(&number.to_le_bytes());
            near.send_to(&bytes, to).unwrap();
        }
        let sent = u64::from(numbers.end);
        assert!(until(PATIENCE, || decided(&wan, LeftToRight) == sent));
        missing.extend(numbers);
        let gone = counters(&wan, LeftToRight).lost;
        while missing.len() as u64 > gone {
            assert_eq!(far.recv(&mut bytes).unwrap(), 1000);
            assert!(missing.remove(&u32::from_le_bytes(*bytes.first_chunk().unwrap())));
        }
    }
    let done = counters(&wan, LeftToRight);
    assert_eq!(done.bytes, done.packets * (1000 + HEADERS));
    assert_eq!(done.packets + done.lost, u64::from(count));
    assert_eq!(decided(&wan, RightToLeft), 0);
    Some(missing)
}

#[test]
fn losses_are_those_asked_for() {
    let Some(first) = lost(1, 4000) else { return };
    // Five standard deviations (14) around 200.
    assert!((130..=270).contains(&first.len()), "{}", first.len());
    assert_eq!(lost(1, 4000), Some(first.clone()));
    assert_ne!(lost(2, 4000), Some(first));
}

#[test]
fn a_full_queue_drops() {
    // A datagram takes 20 ms; ten may wait.
    let wire = 1000 + HEADERS;
    let link = Link::default().with_bandwidth(wire * 50);
    let link = link.with_queue(wire * 10);
    let Some(wan) = network(Plan::new(link)) else {
        return;
    };
    let (near, _) = udp(wan.left());
    let (far, to) = udp(wan.right());
    let start = Instant::now();
    for _ in 0..100 {
        near.send_to(&[7; 1000], to).unwrap();
    }
    assert!(until(PATIENCE, || decided(&wan, LeftToRight) == 100));
    let done = counters(&wan, LeftToRight);
    // One more for each 20 ms that the sender took, if it was held up.
    let sent = start.elapsed().as_millis() / 20 + 1;
    assert!(done.packets >= 11, "{done:?}");
    assert!(u128::from(done.packets) <= 11 + sent, "{done:?}");
    assert!(done.dropped > 0 && done.lost == 0, "{done:?}");
    for _ in 0..done.packets {
        assert_eq!(far.recv(&mut [0; 2000]).unwrap(), 1000);
    }
}

#[test]
fn a_link_can_be_cut_and_mended() {
    let Some(wan) = network(Plan::new(Link::default())) else {
        return;
    };
    let (near, near_address) = udp(wan.left());
    let (far, far_address) = udp(wan.right());
    let cut = Link::default().with_loss(1.0);
    let mut bytes = [0; 8];
    for (direction, from, to, target) in [
        (LeftToRight, &near, &far, far_address),
        (RightToLeft, &far, &near, near_address),
    ] {
        wan.set_direction(direction, cut);
        assert_eq!(wan.link(direction), cut);
        // The thread takes the new link before the next packet, or soon after.
        assert!(until(PATIENCE, || {
            from.send_to(b"lost", target).unwrap();
            counters(&wan, direction).lost > 0
        }));
        wan.set(Link::default());
        assert!(until(PATIENCE, || {
            from.send_to(b"through", target).unwrap();
            to.set_read_timeout(Some(ms(50))).unwrap();
            let mut got = false;
            while let Ok(len) = to.recv(&mut bytes) {
                got |= &bytes[..len] == b"through";
            }
            got
        }));
    }
}

#[test]
fn the_largest_packet_is_as_asked() {
    for (mtu, pieces) in [(1500, 7), (9000, 1)] {
        let plan = Plan::new(Link::default()).with_mtu(mtu);
        let Some(wan) = network(plan) else { return };
        let (near, _) = udp(wan.left());
        let (far, to) = udp(wan.right());
        near.send_to(&[7; 8972], to).unwrap();
        assert_eq!(far.recv(&mut [0; 9000]).unwrap(), 8972);
        // The receiver may be faster than the counter.
        assert!(until(PATIENCE, || decided(&wan, LeftToRight) == pieces));
    }
    let plan = Plan::new(Link::default()).with_mtu(1279);
    let Some(wan) = network(plan) else { return };
    assert_eq!(wan.left().address_v6(), None);
    let error = Wan::new(plan.with_mtu(67)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// Moves data both ways over a lossy link, and compares them.
fn moves_data(plan: Plan) {
    let Some(wan) = network(plan) else { return };
    let addresses = [Some(wan.right().address()), wan.right().address_v6()];
    for to in addresses.into_iter().flatten() {
        let (near, far) = connect(&wan, to);
        let data = random_bytes(3, 6_000_000);
        let before = counters(&wan, LeftToRight);
        thread::scope(|scope| {
            for (end, name) in [(&near, "near"), (&far, "far")] {
                let data = &data;
                scope.spawn(move || {
                    let mut end = end;
                    end.write_all(data).unwrap();
                    println!("{name} has sent");
                });
                scope.spawn(move || {
                    let (mut end, mut got) = (end, vec![0; data.len()]);
                    end.read_exact(&mut got).unwrap();
                    assert!(got == *data, "{name} got something else");
                });
            }
        });
        let done = counters(&wan, LeftToRight);
        println!("{to}: {done:?}");
        assert!(done.lost > before.lost);
        assert!(done.bytes - before.bytes > 6_000_000);
        // What came as one segment is counted as packets of the MTU.
        assert!(done.packets * u64::from(plan.mtu) >= done.bytes);
    }
}

#[test]
fn data_survive_losses() {
    let link = Link::delay(ms(1)).with_bandwidth(20_000_000);
    moves_data(Plan::new(link.with_loss(0.005)));
}

#[test]
fn data_survive_losses_with_offload() {
    let link = Link::delay(ms(1)).with_bandwidth(20_000_000);
    moves_data(Plan::new(link.with_loss(0.005)).with_offload());
}

#[test]
fn large_segments_fill_a_queue_packet_by_packet() {
    // Far fewer bytes than a segment may have.
    let link = Link::delay(ms(1)).with_bandwidth(20_000_000);
    let link = link.with_queue(20_000);
    let Some(wan) = network(Plan::new(link).with_offload()) else {
        return;
    };
    let (mut near, mut far) = connect(&wan, wan.right().address());
    let data = random_bytes(4, 4_000_000);
    let expected = data.clone();
    let sender = thread::spawn(move || near.write_all(&data).unwrap());
    let mut got = vec![0; expected.len()];
    far.read_exact(&mut got).unwrap();
    sender.join().unwrap();
    assert!(got == expected);
    assert!(counters(&wan, LeftToRight).dropped > 0);
}

#[test]
fn programs_run_on_their_host() {
    let Some(wan) = network(Plan::new(Link::default())) else {
        return;
    };
    for side in [wan.left(), wan.right()] {
        let mut command = side.command("sh");
        command.args(["-c", "ip -o addr show dev wan0; exit 3"]);
        let mut guard = Guard::spawn(&mut command).unwrap();
        let status = guard.wait(PATIENCE).unwrap().unwrap();
        assert_eq!(status.code(), Some(3));
        let address = format!(" {}/", side.address());
        assert!(guard.output().iter().any(|l| l.contains(&address)));
    }
    // The process is the program, so that its id is the one to end it by.
    let mut guard = Guard::spawn(wan.left().command("sh").args(["-c", "echo $$; exec cat"]));
    let guard = guard.as_mut().unwrap();
    let id = guard.line(PATIENCE, |line| line.parse::<u32>().ok());
    assert_eq!(id, Some(guard.id()));
}

#[test]
fn options_are_those_of_one_host() {
    const NAME: &str = "net.ipv4.tcp_rmem";
    let Some(wan) = network(Plan::new(Link::default())) else {
        return;
    };
    let (left, right) = (wan.left(), wan.right());
    let before = right.option(NAME).unwrap();
    left.set_option(NAME, "4096 65536 12345678").unwrap();
    assert_eq!(left.option(NAME).unwrap(), "4096\t65536\t12345678");
    assert_eq!(right.option(NAME).unwrap(), before);
    left.set_option(NAME, "many").unwrap_err();
    assert_eq!(
        left.option("net.ipv4.no_such").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    for name in [
        "kernel.hostname",
        "net.ipv4",
        "net.../kernel.x",
        "net..x",
        "",
    ] {
        let error = left.set_option(name, "1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
    }
}

fn name(side: &Side) -> PathBuf {
    Path::new("/run/netns").join(side.name())
}

#[test]
fn nothing_stays_behind() {
    let Some(wan) = network(Plan::new(Link::default())) else {
        return;
    };
    let mut names = vec![name(wan.left()), name(wan.right())];
    assert!(names.iter().all(|name| name.exists()));
    // A program that still runs is cut off and not ended.
    let mut command = wan.left().command("sh");
    let mut running = Guard::spawn(command.args(["-c", "echo up; exec sleep 100"])).unwrap();
    let up = running.line(PATIENCE, |line| (line == "up").then_some(()));
    assert_eq!(up, Some(()));
    drop(wan);
    assert_eq!(running.wait(Duration::ZERO).unwrap(), None);
    let panicked = thread::spawn(|| {
        let wan = network(Plan::new(Link::default())).unwrap();
        let names = [name(wan.left()), name(wan.right())];
        std::panic::panic_any(names);
    });
    names.extend(
        *panicked
            .join()
            .unwrap_err()
            .downcast::<[PathBuf; 2]>()
            .unwrap(),
    );
    assert_eq!(names.len(), 4);
    assert!(!names.iter().any(|name| name.exists()), "{names:?}");
}

#[test]
fn the_dead_are_cleared_away() {
    let Some(wan) = network(Plan::new(Link::default())) else {
        return;
    };
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let make = |id: u32| {
        let name = format!("xdfs-wan-{id}-0-test");
        let status = Command::new("ip").args(["netns", "add", &name]).status();
        (
            Path::new("/run/netns").join(name),
            status.unwrap().success(),
        )
    };
    let (living, made) = make(std::process::id());
    assert!(made);
    // A test beside this one may clear it away at once, even while it is made.
    let (stale, _) = make(dead.id());
    drop(wan);
    let wan = network(Plan::new(Link::default())).unwrap();
    assert!(!stale.exists() && living.exists() && name(wan.left()).exists());
    let living = living.file_name().unwrap();
    let status = Command::new("ip")
        .args(["netns", "del"])
        .arg(living)
        .status();
    assert!(status.unwrap().success());
}
