//! What transfers, trees and queues tell while they go on and at their end, and who hears it.

use std::ops::ControlFlow;
use std::time::Duration;

use xdfs_engine::Outcome;
pub use xdfs_engine::{LimitedBy, Progress};
use xdfs_proto::{DigestValue, Fault};

/// Hears what happens. Every method does nothing and lets go on, unless it is implemented;
/// [`ControlFlow::Break`] ends what is told of in an orderly way, so that it can be resumed.
///
/// Trees and [`Transfer::wait_with`](crate::Transfer::wait_with) call it in the thread that called
/// them, a [`Queue`](crate::Queue) in its own, one call at a time. Nothing else of them goes on
/// until it returns (bytes that are under way do), so that it must not block: what takes longer
/// belongs to another thread, by a channel. It must not wait for the work that it is told of.
///
/// A closure that takes a [`TreeEvent`] is an observer of trees. [`Silent`] hears nothing.
pub trait Observer {
    /// A single transfer came further; at most ten times a second.
    fn on_transfer(&mut self, progress: &Progress) -> ControlFlow<()> {
        let _ = progress;
        ControlFlow::Continue(())
    }

    /// Something happened in a tree. `Break` ends the tree.
    fn on_tree(&mut self, event: TreeEvent<'_>) -> ControlFlow<()> {
        let _ = event;
        ControlFlow::Continue(())
    }

    /// Something happened to the job of this number in a queue. `Break` stops the whole queue.
    fn on_job(&mut self, number: u64, event: QueueEvent<'_>) -> ControlFlow<()> {
        let _ = (number, event);
        ControlFlow::Continue(())
    }
}

/// The observer that hears nothing.
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

/// What happens to a job of a queue.
#[derive(Debug)]
#[non_exhaustive]
pub enum QueueEvent<'a> {
    /// It has arrived. The last event of a job.
    Done(&'a TransferResult),
    /// It has failed for good, or was cancelled. The last event of a job.
    Failed(&'a Fault),
    /// It came further; at most ten times a second.
    Progress(&'a Progress),
    /// A try failed, and another one is made after a pause.
    Retry {
        /// Why it failed.
        fault: &'a Fault,
        /// The number of the try that is made: 1 for the first one after a try that brought bytes.
        retry: u32,
        /// Time until then.
        pause: Duration,
    },
    /// It was handed to a session. It is also told where the job had been started in a session that
    /// broke by the fault of another one.
    Started,
}

/// What came of a transfer.
#[derive(Clone, Debug)]
pub struct TransferResult {
    /// Bytes of the transfer, those of an earlier attempt included.
    pub bytes: u64,
    /// Seconds from the start of the transfer to its publication.
    pub seconds: f64,
    /// Most channels that were alive at once, without those that were leaving.
    pub channels: u32,
    /// Bytes that an earlier attempt had made durable and that were not sent again.
    pub resumed_bytes: u64,
    /// Bytes that were sent more than once.
    pub retransmitted_bytes: u64,
    /// The verified digest of the whole.
    pub digest: DigestValue,
    /// Path of the target, as published (or as it would be, in a dry run).
    pub target: Vec<u8>,
    /// What held it back.
    pub limited_by: LimitedBy,
}

impl TransferResult {
    /// Bytes that were moved in this attempt, a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            (self.bytes - self.resumed_bytes) as f64 / self.seconds
        } else {
            0.0
        }
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
            limited_by: outcome.limited_by,
        }
    }
}

/// What a tree tells while it is moved.
#[derive(Debug)]
#[non_exhaustive]
pub enum TreeEvent<'a> {
    /// How far it is; at most ten times a second.
    Progress(&'a TreeResult),
    /// An entry that wasn't moved, or not with all that was to be kept. The path is relative.
    Failed {
        /// The entry.
        path: &'a [u8],
        /// Why.
        fault: &'a Fault,
    },
    /// Something that the tree goes on without, such as its journal.
    Warning(&'a Fault),
    /// A step of a synchronisation. In a dry run all of them are told, else those that rename and
    /// delete, when they are done. Paths are relative.
    Step {
        /// What is done.
        step: SyncStep,
        /// The entry.
        path: &'a [u8],
        /// The name that it had, if it is renamed.
        from: Option<&'a [u8]>,
    },
}

/// What a synchronisation does with an entry of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncStep {
    /// It is missing, and is made.
    Copy,
    /// It is removed.
    Delete,
    /// It gets another name.
    Rename,
    /// Its content or its kind is replaced.
    Replace,
    /// Its mode, time or owner is set.
    Set,
}

/// What came of a tree.
#[derive(Clone, Debug, Default)]
pub struct TreeResult {
    /// Files that were moved.
    pub files: u64,
    /// Directories that were made, or were there.
    pub directories: u64,
    /// Links and named pipes that were made.
    pub others: u64,
    /// Bytes of content that were moved.
    pub bytes: u64,
    /// Bytes of them that were not sent, since the target had them already: from an attempt that
    /// was broken off, or in its old file ([`SyncOptions::delta`](crate::SyncOptions::delta)).
    pub matched_bytes: u64,
    /// Entries that failed; each was told.
    pub failed: u64,
    /// Files that go without their set-user-id and set-group-id, since owners aren't kept.
    pub unkept: u64,
    /// What an earlier run had finished, and wasn't moved again; not part of the other counts.
    pub resumed: TreeCounts,
    /// Time from the order to the end.
    pub elapsed: Duration,
    /// The path of the tree at its target.
    pub target: Vec<u8>,
}

/// What a part of a tree has.
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
