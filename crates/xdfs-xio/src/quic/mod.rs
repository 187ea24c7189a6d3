//! QUIC version 1 (RFC 9000, 9001, 9002) over UDP: each channel is a bidirectional stream, and all
//! streams from one stack to one address share a connection.
//!
//! Guarantees: confidentiality and integrity of all bytes ([`crate::Capabilities::integrity`] is
//! true), authenticated ends (a connection that is cut off reads as an error and never as an
//! orderly end), and a [`crate::Protection`] that differs for each stream. Limits: it makes no
//! trust decisions, as they are in the configurations ([`crate::tls::Configs`]); nothing is sent
//! before the handshake is complete (no 0-RTT).
//!
//! `endpoint` is the thread that owns a UDP socket (`udp`) and all connections over it
//! (`connection`): one for each listener, and for each stack that opens, one for IPv4 and one for
//! IPv6. The protocol itself is quinn-proto's. `channel` joins the thread and the user of a stream:
//! two bounded queues, with events in the user's poller.
//!
//! Memory: a stream holds up to 1 MiB to be sent, and up to 2 MiB received beside what its flow
//! control admits (the attribute `window`, 2 MiB by default); all streams of a connection together
//! admit, and await the acknowledgement of, up to 64 MiB, or four times `window` if that is more.
//! The peer of a listener gets 16 streams and 256 KiB for all of them until one of its streams is
//! admitted ([`crate::Stream::admit`]); one IPv4 address, or the upper 64 bits of an IPv6 address,
//! has at most 256 such connections.
//!
//! The wire: a stream begins with one byte, zero, sent by its opener, so that the peer sees a
//! stream on which the opener only reads. All bytes after it are the user's.

mod bbr;
mod channel;
mod configs;
mod connection;
mod driver;
mod endpoint;
mod listener;
mod options;
mod pace;
mod round_trip;
mod stream;
mod udp;
mod undelivered;

pub use driver::driver;
pub use options::{Congestion, QuicOptions};

use quinn_proto::VarInt;

/// The first byte of each stream.
const HEADER: u8 = 0;

/// Error codes of this protocol, for streams and connections (RFC 9000, section 20.2).
mod code {
    use super::VarInt;

    /// An end in order.
    pub(super) const DONE: VarInt = VarInt::from_u32(0x0);
    /// The reader is gone, and left bytes unread.
    pub(super) const UNREAD: VarInt = VarInt::from_u32(0x1);
    /// Too many streams or connections are being opened, or the listener is gone.
    pub(super) const REFUSED: VarInt = VarInt::from_u32(0x2);
    /// The peer took no more bytes of a stream that was dropped.
    pub(super) const ABANDONED: VarInt = VarInt::from_u32(0x3);
    /// A stream began with another byte than the header.
    pub(super) const MALFORMED: VarInt = VarInt::from_u32(0x4);
}
