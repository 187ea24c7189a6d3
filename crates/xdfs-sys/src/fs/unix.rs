//! The file system calls on Unix.

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

/// Never blocks on a pipe or a device, and makes no terminal the controlling one.
pub(super) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// More buffers than this are written by several calls (the least that systems allow is 1024).
const BUFFERS_MAX: usize = 1024;

/// The path that `bytes` spell: on Unix any bytes without a zero.
///
/// # Errors
/// `InvalidInput` for a zero byte.
pub fn path_from_bytes(bytes: &[u8]) -> io::Result<PathBuf> {
    if bytes.contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path has a zero byte",
        ));
    }
    Ok(PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec())))
}

/// Opens whatever `path` names for reading, by the ordinary rules, without waiting for a writer
/// if it is a pipe.
///
/// # Errors
/// What the system says.
pub fn open_for_reading(path: &Path) -> io::Result<File> {
    Ok(rustix::fs::openat(CWD, path, READ, Mode::empty())?.into())
}

/// An open directory, in which names are resolved whatever happens to the path that led to it.
#[derive(Debug)]
pub struct Dir(pub(super) OwnedFd);

impl Dir {
    /// Opens a directory by the ordinary rules.
    ///
    /// # Errors
    /// What the system says.
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

    /// Opens a directory beneath this one; an empty path is this one.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, else what the system says.
    pub fn open_dir_beneath(&self, path: &[u8]) -> Result<Self, ResolveError> {
        open_beneath(self.0.as_fd(), path, DIRECTORY).map(Self)
    }

    /// Opens whatever `path` names beneath this directory for reading, without waiting for a
    /// writer if it is a pipe.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, else what the system says.
    pub fn open_for_reading_beneath(&self, path: &[u8]) -> Result<File, ResolveError> {
        open_beneath(self.0.as_fd(), path, READ).map(File::from)
    }

    /// Creates a file that only its owner may read and write, open for both.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name, else what the system says.
    pub fn create_new(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        self.open_with(name, flags)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// What the system says; also for a symbolic link.
    pub fn open_existing(&self, name: &[u8]) -> io::Result<File> {
        self.open_with(name, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK)
    }

    fn open_with(&self, name: &[u8], flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(&self.0, OsStr::from_bytes(name), flags, mode)?.into())
    }

    /// What has this name, a symbolic link itself included; `None` if nothing has.
    ///
    /// # Errors
    /// What the system says.
    pub fn meta_of(&self, name: &[u8]) -> io::Result<Option<Meta>> {
        match rustix::fs::statat(&self.0, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(meta_from(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames within the directory and replaces what has the new name.
    ///
    /// # Errors
    /// What the system says.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let (from, to) = (OsStr::from_bytes(from), OsStr::from_bytes(to));
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Renames within the directory unless something has the new name. Atomic; where the file
    /// system can't rename so, the file gets the new name before it loses the old one.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the new name, else what the system says.
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

    /// Removes a name that isn't a directory's.
    ///
    /// # Errors
    /// What the system says.
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
    /// What the system says.
    pub fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(&self.0) {
            // File systems that need no such call refuse it.
            Err(error) if is_unsupported(error) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Asks whether files may be made here.
    ///
    /// # Errors
    /// `PermissionDenied` or `ReadOnlyFilesystem` if not.
    pub fn check_writable(&self) -> io::Result<()> {
        let access = Access::WRITE_OK | Access::EXEC_OK;
        match rustix::fs::accessat(&self.0, ".", access, AtFlags::EACCESS) {
            // A kernel that can't ask for the effective user: the open will tell.
            Err(error) if is_unsupported(error) => Ok(()),
            result => Ok(result?),
        }
    }
}

/// What the system knows of an open file.
///
/// # Errors
/// What the system says.
pub fn meta(file: &File) -> io::Result<Meta> {
    Ok(meta_from(&rustix::fs::fstat(file)?))
}

/// What the system knows of what stands under a path, by one call; with `follow` of what a symbolic
/// link leads to.
///
/// # Errors
/// What the system says.
pub fn meta_at(path: &Path, follow: bool) -> io::Result<Meta> {
    let stat = match follow {
        true => rustix::fs::stat(path)?,
        false => rustix::fs::lstat(path)?,
    };
    Ok(meta_from(&stat))
}

/// Whether a file belongs to the user whom this process acts for.
#[must_use]
pub fn is_ours(meta: &Meta) -> bool {
    meta.owner == Some(rustix::process::geteuid().as_raw())
}

/// Permission bits that a new file gets by the rules of the process (0666 without the umask).
#[must_use]
pub fn default_mode() -> u32 {
    masked(0o666)
}

/// What the rules of the process (the umask) leave of permission bits.
#[must_use]
pub fn masked(mode: u32) -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    mode & !*UMASK.get_or_init(umask)
}

fn umask() -> u32 {
    // The one way to read it that doesn't change it for a moment; Linux only.
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        if let Some(mask) = line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()) {
            return mask;
        }
    }
    // A file that another thread makes at this moment gets fewer permissions, never more.
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(mask);
    number(mask.bits())
}

/// Sets the permission bits of a file.
///
/// # Errors
/// What the system says.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))
}

/// Reads at an offset; 0 is the end of the file.
///
/// # Errors
/// What the system says; never `Interrupted`.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buf, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Writes all bytes of `bufs` one after the other from `offset` on.
///
/// # Errors
/// What the system says; part of the bytes may be written then.
pub fn write_all_at(file: &File, bufs: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    let mut bufs = bufs;
    // Bytes of the first buffer that are written already.
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

/// Reserves storage for the first `length` bytes and doesn't change the length of the file.
/// Does nothing where the file system can't.
///
/// # Errors
/// `StorageFull` and its like; what the system says.
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

/// Makes a range read as zeros and gives its storage back.
///
/// # Errors
/// `Unsupported` where the file system or the system can't, else what the system says.
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

/// Opens the same file once more for writes past the page cache, whose offsets, lengths and
/// addresses must be multiples of [`DIRECT_ALIGNMENT`](super::DIRECT_ALIGNMENT). `None` where the
/// file system or the system has no such writes.
#[must_use]
pub fn open_direct(file: &File) -> Option<File> {
    #[cfg(target_os = "linux")]
    return super::linux::open_direct(file).ok();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

/// Starts to write a range back to the disk without waiting. A hint.
pub fn begin_write_back(file: &File, offset: u64, length: u64) {
    #[cfg(target_os = "linux")]
    super::linux::begin_write_back(file, offset, length);
    let _ = (file, offset, length);
}

/// How the file system of an open file stores it.
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

/// Bytes that this user may still write on the file system of an open file; `None` where the
/// system sets no bound or doesn't tell.
#[must_use]
pub fn space_left(file: &File) -> Option<u64> {
    let system = rustix::fs::fstatvfs(file).ok()?;
    (system.f_blocks > 0).then(|| system.f_bavail.saturating_mul(system.f_frsize))
}

/// The first stretch of data at or after `offset`, as start and end; `None` if only a hole is
/// left. A file system that knows no holes says that all is data.
///
/// # Errors
/// What the system says.
pub fn next_extent(file: &File, offset: u64) -> io::Result<Option<(u64, u64)>> {
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd"))]
    {
        use rustix::fs::{SeekFrom, seek};
        match seek(file, SeekFrom::Data(offset)) {
            Ok(start) => match seek(file, SeekFrom::Hole(start)) {
                Ok(end) if end > start => return Ok(Some((start, end))),
                // Truncated in between; the caller finds out when it reads.
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

/// Tells the system that the file will be read from front to back. A hint.
pub fn advise_sequential(file: &File) {
    #[cfg(any(target_os = "linux", target_os = "freebsd"))]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Sequential);
    let _ = file;
}

/// Tells the system that a range will be read soon. A hint.
pub fn advise_will_need(file: &File, offset: u64, length: u64) {
    #[cfg(any(target_os = "linux", target_os = "freebsd"))]
    if let Some(length) = std::num::NonZeroU64::new(length) {
        let _ = rustix::fs::fadvise(file, offset, Some(length), rustix::fs::Advice::WillNeed);
    }
    let _ = (file, offset, length);
}
