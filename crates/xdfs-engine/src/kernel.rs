//! How a pipeline waits for its channels: the replaceable kernel of the dispatcher.
//!
//! [`Readiness`] works everywhere (epoll, kqueue, IOCP). The pipeline asks which channels are
//! ready, and reads and writes itself.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use xdfs_sys::poll::{Event, Notifier, Poller, Token};
use xdfs_xio::Stream;

use crate::environment::{Environment, System};

/// Reports channels that are ready. Readiness is edge-triggered: it is reported once, and again
/// only after an operation has returned `WouldBlock`.
pub trait Kernel: Send + fmt::Debug {
    /// Registers a stream under `token`.
    ///
    /// # Errors
    /// Any error of the system.
    fn attach(&mut self, stream: &mut dyn Stream, token: Token) -> io::Result<()>;

    /// Deregisters a stream.
    fn detach(&mut self, stream: &mut dyn Stream);

    /// Waits until a channel is ready or `timeout` has passed, and appends to `events`.
    ///
    /// # Errors
    /// Any error of the system.
    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()>;

    /// A handle with which other threads wake the pipeline.
    fn notifier(&self) -> Notifier;

    /// The source of time and threads.
    fn environment(&self) -> &Arc<dyn Environment>;
}

/// The portable kernel.
#[derive(Debug)]
pub struct Readiness {
    poller: Poller,
    environment: Arc<dyn Environment>,
}

impl Readiness {
    /// A kernel without streams.
    ///
    /// # Errors
    /// Any error of the system, for instance that no descriptors are left.
    pub fn new() -> io::Result<Self> {
        Self::within(System::shared())
    }

    /// Like [`Self::new`], in another environment than the system's.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn within(environment: Arc<dyn Environment>) -> io::Result<Self> {
        let poller = Poller::new()?;
        Ok(Self {
            poller,
            environment,
        })
    }
}

impl Kernel for Readiness {
    fn attach(&mut self, stream: &mut dyn Stream, token: Token) -> io::Result<()> {
        stream.register(&mut self.poller, token)
    }

    fn detach(&mut self, stream: &mut dyn Stream) {
        // Closing the stream deregisters it anyway.
        let _ = stream.deregister(&mut self.poller);
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        self.poller.wait(events, timeout)
    }

    fn notifier(&self) -> Notifier {
        self.poller.notifier()
    }

    fn environment(&self) -> &Arc<dyn Environment> {
        &self.environment
    }
}
