//! Bounds of an operation: a deadline, and cancellation by another thread.

use std::fmt;
use std::io;
#[cfg(unix)]
use std::io::{PipeReader, PipeWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(unix)]
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::readiness::Readiness;

/// How long operations wait: for as long as it takes, until a deadline, or until they are
/// cancelled. An operation that can end without waiting ignores the deadline.
#[derive(Clone, Debug, Default)]
pub struct Wait {
    deadline: Option<Instant>,
    canceller: Option<Canceller>,
}

impl Wait {
    /// For as long as it takes.
    #[must_use]
    pub fn forever() -> Self {
        Self::default()
    }

    /// Until `deadline`. An operation that ends at it returns [`io::ErrorKind::TimedOut`].
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            canceller: None,
        }
    }

    /// Until `time` from now. A time beyond the range of the clock is none.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Self {
            deadline: Instant::now().checked_add(time),
            canceller: None,
        }
    }

    /// Also ends when `canceller` is used.
    #[must_use]
    pub fn unless(mut self, canceller: &Canceller) -> Self {
        self.canceller = Some(canceller.clone());
        self
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(super) fn canceller(&self) -> Option<&Canceller> {
        self.canceller.as_ref()
    }

    /// Fails once the canceller was used.
    pub(super) fn check_cancelled(&self) -> io::Result<()> {
        match &self.canceller {
            Some(canceller) if canceller.is_cancelled() => Err(Cancelled.into()),
            _ => Ok(()),
        }
    }

    /// The time left, if there is a deadline; an error once it has passed.
    pub(super) fn left(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else {
            return Ok(None);
        };
        match deadline.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(timed_out()),
        }
    }
}

pub(super) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the deadline has passed")
}

/// Cancels operations from any thread. Clones are the same canceller, and any number of handles
/// may share it.
///
/// It stays used: an operation that begins after [`Canceller::cancel`] fails too, so a
/// cancellation is never lost to an operation that was just about to begin.
#[derive(Clone, Default)]
pub struct Canceller(Arc<State>);

#[derive(Default)]
struct State {
    is_cancelled: AtomicBool,
    readiness: Arc<Readiness>,
    /// A pipe that ends at the cancellation, for threads that wait on descriptors. Made by the
    /// first of them.
    #[cfg(unix)]
    end: OnceLock<PipeReader>,
    #[cfg(unix)]
    signal: Mutex<Option<PipeWriter>>,
}

impl Canceller {
    /// A canceller that is not used yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all operations that wait with this canceller, at once, with [`Cancelled`].
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::SeqCst);
        #[cfg(unix)]
        drop(self.signal().take());
        self.0.readiness.notify(true, true);
    }

    /// Whether it was used.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    pub(super) fn readiness(&self) -> &Arc<Readiness> {
        &self.0.readiness
    }

    /// The pipe that ends at the cancellation. To be called before the flag is checked.
    #[cfg(unix)]
    pub(super) fn pipe(&self) -> io::Result<&PipeReader> {
        if let Some(end) = self.0.end.get() {
            return Ok(end);
        }
        let mut signal = self.signal();
        if let Some(end) = self.0.end.get() {
            return Ok(end);
        }
        let (reader, writer) = io::pipe()?;
        *signal = (!self.is_cancelled()).then_some(writer);
        Ok(self.0.end.get_or_init(|| reader))
    }

    #[cfg(unix)]
    fn signal(&self) -> std::sync::MutexGuard<'_, Option<PipeWriter>> {
        self.0.signal.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cancelled = self.is_cancelled();
        f.debug_tuple("Canceller").field(&is_cancelled).finish()
    }
}

/// The cause of an operation's failure: its [`Canceller`] was used.
///
/// Inside of an [`io::Error`] of kind `Other`; not `Interrupted`, which readers and writers of the
/// standard library answer by trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operation was cancelled")]
pub struct Cancelled;

impl Cancelled {
    /// Whether `error` was caused by a cancellation.
    #[must_use]
    pub fn caused(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|cause| cause.is::<Self>())
    }
}

impl From<Cancelled> for io::Error {
    fn from(cancelled: Cancelled) -> Self {
        Self::other(cancelled)
    }
}
