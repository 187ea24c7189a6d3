//! QUIC on paths that lose, reorder, double, change and cut off datagrams, and against peers that
//! mean harm: real sockets on loopback, with a forwarder between them.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use quinn_proto::{ConnectionError, Dir};
use xdfs_sys::poll::{Event, Poller, Token};
use xdfs_xio::tls::{Configs, StableSecret};
use xdfs_xio::{ControlValue, Endpoint, Listener, Location, Registry, Stack, quic};

use certified::{NAME, configs_for};
use end::{End, PATIENCE, accept, await_event};
use forwarder::Forwarder;
use raw_quic::{RawClient, begin_handshakes};

#[path = "support/certified.rs"]
mod certified;
#[path = "support/end.rs"]
mod end;
#[path = "support/forwarder.rs"]
mod forwarder;
#[path = "support/raw_quic.rs"]
mod raw_quic;

/// Both ends' configurations, with a certificate for this many names.
fn configs(names: usize) -> Configs {
    let names = (0..names).map(|i| match i {
        0 => NAME.to_owned(),
        i => format!("{i}.a-rather-long-name-of-a-server.test"),
    });
    configs_for(names.collect())
}

fn stack_of(configs: Configs, text: &str) -> Stack {
    let registry = Registry::standard().with(quic::driver(configs));
    registry.build(&text.parse().unwrap()).unwrap()
}

fn at(address: SocketAddr) -> Endpoint {
    Endpoint::new("quic", Location::Socket(address))
}

fn anywhere() -> Endpoint {
    at("127.0.0.1:0".parse().unwrap())
}

/// A listener, and a channel to it over a forwarder.
struct Bed {
    client: End,
    server: End,
    forwarder: Forwarder,
    listener: Box<dyn Listener>,
    stack: Stack,
}

impl Bed {
    fn new(text: &str) -> Self {
        let stack = stack_of(configs(1), text);
        let mut listener = stack.listen(&anywhere()).unwrap();
        let forwarder = Forwarder::new(listener.local_endpoint().socket().unwrap());
        let mut client = End::new(stack.open(&at(forwarder.address)).unwrap());
        client.open().unwrap();
        let server = accept(&mut *listener);
        Self {
            client,
            server,
            forwarder,
            listener,
            stack,
        }
    }

    /// Moves bytes in both directions at once, and compares them.
    fn exchange(&mut self, total: usize) {
        let (client, server) = (&mut self.client, &mut self.server);
        thread::scope(|scope| {
            scope.spawn(move || swap(client, total, 7));
            swap(server, total, 7);
        });
    }
}

fn pattern(total: usize, seed: u32) -> Vec<u8> {
    (0..total as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761 ^ seed) >> 13) as u8)
        .collect()
}

/// Sends bytes, and receives as many, without waiting for either alone.
fn swap(end: &mut End, total: usize, seed: u32) {
    let bytes = pattern(total, seed);
    let mut seen = vec![0; total];
    let (mut sent, mut got) = (0, 0);
    while sent < total || got < total {
        let mut is_blocked = true;
        if sent < total {
            match end.stream.write_vectored(&[IoSlice::new(&bytes[sent..])]) {
                Ok(n) => {
                    sent += n;
                    is_blocked = false;
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}"),
            }
        }
        if got < total {
            match end
                .stream
                .read_vectored(&mut [IoSliceMut::new(&mut seen[got..])])
            {
                Ok(0) => panic!("ended after {got} bytes"),
                Ok(n) => {
                    got += n;
                    is_blocked = false;
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}"),
            }
        }
        if is_blocked {
            await_event(&mut end.poller);
        }
    }
    assert!(seen == bytes, "other bytes arrived");
}

#[test]
fn bytes_survive_a_bad_path() {
    let mut bed = Bed::new("quic");
    let path = Arc::clone(&bed.forwarder.path);
    path.lost.store(50, Relaxed);
    path.doubled.store(50, Relaxed);
    path.overtaken.store(50, Relaxed);
    path.corrupted.store(20, Relaxed);
    path.delay_ms.store(3, Relaxed);
    bed.exchange(3 << 20);
    assert!(path.harmed.load(Relaxed) > 100);
    assert!(bed.client.count("quic.lost_packets") > 0);
}

#[test]
fn a_handshake_survives_a_bad_path() {
    let stack = stack_of(configs(1), "quic:connect=60");
    let mut listener = stack.listen(&anywhere()).unwrap();
    let forwarder = Forwarder::new(listener.local_endpoint().socket().unwrap());
    forwarder.path.lost.store(200, Relaxed);
    forwarder.path.doubled.store(200, Relaxed);
    forwarder.path.corrupted.store(100, Relaxed);
    let mut client = End::new(stack.open(&at(forwarder.address)).unwrap());
    client.open().unwrap();
    let mut server = accept(&mut *listener);
    server.write(b"hello").unwrap();
    client.read(&mut [0; 5]).unwrap();
}

#[test]
fn each_congestion_control_moves_bytes() {
    for name in ["bbr", "cubic", "newreno"] {
        let mut bed = Bed::new(&format!("quic:congestion={name}"));
        bed.forwarder.path.lost.store(5, Relaxed);
        bed.exchange(1 << 20);
        let said = bed.client.stream.control("quic.congestion").unwrap();
        assert_eq!(said, ControlValue::Text(name.to_owned()));
    }
}

#[test]
fn a_path_that_takes_smaller_packets_later_goes_on() {
    let mut bed = Bed::new("quic");
    // Discovery takes a few round trips with traffic.
    let start = Instant::now();
    while bed.client.count("quic.mtu") <= 1300 || bed.server.count("quic.mtu") <= 1300 {
        assert!(start.elapsed() < PATIENCE, "no larger packets were found");
        bed.exchange(64 << 10);
    }
    bed.forwarder.path.bytes_max.store(1250, Relaxed);
    bed.exchange(1 << 20);
    assert!(bed.client.count("quic.mtu") <= 1250);
    assert!(bed.server.count("quic.mtu") <= 1250);
}

#[test]
fn an_upper_bound_of_packets_is_kept() {
    for (text, wanted) in [("quic:mtu=1200", 1200), ("quic:mtu=4000", 3900)] {
        let mut bed = Bed::new(text);
        let start = Instant::now();
        loop {
            bed.exchange(64 << 10);
            let mtu = bed.client.count("quic.mtu");
            assert!(mtu <= 4000 && (wanted != 1200 || mtu == 1200), "{mtu}");
            if mtu >= wanted {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "found {mtu} only");
        }
    }
}

#[test]
fn a_client_may_get_another_address() {
    let mut bed = Bed::new("quic");
    for _ in 0..3 {
        bed.exchange(256 << 10);
        bed.forwarder.path.rebind();
    }
    bed.exchange(256 << 10);
}

/// The path is another one, with round-trip times of its own.
#[test]
#[cfg(target_os = "linux")]
fn another_address_begins_another_path() {
    let mut bed = Bed::new("quic");
    bed.exchange(256 << 10);
    bed.forwarder.path.rebind_at("127.0.0.2");
    bed.exchange(256 << 10);
    let shortest = bed.server.stream.measure().unwrap().round_trip_min;
    assert!(shortest > Duration::ZERO);
    // Further streams know where the peer is now.
    let mut client = End::new(bed.stack.open(&at(bed.forwarder.address)).unwrap());
    client.open().unwrap();
    let server = accept(&mut *bed.listener);
    let peer = server.stream.peer();
    assert!(peer.starts_with("127.0.0.2:"), "{peer}");
    assert!(server.stream.capabilities().local);
}

/// Whoever can repeat packets from addresses that aren't his gets little sent to them.
#[test]
fn an_address_to_which_a_peer_moves_again_and_again_gets_little() {
    let configs = configs(1);
    let stack = stack_of(configs.clone(), "quic");
    let listener = stack.listen(&anywhere()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    let mut client = RawClient::connect(address, &configs, PATIENCE);
    let is_confirmed = |c: &quinn_proto::Connection| c.stats().frame_rx.handshake_done > 0;
    assert!(client.run(PATIENCE, is_confirmed).is_none());
    let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
    victim.set_nonblocking(true).unwrap();
    let start = Instant::now();
    let mut got = 0;
    let mut bytes = [0; 2000];
    for round in 0..100 {
        client.ping_from((round % 2 == 0).then_some(&victim));
        thread::sleep(Duration::from_millis(5));
        while let Ok(n) = victim.recv(&mut bytes) {
            got += n;
        }
    }
    // A move each second, with a few packets.
    let moves = 1 + start.elapsed().as_secs() as usize;
    assert!(got > 0);
    assert!(got <= moves * 4000, "{got} bytes for {moves} moves");
}

#[test]
fn streams_of_a_stack_share_a_connection_and_no_binding() {
    let Bed {
        client,
        server,
        mut listener,
        stack,
        forwarder,
    } = Bed::new("quic");
    let endpoint = at(forwarder.address);
    let mut second = End::new(stack.open(&endpoint).unwrap());
    second.open().unwrap();
    let second_server = accept(&mut *listener);
    assert_eq!(server.stream.peer(), second_server.stream.peer());
    let binding = |end: &End| end.stream.protection().unwrap().binding;
    assert_eq!(binding(&client), binding(&server));
    assert_eq!(binding(&second), binding(&second_server));
    assert_ne!(binding(&client), binding(&second));
    // The forwarder serves one client, so the other comes directly.
    let other = stack_of(configs(1), "quic");
    let mut refused = End::new(other.open(&listener.local_endpoint()).unwrap());
    let error = refused.open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert_eq!(
        client.stream.protection().unwrap().peer_certificates.len(),
        1
    );
    assert!(
        server
            .stream
            .protection()
            .unwrap()
            .peer_certificates
            .is_empty()
    );
}

#[test]
fn an_unknown_version_is_answered_with_those_that_there_are() {
    let stack = stack_of(configs(1), "quic");
    let listener = stack.listen(&anywhere()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // RFC 8999: a long header, a version, and both connection identifiers.
    let mut packet = vec![0xc0, 0x5a, 0x5a, 0x5a, 0x5a, 8];
    packet.extend([1; 8]);
    packet.push(4);
    packet.extend([2; 4]);
    packet.resize(1200, 0);
    socket
        .send_to(&packet, listener.local_endpoint().socket().unwrap())
        .unwrap();
    let mut answer = [0; 1500];
    let n = socket.recv(&mut answer).unwrap();
    let answer = &answer[..n];
    assert_eq!(answer[0] & 0x80, 0x80);
    assert_eq!(answer[1..5], [0; 4]);
    // The identifiers come back the other way round.
    assert_eq!(answer[5], 4);
    assert_eq!(answer[6..10], [2; 4]);
    assert_eq!(answer[10], 8);
    assert_eq!(answer[11..19], [1; 8]);
    let versions: Vec<&[u8]> = answer[19..].chunks(4).collect();
    assert!(versions.contains(&&[0, 0, 0, 1][..]), "{versions:?}");
}

/// The first datagram of a client that opens.
fn first_datagram(stack: &Stack) -> Vec<u8> {
    let trap = UdpSocket::bind("127.0.0.1:0").unwrap();
    trap.set_read_timeout(Some(PATIENCE)).unwrap();
    let _client = stack.open(&at(trap.local_addr().unwrap())).unwrap();
    let mut bytes = vec![0; 2000];
    let n = trap.recv(&mut bytes).unwrap();
    bytes.truncate(n);
    bytes
}

#[test]
fn an_unproven_address_gets_three_times_its_bytes_at_most() {
    // Its certificate alone is larger than that.
    let stack = stack_of(configs(200), "quic:connect=2");
    let listener = stack.listen(&anywhere()).unwrap();
    let sent = first_datagram(&stack);
    assert!(sent.len() >= 1200);
    let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
    victim
        .send_to(&sent, listener.local_endpoint().socket().unwrap())
        .unwrap();
    // Until the listener has given the handshake up: it repeats its answers until then.
    victim
        .set_read_timeout(Some(Duration::from_secs(3)))
        .unwrap();
    let mut bytes = [0; 2000];
    let mut got = 0;
    while let Ok(n) = victim.recv(&mut bytes) {
        got += n;
    }
    assert!(got > sent.len(), "{got}");
    assert!(got <= 3 * sent.len(), "{got} bytes for {}", sent.len());
}

#[test]
fn many_handshakes_make_addresses_prove_themselves() {
    let stack = stack_of(configs(1), "quic");
    let mut listener = stack.listen(&anywhere()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    let mut retries = 0;
    let mut held = Vec::new();
    for _ in 0..80 {
        // Each with identifiers of its own.
        let one = stack_of(configs(1), "quic");
        let sent = first_datagram(&one);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&sent, address).unwrap();
        let mut bytes = [0; 2000];
        let n = socket.recv(&mut bytes).unwrap();
        // RFC 9000, section 17.2.5: the type of a Retry packet.
        if n > 0 && bytes[0] & 0xf0 == 0xf0 {
            retries += 1;
        }
        held.push(socket);
    }
    assert!((1..=16).contains(&retries), "{retries}");
    // A client that proves its address gets through.
    let mut client = End::new(stack.open(&at(address)).unwrap());
    client.open().unwrap();
    client.write(b"x").unwrap();
    accept(&mut *listener).read(&mut [0]).unwrap();
}

/// A listener's stack whose keys outlive it.
fn stable_stack(configs: &Configs, secret: [u8; 32]) -> Stack {
    let configs = Configs {
        secret: Some(StableSecret::new(secret)),
        ..configs.clone()
    };
    stack_of(configs, "quic:idle=3600:connect=3600")
}

/// A client with an open stream, and what is left once its listener ended as if it had been killed.
fn left_alone(stack: Stack) -> (End, Forwarder, Stack, Endpoint) {
    let mut listener = stack.listen(&anywhere()).unwrap();
    let endpoint = listener.local_endpoint();
    let forwarder = Forwarder::new(endpoint.socket().unwrap());
    let mut first = End::new(stack.open(&at(forwarder.address)).unwrap());
    first.open().unwrap();
    first.write(b"x").unwrap();
    let mut server = accept(&mut *listener);
    server.read(&mut [0]).unwrap();
    drop(server);
    assert_eq!(first.read_some(&mut [0]).unwrap(), 0);
    drop(first);
    // Until all is acknowledged: the listener waits for nothing then.
    thread::sleep(Duration::from_millis(500));
    // The client hears nothing of the end, and the listener nothing of another stream.
    forwarder.path.lost.store(1000, Relaxed);
    let mut client = End::new(stack.open(&at(forwarder.address)).unwrap());
    client.open().unwrap();
    drop(listener);
    (client, forwarder, stack, endpoint)
}

/// Listens at this address as soon as it is free.
fn listen_again(stack: &Stack, endpoint: &Endpoint) -> Box<dyn Listener> {
    let start = Instant::now();
    loop {
        match stack.listen(endpoint) {
            Ok(listener) => return listener,
            Err(e) if start.elapsed() > PATIENCE => panic!("{e}"),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Whether the client learns within this time that its connection is gone.
fn learns(client: &mut End, time: Duration) -> bool {
    client.write(&[1; 5000]).unwrap();
    let start = Instant::now();
    while start.elapsed() < time {
        let read = client
            .stream
            .read_vectored(&mut [IoSliceMut::new(&mut [0])]);
        match read.unwrap_err() {
            e if e.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(10)),
            e => {
                assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}");
                return true;
            }
        }
    }
    false
}

#[test]
#[cfg(target_os = "linux")]
fn a_listener_that_was_started_again_tells_so() {
    let configs = configs(1);
    let (mut client, forwarder, stack, endpoint) = left_alone(stable_stack(&configs, [7; 32]));
    let mut listener = listen_again(&stable_stack(&configs, [7; 32]), &endpoint);
    forwarder.path.lost.store(0, Relaxed);
    assert!(learns(&mut client, PATIENCE));
    let error = client.write(&[1; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    // Further streams get a connection of their own.
    let mut next = End::new(stack.open(&at(forwarder.address)).unwrap());
    next.open().unwrap();
    next.write(b"x").unwrap();
    accept(&mut *listener).read(&mut [0]).unwrap();
}

/// A token that resets a connection is a secret from everybody but its two ends.
/// Resets are limited in number.
#[test]
fn garbage_keeps_nobody_from_being_told() {
    let stack = stable_stack(&configs(1), [7; 32]);
    let (mut client, forwarder, stack, endpoint) = left_alone(stack);
    let _listener = listen_again(&stack, &endpoint);
    let address = endpoint.socket().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut bytes = [0x40; 60];
            for number in 1_u64.. {
                if is_over.load(Relaxed) {
                    return;
                }
                bytes[1..9].copy_from_slice(&number.to_le_bytes());
                // The system may lose it.
                let _ = socket.send_to(&bytes, address);
                if number % 16 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        // Until the first of it has come.
        thread::sleep(Duration::from_millis(100));
        forwarder.path.lost.store(0, Relaxed);
        let has_learnt = learns(&mut client, PATIENCE);
        is_over.store(true, Relaxed);
        assert!(has_learnt);
    });
}

#[test]
fn nobody_else_can_end_a_connection() {
    const TIME: Duration = Duration::from_secs(2);
    let configs = configs(1);
    // Another identity at the same address.
    let (mut client, forwarder, _stack, endpoint) = left_alone(stable_stack(&configs, [7; 32]));
    let _listener = listen_again(&stable_stack(&configs, [8; 32]), &endpoint);
    forwarder.path.lost.store(0, Relaxed);
    assert!(!learns(&mut client, TIME));

    // The same identity at another address: both may be in use.
    let stack = stable_stack(&configs, [7; 32]);
    let mut listener = stack.listen(&anywhere()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    let forwarder = Forwarder::new(address);
    let mut client = End::new(stack.open(&at(forwarder.address)).unwrap());
    client.open().unwrap();
    let mut server = accept(&mut *listener);
    let other = stack.listen(&anywhere()).unwrap();
    let led_to = other.local_endpoint().socket().unwrap();
    forwarder.path.lead_to(led_to);
    assert!(!learns(&mut client, TIME));
    forwarder.path.lead_to(address);
    server.read(&mut [0; 5000]).unwrap();
}

/// Fails unless the listener ends the connection because of a stream without header.
#[track_caller]
fn ended_as_malformed(client: &mut RawClient) {
    match client.run(PATIENCE, |_| false).unwrap() {
        ConnectionError::ApplicationClosed(close) => {
            assert_eq!(close.error_code.into_inner(), 4, "{close}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn streams_that_begin_wrongly_end_only_their_connection() {
    let configs = configs(1);
    let stack = stack_of(configs.clone(), "quic");
    let mut listener = stack.listen(&anywhere()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    for bytes in [1, 100_000] {
        let mut client = RawClient::connect(address, &configs, PATIENCE);
        for _ in 0..16 {
            let id = client.open();
            // As much as is allowed.
            let _ = client.connection.send_stream(id).write(&vec![1; bytes]);
        }
        ended_as_malformed(&mut client);
    }
    let mut client = End::new(stack.open(&at(address)).unwrap());
    client.open().unwrap();
    client.write(b"x").unwrap();
    accept(&mut *listener).read(&mut [0]).unwrap();
}

#[test]
fn streams_that_never_begin_are_waited_for_in_bounds() {
    let configs = configs(1);
    let stack = stack_of(configs.clone(), "quic:connect=1");
    let listener = stack.listen(&anywhere()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    let mut client = RawClient::connect(address, &configs, PATIENCE);
    // Only the last one is spoken of; those before it are open with it.
    let ids: Vec<_> = (0..16).map(|_| client.open()).collect();
    client.connection.send_stream(ids[15]).write(&[0]).unwrap();
    ended_as_malformed(&mut client);
}

/// What comes of a stream of which every second packet of the first flight is lost: the bytes that
/// arrived, or what the reader is told.
fn scattered(text: &str, total: usize) -> io::Result<Vec<u8>> {
    let configs = configs(1);
    let stack = stack_of(configs.clone(), text);
    let mut listener = stack.listen(&anywhere()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    let mut client = RawClient::connect(address, &configs, PATIENCE);
    let id = client.open();
    let mut bytes = vec![0];
    bytes.extend(pattern(total, 9));
    // Until the listener has all of the handshake: before, it drops what is on streams.
    let is_confirmed = |c: &quinn_proto::Connection| c.stats().frame_rx.handshake_done > 0;
    assert!(client.run(PATIENCE, is_confirmed).is_none());
    // The header alone, so that there is somebody who is told of an end.
    let mut sent = client
        .connection
        .send_stream(id)
        .write(&bytes[..1])
        .unwrap();
    let rounds = Cell::new(0);
    let once = |_: &quinn_proto::Connection| rounds.replace(rounds.get() + 1) > 0;
    assert!(client.run(PATIENCE, once).is_none());
    let mut server = accept(&mut *listener);
    server.stream.admit();
    let has_all = |c: &quinn_proto::Connection| c.stats().frame_rx.max_streams_bidi > 0;
    assert!(client.run(PATIENCE, has_all).is_none());
    let reader = thread::spawn(move || {
        let mut seen = vec![0; total];
        server.read(&mut seen).map(|()| seen)
    });
    sent += client
        .connection
        .send_stream(id)
        .write(&bytes[sent..])
        .unwrap();
    let through = client.send_half();
    assert!(through > 700, "{through} packets of a flight");
    let start = Instant::now();
    while !reader.is_finished() {
        assert!(start.elapsed() < PATIENCE);
        if sent < bytes.len()
            && let Ok(n) = client.connection.send_stream(id).write(&bytes[sent..])
        {
            sent += n;
        }
        let until = Instant::now() + Duration::from_millis(5);
        if client.run(PATIENCE, |_| Instant::now() > until).is_some() {
            break;
        }
    }
    reader.join().unwrap()
}

/// quinn-proto keeps no more than one to two thousand pieces of a stream that don't follow one on
/// the other.
#[test]
fn heavy_loss_leaves_no_more_gaps_than_are_kept() {
    const TOTAL: usize = 6 << 20;
    let seen = scattered("quic", TOTAL).unwrap();
    assert!(seen == pattern(TOTAL, 9), "other bytes arrived");
    // If this one lives too, there is no reason for a default as small as it is.
    let error = scattered("quic:window=16777216", 20 << 20).unwrap_err();
    assert!(error.to_string().contains("too many gaps"), "{error}");
}

/// A program may end right after it has left its streams and its stack.
#[test]
fn the_drop_of_a_stack_tells_its_peers() {
    let configs = configs(1);
    let stack = stack_of(configs.clone(), "quic");
    let mut listener = stack.listen(&anywhere()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    let forwarder = Forwarder::new(address);
    let opener = stack_of(configs, "quic");
    let mut client = End::new(opener.open(&at(forwarder.address)).unwrap());
    client.open().unwrap();
    client.write(b"last").unwrap();
    let mut server = accept(&mut *listener);
    drop(client);
    drop(opener);
    // As if the program had ended.
    drop(forwarder);
    let mut bytes = [0; 4];
    server.read(&mut bytes).unwrap();
    assert_eq!(&bytes, b"last");
    assert_eq!(server.read_some(&mut bytes).unwrap(), 0);
}

#[cfg(target_os = "linux")]
fn memory_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn garbage_is_ignored() {
    let mut bed = Bed::new("quic");
    bed.exchange(1000);
    let address = bed.listener.local_endpoint().socket().unwrap();
    let mut random = 0x1234_5678_9abc_def1_u64;
    let sockets: Vec<UdpSocket> = (0..8)
        .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
        .collect();
    let initial = first_datagram(&bed.stack);
    #[cfg(target_os = "linux")]
    let before = memory_bytes();
    for i in 0..100_000_usize {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let length = 1 + (random >> 20) as usize % 1400;
        let mut bytes: Vec<u8> = match i % 4 {
            // A true packet, changed in a few places.
            0 => initial.clone(),
            _ => random
                .to_le_bytes()
                .iter()
                .copied()
                .cycle()
                .take(length)
                .collect(),
        };
        let len = bytes.len();
        for shift in [0, 11, 23] {
            bytes[(random >> shift) as usize % len] ^= (random >> (shift + 32)) as u8;
        }
        if i % 4 == 1 && len > 5 {
            // A long header of version 1.
            bytes[0] |= 0xc0;
            bytes[1..5].copy_from_slice(&[0, 0, 0, 1]);
        }
        // The system may lose it.
        let _ = sockets[i % 8].send_to(&bytes, address);
        if i % 5000 == 0 {
            bed.exchange(1000);
        }
    }
    bed.exchange(100_000);
    #[cfg(target_os = "linux")]
    {
        let grown = memory_bytes().saturating_sub(before);
        assert!(grown < 256 << 20, "{grown} bytes");
    }
}

/// A stranger costs little memory, and takes few of the places for channels.
#[test]
fn a_peer_gets_all_streams_and_bytes_when_it_is_admitted() {
    let configs = configs(1);
    let stack = stack_of(configs.clone(), "quic");
    let mut listener = stack.listen(&anywhere()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    let mut client = RawClient::connect(address, &configs, PATIENCE);
    let open_all = |client: &mut RawClient| {
        let next = || client.connection.streams().open(Dir::Bi);
        std::iter::from_fn(next).collect::<Vec<_>>()
    };
    let ids = open_all(&mut client);
    assert_eq!(ids.len(), 16);
    let written = client
        .connection
        .send_stream(ids[0])
        .write(&vec![0; 1 << 20]);
    assert_eq!(written.unwrap(), 256 << 10);
    let is_confirmed = |c: &quinn_proto::Connection| c.stats().frame_rx.handshake_done > 0;
    assert!(client.run(PATIENCE, is_confirmed).is_none());
    thread::scope(|scope| {
        scope.spawn(|| accept(&mut *listener).stream.admit());
        let has_more = |c: &quinn_proto::Connection| c.stats().frame_rx.max_streams_bidi > 0;
        assert!(client.run(PATIENCE, has_more).is_none());
    });
    assert_eq!(open_all(&mut client).len(), 4096 - 16);
    let id = ids[1];
    let written = client.connection.send_stream(id).write(&vec![0; 1 << 20]);
    assert_eq!(written.unwrap(), 1 << 20);
}

/// Handshakes that are begun and never continued keep nobody out, neither others nor those of the
/// same address.
#[test]
fn handshakes_of_strangers_keep_nobody_out() {
    let configs = configs(1);
    let stack = stack_of(configs.clone(), "quic");
    let mut listener = stack.listen(&anywhere()).unwrap();
    let address = listener.local_endpoint().socket().unwrap();
    // The first one is complete, and then silent.
    let mut silent = RawClient::connect(address, &configs, PATIENCE);
    let is_confirmed = |c: &quinn_proto::Connection| c.stats().frame_rx.handshake_done > 0;
    assert!(silent.run(PATIENCE, is_confirmed).is_none());
    let mut come_in = |from: &str| {
        let start = Instant::now();
        let mut client = End::new(
            stack_of(configs.clone(), "quic")
                .open(&at(address))
                .unwrap(),
        );
        client.open().unwrap_or_else(|e| panic!("{from}: {e}"));
        client.write(b"x").unwrap();
        accept(&mut *listener).read(&mut [0]).unwrap();
        let time = start.elapsed();
        assert!(
            time < Duration::from_secs(8),
            "{from}: the door is shut: {time:?}"
        );
    };
    // More than there are places for.
    for last in 60..70 {
        if !begin_handshakes([127, 0, 0, last].into(), address, &configs, 110) {
            return xdfs_testkit::skip::test("this machine has one address of its own");
        }
    }
    come_in("elsewhere");
    assert!(begin_handshakes(
        [127, 0, 0, 1].into(),
        address,
        &configs,
        200
    ));
    come_in("the same address");
    let lost = silent.run(PATIENCE, |_| false).unwrap();
    assert!(lost.to_string().contains("too many"), "{lost}");
}

#[test]
fn a_peer_opens_no_more_streams_than_allowed() {
    let stack = stack_of(configs(1), "quic:streams=8:connect=2");
    let mut listener = stack.listen(&anywhere()).unwrap();
    let endpoint = listener.local_endpoint();
    let mut all: Vec<End> = (0..20)
        .map(|_| End::new(stack.open(&endpoint).unwrap()))
        .collect();
    let results: Vec<io::Result<()>> = all.iter_mut().map(End::open).collect();
    let kinds: Vec<ErrorKind> = results
        .into_iter()
        .filter_map(|r| r.err().map(|e| e.kind()))
        .collect();
    assert_eq!(kinds, [ErrorKind::ResourceBusy; 12]);
    let servers: Vec<End> = (0..8).map(|_| accept(&mut *listener)).collect();
    let last = listener.accept().map(drop).unwrap_err();
    assert_eq!(last.kind(), ErrorKind::WouldBlock);
    // Streams that ended make room.
    drop((all, servers));
    let mut next = End::new(stack.open(&endpoint).unwrap());
    next.open().unwrap();
    accept(&mut *listener);
}

#[test]
fn a_stream_that_nobody_reads_holds_up_no_other() {
    let mut bed = Bed::new("quic:window=65536");
    let mut stalled = 0;
    let start = Instant::now();
    // Full, and still full when the connection had time to take more.
    let mut quiet = 0;
    while quiet < 20 {
        match bed
            .client
            .stream
            .write_vectored(&[IoSlice::new(&[5; 100_000])])
        {
            Ok(n) => {
                stalled += n;
                quiet = 0;
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                quiet += 1;
                thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(start.elapsed() < PATIENCE);
    }
    // Two queues of 1 MiB, and the window, bound it.
    assert!(stalled < 4 << 20, "{stalled}");
    let mut client = End::new(bed.stack.open(&at(bed.forwarder.address)).unwrap());
    client.open().unwrap();
    let mut server = accept(&mut *bed.listener);
    thread::scope(|scope| {
        scope.spawn(|| swap(&mut client, 2 << 20, 7));
        swap(&mut server, 2 << 20, 7);
    });
    let mut seen = vec![0; stalled];
    bed.server.read(&mut seen).unwrap();
    assert!(seen.iter().all(|b| *b == 5));
}

/// Moves bytes from the client, and returns the time until the last arrived.
fn moved(client: &mut End, server: &mut End, bytes: usize) -> Duration {
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| client.write(&vec![6; bytes]).unwrap());
        server.read(&mut vec![0; bytes]).unwrap();
    });
    start.elapsed()
}

#[test]
fn a_paced_stream_keeps_its_pace_and_its_neighbours_theirs() {
    const PACE: u64 = 1 << 20;
    let mut bed = Bed::new("quic");
    let address = bed.listener.local_endpoint();
    // Without the forwarder, which is slow.
    let mut client = End::new(bed.stack.open(&address).unwrap());
    client.open().unwrap();
    let mut server = accept(&mut *bed.listener);
    let mut other = End::new(bed.stack.open(&address).unwrap());
    other.open().unwrap();
    let mut other_server = accept(&mut *bed.listener);

    client.stream.set_pace(Some(PACE)).unwrap();
    let time = moved(&mut client, &mut server, 2 << 20);
    // What has credit is less than a tenth. A slow machine takes longer.
    assert!(time > Duration::from_millis(1800), "{time:?}");
    assert!(time < Duration::from_secs(20), "{time:?}");
    // The other would need 16 seconds at this pace, and shares the connection.
    let time = moved(&mut other, &mut other_server, 16 << 20);
    assert!(time < Duration::from_secs(8), "{time:?}");

    // Each reports its own bytes.
    let once = |end: &End| {
        let sample = end.stream.measure().unwrap();
        sample.sent_bytes - sample.resent_bytes
    };
    assert_eq!(once(&client), 2 << 20);
    assert_eq!(once(&other), 16 << 20);

    // Bytes that wait for a slower pace move with a faster one.
    client.stream.set_pace(Some(1000)).unwrap();
    let written = client
        .until(|stream| stream.write_vectored(&[IoSlice::new(&[6; 60_000])]))
        .unwrap();
    assert_eq!(written, 60_000);
    let more = client
        .stream
        .write_vectored(&[IoSlice::new(&[6; 60_000])])
        .unwrap();
    assert!(more < 10_000, "{more} bytes wait as well");
    client.stream.set_pace(None).unwrap();
    server.read(&mut vec![0; written + more]).unwrap();
    let time = moved(&mut client, &mut server, 16 << 20);
    assert!(time < Duration::from_secs(8), "{time:?}");

    // Nor do they wait once nobody can make it faster.
    client.stream.set_pace(Some(1000)).unwrap();
    client.write(&[6; 60_000]).unwrap();
    drop(client);
    server.read(&mut vec![0; 60_000]).unwrap();
    assert_eq!(server.read_some(&mut [0]).unwrap(), 0);
}

#[test]
fn a_port_that_never_answers_is_told_in_time() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let stack = stack_of(configs(1), "quic:connect=1");
    let mut client = End::new(stack.open(&at(silent.local_addr().unwrap())).unwrap());
    let error = client.open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let text = error.to_string();
    assert!(
        text.contains("over UDP") && text.contains("firewall"),
        "{text}"
    );
}

/// A report that a port is unreachable, with the quoted part of a datagram from `from` to `to`.
#[cfg(target_os = "linux")]
fn unreachable(from: SocketAddr, to: SocketAddr, quoted: &[u8]) -> Vec<u8> {
    let octets = |address: SocketAddr| match address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets(),
        other => panic!("{other}"),
    };
    // RFC 792: type, code, checksum, unused; the header of IP with UDP as its protocol.
    let mut bytes = vec![3, 3, 0, 0, 0, 0, 0, 0];
    bytes.extend([0x45, 0, 5, 0, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend(octets(from));
    bytes.extend(octets(to));
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(1208_u16.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(quoted);
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>();
    let sum = (sum >> 16) + (sum & 0xffff);
    let checksum = !((sum + (sum >> 16)) as u16);
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// The error of an open to a silent port, during which `report` is called with the first datagram,
/// its sender and its target.
#[cfg(target_os = "linux")]
fn open_with(stack: &Stack, report: impl FnOnce(&[u8], SocketAddr, SocketAddr)) -> io::Error {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = silent.local_addr().unwrap();
    let mut client = End::new(stack.open(&at(address)).unwrap());
    let mut bytes = [0; 2000];
    let (n, from) = silent.recv_from(&mut bytes).unwrap();
    report(&bytes[..n], from, address);
    client.open().unwrap_err()
}

#[test]
#[cfg(target_os = "linux")]
fn reports_about_other_ports_end_no_open() {
    let stack = stack_of(configs(1), "quic:connect=2");
    let error = open_with(&stack, |_, _, _| {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let closed = free.local_addr().unwrap();
        drop(free);
        // Of the same socket.
        let mut other = End::new(stack.open(&at(closed)).unwrap());
        // At its deadline it would have another kind.
        let error = other.open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    });
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn reports_that_are_made_up_end_no_open() {
    use socket2::{Domain, Protocol, SockAddr, Socket, Type};

    let Ok(raw) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)) else {
        return xdfs_testkit::skip::test("only root can send reports of its own");
    };
    let stack = stack_of(configs(1), "quic:connect=2");
    let send = |report: Vec<u8>, to: SocketAddr| {
        let to = SockAddr::from(SocketAddr::new(to.ip(), 0));
        raw.send_to(&report, &to).unwrap();
    };
    // By somebody who knows the addresses, and not the datagram.
    let error = open_with(&stack, |bytes, from, to| {
        let mut other = bytes.to_vec();
        other[10] ^= 1;
        for quoted in [&other[..], &bytes[..0], &bytes[..8]] {
            send(unreachable(from, to, quoted), from);
        }
    });
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    // And by somebody who has seen it.
    let error = open_with(&stack, |bytes, from, to| {
        send(unreachable(from, to, bytes), from);
    });
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

/// Each report makes a system call of the socket fail. They go on for longer than a peer has to
/// answer when one says that it is gone.
#[test]
#[cfg(target_os = "linux")]
fn reports_end_no_connection() {
    use socket2::{Domain, Protocol, SockAddr, Socket, Type};

    let Ok(raw) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)) else {
        return xdfs_testkit::skip::test("only root can send reports of its own");
    };
    let mut bed = Bed::new("quic");
    let sees = bed.forwarder.path.client().unwrap();
    let report = unreachable(sees, bed.forwarder.address, &[0x40; 64]);
    let to = SockAddr::from(SocketAddr::new(sees.ip(), 0));
    // Nothing else comes meanwhile. Twice as many as a broken socket may fail.
    for _ in 0..40 {
        for _ in 0..100 {
            raw.send_to(&report, &to).unwrap();
        }
        thread::sleep(Duration::from_millis(100));
    }
    bed.exchange(100_000);
}

/// Without a report, these would wait for an hour.
#[test]
#[cfg(target_os = "linux")]
fn a_peer_that_was_killed_is_not_waited_for() {
    let mut bed = Bed::new("quic:idle=3600");
    bed.exchange(1000);
    // Its ports are closed, and nothing is sent to say so.
    drop(bed.forwarder);
    for end in [&mut bed.client, &mut bed.server] {
        // The second one may know it by then, from an acknowledgement that was sent to nobody.
        let error = match end.write(&[1; 1000]) {
            Ok(()) => end.read_some(&mut [0; 10]).unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        assert!(error.to_string().contains("nobody listens"), "{error}");
    }
}

#[test]
fn a_path_that_is_cut_ends_both_sides() {
    let mut bed = Bed::new("quic:idle=1");
    bed.exchange(1000);
    bed.forwarder.path.lost.store(1000, Relaxed);
    for end in [&mut bed.client, &mut bed.server] {
        let error = end.read_some(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
}

#[test]
fn a_silent_stream_stays_open() {
    let mut bed = Bed::new("quic:idle=1");
    bed.exchange(1000);
    let before = bed.forwarder.path.from_client.load(Relaxed);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2500) {
        thread::sleep(Duration::from_millis(50));
    }
    assert!(bed.forwarder.path.from_client.load(Relaxed) > before);
    bed.exchange(1000);
}

#[test]
fn all_that_was_written_arrives_after_a_drop() {
    let Bed {
        mut client,
        mut server,
        stack,
        forwarder,
        ..
    } = Bed::new("quic");
    forwarder.path.lost.store(20, Relaxed);
    let bytes = pattern(900_000, 3);
    client.write(&bytes).unwrap();
    drop((client, stack));
    let mut seen = vec![0; bytes.len()];
    server.read(&mut seen).unwrap();
    assert!(seen == bytes);
    assert_eq!(server.read_some(&mut [0]).unwrap(), 0);
}

#[test]
fn a_peer_is_told_of_bytes_that_were_left_unread() {
    let Bed {
        mut client,
        mut server,
        forwarder: _forwarder,
        ..
    } = Bed::new("quic");
    client.write(b"question").unwrap();
    server.write(b"answer").unwrap();
    // The question has come, and isn't read.
    let mut poller = Poller::new().unwrap();
    server.stream.deregister(&mut server.poller).unwrap();
    server.stream.register(&mut poller, Token(4)).unwrap();
    let mut out = Vec::new();
    while !out.iter().any(|e: &Event| e.readable) {
        poller.wait(&mut out, Some(PATIENCE)).unwrap();
    }
    drop(server);
    let mut seen = [0; 6];
    client.read(&mut seen).unwrap();
    assert_eq!(&seen, b"answer");
    let error = client.read_some(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn ends_without_configuration_or_trust_are_told() {
    let none = stack_of(Configs::default(), "quic");
    let address = at("127.0.0.1:9".parse().unwrap());
    for error in [
        none.open(&address).unwrap_err(),
        none.listen(&anywhere()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("TLS configuration"), "{error}");
    }
    // A server with another protocol.
    let good = configs(1);
    let served = good.server.as_ref().unwrap()();
    let mut other = (*served).clone();
    other.alpn_protocols = vec![b"other".to_vec()];
    let other = Arc::new(other);
    let other = Configs {
        client: None,
        server: Some(Arc::new(move || Arc::clone(&other))),
        secret: None,
    };
    let listener = stack_of(other, "quic").listen(&anywhere()).unwrap();
    let stack = stack_of(good, "quic");
    let mut client = End::new(stack.open(&listener.local_endpoint()).unwrap());
    let error = client.open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}
