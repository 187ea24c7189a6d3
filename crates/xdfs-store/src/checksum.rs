//! Checksums of files, for stores that read them themselves.

use blake3::Hasher;
use crc_fast::{CrcAlgorithm, Digest};
use md5::Md5;
use sha2::{Digest as _, Sha256};
use xdfs_proto::digest::{ChecksumKind, ChecksumValue};
use xdfs_proto::path::Answer;
use xdfs_proto::{ByteRange, Code, Fault};

use crate::{Source, work};

/// Bytes read and hashed at once.
const PIECE_BYTES: usize = 256 << 10;

/// Answers [`Call::Checksum`](xdfs_proto::path::Call::Checksum) about the file at `requested`: the
/// checksum of a part of it, from an offset on, by default up to the end. Use
/// [`watched`](crate::watched) to cancel it.
///
/// # Errors
/// There is no such part, the kind isn't supported, the file can't be read or has changed.
pub fn checksum(
    source: &mut dyn Source,
    requested: &[u8],
    (offset, length): (u64, Option<u64>),
    kind: ChecksumKind,
) -> Result<Answer, Fault> {
    let mut hash = Hash::new(kind).ok_or_else(|| {
        let cause = "this digest is not supported here";
        Fault::new(Code::InvalidArgument, "", cause).path(requested)
    })?;
    let total = source.info().length.unwrap_or(u64::MAX);
    let length = length.unwrap_or_else(|| total.saturating_sub(offset));
    let range = ByteRange::at(offset, length).filter(|range| range.end <= total);
    let Some(range) = range else {
        let cause = format!("the file has {total} bytes, and there is no such part of it");
        return Err(Fault::new(Code::OffsetPastEnd, "", cause).path(requested));
    };
    let mut buf = vec![0; PIECE_BYTES];
    let mut at = range.start;
    while at < range.end {
        let wanted = usize::try_from(range.end - at).map_or(buf.len(), |left| left.min(buf.len()));
        let read = source.read_at(at, &mut buf[..wanted])?;
        if read == 0 {
            let cause = "it became shorter while it was read";
            return Err(Fault::new(Code::SourceChanged, "", cause).path(requested));
        }
        hash.update(&buf[..read]);
        at += read as u64;
        work::passed(read as u64)?;
    }
    source.verify_unchanged()?;
    Ok(Answer::Digest {
        value: hash.finish(),
        length,
    })
}

enum Hash {
    Crc64Nvme(Box<Digest>),
    Blake3(Box<Hasher>),
    Sha256(Box<Sha256>),
    Md5(Box<Md5>),
}

impl Hash {
    fn new(kind: ChecksumKind) -> Option<Self> {
        match kind {
            ChecksumKind::Crc64Nvme => {
                let digest = Digest::new(CrcAlgorithm::Crc64Nvme);
                Some(Self::Crc64Nvme(Box::new(digest)))
            }
            ChecksumKind::Blake3 => Some(Self::Blake3(Box::new(Hasher::new()))),
            ChecksumKind::Sha256 => Some(Self::Sha256(Box::default())),
            ChecksumKind::Md5 => Some(Self::Md5(Box::default())),
            _ => None,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc64Nvme(crc) => crc.update(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Md5(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> ChecksumValue {
        match self {
            Self::Crc64Nvme(crc) => ChecksumValue::Crc64Nvme(crc.finalize()),
            Self::Blake3(hasher) => ChecksumValue::Blake3(hasher.finalize().into()),
            Self::Sha256(hasher) => ChecksumValue::Sha256(hasher.finalize().into()),
            Self::Md5(hasher) => ChecksumValue::Md5(hasher.finalize().into()),
        }
    }
}
