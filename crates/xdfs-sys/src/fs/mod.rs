//! File system calls: directories as handles, names resolved beneath a root, and the hints and
//! sparse-file calls that the standard library lacks.
//!
//! This module knows system calls and nothing of transfers: what a partial file or a journal is,
//! and which faults users see, is decided by its only caller, the local store.
//!
//! Invariants:
//! - A name given to a method of [`Dir`] that says "beneath" never leads out of that directory,
//!   whatever happens to the tree at the same time. On Linux the kernel guarantees it
//!   (`openat2`); on other Unix systems, and where `openat2` is forbidden, the path is opened one
//!   component after the other and symbolic links and `..` are refused altogether. On systems
//!   without directory handles each component is checked before it is used, which holds against
//!   a client but not against somebody who changes the tree on the server at that moment.
//! - No call here follows a symbolic link in the last component of a name inside a [`Dir`].

use std::fmt;
use std::io;
use std::ops::ControlFlow;

#[cfg(unix)]
mod convert_unix;
#[cfg(not(unix))]
mod entries_portable;
#[cfg(unix)]
mod entries_unix;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(unix))]
mod names_portable;
#[cfg(unix)]
mod names_unix;
#[cfg(not(unix))]
mod open_portable;
#[cfg(unix)]
mod open_unix;
#[cfg(not(unix))]
mod portable;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
mod walk;

#[cfg(not(unix))]
pub use entries_portable::{
    read, rewind, set_owner, set_times, set_xattr, sync_file_system, xattrs,
};
#[cfg(unix)]
pub use entries_unix::{read, rewind, set_owner, set_times, set_xattr, sync_file_system, xattrs};
#[cfg(not(unix))]
pub use names_portable::{Handle, copy_range};
#[cfg(unix)]
pub use names_unix::{Handle, copy_range};
#[cfg(not(unix))]
pub use open_portable::{has_hung_up, is_without_reader};
#[cfg(unix)]
pub use open_unix::{has_hung_up, is_without_reader};
#[cfg(not(unix))]
pub use portable::{
    Dir, advise_sequential, advise_will_need, begin_write_back, default_mode, is_ours, masked,
    meta, meta_at, next_extent, open_direct, open_for_reading, path_from_bytes, preallocate,
    punch_hole, read_at, set_mode, space_left, storage_of, write_all_at,
};
#[cfg(unix)]
pub use unix::{
    Dir, advise_sequential, advise_will_need, begin_write_back, default_mode, is_ours, masked,
    meta, meta_at, next_extent, open_direct, open_for_reading, path_from_bytes, preallocate,
    punch_hole, read_at, set_mode, space_left, storage_of, write_all_at,
};

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// Something else.
    Other,
}

/// Takes a name of a directory, what kind it is if the system tells, and where to go on after it
/// if that is a number that lasts; decides whether there is to be another.
pub type EachName<'a> = dyn FnMut(&[u8], Option<FileKind>, Option<u64>) -> ControlFlow<()> + 'a;

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regular => "a regular file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::BlockDevice | Self::CharacterDevice => "a device",
            Self::Other => "not a regular file",
        })
    }
}

/// What the system knows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: FileKind,
    /// Its length in bytes.
    pub length: u64,
    /// Bytes of storage it takes; less than `length` for a sparse file. `None` if not known.
    pub allocated: Option<u64>,
    /// The last read, in nanoseconds since 1970; 0 where the system doesn't tell.
    pub atime_ns: i64,
    /// The last change of its content, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// The last change of content or attributes, in nanoseconds since 1970, which no user can set;
    /// 0 where the system doesn't tell.
    pub ctime_ns: i64,
    /// Permission bits, with those for set-user-id, set-group-id and sticky; `None` where there
    /// are none.
    pub mode: Option<u32>,
    /// Device and inode; `None` where the system doesn't tell.
    pub identity: Option<(u64, u64)>,
    /// The number of names that the file has; 1 where the system doesn't tell.
    pub links: u64,
    /// The user who owns it; `None` where there are none.
    pub owner: Option<u32>,
    /// Its group; `None` where there are none.
    pub group: Option<u32>,
}

impl Meta {
    /// Whether it takes less storage than it has bytes: it has holes, or the file system stores it
    /// in fewer bytes by other means. `false` where that isn't known.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.allocated.is_some_and(|bytes| bytes < self.length)
    }
}

/// An extended attribute: its name and its value.
pub type Xattr = (Vec<u8>, Vec<u8>);
/// The access for which a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Writing at its end alone, as one step with finding it.
    pub append: bool,
}

/// The space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that this user may still take.
    pub available: u64,
    /// Files in all; 0 if there is no such bound.
    pub files: u64,
    /// Files that this user may still make.
    pub files_free: u64,
}

/// What offsets, lengths and addresses of writes past the page cache must be multiples of, in
/// bytes: enough for every common disk.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// How a file system stores what is written, as far as it decides how to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// In memory: write-back, synchronisation and preallocation have no use.
    Memory,
    /// On a disk, by extents, so that preallocation is one cheap call.
    Extents,
    /// Elsewhere, or not known.
    Other,
}

/// How what is written to a file system is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncKind {
    /// It is in memory: nothing outlasts the system.
    Needless,
    /// One call makes all of it durable, and is known to do so.
    Whole,
    /// Each file and directory by itself: what a call for all of it does isn't known.
    Each,
}

/// Why a name wasn't resolved beneath its directory.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResolveError {
    /// It leads out of the directory, or might.
    Escapes(&'static str),
    /// The system refused it for another reason.
    Io(io::Error),
}

impl From<io::Error> for ResolveError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Escapes(why) => f.write_str(why),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResolveError {}

#[cfg(test)]
mod tests;
