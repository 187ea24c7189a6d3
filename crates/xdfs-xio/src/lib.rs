//! Driver stacks: open, close, read and write over a transport and the transforms above it.
//!
//! A [`Stream`] is an open stack of one channel; a [`Listener`] is a passive open. All calls are
//! non-blocking: they answer [`std::io::ErrorKind::WouldBlock`] where they would wait, and the
//! readiness they wait for comes from a [`xdfs_sys::poll::Poller`].

#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

use xdfs_sys::poll::{Poller, Token};

/// What a stack offers, asked once a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The bytes are protected against change on the way (an authenticated transform, or memory):
    /// no check value a block is needed.
    pub integrity: bool,
    /// Both ends are on one machine, so that the round-trip time says nothing and large socket
    /// buffers only spoil the caches.
    pub local: bool,
}

/// An open stack. Dropping it closes it at once.
pub trait Stream: Send + fmt::Debug {
    /// Reads into `bufs` in order. `Ok(0)` is the orderly end of the peer.
    ///
    /// # Errors
    /// `WouldBlock`, or what the transport says.
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Writes from `bufs` in order, and says how much it took.
    ///
    /// # Errors
    /// `WouldBlock`, or what the transport says.
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Finishes an active open that is under way: `Ok(true)` when connected, `Ok(false)` to be
    /// asked again at the next readiness.
    ///
    /// # Errors
    /// The reason why the connection failed.
    fn finish_open(&mut self) -> io::Result<bool>;

    /// Ends the writing side in an orderly way; what was written still arrives.
    ///
    /// # Errors
    /// What the transport says.
    fn close(&mut self) -> io::Result<()>;

    /// Asks for edge-triggered readiness under `token`.
    ///
    /// # Errors
    /// What the system says.
    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()>;

    /// Withdraws the registration.
    ///
    /// # Errors
    /// What the system says.
    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()>;

    /// Sets both socket buffers, in bytes, where the transport has them.
    ///
    /// # Errors
    /// What the system says.
    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// What the stack offers.
    fn capabilities(&self) -> Capabilities;

    /// The peer's address, for messages and logs.
    fn peer(&self) -> String;
}

/// A passive open.
pub trait Listener: Send + fmt::Debug {
    /// The next channel, or `WouldBlock`.
    ///
    /// # Errors
    /// What the transport says.
    fn accept(&mut self) -> io::Result<Box<dyn Stream>>;

    /// Asks for readiness under `token`.
    ///
    /// # Errors
    /// What the system says.
    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()>;

    /// The address it listens on, with the real port.
    fn local_endpoint(&self) -> Endpoint;
}

/// Where a transport listens or connects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// In this process, by name; for tests and embedding.
    Memory(String),
    /// TCP over IPv4 or IPv6, resolved.
    Tcp(std::net::SocketAddr),
    /// A Unix socket.
    Unix(std::path::PathBuf),
}
