//! A listener as the service thread sees it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use xdfs_sys::poll::{Poller, Token};

use super::core::{Shared, new_key};
use super::options::Options;
use crate::endpoint::Endpoint;
use crate::queue::Queue;
use crate::socket::BACKLOG;
use crate::stream::{Listener, Stream};

/// A listener, shared with the service thread.
#[derive(Debug)]
pub(super) struct Door {
    /// Identifies it to the service thread.
    pub(super) key: usize,
    pub(super) options: Options,
    pub(super) local: Endpoint,
    /// The bundles for the user, and the reasons why there is none.
    pub(super) ready: Queue<io::Result<Arc<Shared>>>,
    /// None once the listener is dropped.
    raw: Mutex<Option<Box<dyn Listener>>>,
}

impl Door {
    pub(super) fn new(raw: Box<dyn Listener>, options: &Options) -> Self {
        Self {
            key: new_key(),
            options: options.clone(),
            local: raw.local_endpoint(),
            ready: Queue::new(BACKLOG as usize),
            raw: Mutex::new(Some(raw)),
        }
    }

    fn raw(&self) -> MutexGuard<'_, Option<Box<dyn Listener>>> {
        self.raw.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Registers the listener below with the service thread.
    pub(super) fn register(&self, poller: &mut Poller) -> io::Result<()> {
        match &mut *self.raw() {
            Some(raw) => raw.register(poller, Token(self.key)),
            None => Ok(()),
        }
    }

    /// The next stream below. None if there is none, or the listener is gone.
    pub(super) fn accept(&self) -> Option<io::Result<Box<dyn Stream>>> {
        match self.raw().as_mut()?.accept() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            done => Some(done),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.raw().is_some()
    }

    /// The listener is gone. Returns the bundles that were not taken.
    pub(super) fn close(&self) -> Vec<Arc<Shared>> {
        let rest = self.ready.close();
        let raw = self.raw().take();
        drop(raw);
        rest.into_iter().flatten().collect()
    }
}
