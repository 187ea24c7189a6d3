//! The bytes on the streams of a bundle: the opening of each stream and the frames after it.
//!
//! `docs/ptcp.md` specifies them, and `vectors/ptcp.json` holds examples. Everything is big-endian
//! and of a fixed size, so nothing is allocated by a length from the peer.

use std::fmt;

use aws_lc_rs::hmac;

/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 72;

/// Bytes of an [`Answer`].
pub const ANSWER_BYTES: usize = 48;

/// Bytes of a [`Frame`] without its payload.
pub const FRAME_BYTES: usize = 24;

/// The most payload of one piece.
pub const PIECE_BYTES_MAX: usize = 256 << 10;

/// The most streams of a bundle.
pub const STREAMS_MAX: usize = 64;

const MAGIC: [u8; 4] = *b"xPTC";
const VERSION: u8 = 0x01;

/// The peer has broken the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer broke the protocol of ptcp: {}", self.0)
    }
}

impl std::error::Error for Violation {}

/// A secret of 256 bits, not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The first bytes of the opener on each stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// Begins a bundle.
    Create {
        /// The number of streams asked for, from 1.
        streams: u16,
        /// Its random name.
        id: [u8; 16],
        /// Bytes that the opener takes ahead of its reader.
        window: u64,
        /// What joins are proved with.
        secret: Secret,
    },
    /// Adds or replaces a stream.
    Join(Join),
}

/// A stream that joins a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The place of the stream, below the number of streams granted.
    pub index: u16,
    /// Greater than that of every earlier join at this place.
    pub serial: u32,
    /// The bundle.
    pub id: [u8; 16],
    /// The opener's [`proof`].
    pub proof: [u8; 32],
}

/// The answer of the acceptor to a [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the stream is part of the bundle from now on.
    pub verdict: Verdict,
    /// The number of streams granted.
    pub streams: u16,
    /// Bytes that the acceptor takes ahead of its reader.
    pub window: u64,
    /// The acceptor's [`proof`]; zero unless accepted.
    pub proof: [u8; 32],
}

/// What becomes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// It is part of the bundle.
    Accepted = 0x00,
    /// The version is unknown here.
    Version = 0x01,
    /// No such bundle or place, a wrong proof or a serial number that was used.
    Refused = 0x02,
}

/// The sides of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that opens the streams.
    Opener,
    /// The one that accepts them.
    Acceptor,
}

/// What proves that a side knows the secret of the bundle: HMAC-SHA256 over the side, the place,
/// the serial number, the bundle, and the binding of the stream's own protection (zeros without
/// one). So it is of no use on another stream, nor a second time.
#[must_use]
pub fn proof(secret: &Secret, side: Side, join: &Join, binding: &[u8; 32]) -> [u8; 32] {
    let tag = hmac::sign(&key(secret), &statement(side, join, binding));
    let mut out = [0; 32];
    out.copy_from_slice(tag.as_ref());
    out
}

/// Whether `given` is that proof, in constant time.
#[must_use]
pub fn is_proof(
    secret: &Secret,
    side: Side,
    join: &Join,
    binding: &[u8; 32],
    given: &[u8; 32],
) -> bool {
    hmac::verify(&key(secret), &statement(side, join, binding), given).is_ok()
}

fn key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &secret.0)
}

fn statement(side: Side, join: &Join, binding: &[u8; 32]) -> Vec<u8> {
    let label: &[u8] = match side {
        Side::Opener => b"xdfs ptcp join",
        Side::Acceptor => b"xdfs ptcp joined",
    };
    let (index, serial) = (join.index.to_be_bytes(), join.serial.to_be_bytes());
    [label, &[0], &index, &serial, &join.id, binding].concat()
}

/// A fixed part of `bytes`, which are long enough by their type.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}

const CREATE: u8 = 0x01;
const JOIN: u8 = 0x02;

impl Hello {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        put(&mut out, 0, &MAGIC);
        out[4] = VERSION;
        match self {
            Self::Create {
                streams,
                id,
                window,
                secret,
            } => {
                out[5] = CREATE;
                put(&mut out, 8, &streams.to_be_bytes());
                put(&mut out, 16, id);
                put(&mut out, 32, &window.to_be_bytes());
                put(&mut out, 40, &secret.0);
            }
            Self::Join(join) => {
                out[5] = JOIN;
                put(&mut out, 6, &join.index.to_be_bytes());
                put(&mut out, 12, &join.serial.to_be_bytes());
                put(&mut out, 16, &join.id);
                put(&mut out, 40, &join.proof);
            }
        }
        out
    }

    /// Reads one.
    ///
    /// # Errors
    /// `None` for another version of this protocol, which is to be answered; a [`Violation`] for
    /// other bytes.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Option<Self>, Violation> {
        if bytes[..4] != MAGIC {
            return Err(Violation("a stream doesn't begin with its magic number"));
        }
        if bytes[4] != VERSION {
            return Ok(None);
        }
        let index = u16::from_be_bytes(part(bytes, 6));
        let streams = u16::from_be_bytes(part(bytes, 8));
        let reserved = u16::from_be_bytes(part(bytes, 10));
        let serial = u32::from_be_bytes(part(bytes, 12));
        let id = part(bytes, 16);
        let window = u64::from_be_bytes(part(bytes, 32));
        let last = part(bytes, 40);
        match (bytes[5], index, streams, reserved, serial, window) {
            (CREATE, 0, 1.., 0, 0, 1..) => Ok(Some(Self::Create {
                streams,
                id,
                window,
                secret: Secret(last),
            })),
            (JOIN, _, 0, 0, 1.., 0) => Ok(Some(Self::Join(Join {
                index,
                serial,
                id,
                proof: last,
            }))),
            _ => Err(Violation("a hello has a value out of its range")),
        }
    }
}

impl Answer {
    /// A refusal.
    #[must_use]
    pub fn refusal(verdict: Verdict) -> Self {
        Self {
            verdict,
            streams: 0,
            window: 0,
            proof: [0; 32],
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut out = [0; ANSWER_BYTES];
        put(&mut out, 0, &MAGIC);
        out[4] = VERSION;
        out[5] = self.verdict as u8;
        put(&mut out, 6, &self.streams.to_be_bytes());
        put(&mut out, 8, &self.window.to_be_bytes());
        put(&mut out, 16, &self.proof);
        out
    }

    /// Reads one.
    ///
    /// # Errors
    /// The bytes are no answer.
    pub fn decode(bytes: &[u8; ANSWER_BYTES]) -> Result<Self, Violation> {
        if bytes[..4] != MAGIC {
            return Err(Violation("an answer doesn't begin with its magic number"));
        }
        let verdict = match (bytes[4], bytes[5]) {
            // An acceptor of another version says so in its own.
            (_, 0x01) => return Ok(Self::refusal(Verdict::Version)),
            (VERSION, 0x00) => Verdict::Accepted,
            (VERSION, 0x02) => Verdict::Refused,
            _ => return Err(Violation("an answer has an unknown verdict")),
        };
        let streams = u16::from_be_bytes(part(bytes, 6));
        let window = u64::from_be_bytes(part(bytes, 8));
        let proof = part(bytes, 16);
        let is_accepted = verdict == Verdict::Accepted;
        let is_right = if is_accepted {
            streams > 0 && window > 0
        } else {
            streams == 0 && window == 0 && proof == [0; 32]
        };
        if !is_right {
            return Err(Violation("an answer has a value out of its range"));
        }
        Ok(Self {
            verdict,
            streams,
            window,
            proof,
        })
    }
}

/// What is sent on an open stream; the payload of a piece follows its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// What has arrived, on whatever stream.
    Ack {
        /// The number of bytes that have arrived without a gap, plus one once the end has.
        received: u64,
        /// The offset up to which the peer may send.
        limit: u64,
        /// Bytes that have arrived beyond the gap, at most `u32::MAX`.
        held: u32,
    },
    /// A piece of the stream.
    Data {
        /// The offset of its first byte.
        offset: u64,
        /// The number of bytes, from 1 to [`PIECE_BYTES_MAX`].
        length: u32,
    },
    /// The orderly end of this direction.
    End {
        /// The number of its bytes.
        offset: u64,
    },
    /// The sender reads no more, and leaves once its own bytes have arrived.
    Gone,
}

const ACK: u8 = 0x10;
const DATA: u8 = 0x11;
const END: u8 = 0x12;
const GONE: u8 = 0x13;

/// Offsets stay below it, so that no sum overflows.
const OFFSET_MAX: u64 = 1 << 62;

impl Frame {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        let (kind, length, first, second) = match *self {
            Self::Ack {
                received,
                limit,
                held,
            } => (ACK, held, received, limit),
            Self::Data { offset, length } => (DATA, length, offset, 0),
            Self::End { offset } => (END, 0, offset, 0),
            Self::Gone => (GONE, 0, 0, 0),
        };
        let mut out = [0; FRAME_BYTES];
        out[0] = kind;
        put(&mut out, 4, &length.to_be_bytes());
        put(&mut out, 8, &first.to_be_bytes());
        put(&mut out, 16, &second.to_be_bytes());
        out
    }

    /// Reads one.
    ///
    /// # Errors
    /// The bytes are no frame.
    pub fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Self, Violation> {
        let kind = bytes[0];
        let length = u32::from_be_bytes(part(bytes, 4));
        let first = u64::from_be_bytes(part(bytes, 8));
        let second = u64::from_be_bytes(part(bytes, 16));
        if bytes[1..4] != [0; 3] || first > OFFSET_MAX || second > OFFSET_MAX {
            return Err(Violation("a frame has a value out of its range"));
        }
        match (kind, length, first, second) {
            (ACK, held, received, limit) => Ok(Self::Ack {
                received,
                limit,
                held,
            }),
            (DATA, 1.., offset, 0) if length as usize <= PIECE_BYTES_MAX => {
                Ok(Self::Data { offset, length })
            }
            (END, 0, offset, 0) => Ok(Self::End { offset }),
            (GONE, 0, 0, 0) => Ok(Self::Gone),
            _ => Err(Violation("a frame is unknown or has a wrong length")),
        }
    }
}
