//! Calls about copies between two acceptors and their answers: samples, what a decoder finds in
//! them, and damaged ones.

use serde_json::{Value, json};
use xdfs_proto::digest::{DigestKind, DigestValue};
use xdfs_proto::frame::{AnswerPart, CallRequest, FRAME_HEADER_BYTES, Frame, Resume};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::third_party::{
    ADDRESSES_MAX, CopyId, CopyOrder, CopyState, CopyStatus, Delegation, LIFE_S_MAX, ThirdPartyCall,
};
use xdfs_proto::{CallId, Code, Fault};

use crate::describe::{digest, fault, kind, wide};
use crate::hex;
use crate::negative::{damaged, resized, sample};

const ID: CallId = CallId {
    slot: 2,
    sequence: 9,
};
const COPY: CopyId = CopyId(*b"0123456789abcdef");

pub(crate) fn call(call: &ThirdPartyCall) -> Value {
    match call {
        ThirdPartyCall::Delegate(own) => json!({
            "call": "delegate",
            "copy": hex(&own.copy.0),
            "writes": own.writes,
            "holder": hex(&own.holder),
            "bytes_max": wide(own.bytes_max),
            "life_s": own.life_s,
            "path": hex(&own.path),
        }),
        ThirdPartyCall::Start(order) => json!({
            "call": "start-copy",
            "copy": hex(&order.copy.0),
            "sends": order.sends,
            "detached": order.detached,
            "overwrite": order.overwrite,
            "resume": match order.resume {
                Resume::Never => "never",
                Resume::Trust => "trust",
                Resume::Verify => "verify",
            },
            "digest": kind(order.digest),
            "channels": order.channels,
            "rate_max": wide(order.rate_bytes_per_s_max),
            "key": hex(&order.key),
            "capability": order.capability,
            "addresses": order.addresses,
            "here": hex(&order.here),
            "there": hex(&order.there),
            "name_in_directory": hex(&order.name),
        }),
        ThirdPartyCall::Status(copy) => json!({ "call": "copy-status", "copy": hex(&copy.0) }),
        ThirdPartyCall::Cancel(copy) => json!({ "call": "cancel-copy", "copy": hex(&copy.0) }),
    }
}

pub(crate) fn status(status: &CopyStatus) -> Value {
    json!({
        "answer": "copy-status",
        "state": match status.state {
            CopyState::Connecting => "connecting",
            CopyState::Moving => "moving",
            CopyState::Done => "done",
            CopyState::Unreachable => "unreachable",
            CopyState::Failed => "failed",
        },
        "bytes": wide(status.bytes),
        "bytes_total": status.bytes_total.map(wide),
        "resumed_bytes": wide(status.resumed_bytes),
        "channels": status.channels,
        "elapsed_ms": wide(status.elapsed_ms),
        "mtime_ns": status.mtime_ns.map(|time| time.to_string()),
        "digest": digest(&status.digest),
        "target": hex(&status.target),
        "fault": status.fault.as_ref().map(fault),
        "fault_there": status.is_fault_there,
    })
}

fn asks(call: ThirdPartyCall) -> Frame {
    Frame::Xpathm(CallRequest {
        id: ID,
        call: Ok(Call::ThirdParty(call)),
    })
}

fn delegate(writes: bool, life_s: u32) -> Frame {
    asks(ThirdPartyCall::Delegate(Box::new(Delegation {
        copy: COPY,
        writes,
        holder: [0xa5; 32],
        bytes_max: 1 << 40,
        life_s,
        path: b"data/file".to_vec(),
    })))
}

fn order(sends: bool, addresses: &[&str]) -> Frame {
    asks(ThirdPartyCall::Start(Box::new(CopyOrder {
        copy: COPY,
        sends,
        detached: sends,
        overwrite: !sends,
        resume: if sends { Resume::Never } else { Resume::Trust },
        digest: DigestKind::Blake3,
        channels: 4,
        rate_bytes_per_s_max: if sends { 0 } else { 125_000_000 },
        key: [0x5a; 32],
        capability: "AAECAwQFBgc".into(),
        addresses: addresses.iter().map(|address| (*address).into()).collect(),
        here: b"copy".to_vec(),
        there: b"data/file".to_vec(),
        name: if sends { Vec::new() } else { b"file".to_vec() },
    })))
}

fn answers(answer: Answer) -> Frame {
    Frame::Answer(AnswerPart {
        id: ID,
        part: 0,
        last: true,
        answer: Ok(answer),
    })
}

fn state(state: CopyState) -> Frame {
    let is_end = state == CopyState::Done;
    answers(Answer::CopyStatus(Box::new(CopyStatus {
        state,
        bytes: 1 << 33,
        bytes_total: (state != CopyState::Connecting).then_some(1 << 34),
        resumed_bytes: 4096,
        channels: 8,
        elapsed_ms: 1500,
        mtime_ns: is_end.then_some(-1),
        digest: match is_end {
            true => DigestValue::Crc64Nvme(0x0102_0304_0506_0708),
            false => DigestValue::None,
        },
        target: if is_end { b"copy".to_vec() } else { Vec::new() },
        fault: state
            .is_failure()
            .then(|| Fault::new(Code::ConnectionLost, "connect", "it has gone").remote()),
        is_fault_there: state == CopyState::Failed,
    })))
}

pub(crate) fn samples() -> Vec<(&'static str, Frame)> {
    vec![
        ("xpathm-delegate-read", delegate(false, 1)),
        ("xpathm-delegate-write", delegate(true, LIFE_S_MAX)),
        (
            "xpathm-start-copy-fetch",
            order(false, &["host.example:2799", "192.0.2.1:2799"]),
        ),
        (
            "xpathm-start-copy-send",
            order(true, &["[2001:db8::1]:2799"; ADDRESSES_MAX]),
        ),
        ("xpathm-copy-status", asks(ThirdPartyCall::Status(COPY))),
        ("xpathm-cancel-copy", asks(ThirdPartyCall::Cancel(COPY))),
        (
            "answer-capability",
            answers(Answer::Capability("AAECAwQFBgc".into())),
        ),
        ("answer-copy-connecting", state(CopyState::Connecting)),
        ("answer-copy-moving", state(CopyState::Moving)),
        ("answer-copy-done", state(CopyState::Done)),
        ("answer-copy-unreachable", state(CopyState::Unreachable)),
        ("answer-copy-failed", state(CopyState::Failed)),
    ]
}

/// Frames that have to be refused.
pub(crate) fn negative() -> Vec<(&'static str, Vec<u8>)> {
    let body = FRAME_HEADER_BYTES;
    // The options of the call, and its fields.
    let (options, fields) = (body + 7, body + 8);
    // The content of the answer is followed by the state and its options.
    let rest = body + 11;
    let at = |name: &str, at, with: &[u8]| damaged(&sample(name), at, with);
    let life = fields + 16 + 32 + 8;
    // Identifier, resume, digest, channels, rate, key, and the capability with its length.
    let addresses = fields + 16 + 1 + 1 + 2 + 8 + 32 + 2 + 11;
    vec![
        (
            "xpathm-delegate-option-undefined",
            at("xpathm-delegate-read", options, &[2]),
        ),
        (
            "xpathm-delegate-no-life",
            at("xpathm-delegate-read", life, &[0; 4]),
        ),
        (
            "xpathm-delegate-life-too-long",
            at(
                "xpathm-delegate-read",
                life,
                &(LIFE_S_MAX + 1).to_be_bytes(),
            ),
        ),
        (
            "xpathm-start-copy-option-undefined",
            at("xpathm-start-copy-fetch", options, &[8]),
        ),
        (
            "xpathm-start-copy-resume-undefined",
            at("xpathm-start-copy-fetch", fields + 16, &[3]),
        ),
        (
            "xpathm-start-copy-without-address",
            at("xpathm-start-copy-send", addresses, &[0]),
        ),
        (
            "xpathm-start-copy-of-many-addresses",
            at("xpathm-start-copy-send", addresses, &[17]),
        ),
        ("xpathm-copy-status-cut", resized("xpathm-copy-status", -1)),
        (
            "xpathm-cancel-copy-option-undefined",
            at("xpathm-cancel-copy", options, &[1]),
        ),
        (
            "answer-copy-state-undefined",
            at("answer-copy-moving", rest, &[5]),
        ),
        (
            "answer-copy-option-undefined",
            at("answer-copy-moving", rest + 1, &[9]),
        ),
        (
            "answer-copy-total-absent-but-set",
            at("answer-copy-moving", rest + 1, &[0]),
        ),
        (
            "answer-copy-moving-with-a-fault-there",
            at("answer-copy-moving", rest + 1, &[5]),
        ),
        (
            "answer-copy-done-with-a-fault",
            at("answer-copy-failed", rest, &[2]),
        ),
        (
            "answer-copy-failed-without-a-fault",
            at("answer-copy-moving", rest, &[4]),
        ),
    ]
}
