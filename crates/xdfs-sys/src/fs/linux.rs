//! What only Linux has: resolution beneath a directory by the kernel, and early write-back.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{ResolveError, walk};

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
    // The link leads to the very file that is open, whatever happened to its name.
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(rustix::fs::open(link, flags, Mode::empty())?.into())
}
