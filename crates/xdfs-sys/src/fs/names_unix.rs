//! Calls on names and attributes on Unix, all relative to open directories.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::convert_unix::{is_unsupported, meta_from, mode_of, owner, timestamps};
use super::unix::{DIRECTORY, Dir};
use super::{EachName, FileKind, Meta, ResolveError, Space};

#[cfg(target_os = "linux")]
use super::linux::open_beneath;
#[cfg(not(target_os = "linux"))]
use super::walk::open_beneath;

/// Flags for entering a directory: search-only where the system supports it.
#[cfg(target_os = "linux")]
pub(super) const ENTER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(super) const ENTER: OFlags = DIRECTORY;

/// Flags for resolving a file: without opening it where the system supports it.
#[cfg(target_os = "linux")]
pub(super) const FIND: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(super) const FIND: OFlags = super::unix::READ;

impl Dir {
    /// Opens a directory under the usual rules, for lookups. It can't be listed or synchronised,
    /// and need not be readable.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn enter(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        Ok(Self(rustix::fs::openat(CWD, path, ENTER, Mode::empty())?))
    }

    /// Opens a directory beneath this one for lookups; the empty path is this one. It can't be
    /// listed or synchronised, and need not be readable.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, or any other error of the system call.
    pub fn enter_beneath(&self, path: &[u8]) -> Result<Self, ResolveError> {
        open_beneath(self.0.as_fd(), path, ENTER).map(Self)
    }

    /// Resolves `path` beneath this directory, following links, to an entry of any kind.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, or any other error of the system call.
    pub fn find_beneath(&self, path: &[u8]) -> Result<Handle, ResolveError> {
        open_beneath(self.0.as_fd(), path, FIND).map(Handle)
    }

    /// Opens a subdirectory that is neither a link nor on another file system.
    ///
    /// # Errors
    /// `CrossesDevices` for a mount point, or any other error of the system call.
    pub fn child(&self, name: &[u8]) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        match super::linux::open_child(self.0.as_fd(), name, DIRECTORY) {
            Err(Errno::NOSYS | Errno::PERM) => {}
            result => return Ok(Self(result?)),
        }
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let child = rustix::fs::openat(&self.0, OsStr::from_bytes(name), flags, Mode::empty())?;
        if rustix::fs::fstat(&child)?.st_dev != rustix::fs::fstat(&self.0)?.st_dev {
            return Err(Errno::XDEV.into());
        }
        Ok(Self(child))
    }

    /// Opens the parent directory. The caller must check that it is the expected one.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn parent(&self) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(
            &self.0,
            "..",
            DIRECTORY,
            Mode::empty(),
        )?))
    }

    /// Attributes of the directory.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn meta(&self) -> io::Result<Meta> {
        Ok(meta_from(&rustix::fs::fstat(&self.0)?))
    }

    /// Creates a directory. With `mode` it gets exactly these permission bits, and keeps a
    /// set-group-id bit inherited from this directory.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, or any other error of the system call.
    pub fn make_dir(&self, name: &[u8], mode: Option<u32>) -> io::Result<()> {
        let made_as = if mode.is_some() {
            Mode::RWXU
        } else {
            Mode::from_raw_mode(0o777)
        };
        rustix::fs::mkdirat(&self.0, OsStr::from_bytes(name), made_as)?;
        let Some(mode) = mode else { return Ok(()) };
        let made = self.child(name)?;
        let inherited = made.meta()?.mode.unwrap_or(0) & 0o2000;
        Ok(rustix::fs::fchmod(&made.0, mode_of(mode | inherited))?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `DirectoryNotEmpty`, or any other error of the system call.
    pub fn remove_dir(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.0,
            OsStr::from_bytes(name),
            AtFlags::REMOVEDIR,
        )?)
    }

    /// Renames into another directory. With `overwrite` an existing entry is replaced atomically.
    /// Without it, a directory takes two steps on file systems that can't refuse to replace
    /// atomically.
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
        let (old, new) = (OsStr::from_bytes(from), OsStr::from_bytes(name));
        if overwrite {
            return Ok(rustix::fs::renameat(&self.0, old, &to.0, new)?);
        }
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        {
            use rustix::fs::{RenameFlags, renameat_with};
            match renameat_with(&self.0, old, &to.0, new, RenameFlags::NOREPLACE) {
                Err(error) if is_unsupported(error) => {}
                result => return Ok(result?),
            }
        }
        self.rename_new_to(from, to, name)
    }

    /// Renames unless the new name is taken, where the system has no call for it.
    pub(super) fn rename_new_to(&self, from: &[u8], to: &Self, name: &[u8]) -> io::Result<()> {
        if to.meta_of(name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let is_dir = |meta: &Meta| meta.kind == FileKind::Directory;
        if self.meta_of(from)?.as_ref().is_some_and(is_dir) {
            let (from, name) = (OsStr::from_bytes(from), OsStr::from_bytes(name));
            return Ok(rustix::fs::renameat(&self.0, from, &to.0, name)?);
        }
        self.link_to(from, to, name)?;
        self.remove(from)
    }

    /// Creates a hard link; a symbolic link is linked itself.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn link_to(&self, name: &[u8], to: &Self, further: &[u8]) -> io::Result<()> {
        let (name, further) = (OsStr::from_bytes(name), OsStr::from_bytes(further));
        Ok(rustix::fs::linkat(
            &self.0,
            name,
            &to.0,
            further,
            AtFlags::empty(),
        )?)
    }

    /// Creates a symbolic link to `target`.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn symlink(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        let (target, name) = (OsStr::from_bytes(target), OsStr::from_bytes(name));
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidInput` if it isn't one, or any other error of the system call.
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(&self.0, OsStr::from_bytes(name), Vec::new())?;
        Ok(target.into_bytes())
    }

    /// Sets the times of an entry, in nanoseconds since 1970, without following a symbolic link.
    /// `None` keeps the present one.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn set_times(
        &self,
        name: &[u8],
        atime_ns: Option<i64>,
        mtime_ns: Option<i64>,
    ) -> io::Result<()> {
        let times = timestamps(atime_ns, mtime_ns);
        let name = OsStr::from_bytes(name);
        Ok(rustix::fs::utimensat(
            &self.0,
            name,
            &times,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// Sets the owner and group of an entry, without following a symbolic link. `None` keeps the
    /// present one.
    ///
    /// # Errors
    /// `InvalidInput` for the id that means "unchanged", or any other error of the system call.
    pub fn set_owner(&self, name: &[u8], uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (uid, gid) = owner(uid, gid)?;
        let name = OsStr::from_bytes(name);
        Ok(rustix::fs::chownat(
            &self.0,
            name,
            uid,
            gid,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// Lists the names of the directory other than `.` and `..`, from a position passed by an
    /// earlier call, or from the start, in the order of the file system.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn each_name(&self, position: Option<u64>, each: &mut EachName<'_>) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        return super::linux::each_name(self.0.as_fd(), position, each);
        #[cfg(not(target_os = "linux"))]
        {
            let _ = position;
            for entry in rustix::fs::Dir::read_from(&self.0)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    let kind = super::convert_unix::listed_kind(entry.file_type());
                    if each(name, kind, None).is_break() {
                        break;
                    }
                }
            }
            Ok(())
        }
    }

    /// Whether the positions of [`each_name`](Self::each_name) stay valid when entries are added
    /// and removed and the directory is reopened.
    #[must_use]
    pub fn has_lasting_positions(&self) -> bool {
        #[cfg(target_os = "linux")]
        return super::linux::has_lasting_positions(self.0.as_fd());
        #[cfg(not(target_os = "linux"))]
        false
    }
}

/// A resolved entry, held whatever happens to its name.
#[derive(Debug)]
pub struct Handle(pub(super) OwnedFd);

impl Handle {
    /// Resolves a path under the usual rules, following links.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn find(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(CWD, path, FIND, Mode::empty())?))
    }

    /// Its attributes.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn meta(&self) -> io::Result<Meta> {
        Ok(meta_from(&rustix::fs::fstat(&self.0)?))
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        let mode = mode_of(mode);
        #[cfg(target_os = "linux")]
        return Ok(rustix::fs::chmod(super::linux::link_of(&self.0), mode)?);
        #[cfg(not(target_os = "linux"))]
        Ok(rustix::fs::fchmod(&self.0, mode)?)
    }

    /// Sets times, in nanoseconds since 1970; `None` keeps the present one.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn set_times(&self, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> io::Result<()> {
        let times = timestamps(atime_ns, mtime_ns);
        #[cfg(target_os = "linux")]
        {
            let link = super::linux::link_of(&self.0);
            Ok(rustix::fs::utimensat(CWD, link, &times, AtFlags::empty())?)
        }
        #[cfg(not(target_os = "linux"))]
        Ok(rustix::fs::futimens(&self.0, &times)?)
    }

    /// Sets the owner and group; `None` keeps the present one.
    ///
    /// # Errors
    /// `InvalidInput` for the id that means "unchanged", or any other error of the system call.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (uid, gid) = owner(uid, gid)?;
        #[cfg(target_os = "linux")]
        return Ok(rustix::fs::chownat(
            &self.0,
            "",
            uid,
            gid,
            AtFlags::EMPTY_PATH,
        )?);
        #[cfg(not(target_os = "linux"))]
        Ok(rustix::fs::fchown(&self.0, uid, gid)?)
    }

    /// Opens it for writing. To be used for regular files only: opening other kinds can have side
    /// effects.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn open_for_writing(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        #[cfg(target_os = "linux")]
        let link = super::linux::link_of(&self.0);
        // The other systems have a file system of descriptors.
        #[cfg(not(target_os = "linux"))]
        let link = {
            use std::os::fd::AsRawFd;
            format!("/dev/fd/{}", self.0.as_raw_fd())
        };
        Ok(rustix::fs::openat(CWD, link, flags, Mode::empty())?.into())
    }

    /// The space of the file system that holds it.
    ///
    /// # Errors
    /// Any error of the system call.
    pub fn space(&self) -> io::Result<Space> {
        let system = rustix::fs::fstatvfs(&self.0)?;
        let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
        Ok(Space {
            total: bytes(system.f_blocks),
            free: bytes(system.f_bfree),
            available: bytes(system.f_bavail),
            files: system.f_files,
            files_free: system.f_favail,
        })
    }
}

/// Copies bytes between files within the kernel, from `offset` on in both. 0 is the end of the
/// source.
///
/// # Errors
/// `Unsupported` where these files can't be copied this way, or any other error of the system call.
pub fn copy_range(from: &File, to: &File, offset: u64, length: usize) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    loop {
        let (mut read_at, mut write_at) = (offset, offset);
        let (read, write) = (Some(&mut read_at), Some(&mut write_at));
        match rustix::fs::copy_file_range(from, read, to, write, length) {
            Err(Errno::INTR) => {}
            Err(error) if is_unsupported(error) || error == Errno::XDEV => break,
            Err(Errno::PERM | Errno::IO | Errno::BADF) => break,
            result => return Ok(result?),
        }
    }
    let _ = (from, to, offset, length);
    Err(io::ErrorKind::Unsupported.into())
}
