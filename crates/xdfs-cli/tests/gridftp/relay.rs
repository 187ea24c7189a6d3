//! A relay between a client and a real FTP server: it counts what is moved, keeps the commands, can
//! cut connections off, and change what the server says about checksums.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

type Act = Box<dyn FnOnce() + Send>;

/// What a relay has seen, and what it is to do.
#[derive(Default)]
struct Seen {
    bytes: AtomicU64,
    commands: Mutex<Vec<String>>,
    lies: AtomicBool,
    /// What is done once before a command that begins with a word.
    before: Mutex<Option<(&'static str, Act)>>,
    /// All connections so far.
    all: Mutex<Vec<TcpStream>>,
}

/// The relay. Its threads end with the process of the test.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
}

impl Relay {
    /// A relay to the server at this address.
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let (own, server) = (Arc::clone(&seen), server.to_owned());
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                // The server may be away.
                if let Ok(server) = TcpStream::connect(&server) {
                    control(client, server, &own);
                }
            }
        });
        Self { address, seen }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    /// Bytes on data connections since the last call.
    pub(crate) fn take_bytes(&self) -> u64 {
        self.seen.bytes.swap(0, Ordering::Relaxed)
    }

    /// Bytes on data connections, which stay counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.seen.bytes.load(Ordering::Relaxed)
    }

    /// Commands since the last call that begin with a word.
    pub(crate) fn take_commands(&self, word: &str) -> Vec<String> {
        let mut all = std::mem::take(&mut *self.seen.commands.lock().unwrap());
        all.retain(|line| line.starts_with(word));
        all
    }

    /// Does something once, before the server gets the next command that begins with this word.
    pub(crate) fn before(&self, word: &'static str, act: impl FnOnce() + Send + 'static) {
        *self.seen.before.lock().unwrap() = Some((word, Box::new(act)));
    }

    /// Whether that is done.
    pub(crate) fn has_acted(&self) -> bool {
        self.seen.before.lock().unwrap().is_none()
    }

    /// Cuts all connections off.
    pub(crate) fn cut(&self) {
        for stream in self.seen.all.lock().unwrap().drain(..) {
            // It may have ended.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Whether checksums are replaced by zeros.
    pub(crate) fn set_lying(&self, lies: bool) {
        self.seen.lies.store(lies, Ordering::Relaxed);
    }
}

fn control(client: TcpStream, server: TcpStream, seen: &Arc<Seen>) {
    let both = [&client, &server].map(|stream| stream.try_clone().unwrap());
    seen.all.lock().unwrap().extend(both);
    let (mut to_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let own = Arc::clone(seen);
    thread::spawn(move || {
        for line in BufReader::new(client).split(b'\n').map_while(Result::ok) {
            let mut line = String::from_utf8_lossy(&line).trim_end().to_owned();
            own.commands.lock().unwrap().push(line.clone());
            let mut before = own.before.lock().unwrap();
            if let Some((_, act)) = before.take_if(|(word, _)| line.starts_with(*word)) {
                act();
            }
            drop(before);
            if let Some(numbers) = line.strip_prefix("PORT ") {
                let numbers: Vec<u16> = numbers.split(',').map(|n| n.parse().unwrap()).collect();
                let port = data(numbers[4] << 8 | numbers[5], &own);
                line = format!("PORT 127,0,0,1,{},{}", port >> 8, port & 255);
            }
            if to_server
                .write_all(format!("{line}\r\n").as_bytes())
                .is_err()
            {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Both);
    });
    let own = Arc::clone(seen);
    thread::spawn(move || {
        for line in BufReader::new(server).split(b'\n').map_while(Result::ok) {
            let mut line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if line.starts_with("229 ") && line.contains("(|||") {
                let port = line.rsplit('|').nth(1).unwrap().parse().unwrap();
                line = format!("229 here (|||{}|)", data(port, &own));
            }
            if line.starts_with("213 ") && line.len() >= 20 && own.lies.load(Ordering::Relaxed) {
                line = format!("213 {}", "0".repeat(line.len() - 4));
            }
            if to_client
                .write_all(format!("{line}\r\n").as_bytes())
                .is_err()
            {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

/// Relays all connections to a port, and returns the one that takes its place.
fn data(port: u16, seen: &Arc<Seen>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let seen = Arc::clone(seen);
    thread::spawn(move || {
        for one in listener.incoming().map_while(Result::ok) {
            let Ok(other) = TcpStream::connect(("127.0.0.1", port)) else {
                continue;
            };
            let cut = [&one, &other].map(|stream| stream.try_clone().unwrap());
            seen.all.lock().unwrap().extend(cut);
            let both = [(&one, &other), (&other, &one)];
            for (from, to) in both.map(|(a, b)| (a.try_clone().unwrap(), b.try_clone().unwrap())) {
                let seen = Arc::clone(&seen);
                thread::spawn(move || pump(from, to, &seen));
            }
        }
    });
    own
}

fn pump(mut from: TcpStream, mut to: TcpStream, seen: &Seen) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            let _ = from.shutdown(Shutdown::Both);
            return;
        }
        seen.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
    let _ = to.shutdown(Shutdown::Write);
}
