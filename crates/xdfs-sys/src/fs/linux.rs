//! Linux only: resolution beneath a directory by the kernel, and early write-back.

use std::ffi::OsStr;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, ResolveFlags, SeekFrom};
use rustix::io::Errno;

use super::convert_unix::{is_unsupported, listed_kind};
use super::{EachName, ResolveError, SyncKind, Xattr, walk};

/// Size of the buffer for directory entries.
const NAMES_BYTES: usize = 32 << 10;

/// Attempts at a resolution disturbed by concurrent renames.
const ATTEMPTS: u32 = 128;

/// Opens `path` beneath `root` with `flags`. Symbolic links are followed as long as they stay
/// beneath; the links of `/proc` never.
pub(super) fn open_beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, ResolveError> {
    let name = if path.is_empty() {
        OsStr::new(".")
    } else {
        OsStr::from_bytes(path)
    };
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut attempt = 0;
    loop {
        return match rustix::fs::openat2(root, name, flags, Mode::empty(), beneath) {
            Ok(opened) => Ok(opened),
            Err(Errno::XDEV) => Err(ResolveError::Escapes("the path leaves the root")),
            Err(Errno::LOOP) => Err(ResolveError::Escapes(
                "too many symbolic links, or one whose end can't be known to lie beneath the root",
            )),
            // Because of a concurrent rename or mount, the kernel couldn't prove where `..` leads.
            Err(Errno::AGAIN | Errno::INTR) if attempt < ATTEMPTS => {
                attempt += 1;
                continue;
            }
            // An old kernel, or a sandbox that forbids the call.
            Err(Errno::NOSYS | Errno::PERM) => walk::open_beneath(root, path, flags),
            Err(error) => Err(ResolveError::Io(error.into())),
        };
    }
}

/// Opens `path` beneath `root` with `flags`, without following symbolic links.
pub(super) fn open_without_links(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, ResolveError> {
    let name = if path.is_empty() { b"." } else { path };
    let name = OsStr::from_bytes(name);
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let mut attempt = 0;
    loop {
        return match rustix::fs::openat2(root, name, flags, Mode::empty(), how) {
            Ok(opened) => Ok(opened),
            Err(Errno::XDEV) => Err(ResolveError::Escapes("the path leaves the root")),
            Err(Errno::LOOP) => Err(ResolveError::Escapes("the path contains a symbolic link")),
            Err(Errno::AGAIN | Errno::INTR) if attempt < ATTEMPTS => {
                attempt += 1;
                continue;
            }
            Err(Errno::NOSYS | Errno::PERM) => walk::open_beneath(root, path, flags),
            Err(error) => Err(ResolveError::Io(error.into())),
        };
    }
}

/// Creates a file without a name.
pub(super) fn create_nameless(dir: BorrowedFd<'_>, mode: Mode) -> std::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, ".", flags, mode) {
        // Returned by kernels that interpret the flag differently.
        Err(Errno::ISDIR) => Err(std::io::ErrorKind::Unsupported.into()),
        Err(error) if is_unsupported(error) => Err(std::io::ErrorKind::Unsupported.into()),
        result => Ok(result?.into()),
    }
}

/// Names a file without a name. The direct call is allowed to the opener of the file, on kernels
/// before 6.10 only with a privilege; the call through `/proc` requires that to be mounted.
pub(super) fn give_name(dir: BorrowedFd<'_>, file: &File, name: &[u8]) -> std::io::Result<()> {
    static IS_DIRECT: AtomicBool = AtomicBool::new(true);
    let name = OsStr::from_bytes(name);
    if IS_DIRECT.load(Ordering::Relaxed) {
        match rustix::fs::linkat(file, "", dir, name, AtFlags::EMPTY_PATH) {
            // Also returned if the directory was removed, which the other call shows.
            Err(Errno::NOENT | Errno::INVAL | Errno::PERM) => {}
            result => return Ok(result?),
        }
    }
    let link = link_of(file);
    match rustix::fs::linkat(CWD, link, dir, name, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => {
            IS_DIRECT.store(false, Ordering::Relaxed);
            Ok(())
        }
        Err(Errno::NOENT | Errno::PERM | Errno::XDEV | Errno::LOOP) => {
            Err(std::io::ErrorKind::Unsupported.into())
        }
        Err(error) if is_unsupported(error) => Err(std::io::ErrorKind::Unsupported.into()),
        Err(error) => Err(error.into()),
    }
}

/// The extended attributes of a file whose names satisfy `wanted`.
pub(super) fn xattrs(file: &File, wanted: &dyn Fn(&[u8]) -> bool) -> std::io::Result<Vec<Xattr>> {
    /// The kernel's limit for a list of names, and for a value.
    const BYTES_MAX: usize = 64 << 10;
    let query = match rustix::fs::flistxattr_query(file) {
        Err(error) if is_unsupported(error) => 0,
        result => result?,
    };
    if query == 0 {
        return Ok(Vec::new());
    }
    let mut names = vec![0; BYTES_MAX];
    let length = rustix::fs::flistxattr(file, &mut names[..])?;
    names.truncate(length);
    let mut value = vec![0; BYTES_MAX];
    let mut found = Vec::new();
    for name in names.split(|&b| b == 0) {
        if name.is_empty() || !wanted(name) {
            continue;
        }
        match rustix::fs::fgetxattr(file, OsStr::from_bytes(name), &mut value[..]) {
            Ok(length) => found.push((name.to_vec(), value[..length].to_vec())),
            // It was removed concurrently, or is not visible to this user.
            Err(Errno::NODATA) => {}
            Err(error) if is_unsupported(error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Starts the write-back of a range without waiting. Failures are reported by the next `fsync`.
pub(super) fn begin_write_back(file: &File, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
        return;
    };
    // SAFETY: the call takes integers only; the descriptor is open while `file` is borrowed.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            offset,
            length,
            libc::SYNC_FILE_RANGE_WRITE,
        );
    }
}

/// Reopens the file for direct I/O, to write it or to read it.
pub(super) fn open_direct(file: &File, access: OFlags) -> std::io::Result<File> {
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(rustix::fs::open(link_of(file), flags, Mode::empty())?.into())
}

/// The bytes of a range in the page cache, in whole pages, by `cachestat`. `None` where the kernel
/// has no such call (before 6.5) or forbids it for this file.
pub(super) fn cached_bytes(file: &File, offset: u64, length: u64) -> Option<u64> {
    /// The number of the call, the same for all processors.
    const CACHESTAT: libc::c_long = 451;
    let range = [offset, length];
    // Cached, dirty, in write-back, evicted, recently evicted.
    let mut pages = [0_u64; 5];
    // SAFETY: the call reads two numbers of 64 bits and writes five; both arrays outlive it.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            pages.as_mut_ptr(),
            0,
        )
    };
    (result == 0).then(|| pages[0].saturating_mul(rustix::param::page_size() as u64))
}

/// A path that leads to the open file, whatever happened to its name.
pub(super) fn link_of(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Opens a subdirectory, unless it is a link or a mount point.
pub(super) fn open_child(
    dir: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let here = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let name = OsStr::from_bytes(name);
    let mut attempt = 0;
    loop {
        match rustix::fs::openat2(dir, name, flags, Mode::empty(), here) {
            Err(Errno::AGAIN | Errno::INTR) if attempt < ATTEMPTS => attempt += 1,
            // A link, with the error code of the other calls.
            Err(Errno::LOOP) => return Err(Errno::NOTDIR),
            result => return result,
        }
    }
}

/// Lists the names of a directory from a position on.
pub(super) fn each_name(
    dir: BorrowedFd<'_>,
    position: Option<u64>,
    each: &mut EachName<'_>,
) -> std::io::Result<()> {
    rustix::fs::seek(dir, SeekFrom::Start(position.unwrap_or(0)))?;
    let mut buf = [MaybeUninit::uninit(); NAMES_BYTES];
    let mut names = RawDir::new(dir, &mut buf);
    while let Some(entry) = names.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Errno::INTR) => continue,
            // The directory was removed.
            Err(Errno::NOENT) => break,
            Err(error) => return Err(error.into()),
        };
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            let kind = listed_kind(entry.file_type());
            if each(name, kind, Some(entry.next_entry_cookie())).is_break() {
                break;
            }
        }
    }
    Ok(())
}

/// How writes in a directory are made durable.
pub(super) fn sync_kind(dir: BorrowedFd<'_>) -> SyncKind {
    /// ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, and overlayfs, which passes the call on.
    const WHOLE: [u64; 6] = [
        0xEF53,
        0x5846_5342,
        0x9123_683E,
        0xF2F5_2010,
        0xCA45_1A4E,
        0x794C_7630,
    ];
    /// tmpfs, ramfs.
    const MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];
    let magic = rustix::fs::fstatfs(dir)
        .ok()
        .and_then(|system| u64::try_from(system.f_type).ok())
        .map(|magic| magic & 0xFFFF_FFFF);
    match magic {
        Some(magic) if WHOLE.contains(&magic) => SyncKind::Whole,
        Some(magic) if MEMORY.contains(&magic) => SyncKind::Needless,
        _ => SyncKind::Each,
    }
}

/// Whether positions in directories of this file system are stable: they are if they come from the
/// disk or a server, and not if the kernel numbers the entries.
pub(super) fn has_lasting_positions(dir: BorrowedFd<'_>) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, NFS.
    const LASTING: [u64; 6] = [
        0xEF53,
        0x5846_5342,
        0x9123_683E,
        0xF2F5_2010,
        0xCA45_1A4E,
        0x6969,
    ];
    let system = rustix::fs::fstatfs(dir);
    system.is_ok_and(|system| {
        u64::try_from(system.f_type).is_ok_and(|magic| LASTING.contains(&(magic & 0xFFFF_FFFF)))
    })
}
