//! The call that makes changes durable.

use std::io;

use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::FileKind;

use super::super::{file_systems, path};
use super::{Paths, io_fault};

/// Synchronises the file system of a path, and those written to beneath it. A failure is final: the
/// system may have dropped data, and another call would not report it.
pub(super) fn sync(paths: &Paths<'_>, requested: &[u8]) -> Result<(), Fault> {
    let found = paths.find(requested)?;
    let meta = found.meta().map_err(|error| io_fault(requested, &error))?;
    if !matches!(meta.kind, FileKind::Regular | FileKind::Directory) {
        let cause = format!("it is {}, by which no file system can be found", meta.kind);
        let fault = Fault::new(Code::NotRegularFile, "", cause).path(requested);
        return Err(fault.hint("name its parent directory"));
    }
    let place = found.real_path().unwrap_or_default();
    let device = meta.identity.map_or(0, |(device, _)| device);
    let is_covered = file_systems::sync_written(&place, device);
    if is_covered.map_err(|error| Fault::from_io("", requested, &error))? {
        return Ok(());
    }
    let synced = match found.sync_file_system() {
        // A file that is writable and not readable: its directory serves as well.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let (parent, last) = path::split(requested);
            if last.is_empty() {
                Err(error)
            } else {
                paths
                    .find(if parent.is_empty() { b"." } else { parent })?
                    .sync_file_system()
            }
        }
        synced => synced,
    };
    synced.map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported => {
            let cause = "this system can't make a whole file system durable";
            Fault::new(Code::Unsupported, "", cause).path(requested)
        }
        _ => Fault::from_io("", requested, &error),
    })
}
