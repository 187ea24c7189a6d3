//! Channels inside one process, by name; for tests and for programs that embed both ends.
//!
//! Guarantees: each channel has two bounded pipes; readiness is injected into the poller of each
//! end with the same edges as a socket's; no descriptors are used; and bytes can't change
//! ([`crate::Capabilities::integrity`] is true). Limit: it connects only within the process.
//!
//! `pipe.rs` implements one direction, and the rule that prevents lost wake-ups.

mod driver;
mod listener;
mod pipe;
mod stream;

pub use driver::driver;
pub use listener::MemoryListener;
pub use stream::MemoryStream;
