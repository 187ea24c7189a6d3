//! Zstandard (RFC 8878) above any other driver, for slow links and content that shrinks.
//!
//! Guarantees: those of [`compress`](crate::compress), among them that content which doesn't
//! shrink is passed on at almost no cost. A block is a whole frame of zstd with a window of at most
//! its content, 256 KiB. Limits: it adds no integrity, and the contexts of a thread take about
//! 2 MiB at the default level and up to 8 MiB at the highest.

mod codec;
mod driver;

#[cfg(test)]
pub(crate) use codec::Zstd;
pub use driver::driver;
