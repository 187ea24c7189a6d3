//! The xDFS protocol without I/O: identifiers, limits, faults, the wire codec, digests that combine
//! in any order, the two machines of a transfer, [`sender`] and [`receiver`], and those of calls
//! about paths and files, [`call_client`] and [`call_server`].
//!
//! Nothing here opens a socket, reads a clock, draws a random number or touches a file. Time,
//! identifiers and payload are arguments; actions are results. So the same machines run in the
//! engine, in the simulation tests and in the fuzzers.
//!
//! The wire format is specified in `docs/protocol/`; test vectors are in `vectors/`.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod attributes;
pub mod call_client;
pub mod call_server;
pub mod channel_set;
pub mod delta;
pub mod digest;
pub mod fault;
pub mod file;
pub mod frame;
pub mod group;
pub mod handshake;
pub mod id;
mod ledger;
pub mod limits;
pub mod opening;
pub mod pack;
pub mod path;
pub mod quote;
pub mod range;
pub mod receiver;
pub mod relay;
pub mod sender;
pub mod stripes;
pub mod third_party;
pub mod tree_file;
pub mod tunnel;
pub mod wire;

pub use digest::{ChecksumKind, ChecksumValue, DigestKind, DigestValue};
pub use fault::{CAUSE_ADDS_ONLY, Code, Fault, Machine, Retry, Side};
pub use frame::Frame;
pub use id::{CallId, ChannelIndex, FileId, SessionId, SessionSecret, SourceTag};
pub use ledger::NumberUse;
pub use limits::Limits;
pub use quote::{Quoting, quoted};
pub use range::{ByteRange, RangeSet};
