//! A listener as the service thread sees it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use xdfs_sys::poll::{Event, Notifier, Poller, Token};

use super::core::{Shared, new_key};
use super::options::Options;
use crate::endpoint::Endpoint;
use crate::socket::BACKLOG;
use crate::stream::{Listener, Stream};

/// A listener, shared with the service thread.
#[derive(Debug)]
pub(super) struct Door {
    /// Identifies it to the service thread.
    pub(super) key: usize,
    pub(super) options: Options,
    pub(super) local: Endpoint,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None once the listener is dropped.
    raw: Option<Box<dyn Listener>>,
    ready: VecDeque<io::Result<Arc<Shared>>>,
    registered: Option<(Notifier, Token)>,
}

impl Door {
    pub(super) fn new(raw: Box<dyn Listener>, options: &Options) -> Self {
        Self {
            key: new_key(),
            options: options.clone(),
            local: raw.local_endpoint(),
            state: Mutex::new(State {
                raw: Some(raw),
                ready: VecDeque::new(),
                registered: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Registers the listener below with the service thread.
    pub(super) fn register(&self, poller: &mut Poller) -> io::Result<()> {
        match &mut self.state().raw {
            Some(raw) => raw.register(poller, Token(self.key)),
            None => Ok(()),
        }
    }

    /// The next stream below. None if there is none, or the listener is gone.
    pub(super) fn accept(&self) -> Option<io::Result<Box<dyn Stream>>> {
        match self.state().raw.as_mut()?.accept() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            done => Some(done),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state().raw.is_some()
    }

    /// Hands out a bundle, or the reason why there is none. Returns what nobody takes: the listener
    /// is gone, or too much waits.
    pub(super) fn push(&self, result: io::Result<Arc<Shared>>) -> Option<Arc<Shared>> {
        let mut state = self.state();
        if state.raw.is_none() || state.ready.len() >= BACKLOG as usize {
            return result.ok();
        }
        state.ready.push_back(result);
        wake(&state);
        None
    }

    /// The next bundle. None if there is none at present.
    pub(super) fn take(&self) -> Option<io::Result<Arc<Shared>>> {
        self.state().ready.pop_front()
    }

    /// Registers the user.
    pub(super) fn tell(&self, notifier: Notifier, token: Token) {
        let mut state = self.state();
        state.registered = Some((notifier, token));
        if !state.ready.is_empty() {
            wake(&state);
        }
    }

    /// The listener is gone. Returns the bundles that were not taken.
    pub(super) fn close(&self) -> Vec<Arc<Shared>> {
        let mut state = self.state();
        let raw = state.raw.take();
        let rest = std::mem::take(&mut state.ready);
        drop(state);
        drop(raw);
        rest.into_iter().flatten().collect()
    }
}

fn wake(state: &State) {
    if let Some((notifier, token)) = &state.registered {
        notifier.notify(Event {
            token: *token,
            readable: true,
            writable: false,
        });
    }
}
