//! What every driver must do, as one list of cases that runs over all that is registered, and over
//! some stacks of several.
//!
//! Readiness is edge-triggered, so a case waits only after `WouldBlock` and fails when no event
//! comes within [`PATIENCE`]: a lost wake-up is a failed test and not a hanging one.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_sys::poll::{Event, Poller, Token};
use xdfs_xio::{
    Capabilities, Driver, Endpoint, Form, Listener, Location, Property, Registry, Role, Stack,
    StackSpec, Stream,
};

#[path = "support/tls.rs"]
mod configured;
#[path = "support/library.rs"]
mod library;
#[path = "support/xor.rs"]
mod outside;

const PATIENCE: Duration = Duration::from_secs(60);
const LISTENER: Token = Token(7);
const CLIENT: Token = Token(8);
const SERVER: Token = Token(9);

/// What the cases run over.
#[derive(Clone, Debug)]
struct Sample {
    /// The text of the stack.
    stack: String,
    /// The IPv6 loopback, where locations are addresses and ports.
    is_ipv6: bool,
    /// The kernel makes the records of TLS after a first exchange, where it has TLS.
    offloads: bool,
}

/// A place to listen at, and what has to live as long.
struct Place {
    endpoint: Endpoint,
    _folder: tempfile::TempDir,
}

/// Drivers in C.
const FOREIGN: [&str; 2] = [
    "examples/driver-c/rot47.c",
    "crates/xdfs-xio/tests/foreign/frames.c",
];

/// The drivers that the samples are made of: those of the crate, with TLS configured, one from
/// outside, and those in C.
static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let registry = Registry::standard()
        .with(configured::tls())
        .with(xdfs_xio::quic::driver(configured::configs()))
        .with(xdfs_xio::fault::driver())
        .with(outside::xor());
    FOREIGN.iter().fold(registry, |registry, source| {
        match library::build(source, &[]) {
            Some(library) => registry.load(&library).unwrap(),
            None => {
                xdfs_testkit::skip::part("this machine has no C compiler");
                registry
            }
        }
    })
});

impl Sample {
    fn new(stack: &str) -> Self {
        Self {
            stack: stack.to_owned(),
            is_ipv6: false,
            offloads: false,
        }
    }

    /// A stack for each registered driver: a transport alone, a transform above each transport.
    /// Transports that can't listen, or that deliver datagrams, have tests of their own.
    fn of_each_driver() -> Vec<Self> {
        let is_covered = |d: &&Driver| {
            let keeps_order = d.given().contains(&Property::Order);
            d.role() == Role::Transport && d.listens() && keeps_order
        };
        let transports = || REGISTRY.drivers().filter(is_covered);
        let mut all: Vec<Self> = transports().map(|d| Self::new(d.name())).collect();
        let is_transform = |d: &&Driver| d.role() == Role::Transform && d.listens();
        for transform in REGISTRY.drivers().filter(is_transform) {
            let stack = |bottom: &Driver| format!("{},{}", bottom.name(), transform.name());
            all.extend(transports().map(|bottom| Self::new(&stack(bottom))));
        }
        for bundle in REGISTRY.drivers().filter(|d| d.role() == Role::Bundle) {
            let stack = |bottom: &Driver| format!("{},{}", bottom.name(), bundle.name());
            all.extend(transports().map(|bottom| Self::new(&stack(bottom))));
        }
        all
    }

    /// Whether this machine has the transport; a container may lack IPv6, even on loopback.
    fn is_there(&self) -> bool {
        let there = !self.is_ipv6 || std::net::TcpListener::bind("[::1]:0").is_ok();
        if !there {
            xdfs_testkit::skip::part("this machine has no IPv6");
        }
        there && (cfg!(unix) || self.transport().name() != "unix")
    }

    fn spec(&self) -> StackSpec {
        self.stack.parse().unwrap()
    }

    fn transport(&self) -> &'static Driver {
        REGISTRY.driver(self.spec().transport().name()).unwrap()
    }

    fn made(&self) -> Stack {
        REGISTRY.build(&self.spec()).unwrap()
    }

    /// The last driver doesn't pass the bytes on as they are.
    fn transforms(&self) -> bool {
        !self.spec().transforms().is_empty()
    }

    fn place(&self) -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        let location = match self.transport().form().unwrap() {
            Form::Name => Location::Name(format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))),
            Form::Path => Location::Path(folder.path().join("socket")),
            Form::Socket if self.is_ipv6 => Location::Socket("[::1]:0".parse().unwrap()),
            Form::Socket => Location::Socket("127.0.0.1:0".parse().unwrap()),
            form => panic!("how a test listens at {form} isn't known here"),
        };
        Place {
            endpoint: Endpoint::new(self.transport().name(), location),
            _folder: folder,
        }
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        self.made().listen(endpoint)
    }

    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        self.made().open(endpoint)
    }
}

/// A connected channel, with both ends registered at one poller.
struct Pair {
    poller: Poller,
    client: Box<dyn Stream>,
    server: Box<dyn Stream>,
    endpoint: Endpoint,
    _listener: Box<dyn Listener>,
    _place: Place,
}

impl Pair {
    fn new(sample: &Sample) -> Self {
        let mut pair = Self::unregistered(sample);
        pair.client.register(&mut pair.poller, CLIENT).unwrap();
        pair.server.register(&mut pair.poller, SERVER).unwrap();
        pair
    }

    fn unregistered(sample: &Sample) -> Self {
        let place = sample.place();
        let mut poller = Poller::new().unwrap();
        let mut listener = sample.listen(&place.endpoint).unwrap();
        listener.register(&mut poller, LISTENER).unwrap();
        let endpoint = listener.local_endpoint();
        let mut client = sample.open(&endpoint).unwrap();
        client.register(&mut poller, CLIENT).unwrap();
        let mut server = until(&mut poller, || {
            // A transform can't go on alone.
            let _ = client.finish_open()?;
            listener.accept()
        });
        server.register(&mut poller, SERVER).unwrap();
        until(&mut poller, || {
            if sample.transforms() {
                server.finish_open()?;
            }
            match client.finish_open()? {
                true => Ok(()),
                false => Err(ErrorKind::WouldBlock.into()),
            }
        });
        if sample.transforms() {
            // The client's last flight, so that both ends are open.
            until(&mut poller, || match server.finish_open()? {
                true => Ok(()),
                false => Err(ErrorKind::WouldBlock.into()),
            });
        }
        if sample.offloads {
            offload(&mut poller, &mut *client, &mut *server);
        }
        client.deregister(&mut poller).unwrap();
        server.deregister(&mut poller).unwrap();
        Self {
            poller,
            client,
            server,
            endpoint,
            _listener: listener,
            _place: place,
        }
    }
}

/// Lets the kernel make the records, and moves so much that it does.
fn offload(poller: &mut Poller, client: &mut dyn Stream, server: &mut dyn Stream) {
    client.protected().unwrap().offload();
    server.protected().unwrap().offload();
    let mut seen = vec![0; 20_000];
    for _ in 0..2 {
        write(poller, client, &[1; 20_000]);
        read(poller, server, &mut seen);
        write(poller, server, &[2; 20_000]);
        read(poller, client, &mut seen);
    }
    // Set by `cargo xtask ktls`, whose kernel has TLS. Others leave the records to the driver.
    let is_required = std::env::var_os("XDFS_TEST_KTLS").is_some();
    let ends = [client.protected(), server.protected()];
    for offloaded in ends.map(|end| end.unwrap().offloaded()) {
        let is_done = offloaded.sending && offloaded.receiving;
        assert!(is_done || !is_required, "{offloaded:?}");
        if !is_done {
            xdfs_testkit::skip::part("this kernel makes no TLS records");
        }
    }
}

/// Repeats `call`, waiting for an event after each `WouldBlock`.
fn until<T>(poller: &mut Poller, mut call: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match call() {
            Ok(done) => return done,
            Err(e) if e.kind() == ErrorKind::WouldBlock => drop(events(poller)),
            Err(e) => panic!("{e}"),
        }
    }
}

/// Waits for at least one event.
fn events(poller: &mut Poller) -> Vec<Event> {
    let start = Instant::now();
    let mut out = Vec::new();
    while out.is_empty() {
        let left = PATIENCE
            .checked_sub(start.elapsed())
            .expect("no event came");
        poller.wait(&mut out, Some(left)).unwrap();
    }
    out
}

/// Waits until `token` was reported as asked for.
fn await_event(poller: &mut Poller, token: Token, wanted: impl Fn(&Event) -> bool) {
    while !events(poller).iter().any(|e| e.token == token && wanted(e)) {}
}

fn write(poller: &mut Poller, to: &mut dyn Stream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n = until(poller, || to.write_vectored(&[IoSlice::new(bytes)]));
        bytes = &bytes[n..];
    }
    // Before it waits for an answer.
    until(poller, || to.flush());
}

fn read_one(from: &mut dyn Stream, bytes: &mut [u8]) -> io::Result<usize> {
    from.read_vectored(&mut [IoSliceMut::new(bytes)])
}

fn read(poller: &mut Poller, from: &mut dyn Stream, mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        let n = until(poller, || read_one(from, bytes));
        assert_ne!(n, 0, "the stream ended early");
        bytes = &mut bytes[n..];
    }
}

fn would_block<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn opens_and_accepts(sample: &Sample) {
    let place = sample.place();
    let mut poller = Poller::new().unwrap();
    let mut listener = sample.listen(&place.endpoint).unwrap();
    listener.register(&mut poller, LISTENER).unwrap();
    would_block(listener.accept());
    let endpoint = listener.local_endpoint();
    if let Some(addr) = endpoint.socket() {
        assert_ne!(addr.port(), 0);
    }
    let _clients = [
        sample.open(&endpoint).unwrap(),
        sample.open(&endpoint).unwrap(),
    ];
    await_event(&mut poller, LISTENER, |e| e.readable);
    let _servers = [
        until(&mut poller, || listener.accept()),
        until(&mut poller, || listener.accept()),
    ];
    would_block(listener.accept());
}

fn a_listener_registered_late_is_told(sample: &Sample) {
    let place = sample.place();
    let mut poller = Poller::new().unwrap();
    let mut listener = sample.listen(&place.endpoint).unwrap();
    let mut client = sample.open(&listener.local_endpoint()).unwrap();
    client.register(&mut poller, CLIENT).unwrap();
    await_event(&mut poller, CLIENT, |e| e.writable);
    listener.register(&mut poller, LISTENER).unwrap();
    await_event(&mut poller, LISTENER, |e| e.readable);
    listener.accept().unwrap();
}

fn an_address_has_one_listener(sample: &Sample) {
    let place = sample.place();
    let first = sample.listen(&place.endpoint).unwrap();
    let endpoint = first.local_endpoint();
    let second = sample.listen(&endpoint);
    assert_eq!(second.unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(first);
    sample.listen(&endpoint).unwrap();
}

fn echoes(sample: &Sample) {
    let Pair {
        mut poller,
        mut client,
        mut server,
        _listener,
        _place,
        ..
    } = Pair::new(sample);
    would_block(read_one(&mut *client, &mut [0]));
    for _ in 0..3 {
        let mut seen = [0; 5];
        write(&mut poller, &mut *client, b"hello");
        read(&mut poller, &mut *server, &mut seen);
        assert_eq!(&seen, b"hello");
        write(&mut poller, &mut *server, b"world");
        read(&mut poller, &mut *client, &mut seen);
        assert_eq!(&seen, b"world");
    }
    would_block(read_one(&mut *server, &mut [0]));
}

/// Byte `i` of what `seed` sends is `PATTERN[(i + seed) % len]`, doubled for slices that wrap.
fn pattern() -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let once: Vec<u8> = (0..PERIOD).map(|_| random.below(256) as u8).collect();
    [once.as_slice(), &once].concat()
}

/// A prime, so that no block size of a driver hides a shift.
const PERIOD: usize = 131_071;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Sends and receives `total` bytes over one end, in vectored calls of random sizes.
fn exchange(mut end: Box<dyn Stream>, total: usize, mine: usize, yours: usize) {
    let pattern = pattern();
    let mut poller = Poller::new().unwrap();
    let mut random = Random(0x1234_5678 + mine as u64);
    end.register(&mut poller, CLIENT).unwrap();
    let (mut sent, mut got) = (0, 0);
    let (mut may_write, mut may_read) = (true, true);
    let mut space = vec![0; PERIOD];
    while sent < total || got < total || end.has_unflushed() {
        if sent == total && may_write && end.has_unflushed() {
            match end.flush() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => may_write = false,
                done => done.unwrap(),
            }
        }
        if sent < total && may_write {
            let at = (sent + mine) % PERIOD;
            let len = (1 + random.below(PERIOD)).min(total - sent);
            let (a, b) = pattern[at..at + len].split_at(random.below(len + 1));
            match end.write_vectored(&[IoSlice::new(a), IoSlice::new(b)]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => may_write = false,
                Err(e) => panic!("{e}"),
            }
        }
        if got < total && may_read {
            let len = (1 + random.below(PERIOD)).min(total - got);
            let (a, b) = space[..len].split_at_mut(random.below(len + 1));
            match end.read_vectored(&mut [IoSliceMut::new(a), IoSliceMut::new(b)]) {
                Ok(0) => panic!("ended after {got} bytes"),
                Ok(n) => {
                    let at = (got + yours) % PERIOD;
                    assert!(space[..n] == pattern[at..at + n], "wrong bytes at {got}");
                    got += n;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => may_read = false,
                Err(e) => panic!("{e}"),
            }
        }
        let writes = (sent < total || end.has_unflushed()) && may_write;
        let reads = got < total && may_read;
        let over = sent == total && got == total && !end.has_unflushed();
        if !writes && !reads && !over {
            for event in events(&mut poller) {
                may_write |= event.writable;
                may_read |= event.readable;
            }
        }
    }
}

fn moves_much_both_ways(sample: &Sample) {
    const TOTAL: usize = 64 << 20;
    let Pair { client, server, .. } = Pair::unregistered(sample);
    let other = thread::spawn(move || exchange(server, TOTAL, 17, 4711));
    exchange(client, TOTAL, 4711, 17);
    other.join().unwrap();
}

fn a_full_writer_is_told_of_room(sample: &Sample) {
    let Pair {
        mut poller,
        mut client,
        mut server,
        _listener,
        _place,
        ..
    } = Pair::new(sample);
    // Content that shrinks would fill nothing.
    let pattern = pattern();
    let mut written = 0;
    let full = loop {
        let chunk = &pattern[written % PERIOD..][..100_000];
        match client.write_vectored(&[IoSlice::new(chunk)]) {
            Ok(n) => written += n,
            Err(e) => break e,
        }
        assert!(written < 1 << 30, "the transport takes without end");
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    // Whatever was ready until now is no news of room.
    poller.wait(&mut Vec::new(), Some(Duration::ZERO)).unwrap();
    let mut seen = vec![0; written];
    let mut got = 0;
    while got < written {
        got += until(&mut poller, || {
            // What a transform holds goes on when there is room.
            match client.flush() {
                Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
                _ => read_one(&mut *server, &mut seen[got..]),
            }
        });
    }
    let wanted = pattern[..PERIOD].iter().cycle();
    assert!(seen.iter().eq(wanted.take(written)));
    write(&mut poller, &mut *client, b"x");
    read(&mut poller, &mut *server, &mut seen[..1]);
    assert_eq!(seen[0], b'x');
}

fn a_waiting_writer_gets_an_event(sample: &Sample) {
    let Pair {
        client, mut server, ..
    } = Pair::unregistered(sample);
    let mut poller = Poller::new().unwrap();
    let mut client = client;
    client.register(&mut poller, CLIENT).unwrap();
    let mut written = 0;
    let chunk = &pattern()[..65_536];
    loop {
        while let Ok(n) = client.write_vectored(&[IoSlice::new(chunk)]) {
            written += n;
        }
        // What was ready until now is no news, unless the writer waited for a time.
        let mut out = Vec::new();
        poller.wait(&mut out, Some(Duration::ZERO)).unwrap();
        if !out.iter().any(|event| event.writable) {
            break;
        }
    }
    let reader = thread::spawn(move || {
        let mut poller = Poller::new().unwrap();
        server.register(&mut poller, SERVER).unwrap();
        read(&mut poller, &mut *server, &mut vec![0; written + 1]);
        server
    });
    await_event(&mut poller, CLIENT, |e| e.writable);
    write(&mut poller, &mut *client, b"x");
    until(&mut poller, || client.flush());
    reader.join().unwrap();
}

fn an_orderly_close_comes_after_all_data(sample: &Sample) {
    let Pair {
        mut poller,
        mut client,
        mut server,
        _listener,
        _place,
        ..
    } = Pair::new(sample);
    let sent: Vec<u8> = (0..50_000_u32).map(|i| (i % 251) as u8).collect();
    write(&mut poller, &mut *client, &sent);
    client.close().unwrap();
    let mut seen = vec![0; sent.len()];
    read(&mut poller, &mut *server, &mut seen);
    assert!(seen == sent);
    for _ in 0..2 {
        assert_eq!(until(&mut poller, || read_one(&mut *server, &mut [0])), 0);
    }
    // The other direction goes on.
    write(&mut poller, &mut *server, b"answer");
    let mut seen = [0; 6];
    read(&mut poller, &mut *client, &mut seen);
    assert_eq!(&seen, b"answer");
    server.close().unwrap();
    assert_eq!(until(&mut poller, || read_one(&mut *client, &mut [0])), 0);
    let refused = client.write_vectored(&[IoSlice::new(b"more")]);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// Reads and writes until both tell that the peer is gone.
fn await_gone(poller: &mut Poller, end: &mut dyn Stream) {
    loop {
        match read_one(end, &mut [0; 4096]) {
            Ok(0) => break,
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => drop(events(poller)),
            Err(e) => {
                // Over TLS an end without close_notify is an error.
                let kinds = [
                    ErrorKind::ConnectionReset,
                    ErrorKind::BrokenPipe,
                    ErrorKind::UnexpectedEof,
                ];
                assert!(kinds.contains(&e.kind()), "{e}");
                break;
            }
        }
    }
    let start = Instant::now();
    loop {
        match end.write_vectored(&[IoSlice::new(&[0; 4096])]) {
            Ok(_) => assert!(start.elapsed() < PATIENCE, "writing to nobody goes on"),
            Err(e) if e.kind() == ErrorKind::WouldBlock => drop(events(poller)),
            Err(_) => break,
        }
    }
}

fn a_dropped_peer_is_seen(sample: &Sample) {
    let Pair {
        mut poller,
        client,
        mut server,
        ..
    } = Pair::new(sample);
    would_block(read_one(&mut *server, &mut [0]));
    // From another thread, so that the waiting side depends on the event.
    let dropper = thread::spawn(move || drop(client));
    await_gone(&mut poller, &mut *server);
    dropper.join().unwrap();
}

fn an_aborted_stream_never_reads_as_ended(sample: &Sample) {
    // A Unix socket and a queue have nothing to tell it by, nor have transforms that only pass on.
    let tells = ["tcp", "quic", "tls", "ptcp"];
    let names = sample.stack.split([',', ':']);
    if !names.into_iter().any(|name| tells.contains(&name)) {
        return;
    }
    let Pair {
        mut poller,
        mut client,
        mut server,
        _listener,
        _place,
        ..
    } = Pair::new(sample);
    write(&mut poller, &mut *client, &[7; 3000]);
    let _ = client.flush();
    client.abort();
    drop(client);
    let error = loop {
        match read_one(&mut *server, &mut [0; 1000]) {
            Ok(0) => panic!("the peer reads an orderly end"),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => drop(events(&mut poller)),
            Err(e) => break e,
        }
    };
    assert_ne!(error.kind(), ErrorKind::TimedOut, "{error}");
}

fn a_peer_that_left_data_unread_is_seen(sample: &Sample) {
    let Pair {
        mut poller,
        client,
        mut server,
        ..
    } = Pair::new(sample);
    write(&mut poller, &mut *server, &[9; 5000]);
    drop(client);
    await_gone(&mut poller, &mut *server);
}

fn nobody_there_is_refused(sample: &Sample) {
    let place = sample.place();
    // A TCP port is held without listening, so that no other test gets it meanwhile.
    let (endpoint, _holder) = match place.endpoint.socket() {
        Some(addr) => {
            let domain = socket2::Domain::for_address(addr);
            let holder = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
            holder.bind(&addr.into()).unwrap();
            let addr = holder.local_addr().unwrap().as_socket().unwrap();
            let location = Location::Socket(addr);
            let endpoint = Endpoint::new(sample.transport().name(), location);
            (endpoint, Some(holder))
        }
        None => (place.endpoint, None),
    };
    let mut poller = Poller::new().unwrap();
    let refused = sample.open(&endpoint).and_then(|mut client| {
        client.register(&mut poller, CLIENT)?;
        loop {
            if client.finish_open()? {
                return Ok(());
            }
            events(&mut poller);
        }
    });
    let kind = refused.unwrap_err().kind();
    assert!(
        matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::NotFound),
        "{kind:?}"
    );
}

fn a_stream_registered_late_is_told(sample: &Sample) {
    let Pair {
        mut poller,
        mut client,
        mut server,
        ..
    } = Pair::unregistered(sample);
    client.register(&mut poller, CLIENT).unwrap();
    write(&mut poller, &mut *client, b"early");
    await_event(&mut poller, CLIENT, |e| e.writable);
    server.register(&mut poller, SERVER).unwrap();
    let (mut readable, mut writable) = (false, false);
    while !(readable && writable) {
        for event in events(&mut poller).iter().filter(|e| e.token == SERVER) {
            readable |= event.readable;
            writable |= event.writable;
        }
    }
    let mut seen = [0; 5];
    read(&mut poller, &mut *server, &mut seen);
    assert_eq!(&seen, b"early");
}

fn a_stream_moves_to_another_poller(sample: &Sample) {
    let Pair {
        mut poller,
        mut client,
        mut server,
        _listener,
        _place,
        ..
    } = Pair::new(sample);
    would_block(read_one(&mut *server, &mut [0]));
    server.deregister(&mut poller).unwrap();
    poller.wait(&mut Vec::new(), Some(Duration::ZERO)).unwrap();
    let mut other = Poller::new().unwrap();
    server.register(&mut other, Token(77)).unwrap();
    would_block(read_one(&mut *server, &mut [0]));
    write(&mut poller, &mut *client, b"hello");
    await_event(&mut other, Token(77), |e| e.readable);
    read(&mut other, &mut *server, &mut [0; 5]);
    let mut stale = Vec::new();
    poller.wait(&mut stale, Some(Duration::ZERO)).unwrap();
    assert!(stale.iter().all(|e| e.token != SERVER), "{stale:?}");
}

fn peers_have_names(sample: &Sample) {
    let pair = Pair::new(sample);
    assert_eq!(pair.client.peer(), pair.endpoint.to_string());
    let server = pair.server.peer();
    match pair.endpoint.socket() {
        Some(addr) => {
            let peer: std::net::SocketAddr = server.parse().unwrap();
            assert_eq!(peer.ip(), addr.ip());
        }
        None => assert!(server.starts_with(&pair.endpoint.to_string()), "{server}"),
    }
}

fn windows_can_be_set(sample: &Sample) {
    let Pair {
        mut poller,
        mut client,
        mut server,
        _listener,
        _place,
        ..
    } = Pair::new(sample);
    for bytes in [64 << 10, 1 << 20] {
        client.set_window(bytes).unwrap();
        server.set_window(bytes).unwrap();
        write(&mut poller, &mut *client, b"hello");
        read(&mut poller, &mut *server, &mut [0; 5]);
    }
}

/// What the streams of a stack offer is what its drivers declare.
fn controls_are_those_of_its_drivers(sample: &Sample) {
    let pair = Pair::new(sample);
    let spec = sample.spec();
    let drivers: Vec<&str> = std::iter::once(spec.transport())
        .chain(spec.transforms())
        .map(xdfs_xio::DriverSpec::name)
        .collect();
    for end in [&pair.client, &pair.server] {
        let mut all = Vec::new();
        end.controls(&mut all);
        for (index, control) in all.iter().enumerate() {
            assert!(drivers.contains(&control.driver), "{control}");
            let name = format!("{}.{}", control.driver, control.name);
            let same = |other: &&xdfs_xio::Control| other.is_called(&name);
            // Of each of its drivers once.
            let times = drivers.iter().filter(|d| **d == control.driver).count();
            assert_eq!(all.iter().filter(same).count(), times, "{control}");
            let first = end.control(&name).map(|value| value.to_string().is_empty());
            assert_eq!(
                first,
                Some(control.value.to_string().is_empty()),
                "{index}: {control}"
            );
        }
        assert_eq!(end.control("tcp.local").is_some(), drivers[0] == "tcp");
        assert_eq!(end.control("tcp.nonsense"), None);
        assert_eq!(end.control("tcp"), None);
    }
}

fn capabilities_are_declared(sample: &Sample) {
    let pair = Pair::new(sample);
    let stack = sample.made();
    let wanted = Capabilities {
        integrity: stack.gives(Property::Integrity),
        local: true,
    };
    for mut end in [pair.client, pair.server] {
        assert_eq!(end.capabilities(), wanted);
        let is_protected = stack.gives(Property::Protection);
        assert_eq!(end.protection().is_some(), is_protected);
        // Nothing is offered beside a protection that isn't there.
        assert!(is_protected || end.protected().is_none());
    }
    // Everything above relies on it.
    assert!(stack.gives(Property::Order));
}

/// Integrity is nothing that a driver of this crate may come to by accident.
#[test]
fn only_memory_quic_and_tls_give_integrity() {
    let giving = REGISTRY
        .drivers()
        .filter(|d| d.given().contains(&Property::Integrity));
    let names: Vec<&str> = giving.map(Driver::name).collect();
    assert_eq!(names, ["memory", "quic", "tls"]);
}

/// Runs each case over one sample, and over every registered driver that has no sample of its own.
macro_rules! cases {
    ($($case:ident)*) => {
        cases!(@sample memory [Sample::new("memory")] [$($case)*]);
        cases!(@sample tcp [Sample::new("tcp")] [$($case)*]);
        cases!(@sample tcp6 [Sample { is_ipv6: true, ..Sample::new("tcp") }] [$($case)*]);
        cases!(@sample unix [Sample::new("unix")] [$($case)*]);
        cases!(@sample quic [Sample::new("quic")] [$($case)*]);
        cases!(@sample quic6 [Sample { is_ipv6: true, ..Sample::new("quic") }] [$($case)*]);
        cases!(@sample tls_memory [Sample::new("memory,tls")] [$($case)*]);
        cases!(@sample tls_tcp [Sample::new("tcp,tls")] [$($case)*]);
        cases!(@sample tls_unix [Sample::new("unix,tls")] [$($case)*]);
        cases!(@sample tls_kernel [Sample { offloads: true, ..Sample::new("tcp,tls") }]
            [$($case)*]);
        cases!(@sample deep_below [Sample::new("memory,xor,tls")] [$($case)*]);
        cases!(@sample deep_above [Sample::new("tcp,tls,xor:key=7")] [$($case)*]);
        cases!(@sample throttled [Sample::new("tcp,throttle:rate=50M:burst=100K")] [$($case)*]);
        cases!(@sample faulty [Sample::new("tcp,fault:short=2K:delay=1M:delay_ms=3")]
            [$($case)*]);
        cases!(@sample buffered_tls [Sample::new("tcp,buffer,tls,buffer:size=1000")] [$($case)*]);
        cases!(@sample ptcp_memory [Sample::new("memory,ptcp:n=3")] [$($case)*]);
        cases!(@sample ptcp_tcp [Sample::new("tcp,ptcp")] [$($case)*]);
        cases!(@sample ptcp_tcp6 [Sample { is_ipv6: true, ..Sample::new("tcp,ptcp:n=2") }]
            [$($case)*]);
        cases!(@sample ptcp_one [Sample::new("tcp,ptcp:n=1:piece=1024:window=65536")] [$($case)*]);
        cases!(@sample ptcp_over_tls [Sample::new("tcp,tls,ptcp:n=2")] [$($case)*]);
        cases!(@sample ptcp_below_tls [Sample::new("tcp,ptcp:n=8,tls")] [$($case)*]);
        cases!(@sample ptcp_twice [Sample::new("unix,ptcp:n=2,xor:key=3,ptcp:n=2")] [$($case)*]);
        cases!(@sample attributes [Sample::new(
            "tcp:nodelay=false:buffer=100000:keepalive=60,xor")] [$($case)*]);

        /// The stacks with tests of their own.
        const NAMED: [&str; 8] = [
            "memory",
            "tcp",
            "tcp,ptcp",
            "unix",
            "quic",
            "memory,tls",
            "tcp,tls",
            "unix,tls",
        ];

        mod others {
            $(#[test]
            fn $case() {
                for sample in super::Sample::of_each_driver() {
                    if !super::NAMED.contains(&sample.stack.as_str()) && sample.is_there() {
                        eprintln!("{}", sample.stack);
                        super::$case(&sample);
                    }
                }
            })*
        }
    };
    (@sample $name:ident [$sample:expr] [$($case:ident)*]) => {
        mod $name {
            use super::Sample;

            $(#[test]
            fn $case() {
                let sample = $sample;
                if sample.is_there() {
                    super::$case(&sample);
                }
            })*
        }
    };
}

cases! {
    a_dropped_peer_is_seen
    a_full_writer_is_told_of_room
    a_listener_registered_late_is_told
    a_peer_that_left_data_unread_is_seen
    a_stream_moves_to_another_poller
    a_stream_registered_late_is_told
    a_waiting_writer_gets_an_event
    an_aborted_stream_never_reads_as_ended
    an_address_has_one_listener
    an_orderly_close_comes_after_all_data
    capabilities_are_declared
    controls_are_those_of_its_drivers
    echoes
    moves_much_both_ways
    nobody_there_is_refused
    opens_and_accepts
    peers_have_names
    windows_can_be_set
}
