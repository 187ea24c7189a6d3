//! An acceptor of whose places one address takes all that there are: real sockets on loopback.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::environment::{Environment, MakeTask, System};
use xdfs_engine::tunnel::TunnelLimits;
use xdfs_engine::{Acceptor, AcceptorConfig, AccessPolicy};
use xdfs_proto::Limits;
use xdfs_proto::frame::JoinRequest;
use xdfs_proto::handshake::{Initiator, Purpose};
use xdfs_store::MemStore;
use xdfs_xio::{Endpoint, Location, Registry};

const PATIENCE: Duration = Duration::from_secs(60);
/// All places of an acceptor.
const PLACES: usize = 4096;

/// The time stands still, so that no channel is late.
#[derive(Debug)]
struct Still(Instant);

impl Environment for Still {
    fn now(&self) -> Instant {
        self.0
    }

    fn start(&self, name: &str, make: MakeTask) -> std::io::Result<()> {
        System.start(name, make)
    }

    fn fill_random(&self, bytes: &mut [u8]) -> std::io::Result<()> {
        System.fill_random(bytes)
    }
}

#[test]
fn one_address_keeps_no_other_out() {
    let stack = Registry::standard().build(&"tcp".parse().unwrap()).unwrap();
    let listen = |address: &str| {
        let address = Location::Socket(address.parse().unwrap());
        stack.listen(&Endpoint::new("tcp", address))
    };
    let (crowded, other) = (listen("127.0.0.1:0").unwrap(), listen("[::1]:0"));
    let Ok(other) = other else {
        return xdfs_testkit::skip::test("there is no IPv6");
    };
    let address = |listener: &dyn xdfs_xio::Listener| listener.local_endpoint().socket().unwrap();
    let (to_crowded, to_other) = (address(&*crowded), address(&*other));
    let config = AcceptorConfig {
        listeners: vec![crowded, other],
        access: AccessPolicy::Open(Arc::new(MemStore::new()), None),
        sessions_max: 1,
        memory_bytes_max: usize::MAX,
        tunnels: TunnelLimits::default(),
        limits: Limits::default(),
    };
    let still = Arc::new(Still(System.now()));
    let (acceptor, control) = Acceptor::within(still, config).unwrap();
    let acceptor = thread::Builder::new()
        .spawn(move || acceptor.run())
        .unwrap();

    let connect = |to: SocketAddr| TcpStream::connect_timeout(&to, PATIENCE);
    let mut crowd = Vec::new();
    for _ in 0..PLACES {
        match connect(to_crowded) {
            Ok(stream) => crowd.push(stream),
            Err(e) => return xdfs_testkit::skip::test(format!("no more sockets: {e}")),
        }
    }
    // The last one is pending once it has an answer.
    greet(crowd.last_mut().unwrap());
    greet(&mut connect(to_other).unwrap());
    let is_open = |stream: &&TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let read = (&mut &**stream).read(&mut [0]);
        read.is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    };
    let open = crowd.iter().rev().skip(1).filter(is_open).count();
    assert!(open >= PLACES - 2, "{open} are left");
    drop(crowd);
    control.drain(Duration::ZERO);
    acceptor.join().unwrap().unwrap();
}

/// A peer that is opening a channel when the server ends is told why, and needn't find out.
#[test]
fn pending_channels_are_told_of_the_end() {
    let stack = Registry::standard().build(&"tcp".parse().unwrap()).unwrap();
    let anywhere = Location::Socket("127.0.0.1:0".parse().unwrap());
    let listener = stack.listen(&Endpoint::new("tcp", anywhere)).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    let config = AcceptorConfig {
        listeners: vec![listener],
        access: AccessPolicy::Open(Arc::new(MemStore::new()), None),
        sessions_max: 1,
        memory_bytes_max: usize::MAX,
        tunnels: TunnelLimits::default(),
        limits: Limits::default(),
    };
    let (acceptor, control) = Acceptor::new(config).unwrap();
    let acceptor = thread::Builder::new()
        .spawn(move || acceptor.run())
        .unwrap();
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    greet(&mut stream);
    control.drain(Duration::ZERO);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    let text = String::from_utf8_lossy(&rest);
    assert!(text.contains("shutting down"), "{text}");
    acceptor.join().unwrap().unwrap();
}

/// Begins an opening exchange, and reads the first byte of the answer.
fn greet(stream: &mut TcpStream) {
    let mut hello = Vec::new();
    let join = JoinRequest {
        id: xdfs_proto::SessionId([1; 16]),
        secret: xdfs_proto::SessionSecret([2; 16]),
        channel: xdfs_proto::ChannelIndex(1),
    };
    let _ = Initiator::new(Purpose::Join(join), false, &mut hello);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&hello[..hello.len() - 1]).unwrap();
    stream.read_exact(&mut [0]).unwrap();
}
