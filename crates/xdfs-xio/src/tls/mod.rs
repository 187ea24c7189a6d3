//! TLS 1.3 above any other driver: [`TlsStream`] for both ends.
//!
//! What it gives: privacy and integrity of all bytes ([`crate::Capabilities::integrity`] is true),
//! an end that can't be faked (a connection cut off without close_notify reads as an error and
//! never as an orderly end), and a [`crate::Protection`] that proofs of identity are bound to. What
//! it doesn't: it decides nothing about trust. The configurations come from above, with one
//! provider passed explicitly, and hold the verifiers.
//!
//! `session` is one end as bytes alone: it does no input or output, and [`crate::Transformed`]
//! moves its bytes. rustls does the handshake and the small frames of an opening there. When a
//! channel moves more, its keys go over to `records`, which encrypts from and decrypts into the
//! caller's buffers and knows cleartext runs; `seal` is the protection of one record. `stream` adds
//! what only TLS offers ([`crate::Protected`]): cleartext runs, and on a channel without them
//! records that Linux makes, where it does (`kernel`).

mod driver;
mod kernel;
#[cfg(test)]
mod kernel_tests;
mod records;
mod seal;
mod session;
mod stream;
#[cfg(test)]
mod tests;

pub use driver::{Configs, ServerConfigs, driver};
pub use stream::TlsStream;

/// The protocol name that both ends must agree on (ALPN), so that a server of something else, or a
/// client that believes to speak with one, finds out in the handshake.
pub const PROTOCOL: &[u8] = b"xdfs/1";
