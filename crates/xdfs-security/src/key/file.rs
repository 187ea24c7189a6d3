//! Files under the control of their owner: checked when read, and created accordingly.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroizing;

/// Mode bits that let others read, write or enter.
pub(crate) const ANY_ACCESS_OF_OTHERS: u32 = 0o077;
/// Mode bits that let others write.
pub(crate) const WRITE_ACCESS_OF_OTHERS: u32 = 0o022;

/// A path as bytes, for faults.
pub(crate) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// Reads a regular file of at most `bytes_max` bytes whose mode has none of the bits `forbidden`.
/// On systems without modes nothing is forbidden.
pub(crate) fn read(
    path: &Path,
    operation: &str,
    bytes_max: usize,
    forbidden: u32,
) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let io = |e: &std::io::Error| Fault::from_io(operation, bytes_of(path), e);
    // Checked first, since opening a pipe would wait for its other end.
    let found = fs::metadata(path).map_err(|e| io(&e))?;
    if !found.is_file() {
        return Err(
            Fault::new(Code::NotRegularFile, operation, "not a regular file").path(bytes_of(path)),
        );
    }
    let file = File::open(path).map_err(|e| io(&e))?;
    let found = file.metadata().map_err(|e| io(&e))?;
    check_mode(&found, path, operation, forbidden)?;
    let too_long = || {
        Fault::new(
            Code::LimitExceeded,
            operation,
            format!("the file has more than {bytes_max} bytes"),
        )
        .path(bytes_of(path))
    };
    let length = usize::try_from(found.len()).map_err(|_| too_long())?;
    if length > bytes_max {
        return Err(too_long());
    }
    // Allocated at once, since growing would leave copies of secrets behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(length + 1));
    file.take(bytes_max as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| io(&e))?;
    if bytes.len() > bytes_max {
        return Err(too_long());
    }
    Ok(bytes)
}

#[cfg(unix)]
fn check_mode(
    found: &fs::Metadata,
    path: &Path,
    operation: &str,
    forbidden: u32,
) -> Result<(), Fault> {
    use std::os::unix::fs::MetadataExt;

    let excess = found.mode() & forbidden;
    if excess == 0 {
        return Ok(());
    }
    let who_may = if forbidden & 0o044 == 0 {
        "write to"
    } else {
        "read or write"
    };
    let fixed = found.mode() & 0o777 & !forbidden;
    Err(Fault::new(
        Code::PermissionDenied,
        operation,
        format!("others than its owner may {who_may} the file"),
    )
    .path(bytes_of(path))
    .hint(format!("run `chmod {fixed:o}` on the file")))
}

#[cfg(not(unix))]
fn check_mode(_: &fs::Metadata, _: &Path, _: &str, _: u32) -> Result<(), Fault> {
    Ok(())
}

/// Creates a new file, durably and with `mode` where supported. If that fails halfway, the file is
/// removed.
pub(crate) fn create(path: &Path, operation: &str, bytes: &[u8], mode: u32) -> Result<(), Fault> {
    let io = |e: &std::io::Error| Fault::from_io(operation, bytes_of(path), e);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    set_mode(&mut options, mode);
    let mut file = options.open(path).map_err(|e| io(&e))?;
    if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
        // The first failure is reported.
        let _ = fs::remove_file(path);
        return Err(io(&error));
    }
    Ok(())
}

/// Sets the mode for creating a file, where supported.
pub(crate) fn set_mode(options: &mut OpenOptions, mode: u32) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(mode);
    }
    #[cfg(not(unix))]
    let _ = (options, mode);
}

/// Makes the names in the folder of `path` durable, where supported.
pub(crate) fn sync_folder(path: &Path, operation: &str) -> Result<(), Fault> {
    #[cfg(unix)]
    {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder)
            .and_then(|f| f.sync_all())
            .map_err(|e| Fault::from_io(operation, bytes_of(folder), &e))?;
    }
    #[cfg(not(unix))]
    let _ = (path, operation);
    Ok(())
}
