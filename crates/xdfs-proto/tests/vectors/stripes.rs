//! Calls about files that several acceptors write, and their answer: samples, what a decoder finds
//! in them, and damaged ones.

use serde_json::{Value, json};
use xdfs_proto::digest::{DigestKind, DigestValue, Fragment, FragmentState};
use xdfs_proto::frame::{AnswerPart, CallRequest, FRAME_HEADER_BYTES, Frame, Resume};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::stripes::{HELD_MAX, Stripes, StripesCall, StripesOrder, TAKEN_MAX};
use xdfs_proto::{ByteRange, CallId, SourceTag};

use crate::describe::{digest, fragment, kind, wide};
use crate::hex;
use crate::negative::{damaged, resized, sample};

const ID: CallId = CallId {
    slot: 3,
    sequence: 12,
};
const BLOCK: u64 = 1 << 20;

fn fragments(all: &[Fragment]) -> Value {
    all.iter().map(fragment).collect()
}

pub(crate) fn call(call: &StripesCall) -> Value {
    match call {
        StripesCall::Open(order) => json!({
            "call": "open-stripes",
            "path": hex(&order.path),
            "name": hex(&order.name),
            "length": wide(order.length),
            "tag": hex(&order.tag.0),
            "digest": kind(order.digest),
            "block_size": order.block_bytes,
            "overwrite": order.overwrite,
            "resume": match order.resume {
                Resume::Never => "never",
                Resume::Trust => "trust",
                Resume::Verify => "verify",
            },
            "mode": order.mode,
            "mtime_ns": order.mtime_ns.map(|time| time.to_string()),
        }),
        StripesCall::TakeIn {
            id,
            fragments: taken,
        } => json!({
            "call": "take-in",
            "target": wide(*id),
            "fragments": fragments(taken),
        }),
        StripesCall::Publish { id, digest: whole } => json!({
            "call": "publish-stripes",
            "target": wide(*id),
            "digest": digest(whole),
        }),
        StripesCall::Close { id, discard } => json!({
            "call": "close-stripes",
            "target": wide(*id),
            "discard": discard,
        }),
    }
}

pub(crate) fn answer(stripes: &Stripes) -> Value {
    json!({
        "answer": "stripes",
        "target": wide(stripes.id),
        "file": wide(stripes.number),
        "block_size": stripes.block_bytes,
        "path": hex(&stripes.path),
        "held": fragments(&stripes.held),
    })
}

fn asks(call: StripesCall) -> Frame {
    Frame::Xpathm(CallRequest {
        id: ID,
        call: Ok(Call::Stripes(call)),
    })
}

fn order(is_full: bool) -> StripesOrder {
    StripesOrder {
        path: b"data/big.img".to_vec(),
        name: if is_full {
            b"big.img".to_vec()
        } else {
            Vec::new()
        },
        length: if is_full { u64::MAX } else { 1 },
        tag: SourceTag(*b"0123456789abcdef"),
        digest: match is_full {
            true => DigestKind::Blake3,
            false => DigestKind::Crc64Nvme,
        },
        block_bytes: 512 << 10,
        overwrite: is_full,
        resume: match is_full {
            true => Resume::Verify,
            false => Resume::Trust,
        },
        mode: is_full.then_some(0o640),
        mtime_ns: is_full.then_some(-1),
    }
}

/// Fragments with a gap after each.
fn some(count: usize, of: DigestKind) -> Vec<Fragment> {
    let fragment = |number: u64| {
        let start = 2 * number * BLOCK;
        let end = start + BLOCK;
        let byte = number as u8;
        let state = match of {
            DigestKind::Blake3 => FragmentState::Blake3 {
                node: [byte; 32],
                root: if start == 0 { [0xee; 32] } else { [0; 32] },
            },
            _ => FragmentState::Crc64Nvme(0x0102_0304_0506_0700 | u64::from(byte)),
        };
        Fragment {
            range: ByteRange { start, end },
            state,
        }
    };
    (0..).map(fragment).take(count).collect()
}

fn take_in(count: usize, of: DigestKind) -> Frame {
    let fragments = some(count, of);
    asks(StripesCall::TakeIn { id: 7, fragments })
}

fn opened(count: usize, of: DigestKind) -> Frame {
    Frame::Answer(AnswerPart {
        id: ID,
        part: 0,
        last: true,
        answer: Ok(Answer::Stripes(Box::new(Stripes {
            id: 7,
            number: if count == 1 { 0 } else { 1 << 40 | 5 },
            block_bytes: 512 << 10,
            path: b"data/big.img".to_vec(),
            held: some(count, of),
        }))),
    })
}

pub(crate) fn samples() -> Vec<(&'static str, Frame)> {
    let publish = |digest| asks(StripesCall::Publish { id: 7, digest });
    let close = |discard| asks(StripesCall::Close { id: 7, discard });
    vec![
        (
            "xpathm-open-stripes",
            asks(StripesCall::Open(Box::new(order(false)))),
        ),
        (
            "xpathm-open-stripes-all",
            asks(StripesCall::Open(Box::new(order(true)))),
        ),
        ("xpathm-take-in", take_in(2, DigestKind::Crc64Nvme)),
        (
            "xpathm-take-in-most",
            take_in(TAKEN_MAX, DigestKind::Blake3),
        ),
        (
            "xpathm-publish-stripes",
            publish(DigestValue::Crc64Nvme(0x0102_0304_0506_0708)),
        ),
        (
            "xpathm-publish-stripes-blake3",
            publish(DigestValue::Blake3([0xc5; 32])),
        ),
        ("xpathm-close-stripes", close(false)),
        ("xpathm-close-stripes-discard", close(true)),
        ("answer-stripes", opened(0, DigestKind::None)),
        ("answer-stripes-held", opened(1, DigestKind::Crc64Nvme)),
        ("answer-stripes-most", opened(HELD_MAX, DigestKind::Blake3)),
    ]
}

/// Frames that have to be refused.
pub(crate) fn negative() -> Vec<(&'static str, Vec<u8>)> {
    let body = FRAME_HEADER_BYTES;
    // The options of the call, and its fields.
    let (options, fields) = (body + 7, body + 8);
    // The content of the answer is followed by its fields.
    let rest = body + 11;
    let at = |name: &str, at, with: &[u8]| damaged(&sample(name), at, with);
    let length = fields + 16;
    let (of_digest, block) = (length + 8, length + 9);
    let (resume, mode, time) = (block + 4, block + 5, block + 7);
    let name = time + 8 + 2 + 12 + 2;
    // The number of the target, the kind of digest, and the count.
    let (kind, first) = (fields + 8, fields + 11);
    vec![
        (
            "xpathm-open-stripes-option-undefined",
            at("xpathm-open-stripes", options, &[8]),
        ),
        (
            "xpathm-open-stripes-of-nothing",
            at("xpathm-open-stripes", length, &[0; 8]),
        ),
        (
            "xpathm-open-stripes-without-digest",
            at("xpathm-open-stripes", of_digest, &[0]),
        ),
        (
            "xpathm-open-stripes-block",
            at("xpathm-open-stripes", block, &[0, 0, 3, 0]),
        ),
        (
            "xpathm-open-stripes-resume-undefined",
            at("xpathm-open-stripes", resume, &[3]),
        ),
        (
            "xpathm-open-stripes-mode-absent-but-set",
            at("xpathm-open-stripes", mode, &[0, 1]),
        ),
        (
            "xpathm-open-stripes-mode-too-large",
            at("xpathm-open-stripes-all", mode, &[0x10, 0]),
        ),
        (
            "xpathm-open-stripes-time-absent-but-set",
            at("xpathm-open-stripes", time, &[1]),
        ),
        (
            "xpathm-open-stripes-name-of-a-path",
            at("xpathm-open-stripes-all", name, b"b/"),
        ),
        (
            "xpathm-open-stripes-cut",
            resized("xpathm-open-stripes", -1),
        ),
        (
            "xpathm-take-in-nothing",
            damaged(&resized("xpathm-take-in", -48), kind, &[0, 0, 0]),
        ),
        (
            "xpathm-take-in-without-digest",
            damaged(&resized("xpathm-take-in", -16), kind, &[0]),
        ),
        (
            "xpathm-take-in-too-many",
            at("xpathm-take-in-most", kind + 1, &[0, 65]),
        ),
        (
            "xpathm-take-in-empty",
            at("xpathm-take-in", first + 8, &[0; 8]),
        ),
        (
            "xpathm-take-in-overlap",
            at("xpathm-take-in", first + 8, &[0, 0, 0, 0, 0, 0x20, 0, 1]),
        ),
        (
            "xpathm-take-in-too-large",
            at("xpathm-take-in", first + 24 + 8, &[0, 0, 1]),
        ),
        (
            "xpathm-publish-stripes-without-digest",
            damaged(&resized("xpathm-publish-stripes", -8), kind, &[0]),
        ),
        (
            "xpathm-close-stripes-option-undefined",
            at("xpathm-close-stripes", options, &[2]),
        ),
        (
            "answer-stripes-block",
            at("answer-stripes", rest + 16, &[0; 4]),
        ),
        (
            "answer-stripes-nothing-held-by-a-digest",
            at("answer-stripes", rest + 20 + 14, &[1]),
        ),
        (
            "answer-stripes-too-many-held",
            at("answer-stripes-most", rest + 20 + 15, &[2, 1]),
        ),
    ]
}
