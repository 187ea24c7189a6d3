//! A passive open of bundles.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use xdfs_sys::poll::{Event, Notifier, Poller, Token};

use super::options::Options;
use super::service;
use super::stream::BundleStream;
use crate::endpoint::Endpoint;
use crate::socket::BACKLOG;
use crate::stream::{Listener, Stream};

/// Listens for bundles. Streams that join one are accepted as long as it stands.
#[derive(Debug)]
pub(super) struct BundleListener(Arc<Door>);

/// A listener, shared with the service thread.
#[derive(Debug)]
pub(super) struct Door {
    /// Identifies it to the service thread.
    pub(super) key: usize,
    pub(super) options: Options,
    local: Endpoint,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None once the listener is dropped.
    raw: Option<Box<dyn Listener>>,
    ready: VecDeque<io::Result<BundleStream>>,
    registered: Option<(Notifier, Token)>,
}

impl Door {
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

    /// Hands out a bundle, or the reason why there is none.
    pub(super) fn push(&self, result: io::Result<BundleStream>) {
        let mut state = self.state();
        if state.raw.is_none() || state.ready.len() >= BACKLOG as usize {
            drop(state);
            // The bundle is dropped outside of the lock.
            drop(result);
            return;
        }
        state.ready.push_back(result);
        wake(&state);
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

impl BundleListener {
    pub(super) fn new(raw: Box<dyn Listener>, options: &Options) -> io::Result<Self> {
        let door = Arc::new(Door {
            key: service::new_key(),
            options: options.clone(),
            local: raw.local_endpoint(),
            state: Mutex::new(State {
                raw: Some(raw),
                ready: VecDeque::new(),
                registered: None,
            }),
        });
        service::listen(&door)?;
        Ok(Self(door))
    }
}

impl Listener for BundleListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        match self.0.state().ready.pop_front() {
            Some(stream) => Ok(Box::new(stream?)),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let mut state = self.0.state();
        state.registered = Some((poller.notifier(), token));
        if !state.ready.is_empty() {
            wake(&state);
        }
        Ok(())
    }

    fn local_endpoint(&self) -> Endpoint {
        self.0.local.clone()
    }
}

impl Drop for BundleListener {
    fn drop(&mut self) {
        let mut state = self.0.state();
        let raw = state.raw.take();
        // Bundles that were not accepted are dropped outside of the lock.
        let rest = std::mem::take(&mut state.ready);
        drop(state);
        drop((raw, rest));
    }
}
