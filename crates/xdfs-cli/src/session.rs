//! Sessions and transfers as the commands see them: traits with the library behind them.
//!
//! The traits exist so that the order of files, retries and cancelling can be tested without a
//! network. They add nothing of their own.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use xdfs::security::FirstUse;
use xdfs::{
    Client, Fault, LocalPlace, Progress, RemotePlace, Transfer, TransferOptions, TransferResult,
};

use crate::context::Context;
use crate::flags::SessionFlags;
use crate::interrupt::Interrupt;
use crate::pipe::{self, Flow};
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
    /// The server, once, if nobody knew it and the session came to trust it.
    fn first_use(&mut self) -> Option<FirstUse> {
        None
    }
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
pub(crate) struct Connector {
    /// Where they come from.
    pub(crate) context: Context,
    /// How they are.
    pub(crate) flags: SessionFlags,
}

impl Connector {
    /// A session with the server of `place`.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn visit(&self, place: &RemotePlace) -> Result<Visit, Fault> {
        let options = self.flags.client_options();
        self.context.visit(place, options, &self.flags.security)
    }
}

impl Connect for Connector {
    type Session = Visit;

    fn connect(&self, place: &RemotePlace) -> Result<Visit, Fault> {
        self.visit(place)
    }
}

/// A session of the library whose user is told when it trusts a server that nobody knew. Cheap to
/// clone; the session ends with the last one.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    client: Arc<Client>,
    told: Arc<AtomicBool>,
}

impl Visit {
    /// A session that was opened just now.
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            told: Arc::default(),
        }
    }

    /// The session, to be shared with other threads.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The server, once, if nobody knew it and the session came to trust it.
    pub(crate) fn first_use(&self) -> Option<FirstUse> {
        first_use(&self.client, &self.told)
    }

    /// What was told of an earlier session with the same server isn't told again.
    pub(crate) fn keep_told(&mut self, before: &Self) {
        self.told = Arc::clone(&before.told);
    }
}

impl Deref for Visit {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

fn first_use(client: &Client, told: &AtomicBool) -> Option<FirstUse> {
    if told.load(Ordering::Relaxed) {
        return None;
    }
    let found = client.first_use();
    told.store(found.is_some(), Ordering::Relaxed);
    found
}

impl Session for Visit {
    type Running = VisitRunning;

    fn start(&self, route: &Route, options: &TransferOptions) -> Result<VisitRunning, Fault> {
        let way = match route {
            // What has no name can also go into what isn't a file.
            Route::Upload {
                from: LocalPlace::Standard,
                to,
            } if !options.dry_run && pipe::is_pipe(&self.client, to) => {
                let rate = options.rate_bytes_per_s_max;
                Way::Pipe(Flow::into_pipe(Arc::clone(&self.client), to, rate))
            }
            Route::Download {
                from,
                to: LocalPlace::Standard,
            } if !options.dry_run && options.offset == 0 && pipe::is_pipe(&self.client, from) => {
                let client = Arc::clone(&self.client);
                let rate = options.rate_bytes_per_s_max;
                Way::Pipe(Flow::out_of_pipe(client, from, options.length, rate))
            }
            _ => Way::Transfer(self.client.start(route, options)?),
        };
        Ok(VisitRunning {
            way,
            client: Arc::downgrade(&self.client),
            told: Arc::clone(&self.told),
        })
    }
}

/// How the bytes of a [`Visit`] go.
#[derive(Debug)]
enum Way {
    /// By a transfer.
    Transfer(Transfer),
    /// Into a named pipe or out of it.
    Pipe(Flow),
}

/// A transfer of a [`Visit`].
#[derive(Debug)]
pub(crate) struct VisitRunning {
    way: Way,
    client: Weak<Client>,
    told: Arc<AtomicBool>,
}

impl Running for VisitRunning {
    fn progress(&mut self, timeout: Duration) -> Option<Progress> {
        match &mut self.way {
            Way::Transfer(transfer) => transfer.progress(timeout),
            Way::Pipe(pipe) => pipe.progress(timeout),
        }
    }

    fn is_finished(&self) -> bool {
        match &self.way {
            Way::Transfer(transfer) => transfer.is_finished(),
            Way::Pipe(pipe) => pipe.is_finished(),
        }
    }

    fn first_use(&mut self) -> Option<FirstUse> {
        first_use(&*self.client.upgrade()?, &self.told)
    }

    fn cancel(&self) {
        match &self.way {
            Way::Transfer(transfer) => transfer.cancel(),
            Way::Pipe(pipe) => pipe.cancel(),
        }
    }

    fn wait(self) -> Result<TransferResult, Fault> {
        match self.way {
            Way::Transfer(transfer) => transfer.wait(),
            Way::Pipe(pipe) => pipe.wait(),
        }
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
        let progress = running.progress(TICK);
        if let Some(server) = running.first_use() {
            reporter.first_use(&server);
        }
        match progress {
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

/// The words for a server that is trusted from now on.
pub(crate) fn first_use_text(server: &FirstUse) -> String {
    let secret = if server.secret {
        ", and was shown a secret"
    } else {
        ""
    };
    format!(
        "new server {} is trusted from now on, by the key {} (remembered in {}){secret}",
        server.host,
        server.fingerprint,
        server.known_hosts.display(),
    )
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
