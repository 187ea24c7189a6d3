//! Read-only calls about one path.

use xdfs_proto::digest::{ChecksumKind, DigestKind};
use xdfs_proto::path::{Answer, Attributes};
use xdfs_proto::{Code, Fault};

use super::super::path;
use super::{Paths, attributes, io_fault, resolve_fault};
use crate::{Store as _, delta};

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
    crate::checksum(&mut *source, requested, (offset, length), kind)
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
