//! The session of a client, and those that take its place when it breaks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use xdfs_engine::PathDecisions;
use xdfs_proto::{Code, Fault};

use crate::paths::Caller;
use crate::remote::RemotePlace;
use crate::scheme::{StartedServer, Stop};
use crate::security::{Credential, Level};
use crate::session::{ClientOptions, Session, start_server};

/// The present session of a client. Transfers, calls, files and trees of the client share it.
///
/// Sessions are numbered in the order in which they were opened. Whoever finds one broken names its
/// number to [`Self::replace`], so that several users of a broken session open one other session.
#[derive(Debug)]
pub(crate) struct ReconnectingSession {
    place: RemotePlace,
    /// Those of all sessions.
    decisions: PathDecisions,
    current: Mutex<Current>,
    /// The server, if it was started. Ends after the session with it.
    server: Option<Arc<dyn StartedServer>>,
}

#[derive(Debug)]
struct Current {
    options: ClientOptions,
    generation: u64,
    /// `None` once the client is closed.
    session: Option<Arc<Session>>,
    /// Its calls, which say why they fail after the client is closed.
    caller: Caller,
    is_stopped: bool,
}

impl Current {
    /// Whether the credentials are good for no other session: a login would fail with a fault that
    /// hides why the session broke.
    fn is_for_one_session(&self) -> bool {
        let security = self.options.security.iter();
        let mut credentials = security.flat_map(|own| &own.credentials);
        credentials.any(|own| matches!(own, Credential::Capability { .. }))
    }
}

impl ReconnectingSession {
    /// Starts to open the first session. A server that has to be started is waited for.
    ///
    /// # Errors
    /// As [`Session::connect`], or the server can't be started.
    pub(crate) fn connect(
        place: &RemotePlace,
        mut options: ClientOptions,
    ) -> Result<Arc<Self>, Fault> {
        let server = start_server(place, &mut options)?;
        let decisions = PathDecisions::default();
        let session = Session::connect(place, options.clone(), decisions.clone())?;
        let sessions = Arc::new(Self {
            place: place.clone(),
            decisions,
            current: Mutex::new(Current {
                options,
                generation: 0,
                caller: session.caller.clone(),
                session: Some(Arc::new(session)),
                is_stopped: false,
            }),
            server,
        });
        if let Some(server) = &sessions.server {
            let watched: Weak<Self> = Arc::downgrade(&sessions);
            server.watch_over(watched);
        }
        Ok(sessions)
    }

    /// The path with one in the directory of the login made absolute.
    pub(crate) fn absolute(&self, path: &[u8]) -> Vec<u8> {
        match &self.server {
            Some(server) => server.absolute(path),
            None => path.to_vec(),
        }
    }

    /// The server, as it was named.
    pub(crate) fn place(&self) -> &RemotePlace {
        &self.place
    }

    /// The decisions about the network path that nobody has taken yet.
    pub(crate) fn decisions(&self) -> &PathDecisions {
        &self.decisions
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present session and its number.
    ///
    /// # Errors
    /// [`Code::Cancelled`] once the client is closed.
    pub(crate) fn session(&self) -> Result<(u64, Arc<Session>), Fault> {
        let current = self.lock();
        let session = current.session.clone().ok_or_else(closed)?;
        Ok((current.generation, session))
    }

    /// The calls of the present session, and its number.
    pub(crate) fn caller(&self) -> (u64, Caller) {
        let current = self.lock();
        (current.generation, current.caller.clone())
    }

    /// Starts to open another session in place of the broken one of this number, unless that was
    /// done already. Returns the number of the present session and its calls.
    ///
    /// # Errors
    /// The client was closed or stopped, or no session can be begun.
    pub(crate) fn replace(&self, broken: u64) -> Result<(u64, Caller), Fault> {
        let mut current = self.lock();
        if current.is_stopped {
            return Err(closed());
        }
        let mut old = None;
        if current.generation == broken {
            if current.is_for_one_session() {
                let known = current
                    .session
                    .as_ref()
                    .and_then(|session| session.end.known());
                return Err(known.unwrap_or_else(used_up).ending_session());
            }
            let (options, decisions) = (current.options.clone(), self.decisions.clone());
            let session =
                Session::connect(&self.place, options, decisions).map_err(Fault::ending_session)?;
            current.generation += 1;
            current.caller = session.caller.clone();
            old = current.session.replace(Arc::new(session));
        }
        let now = (current.generation, current.caller.clone());
        drop(current);
        // Joins its thread.
        drop(old);
        Ok(now)
    }

    /// The level of protection that further sessions ask for.
    pub(crate) fn set_level(&self, level: Level) {
        if let Some(security) = &mut self.lock().options.security {
            security.level = level;
        }
    }

    /// Ends the present session at once, and opens no other.
    pub(crate) fn stop(&self) {
        let mut current = self.lock();
        current.is_stopped = true;
        if let Some(session) = &current.session {
            session.stop();
        }
    }

    /// Ends the present session in an orderly way, and opens no other.
    pub(crate) fn close(&self) {
        let mut current = self.lock();
        current.is_stopped = true;
        let session = current.session.take();
        drop(current);
        drop(session);
    }
}

impl Stop for ReconnectingSession {
    fn stop(&self) {
        Self::stop(self);
    }
}

fn used_up() -> Fault {
    let cause = "its session broke, and the credentials are for one session";
    Fault::new(Code::ConnectionLost, "use the server", cause)
}

fn closed() -> Fault {
    let cause = "the client was closed";
    Fault::new(Code::Cancelled, "use a session", cause)
}
