//! Messages as JSON: what a decoder has to find in the bytes.

use serde_json::{Value, json};
use xdfs_proto::digest::{
    ChecksumKind, ChecksumValue, DigestKind, DigestValue, Fragment, FragmentState,
};
use xdfs_proto::frame::{
    Ack, AnswerPart, AuthOk, BlockHeader, CallRequest, Cancel, Challenge, Durable, Eofr, Exception,
    Frame, Hole, Incoming, Offer, Proof, Published, Repeat, Resume, Scope, Start, Taken,
    TimeAccount, TunnelAccept, TunnelRequest,
};
use xdfs_proto::opening::{Answer, Feature, Hello};
use xdfs_proto::{ByteRange, Fault, Retry};

use crate::hex;

fn features(features: &[Feature]) -> Value {
    let one = |f: &Feature| json!({ "id": f.id, "name": f.name, "value": hex(&f.value) });
    features.iter().map(one).collect()
}

/// The end of a file with the details of its account, if it has them.
fn with_details(time: &TimeAccount, mut end: Value) -> Value {
    if let Some(details) = time.details {
        end["account"] = json!({
            "time_us": wide(details.time_us),
            "sync_permille": details.sync_permille,
            "cpu_permille": details.cpu_permille,
            "rate_permille": details.rate_permille,
            "payload_permille": details.payload_permille,
        });
    }
    end
}

pub(crate) fn hello(hello: &Hello) -> Value {
    json!({
        "message": "HELLO",
        "service": hello.service,
        "version_min": hello.version_min,
        "version_max": hello.version_max,
        "features": features(&hello.features),
    })
}

pub(crate) fn answer(answer: &Answer) -> Value {
    match answer {
        Answer::Welcome(welcome) => json!({
            "message": "WELCOME",
            "version": welcome.version,
            "features": features(&welcome.features),
        }),
        Answer::Refused(f) => json!({ "message": "REFUSED", "fault": fault(f) }),
    }
}

pub(crate) fn fault(fault: &Fault) -> Value {
    json!({
        "code": fault.code.number(),
        "code_name": fault.code.as_str(),
        "retry": match fault.retry {
            Retry::Never => json!("never"),
            Retry::Now => json!("now"),
            Retry::AfterMs(milliseconds) => json!({ "after_ms": milliseconds }),
        },
        "operation": fault.operation,
        "path": hex(&fault.path),
        "cause": fault.cause,
        "hint": fault.hint,
    })
}

pub(crate) fn wide(number: u64) -> Value {
    json!(number.to_string())
}

fn range(range: &ByteRange) -> Value {
    json!({ "start": wide(range.start), "end": wide(range.end) })
}

pub(crate) fn kind(kind: DigestKind) -> &'static str {
    match kind {
        DigestKind::Crc64Nvme => "crc64nvme",
        DigestKind::Blake3 => "blake3",
        _ => "none",
    }
}

pub(crate) fn digest(digest: &DigestValue) -> Value {
    match digest {
        DigestValue::None => json!({ "kind": "none" }),
        DigestValue::Crc64Nvme(crc) => {
            json!({ "kind": "crc64nvme", "value": hex(&crc.to_be_bytes()) })
        }
        DigestValue::Blake3(hash) => json!({ "kind": "blake3", "value": hex(hash) }),
    }
}

pub(crate) fn checksum_kind(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::Crc64Nvme => "crc64nvme",
        ChecksumKind::Blake3 => "blake3",
        ChecksumKind::Sha256 => "sha256",
        ChecksumKind::Md5 => "md5",
        _ => panic!("{kind:?} has no name here"),
    }
}

pub(crate) fn checksum(checksum: &ChecksumValue) -> Value {
    let value = match checksum {
        ChecksumValue::Crc64Nvme(crc) => hex(&crc.to_be_bytes()),
        ChecksumValue::Blake3(hash) | ChecksumValue::Sha256(hash) => hex(hash),
        ChecksumValue::Md5(hash) => hex(hash),
        _ => panic!("{checksum:?} has no form here"),
    };
    json!({ "kind": checksum_kind(checksum.kind()), "value": value })
}

pub(crate) fn fragment(fragment: &Fragment) -> Value {
    let mut value = range(&fragment.range);
    match fragment.state {
        FragmentState::None => {}
        FragmentState::Crc64Nvme(crc) => value["crc64nvme"] = json!(hex(&crc.to_be_bytes())),
        FragmentState::Blake3 { node, root } => {
            value["node"] = json!(hex(&node));
            if fragment.range.start == 0 {
                value["root"] = json!(hex(&root));
            }
        }
    }
    value
}

fn offer(offer: &Offer) -> Value {
    json!({
        "file": offer.file.0,
        "path": hex(&offer.path),
        "name": hex(&offer.name),
        "length": offer.length.map(wide),
        "tag": hex(&offer.tag.0),
        "mode": offer.mode,
        "mtime_ns": offer.mtime_ns.map(|t| t.to_string()),
        "digest": kind(offer.digest),
        "overwrite": offer.overwrite,
        "resume": match offer.resume {
            Resume::Never => "never",
            Resume::Trust => "trust",
            Resume::Verify => "verify",
        },
        "dry_run": offer.dry_run,
        "pack": offer.pack,
        "sparse": offer.sparse,
        "relaxed": offer.relaxed,
    })
}

pub(crate) fn frame(frame: &Frame) -> Value {
    let mut value = match frame {
        Frame::Session(s) => json!({
            "session": hex(&s.id.0),
            "channels": s.channels,
            "block_size": s.block_size,
            "window": s.window,
            "start": match s.start { Start::Elastic => "elastic", Start::Strict => "strict" },
            "user": s.user,
        }),
        Frame::SessionOk(s) => json!({
            "secret": hex(&s.secret.0),
            "channels": s.channels,
            "block_size": s.block_size,
            "window": s.window,
        }),
        Frame::Join(j) => json!({
            "session": hex(&j.id.0),
            "secret": hex(&j.secret.0),
            "channel": j.channel.0,
        }),
        Frame::Auth(a) => json!({ "method": a.method, "user": a.user, "body": hex(&a.body) }),
        Frame::Challenge(Challenge(body)) | Frame::Proof(Proof(body)) => {
            json!({ "body": hex(body) })
        }
        Frame::AuthOk(AuthOk { user }) => json!({ "user": user }),
        Frame::Tunnel(TunnelRequest {
            purpose,
            target,
            number,
            bundle,
        }) => json!({
            "purpose": format!("{purpose:?}").to_lowercase(),
            "target": target,
            "number": wide(*number),
            "bundle": wide(*bundle),
        }),
        Frame::TunnelOk(TunnelAccept { address }) => json!({ "address": address }),
        Frame::Incoming(Incoming { number, peer }) => {
            json!({ "number": wide(*number), "peer": peer })
        }
        Frame::Protect(level) => json!({ "level": format!("{level:?}").to_lowercase() }),
        Frame::Eofr(Eofr {
            file,
            length,
            digest: value,
            time,
        }) => with_details(
            time,
            json!({
                "file": file.0,
                "length": wide(*length),
                "digest": digest(value),
                "store_wait_permille": time.store_permille,
            }),
        ),
        Frame::Published(Published {
            file,
            length,
            digest: value,
            time,
            failures,
        }) => with_details(
            time,
            json!({
                "file": file.0,
                "length": wide(*length),
                "digest": digest(value),
                "store_wait_permille": time.store_permille,
                "failures": failures.runs().iter().map(|run| json!({
                    "first": run.first,
                    "count": run.count,
                    "fault": fault(&run.fault),
                })).collect::<Vec<_>>(),
            }),
        ),
        Frame::Xftsmu(o) | Frame::Offer(o) => offer(o),
        Frame::Xftsm(r) => json!({
            "file": r.file.0,
            "path": hex(&r.path),
            "offset": wide(r.offset),
            "length": r.length.map(wide),
            "digest": kind(r.digest),
            "pack": r.pack.as_ref().map(|request| json!({
                "keep_owner": request.keep.owner,
                "keep_xattrs": request.keep.xattrs,
                "keep_read_times": request.keep.read_times,
                "follow_links": request.follow,
                "file_bytes_max": request.file_bytes_max,
                "names": request.names.iter().map(|n| hex(n)).collect::<Vec<_>>(),
            })),
        }),
        Frame::Accept(a) => json!({
            "file": a.file.0,
            "path": hex(&a.path),
            "block_size": a.block_size,
            "durable": a.durable.iter().map(fragment).collect::<Value>(),
        }),
        Frame::Hole(Hole { file, range: r }) | Frame::Repeat(Repeat { file, range: r }) => {
            json!({ "file": file.0, "range": range(r) })
        }
        Frame::Ack(Ack { data_frames }) => json!({ "data_frames": wide(*data_frames) }),
        Frame::Durable(Durable { file, bytes }) => json!({ "file": file.0, "bytes": wide(*bytes) }),
        Frame::Cancel(Cancel { file }) => json!({ "file": file.0 }),
        Frame::Exception(Exception { scope, fault: f }) => json!({
            "scope": match scope {
                Scope::Channel => json!("channel"),
                Scope::File(file) => json!({ "file": file.0 }),
                Scope::Session => json!("session"),
            },
            "fault": fault(f),
        }),
        Frame::Xpathm(CallRequest { id, call: Ok(call) }) => crate::calls::call(*id, call),
        Frame::Xpathm(CallRequest {
            id,
            call: Err(unknown),
        }) => json!({
            "slot": id.slot,
            "sequence": id.sequence,
            "unknown_operation": unknown.number,
            "rest": hex(&unknown.rest),
        }),
        Frame::Answer(AnswerPart {
            id,
            part,
            last,
            answer,
        }) => crate::calls::answer(*id, *part, *last, answer),
        Frame::Taken(Taken { id, parts, stop }) => json!({
            "slot": id.slot,
            "sequence": id.sequence,
            "parts": parts,
            "stop": stop,
        }),
        _ => json!({}),
    };
    value["frame"] = json!(frame.name());
    value
}

pub(crate) fn block(header: &BlockHeader, payload: &[u8]) -> Value {
    json!({
        "frame": "BLOCK",
        "file": header.file.0,
        "check": header.check,
        "clear": header.clear,
        "offset": wide(header.offset),
        "length": header.length,
        "payload": hex(payload),
    })
}
