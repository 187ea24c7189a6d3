//! Both machines of calls about paths and files under any calls and any frames, hostile ones
//! included: they never panic, parts are given out in order and once, each call is handed out once,
//! and what is kept for the peer is bounded.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::fuzz_target;
use xdfs_proto::call_client::{CallClient, CallClientOutput};
use xdfs_proto::call_server::{CallServer, Work};
use xdfs_proto::file::{Extent, FileCall};
use xdfs_proto::frame::{AnswerPart, FRAME_HEADER_BYTES, FrameHeader};
use xdfs_proto::path::{Answer, Call, PARTS_AHEAD_MAX};
use xdfs_proto::{CallId, Code, DigestKind, Fault, Frame, Limits};

/// Takes a frame off the input: kind, flags, length, body.
fn frame(input: &mut &[u8], limits: &Limits) -> Option<Frame> {
    let [kind, flags, length] = *input.split_off(..3)?.first_chunk()?;
    let body = input.split_off(..usize::from(length).min(input.len()))?;
    let mut header = [kind, flags, 0, 0, 0, 0, 0, 0];
    header[4..FRAME_HEADER_BYTES].copy_from_slice(&(body.len() as u32).to_be_bytes());
    let header = FrameHeader::decode(header, limits).ok()?;
    Frame::decode(header, body, limits).ok()
}

fn id(n: u8) -> CallId {
    CallId {
        slot: u16::from(n & 3),
        sequence: 1 + u32::from(n >> 6),
    }
}

fn list(entries_max: u32) -> Call {
    let (path, cursor) = (b"d".to_vec(), Vec::new());
    Call::List {
        path,
        cursor,
        entries_max,
    }
}

fn read(n: u8) -> Call {
    Call::File(FileCall::Read {
        handle: 1,
        locked: false,
        extents: vec![Extent {
            offset: 0,
            length: 4 + u32::from(n),
        }],
    })
}

fn signatures(n: u8) -> Call {
    Call::Signatures {
        path: vec![n; 3],
        digest: DigestKind::Blake3,
        block_bytes: 1024,
        first: 0,
        count: 1 + u32::from(n),
    }
}

fn calling(mut input: &[u8]) {
    let limits = Limits::default();
    let mut call_client = CallClient::new(limits.clone());
    let mut given: BTreeMap<CallId, (u32, bool)> = BTreeMap::new();
    while let Some(&[what, n]) = input.split_off(..2).and_then(|b| b.first_chunk()) {
        match what % 8 {
            0 => {
                if let Ok(id) = call_client.call(list(1 + u32::from(n))) {
                    assert!(given.insert(id, (0, false)).is_none());
                }
            }
            1 => {
                let path = vec![n; 3];
                let call = match n >> 6 {
                    0 | 1 => Call::RemoveFile { path },
                    2 => read(n),
                    _ => signatures(n),
                };
                if let Ok(id) = call_client.call(call) {
                    assert!(given.insert(id, (0, false)).is_none());
                }
            }
            2 => call_client.took(id(n)),
            3 => call_client.abandon(id(n)),
            4 => call_client.channel_down(),
            5 if n == 255 => call_client.end(&Fault::new(Code::Io, "read", "it broke")),
            _ => {
                if let Some(frame) = frame(&mut input, &limits)
                    && let Err(fault) = call_client.handle_frame(frame)
                {
                    call_client.end(&fault);
                }
            }
        }
        let mut sent = 0;
        while let Some(output) = call_client.poll_output() {
            match output {
                CallClientOutput::Part { id, last, .. } => {
                    let (parts, over) = given.get_mut(&id).expect("a call that was made");
                    assert!(!*over);
                    *parts += 1;
                    *over = last;
                }
                CallClientOutput::Transmit(_) => sent += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(sent <= 256);
        assert!(call_client.unanswered() <= 128);
    }
}

fn answering(mut input: &[u8]) {
    let limits = Limits {
        kept_part_bytes_max: 100 << 10,
        kept_data_bytes_max: 100,
        ..Limits::default()
    };
    let mut call_server = CallServer::new(limits.clone());
    let mut works: Vec<Work> = Vec::new();
    let mut changes = BTreeSet::new();
    while let Some(&[what, n]) = input.split_off(..2).and_then(|b| b.first_chunk()) {
        let chosen = works.get(usize::from(n) % works.len().max(1)).cloned();
        match what % 8 {
            0 => {
                if let Some(work) = call_server.next_work() {
                    if matches!(work.call, Call::List { .. }) {
                        assert!((1..PARTS_AHEAD_MAX).contains(&work.parts_max));
                    } else {
                        assert!(changes.insert(work.id), "handed out twice");
                    }
                    works.push(work);
                }
            }
            1 | 2 => {
                if let (Some(work), Some(Frame::Answer(AnswerPart { answer, .. }))) =
                    (chosen, frame(&mut input, &limits))
                {
                    match answer {
                        Ok(answer @ Answer::Entries { .. }) if what % 8 == 1 => {
                            call_server.part(work.id, answer);
                        }
                        answer => {
                            call_server.finished(work.id, answer);
                            works.retain(|w| w.id != work.id);
                        }
                    }
                }
            }
            3 => {
                if let Some(work) = chosen {
                    call_server.paused(work.id);
                    works.retain(|w| w.id != work.id);
                }
            }
            4 => call_server.channel_down(),
            _ => {
                if let Some(frame) = frame(&mut input, &limits)
                    && call_server.handle_frame(frame).is_err()
                {
                    return;
                }
            }
        }
        let mut sent = 0;
        while call_server.poll_output().is_some() {
            sent += 1;
        }
        assert!(sent <= 128 * PARTS_AHEAD_MAX);
        assert!(call_server.unfinished() <= 128);
    }
}

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((0..128, rest)) => calling(rest),
        Some((_, rest)) => answering(rest),
        None => {}
    }
});
