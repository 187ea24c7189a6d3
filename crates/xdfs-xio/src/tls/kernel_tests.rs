//! Invariants that hold whoever owns the record layer, over TCP.
//!
//! All tests run everywhere: without kernel TLS the records stay in this crate. Where
//! `XDFS_TEST_KTLS` is set (`cargo xtask ktls`) the kernel must accept them.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, ServerConfig, SupportedCipherSuite};
use xdfs_sys::poll::{Poller, Token};

use super::tests::pattern;
use super::{PROTOCOL, TlsStream, kernel};
use crate::tcp::{TcpListener, TcpStream};
use crate::{Capabilities, Extension, Listener, Offload, Protected, Stream};

const PATIENCE: Duration = Duration::from_secs(60);
const BOTH: Offload = Offload {
    sending: true,
    receiving: true,
};
const NEITHER: Offload = Offload {
    sending: false,
    receiving: false,
};

/// A TCP connection that exposes or hides its socket, and damages a byte on request.
#[derive(Debug)]
struct Wire {
    inner: TcpStream,
    shows_socket: bool,
    spoils: Arc<AtomicBool>,
}

impl Stream for Wire {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.inner.read_vectored(bufs)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.spoils.load(Ordering::Relaxed) {
            return self.inner.write_vectored(bufs);
        }
        let mut bytes: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        self.inner.write_vectored(&[IoSlice::new(&bytes)])
    }

    fn extension(&mut self) -> Extension<'_> {
        if self.shows_socket {
            self.inner.extension()
        } else {
            Extension::None
        }
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        self.inner.finish_open()
    }

    fn close(&mut self) -> io::Result<()> {
        self.inner.close()
    }

    fn register(&mut self, _: &mut Poller, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn peer(&self) -> String {
        self.inner.peer()
    }
}

/// Both ends of a TCP connection.
fn connect() -> (TcpStream, Box<dyn Stream>) {
    let mut listener =
        TcpListener::listen("127.0.0.1:0".parse().unwrap(), &Arc::default()).unwrap();
    let addr = listener.local_endpoint().socket().unwrap();
    let mut client = TcpStream::open(addr, &Arc::default()).unwrap();
    let server = patiently(|| listener.accept());
    patiently(|| match client.finish_open()? {
        true => Ok(()),
        false => Err(ErrorKind::WouldBlock.into()),
    });
    (client, server)
}

/// Whether the kernel has TLS. Reports it if not, and fails where it is required.
fn kernel_has_tls() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        let (mut client, _server) = connect();
        let client: &mut dyn Stream = &mut client;
        let result = kernel::attach(&client.tcp_socket().unwrap());
        if let Err(error) = &result {
            assert!(
                std::env::var_os("XDFS_TEST_KTLS").is_none(),
                "the kernel has no TLS: {error}"
            );
        }
        result.is_ok()
    });
    if !*HAS {
        xdfs_testkit::skip::part("this kernel makes no TLS records");
    }
    *HAS
}

/// The expected report of a stream after a request to offload.
fn expected() -> Offload {
    if kernel_has_tls() { BOTH } else { NEITHER }
}

fn patiently<T>(mut call: impl FnMut() -> io::Result<T>) -> T {
    let start = Instant::now();
    loop {
        match call() {
            Ok(value) => return value,
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(e) => panic!("{e}"),
        }
        assert!(start.elapsed() < PATIENCE, "nothing happens");
    }
}

type Configs = (Arc<ServerConfig>, Arc<ClientConfig>);

fn configs(suite: SupportedCipherSuite) -> Configs {
    let made = rcgen::generate_simple_self_signed(["server.test".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![suite],
        ..default_provider()
    });
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    server.enable_secret_extraction = true;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client.enable_secret_extraction = true;
    (Arc::new(server), Arc::new(client))
}

struct Pair {
    client: TlsStream,
    server: TlsStream,
    /// Whether output of the client is damaged.
    spoils: Arc<AtomicBool>,
}

impl Pair {
    /// A pair after its handshake, with sockets that the client's side exposes or hides.
    fn new(suite: SupportedCipherSuite, shows_socket: bool) -> Self {
        let (client, server) = connect();
        let spoils = Arc::default();
        let client = Box::new(Wire {
            inner: client,
            shows_socket,
            spoils: Arc::clone(&spoils),
        });
        let (server_config, client_config) = configs(suite);
        let name = "server.test".try_into().unwrap();
        let mut pair = Self {
            client: TlsStream::open(client, client_config, name).unwrap(),
            server: TlsStream::accept(server, server_config).unwrap(),
            spoils,
        };
        patiently(|| {
            for result in [
                pair.client.finish_open(),
                pair.server.read_vectored(&mut []).map(|_| true),
            ] {
                match result {
                    Ok(true) => {}
                    Ok(false) => return Err(ErrorKind::WouldBlock.into()),
                    Err(e) => return Err(e),
                }
            }
            Ok(())
        });
        pair
    }

    /// The server's records are the kernel's where possible, the client's are this crate's.
    fn mixed() -> Self {
        let mut pair = Self::new(cipher_suite::TLS13_AES_256_GCM_SHA384, false);
        pair.server.offload();
        pair.exchange(40_000);
        assert_eq!(pair.client.offloaded(), NEITHER);
        assert_eq!(pair.server.offloaded(), expected());
        pair
    }

    fn exchange(&mut self, len: usize) {
        transfer(&mut self.client, &mut self.server, len);
        transfer(&mut self.server, &mut self.client, len);
    }
}

/// Sends bytes in pieces of several sizes, and compares them.
fn transfer(from: &mut TlsStream, to: &mut TlsStream, len: usize) {
    let bytes = pattern(len);
    let (mut sent, mut got, mut seen) = (0, 0, vec![0; len]);
    let sizes = [70_000, 1, 300, 16_384, 16_385, 5000, 200_000];
    let (mut writes, mut reads) = (sizes.iter().cycle(), sizes.iter().rev().cycle());
    let start = Instant::now();
    while got < len || from.has_unflushed() {
        if sent < len {
            let end = len.min(sent + writes.next().unwrap());
            let (a, b) = bytes[sent..end].split_at((end - sent) / 3);
            sent += done(from.write_vectored(&[IoSlice::new(a), IoSlice::new(b)])).unwrap_or(0);
        } else {
            done(from.flush());
        }
        if got < len {
            let end = len.min(got + reads.next().unwrap());
            let (a, b) = seen[got..end].split_at_mut((end - got) / 2);
            let mut bufs = [IoSliceMut::new(a), IoSliceMut::new(b)];
            if let Some(n) = done(to.read_vectored(&mut bufs)) {
                assert!(n > 0, "an end after {got} bytes");
                got += n;
            }
        }
        assert!(start.elapsed() < PATIENCE, "{sent} sent, {got} received");
    }
    assert!(seen == bytes, "other bytes came");
}

fn done<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) if e.kind() == ErrorKind::WouldBlock => None,
        Err(e) => panic!("{e}"),
    }
}

/// The first result of reads of this size other than `WouldBlock`.
fn answer(stream: &mut TlsStream, room: usize) -> io::Result<usize> {
    let start = Instant::now();
    loop {
        let mut buf = vec![0; room];
        match stream.read_vectored(&mut [IoSliceMut::new(&mut buf)]) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            result => return result,
        }
        assert!(start.elapsed() < PATIENCE, "no answer");
    }
}

fn kind(result: io::Result<usize>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn all_bytes_come_with_each_suite_and_whoever_is_asked() {
    for suite in [
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ] {
        for (client, server) in [(true, true), (true, false), (false, true)] {
            let mut pair = Pair::new(suite, true);
            if client {
                pair.client.offload();
            }
            if server {
                pair.server.offload();
            }
            pair.exchange(3_000_000);
            let wanted = |asked| if asked { expected() } else { NEITHER };
            assert_eq!(pair.client.offloaded(), wanted(client), "{suite:?}");
            assert_eq!(pair.server.offloaded(), wanted(server), "{suite:?}");
            pair.exchange(1000);
        }
    }
}

#[test]
fn it_may_begin_in_the_middle() {
    let suite = cipher_suite::TLS13_AES_256_GCM_SHA384;
    for before in [10, 17_000, 100_000] {
        let mut pair = Pair::new(suite, true);
        pair.exchange(before);
        // More than the reader accepts: the rest of a record stays in it.
        let bytes = pattern(100_000);
        let mut sent = 0;
        patiently(|| {
            sent += done(pair.client.write_vectored(&[IoSlice::new(&bytes[sent..])])).unwrap_or(0);
            pair.client.flush()?;
            match sent == bytes.len() {
                true => Ok(()),
                false => Err(ErrorKind::WouldBlock.into()),
            }
        });
        let mut seen = vec![0; bytes.len()];
        let mut got = 0;
        while got < seen.len() {
            let end = seen.len().min(got + 20_001);
            let mut bufs = [IoSliceMut::new(&mut seen[got..end])];
            got += done(pair.server.read_vectored(&mut bufs)).unwrap_or(0);
            // From the first read on.
            pair.server.offload();
            pair.client.offload();
        }
        assert!(seen == bytes);
        pair.exchange(200_000);
        assert_eq!(pair.client.offloaded(), expected());
        assert_eq!(pair.server.offloaded(), expected());
    }
}

#[test]
fn nothing_is_offloaded_unasked_or_without_a_socket() {
    let suite = cipher_suite::TLS13_AES_256_GCM_SHA384;
    let mut pair = Pair::new(suite, false);
    pair.client.offload();
    pair.exchange(100_000);
    assert_eq!(pair.client.offloaded(), NEITHER);
    assert_eq!(pair.server.offloaded(), NEITHER);
    // Without a request, a channel still supports cleartext runs.
    let head = [IoSlice::new(b"head")];
    patiently(|| pair.server.write_cleartext(&head, b"clear"));
    let mut seen = [0; 4];
    patiently(|| pair.client.read_vectored(&mut [IoSliceMut::new(&mut seen)]));
    patiently(|| {
        pair.client
            .read_cleartext(&mut [IoSliceMut::new(&mut seen)])
    });
    assert_eq!(&seen, b"clea");
}

#[test]
fn a_close_is_told_from_a_cut() {
    for (closes, room) in [(true, 1), (true, 50_000), (false, 1), (false, 50_000)] {
        for by_server in [true, false] {
            let Pair { client, server, .. } = Pair::mixed();
            let (mut gone, mut left) = if by_server {
                (server, client)
            } else {
                (client, server)
            };
            patiently(|| gone.write_vectored(&[IoSlice::new(b"x")]));
            if closes {
                gone.close().unwrap();
                let refused = gone.write_vectored(&[IoSlice::new(b"y")]);
                assert_eq!(kind(refused), ErrorKind::BrokenPipe);
            } else {
                drop(gone);
            }
            assert_eq!(answer(&mut left, room).unwrap(), 1);
            for _ in 0..2 {
                let end = answer(&mut left, room);
                if closes {
                    assert_eq!(end.unwrap(), 0);
                } else {
                    // The first result, and that of a channel that broke before.
                    let broken = [
                        ErrorKind::UnexpectedEof,
                        ErrorKind::ConnectionReset,
                        ErrorKind::InvalidData,
                    ];
                    assert!(broken.contains(&kind(end)));
                }
            }
        }
    }
}

#[test]
fn a_close_that_loses_bytes_is_no_orderly_end() {
    for closes in [true, false] {
        for by_server in [true, false] {
            let Pair { client, server, .. } = Pair::mixed();
            let (mut gone, mut left) = if by_server {
                (server, client)
            } else {
                (client, server)
            };
            // Until nothing more is accepted: the last record is partly sent.
            let bytes = pattern(100_000);
            let mut taken = 0;
            while let Some(n) = done(gone.write_vectored(&[IoSlice::new(&bytes)])) {
                taken += n;
            }
            if closes {
                gone.close().unwrap();
            }
            drop(gone);
            let mut got = 0;
            let end = loop {
                match answer(&mut left, 60_000) {
                    Ok(n) if n > 0 => got += n,
                    end => break end,
                }
            };
            assert!(end.is_err() || got == taken, "{got} of {taken} bytes");
        }
    }
}

#[test]
fn a_changed_record_breaks_the_channel_and_the_peer_hears_why() {
    let mut pair = Pair::mixed();
    pair.spoils.store(true, Ordering::Relaxed);
    patiently(|| pair.client.write_vectored(&[IoSlice::new(&[7; 5000])]));
    assert_eq!(kind(answer(&mut pair.server, 9000)), ErrorKind::InvalidData);
    assert_eq!(kind(answer(&mut pair.server, 9000)), ErrorKind::InvalidData);
    let heard = answer(&mut pair.client, 9000).unwrap_err();
    assert_eq!(heard.kind(), ErrorKind::ConnectionAborted, "{heard}");
    assert!(heard.to_string().contains("20"), "{heard}");
}

#[test]
fn a_clear_run_is_refused() {
    let mut pair = Pair::mixed();
    let head = [IoSlice::new(b"head")];
    if kernel_has_tls() {
        let refused = pair.server.write_cleartext(&head, b"clear");
        assert_eq!(kind(refused), ErrorKind::Unsupported);
        let refused = pair
            .server
            .read_cleartext(&mut [IoSliceMut::new(&mut [0; 9])]);
        assert_eq!(kind(refused), ErrorKind::InvalidData);
    }
    let mut pair = Pair::mixed();
    patiently(|| pair.client.write_cleartext(&head, &[5; 20_000]));
    assert_eq!(answer(&mut pair.server, 4).unwrap(), 4);
    assert_eq!(kind(answer(&mut pair.server, 9000)), ErrorKind::InvalidData);
}

#[test]
fn other_keys_break_the_channel() {
    for room in [1, 50_000] {
        let suite = cipher_suite::TLS13_AES_256_GCM_SHA384;
        let mut pair = Pair::new(suite, false);
        pair.server.offload();
        // The server's records are the kernel's, while rustls has those of the client.
        patiently(|| pair.client.write_vectored(&[IoSlice::new(&[1; 100])]));
        assert_eq!(answer(&mut pair.server, 50_000).unwrap(), 100);
        assert_eq!(pair.server.offloaded().receiving, kernel_has_tls());
        pair.client.change_keys();
        patiently(|| pair.client.flush());
        assert_eq!(kind(answer(&mut pair.server, room)), ErrorKind::Unsupported);
        assert_eq!(kind(answer(&mut pair.server, room)), ErrorKind::InvalidData);
    }
}

#[test]
fn records_without_content_are_no_end() {
    let mut pair = Pair::mixed();
    for _ in 0..5 {
        pair.client
            .send_record(xdfs_tls::record::APPLICATION_DATA, &[]);
        transfer(&mut pair.client, &mut pair.server, 100);
    }
}

#[test]
fn keys_wear_out_by_what_the_kernel_protects_too() {
    let mut pair = Pair::mixed();
    assert!(!pair.server.is_worn() && !pair.client.is_worn());
    pair.server.wear(400);
    let bytes = pattern(16 << 10);
    let mut seen = vec![0; bytes.len()];
    let mut worn_at = None;
    let error = (0..500)
        .find_map(|i| {
            if pair.server.is_worn() {
                worn_at.get_or_insert(i);
            }
            let mut sent = 0;
            while sent < bytes.len() {
                match pair.server.write_vectored(&[IoSlice::new(&bytes[sent..])]) {
                    Ok(n) => sent += n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(e) => return Some(e),
                }
                let _ = pair.server.flush();
                let _ = pair.client.read_vectored(&mut [IoSliceMut::new(&mut seen)]);
            }
            None
        })
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Other, "{error}");
    assert!(worn_at.is_some_and(|at| at <= 300), "{worn_at:?}");
}

#[test]
fn a_reader_of_small_records_wears_out_in_time() {
    let mut pair = Pair::mixed();
    pair.server.wear(400);
    for _ in 0..300 {
        transfer(&mut pair.client, &mut pair.server, 10);
    }
    assert!(pair.server.is_worn());
}
