//! Read-only calls about one path.

use blake3::Hasher;
use crc_fast::{CrcAlgorithm, Digest};
use md5::Md5;
use sha2::{Digest as _, Sha256};
use xdfs_proto::digest::{ChecksumKind, ChecksumValue, DigestKind};
use xdfs_proto::path::{Answer, Attributes};
use xdfs_proto::{ByteRange, Code, Fault};

use super::super::path;
use super::{Paths, attributes, io_fault, resolve_fault};
use crate::{Source, Store, delta, work};

/// Bytes read and hashed at once.
const PIECE_BYTES: usize = 256 << 10;

pub(super) fn stat(paths: &Paths<'_>, requested: &[u8], follow: bool) -> Result<Attributes, Fault> {
    if follow {
        let found = paths.find(requested)?.meta();
        return Ok(attributes(
            &found.map_err(|error| io_fault(requested, &error))?,
        ));
    }
    paths.check(requested)?;
    // Such a path can only name a directory.
    if path::split(requested).1.is_empty() {
        let dir = paths.enter(requested);
        let dir = dir.map_err(|error| resolve_fault(requested, &error))?;
        let meta = dir.meta().map_err(|error| io_fault(requested, &error))?;
        return Ok(attributes(&meta));
    }
    Ok(attributes(&paths.name(requested)?.existing()?))
}

pub(super) fn read_link(paths: &Paths<'_>, requested: &[u8]) -> Result<Vec<u8>, Fault> {
    let name = paths.name(requested)?;
    name.dir.read_link(name.name).map_err(|error| {
        if error.kind() == std::io::ErrorKind::InvalidInput {
            let cause = "it isn't a symbolic link";
            return Fault::new(Code::InvalidArgument, "", cause).path(requested);
        }
        name.fault(&error)
    })
}

pub(super) fn space(paths: &Paths<'_>, requested: &[u8]) -> Result<Answer, Fault> {
    let space = paths.find(requested)?.space();
    let space = space.map_err(|error| io_fault(requested, &error))?;
    Ok(Answer::Space {
        total: space.total,
        free: space.free,
        available: space.available,
        files: space.files,
        files_free: space.files_free,
    })
}

pub(super) fn checksum(
    paths: &Paths<'_>,
    requested: &[u8],
    offset: u64,
    length: Option<u64>,
    kind: ChecksumKind,
) -> Result<Answer, Fault> {
    paths.check(requested)?;
    let mut source = paths.store.open_source(requested)?;
    digest(&mut *source, requested, offset, length, kind)
}

pub(super) fn signatures(
    paths: &Paths<'_>,
    requested: &[u8],
    digest: DigestKind,
    block_bytes: u32,
    [first, count]: [u64; 2],
) -> Result<Answer, Fault> {
    paths.check(requested)?;
    let mut source = paths.store.open_source(requested)?;
    let found = delta::signatures(&mut *source, digest, block_bytes, [first, count]);
    found.map(Answer::Signatures)
}

/// The digest of a part of a source.
pub(crate) fn digest(
    source: &mut dyn Source,
    requested: &[u8],
    offset: u64,
    length: Option<u64>,
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
