//! The list of `xdfs cp --files-from`.

use std::fs::File;
use std::path::Path;

use xdfs::Fault;
use xdfs::operations::ListedPaths;

/// Reads a list of paths, which are relative to the source.
///
/// # Errors
/// The file can't be read.
pub(super) fn read(list: &Path, ended_by_nul: bool) -> Result<ListedPaths, Fault> {
    let name = list.as_os_str().as_encoded_bytes();
    let end = if ended_by_nul { b'\0' } else { b'\n' };
    if name == b"-" {
        return ListedPaths::read(std::io::stdin().lock(), name, end);
    }
    let failed = |error| Fault::from_io("read the list of files", name, &error);
    ListedPaths::read(File::open(list).map_err(failed)?, name, end)
}
