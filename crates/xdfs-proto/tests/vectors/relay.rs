//! Calls about parcels and their answer: samples, what a decoder finds in them, and damaged ones.

use serde_json::{Value, json};
use xdfs_proto::digest::DigestValue;
use xdfs_proto::frame::{AnswerPart, CallRequest, FRAME_HEADER_BYTES, Frame};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::relay::{
    ListedParcel, PARCEL_LIFE_S_MAX, ParcelEnd, ParcelList, ParcelName, ParcelOrder, ParcelQuery,
    ParcelState, ParcelStatus, RelayCall, RelayId,
};
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{CallId, Code, Fault};

use crate::describe::{digest, fault, wide};
use crate::hex;
use crate::negative::{damaged, resized, sample};

const ID: CallId = CallId {
    slot: 3,
    sequence: 11,
};
const PARCEL: CopyId = CopyId(*b"fedcba9876543210");
const TARGET: &str = "xdfs://host.example/in/";

pub(crate) fn call(call: &RelayCall) -> Value {
    match call {
        RelayCall::Open(order) => json!({
            "call": "open-parcel",
            "parcel": hex(&order.id.0),
            "overwrite": order.overwrite,
            "tree": order.tree,
            "bytes": wide(order.bytes),
            "life_s": order.life_s,
            "target": order.target,
            "name": hex(&order.name),
            "digest": digest(&order.digest),
            "next": order.next,
            "in_order": order.in_order,
            "ahead": order.ahead,
            "of": order.of.map(|id| hex(&id.0)),
            "passed": order.passed.iter().map(|relay| hex(&relay.0)).collect::<Vec<_>>(),
        }),
        RelayCall::Status(name) => json!({
            "call": "parcel-status",
            "parcel": hex(&name.id.0),
            "user": name.user,
        }),
        RelayCall::End(name, end) => json!({
            "call": "end-parcel",
            "parcel": hex(&name.id.0),
            "user": name.user,
            "end": match end {
                ParcelEnd::Cancel => "cancel",
                ParcelEnd::Retry => "retry",
            },
        }),
        RelayCall::List(query) => json!({
            "call": "list-parcels",
            "all_users": query.all_users,
            "states": query.states,
            "from": wide(query.from),
        }),
    }
}

pub(crate) fn status(status: &ParcelStatus) -> Value {
    let mut found = fields(status);
    found["answer"] = "parcel-status".into();
    found
}

pub(crate) fn list(list: &ParcelList) -> Value {
    let parcels = list.parcels.iter().map(|parcel| {
        let mut found = fields(&parcel.status);
        found["parcel"] = hex(&parcel.id.0).into();
        found["user"] = parcel.user.as_str().into();
        found
    });
    json!({
        "answer": "parcels",
        "next": list.next.map(wide),
        "parcels": parcels.collect::<Vec<_>>(),
    })
}

fn fields(status: &ParcelStatus) -> Value {
    json!({
        "state": status.state.as_str(),
        "bytes": wide(status.bytes),
        "arrived": wide(status.arrived),
        "delivered": wide(status.delivered),
        "attempts": status.attempts,
        "age_s": wide(status.age_s),
        "next_ms": status.next_ms.map(wide),
        "digest": digest(&status.digest),
        "target": status.target,
        "fault": status.fault.as_ref().map(fault),
        "fault_there": status.is_fault_there,
        "holder": status.holder,
    })
}

fn asks(call: RelayCall) -> Frame {
    Frame::Xpathm(CallRequest {
        id: ID,
        call: Ok(Call::Relay(call)),
    })
}

fn open(overwrite: bool, life_s: u32) -> Frame {
    asks(RelayCall::Open(Box::new(order(overwrite, life_s))))
}

/// A parcel that comes from a relay, and is to go by two others.
fn open_onward() -> Frame {
    asks(RelayCall::Open(Box::new(ParcelOrder {
        digest: DigestValue::Crc64Nvme(0x0102_0304_0506_0708),
        next: vec![
            "xdfs://second.example".into(),
            "xdfs://third.example:80".into(),
        ],
        passed: vec![RelayId(*b"0123456789abcdef")],
        tree: true,
        ..order(false, 60)
    })))
}

/// A parcel with the file of another one.
fn open_shared() -> Frame {
    asks(RelayCall::Open(Box::new(ParcelOrder {
        of: Some(CopyId(*b"0123456789abcdef")),
        in_order: Some("nightly".into()),
        ..order(true, 60)
    })))
}

/// A parcel whose file hasn't arrived as a whole at the relay that sends it on.
fn open_ahead() -> Frame {
    asks(RelayCall::Open(Box::new(ParcelOrder {
        ahead: true,
        passed: vec![RelayId(*b"0123456789abcdef")],
        ..order(false, 60)
    })))
}

fn order(overwrite: bool, life_s: u32) -> ParcelOrder {
    ParcelOrder {
        id: PARCEL,
        overwrite,
        tree: false,
        bytes: 1 << 41,
        life_s,
        target: TARGET.into(),
        name: b"file".to_vec(),
        digest: DigestValue::None,
        next: Vec::new(),
        passed: Vec::new(),
        of: None,
        in_order: None,
        ahead: false,
    }
}

fn state(state: ParcelState) -> Frame {
    answered(Answer::ParcelStatus(Box::new(in_state(state))))
}

fn elsewhere() -> Frame {
    answered(Answer::ParcelStatus(Box::new(ParcelStatus {
        holder: Some("xdfs://second.example".into()),
        ..in_state(ParcelState::Held)
    })))
}

fn listed(states: &[ParcelState], next: Option<u64>) -> Frame {
    let parcels = states
        .iter()
        .zip(["alice", "bob"])
        .map(|(state, user)| ListedParcel {
            id: PARCEL,
            user: user.into(),
            status: in_state(*state),
        });
    answered(Answer::Parcels(ParcelList {
        next,
        parcels: parcels.collect(),
    }))
}

fn answered(answer: Answer) -> Frame {
    Frame::Answer(AnswerPart {
        id: ID,
        part: 0,
        last: true,
        answer: Ok(answer),
    })
}

fn in_state(state: ParcelState) -> ParcelStatus {
    let (has_arrived, waits) = (state != ParcelState::Arriving, state == ParcelState::Held);
    let fails = waits || state == ParcelState::Dead;
    ParcelStatus {
        state,
        bytes: 1 << 34,
        arrived: if has_arrived { 1 << 34 } else { 1 << 33 },
        delivered: if state == ParcelState::Delivering {
            77
        } else {
            0
        },
        attempts: 3,
        age_s: 86_400,
        next_ms: waits.then_some(1500),
        digest: match has_arrived {
            true => DigestValue::Crc64Nvme(0x0102_0304_0506_0708),
            false => DigestValue::None,
        },
        target: TARGET.into(),
        fault: fails.then(|| Fault::new(Code::ConnectionLost, "connect", "it has gone").remote()),
        is_fault_there: state == ParcelState::Dead,
        holder: None,
    }
}

fn of_bob() -> ParcelName {
    ParcelName {
        id: PARCEL,
        user: Some("bob".into()),
    }
}

pub(crate) fn samples() -> Vec<(&'static str, Frame)> {
    vec![
        ("xpathm-open-parcel", open(false, 1)),
        (
            "xpathm-open-parcel-overwrite",
            open(true, PARCEL_LIFE_S_MAX),
        ),
        ("xpathm-open-parcel-onward", open_onward()),
        ("xpathm-open-parcel-shared", open_shared()),
        ("xpathm-open-parcel-ahead", open_ahead()),
        (
            "xpathm-parcel-status",
            asks(RelayCall::Status(PARCEL.into())),
        ),
        (
            "xpathm-parcel-status-of-user",
            asks(RelayCall::Status(of_bob())),
        ),
        (
            "xpathm-cancel-parcel",
            asks(RelayCall::End(PARCEL.into(), ParcelEnd::Cancel)),
        ),
        (
            "xpathm-retry-parcel",
            asks(RelayCall::End(PARCEL.into(), ParcelEnd::Retry)),
        ),
        (
            "xpathm-retry-parcel-of-user",
            asks(RelayCall::End(of_bob(), ParcelEnd::Retry)),
        ),
        (
            "xpathm-list-parcels",
            asks(RelayCall::List(ParcelQuery {
                all_users: false,
                states: ParcelQuery::bit(ParcelState::Dead),
                from: 0,
            })),
        ),
        (
            "xpathm-list-parcels-of-all",
            asks(RelayCall::List(ParcelQuery {
                all_users: true,
                states: ParcelQuery::ALL_STATES,
                from: u64::MAX,
            })),
        ),
        ("answer-parcel-arriving", state(ParcelState::Arriving)),
        ("answer-parcel-held", state(ParcelState::Held)),
        ("answer-parcel-delivering", state(ParcelState::Delivering)),
        ("answer-parcel-delivered", state(ParcelState::Delivered)),
        ("answer-parcel-dead", state(ParcelState::Dead)),
        ("answer-parcel-cancelled", state(ParcelState::Cancelled)),
        ("answer-parcel-held-elsewhere", elsewhere()),
        (
            "answer-parcels",
            listed(&[ParcelState::Held, ParcelState::Dead], Some(12)),
        ),
        ("answer-parcels-none", listed(&[], None)),
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
    let life = fields + 16 + 8;
    let name = life + 4 + 2 + TARGET.len() + 2;
    let plain = sample("xpathm-open-parcel").len();
    let shared = sample("xpathm-open-parcel-shared").len();
    vec![
        (
            "xpathm-open-parcel-option-undefined",
            at("xpathm-open-parcel", options, &[32]),
        ),
        (
            "xpathm-open-parcel-ahead-with-a-digest",
            at("xpathm-open-parcel-onward", options, &[0x12]),
        ),
        (
            "xpathm-open-parcel-with-its-own-file",
            at("xpathm-open-parcel-shared", shared - 16 - 9, &PARCEL.0),
        ),
        (
            "xpathm-open-parcel-order-with-no-name",
            damaged(
                &resized("xpathm-open-parcel-shared", -7),
                shared - 9,
                &[0, 0],
            ),
        ),
        (
            "xpathm-open-parcel-tree-that-replaces",
            at("xpathm-open-parcel", options, &[3]),
        ),
        (
            "xpathm-open-parcel-no-life",
            at("xpathm-open-parcel", life, &[0; 4]),
        ),
        (
            "xpathm-open-parcel-life-too-long",
            at(
                "xpathm-open-parcel",
                life,
                &(PARCEL_LIFE_S_MAX + 1).to_be_bytes(),
            ),
        ),
        (
            "xpathm-open-parcel-target-not-text",
            at("xpathm-open-parcel", life + 6, &[7]),
        ),
        (
            "xpathm-open-parcel-name-of-a-directory",
            at("xpathm-open-parcel", name, b"d/fi"),
        ),
        ("xpathm-open-parcel-cut", resized("xpathm-open-parcel", -1)),
        (
            "xpathm-open-parcel-too-many-relays-passed",
            at("xpathm-open-parcel", plain - 1, &[9]),
        ),
        (
            "xpathm-open-parcel-too-many-relays-next",
            at("xpathm-open-parcel", plain - 2, &[9]),
        ),
        (
            "xpathm-open-parcel-too-many-relays-together",
            damaged(
                &resized("xpathm-open-parcel-onward", 6 * 16),
                sample("xpathm-open-parcel-onward").len() - 17,
                &[7],
            ),
        ),
        (
            "xpathm-parcel-status-option-undefined",
            at("xpathm-parcel-status", options, &[2]),
        ),
        (
            "xpathm-parcel-status-user-missing",
            at("xpathm-parcel-status", options, &[1]),
        ),
        (
            "xpathm-parcel-status-user-empty",
            at("xpathm-parcel-status-of-user", fields + 16, &[0, 0]),
        ),
        (
            "xpathm-list-parcels-option-undefined",
            at("xpathm-list-parcels", options, &[2]),
        ),
        (
            "xpathm-list-parcels-no-state",
            at("xpathm-list-parcels", fields, &[0]),
        ),
        (
            "xpathm-list-parcels-state-undefined",
            at("xpathm-list-parcels", fields, &[0x40]),
        ),
        (
            "answer-parcels-option-undefined",
            at("answer-parcels-none", rest, &[2]),
        ),
        (
            "answer-parcels-next-absent-but-set",
            at("answer-parcels", rest, &[0]),
        ),
        (
            "answer-parcels-more-than-there-are",
            at("answer-parcels", rest + 1 + 8, &[0, 3]),
        ),
        (
            "xpathm-end-parcel-undefined",
            at("xpathm-cancel-parcel", fields + 16, &[2]),
        ),
        (
            "answer-parcel-state-undefined",
            at("answer-parcel-delivered", rest, &[6]),
        ),
        (
            "answer-parcel-option-undefined",
            at("answer-parcel-delivered", rest + 1, &[16]),
        ),
        (
            "answer-parcel-fault-there-without-a-fault",
            at("answer-parcel-delivered", rest + 1, &[4]),
        ),
        (
            "answer-parcel-dead-without-a-fault",
            at("answer-parcel-delivered", rest, &[4]),
        ),
        (
            "answer-parcel-time-absent-but-set",
            at("answer-parcel-held", rest + 1, &[2]),
        ),
        (
            "answer-parcel-arrived-beyond-its-length",
            at("answer-parcel-delivered", rest + 2 + 8, &[1]),
        ),
    ]
}
