//! Faults for tests, above any other driver: short calls, delays, changed bytes, lost connections.
//!
//! Not in [`Registry::standard`](crate::Registry::standard): a program that wants faults registers
//! the driver itself, so that none comes from the text of a stack alone.
//!
//! Every fault happens at a place in the bytes of one direction, at random distances around the
//! mean that its attribute gives, and drawn from `seed`, the end of the channel and the number of
//! the stream among those of its stack. So the same bytes meet the same faults, however the
//! scheduler cuts the calls. Changes are made to received bytes only. A connection that is lost is
//! dropped at once: calls fail with [`std::io::ErrorKind::ConnectionReset`] from then on, and the
//! peer sees what it sees of a process that dies.

mod course;
mod driver;
mod filter;
mod options;
#[cfg(test)]
mod tests;

pub use driver::driver;
