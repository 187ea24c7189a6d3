//! Small files that hold keys and trust: bounded reads, writes that are whole or absent, locks.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xdfs_proto::fault::{Code, Fault, Retry};
use zeroize::Zeroizing;

/// How often a lock is tried, and how long is waited in between: 10 s in all.
const LOCK_TRIES: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A path as a fault has it.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

fn io_fault(operation: &str, path: &Path, error: &io::Error) -> Fault {
    Fault::from_io(operation, bytes(path), error)
}

/// Whether something is at a path. Links are followed.
pub(crate) fn is_there(operation: &str, path: &Path) -> Result<bool, Fault> {
    path.try_exists()
        .map_err(|error| io_fault(operation, path, &error))
}

/// Reads a regular file of at most `limit` bytes.
pub(crate) fn read(operation: &str, path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, Fault> {
    read_checked(operation, path, limit, |_| Ok(()))
}

/// Reads a secret of at most `limit` bytes, unless group or others may do anything with the file.
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
    // Opening a pipe without a writer would wait for ever, so this comes first.
    if !fs::metadata(path).map_err(fault)?.is_file() {
        return Err(
            Fault::new(Code::NotRegularFile, operation, "it isn't a regular file")
                .path(bytes(path)),
        );
    }
    let file = File::open(path).map_err(fault)?;
    check(&file)?;
    let length = file.metadata().map_err(fault)?.len();
    // Room for all of it at once: a vector that grows leaves copies of a secret behind.
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
    // Of the open file, so that nobody can put another one there after the look.
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

/// Access lists of other systems aren't looked at.
#[cfg(not(unix))]
fn refuse_if_open(_operation: &str, _path: &Path, _file: &File) -> Result<(), Fault> {
    Ok(())
}

/// Makes a folder and those above it, for the owner alone. One that is there stays as it is.
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

/// A file that is written and durable, but not yet under its name. Dropped, it is removed.
pub(crate) struct Staged {
    temporary: PathBuf,
    target: PathBuf,
    is_published: bool,
}

impl Staged {
    /// Writes a file beside `target`, for the owner alone. The caller holds the lock of `target`:
    /// the name beside it is always the same.
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
            // Left by one that was interrupted, or nothing.
            _ => {}
        }
        let mut options = private();
        // Never through a link that somebody put there.
        options.create_new(true);
        let mut file = options.open(path).map_err(fault)?;
        file.write_all(bytes).map_err(fault)?;
        file.sync_all().map_err(fault)?;
        Ok(staged)
    }

    /// Gives it its name, and makes that durable.
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
            // What is left is removed by the next writer.
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

/// Directories can't be opened as files everywhere.
#[cfg(not(unix))]
fn sync_folder(_operation: &str, _target: &Path) -> Result<(), Fault> {
    Ok(())
}

/// A lock against other writers, in this process and in others; free when it is dropped.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of `target`, a file beside it that stays. Waits up to 10 s.
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
