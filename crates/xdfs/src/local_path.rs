//! The bytes of paths of this machine.

use std::path::Path;

#[cfg(unix)]
fn os_bytes(text: &std::ffi::OsStr) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    text.as_bytes().to_vec()
}

#[cfg(not(unix))]
fn os_bytes(text: &std::ffi::OsStr) -> Vec<u8> {
    text.to_string_lossy().into_owned().into_bytes()
}

/// The bytes of a path.
pub(crate) fn path_bytes(path: &Path) -> Vec<u8> {
    os_bytes(path.as_os_str())
}

/// The bytes of the last name of a path; none if it ends otherwise.
pub(crate) fn file_name(path: &Path) -> Vec<u8> {
    path.file_name().map(os_bytes).unwrap_or_default()
}
