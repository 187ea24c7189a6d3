//! Files that are believed: settings, keys, lists of users, authorities.
//!
//! One check for all of them, that of [`xdfs_sys::trusted`], with its result as a [`Fault`].

use std::fs::{DirBuilder, File};
use std::io::Read as _;
use std::path::Path;

use xdfs_proto::fault::{Code, Fault};
pub use xdfs_sys::trusted::Secrecy;
use xdfs_sys::trusted::{self, Distrust};
use zeroize::Zeroizing;

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// `PermissionDenied` if somebody else than root and this user could have written it, or could read
/// a secret; `NotRegularFile`; `LimitExceeded`; errors of the system.
pub fn read(
    operation: &str,
    path: &Path,
    bytes_max: u64,
    secrecy: Secrecy,
) -> Result<Zeroizing<Vec<u8>>, Fault> {
    read_of(open(operation, path, secrecy)?, operation, path, bytes_max)
}

/// Reads a file that may be a pipe or a terminal as well, and waits for its other end.
///
/// # Errors
/// Like [`read`], but for `NotRegularFile`.
pub fn read_any(operation: &str, path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let file = File::open(path).map_err(|e| Fault::from_io(operation, name(path), &e))?;
    trusted::check(&file, path).map_err(|distrust| fault(operation, path, &distrust))?;
    read_of(file, operation, path, bytes_max)
}

fn read_of(
    file: File,
    operation: &str,
    path: &Path,
    bytes_max: u64,
) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let io = |e: std::io::Error| Fault::from_io(operation, name(path), &e);
    let length = file.metadata().map_err(io)?.len();
    // Allocated at once: a growing vector leaves copies of a secret behind.
    let room = usize::try_from(length.min(bytes_max)).unwrap_or(0) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.len() as u64 > bytes_max {
        let cause = format!("the file has more than {bytes_max} bytes");
        return Err(Fault::new(Code::LimitExceeded, operation, cause).path(name(path)));
    }
    Ok(bytes)
}

/// Opens a regular file for reading.
///
/// # Errors
/// Those of [`read`], except for `LimitExceeded`.
pub fn open(operation: &str, path: &Path, secrecy: Secrecy) -> Result<File, Fault> {
    trusted::open(path, secrecy).map_err(|distrust| fault(operation, path, &distrust))
}

/// Checks a directory in which every file is believed.
///
/// # Errors
/// `PermissionDenied` if somebody else than root and this user may change it, or what is above it;
/// errors of the system.
pub fn check_folder(operation: &str, path: &Path) -> Result<(), Fault> {
    trusted::check_folder(path).map_err(|distrust| fault(operation, path, &distrust))
}

/// Creates a folder and its missing parents, accessible only to the owner. Existing ones stay as
/// they are.
///
/// # Errors
/// Errors of the system.
pub fn make_folder(operation: &str, folder: &Path) -> Result<(), Fault> {
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(folder)
        .map_err(|e| Fault::from_io(operation, name(folder), &e))
}

fn fault(operation: &str, path: &Path, distrust: &Distrust) -> Fault {
    let code = match distrust {
        Distrust::Io(error) => return Fault::from_io(operation, name(path), error),
        Distrust::NotRegular => Code::NotRegularFile,
        _ => Code::PermissionDenied,
    };
    Fault::new(code, operation, distrust.to_string())
        .path(name(path))
        .hint(distrust.hint())
}

fn name(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}
