//! One transfer: what is wanted, how it goes on, and what came of it.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use xdfs_engine::mailbox::{Mailbox, Sender, mailbox};
use xdfs_engine::{Outcome, Progress, TransferEvent};
use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, DigestKind, Fault};

use crate::events::{Observer, TransferResult};
use crate::recognition::Ends;
use crate::session_end::SessionEnd;

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

/// The two ends of a transfer, and with them its direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferRoute {
    /// To the server, as [`Client::upload`](crate::Client::upload) does.
    Upload {
        /// The source here.
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
    /// The end on this machine.
    #[must_use]
    pub fn local(&self) -> &LocalPlace {
        match self {
            Self::Upload { from, .. } => from,
            Self::Download { to, .. } => to,
        }
    }
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

/// A transfer that runs, or waits for its turn. Dropping the handle doesn't end it;
/// [`Transfer::cancel`] does.
///
/// It is also a future of what [`Transfer::wait`] returns, for any asynchronous runtime: the
/// session has a thread of its own that wakes the task. Polling does no work and never blocks. It
/// may be polled by one task after the other, of which the latest is woken, and after its end,
/// which is told again then.
pub struct Transfer {
    canceller: Canceller,
    events: Mailbox<TransferEvent>,
    session_end: SessionEnd,
    /// To be compared, if the target exists.
    ends: Option<Ends>,
    /// They are being compared: what ends that.
    comparison: Option<Sender<TransferEvent>>,
    /// None is to begin any more.
    is_cancelled: AtomicBool,
    ended: Option<Result<Outcome, Fault>>,
}

/// Asks whoever carries a transfer out to end it.
type Canceller = Box<dyn Fn() + Send + Sync>;

impl Transfer {
    /// A transfer that is told by `events`, and is over when nothing can come there any more.
    pub(crate) fn new(
        canceller: impl Fn() + Send + Sync + 'static,
        events: Mailbox<TransferEvent>,
        session_end: SessionEnd,
    ) -> Self {
        Self {
            canceller: Box::new(canceller),
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
            Ok(event) => self.take(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.ended = Some(Err(self.session_end.fault()));
                None
            }
        }
    }

    /// The next progress, without waiting: the task of `context` is woken when there may be one.
    /// `None` when the transfer has ended.
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

    /// Whether it has ended, so that `wait` returns at once. Learned by [`Transfer::progress`] and
    /// by polling.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.ended.is_some()
    }

    /// Ends the transfer in an orderly way: what is durable stays for a later resume.
    pub fn cancel(&self) {
        (self.canceller)();
        // It may have been refused already, and nobody have heard that yet.
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(comparison) = &self.comparison {
            // The mailbox is in this very value.
            let _ = comparison.send(TransferEvent::Ended(Err(cancelled())));
        }
    }

    /// The progress that was told, unless it was the end.
    fn take(&mut self, event: TransferEvent) -> Option<Progress> {
        match event {
            TransferEvent::Progress(progress) => Some(progress),
            TransferEvent::Ended(result) => {
                self.end(result);
                None
            }
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
                let (sender, events) = mailbox();
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
        self.outcome().map(Into::into)
    }

    /// Tells the progress to `observer`, in this thread, and waits for the end. If the observer
    /// breaks, the transfer is cancelled.
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

    /// Waits for the end of a pack, and tells what of it wasn't carried out.
    pub(crate) fn wait_for_pack(self) -> Result<Failures, Fault> {
        self.outcome().map(|outcome| outcome.failures)
    }

    fn outcome(mut self) -> Result<Outcome, Fault> {
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

    /// What is told next, without waiting. The end is told again and again.
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
