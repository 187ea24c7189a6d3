//! A file as a stream: what is written goes into it, and what is read comes from it.
//!
//! Guarantees: bytes are read and written in order, each direction at a position of its own that
//! begins at `offset`. Reading ends at the end of the file, or after `length` bytes; a file that
//! ends before is an error. A file is no channel: there is no peer, a stack of it can't listen, and
//! [`crate::Capabilities::integrity`] is false, as the medium may change bytes.
//!
//! Limits: files are always ready for the system, so calls may wait for the disk. Written bytes
//! survive a power cut only when the system has stored them; nothing is synchronised here. Pipes
//! and sockets are refused.

#[cfg(target_os = "linux")]
mod direct;
mod driver;
mod options;
mod stream;

pub use driver::driver;
pub use options::{FileAccess, FileOptions};
pub use stream::FileStream;
