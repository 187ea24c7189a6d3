//! Both ends of TLS over a transport that gives any bytes in any pieces. Against bytes from
//! nowhere an end gives up soon, with little said, and yields nothing. Against a true peer whose
//! bytes are changed on the way it yields the beginning of what the peer wrote, and an end only if
//! the peer closed. The same once the records are made without rustls, with large pieces and clear
//! runs: what is protected comes as it was written or not at all, a run ends where it should, no
//! end waits for readiness that doesn't come, and a call for the wrong kind of bytes yields none.
#![no_main]

#[path = "tls/bulk.rs"]
mod bulk;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::{Arc, LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use rustls::{ClientConfig, ServerConfig};
use xdfs_security::identity::{ClientCertificates, ServerIdentity};
use xdfs_security::trust::{NewHosts, TrustPolicy, server_name};
use xdfs_sys::poll::{Poller, Token};
use xdfs_xio::tls::TlsStream;
use xdfs_xio::{Capabilities, Protection, Stream};

/// Most that an end without a peer may say: its HELLO, a flight with a certificate, an alert.
const SAID_MAX: usize = 8 << 10;
/// Most that it may take before it gives up: messages of the handshake are bounded by 64 KiB.
const TAKEN_MAX: usize = 192 << 10;

struct Configs {
    identity: ServerIdentity,
    server: Arc<ServerConfig>,
}

static CONFIGS: LazyLock<Configs> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let identity = ServerIdentity::load_or_make(folder.path(), &["host".to_owned()]);
    let identity = identity.expect("a new identity");
    let server = identity.config(ClientCertificates::None).expect("settings");
    Configs { identity, server }
});

/// A client's settings, without tickets from before, so that an input does the same again.
fn client_config() -> Arc<ClientConfig> {
    let policy = TrustPolicy {
        known_hosts: "/nonexistent".into(),
        pins: vec![CONFIGS.identity.fingerprint()],
        roots: Vec::new(),
        system_roots: false,
        new_hosts: NewHosts::Refuse,
    };
    let (config, _) = policy.client_config("host", 1, None).expect("settings");
    config
}

/// One direction of the transport.
#[derive(Debug, Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// No more come.
    ended: bool,
    /// The transport takes what it is given at once.
    is_wide: bool,
    /// Most bytes that wait, if there is a bound.
    room: Option<usize>,
    /// How many went through.
    taken: usize,
    given: usize,
}

type Shared = Arc<Mutex<Pipe>>;

fn pipe(shared: &Shared) -> std::sync::MutexGuard<'_, Pipe> {
    shared.lock().expect("one thread")
}

/// An end of the transport that gives and takes so many bytes a call, and every other time none.
#[derive(Debug)]
struct Pieces {
    incoming: Shared,
    outgoing: Shared,
    piece: usize,
    blocks: bool,
    interrupts: bool,
    /// Reads and writes so far.
    turns: [u8; 2],
}

impl Pieces {
    fn new(incoming: &Shared, outgoing: &Shared, piece: usize, blocks: bool) -> Box<Self> {
        Box::new(Self {
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            piece,
            blocks,
            interrupts: false,
            turns: [0, 0],
        })
    }

    fn wait(&mut self, writes: bool) -> io::Result<()> {
        let turn = &mut self.turns[usize::from(writes)];
        *turn = turn.wrapping_add(1);
        if self.blocks && *turn % 2 == 1 {
            return Err(ErrorKind::WouldBlock.into());
        }
        if self.interrupts && *turn % 3 == 0 {
            return Err(ErrorKind::Interrupted.into());
        }
        Ok(())
    }
}

impl Stream for Pieces {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.wait(false)?;
        let mut pipe = pipe(&self.incoming);
        if pipe.bytes.is_empty() {
            return match pipe.ended {
                true => Ok(0),
                false => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let mut left = self.piece;
        for buf in bufs {
            let n = buf.len().min(left).min(pipe.bytes.len());
            for (to, from) in buf.iter_mut().zip(pipe.bytes.drain(..n)) {
                *to = from;
            }
            left -= n;
        }
        pipe.taken += self.piece - left;
        Ok(self.piece - left)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if !pipe(&self.outgoing).is_wide {
            self.wait(true)?;
        }
        let mut pipe = pipe(&self.outgoing);
        let mut most = self.piece;
        if let Some(room) = pipe.room.filter(|_| !pipe.is_wide) {
            most = most.min(room.saturating_sub(pipe.bytes.len()));
            if most == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
        let mut left = most;
        for buf in bufs {
            let n = buf.len().min(left);
            pipe.bytes.extend(&buf[..n]);
            pipe.given += n;
            left -= n;
        }
        Ok(most - left)
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn close(&mut self) -> io::Result<()> {
        pipe(&self.outgoing).ended = true;
        Ok(())
    }

    fn register(&mut self, _: &mut Poller, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: false,
            local: true,
        }
    }

    fn peer(&self) -> String {
        "the fuzzer".to_owned()
    }
}

fn would_block(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// What the input says, as records with a type, a version and a length that fit.
fn records(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = data;
    while let Some((&[kind, length], after)) = rest.split_first_chunk::<2>() {
        let (body, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        let kind = match kind % 8 {
            0 => 20,
            1 => 21,
            2 => 23,
            3 => kind,
            _ => 22,
        };
        out.extend([kind, 3, 3]);
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
    }
    out
}

/// An end against bytes from nowhere, over and over.
fn alone(bytes: &[u8], piece: usize, how: u8) {
    let (incoming, outgoing) = (Shared::default(), Shared::default());
    let inner = Pieces::new(&incoming, &outgoing, piece, how & 1 != 0);
    let mut end = match how & 2 {
        0 => TlsStream::accept(inner, Arc::clone(&CONFIGS.server)).expect("settings"),
        _ => {
            let name = server_name("host").expect("a name");
            TlsStream::open(inner, client_config(), name).expect("settings")
        }
    };
    let repeats = how & 4 != 0 && !bytes.is_empty();
    pipe(&incoming).bytes.extend(bytes);
    let mut buf = [0; 256];
    let mut idle = 0;
    let error = loop {
        // An initiator asks whether it is open, an acceptor reads.
        let read = match how & 2 {
            0 => end.read_vectored(&mut [IoSliceMut::new(&mut buf)]),
            _ => match end.finish_open() {
                Ok(true) => panic!("a handshake without a peer"),
                Ok(false) => Err(ErrorKind::WouldBlock.into()),
                Err(error) => Err(error),
            },
        };
        match read {
            Ok(n) => panic!("{n} bytes of plaintext from nowhere"),
            Err(e) if would_block(&e) => {}
            Err(e) => break e,
        }
        assert!(end.protection().is_none(), "protected by nobody");
        let mut pipe = pipe(&incoming);
        assert!(pipe.taken <= TAKEN_MAX, "a handshake without an end");
        if pipe.bytes.is_empty() {
            idle += 1;
            if repeats {
                pipe.bytes.extend(bytes);
            } else if idle > 4 {
                pipe.ended = true;
            }
        }
    };
    assert!(!would_block(&error));
    // It stays so.
    for _ in 0..2 {
        let read = end.read_vectored(&mut [IoSliceMut::new(&mut buf)]);
        assert!(!matches!(read, Ok(n) if n > 0));
        assert!(!matches!(read, Ok(0)), "an orderly end of nothing");
        let _ = end.write_vectored(&[IoSlice::new(b"secret")]);
    }
    let _ = end.close();
    let said = pipe(&outgoing);
    assert!(said.given <= SAID_MAX);
    let said: Vec<u8> = said.bytes.iter().copied().collect();
    assert!(!said.windows(6).any(|w| w == b"secret"));
}

/// What is done to the bytes of one direction: what, after how many bytes, with what.
#[derive(Clone, Copy)]
struct Change {
    how: u8,
    at: usize,
    value: u8,
}

/// Moves what waits, and makes the change where it is due. The bytes moved, as they were.
fn carry(from: &Shared, to: &Shared, moved: &mut usize, change: &mut Option<Change>) -> usize {
    let (mut from, mut to) = (pipe(from), pipe(to));
    let n = from.bytes.len();
    for byte in from.bytes.drain(..) {
        let mut byte = Some(byte);
        if let Some(c) = change.filter(|c| *moved == c.at) {
            match c.how % 4 {
                0 => byte = byte.map(|b| b ^ c.value.max(1)),
                1 => byte = None,
                2 => to.bytes.push_back(c.value),
                _ => to.ended = true,
            }
            *change = None;
        }
        *moved += 1;
        if !to.ended {
            to.bytes.extend(byte);
        }
    }
    if from.ended {
        to.ended = true;
    }
    n
}

/// One end with what it has read.
struct Peer {
    stream: TlsStream,
    read: Vec<u8>,
    /// How reading ended: in an orderly way or not.
    end: Option<bool>,
    is_open: bool,
    binding: Option<Protection>,
}

impl Peer {
    fn new(stream: TlsStream) -> Self {
        Self {
            stream,
            read: Vec::new(),
            end: None,
            is_open: false,
            binding: None,
        }
    }

    fn go_on(&mut self) {
        if self.end.is_some() {
            return;
        }
        if !self.is_open {
            match self.stream.finish_open() {
                Ok(true) => {
                    self.is_open = true;
                    self.binding = self.stream.protection();
                    assert!(self.binding.is_some());
                }
                Ok(false) => return,
                Err(e) => {
                    assert!(!would_block(&e));
                    self.end = Some(false);
                    return;
                }
            }
        }
        let _ = self.stream.flush();
        let (mut one, mut two) = ([0; 7], [0; 300]);
        let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        match self.stream.read_vectored(&mut bufs) {
            Ok(0) => self.end = Some(true),
            Ok(n) => {
                self.read.extend(&one[..n.min(7)]);
                self.read.extend(&two[..n.saturating_sub(7)]);
            }
            Err(e) if would_block(&e) => {}
            Err(_) => self.end = Some(false),
        }
    }
}

/// Both ends, with changes on the way. `resumes`: a connection before it left a ticket.
fn pair(data: &[u8], piece: usize, how: u8, config: &Arc<ClientConfig>) {
    let Some((&[up_at, up_low, down_at, down_low, value, length], _)) =
        data.split_first_chunk::<6>()
    else {
        return;
    };
    let at = |high, low| usize::from(u16::from_be_bytes([high, low])) % 6000;
    let mut up = (how & 4 != 0).then_some(Change {
        how: how >> 5,
        at: at(up_at, up_low),
        value,
    });
    let mut down = (how & 8 != 0).then_some(Change {
        how: how >> 6,
        at: at(down_at, down_low),
        value,
    });
    let is_changed = up.is_some() || down.is_some();
    let pipes: [Shared; 4] = std::array::from_fn(|_| Shared::default());
    let near = Pieces::new(&pipes[3], &pipes[0], piece, how & 1 != 0);
    let far = Pieces::new(&pipes[1], &pipes[2], piece, how & 2 != 0);
    let name = server_name("host").expect("a name");
    let client = TlsStream::open(near, Arc::clone(config), name).expect("settings");
    let server = TlsStream::accept(far, Arc::clone(&CONFIGS.server)).expect("settings");
    let (mut client, mut server) = (Peer::new(client), Peer::new(server));
    let text: [Vec<u8>; 2] = [0x55, 0xaa].map(|b| vec![b; 16 + 80 * usize::from(length)]);
    let (mut written, mut closed) = ([0, 0], [false, false]);
    let (mut moved_up, mut moved_down) = (0, 0);
    let mut quiet = 0;
    while quiet < 8 && (client.end.is_none() || server.end.is_none()) {
        let before = client.read.len() + server.read.len();
        client.go_on();
        server.go_on();
        // What an end has taken and not yet given out shows in nothing else.
        let mut count = client.read.len() + server.read.len() - before;
        for (n, peer) in [&mut client, &mut server].into_iter().enumerate() {
            let rest = &text[n][written[n]..];
            if !peer.is_open || closed[n] || peer.end == Some(false) {
                continue;
            }
            if rest.is_empty() {
                let _ = peer.stream.flush();
                if !peer.stream.has_unflushed() {
                    // Closing doesn't wait: without room its peer would see a connection cut off.
                    pipe(&pipes[n * 2]).is_wide = true;
                    closed[n] = peer.stream.close().is_ok();
                    count += 1;
                }
            } else if let Ok(n_taken) = peer.stream.write_vectored(&[IoSlice::new(rest)]) {
                assert!(n_taken <= rest.len());
                written[n] += n_taken;
                count += n_taken;
            }
        }
        count += carry(&pipes[0], &pipes[1], &mut moved_up, &mut up);
        count += carry(&pipes[2], &pipes[3], &mut moved_down, &mut down);
        // What waits to be read keeps it going, too.
        count += pipe(&pipes[1]).bytes.len() + pipe(&pipes[3]).bytes.len();
        quiet = if count == 0 { quiet + 1 } else { 0 };
        if client.end == Some(false) || server.end == Some(false) {
            // One is gone; the other hears of it.
            pipe(&pipes[1]).ended = true;
            pipe(&pipes[3]).ended = true;
        }
    }
    for (n, peer) in [&client, &server].into_iter().enumerate() {
        let theirs = &text[1 - n][..written[1 - n]];
        assert!(theirs.starts_with(&peer.read), "bytes that nobody wrote");
        if peer.end == Some(true) {
            assert!(closed[1 - n], "an end that nobody made");
            assert_eq!(peer.read.len(), theirs.len(), "an end before the end");
        }
    }
    if let (Some(ours), Some(theirs)) = (&client.binding, &server.binding) {
        assert_eq!(ours.binding, theirs.binding);
    }
    if !is_changed {
        let came = [&client, &server].map(|p| (p.is_open, p.end, p.read.len()));
        assert_eq!(came, [1, 0].map(|n| (true, Some(true), text[n].len())));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[which, how, piece], rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    let piece = usize::from(piece) * 8 + 1;
    if which & 0x80 != 0 {
        return bulk::run(rest, piece, how, which & 0x40 != 0);
    }
    match which % 4 {
        0 => alone(rest, piece, how),
        1 | 2 => alone(&records(rest), piece, how),
        _ => {
            let config = client_config();
            if which & 4 != 0 {
                // Leaves tickets for the one that is looked at.
                pair(&[0; 6], 4096, 0, &config);
            }
            pair(rest, piece, how, &config);
        }
    }
});
