//! Standard input and output of this process as one stream.
//!
//! Guarantees: order. The descriptors are copies, and their mode isn't changed: other processes may
//! share the terminal or the pipe, and `O_NONBLOCK` would be theirs too. Instead each call asks
//! poll(2) first. Written to anything but a file are at most 4096 bytes at a time, which a pipe
//! that is ready takes without waiting (PIPE_BUF of pipe(7)). Files are always ready.
//!
//! Limits: if another process reads the same input, a call may wait. `close` gives up this stream's
//! copy; a reader of the output sees the end only when this process ends or closes its own. Only on
//! Unix; elsewhere `open` returns [`std::io::ErrorKind::Unsupported`].

mod driver;
#[cfg(unix)]
mod stream;

pub use driver::driver;
#[cfg(unix)]
pub use stream::StdioStream;
