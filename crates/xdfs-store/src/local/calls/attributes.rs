//! Calls that change what is known of a file, and its length.

use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::FileKind;

use super::super::path;
use super::{Paths, io_fault};

/// All permission bits.
pub(super) const MODE_MAX: u32 = 0o7777;
/// The bits by which a program runs as its owner or group.
const SET_ID: u32 = 0o6000;

pub(super) fn set_mode(paths: &Paths<'_>, asked: &[u8], mode: u32) -> Result<(), Fault> {
    check_mode(asked, mode)?;
    let found = paths.find(asked)?;
    let meta = found.meta().map_err(|error| io_fault(asked, &error))?;
    if paths.root().is_some() && meta.kind != FileKind::Directory && mode & SET_ID != 0 {
        return Err(set_id_fault(asked));
    }
    found
        .set_mode(mode)
        .map_err(|error| io_fault(asked, &error))
}

/// Checks the permission bits of a file that is to be made.
pub(super) fn check_new_mode(paths: &Paths<'_>, asked: &[u8], mode: u32) -> Result<(), Fault> {
    check_mode(asked, mode)?;
    if paths.root().is_some() && mode & SET_ID != 0 {
        return Err(set_id_fault(asked));
    }
    Ok(())
}

fn set_id_fault(asked: &[u8]) -> Fault {
    let cause = "no program gets to run as somebody else this way";
    Fault::new(Code::PermissionDenied, "", cause)
        .path(asked)
        .hint("leave out set-user-id and set-group-id")
}

pub(super) fn check_mode(asked: &[u8], mode: u32) -> Result<(), Fault> {
    if mode > MODE_MAX {
        let cause = format!("{mode:o} has more than permission bits");
        return Err(Fault::new(Code::InvalidArgument, "", cause).path(asked));
    }
    Ok(())
}

pub(super) fn set_times(
    paths: &Paths<'_>,
    asked: &[u8],
    [atime_ns, mtime_ns]: [Option<i64>; 2],
    follow: bool,
) -> Result<(), Fault> {
    let result = if follow || path::split(asked).1.is_empty() {
        paths.find(asked)?.set_times(atime_ns, mtime_ns)
    } else {
        let name = paths.name(asked)?;
        name.dir.set_times(name.name, atime_ns, mtime_ns)
    };
    result.map_err(|error| io_fault(asked, &error))
}

pub(super) fn set_owner(
    paths: &Paths<'_>,
    asked: &[u8],
    [uid, gid]: [Option<u32>; 2],
    follow: bool,
) -> Result<(), Fault> {
    let result = if follow || path::split(asked).1.is_empty() {
        paths.find(asked)?.set_owner(uid, gid)
    } else {
        let name = paths.name(asked)?;
        name.dir.set_owner(name.name, uid, gid)
    };
    result.map_err(|error| io_fault(asked, &error))
}

pub(super) fn truncate(paths: &Paths<'_>, asked: &[u8], length: u64) -> Result<(), Fault> {
    let found = paths.find(asked)?;
    let meta = found.meta().map_err(|error| io_fault(asked, &error))?;
    match meta.kind {
        FileKind::Regular => {}
        FileKind::Directory => {
            return Err(Fault::new(Code::IsDirectory, "", "is a directory").path(asked));
        }
        kind => {
            let cause = format!("it is {kind}, not a regular file");
            return Err(Fault::new(Code::NotRegularFile, "", cause).path(asked));
        }
    }
    let file = found.open_for_writing();
    file.and_then(|file| file.set_len(length))
        .map_err(|error| io_fault(asked, &error))
}
