//! A limit of the rate of sending, above any other driver.
//!
//! Guarantees: in any span of time a stream, or all streams of one name in this process together,
//! send at most `burst` bytes and `rate` bytes a second more; a stream that waits gets an event
//! when it may go on; without a rate, calls pass through. Bytes are counted where the driver
//! stands in its stack: above `tls` it counts content. Limits: only sending is limited, for the
//! peer limits the other direction with a driver of its own; and of several streams that wait for
//! one limit none has a right of way.

mod bucket;
mod driver;
mod filter;
#[cfg(test)]
mod tests;

pub use driver::driver;
