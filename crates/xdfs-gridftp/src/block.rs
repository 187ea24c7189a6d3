//! Headers of MODE E, the extended block mode, and a reader for blocks in any pieces.
//!
//! ```text
//!  byte  0          1..9              9..17
//!        descriptor payload bytes     offset in the file, or the number of EODs with EOF
//! ```
//!
//! Numbers are big-endian (GFD.20, section 3.4).

use std::fmt;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 17;

/// The sender ends its part of the transfer on this connection: "end of data".
const EOD: u8 = 0x08;
/// The sender closes this connection after the block.
const CLOSE: u8 = 0x04;
/// A marker of a restart, which no known peer sends.
const RESTART: u8 = 0x10;
/// The header has the number of EODs: "end of file".
const EOF: u8 = 0x40;
/// The sender believes that the payload may be wrong: "suspect data".
const SUSPECT: u8 = 0x20;
/// A bit with a meaning that doesn't matter to a receiver: "end of record".
const IGNORED: u8 = 0x80;

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Payload follows.
    Data {
        /// Where it belongs.
        offset: u64,
        /// Number of bytes.
        count: u64,
        /// Nothing of this transfer follows it on this connection.
        eod: bool,
    },
    /// Nothing of this transfer follows on this connection.
    End {
        /// The number of EODs of the transfer, if this header tells it.
        eods: Option<u64>,
        /// Whether it is an EOD itself.
        eod: bool,
    },
}

/// A header that makes no sense, or whose payload isn't to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// A block with EOF has payload.
    PayloadInEof,
    /// A block ends past the largest file.
    TooFar,
    /// The sender says that the payload may be wrong.
    Suspect,
    /// A descriptor with bits that are unknown or not supported.
    UnknownBits(u8),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PayloadInEof => f.write_str("a block with EOF has payload"),
            Self::TooFar => f.write_str("a block ends past the largest possible file"),
            Self::Suspect => f.write_str("the sender marks a block as suspect data"),
            Self::UnknownBits(bits) => write!(f, "a block has the unknown descriptor {bits:#04x}"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// The header makes no sense, or its payload isn't to be used.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(field)
        };
        let (bits, count, offset) = (bytes[0], number(1), number(9));
        if bits & (RESTART | 0x03) != 0 {
            return Err(HeaderError::UnknownBits(bits));
        }
        if bits & SUSPECT != 0 {
            return Err(HeaderError::Suspect);
        }
        let eod = bits & EOD != 0;
        if bits & EOF != 0 {
            return match count {
                0 => Ok(Self::End {
                    eods: Some(offset),
                    eod,
                }),
                _ => Err(HeaderError::PayloadInEof),
            };
        }
        if eod && count == 0 {
            return Ok(Self::End { eods: None, eod });
        }
        let end = offset.checked_add(count);
        // The offset of an empty block means nothing.
        if count > 0 && end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(HeaderError::TooFar);
        }
        Ok(Self::Data { offset, count, eod })
    }

    /// Writes the header, without bits that have no use to a receiver.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (bits, count, offset) = match *self {
            Self::Data { offset, count, eod } => (if eod { EOD } else { 0 }, count, offset),
            Self::End { eods, eod } => {
                let eof = if eods.is_some() { EOF } else { 0 };
                (eof | if eod { EOD } else { 0 }, 0, eods.unwrap_or(0))
            }
        };
        debug_assert_eq!(bits & (IGNORED | SUSPECT | CLOSE), 0, "they have no use");
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = bits;
        bytes[1..9].copy_from_slice(&count.to_be_bytes());
        bytes[9..].copy_from_slice(&offset.to_be_bytes());
        bytes
    }
}

/// What the next bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A header is complete.
    Header(Header),
    /// Payload for `offset`.
    Payload {
        /// Where it belongs.
        offset: u64,
        /// Number of bytes.
        length: usize,
    },
}

/// Reads the blocks of one connection, in any pieces.
#[derive(Clone, Debug, Default)]
pub struct BlockReader {
    header: [u8; HEADER_BYTES],
    filled: usize,
    offset: u64,
    left: u64,
    is_last: bool,
}

impl BlockReader {
    /// A reader at the start of a block.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that may be read from the connection now, at most `room`, without taking any of the
    /// next transfer; 0 after an EOD.
    #[must_use]
    pub fn wants(&self, room: usize) -> usize {
        if self.left == 0 {
            return match self.is_last {
                true => 0,
                false => (HEADER_BYTES - self.filled).min(room),
            };
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let next = if self.is_last { 0 } else { HEADER_BYTES };
        left.saturating_add(next).min(room)
    }

    /// Takes the first bytes of `bytes`; returns their number and what they are, if they complete
    /// anything.
    ///
    /// # Errors
    /// A header makes no sense.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Piece>), HeaderError> {
        if self.left > 0 {
            let left = usize::try_from(self.left).unwrap_or(usize::MAX);
            let length = left.min(bytes.len());
            let offset = self.offset;
            self.offset += length as u64;
            self.left -= length as u64;
            let piece = (length > 0).then_some(Piece::Payload { offset, length });
            return Ok((length, piece));
        }
        if self.is_last {
            return Ok((0, None));
        }
        let taken = (HEADER_BYTES - self.filled).min(bytes.len());
        self.header[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        if self.filled < HEADER_BYTES {
            return Ok((taken, None));
        }
        self.filled = 0;
        let header = Header::decode(&self.header)?;
        match header {
            Header::Data { offset, count, eod } => {
                (self.offset, self.left, self.is_last) = (offset, count, eod);
            }
            Header::End { eod, .. } => self.is_last = eod,
        }
        Ok((taken, Some(Piece::Header(header))))
    }

    /// Whether the connection has ended its part of the transfer, and everything was taken.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.is_last && self.left == 0
    }

    /// Whether payload of a block is still to come.
    #[must_use]
    pub fn is_within_payload(&self) -> bool {
        self.left > 0
    }

    /// Where the payload that comes next belongs, and how much of it there is; `None` if a header
    /// comes next, or nothing.
    #[must_use]
    pub fn payload(&self) -> Option<(u64, u64)> {
        (self.left > 0).then_some((self.offset, self.left))
    }

    /// Begins with the next transfer.
    pub fn restart(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(bits: u8, count: u64, offset: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = bits;
        bytes[1..9].copy_from_slice(&count.to_be_bytes());
        bytes[9..].copy_from_slice(&offset.to_be_bytes());
        bytes
    }

    #[test]
    fn headers_of_the_real_tools_are_read_and_written() {
        let (offset, count) = (262_144, 1 << 20);
        let data = Header::Data {
            offset,
            count,
            eod: false,
        };
        let eof = |eods, eod| Header::End { eods, eod };
        for (bytes, header) in [
            (raw(0, count, offset), data),
            (raw(8, 0, 0), eof(None, true)),
            (raw(72, 0, 4), eof(Some(4), true)),
            (raw(0x40, 0, 2), eof(Some(2), false)),
        ] {
            assert_eq!(Header::decode(&bytes), Ok(header));
            assert_eq!(header.encode(), bytes);
        }
        // Legacy bits change nothing.
        assert_eq!(Header::decode(&raw(0x84, count, offset)), Ok(data));
    }

    #[test]
    fn headers_without_sense_are_refused() {
        for (bytes, error) in [
            (raw(0x40, 1, 1), HeaderError::PayloadInEof),
            (raw(0, 1, u64::MAX), HeaderError::TooFar),
            (raw(0, u64::MAX, 0), HeaderError::TooFar),
            (raw(0, 1, i64::MAX as u64), HeaderError::TooFar),
            (raw(0x10, 0, 0), HeaderError::UnknownBits(0x10)),
            (raw(0x01, 0, 0), HeaderError::UnknownBits(0x01)),
            (raw(0x20, 1, 0), HeaderError::Suspect),
            (raw(0x68, 0, 1), HeaderError::Suspect),
        ] {
            assert_eq!(Header::decode(&bytes), Err(error));
        }
        // The offset of an empty block means nothing.
        assert!(Header::decode(&raw(0, 0, u64::MAX)).is_ok());
    }

    #[test]
    fn nothing_of_the_next_transfer_is_taken() {
        let mut bytes = raw(0, 3, 10).to_vec();
        bytes.extend(b"abc");
        bytes.extend(raw(8, 2, 20));
        bytes.extend(b"de");
        for piece in 1..bytes.len() {
            let mut reader = BlockReader::new();
            let (mut at, mut payload) = (0, Vec::new());
            while !reader.has_ended() {
                let wants = reader.wants(piece);
                assert!(wants > 0 && at + wants <= bytes.len(), "at {at}");
                let mut read = &bytes[at..at + wants];
                at += wants;
                while !read.is_empty() {
                    let (taken, piece) = reader.take(read).unwrap();
                    if let Some(Piece::Payload { offset, length }) = piece {
                        payload.push((offset, read[..length].to_vec()));
                    }
                    read = &read[taken..];
                }
            }
            assert_eq!(at, bytes.len());
            assert_eq!(reader.wants(100), 0);
            let whole: Vec<u8> = payload
                .iter()
                .flat_map(|(_, bytes)| bytes.clone())
                .collect();
            assert_eq!(whole, b"abcde");
            assert_eq!(payload[0].0, 10);
        }
    }
}
