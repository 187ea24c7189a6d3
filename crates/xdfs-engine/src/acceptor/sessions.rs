//! The table of sessions, and what takes a session out of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs_proto::{SessionId, SessionSecret};
use xdfs_sys::poll::Notifier;

use crate::command::{Command, Commands};
use crate::environment;
use crate::security::Standing;

/// A session that runs.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) secret: SessionSecret,
    pub(super) commands: Commands,
    /// Address of the first channel's peer, without the port.
    pub(super) host: String,
    /// The session's user; empty without protection.
    pub(super) user: String,
    pub(super) standing: Option<Arc<dyn Standing>>,
}

impl Session {
    pub(super) fn reviewed(&self, id: SessionId) -> Reviewed {
        (
            id,
            self.user.clone(),
            self.commands.clone(),
            self.standing.clone(),
        )
    }

    /// Ends the session at once, in a resumable state, for a reason that its user reads.
    pub(super) fn end(commands: &Commands, why: &'static str) {
        // Fails only if the session has already ended.
        let _ = commands.send(Command::Withdraw(why));
    }
}

/// A session to be reviewed, with its user.
type Reviewed = (SessionId, String, Commands, Option<Arc<dyn Standing>>);

#[derive(Clone, Debug, Default)]
pub(super) struct Sessions(Arc<Mutex<HashMap<SessionId, Session>>>);

impl Sessions {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        // A panic elsewhere leaves the table consistent: each change is one insert or remove.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a session from the table when its thread ends, even by a panic.
pub(super) struct Registration {
    pub(super) sessions: Sessions,
    pub(super) id: SessionId,
    pub(super) notifier: Notifier,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.id);
        environment::wake(&self.notifier);
    }
}

/// Counts a session until its last thread has ended, which may be later than the session itself if
/// a file system blocks it.
pub(super) struct RunningSession(Arc<AtomicUsize>);

impl RunningSession {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
