//! File system calls: directories as handles, names resolved beneath a root, and the hints and
//! sparse-file calls that the standard library lacks.
//!
//! This module wraps system calls and knows nothing of transfers: its only caller, the local store,
//! defines partial files, journals and the faults that users see.
//!
//! Invariants:
//! - A name passed to a method of [`Dir`] with "beneath" in its name never leads out of that
//!   directory, whatever happens to the tree concurrently. On Linux the kernel guarantees it
//!   (`openat2`); on other Unix systems, and where `openat2` is forbidden, the path is opened
//!   component by component, and symbolic links and `..` are refused altogether. On systems
//!   without directory handles each component is checked before it is used, which holds against
//!   a client but not against somebody who changes the tree on the server at that moment.
//! - No call follows a symbolic link in the last component of a name inside a [`Dir`].

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
    Dir, advise_sequential, advise_will_need, begin_write_back, cached_bytes, default_mode,
    is_ours, masked, meta, meta_at, next_extent, open_direct, open_direct_to_read,
    open_for_reading, path_from_bytes, preallocate, punch_hole, read_at, set_mode, space_left,
    storage_of, write_all_at,
};
#[cfg(unix)]
pub use unix::{
    Dir, advise_sequential, advise_will_need, begin_write_back, cached_bytes, default_mode,
    is_ours, masked, meta, meta_at, next_extent, open_direct, open_direct_to_read,
    open_for_reading, path_from_bytes, preallocate, punch_hole, read_at, set_mode, space_left,
    storage_of, write_all_at,
};

/// The kind of an entry.
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

/// Called with a name, its kind if the system provides it, and the position after it if that is
/// stable; decides whether to continue.
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

/// Attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its kind.
    pub kind: FileKind,
    /// Its length in bytes.
    pub length: u64,
    /// Allocated storage in bytes; less than `length` for a sparse file. `None` if unknown.
    pub allocated: Option<u64>,
    /// Time of the last access, in nanoseconds since 1970; 0 if unknown.
    pub atime_ns: i64,
    /// Time of the last modification of its content, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Time of the last change of content or attributes, in nanoseconds since 1970, which users
    /// can't set; 0 if unknown.
    pub ctime_ns: i64,
    /// Permission bits, including set-user-id, set-group-id and sticky; `None` where there are
    /// none.
    pub mode: Option<u32>,
    /// Device and inode; `None` if unknown.
    pub identity: Option<(u64, u64)>,
    /// Number of hard links; 1 if unknown.
    pub links: u64,
    /// Id of the owner; `None` where there are none.
    pub owner: Option<u32>,
    /// Id of the group; `None` where there are none.
    pub group: Option<u32>,
}

impl Meta {
    /// Whether it occupies less storage than its length, because of holes or otherwise. `false` if
    /// unknown.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.allocated.is_some_and(|bytes| bytes < self.length)
    }
}

/// An extended attribute: its name and its value.
pub type Xattr = (Vec<u8>, Vec<u8>);
/// Access modes for opening a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Atomically appending; no other writes.
    pub append: bool,
}

/// The space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes available to this user.
    pub available: u64,
    /// Maximum number of files; 0 if there is no such limit.
    pub files: u64,
    /// Number of files that this user may still create.
    pub files_free: u64,
}

/// Required alignment of offsets, lengths and addresses for direct I/O, in bytes: sufficient for
/// all common disks.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// Properties of a file system that affect how to write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// In memory: write-back, synchronisation and preallocation are useless.
    Memory,
    /// On a disk, in extents, so that preallocation is one cheap call.
    Extents,
    /// Anything else, or unknown.
    Other,
}

/// How writes to a file system are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncKind {
    /// Not at all: it is in memory.
    Needless,
    /// One call reliably synchronises the whole file system.
    Whole,
    /// Each file and directory separately: the effect of a call for the whole file system is
    /// unknown.
    Each,
}

/// Why a name could not be resolved beneath a directory.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResolveError {
    /// It leads out of the directory, or may do so.
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
