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
    if paths.root().is_some() && meta.kind != FileKind::Directory && mode & SET_ID != 0 {
        return Err(set_id_fault(requested));
    }
    found
        .set_mode(mode)
        .map_err(|error| io_fault(requested, &error))
}

/// Checks the permission bits of a file to be created.
pub(super) fn check_new_mode(paths: &Paths<'_>, requested: &[u8], mode: u32) -> Result<(), Fault> {
    check_mode(requested, mode)?;
    if paths.root().is_some() && mode & SET_ID != 0 {
        return Err(set_id_fault(requested));
    }
    Ok(())
}

fn set_id_fault(requested: &[u8]) -> Fault {
    let cause = "set-user-id and set-group-id may not be set here";
    Fault::new(Code::PermissionDenied, "", cause)
        .path(requested)
        .hint("leave out set-user-id and set-group-id")
}

pub(super) fn check_mode(requested: &[u8], mode: u32) -> Result<(), Fault> {
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
