//! An attempt to deliver a parcel, as others see it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use xdfs_proto::{Code, Fault};
use xdfs_spool::Ahead;

/// A running attempt.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// Bytes at the target.
    pub(super) delivered: AtomicU64,
    is_cancelled: AtomicBool,
    is_stopped: AtomicBool,
    /// What was at the target is removed.
    is_withdrawn: AtomicBool,
    /// It has begun before its file was there.
    began_ahead: AtomicBool,
    end: Mutex<End>,
    may_end: Condvar,
}

/// How far the end is of an attempt that has begun before its file was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// The file was taken.
    Wanted,
    Allowed,
}

impl Attempt {
    /// The user doesn't want the parcel any more.
    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// The relay ends.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// It has removed what was at the target, and ends with that.
    pub(super) fn end_withdrawn(&self) {
        self.is_withdrawn.store(true, Ordering::Relaxed);
        self.cancel();
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Relaxed)
    }

    pub(super) fn begin_ahead(&self) {
        self.began_ahead.store(true, Ordering::Relaxed);
    }

    /// Whether its file may not be there yet.
    pub(super) fn is_ahead(&self) -> bool {
        self.began_ahead.load(Ordering::Relaxed) && *lock(&self.end) == End::Open
    }

    /// Whether the file was taken while it was sent, and its end waits for [`Self::let_end`].
    pub(super) fn wants_end(&self) -> bool {
        *lock(&self.end) == End::Wanted
    }

    pub(super) fn let_end(&self) {
        *lock(&self.end) = End::Allowed;
        self.may_end.notify_all();
    }

    /// # Errors
    /// It is to end.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let fault = |code, cause| Err(Fault::new(code, "deliver", cause));
        if self.is_cancelled() {
            return fault(Code::Cancelled, "it was cancelled");
        }
        match self.is_stopped.load(Ordering::Relaxed) {
            true => fault(Code::ShuttingDown, "the relay ends"),
            false => Ok(()),
        }
    }
}

/// An upload of a file that arrives, until it is dropped.
#[derive(Debug)]
pub(super) struct UploadAhead(Arc<AheadReader>);

/// What the source of such an upload sees, which may outlive it for a moment.
#[derive(Debug)]
struct AheadReader {
    attempt: Arc<Attempt>,
    is_over: AtomicBool,
}

impl UploadAhead {
    pub(super) fn new(attempt: &Arc<Attempt>) -> Self {
        Self(Arc::new(AheadReader {
            attempt: Arc::clone(attempt),
            is_over: AtomicBool::new(false),
        }))
    }

    pub(super) fn reader(&self) -> Arc<dyn Ahead> {
        Arc::<AheadReader>::clone(&self.0)
    }
}

impl Drop for UploadAhead {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl Ahead for AheadReader {
    fn check(&self) -> Result<(), Fault> {
        match self.is_over.load(Ordering::Relaxed) {
            true => Err(Fault::new(Code::Cancelled, "deliver", "the upload is over")),
            false => self.attempt.check(),
        }
    }

    fn may_end(&self, timeout: Duration) -> bool {
        let mut end = lock(&self.attempt.end);
        if *end == End::Open {
            *end = End::Wanted;
        }
        let is_closed = |end: &mut End| *end != End::Allowed;
        let waited = self
            .attempt
            .may_end
            .wait_timeout_while(end, timeout, is_closed);
        let (end, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *end == End::Allowed
    }
}

/// What is known of the attempts of a parcel in this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    pub(super) attempts: u32,
    pub(super) fault: Option<Fault>,
}

/// Where an attempt has left a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Went {
    /// It is over.
    Over,
    /// Another relay has it, and is to be asked about it.
    On,
}

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server could not be reached: other parcels can't be delivered there either.
    Unreached(Fault),
    /// Another attempt may succeed.
    Later(Fault),
    /// No other attempt will succeed until somebody has changed something.
    Never(Fault),
    /// The user has cancelled it, or the relay ends.
    Ended,
}

/// A value that several threads change.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
