//! The opening exchange: magic, versions, services, features, frames, joining.

use xdfs::{Code, Side, TransferOptions};
use xdfs_proto::frame::{Ack, BLOCK_HEADER_BYTES, Cancel, Frame, Scope, block_header_check};
use xdfs_proto::opening::{Answer, Feature, Hello};
use xdfs_proto::{FileId, SessionId, SessionSecret};

use crate::peer::{Peer, digest, eofr, join, session_request};
use crate::stage::{Stage, assert_fault};
use crate::support::upload;

fn feature(id: u16, name: &str) -> Feature {
    Feature {
        id,
        name: name.into(),
        value: Vec::new(),
    }
}

/// Says this hello and returns the refusal.
#[track_caller]
fn refused(stage: &Stage, hello: &Hello) -> xdfs::Fault {
    let mut peer = Peer::connect(stage.server.addr);
    peer.hello(hello);
    peer.refusal()
}

#[test]
fn wrong_magic() {
    let stage = Stage::new(1);
    for text in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-x\r\n", "\0"] {
        let mut peer = Peer::connect(stage.server.addr);
        peer.raw(text.as_bytes());
        assert_fault(&peer.refusal(), Code::BadMagic, Side::Remote, "");
    }
    // What a text mode makes of the line end.
    let mut hello = Vec::new();
    Hello::default().encode(&mut hello);
    hello.remove(5);
    let mut peer = Peer::connect(stage.server.addr);
    peer.raw(&hello);
    assert_fault(&peer.refusal(), Code::BadMagic, Side::Remote, "");
    stage.still_serves();
}

#[test]
fn wrong_version() {
    let stage = Stage::new(2);
    let hello = Hello {
        version_min: 7,
        version_max: 9,
        ..Hello::default()
    };
    let fault = refused(&stage, &hello);
    assert_fault(&fault, Code::VersionUnsupported, Side::Remote, "");
    assert!(fault.cause.contains("7 to 9"), "{fault}");
    stage.still_serves();
}

#[test]
fn unknown_features() {
    let stage = Stage::new(3);
    let hello = |id| Hello {
        features: vec![feature(id, "teleport")],
        ..Hello::default()
    };
    let fault = refused(&stage, &hello(0x8001));
    assert_fault(&fault, Code::FeatureUnsupported, Side::Remote, "");
    assert!(fault.cause.contains("teleport"), "{fault}");
    // One that isn't mandatory is ignored.
    let mut peer = Peer::connect(stage.server.addr);
    peer.hello(&hello(0x7001));
    match peer.answer() {
        Answer::Welcome(welcome) => assert_eq!(welcome.features, []),
        other => panic!("{other:?}"),
    }
    stage.still_serves();
}

#[test]
fn services_that_are_not_offered() {
    let stage = Stage::new(4);
    for (service, name) in [(1, "remote processes"), (2, "remote threads"), (200, "200")] {
        let hello = Hello {
            service,
            ..Hello::default()
        };
        let fault = refused(&stage, &hello);
        assert_fault(&fault, Code::FeatureUnsupported, Side::Remote, "");
        assert!(fault.cause.contains(name), "{fault}");
    }
    stage.still_serves();
}

#[test]
fn a_hello_that_is_too_long() {
    let stage = Stage::new(5);
    let mut bytes = Vec::new();
    Hello::default().encode(&mut bytes);
    bytes[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut peer = Peer::connect(stage.server.addr);
    peer.raw(&bytes);
    assert_fault(&peer.refusal(), Code::FrameTooLarge, Side::Remote, "");
    stage.still_serves();
}

#[test]
fn frame_too_large_before_and_in_a_session() {
    let stage = Stage::new(6);
    // SESSION with a body of 16 MiB, and of all that a length can say.
    for length in [16 << 20, u32::MAX] {
        let header = |kind: u8| {
            let mut header = vec![kind, 0, 0, 0];
            header.extend_from_slice(&length.to_be_bytes());
            header
        };
        let mut peer = Peer::greeted(stage.server.addr);
        peer.raw(&header(0x01));
        assert_fault(
            &peer.channel_exception(),
            Code::FrameTooLarge,
            Side::Remote,
            "",
        );
        for kind in [0x16, 0x12, 0x20] {
            let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
            // 16 MiB fit a block by the limits; then the session's own size is what it breaks.
            if kind == 0x20 {
                let mut block = [&header(kind)[..], &[0; 16]].concat();
                seal(&mut block);
                peer.raw(&block);
            } else {
                peer.raw(&header(kind));
            }
            assert_fault(
                &peer.session_exception(),
                Code::FrameTooLarge,
                Side::Remote,
                "",
            );
        }
    }
    stage.still_serves();
}

#[test]
fn frames_that_make_no_sense() {
    let stage = Stage::new(7);
    for header in [
        [0x99, 0, 0, 0, 0, 0, 0, 0],    // no such kind
        [0x16, 0xff, 0, 0, 0, 0, 0, 0], // flags that aren't defined
        [0x20, 0, 0, 0, 0, 0, 0, 3],    // a block shorter than its header
    ] {
        let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
        let mut bytes = header.to_vec();
        if header[0] == 0x20 {
            bytes.resize(BLOCK_HEADER_BYTES, 0);
            seal(&mut bytes);
        }
        peer.raw(&bytes);
        let fault = peer.session_exception();
        assert_fault(&fault, Code::MalformedFrame, Side::Remote, "");
    }
    // Reserved bits: nobody sends that, so that the path is blamed and not the peer.
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    peer.raw(&[0x16, 0, 0, 1, 0, 0, 0, 0]);
    let fault = peer.channel_exception();
    assert_fault(&fault, Code::IntegrityMismatch, Side::Remote, "");
    stage.still_serves();
}

/// Writes the check of a block's header into it.
fn seal(bytes: &mut [u8]) {
    let check = block_header_check(bytes.first_chunk().unwrap());
    bytes[2..4].copy_from_slice(&check.to_be_bytes());
}

#[test]
fn frames_at_the_wrong_time() {
    let stage = Stage::new(8);
    let frames = [
        Frame::Noop,
        Frame::JoinOk,
        Frame::Eoft,
        eofr(0, digest(b"")),
        Frame::Cancel(Cancel { file: FileId(1) }),
    ];
    for frame in &frames {
        let mut peer = Peer::greeted(stage.server.addr);
        peer.send(frame);
        let fault = peer.channel_exception();
        assert_fault(&fault, Code::ProtocolViolation, Side::Remote, "");
    }
    for frame in [
        Frame::Session(session_request(1)),
        Frame::JoinOk,
        eofr(0, digest(b"")),
        Frame::Ack(Ack { data_frames: 1 }),
    ] {
        let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
        peer.send(&frame);
        let fault = peer.session_exception();
        assert_fault(&fault, Code::ProtocolViolation, Side::Remote, "");
    }
    for frame in [Frame::XdfsM, Frame::Zxdfs] {
        let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
        peer.send(&frame);
        let fault = peer.session_exception();
        assert_fault(&fault, Code::Unsupported, Side::Remote, "");
    }
    stage.still_serves();
}

#[test]
fn a_session_that_exists_already() {
    let stage = Stage::new(9);
    let request = session_request(1);
    let mut first = Peer::greeted(stage.server.addr);
    first.send(&Frame::Session(request.clone()));
    assert!(matches!(first.frame(), Frame::SessionOk(_)));
    let mut second = Peer::greeted(stage.server.addr);
    second.send(&Frame::Session(request));
    let fault = second.channel_exception();
    assert_fault(&fault, Code::ProtocolViolation, Side::Remote, "");
    stage.still_serves();
}

#[test]
fn joining_what_is_not_ours() {
    let stage = Stage::new(10);
    let (_first, id, accept) = Peer::in_session(stage.server.addr, 4);
    let joining = |id, secret, channel| {
        let mut peer = Peer::greeted(stage.server.addr);
        peer.send(&join(id, secret, channel));
        peer
    };
    let mut second = joining(id, accept.secret, 1);
    assert_eq!(second.frame(), Frame::JoinOk);
    let stranger = SessionId([0xee; 16]);
    let mut secret = accept.secret;
    secret.0[15] ^= 1;
    let refusals = [
        joining(stranger, accept.secret, 2),
        joining(id, secret, 2),
        joining(id, SessionSecret([0; 16]), 2),
        joining(id, accept.secret, 0), // the first channel's
        joining(id, accept.secret, 1), // used
    ];
    let faults: Vec<_> = refusals
        .into_iter()
        .map(|mut p| p.channel_exception())
        .collect();
    for fault in &faults {
        assert_fault(fault, Code::SessionUnknown, Side::Remote, "");
    }
    // Nobody learns which of them was wrong.
    assert!(faults.iter().all(|f| *f == faults[0]), "{faults:?}");
    // The session didn't notice.
    let mut third = joining(id, accept.secret, 2);
    assert_eq!(third.frame(), Frame::JoinOk);
    stage.still_serves();
}

#[test]
fn more_channels_than_announced() {
    let stage = Stage::new(11);
    let (_first, id, accept) = Peer::in_session(stage.server.addr, 2);
    let mut peers = Vec::new();
    for channel in 1..4 {
        let mut peer = Peer::greeted(stage.server.addr);
        peer.send(&join(id, accept.secret, channel));
        if channel == 1 {
            assert_eq!(peer.frame(), Frame::JoinOk);
        } else {
            let fault = peer.channel_exception();
            assert_fault(&fault, Code::TooManyChannels, Side::Remote, "");
        }
        peers.push(peer);
    }
    stage.still_serves();
}

#[test]
fn more_channels_than_allowed_are_lowered() {
    let stage = Stage::with(12, |server| server.limits.channels_max = 3);
    let (_peer, _, accept) = Peer::in_session(stage.server.addr, u32::MAX);
    assert_eq!(accept.channels, 3);
    stage.still_serves();
}

#[test]
fn more_sessions_than_allowed() {
    let stage = Stage::with(13, |server| server.sessions_max = 2);
    let first = Peer::in_session(stage.server.addr, 1);
    let _second = Peer::in_session(stage.server.addr, 1);
    let mut third = Peer::greeted(stage.server.addr);
    third.send(&Frame::Session(session_request(1)));
    let (scope, fault) = third.exception();
    assert_eq!(scope, Scope::Channel);
    assert_fault(&fault, Code::LimitExceeded, Side::Remote, "");
    drop(first);
    assert!(xdfs_testkit::wait::until(crate::support::PATIENCE, || {
        let mut peer = Peer::greeted(stage.server.addr);
        peer.send(&Frame::Session(session_request(1)));
        matches!(peer.frame(), Frame::SessionOk(_))
    }));
    // That one left as well, and the server may not have noticed yet.
    let source = stage.folders.make_here("good", 1000);
    let options = TransferOptions::default();
    assert!(xdfs_testkit::wait::until(crate::support::PATIENCE, || {
        upload(&stage.client(), &source, "/good", &options).is_ok()
    }));
}
