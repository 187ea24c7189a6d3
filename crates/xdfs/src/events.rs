//! Events and results of transfers, trees and queues, and their observer.

use std::ops::ControlFlow;
use std::time::Duration;

use xdfs_engine::Outcome;
pub use xdfs_engine::{LimitedBy, Passage, Progress, TimeShares, TimeSum};
use xdfs_proto::{DigestValue, Fault};

use crate::mtime::is_cut;

/// Receives events. The default methods ignore them and continue. [`ControlFlow::Break`] stops the
/// operation in an orderly way, so that it can be resumed.
///
/// Trees and [`Transfer::wait_with`](crate::Transfer::wait_with) call it in the caller's thread, a
/// [`Queue`](crate::Queue) in its own, one call at a time. Until it returns, only transfers in
/// flight progress, so it must not block: hand longer work to another thread, for example over a
/// channel. It must never wait for the operation that it observes.
///
/// A closure that takes a [`TreeEvent`] observes trees. [`Silent`] ignores all events.
pub trait Observer {
    /// Progress of a single transfer, at most ten times a second.
    fn on_transfer(&mut self, progress: &Progress) -> ControlFlow<()> {
        let _ = progress;
        ControlFlow::Continue(())
    }

    /// An event of a tree. `Break` stops the tree.
    fn on_tree(&mut self, event: TreeEvent<'_>) -> ControlFlow<()> {
        let _ = event;
        ControlFlow::Continue(())
    }

    /// An event of the job with this number in a queue. `Break` stops the whole queue.
    fn on_job(&mut self, number: u64, event: QueueEvent<'_>) -> ControlFlow<()> {
        let _ = (number, event);
        ControlFlow::Continue(())
    }
}

/// An observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}

impl<F> Observer for F
where
    F: FnMut(TreeEvent<'_>) -> ControlFlow<()>,
{
    fn on_tree(&mut self, event: TreeEvent<'_>) -> ControlFlow<()> {
        self(event)
    }
}

/// An event of a job in a queue.
#[derive(Debug)]
#[non_exhaustive]
pub enum QueueEvent<'a> {
    /// The job has succeeded. Its last event.
    Done(&'a TransferResult),
    /// The job has failed for good, or was cancelled. Its last event.
    Failed(&'a Fault),
    /// Progress, at most ten times a second.
    Progress(&'a Progress),
    /// An attempt failed, and the job is retried after a pause.
    Retry {
        /// The reason of the failure.
        fault: &'a Fault,
        /// Number of the coming retry, counted from 1 after each attempt that transferred bytes.
        retry: u32,
        /// The number of retries after which the job fails. Few, if the server never answered.
        retries_max: u32,
        /// Time until the retry.
        pause: Duration,
    },
    /// The job was passed to a session. This event repeats if the job is restarted because its
    /// session broke with the fault of another job.
    Started,
}

/// The result of a transfer.
#[derive(Clone, Debug)]
pub struct TransferResult {
    /// Bytes of the transfer, including those of earlier attempts.
    pub bytes: u64,
    /// Seconds from the start of the transfer to its publication; of a job that was tried again,
    /// from its first start.
    pub seconds: f64,
    /// Largest number of channels open at the same time, without those that were leaving.
    pub channels: u32,
    /// Bytes that earlier attempts had made durable, and that were not sent again. Attempts of the
    /// same job of a queue are one.
    pub resumed_bytes: u64,
    /// Bytes that were sent more than once.
    pub retransmitted_bytes: u64,
    /// The verified digest of the whole transfer.
    pub digest: DigestValue,
    /// Path of the target, as published (or as it would be, in a dry run).
    pub target: Vec<u8>,
    /// Where the time went, as shares that sum to one; the largest is the bottleneck
    /// ([`TimeShares::limited_by`]). All of the time counts for a skipped file's comparison.
    pub time_shares: TimeShares,
    /// Nothing was moved, since the target exists: [`Skip`](crate::Skip) says which are skipped.
    pub is_skipped: bool,
    /// The way from one server to another; `None` if one side is this process. Of two FTP
    /// servers, which compare checksums of their own, and within one server `digest` has none.
    pub passage: Option<Passage>,
    /// The modification time of the source is beyond the range that can be carried, which is from
    /// 1677 to 2262: the target has the time at its end.
    pub has_cut_time: bool,
}

impl TransferResult {
    /// Bytes per second moved in this attempt.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            (self.bytes - self.resumed_bytes) as f64 / self.seconds
        } else {
            0.0
        }
    }
}

/// The pace of a file that was a transfer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilePace {
    /// Bytes per second, without those that an earlier attempt had made durable.
    pub bytes_per_second: u64,
    /// The limit of this rate.
    pub limited_by: LimitedBy,
}

impl FilePace {
    /// The pace of a transfer that took this time. That of its result begins with the end of
    /// another one of its session, so that times of a tree can be added up.
    pub(crate) fn over(result: &TransferResult, time: Duration) -> Self {
        let moved = u128::from(result.bytes.saturating_sub(result.resumed_bytes));
        let rate = moved * 1_000_000 / time.as_micros().max(1);
        Self {
            bytes_per_second: u64::try_from(rate).unwrap_or(u64::MAX),
            limited_by: result.time_shares.limited_by(),
        }
    }
}

impl From<&TransferResult> for FilePace {
    /// The pace of a transfer that was alone.
    fn from(result: &TransferResult) -> Self {
        let time = Duration::try_from_secs_f64(result.seconds).unwrap_or_default();
        Self::over(result, time)
    }
}

impl From<Outcome> for TransferResult {
    fn from(outcome: Outcome) -> Self {
        Self {
            bytes: outcome.bytes,
            seconds: outcome.elapsed.as_secs_f64(),
            channels: outcome.channels,
            resumed_bytes: outcome.resumed_bytes,
            retransmitted_bytes: outcome.retransmitted_bytes,
            digest: outcome.digest,
            target: outcome.target,
            time_shares: outcome.time_shares,
            is_skipped: outcome.is_skipped,
            passage: outcome.passage,
            has_cut_time: is_cut(outcome.mtime_ns),
        }
    }
}

/// An event of a tree copy or synchronisation.
#[derive(Debug)]
#[non_exhaustive]
pub enum TreeEvent<'a> {
    /// The path of the tree at the target, which is known before anything happens there. Not of a
    /// synchronisation, whose target is the named one.
    Target(&'a [u8]),
    /// Progress, at most ten times a second.
    Progress(&'a TreeResult),
    /// An entry that could not be moved, or not with all requested metadata. The path is relative.
    Failed {
        /// The entry.
        path: &'a [u8],
        /// Why.
        fault: &'a Fault,
    },
    /// A file that was moved. The path is relative.
    File {
        /// The file.
        path: &'a [u8],
        /// Bytes of its content.
        bytes: u64,
        /// The digest of its content: that of its transfer, or one of
        /// [`TreeOptions::file_digests`](crate::TreeOptions::file_digests). None if the session
        /// broke while it was in flight and it was found at the target.
        digest: &'a DigestValue,
        /// Its own pace. None of a small file, which is moved together with others, and of one that
        /// was there before.
        pace: Option<FilePace>,
    },
    /// A problem that doesn't stop the tree, such as an unusable journal.
    Warning(&'a Fault),
    /// A synchronisation is about to remove these names, if there is consent where it needs any.
    /// Not in a dry run.
    Deletion(&'a Deletion),
    /// A step of a synchronisation, or of a dry run of a copy (without its directories). In a dry
    /// run every step is reported, otherwise only completed renames and removals. Paths are
    /// relative.
    Step {
        /// The kind of step.
        step: SyncStep,
        /// The entry.
        path: &'a [u8],
        /// Its old path, if it is renamed.
        from: Option<&'a [u8]>,
    },
}

/// Names that a synchronisation is about to remove from the target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deletion {
    /// Number of the names.
    pub names: u64,
    /// Number of names at the target, with these.
    pub names_at_target: u64,
    /// The first of the names: paths relative to the target.
    pub examples: Vec<Vec<u8>>,
}

/// The action of a synchronisation on an entry of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncStep {
    /// A missing entry is created.
    Copy,
    /// An entry is removed.
    Delete,
    /// An entry is renamed.
    Rename,
    /// The content or kind of an entry is replaced.
    Replace,
    /// The mode, time or owner of an entry is set.
    Set,
}

impl SyncStep {
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Delete => "delete",
            Self::Rename => "rename",
            Self::Replace => "replace",
            Self::Set => "set",
        }
    }
}

/// The result of a tree copy or synchronisation.
#[derive(Clone, Debug, Default)]
pub struct TreeResult {
    /// Moved files.
    pub files: u64,
    /// Directories, created or existing; only those that `resumed` doesn't have.
    pub directories: u64,
    /// Created links and named pipes.
    pub others: u64,
    /// Moved bytes of content.
    pub bytes: u64,
    /// The part of `bytes` that was not sent, since the target already had it from an interrupted
    /// attempt or in the old file ([`SyncOptions::delta`](crate::SyncOptions::delta)).
    pub matched_bytes: u64,
    /// Failed entries, each reported by an event.
    pub failed: u64,
    /// Files moved without their set-user-id and set-group-id bits, since owners aren't preserved.
    pub unkept: u64,
    /// Files, directories and others moved without their owner or group, since the target can't
    /// give files to it.
    pub owners_unkept: u64,
    /// Files, directories and others whose modification time is beyond the range that can be
    /// carried, which is from 1677 to 2262: they have the time at its end.
    pub times_cut: u64,
    /// Entries that were at the target already and not moved, and directories that are known to
    /// have been there: those of an earlier run, and with a [`Skip`](crate::Skip) by size and
    /// time. Not included in the other counts, once the copy has ended.
    pub resumed: TreeCounts,
    /// Elapsed time of the whole operation.
    pub elapsed: Duration,
    /// Path of the tree at the target.
    pub target: Vec<u8>,
    /// Other sessions that took the place of broken ones.
    pub reconnects: u64,
    /// Where the time of its transfers went, each weighed by its time; `None` if nothing was moved
    /// by any.
    pub time_shares: Option<TimeShares>,
    /// The way from one server of xDFS to another; `None` if one side is this process or a
    /// server of another protocol, if one server has both, and if each file went without this
    /// process by itself. [`Passage::Client`] says why all of it couldn't go straight, though large
    /// files may have.
    pub passage: Option<Passage>,
    /// The current activity, in progress events.
    pub activity: TreeActivity,
}

/// The current activity of a tree copy or synchronisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeActivity {
    /// Entries of the source that were counted so far, with
    /// [`TreeOptions::count_source`](crate::TreeOptions::count_source).
    pub counted: TreeCounts,
    /// All of them were counted.
    pub is_counted: bool,
    /// Entries in flight.
    pub in_flight: u64,
    /// Bytes of large files in flight that have arrived. Not included in [`TreeResult::bytes`].
    pub in_flight_bytes: u64,
}

/// Counts of entries of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCounts {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links and named pipes.
    pub others: u64,
    /// Bytes of content of the files.
    pub bytes: u64,
}
