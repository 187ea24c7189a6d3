//! Peers that break the rules of path calls.

use std::path::{Path, PathBuf};

use xdfs::{Answer, Call, Code, Fault, LocalPlace, Side, TransferOptions};
use xdfs_proto::CallId;
use xdfs_proto::frame::{AnswerPart, CallRequest, Exception, Frame, Scope, Taken};
use xdfs_proto::path::PARTS_AHEAD_MAX;
use xdfs_store::{LocalStore, Store as _};

use crate::peer::{Heard, Peer, accept, session_ok};
use crate::support::{Folders, Serving, client, finish};

const fn id(slot: u16, sequence: u32) -> CallId {
    CallId { slot, sequence }
}

fn call(id: CallId, call: Call) -> Frame {
    Frame::Xpathm(CallRequest { id, call: Ok(call) })
}

fn stat(path: &str) -> Call {
    Call::Stat {
        path: path.into(),
        follow: true,
    }
}

fn make(path: &str) -> Call {
    Call::MakeDirectory {
        path: path.into(),
        mode: None,
        parents: false,
    }
}

fn taken(id: CallId, parts: u32) -> Frame {
    let stop = false;
    Frame::Taken(Taken { id, parts, stop })
}

fn answer(id: CallId, part: u32, answer: Answer) -> Frame {
    Frame::Answer(AnswerPart {
        id,
        part,
        last: true,
        answer: Ok(answer),
    })
}

/// The part that comes next: its call, its number, and whether it is the last.
#[track_caller]
fn part(peer: &mut Peer) -> (CallId, u32, bool) {
    match peer.frame() {
        Frame::Answer(AnswerPart { id, part, last, .. }) => (id, part, last),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_breaks_the_rules_ends_the_session_alone() {
    let folders = Folders::new(1);
    let server = Serving::start(&folders.root(), |_| {});
    let cases: [&[Frame]; 6] = [
        // From the wrong side.
        &[answer(id(0, 1), 0, Answer::Done)],
        // Not the first of its slot.
        &[call(id(0, 2), stat("/"))],
        // Too early: its slot is skipped ahead.
        &[call(id(5, 1), stat("/")), call(id(5, 3), stat("/"))],
        // Of nothing, of what wasn't made, and of more than was made.
        &[taken(id(0, 1), 1)],
        &[call(id(0, 1), stat("/")), taken(id(1, 1), 1)],
        &[call(id(0, 1), stat("/")), taken(id(0, 1), 1000)],
    ];
    for frames in cases {
        let (mut peer, ..) = Peer::in_session(server.addr, 1);
        for frame in frames {
            peer.send(frame);
        }
        let fault = loop {
            match peer.frame() {
                Frame::Answer(_) => {}
                Frame::Exception(Exception { fault, .. }) => break fault,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(fault.code, Code::ProtocolViolation, "{frames:?}: {fault:?}");
        peer.end();
        let client = client(server.addr, |_| {});
        assert!(client.call(stat("/")).is_ok());
    }
}

#[test]
fn a_call_that_comes_often_is_carried_out_once() {
    let folders = Folders::new(2);
    let server = Serving::start(&folders.root(), |_| {});
    let (mut peer, ..) = Peer::in_session(server.addr, 1);
    for _ in 0..10 {
        peer.send(&call(id(0, 1), make("/a")));
    }
    peer.send(&call(id(1, 1), stat("/a")));
    let mut heard = [part(&mut peer), part(&mut peer)];
    heard.sort();
    assert_eq!(heard, [(id(0, 1), 0, true), (id(1, 1), 0, true)]);
    // Again, after it was answered.
    peer.send(&call(id(0, 1), make("/a")));
    peer.send(&call(id(1, 2), stat("/a")));
    assert_eq!(part(&mut peer), (id(1, 2), 0, true));
}

#[test]
fn no_more_parts_come_than_the_peer_has_room_for() {
    let folders = Folders::new(3);
    for i in 0..10_000 {
        std::fs::File::create(folders.there(&format!("file {i}"))).unwrap();
    }
    let server = Serving::start(&folders.root(), |_| {});
    let (mut peer, ..) = Peer::in_session(server.addr, 1);
    let list = Call::List {
        path: b"/".to_vec(),
        cursor: Vec::new(),
        entries_max: u32::MAX,
    };
    peer.send(&call(id(0, 1), list));
    // One is kept back for the end.
    let ahead = PARTS_AHEAD_MAX - 1;
    for i in 0..ahead {
        assert_eq!(part(&mut peer), (id(0, 1), i, false));
    }
    // Nothing further, while other calls are answered.
    for i in 1..100 {
        peer.send(&call(id(1, i), stat("/")));
        assert_eq!(part(&mut peer), (id(1, i), 0, true));
    }
    peer.send(&taken(id(0, 1), 1));
    assert_eq!(part(&mut peer), (id(0, 1), ahead, false));
    peer.send(&Frame::Taken(Taken {
        id: id(0, 1),
        parts: 2,
        stop: true,
    }));
    // Parts that were made by then may come.
    while !part(&mut peer).2 {}
}

#[test]
fn a_server_that_answers_what_was_not_asked_ends_the_session() {
    type Wrong = fn(CallId) -> Frame;
    let cases: [Wrong; 4] = [
        |id| answer(id, 0, Answer::Done),
        |id| answer(id, 1, Answer::Target(b"x".to_vec())),
        |_| answer(id(9, 1), 0, Answer::Done),
        |id| call(id, stat("/")),
    ];
    for wrong in cases {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut peer = accept(&listener);
            peer.read_hello();
            peer.welcome();
            assert!(matches!(peer.frame(), Frame::Session(_)));
            peer.send(&session_ok(1, crate::peer::BLOCK));
            match peer.frame() {
                Frame::Xpathm(CallRequest { id, .. }) => peer.send(&wrong(id)),
                other => panic!("{other:?}"),
            }
            peer.hold();
        });
        let client = client(addr, |_| {});
        let call = Call::ReadLink {
            path: b"/link".to_vec(),
        };
        let fault = client.call(call).unwrap_err();
        let broken = [Code::ProtocolViolation, Code::MalformedFrame].contains(&fault.code);
        assert!(broken && fault.side == Side::Local, "{fault:?}");
        assert_eq!(fault.path, b"/link");
        drop(client);
        thread.join().unwrap();
    }
}

/// A server that has the target already, and it is the same as `source`; what it says to a sync.
fn has_it_already(mut peer: Peer, source: &Path, code: Option<Code>) {
    let source = source.as_os_str().as_encoded_bytes().to_vec();
    loop {
        let (id, call) = match peer.next() {
            Heard::Frame(Frame::Xftsmu(offer)) => {
                let fault = Fault::new(Code::AlreadyExists, "publish", "it is there");
                peer.send(&Frame::Exception(Exception {
                    scope: Scope::File(offer.file),
                    fault: fault.path(&offer.path),
                }));
                continue;
            }
            Heard::Frame(Frame::Xpathm(CallRequest { id, call: Ok(call) })) => (id, call),
            Heard::End => return,
            _ => continue,
        };
        let answer = match call {
            Call::Sync { path } => match code {
                Some(code) => Err(Fault::new(code, "sync", "the disk").path(&path)),
                None => Ok(Answer::Done),
            },
            mut call => {
                if let Call::Stat { path, .. } | Call::Checksum { path, .. } = &mut call {
                    path.clone_from(&source);
                }
                LocalStore::unrooted().call(&call, &mut |_| Ok(()))
            }
        };
        let (part, last) = (0, true);
        peer.send(&Frame::Answer(AnswerPart {
            id,
            part,
            last,
            answer,
        }));
    }
}

/// A target that is the source already and that the disk may have lost isn't one that exists.
#[test]
fn what_is_there_and_may_be_lost_is_told_as_such() {
    let folders = Folders::new(4);
    let source = folders.make_here("source", 10_000);
    let upload = |code: Option<Code>| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let original: PathBuf = source.clone();
        let thread = std::thread::spawn(move || {
            let mut peer = accept(&listener);
            peer.read_hello();
            peer.welcome();
            assert!(matches!(peer.frame(), Frame::Session(_)));
            peer.send(&session_ok(1, crate::peer::BLOCK));
            has_it_already(peer, &original, code);
        });
        let client = client(addr, |options| options.channels = Some(1));
        let place = LocalPlace::Path(source.clone());
        let result = finish(
            client
                .upload(&place, b"/x", &TransferOptions::default())
                .unwrap(),
        );
        drop(client);
        thread.join().unwrap();
        result
    };
    for code in [None, Some(Code::Unsupported)] {
        assert_eq!(upload(code).unwrap().resumed_bytes, 10_000, "{code:?}");
    }
    for (code, told) in [
        (Code::Io, Code::Io),
        (Code::NoSpace, Code::NoSpace),
        // Who may not ask for it doesn't know.
        (Code::PermissionDenied, Code::AlreadyExists),
    ] {
        let fault = upload(Some(code)).unwrap_err();
        assert_eq!((fault.code, fault.side), (told, Side::Remote), "{fault}");
    }
}
