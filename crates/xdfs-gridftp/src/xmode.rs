//! MODE X between xDFS and xDFS: a file over any number of connections, which either side opens,
//! which may break and come again, and on which every message has a checksum.
//!
//! [`message`] is what travels, [`Sender`] and [`Receiver`] decide what is sent, and when that is
//! all. Both are machines without I/O: their driver reads messages from each connection and passes
//! them on, sends what is queued, and says which connections come and go.
//!
//! A connection is believed as long as every message on it is whole. Otherwise it is closed, as one
//! that broke by itself, and what wasn't acknowledged on it is sent again on another one.
//! `docs/gridftp/mode-x.md` is the specification.

mod line;
pub mod message;
mod receiver;
mod sender;

pub use line::{BREAKS_MAX, Breach, SILENCE, Side};
pub use message::{Damage, Message, MessageReader, Sum};
pub use receiver::{Receiver, Taken};
pub use sender::{STUCK, Sender};

/// Most connections of a transfer at once.
pub const CONNECTIONS_MAX: usize = 64;
/// Most bytes of payload in a block.
pub const BLOCK_BYTES_MAX: u64 = 256 << 10;
/// A block ends at most so many bytes after the first byte that isn't acknowledged.
pub const WINDOW_BYTES: u64 = 32 << 20;
/// The version of what is spoken, as in FEAT and MODE.
pub const VERSION: &str = "xdfs-1";

#[cfg(test)]
mod tests;
