//! CallClient and CallServer, each alone: what they say to each frame and call, and to a peer or a
//! store that breaks the rules.

use std::collections::BTreeSet;

use xdfs_proto::call_client::{CallClient, CallClientOutput};
use xdfs_proto::call_server::{CallServer, CallServerOutput};
use xdfs_proto::frame::{AnswerPart, CallRequest, Taken, UnknownOperation};
use xdfs_proto::id::CALL_SLOTS;
use xdfs_proto::path::{Answer, Attributes, Call, Entry, FileKind, PARTS_AHEAD_MAX};
use xdfs_proto::{CallId, Code, Fault, Frame, Limits};

fn entry(number: u32) -> Entry {
    Entry {
        name: format!("entry-{number:06}").into_bytes(),
        attributes: Attributes {
            kind: FileKind::File,
            size: 1,
            allocated: 0,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            device: 0,
            inode: u64::from(number),
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
        },
    }
}

fn number_of(cursor: &[u8]) -> u32 {
    if cursor.is_empty() {
        return 0;
    }
    u32::from_be_bytes(cursor.try_into().expect("a cursor of this store"))
}

fn list(entries_max: u32) -> Call {
    Call::List {
        path: b"directory".to_vec(),
        cursor: Vec::new(),
        entries_max,
    }
}

fn rename() -> Call {
    Call::Rename {
        from: b"a".to_vec(),
        to: b"b".to_vec(),
        overwrite: false,
    }
}

fn frames(call_server: &mut CallServer) -> Vec<Frame> {
    std::iter::from_fn(|| call_server.poll_output())
        .map(|output| match output {
            CallServerOutput::Transmit(frame) => frame,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn outputs(call_client: &mut CallClient) -> Vec<CallClientOutput> {
    std::iter::from_fn(|| call_client.poll_output()).collect()
}

const FIRST: CallId = CallId {
    slot: 0,
    sequence: 1,
};

fn id(slot: u16, sequence: u32) -> CallId {
    CallId { slot, sequence }
}

fn asks(id: CallId, call: Call) -> Frame {
    Frame::Xpathm(CallRequest { id, call: Ok(call) })
}

fn entries(from: u32, to: u32, more: bool) -> Answer {
    Answer::Entries {
        entries: (from..to).map(entry).collect(),
        cursor: more.then(|| to.to_be_bytes().to_vec()),
    }
}

fn answer(part: u32, last: bool, answer: Answer) -> Frame {
    Frame::Answer(AnswerPart {
        id: FIRST,
        part,
        last,
        answer: Ok(answer),
    })
}

fn taken(id: CallId, parts: u32, stop: bool) -> Frame {
    Frame::Taken(Taken { id, parts, stop })
}

#[test]
fn a_call_that_is_not_known_is_refused_alone() {
    let unknown = |id| {
        Frame::Xpathm(CallRequest {
            id,
            call: Err(UnknownOperation {
                number: 0x1e,
                rest: vec![1, 2, 3],
            }),
        })
    };
    let mut call_server = CallServer::new(Limits::default());
    call_server.handle_frame(unknown(FIRST)).unwrap();
    call_server.handle_frame(asks(id(1, 1), rename())).unwrap();
    // Nobody works on it, and it holds nothing up.
    assert_eq!(call_server.next_work().unwrap().id, id(1, 1));
    assert_eq!(call_server.next_work(), None);
    let sent = frames(&mut call_server);
    let [
        Frame::Answer(AnswerPart {
            id: FIRST,
            part: 0,
            last: true,
            answer: Err(fault),
        }),
    ] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!(fault.code, Code::Unsupported);
    // It is a call like others: it comes once, is answered again after a lost channel, and the
    // next one follows it.
    call_server.handle_frame(unknown(FIRST)).unwrap();
    assert_eq!(frames(&mut call_server), []);
    call_server.channel_down();
    assert_eq!(frames(&mut call_server), sent);
    call_server.handle_frame(asks(id(0, 2), rename())).unwrap();
    assert_eq!(call_server.next_work().unwrap().id, id(0, 2));
    let early = call_server.handle_frame(unknown(id(0, 3))).unwrap_err();
    assert_eq!(early.code, Code::ProtocolViolation);
}

#[test]
fn a_call_that_comes_again_is_not_done_again() {
    let mut call_server = CallServer::new(Limits::default());
    call_server.handle_frame(asks(FIRST, rename())).unwrap();
    call_server.handle_frame(asks(FIRST, rename())).unwrap();
    let work = call_server.next_work().unwrap();
    assert_eq!(call_server.next_work(), None);
    call_server.handle_frame(asks(FIRST, rename())).unwrap();
    assert_eq!(call_server.next_work(), None);
    call_server.finished(work.id, Ok(Answer::Done));
    call_server.finished(work.id, Ok(Answer::Done));
    let sent = frames(&mut call_server);
    assert_eq!(sent, [answer(0, true, Answer::Done)]);
    call_server.handle_frame(asks(FIRST, rename())).unwrap();
    assert_eq!(call_server.next_work(), None);
    assert_eq!(frames(&mut call_server), []);
    // Lost with a channel, perhaps: the answer that was given, not a new one.
    call_server.channel_down();
    call_server.channel_down();
    assert_eq!(frames(&mut call_server), sent);
    // The next call in the slot says that it came.
    call_server.handle_frame(asks(id(0, 2), rename())).unwrap();
    call_server.channel_down();
    assert_eq!(frames(&mut call_server), []);
    call_server.handle_frame(asks(FIRST, rename())).unwrap();
    assert_eq!(call_server.next_work().unwrap().id, id(0, 2));
    assert_eq!(call_server.next_work(), None);
}

#[test]
fn a_listing_runs_no_further_than_the_peer_has_room() {
    let mut call_server = CallServer::new(Limits::default());
    call_server
        .handle_frame(asks(FIRST, list(u32::MAX)))
        .unwrap();
    let mut next = 0;
    let mut make = |call_server: &mut CallServer| {
        let mut made = 0;
        while let Some(work) = call_server.next_work() {
            let Call::List { cursor, .. } = &work.call else {
                panic!("no listing");
            };
            assert_eq!(number_of(cursor), next);
            for n in 1..=work.parts_max {
                let more = call_server.part(work.id, entries(next, next + 1, true));
                assert_eq!(more, n < work.parts_max);
                next += 1;
                made += 1;
            }
            call_server.paused(work.id);
        }
        made
    };
    let room = PARTS_AHEAD_MAX - 1;
    assert_eq!(make(&mut call_server), room);
    assert_eq!(frames(&mut call_server).len(), room as usize);
    assert_eq!(make(&mut call_server), 0);
    call_server.handle_frame(taken(FIRST, 3, false)).unwrap();
    assert_eq!(make(&mut call_server), 3);
    // Old news changes nothing.
    call_server.handle_frame(taken(FIRST, 2, false)).unwrap();
    assert_eq!(make(&mut call_server), 0);
    call_server.channel_down();
    let numbers: Vec<u32> = frames(&mut call_server)
        .iter()
        .map(|f| match f {
            Frame::Answer(AnswerPart { part, .. }) => *part,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, (3..3 + room).collect::<Vec<_>>());
    assert_eq!(call_server.unfinished(), 1);
    call_server.handle_frame(taken(FIRST, 3, true)).unwrap();
    assert_eq!(call_server.next_work(), None);
    assert_eq!(call_server.unfinished(), 0);
    let [
        Frame::Answer(AnswerPart {
            last: true,
            answer: Err(fault),
            part,
            ..
        }),
    ] = &frames(&mut call_server)[..]
    else {
        panic!("no end");
    };
    assert_eq!((fault.code, *part), (Code::Cancelled, 3 + room));
}

#[test]
fn parts_that_are_kept_are_bounded_and_every_listing_goes_on() {
    let limits = Limits {
        kept_part_bytes_max: 0,
        ..Limits::default()
    };
    let mut call_server = CallServer::new(limits);
    for slot in 0..CALL_SLOTS {
        let call = asks(id(slot, 1), list(u32::MAX));
        call_server.handle_frame(call).unwrap();
    }
    let mut seen = BTreeSet::new();
    while let Some(work) = call_server.next_work() {
        assert_eq!(work.parts_max, 1);
        assert!(seen.insert(work.id));
        assert!(!call_server.part(work.id, entries(0, 1, true)));
        call_server.paused(work.id);
    }
    assert_eq!(seen.len(), usize::from(CALL_SLOTS));
    call_server.handle_frame(taken(id(7, 1), 1, false)).unwrap();
    assert_eq!(call_server.next_work().unwrap().id, id(7, 1));
    assert_eq!(call_server.next_work(), None);
}

#[test]
fn a_listing_of_as_many_entries_as_were_asked_for_ends() {
    let mut call_server = CallServer::new(Limits::default());
    call_server.handle_frame(asks(FIRST, list(2))).unwrap();
    let work = call_server.next_work().unwrap();
    call_server.part(work.id, entries(0, 2, true));
    call_server.paused(work.id);
    let sent = frames(&mut call_server);
    let end = Answer::Entries {
        entries: vec![],
        cursor: Some(2u32.to_be_bytes().to_vec()),
    };
    assert_eq!(sent[1], answer(1, true, end));
}

#[test]
fn what_a_store_does_wrong_is_a_fault_of_that_call() {
    let fault_after = |call: Call, part: Option<Answer>, end: Answer| {
        let mut call_server = CallServer::new(Limits::default());
        call_server.handle_frame(asks(FIRST, call)).unwrap();
        let work = call_server.next_work().unwrap();
        if let Some(part) = part {
            assert!(!call_server.part(work.id, part));
        }
        call_server.finished(work.id, Ok(end));
        match &frames(&mut call_server)[..] {
            [
                Frame::Answer(AnswerPart {
                    answer, last: true, ..
                }),
            ] => {
                assert_eq!(answer.as_ref().unwrap_err().code, Code::Internal);
            }
            other => panic!("{other:?}"),
        }
    };
    let named = |name: &[u8]| Answer::Entries {
        entries: vec![Entry {
            name: name.to_vec(),
            ..entry(0)
        }],
        cursor: None,
    };
    fault_after(rename(), None, Answer::Removed { entries: 1 });
    fault_after(rename(), Some(entries(0, 1, true)), Answer::Done);
    fault_after(list(9), Some(entries(0, 1, false)), entries(0, 1, false));
    fault_after(list(9), Some(entries(0, 0, true)), entries(0, 1, false));
    fault_after(list(9), Some(entries(0, 10, true)), entries(0, 1, false));
    fault_after(list(9), None, entries(0, 10, false));
    fault_after(list(9), None, named(b".."));
    fault_after(list(9), None, named(b"a/b"));
    fault_after(list(9), None, Answer::Done);
    fault_after(list(u32::MAX), None, entries(0, 2000, false));
}

#[test]
fn a_caller_that_breaks_the_rules_ends_the_session() {
    let wrong = |frames: &[Frame]| {
        let mut call_server = CallServer::new(Limits::default());
        call_server.handle_frame(asks(FIRST, list(9))).unwrap();
        let work = call_server.next_work().unwrap();
        call_server.part(work.id, entries(0, 1, true));
        let (last, before) = frames.split_last().unwrap();
        for frame in before {
            call_server.handle_frame(frame.clone()).unwrap();
        }
        let fault = call_server.handle_frame(last.clone()).unwrap_err();
        assert_eq!(fault.code, Code::ProtocolViolation);
    };
    wrong(&[asks(id(0, 2), rename())]);
    wrong(&[asks(id(0, 3), rename())]);
    wrong(&[asks(id(5, 2), rename())]);
    wrong(&[asks(id(5, 1), rename()), asks(id(5, 2), rename())]);
    wrong(&[asks(id(CALL_SLOTS, 1), rename())]);
    wrong(&[taken(FIRST, 2, false)]);
    wrong(&[taken(id(0, 2), 1, false)]);
    wrong(&[taken(id(9, 1), 1, false)]);
    wrong(&[answer(0, true, Answer::Done)]);
    wrong(&[Frame::Eoft]);
}

#[test]
fn an_answerer_that_breaks_the_rules_ends_the_session() {
    let wrong = |call: Call, frames: &[Frame]| {
        let mut call_client = CallClient::new(Limits::default());
        assert_eq!(call_client.call(call), Ok(FIRST));
        let (last, before) = frames.split_last().unwrap();
        for frame in before {
            call_client.handle_frame(frame.clone()).unwrap();
        }
        let fault = call_client.handle_frame(last.clone()).unwrap_err();
        assert_eq!(fault.code, Code::ProtocolViolation, "{last:?}");
    };
    let of = |id, answer| {
        Frame::Answer(AnswerPart {
            id,
            part: 0,
            last: true,
            answer: Ok(answer),
        })
    };
    let fault_as_part = |part| {
        Frame::Answer(AnswerPart {
            id: FIRST,
            part,
            last: true,
            answer: Err(Fault::new(Code::Io, "rename", "it is broken").remote()),
        })
    };
    wrong(rename(), &[of(id(0, 2), Answer::Done)]);
    wrong(rename(), &[of(id(1, 1), Answer::Done)]);
    wrong(rename(), &[of(FIRST, Answer::Removed { entries: 1 })]);
    wrong(rename(), &[of(FIRST, entries(0, 1, false))]);
    wrong(rename(), &[fault_as_part(1)]);
    wrong(rename(), &[asks(FIRST, rename())]);
    wrong(rename(), &[taken(FIRST, 1, false)]);
    let ahead = PARTS_AHEAD_MAX;
    wrong(list(9), &[answer(ahead, true, entries(0, 1, false))]);
    wrong(list(9), &[answer(0, true, entries(0, 10, false))]);
    let three = answer(3, false, entries(3, 6, true));
    wrong(
        list(9),
        &[three.clone(), answer(2, true, entries(2, 3, false))],
    );
    wrong(list(9), &[three, answer(0, false, entries(0, 7, true))]);
    let end = answer(4, true, entries(6, 7, false));
    wrong(
        list(9),
        &[end.clone(), answer(5, false, entries(7, 8, true))],
    );
    wrong(list(9), &[end, fault_as_part(3)]);
    let before: Vec<Frame> = (0..ahead)
        .map(|n| answer(n, false, entries(n, n + 1, true)))
        .chain([answer(ahead, false, entries(ahead, ahead + 1, true))])
        .collect();
    wrong(list(900), &before);
}

#[test]
fn parts_are_given_out_in_order_and_once() {
    let mut call_client = CallClient::new(Limits::default());
    call_client.call(list(9)).unwrap();
    assert!(call_client.awaits_answer());
    assert_eq!(
        outputs(&mut call_client),
        [CallClientOutput::Transmit(asks(FIRST, list(9)))]
    );
    let second = answer(1, false, entries(1, 2, true));
    call_client.handle_frame(second.clone()).unwrap();
    assert_eq!(outputs(&mut call_client), []);
    // It has been heard of: the call isn't sent again.
    call_client.channel_down();
    assert_eq!(outputs(&mut call_client), []);
    call_client.handle_frame(second.clone()).unwrap();
    call_client
        .handle_frame(answer(0, false, entries(0, 1, true)))
        .unwrap();
    call_client.handle_frame(second).unwrap();
    let part = |from: u32, last: bool| CallClientOutput::Part {
        id: FIRST,
        answer: Ok(entries(from, from + 1, !last)),
        last,
    };
    assert_eq!(outputs(&mut call_client), [part(0, false), part(1, false)]);
    assert!(!call_client.awaits_answer());
    call_client.took(FIRST);
    let word = |parts| CallClientOutput::Transmit(taken(FIRST, parts, false));
    assert_eq!(outputs(&mut call_client), [word(1)]);
    for _ in 0..3 {
        call_client.took(FIRST);
    }
    assert!(call_client.awaits_answer());
    assert_eq!(outputs(&mut call_client), [word(2)]);
    call_client
        .handle_frame(answer(2, true, entries(2, 3, false)))
        .unwrap();
    assert_eq!(outputs(&mut call_client), [part(2, true), word(3)]);
    assert_eq!(call_client.unanswered(), 0);
    call_client.channel_down();
    assert_eq!(outputs(&mut call_client), [word(3)]);
    call_client
        .handle_frame(answer(2, true, entries(2, 3, false)))
        .unwrap();
    assert_eq!(outputs(&mut call_client), []);
    // The next call in the slot says it without a word.
    call_client.call(rename()).unwrap();
    call_client.channel_down();
    let next = CallClientOutput::Transmit(asks(id(0, 2), rename()));
    assert_eq!(outputs(&mut call_client), [next]);
}

#[test]
fn an_abandoned_listing_is_stopped_and_silent() {
    let mut call_client = CallClient::new(Limits::default());
    call_client.call(list(9)).unwrap();
    call_client.abandon(FIRST);
    outputs(&mut call_client);
    // Not before the call is known to have arrived.
    call_client
        .handle_frame(answer(0, false, entries(0, 1, true)))
        .unwrap();
    assert_eq!(
        outputs(&mut call_client),
        [CallClientOutput::Transmit(taken(FIRST, 1, true))]
    );
    assert_eq!(call_client.unanswered(), 1);
    call_client
        .handle_frame(answer(1, true, entries(1, 2, false)))
        .unwrap();
    assert_eq!(
        outputs(&mut call_client),
        [CallClientOutput::Transmit(taken(FIRST, 2, true))]
    );
    assert_eq!(call_client.unanswered(), 0);
}

#[test]
fn as_many_calls_as_there_are_slots_and_no_more() {
    let mut call_client = CallClient::new(Limits::default());
    for slot in 0..CALL_SLOTS {
        assert!(call_client.has_room());
        assert_eq!(call_client.call(rename()), Ok(id(slot, 1)));
    }
    assert!(!call_client.has_room());
    assert_eq!(
        call_client.call(rename()).unwrap_err().code,
        Code::LimitExceeded
    );
    call_client
        .handle_frame(answer(0, true, Answer::Done))
        .unwrap();
    assert_eq!(call_client.call(rename()), Ok(id(0, 2)));
}

#[test]
fn what_no_frame_carries_is_refused_before() {
    let mut call_client = CallClient::new(Limits::default());
    let long = Call::RemoveFile {
        path: vec![b'x'; 5000],
    };
    assert_eq!(call_client.call(long).unwrap_err().code, Code::NameTooLong);
    let none = call_client.call(list(0)).unwrap_err();
    assert_eq!(none.code, Code::InvalidArgument);
    assert_eq!(none.operation, "list");
    assert_eq!(call_client.poll_output(), None);
}

#[test]
fn the_end_of_the_session_ends_every_call() {
    let mut call_client = CallClient::new(Limits::default());
    call_client.call(list(9)).unwrap();
    call_client.call(rename()).unwrap();
    let abandoned = call_client.call(rename()).unwrap();
    call_client.abandon(abandoned);
    let lost = Fault::new(Code::ConnectionLost, "read", "the last channel broke");
    call_client.end(&lost);
    call_client.end(&lost);
    let ends = outputs(&mut call_client);
    let hints: Vec<_> = ends
        .iter()
        .map(|output| match output {
            CallClientOutput::Part {
                id,
                answer: Err(fault),
                last: true,
            } => (id.slot, fault.code, fault.hint.is_empty()),
            other => panic!("{other:?}"),
        })
        .collect();
    let code = Code::ConnectionLost;
    assert_eq!(hints, [(0, code, true), (1, code, false)]);
    assert_eq!(call_client.call(rename()).unwrap_err(), lost);
    assert!(!call_client.has_room());
    assert_eq!(call_client.unanswered(), 0);
    call_client
        .handle_frame(answer(0, true, entries(0, 1, false)))
        .unwrap();
    call_client.channel_down();
    assert_eq!(call_client.poll_output(), None);
}
