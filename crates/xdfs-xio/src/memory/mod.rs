//! Channels inside one process, by name; for tests and for programs that embed both ends.
//!
//! What it gives: two bounded pipes a channel, readiness injected into the poller of each end with
//! the same edges a socket has, no descriptors, and no way for bytes to change
//! ([`crate::Capabilities::integrity`] is true). What it does not: nothing leaves the process.
//!
//! `pipe.rs` is the one direction both are made of, and holds the rule that no wake-up is lost.

mod driver;
mod listener;
mod pipe;
mod stream;

pub use driver::driver;
pub use listener::MemoryListener;
pub use stream::MemoryStream;
