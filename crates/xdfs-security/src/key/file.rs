//! Files under the control of their owner, created accordingly.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use xdfs_proto::fault::Fault;

/// A path as bytes, for faults.
pub(crate) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
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
