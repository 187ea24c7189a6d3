//! The times of the door: each wait for a client ends.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use xdfs_access::{Access, KeyLists, Parts, SystemClock};
use xdfs_gridftp::door::{CurrentAccess, Door, DoorConfig, DoorControl, Options, Policy};
use xdfs_gridftp::reply::{Reply, ReplyReader};
use xdfs_proto::Fault;
use xdfs_security::export::{ExportConfig, Exports, ExportsConfig, Rights};
use xdfs_security::guard::Limits;
use xdfs_security::identity::{ClientCertificates, ServerIdentity, read_certificates};
use xdfs_security::password::UsersFile;
use xdfs_security::tunnel::TunnelRules;
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
        Self::with(options, Policy::Open(Arc::new(MemStore::new())))
    }

    fn with(options: Options, policy: Policy) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (door, control) = Door::new(DoorConfig {
            listeners: vec![listener],
            policy,
            sessions_max: 10,
            options,
            clock: Arc::new(SystemClock),
            #[cfg(feature = "gsi")]
            gsi: None,
            nodes: Vec::new(),
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

/// A public directory behind a certificate.
#[derive(Debug)]
struct Guarded {
    access: Arc<Access>,
    tls: Arc<ServerConfig>,
    _folder: tempfile::TempDir,
}

impl CurrentAccess for Guarded {
    fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access)
    }

    fn takes_clear(&self) -> bool {
        false
    }

    fn tls(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.tls)
    }
}

/// The same, and what its clients trust.
fn guarded() -> (Policy, RootCertStore) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let exports = Exports::new(ExportsConfig {
        export: vec![ExportConfig {
            name: "open".into(),
            path: path("open").to_str().unwrap().into(),
            make: true,
            public: true,
            anonymous: Some(Rights::READ | Rights::LIST | Rights::CREATE),
            ..ExportConfig::default()
        }],
        ..ExportsConfig::default()
    });
    let access = Access::new(Parts {
        keys: KeyLists {
            owner: "owner".into(),
            owner_lists: Vec::new(),
            folder: path("keys"),
        },
        users: UsersFile::new(path("users")),
        tokens: None,
        grid: None,
        exports: exports.unwrap(),
        tunnels: TunnelRules::default(),
        accounts: None,
        limits: Limits::default(),
        audit: None,
        clock: Arc::new(SystemClock),
    });
    let identity = ServerIdentity::load_or_make(&path("own"), &["localhost".into()]).unwrap();
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(&path("own/server.crt")).unwrap() {
        roots.add(certificate).unwrap();
    }
    let policy = Policy::Guarded(Arc::new(Guarded {
        access: Arc::new(access.unwrap()),
        tls: identity.config(ClientCertificates::None).unwrap(),
        _folder: folder,
    }));
    (policy, roots)
}

/// A ClientHello that never ends, one byte at a time, until the connection is closed.
fn trickle(mut stream: TcpStream) {
    let header = [0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];
    for byte in header.into_iter().chain(std::iter::repeat(3)) {
        if stream.write_all(&[byte]).is_err() {
            return;
        }
        std::thread::sleep(SHORT / 10);
    }
}

#[test]
fn a_handshake_that_does_not_end_is_given_up() {
    let options = Options {
        login_timeout: SHORT,
        ..Options::default()
    };
    let server = Running::with(options, guarded().0);
    for is_silent in [true, false] {
        let mut client = Client::connect(&server);
        client.expect(220);
        client.send("AUTH TLS");
        client.expect(234);
        if !is_silent {
            trickle(client.stream.try_clone().unwrap());
        }
        // At most an alert, and the end.
        let ended = client.stream.read_to_end(&mut Vec::new());
        assert!(ended.is_ok() || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
    }
}

#[test]
fn a_handshake_of_data_that_does_not_end_fails_the_transfer() {
    let options = Options {
        stall_timeout: SHORT,
        ..Options::default()
    };
    let (policy, roots) = guarded();
    let server = Running::with(options, policy);
    let mut client = Client::connect(&server);
    client.expect(220);
    client.send("AUTH TLS");
    client.expect(234);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = client.stream.try_clone().unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut stream);
    let mut replies = ReplyReader::new();
    let mut ask = |lines: &str, codes: &[u16]| {
        stream.write_all(lines.as_bytes()).unwrap();
        let mut last = String::new();
        for code in codes {
            let reply = loop {
                if let Some(reply) = replies.next_reply().unwrap() {
                    break reply;
                }
                let mut bytes = [0; 1000];
                let read = stream.read(&mut bytes).unwrap();
                assert!(read > 0);
                replies.push(&bytes[..read]);
            };
            last = String::from_utf8_lossy(&reply.lines[0]).into_owned();
            assert_eq!(reply.code, *code, "{last}");
        }
        last
    };
    ask(
        "USER anonymous\r\nPASS x\r\nPBSZ 0\r\nPROT P\r\n",
        &[331, 230, 200, 200],
    );
    ask("PASV\r\nSTOR open/file\r\n", &[227, 150, 426]);
    for command in ["STOR open/file", "NLST open"] {
        let told = ask("EPSV\r\n", &[229]);
        let port = told.split('|').nth(3).unwrap().parse().unwrap();
        let data = TcpStream::connect((server.address.ip(), port)).unwrap();
        let sending = std::thread::spawn(move || trickle(data));
        ask(&format!("{command}\r\n"), &[150, 426]);
        sending.join().unwrap();
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
