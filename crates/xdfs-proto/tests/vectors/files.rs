//! File calls and their answers: samples, what a decoder finds in them, and damaged ones.

use std::sync::Arc;

use serde_json::{Value, json};
use xdfs_proto::file::{
    Extent, FileAnswer, FileCall, FileFlags, FileIdentity, FileOwner, HeldLock, LockRange,
};
use xdfs_proto::frame::{AnswerPart, CallRequest, FRAME_HEADER_BYTES, Frame};
use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_proto::{CallId, Code, Fault};

use crate::describe::wide;
use crate::hex;
use crate::negative::{damaged, resized, sample};

const ID: CallId = CallId {
    slot: 6,
    sequence: 9,
};
const HANDLE: u32 = 0x0102_0304;

fn extents(extents: &[Extent]) -> Value {
    let one = |e: &Extent| json!({ "offset": wide(e.offset), "length": e.length });
    extents.iter().map(one).collect()
}

fn range(value: &mut Value, range: &LockRange) {
    value["offset"] = json!(wide(range.offset));
    value["length"] = json!(range.length.map(wide));
}

fn identity(identity: &FileIdentity) -> Value {
    json!({
        "device": wide(identity.device),
        "inode": wide(identity.inode),
        "born_ns": identity.born_ns.to_string(),
    })
}

/// What a call says, without its path.
pub(crate) fn call(call: &FileCall) -> Value {
    let mut value = match call {
        FileCall::Open {
            flags,
            mode,
            owner,
            identity: known,
            ..
        } => json!({
            "call": "open",
            "read": flags.read,
            "write": flags.write,
            "append": flags.append,
            "create": flags.create,
            "exclusive": flags.exclusive,
            "truncate": flags.truncate,
            "mode": mode,
            "owner": hex(&owner.0),
            "identity": known.as_ref().map(identity),
        }),
        FileCall::Read {
            locked, extents: e, ..
        } => json!({ "call": "read", "locked": locked, "extents": extents(e) }),
        FileCall::Write {
            locked,
            extents: e,
            bytes,
            ..
        } => json!({
            "call": "write",
            "locked": locked,
            "extents": extents(e),
            "bytes": hex(bytes),
        }),
        FileCall::Append { locked, bytes, .. } => {
            json!({ "call": "append", "locked": locked, "bytes": hex(bytes) })
        }
        FileCall::Flush { data_only, .. } => json!({ "call": "flush", "data_only": data_only }),
        FileCall::SetLength { locked, length, .. } => {
            json!({ "call": "set-length", "locked": locked, "length": wide(*length) })
        }
        FileCall::Lock {
            range: r,
            exclusive,
            lease_s,
            wait_ms,
            ..
        } => {
            let mut value = json!({
                "call": "lock",
                "exclusive": exclusive,
                "lease_s": lease_s,
                "wait_ms": wait_ms,
            });
            range(&mut value, r);
            value
        }
        FileCall::Unlock { range: r, .. } => {
            let mut value = json!({ "call": "unlock" });
            range(&mut value, r);
            value
        }
        FileCall::TestLock {
            range: r,
            exclusive,
            ..
        } => {
            let mut value = json!({ "call": "test-lock", "exclusive": exclusive });
            range(&mut value, r);
            value
        }
        FileCall::Renew { holding, .. } => json!({ "call": "renew", "holding": wide(*holding) }),
        FileCall::Stat { .. } => json!({ "call": "stat-handle" }),
        FileCall::Close { .. } => json!({ "call": "close" }),
        other => panic!("{other:?} has no description"),
    };
    if let Some(handle) = call.handle() {
        value["handle"] = json!(handle);
    }
    value
}

pub(crate) fn answer(answer: &FileAnswer) -> Value {
    match answer {
        FileAnswer::Opened {
            handle,
            identity: which,
            created,
            run,
            attributes,
        } => json!({
            "answer": "opened",
            "handle": handle,
            "identity": identity(which),
            "created": created,
            "run": wide(*run),
            "attributes": crate::calls::attributes(attributes),
        }),
        FileAnswer::Data { lengths, bytes } => {
            json!({ "answer": "data", "lengths": lengths, "bytes": hex(bytes) })
        }
        FileAnswer::Appended { offset, length } => {
            json!({ "answer": "appended", "offset": wide(*offset), "length": length })
        }
        FileAnswer::Held { holding } => json!({ "answer": "held", "holding": wide(*holding) }),
        FileAnswer::InTheWay(None) => json!({ "answer": "in-the-way", "lock": null }),
        FileAnswer::InTheWay(Some(held)) => {
            let mut lock = json!({ "exclusive": held.exclusive });
            range(&mut lock, &held.range);
            json!({ "answer": "in-the-way", "lock": lock })
        }
        other => panic!("{other:?} has no description"),
    }
}

fn asks(call: FileCall) -> Frame {
    Frame::Xpathm(CallRequest {
        id: ID,
        call: Ok(Call::File(call)),
    })
}

const WHICH: FileIdentity = FileIdentity {
    device: 0x0801,
    inode: 0x0102_0304_0506_0708,
    born_ns: 1_700_000_000_123_456_789,
};

pub(crate) fn samples() -> Vec<(&'static str, Frame)> {
    let owner = FileOwner(std::array::from_fn(|i| 0xa0 + i as u8));
    let open = |flags, mode, identity| {
        asks(FileCall::Open {
            path: b"data/x.bin".to_vec(),
            flags,
            mode,
            owner,
            identity,
        })
    };
    let reading = FileFlags {
        read: true,
        ..FileFlags::default()
    };
    let all = FileFlags {
        read: true,
        write: true,
        append: true,
        create: true,
        exclusive: true,
        truncate: true,
    };
    let both = FileFlags {
        read: true,
        write: true,
        ..FileFlags::default()
    };
    let extent = |offset, length| Extent { offset, length };
    let read = |locked, extents: &[Extent]| {
        asks(FileCall::Read {
            handle: HANDLE,
            locked,
            extents: extents.to_vec(),
        })
    };
    let some = |offset, length| LockRange {
        offset,
        length: Some(length),
    };
    let bytes = |text: &str| Arc::new(text.as_bytes().to_vec());
    let handle = HANDLE;
    let mut samples = vec![
        ("file-open", open(reading, None, None)),
        ("file-open-new", open(all, Some(0o640), None)),
        ("file-open-again", open(both, None, Some(WHICH))),
        ("file-read", read(false, &[extent(4096, 61_440)])),
        (
            "file-read-pieces",
            read(true, &[extent(0, 1), extent(u64::MAX - 2, 2)]),
        ),
        (
            "file-write",
            asks(FileCall::Write {
                handle,
                locked: false,
                extents: vec![extent(7, 4)],
                bytes: bytes("abcd"),
            }),
        ),
        (
            "file-write-pieces",
            asks(FileCall::Write {
                handle,
                locked: true,
                extents: vec![extent(7, 1), extent(1 << 40, 3)],
                bytes: bytes("abcd"),
            }),
        ),
        (
            "file-append",
            asks(FileCall::Append {
                handle,
                locked: false,
                bytes: bytes("abcd"),
            }),
        ),
    ];
    samples.extend(others(handle, some));
    samples.extend(answers());
    samples
}

fn others(handle: u32, some: impl Fn(u64, u64) -> LockRange) -> Vec<(&'static str, Frame)> {
    let flush = |data_only| asks(FileCall::Flush { handle, data_only });
    vec![
        ("file-flush", flush(false)),
        ("file-flush-data", flush(true)),
        (
            "file-set-length",
            asks(FileCall::SetLength {
                handle,
                locked: true,
                length: 5 << 30,
            }),
        ),
        (
            "file-lock",
            asks(FileCall::Lock {
                handle,
                range: some(10, 20),
                exclusive: true,
                lease_s: 60,
                wait_ms: 10_000,
            }),
        ),
        (
            "file-lock-all",
            asks(FileCall::Lock {
                handle,
                range: LockRange::ALL,
                exclusive: false,
                lease_s: 3600,
                wait_ms: 0,
            }),
        ),
        (
            "file-unlock",
            asks(FileCall::Unlock {
                handle,
                range: some(10, u64::MAX - 10),
            }),
        ),
        (
            "file-test-lock",
            asks(FileCall::TestLock {
                handle,
                range: some(10, 1),
                exclusive: true,
            }),
        ),
        (
            "file-renew",
            asks(FileCall::Renew {
                handle,
                holding: 0x1122_3344_5566_7788,
            }),
        ),
        ("file-stat", asks(FileCall::Stat { handle })),
        ("file-close", asks(FileCall::Close { handle })),
    ]
}

fn answers() -> Vec<(&'static str, Frame)> {
    let whole = |answer| {
        Frame::Answer(AnswerPart {
            id: ID,
            part: 0,
            last: true,
            answer: Ok(Answer::File(answer)),
        })
    };
    let attributes = Attributes {
        kind: FileKind::File,
        size: 12,
        allocated: 4096,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        links: 1,
        device: WHICH.device,
        inode: WHICH.inode,
        atime_ns: 1,
        mtime_ns: 2,
        ctime_ns: 3,
    };
    let opened = FileAnswer::Opened {
        handle: 1,
        identity: WHICH,
        created: true,
        run: 0x99aa_bbcc_ddee_ff00,
        attributes,
    };
    let data = |lengths: &[u32], text: &str| FileAnswer::Data {
        lengths: lengths.to_vec(),
        bytes: Arc::new(text.as_bytes().to_vec()),
    };
    let in_the_way = |length, exclusive| {
        FileAnswer::InTheWay(Some(HeldLock {
            range: LockRange { offset: 10, length },
            exclusive,
        }))
    };
    let stale = Fault::new(Code::Stale, "open a file", "another file has its name now");
    let lost = Fault::new(
        Code::LockLost,
        "write to a file",
        "the lock that this was to be done under isn't held any more",
    );
    let fault = |fault: Fault| {
        Frame::Answer(AnswerPart {
            id: ID,
            part: 0,
            last: true,
            answer: Err(fault.path(b"data/x.bin").remote()),
        })
    };
    vec![
        ("answer-opened", whole(opened)),
        ("answer-data", whole(data(&[4], "abcd"))),
        ("answer-data-end", whole(data(&[0], ""))),
        ("answer-data-pieces", whole(data(&[1, 0, 3], "abcd"))),
        (
            "answer-appended",
            whole(FileAnswer::Appended {
                offset: 5 << 30,
                length: 4,
            }),
        ),
        (
            "answer-held",
            whole(FileAnswer::Held {
                holding: 0x1122_3344_5566_7788,
            }),
        ),
        (
            "answer-nothing-in-the-way",
            whole(FileAnswer::InTheWay(None)),
        ),
        ("answer-in-the-way", whole(in_the_way(Some(20), true))),
        ("answer-all-in-the-way", whole(in_the_way(None, false))),
        ("answer-stale", fault(stale)),
        ("answer-lock-lost", fault(lost)),
    ]
}

pub(crate) fn negative() -> Vec<(&'static str, Vec<u8>)> {
    let at = |name, at, with: &[u8]| damaged(&sample(name), at, with);
    let number = FRAME_HEADER_BYTES + 6;
    let options = number + 1;
    let fields = options + 1;
    let content = FRAME_HEADER_BYTES + 10;
    let rest = content + 1;
    vec![
        ("file-option-undefined", at("file-stat", options, &[1])),
        ("file-read-option-undefined", at("file-read", options, &[2])),
        ("file-open-for-nothing", at("file-open", options, &[0])),
        (
            "file-open-append-without-write",
            at("file-open", options, &[0x05]),
        ),
        (
            "file-open-exclusive-without-create",
            at("file-open", options, &[0x13]),
        ),
        (
            "file-open-again-and-truncate",
            at("file-open-again", options, &[0xa3]),
        ),
        (
            "file-open-again-and-create",
            at("file-open-again", options, &[0x8b]),
        ),
        (
            "file-open-mode-without-create",
            at("file-open", options, &[0x41]),
        ),
        (
            "file-open-mode-too-large",
            at("file-open-new", fields, &[0x10]),
        ),
        (
            "file-open-mode-absent-but-set",
            at("file-open", fields, &[0, 1]),
        ),
        (
            "file-open-identity-absent-but-set",
            at("file-open", fields + 18, &[1]),
        ),
        (
            "file-open-zero-in-path",
            at("file-open", fields + 2 + 16 + 24 + 2, &[0]),
        ),
        ("file-handle-zero", at("file-stat", fields, &[0; 4])),
        ("file-read-nothing", at("file-read", fields + 4, &[0, 0])),
        (
            "file-read-too-many-pieces",
            at("file-read", fields + 4, &[1, 1]),
        ),
        (
            "file-read-of-no-bytes",
            at("file-read", fields + 14, &[0; 4]),
        ),
        (
            "file-read-of-too-much",
            at("file-read", fields + 14, &61_441u32.to_be_bytes()),
        ),
        (
            "file-read-past-the-end-of-numbers",
            at("file-read", fields + 6, &[0xff; 8]),
        ),
        ("file-read-cut", resized("file-read", -1)),
        ("file-write-with-too-little", resized("file-write", -1)),
        ("file-write-with-more", resized("file-write", 1)),
        (
            "file-append-of-nothing",
            damaged(&resized("file-append", -4), fields + 4, &[0; 4]),
        ),
        (
            "file-append-of-too-much",
            at("file-append", fields + 4, &61_441u32.to_be_bytes()),
        ),
        (
            "file-lock-of-nothing",
            at("file-lock", fields + 12, &[0; 8]),
        ),
        (
            "file-lock-past-the-end-of-numbers",
            at("file-lock", fields + 12, &[0xff; 8]),
        ),
        (
            "file-lock-length-absent-but-set",
            at("file-lock-all", fields + 12, &[1]),
        ),
        (
            "file-lock-without-lease",
            at("file-lock", fields + 20, &[0; 4]),
        ),
        (
            "file-lock-lease-too-long",
            at("file-lock", fields + 20, &3601u32.to_be_bytes()),
        ),
        (
            "file-lock-wait-too-long",
            at("file-lock", fields + 24, &10_001u32.to_be_bytes()),
        ),
        (
            "answer-opened-handle-zero",
            at("answer-opened", rest, &[0; 4]),
        ),
        (
            "answer-opened-created-unknown",
            at("answer-opened", rest + 4, &[2]),
        ),
        (
            "answer-opened-mode-too-large",
            at("answer-opened", rest + 4 + 1 + 8 + 24 + 1, &[0x10]),
        ),
        ("answer-data-of-nothing", {
            let short = resized("answer-data-end", -4);
            damaged(&short, rest, &[0, 0])
        }),
        (
            "answer-data-too-many-pieces",
            at("answer-data", rest, &[1, 1]),
        ),
        (
            "answer-data-too-much",
            at("answer-data", rest + 2, &61_441u32.to_be_bytes()),
        ),
        ("answer-data-cut", resized("answer-data", -1)),
        ("answer-data-with-more", resized("answer-data", 1)),
        ("answer-data-not-last", at("answer-data", 1, &[0])),
        (
            "answer-nothing-in-the-way-but-set",
            at("answer-nothing-in-the-way", rest + 1, &[1]),
        ),
        (
            "answer-in-the-way-of-nothing",
            at("answer-in-the-way", rest + 9, &[0; 8]),
        ),
        (
            "answer-in-the-way-bit-undefined",
            at("answer-in-the-way", rest, &[0x0f]),
        ),
        (
            "answer-content-of-files-unknown",
            at("answer-held", content, &[0x25]),
        ),
    ]
}
