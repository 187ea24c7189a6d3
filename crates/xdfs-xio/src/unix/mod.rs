//! Unix sockets: two processes on one machine.
//!
//! Guarantees: the kernel copies bytes from one process to the other; the permissions of the socket
//! file, created for its owner only (0600), decide who may connect. Neither end can exclude that
//! the other process forwards to another machine, so [`crate::Capabilities::integrity`] is false.
//! Limit: only on Unix; elsewhere both opens return [`std::io::ErrorKind::Unsupported`].

mod driver;
#[cfg(unix)]
mod listener;
#[cfg(unix)]
mod stream;

pub use driver::driver;
#[cfg(unix)]
pub use listener::UnixListener;
#[cfg(unix)]
pub use stream::UnixStream;
