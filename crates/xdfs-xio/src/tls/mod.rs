//! TLS 1.3 above any other driver: [`TlsStream`] for both ends, [`TlsListener`] for passive opens.
//!
//! What it gives: privacy and integrity of all bytes ([`crate::Capabilities::integrity`] is true),
//! an end that can't be faked (a connection cut off without close_notify reads as an error and
//! never as an orderly end), and a [`crate::Protection`] that proofs of identity are bound to. What
//! it doesn't: it decides nothing about trust. The configurations come from above, with one
//! provider passed explicitly, and hold the verifiers.
//!
//! A handshake runs inside `finish_open` at the initiator and inside reads at the acceptor, so a
//! peer that never finishes it costs what a silent peer costs. Encrypted bytes that the transport
//! didn't take wait in the stream; [`crate::Stream::flush`] writes them.
//!
//! rustls does the handshake and the small frames of an opening (`stream`). When a channel moves
//! more, its keys go over to `records`, which encrypts from and decrypts into the caller's buffers
//! and knows clear runs; `seal` is the protection of one record. On a channel without clear runs
//! `kernel` has Linux make the records, where it does ([`crate::Stream::offload`]).

mod kernel;
#[cfg(test)]
mod kernel_tests;
mod listener;
mod records;
mod seal;
mod stream;
#[cfg(test)]
mod tests;

pub use listener::{Configs, TlsListener};
pub use stream::TlsStream;

/// The protocol name that both ends must agree on (ALPN), so that a server of something else, or a
/// client that believes to speak with one, finds out in the handshake.
pub const PROTOCOL: &[u8] = b"xdfs/1";
