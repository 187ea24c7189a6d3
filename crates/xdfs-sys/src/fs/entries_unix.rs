//! Calls to create and read the entries of a tree, each with as few steps as the system allows,
//! since they are used for whole trees.

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
    /// Opens a directory beneath this one for lookups, without following symbolic links; the empty
    /// path is this one.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if the path contains a link or leads out, or any other error of
    /// the system call.
    pub fn enter_without_links(&self, path: &[u8]) -> Result<Self, ResolveError> {
        #[cfg(target_os = "linux")]
        let opened = super::linux::open_without_links(self.0.as_fd(), path, ENTER);
        #[cfg(not(target_os = "linux"))]
        let opened = super::walk::open_beneath(self.0.as_fd(), path, ENTER);
        opened.map(Self)
    }

    /// Opens an entry for reading, without waiting for a writer if it is a pipe.
    ///
    /// # Errors
    /// Any error of the system call; also for a symbolic link.
    pub fn open_name(&self, name: &[u8]) -> io::Result<File> {
        let flags = READ | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.0, OsStr::from_bytes(name), flags, Mode::empty())?.into())
    }

    /// Resolves a name, without following a symbolic link.
    ///
    /// # Errors
    /// Any error of the system call; also for a symbolic link where the system has no handles for
    /// them.
    pub fn find_name(&self, name: &[u8]) -> io::Result<Handle> {
        let flags = FIND | OFlags::NOFOLLOW;
        let found = rustix::fs::openat(&self.0, OsStr::from_bytes(name), flags, Mode::empty())?;
        Ok(Handle(found))
    }

    /// Creates a file without a name, open for writing. It vanishes unless
    /// [`give_name`](Self::give_name) names it. Its permission bits are `mode` under the umask of
    /// the process.
    ///
    /// # Errors
    /// `Unsupported` where there are no such files, or any other error of the system call.
    pub fn create_nameless(&self, mode: u32) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        return super::linux::create_nameless(self.0.as_fd(), mode_of(mode));
        #[cfg(not(target_os = "linux"))]
        {
            let _ = mode;
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Atomically names a file without a name in this directory.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken; `Unsupported` where such files can't be named, or any
    /// other error of the system call.
    pub fn give_name(&self, file: &File, name: &[u8]) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        return super::linux::give_name(self.0.as_fd(), file, name);
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (file, name);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// How writes in this directory are made durable.
    #[must_use]
    pub fn sync_kind(&self) -> SyncKind {
        #[cfg(target_os = "linux")]
        return super::linux::sync_kind(self.0.as_fd());
        #[cfg(not(target_os = "linux"))]
        SyncKind::Each
    }

    /// Reopens this directory for listing and synchronisation.
    ///
    /// # Errors
    /// `PermissionDenied` if it is not readable, or any other error of the system call.
    pub fn reopen(&self) -> io::Result<File> {
        let flags = READ | OFlags::DIRECTORY;
        Ok(rustix::fs::openat(&self.0, ".", flags, Mode::empty())?.into())
    }

    /// Its path under the usual rules of the process, if the system provides it.
    #[must_use]
    pub fn real_path(&self) -> Option<Vec<u8>> {
        real_path(&self.0)
    }

    /// Creates a directory with the permission bits `mode` under the umask of the process.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, or any other error of the system call.
    pub fn make_dir_masked(&self, name: &[u8], mode: u32) -> io::Result<()> {
        let name = OsStr::from_bytes(name);
        Ok(rustix::fs::mkdirat(&self.0, name, mode_of(mode))?)
    }

    /// Creates a named pipe with the permission bits `mode` under the umask of the process.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, `Unsupported` where the system has no such call, or
    /// any other error of the system call.
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
    /// `Unsupported` where there are no extended attributes, or any other error of the system call.
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

    /// Its path under the usual rules of the process, if the system provides it.
    #[must_use]
    pub fn real_path(&self) -> Option<Vec<u8>> {
        real_path(&self.0)
    }

    /// Makes all changes in its file system durable, by any process. Earlier write failures are not
    /// reported; for these use [`sync_file_system`].
    ///
    /// # Errors
    /// `Unsupported` on other systems than Linux; `PermissionDenied` if it is not readable, or any
    /// other error of the system call.
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

/// Makes all changes in the file system of an open file durable, by any process. Fails if a write
/// has failed since the file was opened, or since the last such call on it.
///
/// # Errors
/// `Unsupported` on other systems than Linux, or any other error of the system call.
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

/// Reads from the current position; 0 is the end of the file.
///
/// # Errors
/// Any error of the system call; never `Interrupted`.
pub fn read(file: &File, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(file, &mut *buf) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Seeks to the start of a file.
///
/// # Errors
/// Any error of the system call.
pub fn rewind(mut file: &File) -> io::Result<()> {
    file.rewind()
}

/// Sets times of a file, in nanoseconds since 1970. `None` keeps the present one.
///
/// # Errors
/// Any error of the system call.
pub fn set_times(file: &File, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> io::Result<()> {
    Ok(rustix::fs::futimens(file, &timestamps(atime_ns, mtime_ns))?)
}

/// Sets the owner and group of a file. `None` keeps the present one.
///
/// # Errors
/// `InvalidInput` for the id that means "unchanged", or any other error of the system call.
pub fn set_owner(file: &File, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let (uid, gid) = owner(uid, gid)?;
    Ok(rustix::fs::fchown(file, uid, gid)?)
}

/// Sets an extended attribute of a file.
///
/// # Errors
/// `Unsupported` where there are no extended attributes, or any other error of the system call.
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

/// The extended attributes of a file whose names satisfy `wanted`; empty where they are not
/// supported.
///
/// # Errors
/// Any error of the system call.
pub fn xattrs(file: &File, wanted: &dyn Fn(&[u8]) -> bool) -> io::Result<Vec<Xattr>> {
    #[cfg(target_os = "linux")]
    return super::linux::xattrs(file, wanted);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, wanted);
        Ok(Vec::new())
    }
}
