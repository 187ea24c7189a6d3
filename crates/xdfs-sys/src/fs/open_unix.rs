//! Opening what was found, to work on it in place, and pipes that nobody waits for.

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

/// The flags of the system; never blocks on a pipe.
fn flags(how: OpenMode) -> OFlags {
    let access = match (how.read, how.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    let always = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if how.append {
        access | always | OFlags::APPEND
    } else {
        access | always
    }
}

impl Handle {
    /// Opens it. To be asked of a regular file or a pipe only: opening something else can have
    /// consequences. A pipe is opened without waiting for whom it is opened for, and reads and
    /// writes of it don't wait.
    ///
    /// # Errors
    /// What the system says; of a pipe that is opened for writing and that nobody reads an error
    /// for which [`is_without_reader`] is true.
    pub fn open(&self, how: OpenMode) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        let link = super::linux::link_of(&self.0);
        // The other systems have the descriptors in a file system of their own.
        #[cfg(not(target_os = "linux"))]
        let link = {
            use std::os::fd::AsRawFd;
            format!("/dev/fd/{}", self.0.as_raw_fd())
        };
        Ok(rustix::fs::openat(CWD, link, flags(how), Mode::empty())?.into())
    }
}

impl Dir {
    /// Makes a file and opens it. With `mode` it has exactly these permission bits, else those that
    /// the rules of the process give.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name, else what the system says.
    pub fn create(&self, name: &[u8], how: OpenMode, mode: Option<u32>) -> io::Result<File> {
        let flags = flags(how) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
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

/// Whether an error says that nobody reads the pipe which was to be opened for writing.
#[must_use]
pub fn is_without_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

/// Whether somebody wrote to a pipe that is open for reading, and nobody does any more. Where the
/// system doesn't tell that from a pipe that nobody has opened yet, false.
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
