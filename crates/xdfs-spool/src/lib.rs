//! A spool: files that wait for their delivery to another server.
//!
//! [`Spool`] keeps [parcels](Parcel) in a directory: the bytes of all of them in segments, to which
//! records are appended, and an index that says which records count. A parcel that was
//! [published](xdfs_store::Sink::publish) survives a killed process and a power cut. Records are
//! made durable before the index names them, and many parcels by one transaction. What was
//! delivered is removed, and its segments with the last of it.
//!
//! No network, and no clock: times are arguments, in seconds since 1970.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arrival;
mod incoming;
mod index;
mod inner;
mod parcel;
mod pending;
mod room;
mod segment;
mod sink;
mod source;
mod spool;

pub use parcel::{Counted, NewParcel, Parcel, Placed};
pub use room::SpoolLimits;
pub use source::Ahead;
pub use spool::{KEPT_S, Spool};
