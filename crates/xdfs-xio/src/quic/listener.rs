//! Passive opens over QUIC.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use xdfs_sys::poll::{Poller, Token};

use super::configs::Configs;
use super::endpoint::{self, Remote};
use super::stream::QuicStream;
use crate::endpoint::{Endpoint, Location};
use crate::queue::Queue;
use crate::socket::BACKLOG;
use crate::stream::{Listener, Stream};

/// Listens at a UDP port. Dropping it closes the port, unless accepted streams are still open: then
/// the port stays in use until their connections have ended.
#[derive(Debug)]
pub(super) struct QuicListener {
    local: SocketAddr,
    backlog: Arc<Queue<QuicStream>>,
    remote: Remote,
}

impl QuicListener {
    pub(super) fn listen(address: SocketAddr, configs: &Arc<Configs>) -> io::Result<Self> {
        let backlog = Arc::new(Queue::new(BACKLOG as usize));
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
        match self.backlog.pop() {
            Some(stream) => Ok(Box::new(stream)),
            None => match self.remote.failure() {
                Some(failure) => Err(failure),
                None => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.backlog.register(poller.notifier(), token);
        Ok(())
    }

    fn local_endpoint(&self) -> Endpoint {
        Endpoint::new("quic", Location::Socket(self.local))
    }
}

impl Drop for QuicListener {
    fn drop(&mut self) {
        drop(self.backlog.close());
    }
}
