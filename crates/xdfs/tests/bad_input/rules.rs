//! What the protocol allows or forbids and the project's own client never does: transfers of
//! unknown length that go on, holes in journals, numbers of both directions, targets offered again
//! at once, and the end by an exception.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use xdfs::{Code, Fault, LocalPlace, TransferOptions};
use xdfs_proto::frame::{
    Accept, Ack, Cancel, Eofr, Exception, Frame, Offer, Request, Scope, TimeAccount,
};
use xdfs_proto::{ByteRange, DigestKind, FileId, Side};

use crate::peer::{BLOCK, Heard, Peer, accept, digest, eofr, hole, offer, session_ok};
use crate::stage::Stage;
use crate::support::{Folders, client, finish};

const LENGTH: u64 = 2 * BLOCK as u64 + 100;

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

/// Waits for the acknowledgement of so many data frames.
#[track_caller]
fn acknowledged(peer: &mut Peer, count: u64) {
    loop {
        match peer.next() {
            Heard::Frame(Frame::Ack(Ack { data_frames })) if data_frames >= count => return,
            Heard::Frame(Frame::Ack(_) | Frame::Noop | Frame::Durable(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Offers a file in a new session until the one before has left its target.
#[track_caller]
fn offered_again(addr: SocketAddr, offer: &Offer) -> (Peer, Accept) {
    loop {
        let (mut peer, ..) = Peer::in_session(addr, 1);
        peer.send(&Frame::Xftsmu(offer.clone()));
        match peer.frame() {
            Frame::Accept(accept) => return (peer, accept),
            Frame::Exception(Exception { fault, .. }) if fault.code == Code::Busy => {
                thread::yield_now();
            }
            other => panic!("{other:?}"),
        }
    }
}

fn ranges(accept: &Accept) -> Vec<ByteRange> {
    accept.durable.iter().map(|f| f.range).collect()
}

#[test]
fn a_transfer_of_unknown_length_goes_on_before_its_short_block() {
    let stage = Stage::new(900);
    let addr = stage.server.addr;
    let content = vec![5; LENGTH as usize];
    let block = BLOCK as usize;
    for (path, first) in [("/all", 0), ("/alone", 2)] {
        let offer = offer(path, None);
        let (mut peer, _) = offered_again(addr, &offer);
        for (number, payload) in content.chunks(block).enumerate().skip(first) {
            peer.block((number * block) as u64, payload);
        }
        acknowledged(&mut peer, 3 - first as u64);
        drop(peer);
        // Twice: what is listed stays so.
        for _ in 0..2 {
            let (peer, accept) = offered_again(addr, &offer);
            let listed = [range(0, 2 * u64::from(BLOCK))];
            let expected: &[ByteRange] = match first {
                0 => &listed,
                _ => &[],
            };
            assert_eq!(ranges(&accept), expected, "{path}");
            drop(peer);
        }
        let (mut peer, accept) = offered_again(addr, &offer);
        for (number, payload) in content.chunks(block).enumerate() {
            let at = (number * block) as u64;
            if ranges(&accept).iter().all(|r| r.end <= at) {
                peer.block(at, payload);
            }
        }
        peer.send(&eofr(LENGTH, digest(&content)));
        let answer = peer.frame();
        assert!(matches!(answer, Frame::Published(_)), "{answer:?}");
        let there = stage.folders.there(path.trim_start_matches('/'));
        assert_eq!(std::fs::read(there).unwrap(), content);
    }
    stage.still_serves();
}

#[test]
fn a_hole_is_recorded_like_a_block() {
    let stage = Stage::new(901);
    let block = u64::from(BLOCK);
    for (path, digest) in [
        ("/crc", DigestKind::Crc64Nvme),
        ("/blake3", DigestKind::Blake3),
        ("/none", DigestKind::None),
    ] {
        let offer = Offer {
            sparse: true,
            digest,
            ..offer(path, Some(1 << 30))
        };
        let (mut peer, _) = offered_again(stage.server.addr, &offer);
        let payload = vec![6; BLOCK as usize];
        let end = block + (4 << 20);
        peer.block(0, &payload);
        peer.send(&hole(block, end));
        peer.block(end, &payload);
        // A hole at the end, behind which nothing is written.
        peer.send(&hole(end + 4 * block, end + 8 * block));
        acknowledged(&mut peer, 4);
        drop(peer);
        let (_, accept) = offered_again(stage.server.addr, &offer);
        let mut listed = xdfs_proto::RangeSet::new();
        ranges(&accept).into_iter().for_each(|r| listed.insert(r));
        let expected = [
            range(0, end + block),
            range(end + 4 * block, end + 8 * block),
        ];
        assert_eq!(listed.as_slice(), expected, "{path}");
    }
    stage.still_serves();
}

fn request(file: u32) -> Frame {
    Frame::Xftsm(Request {
        file: FileId(file),
        path: b"/source".to_vec(),
        offset: 0,
        length: None,
        digest: DigestKind::Crc64Nvme,
        pack: None,
    })
}

fn numbered(file: u32) -> Frame {
    Frame::Xftsmu(Offer {
        file: FileId(file),
        ..offer(&format!("/target{file}"), Some(0))
    })
}

/// A number names one file, whichever direction it moves in: CANCEL and exceptions tell no more.
#[test]
fn a_number_is_of_one_direction() {
    let stage = Stage::new(902);
    let addr = stage.server.addr;
    stage.folders.make_there("source", 10);
    let is_violation = |peer: &mut Peer| {
        assert_eq!(peer.session_exception().code, Code::ProtocolViolation);
    };
    // Open, and published.
    let mut peer = Peer::offering(addr, "/open", Some(1));
    peer.send(&request(1));
    is_violation(&mut peer);
    let mut peer = Peer::offering(addr, "/published", Some(0));
    peer.send(&eofr(0, digest(&[])));
    assert!(matches!(peer.frame(), Frame::Published(_)));
    peer.send(&request(1));
    is_violation(&mut peer);
    let (mut peer, ..) = Peer::in_session(addr, 1);
    peer.send(&request(1));
    assert!(matches!(peer.frame(), Frame::Offer(_)));
    peer.send(&numbered(1));
    is_violation(&mut peer);
    // A number that counts as used, and of which nothing is known.
    let is_forgotten = |peer: &mut Peer, file| {
        let (scope, fault) = peer.exception();
        assert_eq!(
            (scope, fault.code),
            (Scope::File(FileId(file)), Code::LimitExceeded)
        );
    };
    let (mut peer, ..) = Peer::in_session(addr, 1);
    peer.send(&numbered(u32::MAX));
    assert!(matches!(peer.frame(), Frame::Accept(_)));
    peer.send(&request(4));
    is_forgotten(&mut peer, 4);
    let (mut peer, ..) = Peer::in_session(addr, 1);
    peer.send(&request(2000));
    assert!(matches!(peer.frame(), Frame::Offer(_)));
    peer.send(&numbered(4));
    is_forgotten(&mut peer, 4);
    // One that may still come.
    peer.send(&numbered(1999));
    assert!(matches!(peer.frame(), Frame::Accept(_)));
    stage.still_serves();
}

/// A client that has read the last answer for a file may offer its target again.
#[test]
fn a_target_is_free_when_its_file_has_ended() {
    let stage = Stage::new(903);
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    let payload = vec![7; BLOCK as usize];
    for number in 1..=20 {
        let file = FileId(number);
        peer.send(&Frame::Xftsmu(Offer {
            file,
            ..offer("/again", Some(u64::from(BLOCK)))
        }));
        let answer = peer.frame();
        assert!(matches!(answer, Frame::Accept(_)), "{number}: {answer:?}");
        match number % 3 {
            0 => peer.send(&Frame::Cancel(Cancel { file })),
            1 => {
                let fault = Fault::new(Code::SourceChanged, "read", "it shrank");
                let scope = Scope::File(file);
                peer.send(&Frame::Exception(Exception { scope, fault }));
            }
            // All of it comes, and its digest is wrong: it is thrown away.
            _ => {
                peer.block_of(file, 0, &payload);
                peer.send(&Frame::Eofr(Eofr {
                    file,
                    length: u64::from(BLOCK),
                    digest: digest(b"other"),
                    time: TimeAccount::default(),
                }));
            }
        }
        let answer = peer.frame();
        match answer {
            Frame::Cancel(_) if number % 3 < 2 => {}
            Frame::Exception(Exception { fault, .. }) if number % 3 == 2 => {
                assert_eq!(fault.code, Code::IntegrityMismatch);
            }
            other => panic!("{number}: {other:?}"),
        }
    }
    stage.still_serves();
}

fn session_exception() -> Frame {
    Frame::Exception(Exception {
        scope: Scope::Session,
        fault: Fault::new(Code::Internal, "go on", "it can't"),
    })
}

/// Nothing is said any more to a peer that has ended the session.
#[test]
fn an_exception_of_the_session_gets_no_answer() {
    let stage = Stage::new(904);
    let mut peer = Peer::offering(stage.server.addr, "/open", Some(1));
    peer.send(&session_exception());
    assert!(matches!(peer.next(), Heard::End));
    stage.still_serves();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut peer = accept(&listener);
        peer.read_hello();
        peer.welcome();
        assert!(matches!(peer.frame(), Frame::Session(_)));
        peer.send(&session_ok(1, BLOCK));
        assert!(matches!(peer.frame(), Frame::Xftsmu(_)));
        peer.send(&session_exception());
        assert!(matches!(peer.next(), Heard::End));
    });
    let folders = Folders::new(905);
    let source = LocalPlace::Path(folders.make_here("source", 10));
    let client = client(addr, |options| options.channels = Some(1));
    let options = TransferOptions::default();
    let fault = finish(client.upload(&source, b"/x", &options).unwrap()).unwrap_err();
    assert_eq!(
        (fault.code, fault.side),
        (Code::Internal, Side::Remote),
        "{fault}"
    );
    server.join().unwrap();
}
