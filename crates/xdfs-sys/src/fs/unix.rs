//! File system calls on Unix.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::convert_unix::{is_unsupported, meta_from, number};
use super::{Meta, ResolveError, Storage};

#[cfg(target_os = "linux")]
use super::linux::open_beneath;
#[cfg(not(target_os = "linux"))]
use super::walk::open_beneath;

/// Never blocks on a pipe or device, and never makes a terminal the controlling one.
pub(super) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Maximum number of buffers per call (the minimum that systems allow is 1024).
const BUFFERS_MAX: usize = 1024;

/// Converts bytes to a path: on Unix any bytes except NUL.
///
/// # Errors
/// `InvalidInput` for NUL.
pub fn path_from_bytes(bytes: &[u8]) -> io::Result<PathBuf> {
    if bytes.contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path has a zero byte",
        ));
    }
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec())))
}

/// Opens a path of any kind for reading under the usual rules, without waiting for a writer if it
/// is a pipe.
///
/// # Errors
/// Any error of the system call.
pub fn open_for_reading(path: &Path) -> io::Result<File> {
    Ok(rustix::fs::openat(CWD, path, READ, Mode::empty())?.into())
}

/// An open directory in which names are resolved, whatever happens to its own path.
#[derive(Debug)]
pub struct Dir(pub(super) OwnedFd);

impl Dir {
    /// Opens a directory under the usual rules.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        Ok(Self(rustix::fs::openat(
            CWD,
            path,
            DIRECTORY,
            Mode::empty(),
        )?))
    }

    /// Opens a directory beneath this one; the empty path is this one.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, or any other error of the system call.
    pub fn open_dir_beneath(&self, path: &[u8]) -> Result<Self, ResolveError> {
        open_beneath(self.0.as_fd(), path, DIRECTORY).map(Self)
    }

    /// Opens an entry of any kind beneath this directory for reading, without waiting for a writer
    /// if it is a pipe.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, or any other error of the system call.
    pub fn open_for_reading_beneath(&self, path: &[u8]) -> Result<File, ResolveError> {
        open_beneath(self.0.as_fd(), path, READ).map(File::from)
    }

    /// Creates a file that only its owner may access, open for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, or any other error of the system call.
    pub fn create_new(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        self.open_with(name, flags)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// Any error of the system call; also for a symbolic link.
    pub fn open_existing(&self, name: &[u8]) -> io::Result<File> {
        self.open_with(name, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK)
    }

    fn open_with(&self, name: &[u8], flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(&self.0, OsStr::from_bytes(name), flags, mode)?.into())
    }

    /// Attributes of an entry, without following a symbolic link; `None` if there is none.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn meta_of(&self, name: &[u8]) -> io::Result<Option<Meta>> {
        match rustix::fs::statat(&self.0, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(meta_from(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames within the directory, replacing an existing entry.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let (from, to) = (OsStr::from_bytes(from), OsStr::from_bytes(to));
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Atomically renames within the directory unless the new name is taken. Where the file system
    /// does not support that, the file gets the new name before it loses the old one.
    ///
    /// # Errors
    /// `AlreadyExists` if the new name is taken, or any other error of the system call.
    pub fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        {
            use rustix::fs::{RenameFlags, renameat_with};
            let (from, to) = (OsStr::from_bytes(from), OsStr::from_bytes(to));
            match renameat_with(&self.0, from, &self.0, to, RenameFlags::NOREPLACE) {
                Err(error) if is_unsupported(error) => {}
                result => return Ok(result?),
            }
        }
        self.link_new(from, to)
    }

    pub(super) fn link_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let (from_name, to) = (OsStr::from_bytes(from), OsStr::from_bytes(to));
        rustix::fs::linkat(&self.0, from_name, &self.0, to, AtFlags::empty())?;
        self.remove(from)
    }

    /// Removes a name other than a directory's.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn remove(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.0,
            OsStr::from_bytes(name),
            AtFlags::empty(),
        )?)
    }

    /// Makes the names in the directory durable.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(&self.0) {
            // File systems that need no synchronisation of directories refuse it.
            Err(error) if is_unsupported(error) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Checks whether files may be created here.
    ///
    /// # Errors
    /// `PermissionDenied` or `ReadOnlyFilesystem` if not.
    pub fn check_writable(&self) -> io::Result<()> {
        let access = Access::WRITE_OK | Access::EXEC_OK;
        match rustix::fs::accessat(&self.0, ".", access, AtFlags::EACCESS) {
            // The kernel can't check for the effective user; opening the file will show it.
            Err(error) if is_unsupported(error) => Ok(()),
            result => Ok(result?),
        }
    }
}

/// Attributes of an open file.
///
/// # Errors
/// Any error of the system call.
pub fn meta(file: &File) -> io::Result<Meta> {
    Ok(meta_from(&rustix::fs::fstat(file)?))
}

/// Attributes of the entry at a path, by one call; with `follow`, of a symbolic link's target.
///
/// # Errors
/// Any error of the system call.
pub fn meta_at(path: &Path, follow: bool) -> io::Result<Meta> {
    let stat = match follow {
        true => rustix::fs::stat(path)?,
        false => rustix::fs::lstat(path)?,
    };
    Ok(meta_from(&stat))
}

/// Whether a file belongs to the user of the process.
#[must_use]
pub fn is_ours(meta: &Meta) -> bool {
    meta.owner == Some(rustix::process::geteuid().as_raw())
}

/// Permission bits of a new file under the umask (0666 without a umask).
#[must_use]
pub fn default_mode() -> u32 {
    masked(0o666)
}

/// Permission bits under the umask of the process.
#[must_use]
pub fn masked(mode: u32) -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    mode & !*UMASK.get_or_init(umask)
}

fn umask() -> u32 {
    // The only way to read it without changing it briefly; Linux only.
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        if let Some(mask) = line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()) {
            return mask;
        }
    }
    // A file created concurrently by another thread gets fewer permissions, never more.
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(mask);
    number(mask.bits())
}

/// Sets the permission bits of a file.
///
/// # Errors
/// Any error of the system call.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))
}

/// Reads at an offset; 0 is the end of the file.
///
/// # Errors
/// Any error of the system call; never `Interrupted`.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buf, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Writes all bytes of `bufs` in sequence, starting at `offset`.
///
/// # Errors
/// Any error of the system call; some of the bytes may have been written.
pub fn write_all_at(file: &File, bufs: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    let mut bufs = bufs;
    // Bytes of the first buffer already written.
    let mut done = 0;
    while let Some(first) = bufs.first() {
        if first.len() == done {
            bufs = &bufs[1..];
            done = 0;
            continue;
        }
        let result = if done == 0 {
            rustix::io::pwritev(file, &bufs[..bufs.len().min(BUFFERS_MAX)], offset)
        } else {
            rustix::io::pwrite(file, &first[done..], offset)
        };
        let written = match result {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        offset += written as u64;
        done += written;
        while let Some(first) = bufs.first().filter(|first| first.len() <= done) {
            done -= first.len();
            bufs = &bufs[1..];
        }
    }
    Ok(())
}

/// Reserves storage for the first `length` bytes without changing the length of the file. Does
/// nothing where the file system does not support it.
///
/// # Errors
/// `StorageFull` and the like, or any other error of the system call.
pub fn preallocate(file: &File, length: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if length > 0 {
        use rustix::fs::{FallocateFlags, fallocate};
        loop {
            match fallocate(file, FallocateFlags::KEEP_SIZE, 0, length) {
                Err(Errno::INTR) => {}
                Err(error) if is_unsupported(error) => return Ok(()),
                result => return Ok(result?),
            }
        }
    }
    let _ = (file, length);
    Ok(())
}

/// Zeroes a range and releases its storage.
///
/// # Errors
/// `Unsupported` where the file system or the system does not support it, or any other error of the
/// system call.
pub fn punch_hole(file: &File, offset: u64, length: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if length > 0 {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(file, flags, offset, length) {
                Err(Errno::INTR) => {}
                Err(error) if is_unsupported(error) => break,
                result => return Ok(result?),
            }
        }
    }
    let _ = (file, offset, length);
    Err(io::ErrorKind::Unsupported.into())
}

/// Reopens the file to write it by direct I/O, with offsets, lengths and addresses that are
/// multiples of [`DIRECT_ALIGNMENT`](super::DIRECT_ALIGNMENT). `None` where the file system or the
/// system does not support it.
#[must_use]
pub fn open_direct(file: &File) -> Option<File> {
    #[cfg(target_os = "linux")]
    return super::linux::open_direct(file, OFlags::WRONLY).ok();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

/// The same to read it.
#[must_use]
pub fn open_direct_to_read(file: &File) -> Option<File> {
    #[cfg(target_os = "linux")]
    return super::linux::open_direct(file, OFlags::RDONLY).ok();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

/// The bytes of a range that are in the page cache, in whole pages. `None` if the system can't
/// tell.
#[must_use]
pub fn cached_bytes(file: &File, offset: u64, length: u64) -> Option<u64> {
    #[cfg(target_os = "linux")]
    return super::linux::cached_bytes(file, offset, length);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, offset, length);
        None
    }
}

/// Starts the write-back of a range without waiting. A hint.
pub fn begin_write_back(file: &File, offset: u64, length: u64) {
    #[cfg(target_os = "linux")]
    super::linux::begin_write_back(file, offset, length);
    let _ = (file, offset, length);
}

/// The storage of an open file's file system.
#[must_use]
pub fn storage_of(file: &File) -> Storage {
    #[cfg(target_os = "linux")]
    if let Ok(system) = rustix::fs::fstatfs(file) {
        /// ext2 to ext4, XFS, Btrfs, F2FS, bcachefs.
        const EXTENTS: [u64; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0xCA45_1A4E];
        /// tmpfs, ramfs.
        const MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];
        // Some systems sign-extend the number.
        let magic = number::<_, u64>(system.f_type) & 0xFFFF_FFFF;
        if EXTENTS.contains(&magic) {
            return Storage::Extents;
        }
        if MEMORY.contains(&magic) {
            return Storage::Memory;
        }
    }
    let _ = file;
    Storage::Other
}

/// Bytes that this user may still write to the file system of an open file; `None` if there is no
/// limit or it is unknown.
#[must_use]
pub fn space_left(file: &File) -> Option<u64> {
    let system = rustix::fs::fstatvfs(file).ok()?;
    (system.f_blocks > 0).then(|| system.f_bavail.saturating_mul(system.f_frsize))
}

/// The first range of data at or after `offset`, as start and end; `None` if only a hole is left.
/// File systems without holes report everything as data.
///
/// # Errors
/// Any error of the system call.
pub fn next_extent(file: &File, offset: u64) -> io::Result<Option<(u64, u64)>> {
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd"))]
    {
        use rustix::fs::{SeekFrom, seek};
        match seek(file, SeekFrom::Data(offset)) {
            Ok(start) => match seek(file, SeekFrom::Hole(start)) {
                Ok(end) if end > start => return Ok(Some((start, end))),
                // Truncated in between; the caller notices when it reads.
                Ok(_) | Err(Errno::NXIO) => return Ok(None),
                Err(error) => return Err(error.into()),
            },
            Err(Errno::NXIO) => return Ok(None),
            Err(error) if is_unsupported(error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let length = meta(file)?.length;
    Ok((offset < length).then_some((offset, length)))
}

/// Announces that the file will be read in order. A hint.
pub fn advise_sequential(file: &File) {
    #[cfg(any(target_os = "linux", target_os = "freebsd"))]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Sequential);
    let _ = file;
}

/// Announces that a range will be read soon. A hint.
pub fn advise_will_need(file: &File, offset: u64, length: u64) {
    #[cfg(any(target_os = "linux", target_os = "freebsd"))]
    if let Some(length) = std::num::NonZeroU64::new(length) {
        let _ = rustix::fs::fadvise(file, offset, Some(length), rustix::fs::Advice::WillNeed);
    }
    let _ = (file, offset, length);
}
