//! How a pipeline waits for its channels: the replaceable kernel of the dispatcher.
//!
//! [`Readiness`] works everywhere (epoll, kqueue, IOCP). A completion-based kernel such as io_uring
//! takes its place by implementing [`Kernel`]; the pipeline asks for nothing but "tell me which
//! channel can go on".

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use xdfs_sys::poll::{Event, Notifier, Poller, Token};
use xdfs_xio::Stream;

use crate::environment::{Environment, System};

/// Tells which channels can go on. Readiness is edge-triggered: it comes once, and again only
/// after an operation answered `WouldBlock`.
pub trait Kernel: Send + fmt::Debug {
    /// Watches a stream under `token`.
    ///
    /// # Errors
    /// What the system says.
    fn attach(&mut self, stream: &mut dyn Stream, token: Token) -> io::Result<()>;

    /// Stops watching a stream.
    fn detach(&mut self, stream: &mut dyn Stream);

    /// Waits until something is ready or `timeout` is over, and appends it to `events`.
    ///
    /// # Errors
    /// What the system says.
    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()>;

    /// A handle by which other threads wake the pipeline.
    fn notifier(&self) -> Notifier;

    /// Where time and threads come from.
    fn environment(&self) -> &Arc<dyn Environment>;
}

/// The portable kernel.
#[derive(Debug)]
pub struct Readiness {
    poller: Poller,
    environment: Arc<dyn Environment>,
}

impl Readiness {
    /// A kernel that watches nothing yet.
    ///
    /// # Errors
    /// What the system says, for instance that no descriptors are left.
    pub fn new() -> io::Result<Self> {
        Self::within(System::shared())
    }

    /// Likewise, in another environment than that of the system.
    ///
    /// # Errors
    /// Likewise.
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
        // A stream that is about to be closed leaves the kernel's lists anyway.
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
