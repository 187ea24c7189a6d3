//! Calls about copies between two acceptors and their answers: samples, what a decoder finds in
//! them, and damaged ones.

use serde_json::{Value, json};
use xdfs_proto::digest::{DigestKind, DigestValue};
use xdfs_proto::frame::{AnswerPart, CallRequest, FRAME_HEADER_BYTES, Frame, Resume};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::third_party::{
    ADDRESSES_MAX, CopyId, CopyOrder, CopyState, CopyStatus, Delegation, LIFE_S_MAX,
    RemovalQuestion, ThirdPartyCall, TreeDelegation, TreeFigures, TreeNews, TreeOrder, TreeQuery,
    TreeStatus, TreeStep, TreeTotals,
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
        ThirdPartyCall::DelegateTree(own) => json!({
            "call": "delegate-tree",
            "copy": hex(&own.copy.0),
            "writes": own.writes,
            "holder": hex(&own.holder),
            "life_s": own.life_s,
            "path": hex(&own.path),
        }),
        ThirdPartyCall::StartTree(order) => json!({
            "call": "start-tree",
            "copy": hex(&order.copy.0),
            "synchronises": order.synchronises,
            "sends": order.sends,
            "detached": order.detached,
            "keeps_root": order.keeps_root,
            "again": order.again,
            "channels": order.channels,
            "key": hex(&order.key),
            "capability": order.capability,
            "addresses": order.addresses,
            "here": hex(&order.here),
            "there": hex(&order.there),
            "options": order.options,
        }),
        ThirdPartyCall::TreeStatus(query) => json!({
            "call": "tree-status",
            "copy": hex(&query.copy.0),
            "from": wide(query.from),
            "consent": query.consent,
        }),
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

fn totals(totals: &TreeTotals) -> Value {
    let TreeTotals {
        files,
        directories,
        others,
        bytes,
    } = *totals;
    json!([wide(files), wide(directories), wide(others), wide(bytes)])
}

fn news(news: &TreeNews) -> Value {
    match news {
        TreeNews::File {
            path,
            bytes,
            digest: value,
        } => json!({
            "news": "file", "path": hex(path), "bytes": wide(*bytes), "digest": digest(value),
        }),
        TreeNews::Failed {
            path,
            fault: why,
            is_there,
        } => json!({
            "news": "failed", "path": hex(path), "fault": fault(why), "fault_there": is_there,
        }),
        TreeNews::Warning {
            fault: why,
            is_there,
        } => json!({ "news": "warning", "fault": fault(why), "fault_there": is_there }),
        TreeNews::Step { step, path, from } => json!({
            "news": "step",
            "step": match step {
                TreeStep::Copy => "copy",
                TreeStep::Delete => "delete",
                TreeStep::Rename => "rename",
                TreeStep::Replace => "replace",
                TreeStep::Set => "set",
            },
            "path": hex(path),
            "from": hex(from),
        }),
        TreeNews::Removal {
            names,
            names_at_target,
            examples,
        } => json!({
            "news": "removal",
            "names": wide(*names),
            "names_at_target": wide(*names_at_target),
            "examples": examples.iter().map(|name| hex(name)).collect::<Vec<_>>(),
        }),
        TreeNews::Question(question) => {
            let (kind, names, at_target, name): (_, _, _, &[u8]) = match question {
                RemovalQuestion::NamedLikeSource(name) => ("named-like-source", 0, 0, name),
                RemovalQuestion::NothingInCommon(names) => ("nothing-in-common", *names, 0, b""),
                RemovalQuestion::Root(names) => ("root", *names, 0, b""),
                RemovalQuestion::Share(names, all) => ("share", *names, *all, b""),
            };
            json!({
                "news": "question",
                "question": kind,
                "names": wide(names),
                "names_at_target": wide(at_target),
                "name": hex(name),
            })
        }
    }
}

pub(crate) fn tree_status(status: &TreeStatus) -> Value {
    let figures = &status.figures;
    let counts = [
        figures.matched_bytes,
        figures.failed,
        figures.unkept,
        figures.owners_unkept,
        figures.times_cut,
        figures.in_flight,
        figures.in_flight_bytes,
        figures.replaced,
        figures.set,
        figures.renamed,
        figures.deleted,
        figures.kept,
    ];
    json!({
        "answer": "tree-status",
        "state": status.state.as_str(),
        "moved": totals(&figures.moved),
        "resumed": totals(&figures.resumed),
        "counted": totals(&figures.counted),
        "counts": counts.map(wide),
        "is_counted": status.is_counted,
        "channels": status.channels,
        "elapsed_ms": wide(status.elapsed_ms),
        "fault": status.fault.as_ref().map(fault),
        "fault_there": status.is_fault_there,
        "first": wide(status.first),
        "list": status.news.iter().map(news).collect::<Vec<_>>(),
        "more": status.more,
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

fn delegate_tree(writes: bool) -> Frame {
    asks(ThirdPartyCall::DelegateTree(Box::new(TreeDelegation {
        copy: COPY,
        writes,
        holder: [0xa5; 32],
        life_s: 120,
        path: if writes { Vec::new() } else { b"data".to_vec() },
    })))
}

fn tree_order(is_plain: bool) -> Frame {
    asks(ThirdPartyCall::StartTree(Box::new(TreeOrder {
        copy: COPY,
        synchronises: !is_plain,
        sends: !is_plain,
        detached: !is_plain,
        keeps_root: !is_plain,
        again: !is_plain,
        channels: 3,
        key: [0x5a; 32],
        capability: "AAECAwQFBgc".into(),
        addresses: vec!["host.example:2799".into()],
        here: b"copy".to_vec(),
        there: b"data".to_vec(),
        options: if is_plain { "{}" } else { r#"{"delete":true}"# }.into(),
    })))
}

fn query(from: u64, consent: Option<bool>) -> Frame {
    asks(ThirdPartyCall::TreeStatus(TreeQuery {
        copy: COPY,
        from,
        consent,
    }))
}

fn tree_state(state: CopyState, news: Vec<TreeNews>) -> Frame {
    let totals = |first| TreeTotals {
        files: first,
        directories: first + 1,
        others: first + 2,
        bytes: first + 3,
    };
    let figures = TreeFigures {
        moved: totals(1),
        resumed: totals(5),
        counted: totals(9),
        matched_bytes: 13,
        failed: 14,
        unkept: 15,
        owners_unkept: 16,
        times_cut: 17,
        in_flight: 18,
        in_flight_bytes: 19,
        replaced: 20,
        set: 21,
        renamed: 22,
        deleted: 23,
        kept: u64::MAX,
    };
    let fails = state.is_failure();
    let why = || Fault::new(Code::ConnectionLost, "connect", "it has gone").remote();
    answers(Answer::TreeStatus(Box::new(TreeStatus {
        state,
        figures,
        is_counted: fails,
        channels: 2,
        elapsed_ms: 77,
        fault: fails.then(why),
        is_fault_there: fails,
        first: 1 << 40,
        more: !news.is_empty(),
        news,
    })))
}

fn all_news() -> Vec<TreeNews> {
    let why = || {
        Fault::new(Code::Io, "write", "the disk is broken")
            .path("d/f")
            .remote()
    };
    vec![
        TreeNews::File {
            path: b"d/f".to_vec(),
            bytes: 5,
            digest: DigestValue::Crc64Nvme(7),
        },
        TreeNews::Failed {
            path: b"d/g".to_vec(),
            fault: why(),
            is_there: true,
        },
        TreeNews::Warning {
            fault: why(),
            is_there: false,
        },
        TreeNews::Step {
            step: TreeStep::Rename,
            path: b"new".to_vec(),
            from: b"old".to_vec(),
        },
        TreeNews::Removal {
            names: 2,
            names_at_target: 9,
            examples: vec![b"x".to_vec(), b"y/z".to_vec()],
        },
    ]
}

fn questions() -> Vec<TreeNews> {
    vec![
        TreeNews::Question(RemovalQuestion::NamedLikeSource(b"data".to_vec())),
        TreeNews::Question(RemovalQuestion::NothingInCommon(3)),
        TreeNews::Question(RemovalQuestion::Root(4)),
        TreeNews::Question(RemovalQuestion::Share(150, 160)),
    ]
}

pub(crate) fn samples() -> Vec<(&'static str, Frame)> {
    vec![
        ("xpathm-delegate-tree-read", delegate_tree(false)),
        ("xpathm-delegate-tree-write", delegate_tree(true)),
        ("xpathm-start-tree-copy", tree_order(true)),
        ("xpathm-start-tree-sync", tree_order(false)),
        ("xpathm-tree-status", query(0, None)),
        ("xpathm-tree-status-consent", query(7, Some(true))),
        ("xpathm-tree-status-refusal", query(u64::MAX, Some(false))),
        (
            "answer-tree-moving",
            tree_state(CopyState::Moving, all_news()),
        ),
        (
            "answer-tree-asks",
            tree_state(CopyState::Moving, questions()),
        ),
        ("answer-tree-done", tree_state(CopyState::Done, Vec::new())),
        (
            "answer-tree-failed",
            tree_state(CopyState::Failed, Vec::new()),
        ),
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
    // The counts, the channels, the time, the number of the first of the news, and their count.
    let news = rest + 2 + 24 * 8 + 2 + 8 + 8 + 2;
    let tree_addresses = fields + 16 + 2 + 32 + 2 + 11;
    vec![
        (
            "xpathm-delegate-tree-option-undefined",
            at("xpathm-delegate-tree-read", options, &[2]),
        ),
        (
            "xpathm-delegate-tree-no-life",
            at("xpathm-delegate-tree-read", fields + 48, &[0; 4]),
        ),
        (
            "xpathm-start-tree-option-undefined",
            at("xpathm-start-tree-copy", options, &[32]),
        ),
        (
            "xpathm-start-tree-without-address",
            at("xpathm-start-tree-copy", tree_addresses, &[0]),
        ),
        ("xpathm-start-tree-options-not-utf-8", {
            let frame = sample("xpathm-start-tree-copy");
            damaged(&frame, frame.len() - 2, &[0xff])
        }),
        (
            "xpathm-tree-status-consent-and-refusal",
            at("xpathm-tree-status", options, &[3]),
        ),
        (
            "answer-tree-state-undefined",
            at("answer-tree-done", rest, &[5]),
        ),
        (
            "answer-tree-option-undefined",
            at("answer-tree-done", rest + 1, &[8]),
        ),
        (
            "answer-tree-done-with-a-fault-there",
            at("answer-tree-done", rest + 1, &[4]),
        ),
        (
            "answer-tree-done-with-a-fault",
            at("answer-tree-failed", rest, &[2]),
        ),
        (
            "answer-tree-news-undefined",
            at("answer-tree-moving", news, &[6]),
        ),
        (
            "answer-tree-question-undefined",
            at("answer-tree-asks", news + 1, &[4]),
        ),
        (
            "answer-tree-question-with-a-name",
            at("answer-tree-asks", news + 1, &[1]),
        ),
        ("answer-tree-cut", resized("answer-tree-asks", -1)),
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
