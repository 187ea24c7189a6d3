//! Calls on names and attributes, with the standard library only. What it lacks is `Unsupported`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::portable::{Dir, meta_from};
use super::{EachName, Meta, ResolveError, Space};

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Dir {
    /// Opens a directory under the usual rules.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn enter(path: &Path) -> io::Result<Self> {
        Self::open(path)
    }

    /// Opens a directory beneath this one; the empty path is this one.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, or any other error of the system call.
    pub fn enter_beneath(&self, path: &[u8]) -> Result<Self, ResolveError> {
        self.open_dir_beneath(path)
    }

    /// Resolves `path` beneath this directory.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, or any other error of the system call.
    pub fn find_beneath(&self, path: &[u8]) -> Result<Handle, ResolveError> {
        Ok(Handle::find(&self.beneath(path)?)?)
    }

    /// Opens a subdirectory that isn't a link.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn child(&self, name: &[u8]) -> io::Result<Self> {
        let path = self.name(name)?;
        if !fs::symlink_metadata(&path)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self(path))
    }

    /// The parent directory.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn parent(&self) -> io::Result<Self> {
        let parent = self.0.parent().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self(parent.to_owned()))
    }

    /// Attributes of the directory.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn meta(&self) -> io::Result<Meta> {
        Ok(meta_from(&fs::metadata(&self.0)?))
    }

    /// Creates a directory. Permission bits have no meaning on this system.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, or any other error of the system call.
    pub fn make_dir(&self, name: &[u8], mode: Option<u32>) -> io::Result<()> {
        let _ = mode;
        fs::create_dir(self.name(name)?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn remove_dir(&self, name: &[u8]) -> io::Result<()> {
        fs::remove_dir(self.name(name)?)
    }

    /// Renames into another directory. Without `overwrite` this is not atomic.
    ///
    /// # Errors
    /// `AlreadyExists` if the new name is taken and `overwrite` is false, or any other error of the
    /// system call.
    pub fn rename_to(
        &self,
        from: &[u8],
        to: &Self,
        name: &[u8],
        overwrite: bool,
    ) -> io::Result<()> {
        if !overwrite && to.meta_of(name)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(self.name(from)?, to.name(name)?)
    }

    /// Creates a hard link.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn link_to(&self, name: &[u8], to: &Self, further: &[u8]) -> io::Result<()> {
        fs::hard_link(self.name(name)?, to.name(further)?)
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn symlink(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        let _ = (target, name);
        unsupported()
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        let target = fs::read_link(self.name(name)?)?;
        Ok(target.as_os_str().as_encoded_bytes().to_vec())
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn set_times(
        &self,
        name: &[u8],
        atime_ns: Option<i64>,
        mtime_ns: Option<i64>,
    ) -> io::Result<()> {
        let _ = (name, atime_ns, mtime_ns);
        unsupported()
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn set_owner(&self, name: &[u8], uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let _ = (name, uid, gid);
        unsupported()
    }

    /// Lists the names of the directory from the start.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn each_name(&self, position: Option<u64>, each: &mut EachName<'_>) -> io::Result<()> {
        let _ = position;
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            // Names that aren't UTF-8 can't be passed to this system, so they aren't listed.
            let Some(name) = name.to_str() else { continue };
            if each(name.as_bytes(), None, None).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Always false: there are no positions here.
    #[must_use]
    pub fn has_lasting_positions(&self) -> bool {
        false
    }
}

/// A resolved entry, by its path.
#[derive(Debug)]
pub struct Handle(pub(super) PathBuf);

impl Handle {
    /// Resolves a path under the usual rules, following links.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn find(path: &Path) -> io::Result<Self> {
        fs::metadata(path)?;
        Ok(Self(path.to_owned()))
    }

    /// Its attributes.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn meta(&self) -> io::Result<Meta> {
        Ok(meta_from(&fs::metadata(&self.0)?))
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        let _ = mode;
        unsupported()
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn set_times(&self, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> io::Result<()> {
        let _ = (atime_ns, mtime_ns);
        unsupported()
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let _ = (uid, gid);
        unsupported()
    }

    /// Opens it for writing.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn open_for_writing(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(&self.0)
    }

    /// Not available on this system.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn space(&self) -> io::Result<Space> {
        unsupported()
    }
}

/// Not available on this system.
///
/// # Errors
/// `Unsupported`.
pub fn copy_range(from: &File, to: &File, offset: u64, length: usize) -> io::Result<usize> {
    let _ = (from, to, offset, length);
    unsupported()
}
