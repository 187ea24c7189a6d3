//! What peers that prove nothing cost a server: `xdfs-bench strangers PROGRAM`.
//!
//! Starts servers of the program that is named, on loopback, and plays strangers of several kinds:
//! one who guesses passwords and logs in as anonymous in between, 2000 who send as many bytes as
//! they may and never the last one, and 10,000 connections on which nothing is ever said, beside a
//! transfer. Prints what the servers made of them. It is no group of the benchmark, as there are no
//! rivals in it.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use socket2::{Domain, Socket, Type};
use xdfs_proto::frame::{AuthRequest, Exception, Frame, Proof};
use xdfs_proto::handshake::take_frame;
use xdfs_proto::opening::{Answer, Feature, Hello};
use xdfs_proto::{Code, Limits};

use crate::procfs;
use crate::scratch::{Guard, Scratch};

/// The first word of its command lines.
pub(crate) const COMMAND: &str = "strangers";

/// Strangers who send what they may.
const STRANGERS: usize = 2000;
/// Connections on which nothing is said.
const HALF_OPEN: usize = 10_000;
/// Addresses that they come from: one address alone would be refused most of them.
const ADDRESSES: u8 = 6;
/// How long passwords are guessed.
const GUESSING: Duration = Duration::from_secs(10);
/// Guessers at once, all from one address.
const GUESSERS: [usize; 2] = [1, 4];
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for the server to take what was sent, before its memory is looked at a last time.
const SETTLING: Duration = Duration::from_secs(2);
/// Length of a transfer, in seconds.
const TRANSFER_SECONDS: &str = "6";
/// Repetitions of the transfer, with and without the connections in turn.
const REPETITIONS: usize = 5;

const ANONYMOUS: u8 = 1;
const PASSWORD: u8 = 3;
/// A kind of frame that nobody may send before the session is open.
const CALL: u8 = 0x14;

type Result<T> = std::result::Result<T, String>;

/// Runs `strangers PROGRAM [guesses|memory|transfer]...`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let Some((program, parts)) = arguments.split_first() else {
        eprintln!("usage: xdfs-bench {COMMAND} PROGRAM [guesses|memory|transfer]...");
        return ExitCode::from(2);
    };
    let result = Path::new(program)
        .canonicalize()
        .map_err(|error| format!("{program}: {error}"))
        .and_then(|program| run(&program, parts));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{COMMAND}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(program: &Path, parts: &[String]) -> Result<()> {
    let folder = Scratch::new(&std::env::temp_dir()).map_err(text)?;
    let guard = Guard::start(&[folder.path()]).map_err(text)?;
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|p| p == part);
    let bench = Bench {
        program,
        folder: folder.path(),
        guard: &guard,
        tls: tls()?,
    };
    bench.prepare()?;
    if wanted("guesses") {
        for guessers in GUESSERS {
            bench.guesses(guessers)?;
        }
    }
    if wanted("memory") {
        for stranger in Stranger::ALL {
            bench.memory(stranger)?;
        }
    }
    if wanted("transfer") {
        bench.transfer()?;
    }
    Ok(())
}

/// What a stranger sends, all but its last byte.
#[derive(Clone, Copy, Debug)]
enum Stranger {
    /// The greeting of TLS, as long as TLS allows.
    ClientHello,
    /// TLS, and nothing after it.
    Silent,
    /// The longest frame of a kind that has no place before the session.
    Frame,
    /// The longest first step of a proof.
    Auth,
    /// The longest second step of a proof.
    Proof,
}

impl Stranger {
    const ALL: [Self; 5] = [
        Self::ClientHello,
        Self::Silent,
        Self::Frame,
        Self::Auth,
        Self::Proof,
    ];

    /// The bytes after TLS.
    fn bytes(self) -> Vec<u8> {
        let mut out = hello();
        let longest = || vec![0; 16 << 10];
        match self {
            Self::ClientHello | Self::Silent => return Vec::new(),
            Self::Frame => {
                out.extend([CALL, 0, 0, 0]);
                out.extend((64_u32 << 10).to_be_bytes());
                out.resize(out.len() + (64 << 10), 0);
            }
            Self::Auth => auth(&"u".repeat(255), PASSWORD, longest()).encode(&mut out),
            Self::Proof => {
                auth("alice", PASSWORD, vec![0; 32]).encode(&mut out);
                Frame::Proof(Proof(longest())).encode(&mut out);
            }
        }
        out.pop();
        out
    }
}

struct Bench<'a> {
    program: &'a Path,
    folder: &'a Path,
    guard: &'a Guard,
    tls: Arc<ClientConfig>,
}

/// A server, ended when this is dropped.
struct Server<'a> {
    child: Child,
    guard: &'a Guard,
    port: u16,
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.guard.release(self.child.id());
    }
}

impl Server<'_> {
    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A value of `/proc/PID/status` in KiB.
    fn kib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        procfs::parse_kib(&status.unwrap_or_default(), name).unwrap_or_default()
    }
}

impl Bench<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.env("XDFS_CONFIG_DIR", self.config());
        command.stdin(Stdio::null());
        command
    }

    fn config(&self) -> PathBuf {
        self.folder.join("config")
    }

    /// Makes a user with a password, and a directory that is open to everybody.
    fn prepare(&self) -> Result<()> {
        let root = self.folder.join("root");
        fs::create_dir(&root).map_err(text)?;
        let settings = format!(
            "listen = [\"127.0.0.1:0\"]\n[[export]]\nname = \"public\"\npath = '{}'\n\
             public = true\n[[export.grant]]\nuser = \"*\"\nrights = [\"read\", \"list\"]\n",
            root.display()
        );
        fs::write(self.folder.join("serve.toml"), settings).map_err(text)?;
        let mut user = self
            .command()
            .args(["user", "add", "alice"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(text)?;
        if let Some(mut input) = user.stdin.take() {
            input.write_all(b"not to be guessed\n").map_err(text)?;
        }
        user.wait().map_err(text)?;
        let key = self.command().arg("keygen").stdout(Stdio::null()).status();
        key.map(drop).map_err(text)
    }

    fn serve(&self) -> Result<Server<'_>> {
        let mut child = self
            .command()
            .args(["serve", "--log", "off", "--config"])
            .arg(self.folder.join("serve.toml"))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(text)?;
        self.guard.watch(child.id());
        let output = child.stdout.take();
        let mut server = Server {
            child,
            guard: self.guard,
            port: 0,
        };
        let mut said = io::BufReader::new(output.ok_or("the server has no output")?);
        let mut line = String::new();
        io::BufRead::read_line(&mut said, &mut line).map_err(text)?;
        let port = line
            .trim()
            .rsplit_once(':')
            .and_then(|(_, p)| p.parse().ok());
        server.port = port.ok_or_else(|| format!("the server said '{}'", line.trim()))?;
        // What it says later has somewhere to go.
        thread::spawn(move || io::copy(&mut said, &mut io::sink()));
        Ok(server)
    }

    fn open(&self, server: &Server<'_>) -> Result<Peer> {
        let name = ServerName::try_from("localhost").map_err(text)?;
        let connection = ClientConnection::new(Arc::clone(&self.tls), name).map_err(text)?;
        let stream = server.connect().map_err(text)?;
        Ok(Peer {
            stream: StreamOwned::new(connection, stream),
            input: Vec::new(),
            is_welcome: false,
        })
    }

    /// Guesses mixed with logins that need no proof, from one address.
    fn guesses(&self, guessers: usize) -> Result<()> {
        let server = self.serve()?;
        let (checked, refused, anonymous) = <(AtomicUsize, AtomicUsize, AtomicUsize)>::default();
        let until = Instant::now() + GUESSING;
        let first = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..guessers {
                scope.spawn(|| {
                    while Instant::now() < until {
                        match self.guess(&server) {
                            Ok(Some(Code::AuthenticationFailed)) => {
                                checked.fetch_add(1, Ordering::Relaxed);
                                if until.duration_since(Instant::now()) > GUESSING / 10 * 9 {
                                    first.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            Ok(_) | Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                        }
                        if let Ok(true) = self.log_in_as_nobody(&server) {
                            anonymous.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        println!(
            "guesses: {} checked in {} s from one address, {guessers} at a time ({} in the first \
             second), {} not checked, {} anonymous logins between them",
            checked.into_inner(),
            GUESSING.as_secs(),
            first.into_inner(),
            refused.into_inner(),
            anonymous.into_inner(),
        );
        Ok(())
    }

    /// A guess at a password; the code of the refusal.
    fn guess(&self, server: &Server<'_>) -> Result<Option<Code>> {
        let mut peer = self.open(server)?;
        let mut out = hello();
        auth("alice", PASSWORD, vec![7; 32]).encode(&mut out);
        peer.send(&out)?;
        match peer.frame()? {
            Frame::Challenge(_) => {}
            Frame::Exception(Exception { fault, .. }) => return Ok(Some(fault.code)),
            other => return Err(other.name().into()),
        }
        let mut out = Vec::new();
        Frame::Proof(Proof(vec![7; 32])).encode(&mut out);
        peer.send(&out)?;
        match peer.frame()? {
            Frame::Exception(Exception { fault, .. }) => Ok(Some(fault.code)),
            _ => Ok(None),
        }
    }

    fn log_in_as_nobody(&self, server: &Server<'_>) -> Result<bool> {
        let mut peer = self.open(server)?;
        let mut out = hello();
        auth("", ANONYMOUS, Vec::new()).encode(&mut out);
        peer.send(&out)?;
        Ok(matches!(peer.frame()?, Frame::AuthOk(_)))
    }

    /// Strangers who send what they may and stay.
    fn memory(&self, stranger: Stranger) -> Result<()> {
        let server = self.serve()?;
        // What the first one costs, the following ones don't.
        drop(self.stay(&server, Stranger::Silent)?);
        thread::sleep(SETTLING / 4);
        let before = server.kib("VmRSS");
        let mut kept = Vec::with_capacity(STRANGERS);
        let began = Instant::now();
        thread::scope(|scope| {
            let halves: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let some = (0..STRANGERS / 2).filter_map(|_| {
                            // One that the server closes while it sends has sent what it may.
                            self.stay(&server, stranger).ok()
                        });
                        some.collect::<Vec<_>>()
                    })
                })
                .collect();
            for half in halves {
                kept.extend(half.join().unwrap_or_default());
            }
        });
        let opened = began.elapsed();
        thread::sleep(SETTLING);
        let peak = server.kib("VmHWM").saturating_sub(before);
        let still = server.kib("VmRSS").saturating_sub(before);
        let there = kept.iter().filter(|stream| is_open(stream)).count();
        println!(
            "memory: {STRANGERS} strangers ({stranger:?}) in {:.1} s: {:.1} MiB more at most, \
             {:.1} MiB at the end with {there} of them there",
            opened.as_secs_f64(),
            mib(peak),
            mib(still),
        );
        Ok(())
    }

    fn stay(&self, server: &Server<'_>, stranger: Stranger) -> Result<TcpStream> {
        if matches!(stranger, Stranger::ClientHello) {
            let mut stream = server.connect().map_err(text)?;
            // A message of 64 KiB in records of 16 KiB, and the last byte is missing.
            let mut message = vec![1, 0, 0xff, 0xf0];
            message.resize(4 + 0xfff0 - 1, 0);
            for piece in message.chunks(16 << 10) {
                let announced = u16::try_from(piece.len().next_multiple_of(2)).unwrap_or(1 << 14);
                let mut record = vec![22, 3, 1];
                record.extend(announced.to_be_bytes());
                record.extend(piece);
                stream.write_all(&record).map_err(text)?;
            }
            return Ok(stream);
        }
        let mut peer = self.open(server)?;
        while peer.stream.conn.is_handshaking() {
            let stream = &mut peer.stream;
            stream.conn.complete_io(&mut stream.sock).map_err(text)?;
        }
        let bytes = stranger.bytes();
        match peer.send(&bytes) {
            // It may be closed already, which is as good for the server.
            Ok(()) | Err(_) => Ok(peer.stream.sock),
        }
    }

    /// A transfer, alone and beside connections on which nothing is said.
    fn transfer(&self) -> Result<()> {
        let server = self.serve()?;
        let (mut alone, mut beside, mut most) = (Vec::new(), Vec::new(), 0);
        for _ in 0..REPETITIONS {
            alone.push(self.perf(&server, || {})?);
            let stop = AtomicBool::new(false);
            let open = AtomicUsize::new(0);
            let rate = thread::scope(|scope| {
                let rate = self.perf(&server, || {
                    for part in 0..ADDRESSES {
                        let (stop, open, port) = (&stop, &open, server.port);
                        scope.spawn(move || half_open(part, port, stop, open));
                    }
                    let deadline = Instant::now() + PATIENCE;
                    while open.load(Ordering::Relaxed) < HALF_OPEN && Instant::now() < deadline {
                        thread::sleep(Duration::from_millis(20));
                    }
                    most = open.load(Ordering::Relaxed).max(most);
                });
                stop.store(true, Ordering::Relaxed);
                rate
            });
            beside.push(rate?);
            // The server has closed them by then.
            thread::sleep(SETTLING);
        }
        let (alone, beside) = (median(&mut alone), median(&mut beside));
        println!(
            "transfer: {:.0} MB/s alone, {:.0} MB/s beside {most} connections on which nothing is \
             said ({:.2}; medians of {REPETITIONS})",
            alone / 1e6,
            beside / 1e6,
            beside / alone,
        );
        Ok(())
    }

    /// Bytes a second of an upload, in the seconds after `disturb`, which is called when it runs.
    fn perf(&self, server: &Server<'_>, disturb: impl FnOnce()) -> Result<f64> {
        let mut child = self
            .command()
            .args(["perf", "--json", "-n", "4", "--seconds", TRANSFER_SECONDS])
            .arg(format!("xdfs://127.0.0.1:{}", server.port))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(text)?;
        let output = child.stdout.take().ok_or("the transfer has no output")?;
        let (sender, lines) = mpsc::channel();
        let reader = thread::spawn(move || {
            for line in io::BufRead::lines(io::BufReader::new(output)).map_while(io::Result::ok) {
                let progress: Option<serde_json::Value> = serde_json::from_str(&line).ok();
                let bytes = progress.and_then(|progress| progress["bytes"].as_f64());
                // Who measures may have gone.
                let _ = sender.send((Instant::now(), bytes.unwrap_or_default()));
            }
        });
        let moving = |&(_, bytes): &(Instant, f64)| bytes > 0.0;
        let first = lines
            .iter()
            .find(moving)
            .ok_or("the transfer moved nothing")?;
        disturb();
        let disturbed = Instant::now();
        let rest: Vec<_> = lines.iter().filter(moving).collect();
        let start = rest.iter().find(|(at, _)| *at >= disturbed);
        let (start, end) = (start.unwrap_or(&first), rest.last().unwrap_or(&first));
        child.wait().map_err(text)?;
        let _ = reader.join();
        let seconds = end.0.duration_since(start.0).as_secs_f64();
        if seconds < 0.5 {
            return Err("the transfer was over too soon".into());
        }
        Ok((end.1 - start.1) / seconds)
    }
}

/// Keeps a share of the connections open, and opens again what the server closes.
fn half_open(part: u8, port: u16, stop: &AtomicBool, open: &AtomicUsize) {
    let share = HALF_OPEN / usize::from(ADDRESSES) + 1;
    let mut kept: Vec<Socket> = Vec::with_capacity(share);
    while !stop.load(Ordering::Relaxed) {
        let before = kept.len();
        kept.retain(|socket| {
            let mut byte = [std::mem::MaybeUninit::uninit()];
            matches!(socket.recv(&mut byte), Err(e) if e.kind() == ErrorKind::WouldBlock)
        });
        open.fetch_sub(before - kept.len(), Ordering::Relaxed);
        while kept.len() < share && !stop.load(Ordering::Relaxed) {
            match connect_from(part, port) {
                Ok(socket) => kept.push(socket),
                Err(_) => break,
            }
            open.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(100));
    }
    open.fetch_sub(kept.len(), Ordering::Relaxed);
}

fn connect_from(part: u8, port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2 + part), 0));
    socket.bind(&from.into())?;
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    socket.connect_timeout(&to.into(), Duration::from_millis(500))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The other end of a channel that is being opened.
struct Peer {
    stream: StreamOwned<ClientConnection, TcpStream>,
    input: Vec<u8>,
    is_welcome: bool,
}

impl Peer {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let sent = self.stream.write_all(bytes);
        sent.and_then(|()| self.stream.flush()).map_err(text)
    }

    /// The next frame, after the answer to HELLO.
    fn frame(&mut self) -> Result<Frame> {
        let limits = Limits::default();
        loop {
            if !self.is_welcome {
                match Answer::decode(&self.input).map_err(|e| e.fault().to_string())? {
                    Some((Answer::Welcome(_), used)) => {
                        self.input.drain(..used);
                        self.is_welcome = true;
                        continue;
                    }
                    Some((Answer::Refused(fault), _)) => return Err(fault.to_string()),
                    None => {}
                }
            } else if let Some((frame, used)) =
                take_frame(&self.input, &limits).map_err(|fault| fault.to_string())?
            {
                self.input.drain(..used);
                return Ok(frame);
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk).map_err(text)? {
                0 => return Err("the server closed the channel".into()),
                n => self.input.extend_from_slice(&chunk[..n]),
            }
        }
    }
}

fn hello() -> Vec<u8> {
    let mut out = Vec::new();
    let feature = Feature {
        id: 1,
        name: "authentication".into(),
        value: Vec::new(),
    };
    let hello = Hello {
        features: vec![feature],
        ..Hello::default()
    };
    hello.encode(&mut out);
    out
}

fn auth(user: &str, method: u8, body: Vec<u8>) -> Frame {
    Frame::Auth(AuthRequest {
        method,
        user: user.into(),
        body,
    })
}

/// Whether the server hasn't closed a connection yet.
fn is_open(stream: &TcpStream) -> bool {
    let mut stream = stream;
    if stream.set_nonblocking(true).is_err() {
        return false;
    }
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

fn mib(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A stranger believes every server.
fn tls() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(text)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"xdfs/1".to_vec()];
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2".into()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PSS_SHA256,
        ]
    }
}
