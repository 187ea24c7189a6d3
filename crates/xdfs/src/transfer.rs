//! One transfer: its options, its progress and its result.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xdfs_engine::mailbox::{Mailbox, Sender, mailbox};
use xdfs_engine::{Outcome, Progress, TimeShares, TransferEvent, TransferParameters};
use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, Fault, FileId};

use crate::between::ServerFile;
use crate::events::{Observer, TransferResult};
use crate::made_file::MadeFile;
use crate::recognition::{ComparedPaths, may_exist};
use crate::session_end::SessionEnd;
use crate::skip::Skip;

/// The source or target of a transfer that isn't at the server of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalPlace {
    /// A file, or for a download also an existing directory.
    Path(PathBuf),
    /// Standard input or standard output.
    Standard,
    /// `mem:zero` as a source, `mem:null` as a target: no storage at all.
    Memory,
    /// As a source, a file of another server.
    OtherServer(ServerFile),
    /// As a source, a file that is made while it is read.
    Made(MadeFile),
}

/// Source and target of a transfer, and with them its direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferRoute {
    /// To the server, as [`Client::upload`](crate::Client::upload) does.
    Upload {
        /// The source here, or at another server.
        from: LocalPlace,
        /// The path on the server.
        to: Vec<u8>,
    },
    /// From the server, as [`Client::download`](crate::Client::download) does.
    Download {
        /// The path on the server.
        from: Vec<u8>,
        /// The target here.
        to: LocalPlace,
    },
}

impl TransferRoute {
    /// The source or target that isn't at the server.
    #[must_use]
    pub fn local(&self) -> &LocalPlace {
        match self {
            Self::Upload { from, .. } => from,
            Self::Download { to, .. } => to,
        }
    }
}

/// Options of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransferOptions {
    /// How it is moved. The default digest is
    /// [`Client::default_digest`](crate::Client::default_digest).
    #[serde(with = "crate::text")]
    pub parameters: TransferParameters,
    /// First byte of the source to send.
    pub offset: u64,
    /// Number of bytes; `None` for all up to the end.
    pub length: Option<u64>,
    /// Ends the transfer after this time as if the source had ended (memory to memory only).
    #[serde(with = "crate::text")]
    pub duration: Option<Duration>,
    /// Existing targets that are skipped instead, which is a success.
    pub skip: Skip,
    /// Give a fetched file the permission bits that the server wishes. Otherwise it gets what the
    /// umask of this process leaves of them. Set-user-id, set-group-id and sticky are given to no
    /// file by itself.
    pub exact_mode: bool,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            parameters: TransferParameters::default(),
            offset: 0,
            length: None,
            duration: None,
            skip: Skip::Identical,
            exact_mode: false,
        }
    }
}

/// The handle of a transfer that runs or waits for its turn. [`Transfer::cancel`] ends the
/// transfer; dropping the handle does not.
///
/// The handle is also a future with the result of [`Transfer::wait`], for any asynchronous runtime:
/// the thread of the session wakes the task. Polling does no work and never blocks. If several
/// tasks poll it, the latest is woken. It may be polled again after the end.
pub struct Transfer {
    canceller: Canceller,
    events: Mailbox<TransferEvent>,
    session_end: SessionEnd,
    /// Its number in the session; `None` if several or none are moved one after the other.
    number: Option<FileId>,
    /// Source and target, to be compared if the target exists.
    compared_paths: Option<ComparedPaths>,
    /// Starts the transfer that replaces a target that isn't skipped.
    replacement: Option<Replacement>,
    /// While they are compared: ends the comparison.
    comparison: Option<Sender<TransferEvent>>,
    /// No comparison may begin any more.
    is_cancelled: AtomicBool,
    ended: Option<Result<Outcome, Fault>>,
}

/// Where the time of a transfer went, and how long it took.
pub(crate) type SharedTime = (TimeShares, Duration);

/// Starts a transfer that replaces its target.
pub(crate) type Replacement = Box<dyn FnOnce() -> Result<Transfer, Fault> + Send + Sync>;

/// Cancels a transfer at its session or queue.
type Canceller = Box<dyn Fn() + Send + Sync>;

impl Transfer {
    /// The same transfer, of which the session knows this number.
    pub(crate) fn numbered(mut self, number: FileId) -> Self {
        self.number = Some(number);
        self
    }

    pub(crate) fn number(&self) -> Option<FileId> {
        self.number
    }

    /// A transfer whose events arrive in `events`. It has ended when the senders are gone.
    pub(crate) fn new(
        canceller: impl Fn() + Send + Sync + 'static,
        events: Mailbox<TransferEvent>,
        session_end: SessionEnd,
    ) -> Self {
        Self {
            canceller: Box::new(canceller),
            events,
            session_end,
            number: None,
            compared_paths: None,
            replacement: None,
            comparison: None,
            is_cancelled: AtomicBool::new(false),
            ended: None,
        }
    }

    /// Sets the paths to compare if the target exists. If it is skipped, that is a success;
    /// otherwise it is replaced.
    pub(crate) fn with_comparison(
        self,
        compared_paths: ComparedPaths,
        replacement: Option<Replacement>,
    ) -> Self {
        Self {
            compared_paths: Some(compared_paths),
            replacement,
            ..self
        }
    }

    /// Waits up to `timeout` for the next progress. `None` after the timeout, and after the end of
    /// the transfer.
    pub fn progress(&mut self, timeout: Duration) -> Option<Progress> {
        if self.ended.is_some() {
            return None;
        }
        match self.events.recv_timeout(timeout) {
            Ok(event) => self.take(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.ended = Some(Err(self.session_end.fault()));
                None
            }
        }
    }

    /// Polls for the next progress: the task of `context` is woken when there may be one. `None`
    /// after the end of the transfer.
    #[must_use = "it may be pending, and progress is told once"]
    pub fn poll_progress(&mut self, context: &mut Context<'_>) -> Poll<Option<Progress>> {
        while self.ended.is_none() {
            let Some(event) = ready!(self.events.poll_recv(context)) else {
                let fault = ready!(self.session_end.poll_fault(context.waker()));
                self.ended = Some(Err(fault));
                break;
            };
            if let Some(progress) = self.take(event) {
                return Poll::Ready(Some(progress));
            }
        }
        Poll::Ready(None)
    }

    /// Whether the end of the transfer was seen by [`Transfer::progress`] or by polling, so that
    /// `wait` returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.ended.is_some()
    }

    /// Cancels the transfer. Durable data stays for a later resume.
    pub fn cancel(&self) {
        (self.canceller)();
        // It may have been refused already, which would start a comparison.
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(comparison) = &self.comparison {
            // The mailbox is a field of this value.
            let _ = comparison.send(TransferEvent::Ended(Err(cancelled())));
        }
    }

    /// The progress in an event; `None` for the end.
    fn take(&mut self, event: TransferEvent) -> Option<Progress> {
        match event {
            TransferEvent::Progress(progress) => Some(progress),
            TransferEvent::Ended(result) => {
                self.end(result.map_err(|fault| self.session_end.named(fault)));
                None
            }
        }
    }

    /// Ends the transfer, compares its paths if the target exists, or replaces the target after
    /// that.
    fn end(&mut self, result: Result<Outcome, Fault>) {
        let is_compared = self.comparison.take().is_some();
        let Err(fault) = result else {
            self.ended = Some(result);
            return;
        };
        let is_cancelled = self.is_cancelled.load(Ordering::Relaxed);
        match (self.compared_paths.take(), self.replacement.take()) {
            (Some(compared_paths), replacement) if compared_paths.may_exist(&fault) => {
                if is_cancelled {
                    self.ended = Some(Err(cancelled()));
                    return;
                }
                self.replacement = replacement;
                let (sender, events) = mailbox();
                self.comparison = Some(sender.clone());
                self.events = events;
                compared_paths.compare(sender, fault);
            }
            (None, Some(replace)) if is_compared && may_exist(&fault) && !is_cancelled => {
                match replace() {
                    Ok(started) => {
                        self.canceller = started.canceller;
                        self.events = started.events;
                        self.session_end = started.session_end;
                    }
                    Err(fault) => self.ended = Some(Err(fault)),
                }
            }
            _ => self.ended = Some(Err(fault)),
        }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The fault that ended it.
    pub fn wait(self) -> Result<TransferResult, Fault> {
        self.outcome().map(Into::into)
    }

    /// Reports progress to `observer`, in this thread, until the end. If the observer breaks, the
    /// transfer is cancelled.
    ///
    /// # Errors
    /// The fault that ended it.
    pub fn wait_with(mut self, observer: &mut dyn Observer) -> Result<TransferResult, Fault> {
        while self.ended.is_none() {
            let Some(progress) = self.progress(Duration::MAX) else {
                continue;
            };
            if observer.on_transfer(&progress).is_break() {
                self.cancel();
                break;
            }
        }
        self.wait()
    }

    /// Waits for the end of a pack, and returns the entries that failed, and where its
    /// time went.
    pub(crate) fn wait_for_pack(self) -> Result<(Failures, SharedTime), Fault> {
        let outcome = self.outcome()?;
        Ok((outcome.failures, (outcome.time_shares, outcome.elapsed)))
    }

    /// Waits for the end, and returns all of it.
    pub(crate) fn outcome(mut self) -> Result<Outcome, Fault> {
        loop {
            if let Some(ended) = self.ended {
                return ended;
            }
            match self.events.recv() {
                Ok(event) => drop(self.take(event)),
                Err(_) => self.ended = Some(Err(self.session_end.fault())),
            }
        }
    }

    /// Polls for the next event. The end is returned every time.
    pub(crate) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<TransferEvent> {
        loop {
            if let Some(ended) = &self.ended {
                return Poll::Ready(TransferEvent::Ended(ended.clone()));
            }
            if let Some(progress) = ready!(self.poll_progress(context)) {
                return Poll::Ready(TransferEvent::Progress(progress));
            }
        }
    }
}

impl Future for Transfer {
    type Output = Result<TransferResult, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if let TransferEvent::Ended(result) = ready!(self.poll_event(context)) {
                return Poll::Ready(result.map(Into::into));
            }
        }
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

fn cancelled() -> Fault {
    Fault::new(Code::Cancelled, "compare the target", "it was cancelled")
}
