//! GridFTP: the protocol as codecs and machines without I/O, the [`door`] of a server, and a
//! [`client`] whose servers are a store.
//!
//! ```text
//!  bytes -> line -> command -> session --Action--> door -> xdfs-access, stores
//!  bytes <- reply <----------- session <-Outcome-- door
//!                              receiver, sender <-- door --> data connections, block
//!  bytes <-> dialogue, listing, receiver, sender <-- client --> data connections, block
//! ```
//!
//! The protocol is FTP (RFC 959, 2389, 2428, 3659) with the extensions of GFD.20: MODE E, in which
//! blocks carry their offsets and travel over any number of connections; and with MODE T, in which
//! trees travel in segments ([`archive`], [`segment`]; `docs/gridftp/mode-t.md`). Only [`door`] and
//! [`client`] touch sockets, stores and clocks; everything else is driven by them and by the
//! fuzzers alike.
//! `docs/gridftp/README.md` says what is served.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod address;
pub mod archive;
pub mod block;
pub mod checksum;
pub mod client;
pub mod command;
pub mod door;
pub mod facts;
pub mod getput;
#[cfg(feature = "gsi")]
mod layer;
pub mod line;
pub mod node;
pub mod receiver;
pub mod reply;
pub mod restart;
pub mod segment;
pub mod sender;
pub mod session;
pub mod stripe;
pub mod time;
mod wire;
pub mod xmode;
