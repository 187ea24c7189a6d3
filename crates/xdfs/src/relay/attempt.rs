//! An attempt to deliver a parcel, as others see it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use xdfs_proto::{Code, Fault};

/// A running attempt.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// Bytes at the target.
    pub(super) delivered: AtomicU64,
    is_cancelled: AtomicBool,
    is_stopped: AtomicBool,
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
