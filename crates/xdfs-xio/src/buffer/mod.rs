//! Buffers above any other driver, for programs that write and read little at a time.
//!
//! Small writes are gathered until `size` bytes are there or the stream is flushed; a read takes
//! up to `size` bytes ahead. Guarantees: bytes and their order are unchanged; a write as large as
//! the buffer, or a read into as much room, passes without a copy; whatever was accepted goes out
//! with [`Stream::flush`](crate::Stream::flush) or with the close. Limits: what a program neither
//! flushes nor follows with more stays here, so whoever waits for an answer flushes first; and a
//! write may fail for bytes of an earlier one.

mod driver;
mod filter;
#[cfg(test)]
mod tests;

pub use driver::driver;
