//! Resolution beneath a directory without kernel support: component by component, each opened
//! relative to the previous one, so that no race can lead out. Stricter than `openat2`: symbolic
//! links and `..` are refused even where they would stay inside.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::ResolveError;

/// Flags for directories on the path: search-only where the system supports it.
#[cfg(target_os = "linux")]
const ON_THE_WAY: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const ON_THE_WAY: OFlags = OFlags::RDONLY;

/// Opens `path` beneath `root` with `flags`.
pub(super) fn open_beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, ResolveError> {
    let mut components = path
        .split(|&b| b == b'/')
        .filter(|c| !c.is_empty() && *c != b".");
    let mut dir: Option<OwnedFd> = None;
    let mut next = components.next();
    let Some(mut component) = next.take() else {
        return rustix::fs::openat(root, ".", flags, Mode::empty()).map_err(io_error);
    };
    loop {
        if component == b".." {
            return Err(ResolveError::Escapes("'..' is not allowed on this system"));
        }
        let at = dir.as_ref().map_or(root, |d| d.as_fd());
        let following = components.next();
        let how = match following {
            Some(_) => ON_THE_WAY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            None => flags,
        };
        let name = OsStr::from_bytes(component);
        let opened = match rustix::fs::openat(at, name, how | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(opened) => opened,
            Err(error) => return Err(refusal(at, name, error)),
        };
        match following {
            None => return Ok(opened),
            Some(name) => {
                dir = Some(opened);
                component = name;
            }
        }
    }
}

/// Distinguishes a link that isn't followed from other errors, since systems return various codes.
fn refusal(at: BorrowedFd<'_>, name: &OsStr, error: Errno) -> ResolveError {
    let is_link = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Symlink);
    if is_link {
        return ResolveError::Escapes("symbolic links are not followed on this system");
    }
    io_error(error)
}

fn io_error(error: Errno) -> ResolveError {
    ResolveError::Io(error.into())
}
