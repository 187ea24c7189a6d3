//! Frames: everything that follows the opening exchange on a channel.
//!
//! ```text
//!  0        1        2        3        4        5        6        7
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! |  kind  | flags  |    reserved     |       length of the body          |
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! ```
//!
//! A BLOCK has a body of 16 bytes of header (file, check value, offset) and then the payload.
//!
//! This module has the table of all kinds and the two headers. Each body is a type with its flags
//! and layout, in the file of its family: `session`, `tunnels`, `transfers`, `calls`. To read from
//! a channel, decode a [`FrameHeader`], which bounds the length of what follows, and then the rest
//! with [`BlockHeader::decode`] or [`Frame::decode`].

mod body;
mod calls;
mod session;
mod transfers;
mod tunnels;

use body::Body;
pub use calls::{AnswerPart, CallRequest, Taken, UnknownOperation};
pub use session::{
    AuthOk, AuthRequest, Challenge, JoinRequest, Level, Proof, SessionAccept, SessionRequest, Start,
};
pub use transfers::{
    Accept, Ack, Cancel, Durable, Eofr, Exception, Hole, Offer, Published, Repeat, Request, Resume,
    Scope, TimeAccount, TimeDetails,
};
pub use tunnels::{Incoming, TunnelAccept, TunnelPurpose, TunnelRequest};

use crate::id::FileId;
use crate::limits::Limits;
use crate::range::ByteRange;
use crate::wire::{DecodeError, Reader, Writer};

/// Size of the header of every frame.
pub const FRAME_HEADER_BYTES: usize = 8;
/// Size of a BLOCK before its payload: the frame header, file, check value and offset.
pub const BLOCK_HEADER_BYTES: usize = 24;

/// Defines [`Frame`] and [`kind`] from a table with the number, constant, name and variant of each
/// kind. A variant without a type has no body.
macro_rules! frames {
    ($(
        $(#[$doc:meta])*
        $number:literal $kind:ident $name:literal $variant:ident $(($body:ident: $type:ty))?,
    )*) => {
        /// The kinds of frames, as numbers on the wire. 0x01 to 0x0f manage the session, 0x10 to
        /// 0x1f are events of a channel, 0x20 to 0x2f carry data, 0x30 to 0x3f belong to calls;
        /// 0x7f is the exception header.
        pub mod kind {
            $($(#[$doc])* pub const $kind: u8 = $number;)*
            /// Payload.
            pub const BLOCK: u8 = 0x20;

            /// The name of a kind, for messages.
            #[must_use]
            pub fn name(kind: u8) -> &'static str {
                match kind {
                    $($kind => $name,)*
                    BLOCK => "BLOCK",
                    _ => "a frame of an unknown kind",
                }
            }
        }

        /// A frame other than BLOCK, whose payload never passes through this type.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Frame {
            $($(#[$doc])* $variant $(($type))?,)*
        }

        impl Frame {
            fn kind_and_flags(&self) -> (u8, u8) {
                match self {
                    $(Self::$variant $(($body))? => (kind::$kind, 0 $(| $body.flags())?),)*
                }
            }

            fn encode_body(&self, w: &mut Writer<'_>) {
                match self {
                    $(Self::$variant $(($body))? => { $($body.encode(w);)? })*
                }
            }

            fn decode_body(
                header: FrameHeader,
                r: &mut Reader<'_>,
                limits: &Limits,
            ) -> Result<Self, DecodeError> {
                let flags = header.flags;
                Ok(match header.kind {
                    $(kind::$kind => Self::$variant $((<$type>::decode(flags, r, limits)?))?,)*
                    kind => return Err(DecodeError::UnknownKind(kind)),
                })
            }
        }

        /// The defined flag bits of a kind; `None` for an unknown kind.
        fn flags_defined(kind: u8) -> Option<u8> {
            match kind {
                $(kind::$kind => Some(0 $(| <$type>::FLAGS_DEFINED)?),)*
                kind::BLOCK => Some(BLOCK_CLEAR),
                _ => None,
            }
        }
    };
}

frames! {
    /// Registers a session.
    0x01 SESSION "SESSION" Session(body: SessionRequest),
    /// Answers SESSION.
    0x02 SESSION_OK "SESSION-OK" SessionOk(body: SessionAccept),
    /// Adds a channel.
    0x03 JOIN "JOIN" Join(body: JoinRequest),
    /// Answers JOIN.
    0x04 JOIN_OK "JOIN-OK" JoinOk,
    /// The sender of this frame will send no further data frame on this channel; the session
    /// continues without it.
    0x05 LEAVE "LEAVE" Leave,
    /// Names the initiator and begins the proof of its identity.
    0x06 AUTH "AUTH" Auth(body: AuthRequest),
    /// Requests the next step of the proof.
    0x07 CHALLENGE "CHALLENGE" Challenge(body: Challenge),
    /// Answers CHALLENGE.
    0x08 PROOF "PROOF" Proof(body: Proof),
    /// Answers AUTH or PROOF: the identity of the initiator is proved.
    0x09 AUTH_OK "AUTH-OK" AuthOk(body: AuthOk),
    /// Sets the protection of the sender's blocks on this channel from here on.
    0x0a PROTECT "PROTECT" Protect(body: Level),
    /// Asks for a byte stream to or from a target, instead of a session.
    0x0b TUNNEL "TUNNEL" Tunnel(body: TunnelRequest),
    /// Answers TUNNEL.
    0x0c TUNNEL_OK "TUNNEL-OK" TunnelOk(body: TunnelAccept),
    /// Announces a connection that the acceptor has accepted for the initiator.
    0x0d INCOMING "INCOMING" Incoming(body: Incoming),
    /// End of the session: no more files; both sides close all channels.
    0x10 EOFT "EOFT" Eoft,
    /// End of a file: all its blocks have been handed to channels.
    0x11 EOFR "EOFR" Eofr(body: Eofr),
    /// Upload: the initiator offers a file.
    0x12 XFTSMU "XFTSMU" Xftsmu(body: Offer),
    /// Download: the initiator requests a file.
    0x13 XFTSM "XFTSM" Xftsm(body: Request),
    /// A call of the initiator to the acceptor's store (xPathM).
    0x14 XPATHM "XPATHM" Xpathm(body: CallRequest),
    /// Changes to remote file I/O.
    0x15 XDFSM "XDFSM" XdfsM,
    /// Keeps the channel alive.
    0x16 NOOP "NOOP" Noop,
    /// Continues in the latest mode of the channel.
    0x17 CONM "CONM" Conm,
    /// Negotiates the zero-copy form on this channel.
    0x18 ZXDFS "ZXDFS" Zxdfs,
    /// Download: the acceptor offers the requested file.
    0x19 OFFER "OFFER" Offer(body: Offer),
    /// The receiver accepts the offer.
    0x1a ACCEPT "ACCEPT" Accept(body: Accept),
    /// The receiver counts the data frames that it has read on this channel.
    0x1b ACK "ACK" Ack(body: Ack),
    /// The receiver requests bytes again.
    0x1c REPEAT "REPEAT" Repeat(body: Repeat),
    /// The receiver counts the durable bytes of a file.
    0x1d DURABLE "DURABLE" Durable(body: Durable),
    /// The file has its final name.
    0x1e PUBLISHED "PUBLISHED" Published(body: Published),
    /// Ends one file.
    0x1f CANCEL "CANCEL" Cancel(body: Cancel),
    /// A region of zeros that isn't sent as payload.
    0x21 HOLE "HOLE" Hole(body: Hole),
    /// Answers XPATHM, or a part of the answer.
    0x30 ANSWER "ANSWER" Answer(body: AnswerPart),
    /// Counts the parts of an answer that were taken.
    0x31 TAKEN "TAKEN" Taken(body: Taken),
    /// The exception header: something failed.
    0x7f EXCEPTION "EXCEPTION" Exception(body: Exception),
}

impl Frame {
    /// Appends the frame to `out`.
    ///
    /// Texts and paths of faults, and the path of an ACCEPT, are cut at 1024 bytes. The paths of
    /// XFTSMU, OFFER and XFTSM must be checked against the limits before: one of more than 65,535
    /// bytes is replaced by one that every peer refuses. Durable ranges with a digest of another
    /// kind than the first are omitted.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, flags) = self.kind_and_flags();
        let start = out.len();
        let mut w = Writer::new(out);
        w.raw(&[kind, flags, 0, 0, 0, 0, 0, 0]);
        let body = w.position();
        self.encode_body(&mut w);
        w.patch_length(start + 4, body);
    }

    /// Decodes the body of a frame that isn't a BLOCK.
    ///
    /// # Errors
    /// See [`DecodeError`]. Never allocates more than a small multiple of `body.len()`.
    pub fn decode(header: FrameHeader, body: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let frame = Self::decode_body(header, &mut r, limits)?;
        r.finish()?;
        Ok(frame)
    }

    /// The name of the kind, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        kind::name(self.kind_and_flags().0)
    }
}

/// A decoded frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind; see the table in the specification.
    pub kind: u8,
    /// Bits defined by the kind.
    pub flags: u8,
    /// For a BLOCK the check of its header, else 0.
    pub check: u16,
    /// Number of bytes that follow.
    pub length: u32,
}

impl FrameHeader {
    /// Decodes a header and checks its length against the limits of its kind.
    ///
    /// # Errors
    /// An unknown kind, reserved bits that are set, or a length above the limit.
    pub fn decode(bytes: [u8; FRAME_HEADER_BYTES], limits: &Limits) -> Result<Self, DecodeError> {
        let [kind, flags, r0, r1, l0, l1, l2, l3] = bytes;
        let defined = flags_defined(kind).ok_or(DecodeError::UnknownKind(kind))?;
        if flags & !defined != 0 {
            return Err(DecodeError::Invalid("flags of a frame"));
        }
        let check = u16::from_be_bytes([r0, r1]);
        if check != 0 && kind != kind::BLOCK {
            return Err(DecodeError::Invalid("reserved field of a frame"));
        }
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        let (field, limit) = if kind == kind::BLOCK {
            if length <= BLOCK_BODY_HEADER {
                return Err(DecodeError::Invalid("length of a block"));
            }
            (
                "length of a block",
                limits.block_bytes_max.saturating_add(BLOCK_BODY_HEADER),
            )
        } else if kind == kind::ACCEPT {
            ("length of an ACCEPT", limits.accept_bytes_max)
        } else {
            ("length of a frame", limits.control_frame_bytes_max)
        };
        if length > limit {
            let (actual, limit) = (u64::from(length), u64::from(limit));
            return Err(DecodeError::TooLarge {
                field,
                actual,
                limit,
            });
        }
        Ok(Self {
            kind,
            flags,
            check,
            length,
        })
    }

    /// Whether the frame is a BLOCK, whose next 16 bytes are a block header.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.kind == kind::BLOCK
    }
}

/// BLOCK: the payload is unprotected.
const BLOCK_CLEAR: u8 = 1 << 0;
/// Size of the body of a BLOCK before its payload.
const BLOCK_BODY_HEADER: u32 = (BLOCK_HEADER_BYTES - FRAME_HEADER_BYTES) as u32;

/// The check of a BLOCK header: the low half of the CRC-32C of all of it except the check itself.
/// It detects every error of one or two bits.
#[must_use]
pub fn block_header_check(bytes: &[u8; BLOCK_HEADER_BYTES]) -> u16 {
    let mut covered = [0; BLOCK_HEADER_BYTES - 2];
    covered[..2].copy_from_slice(&bytes[..2]);
    covered[2..].copy_from_slice(&bytes[4..]);
    let [_, _, high, low] = crc_fast::crc32_iscsi(&covered).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// The header of a BLOCK; its payload follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The file.
    pub file: FileId,
    /// CRC-32C of the payload and its position; 0 where the channel checks integrity itself.
    pub check: u32,
    /// The payload bypasses the protection of the channel.
    pub clear: bool,
    /// The offset of the payload, from the start of the transferred range.
    pub offset: u64,
    /// Length of the payload; at least 1.
    pub length: u32,
}

impl BlockHeader {
    /// Whether the bytes before a payload are undamaged. To be checked before they are used: a
    /// damaged length, file or offset could mean anything.
    #[must_use]
    pub fn is_sound(bytes: &[u8; BLOCK_HEADER_BYTES]) -> bool {
        bytes[2..4] == block_header_check(bytes).to_be_bytes()
    }

    /// Encodes the bytes before the payload.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[0] = kind::BLOCK;
        bytes[1] = if self.clear { BLOCK_CLEAR } else { 0 };
        let length = self.length.saturating_add(BLOCK_BODY_HEADER);
        bytes[4..8].copy_from_slice(&length.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.file.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.check.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        let check = block_header_check(&bytes);
        bytes[2..4].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    /// Decodes what follows the frame header of a BLOCK.
    ///
    /// # Errors
    /// An empty payload, an end past `u64::MAX`, or a damaged header.
    pub fn decode(
        header: FrameHeader,
        bytes: [u8; BLOCK_HEADER_BYTES - FRAME_HEADER_BYTES],
    ) -> Result<Self, DecodeError> {
        let mut body = Reader::new(&bytes);
        let file = FileId(body.u32("file of a block")?);
        let check = body.u32("check value of a block")?;
        let offset = body.u64("offset of a block")?;
        let length = match header.length.checked_sub(BLOCK_BODY_HEADER) {
            Some(length) if length > 0 => length,
            _ => return Err(DecodeError::Invalid("length of a block")),
        };
        if offset.checked_add(u64::from(length)).is_none() {
            return Err(DecodeError::Invalid("offset of a block"));
        }
        let block = Self {
            file,
            check,
            clear: header.flags & BLOCK_CLEAR != 0,
            offset,
            length,
        };
        if block.encode()[2..4] != header.check.to_be_bytes() {
            return Err(DecodeError::Damaged);
        }
        Ok(block)
    }

    /// The range of the payload.
    #[must_use]
    pub fn range(&self) -> ByteRange {
        let end = self.offset.saturating_add(u64::from(self.length));
        ByteRange {
            start: self.offset,
            end,
        }
    }
}
