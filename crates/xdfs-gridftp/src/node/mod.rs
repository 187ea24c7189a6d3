//! The control link between a server and its data nodes: what is said on it, and what may be said
//! when. `docs/gridftp/data-node.md` specifies it for others who implement either end.
//!
//! Lines of text in both directions, in TLS in which both ends have shown keys that the other one's
//! settings name. A server [requests](Request), one thing at a time; a node [reports](Report). A
//! link is one session's: what was begun on it ends with it. There is no I/O here.

mod lines;
mod message;
mod watch;

pub use lines::Lines;
pub use message::{MalformedMessage, Report, Request, SendOrder, StoreOrder};
pub use watch::{Lie, Watch};

/// The name of the protocol in TLS (ALPN, RFC 7301), which has its version.
pub const ALPN: &[u8] = b"xdfs-node/1";
/// The port of data nodes.
pub const NODE_PORT: u16 = 2812;
/// Bytes of the longest line, without its end.
pub const LINE_BYTES_MAX: usize = 128 << 10;
/// Most ranges of one message.
pub const RANGES_MAX: usize = 2048;
/// Most data nodes of a server.
pub const NODES_MAX: usize = 64;
