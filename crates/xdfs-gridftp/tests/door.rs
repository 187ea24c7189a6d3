//! The times of the door: each wait for a client ends.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use xdfs_access::SystemClock;
use xdfs_gridftp::door::{Door, DoorConfig, DoorControl, Options, Policy};
use xdfs_gridftp::reply::{Reply, ReplyReader};
use xdfs_proto::Fault;
use xdfs_store::MemStore;

const PATIENCE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

struct Running {
    address: SocketAddr,
    control: DoorControl,
    thread: Option<JoinHandle<Result<(), Fault>>>,
}

impl Running {
    fn start(options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (door, control) = Door::new(DoorConfig {
            listeners: vec![listener],
            policy: Policy::Open(Arc::new(MemStore::new())),
            sessions_max: 10,
            options,
            clock: Arc::new(SystemClock),
        })
        .unwrap();
        let thread = Some(std::thread::spawn(move || door.run()));
        Self {
            address,
            control,
            thread,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.drain(Duration::ZERO);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

struct Client {
    stream: TcpStream,
    replies: ReplyReader,
}

impl Client {
    fn connect(server: &Running) -> Self {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let replies = ReplyReader::new();
        Self { stream, replies }
    }

    /// The next reply; `None` at the end.
    fn reply(&mut self) -> Option<Reply> {
        loop {
            if let Some(reply) = self.replies.next_reply().unwrap() {
                return Some(reply);
            }
            let mut bytes = [0; 1000];
            let read = self.stream.read(&mut bytes).unwrap();
            if read == 0 {
                return None;
            }
            self.replies.push(&bytes[..read]);
        }
    }

    #[track_caller]
    fn expect(&mut self, code: u16) -> String {
        let reply = self.reply().unwrap();
        let text = String::from_utf8_lossy(&reply.lines[0]).into_owned();
        assert_eq!(reply.code, code, "{text}");
        text
    }

    fn send(&mut self, line: &str) {
        self.stream
            .write_all(format!("{line}\r\n").as_bytes())
            .unwrap();
    }
}

#[test]
fn a_client_that_does_not_log_in_is_sent_away() {
    let server = Running::start(Options {
        login_timeout: SHORT,
        ..Options::default()
    });
    let mut client = Client::connect(&server);
    client.expect(220);
    assert!(client.expect(421).starts_with("Login timeout"));
    assert_eq!(client.reply(), None);
}

#[test]
fn an_idle_client_is_sent_away() {
    let server = Running::start(Options {
        idle_timeout: SHORT,
        ..Options::default()
    });
    let mut client = Client::connect(&server);
    client.expect(220);
    client.send("USER anonymous\r\nPASS x");
    client.expect(331);
    client.expect(230);
    assert!(client.expect(421).starts_with("Idle timeout"));
    assert_eq!(client.reply(), None);
}

#[test]
fn a_transfer_without_data_fails_and_the_session_goes_on() {
    let server = Running::start(Options {
        stall_timeout: SHORT,
        ..Options::default()
    });
    let mut client = Client::connect(&server);
    client.expect(220);
    client.send("USER anonymous\r\nPASS x\r\nPASV\r\nSTOR /new");
    for code in [331, 230, 227, 150, 426] {
        client.expect(code);
    }
    client.send("NOOP");
    client.expect(200);
    // Commands that come meanwhile are no progress.
    client.send("PASV\r\nSTOR /new");
    client.expect(227);
    client.expect(150);
    let mut stream = client.stream.try_clone().unwrap();
    let (ended, is_over) = std::sync::mpsc::channel();
    let sender = std::thread::spawn(move || {
        while is_over.recv_timeout(SHORT / 5).is_err() {
            stream.write_all(b"NOOP\r\n").unwrap();
        }
    });
    client.expect(426);
    ended.send(()).unwrap();
    sender.join().unwrap();
}

/// Whether somebody is logged in or not.
#[test]
fn a_client_that_reads_no_replies_is_sent_away() {
    for login in ["NOOP", "USER anonymous\r\nPASS x"] {
        let server = Running::start(Options {
            login_timeout: SHORT,
            idle_timeout: SHORT,
            stall_timeout: SHORT,
            ..Options::default()
        });
        let mut client = Client::connect(&server);
        client.send(login);
        client.stream.set_nonblocking(true).unwrap();
        // First there is no room for more on either side, then nobody who would take it.
        let until = Instant::now() + PATIENCE;
        let refused = loop {
            match client.stream.write(b"HELP\r\n") {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(Instant::now() < until, "the connection is still there");
                    std::thread::sleep(SHORT);
                }
                Err(error) => break error,
                Ok(_) => {}
            }
        };
        let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(kinds.contains(&refused.kind()), "{refused}");
    }
}
