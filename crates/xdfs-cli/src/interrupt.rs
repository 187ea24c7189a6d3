//! Ctrl-C, SIGTERM and similar signals: the first asks for an orderly end, the second ends the
//! program immediately.
//!
//! While there is nothing to save ([`Interrupt::orderly`] is off), the first ends it immediately
//! too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs::{Code, Fault};

#[cfg(unix)]
use crate::stderr;

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
            end_by_signal();
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

/// Ends the program and those that it has started, with the exit code of a command that the user
/// stopped.
pub(crate) fn end_by_signal() -> ! {
    // A terminal at which ssh asks for a password would stay without echo.
    xdfs::program::end_all();
    std::process::exit(i32::from(Code::Cancelled.exit_code()))
}

/// The effect of a signal: the process has one handler.
static SIGNALS: Mutex<Signals> = Mutex::new(Signals {
    is_installed: false,
    on_signal: None,
    prompt: None,
});

struct Signals {
    is_installed: bool,
    /// `None` while it runs, and for the end of the program.
    on_signal: Option<OnSignal>,
    /// How the terminal was before a secret was asked for.
    prompt: Option<Terminal>,
}

type OnSignal = Box<dyn FnMut() + Send>;

fn signals() -> MutexGuard<'static, Signals> {
    SIGNALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `on_signal` for each signal that asks the program to end.
///
/// # Errors
/// The signal handler can't be installed.
pub(crate) fn handle_signals(on_signal: impl FnMut() + Send + 'static) -> Result<(), Fault> {
    signals().on_signal = Some(Box::new(on_signal));
    install()
}

fn install() -> Result<(), Fault> {
    if std::mem::replace(&mut signals().is_installed, true) {
        return Ok(());
    }
    ctrlc::set_handler(on_signal)
        .map_err(|e| Fault::new(Code::Internal, "listen for signals", e.to_string()))
}

fn on_signal() {
    let mut state = signals();
    let handler = state.on_signal.take();
    if let Some(before) = &state.prompt {
        before.restore();
        // Still with the lock, so that nothing hides typed characters again.
        end_by_signal();
    }
    drop(state);
    // Without the lock: it may wait for a command.
    match handler {
        Some(mut handler) => {
            handler();
            signals().on_signal.get_or_insert(handler);
        }
        None => end_by_signal(),
    }
}

/// Reads a line of the terminal that isn't shown. A signal meanwhile ends the program, and leaves
/// the terminal as it was.
///
/// # Errors
/// Nothing can be read.
#[cfg(unix)]
pub(crate) fn read_hidden_line(prompt: &str) -> std::io::Result<String> {
    let installed = install();
    installed.map_err(|fault| std::io::Error::other(fault.to_string()))?;
    let before = Terminal::now()?;
    {
        // Under the lock: a signal comes before this, or finds how it was before.
        let mut state = signals();
        before.hide()?;
        state.prompt = Some(before);
    }
    stderr::write(prompt);
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    if let Some(before) = signals().prompt.take() {
        before.restore();
    }
    read.map(|_| line)
}

/// The settings of the terminal.
#[cfg(unix)]
struct Terminal(rustix::termios::Termios);

#[cfg(unix)]
impl Terminal {
    fn now() -> std::io::Result<Self> {
        Ok(Self(rustix::termios::tcgetattr(std::io::stdin())?))
    }

    fn hide(&self) -> std::io::Result<()> {
        let mut hidden = self.0.clone();
        hidden.local_modes -= rustix::termios::LocalModes::ECHO;
        set_terminal(&hidden)
    }

    /// Makes typed characters visible again, from a new line on.
    fn restore(&self) {
        // Nothing can be done about a failure.
        let _ = set_terminal(&self.0);
        stderr::write("\n");
    }
}

#[cfg(unix)]
fn set_terminal(settings: &rustix::termios::Termios) -> std::io::Result<()> {
    use rustix::termios::{OptionalActions, tcsetattr};
    Ok(tcsetattr(std::io::stdin(), OptionalActions::Now, settings)?)
}

/// The same on consoles.
#[cfg(not(unix))]
pub(crate) fn read_hidden_line(prompt: &str) -> std::io::Result<String> {
    rpassword::prompt_password(prompt)
}

/// The settings of the terminal: on consoles only the prompt itself hides typed characters.
#[cfg(not(unix))]
enum Terminal {}

#[cfg(not(unix))]
impl Terminal {
    fn restore(&self) {}
}
