//! The JSON lines of `--json`. docs/json.md is their contract.
//!
//! Fields are only ever added within one version of the schema; a change of meaning or a removal
//! raises [`SCHEMA`].

use serde::{Serialize, Serializer};
use xdfs::{
    ChannelsReason, ChecksumValue, Deletion, DigestValue, Fault, Machine, PathClass, PathDecision,
    Progress, Retry, SyncResult, SyncStep, TimeShares, TransferResult, TreeResult,
};

use crate::progress::{self, names};

/// Version of the schema.
const SCHEMA: u32 = 1;

/// A line about copies and transfers, or about any failure.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Record<'a> {
    Progress(ProgressBody<'a>),
    File(FileBody<'a>),
    #[serde(rename = "file")]
    TreeFile(TreeFileBody<'a>),
    Tree(TreeBody<'a>),
    #[serde(rename = "tree-progress")]
    TreeProgress(TreeBody<'a>),
    Deletion(DeletionBody<'a>),
    Step(StepBody<'a>),
    Sync(SyncBody<'a>),
    Error(ErrorBody<'a>),
    Result(ResultBody<'a>),
    Identity(IdentityBody<'a>),
    Path(PathBody<'a>),
}

/// A decision about the network path: the fields of the others are null.
#[derive(Debug, Serialize)]
pub(crate) struct PathBody<'a> {
    /// The server, without a path.
    server: &'a str,
    decision: &'static str,
    class: Option<&'static str>,
    round_trip_seconds: Option<f64>,
    congestion: Option<&'a str>,
    refused: Option<&'a str>,
    stack_before: Option<&'a str>,
    stack: Option<&'a str>,
    channels_before: Option<u32>,
    channels: Option<u32>,
    reason: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub(crate) struct IdentityBody<'a> {
    /// The server as the user wrote it.
    pub(crate) server: &'a str,
    pub(crate) user: Option<&'a str>,
    pub(crate) fingerprint: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ProgressBody<'a> {
    source: &'a str,
    target: &'a str,
    bytes: u64,
    bytes_total: Option<u64>,
    bytes_per_second: f64,
    channels: u32,
    resumed_bytes: u64,
    seconds: f64,
}

/// A digest of a whole file.
#[derive(Debug, Serialize)]
pub(crate) struct Digest {
    kind: &'static str,
    value: Option<String>,
}

impl Digest {
    /// The JSON form of a digest.
    pub(crate) fn new(value: &DigestValue) -> Self {
        let (kind, value) = progress::digest(value);
        Self { kind, value }
    }

    /// The JSON form of a checksum.
    pub(crate) fn of_checksum(value: &ChecksumValue) -> Self {
        let (kind, value) = progress::checksum(value);
        let value = Some(value);
        Self { kind, value }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct FileBody<'a> {
    source: &'a str,
    target: &'a str,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    channels: u32,
    resumed_bytes: u64,
    retransmitted_bytes: u64,
    digest: Digest,
    limited_by: &'static str,
    time_shares: Shares,
    skipped: bool,
    /// Straight from one server to another.
    direct: bool,
    dry_run: bool,
}

/// A file of a tree: what it shared with others is null.
#[derive(Debug, Serialize)]
pub(crate) struct TreeFileBody<'a> {
    source: &'a str,
    target: &'a str,
    bytes: u64,
    seconds: Option<f64>,
    bytes_per_second: Option<f64>,
    channels: Option<u32>,
    resumed_bytes: Option<u64>,
    retransmitted_bytes: Option<u64>,
    digest: Digest,
    limited_by: Option<&'static str>,
    time_shares: Option<Shares>,
    skipped: bool,
    direct: bool,
    dry_run: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct TreeBody<'a> {
    source: &'a str,
    target: &'a str,
    files: u64,
    directories: u64,
    others: u64,
    failed: u64,
    without_special_bits: u64,
    without_owner: u64,
    without_time: u64,
    bytes: u64,
    resumed_files: u64,
    resumed_directories: u64,
    resumed_others: u64,
    resumed_bytes: u64,
    files_total: Option<u64>,
    bytes_total: Option<u64>,
    in_flight: u64,
    in_flight_bytes: u64,
    reconnects: u64,
    limited_by: Option<&'static str>,
    time_shares: Option<Shares>,
    seconds: f64,
    dry_run: bool,
}

impl<'a> TreeBody<'a> {
    fn new(source: &'a str, target: &'a str, result: &TreeResult, dry_run: bool) -> Self {
        let activity = &result.activity;
        Self {
            source,
            target,
            files: result.files,
            directories: result.directories,
            others: result.others,
            failed: result.failed,
            without_special_bits: result.unkept,
            without_owner: result.owners_unkept,
            without_time: result.times_cut,
            bytes: result.bytes,
            resumed_files: result.resumed.files,
            resumed_directories: result.resumed.directories,
            resumed_others: result.resumed.others,
            resumed_bytes: result.resumed.bytes,
            files_total: activity.is_counted.then_some(activity.counted.files),
            bytes_total: activity.is_counted.then_some(activity.counted.bytes),
            in_flight: activity.in_flight,
            in_flight_bytes: activity.in_flight_bytes,
            reconnects: result.reconnects,
            limited_by: result.time_shares.as_ref().map(limited_by),
            time_shares: result.time_shares.map(Shares),
            seconds: result.elapsed.as_secs_f64(),
            dry_run,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct DeletionBody<'a> {
    names: u64,
    names_at_target: u64,
    examples: &'a [String],
}

#[derive(Debug, Serialize)]
pub(crate) struct StepBody<'a> {
    step: &'static str,
    path: &'a str,
    from: Option<&'a str>,
    dry_run: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct SyncBody<'a> {
    #[serde(flatten)]
    tree: TreeBody<'a>,
    replaced: u64,
    set: u64,
    renamed: u64,
    deleted: u64,
    kept: u64,
    matched_bytes: u64,
}

/// The JSON word for a step of a synchronisation.
pub(crate) fn step(step: SyncStep) -> &'static str {
    match step {
        SyncStep::Copy => "copy",
        SyncStep::Delete => "delete",
        SyncStep::Rename => "rename",
        SyncStep::Replace => "replace",
        SyncStep::Set => "set",
        _ => "other",
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct ErrorBody<'a> {
    code: &'static str,
    side: String,
    machine: Option<&'a str>,
    operation: &'a str,
    path: Option<String>,
    cause: &'a str,
    hint: Option<&'a str>,
    retry: &'static str,
    retry_after_ms: Option<u32>,
    exit_code: u8,
    source: Option<&'a str>,
    target: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ResultBody<'a> {
    source: Option<&'a str>,
    target: &'a str,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    channels: u32,
    resumed_bytes: u64,
    retransmitted_bytes: u64,
    digest: Option<Digest>,
    limited_by: Option<&'static str>,
    time_shares: Option<Shares>,
    files: u64,
    failed: u64,
    removed: u64,
    exit_code: u8,
    dry_run: bool,
}

/// The totals of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Bytes of all files, including resumed ones.
    pub(crate) bytes: u64,
    /// Seconds of the whole run; of a single file its own.
    pub(crate) seconds: f64,
    /// Largest number of channels open at the same time.
    pub(crate) channels: u32,
    /// Bytes that an earlier attempt had made durable.
    pub(crate) resumed_bytes: u64,
    /// Bytes that were sent more than once.
    pub(crate) retransmitted_bytes: u64,
    /// Files that were copied.
    pub(crate) files: u64,
    /// Files that failed or were not started.
    pub(crate) failed: u64,
    /// Source files that were removed.
    pub(crate) removed: u64,
    /// Exit code of the program.
    pub(crate) exit_code: u8,
    /// Nothing was written.
    pub(crate) dry_run: bool,
}

impl Totals {
    /// Bytes per second, without resumed bytes.
    #[expect(clippy::cast_precision_loss, reason = "a rate; 53 bits are enough")]
    pub(crate) fn bytes_per_second(&self) -> f64 {
        let moved = self.bytes.saturating_sub(self.resumed_bytes);
        if self.seconds > 0.0 {
            moved as f64 / self.seconds
        } else {
            0.0
        }
    }
}

/// The shares of the time, by the words of `limited_by`.
#[derive(Debug)]
struct Shares(TimeShares);

impl Serialize for Shares {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Digits beyond these would suggest a precision that isn't there.
        let rounded = |share: f64| (share * 1e4).round() / 1e4;
        to.collect_map(
            self.0
                .iter()
                .map(|(by, share)| (names(by).0, rounded(share))),
        )
    }
}

/// The stable word for the bottleneck of a transfer.
fn limited_by(shares: &TimeShares) -> &'static str {
    names(shares.limited_by()).0
}

fn digest(result: &TransferResult) -> Digest {
    Digest::new(&result.digest)
}

impl<'a> Record<'a> {
    /// Progress of a file, `seconds` after its start.
    #[expect(clippy::cast_precision_loss, reason = "a rate; 53 bits are enough")]
    pub(crate) fn progress(
        source: &'a str,
        target: &'a str,
        progress: &Progress,
        seconds: f64,
    ) -> Self {
        let moved = progress.bytes.saturating_sub(progress.resumed_bytes);
        Self::Progress(ProgressBody {
            source,
            target,
            bytes: progress.bytes,
            bytes_total: progress.bytes_total,
            bytes_per_second: if seconds > 0.0 {
                moved as f64 / seconds
            } else {
                0.0
            },
            channels: progress.channels,
            resumed_bytes: progress.resumed_bytes,
            seconds,
        })
    }

    /// The result of a file.
    pub(crate) fn file(
        source: &'a str,
        target: &'a str,
        result: &TransferResult,
        dry_run: bool,
    ) -> Self {
        Self::File(FileBody {
            source,
            target,
            bytes: result.bytes,
            seconds: result.seconds,
            bytes_per_second: result.bytes_per_second(),
            channels: result.channels,
            resumed_bytes: result.resumed_bytes,
            retransmitted_bytes: result.retransmitted_bytes,
            digest: digest(result),
            limited_by: limited_by(&result.time_shares),
            time_shares: Shares(result.time_shares),
            skipped: result.is_skipped,
            direct: result.is_direct,
            dry_run,
        })
    }

    /// A file of a tree that was moved.
    pub(crate) fn tree_file(
        source: &'a str,
        target: &'a str,
        bytes: u64,
        digest: &DigestValue,
    ) -> Self {
        let (kind, value) = progress::digest(digest);
        Self::TreeFile(TreeFileBody {
            source,
            target,
            bytes,
            seconds: None,
            bytes_per_second: None,
            channels: None,
            resumed_bytes: None,
            retransmitted_bytes: None,
            digest: Digest { kind, value },
            limited_by: None,
            time_shares: None,
            skipped: false,
            direct: false,
            dry_run: false,
        })
    }

    /// Progress of a tree.
    pub(crate) fn tree_progress(source: &'a str, target: &'a str, result: &TreeResult) -> Self {
        Self::TreeProgress(TreeBody::new(source, target, result, false))
    }

    /// The result of a tree.
    pub(crate) fn tree(
        source: &'a str,
        target: &'a str,
        result: &TreeResult,
        dry_run: bool,
    ) -> Self {
        Self::Tree(TreeBody::new(source, target, result, dry_run))
    }

    /// The deletions that a synchronisation is about to make; `examples` are some of their paths.
    pub(crate) fn deletion(deletion: &Deletion, examples: &'a [String]) -> Self {
        Self::Deletion(DeletionBody {
            names: deletion.names,
            names_at_target: deletion.names_at_target,
            examples,
        })
    }

    /// A step of a synchronisation.
    pub(crate) fn step(
        word: SyncStep,
        path: &'a str,
        from: Option<&'a str>,
        dry_run: bool,
    ) -> Self {
        Self::Step(StepBody {
            step: step(word),
            path,
            from,
            dry_run,
        })
    }

    /// The result of a synchronisation.
    pub(crate) fn sync(
        source: &'a str,
        target: &'a str,
        result: &SyncResult,
        dry_run: bool,
    ) -> Self {
        Self::Sync(SyncBody {
            tree: TreeBody::new(source, target, &result.tree, dry_run),
            replaced: result.replaced,
            set: result.set,
            renamed: result.renamed,
            deleted: result.deleted,
            kept: result.kept,
            matched_bytes: result.tree.matched_bytes,
        })
    }

    /// A decision about the network path to a server.
    pub(crate) fn path(server: &'a str, decision: &'a PathDecision) -> Self {
        let mut body = PathBody {
            server,
            decision: "other",
            class: None,
            round_trip_seconds: None,
            congestion: None,
            refused: None,
            stack_before: None,
            stack: None,
            channels_before: None,
            channels: None,
            reason: None,
        };
        match decision {
            PathDecision::Class { class, round_trip } => {
                body.decision = "class";
                body.class = Some(PathClass::as_str(*class));
                body.round_trip_seconds = round_trip.map(|time| time.as_secs_f64());
            }
            PathDecision::Congestion { used, refused } => {
                body.decision = "congestion";
                body.congestion = Some(used)
                    .filter(|used| !used.is_empty())
                    .map(|u| u.as_str());
                body.refused = refused.as_deref();
            }
            PathDecision::Channels {
                before,
                wanted,
                reason,
            } => {
                body.decision = "channels";
                body.channels_before = Some(*before);
                body.channels = Some(*wanted);
                body.reason = Some(ChannelsReason::as_str(*reason));
            }
            PathDecision::Fallback { from, to, cause } => {
                body.decision = "fallback";
                body.stack_before = Some(from);
                body.stack = Some(to);
                body.refused = Some(cause);
            }
            // Variants added later.
            _ => {}
        }
        Self::Path(body)
    }

    /// A failure of the file with these `places`, or of the run.
    pub(crate) fn error(places: Option<(&'a str, &'a str)>, fault: &'a Fault) -> Self {
        Self::failure(places.map(|p| p.0), places.map(|p| p.1), fault)
    }

    /// A failure of an operand of a path command, or of the command.
    pub(crate) fn operand_error(operand: Option<&'a str>, fault: &'a Fault) -> Self {
        Self::failure(operand, None, fault)
    }

    fn failure(source: Option<&'a str>, target: Option<&'a str>, fault: &'a Fault) -> Self {
        let (retry, retry_after_ms) = match fault.retry {
            Retry::Never => ("never", None),
            Retry::Now => ("now", None),
            Retry::AfterMs(ms) => ("after", Some(ms)),
        };
        Self::Error(ErrorBody {
            code: fault.code.as_str(),
            side: fault.side.to_string(),
            machine: fault.machine.as_ref().map(Machine::name),
            operation: &fault.operation,
            path: (!fault.path.is_empty())
                .then(|| String::from_utf8_lossy(&fault.path).into_owned()),
            cause: &fault.cause,
            hint: (!fault.hint.is_empty()).then_some(fault.hint.as_str()),
            retry,
            retry_after_ms,
            exit_code: fault.exit_code(),
            source,
            target,
        })
    }

    /// The end of a run. `only` is the result of a run with a single file.
    pub(crate) fn result(
        source: Option<&'a str>,
        target: &'a str,
        totals: &Totals,
        only: Option<&TransferResult>,
    ) -> Self {
        Self::Result(ResultBody {
            source,
            target,
            bytes: totals.bytes,
            seconds: totals.seconds,
            bytes_per_second: totals.bytes_per_second(),
            channels: totals.channels,
            resumed_bytes: totals.resumed_bytes,
            retransmitted_bytes: totals.retransmitted_bytes,
            digest: only.map(digest),
            limited_by: only.map(|result| limited_by(&result.time_shares)),
            time_shares: only.map(|result| Shares(result.time_shares)),
            files: totals.files,
            failed: totals.failed,
            removed: totals.removed,
            exit_code: totals.exit_code,
            dry_run: totals.dry_run,
        })
    }

    /// The record as a line, with its line end.
    pub(crate) fn line(&self) -> String {
        line(self)
    }
}

/// A record as a line, with the version of the schema and a line end.
pub(crate) fn line(record: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Line<'a, R> {
        schema: u32,
        #[serde(flatten)]
        record: &'a R,
    }
    let schema = SCHEMA;
    // Strings, numbers and options always have a JSON form.
    let mut text = serde_json::to_string(&Line { schema, record }).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use xdfs::{Code, LimitedBy};

    use super::*;

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
            is_direct: false,
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
                "skipped": false, "direct": false, "dry_run": false
            })
        );
    }

    #[test]
    fn path_object() {
        let decision = PathDecision::Class {
            class: PathClass::VeryLong,
            round_trip: Some(std::time::Duration::from_millis(250)),
        };
        let class = json!({
            "schema": 1, "type": "path", "server": "s", "decision": "class",
            "class": "very-long", "round_trip_seconds": 0.25, "congestion": null,
            "refused": null, "stack_before": null, "stack": null, "channels_before": null,
            "channels": null, "reason": null
        });
        assert_eq!(parse(&Record::path("s", &decision)), class);
        let decision = PathDecision::Congestion {
            used: "cubic".into(),
            refused: Some("no".into()),
        };
        let told = parse(&Record::path("s", &decision));
        let fields = [&told["decision"], &told["congestion"], &told["refused"]];
        assert_eq!(fields, ["congestion", "cubic", "no"]);
        let decision = PathDecision::Channels {
            before: 8,
            wanted: 16,
            reason: ChannelsReason::Trial,
        };
        let told = parse(&Record::path("s", &decision));
        assert_eq!(
            (&told["channels_before"], &told["channels"]),
            (&8.into(), &16.into())
        );
        assert_eq!([&told["decision"], &told["reason"]], ["channels", "trial"]);
        let decision = PathDecision::Fallback {
            from: "quic".into(),
            to: "tcp".into(),
            cause: "no".into(),
        };
        let told = parse(&Record::path("s", &decision));
        let fields = ["decision", "stack_before", "stack", "refused"].map(|name| &told[name]);
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
        let decision = PathDecision::Class {
            class: PathClass::Local,
            round_trip: None,
        };
        let deletion = Record::Deletion(DeletionBody {
            names: 1,
            names_at_target: 2,
            examples: &[],
        });
        for (kind, record) in [
            ("progress", Record::progress("", "", &now, 0.0)),
            ("file", Record::file("", "", &file_result(), false)),
            ("deletion", deletion),
            ("error", Record::error(None, &fault)),
            ("path", Record::path("", &decision)),
            ("result", Record::result(None, "", &Totals::default(), None)),
            (
                "identity",
                Record::Identity(IdentityBody {
                    server: "",
                    user: None,
                    fingerprint: None,
                }),
            ),
        ] {
            let section = document
                .split("\n## ")
                .find(|section| section.starts_with(&format!("`{kind}`")))
                .unwrap_or_else(|| panic!("docs/json.md has no section `{kind}`"));
            for field in parse(&record).as_object().unwrap().keys() {
                let common = ["schema", "type"].contains(&field.as_str());
                assert!(
                    common || section.contains(&format!("| `{field}` |")),
                    "{kind}.{field}"
                );
            }
        }
    }
}
