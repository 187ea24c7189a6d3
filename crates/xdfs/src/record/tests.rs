//! The fields of each type, and that docs/json.md names them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use xdfs_engine::{ChannelsReason, PathClass};
use xdfs_proto::{Code, Machine, Retry};

use super::*;
use crate::events::{LimitedBy, TimeShares};
use crate::paths::FileKind;
use crate::stack_perf::PerfPattern;
use crate::tune::{TuneEnd, TunePhase, TuneSetting};

const ATTRIBUTES: Attributes = Attributes {
    kind: FileKind::Symlink,
    size: 1,
    allocated: 2,
    mode: 0o777,
    uid: 3,
    gid: 4,
    links: 5,
    device: 6,
    inode: 7,
    atime_ns: 8,
    mtime_ns: -9,
    ctime_ns: 10,
};

fn parse(record: &Record<'_>) -> Value {
    let line = record.line();
    assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
    serde_json::from_str(&line).unwrap()
}

fn file_result() -> TransferResult {
    TransferResult {
        bytes: 300,
        seconds: 2.0,
        channels: 4,
        resumed_bytes: 100,
        retransmitted_bytes: 7,
        digest: DigestValue::Crc64Nvme(1),
        target: b"/t".to_vec(),
        time_shares: TimeShares::only(LimitedBy::TargetWrite),
        is_skipped: false,
        passage: None,
        has_cut_time: false,
    }
}

fn shares() -> Value {
    json!({
        "source-read": 0.0, "sender-cpu": 0.0, "rate-limit": 0.0, "round-trips": 0.0,
        "network": 0.0, "receiver-cpu": 0.0, "target-write": 1.0, "durability": 0.0
    })
}

#[test]
fn progress_object() {
    let now = Progress {
        bytes: 50,
        bytes_total: None,
        resumed_bytes: 10,
        channels: 2,
    };
    assert_eq!(
        parse(&Record::progress("a", "b", &now, 2.0)),
        json!({
            "schema": 1, "type": "progress", "source": "a", "target": "b", "bytes": 50,
            "bytes_total": null, "bytes_per_second": 20.0, "channels": 2,
            "resumed_bytes": 10, "seconds": 2.0
        })
    );
}

#[test]
fn file_object() {
    assert_eq!(
        parse(&Record::file("a", "b", &file_result(), false)),
        json!({
            "schema": 1, "type": "file", "source": "a", "target": "b", "bytes": 300,
            "seconds": 2.0, "bytes_per_second": 100.0, "channels": 4, "resumed_bytes": 100,
            "retransmitted_bytes": 7,
            "digest": {"kind": "crc64nvme", "value": "0000000000000001"},
            "limited_by": "target-write", "time_shares": shares(),
            "skipped": false, "direct": false, "way": null, "way_reason": null,
            "dry_run": false
        })
    );
}

#[test]
fn path_object() {
    let decision = PathDecision::Class {
        class: PathClass::VeryLong,
        round_trip: Some(Duration::from_millis(250)),
    };
    let class = json!({
        "schema": 1, "type": "path", "server": "s", "decision": "class",
        "class": "very-long", "round_trip_seconds": 0.25, "congestion": null,
        "refused": null, "stack_before": null, "stack": null, "channels_before": null,
        "channels": null, "reason": null
    });
    assert_eq!(parse(&Record::network_path("s", &decision)), class);
    let decision = PathDecision::Congestion {
        used: "cubic".into(),
        refused: Some("no".into()),
    };
    let record = parse(&Record::network_path("s", &decision));
    let fields = [
        &record["decision"],
        &record["congestion"],
        &record["refused"],
    ];
    assert_eq!(fields, ["congestion", "cubic", "no"]);
    let decision = PathDecision::Channels {
        before: 8,
        wanted: 16,
        reason: ChannelsReason::Trial,
    };
    let record = parse(&Record::network_path("s", &decision));
    assert_eq!(
        (&record["channels_before"], &record["channels"]),
        (&8.into(), &16.into())
    );
    assert_eq!(
        [&record["decision"], &record["reason"]],
        ["channels", "trial"]
    );
    let decision = PathDecision::Fallback {
        from: "quic".into(),
        to: "tcp".into(),
        cause: "no".into(),
    };
    let record = parse(&Record::network_path("s", &decision));
    let fields = ["decision", "stack_before", "stack", "refused"].map(|name| &record[name]);
    assert_eq!(fields, ["fallback", "quic", "tcp", "no"]);
}

#[test]
fn error_object() {
    let fault = Fault::new(Code::Busy, "open", "in use")
        .path(b"/\xff")
        .retry(Retry::AfterMs(200))
        .remote()
        .at(&Machine::server("lab"));
    assert_eq!(
        parse(&Record::error(Some(("a", "b")), &fault)),
        json!({
            "schema": 1, "type": "error", "code": "busy", "side": "remote",
            "machine": "lab", "operation": "open", "path": "/\u{fffd}", "cause": "in use",
            "hint": null,
            "retry": "after", "retry_after_ms": 200, "exit_code": 12,
            "source": "a", "target": "b"
        })
    );
}

#[test]
fn result_object() {
    let totals = Totals {
        bytes: 300,
        seconds: 2.0,
        channels: 4,
        resumed_bytes: 100,
        retransmitted_bytes: 7,
        files: 1,
        ..Totals::default()
    };
    let expected = json!({
        "schema": 1, "type": "result", "source": "a", "target": "b", "bytes": 300,
        "seconds": 2.0, "bytes_per_second": 100.0, "channels": 4, "resumed_bytes": 100,
        "retransmitted_bytes": 7,
        "digest": {"kind": "crc64nvme", "value": "0000000000000001"},
        "limited_by": "target-write", "time_shares": shares(),
        "files": 1, "failed": 0, "removed": 0, "exit_code": 0,
        "dry_run": false
    });
    assert_eq!(
        parse(&Record::result(
            Some("a"),
            "b",
            &totals,
            Some(&file_result())
        )),
        expected
    );
    let many = parse(&Record::result(None, "b", &totals, None));
    assert_eq!(
        (&many["digest"], &many["source"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn entry_object() {
    let owner = OwnerNames {
        user: Some("alice".into()),
        group: None,
    };
    assert_eq!(
        parse(&Record::entry(
            "u",
            b"/a\xff",
            &ATTRIBUTES,
            &owner,
            Some(b"t\n")
        )),
        json!({
            "schema": 1, "type": "entry", "operand": "u", "path": "/a\u{fffd}",
            "path_hex": "2f61ff", "kind": "symlink", "size": 1, "allocated": 2, "mode": 511,
            "uid": 3, "gid": 4, "user": "alice", "group": null, "links": 5, "device": 6,
            "inode": 7, "atime_ns": 8, "mtime_ns": -9, "ctime_ns": 10, "target": "t\n",
            "target_hex": null
        })
    );
    let text = parse(&Record::entry("u", b"/a\n", &ATTRIBUTES, &owner, None));
    assert_eq!(
        (&text["path"], &text["path_hex"]),
        (&json!("/a\n"), &Value::Null)
    );
}

/// Programs compare and store lines: the order of fields is theirs too.
#[test]
fn lines_are_the_same_to_the_byte() {
    let expected = concat!(
        r#"{"schema":1,"type":"done","operand":"u","path":"/a"#,
        "\u{fffd}",
        r#"","path_hex":"2f61ff"}"#,
        "\n"
    );
    assert_eq!(Record::done("u", b"/a\xff").line(), expected);
    let counts = CheckCounts {
        equal: 1,
        equal_bytes: 2,
        differs: 3,
        missing: 4,
        extra: 5,
    };
    let expected = concat!(
        r#"{"schema":1,"type":"check","source":"a","target":"b","equal":1,"equal_bytes":2,"#,
        r#""differs":3,"missing":4,"extra":5}"#,
        "\n"
    );
    assert_eq!(Record::check("a", "b", counts).line(), expected);
    let news = TunnelNews::Closed {
        from: "c".into(),
        target: "h:1".parse().unwrap(),
        sent: 1,
        received: 2,
        fault: None,
    };
    let expected = concat!(
        r#"{"schema":1,"type":"closed","from":"c","target":"h:1","sent":1,"received":2}"#,
        "\n"
    );
    assert_eq!(Record::tunnel(&news).line(), expected);
    let case = PerfCase {
        pattern: PerfPattern::PingPong,
        message_bytes: 8,
        duration: Duration::from_secs(1),
    };
    let sample = PerfSample {
        messages: 4,
        elapsed: Duration::from_secs(1),
        round_trip: Some((Duration::from_millis(250), Duration::from_millis(500))),
    };
    let expected = concat!(
        r#"{"schema":1,"type":"stack","stack":"tcp","pattern":"ping-pong","message_bytes":8,"#,
        r#""messages":4,"bytes_per_second":null,"#,
        r#""round_trip_seconds":{"median":0.25,"least":0.25,"greatest":0.25},"#,
        r#""round_trip_99_seconds":{"median":0.5,"least":0.5,"greatest":0.5},"ratio":null}"#,
        "\n"
    );
    assert_eq!(Record::stack("tcp", &case, &[sample], &[]).line(), expected);
}

#[test]
fn every_cause_has_a_name_of_its_own() {
    let names = LimitedBy::ALL.map(LimitedBy::as_str);
    let distinct: BTreeSet<_> = names.into_iter().collect();
    assert_eq!(distinct.len(), names.len());
}

/// The document names every field of every object, so that neither drifts from the other.
#[test]
fn the_document_names_every_field() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let document = std::fs::read_to_string(path).unwrap();
    let now = Progress {
        bytes: 0,
        bytes_total: None,
        resumed_bytes: 0,
        channels: 0,
    };
    let fault = Fault::new(Code::Io, "x", "y");
    let share = ReplicaShare {
        place: "xdfs://host/file".parse().unwrap(),
        is_used: true,
        bytes: 1,
        dropped: Some(fault.clone()),
    };
    let decision = PathDecision::Class {
        class: PathClass::Local,
        round_trip: None,
    };
    let deletion = Deletion {
        names: 1,
        names_at_target: 2,
        examples: Vec::new(),
    };
    let owner = OwnerNames::default();
    let crc = ChecksumValue::Crc64Nvme(1);
    let partial = PartialFile {
        name: Vec::new(),
        arrived: 0,
        length: None,
        allocated: 0,
        mtime_ns: 0,
    };
    let space = SpaceCounts {
        total: 0,
        free: 0,
        available: 0,
        files: 0,
        files_free: 0,
    };
    let sample = TuneSample {
        setting: TuneSetting::default(),
        phase: TunePhase::Survey,
        bytes: 0,
        elapsed: Duration::ZERO,
        bytes_per_second: 0.0,
        channels: 0,
        path: None,
    };
    let report = TuneReport {
        samples: Vec::new(),
        end: TuneEnd::Found,
        best: TuneSetting::default(),
        fastest: None,
        default_bytes_per_second: 0.0,
        noise: None,
        advice: Vec::new(),
    };
    let options = TuneOptions::default();
    let case = PerfCase {
        pattern: PerfPattern::OneWay,
        message_bytes: 1,
        duration: Duration::ZERO,
    };
    for record in [
        Record::progress("", "", &now, 0.0),
        Record::file("", "", &file_result(), false),
        Record::source("", &share),
        Record::deletion(&deletion),
        Record::step(SyncStep::Set, b"", None, false),
        Record::error(None, &fault),
        Record::network_path("", &decision),
        Record::result(None, "", &Totals::default(), None),
        Record::identity("", None, None),
        Record::entry("", b"/", &ATTRIBUTES, &owner, None),
        Record::sum("", b"/", 0, &crc, None),
        Record::difference(b"/", None, None),
        Record::check("", "", CheckCounts::default()),
        Record::space("", b"/", space),
        Record::partial("", b"/", &partial),
        Record::usage("", b"/", 0),
        Record::done("", b"/"),
        Record::summary("ls", 1, 0, 0),
        Record::sample(&sample),
        Record::tune(&report, &options),
        Record::stack("", &case, &[], &[]),
    ] {
        let object = parse(&record);
        let kind = object["type"].as_str().unwrap();
        let section = document
            .split("\n## ")
            .find(|section| section.starts_with(&format!("`{kind}`")))
            .unwrap_or_else(|| panic!("docs/json.md has no section `{kind}`"));
        for field in object.as_object().unwrap().keys() {
            let common = ["schema", "type"].contains(&field.as_str());
            let is_named = section.lines().any(|line| {
                let mut cells = line.split('|').skip(1);
                line.starts_with('|')
                    && cells
                        .next()
                        .is_some_and(|c| c.contains(&format!("`{field}`")))
            });
            assert!(common || is_named, "{kind}.{field}");
        }
    }
}
