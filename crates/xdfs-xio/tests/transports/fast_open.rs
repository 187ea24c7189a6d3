//! TCP Fast Open over an emulated path: the first bytes travel with the packet that connects.

use std::io::{ErrorKind, Read as _};
use std::net::SocketAddr;
use std::time::Duration;

use xdfs_testkit::wan::{Link, Plan, Side, Wan};
use xdfs_xio::{Endpoint, Stack};

use crate::end::{self, End};

fn network() -> Option<Wan> {
    match Wan::new(Plan::new(Link::delay(Duration::from_millis(20)))) {
        Ok(wan) => Some(wan),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            xdfs_testkit::skip::test(format_args!("no emulated network: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// One of the kernel's counters of a host (`/proc/net/netstat`).
fn counter(side: &Side, name: &str) -> u64 {
    let mut text = String::new();
    let opened = || std::fs::File::open("/proc/thread-self/net/netstat");
    let mut file = side.run(opened).unwrap().unwrap();
    file.read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("TcpExt:")).collect();
    let column = lines[0].split(' ').position(|n| n == name).unwrap();
    lines[1].split(' ').nth(column).unwrap().parse().unwrap()
}

/// Sends `bytes` from the left to the right host over a new connection, and an answer back.
fn exchange(wan: &Wan, stack: &Stack, bytes: &[u8]) {
    let to = SocketAddr::new(wan.right().address(), 0);
    let listen = || stack.listen(&Endpoint::tcp(to)).unwrap();
    let mut listener = wan.right().run(listen).unwrap();
    let to = listener.local_endpoint();
    let open = || End::new(stack.open(&to).unwrap());
    let mut client = wan.left().run(open).unwrap();
    client.open().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| client.write(bytes).unwrap());
        let mut server = end::accept(&mut *listener);
        let mut received = vec![0; bytes.len()];
        server.read(&mut received).unwrap();
        assert!(received == bytes);
        server.write(b"answer").unwrap();
        server.stream.close().unwrap();
    });
    let mut answer = [0; 6];
    client.read(&mut answer).unwrap();
    assert_eq!(&answer, b"answer");
}

#[test]
fn the_second_connection_carries_bytes_in_the_packet_that_opens_it() {
    let Some(wan) = network() else { return };
    for side in [wan.left(), wan.right()] {
        side.set_option("net.ipv4.tcp_fastopen", "3").unwrap();
    }
    let carried = || {
        [
            counter(wan.left(), "TCPFastOpenActive"),
            counter(wan.right(), "TCPFastOpenPassive"),
        ]
    };
    let plain = Stack::parse("tcp").unwrap();
    let fast = Stack::parse("tcp:fastopen=true").unwrap();
    let many = xdfs_testkit::tree::random_bytes(1, 3_000_000);
    exchange(&wan, &plain, b"plain");
    // The first one gets the server's cookie for the others.
    exchange(&wan, &fast, b"first");
    assert_eq!(carried(), [0, 0]);
    exchange(&wan, &fast, b"second");
    assert_eq!(carried(), [1, 1]);
    exchange(&wan, &fast, &many);
    assert_eq!(carried(), [2, 2]);
    // A connection without the attribute stays as it was, even with the cookie there.
    exchange(&wan, &plain, b"plain");
    assert_eq!(carried(), [2, 2]);
}

/// A server whose system doesn't allow it, or no longer knows its cookies, costs nothing but time.
#[test]
fn a_server_without_it_is_reached_all_the_same() {
    let Some(wan) = network() else { return };
    let fast = Stack::parse("tcp:fastopen=true").unwrap();
    for allowed in ["1", "3", "1", "3"] {
        let right = wan.right();
        right.set_option("net.ipv4.tcp_fastopen", allowed).unwrap();
        for bytes in [&b"first"[..], b"second", &[7; 400_000]] {
            exchange(&wan, &fast, bytes);
        }
    }
    assert!(counter(wan.right(), "TCPFastOpenPassive") > 0);
}

/// Nobody has answered when the connection counts as open; what is wrong shows at the next call.
#[test]
fn a_refusal_shows_at_the_latest_with_the_first_read() {
    let Some(wan) = network() else { return };
    wan.right()
        .set_option("net.ipv4.tcp_fastopen", "3")
        .unwrap();
    let fast = Stack::parse("tcp:fastopen=true").unwrap();
    exchange(&wan, &fast, b"for the cookie");
    let nobody = Endpoint::tcp(SocketAddr::new(wan.right().address(), 9));
    let open = || End::new(fast.open(&nobody).unwrap());
    let mut client = wan.left().run(open).unwrap();
    let told = client
        .open()
        .and_then(|()| client.write(b"hello"))
        .and_then(|()| client.read(&mut [0]));
    assert_eq!(told.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
