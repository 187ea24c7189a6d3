//! Unix sockets: two processes on one machine.
//!
//! What it gives: bytes go from one process to the other by a copy of the kernel; who may connect
//! is decided by the permissions of the socket file, which is made for its owner alone (0600).
//! That the other process isn't a forwarder to another machine neither end can know, so
//! [`crate::Capabilities::integrity`] is false. What it does not: other systems than Unix have
//! none here; there both opens answer [`std::io::ErrorKind::Unsupported`].

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
