//! What only Linux has: resolution beneath a directory by the kernel, and early write-back.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags, SeekFrom};
use rustix::io::Errno;

use super::names_unix::{EachName, listed_kind};
use super::{ResolveError, walk};

/// Bytes of names that are asked for at once.
const NAMES_BYTES: usize = 32 << 10;

/// How often a resolution that a rename elsewhere disturbed is begun again.
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
            // A rename or a mount at the same time: the kernel couldn't prove where `..` leads.
            Err(Errno::AGAIN | Errno::INTR) if attempt < ATTEMPTS => {
                attempt += 1;
                continue;
            }
            // An old kernel, or a sandbox that doesn't know the call.
            Err(Errno::NOSYS | Errno::PERM) => walk::open_beneath(root, path, flags),
            Err(error) => Err(ResolveError::Io(error.into())),
        };
    }
}

/// Starts the write-back of a range and doesn't wait. Failures show at the next `fsync`.
pub(super) fn begin_write_back(file: &std::fs::File, offset: u64, length: u64) {
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

/// Opens the same file once more for writing past the page cache.
pub(super) fn open_direct(file: &std::fs::File) -> std::io::Result<std::fs::File> {
    let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(rustix::fs::open(link_of(file), flags, Mode::empty())?.into())
}

/// A path that leads to the very file that is open, whatever happened to its name.
pub(super) fn link_of(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Opens a directory in another, unless it is a link or something is mounted there.
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
            // A link, as the other calls say it.
            Err(Errno::LOOP) => return Err(Errno::NOTDIR),
            result => return result,
        }
    }
}

/// Goes through the names of a directory from a position on.
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
            // The directory itself was removed.
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

/// Whether positions in a directory last on its file system: they do where they come from what is
/// on the disk or from a server, and not where the kernel numbers what it found.
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
