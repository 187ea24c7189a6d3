//! The times of the door: each wait for a client ends, and each pause of a rate limit.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use xdfs_access::{Access, Admit, Clock, CurrentAccess, KeyLists, Parts, SystemClock};
use xdfs_gridftp::block::Header;
use xdfs_gridftp::door::{Options, Role, Sessions, SessionsConfig, SessionsControl};
use xdfs_gridftp::reply::{Reply, ReplyReader};
use xdfs_proto::Fault;
use xdfs_security::export::{ExportConfig, Exports, ExportsConfig, Rights};
use xdfs_security::guard::Limits;
use xdfs_security::identity::{ClientCertificates, ServerIdentity, read_certificates};
use xdfs_security::password::UsersFile;
use xdfs_security::tunnel::TunnelRules;
use xdfs_store::MemStore;
use xdfs_testkit::strangers::Strangers;

#[path = "door/place.rs"]
mod place;

const PATIENCE: Duration = Duration::from_secs(60);
const SESSIONS_MAX: usize = 10;
const SHORT: Duration = Duration::from_millis(50);
static CONTENT: [u8; 32 << 10] = [7; 32 << 10];

struct Running {
    address: SocketAddr,
    control: SessionsControl,
    thread: Option<JoinHandle<Result<(), Fault>>>,
}

impl Running {
    fn start(options: Options) -> Self {
        let admit = Admit::Open(Arc::new(MemStore::new()));
        Self::with(options, admit, Arc::new(SystemClock))
    }

    fn with(options: Options, admit: Admit, clock: Arc<dyn Clock>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sessions, control) = Sessions::new(SessionsConfig {
            listeners: vec![listener],
            role: Role::Server(admit),
            sessions_max: SESSIONS_MAX,
            options,
            clock,
            #[cfg(feature = "gsi")]
            gsi: None,
            nodes: Vec::new(),
        })
        .unwrap();
        let thread = Some(std::thread::spawn(move || sessions.run()));
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

/// A connection in clear or in TLS.
enum Line {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Line {
    fn tls(stream: TcpStream, config: &Arc<ClientConfig>) -> Self {
        let name = "localhost".try_into().unwrap();
        let tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        Self::Tls(Box::new(StreamOwned::new(tls, stream)))
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Clear(stream) => stream.write_all(bytes).unwrap(),
            Self::Tls(stream) => stream.write_all(bytes).unwrap(),
        }
    }
}

struct Client {
    stream: TcpStream,
    line: Line,
    replies: ReplyReader,
}

impl Client {
    fn connect(server: &Running) -> Self {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            line: Line::Clear(stream.try_clone().unwrap()),
            stream,
            replies: ReplyReader::new(),
        }
    }

    /// Protects the control connection, and asks for data connections that are protected too.
    fn protect(&mut self, config: &Arc<ClientConfig>) {
        self.ask("AUTH TLS", &[234]);
        self.line = Line::tls(self.stream.try_clone().unwrap(), config);
        self.ask("PBSZ 0\r\nPROT P", &[200, 200]);
    }

    /// The next reply; `None` at the end.
    fn reply(&mut self) -> Option<Reply> {
        loop {
            if let Some(reply) = self.replies.next_reply().unwrap() {
                return Some(reply);
            }
            let mut bytes = [0; 1000];
            let read = self.line.read(&mut bytes).unwrap();
            if read == 0 {
                return None;
            }
            self.replies.push(&bytes[..read]);
        }
    }

    #[track_caller]
    fn expect(&mut self, code: u16) -> String {
        let is_marker = |reply: &Reply| matches!(reply.code, 111 | 112);
        // A transfer that stands still has one after another.
        let mut replies = std::iter::from_fn(|| self.reply()).take(20);
        let reply = replies.find(|reply| !is_marker(reply)).unwrap();
        let text = String::from_utf8_lossy(&reply.lines[0]).into_owned();
        assert_eq!(reply.code, code, "{text}");
        text
    }

    fn send(&mut self, line: &str) {
        self.line.write(format!("{line}\r\n").as_bytes());
    }

    /// Sends lines, and returns the reply to the last one.
    #[track_caller]
    fn ask(&mut self, lines: &str, codes: &[u16]) -> String {
        self.send(lines);
        let replies = codes.iter().map(|code| self.expect(*code));
        replies.last().unwrap()
    }

    /// Opens a data connection.
    fn open(&mut self) -> TcpStream {
        let told = self.ask("EPSV", &[229]);
        let port: u16 = told.split('|').nth(3).unwrap().parse().unwrap();
        let data = TcpStream::connect((self.stream.peer_addr().unwrap().ip(), port)).unwrap();
        data.set_read_timeout(Some(PATIENCE)).unwrap();
        data
    }
}

#[test]
fn strangers_that_give_way_are_counted_in_the_log() {
    xdfs_testkit::warnings::keep();
    xdfs_crowd::set_warning_interval(Duration::from_millis(500));
    let server = Running::start(Options::default());
    let mut held = Vec::new();
    let counted = xdfs_testkit::strangers::are_counted(server.address, |count| {
        for _ in 0..count {
            held.push(TcpStream::connect(server.address)?);
        }
        Ok(())
    });
    match counted {
        Ok(counted) => assert!(counted, "{:?}", xdfs_testkit::warnings::all()),
        Err(error) => xdfs_testkit::skip::test(format_args!("few sockets: {error}")),
    }
}

/// Connections that aren't logged in have places of their own, from which each network displaces
/// only its own. Sessions have others, which a login takes.
#[test]
fn strangers_keep_nobody_out() {
    let server = Running::start(Options::default());
    let addresses = [[127, 0, 0, 11], [127, 0, 0, 12]];
    let strangers = addresses.map(|from| Strangers::open(from.into(), server.address, 130));
    if strangers.iter().any(Result::is_err) {
        return xdfs_testkit::skip::test("this machine has one address of its own, or few sockets");
    }
    let mut sessions = Vec::new();
    for number in 0..=SESSIONS_MAX {
        let start = Instant::now();
        let mut client = Client::connect(&server);
        client.expect(220);
        client.send("USER anonymous");
        client.expect(331);
        client.send("PASS x");
        if number < SESSIONS_MAX {
            client.expect(230);
            sessions.push(client);
        } else {
            let text = client.expect(421);
            assert!(text.contains("as many sessions"), "{text}");
            assert!(client.reply().is_none());
        }
        let time = start.elapsed();
        assert!(time < PATIENCE / 2, "the door is shut: {time:?}");
    }
    // A place that is given back is taken by the next one.
    drop(sessions.pop());
    let is_free = xdfs_testkit::wait::until(PATIENCE, || {
        let mut client = Client::connect(&server);
        client.expect(220);
        client.send("USER anonymous");
        client.expect(331);
        client.send("PASS x");
        client.reply().unwrap().code == 230
    });
    assert!(is_free);
    for client in &mut sessions {
        client.send("NOOP");
        client.expect(200);
    }
    drop(strangers);
}

/// A public directory behind a certificate.
#[derive(Debug)]
struct Guarded {
    access: Arc<Access>,
    tls: Arc<ServerConfig>,
    takes_clear: bool,
    folder: tempfile::TempDir,
}

impl CurrentAccess for Guarded {
    fn signer(&self) -> Arc<ServerIdentity> {
        Arc::new(self.identity().unwrap())
    }

    fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access)
    }

    fn takes_clear(&self) -> bool {
        self.takes_clear
    }

    fn tls(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.tls)
    }

    fn identity(&self) -> Result<ServerIdentity, Fault> {
        let (chain, key) = ServerIdentity::files(&self.folder.path().join("own"));
        ServerIdentity::from_pem(&chain, &key)
    }
}

/// The same for clients with TLS, and what these trust.
fn guarded() -> (Admit, Arc<ClientConfig>) {
    limited(Limits::default(), false, Arc::new(SystemClock))
}

/// The same with limits. The directory has [`CONTENT`] as `open/file`.
fn limited(limits: Limits, takes_clear: bool, clock: Arc<dyn Clock>) -> (Admit, Arc<ClientConfig>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("open")).unwrap();
    std::fs::write(path("open/file"), CONTENT).unwrap();
    let exports = Exports::new(ExportsConfig {
        export: vec![ExportConfig {
            name: "open".into(),
            path: path("open").to_str().unwrap().into(),
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
        third_party: Default::default(),
        group: None,
        accounts: None,
        limits,
        audit: None,
        clock,
    });
    let identity = ServerIdentity::load_or_make(&path("own"), &["localhost".into()]).unwrap();
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(&path("own/server.crt")).unwrap() {
        roots.add(certificate).unwrap();
    }
    let admit = Admit::Guarded(Arc::new(Guarded {
        access: Arc::new(access.unwrap()),
        tls: identity.config(ClientCertificates::None).unwrap(),
        takes_clear,
        folder,
    }));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    (admit, Arc::new(config))
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
    let server = Running::with(options, guarded().0, Arc::new(SystemClock));
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
    let (admit, config) = guarded();
    let server = Running::with(options, admit, Arc::new(SystemClock));
    let mut client = Client::connect(&server);
    client.expect(220);
    client.protect(&config);
    client.ask("USER anonymous\r\nPASS x", &[331, 230]);
    client.ask("PASV\r\nSTOR open/new", &[227, 150, 426]);
    for command in ["STOR open/new", "NLST open"] {
        let data = client.open();
        let sending = std::thread::spawn(move || trickle(data));
        client.ask(command, &[150, 426]);
        sending.join().unwrap();
    }
}

/// A clock that goes forward by a step with every look at it.
#[derive(Debug)]
struct SteppingClock {
    step: Duration,
    looks: AtomicU32,
}

impl Clock for SteppingClock {
    fn instant(&self) -> Instant {
        Instant::now() + self.step * self.looks.fetch_add(1, Ordering::Relaxed)
    }

    fn time(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The limit opens between any two looks at the clock, and nothing else wakes the session: what
/// there is to move fits into the buffers of the sockets.
#[test]
fn a_pause_of_the_rate_limit_ends_by_itself() {
    // A file takes 100 ms, 50 of which are a burst.
    let rate = NonZeroU64::new(10 * CONTENT.len() as u64);
    for step in [10, 20, 40] {
        let clock = Arc::new(SteppingClock {
            step: Duration::from_millis(step),
            looks: AtomicU32::new(0),
        });
        let limits = Limits {
            bytes_per_second_per_user_max: rate,
            ..Limits::default()
        };
        let (admit, config) = limited(limits, true, Arc::<SteppingClock>::clone(&clock));
        // On this clock hours pass in a moment.
        let long = Duration::from_secs(1 << 20);
        let options = Options {
            login_timeout: long,
            idle_timeout: long,
            stall_timeout: long,
            ..Options::default()
        };
        let server = Running::with(options, admit, clock);
        for tls in [None, Some(&config)] {
            let mut client = Client::connect(&server);
            client.expect(220);
            if let Some(config) = tls {
                client.protect(config);
            }
            client.ask("USER anonymous\r\nPASS x\r\nTYPE I", &[331, 230, 200]);
            for _ in 0..2 {
                download(&mut client, tls);
            }
            if tls.is_some() {
                continue;
            }
            let mut data = client.open();
            data.write_all(&CONTENT).unwrap();
            data.shutdown(Shutdown::Write).unwrap();
            client.ask("STOR open/stream", &[150, 226]);
            client.ask("MODE E", &[200]);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            client.ask(&format!("EPRT |1|127.0.0.1|{port}|"), &[200]);
            client.ask("RETR open/file", &[150, 226]);
            let mut data = client.open();
            let payload = Header::Data {
                offset: 0,
                count: CONTENT.len() as u64,
                eod: false,
            };
            let end = Header::End {
                eods: Some(1),
                eod: true,
            };
            let blocks = [&payload.encode()[..], &CONTENT, &end.encode()];
            data.write_all(&blocks.concat()).unwrap();
            client.ask("STOR open/blocks", &[150, 226]);
        }
    }
}

/// Downloads the file in stream mode.
fn download(client: &mut Client, tls: Option<&Arc<ClientConfig>>) {
    let stream = client.open();
    client.ask("RETR open/file", &[150]);
    let mut data = match tls {
        Some(config) => Line::tls(stream, config),
        None => Line::Clear(stream),
    };
    let (mut content, mut piece) = (Vec::new(), [0; 1 << 16]);
    loop {
        match data.read(&mut piece).unwrap() {
            0 => break,
            read => content.extend_from_slice(&piece[..read]),
        }
    }
    assert!(content == CONTENT);
    client.expect(226);
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
