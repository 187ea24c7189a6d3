//! Calls about files: they read back as they were written, and the machines keep what was read no
//! longer and no more of it than they say.

use std::sync::Arc;

use proptest::prelude::*;
use xdfs_proto::call_client::{CallClient, CallClientOutput};
use xdfs_proto::call_server::{CallServer, CallServerOutput};
use xdfs_proto::file::{
    DATA_BYTES_MAX, Extent, FileAnswer, FileCall, FileFlags, FileIdentity, FileOwner, HeldLock,
    LockRange,
};
use xdfs_proto::frame::{AnswerPart, CallRequest, FRAME_HEADER_BYTES, FrameHeader, Taken};
use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_proto::{CallId, Code, Fault, Frame, Limits};

fn identity() -> impl Strategy<Value = FileIdentity> {
    any::<(u64, u64, i64)>().prop_map(|(device, inode, born_ns)| FileIdentity {
        device,
        inode,
        born_ns,
    })
}

fn open() -> impl Strategy<Value = FileCall> {
    let path = prop::collection::vec(1u8..=255, 0..40);
    let mode = prop::option::of(0u32..=0o7777);
    let bits = any::<[bool; 6]>();
    (
        path,
        bits,
        mode,
        any::<[u8; 16]>(),
        prop::option::of(identity()),
    )
        .prop_map(
            |(path, [read, append, create, exclusive, truncate, write], mode, owner, identity)| {
                let writes = append || create || truncate || write || !read;
                let again = identity.is_some();
                let create = create && !again;
                FileCall::Open {
                    path,
                    flags: FileFlags {
                        read,
                        write: writes,
                        append,
                        create,
                        exclusive: exclusive && create,
                        truncate: truncate && !again,
                    },
                    mode: mode.filter(|_| create),
                    owner: FileOwner(owner),
                    identity,
                }
            },
        )
}

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let extent = (0..u64::MAX / 2, 1u32..200);
    let extent = extent.prop_map(|(offset, length)| Extent { offset, length });
    prop::collection::vec(extent, 1..=256)
}

fn range() -> impl Strategy<Value = LockRange> {
    let length = prop::option::of(1..u64::MAX / 2);
    (0..u64::MAX / 2, length).prop_map(|(offset, length)| LockRange { offset, length })
}

fn call() -> impl Strategy<Value = FileCall> {
    let bytes = prop::collection::vec(any::<u8>(), 1..300);
    let lock = (1u32..=3600, 0u32..=10_000);
    let handle = 1u32..;
    let flag = any::<bool>();
    let moves = prop_oneof![
        (handle.clone(), flag, extents()).prop_map(|(handle, locked, extents)| FileCall::Read {
            handle,
            locked,
            extents
        }),
        (handle.clone(), flag, extents(), any::<u8>()).prop_map(
            |(handle, locked, extents, byte)| {
                let length: u32 = extents.iter().map(|e| e.length).sum();
                FileCall::Write {
                    handle,
                    locked,
                    extents,
                    bytes: Arc::new(vec![byte; length as usize]),
                }
            }
        ),
        (handle.clone(), flag, bytes).prop_map(|(handle, locked, bytes)| FileCall::Append {
            handle,
            locked,
            bytes: Arc::new(bytes)
        }),
    ];
    let others = prop_oneof![
        (handle.clone(), flag)
            .prop_map(|(handle, data_only)| FileCall::Flush { handle, data_only }),
        (handle.clone(), flag, any::<u64>()).prop_map(|(handle, locked, length)| {
            FileCall::SetLength {
                handle,
                locked,
                length,
            }
        }),
        (handle.clone(), range(), flag, lock).prop_map(
            |(handle, range, exclusive, (lease_s, wait_ms))| FileCall::Lock {
                handle,
                range,
                exclusive,
                lease_s,
                wait_ms
            }
        ),
        (handle.clone(), range()).prop_map(|(handle, range)| FileCall::Unlock { handle, range }),
        (handle.clone(), range(), flag).prop_map(|(handle, range, exclusive)| {
            FileCall::TestLock {
                handle,
                range,
                exclusive,
            }
        }),
        (handle.clone(), any::<u64>())
            .prop_map(|(handle, holding)| FileCall::Renew { handle, holding }),
        handle.clone().prop_map(|handle| FileCall::Stat { handle }),
        handle.prop_map(|handle| FileCall::Close { handle }),
    ];
    prop_oneof![open(), moves, others]
}

fn answer() -> impl Strategy<Value = FileAnswer> {
    let data = prop::collection::vec(0u32..300, 1..200).prop_map(|lengths| FileAnswer::Data {
        bytes: Arc::new(vec![7; lengths.iter().sum::<u32>() as usize]),
        lengths,
    });
    let held =
        (range(), any::<bool>()).prop_map(|(range, exclusive)| HeldLock { range, exclusive });
    prop_oneof![
        (1u32.., identity(), any::<bool>(), any::<u64>()).prop_map(
            |(handle, identity, created, run)| FileAnswer::Opened {
                handle,
                identity,
                created,
                run,
                attributes: attributes(),
            }
        ),
        data,
        any::<(u64, u32)>().prop_map(|(offset, length)| FileAnswer::Appended { offset, length }),
        any::<u64>().prop_map(|holding| FileAnswer::Held { holding }),
        prop::option::of(held).prop_map(FileAnswer::InTheWay),
    ]
}

fn attributes() -> Attributes {
    Attributes {
        kind: FileKind::Fifo,
        size: 1,
        allocated: 2,
        mode: 0o7777,
        uid: 3,
        gid: 4,
        links: 5,
        device: 6,
        inode: 7,
        atime_ns: -8,
        mtime_ns: 9,
        ctime_ns: 10,
    }
}

fn read_back(frame: &Frame) {
    let limits = Limits::default();
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    let (header, body) = bytes
        .split_first_chunk::<FRAME_HEADER_BYTES>()
        .expect("a header");
    let header = FrameHeader::decode(*header, &limits).expect("a frame");
    assert_eq!(Frame::decode(header, body, &limits).as_ref(), Ok(frame));
}

proptest! {
    #[test]
    fn calls_are_read_as_they_were_written(call in call(), slot in 0u16..128, sequence in 1u32..) {
        let id = CallId { slot, sequence };
        let call = Call::File(call);
        prop_assert_eq!(call.check(&Limits::default()), Ok(()));
        read_back(&Frame::Xpathm(CallRequest { id, call: Ok(call) }));
    }

    #[test]
    fn answers_are_read_as_they_were_written(answer in answer()) {
        let answer = Answer::File(answer);
        prop_assert_eq!(answer.check(&Limits::default()), Ok(()));
        let id = CallId { slot: 0, sequence: 1 };
        read_back(&Frame::Answer(AnswerPart { id, part: 0, last: true, answer: Ok(answer) }));
    }
}

fn read(length: u32) -> Call {
    Call::File(FileCall::Read {
        handle: 1,
        locked: false,
        extents: vec![Extent { offset: 0, length }],
    })
}

fn data(length: usize) -> Answer {
    Answer::File(FileAnswer::Data {
        lengths: vec![length as u32],
        bytes: Arc::new(vec![1; length]),
    })
}

fn id(slot: u16, sequence: u32) -> CallId {
    CallId { slot, sequence }
}

fn frames(call_server: &mut CallServer) -> usize {
    std::iter::from_fn(|| call_server.poll_output())
        .inspect(|output| assert!(matches!(output, CallServerOutput::Transmit(_))))
        .count()
}

#[test]
fn the_largest_data_fits_into_a_frame() {
    let limits = Limits::default();
    let lengths = vec![240; 256];
    assert_eq!(DATA_BYTES_MAX, 240 * 256);
    let extents = (0..256).map(|i| Extent {
        offset: i,
        length: 240,
    });
    let bytes = Arc::new(vec![1; DATA_BYTES_MAX]);
    let write = FileCall::Write {
        handle: 1,
        locked: true,
        extents: extents.collect(),
        bytes: Arc::clone(&bytes),
    };
    let call = Call::File(write);
    assert_eq!(call.check(&limits), Ok(()));
    read_back(&Frame::Xpathm(CallRequest {
        id: id(0, 1),
        call: Ok(call),
    }));
    let answer = Answer::File(FileAnswer::Data { lengths, bytes });
    assert_eq!(answer.check(&limits), Ok(()));
    let (part, last, answer) = (0, true, Ok(answer));
    read_back(&Frame::Answer(AnswerPart {
        id: id(0, 1),
        part,
        last,
        answer,
    }));
}

#[test]
fn what_was_read_is_kept_until_it_is_taken_and_no_more_of_it() {
    let limits = Limits {
        kept_data_bytes_max: 100_000,
        ..Limits::default()
    };
    let mut call_server = CallServer::new(limits);
    for slot in 0..5 {
        let call = read(50_000);
        let asked = Frame::Xpathm(CallRequest {
            id: id(slot, 1),
            call: Ok(call),
        });
        call_server.handle_frame(asked).expect("a call");
    }
    // Room is set aside for those that run, and used by what they bring.
    let works: Vec<_> = std::iter::from_fn(|| call_server.next_work()).collect();
    assert_eq!(works.len(), 2);
    call_server.finished(works[0].id, Ok(data(50_000)));
    assert!(call_server.next_work().is_none());
    // Less than was asked for.
    call_server.finished(works[1].id, Ok(data(10)));
    assert_eq!(frames(&mut call_server), 2);
    assert!(call_server.next_work().is_none());
    call_server.channel_down();
    assert_eq!(frames(&mut call_server), 2);
    // A call that reads nothing isn't held up.
    let close = Call::File(FileCall::Close { handle: 1 });
    let asked = Frame::Xpathm(CallRequest {
        id: id(9, 1),
        call: Ok(close),
    });
    call_server.handle_frame(asked).expect("a call");
    let close = call_server.next_work().expect("a call");
    call_server.finished(close.id, Ok(Answer::Done));
    let taken = Frame::Taken(Taken {
        id: works[0].id,
        parts: 1,
        stop: false,
    });
    call_server.handle_frame(taken).expect("a part was taken");
    let next = call_server.next_work().expect("there is room");
    assert!(call_server.next_work().is_none());
    // A fault gives the room back, and so does the next call in a slot.
    let fault = Fault::new(Code::Io, "read", "it broke");
    call_server.finished(next.id, Err(fault));
    let next = call_server.next_work().expect("there is room");
    call_server.finished(next.id, Ok(data(50_000)));
    let again = Frame::Xpathm(CallRequest {
        id: id(next.id.slot, 2),
        call: Ok(read(50_000)),
    });
    call_server.handle_frame(again).expect("the next call");
    assert!(call_server.next_work().is_some());
}

#[test]
fn one_read_is_always_carried_out() {
    let limits = Limits {
        kept_data_bytes_max: 0,
        ..Limits::default()
    };
    let mut call_server = CallServer::new(limits);
    for slot in 0..2 {
        let asked = Frame::Xpathm(CallRequest {
            id: id(slot, 1),
            call: Ok(read(1)),
        });
        call_server.handle_frame(asked).expect("a call");
    }
    assert!(call_server.next_work().is_some());
    assert!(call_server.next_work().is_none());
}

#[test]
fn a_caller_says_that_data_came_and_says_it_again() {
    let mut call_client = CallClient::new(Limits::default());
    let name = call_client.call(read(10)).expect("room");
    let sent = |call_client: &mut CallClient| -> Vec<CallClientOutput> {
        std::iter::from_fn(|| call_client.poll_output()).collect()
    };
    assert_eq!(sent(&mut call_client).len(), 1);
    let answer = |answer| {
        Frame::Answer(AnswerPart {
            id: name,
            part: 0,
            last: true,
            answer,
        })
    };
    let came = answer(Ok(data(10)));
    call_client.handle_frame(came.clone()).expect("an answer");
    let taken = CallClientOutput::Transmit(Frame::Taken(Taken {
        id: name,
        parts: 1,
        stop: false,
    }));
    let part = CallClientOutput::Part {
        id: name,
        answer: Ok(data(10)),
        last: true,
    };
    assert_eq!(sent(&mut call_client), [part, taken.clone()]);
    call_client.handle_frame(came).expect("it came before");
    assert_eq!(sent(&mut call_client), []);
    call_client.channel_down();
    assert_eq!(sent(&mut call_client), [taken]);
    // The next call in the slot says it as well.
    let next = call_client.call(Call::File(FileCall::Stat { handle: 1 }));
    assert_eq!(next.expect("room").slot, name.slot);
    assert_eq!(sent(&mut call_client).len(), 1);
}

#[test]
fn more_than_was_asked_for_is_a_violation() {
    let two = Answer::File(FileAnswer::Data {
        lengths: vec![1, 1],
        bytes: Arc::new(vec![1; 2]),
    });
    let appended = Answer::File(FileAnswer::Appended {
        offset: 0,
        length: 3,
    });
    let append = Call::File(FileCall::Append {
        handle: 1,
        locked: false,
        bytes: Arc::new(vec![1; 2]),
    });
    let wrong = [
        (read(10), data(11)),
        (read(10), two),
        (read(10), Answer::Done),
        (append, appended),
    ];
    for (call, answer) in wrong {
        let mut call_client = CallClient::new(Limits::default());
        let id = call_client.call(call.clone()).expect("room");
        let frame = Frame::Answer(AnswerPart {
            id,
            part: 0,
            last: true,
            answer: Ok(answer.clone()),
        });
        let fault = call_client.handle_frame(frame).expect_err("a violation");
        assert_eq!(fault.code, Code::ProtocolViolation);
        // A store that does so is found out at its own side.
        let mut call_server = CallServer::new(Limits::default());
        let asked = Frame::Xpathm(CallRequest { id, call: Ok(call) });
        call_server.handle_frame(asked).expect("a call");
        let work = call_server.next_work().expect("a call");
        call_server.finished(work.id, Ok(answer));
        let Some(CallServerOutput::Transmit(Frame::Answer(AnswerPart { answer, .. }))) =
            call_server.poll_output()
        else {
            panic!("no answer");
        };
        assert_eq!(answer.expect_err("a fault").code, Code::Internal);
    }
}
