//! Zstandard (RFC 8878) above any other driver, for slow links and content that shrinks.
//!
//! Guarantees: those of `compress`, among them that content which doesn't shrink is soon passed on
//! as it is. A block is a whole frame of zstd with a window of at most its content, 256 KiB.
//! Limits: it adds no integrity, and each thread keeps contexts, which take more memory at higher
//! levels.

mod codec;
mod driver;

#[cfg(test)]
pub(crate) use codec::Zstd;
pub use driver::driver;
