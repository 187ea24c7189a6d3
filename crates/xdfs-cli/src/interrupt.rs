//! Ctrl-C, SIGTERM and similar signals: the first asks for an orderly end, the second ends the
//! program immediately.
//!
//! While there is nothing to save ([`Interrupt::orderly`] is off), the first ends it immediately
//! too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xdfs::{Code, Fault};

/// The user's request to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    requested: Arc<AtomicBool>,
    orderly: Arc<AtomicBool>,
}

impl Interrupt {
    /// Starts to handle signals. `at_once` runs immediately before the process is terminated.
    ///
    /// # Errors
    /// The signal handler can't be installed.
    pub(crate) fn install(at_once: impl Fn() + Send + 'static) -> Result<Self, Fault> {
        let interrupt = Self::default();
        let seen = interrupt.clone();
        handle_signals(move || {
            if seen.request() && seen.is_orderly() {
                return;
            }
            at_once();
            std::process::exit(i32::from(Code::Cancelled.exit_code()));
        })?;
        Ok(interrupt)
    }

    /// Sets whether an orderly end is possible from now on.
    pub(crate) fn orderly(&self, on: bool) {
        self.orderly.store(on, Ordering::SeqCst);
    }

    /// Whether a stop was requested.
    pub(crate) fn requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// Whether an orderly end is possible now.
    pub(crate) fn is_orderly(&self) -> bool {
        self.orderly.load(Ordering::SeqCst)
    }

    /// Requests a stop, as a signal would. Returns whether this is the first request.
    pub(crate) fn request(&self) -> bool {
        !self.requested.swap(true, Ordering::SeqCst)
    }

    /// The fault of a stopped run.
    pub(crate) fn fault(operation: &str) -> Fault {
        Fault::new(Code::Cancelled, operation, "stopped by the user")
    }
}

/// Calls `on_signal` for each signal that asks the program to end.
///
/// # Errors
/// The signal handler can't be installed.
pub(crate) fn handle_signals(on_signal: impl FnMut() + Send + 'static) -> Result<(), Fault> {
    ctrlc::set_handler(on_signal)
        .map_err(|e| Fault::new(Code::Internal, "listen for signals", e.to_string()))
}
