//! Peers that say nothing, or next to nothing, at every step: each wait has a deadline.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use xdfs::{Client, Code, Fault, LocalPlace, Side, TransferOptions};
use xdfs_proto::FileId;
use xdfs_proto::frame::{Accept, Frame, Offer};
use xdfs_proto::opening::Hello;

use crate::peer::{Peer, accept, block_header, digest, eofr, join, offer, session_ok};
use crate::stage::{Stage, assert_fault, short_limits};
use crate::support::{Folders, client, finish};

/// Far more than any deadline here, also on a busy machine, and less than a silent channel has by
/// default.
const SOON: Duration = Duration::from_secs(45);
/// Time between two bytes of a peer that drips.
const DRIP: Duration = Duration::from_millis(150);

/// Fails if a deadline of the other side was not kept.
#[track_caller]
fn soon<T>(wait: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = wait();
    assert!(start.elapsed() < SOON, "it took {:?}", start.elapsed());
    result
}

fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    Hello::default().encode(&mut bytes);
    bytes
}

#[test]
fn nothing_after_the_connection() {
    let stage = Stage::impatient(100);
    let mut peer = Peer::connect(stage.server.addr);
    let fault = soon(|| peer.refusal());
    assert_fault(&fault, Code::DeadlineExceeded, Side::Remote, "");
    stage.still_serves();
}

#[test]
fn nothing_after_half_a_hello() {
    let stage = Stage::impatient(101);
    let mut peer = Peer::connect(stage.server.addr);
    peer.raw(&hello()[..9]);
    let fault = soon(|| peer.refusal());
    assert_fault(&fault, Code::DeadlineExceeded, Side::Remote, "");
    stage.still_serves();
}

#[test]
fn a_hello_byte_by_byte() {
    let stage = Stage::impatient(102);
    let mut peer = Peer::connect(stage.server.addr);
    peer.drip(&hello(), DRIP);
    let fault = soon(|| peer.refusal());
    assert_fault(&fault, Code::DeadlineExceeded, Side::Remote, "");
    stage.still_serves();
}

#[test]
fn nothing_after_hello() {
    let stage = Stage::impatient(103);
    let mut peer = Peer::greeted(stage.server.addr);
    let fault = soon(|| peer.channel_exception());
    assert_fault(&fault, Code::DeadlineExceeded, Side::Remote, "");
    stage.still_serves();
}

#[test]
fn a_session_request_byte_by_byte() {
    let stage = Stage::impatient(104);
    let mut peer = Peer::greeted(stage.server.addr);
    let mut bytes = Vec::new();
    Frame::Session(crate::peer::session_request(1)).encode(&mut bytes);
    peer.drip(&bytes, DRIP);
    let fault = soon(|| peer.channel_exception());
    assert_fault(&fault, Code::DeadlineExceeded, Side::Remote, "");
    stage.still_serves();
}

#[test]
fn nothing_after_session() {
    let stage = Stage::impatient(105);
    let (mut peer, id, accepted) = Peer::in_session(stage.server.addr, 2);
    let fault = soon(|| peer.session_exception());
    assert_fault(&fault, Code::DeadlineExceeded, Side::Remote, "");
    // And the session is gone.
    let mut late = Peer::greeted(stage.server.addr);
    late.send(&join(id, accepted.secret, 1));
    assert_eq!(late.channel_exception().code, Code::SessionUnknown);
    stage.still_serves();
}

#[test]
fn nothing_after_the_offer() {
    let stage = Stage::impatient(106);
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(10_000));
    let fault = soon(|| peer.session_exception());
    assert_fault(&fault, Code::DeadlineExceeded, Side::Remote, "");
    stage.nothing_published("file");
}

#[test]
fn nothing_more_in_the_middle_of_a_block() {
    let stage = Stage::impatient(107);
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(10_000));
    peer.block(0, &[1; 4096]);
    peer.raw(&block_header(4096, &[2; 4096]).encode());
    peer.raw(&[2; 1000]);
    let fault = soon(|| peer.session_exception());
    assert!(
        matches!(fault.code, Code::DeadlineExceeded | Code::ConnectionLost),
        "{fault}"
    );
    stage.nothing_published("file");
}

#[test]
fn a_block_byte_by_byte() {
    let stage = Stage::impatient(108);
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(10_000));
    peer.raw(&block_header(0, &[2; 4096]).encode());
    soon(|| peer.drip(&[2; 4096], DRIP));
    let (_, fault) = soon(|| peer.exception());
    assert_fault(&fault, Code::DeadlineExceeded, Side::Remote, "");
    stage.nothing_published("file");
}

#[test]
fn a_frame_byte_by_byte() {
    let stage = Stage::impatient(109);
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    let mut bytes = Vec::new();
    Frame::Xftsmu(offer("/file", Some(1))).encode(&mut bytes);
    soon(|| peer.drip(&bytes, DRIP));
    let (_, fault) = soon(|| peer.exception());
    assert_fault(&fault, Code::DeadlineExceeded, Side::Remote, "");
    stage.nothing_published("file");
}

#[test]
fn nothing_after_an_end_that_came_too_early() {
    let stage = Stage::impatient(110);
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(8192));
    peer.block(0, &[1; 4096]);
    peer.send(&eofr(8192, digest(&[1; 8192])));
    let fault = soon(|| peer.session_exception());
    assert_fault(&fault, Code::DeadlineExceeded, Side::Remote, "");
    stage.nothing_published("file");
}

#[test]
fn nothing_read_of_a_download() {
    let stage = Stage::impatient(111);
    stage.folders.make_there("big", 64 << 20);
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    peer.send(&Frame::Xftsm(xdfs_proto::frame::Request {
        file: FileId(1),
        path: b"/big".to_vec(),
        offset: 0,
        length: None,
        digest: xdfs::DigestKind::Crc64Nvme,
        pack: None,
    }));
    assert!(matches!(peer.frame(), Frame::Offer(_)));
    peer.send(&Frame::Accept(Accept {
        file: FileId(1),
        path: Vec::new(),
        block_size: crate::peer::BLOCK,
        durable: Vec::new(),
    }));
    // Reads nothing for long, then what is there: the server gave up meanwhile.
    thread::sleep(Duration::from_millis(2500));
    soon(|| while !matches!(peer.next(), crate::peer::Heard::End) {});
    stage.still_serves();
}

/// Requests without end, whose answers nobody reads, don't fill the memory of the server.
#[test]
fn answers_that_are_never_read() {
    let stage = Stage::new(115);
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    let mut sent = 0;
    let ended = (1..=1_000_000).any(|n| {
        let mut bytes = Vec::new();
        Frame::Xftsm(xdfs_proto::frame::Request {
            file: FileId(n),
            path: b"/absent".to_vec(),
            offset: 0,
            length: None,
            digest: xdfs::DigestKind::None,
            pack: None,
        })
        .encode(&mut bytes);
        sent += bytes.len();
        !peer.try_raw(&bytes)
    });
    assert!(ended, "the server took {sent} bytes of requests");
    stage.still_serves();
}

/// Many that connect and say nothing keep nobody else out.
#[test]
fn a_crowd_that_says_nothing() {
    let stage = Stage::new(116);
    let crowd: Vec<Peer> = (0..300).map(|_| Peer::connect(stage.server.addr)).collect();
    stage.still_serves();
    drop(crowd);
}

/// How far a server goes before it falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Connection,
    HalfWelcome,
    Welcome,
    Session,
    /// ACCEPT of an upload, OFFER of a download.
    Answer,
    /// Only a download: half a block.
    Block,
}

/// Serves one client up to a step, and then holds the connection open until the client is gone.
fn fall_silent(listener: &TcpListener, step: Step) {
    let mut peer = accept(listener);
    if step == Step::HalfWelcome {
        peer.raw(&[0xf8, b'x', b'D']);
    }
    if step >= Step::Welcome {
        peer.read_hello();
        peer.welcome();
    }
    if step >= Step::Session {
        assert!(matches!(peer.frame(), Frame::Session(_)));
        peer.send(&session_ok(1, 4096));
    }
    if step >= Step::Answer {
        match peer.frame() {
            Frame::Xftsmu(offer) => peer.send(&Frame::Accept(Accept {
                file: offer.file,
                path: offer.path,
                block_size: 4096,
                durable: Vec::new(),
            })),
            Frame::Xftsm(request) => peer.send(&Frame::Offer(Offer {
                file: request.file,
                path: Vec::new(),
                ..offer("", Some(10_000))
            })),
            other => panic!("{other:?}"),
        }
    }
    if step == Step::Block {
        assert!(matches!(peer.frame(), Frame::Accept(_)));
        peer.raw(&block_header(0, &[1; 4096]).encode());
        peer.raw(&[1; 77]);
    }
    peer.hold();
}

/// Runs a transfer against such a server and returns its fault.
#[track_caller]
fn against(step: Step, transfer: impl FnOnce(&Client) -> Result<xdfs::Transfer, Fault>) -> Fault {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| fall_silent(&listener, step));
        let client = client(addr, |options| {
            options.limits = short_limits();
            options.channels = Some(1);
            options.block_size = Some(4096);
        });
        let fault = soon(|| finish(transfer(&client).unwrap())).unwrap_err();
        assert!(
            matches!(fault.code, Code::DeadlineExceeded | Code::ConnectionLost),
            "{step:?}: {fault}"
        );
        assert_eq!(fault.side, Side::Local, "{step:?}: {fault}");
        fault
    })
}

#[test]
fn a_silent_server_of_an_upload() {
    let folders = Folders::new(112);
    let source = LocalPlace::Path(folders.make_here("file", 10_000));
    let options = TransferOptions::default();
    for step in [
        Step::Connection,
        Step::HalfWelcome,
        Step::Welcome,
        Step::Session,
        Step::Answer,
    ] {
        let fault = against(step, |client| client.upload(&source, b"/file", &options));
        assert!(!fault.hint.is_empty(), "{step:?}: {fault}");
    }
}

#[test]
fn a_silent_server_of_a_download() {
    let folders = Folders::new(113);
    let target = LocalPlace::Path(folders.here("file"));
    let options = TransferOptions::default();
    for step in [Step::Session, Step::Answer, Step::Block] {
        against(step, |client| client.download(b"/file", &target, &options));
        assert!(!folders.here("file").exists());
    }
}

#[test]
fn no_server_at_all() {
    let folders = Folders::new(114);
    let source = LocalPlace::Path(folders.make_here("file", 10));
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let client = client(free, |_| {});
    let transfer = client.upload(&source, b"/file", &TransferOptions::default());
    // The session may have ended before the transfer was asked for; both say the same.
    let fault = transfer.and_then(finish).unwrap_err();
    assert_eq!(fault.code, Code::ConnectionRefused, "{fault}");
    assert!(fault.operation.contains(&free.to_string()), "{fault}");
}
