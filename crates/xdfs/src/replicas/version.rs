//! The version of a file, by which servers over one storage are believed to have the same one.

use xdfs_proto::path::{Attributes, FileKind};

/// A version of a file on a file system that several servers reach.
///
/// Every change of the content sets the time of the last change, which no program can choose. So
/// bytes that were read before a server reports this version are bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// Size in bytes.
    pub size: u64,
    /// Inode number. That of the file system isn't compared: machines number them differently.
    pub inode: u64,
    /// Time of the last modification of the content, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Time of the last change of content or attributes.
    pub ctime_ns: i64,
}

impl FileVersion {
    /// The version of an entry; `None` if it is no file, or its storage doesn't identify files.
    #[must_use]
    pub fn of(found: &Attributes) -> Option<Self> {
        let is_known = found.kind == FileKind::File && found.inode != 0 && found.ctime_ns != 0;
        is_known.then_some(Self {
            size: found.size,
            inode: found.inode,
            mtime_ns: found.mtime_ns,
            ctime_ns: found.ctime_ns,
        })
    }
}
