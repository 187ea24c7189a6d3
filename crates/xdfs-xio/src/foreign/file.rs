//! Libraries on disk: who may change them.

use std::fs;
use std::path::{Path, PathBuf};

use xdfs_sys::trusted::{self, Distrust, Secrecy};

use super::LoadError;

/// The path of a library without links, if only root and the user of this process can change it or
/// add another one to its directory.
///
/// # Errors
/// There is no such regular file, or others may change it or the directories above it.
pub(super) fn checked(path: &Path) -> Result<PathBuf, LoadError> {
    let refused = |e: Distrust| LoadError::new(path, e.kind(), e.to_string(), e.hint());
    trusted::open(path, Secrecy::Public).map_err(refused)?;
    let file = fs::canonicalize(path).map_err(|e| LoadError::io(path, &e, ""))?;
    trusted::check_folder(file.parent().unwrap_or(&file)).map_err(refused)?;
    Ok(file)
}

/// The libraries in `folder`, in order of name.
///
/// # Errors
/// The directory can't be read, or others may change it.
pub(crate) fn libraries(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let io = |e| LoadError::io(folder, &e, "");
    trusted::check_folder(folder)
        .map_err(|e| LoadError::new(folder, e.kind(), e.to_string(), e.hint()))?;
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
