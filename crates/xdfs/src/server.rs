//! The server: listeners, the acceptor, and a pipeline a session.

use std::path::PathBuf;
use std::time::Duration;

use xdfs_proto::{Fault, Limits};

use crate::remote::Address;

/// Settings of a server before it listens.
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    /// Where to listen; 127.0.0.1:2799 if empty.
    pub listen: Vec<Address>,
    /// The directory served; paths of clients are resolved beneath it by the kernel.
    pub root: PathBuf,
    /// Refuse uploads.
    pub read_only: bool,
    /// Listen on addresses other than loopback although nothing is authenticated.
    pub insecure: bool,
    /// Most sessions at once.
    pub sessions_max: usize,
    /// Time that running sessions get to end after a shutdown was asked for.
    pub grace: Duration,
    /// What a peer may cost.
    pub limits: Limits,
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {}

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct ServerHandle {}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            root: PathBuf::from("."),
            read_only: false,
            insecure: false,
            sessions_max: 256,
            grace: Duration::from_secs(10),
            limits: Limits::default(),
        }
    }
}

impl ServerBuilder {
    /// Opens the root and all listeners.
    ///
    /// # Errors
    /// The root can't be opened, an address can't be bound, or it isn't a loopback address and
    /// `insecure` isn't set.
    pub fn bind(self) -> Result<Server, Fault> {
        todo!()
    }
}

impl Server {
    /// The addresses it listens on, with their real ports.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        todo!()
    }

    /// A handle that ends it.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        todo!()
    }

    /// Serves until [`ServerHandle::shutdown`], then drains: no new session is taken, and running
    /// ones get the grace period, after which they are ended in a resumable state.
    ///
    /// # Errors
    /// The listeners failed.
    pub fn run(self) -> Result<(), Fault> {
        todo!()
    }
}

impl ServerHandle {
    /// Begins to drain. Asked a second time it ends running sessions at once (their durable
    /// ranges stay).
    pub fn shutdown(&self) {
        todo!()
    }
}
