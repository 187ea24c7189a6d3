//! The user's view of a stack: blocking operations, bounds of waits, closing, and futures.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::future::Future;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_xio::{Cancelled, Canceller, Handle, Passive, Property, Registry, Stack, Wait};

#[path = "support/tls.rs"]
mod configured;
#[path = "support/xor.rs"]
mod outside;

/// After it, what doesn't come is taken for a hang.
const PATIENCE: Duration = Duration::from_secs(60);
/// The stacks that every case runs over: with and without a descriptor, and with a transform.
const STACKS: [&str; 7] = [
    "memory",
    "tcp",
    "unix",
    "tcp,xor",
    "memory,xor:key=3",
    "tcp,tls",
    "memory,tls",
];

struct Pair {
    client: Handle,
    server: Handle,
    passive: Passive,
    _folder: tempfile::TempDir,
}

fn built(text: &str) -> Stack {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
        Registry::standard()
            .with(configured::tls())
            .with(xdfs_xio::quic::driver(configured::configs()))
            .with(outside::xor())
    });
    REGISTRY.build(&text.parse().unwrap()).unwrap()
}

fn contact(text: &str, folder: &tempfile::TempDir) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    match text.split([',', ':']).next().unwrap() {
        "memory" => format!("memory:handle-{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        "unix" => format!("unix:{}", folder.path().join("s").display()),
        _ => "127.0.0.1:0".to_owned(),
    }
}

fn pair(text: &str) -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let stack = built(text);
    let passive = stack.listen_at(&contact(text, &folder)).unwrap();
    let (client, server) = both(&stack, &passive);
    Pair {
        client,
        server,
        passive,
        _folder: folder,
    }
}

/// Opens a channel; both ends take part in the opening exchange of a transform.
fn both(stack: &Stack, passive: &Passive) -> (Handle, Handle) {
    let (stack, contact) = (stack.clone(), passive.contact());
    let opener = thread::spawn(move || stack.connect(&contact).unwrap());
    let server = passive.with(Wait::within(PATIENCE)).accept().unwrap();
    patient(&server).open().unwrap();
    (opener.join().unwrap(), server)
}

fn patient(handle: &Handle) -> Handle {
    handle.with(Wait::within(PATIENCE))
}

fn for_each_stack(case: impl Fn(&str)) {
    for stack in STACKS {
        if cfg!(unix) || !stack.starts_with("unix") {
            eprintln!("{stack}");
            case(stack);
        }
    }
}

/// Runs `blocked` in a thread, and says when it is likely to wait; the outcome is the same if it
/// isn't yet.
fn meanwhile<T: Send + 'static>(
    blocked: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let (tell, told) = channel();
    let thread = thread::spawn(move || {
        tell.send(()).unwrap();
        blocked()
    });
    told.recv().unwrap();
    thread::sleep(Duration::from_millis(30));
    thread
}

/// Writes until the stack takes no more.
fn fill(handle: &Handle) -> usize {
    let now = handle.with(Wait::until(Instant::now()));
    let bytes = vec![7; 100_000];
    let mut total = 0;
    loop {
        match now.write(&bytes) {
            Ok(n) => total += n,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::TimedOut);
                return total;
            }
        }
    }
}

fn read_exactly(handle: &Handle, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(handle.read_at_least(&mut bytes, len).unwrap(), Some(len));
    bytes
}

#[test]
fn what_is_written_is_read_and_then_the_end() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        pair.client.write_all(b"hello").unwrap();
        let bufs = [IoSlice::new(b", "), IoSlice::new(b""), IoSlice::new(b"you")];
        let mut sent = pair.client.write_vectored(&bufs).unwrap();
        while sent < 5 {
            sent += pair.client.write(&b", you"[sent..]).unwrap();
        }
        let server = patient(&pair.server);
        // A read into no room is not the end, whatever is there.
        assert_eq!(server.read(&mut []).unwrap(), Some(0));
        assert_eq!(read_exactly(&server, 7), b"hello, ");
        pair.client.end().unwrap();
        let (mut a, mut b) = ([0; 1], [0; 9]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!(server.read_vectored(&mut bufs).unwrap(), Some(3));
        assert_eq!((&a, &b[..2]), (b"y", &b"ou"[..]));
        for _ in 0..2 {
            assert_eq!(server.read(&mut [0; 9]).unwrap(), None);
            assert_eq!(server.read(&mut []).unwrap(), Some(0));
        }
        // The other direction goes on.
        server.write_all(b"answer").unwrap();
        assert_eq!(read_exactly(&patient(&pair.client), 6), b"answer");
        let refused = pair.client.write(b"more").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_read_waits_for_as_much_as_it_was_told() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        let server = patient(&pair.server);
        let mut room = [0; 100];
        assert_eq!(server.read_at_least(&mut room, 0).unwrap(), Some(0));
        let client = pair.client.clone();
        let writer = thread::spawn(move || {
            for byte in 0..20_u8 {
                client.write_all(&[byte]).unwrap();
                thread::yield_now();
            }
        });
        let first = server.read_at_least(&mut room, 10).unwrap().unwrap();
        assert!((10..=20).contains(&first), "{first}");
        writer.join().unwrap();
        pair.client.end().unwrap();
        let rest = server.read_at_least(&mut room[first..], 100).unwrap();
        assert_eq!(rest.unwrap_or(0), 20 - first);
        let wanted: Vec<u8> = (0..20).collect();
        assert_eq!(room[..20], wanted);
        assert_eq!(server.read_at_least(&mut room, 1).unwrap(), None);
        assert_eq!(server.read_at_least(&mut room, 0).unwrap(), None);
    });
}

/// What came before the deadline isn't lost with it.
#[test]
fn bytes_that_came_before_the_deadline_are_returned() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        pair.client.write_all(b"half").unwrap();
        let server = pair.server.with(Wait::within(Duration::from_millis(300)));
        let mut room = [0; 8];
        assert_eq!(server.read_at_least(&mut room, 8).unwrap(), Some(4));
        let late = server.read_at_least(&mut room, 4).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        pair.client.write_all(b"more").unwrap();
        assert_eq!(read_exactly(&patient(&pair.server), 4), b"more");
    });
}

#[test]
fn deadlines_end_every_kind_of_wait() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        let soon = || Wait::within(Duration::from_millis(20));
        let start = Instant::now();
        let kinds = [
            pair.server.with(soon()).read(&mut [0]).map(|_| ()),
            pair.passive.with(soon()).accept().map(|_| ()),
            pair.passive.with(soon()).accept().map(|_| ()),
        ]
        .map(|result| result.unwrap_err().kind());
        assert_eq!(kinds, [ErrorKind::TimedOut; 3]);
        assert!(start.elapsed() >= Duration::from_millis(60));
        fill(&pair.client);
        let full = pair.client.with(soon()).write_all(&[0; 10 << 20]);
        assert_eq!(full.unwrap_err().kind(), ErrorKind::TimedOut);
        let text = pair.server.with(soon()).read(&mut [0; 0]);
        assert_eq!(text.unwrap(), Some(0));
    });
}

#[test]
fn an_error_tells_the_operation_and_the_peer() {
    let pair = pair("tcp");
    let soon = Wait::within(Duration::from_millis(1));
    let error = pair.client.with(soon).read(&mut [0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "failed to read from {}: the deadline has passed",
            pair.passive.contact()
        )
    );
}

#[test]
fn cancelling_ends_every_kind_of_wait() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        fill(&pair.client);
        let canceller = Canceller::new();
        let wait = || Wait::forever().unless(&canceller);
        let client = pair.client.with(wait());
        let writer = meanwhile(move || client.write_all(&[1; 10 << 20]).unwrap_err());
        let client = pair.client.with(wait());
        let reader = meanwhile(move || client.read(&mut [0]).map(|_| ()).unwrap_err());
        let passive = pair.passive.with(wait());
        let acceptor = meanwhile(move || passive.accept().map(|_| ()).unwrap_err());
        canceller.cancel();
        for thread in [writer, reader, acceptor] {
            let error = thread.join().unwrap();
            assert!(Cancelled::caused(&error), "{error}");
        }
        // It stays used, for those that begin later too.
        let late = pair.client.with(wait()).read(&mut [0]).unwrap_err();
        assert!(Cancelled::caused(&late), "{late}");
        let late = pair.passive.with(wait()).accept().unwrap_err();
        assert!(Cancelled::caused(&late), "{late}");
        // The stream itself is as before.
        pair.server.write_all(b"x").unwrap();
        assert_eq!(read_exactly(&patient(&pair.client), 1), b"x");
    });
}

/// The queue of a listener that accepts nothing is full, so connecting has to wait; on systems that
/// answer otherwise, nothing is tested here.
#[test]
fn opening_can_be_bounded_and_cancelled() {
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let (contact, stack) = (address.to_string(), built("tcp"));
    let mut open = Vec::new();
    let soon = || Wait::within(Duration::from_millis(200));
    let error = loop {
        match stack.connect_with(&contact, &soon()) {
            Ok(handle) => open.push(handle),
            Err(e) => break e,
        }
        if open.len() > 100 {
            return xdfs_testkit::skip::test("this system has no limit for waiting connections");
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let canceller = Canceller::new();
    let wait = Wait::forever().unless(&canceller);
    let opener = meanwhile(move || stack.connect_with(&contact, &wait).unwrap_err());
    canceller.cancel();
    assert!(Cancelled::caused(&opener.join().unwrap()));
}

#[test]
fn two_threads_read_and_write_one_handle_at_once() {
    const TOTAL: usize = 16 << 20;

    fn sent(at: usize) -> u8 {
        (at % 251) as u8
    }

    for_each_stack(|stack| {
        let pair = pair(stack);
        let ends = [pair.client, pair.server];
        let threads = ends.map(|end| {
            let writer = patient(&end);
            let writing = thread::spawn(move || {
                let bytes: Vec<u8> = (0..TOTAL).map(sent).collect();
                writer.write_all(&bytes).unwrap();
                writer.end().unwrap();
            });
            let reader = patient(&end);
            let reading = thread::spawn(move || {
                let (mut room, mut got) = (vec![0; 70_001], 0);
                while let Some(n) = reader.read(&mut room).unwrap() {
                    let wanted = (got..got + n).map(sent);
                    assert!(room[..n].iter().copied().eq(wanted), "at {got}");
                    got += n;
                }
                assert_eq!(got, TOTAL);
            });
            [writing, reading]
        });
        for thread in threads.into_iter().flatten() {
            thread.join().unwrap();
        }
    });
}

#[test]
fn single_bytes_arrive_in_order() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        let server = patient(&pair.server);
        let client = patient(&pair.client);
        let echo = thread::spawn(move || {
            let mut byte = [0];
            while server.read(&mut byte).unwrap().is_some() {
                server.write_all(&byte).unwrap();
            }
            server.close().unwrap();
        });
        for round in 0..1000_u32 {
            client.write_all(&[round as u8]).unwrap();
            assert_eq!(read_exactly(&client, 1), [round as u8]);
        }
        client.end().unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), None);
        echo.join().unwrap();
    });
}

#[test]
fn a_slow_reader_gets_everything() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        let client = patient(&pair.client);
        let writer = thread::spawn(move || {
            client.write_all(&vec![5; 3 << 20]).unwrap();
            client.close().unwrap();
        });
        let server = patient(&pair.server);
        let mut got = 0;
        let mut room = vec![0; 300_000];
        while let Some(n) = server.read(&mut room).unwrap() {
            assert!(room[..n].iter().all(|b| *b == 5));
            got += n;
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(got, 3 << 20);
        writer.join().unwrap();
    });
}

#[test]
fn closing_waits_for_operations_and_sends_everything() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        fill(&pair.client);
        let writer = {
            let client = patient(&pair.client);
            meanwhile(move || client.write_all(&[9; 1000]))
        };
        let reader = {
            let client = patient(&pair.client);
            meanwhile(move || client.read(&mut [0]))
        };
        let closer = {
            let client = patient(&pair.client);
            meanwhile(move || client.close())
        };
        assert!(!closer.is_finished());
        let refused = pair.client.write(b"late").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotConnected, "{refused}");
        // The peer reads until the end, and so lets the write and then the close go on.
        let server = patient(&pair.server);
        let mut bytes = Vec::new();
        (&server).read_to_end(&mut bytes).unwrap();
        // A write of several calls may be cut by the close between two of them, but not in one.
        let last = writer.join().unwrap();
        assert!(last.is_err() || bytes.ends_with(&[9; 1000]), "{last:?}");
        assert!(!closer.is_finished() && !reader.is_finished());
        server.close().unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), None);
        closer.join().unwrap().unwrap();
        let again = pair.client.close().unwrap_err();
        assert_eq!(again.kind(), ErrorKind::NotConnected);
        assert_eq!(pair.client.control("tcp.rtt"), None);
    });
}

#[test]
fn closing_that_ends_early_may_be_tried_again() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        let canceller = Canceller::new();
        let reader = {
            let client = pair.client.with(Wait::forever().unless(&canceller));
            meanwhile(move || client.read(&mut [0]).unwrap_err())
        };
        let soon = Wait::within(Duration::from_millis(20));
        let error = pair.client.with(soon).close().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        canceller.cancel();
        assert!(Cancelled::caused(&reader.join().unwrap()));
        patient(&pair.client).close().unwrap();
        assert_eq!(patient(&pair.server).read(&mut [0]).unwrap(), None);
    });
}

#[test]
fn a_peer_that_is_gone_is_seen() {
    for_each_stack(|stack| {
        let Pair { client, server, .. } = pair(stack);
        let reader = {
            let server = patient(&server);
            meanwhile(move || server.read(&mut [0]))
        };
        drop(client);
        match reader.join().unwrap() {
            Ok(end) => assert_eq!(end, None),
            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
        }
        let server = patient(&server);
        let error = loop {
            if let Err(e) = server.write_all(&[0; 4096]) {
                break e;
            }
        };
        let kinds = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        assert!(kinds.contains(&error.kind()), "{error}");
    });
}

#[test]
fn many_handles_wait_at_once() {
    for_each_stack(|stack| {
        let folder = tempfile::tempdir().unwrap();
        let made = built(stack);
        let passive = made.listen_at(&contact(stack, &folder)).unwrap();
        let threads: Vec<_> = (0..50_u8)
            .map(|i| {
                let (made, contact) = (made.clone(), passive.contact());
                thread::spawn(move || {
                    let client = patient(&made.connect(&contact).unwrap());
                    client.write_all(&[i]).unwrap();
                    assert_eq!(read_exactly(&client, 1), [i + 1]);
                })
            })
            .collect();
        let mut served = Vec::new();
        for _ in 0..threads.len() {
            let server = passive.with(Wait::within(PATIENCE)).accept().unwrap();
            let byte = read_exactly(&patient(&server), 1);
            server.write_all(&[byte[0] + 1]).unwrap();
            served.push(server);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn the_traits_of_the_standard_library_work() {
    let pair = pair("memory");
    std::io::Write::write_all(&mut &pair.client, b"one\ntwo\n").unwrap();
    pair.client.close().unwrap();
    let mut text = String::new();
    (&pair.server).read_to_string(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\n");
}

#[test]
fn controls_and_the_engines_view() {
    let Pair { client, server, .. } = pair("tcp");
    assert_eq!(client.control("tcp.local").unwrap().to_string(), "true");
    assert_eq!(client.control("tls.peer"), None);
    assert!(client.controls().iter().any(|c| c.is_called("tcp.local")));
    let clone = client.clone();
    let client = client.into_stream().unwrap_err();
    drop(clone);
    let mut stream = client.into_stream().unwrap();
    let mut poller = xdfs_sys::poll::Poller::new().unwrap();
    stream
        .register(&mut poller, xdfs_sys::poll::Token(5))
        .unwrap();
    assert_eq!(stream.write_vectored(&[IoSlice::new(b"x")]).unwrap(), 1);
    assert_eq!(read_exactly(&patient(&server), 1), b"x");
}

/// A stream that a future has waited for is registered, and can still be taken.
#[test]
fn a_stream_leaves_the_reactor() {
    for_each_stack(|stack| {
        let Pair { client, server, .. } = pair(stack);
        let wait = Wait::within(Duration::from_millis(5));
        let mut byte = [0];
        let late = block_on(client.with(wait).read_async(&mut byte));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        let mut stream = client.into_stream().unwrap();
        let mut poller = xdfs_sys::poll::Poller::new().unwrap();
        stream
            .register(&mut poller, xdfs_sys::poll::Token(5))
            .unwrap();
        let again = Handle::from({
            stream.deregister(&mut poller).unwrap();
            stream
        });
        server.write_all(b"y").unwrap();
        assert_eq!(read_exactly(&patient(&again), 1), b"y");
    });
}

#[test]
fn wrong_contacts_are_refused_with_the_stack_that_fits() {
    let tcp = built("tcp");
    for (contact, wanted) in [
        ("unix:/run/s", "a stack that begins with unix can reach it"),
        ("nonsense", "a host and port"),
    ] {
        for error in [
            tcp.connect(contact).map(|_| ()).unwrap_err(),
            tcp.listen_at(contact).map(|_| ()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
    let unknown = tcp.connect("host.invalid:1").unwrap_err().to_string();
    assert!(unknown.contains("'host.invalid'"), "{unknown}");
    let nobody = built("memory").connect("memory:nobody-there").unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::ConnectionRefused);
}

/// The loopback's name may stand for two addresses, of which only one listens.
#[test]
fn all_addresses_of_a_host_are_tried() {
    let stack = built("tcp");
    let passive = stack.listen_at("127.0.0.1:0").unwrap();
    let port = passive.endpoint().socket().unwrap().port();
    stack.connect(&format!("localhost:{port}")).unwrap();
    block_on(stack.connect_async(&format!("localhost:{port}"), &Wait::within(PATIENCE))).unwrap();
}

// Futures, on an executor of a dozen lines.

struct Unparker(thread::Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unparker(thread::current())));
    let mut future = pin!(future);
    let start = Instant::now();
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        assert!(start.elapsed() < PATIENCE, "no wake-up came");
        thread::park_timeout(PATIENCE);
    }
}

/// Polls once.
fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A driver below may have no room for what a transform says at the end.
#[test]
fn the_end_waits_for_room_below() {
    for stack in [
        "tcp,throttle:rate=50K:burst=1K,tls",
        "tcp,throttle:rate=50K:burst=1K,buffer,tls,buffer",
    ] {
        let pair = pair(stack);
        let (client, server) = (patient(&pair.client), patient(&pair.server));
        client.write_all(&vec![5; 10_000]).unwrap();
        let ender = thread::spawn(move || {
            client.end().unwrap();
            client.close().unwrap();
        });
        let mut room = vec![0; 20_000];
        assert_eq!(
            server.read_at_least(&mut room, 20_000).unwrap(),
            Some(10_000)
        );
        assert_eq!(server.read(&mut room).unwrap(), None, "{stack}");
        ender.join().unwrap();
    }
}

#[test]
fn futures_move_bytes_both_ways() {
    const TOTAL: usize = 4 << 20;
    for_each_stack(|stack| {
        let folder = tempfile::tempdir().unwrap();
        let made = built(stack);
        let passive = made.listen_at(&contact(stack, &folder)).unwrap();
        let contact = passive.contact();
        let echo = thread::spawn(move || {
            block_on(async {
                let server = passive.accept_async().await.unwrap();
                let mut room = vec![0; 100_000];
                while let Some(n) = server.read_async(&mut room).await.unwrap() {
                    server.write_all_async(&room[..n]).await.unwrap();
                }
                server.close_async().await.unwrap();
            });
        });
        let client = block_on(made.connect_async(&contact, &Wait::within(PATIENCE))).unwrap();
        let writer = {
            let client = client.clone();
            thread::spawn(move || {
                block_on(async {
                    client.write_all_async(&vec![8; TOTAL]).await.unwrap();
                    client.flush_async().await.unwrap();
                    client.end_async().await.unwrap();
                });
            })
        };
        let got = block_on(async {
            let (mut got, mut room) = (0, vec![0; 100_000]);
            while let Some(n) = client.read_async(&mut room).await.unwrap() {
                assert!(room[..n].iter().all(|b| *b == 8));
                got += n;
            }
            got
        });
        assert_eq!(got, TOTAL);
        writer.join().unwrap();
        echo.join().unwrap();
    });
}

#[test]
fn futures_gather_scatter_and_wait_for_enough() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        let (client, server) = (patient(&pair.client), patient(&pair.server));
        block_on(async {
            let parts = [b"ab".as_slice(), b"", b"cdef"].map(IoSlice::new);
            let n = client.write_vectored_async(&parts).await.unwrap();
            client.write_all_async(&b"abcdef"[n..]).await.unwrap();
            client.flush_async().await.unwrap();
            let mut room = [0; 16];
            assert_eq!(
                server.read_at_least_async(&mut room, 6).await.unwrap(),
                Some(6)
            );
            assert_eq!(&room[..6], b"abcdef");
            // More than there is room for, and nothing at all.
            assert_eq!(
                server.read_at_least_async(&mut [], 9).await.unwrap(),
                Some(0)
            );
            assert_eq!(
                server.read_at_least_async(&mut room, 0).await.unwrap(),
                Some(0)
            );
            assert_eq!(client.write_vectored_async(&[]).await.unwrap(), 0);
            assert_eq!(server.read_vectored_async(&mut []).await.unwrap(), Some(0));

            client.write_all_async(b"xyz").await.unwrap();
            client.flush_async().await.unwrap();
            // What has come by the deadline is given, and then the deadline.
            let mut got = 0;
            while got < 3 {
                let soon = server.with(Wait::within(Duration::from_millis(20)));
                match soon.read_at_least_async(&mut room[got..], 9).await {
                    Ok(n) => got += n.unwrap(),
                    Err(e) => assert_eq!(e.kind(), ErrorKind::TimedOut),
                }
            }
            assert_eq!(&room[..got], b"xyz");

            client.write_all_async(b"12345").await.unwrap();
            client.flush_async().await.unwrap();
            client.end_async().await.unwrap();
            let (mut first, mut second) = ([0; 2], [0; 8]);
            let mut all = Vec::new();
            let mut bufs = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            while let Some(n) = server.read_vectored_async(&mut bufs).await.unwrap() {
                let read = [&bufs[0][..], &bufs[1][..]].concat();
                all.extend_from_slice(&read[..n]);
            }
            assert_eq!(all, b"12345");
            assert_eq!(
                server.read_at_least_async(&mut room, 1).await.unwrap(),
                None
            );
        });
    });
}

#[test]
fn a_dropped_future_has_read_and_written_nothing() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        let mut room = [0; 5];
        for _ in 0..100 {
            assert!(poll_once(pair.server.read_async(&mut room)).is_pending());
            assert!(poll_once(pair.passive.accept_async()).is_pending());
        }
        // Made and never polled.
        drop(pair.client.write_async(b"never"));
        pair.client.write_all(b"hello").unwrap();
        let server = patient(&pair.server);
        assert_eq!(block_on(server.read_async(&mut room)).unwrap(), Some(5));
        assert_eq!(&room, b"hello");
        // Operations that were dropped don't count for closing.
        patient(&pair.server).close().unwrap();
        patient(&pair.client).close().unwrap();
    });
}

#[test]
fn futures_end_at_deadlines_and_cancellations() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        let mut byte = [0];
        let soon = Wait::within(Duration::from_millis(20));
        let late = block_on(pair.server.with(soon).read_async(&mut byte)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        let canceller = Canceller::new();
        let server = pair.server.with(Wait::forever().unless(&canceller));
        let reader = meanwhile(move || block_on(server.read_async(&mut [0])).unwrap_err());
        canceller.cancel();
        assert!(Cancelled::caused(&reader.join().unwrap()));
    });
}

#[test]
fn threads_and_futures_share_a_handle() {
    for_each_stack(|stack| {
        let pair = pair(stack);
        let reader = {
            let server = patient(&pair.server);
            meanwhile(move || {
                let mut got = 0;
                let mut room = [0; 1000];
                while let Some(n) = block_on(server.read_async(&mut room)).unwrap() {
                    got += n;
                }
                got
            })
        };
        let written = fill(&pair.server);
        let writer = {
            let server = patient(&pair.server);
            thread::spawn(move || server.write_all(&vec![1; 1 << 20]).unwrap())
        };
        let client = patient(&pair.client);
        for _ in 0..500 {
            client.write_all(&[2; 100]).unwrap();
        }
        read_exactly(&client, written + (1 << 20));
        client.end().unwrap();
        assert_eq!(reader.join().unwrap(), 50_000);
        writer.join().unwrap();
    });
}

#[test]
fn a_stack_of_the_crates_drivers_is_parsed() {
    let stack = Stack::parse("tcp:nodelay=false").unwrap();
    assert!(stack.gives(Property::Order));
    let error = Stack::parse("tcp,nonsense").unwrap_err().to_string();
    assert!(error.contains("'nonsense'"), "{error}");
}
