//! Driver stacks: open, close, read and write over a transport and the transforms above it.
//!
//! A [`Stream`] is an open stack of one channel; a [`Listener`] is a passive open. All calls are
//! non-blocking: they answer [`std::io::ErrorKind::WouldBlock`] where they would wait, and the
//! readiness they wait for comes from a [`xdfs_sys::poll::Poller`].
//!
//! Each driver is a folder with the same files: `mod.rs` says what the transport gives,
//! `stream.rs` holds its [`Stream`], `listener.rs` its [`Listener`]. One suite,
//! `tests/behaviour.rs`, runs over all of them. [`open`] and [`listen`] choose the driver by the
//! [`Endpoint`]; the engine and the library call these and never a driver.

#![forbid(unsafe_code)]

pub mod memory;
pub mod tcp;
pub mod tls;
pub mod unix;

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

use xdfs_sys::poll::{Poller, Token};

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

    /// Reads bytes of a clear run into `bufs` in order: what the peer wrote beside the protection
    /// by [`Stream::write_beside`]. Never gives bytes from beyond the run.
    ///
    /// # Errors
    /// `WouldBlock`; [`io::ErrorKind::InvalidData`] if a protected byte comes next, an end within
    /// the run; [`io::ErrorKind::Unsupported`] without protection.
    fn read_clear(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let _ = bufs;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Writes `protected`, from 1 byte to 16 KiB that are taken together or not at all, and after
    /// it `clear` beside the protection, as one clear run. What is left of `clear` has to be
    /// written next, by the same call with nothing protected. Says how much it took of both
    /// together, at least 1.
    ///
    /// # Errors
    /// `WouldBlock`, what the transport says, [`io::ErrorKind::InvalidInput`] for anything but the
    /// rest of a run that was begun, [`io::ErrorKind::Unsupported`] without protection.
    fn write_beside(&mut self, protected: &[IoSlice<'_>], clear: &[u8]) -> io::Result<usize> {
        let _ = (protected, clear);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Lets the kernel do the protection from here on, where it can: for a channel that is open and
    /// on which nothing will be read or written beside the protection. What is read and written
    /// stays the same, whatever comes of it. It may take until later calls; see
    /// [`Stream::offloaded`].
    fn offload(&mut self) {}

    /// Which directions the kernel protects by now.
    fn offloaded(&self) -> Offload {
        Offload::default()
    }

    /// The socket, if this is TCP and nothing else: for a transform that has the kernel do its
    /// work. Its bytes are read and written by this stream alone.
    fn tcp_socket(&self) -> Option<socket2::SockRef<'_>> {
        None
    }

    /// Whether the keys of a transform have protected so much that the channel should be replaced
    /// by another one.
    fn is_worn(&self) -> bool {
        false
    }

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

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(name) => write!(f, "memory:{name}"),
            Self::Tcp(addr) => write!(f, "{addr}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Begins an active open and returns at once. The stream is connected when
/// [`Stream::finish_open`] says so; ask it once after [`Stream::register`], and then at each
/// readiness.
///
/// # Errors
/// What is known at once: no such listener, no descriptors left, a full queue of the listener
/// ([`io::ErrorKind::ResourceBusy`]), a transport that this system lacks
/// ([`io::ErrorKind::Unsupported`]).
pub fn open(endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
    Ok(match endpoint {
        Endpoint::Memory(name) => Box::new(memory::MemoryStream::open(name)?),
        Endpoint::Tcp(addr) => Box::new(tcp::TcpStream::open(*addr)?),
        #[cfg(unix)]
        Endpoint::Unix(path) => Box::new(unix::UnixStream::open(path)?),
        #[cfg(not(unix))]
        Endpoint::Unix(_) => return Err(unix::unsupported()),
    })
}

/// Listens. Port 0 asks the system for a free port; [`Listener::local_endpoint`] names it.
///
/// # Errors
/// The address is taken or not ours, no descriptors are left, or this system lacks the transport
/// ([`io::ErrorKind::Unsupported`]).
pub fn listen(endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
    Ok(match endpoint {
        Endpoint::Memory(name) => Box::new(memory::MemoryListener::listen(name)?),
        Endpoint::Tcp(addr) => Box::new(tcp::TcpListener::listen(*addr)?),
        #[cfg(unix)]
        Endpoint::Unix(path) => Box::new(unix::UnixListener::listen(path)?),
        #[cfg(not(unix))]
        Endpoint::Unix(_) => return Err(unix::unsupported()),
    })
}

/// Channels that may wait for [`Listener::accept`]. A session opens all its channels at once, and
/// a thousand of them is normal; the system may lower it (`net.core.somaxconn` on Linux).
const BACKLOG: i32 = 4096;

/// Repeats `call` while a signal interrupts it, so that callers know only `WouldBlock`.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Ends the writing side of a socket. A connection that is gone has nothing left to end, and its
/// reader learns why.
fn shut_writing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()),
        done => done,
    }
}

/// Whether a connection under way is made, from the pending error of its socket and the answer to
/// the question who the peer is.
fn connected<A>(pending: Option<io::Error>, peer: io::Result<A>) -> io::Result<Option<A>> {
    if let Some(e) = pending {
        return Err(e);
    }
    match peer {
        Ok(addr) => Ok(Some(addr)),
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(None),
        Err(e) => Err(e),
    }
}

/// Sets both buffers of a socket, in bytes.
fn set_buffers(socket: socket2::SockRef<'_>, bytes: u32) -> io::Result<()> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    socket.set_send_buffer_size(bytes)?;
    socket.set_recv_buffer_size(bytes)
}
