//! Libraries on disk: who may change them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::LoadError;

/// The path of a library without links, if only root and the user of this process can change it.
///
/// # Errors
/// There is no such regular file, or others may change it or the directories above it.
pub(super) fn checked(path: &Path) -> Result<PathBuf, LoadError> {
    let io = |e| LoadError::io(path, &e, "");
    let file = fs::canonicalize(path).map_err(io)?;
    if !fs::metadata(&file).map_err(io)?.is_file() {
        let cause = "it is not a regular file";
        return Err(LoadError::new(path, ErrorKind::InvalidInput, cause, ""));
    }
    owner::check(path, &file)?;
    Ok(file)
}

/// The libraries in `folder`, in order of name.
///
/// # Errors
/// The directory can't be read.
pub(crate) fn libraries(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let io = |e| LoadError::io(folder, &e, "");
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let ending = path.extension().unwrap_or_default();
        if ending == std::env::consts::DLL_EXTENSION {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(unix)]
mod owner {
    use std::os::unix::fs::MetadataExt as _;

    use xdfs_sys::ids::effective_user;

    use super::*;

    const HINT: &str =
        "give it and its directories to root or to you, and run `chmod go-w` on them";
    const WRITE_ACCESS_OF_OTHERS: u32 = 0o022;
    /// In a directory with this bit, only owners can replace entries.
    const STICKY: u32 = 0o1000;

    /// Checks `file`, its directory, and those above it.
    pub(super) fn check(path: &Path, file: &Path) -> Result<(), LoadError> {
        for (depth, place) in file.ancestors().enumerate() {
            let found = fs::symlink_metadata(place).map_err(|e| LoadError::io(path, &e, ""))?;
            let shown = place.display();
            // Its directory may not be such a place either: another library could be added.
            let is_shared_safely = depth > 1 && found.mode() & STICKY != 0;
            let cause = if found.uid() != 0 && Some(found.uid()) != effective_user() {
                format!("{shown} belongs to another user")
            } else if found.mode() & WRITE_ACCESS_OF_OTHERS != 0 && !is_shared_safely {
                format!("others than its owner may write to {shown}")
            } else {
                continue;
            };
            return Err(LoadError::new(
                path,
                ErrorKind::PermissionDenied,
                cause,
                HINT,
            ));
        }
        Ok(())
    }
}

/// Access control lists of other systems aren't checked.
#[cfg(not(unix))]
mod owner {
    use super::*;

    pub(super) fn check(_: &Path, _: &Path) -> Result<(), LoadError> {
        Ok(())
    }
}
