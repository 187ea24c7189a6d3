//! One stream over several: the "parallel TCP socket" of NaradaBrokering.
//!
//! A splitter cuts what is written into numbered pieces; whichever stream has room takes the next
//! one; and a merger at the other side puts them in order. Streams may stall, break and be
//! replaced while the bundle stands. It gives order, and the integrity and protection of the
//! streams below: a stream joins only with a proof of the secret that the ends exchanged on the
//! first one, and that proof covers the binding of its own protection. Without protection below, an
//! eavesdropper sees the secret and can join.
//!
//! Limits: memory is bounded by the windows of both sides; a user who neither reads nor writes
//! keeps the peer waiting, as over one stream; and a user who leaves has its last bytes delivered
//! in the background for two minutes at most.
//!
//! [`wire`] is what the streams carry (`docs/ptcp.md`), [`Bundle`] the machine, built from a
//! splitter and a merger. `core.rs` drives it over streams in the user's calls, `service.rs` opens
//! and accepts streams and watches the time, in one thread for the process.

mod bundle;
mod core;
mod dial;
mod door;
mod driver;
mod listener;
mod merger;
mod options;
mod service;
mod splitter;
mod stream;
#[cfg(test)]
mod tests;
pub mod wire;

pub use bundle::{Bundle, Read, Sizes, Step, Write};
pub use driver::driver;
