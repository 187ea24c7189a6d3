//! The records of copies of files.

use serde::Serialize;
use xdfs_engine::Passage;
use xdfs_proto::DigestValue;

use super::digest::Digest;
use super::shares::{Shares, limited_by};
use crate::events::{Progress, TransferResult};
use crate::replicas::ReplicaShare;

#[derive(Debug, Serialize)]
pub(super) struct ProgressBody<'a> {
    source: &'a str,
    target: &'a str,
    bytes: u64,
    bytes_total: Option<u64>,
    bytes_per_second: f64,
    channels: u32,
    resumed_bytes: u64,
    seconds: f64,
}

impl<'a> ProgressBody<'a> {
    pub(super) fn new(source: &'a str, target: &'a str, progress: &Progress, seconds: f64) -> Self {
        Self {
            source,
            target,
            bytes: progress.bytes,
            bytes_total: progress.bytes_total,
            bytes_per_second: rate(progress.bytes, progress.resumed_bytes, seconds),
            channels: progress.channels,
            resumed_bytes: progress.resumed_bytes,
            seconds,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct FileBody<'a> {
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
    direct: bool,
    way: Option<&'static str>,
    way_reason: Option<String>,
    dry_run: bool,
}

impl<'a> FileBody<'a> {
    pub(super) fn new(
        source: &'a str,
        target: &'a str,
        result: &TransferResult,
        dry_run: bool,
    ) -> Self {
        let (way, way_reason) = match &result.passage {
            Some(Passage::Direct) => (Some("direct"), None),
            Some(Passage::Client(why)) => (Some("client"), Some(why.clone())),
            None => (None, None),
        };
        Self {
            source,
            target,
            bytes: result.bytes,
            seconds: result.seconds,
            bytes_per_second: result.bytes_per_second(),
            channels: result.channels,
            resumed_bytes: result.resumed_bytes,
            retransmitted_bytes: result.retransmitted_bytes,
            digest: (&result.digest).into(),
            limited_by: limited_by(&result.time_shares),
            time_shares: result.time_shares.into(),
            skipped: result.is_skipped,
            direct: result.passage == Some(Passage::Direct),
            way,
            way_reason,
            dry_run,
        }
    }
}

/// One of several sources of a file.
#[derive(Debug, Serialize)]
pub(super) struct SourceBody<'a> {
    source: String,
    target: &'a str,
    bytes: u64,
    dropped: Option<Dropped<'a>>,
}

/// Why a source was no longer used.
#[derive(Debug, Serialize)]
struct Dropped<'a> {
    code: &'static str,
    cause: &'a str,
}

impl<'a> SourceBody<'a> {
    pub(super) fn new(target: &'a str, share: &'a ReplicaShare) -> Self {
        let fault = share.dropped.as_ref();
        Self {
            source: share.place.to_string(),
            target,
            bytes: share.bytes,
            dropped: fault.map(|fault| Dropped {
                code: fault.code.as_str(),
                cause: &fault.cause,
            }),
        }
    }
}

/// A file of a tree: what it shared with others is null.
#[derive(Debug, Serialize)]
pub(super) struct TreeFileBody<'a> {
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
    way: Option<&'static str>,
    way_reason: Option<String>,
    dry_run: bool,
}

impl<'a> TreeFileBody<'a> {
    pub(super) fn new(source: &'a str, target: &'a str, bytes: u64, digest: &DigestValue) -> Self {
        Self {
            source,
            target,
            bytes,
            seconds: None,
            bytes_per_second: None,
            channels: None,
            resumed_bytes: None,
            retransmitted_bytes: None,
            digest: digest.into(),
            limited_by: None,
            time_shares: None,
            skipped: false,
            direct: false,
            way: None,
            way_reason: None,
            dry_run: false,
        }
    }
}

/// The totals of a run.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Bytes of all files, including resumed ones.
    pub bytes: u64,
    /// Seconds of the whole run; of a single file its own.
    pub seconds: f64,
    /// Largest number of channels open at the same time.
    pub channels: u32,
    /// Bytes that an earlier attempt had made durable.
    pub resumed_bytes: u64,
    /// Bytes that were sent more than once.
    pub retransmitted_bytes: u64,
    /// Files that were copied.
    pub files: u64,
    /// Files that failed or were not started.
    pub failed: u64,
    /// Source files that were removed.
    pub removed: u64,
    /// Exit code of the program.
    pub exit_code: u8,
    /// Nothing was written.
    pub dry_run: bool,
}

impl Totals {
    /// Bytes per second, without resumed bytes.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        rate(self.bytes, self.resumed_bytes, self.seconds)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ResultBody<'a> {
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

impl<'a> ResultBody<'a> {
    pub(super) fn new(
        source: Option<&'a str>,
        target: &'a str,
        totals: &Totals,
        only: Option<&TransferResult>,
    ) -> Self {
        Self {
            source,
            target,
            bytes: totals.bytes,
            seconds: totals.seconds,
            bytes_per_second: totals.bytes_per_second(),
            channels: totals.channels,
            resumed_bytes: totals.resumed_bytes,
            retransmitted_bytes: totals.retransmitted_bytes,
            digest: only.map(|result| (&result.digest).into()),
            limited_by: only.map(|result| limited_by(&result.time_shares)),
            time_shares: only.map(|result| result.time_shares.into()),
            files: totals.files,
            failed: totals.failed,
            removed: totals.removed,
            exit_code: totals.exit_code,
            dry_run: totals.dry_run,
        }
    }
}

/// Bytes moved per second: without those of earlier attempts.
fn rate(bytes: u64, resumed_bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes.saturating_sub(resumed_bytes) as f64 / seconds
    } else {
        0.0
    }
}
