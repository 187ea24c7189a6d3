//! What the engine sees of an open stack ([`Stream`]) and of a passive open ([`Listener`]).
//!
//! What only some drivers offer stands in an [`Extension`], which a stream hands out when it is
//! asked: nothing of it is part of the common calls.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

use socket2::SockRef;
use xdfs_sys::poll::{Poller, Token};

use crate::endpoint::Endpoint;

/// What a stack offers, asked once a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The bytes are protected against change on the way (an authenticated transform, or the memory
    /// of one process): no check value a block is needed.
    pub integrity: bool,
    /// Both ends are on one machine, so that the round-trip time says nothing and large socket
    /// buffers only spoil the caches.
    pub local: bool,
}

/// What a transform that protects a channel knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// Bytes that both ends of this channel have and nobody else, and that no other channel has:
    /// the TLS exporter (RFC 8446, section 7.5). A proof that covers them can't be used elsewhere.
    pub binding: [u8; 32],
    /// The certificates that the peer proved to own, its own first, each as DER; empty without.
    pub peer_certificates: Vec<Vec<u8>>,
}

/// The directions of a channel whose protection the kernel does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// What is written.
    pub sending: bool,
    /// What is read.
    pub receiving: bool,
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

    /// Writes what a transform still holds of what was written before.
    ///
    /// # Errors
    /// `WouldBlock` if the transport doesn't take all of it, or what the transport says.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether [`Stream::flush`] has something to write.
    fn has_unflushed(&self) -> bool {
        false
    }

    /// Bytes in memory that the peer has sent and that can't be read yet, because a transform waits
    /// for the rest of what they belong to. What every stream of this kind takes isn't counted.
    fn held_bytes(&self) -> usize {
        0
    }

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

    /// What protects the channel, once it is open; `None` for a transport without protection.
    fn protection(&self) -> Option<Protection> {
        None
    }

    /// The peer's address, for messages and logs.
    fn peer(&self) -> String;

    /// What the uppermost driver offers beside these calls.
    fn extension(&mut self) -> Extension<'_> {
        Extension::None
    }
}

impl dyn Stream + '_ {
    /// What a protected channel offers; `None` if the uppermost driver protects nothing.
    pub fn protected(&mut self) -> Option<&mut dyn Protected> {
        match self.extension() {
            Extension::Protected(protected) => Some(protected),
            _ => None,
        }
    }

    /// The socket, if this is TCP and nothing else.
    pub(crate) fn tcp_socket(&mut self) -> Option<SockRef<'_>> {
        match self.extension() {
            Extension::TcpSocket(socket) => Some(socket),
            _ => None,
        }
    }
}

/// What a driver offers beside the common calls.
#[derive(Debug)]
#[non_exhaustive]
pub enum Extension<'a> {
    /// Nothing.
    None,
    /// Payload beside the protection, protection by the kernel, and the age of the keys.
    Protected(&'a mut dyn Protected),
    /// The socket of a TCP connection, for a transform that has the kernel do its work. Its bytes
    /// are read and written by the stream alone.
    TcpSocket(SockRef<'a>),
}

/// What a protected channel offers beside [`Stream`].
pub trait Protected: fmt::Debug {
    /// Reads bytes of a cleartext run into `bufs` in order: what the peer wrote beside the
    /// protection by [`Protected::write_cleartext`]. Never gives bytes from beyond the run.
    ///
    /// # Errors
    /// `WouldBlock`; [`io::ErrorKind::InvalidData`] if a protected byte comes next, an end within
    /// the run.
    fn read_cleartext(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Writes `protected`, from 1 byte to 16 KiB that are taken together or not at all, and after
    /// it `cleartext` beside the protection, as one run. What is left of `cleartext` has to be
    /// written next, by the same call with nothing protected. Returns how much it took of both
    /// together, at least 1.
    ///
    /// # Errors
    /// `WouldBlock`, what the transport says, [`io::ErrorKind::InvalidInput`] for anything but the
    /// rest of a run that was begun, [`io::ErrorKind::Unsupported`] once the kernel protects what
    /// is written.
    fn write_cleartext(&mut self, protected: &[IoSlice<'_>], cleartext: &[u8])
    -> io::Result<usize>;

    /// Lets the kernel do the protection from here on, where it can: for a channel that is open and
    /// on which nothing will be read or written in cleartext. What is read and written stays the
    /// same, whatever comes of it. It may take until later calls; see [`Protected::offloaded`].
    fn offload(&mut self);

    /// The directions that the kernel protects by now.
    fn offloaded(&self) -> Offload;

    /// Whether the keys have protected so much that the channel should be replaced by another one.
    fn is_worn(&self) -> bool;
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
