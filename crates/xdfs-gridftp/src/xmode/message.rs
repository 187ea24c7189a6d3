//! Messages: their bytes, and a reader of them in any pieces.
//!
//! ```text
//!  byte  0     1..9    9..17   17..25       25..25+n   4 or 16 bytes
//!        kind  count   offset  transaction  payload    checksum of all before
//! ```
//!
//! Numbers are big-endian; only DATA has payload, of `count` bytes.

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest as Crc};
use xdfs_proto::ByteRange;

use super::BLOCK_BYTES_MAX;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 25;
/// Bytes of the longest checksum.
const SUM_BYTES_MAX: usize = 16;

const DATA: u8 = 0x00;
const OPEN: u8 = 0x01;
const READY: u8 = 0x02;
const ACKNOWLEDGE: u8 = 0x03;
const BYE: u8 = 0x08;
const END: u8 = 0x40;

/// A kind of checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Adler-32 (RFC 1950).
    Adler32,
    /// CRC-32 as of gzip (RFC 1952).
    Crc32,
    /// CRC-32C (RFC 3720).
    Crc32c,
    /// MD5 (RFC 1321).
    Md5,
}

impl Sum {
    /// All kinds with their names, the preferred one first.
    pub const ALL: [(Self, &str); 4] = [
        (Self::Crc32c, "CRC32C"),
        (Self::Crc32, "CRC32"),
        (Self::Adler32, "ADLER32"),
        (Self::Md5, "MD5"),
    ];

    /// The kind with this name, in either case.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.iter();
        let found = all.find(|(_, known)| name.eq_ignore_ascii_case(known.as_bytes()));
        found.map(|(kind, _)| *kind)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(kind, _)| *kind == self)
            .map_or("", |(_, name)| *name)
    }

    /// Bytes that it has.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Md5 => SUM_BYTES_MAX,
            _ => 4,
        }
    }

    /// Appends the checksum of both parts.
    fn append(self, header: &[u8], payload: &[u8], out: &mut Vec<u8>) {
        let crc = |kind| {
            let mut crc = Crc::new(kind);
            crc.update(header);
            crc.update(payload);
            // Both kinds have 32 bits.
            (crc.finalize() as u32).to_be_bytes()
        };
        match self {
            Self::Adler32 => {
                let mut sum = adler2::Adler32::new();
                sum.write_slice(header);
                sum.write_slice(payload);
                out.extend_from_slice(&sum.checksum().to_be_bytes());
            }
            Self::Crc32 => out.extend_from_slice(&crc(CrcAlgorithm::Crc32IsoHdlc)),
            Self::Crc32c => out.extend_from_slice(&crc(CrcAlgorithm::Crc32Iscsi)),
            Self::Md5 => {
                let mut sum = md5::Md5::default();
                sha2::Digest::update(&mut sum, header);
                sha2::Digest::update(&mut sum, payload);
                out.extend_from_slice(&sha2::Digest::finalize(sum));
            }
        }
    }
}

/// A message, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The receiver has this block.
    Acknowledge(ByteRange),
    /// The receiver has everything, and so this is its last message.
    Bye,
    /// A block, whose payload follows.
    Data(ByteRange),
    /// The sender has sent everything, and all of it is acknowledged.
    End {
        /// Bytes of all blocks.
        bytes: u64,
        /// Where the last one ends; 0 without any.
        end: u64,
    },
    /// Who has opened the connection says to which transaction it belongs.
    Open,
    /// The other side agrees.
    Ready,
}

/// Why a message isn't whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// Its checksum isn't that of its bytes.
    Checksum,
    /// Its numbers make no sense: a block that is empty, too long or too far.
    Numbers,
    /// It is of another transaction.
    Transaction,
    /// There is no such kind.
    Unknown(u8),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksum => f.write_str("a message arrived damaged: its checksum differs"),
            Self::Numbers => f.write_str("a message has numbers without sense"),
            Self::Transaction => f.write_str("a message is of another transaction"),
            Self::Unknown(kind) => write!(f, "a message has the unknown kind {kind:#04x}"),
        }
    }
}

impl std::error::Error for Damage {}

impl Message {
    fn header(self, transaction: u64) -> [u8; HEADER_BYTES] {
        let (kind, count, offset) = match self {
            Self::Acknowledge(range) => (ACKNOWLEDGE, range.len(), range.start),
            Self::Bye => (BYE, 0, 0),
            Self::Data(range) => (DATA, range.len(), range.start),
            Self::End { bytes, end } => (END, bytes, end),
            Self::Open => (OPEN, 0, 0),
            Self::Ready => (READY, 0, 0),
        };
        let mut header = [0; HEADER_BYTES];
        header[0] = kind;
        header[1..9].copy_from_slice(&count.to_be_bytes());
        header[9..17].copy_from_slice(&offset.to_be_bytes());
        header[17..].copy_from_slice(&transaction.to_be_bytes());
        header
    }

    /// Appends a message without payload.
    pub fn encode(self, transaction: u64, sum: Sum, out: &mut Vec<u8>) {
        let header = self.header(transaction);
        out.extend_from_slice(&header);
        sum.append(&header, &[], out);
    }

    /// Appends a block whose payload `fill` appends; if that fails, nothing.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn encode_block<E>(
        range: ByteRange,
        transaction: u64,
        sum: Sum,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = out.len();
        out.extend_from_slice(&Self::Data(range).header(transaction));
        if let Err(error) = fill(out) {
            out.truncate(start);
            return Err(error);
        }
        debug_assert_eq!((out.len() - start - HEADER_BYTES) as u64, range.len());
        let (mut check, message) = (Vec::with_capacity(SUM_BYTES_MAX), &out[start..]);
        sum.append(message, &[], &mut check);
        out.extend_from_slice(&check);
        Ok(())
    }

    fn decode(header: &[u8; HEADER_BYTES], transaction: u64) -> Result<Self, Damage> {
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&header[at..at + 8]);
            u64::from_be_bytes(field)
        };
        let (count, offset) = (number(1), number(9));
        if number(17) != transaction {
            return Err(Damage::Transaction);
        }
        let block = || {
            let range = ByteRange::at(offset, count);
            let range = range.filter(|range| i64::try_from(range.end).is_ok());
            let range = range.filter(|range| (1..=BLOCK_BYTES_MAX).contains(&range.len()));
            range.ok_or(Damage::Numbers)
        };
        let message = match header[0] {
            DATA => return block().map(Self::Data),
            ACKNOWLEDGE => return block().map(Self::Acknowledge),
            END if count <= offset => {
                return Ok(Self::End {
                    bytes: count,
                    end: offset,
                });
            }
            END => return Err(Damage::Numbers),
            BYE => Self::Bye,
            OPEN => Self::Open,
            READY => Self::Ready,
            kind => return Err(Damage::Unknown(kind)),
        };
        match (count, offset) {
            (0, 0) => Ok(message),
            _ => Err(Damage::Numbers),
        }
    }
}

/// Reads the messages of one connection. The driver reads into [`Self::room`] and says with
/// [`Self::filled`] how much has come. It holds one message.
#[derive(Debug)]
pub struct MessageReader {
    transaction: u64,
    sum: Sum,
    header: [u8; HEADER_BYTES],
    message: Option<Message>,
    /// The payload and the checksum.
    rest: Vec<u8>,
    filled: usize,
}

impl MessageReader {
    /// A reader of messages of this transaction with these checksums.
    #[must_use]
    pub fn new(transaction: u64, sum: Sum) -> Self {
        Self {
            transaction,
            sum,
            header: [0; HEADER_BYTES],
            message: None,
            rest: Vec::new(),
            filled: 0,
        }
    }

    /// Where to read to; never empty.
    #[must_use]
    pub fn room(&mut self) -> &mut [u8] {
        match self.message {
            None => &mut self.header[self.filled..],
            Some(_) => &mut self.rest[self.filled..],
        }
    }

    /// So many bytes, at most those of the room, have come. Returns the message that is whole then.
    ///
    /// # Errors
    /// It isn't whole. Nothing that follows on this connection can be read.
    pub fn filled(&mut self, bytes: usize) -> Result<Option<Message>, Damage> {
        self.filled += bytes;
        let Some(message) = self.message else {
            if self.filled == HEADER_BYTES {
                let message = Message::decode(&self.header, self.transaction)?;
                let payload = match message {
                    Message::Data(range) => usize::try_from(range.len()).unwrap_or(usize::MAX),
                    _ => 0,
                };
                self.rest.resize(payload + self.sum.bytes(), 0);
                (self.message, self.filled) = (Some(message), 0);
            }
            return Ok(None);
        };
        if self.filled < self.rest.len() {
            return Ok(None);
        }
        let payload = self.rest.len() - self.sum.bytes();
        let mut wanted = Vec::with_capacity(SUM_BYTES_MAX);
        self.sum
            .append(&self.header, &self.rest[..payload], &mut wanted);
        if self.rest[payload..] != wanted {
            return Err(Damage::Checksum);
        }
        self.rest.truncate(payload);
        (self.message, self.filled) = (None, 0);
        Ok(Some(message))
    }

    /// The payload of the message that was returned last.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.rest
    }

    /// The same, which isn't here any more then. `memory`, whatever is in it, is used for the next.
    #[must_use]
    pub fn take_payload(&mut self, memory: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.rest, memory)
    }
}
