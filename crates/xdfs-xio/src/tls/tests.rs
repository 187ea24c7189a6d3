//! Invariants of the handover of records from rustls to this crate, and cleartext runs.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use rustls::pki_types::PrivateKeyDer;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, ServerConfig, ServerConnection, SupportedProtocolVersion,
};
use xdfs_sys::poll::{Poller, Token};

use super::session::Session;
use super::{PROTOCOL, TlsStream};
use crate::{Capabilities, Output, Protected, Room, Stream, Transform};
use xdfs_tls::record::{APPLICATION_DATA, BODY_BYTES, HANDSHAKE};

/// Number of calls within which progress must be made.
pub(super) const PATIENCE: usize = 1_000_000;

/// Deterministic pseudo-random numbers.
#[derive(Clone, Debug)]
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

#[derive(Debug, Default)]
pub(super) struct Pipe {
    pub(super) bytes: VecDeque<u8>,
    ended: bool,
    /// It accepts nothing at all.
    full: bool,
}

pub(super) type Shared = Arc<Mutex<Pipe>>;

pub(super) fn pipe(shared: &Shared) -> MutexGuard<'_, Pipe> {
    shared.lock().unwrap()
}

/// A transport that accepts and returns pieces of many sizes, and sometimes nothing.
#[derive(Debug)]
pub(super) struct Pieces {
    pub(super) incoming: Shared,
    pub(super) outgoing: Shared,
    pub(super) numbers: Numbers,
    pub(super) piece_max: usize,
    pub(super) interrupts: bool,
}

const PIPE_BYTES: usize = 300 << 10;

impl Pieces {
    fn piece(&mut self, there: usize) -> io::Result<usize> {
        let n = there.min(1 + self.numbers.below(self.piece_max));
        if n == 0 || self.numbers.below(8) == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        if self.interrupts && self.numbers.below(3) == 0 {
            return Err(ErrorKind::Interrupted.into());
        }
        Ok(n)
    }
}

impl Stream for Pieces {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let shared = Arc::clone(&self.incoming);
        let mut pipe = pipe(&shared);
        if pipe.bytes.is_empty() && pipe.ended {
            return Ok(0);
        }
        let limit = self.piece(pipe.bytes.len())?;
        let mut done = 0;
        for buf in bufs {
            let n = buf.len().min(limit - done);
            for (to, from) in buf[..n].iter_mut().zip(pipe.bytes.drain(..n)) {
                *to = from;
            }
            done += n;
        }
        Ok(done)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let shared = Arc::clone(&self.outgoing);
        let mut pipe = pipe(&shared);
        let room = if pipe.full { 0 } else { PIPE_BYTES };
        let limit = self.piece(room - pipe.bytes.len().min(room))?;
        let mut done = 0;
        for buf in bufs {
            let n = buf.len().min(limit - done);
            pipe.bytes.extend(&buf[..n]);
            done += n;
        }
        Ok(done)
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
        "test".into()
    }
}

pub(super) type Both = (Arc<ServerConfig>, Arc<ClientConfig>);

static CONFIGS: LazyLock<Both> = LazyLock::new(|| configs(&TLS13));

pub(super) fn configs(version: &'static SupportedProtocolVersion) -> Both {
    let made = rcgen::generate_simple_self_signed(["server.test".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    server.enable_secret_extraction = true;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client.enable_secret_extraction = true;
    (Arc::new(server), Arc::new(client))
}

/// Both ends of a channel after its handshake, and the bytes in flight in both directions.
struct Pair {
    client: TlsStream,
    server: TlsStream,
    up: Shared,
    down: Shared,
}

impl Pair {
    fn new(seed: u64, piece_max: usize) -> Self {
        Self::made(seed, piece_max, false)
    }

    fn made(seed: u64, piece_max: usize, interrupts: bool) -> Self {
        let (up, down) = (Shared::default(), Shared::default());
        let end = |incoming: &Shared, outgoing: &Shared, seed: u64| {
            Box::new(Pieces {
                incoming: Arc::clone(incoming),
                outgoing: Arc::clone(outgoing),
                numbers: Numbers(seed * 2 + 1),
                piece_max,
                interrupts,
            })
        };
        let (server_config, client_config) = &*CONFIGS;
        let name = "server.test".try_into().unwrap();
        let client = end(&down, &up, seed + 1);
        let server = end(&up, &down, seed + 77);
        let mut pair = Self {
            client: TlsStream::open(client, Arc::clone(client_config), name).unwrap(),
            server: TlsStream::accept(server, Arc::clone(server_config)).unwrap(),
            up,
            down,
        };
        let mut hello = [0; 5];
        let mut got = 0;
        let (mut open, mut said) = (false, false);
        for _ in 0..PATIENCE {
            open = open || done(pair.client.finish_open()).unwrap_or(false);
            if open && !said {
                said = done(pair.client.write_vectored(&[IoSlice::new(b"hello")])).is_some();
            }
            let _ = done(pair.client.flush());
            let read = pair
                .server
                .read_vectored(&mut [IoSliceMut::new(&mut hello[got..])]);
            got += done(read).unwrap_or(0);
            let _ = done(pair.server.flush());
            if said && got == 5 && !pair.client.has_unflushed() && !pair.server.has_unflushed() {
                return pair;
            }
        }
        panic!("the handshake doesn't end");
    }

    /// A pair in which this crate owns the records of both ends.
    fn moving(seed: u64, piece_max: usize) -> Self {
        let mut pair = Self::new(seed, piece_max);
        let bytes = pattern(40 << 10);
        send(&mut pair.client, &bytes);
        assert_eq!(receive(&mut pair.server, bytes.len()), bytes);
        send(&mut pair.server, &bytes);
        assert_eq!(receive(&mut pair.client, bytes.len()), bytes);
        pair
    }
}

/// A size of one of several orders of magnitude.
fn some_size(numbers: &mut Numbers) -> usize {
    let max = [100, 17_000, 150_000][numbers.below(3)];
    numbers.below(max)
}

/// The result of a call that may have to wait.
pub(super) fn done<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
        Err(e) => panic!("{e}"),
    }
}

pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap())
        .collect()
}

/// Writes everything; the pipe has room for it.
fn send(stream: &mut TlsStream, bytes: &[u8]) {
    let mut sent = 0;
    for _ in 0..PATIENCE {
        if sent < bytes.len() {
            sent += done(stream.write_vectored(&[IoSlice::new(&bytes[sent..])])).unwrap_or(0);
        } else if done(stream.flush()).is_some() {
            return;
        }
    }
    panic!("{sent} bytes were taken");
}

fn receive(stream: &mut TlsStream, len: usize) -> Vec<u8> {
    let mut got = vec![0; len];
    let mut n = 0;
    for _ in 0..PATIENCE {
        if n == len {
            return got;
        }
        n += done(stream.read_vectored(&mut [IoSliceMut::new(&mut got[n..])])).unwrap_or(0);
    }
    panic!("{n} bytes came");
}

/// The first error of a read, or its result.
fn read_until_answer(stream: &mut TlsStream, clear: bool) -> io::Result<usize> {
    let mut buf = vec![0; 64 << 10];
    for _ in 0..PATIENCE {
        let mut bufs = [IoSliceMut::new(&mut buf)];
        let result = if clear {
            stream.read_cleartext(&mut bufs)
        } else {
            stream.read_vectored(&mut bufs)
        };
        match result {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
    panic!("no answer");
}

/// Writes a few protected bytes and a cleartext run.
fn send_beside(stream: &mut TlsStream, protected: &[u8], clear: &[u8]) {
    let mut first = Some(protected);
    let mut sent = 0;
    for _ in 0..PATIENCE {
        if sent == clear.len() {
            if done(stream.flush()).is_some() {
                return;
            }
            continue;
        }
        let head = [IoSlice::new(protected)];
        let head = if first.is_some() { &head[..] } else { &[] };
        if let Some(n) = done(stream.write_cleartext(head, &clear[sent..])) {
            assert!(n > 0, "a caller would take it for the end");
            sent += n - first.take().map_or(0, <[u8]>::len);
        }
    }
    panic!("{sent} bytes were taken");
}

fn receive_clear(stream: &mut TlsStream, len: usize, numbers: &mut Numbers) -> Vec<u8> {
    let mut got = vec![0; len];
    let mut n = 0;
    for _ in 0..PATIENCE {
        if n == len {
            return got;
        }
        let to = len.min(n + 1 + numbers.below(70_000));
        // Two buffers, as callers may pass.
        let (a, b) = got[n..to].split_at_mut((to - n) / 2);
        let mut bufs = [IoSliceMut::new(a), IoSliceMut::new(b)];
        n += done(stream.read_cleartext(&mut bufs)).unwrap_or(0);
    }
    panic!("{n} bytes came");
}

#[test]
fn all_bytes_come_in_order_whoever_makes_the_records() {
    for seed in 1..40 {
        let mut numbers = Numbers(seed * 7919);
        let piece_max = [7, 1000, 20_000, 300_000][numbers.below(4)];
        let mut pair = Pair::new(seed, piece_max);
        let sent = [pattern(200_000), pattern(150_001)];
        let (mut out, mut got) = ([0, 0], [Vec::new(), Vec::new()]);
        for _ in 0..PATIENCE {
            for side in 0..2 {
                let (from, to) = if side == 0 {
                    (&mut pair.client, &mut pair.server)
                } else {
                    (&mut pair.server, &mut pair.client)
                };
                let rest = &sent[side][out[side]..];
                // Small and large writes and reads, so that the handover may happen at any time.
                let n = rest.len().min(1 + some_size(&mut numbers));
                let (a, b) = rest[..n].split_at(n / 3);
                if n > 0 {
                    let bufs = [IoSlice::new(a), IoSlice::new(b)];
                    out[side] += done(from.write_vectored(&bufs)).unwrap_or(0);
                }
                let _ = done(from.flush());
                let mut buf = vec![0; 1 + some_size(&mut numbers)];
                let middle = buf.len() / 2;
                let (a, b) = buf.split_at_mut(middle);
                let mut bufs = [IoSliceMut::new(a), IoSliceMut::new(b)];
                let n = done(to.read_vectored(&mut bufs)).unwrap_or(0);
                got[side].extend_from_slice(&buf[..n]);
            }
            if got[0].len() == sent[0].len() && got[1].len() == sent[1].len() {
                break;
            }
        }
        assert!(got == sent, "seed {seed}");
    }
}

#[test]
fn clear_runs_travel_between_records() {
    for seed in 1..20 {
        let mut numbers = Numbers(seed * 104_729);
        let mut pair = Pair::new(seed, [5, 3000, 400_000][numbers.below(3)]);
        for round in 0..6 {
            let clear = pattern(1 + numbers.below(100_000));
            let head = pattern(1 + numbers.below(300));
            let (from, to) = if round % 2 == 0 {
                (&mut pair.client, &mut pair.server)
            } else {
                (&mut pair.server, &mut pair.client)
            };
            send_beside(from, &head, &clear);
            send(from, b"after");
            assert_eq!(receive(to, head.len()), head);
            assert!(receive_clear(to, clear.len(), &mut numbers) == clear);
            assert_eq!(receive(to, 5), b"after");
        }
    }
}

#[test]
fn clear_bytes_are_on_the_wire_and_protected_ones_are_not() {
    let mut pair = Pair::moving(3, 400_000);
    let (secret, open) = ([b's'; 1000], [b'c'; 1000]);
    send_beside(&mut pair.client, &secret, &open);
    let wire: Vec<u8> = pipe(&pair.up).bytes.iter().copied().collect();
    assert!(wire.windows(1000).any(|w| w == open));
    assert!(!wire.windows(20).any(|w| w == &secret[..20]));
}

#[test]
fn what_is_changed_on_the_way_is_found() {
    for at in [0, 1, 3, 4, 5, 700, 20_000, 40_000] {
        let mut pair = Pair::moving(5, 400_000);
        send(&mut pair.server, &pattern(60_000));
        pipe(&pair.down).bytes[at] ^= 1;
        pipe(&pair.down).ended = true;
        let mut got = 0;
        let error = loop {
            match read_until_answer(&mut pair.client, false) {
                Ok(0) => panic!("an orderly end"),
                Ok(n) => got += n,
                Err(error) => break error,
            }
        };
        // Only the records before the damaged one were returned.
        assert!(got <= at, "{got} bytes for a change at {at}");
        // An increased length is waited for.
        let kinds = [ErrorKind::InvalidData, ErrorKind::UnexpectedEof];
        assert!(kinds.contains(&error.kind()), "{at}: {error}");
    }
}

#[test]
fn records_that_are_repeated_or_left_out_are_found() {
    let mut pair = Pair::moving(6, 400_000);
    send(&mut pair.client, b"one");
    let one: Vec<u8> = pipe(&pair.up).bytes.iter().copied().collect();
    assert_eq!(receive(&mut pair.server, 3), b"one");
    pipe(&pair.up).bytes.extend(&one);
    let error = read_until_answer(&mut pair.server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");

    let mut pair = Pair::moving(7, 400_000);
    send(&mut pair.client, b"one");
    pipe(&pair.up).bytes.clear();
    send(&mut pair.client, b"two");
    let error = read_until_answer(&mut pair.server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn clear_bytes_never_pass_for_protected_ones() {
    let mut pair = Pair::moving(8, 400_000);
    // An attacker puts a run where a record is due.
    pipe(&pair.up)
        .bytes
        .extend([0xcc, 0, 0, 0, 3, b'b', b'a', b'd']);
    let error = read_until_answer(&mut pair.server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");

    // A reader that takes less than the whole run is left with the rest.
    let mut pair = Pair::moving(9, 400_000);
    send_beside(&mut pair.client, b"head", &[1; 100]);
    receive(&mut pair.server, 4);
    receive_clear(&mut pair.server, 60, &mut Numbers(9));
    let error = read_until_answer(&mut pair.server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn protected_bytes_never_pass_for_clear_ones() {
    let mut pair = Pair::moving(10, 400_000);
    send(&mut pair.client, b"head");
    receive(&mut pair.server, 4);
    send(&mut pair.client, b"more");
    let error = read_until_answer(&mut pair.server, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");

    // An empty run would never end.
    let mut pair = Pair::moving(11, 400_000);
    pipe(&pair.up).bytes.extend([0xcc, 0, 0, 0, 0]);
    let error = read_until_answer(&mut pair.server, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn clear_bytes_are_told_apart_before_the_records_change_hands() {
    let mut pair = Pair::new(21, 400_000);
    send_beside(&mut pair.client, b"head", &pattern(1000));
    let mut got = [0; 100];
    let read = |server: &mut TlsStream, got: &mut [u8]| {
        (0..PATIENCE).find_map(
            |_| match server.read_vectored(&mut [IoSliceMut::new(got)]) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => None,
                result => Some(result),
            },
        )
    };
    assert_eq!(read(&mut pair.server, &mut got).unwrap().unwrap(), 4);
    let error = read(&mut pair.server, &mut got).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    let clear = receive_clear(&mut pair.server, 1000, &mut Numbers(21));
    assert!(clear == pattern(1000));
}

#[test]
fn a_run_is_written_as_it_was_begun() {
    let mut pair = Pair::moving(12, 100);
    let clear = [3; 5000];
    let head = [IoSlice::new(b"head")];
    let begun = (0..PATIENCE).find_map(|_| done(pair.client.write_cleartext(&head, &clear)));
    let left = &clear[begun.unwrap() - 4..];
    let wrong = [
        pair.client.write_cleartext(&[], &left[1..]),
        pair.client.write_cleartext(&head, left),
        pair.client.write_vectored(&[IoSlice::new(b"control")]),
        Pair::moving(13, 100).client.write_cleartext(&head, &[]),
    ];
    for result in wrong {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn an_end_is_told_from_a_cut() {
    let mut pair = Pair::moving(14, 400_000);
    send(&mut pair.client, &pattern(50_000));
    pair.client.close().unwrap();
    assert_eq!(receive(&mut pair.server, 50_000), pattern(50_000));
    for _ in 0..3 {
        assert_eq!(read_until_answer(&mut pair.server, false).unwrap(), 0);
    }

    let mut pair = Pair::moving(15, 400_000);
    send(&mut pair.client, &pattern(50_000));
    pipe(&pair.up).ended = true;
    receive(&mut pair.server, 50_000);
    let error = read_until_answer(&mut pair.server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");

    for taken in [0, 3, 60] {
        let mut pair = Pair::moving(16, 400_000);
        send_beside(&mut pair.client, b"head", &[1; 100]);
        receive(&mut pair.server, 4);
        pipe(&pair.up).bytes.truncate(taken);
        pipe(&pair.up).ended = true;
        let error = loop {
            match read_until_answer(&mut pair.server, true) {
                Ok(n) => assert!(n > 0, "an orderly end within a run"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    }
}

#[test]
fn a_close_before_the_records_changed_hands_is_seen_after() {
    let mut pair = Pair::new(17, 400_000);
    send(&mut pair.client, b"last words");
    pair.client.close().unwrap();
    assert_eq!(receive(&mut pair.server, 10), b"last words");
    assert_eq!(read_until_answer(&mut pair.server, false).unwrap(), 0);
}

#[test]
fn a_change_of_keys_is_refused_clearly() {
    let mut pair = Pair::new(18, 400_000);
    let bytes = pattern(40 << 10);
    // Only the server has taken over its records.
    send(&mut pair.server, &bytes);
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        got.extend(receive(&mut pair.client, 512));
    }
    assert!(got == bytes);
    pair.client.change_keys();
    send(&mut pair.client, b"x");
    let error = read_until_answer(&mut pair.server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn keys_wear_out_before_they_are_used_up() {
    let mut pair = Pair::moving(19, 400_000);
    assert!(!pair.client.is_worn());
    pair.client.wear(40);
    let mut written = 0;
    let error = loop {
        match pair.client.write_vectored(&[IoSlice::new(b"record")]) {
            Ok(_) => written += 1,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => break e,
        }
        assert!(written < 100, "no end");
        if written == 35 {
            assert!(pair.client.is_worn());
        }
    };
    assert_eq!(error.kind(), ErrorKind::Other, "{error}");
}

/// A header suffices to refuse a record that is too long: its body isn't awaited.
#[test]
fn a_record_that_is_a_byte_too_long_is_refused_by_its_header() {
    let most = u16::try_from(BODY_BYTES).unwrap();
    let header = |length: u16| {
        let [high, low] = length.to_be_bytes();
        [APPLICATION_DATA, 3, 3, high, low]
    };
    let mut pair = Pair::moving(22, 400_000);
    pipe(&pair.up).bytes.extend(header(most + 1));
    let error = read_until_answer(&mut pair.server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert!(error.to_string().contains("too long"), "{error}");
    let mut pair = Pair::moving(23, 400_000);
    pipe(&pair.up).bytes.extend(header(most));
    let mut buf = vec![0; 64 << 10];
    for _ in 0..1000 {
        let read = pair.server.read_vectored(&mut [IoSliceMut::new(&mut buf)]);
        assert!(done(read).is_none(), "there is nothing to read");
    }
    // The held bytes are reported.
    assert!(pair.server.held_bytes() >= header(most).len());
}

/// Bytes kept by an incomplete handshake are counted, and none of a complete one.
#[test]
fn bytes_of_a_handshake_that_is_not_complete_are_counted() {
    let (up, down) = (Shared::default(), Shared::default());
    let server = Pieces {
        incoming: Arc::clone(&up),
        outgoing: Arc::clone(&down),
        numbers: Numbers(5),
        piece_max: 400_000,
        interrupts: false,
    };
    let mut server = TlsStream::accept(Box::new(server), Arc::clone(&CONFIGS.0)).unwrap();
    assert_eq!(server.held_bytes(), 0);
    // A ClientHello of nearly 64 KiB in four records, of which the last lacks a byte.
    let mut message = vec![1, 0, 0xff, 0xf0];
    message.resize(4 + 0xfff0 - 1, 0);
    for piece in message.chunks(16 << 10) {
        let length = u16::try_from(piece.len().next_multiple_of(2)).unwrap();
        let [high, low] = length.to_be_bytes();
        pipe(&up).bytes.extend([22, 3, 1, high, low]);
        pipe(&up).bytes.extend(piece);
    }
    for _ in 0..1000 {
        let _ = done(server.finish_open());
    }
    assert!(pipe(&up).bytes.is_empty());
    assert!(
        server.held_bytes() >= message.len(),
        "{}",
        server.held_bytes()
    );
    assert_eq!(Pair::new(24, 400_000).server.held_bytes(), 0);
}

#[test]
fn records_of_nothing_come_to_an_end() {
    let mut pair = Pair::moving(20, 400_000);
    for _ in 0..40 {
        pair.client.send_record(APPLICATION_DATA, &[]);
    }
    let error = read_until_answer(&mut pair.server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

/// RFC 8446, sections 4.6.1 and 5.1: only a server has tickets, and nothing comes between the parts
/// of one.
#[test]
fn tickets_come_from_servers_and_whole() {
    let ticket = &[4, 0, 0, 2, 7, 7][..];
    let mut pair = Pair::moving(25, 400_000);
    pair.server.send_record(HANDSHAKE, ticket);
    send(&mut pair.server, b"content");
    assert_eq!(receive(&mut pair.client, 7), b"content");
    pair.client.send_record(HANDSHAKE, ticket);
    let error = read_until_answer(&mut pair.server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    let mut pair = Pair::moving(26, 400_000);
    pair.server.send_record(HANDSHAKE, &ticket[..5]);
    let error = read_until_answer(&mut pair.client, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn a_run_can_be_begun_and_continued_in_the_smallest_pieces() {
    for seed in 1..20 {
        // The protected part takes many calls.
        let mut pair = Pair::new(seed, 3);
        send_beside(&mut pair.client, &pattern(400), &pattern(50));
        assert_eq!(receive(&mut pair.server, 400), pattern(400));
        let clear = receive_clear(&mut pair.server, 50, &mut Numbers(seed));
        assert_eq!(clear, pattern(50));
    }
}

#[test]
fn interruptions_repeat_and_lose_nothing() {
    for seed in 1..20 {
        let mut pair = Pair::made(seed, 2000, true);
        for size in [100, 60_000, 3000] {
            send(&mut pair.client, &pattern(size));
            assert!(receive(&mut pair.server, size) == pattern(size));
            send_beside(&mut pair.server, b"head", &pattern(size));
            assert_eq!(receive(&mut pair.client, 4), b"head");
            let clear = receive_clear(&mut pair.client, size, &mut Numbers(seed));
            assert!(clear == pattern(size));
        }
    }
}

#[test]
fn a_reader_does_not_wait_for_what_it_could_not_write() {
    for clear in [false, true] {
        let mut pair = Pair::new(22, 400_000);
        // The server's output is stuck, and the handover happens meanwhile.
        pipe(&pair.down).full = true;
        while !pair.server.has_unflushed() {
            let _ = done(pair.server.write_vectored(&[IoSlice::new(b"an answer")]));
        }
        if clear {
            send_beside(&mut pair.client, b"head", &pattern(1000));
            assert_eq!(receive(&mut pair.server, 4), b"head");
            let got = receive_clear(&mut pair.server, 1000, &mut Numbers(22));
            assert!(got == pattern(1000));
        } else {
            send(&mut pair.client, &pattern(20_000));
            assert!(receive(&mut pair.server, 20_000) == pattern(20_000));
        }
        assert!(pair.server.has_unflushed());
        pipe(&pair.down).full = false;
        send(&mut pair.server, b" and another");
        assert_eq!(receive(&mut pair.client, 21), b"an answer and another");
    }
}

#[test]
fn what_follows_a_wrong_record_is_never_given_out() {
    let mut pair = Pair::moving(23, 400_000);
    send(&mut pair.client, b"one");
    pipe(&pair.up).bytes[10] ^= 1;
    let error = read_until_answer(&mut pair.server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    send(&mut pair.client, b"two");
    for clear in [false, true, false] {
        let error = read_until_answer(&mut pair.server, clear).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
}

#[test]
fn no_run_comes_after_the_end() {
    let mut pair = Pair::moving(24, 400_000);
    send(&mut pair.client, b"head");
    pair.client.close().unwrap();
    pipe(&pair.up).bytes.extend([0xcc, 0, 0, 0, 1, b'x']);
    assert_eq!(receive(&mut pair.server, 4), b"head");
    assert_eq!(read_until_answer(&mut pair.server, false).unwrap(), 0);
    let error = read_until_answer(&mut pair.server, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
}

#[test]
fn writes_of_nothing_and_of_too_much_leave_no_trace() {
    let mut pair = Pair::moving(25, 400_000);
    let nothing = done(pair.client.write_vectored(&[IoSlice::new(b"")]));
    assert_eq!(nothing, Some(0));
    assert!(!pair.client.has_unflushed());
    let large = pattern(17_000);
    for head in [&large[..], b""] {
        let result = pair.client.write_cleartext(&[IoSlice::new(head)], b"clear");
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(!pair.client.has_unflushed());
    }
    // The maximum size fits in any slices.
    let slices: Vec<IoSlice<'_>> = large[..16_384].chunks(1025).map(IoSlice::new).collect();
    let n = (0..PATIENCE).find_map(|_| done(pair.client.write_cleartext(&slices, b"c")));
    assert!(n.unwrap() >= 16_384);
}

/// One end without a stream, and the bytes received for it.
struct Alone {
    session: Session,
    input: Vec<u8>,
    output: Output,
}

impl Alone {
    fn new(session: Session) -> Self {
        Self {
            session,
            input: Vec::new(),
            output: Output::default(),
        }
    }

    /// Encodes from the front of `content`, transfers the output to `peer`, and returns the number
    /// of content bytes used.
    fn send(&mut self, content: &[u8], peer: &mut Self) -> usize {
        let slices = [IoSlice::new(content)];
        let taken = self.session.encode(&slices, &mut self.output).unwrap();
        self.carry(peer);
        taken
    }

    fn carry(&mut self, peer: &mut Self) {
        let bytes = self.output.waiting();
        peer.input.extend_from_slice(bytes);
        let len = bytes.len();
        self.output.consume(len);
    }

    /// Decodes received bytes, at most `room` per call.
    fn receive(&mut self, room: usize) -> Vec<u8> {
        let (mut all, mut buf) = (Vec::new(), vec![0; room]);
        loop {
            let mut bufs = [IoSliceMut::new(&mut buf)];
            let mut free = Room::new(&mut bufs);
            let used = self
                .session
                .decode(&self.input, &mut free, &mut self.output);
            let (used, filled) = (used.unwrap(), free.filled());
            self.input.drain(..used);
            all.extend_from_slice(&buf[..filled]);
            if used == 0 && filled == 0 {
                return all;
            }
        }
    }
}

/// The machine needs no stream, no poller and no clock: bytes in, bytes out.
#[test]
fn two_ends_talk_as_bytes_alone() {
    let (server_config, client_config) = &*CONFIGS;
    let name = "server.test".try_into().unwrap();
    let client = ClientConnection::new(Arc::clone(client_config), name).unwrap();
    let server = ServerConnection::new(Arc::clone(server_config)).unwrap();
    let mut client = Alone::new(Session::new(client.into()));
    let mut server = Alone::new(Session::new(server.into()));
    assert!(client.session.protection().is_none());
    for _ in 0..4 {
        client.send(b"", &mut server);
        assert_eq!(server.receive(0), b"");
        server.carry(&mut client);
        assert_eq!(client.receive(0), b"");
    }
    assert!(client.session.is_open() && server.session.is_open());
    let [ours, theirs] = [&client, &server].map(|end| end.session.protection().unwrap());
    assert_eq!(ours.binding, theirs.binding);
    // Small frames by rustls, then enough to cause the handover, then small ones again.
    for (len, room) in [
        (5, 100),
        (3_000, 7),
        (400_000, 50_000),
        (5, 100),
        (70_000, 20_000),
    ] {
        let bytes = pattern(len);
        for is_up in [true, false] {
            let (from, to) = if is_up {
                (&mut client, &mut server)
            } else {
                (&mut server, &mut client)
            };
            let (mut sent, mut seen) = (0, Vec::new());
            while sent < len {
                sent += from.send(&bytes[sent..], to);
                seen.extend(to.receive(room));
            }
            assert!(seen == bytes, "{len} bytes");
        }
    }
    assert!(client.session.moving().is_some() && server.session.moving().is_some());
    client.session.close(&mut client.output);
    client.carry(&mut server);
    assert!(!server.session.is_ended());
    assert_eq!(server.receive(100), b"");
    assert!(server.session.is_ended());
    // Without it, the end of the bytes is no end of content.
    let cut_off = client.session.end(&[]).unwrap_err();
    assert_eq!(cut_off.kind(), ErrorKind::UnexpectedEof);
}
