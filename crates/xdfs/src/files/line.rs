//! The session that open files of a client use, and the one that takes its place when it breaks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_proto::{Code, Fault};

use crate::client::{Client, ClientOptions};
use crate::paths::Caller;
use crate::remote::RemotePlace;

/// All open files of a client share it.
#[derive(Debug)]
pub(crate) struct Line {
    place: RemotePlace,
    options: ClientOptions,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Counts the sessions.
    generation: u64,
    caller: Caller,
    /// The session, unless it is that of the client itself.
    own: Option<Client>,
    is_closed: bool,
}

impl Line {
    /// The server, as it was named.
    pub(crate) fn place(&self) -> &RemotePlace {
        &self.place
    }

    /// Begins with the session of `caller`; others are opened in the same way.
    pub(crate) fn new(place: RemotePlace, options: ClientOptions, caller: Caller) -> Self {
        Self {
            place,
            options,
            state: Mutex::new(State {
                generation: 0,
                caller,
                own: None,
                is_closed: false,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that is used now, and its number.
    pub(super) fn current(&self) -> (u64, Caller) {
        let state = self.state();
        (state.generation, state.caller.clone())
    }

    /// A session other than that of the number, which is broken.
    ///
    /// # Errors
    /// The client was closed, or no session can be begun.
    pub(super) fn replace(&self, broken: u64) -> Result<(u64, Caller), Fault> {
        let mut state = self.state();
        if state.is_closed {
            let cause = "the client was closed";
            return Err(Fault::new(Code::Cancelled, "go on with a file", cause));
        }
        let mut old = None;
        if state.generation == broken {
            let client = Client::connect(&self.place, self.options.clone())?;
            state.generation += 1;
            state.caller = client.caller().clone();
            old = state.own.replace(client);
        }
        let now = (state.generation, state.caller.clone());
        drop(state);
        // Its thread is waited for.
        drop(old);
        Ok(now)
    }

    /// Nothing is opened any more, and what a session of its own does ends at once.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.is_closed = true;
        if let Some(own) = &state.own {
            own.stop_session();
        }
    }

    /// The client is closed: nothing is opened any more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let own = state.own.take();
        drop(state);
        drop(own);
    }
}
