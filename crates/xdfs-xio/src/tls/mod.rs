//! TLS 1.3 above any other driver: [`TlsStream`] for both ends.
//!
//! Guarantees: confidentiality and integrity of all bytes ([`crate::Capabilities::integrity`] is
//! true), authenticated ends (a connection cut off without close_notify reads as an error and never
//! as an orderly end), and a [`crate::Protection`] to which proofs of identity are bound. Limit: it
//! makes no trust decisions. The configurations come from the caller, with one provider passed
//! explicitly, and contain the verifiers.
//!
//! `session` is one end without I/O; [`crate::Transformed`] moves its bytes. In it, rustls performs
//! the handshake and protects the small frames of the opening exchange. When a channel moves more,
//! its keys go to `records`, which encrypts from and decrypts into the caller's buffers and
//! supports cleartext runs; `xdfs-tls` protects single records. `stream` adds the features
//! of TLS ([`crate::Protected`]): cleartext runs and, on channels without them, record protection
//! by the Linux kernel where available (`kernel`).

mod driver;
mod kernel;
#[cfg(test)]
mod kernel_tests;
mod records;
mod session;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod version_tests;

pub use driver::{Configs, ServerConfigs, StableSecret, driver};
pub use stream::TlsStream;

/// The protocol name for ALPN, on which both ends must agree: connections to other services fail in
/// the handshake.
pub const PROTOCOL: &[u8] = b"xdfs/1";
