//! The journal of a partial file: which ranges are durable, and their digest states.
//!
//! ```text
//! header, 76 bytes                          record, 20, 28 or 84 bytes
//!   0  magic "XDFSJRNL"                       0  start of the range, u64
//!   8  version, u16 (2)                       8  end of the range, u64
//!  10  digest kind, u8 (0, 1, 2)             16  digest state: nothing, u64, or 2 x 32 bytes
//!  11  flags, u8 (1: length known)            n  CRC-32C, u32
//!  12  block size, u32
//!  16  length, u64 (0 if not known)          publication, 44 bytes, at most one, at the end
//!  24  offset in the source, u64              0  magic "XDFSPUBL"
//!  32  tag of the source, 16 bytes            8  length of the file, u64
//!  48  run of the machine, 16 bytes          16  device, u64
//!  64  nonce, u64                            24  inode, u64
//!  72  CRC-32C of the 72 bytes before, u32   32  modification time in nanoseconds, i64
//!                                            40  CRC-32C, u32
//! ```
//!
//! Numbers are in network order. The check value of a record covers the header's check value, the
//! record's number and its bytes, so a record of an older journal or from another position does not
//! pass. That of a publication covers the same, with the number of preceding records. What follows
//! the first record that fails its check is a torn tail and is cut off.
//!
//! A publication says that the partial file is complete, verified and durable, and about to get the
//! name of the target: after a crash it identifies the target as the result of this transfer.
//! Resuming a partial file cuts it off.
//!
//! Invariant: a record is appended only after the data of its range is durable, and every record
//! that passes its check was appended so. This module defines the format only, without I/O.

use crc_fast::CrcAlgorithm;
use xdfs_proto::digest::{DigestKind, Fragment, FragmentState};
use xdfs_proto::{ByteRange, SourceTag};

const MAGIC: &[u8; 8] = b"XDFSJRNL";
const VERSION: u16 = 2;
/// Size of the header.
pub const HEADER_BYTES: usize = 76;
/// Offset of the header's check value.
const HEADER_CHECK: usize = HEADER_BYTES - 4;
const PUBLICATION_MAGIC: &[u8; 8] = b"XDFSPUBL";
/// Size of a publication.
pub const PUBLICATION_BYTES: usize = 44;
const FLAG_LENGTH_KNOWN: u8 = 1;

/// The transfer to which a journal belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of the source.
    pub tag: SourceTag,
    /// First byte of the source, if the receiver requested a part; otherwise 0, and the tag alone
    /// distinguishes parts.
    pub offset: u64,
    /// Number of bytes of the transfer, if known at the start.
    pub length: Option<u64>,
    /// The digest whose states the records hold.
    pub digest: DigestKind,
    /// Grid of the blocks in bytes.
    pub block_size: u32,
    /// The boot of the system in which all records were written, or reread and verified; all zero
    /// if unknown.
    pub boot: [u8; 16],
    /// Distinguishes successive journals of the same name.
    pub nonce: u64,
}

/// Identity of a partial file that was about to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Its length in bytes.
    pub length: u64,
    /// Device and inode.
    pub identity: (u64, u64),
    /// Its modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
}

impl Header {
    /// Whether a transfer with the header `wanted` may resume from this journal.
    #[must_use]
    pub fn serves(&self, wanted: &Self) -> bool {
        self.tag == wanted.tag
            && self.offset == wanted.offset
            && self.length == wanted.length
            && self.digest == wanted.digest
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_be_bytes());
        out[10] = match self.digest {
            DigestKind::Crc64Nvme => 1,
            DigestKind::Blake3 => 2,
            // No digest, or one unknown to this version of the journal: records without states.
            _ => 0,
        };
        out[11] = if self.length.is_some() {
            FLAG_LENGTH_KNOWN
        } else {
            0
        };
        out[12..16].copy_from_slice(&self.block_size.to_be_bytes());
        out[16..24].copy_from_slice(&self.length.unwrap_or(0).to_be_bytes());
        out[24..32].copy_from_slice(&self.offset.to_be_bytes());
        out[32..48].copy_from_slice(&self.tag.0);
        out[48..64].copy_from_slice(&self.boot);
        out[64..72].copy_from_slice(&self.nonce.to_be_bytes());
        let check = crc32c(&out[..HEADER_CHECK]);
        out[HEADER_CHECK..].copy_from_slice(&check.to_be_bytes());
        out
    }

    /// Decodes a header; `None` if it is damaged or of another version.
    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut at = Reader(bytes);
        let known = at.take::<8>()? == *MAGIC
            && at.take()? == VERSION.to_be_bytes()
            && crc32c(&bytes[..HEADER_CHECK]).to_be_bytes() == bytes[HEADER_CHECK..];
        if !known {
            return None;
        }
        let digest = match at.take::<1>()?[0] {
            0 => DigestKind::None,
            1 => DigestKind::Crc64Nvme,
            2 => DigestKind::Blake3,
            _ => return None,
        };
        let flags = at.take::<1>()?[0];
        let block_size = u32::from_be_bytes(at.take()?);
        let length = u64::from_be_bytes(at.take()?);
        let length = match flags {
            0 if length == 0 => None,
            FLAG_LENGTH_KNOWN => Some(length),
            _ => return None,
        };
        let offset = u64::from_be_bytes(at.take()?);
        let tag = SourceTag(at.take()?);
        let boot = at.take()?;
        let nonce = u64::from_be_bytes(at.take()?);
        (block_size > 0).then_some(Self {
            tag,
            offset,
            length,
            digest,
            block_size,
            boot,
            nonce,
        })
    }
}

/// The valid part of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The header.
    pub header: Header,
    /// The records in the order in which they were written.
    pub fragments: Vec<Fragment>,
    /// The publication after them, if there is one.
    pub publication: Option<Publication>,
    /// Bytes of header and valid records; what follows is a publication or a torn tail.
    pub valid_bytes: usize,
}

/// Parses a journal. `None` if its header is damaged or of another version. Allocates no more than
/// a small multiple of `bytes`.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Parsed> {
    let (first, mut rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let header = Header::decode(first)?;
    let record_bytes = record_bytes(header.digest);
    let mut fragments = Vec::new();
    while let Some((record, more)) = rest.split_at_checked(record_bytes) {
        let Some(fragment) = decode_record(record, &header, first, fragments.len()) else {
            break;
        };
        fragments.push(fragment);
        rest = more;
    }
    let valid_bytes = HEADER_BYTES + fragments.len() * record_bytes;
    let publication = rest
        .first_chunk::<PUBLICATION_BYTES>()
        .and_then(|bytes| decode_publication(bytes, first, fragments.len()));
    Some(Parsed {
        header,
        fragments,
        publication,
        valid_bytes,
    })
}

/// Appends records of `fragments` to `out`, numbered from `number` on, and returns how many.
/// Fragments of another digest than the header's are left out.
pub fn encode_records<'a>(
    header: &Header,
    number: u64,
    fragments: impl Iterator<Item = &'a Fragment>,
    out: &mut Vec<u8>,
) -> u64 {
    let first = header.encode();
    let mut count = 0;
    for fragment in fragments.filter(|f| f.state.kind() == header.digest) {
        encode_record(fragment, &first, number + count, out);
        count += 1;
    }
    count
}

/// Appends a publication to `out`, after `records` records.
pub fn encode_publication(
    header: &Header,
    records: u64,
    publication: &Publication,
    out: &mut Vec<u8>,
) {
    let begin = out.len();
    out.extend(PUBLICATION_MAGIC);
    out.extend(publication.length.to_be_bytes());
    out.extend(publication.identity.0.to_be_bytes());
    out.extend(publication.identity.1.to_be_bytes());
    out.extend(publication.mtime_ns.to_be_bytes());
    let check = record_check(&out[begin..], &header.encode(), records);
    out.extend(check.to_be_bytes());
}

fn decode_publication(
    bytes: &[u8; PUBLICATION_BYTES],
    header: &[u8; HEADER_BYTES],
    records: usize,
) -> Option<Publication> {
    let (body, check) = bytes.split_last_chunk::<4>()?;
    let mut at = Reader(body);
    let sound = at.take::<8>()? == *PUBLICATION_MAGIC
        && record_check(body, header, records as u64).to_be_bytes() == *check;
    if !sound {
        return None;
    }
    let length = u64::from_be_bytes(at.take()?);
    let identity = (
        u64::from_be_bytes(at.take()?),
        u64::from_be_bytes(at.take()?),
    );
    let mtime_ns = i64::from_be_bytes(at.take()?);
    Some(Publication {
        length,
        identity,
        mtime_ns,
    })
}

/// Size of a record.
pub(super) fn record_bytes(digest: DigestKind) -> usize {
    let state = match digest {
        DigestKind::Crc64Nvme => 8,
        DigestKind::Blake3 => 64,
        _ => 0,
    };
    8 + 8 + state + 4
}

fn encode_record(fragment: &Fragment, header: &[u8; HEADER_BYTES], number: u64, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend(fragment.range.start.to_be_bytes());
    out.extend(fragment.range.end.to_be_bytes());
    match &fragment.state {
        FragmentState::None => {}
        FragmentState::Crc64Nvme(state) => out.extend(state.to_be_bytes()),
        FragmentState::Blake3 { node, root } => {
            out.extend(node);
            out.extend(root);
        }
    }
    let check = record_check(&out[begin..], header, number);
    out.extend(check.to_be_bytes());
}

fn decode_record(
    record: &[u8],
    header: &Header,
    header_bytes: &[u8; HEADER_BYTES],
    number: usize,
) -> Option<Fragment> {
    let (body, check) = record.split_last_chunk::<4>()?;
    if record_check(body, header_bytes, number as u64).to_be_bytes() != *check {
        return None;
    }
    let mut at = Reader(body);
    let start = u64::from_be_bytes(at.take()?);
    let end = u64::from_be_bytes(at.take()?);
    let state = match header.digest {
        DigestKind::Crc64Nvme => FragmentState::Crc64Nvme(u64::from_be_bytes(at.take()?)),
        DigestKind::Blake3 => FragmentState::Blake3 {
            node: at.take()?,
            root: at.take()?,
        },
        _ => FragmentState::None,
    };
    let is_possible = start < end && header.length.is_none_or(|length| end <= length);
    is_possible.then_some(Fragment {
        range: ByteRange { start, end },
        state,
    })
}

fn record_check(body: &[u8], header: &[u8; HEADER_BYTES], number: u64) -> u32 {
    let mut bytes = [0; 12 + 80];
    bytes[..4].copy_from_slice(&header[HEADER_CHECK..]);
    bytes[4..12].copy_from_slice(&number.to_be_bytes());
    bytes[12..12 + body.len()].copy_from_slice(body);
    crc32c(&bytes[..12 + body.len()])
}

fn crc32c(bytes: &[u8]) -> u32 {
    // The 32-bit checksum comes in a wider type.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Takes fields off the front of a slice.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
