//! Passive opens over QUIC.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use xdfs_sys::poll::{Event, Notifier, Poller, Token};

use super::configs::Configs;
use super::endpoint::{self, Remote};
use super::stream::QuicStream;
use crate::endpoint::{Endpoint, Location};
use crate::socket::BACKLOG;
use crate::stream::{Listener, Stream};

/// Listens at a UDP port. Dropping it closes the port, unless accepted streams are still open: then
/// the port stays in use until their connections have ended.
#[derive(Debug)]
pub(super) struct QuicListener {
    local: SocketAddr,
    backlog: Arc<Backlog>,
    remote: Remote,
}

/// Streams waiting to be accepted.
#[derive(Debug, Default)]
pub(super) struct Backlog(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    streams: VecDeque<QuicStream>,
    registered: Option<(Notifier, Token)>,
    closed: bool,
}

impl Waiting {
    fn wake(&self) {
        if let Some((notifier, token)) = &self.registered {
            notifier.notify(Event {
                token: *token,
                readable: true,
                writable: false,
            });
        }
    }
}

impl Backlog {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether another stream may wait.
    pub(super) fn has_room(&self) -> bool {
        let waiting = self.waiting();
        !waiting.closed && waiting.streams.len() < BACKLOG as usize
    }

    /// Lets the user of the listener look at it.
    pub(super) fn wake(&self) {
        self.waiting().wake();
    }

    /// Adds a stream.
    pub(super) fn add(&self, stream: QuicStream) {
        let mut waiting = self.waiting();
        if waiting.closed {
            // Dropped outside of the lock.
            drop(waiting);
            drop(stream);
            return;
        }
        waiting.streams.push_back(stream);
        waiting.wake();
    }
}

impl QuicListener {
    pub(super) fn listen(address: SocketAddr, configs: &Arc<Configs>) -> io::Result<Self> {
        let backlog = Arc::new(Backlog::default());
        let (local, remote) =
            endpoint::start(address, Arc::clone(configs), Some(Arc::clone(&backlog)))?;
        Ok(Self {
            local,
            backlog,
            remote,
        })
    }
}

impl Listener for QuicListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        let next = self.backlog.waiting().streams.pop_front();
        match next {
            Some(stream) => Ok(Box::new(stream)),
            None => match self.remote.failure() {
                Some(failure) => Err(failure),
                None => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let mut waiting = self.backlog.waiting();
        waiting.registered = Some((poller.notifier(), token));
        if !waiting.streams.is_empty() {
            waiting.wake();
        }
        Ok(())
    }

    fn local_endpoint(&self) -> Endpoint {
        Endpoint::new("quic", Location::Socket(self.local))
    }
}

impl Drop for QuicListener {
    fn drop(&mut self) {
        let rest = {
            let mut waiting = self.backlog.waiting();
            waiting.closed = true;
            std::mem::take(&mut waiting.streams)
        };
        drop(rest);
    }
}
