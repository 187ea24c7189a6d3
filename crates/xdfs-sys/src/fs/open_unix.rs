//! Opening resolved entries for access in place, including pipes without waiting.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};

use super::convert_unix::mode_of;
use super::unix::Dir;
use super::{Handle, OpenMode};

/// Flags for the system call; never blocks on a pipe.
fn flags(open_mode: OpenMode) -> OFlags {
    let access = match (open_mode.read, open_mode.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    let always = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if open_mode.append {
        access | always | OFlags::APPEND
    } else {
        access | always
    }
}

impl Handle {
    /// Opens it. To be used for regular files and pipes only: opening other kinds can have side
    /// effects. Opening a pipe does not wait for its other end, nor do reads and writes wait.
    ///
    /// # Errors
    /// Any error of the system call. For a pipe without a reader, opened for writing,
    /// [`is_without_reader`] is true of the error.
    pub fn open(&self, open_mode: OpenMode) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        let link = super::linux::link_of(&self.0);
        // The other systems have a file system of descriptors.
        #[cfg(not(target_os = "linux"))]
        let link = {
            use std::os::fd::AsRawFd;
            format!("/dev/fd/{}", self.0.as_raw_fd())
        };
        Ok(rustix::fs::openat(CWD, link, flags(open_mode), Mode::empty())?.into())
    }
}

impl Dir {
    /// Creates and opens a file. With `mode` it gets exactly these permission bits, otherwise the
    /// default under the umask.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, or any other error of the system call.
    pub fn create(&self, name: &[u8], open_mode: OpenMode, mode: Option<u32>) -> io::Result<File> {
        let flags = flags(open_mode) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let made_as = if mode.is_some() { 0o600 } else { 0o666 };
        let name = OsStr::from_bytes(name);
        let file = rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(made_as))?;
        if let Some(mode) = mode {
            let set = rustix::fs::fchmod(&file, mode_of(mode));
            if let Err(error) = set {
                let _ = self.remove(name.as_bytes());
                return Err(error.into());
            }
        }
        Ok(file.into())
    }
}

/// Whether an error of opening a pipe for writing means that it has no reader.
#[must_use]
pub fn is_without_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

/// Whether a pipe open for reading had a writer and has none any more. False where the system can't
/// distinguish this from a pipe that never had one.
#[must_use]
pub fn has_hung_up(pipe: &File) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    cfg!(target_os = "linux")
        && poll(&mut asked, Some(&at_once)).is_ok()
        && asked[0].revents().contains(PollFlags::HUP)
}
