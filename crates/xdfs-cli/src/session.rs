//! Sessions and transfers as the commands see them: traits with the library behind them.
//!
//! The traits exist so that the order of files, retries and cancelling can be tested without a
//! network. They add nothing of their own.

use std::path::PathBuf;
use std::time::Duration;

use xdfs::{
    Client, ClientOptions, Fault, LocalPlace, Progress, RemotePlace, Transfer, TransferOptions,
    TransferResult,
};

use crate::flags::SessionFlags;
use crate::identity;
use crate::interrupt::Interrupt;
use crate::report::{Label, Reporter};

/// How often the wish to stop is looked at, and progress drawn.
const TICK: Duration = Duration::from_millis(100);

/// Which way a file goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To the server.
    Upload {
        /// The source here.
        from: LocalPlace,
        /// The path on the server.
        to: Vec<u8>,
    },
    /// From the server.
    Download {
        /// The path on the server.
        from: Vec<u8>,
        /// The target here.
        to: LocalPlace,
    },
}

impl Route {
    /// The end on this machine.
    pub(crate) fn local(&self) -> &LocalPlace {
        match self {
            Self::Upload { from, .. } => from,
            Self::Download { to, .. } => to,
        }
    }
}

/// Opens sessions.
pub(crate) trait Connect {
    /// An open session.
    type Session: Session;

    /// Opens a session with the server of `place`.
    ///
    /// # Errors
    /// The server can't be reached, or refuses.
    fn connect(&self, place: &RemotePlace) -> Result<Self::Session, Fault>;
}

/// An open session.
pub(crate) trait Session {
    /// A transfer that runs or waits for its turn.
    type Running: Running;

    /// Starts a transfer; those that were started before it go first.
    ///
    /// # Errors
    /// The local end can't be opened, or the session has ended.
    fn start(&self, route: &Route, options: &TransferOptions) -> Result<Self::Running, Fault>;
}

/// A transfer that runs or waits for its turn.
pub(crate) trait Running {
    /// Waits for the next progress.
    fn progress(&mut self, timeout: Duration) -> Option<Progress>;
    /// Whether it has ended.
    fn is_finished(&self) -> bool;
    /// Ends it in an orderly way.
    fn cancel(&self);
    /// Waits for the end.
    ///
    /// # Errors
    /// The fault that ended it.
    fn wait(self) -> Result<TransferResult, Fault>;
}

/// Opens sessions of the library, all with the same options.
#[derive(Clone, Debug)]
pub(crate) struct Connector(pub(crate) SessionFlags);

impl Connect for Connector {
    type Session = Client;

    fn connect(&self, place: &RemotePlace) -> Result<Client, Fault> {
        let options = ClientOptions {
            security: identity::security(&self.0.security, place)?,
            ..self.0.client_options()
        };
        Client::connect(place, options)
    }
}

impl Session for Client {
    type Running = Transfer;

    fn start(&self, route: &Route, options: &TransferOptions) -> Result<Transfer, Fault> {
        match route {
            Route::Upload { from, to } => self.upload(from, to, options),
            Route::Download { from, to } => self.download(from, to, options),
        }
    }
}

impl Running for Transfer {
    fn progress(&mut self, timeout: Duration) -> Option<Progress> {
        Self::progress(self, timeout)
    }

    fn is_finished(&self) -> bool {
        Self::is_finished(self)
    }

    fn cancel(&self) {
        Self::cancel(self);
    }

    fn wait(self) -> Result<TransferResult, Fault> {
        Self::wait(self)
    }
}

/// Follows a transfer to its end and reports its progress. Calls `on_progress` for each step, and
/// `on_stop` once if the user wants to stop; the transfer itself is cancelled here.
///
/// # Errors
/// The fault that ended it.
pub(crate) fn follow<R: Running>(
    mut running: R,
    label: &Label,
    reporter: &mut Reporter,
    interrupt: &Interrupt,
    mut on_progress: impl FnMut(&Progress),
    on_stop: impl FnOnce(),
) -> Result<TransferResult, Fault> {
    let mut on_stop = Some(on_stop);
    reporter.begin(label);
    loop {
        if interrupt.requested()
            && let Some(on_stop) = on_stop.take()
        {
            reporter
                .console()
                .say("stopping in an orderly way; Ctrl-C again stops at once");
            running.cancel();
            on_stop();
        }
        match running.progress(TICK) {
            Some(progress) => {
                on_progress(&progress);
                reporter.progress(label, &progress);
            }
            None if running.is_finished() => break,
            None => reporter.tick(),
        }
    }
    running.wait()
}

/// The words for a local end.
pub(crate) fn local_text(place: &LocalPlace) -> String {
    match place {
        LocalPlace::Path(path) => path.to_string_lossy().into_owned(),
        LocalPlace::Memory => "memory".into(),
        // Standard streams; the library may learn others, which are never made here.
        _ => "-".into(),
    }
}

/// A local file.
pub(crate) fn local_file(path: impl Into<PathBuf>) -> LocalPlace {
    LocalPlace::Path(path.into())
}
