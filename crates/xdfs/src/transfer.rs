//! One transfer: what is wanted, how it goes on, and what came of it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use xdfs_engine::{Command, Commands, Outcome, TransferEvent};
pub use xdfs_engine::{LimitedBy, Progress};
use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, DigestKind, DigestValue, Fault, FileId, Retry};

use crate::recognition::Ends;

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
    /// Go on from what an earlier attempt has left: its journal, or the published file itself.
    pub resume: bool,
    /// Read again what that journal claims, at the receiver, and send again what isn't as it was.
    /// Without it that happens only if the receiver's machine was started anew since, or if it
    /// can't tell.
    pub verify_resumed: bool,
    /// The digest of the whole file; `None` for that of
    /// [`Client::default_digest`](crate::Client::default_digest).
    pub digest: Option<DigestKind>,
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
            verify_resumed: false,
            digest: None,
            overwrite: false,
            dry_run: false,
        }
    }
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

/// A transfer that runs. Dropping the handle doesn't end it; [`Transfer::cancel`] does.
#[derive(Debug)]
pub struct Transfer {
    file: FileId,
    commands: Commands,
    events: mpsc::Receiver<TransferEvent>,
    session_end: SessionEnd,
    /// To be compared, if the target exists.
    ends: Option<Ends>,
    /// They are being compared: what ends that.
    comparison: Option<mpsc::Sender<TransferEvent>>,
    /// None is to begin any more.
    is_cancelled: AtomicBool,
    ended: Option<Result<Outcome, Fault>>,
}

impl Transfer {
    pub(crate) fn new(
        file: FileId,
        commands: Commands,
        events: mpsc::Receiver<TransferEvent>,
        session_end: SessionEnd,
    ) -> Self {
        Self {
            file,
            commands,
            events,
            session_end,
            ends: None,
            comparison: None,
            is_cancelled: AtomicBool::new(false),
            ended: None,
        }
    }

    /// The same, which isn't refused where its target is its source already.
    pub(crate) fn between(self, ends: Option<Ends>) -> Self {
        Self { ends, ..self }
    }

    /// Waits up to `timeout` for the next progress. `None` when the time is over or the transfer
    /// has ended.
    pub fn progress(&mut self, timeout: Duration) -> Option<Progress> {
        if self.ended.is_some() {
            return None;
        }
        match self.events.recv_timeout(timeout) {
            Ok(TransferEvent::Progress(progress)) => Some(progress),
            Ok(TransferEvent::Ended(result)) => {
                self.end(result);
                None
            }
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                self.ended = Some(Err(self.session_end.fault()));
                None
            }
        }
    }

    /// Whether it has ended, so that `wait` returns at once. Learned by [`Transfer::progress`].
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.ended.is_some()
    }

    /// Ends the transfer in an orderly way: what is durable stays for a later resume.
    pub fn cancel(&self) {
        // A session that has ended has nothing to cancel.
        let _ = self.commands.send(Command::Cancel(self.file));
        // The engine may have refused it already, and nobody have heard that yet.
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(comparison) = &self.comparison {
            // The receiver is in this very value.
            let _ = comparison.send(TransferEvent::Ended(Err(cancelled())));
        }
    }

    /// It has ended, unless its target exists and has to be looked at first.
    fn end(&mut self, result: Result<Outcome, Fault>) {
        match (result, self.ends.take()) {
            (Err(fault), Some(ends)) if ends.may_be_the_same(&fault) => {
                if self.is_cancelled.load(Ordering::Relaxed) {
                    self.ended = Some(Err(cancelled()));
                    return;
                }
                let (sender, events) = mpsc::channel();
                self.comparison = Some(sender.clone());
                self.events = events;
                ends.compare(sender, fault);
            }
            (result, _) => self.ended = Some(result),
        }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The fault that ended it.
    pub fn wait(self) -> Result<TransferResult, Fault> {
        let outcome = self.outcome()?;
        Ok(TransferResult {
            bytes: outcome.bytes,
            seconds: outcome.elapsed.as_secs_f64(),
            channels: outcome.channels,
            resumed_bytes: outcome.resumed_bytes,
            retransmitted_bytes: outcome.retransmitted_bytes,
            digest: outcome.digest,
            target: outcome.target,
            limited_by: outcome.limited_by,
        })
    }

    /// Waits for the end of a pack, and tells what of it wasn't carried out.
    pub(crate) fn wait_for_pack(self) -> Result<Failures, Fault> {
        self.outcome().map(|outcome| outcome.failures)
    }

    fn outcome(mut self) -> Result<Outcome, Fault> {
        while self.ended.is_none() {
            match self.events.recv() {
                Ok(TransferEvent::Progress(_)) => {}
                Ok(TransferEvent::Ended(result)) => self.end(result),
                Err(mpsc::RecvError) => self.ended = Some(Err(self.session_end.fault())),
            }
        }
        self.ended.unwrap_or_else(|| Err(session_gone()))
    }
}

/// Why a session ended, for who comes too late to hear it from the session itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionEnd(Arc<OnceLock<Fault>>);

/// Tells the end of the session when it is dropped, at the latest.
#[derive(Debug)]
pub(crate) struct EndTeller(SessionEnd);

impl SessionEnd {
    /// The one that tells it.
    pub(crate) fn teller(&self) -> EndTeller {
        EndTeller(self.clone())
    }

    /// Why it ended; `None` as long as it has not.
    pub(crate) fn known(&self) -> Option<Fault> {
        self.0.get().cloned()
    }

    /// Why it ended. To be asked only when its thread has begun to end, for which it waits.
    pub(crate) fn fault(&self) -> Fault {
        self.0.wait().clone()
    }
}

impl EndTeller {
    /// Tells how it ended.
    pub(crate) fn tell(self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            let _ = self.0.0.set(fault);
        }
    }
}

impl Drop for EndTeller {
    fn drop(&mut self) {
        // In an orderly way, or by a panic.
        let _ = self.0.0.set(session_gone());
    }
}

fn cancelled() -> Fault {
    Fault::new(Code::Cancelled, "compare the target", "it was cancelled")
}

fn session_gone() -> Fault {
    Fault::new(
        Code::ConnectionLost,
        "go on with the session",
        "it has ended",
    )
    .retry(Retry::AfterMs(200))
}
