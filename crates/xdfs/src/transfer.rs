//! One transfer: what is wanted, how it goes on, and what came of it.

use std::path::PathBuf;
use std::time::Duration;

use xdfs_proto::{DigestKind, DigestValue, Fault};

/// The end of a transfer on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalPlace {
    /// A file, or for a download also an existing directory.
    Path(PathBuf),
    /// Standard input or standard output.
    Standard,
    /// `mem:zero` as a source, `mem:null` as a target: no storage at all.
    Memory,
}

/// What a transfer is to do beyond source and target.
#[derive(Clone, Debug)]
pub struct TransferOptions {
    /// First byte of the source to send.
    pub offset: u64,
    /// Number of bytes; `None` for all up to the end.
    pub length: Option<u64>,
    /// Ends the transfer after this time as if the source had ended (memory to memory only).
    pub duration: Option<Duration>,
    /// Most bytes a second, over all channels; `None` for no bound.
    pub rate_bytes_per_s_max: Option<u64>,
    /// Go on from the journal of an earlier attempt.
    pub resume: bool,
    /// The whole-file digest.
    pub digest: DigestKind,
    /// Replace a target that exists.
    pub overwrite: bool,
    /// Find out what would be done, and write nothing.
    pub dry_run: bool,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            offset: 0,
            length: None,
            duration: None,
            rate_bytes_per_s_max: None,
            resume: true,
            digest: DigestKind::default(),
            overwrite: false,
            dry_run: false,
        }
    }
}

/// How far a transfer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that arrived (or were there already).
    pub bytes: u64,
    /// Bytes in all, if known.
    pub bytes_total: Option<u64>,
    /// Of `bytes`, those that an earlier attempt had made durable.
    pub resumed_bytes: u64,
    /// Channels that are alive now.
    pub channels: u32,
}

/// What held a transfer back for most of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitedBy {
    /// The rate that the user asked for.
    RateLimit,
    /// Reading the source.
    SourceRead,
    /// The network, or the processors that move bytes through it.
    Network,
    /// Writing the target.
    TargetWrite,
}

/// What came of a transfer.
#[derive(Clone, Debug)]
pub struct TransferResult {
    /// Bytes of the transfer, those of an earlier attempt included.
    pub bytes: u64,
    /// Seconds from the start of the transfer to its publication.
    pub seconds: f64,
    /// Most channels that were alive at once.
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
        if self.seconds > 0.0 { (self.bytes - self.resumed_bytes) as f64 / self.seconds } else { 0.0 }
    }
}

/// A transfer that runs. Dropping the handle doesn't end it; [`Transfer::cancel`] does.
#[derive(Debug)]
pub struct Transfer {}

impl Transfer {
    /// Waits up to `timeout` for the next progress. `None` when the time is over or the transfer
    /// has ended.
    pub fn progress(&mut self, timeout: Duration) -> Option<Progress> {
        let _ = timeout;
        todo!()
    }

    /// Whether it has ended, so that `wait` returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        todo!()
    }

    /// Ends the transfer in an orderly way: what is durable stays for a later resume.
    pub fn cancel(&self) {
        todo!()
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The fault that ended it.
    pub fn wait(self) -> Result<TransferResult, Fault> {
        todo!()
    }
}
