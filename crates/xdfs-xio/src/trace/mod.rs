//! A log of the calls on a channel, above any other driver.
//!
//! The file gets one JSON object a line: a call with `time` (seconds since 1970), `stream` (a
//! number), `call` (`open`, `read`, `write`, `flush` or `close`), `us` (its duration in
//! microseconds), `bytes`, and `error` if there was one; and at the end of a stream a summary of
//! where its time went, in seconds: in calls (`reading`, `writing`), between a call that would have
//! blocked and the next one (`waiting_to_read`, `waiting_to_write`, `waiting_for_both`), and
//! `elsewhere`, in the program.
//!
//! Guarantees: bytes and results are passed on unchanged, and never wait for the file. A thread
//! writes it; lines that come faster than it writes, or that it can't write, are counted in a
//! control and lost. Limit: so are the last lines when a program ends at once.

mod driver;
mod filter;
mod log;
#[cfg(test)]
mod tests;

pub use driver::driver;
