//! Blocks, holes and ends that don't fit their file, from a hostile initiator and from a hostile
//! acceptor.

use std::net::TcpListener;
use std::thread;

use xdfs::{
    Call, Code, DigestKind, Fault, LocalPlace, Retry, Side, TransferOptions, TransferParameters,
    TransferResult,
};
use xdfs_proto::digest::{Fragment, FragmentState};
use xdfs_proto::frame::{
    Accept, Ack, AnswerPart, CallRequest, Cancel, Eofr, Exception, Frame, Offer, Published, Repeat,
    Request, Resume, Scope, TimeAccount,
};
use xdfs_proto::{ByteRange, FileId};

use crate::peer::{Peer, accept, block_header, digest, eofr, hole, join, offer, session_ok};
use crate::stage::{OLD, Stage, assert_fault, assert_old, make_old};
use crate::support::{Folders, client, finish, hidden_names};

/// Offers a file of 10,000 bytes over an old target, misbehaves, and returns the fault that ends
/// the session.
#[track_caller]
fn session_fault(seed: u64, misbehave: impl FnOnce(&mut Peer)) -> Fault {
    // A misdeed that isn't noticed shows soon.
    let stage = Stage::impatient(seed);
    make_old(&stage.folders.there("file"));
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    peer.send(&Frame::Xftsmu(Offer {
        overwrite: true,
        ..offer("/file", Some(10_000))
    }));
    assert!(matches!(peer.frame(), Frame::Accept(_)));
    misbehave(&mut peer);
    let fault = peer.session_exception();
    assert_eq!(fault.side, Side::Remote);
    assert_eq!(std::fs::read(stage.folders.there("file")).unwrap(), OLD);
    stage.still_serves();
    fault
}

#[test]
fn a_block_past_the_end() {
    for offset in [8192, 12288, 1 << 40] {
        let fault = session_fault(200, |peer| peer.block(offset, &[1; 4096]));
        assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
        assert!(fault.cause.contains("past the end"), "{fault}");
    }
}

#[test]
fn a_block_whose_end_overflows() {
    let fault = session_fault(201, |peer| {
        peer.raw(&block_header(u64::MAX - 100, &[1; 4096]).encode());
        peer.raw(&[1; 4096]);
    });
    assert_eq!(fault.code, Code::MalformedFrame, "{fault}");
}

#[test]
fn a_hole_that_overflows_or_lies_past_the_end() {
    for (start, end) in [(0, u64::MAX), (8192, 12_288), (0, 1 << 31), (0, 0)] {
        let fault = session_fault(202, |peer| peer.send(&hole(start, end)));
        assert!(
            matches!(fault.code, Code::ProtocolViolation | Code::MalformedFrame),
            "{fault}"
        );
    }
    // An end before its start can't be written by the codec.
    let fault = session_fault(203, |peer| {
        let mut bytes = Vec::new();
        hole(0, 4096).encode(&mut bytes);
        let n = bytes.len();
        bytes[n - 16..n - 8].copy_from_slice(&u64::MAX.to_be_bytes());
        peer.raw(&bytes);
    });
    assert!(
        matches!(fault.code, Code::ProtocolViolation | Code::MalformedFrame),
        "{fault}"
    );
}

#[test]
fn blocks_that_overlap() {
    // Off the grid, and a short one in the middle.
    for (offset, len) in [(2048, 4096), (1, 1), (0, 100)] {
        let fault = session_fault(204, |peer| {
            peer.block(0, &[1; 4096]);
            peer.block(offset, &vec![2; len]);
        });
        assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
    }
}

/// What is held stays: only the rest of the region is taken as zeros, and reads as zeros whatever
/// damaged block was written there before.
#[test]
fn a_hole_over_what_is_held() {
    let stage = Stage::new(205);
    let mut content = content();
    content[4096..8192].fill(0);
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(10_000));
    send_block(&mut peer, &content, 0);
    send_block(&mut peer, &content, 2);
    let mut damaged = block_header(4096, &[7; 4096]);
    damaged.check ^= 1;
    peer.raw(&damaged.encode());
    peer.raw(&[7; 4096]);
    assert!(matches!(peer.frame(), Frame::Repeat(_)));
    peer.send(&hole(0, 8192));
    peer.send(&eofr(10_000, digest(&content)));
    assert!(matches!(peer.frame(), Frame::Published(_)));
    assert!(std::fs::read(stage.folders.there("file")).unwrap() == content);
    stage.still_serves();
}

/// What a header says that was changed on the way isn't believed, and no payload awaited: the
/// channel is given up, and the peer told why.
#[test]
fn a_header_that_was_changed_on_the_way() {
    let stage = Stage::new(228);
    for byte in 0..24 {
        let mut peer = Peer::offering(stage.server.addr, &format!("/file{byte}"), Some(10_000));
        let mut header = block_header(4096, &[7; 4096]).encode();
        header[byte] ^= 1 << (byte % 8);
        peer.raw(&header);
        let Frame::Exception(Exception { scope, fault }) = peer.frame() else {
            panic!("byte {byte}");
        };
        assert_eq!(scope, Scope::Channel);
        assert_eq!(fault.code, Code::IntegrityMismatch, "{fault}");
    }
    stage.still_serves();
}

/// A path that damages whatever it is given isn't tried for ever.
#[test]
fn headers_that_were_changed_on_many_channels() {
    let stage = Stage::new(229);
    let (mut first, id, accept) = Peer::in_session(stage.server.addr, 16);
    let mut header = block_header(4096, &[7; 4096]).encode();
    header[17] ^= 1;
    for channel in 1..=9 {
        let mut peer = Peer::greeted(stage.server.addr);
        peer.send(&join(id, accept.secret, channel));
        assert_eq!(peer.frame(), Frame::JoinOk);
        peer.raw(&header);
        let fault = match channel {
            // The end of a session is said on any channel.
            9 => first.session_exception(),
            _ => peer.channel_exception(),
        };
        assert_eq!(fault.code, Code::IntegrityMismatch, "{fault}");
    }
    stage.still_serves();
}

#[test]
fn a_block_larger_than_the_sessions() {
    let fault = session_fault(206, |peer| peer.block(0, &[1; 8192]));
    assert_eq!(fault.code, Code::FrameTooLarge, "{fault}");
}

#[test]
fn a_block_of_a_file_that_was_never_offered() {
    let fault = session_fault(207, |peer| {
        let mut header = block_header(0, &[1; 4096]);
        header.file = FileId(77);
        peer.raw(&header.encode());
        peer.raw(&[1; 4096]);
    });
    assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
}

#[test]
fn ends_that_contradict() {
    let zeros = digest(&[0; 10_000]);
    for length in [9_999, 10_001, 0, u64::MAX] {
        let fault = session_fault(208, |peer| peer.send(&eofr(length, zeros)));
        assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
    }
    let fault = session_fault(209, |peer| {
        peer.send(&eofr(10_000, zeros));
        peer.send(&eofr(10_000, digest(b"another")));
    });
    assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
}

#[test]
fn an_offer_that_comes_again_as_another() {
    let fault = session_fault(210, |peer| {
        peer.send(&Frame::Xftsmu(offer("/file", Some(10_001))));
    });
    assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
}

#[test]
fn more_files_at_once_than_allowed() {
    let stage = Stage::with(211, |server| server.limits.open_files_max = 3);
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    for n in 1..=4 {
        peer.send(&Frame::Xftsmu(Offer {
            file: FileId(n),
            ..offer(&format!("/{n}"), Some(10))
        }));
        if n <= 3 {
            assert!(matches!(peer.frame(), Frame::Accept(_)));
        }
    }
    let (_, fault) = peer.exception();
    assert_fault(&fault, Code::LimitExceeded, Side::Remote, "/4");
    // Rule S-33: the same may be offered here after that time, with a new number.
    assert!(matches!(fault.retry, Retry::AfterMs(_)), "{fault}");
    peer.send(&Frame::Cancel(Cancel { file: FileId(1) }));
    assert!(matches!(peer.frame(), Frame::Cancel(_)));
    peer.send(&Frame::Xftsmu(Offer {
        file: FileId(5),
        ..offer("/4", Some(10))
    }));
    assert!(matches!(peer.frame(), Frame::Accept(_)));
    stage.still_serves();
}

/// Content of three blocks, the last one short.
fn content() -> Vec<u8> {
    xdfs_testkit::tree::random_bytes(5, 10_000)
}

fn send_block(peer: &mut Peer, content: &[u8], n: usize) {
    let start = n * 4096;
    peer.block(
        start as u64,
        &content[start..content.len().min(start + 4096)],
    );
}

#[test]
fn blocks_that_come_twice_are_dropped() {
    let stage = Stage::new(212);
    let content = content();
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(10_000));
    for n in [2, 0, 0, 2, 1, 1] {
        send_block(&mut peer, &content, n);
    }
    // Others in the place of what is held change nothing.
    peer.block(0, &[9; 4096]);
    peer.send(&eofr(10_000, digest(&content)));
    match peer.frame() {
        Frame::Published(Published { length, .. }) => assert_eq!(length, 10_000),
        other => panic!("{other:?}"),
    }
    // Late ones change nothing either.
    peer.block(0, &[9; 4096]);
    peer.send(&Frame::Noop);
    assert!(std::fs::read(stage.folders.there("file")).unwrap() == content);
    stage.still_serves();
}

#[test]
fn a_wrong_check_value_is_asked_for_again() {
    let stage = Stage::new(213);
    let content = content();
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(10_000));
    let mut header = block_header(4096, &content[4096..8192]);
    header.check ^= 0x100;
    peer.raw(&header.encode());
    peer.raw(&content[4096..8192]);
    send_block(&mut peer, &content, 0);
    send_block(&mut peer, &content, 2);
    peer.send(&eofr(10_000, digest(&content)));
    match peer.frame() {
        Frame::Repeat(Repeat { range, .. }) => assert_eq!(
            range,
            ByteRange {
                start: 4096,
                end: 8192
            }
        ),
        other => panic!("{other:?}"),
    }
    assert!(!stage.folders.there("file").exists());
    send_block(&mut peer, &content, 1);
    assert!(matches!(peer.frame(), Frame::Published(_)));
    assert!(std::fs::read(stage.folders.there("file")).unwrap() == content);
    stage.still_serves();
}

#[test]
fn check_values_that_are_always_wrong_fail_the_file() {
    let stage = Stage::new(214);
    make_old(&stage.folders.there("old"));
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(10_000));
    let fault = loop {
        let mut header = block_header(0, &[1; 4096]);
        header.check ^= 1;
        peer.raw(&header.encode());
        peer.raw(&[1; 4096]);
        match peer.frame() {
            Frame::Repeat(_) => {}
            Frame::Exception(Exception { scope, fault }) => {
                assert_eq!(scope, Scope::File(FileId(1)));
                break fault;
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fault.code, Code::IntegrityMismatch, "{fault}");
    stage.nothing_published("file");
}

#[test]
fn a_wrong_digest_publishes_nothing() {
    let stage = Stage::new(215);
    let content = content();
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(10_000));
    for n in 0..3 {
        send_block(&mut peer, &content, n);
    }
    peer.send(&eofr(10_000, digest(b"of something else")));
    let (scope, fault) = peer.exception();
    assert_eq!(scope, Scope::File(FileId(1)));
    assert_eq!(fault.code, Code::IntegrityMismatch, "{fault}");
    assert!(!stage.folders.there("file").exists());
    // What can't be right is not kept for a resume.
    assert!(xdfs_testkit::wait::until(crate::support::PATIENCE, || {
        hidden_names(&stage.folders.root()).is_empty()
    }));
    // The session goes on with the next file.
    peer.send(&Frame::Xftsmu(Offer {
        file: FileId(2),
        ..offer("/empty", Some(0))
    }));
    assert!(matches!(peer.frame(), Frame::Accept(_)));
    stage.nothing_published("file");
}

#[test]
fn an_offset_of_the_user_past_the_end() {
    let stage = Stage::new(216);
    let here = stage.folders.make_here("file", 1000);
    stage.folders.make_there("there", 1000);
    let options = TransferOptions {
        offset: 1001,
        ..TransferOptions::default()
    };
    let client = stage.client();
    let fault = crate::support::upload(&client, &here, "/file", &options).unwrap_err();
    assert_fault(
        &fault,
        Code::OffsetPastEnd,
        Side::Local,
        here.as_os_str().as_encoded_bytes(),
    );
    let target = stage.folders.here("got");
    make_old(&target);
    let fault = crate::support::download(&client, "/there", &target, &options).unwrap_err();
    assert_fault(&fault, Code::OffsetPastEnd, Side::Remote, "/there");
    assert_old(&target);
    stage.nothing_published("file");
}

/// What a server does after a client has registered its session, told the first frame of the
/// transfer; how that ended for the client, and what stands at the target of a download then.
fn foreign_server(
    seed: u64,
    download: bool,
    options: &TransferOptions,
    behave: impl FnOnce(&mut Peer, Frame) + Send,
) -> (Result<TransferResult, Fault>, Vec<u8>) {
    let folders = Folders::new(seed);
    let source = folders.make_here("source", 10_000);
    let target = folders.here("target");
    make_old(&target);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut peer = accept(&listener);
            peer.read_hello();
            peer.welcome();
            assert!(matches!(peer.frame(), Frame::Session(_)));
            peer.send(&session_ok(1, 4096));
            let frame = peer.frame();
            behave(&mut peer, frame);
            peer.hold();
        });
        let client = client(addr, |options| {
            options.channels = Some(1);
            options.block_size = Some(4096);
        });
        let transfer = if download {
            client.download(b"/x", &LocalPlace::Path(target.clone()), options)
        } else {
            client.upload(&LocalPlace::Path(source), b"/x", options)
        };
        let result = finish(transfer.unwrap());
        drop(client);
        (result, std::fs::read(&target).unwrap())
    })
}

/// What a hostile server comes to: a fault at the client, whose target is as it was.
fn hostile_server(
    seed: u64,
    download: bool,
    misbehave: impl FnOnce(&mut Peer, Frame) + Send,
) -> Fault {
    let options = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let (result, target) = foreign_server(seed, download, &options, misbehave);
    assert_eq!(target, OLD);
    result.unwrap_err()
}

fn accept_of(frame: &Frame) -> Accept {
    match frame {
        Frame::Xftsmu(offer) => Accept {
            file: offer.file,
            path: offer.path.clone(),
            block_size: 4096,
            durable: Vec::new(),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_claims_what_it_cannot_have() {
    for (start, end) in [(0, 20_480), (12_288, 16_384), (1, 4096)] {
        let fault = hostile_server(217, false, move |peer, frame| {
            peer.send(&Frame::Accept(Accept {
                durable: vec![Fragment {
                    range: ByteRange { start, end },
                    state: FragmentState::Crc64Nvme(1),
                }],
                ..accept_of(&frame)
            }));
        });
        assert!(
            matches!(fault.code, Code::ProtocolViolation | Code::MalformedFrame),
            "{fault}"
        );
    }
}

#[test]
fn a_server_that_publishes_before_the_end() {
    let fault = hostile_server(218, false, |peer, frame| {
        peer.send(&Frame::Published(Published {
            file: accept_of(&frame).file,
            length: 10_000,
            digest: digest(b""),
            time: TimeAccount::default(),
            failures: xdfs_proto::pack::Failures::default(),
        }));
    });
    assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
}

#[test]
fn a_server_that_acknowledges_what_was_not_sent() {
    let fault = hostile_server(219, false, |peer, _| {
        peer.send(&Frame::Ack(Ack {
            data_frames: 1 << 40,
        }));
    });
    assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
}

#[test]
fn a_server_that_publishes_something_else() {
    let fault = hostile_server(220, false, |peer, frame| {
        let accept = accept_of(&frame);
        peer.send(&Frame::Accept(accept.clone()));
        assert!(matches!(peer.frame(), Frame::Eofr(_)));
        peer.send(&Frame::Published(Published {
            file: accept.file,
            length: 10_000,
            digest: digest(b"something else"),
            time: TimeAccount::default(),
            failures: xdfs_proto::pack::Failures::default(),
        }));
    });
    assert_eq!(fault.code, Code::IntegrityMismatch, "{fault}");
}

/// The bytes of a frame with a share that is larger than the whole.
fn with_too_large_a_share(frame: impl Fn(u16) -> Frame) -> Vec<u8> {
    let [none, mut all] = [0, 1000].map(|share| {
        let mut bytes = Vec::new();
        frame(share).encode(&mut bytes);
        bytes
    });
    for (byte, without) in all.iter_mut().zip(none) {
        if *byte != without {
            *byte = 0xff;
        }
    }
    all
}

/// The shares of the time are those of a transfer, whatever the peer says of its own.
#[track_caller]
fn assert_shares(result: Result<TransferResult, Fault>) {
    let shares = result.unwrap().time_shares;
    assert!(shares.iter().all(|(_, share)| (0.0..=1.0).contains(&share)));
    let sum: f64 = shares.iter().map(|(_, share)| share).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{shares:?}");
}

#[test]
fn a_server_that_says_it_only_waited_for_its_store() {
    let published = |end: &Eofr, share| {
        Frame::Published(Published {
            file: end.file,
            length: end.length,
            digest: end.digest,
            time: TimeAccount::of_store(share),
            failures: xdfs_proto::pack::Failures::default(),
        })
    };
    let end_of = |peer: &mut Peer, frame: &Frame| {
        peer.send(&Frame::Accept(accept_of(frame)));
        match peer.frame() {
            Frame::Eofr(end) => end,
            other => panic!("{other:?}"),
        }
    };
    let options = TransferOptions::default();
    let (result, _) = foreign_server(223, false, &options, |peer, frame| {
        let end = end_of(peer, &frame);
        peer.send(&published(&end, 1000));
    });
    assert_shares(result);
    let fault = hostile_server(224, false, |peer, frame| {
        let end = end_of(peer, &frame);
        peer.raw(&with_too_large_a_share(|share| published(&end, share)));
    });
    assert_eq!(fault.code, Code::MalformedFrame, "{fault}");
}

#[test]
fn a_server_that_says_it_only_waited_for_its_source() {
    let content = [7; 4096];
    let end = |share| {
        Frame::Eofr(Eofr {
            file: FileId(1),
            length: 4096,
            digest: digest(&content),
            time: TimeAccount::of_store(share),
        })
    };
    let give = |peer: &mut Peer, frame: &Frame| {
        assert!(matches!(frame, Frame::Xftsm(_)), "{frame:?}");
        peer.send(&Frame::Offer(offer("", Some(4096))));
        assert!(matches!(peer.frame(), Frame::Accept(_)));
        peer.block(0, &content);
    };
    let options = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let (result, target) = foreign_server(225, true, &options, |peer, frame| {
        give(peer, &frame);
        peer.send(&end(1000));
        assert!(matches!(peer.frame(), Frame::Published(_)));
    });
    assert_shares(result);
    assert_eq!(target, content);
    let fault = hostile_server(226, true, |peer, frame| {
        give(peer, &frame);
        peer.raw(&with_too_large_a_share(end));
    });
    assert_eq!(fault.code, Code::MalformedFrame, "{fault}");
}

#[test]
fn a_server_that_sends_what_was_not_asked_for() {
    let fault = hostile_server(221, true, |peer, _| {
        peer.send(&Frame::Xftsmu(offer("/etc/passwd", Some(4))));
    });
    assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
    let fault = hostile_server(222, true, |peer, _| {
        peer.send(&Frame::Offer(Offer {
            file: FileId(9),
            ..offer("", Some(4))
        }));
    });
    assert_eq!(fault.code, Code::ProtocolViolation, "{fault}");
}

#[test]
fn a_server_that_sends_other_bytes_than_its_digest() {
    let fault = hostile_server(223, true, |peer, frame| {
        let Frame::Xftsm(request) = frame else {
            panic!("{frame:?}")
        };
        peer.send(&Frame::Offer(Offer {
            file: request.file,
            ..offer("", Some(4096))
        }));
        assert!(matches!(peer.frame(), Frame::Accept(_)));
        peer.block(0, &[1; 4096]);
        peer.send(&eofr(4096, digest(&[2; 4096])));
    });
    assert_eq!(fault.code, Code::IntegrityMismatch, "{fault}");
}

/// An offer that answers a request, and says how its target is to be treated.
fn presumptuous(frame: &Frame, length: u64) -> Frame {
    let Frame::Xftsm(request) = frame else {
        panic!("{frame:?}")
    };
    Frame::Offer(Offer {
        file: request.file,
        overwrite: true,
        resume: Resume::Verify,
        dry_run: true,
        ..offer("", Some(length))
    })
}

/// Rule X-55: a dry run is nothing that a server could want of a download, nor may it say that
/// what is there be replaced.
#[test]
fn a_server_that_decides_what_becomes_of_the_target() {
    let options = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let (result, target) = foreign_server(224, true, &options, |peer, frame| {
        peer.send(&presumptuous(&frame, 4096));
        assert!(matches!(peer.frame(), Frame::Accept(_)));
        peer.block(0, &[1; 4096]);
        peer.send(&eofr(4096, digest(&[1; 4096])));
        assert!(matches!(peer.frame(), Frame::Published(_)));
    });
    assert_eq!(result.unwrap().bytes, 4096);
    assert!(target == [1; 4096]);

    let options = TransferOptions {
        parameters: TransferParameters {
            // Or it would ask whether what stands there is the same.
            resume: Resume::Never,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let (result, target) = foreign_server(225, true, &options, |peer, frame| {
        peer.send(&presumptuous(&frame, 4096));
    });
    assert_eq!(result.unwrap_err().code, Code::AlreadyExists);
    assert_eq!(target, OLD);
}

/// Nor does this server say any of it.
#[test]
fn an_offer_says_nothing_of_the_target_of_a_download() {
    let stage = Stage::new(230);
    stage.folders.make_there("file", 1000);
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    peer.send(&Frame::Xftsm(Request {
        file: FileId(1),
        path: b"/file".to_vec(),
        offset: 0,
        length: None,
        digest: DigestKind::Crc64Nvme,
        pack: None,
    }));
    match peer.frame() {
        Frame::Offer(Offer {
            overwrite: false,
            resume: Resume::Never,
            dry_run: false,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

/// Rule F-26: what a server calls the target in a fault is for messages. The client asks for what
/// stands there by the path of its user.
#[test]
fn a_path_that_a_server_tells_is_not_asked_for() {
    let options = TransferOptions::default();
    let (result, _) = foreign_server(226, false, &options, |peer, frame| {
        let refusal = Fault::new(Code::AlreadyExists, "open the target", "it exists already");
        peer.send(&Frame::Exception(Exception {
            scope: Scope::File(accept_of(&frame).file),
            fault: refusal.path("/srv/elsewhere"),
        }));
        let Frame::Xpathm(CallRequest { id, call: Ok(call) }) = peer.frame() else {
            panic!("it doesn't look whether that is the same")
        };
        match call {
            Call::Stat { path, .. } => assert_eq!(path, b"/x"),
            other => panic!("{other:?}"),
        }
        peer.send(&Frame::Answer(AnswerPart {
            id,
            part: 0,
            last: true,
            answer: Err(Fault::new(Code::NotFound, "look at", "it is gone")),
        }));
    });
    let fault = result.unwrap_err();
    assert_fault(&fault, Code::AlreadyExists, Side::Remote, "/srv/elsewhere");
}
