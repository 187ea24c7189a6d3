//! The session that open files of a client use, and the one that takes its place when it breaks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_proto::{Code, Fault};

use crate::paths::Caller;
use crate::remote::RemotePlace;
use crate::session::{ClientOptions, Session};

/// All open files of a client share it.
#[derive(Debug)]
pub(crate) struct ReconnectingSession {
    place: RemotePlace,
    options: ClientOptions,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    /// Counts the sessions.
    generation: u64,
    caller: Caller,
    /// The session, unless it is that of the client itself.
    own: Option<Session>,
    is_closed: bool,
}

impl ReconnectingSession {
    /// The server, as it was named.
    pub(crate) fn place(&self) -> &RemotePlace {
        &self.place
    }

    /// Begins with the session of `caller`; others are opened in the same way.
    pub(crate) fn new(place: RemotePlace, options: ClientOptions, caller: Caller) -> Self {
        Self {
            place,
            options,
            current: Mutex::new(Current {
                generation: 0,
                caller,
                own: None,
                is_closed: false,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that is used now, and its number.
    pub(super) fn current(&self) -> (u64, Caller) {
        let current = self.lock();
        (current.generation, current.caller.clone())
    }

    /// A session other than that of the number, which is broken.
    ///
    /// # Errors
    /// The client was closed, or no session can be begun.
    pub(super) fn replace(&self, broken: u64) -> Result<(u64, Caller), Fault> {
        let mut current = self.lock();
        if current.is_closed {
            let cause = "the client was closed";
            return Err(Fault::new(Code::Cancelled, "go on with a file", cause));
        }
        let mut old = None;
        if current.generation == broken {
            let session = Session::connect(&self.place, self.options.clone())
                .map_err(Fault::ending_session)?;
            current.generation += 1;
            current.caller = session.caller.clone();
            old = current.own.replace(session);
        }
        let now = (current.generation, current.caller.clone());
        drop(current);
        // Its thread is waited for.
        drop(old);
        Ok(now)
    }

    /// Nothing is opened any more, and what a session of its own does ends at once.
    pub(crate) fn stop(&self) {
        let mut current = self.lock();
        current.is_closed = true;
        if let Some(own) = &current.own {
            own.stop();
        }
    }

    /// The client is closed: nothing is opened any more.
    pub(crate) fn close(&self) {
        let mut current = self.lock();
        current.is_closed = true;
        let own = current.own.take();
        drop(current);
        drop(own);
    }
}
