//! Calls to create and read the entries of a tree, with the standard library only. What it lacks is
//! `Unsupported`.

use std::fs::{self, File, FileTimes};
use std::io::{self, Read as _, Seek as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::names_portable::Handle;
use super::portable::Dir;
use super::{ResolveError, SyncKind, Xattr};

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Dir {
    /// Opens a directory beneath this one without following symbolic links; the empty path is this
    /// one.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if the path contains a link or leads out, or any other error of
    /// the system call.
    pub fn enter_without_links(&self, path: &[u8]) -> Result<Self, ResolveError> {
        let mut dir = Self(self.0.clone());
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            let meta = dir.meta_of(name)?;
            if meta.is_some_and(|meta| meta.kind == super::FileKind::Symlink) {
                return Err(ResolveError::Escapes("the path contains a symbolic link"));
            }
            dir = dir.child(name)?;
        }
        Ok(dir)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Any error of the system call; also for a symbolic link.
    pub fn open_name(&self, name: &[u8]) -> io::Result<File> {
        let path = self.name(name)?;
        if fs::symlink_metadata(&path)?.is_symlink() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        File::open(path)
    }

    /// Resolves a name, unless it is a symbolic link.
    ///
    /// # Errors
    /// Any error of the system call; also for a symbolic link.
    pub fn find_name(&self, name: &[u8]) -> io::Result<Handle> {
        let path = self.name(name)?;
        if fs::symlink_metadata(&path)?.is_symlink() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Handle::find(&path)
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn create_nameless(&self, mode: u32) -> io::Result<File> {
        let _ = mode;
        unsupported()
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn give_name(&self, file: &File, name: &[u8]) -> io::Result<()> {
        let _ = (file, name);
        unsupported()
    }

    /// How writes in this directory are made durable.
    #[must_use]
    pub fn sync_kind(&self) -> SyncKind {
        SyncKind::Each
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn reopen(&self) -> io::Result<File> {
        unsupported()
    }

    /// Not available on this system.
    #[must_use]
    pub fn real_path(&self) -> Option<Vec<u8>> {
        None
    }

    /// Creates a directory. Permission bits have no meaning on this system.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, or any other error of the system call.
    pub fn make_dir_masked(&self, name: &[u8], mode: u32) -> io::Result<()> {
        self.make_dir(name, Some(mode))
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn make_pipe(&self, name: &[u8], mode: u32) -> io::Result<()> {
        let _ = (name, mode);
        unsupported()
    }
}

impl Handle {
    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let _ = (name, value);
        unsupported()
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn sync_file_system(&self) -> io::Result<()> {
        unsupported()
    }

    /// Not available on this system.
    #[must_use]
    pub fn real_path(&self) -> Option<Vec<u8>> {
        None
    }
}

/// Not available on this system.
///
/// # Errors
/// `Unsupported`.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    let _ = file;
    unsupported()
}

/// Reads from the current position; 0 is the end of the file.
///
/// # Errors
/// Any error of the system call; never `Interrupted`.
pub fn read(mut file: &File, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buf) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
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
    let mut times = FileTimes::new();
    if let Some(ns) = atime_ns {
        times = times.set_accessed(time(ns)?);
    }
    if let Some(ns) = mtime_ns {
        times = times.set_modified(time(ns)?);
    }
    file.set_times(times)
}

fn time(ns: i64) -> io::Result<SystemTime> {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let time = if ns < 0 {
        UNIX_EPOCH.checked_sub(distance)
    } else {
        UNIX_EPOCH.checked_add(distance)
    };
    time.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Not available on this system.
///
/// # Errors
/// `Unsupported`.
pub fn set_owner(file: &File, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let _ = (file, uid, gid);
    unsupported()
}

/// Not available on this system.
///
/// # Errors
/// `Unsupported`.
pub fn set_xattr(file: &File, name: &[u8], value: &[u8]) -> io::Result<()> {
    let _ = (file, name, value);
    unsupported()
}

/// Empty: the standard library has no call for extended attributes.
///
/// # Errors
/// Never.
pub fn xattrs(file: &File, wanted: &dyn Fn(&[u8]) -> bool) -> io::Result<Vec<Xattr>> {
    let _ = (file, wanted);
    Ok(Vec::new())
}
