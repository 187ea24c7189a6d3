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
//! Here are the types and the two headers; how the bodies of the other frames are laid out is in
//! `codec`, and of calls and their answers in `calls` and `files`. Who reads from a channel decodes
//! a [`FrameHeader`], which bounds the length of what follows, and then the rest with
//! [`BlockHeader::decode`] or [`Frame::decode`].

mod calls;
pub(crate) mod codec;
mod delta;
mod files;

use crate::digest::{DigestKind, DigestValue, Fragment};
use crate::fault::Fault;
use crate::id::{CallId, ChannelIndex, FileId, SessionId, SessionSecret};
use crate::limits::Limits;
use crate::pack::{Failures, Wish};
use crate::path::{Answer, Call};
use crate::range::ByteRange;
use crate::wire::{DecodeError, Reader};

/// Bytes of the header of every frame.
pub const FRAME_HEADER_BYTES: usize = 8;
/// Bytes of a BLOCK before its payload: the frame header, file, check value and offset.
pub const BLOCK_HEADER_BYTES: usize = 24;
/// Smallest block size of a file, in bytes: one chunk of BLAKE3.
pub const BLOCK_SIZE_MIN: u32 = 1 << 10;
/// Where a block has to begin at least to go in the clear, in bytes: so nothing of a file that
/// isn't longer ever does, whether its length is known beforehand or not.
pub const CLEAR_OFFSET_MIN: u64 = 512 << 10;
/// Largest block size of a file, in bytes.
pub const BLOCK_SIZE_MAX: u32 = 16 << 20;

/// The kinds of frames, as numbers on the wire. 0x01 to 0x0f manage the session, 0x10 to 0x1f are
/// events of a channel, 0x20 to 0x2f carry data, 0x30 to 0x3f belong to calls; 0x7f is the
/// exception header.
pub mod kind {
    /// Registers a session.
    pub const SESSION: u8 = 0x01;
    /// Answers SESSION.
    pub const SESSION_OK: u8 = 0x02;
    /// Adds a channel.
    pub const JOIN: u8 = 0x03;
    /// Answers JOIN.
    pub const JOIN_OK: u8 = 0x04;
    /// Ends one channel.
    pub const LEAVE: u8 = 0x05;
    /// Says who the initiator is and begins the proof.
    pub const AUTH: u8 = 0x06;
    /// Asks for the next step of the proof.
    pub const CHALLENGE: u8 = 0x07;
    /// Answers CHALLENGE.
    pub const PROOF: u8 = 0x08;
    /// Answers AUTH or PROOF: it is proved.
    pub const AUTH_OK: u8 = 0x09;
    /// Sets the level of the payload that follows on the channel.
    pub const PROTECT: u8 = 0x0a;
    /// End of the session.
    pub const EOFT: u8 = 0x10;
    /// End of a file.
    pub const EOFR: u8 = 0x11;
    /// Offers an upload.
    pub const XFTSMU: u8 = 0x12;
    /// Asks for a download.
    pub const XFTSM: u8 = 0x13;
    /// A call about paths.
    pub const XPATHM: u8 = 0x14;
    /// Changes to remote file I/O.
    pub const XDFSM: u8 = 0x15;
    /// Nothing.
    pub const NOOP: u8 = 0x16;
    /// Goes on in the latest mode.
    pub const CONM: u8 = 0x17;
    /// Negotiates the zero-copy form.
    pub const ZXDFS: u8 = 0x18;
    /// Offers the file of a download.
    pub const OFFER: u8 = 0x19;
    /// Takes an offer.
    pub const ACCEPT: u8 = 0x1a;
    /// Counts the data frames read.
    pub const ACK: u8 = 0x1b;
    /// Asks for bytes again.
    pub const REPEAT: u8 = 0x1c;
    /// Counts the durable bytes.
    pub const DURABLE: u8 = 0x1d;
    /// The file stands under its name.
    pub const PUBLISHED: u8 = 0x1e;
    /// Ends one file.
    pub const CANCEL: u8 = 0x1f;
    /// Payload.
    pub const BLOCK: u8 = 0x20;
    /// Zeros that aren't sent.
    pub const HOLE: u8 = 0x21;
    /// Answers XPATHM, or a part of the answer.
    pub const ANSWER: u8 = 0x30;
    /// Counts the parts of an answer that were taken.
    pub const TAKEN: u8 = 0x31;
    /// The exception header.
    pub const EXCEPTION: u8 = 0x7f;

    /// The name of a kind, for messages.
    #[must_use]
    pub fn name(kind: u8) -> &'static str {
        match kind {
            SESSION => "SESSION",
            SESSION_OK => "SESSION-OK",
            JOIN => "JOIN",
            JOIN_OK => "JOIN-OK",
            LEAVE => "LEAVE",
            AUTH => "AUTH",
            CHALLENGE => "CHALLENGE",
            PROOF => "PROOF",
            AUTH_OK => "AUTH-OK",
            PROTECT => "PROTECT",
            EOFT => "EOFT",
            EOFR => "EOFR",
            XFTSMU => "XFTSMU",
            XFTSM => "XFTSM",
            XPATHM => "XPATHM",
            XDFSM => "XDFSM",
            NOOP => "NOOP",
            CONM => "CONM",
            ZXDFS => "ZXDFS",
            OFFER => "OFFER",
            ACCEPT => "ACCEPT",
            ACK => "ACK",
            REPEAT => "REPEAT",
            DURABLE => "DURABLE",
            PUBLISHED => "PUBLISHED",
            CANCEL => "CANCEL",
            BLOCK => "BLOCK",
            HOLE => "HOLE",
            ANSWER => "ANSWER",
            TAKEN => "TAKEN",
            EXCEPTION => "EXCEPTION",
            _ => "a frame of an unknown kind",
        }
    }
}

/// How a session starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At once; channels come and go.
    Elastic,
    /// When all announced channels have joined, or not at all.
    Strict,
}

/// SESSION: registers a session on its first channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// Chosen by the initiator at random.
    pub id: SessionId,
    /// Number of channels the initiator means to open, this one included; at least 1.
    pub channels: u32,
    /// Largest payload of a block, in bytes; 0 leaves the choice to the acceptor.
    pub block_size: u32,
    /// Socket buffer of a channel in bytes, in each direction; 0 leaves it to the system.
    pub window: u32,
    /// Elastic or strict.
    pub start: Start,
    /// Name of the user, as the URL gave it; may be empty.
    pub user: String,
}

/// SESSION-OK: what the acceptor made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionAccept {
    /// Must be shown by every channel that joins; on a protected one by
    /// [`SessionSecret::bound_to`].
    pub secret: SessionSecret,
    /// Number of channels allowed; at most what was asked for.
    pub channels: u32,
    /// Largest payload of a block, in bytes; at most what was asked for.
    pub block_size: u32,
    /// Socket buffer in bytes that the acceptor uses; 0 leaves it to the system.
    pub window: u32,
}

/// JOIN: adds a channel to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// The session.
    pub id: SessionId,
    /// Its secret; on a protected channel what [`SessionSecret::bound_to`] makes of it.
    pub secret: SessionSecret,
    /// The number of this channel; not used before in this session.
    pub channel: ChannelIndex,
}

/// AUTH: says who the initiator is, before SESSION, and begins the proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthRequest {
    /// The number of the method; those of this version are in the specification.
    pub method: u8,
    /// Name of the user; may be empty where the method says who it is.
    pub user: String,
    /// The first step of the proof, defined by the method.
    pub body: Vec<u8>,
}

/// What identifies one version of a source: a value that changes when the content may have. All
/// zero if the source can't be read twice, so that nothing can be resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceTag(pub [u8; 16]);

impl SourceTag {
    /// The tag of `length` bytes from `offset` on, up to the end if `None`, of a source whose own
    /// tag this is. A part is another source than the whole and than every other part: what a
    /// receiver keeps of them must not mix.
    #[must_use]
    pub fn of_part(self, offset: u64, length: Option<u64>) -> Self {
        if self == Self::default() {
            return self;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(&offset.to_be_bytes());
        hasher.update(&length.unwrap_or(u64::MAX).to_be_bytes());
        let mut tag = [0; 16];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(tag)
    }
}

/// What a transfer makes of what an earlier attempt has left at the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// Nothing: it starts over.
    Never,
    /// It goes on from the journal. What that claims is read again where the receiver can't rely on
    /// its storage having kept it, as after its machine was started anew.
    #[default]
    Trust,
    /// It goes on from the journal, once all that it claims was read again and compared.
    Verify,
}

/// A file that the sender offers. In an upload it is the body of XFTSMU, in a download of OFFER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Names the file from here on.
    pub file: FileId,
    /// In an upload the target path, in a download empty.
    pub path: Vec<u8>,
    /// The last component of the source's name, used if the target is a directory; may be empty.
    pub name: Vec<u8>,
    /// Number of bytes to be sent; `None` if not known before the end.
    pub length: Option<u64>,
    /// The version of the source.
    pub tag: SourceTag,
    /// Permission bits of the source; `None` if it has none.
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since 1970; `None` if it has none.
    pub mtime_ns: Option<i64>,
    /// The whole-file digest to compute.
    pub digest: DigestKind,
    /// Replace a target that exists. Only meaningful in an upload.
    pub overwrite: bool,
    /// What becomes of what an earlier attempt has left at the receiver.
    pub resume: Resume,
    /// Check the request and answer, but write nothing.
    pub dry_run: bool,
    /// The content is a [pack](crate::pack), which is carried out beneath `path`: of 1 to
    /// [`PACK_BYTES_MAX`](crate::pack::PACK_BYTES_MAX) bytes, and with neither name, tag, mode,
    /// time, journal nor dry run. `overwrite` is meant of each of its entries.
    pub pack: bool,
    /// The source takes less storage than it has bytes: what is zero of it needs none at the
    /// target either. Not of a pack, whose entries have marks of their own.
    pub sparse: bool,
    /// Of a pack in an upload: its files may get their names before they are durable.
    pub relaxed: bool,
}

/// XFTSM: asks for a file (download).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Names the file from here on.
    pub file: FileId,
    /// Path of the source.
    pub path: Vec<u8>,
    /// First byte wanted.
    pub offset: u64,
    /// Number of bytes wanted; `None` for all up to the end.
    pub length: Option<u64>,
    /// The whole-file digest to compute.
    pub digest: DigestKind,
    /// Asks for a [pack](crate::pack) of names beneath `path` instead of the file there; without
    /// offset and length then.
    pub pack: Option<Wish>,
}

/// ACCEPT: the receiver is ready for the blocks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The file.
    pub file: FileId,
    /// Where it goes, for messages; may be empty.
    pub path: Vec<u8>,
    /// The grid on which blocks are cut, in bytes: a power of two, at most the session's.
    pub block_size: u32,
    /// What is durable already and must not be sent, with the digest state of each range.
    pub durable: Vec<Fragment>,
}

/// How the payload of a protected channel travels; everything else is always protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Protected like everything else.
    #[default]
    Private,
    /// In the clear beside the protection, with check values: who listens can read it, and who
    /// stands in the middle can change it so that the check value fits.
    Clear,
}

/// The header of a BLOCK; its payload follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The file.
    pub file: FileId,
    /// CRC-32C of the payload and its place; 0 where the channel checks integrity itself.
    pub check: u32,
    /// The payload travels beside the protection of the channel.
    pub clear: bool,
    /// Where the payload belongs, counted from the start of the transferred range.
    pub offset: u64,
    /// Bytes of payload; at least 1.
    pub length: u32,
}

/// How much of a session an exception ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The channel that carries it.
    Channel,
    /// One file; the session goes on.
    File(FileId),
    /// The session.
    Session,
}

/// A frame other than BLOCK.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// Registers a session.
    Session(SessionRequest),
    /// Answers SESSION.
    SessionOk(SessionAccept),
    /// Adds a channel.
    Join(JoinRequest),
    /// Answers JOIN.
    JoinOk,
    /// Says who the initiator is.
    Auth(AuthRequest),
    /// Asks for the next step of the proof.
    Challenge(Vec<u8>),
    /// The next step of the proof.
    Proof(Vec<u8>),
    /// It is proved who the initiator is.
    AuthOk {
        /// The name of the user at the acceptor.
        user: String,
    },
    /// From here on, blocks of the sender of this frame travel so on this channel.
    Protect(Level),
    /// End of the session: no more files; both sides close all channels.
    Eoft,
    /// This channel will carry no further data frame from its sender; the session goes on without
    /// it.
    Leave,
    /// All blocks of a file were handed to channels; the channels stay for the next file.
    Eofr {
        /// The file.
        file: FileId,
        /// Its length in bytes, now final.
        length: u64,
        /// The sender's digest of the whole.
        digest: DigestValue,
        /// Share of the time that the sender spent waiting for its store, in thousandths.
        store_wait_permille: u16,
    },
    /// Upload: the initiator offers a file.
    Xftsmu(Offer),
    /// Download: the initiator asks for a file.
    Xftsm(Request),
    /// Download: the acceptor offers the file asked for.
    Offer(Offer),
    /// The receiver takes the offer.
    Accept(Accept),
    /// A region of zeros that isn't sent as payload. Counts as a data frame for ACK.
    Hole {
        /// The file.
        file: FileId,
        /// The region.
        range: ByteRange,
    },
    /// The receiver has read this many data frames on this channel in all.
    Ack {
        /// BLOCK and HOLE frames since the channel opened.
        data_frames: u64,
    },
    /// The receiver asks for bytes again: their check failed, or they could not be made durable.
    Repeat {
        /// The file.
        file: FileId,
        /// The bytes.
        range: ByteRange,
    },
    /// The receiver tells how many bytes of a file are durable.
    Durable {
        /// The file.
        file: FileId,
        /// Bytes, those of earlier sessions included.
        bytes: u64,
    },
    /// The file is complete, verified, durable and stands under its name. Entries of a pack that
    /// aren't among the failures stand under their names and are durable after a later Sync.
    Published {
        /// The file.
        file: FileId,
        /// Its length.
        length: u64,
        /// The receiver's digest of the whole.
        digest: DigestValue,
        /// Share of the time that the receiver spent waiting for its store, in thousandths.
        store_wait_permille: u16,
        /// Of a pack, what wasn't carried out.
        failures: Failures,
    },
    /// Ends one file; what is durable stays for a later resume.
    Cancel {
        /// The file.
        file: FileId,
    },
    /// Keeps the channel alive.
    Noop,
    /// Go on in the latest mode of the channel.
    Conm,
    /// The initiator asks something of the acceptor's store (xPathM).
    Xpathm {
        /// Names the call.
        id: CallId,
        /// What is asked.
        call: Call,
    },
    /// A call of an operation that isn't known here: one of a peer that is newer. It is answered by
    /// [`Code::Unsupported`](crate::Code::Unsupported), and the session goes on.
    UnknownCall {
        /// Names the call.
        id: CallId,
        /// The number of the operation.
        operation: u8,
        /// Its options and its fields, of which nothing is known.
        rest: Vec<u8>,
    },
    /// A part of the answer to a call.
    Answer {
        /// The call.
        id: CallId,
        /// The number of the part, from 0. Only listings have more than one part.
        part: u32,
        /// No part follows. A fault is always the last part.
        last: bool,
        /// The part. Of one that isn't the last it holds at least one entry and a cursor.
        answer: Result<Answer, Fault>,
    },
    /// The initiator has taken parts of a listing, so that more may come.
    Taken {
        /// The call.
        id: CallId,
        /// Parts that were taken, in order, from the first; at least 1.
        parts: u32,
        /// No more parts are wanted but the last, whatever that is.
        stop: bool,
    },
    /// Change to remote file I/O.
    XdfsM,
    /// Negotiates the zero-copy form on this channel.
    Zxdfs,
    /// The exception header: something failed.
    Exception {
        /// How much it ends.
        scope: Scope,
        /// What failed. The side is not on the wire: the decoder says [`crate::Side::Remote`].
        fault: Fault,
    },
}

/// The fixed header of a frame, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind; see the table in the specification.
    pub kind: u8,
    /// Bits defined by the kind.
    pub flags: u8,
    /// Of a BLOCK, what its header is checked by; else 0.
    pub check: u16,
    /// Bytes that follow.
    pub length: u32,
}

impl FrameHeader {
    /// Decodes a header and bounds its length by the limits of its kind.
    ///
    /// # Errors
    /// An unknown kind, reserved bits that are set, or a length over the limit.
    pub fn decode(bytes: [u8; FRAME_HEADER_BYTES], limits: &Limits) -> Result<Self, DecodeError> {
        let [kind, flags, r0, r1, l0, l1, l2, l3] = bytes;
        let defined = codec::flags_defined(kind).ok_or(DecodeError::UnknownKind(kind))?;
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

/// BLOCK: the payload travels beside the protection.
const BLOCK_CLEAR: u8 = 1 << 0;
/// Bytes of the body of a BLOCK before its payload.
const BLOCK_BODY_HEADER: u32 = (BLOCK_HEADER_BYTES - FRAME_HEADER_BYTES) as u32;

/// What the header of a BLOCK is checked by: the low half of the CRC-32C of all of it but the place
/// of the check itself. It finds every error of one or two bits.
#[must_use]
pub fn block_header_check(bytes: &[u8; BLOCK_HEADER_BYTES]) -> u16 {
    let mut covered = [0; BLOCK_HEADER_BYTES - 2];
    covered[..2].copy_from_slice(&bytes[..2]);
    covered[2..].copy_from_slice(&bytes[4..]);
    let [_, _, high, low] = crc_fast::crc32_iscsi(&covered).to_be_bytes();
    u16::from_be_bytes([high, low])
}

impl BlockHeader {
    /// Whether the bytes before a payload are as their sender wrote them. To be asked before
    /// anything in them is believed: a damaged length, file or offset leads anywhere.
    #[must_use]
    pub fn is_sound(bytes: &[u8; BLOCK_HEADER_BYTES]) -> bool {
        bytes[2..4] == block_header_check(bytes).to_be_bytes()
    }

    /// The bytes before the payload.
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
    /// An empty payload, an end past `u64::MAX`, or bytes that were changed on the way.
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

    /// The bytes that the payload covers.
    #[must_use]
    pub fn range(&self) -> ByteRange {
        let end = self.offset.saturating_add(u64::from(self.length));
        ByteRange {
            start: self.offset,
            end,
        }
    }
}
