//! Attributes of entries in a store.

/// The kind of an entry.
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

/// Attributes of an entry. Fields unknown to a store are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its kind.
    pub kind: FileKind,
    /// Size of the content in bytes; for a symbolic link, of its target.
    pub size: u64,
    /// Allocated storage in bytes.
    pub allocated: u64,
    /// Permission bits, including set-user-id, set-group-id and sticky: at most 0o7777.
    pub mode: u32,
    /// Id of the owner.
    pub uid: u32,
    /// Id of the group.
    pub gid: u32,
    /// Number of hard links.
    pub links: u64,
    /// Number of its file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Time of the last access.
    pub atime_ns: i64,
    /// Time of the last modification of the content.
    pub mtime_ns: i64,
    /// Time of the last change of content or attributes.
    pub ctime_ns: i64,
}

/// An unfinished transfer to a name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialFile {
    /// The name of its target, without a separator; never `.` or `..`. Of a name that is too long
    /// only the beginning is kept, with a hash; a call takes either. Small files on their way may
    /// have a name of their own.
    pub name: Vec<u8>,
    /// Bytes that have arrived and need not be sent again.
    pub arrived: u64,
    /// Bytes of the transfer; `None` if unknown.
    pub length: Option<u64>,
    /// Allocated storage in bytes.
    pub allocated: u64,
    /// Time of the last change.
    pub mtime_ns: i64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, without a separator; never `.` or `..`.
    pub name: Vec<u8>,
    /// Its attributes, without following a symbolic link.
    pub attributes: Attributes,
}
