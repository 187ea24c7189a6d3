//! Small files with keys and trust data: bounded reads, atomic writes, locks.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xdfs_proto::fault::{Code, Fault, Retry};
use zeroize::Zeroizing;

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

/// Reads a regular file of at most `limit` bytes.
pub(crate) fn read(operation: &str, path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, Fault> {
    read_checked(operation, path, limit, |_| Ok(()))
}

/// Reads a secret of at most `limit` bytes; refuses a file accessible to group or others.
pub(crate) fn read_secret(
    operation: &str,
    path: &Path,
    limit: u64,
) -> Result<Zeroizing<Vec<u8>>, Fault> {
    read_checked(operation, path, limit, |file| {
        refuse_if_open(operation, path, file)
    })
}

fn read_checked(
    operation: &str,
    path: &Path,
    limit: u64,
    check: impl Fn(&File) -> Result<(), Fault>,
) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let fault = |error: io::Error| io_fault(operation, path, &error);
    // Checked first, since opening a pipe without a writer would block.
    if !fs::metadata(path).map_err(fault)?.is_file() {
        return Err(
            Fault::new(Code::NotRegularFile, operation, "it isn't a regular file")
                .path(bytes(path)),
        );
    }
    let file = File::open(path).map_err(fault)?;
    check(&file)?;
    let length = file.metadata().map_err(fault)?.len();
    // Allocated at once: a growing vector leaves copies of a secret behind.
    let room = usize::try_from(length.min(limit)).unwrap_or(0) + 1;
    let mut out = Zeroizing::new(Vec::with_capacity(room));
    (&file)
        .take(limit + 1)
        .read_to_end(&mut out)
        .map_err(fault)?;
    if out.len() as u64 > limit {
        return Err(Fault::new(
            Code::LimitExceeded,
            operation,
            format!("the file is longer than {limit} bytes"),
        )
        .path(bytes(path)));
    }
    Ok(out)
}

#[cfg(unix)]
fn refuse_if_open(operation: &str, path: &Path, file: &File) -> Result<(), Fault> {
    use std::os::unix::fs::PermissionsExt as _;
    // Of the open file, so that it can't be exchanged after the check.
    let metadata = file
        .metadata()
        .map_err(|error| io_fault(operation, path, &error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Fault::new(
        Code::PermissionDenied,
        operation,
        format!("others than its owner have access to the key (mode {mode:04o})"),
    )
    .path(bytes(path))
    .hint(format!("run `chmod 600 {}`", path.display())))
}

/// Access control lists of other systems aren't checked.
#[cfg(not(unix))]
fn refuse_if_open(_operation: &str, _path: &Path, _file: &File) -> Result<(), Fault> {
    Ok(())
}

/// Creates a folder and its missing parents, accessible only to the owner. Existing ones stay
/// unchanged.
pub(crate) fn make_folder(operation: &str, folder: &Path) -> Result<(), Fault> {
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder
        .create(folder)
        .map_err(|error| io_fault(operation, folder, &error))
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
