//! What a store knows of a name: its kind, and what is kept beside its content.

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// Something else.
    Other,
}

/// What is known of what stands under a name. Fields that a store doesn't know are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: FileKind,
    /// Bytes of content; for a symbolic link the bytes of its target.
    pub size: u64,
    /// Bytes that the content takes where it is stored.
    pub allocated: u64,
    /// Permission bits, with set-user-id, set-group-id and sticky: at most 0o7777.
    pub mode: u32,
    /// Number of the owner.
    pub uid: u32,
    /// Number of the group.
    pub gid: u32,
    /// Names that it has.
    pub links: u64,
    /// Number of the file system that holds it.
    pub device: u64,
    /// Number in that file system.
    pub inode: u64,
    /// Time of the last read.
    pub atime_ns: i64,
    /// Time of the last change of the content.
    pub mtime_ns: i64,
    /// Time of the last change of the content or of what is known of it.
    pub ctime_ns: i64,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, without a separator; never `.` or `..`.
    pub name: Vec<u8>,
    /// What stands under it, links not followed.
    pub attributes: Attributes,
}
