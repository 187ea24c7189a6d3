//! Calls that change attributes or the length of a file.

use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::FileKind;

use super::super::path;
use super::{Paths, io_fault};

/// All permission bits.
pub(super) const MODE_MAX: u32 = 0o7777;
/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

pub(super) fn set_mode(paths: &Paths<'_>, requested: &[u8], mode: u32) -> Result<(), Fault> {
    check_mode(requested, mode)?;
    let found = paths.find(requested)?;
    let meta = found.meta().map_err(|error| io_fault(requested, &error))?;
    match meta.kind {
        // It may keep what it has.
        FileKind::Directory => {
            let new = mode & !meta.mode.unwrap_or(0);
            check_directory_mode(paths, requested, new)?;
        }
        _ => check_file_mode(paths, requested, mode)?,
    }
    found
        .set_mode(mode)
        .map_err(|error| io_fault(requested, &error))
}

/// Checks the permission bits that a file is to get.
pub(super) fn check_file_mode(paths: &Paths<'_>, requested: &[u8], mode: u32) -> Result<(), Fault> {
    let denied = match paths.root() {
        Some(_) => SET_ID | paths.store.denied_by_calls(),
        None => 0,
    };
    check_bits(requested, mode, denied)
}

/// Checks the permission bits that a directory is to get.
pub(super) fn check_directory_mode(
    paths: &Paths<'_>,
    requested: &[u8],
    mode: u32,
) -> Result<(), Fault> {
    check_bits(requested, mode, paths.store.denied_by_calls())
}

fn check_bits(requested: &[u8], mode: u32, denied: u32) -> Result<(), Fault> {
    check_mode(requested, mode)?;
    if mode & denied == 0 {
        return Ok(());
    }
    let bits = match mode & denied & SET_ID {
        0 => "the sticky bit",
        _ => "set-user-id and set-group-id",
    };
    let cause = format!("{bits} may not be set here");
    Err(Fault::new(Code::PermissionDenied, "", cause)
        .path(requested)
        .hint(format!("leave out {bits}")))
}

fn check_mode(requested: &[u8], mode: u32) -> Result<(), Fault> {
    if mode > MODE_MAX {
        let cause = format!("{mode:o} has more than permission bits");
        return Err(Fault::new(Code::InvalidArgument, "", cause).path(requested));
    }
    Ok(())
}

pub(super) fn set_times(
    paths: &Paths<'_>,
    requested: &[u8],
    [atime_ns, mtime_ns]: [Option<i64>; 2],
    follow: bool,
) -> Result<(), Fault> {
    let result = if follow || path::split(requested).1.is_empty() {
        paths.find(requested)?.set_times(atime_ns, mtime_ns)
    } else {
        let name = paths.name(requested)?;
        name.dir.set_times(name.name, atime_ns, mtime_ns)
    };
    result.map_err(|error| io_fault(requested, &error))
}

pub(super) fn set_owner(
    paths: &Paths<'_>,
    requested: &[u8],
    [uid, gid]: [Option<u32>; 2],
    follow: bool,
) -> Result<(), Fault> {
    let result = if follow || path::split(requested).1.is_empty() {
        paths.find(requested)?.set_owner(uid, gid)
    } else {
        let name = paths.name(requested)?;
        name.dir.set_owner(name.name, uid, gid)
    };
    result.map_err(|error| io_fault(requested, &error))
}

pub(super) fn truncate(paths: &Paths<'_>, requested: &[u8], length: u64) -> Result<(), Fault> {
    let found = paths.find(requested)?;
    let meta = found.meta().map_err(|error| io_fault(requested, &error))?;
    match meta.kind {
        FileKind::Regular => {}
        FileKind::Directory => {
            return Err(Fault::new(Code::IsDirectory, "", "is a directory").path(requested));
        }
        kind => {
            let cause = format!("it is {kind}, not a regular file");
            return Err(Fault::new(Code::NotRegularFile, "", cause).path(requested));
        }
    }
    let file = found.open_for_writing();
    file.and_then(|file| file.set_len(length))
        .map_err(|error| io_fault(requested, &error))
}
