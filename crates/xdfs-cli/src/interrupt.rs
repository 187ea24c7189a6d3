//! Ctrl-C, SIGTERM and the like: the first asks for an orderly end, the second ends at once.
//!
//! While nothing is worth saving ([`Interrupt::orderly`] is off) the first ends at once as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xdfs::{Code, Fault};

/// Whether the user wants to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    requested: Arc<AtomicBool>,
    orderly: Arc<AtomicBool>,
}

impl Interrupt {
    /// Begins to listen for signals. `at_once` runs just before the process is ended hard.
    ///
    /// # Errors
    /// The system refuses the handler.
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

    /// Says whether an orderly end is possible from now on.
    pub(crate) fn orderly(&self, on: bool) {
        self.orderly.store(on, Ordering::SeqCst);
    }

    /// Whether an end was asked for.
    pub(crate) fn requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// Whether an orderly end is possible now.
    pub(crate) fn is_orderly(&self) -> bool {
        self.orderly.load(Ordering::SeqCst)
    }

    /// Asks for an end, as a signal would; returns whether nobody did before.
    pub(crate) fn request(&self) -> bool {
        !self.requested.swap(true, Ordering::SeqCst)
    }

    /// The fault of a run that was stopped.
    pub(crate) fn fault(operation: &str) -> Fault {
        Fault::new(Code::Cancelled, operation, "stopped by the user")
    }
}

/// Calls `on_signal` for each signal that asks the program to end.
///
/// # Errors
/// The system refuses the handler.
pub(crate) fn handle_signals(on_signal: impl FnMut() + Send + 'static) -> Result<(), Fault> {
    ctrlc::set_handler(on_signal)
        .map_err(|e| Fault::new(Code::Internal, "listen for signals", e.to_string()))
}
