//! Payload in the clear: who may ask for it, what then travels how, and who can't bring it about.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConnection, StreamOwned};
use socket2::SockRef;
use xdfs::security::{Credential, Level};
use xdfs::{Code, DigestKind, Fault, Limits, LocalPlace};
use xdfs_proto::frame::{self, BlockHeader, SessionAccept};
use xdfs_proto::handshake::{Acceptor, AcceptorStep};
use xdfs_proto::{FileId, Frame, SessionSecret};
use xdfs_security::identity::{ClientCertificates, ServerIdentity};
use xdfs_testkit::proxy::{FaultProxy, Flip, Plan};

use crate::raw::register;
use crate::world::{PATIENCE, Visit, World, finish, wait_for_bytes};

/// What the files of these tests say, over and over.
const MARK: &[u8] = b"a line that anybody who listens would know again\n";
const NAME: &str = "a-name-that-nobody-should-see";
/// Bytes of the buffers of sockets, of which each channel has eight on its way through a [`Tap`].
const WINDOW: u32 = 128 << 10;

fn world(takes_clear: bool) -> World {
    World::with(|security, _| security.takes_clear = takes_clear)
}

fn source(world: &World, bytes: usize) -> PathBuf {
    let path = world.path("client").join(NAME);
    let content: Vec<u8> = MARK.iter().copied().cycle().take(bytes).collect();
    fs::write(&path, content).unwrap();
    path
}

/// So that a transfer has a middle.
fn small_blocks(mut visit: Visit) -> Visit {
    visit.options.block_size = Some(64 << 10);
    visit
}

fn same(a: &Path, b: &Path) {
    assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "they differ");
}

/// Somebody who listens between a client and a server.
struct Tap {
    addr: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
    connections: Arc<AtomicUsize>,
}

impl Tap {
    fn new(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&heard);
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        // Ends with the process: it waits for connections that may not come.
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                accepted.fetch_add(1, Ordering::Relaxed);
                let far = TcpStream::connect(target).unwrap();
                // What is on its way is bounded, however slow the machine is.
                for stream in [&near, &far] {
                    let socket = SockRef::from(stream);
                    socket.set_recv_buffer_size(WINDOW as usize).unwrap();
                    socket.set_send_buffer_size(WINDOW as usize).unwrap();
                }
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let all = Arc::clone(&all);
                    thread::spawn(move || copy(&mut from, &mut to, &all));
                }
            }
        });
        Self {
            addr,
            heard,
            connections,
        }
    }

    fn hears(&self, what: &[u8]) -> bool {
        // What is said meanwhile doesn't wait for the search.
        let heard = self.heard.lock().unwrap().clone();
        contains(&heard, what)
    }
}

/// Whether bytes are in others, by the algorithm of Boyer, Moore and Horspool: a transfer goes on
/// for many blocks while each byte is looked at without optimisation.
fn contains(all: &[u8], what: &[u8]) -> bool {
    let last = what.len() - 1;
    let mut skip = [what.len(); 256];
    for (at, byte) in what[..last].iter().enumerate() {
        skip[usize::from(*byte)] = last - at;
    }
    let mut at = 0;
    while let Some(part) = all.get(at..at + what.len()) {
        if part == what {
            return true;
        }
        at += skip[usize::from(part[last])];
    }
    false
}

fn copy(from: &mut TcpStream, to: &mut TcpStream, all: &Mutex<Vec<u8>>) -> io::Result<()> {
    let mut chunk = vec![0; 64 << 10];
    loop {
        let n = from.read(&mut chunk)?;
        if n == 0 {
            return to.shutdown(std::net::Shutdown::Write);
        }
        all.lock().unwrap().extend_from_slice(&chunk[..n]);
        to.write_all(&chunk[..n])?;
    }
}

fn both_ways(visit: &Visit, world: &World, source: &Path) {
    visit.upload(source, NAME).unwrap();
    same(source, &world.path("root").join(NAME));
    let target = world.path("client/back");
    visit.download(NAME, &target).unwrap();
    same(source, &target);
}

#[test]
fn payload_is_heard_only_at_the_level_that_was_asked_for() {
    for clear in [false, true] {
        let world = world(true);
        let source = source(&world, 3 << 20);
        let tap = Tap::new(world.addr);
        let visit = world
            .visit("", vec![world.owner_key()])
            .at(tap.addr)
            .channels(3);
        let visit = if clear { visit.clear() } else { visit };
        both_ways(&visit, &world, &source);
        assert_eq!(tap.hears(MARK), clear, "clear: {clear}");
        // Names, and who it is, stay private.
        assert!(!tap.hears(NAME.as_bytes()) && !tap.hears(b"ssh-ed25519"));
    }
}

#[test]
fn a_server_that_wants_private_payload_gets_no_other() {
    let world = world(false);
    let source = source(&world, 2 << 20);
    let visit = small_blocks(world.visit("", vec![world.owner_key()]));
    let fault = visit.clone().clear().upload(&source, NAME).unwrap_err();
    assert_eq!(fault.code, Code::ProtectionRefused, "{fault}");
    assert!(fault.hint.contains("--protect clear"), "{fault}");
    world.nothing_published();

    // A change in the middle is refused too, and the file isn't published in another way.
    let client = visit.connect().unwrap();
    let place = LocalPlace::Path(source.clone());
    let options = visit.clone().rate(1 << 20).transfer();
    let mut transfer = client.upload(&place, NAME.as_bytes(), &options).unwrap();
    wait_for_bytes(&mut transfer, 1);
    client.protect(Level::Clear).unwrap();
    let fault = finish(transfer).unwrap_err();
    assert_eq!(fault.code, Code::ProtectionRefused, "{fault}");
    world.nothing_published();
    // The server may still make durable what it has of the refused one.
    let start = Instant::now();
    while let Err(fault) = visit.upload(&source, NAME) {
        assert_eq!(fault.code, Code::Busy, "{fault}");
        assert!(start.elapsed() < PATIENCE, "{fault}");
        thread::sleep(Duration::from_millis(100));
    }
    same(&source, &world.path("root").join(NAME));
}

#[test]
fn the_level_changes_in_the_middle_of_a_file() {
    for up in [true, false] {
        // Much more than what is in flight, which a server has sent before it hears of a change.
        let world = world(true);
        let source = source(&world, 24 << 20);
        let tap = Tap::new(world.addr);
        let visit = world
            .visit("", vec![world.owner_key()])
            .at(tap.addr)
            .channels(3);
        let mut visit = small_blocks(visit);
        visit.options.window = Some(WINDOW);
        let client = visit.connect().unwrap();
        let options = visit.clone().rate(24 << 20).transfer();
        let target = world.path("client/back");
        let mut transfer = if up {
            let place = LocalPlace::Path(source.clone());
            client.upload(&place, NAME.as_bytes(), &options).unwrap()
        } else {
            fs::copy(&source, world.path("root").join(NAME)).unwrap();
            let place = LocalPlace::Path(target.clone());
            client.download(NAME.as_bytes(), &place, &options).unwrap()
        };
        wait_for_bytes(&mut transfer, 1 << 20);
        assert!(!tap.hears(MARK));
        client.protect(Level::Clear).unwrap();
        wait_for_bytes(&mut transfer, 14 << 20);
        assert!(tap.hears(MARK));
        client.protect(Level::Private).unwrap();
        client.protect(Level::Clear).unwrap();
        client.protect(Level::Private).unwrap();
        wait_for_bytes(&mut transfer, 20 << 20);
        let result = finish(transfer).unwrap();
        // No channel broke. What a busy machine delivers late may be sent again all the same.
        assert_eq!(tap.connections.load(Ordering::Relaxed), 3, "{result:?}");
        same(
            &source,
            &if up {
                world.path("root").join(NAME)
            } else {
                target
            },
        );
        // A later file of the session is private again.
        tap.heard.lock().unwrap().clear();
        let place = LocalPlace::Path(source.clone());
        let options = visit.transfer();
        finish(client.upload(&place, b"other", &options).unwrap()).unwrap();
        assert!(!tap.hears(MARK));
    }
}

/// A changed bit in clear payload is found by its check value, and the block sent again. In private
/// payload it breaks the channel.
#[test]
fn a_changed_bit_of_clear_payload_heals() {
    let world = world(true);
    let source = source(&world, 2 << 20);
    let proxy = FaultProxy::new(world.addr).unwrap();
    let key = world.owner_key();
    let visit = world
        .visit("", vec![key])
        .at(proxy.addr())
        .channels(1)
        .clear();
    let visit = small_blocks(visit);
    let flip = Flip {
        byte: 1_000_000,
        bit: 3,
    };
    proxy.push_plan(Plan::up(|f| f.flip = Some(flip)));
    let result = visit.upload(&source, NAME).unwrap();
    assert!(result.retransmitted_bytes > 0, "{result:?}");
    same(&source, &world.path("root").join(NAME));
}

#[test]
fn a_clear_transfer_goes_on_after_lost_channels() {
    let world = world(true);
    let source = source(&world, 8 << 20);
    let visit = world.visit("", vec![world.owner_key()]).channels(8).clear();
    let mut visit = small_blocks(visit);
    visit.options.strict = true;
    let client = visit.connect().unwrap();
    let options = visit.rate(16 << 20).transfer();
    let place = LocalPlace::Path(source.clone());
    let mut transfer = client.upload(&place, NAME.as_bytes(), &options).unwrap();
    // All eight are there at the start, so that some are left however long new ones take.
    for part in 1..4 {
        wait_for_bytes(&mut transfer, part << 20);
        client.break_channel();
        client.leave_channel();
    }
    finish(transfer).unwrap();
    same(&source, &world.path("root").join(NAME));
}

#[test]
fn a_digest_that_cannot_be_forged_works_with_clear_payload() {
    let world = world(true);
    let source = source(&world, 1 << 20);
    let visit = world.visit("", vec![world.owner_key()]).channels(2).clear();
    let client = visit.connect().unwrap();
    let mut options = visit.transfer();
    options.parameters.digest = Some(DigestKind::Blake3);
    let place = LocalPlace::Path(source.clone());
    finish(client.upload(&place, NAME.as_bytes(), &options).unwrap()).unwrap();
    same(&source, &world.path("root").join(NAME));
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn key_path(credential: &Credential) -> PathBuf {
    match credential {
        Credential::Key(path) => path.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_cannot_bring_a_server_down_to_clear() {
    let clear_block = BlockHeader {
        file: FileId(1),
        check: 0,
        clear: true,
        offset: 0,
        length: 100,
    };
    let announced = encoded(&Frame::Protect(frame::Level::Clear));
    let block = clear_block.encode().to_vec();
    let between = [&announced[..], &block, &encoded(&Frame::Noop)].concat();
    let cases = [
        // The server takes none.
        (false, announced, Code::ProtectionRefused),
        (false, block.clone(), Code::ProtectionRefused),
        // It does, but it was not announced.
        (true, block, Code::ProtectionRefused),
        // Protected bytes between the header and the payload.
        (true, between, Code::ProtocolViolation),
    ];
    for (takes_clear, bytes, code) in cases {
        let world = world(takes_clear);
        let key = key_path(&world.owner_key());
        let (mut raw, _, _) = register(world.addr, &world.trust(), &key);
        raw.send(&bytes);
        let fault = raw.exception();
        assert_eq!(fault.code, code, "{fault}");
    }
}

/// A server that says, or does, what nobody asked for; the fault that its client ends with.
fn evil_server(words: &'static [u8], asked: Level) -> Fault {
    let world = world(true);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let identity = ServerIdentity::load_or_make(&world.path("relay"), &["localhost".into()]);
    let config = identity.unwrap().config(ClientCertificates::None).unwrap();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).unwrap();
        }
        let mut stream = StreamOwned::new(connection, socket);
        let mut machine = Acceptor::protected(&[1], true);
        let (mut input, mut out) = (Vec::new(), Vec::new());
        loop {
            let (step, used) = machine
                .receive(&input, &Limits::default(), &mut out)
                .unwrap();
            input.drain(..used);
            match step {
                AcceptorStep::Auth(_) => machine.proved("x".into(), &mut out),
                AcceptorStep::Session(request) => {
                    Frame::SessionOk(SessionAccept {
                        secret: SessionSecret([1; 16]),
                        channels: 1,
                        block_size: request.block_size,
                        window: 0,
                    })
                    .encode(&mut out);
                    out.extend_from_slice(words);
                    stream.write_all(&out).unwrap();
                    stream.flush().unwrap();
                    // Until the client has had enough. Its requests follow SESSION at once.
                    while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {}
                    return;
                }
                _ if used == 0 => {
                    stream.write_all(&out).unwrap();
                    stream.flush().unwrap();
                    out.clear();
                    let mut chunk = [0; 4096];
                    // Until the client has had enough.
                    match stream.read(&mut chunk) {
                        Ok(n) if n > 0 => input.extend_from_slice(&chunk[..n]),
                        _ => return,
                    }
                }
                _ => {}
            }
        }
    });
    let source = source(&world, 1000);
    let mut visit = world.visit("", vec![Credential::Anonymous]).at(addr);
    visit.options.security.as_mut().unwrap().level = asked;
    let fault = visit.upload(&source, NAME).unwrap_err();
    server.join().unwrap_or_default();
    fault
}

#[test]
fn a_server_cannot_bring_a_client_down_to_clear() {
    // PROTECT clear.
    let word: &[u8] = &[0x0a, 0, 0, 0, 0, 0, 0, 1, 1];
    let fault = evil_server(word, Level::Private);
    assert_eq!(fault.code, Code::ProtectionRefused, "{fault}");
    // The answer to one that was asked, and another that nobody asked for.
    let twice: &[u8] = &[0x0a, 0, 0, 0, 0, 0, 0, 1, 1, 0x0a, 0, 0, 0, 0, 0, 0, 1, 1];
    let fault = evil_server(twice, Level::Clear);
    assert_eq!(fault.code, Code::ProtectionRefused, "{fault}");
    // A block of 100 bytes in the clear.
    let block = BlockHeader {
        file: FileId(1),
        check: 0,
        clear: true,
        offset: 0,
        length: 100,
    };
    let fault = evil_server(block.encode().to_vec().leak(), Level::Private);
    assert_eq!(fault.code, Code::ProtectionRefused, "{fault}");
}
