//! The calls about names and attributes on Unix: all relative to open directories.

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

/// How a directory is entered: for search alone where the system can.
#[cfg(target_os = "linux")]
pub(super) const ENTER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(super) const ENTER: OFlags = DIRECTORY;

/// How a file is found: without opening it where the system can.
#[cfg(target_os = "linux")]
pub(super) const FIND: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(super) const FIND: OFlags = super::unix::READ;

impl Dir {
    /// Opens a directory by the ordinary rules, to look names up in it. It can't be listed or made
    /// durable, and need not be readable.
    ///
    /// # Errors
    /// What the system says.
    pub fn enter(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        Ok(Self(rustix::fs::openat(CWD, path, ENTER, Mode::empty())?))
    }

    /// Opens a directory beneath this one, to look names up in it; an empty path is this one. It
    /// can't be listed or made durable, and need not be readable.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, else what the system says.
    pub fn enter_beneath(&self, path: &[u8]) -> Result<Self, ResolveError> {
        open_beneath(self.0.as_fd(), path, ENTER).map(Self)
    }

    /// Finds what `path` names beneath this directory, whatever it is, links followed.
    ///
    /// # Errors
    /// [`ResolveError::Escapes`] if `path` leads out, else what the system says.
    pub fn find_beneath(&self, path: &[u8]) -> Result<Handle, ResolveError> {
        open_beneath(self.0.as_fd(), path, FIND).map(Handle)
    }

    /// Opens a directory in this one, which isn't a link and no other file system's.
    ///
    /// # Errors
    /// `CrossesDevices` where something is mounted, else what the system says.
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

    /// Opens the directory that this one stands in. The caller has to know which it should be.
    ///
    /// # Errors
    /// What the system says.
    pub fn parent(&self) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(
            &self.0,
            "..",
            DIRECTORY,
            Mode::empty(),
        )?))
    }

    /// What is known of the directory itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn meta(&self) -> io::Result<Meta> {
        Ok(meta_from(&rustix::fs::fstat(&self.0)?))
    }

    /// Makes a directory; with `mode` it has exactly these permission bits, and keeps the
    /// set-group-id bit that it may have from this directory.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name, else what the system says.
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
    /// `DirectoryNotEmpty`, or else what the system says.
    pub fn remove_dir(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.0,
            OsStr::from_bytes(name),
            AtFlags::REMOVEDIR,
        )?)
    }

    /// Renames into another directory. With `overwrite` what has the new name is replaced, as one
    /// step. Without, a file system that can't refuse as one step takes two for a directory.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the new name and `overwrite` is false, else what the system
    /// says.
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

    /// Renames unless something has the new name, where the system has no call for it.
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

    /// Gives what has a name a further one; a symbolic link is linked itself.
    ///
    /// # Errors
    /// What the system says.
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

    /// Makes a symbolic link that says `target`.
    ///
    /// # Errors
    /// What the system says.
    pub fn symlink(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        let (target, name) = (OsStr::from_bytes(target), OsStr::from_bytes(name));
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// `InvalidInput` if it isn't one, else what the system says.
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(&self.0, OsStr::from_bytes(name), Vec::new())?;
        Ok(target.into_bytes())
    }

    /// Sets times, in nanoseconds since 1970, of what has the name, a symbolic link itself
    /// included. `None` leaves one as it is.
    ///
    /// # Errors
    /// What the system says.
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

    /// Sets owner and group of what has the name, a symbolic link itself included. `None` leaves
    /// one as it is.
    ///
    /// # Errors
    /// `InvalidInput` for the number that means none, else what the system says.
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

    /// Goes through the names of the directory, `.` and `..` left out, from a position that an
    /// earlier call told, or from the start. The order is the file system's.
    ///
    /// # Errors
    /// What the system says.
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

    /// Whether the positions of [`each_name`](Self::each_name) last when names come and go and the
    /// directory is opened anew.
    #[must_use]
    pub fn has_lasting_positions(&self) -> bool {
        #[cfg(target_os = "linux")]
        return super::linux::has_lasting_positions(self.0.as_fd());
        #[cfg(not(target_os = "linux"))]
        false
    }
}

/// Something that was found, held whatever happens to its name.
#[derive(Debug)]
pub struct Handle(pub(super) OwnedFd);

impl Handle {
    /// Finds what a path names by the ordinary rules, links followed.
    ///
    /// # Errors
    /// What the system says.
    pub fn find(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(CWD, path, FIND, Mode::empty())?))
    }

    /// What is known of it.
    ///
    /// # Errors
    /// What the system says.
    pub fn meta(&self) -> io::Result<Meta> {
        Ok(meta_from(&rustix::fs::fstat(&self.0)?))
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        let mode = mode_of(mode);
        #[cfg(target_os = "linux")]
        return Ok(rustix::fs::chmod(super::linux::link_of(&self.0), mode)?);
        #[cfg(not(target_os = "linux"))]
        Ok(rustix::fs::fchmod(&self.0, mode)?)
    }

    /// Sets times, in nanoseconds since 1970; `None` leaves one as it is.
    ///
    /// # Errors
    /// What the system says.
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

    /// Sets owner and group; `None` leaves one as it is.
    ///
    /// # Errors
    /// `InvalidInput` for the number that means none, else what the system says.
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

    /// Opens it for writing. To be asked of a regular file only: opening something else can have
    /// consequences.
    ///
    /// # Errors
    /// What the system says.
    pub fn open_for_writing(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        #[cfg(target_os = "linux")]
        let link = super::linux::link_of(&self.0);
        // The other systems have the descriptors in a file system of their own.
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
    /// What the system says.
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

/// Copies bytes from one file to another within the system, from `offset` on in both. 0 is the end
/// of the source.
///
/// # Errors
/// `Unsupported` where these files can't be copied so, else what the system says.
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
