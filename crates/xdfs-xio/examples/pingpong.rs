//! Measures what a handle costs beside plain sockets of the standard library, both over loopback
//! and in turns of the same run: the exchange of single bytes, and messages of 10 MB.
//!
//! ```sh
//! cargo run --release -p xdfs-xio --example pingpong
//! ```

#![expect(clippy::unwrap_used, reason = "a measurement that fails has no result")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_xio::{Handle, Stack};

const ROUNDS: usize = 31;
const EXCHANGES: u32 = 4000;
const MESSAGE: usize = 10_000_000;
const MESSAGES: u32 = 10;

/// Both ends of a channel, as the loops below use them.
trait End: Send + 'static {
    fn write(&mut self, bytes: &[u8]);
    fn read(&mut self, bytes: &mut [u8]);
}

impl End for TcpStream {
    fn write(&mut self, bytes: &[u8]) {
        self.write_all(bytes).unwrap();
    }

    fn read(&mut self, bytes: &mut [u8]) {
        self.read_exact(bytes).unwrap();
    }
}

impl End for Handle {
    fn write(&mut self, bytes: &[u8]) {
        self.write_all(bytes).unwrap();
    }

    fn read(&mut self, bytes: &mut [u8]) {
        let least = bytes.len();
        assert_eq!(self.read_at_least(bytes, least).unwrap(), Some(least));
    }
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    (client, server)
}

fn handles() -> (Handle, Handle) {
    let stack = Stack::parse("tcp").unwrap();
    let passive = stack.listen_at("127.0.0.1:0").unwrap();
    let client = stack.connect(&passive.contact()).unwrap();
    let server = passive.accept().unwrap();
    (client, server)
}

/// Time of one exchange of a byte.
fn exchange<E: End>((mut client, mut server): (E, E)) -> Duration {
    let echo = thread::spawn(move || {
        let mut byte = [0];
        for _ in 0..EXCHANGES {
            server.read(&mut byte);
            server.write(&byte);
        }
    });
    let start = Instant::now();
    let mut byte = [1];
    for _ in 0..EXCHANGES {
        client.write(&byte);
        client.read(&mut byte);
    }
    let time = start.elapsed() / EXCHANGES;
    echo.join().unwrap();
    time
}

/// Time of one message in one direction.
fn message<E: End>((mut client, mut server): (E, E)) -> Duration {
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; MESSAGE];
        for _ in 0..MESSAGES {
            server.read(&mut bytes);
        }
        server.write(&[1]);
    });
    let bytes = vec![1; MESSAGE];
    let start = Instant::now();
    for _ in 0..MESSAGES {
        client.write(&bytes);
    }
    client.read(&mut [0]);
    let time = start.elapsed() / MESSAGES;
    reader.join().unwrap();
    time
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn compare(what: &str, sockets: impl Fn() -> Duration, handles: impl Fn() -> Duration) {
    let (mut plain, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(sockets());
        ours.push(handles());
    }
    let (low, high) = (*plain.iter().min().unwrap(), *plain.iter().max().unwrap());
    let (our_low, our_high) = (*ours.iter().min().unwrap(), *ours.iter().max().unwrap());
    let (plain, ours) = (median(plain), median(ours));
    let more = (ours.as_secs_f64() / plain.as_secs_f64() - 1.0) * 100.0;
    println!("{what}: sockets {plain:?} ({low:?} to {high:?})");
    println!("{what}: handles {ours:?} ({our_low:?} to {our_high:?}), {more:+.1} %");
}

fn main() {
    let pair = || exchange(sockets());
    compare("1 byte there and back", pair, || exchange(handles()));
    compare(
        "10 MB one way",
        || message(sockets()),
        || message(handles()),
    );
}
