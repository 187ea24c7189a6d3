//! Bundles over real sockets whose connections are cut, stalled, slowed down and forged.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_testkit::proxy::{FaultProxy, Plan};
use xdfs_testkit::strangers::{self, Strangers};
use xdfs_testkit::{skip, wait, warnings};
use xdfs_xio::ptcp::wire::{
    ANSWER_BYTES, Answer, FRAME_BYTES, Frame, HELLO_BYTES, Hello, Join, Secret, Side, Verdict,
    proof,
};
use xdfs_xio::{Endpoint, Listener, Registry, Stack};

use end::{End, PATIENCE, accept};

#[path = "support/end.rs"]
mod end;

fn stack(text: &str) -> Stack {
    Registry::standard().build(&text.parse().unwrap()).unwrap()
}

fn open(stack: &Stack, address: SocketAddr) -> io::Result<End> {
    let mut end = End::new(stack.open(&Endpoint::tcp(address))?);
    end.open()?;
    Ok(end)
}

/// Waits for a count, without any call that moves data.
fn wait_for(end: &End, control: &str, count: u64) {
    let is_there = wait::until(PATIENCE, || end.count(control) == count);
    assert!(is_there, "{control} is {}", end.count(control));
}

/// A bundle whose streams go through a proxy.
struct Pair {
    client: End,
    server: End,
    proxy: FaultProxy,
    _listener: Box<dyn Listener>,
}

impl Pair {
    fn new(text: &str, plan: Plan) -> Self {
        let stack = stack(text);
        let mut listener = stack.listen(&loopback()).unwrap();
        let proxy = FaultProxy::new(listener.local_endpoint().socket().unwrap()).unwrap();
        proxy.set_plan(plan);
        let client = open(&stack, proxy.addr()).unwrap();
        let server = accept(&mut *listener);
        Self {
            client,
            server,
            proxy,
            _listener: listener,
        }
    }

    /// Waits until all streams are there.
    fn whole(text: &str, streams: u64) -> Self {
        let pair = Self::new(text, Plan::default());
        for end in [&pair.client, &pair.server] {
            wait_for(end, "ptcp.streams", streams);
        }
        pair
    }
}

fn loopback() -> Endpoint {
    Endpoint::tcp("127.0.0.1:0".parse().unwrap())
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let byte = |i: u64| (i.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..len as u64).map(byte).collect()
}

/// Moves `len` bytes each way at once, while `disturb` does its worst; and then ends in order.
fn exchange(pair: Pair, len: usize, disturb: impl FnOnce(&FaultProxy)) -> [End; 2] {
    let Pair {
        client,
        server,
        proxy,
        _listener,
    } = pair;
    let ends = [(client, 1, 2), (server, 2, 1)].map(|(mut end, mine, yours)| {
        thread::spawn(move || {
            let (out, expected) = (pattern(len, mine), pattern(len, yours));
            let mut seen = vec![0; len];
            let (mut sent, mut got) = (0, 0);
            while sent < len || got < len {
                end.until(|stream| {
                    let mut moved = false;
                    if sent < len {
                        match stream.write_vectored(&[IoSlice::new(&out[sent..])]) {
                            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                            n => (sent, moved) = (sent + n?, true),
                        }
                    }
                    if got < len {
                        match stream.read_vectored(&mut [IoSliceMut::new(&mut seen[got..])]) {
                            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                            n => (got, moved) = (got + n?, true),
                        }
                    }
                    match moved {
                        true => Ok(()),
                        false => Err(ErrorKind::WouldBlock.into()),
                    }
                })
                .unwrap();
            }
            assert!(seen == expected);
            end.until(|stream| stream.flush()).unwrap();
            end.stream.close().unwrap();
            assert_eq!(end.read_some(&mut [0]).unwrap(), 0);
            end
        })
    });
    disturb(&proxy);
    ends.map(|end| end.join().unwrap())
}

#[test]
fn streams_that_break_are_replaced_and_nothing_is_lost() {
    let pair = Pair::whole("ptcp:n=4", 4);
    let [client, server] = exchange(pair, 48 << 20, |proxy| {
        for round in 0..12 {
            let before = proxy.forwarded();
            let _ = wait::until(Duration::from_secs(2), || {
                let now = proxy.forwarded();
                now.0 + now.1 > before.0 + before.1 + (2 << 20)
            });
            proxy.cut_nth(round % 3);
        }
    });
    assert!(client.count("ptcp.broken") > 0);
    assert!(server.count("ptcp.joined") > 3);
}

#[test]
fn even_if_all_streams_break_at_once() {
    let pair = Pair::whole("ptcp:n=3", 3);
    exchange(pair, 16 << 20, |proxy| {
        for _ in 0..3 {
            let before = proxy.forwarded();
            let _ = wait::until(Duration::from_secs(2), || {
                proxy.forwarded().0 > before.0 + (1 << 20)
            });
            proxy.cut_all();
        }
    });
}

/// Each connection is cut after its own number of bytes, from its first byte on: within the hello,
/// the answer, a header and a piece.
#[test]
fn streams_may_break_in_every_phase() {
    for at in [1, 40, 71, 72, 73, 95, 96, 97, 100, 5000, 300_000] {
        for orderly in [false, true] {
            let pair = Pair::new("ptcp:n=3", Plan::default());
            // The first stream was opened; others come, and break, and come.
            for _ in 0..4 {
                let faults = |f: &mut xdfs_testkit::proxy::Faults| match orderly {
                    false => f.cut_after = Some(at),
                    true => f.close_after = Some(at),
                };
                pair.proxy.push_plan(Plan::up(faults));
                pair.proxy.push_plan(Plan::down(faults));
            }
            exchange(pair, 3 << 20, |proxy| {
                proxy.cut_nth(1);
                proxy.cut_nth(0);
            });
        }
    }
}

#[test]
fn a_stream_that_stalls_for_good_stops_nobody() {
    let mut pair = Pair::whole("ptcp:n=3:window=1048576", 3);
    // A first exchange, so that the round trip is known.
    pair.client.write(&pattern(100_000, 3)).unwrap();
    pair.server.read(&mut vec![0; 100_000]).unwrap();
    let hung = pair.proxy.live()[1];
    assert!(pair.proxy.hang(hung));
    let [client, server] = exchange(pair, 24 << 20, |_| {});
    for end in [&client, &server] {
        let held = end.count("ptcp.held");
        assert!(held <= (1 << 20) + 3 * (256 << 10), "{held}");
    }
    assert!(client.count("ptcp.resent") > 0);
}

#[test]
fn slow_and_late_streams_are_used_as_well() {
    let pair = Pair::new("ptcp:n=4", Plan::default());
    pair.proxy
        .push_plan(Plan::up(|f| f.delay = Duration::from_millis(60)));
    pair.proxy.push_plan(Plan::up(|f| f.rate = Some(200_000)));
    pair.proxy
        .push_plan(Plan::down(|f| f.delay = Duration::from_millis(150)));
    exchange(pair, 12 << 20, |_| {});
}

#[test]
fn what_was_written_arrives_after_the_writer_has_left() {
    for cut in [false, true] {
        let Pair {
            mut client,
            mut server,
            proxy,
            _listener,
        } = Pair::whole("ptcp:n=3", 3);
        let sent = pattern(3 << 20, 5);
        client.write(&sent).unwrap();
        drop(client);
        if cut {
            proxy.cut_nth(0);
        }
        let mut seen = vec![0; sent.len()];
        server.read(&mut seen).unwrap();
        assert!(seen == sent);
        assert_eq!(server.read_some(&mut [0]).unwrap(), 0);
        let refused = server.write(&[0; 10]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
    }
}

#[test]
fn the_last_stream_gone_for_too_long_is_an_error() {
    let Pair {
        mut client,
        mut server,
        proxy,
        _listener,
    } = Pair::whole("ptcp:n=2:patience=1", 2);
    proxy.block_new(true);
    proxy.cut_all();
    for end in [&mut client, &mut server] {
        let error = end.read_some(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(end.write(b"x").is_err());
    }
}

#[test]
fn the_number_of_streams_is_the_smaller_one() {
    let mut listener = stack("ptcp:n=2").listen(&loopback()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    let client = open(&stack("ptcp:n=5"), address).unwrap();
    let server = accept(&mut *listener);
    for end in [client, server] {
        wait_for(&end, "ptcp.streams", 2);
        assert_eq!(end.count("ptcp.broken"), 0);
    }
}

/// A peer that does by hand what it likes.
struct Raw {
    stream: TcpStream,
    id: [u8; 16],
    secret: Secret,
    address: SocketAddr,
}

impl Raw {
    fn connect(address: SocketAddr, hello: &[u8]) -> (TcpStream, io::Result<Answer>) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(hello).unwrap();
        let mut answer = [0; ANSWER_BYTES];
        let result = stream.read_exact(&mut answer);
        (stream, result.map(|()| Answer::decode(&answer).unwrap()))
    }

    fn create(address: SocketAddr, window: u64) -> Self {
        static NEXT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
        let id = [NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed); 16];
        let secret = Secret([7; 32]);
        let hello = Hello::Create {
            streams: 4,
            id,
            window,
            secret: secret.clone(),
        };
        let (stream, answer) = Self::connect(address, &hello.encode());
        assert_eq!(answer.unwrap().verdict, Verdict::Accepted);
        Self {
            stream,
            id,
            secret,
            address,
        }
    }

    fn join(&self, change: impl FnOnce(&mut Join)) -> (TcpStream, Verdict) {
        let mut join = Join {
            index: 1,
            serial: 1,
            id: self.id,
            proof: [0; 32],
        };
        join.proof = proof(&self.secret, Side::Opener, &join, &[0; 32]);
        change(&mut join);
        let (stream, answer) = Self::connect(self.address, &Hello::Join(join).encode());
        (stream, answer.unwrap().verdict)
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) {
        let length = bytes.len() as u32;
        let frame = Frame::Data { offset, length }.encode();
        self.stream.write_all(&[&frame, bytes].concat()).unwrap();
    }
}

fn served(text: &str) -> (Box<dyn Listener>, SocketAddr) {
    let listener = stack(text).listen(&loopback()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    (listener, address)
}

#[test]
fn forged_and_doubled_joins_are_refused() {
    let (mut listener, address) = served("ptcp:n=3");
    let raw = Raw::create(address, 1 << 20);
    let mut server = accept(&mut *listener);
    assert_eq!(raw.join(|join| join.proof[3] ^= 1).1, Verdict::Refused);
    assert_eq!(raw.join(|join| join.id[0] ^= 1).1, Verdict::Refused);
    // The proof is for another place, or another serial number.
    assert_eq!(raw.join(|join| join.index = 2).1, Verdict::Refused);
    assert_eq!(raw.join(|join| join.serial = 2).1, Verdict::Refused);
    let outside = |join: &mut Join| {
        join.index = 3;
        join.proof = proof(&Secret([7; 32]), Side::Opener, join, &[0; 32]);
    };
    assert_eq!(raw.join(outside).1, Verdict::Refused);
    assert_eq!(server.count("ptcp.joined"), 0);
    let (kept, verdict) = raw.join(|_| {});
    assert_eq!(verdict, Verdict::Accepted);
    wait_for(&server, "ptcp.joined", 1);
    // The same bytes a second time, as an eavesdropper would send them.
    assert_eq!(raw.join(|_| {}).1, Verdict::Refused);
    assert_eq!(server.count("ptcp.streams"), 2);
    drop(kept);
    let mut raw = raw;
    raw.data(0, b"hello");
    let mut seen = [0; 5];
    server.read(&mut seen).unwrap();
    assert_eq!(&seen, b"hello");
}

#[test]
fn nonsense_at_the_door_costs_a_connection_and_no_more() {
    let (mut listener, address) = served("ptcp:n=3");
    let silent = TcpStream::connect(address).unwrap();
    let (_kept, answer) = Raw::connect(address, &[0x55; HELLO_BYTES]);
    assert_eq!(answer.unwrap().verdict, Verdict::Refused);
    let mut other = Hello::Create {
        streams: 1,
        id: [200; 16],
        window: 1,
        secret: Secret([0; 32]),
    }
    .encode();
    other[4] = 9;
    let (_kept, answer) = Raw::connect(address, &other);
    assert_eq!(answer.unwrap().verdict, Verdict::Version);
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&other[..20]).unwrap();
    drop(half);
    let client = open(&stack("ptcp"), address).unwrap();
    let _server = accept(&mut *listener);
    drop((silent, client));
}

/// Connections that say nothing keep nobody out, even if they are opened again without end: neither
/// others nor those of the same address.
#[test]
fn strangers_keep_nobody_out() {
    // More than there are places for.
    const COUNT: usize = 600;
    let (mut listener, address) = served("ptcp:n=2");
    let strangers = Strangers::open([127, 0, 0, 50].into(), address, COUNT);
    let Ok(strangers) = strangers else {
        return skip::test("this machine has one address of its own, or few sockets");
    };
    for _ in 0..3 {
        // Silent ones have ten seconds, or three while places are scarce.
        let start = Instant::now();
        let mut client = open(&stack("ptcp:n=2"), address).unwrap();
        client.write(b"x").unwrap();
        accept(&mut *listener).read(&mut [0]).unwrap();
        let time = start.elapsed();
        assert!(time < Duration::from_secs(8), "the door is shut: {time:?}");
    }
    drop(strangers);
}

#[test]
fn strangers_that_give_way_are_counted_in_the_log() {
    warnings::keep();
    xdfs_crowd::set_warning_interval(Duration::from_millis(500));
    let (_listener, address) = served("ptcp:n=2");
    let mut held = Vec::new();
    let counted = strangers::are_counted(address, |count| {
        for _ in 0..count {
            held.push(TcpStream::connect(address)?);
        }
        Ok(())
    });
    match counted {
        Ok(counted) => assert!(counted, "{:?}", warnings::all()),
        Err(error) => skip::test(format_args!("this machine has few sockets: {error}")),
    }
}

/// What a lying peer sends leads to an error, and never to other bytes or more memory.
#[test]
fn a_peer_that_lies_is_found_out() {
    type Lie = fn(&mut Raw);
    let lies: [(&str, Lie); 6] = [
        ("beyond the window", |raw| raw.data(1 << 40, b"x")),
        ("acknowledged than was sent", |raw| {
            let ack = Frame::Ack {
                received: 10,
                limit: 100,
                held: 0,
            };
            raw.stream.write_all(&ack.encode()).unwrap();
        }),
        ("out of its range", |raw| raw.data(u64::MAX - 1, b"xyz")),
        ("unknown", |raw| {
            let mut frame = [0; FRAME_BYTES];
            frame[0] = 0x77;
            raw.stream.write_all(&frame).unwrap();
        }),
        ("the end isn't behind", |raw| {
            raw.data(10, b"abc");
            let end = Frame::End { offset: 5 }.encode();
            raw.stream.write_all(&end).unwrap();
        }),
        ("behind the end", |raw| {
            let end = Frame::End { offset: 5 }.encode();
            raw.stream.write_all(&end).unwrap();
            raw.data(3, b"abc");
        }),
    ];
    for (what, lie) in lies {
        let (mut listener, address) = served("ptcp");
        let mut raw = Raw::create(address, 1 << 20);
        let mut server = accept(&mut *listener);
        lie(&mut raw);
        let error = server.read_some(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{what}: {error}");
        assert!(error.to_string().contains(what), "{what}: {error}");
    }
}

/// Of bytes that come twice the first ones count, and what overlaps takes no more memory.
#[test]
fn pieces_that_overlap_are_taken_once() {
    let (mut listener, address) = served("ptcp:window=65536");
    let mut raw = Raw::create(address, 1 << 20);
    let mut server = accept(&mut *listener);
    raw.data(2, b"cdef");
    raw.data(2, b"XYZW");
    raw.data(4, b"efgh");
    for _ in 0..2000 {
        raw.data(100, &[1; 1000]);
    }
    raw.data(0, b"ab");
    let mut seen = [0; 8];
    server.read(&mut seen).unwrap();
    assert_eq!(&seen, b"abcdefgh");
    assert!(server.count("ptcp.held") <= 65536 + (256 << 10));
    raw.data(0, b"AB");
    raw.data(8, b"i");
    let mut seen = [0; 1];
    server.read(&mut seen).unwrap();
    assert_eq!(&seen, b"i");
}

/// The acceptor closes the first connection and takes none again.
#[test]
fn a_server_that_is_gone_is_told_as_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
    });
    let error = open(&stack("ptcp"), address).err().expect("nobody answers");
    let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&error.kind()), "{error}");
    other.join().unwrap();
}
