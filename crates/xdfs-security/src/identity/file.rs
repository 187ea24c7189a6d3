//! Small files with keys and trust data: atomic writes, locks.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xdfs_proto::fault::{Code, Fault, Retry};

/// Attempts to take a lock, and the pause in between: 10 s in total.
const LOCK_TRIES: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A path in the form used by faults.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

fn io_fault(operation: &str, path: &Path, error: &io::Error) -> Fault {
    Fault::from_io(operation, bytes(path), error)
}

/// Whether a path exists. Links are followed.
pub(crate) fn is_there(operation: &str, path: &Path) -> Result<bool, Fault> {
    path.try_exists()
        .map_err(|error| io_fault(operation, path, &error))
}

/// A written, durable file without its final name. It is removed if dropped.
pub(crate) struct Staged {
    temporary: PathBuf,
    target: PathBuf,
    is_published: bool,
}

impl Staged {
    /// Writes a file beside `target`, accessible only to the owner. The caller must hold the lock
    /// of `target`, since the temporary name is fixed.
    pub(crate) fn write(operation: &str, target: &Path, bytes: &[u8]) -> Result<Self, Fault> {
        let staged = Self {
            temporary: beside(target, ".new"),
            target: target.to_owned(),
            is_published: false,
        };
        let path = &staged.temporary;
        let fault = |error: io::Error| io_fault(operation, path, &error);
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fault(error)),
            // A leftover of an interrupted writer, or nothing.
            _ => {}
        }
        let mut options = private();
        // Never follows a link placed there by somebody.
        options.create_new(true);
        let mut file = options.open(path).map_err(fault)?;
        file.write_all(bytes).map_err(fault)?;
        file.sync_all().map_err(fault)?;
        Ok(staged)
    }

    /// Renames it to its final name, durably.
    pub(crate) fn publish(mut self, operation: &str) -> Result<(), Fault> {
        fs::rename(&self.temporary, &self.target)
            .map_err(|error| io_fault(operation, &self.target, &error))?;
        self.is_published = true;
        sync_folder(operation, &self.target)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_published {
            // The next writer removes a leftover.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(unix)]
fn sync_folder(operation: &str, target: &Path) -> Result<(), Fault> {
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| io_fault(operation, folder, &error))
}

/// Not all systems can open directories as files.
#[cfg(not(unix))]
fn sync_folder(_operation: &str, _target: &Path) -> Result<(), Fault> {
    Ok(())
}

/// A lock against other writers, in this process and in others; released on drop.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of `target`, a permanent file beside it. Waits up to 10 s.
    pub(crate) fn take(operation: &str, target: &Path) -> Result<Self, Fault> {
        let path = beside(target, ".lock");
        let fault = |error: io::Error| io_fault(operation, &path, &error);
        let mut options = private();
        options.create(true);
        let file = options.open(&path).map_err(fault)?;
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(fault(error)),
            }
        }
        Err(
            Fault::new(Code::Busy, operation, "another process holds the lock")
                .path(bytes(&path))
                .retry(Retry::AfterMs(1000)),
        )
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}
