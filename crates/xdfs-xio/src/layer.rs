//! What a stack is made of: transports at the bottom, layers above them, and the properties that
//! both give and need.

use std::fmt;
use std::io;

use crate::endpoint::Endpoint;
use crate::stream::{Listener, Stream};
use crate::transform::End;

/// A configured transport: the bottom of a stack.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Starts an active open and returns at once. [`Stream::finish_open`] reports when the stream
    /// is connected; call it once after [`Stream::register`], and then at each readiness event.
    ///
    /// # Errors
    /// Immediate failures: no such listener, no descriptors left, a full queue of the listener
    /// ([`io::ErrorKind::ResourceBusy`]), a location in a form that the driver doesn't accept
    /// ([`io::ErrorKind::InvalidInput`]), a transport not available on this system
    /// ([`io::ErrorKind::Unsupported`]).
    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>>;

    /// Listens. Port 0 requests a free port; [`Listener::local_endpoint`] returns it.
    ///
    /// # Errors
    /// The address is in use or not local, no descriptors are left, or the immediate failures of
    /// [`Transport::open`].
    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>>;

    /// Listens on a socket that another program has opened. Its address stays in use, and a socket
    /// file stays, when the listener is dropped.
    ///
    /// # Errors
    /// The socket is one of another transport ([`io::ErrorKind::InvalidInput`]), or isn't usable.
    fn adopt(&self, socket: ListeningSocket) -> io::Result<Box<dyn Listener>> {
        Err(another_transport(&socket))
    }
}

/// A socket that listens already, opened by another program or by the caller.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListeningSocket {
    /// Over TCP.
    Tcp(std::net::TcpListener),
    /// A Unix socket.
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixListener),
}

impl ListeningSocket {
    /// The transport that it belongs to.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            #[cfg(unix)]
            Self::Unix(_) => "unix",
        }
    }
}

/// The error for a socket of another transport.
pub(crate) fn another_transport(socket: &ListeningSocket) -> io::Error {
    let cause = format!("it is a socket of the transport {}", socket.transport());
    io::Error::new(io::ErrorKind::InvalidInput, cause)
}

/// The error of a transport that only opens.
pub(crate) fn never_listens(transport: &str) -> io::Error {
    let cause = format!("the transport {transport} can't listen");
    io::Error::new(io::ErrorKind::Unsupported, cause)
}

/// A configured transform: puts one of its ends on each stream.
pub trait Layer: Send + Sync + fmt::Debug {
    /// Puts `end` on the stream `below`.
    ///
    /// # Errors
    /// A requirement of the transform other than its attributes is missing.
    fn push(&self, below: Box<dyn Stream>, end: End) -> io::Result<Box<dyn Stream>>;

    /// Puts the initiator's end on the stream `below`, which leads to `endpoint`.
    ///
    /// # Errors
    /// Those of [`Layer::push`].
    fn push_to(&self, below: Box<dyn Stream>, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let _ = endpoint;
        self.push(below, End::Initiator)
    }
}

/// A property that a driver gives to the drivers above it, and may need from below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Property {
    /// Bytes arrive once and in order.
    Order,
    /// No byte is changed in transit unnoticed: [`Capabilities::integrity`](crate::Capabilities).
    Integrity,
    /// Nobody else can read the bytes, and proofs of identity can be bound to the channel:
    /// [`Stream::protection`].
    Protection,
}

impl Property {
    /// Its name, for messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Integrity => "integrity",
            Self::Protection => "protection",
        }
    }
}
