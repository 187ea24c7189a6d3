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

impl FileKind {
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::BlockDevice => "block-device",
            Self::CharacterDevice => "character-device",
            Self::Other => "other",
        }
    }
}

/// The time of modification of an entry whose store tells none, such as some FTP servers. No entry
/// has it: a store that doesn't know a time must not say 0, which is the time of many files.
pub const NO_TIME_NS: i64 = i64::MIN + 1;

/// Attributes of an entry. Fields unknown to a store are 0, but for [`NO_TIME_NS`].
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
    /// Time of the last modification of the content; [`NO_TIME_NS`] if it is unknown.
    pub mtime_ns: i64,
    /// Time of the last change of content or attributes.
    pub ctime_ns: i64,
}

impl Attributes {
    /// Time of the last modification of the content, if it is known.
    #[must_use]
    pub fn mtime(&self) -> Option<i64> {
        known_time(self.mtime_ns)
    }
}

/// A time that may be [`NO_TIME_NS`].
#[must_use]
pub fn known_time(time_ns: i64) -> Option<i64> {
    (time_ns != NO_TIME_NS).then_some(time_ns)
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
