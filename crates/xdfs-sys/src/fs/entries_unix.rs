//! The calls by which the entries of a tree are made and read, each with as few steps as the
//! system allows: whole trees are moved by them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags};

use super::convert_unix::{mode_of, owner, timestamps};
use super::names_unix::{ENTER, FIND, Handle};
use super::unix::{Dir, READ};
use super::{ResolveError, SyncKind, Xattr};

impl Dir {
    /// Opens a directory beneath this one, to look names up in it, if no symbolic link stands on
    /// the way; an empty path is this one.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] for a link or a path that leads out, else what the system says.
    pub fn enter_without_links(&self, path: &[u8]) -> Result<Self, ResolveError> {
        #[cfg(target_os = "linux")]
        let opened = super::linux::open_without_links(self.0.as_fd(), path, ENTER);
        #[cfg(not(target_os = "linux"))]
        let opened = super::walk::open_beneath(self.0.as_fd(), path, ENTER);
        opened.map(Self)
    }

    /// Opens what has the name for reading, without waiting for a writer if it is a pipe.
    ///
    /// # Errors
    /// What the system says; also for a symbolic link.
    pub fn open_name(&self, name: &[u8]) -> io::Result<File> {
        let flags = READ | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.0, OsStr::from_bytes(name), flags, Mode::empty())?.into())
    }

    /// Finds what has the name, a symbolic link itself included.
    ///
    /// # Errors
    /// What the system says; also for a symbolic link where the system can't hold one.
    pub fn find_name(&self, name: &[u8]) -> io::Result<Handle> {
        let flags = FIND | OFlags::NOFOLLOW;
        let found = rustix::fs::openat(&self.0, OsStr::from_bytes(name), flags, Mode::empty())?;
        Ok(Handle(found))
    }

    /// Makes a file without a name, open for writing, which vanishes unless
    /// [`give_name`](Self::give_name) gives it one. Its permission bits are those of `mode` that
    /// the rules of the process leave.
    ///
    /// # Errors
    /// `Unsupported` where there are no such files, else what the system says.
    pub fn create_nameless(&self, mode: u32) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        return super::linux::create_nameless(self.0.as_fd(), mode_of(mode));
        #[cfg(not(target_os = "linux"))]
        {
            let _ = mode;
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Gives a file without a name one in this directory, in one step.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name; `Unsupported` where no file can get one so, else
    /// what the system says.
    pub fn give_name(&self, file: &File, name: &[u8]) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        return super::linux::give_name(self.0.as_fd(), file, name);
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (file, name);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// How what is written in this directory is made durable.
    #[must_use]
    pub fn sync_kind(&self) -> SyncKind {
        #[cfg(target_os = "linux")]
        return super::linux::sync_kind(self.0.as_fd());
        #[cfg(not(target_os = "linux"))]
        SyncKind::Each
    }

    /// Opens this directory once more, so that it can be listed and made durable.
    ///
    /// # Errors
    /// What the system says; `PermissionDenied` if it may not be read.
    pub fn reopen(&self) -> io::Result<File> {
        let flags = READ | OFlags::DIRECTORY;
        Ok(rustix::fs::openat(&self.0, ".", flags, Mode::empty())?.into())
    }

    /// Where it stands by the rules of this process, if the system tells.
    #[must_use]
    pub fn real_path(&self) -> Option<Vec<u8>> {
        real_path(&self.0)
    }

    /// Makes a directory with those bits of `mode` that the rules of the process leave.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name, else what the system says.
    pub fn make_dir_masked(&self, name: &[u8], mode: u32) -> io::Result<()> {
        let name = OsStr::from_bytes(name);
        Ok(rustix::fs::mkdirat(&self.0, name, mode_of(mode))?)
    }

    /// Makes a named pipe with those bits of `mode` that the rules of the process leave.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name, `Unsupported` where the system has no such call,
    /// else what the system says.
    pub fn make_pipe(&self, name: &[u8], mode: u32) -> io::Result<()> {
        #[cfg(not(target_os = "macos"))]
        {
            use rustix::fs::{FileType, mknodat};
            let name = OsStr::from_bytes(name);
            Ok(mknodat(&self.0, name, FileType::Fifo, mode_of(mode), 0)?)
        }
        #[cfg(target_os = "macos")]
        {
            let _ = (name, mode);
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

impl Handle {
    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `Unsupported` where there are none, else what the system says.
    pub fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            let (link, name) = (super::linux::link_of(&self.0), OsStr::from_bytes(name));
            let flags = rustix::fs::XattrFlags::empty();
            Ok(rustix::fs::setxattr(link, name, value, flags)?)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (name, value);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Where it stands by the rules of this process, if the system tells.
    #[must_use]
    pub fn real_path(&self) -> Option<Vec<u8>> {
        real_path(&self.0)
    }

    /// Makes durable what was changed in the file system that holds it, by whomever. What couldn't
    /// be written before this call isn't an error: [`sync_file_system`] is for who has to know.
    ///
    /// # Errors
    /// `Unsupported` on other systems than Linux; `PermissionDenied` if it may not be read, else
    /// what the system says.
    pub fn sync_file_system(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            let link = super::linux::link_of(&self.0);
            let file = rustix::fs::open(link, READ, Mode::empty())?;
            Ok(rustix::fs::syncfs(file)?)
        }
        #[cfg(not(target_os = "linux"))]
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Makes durable what was changed in the file system of an open file, by whomever. It is an error
/// if something could not be written since the file was opened, or since this was last asked by it.
///
/// # Errors
/// `Unsupported` on other systems than Linux, else what the system says.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::fs::syncfs(file)?);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn real_path(file: &impl std::os::fd::AsRawFd) -> Option<Vec<u8>> {
    #[cfg(target_os = "linux")]
    {
        let path = std::fs::read_link(super::linux::link_of(file)).ok()?;
        Some(path.into_os_string().into_encoded_bytes())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

/// Reads from the present position on; 0 is the end of the file.
///
/// # Errors
/// What the system says; never `Interrupted`.
pub fn read(file: &File, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(file, &mut *buf) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Goes back to the start of a file.
///
/// # Errors
/// What the system says.
pub fn rewind(mut file: &File) -> io::Result<()> {
    file.rewind()
}

/// Sets times of a file, in nanoseconds since 1970. `None` leaves one as it is.
///
/// # Errors
/// What the system says.
pub fn set_times(file: &File, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> io::Result<()> {
    Ok(rustix::fs::futimens(file, &timestamps(atime_ns, mtime_ns))?)
}

/// Sets owner and group of a file. `None` leaves one as it is.
///
/// # Errors
/// `InvalidInput` for the number that means none, else what the system says.
pub fn set_owner(file: &File, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let (uid, gid) = owner(uid, gid)?;
    Ok(rustix::fs::fchown(file, uid, gid)?)
}

/// Sets an extended attribute of a file.
///
/// # Errors
/// `Unsupported` where there are none, else what the system says.
pub fn set_xattr(file: &File, name: &[u8], value: &[u8]) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let flags = rustix::fs::XattrFlags::empty();
        let name = OsStr::from_bytes(name);
        Ok(rustix::fs::fsetxattr(file, name, value, flags)?)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, name, value);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The extended attributes of a file whose names `wanted` takes; none where there are no such.
///
/// # Errors
/// What the system says.
pub fn xattrs(file: &File, wanted: &dyn Fn(&[u8]) -> bool) -> io::Result<Vec<Xattr>> {
    #[cfg(target_os = "linux")]
    return super::linux::xattrs(file, wanted);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, wanted);
        Ok(Vec::new())
    }
}
