//! The proxy does to a connection what its plan says, and nothing else.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_testkit::proxy::{FaultProxy, Flip, Plan};
use xdfs_testkit::tree::random_bytes;
use xdfs_testkit::wait::until;

const PATIENCE: Duration = Duration::from_secs(60);

struct Net {
    server: TcpListener,
    proxy: FaultProxy,
}

impl Net {
    fn new() -> Self {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = FaultProxy::new(server.local_addr().unwrap()).unwrap();
        Self { server, proxy }
    }

    /// Both ends of a connection through the proxy.
    fn connect(&self) -> (TcpStream, TcpStream) {
        let before = self.proxy.accepted();
        let client = TcpStream::connect(self.proxy.addr()).unwrap();
        // The server may see it before the proxy has written it down.
        assert!(until(PATIENCE, || self.proxy.accepted() > before));
        let (server, _) = self.server.accept().unwrap();
        for end in [&client, &server] {
            end.set_read_timeout(Some(PATIENCE)).unwrap();
            end.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        (client, server)
    }
}

/// Reads until the end, and says whether it was an orderly one.
fn drain(mut from: &TcpStream) -> (Vec<u8>, bool) {
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return (all, true),
            Ok(n) => all.extend_from_slice(&chunk[..n]),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}");
                return (all, false);
            }
        }
    }
}

#[test]
fn without_a_plan_nothing_changes() {
    let net = Net::new();
    let (mut client, mut server) = net.connect();
    let (up, down) = (random_bytes(1, 3_000_001), random_bytes(2, 2_000_003));
    thread::scope(|scope| {
        scope.spawn(|| {
            (&client).write_all(&up).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        scope.spawn(|| {
            (&server).write_all(&down).unwrap();
            server.shutdown(Shutdown::Write).unwrap();
        });
        let seen = scope.spawn(|| drain(&server));
        assert!(drain(&client) == (down.clone(), true));
        assert!(seen.join().unwrap() == (up.clone(), true));
    });
    assert_eq!(net.proxy.forwarded(), (3_000_001, 2_000_003));
    assert_eq!(net.proxy.accepted(), 1);
    assert!(until(PATIENCE, || net.proxy.live().is_empty()));
    assert_eq!(
        client.read(&mut [0]).unwrap() + server.read(&mut [0]).unwrap(),
        0
    );
}

#[test]
fn a_half_closed_connection_goes_on() {
    let net = Net::new();
    let (client, mut server) = net.connect();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(drain(&server), (vec![], true));
    server.write_all(b"answer").unwrap();
    drop(server);
    assert_eq!(drain(&client), (b"answer".to_vec(), true));
}

#[test]
fn cut_after_resets_both_ends_and_lets_no_more_through() {
    let net = Net::new();
    net.proxy
        .push_plan(Plan::up(|f| f.cut_after = Some(100_000)));
    let (mut client, server) = net.connect();
    let bytes = random_bytes(3, 300_000);
    let _ = client.write_all(&bytes);
    let (seen, orderly) = drain(&server);
    assert!(!orderly);
    assert!(seen.len() <= 100_000 && seen == bytes[..seen.len()]);
    assert!(!drain(&client).1);
    assert_eq!(net.proxy.forwarded(), (100_000, 0));
    // The plan was for one connection.
    let (mut client, mut server) = net.connect();
    client.write_all(&bytes[..1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
}

#[test]
fn close_after_ends_the_stream_without_an_error() {
    let net = Net::new();
    net.proxy
        .set_plan(Plan::down(|f| f.close_after = Some(777)));
    let (client, mut server) = net.connect();
    let bytes = random_bytes(4, 50_000);
    server.write_all(&bytes).unwrap();
    assert!(drain(&client) == (bytes[..777].to_vec(), true));
    assert_eq!(drain(&server), (vec![], true));
    assert!(net.proxy.live().is_empty());
}

#[test]
fn hang_after_keeps_the_connection_open() {
    let net = Net::new();
    net.proxy.set_plan(Plan::up(|f| f.hang_after = Some(10)));
    let (mut client, mut server) = net.connect();
    client.write_all(&[5; 40]).unwrap();
    let mut seen = [0; 10];
    server.read_exact(&mut seen).unwrap();
    server
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let silence = server.read(&mut seen).unwrap_err();
    assert!(matches!(
        silence.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut
    ));
    assert_eq!(net.proxy.live(), [0]);
    assert!(net.proxy.cut(0));
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(!drain(&server).1);
}

#[test]
fn flip_changes_one_bit() {
    let net = Net::new();
    for byte in [0, 65_536, 199_999] {
        net.proxy
            .push_plan(Plan::up(|f| f.flip = Some(Flip { byte, bit: 6 })));
        let (mut client, server) = net.connect();
        let mut bytes = random_bytes(5, 200_000);
        thread::scope(|scope| {
            scope.spawn(move || client.write_all(&random_bytes(5, 200_000)).unwrap());
            let (seen, orderly) = drain(&server);
            bytes[byte as usize] ^= 0x40;
            assert!(orderly && seen == bytes);
        });
    }
}

#[test]
fn rate_and_delay_take_their_time() {
    let net = Net::new();
    let plan = Plan::up(|f| f.rate = Some(1_000_000));
    net.proxy
        .set_plan(plan.and_down(|f| f.delay = Duration::from_millis(50)));
    let (mut client, mut server) = net.connect();
    // Lower bounds only: a busy machine may take longer.
    let start = Instant::now();
    client.write_all(&random_bytes(6, 200_000)).unwrap();
    let mut seen = vec![0; 200_000];
    server.read_exact(&mut seen).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(150));
    assert!(seen == random_bytes(6, 200_000));
    let start = Instant::now();
    server.write_all(b"answer").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(50));
    drop(server);
    assert_eq!(drain(&client), (vec![], true));
}

#[test]
fn living_connections_are_listed_and_cut() {
    let net = Net::new();
    let mut ends: Vec<_> = (0..4).map(|_| net.connect()).collect();
    assert_eq!(net.proxy.live(), [0, 1, 2, 3]);
    assert!(net.proxy.cut_nth(1));
    assert!(!net.proxy.cut(1));
    assert_eq!(net.proxy.live(), [0, 2, 3]);
    assert!(!drain(&ends[1].0).1);
    assert!(!drain(&ends[1].1).1);
    assert!(!net.proxy.cut_nth(3));
    let (client, server) = &mut ends[2];
    client.write_all(b"on").unwrap();
    server.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(net.proxy.cut_all(), 3);
    assert!(!drain(&ends[3].1).1);
}

#[test]
fn hung_connections_let_nothing_through() {
    let net = Net::new();
    let (mut client, mut server) = net.connect();
    assert!(net.proxy.hang(0));
    client.write_all(b"lost").unwrap();
    server
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    assert!(server.read(&mut [0; 4]).is_err());
    assert_eq!(net.proxy.forwarded(), (0, 0));
}

#[test]
fn new_connections_can_be_blocked() {
    let net = Net::new();
    let (mut client, mut server) = net.connect();
    net.proxy.block_new(true);
    let refused = TcpStream::connect(net.proxy.addr());
    if let Ok(refused) = refused {
        refused.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(drain(&refused), (vec![], false));
    }
    client.write_all(b"on").unwrap();
    server.read_exact(&mut [0; 2]).unwrap();
    net.proxy.block_new(false);
    let _again = net.connect();
    assert_eq!(net.proxy.accepted(), 2);
}

#[test]
fn the_target_can_move() {
    let net = Net::new();
    let _first = net.connect();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    net.proxy.set_target(other.local_addr().unwrap());
    let mut client = TcpStream::connect(net.proxy.addr()).unwrap();
    let (mut server, _) = other.accept().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"here").unwrap();
    server.read_exact(&mut [0; 4]).unwrap();
}

#[test]
fn a_target_that_is_gone_ends_the_client() {
    let Net { server, proxy } = Net::new();
    drop(server);
    let client = TcpStream::connect(proxy.addr()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(drain(&client).0, vec![]);
}

#[test]
fn dropping_ends_everything() {
    let Net { server, proxy } = Net::new();
    proxy.set_plan(Plan::up(|f| f.hang_after = Some(0)).and_down(|f| f.rate = Some(1)));
    let addr = proxy.addr();
    let mut client = TcpStream::connect(addr).unwrap();
    let (mut far, _) = server.accept().unwrap();
    client.write_all(b"stuck").unwrap();
    far.write_all(b"slow").unwrap();
    drop(proxy);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(!drain(&client).1);
    assert!(TcpStream::connect(addr).is_err());
}
