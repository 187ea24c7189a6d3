//! File calls (xDFSM): access in place to open files of the other side.
//!
//! They use the same slots and machines as path calls: see [`crate::path`]. An open file has a
//! [handle](FileCall::Open) that is valid for the session. The calling side knows what outlasts the
//! session: the path, the [identity](FileIdentity) of the file, and its own identity
//! ([`FileOwner`]). With these it reopens the file, and learns if it is another one by now.

mod codec;

use std::fmt;
use std::sync::Arc;

use crate::attributes::Attributes;

/// Maximum bytes read or written by one call. A frame has room for them beside [`EXTENTS_MAX`]
/// extents.
pub const DATA_BYTES_MAX: usize = 60 << 10;
/// Maximum number of extents per call.
pub const EXTENTS_MAX: usize = 256;
/// Maximum lease of locks, in seconds.
pub const LEASE_SECONDS_MAX: u32 = 3600;
/// Maximum time that a call waits at the answering side, in milliseconds: for a lock, for bytes or
/// room in a pipe, or for the other end of a pipe.
pub const WAIT_MS_MAX: u32 = 10_000;

/// The owner of an open file: 16 random bytes drawn by the calling side for each file that it
/// opens. Together with the user it holds locks, so that they survive sessions, and identifies the
/// open file when it is reopened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileOwner(pub [u8; 16]);

impl fmt::Debug for FileOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileOwner(..)")
    }
}

/// The identity of a file, independent of its names. Fields unknown to a store are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// Number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Creation time in nanoseconds since 1970: distinguishes files that reuse an inode number.
    pub born_ns: i64,
}

/// An extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub length: u32,
}

/// A range of bytes for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at least 1; `None` for everything up to the end of all possible files.
    pub length: Option<u64>,
}

impl LockRange {
    /// All bytes.
    pub const ALL: Self = Self {
        offset: 0,
        length: None,
    };

    /// Offset of the last byte.
    #[must_use]
    pub fn last(&self) -> u64 {
        let last = |length: u64| self.offset.saturating_add(length.saturating_sub(1));
        self.length.map_or(u64::MAX, last)
    }
}

/// Flags for opening a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// All writes atomically append. Needs `write`.
    pub append: bool,
    /// Create the file if it doesn't exist. Needs `write`.
    pub create: bool,
    /// Create the file, and fail if the name is taken. Needs `create`.
    pub exclusive: bool,
    /// Remove the content. Needs `write`.
    pub truncate: bool,
}

/// A file call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileCall {
    /// Opens a regular file or a named pipe, following links. Answered by [`FileAnswer::Opened`].
    /// What the same owner, as the same user, had open before is closed.
    Open {
        /// The path.
        path: Vec<u8>,
        /// The flags.
        flags: FileFlags,
        /// Permission bits of a created file; `None` for the store's default.
        mode: Option<u32>,
        /// The owner.
        owner: FileOwner,
        /// The required identity when reopening a file. In that case nothing is created or
        /// truncated.
        identity: Option<FileIdentity>,
    },
    /// Reads. Answered by [`FileAnswer::Data`]. For a pipe it has one extent, whose offset is
    /// ignored.
    Read {
        /// The file.
        handle: u32,
        /// Only under a lock of the owner that covers everything read.
        locked: bool,
        /// The extents: at most [`EXTENTS_MAX`], of at most [`DATA_BYTES_MAX`] in total.
        extents: Vec<Extent>,
    },
    /// Writes at given offsets, in order. Answered by [`crate::path::Answer::Done`].
    Write {
        /// The file.
        handle: u32,
        /// Only under an exclusive lock of the owner that covers everything written.
        locked: bool,
        /// The extents: at most [`EXTENTS_MAX`].
        extents: Vec<Extent>,
        /// The bytes of all extents: at most [`DATA_BYTES_MAX`].
        bytes: Arc<Vec<u8>>,
    },
    /// Appends to a file, or writes into a pipe. Answered by [`FileAnswer::Appended`].
    Append {
        /// The file, opened for appending.
        handle: u32,
        /// Only under an exclusive lock of the owner from the end of the file on.
        locked: bool,
        /// The bytes: at least 1, at most [`DATA_BYTES_MAX`].
        bytes: Arc<Vec<u8>>,
    },
    /// Makes durable what earlier answered calls have written. Answered by
    /// [`crate::path::Answer::Done`].
    Flush {
        /// The file.
        handle: u32,
        /// Only the content, and the attributes needed to read it.
        data_only: bool,
    },
    /// Sets the length. Answered by [`crate::path::Answer::Done`].
    SetLength {
        /// The file.
        handle: u32,
        /// Only under an exclusive lock of the owner that covers the change and everything beyond.
        locked: bool,
        /// The length in bytes.
        length: u64,
    },
    /// Locks a range against other owners. Answered by [`FileAnswer::Held`].
    Lock {
        /// The file, open for reading, and for writing if the lock is exclusive.
        handle: u32,
        /// The range. Locks of the owner in it are replaced.
        range: LockRange,
        /// Exclude all locks of others, not only exclusive ones.
        exclusive: bool,
        /// Lease of this owner's locks on the file, in seconds without renewal: 1 to
        /// [`LEASE_SECONDS_MAX`].
        lease_s: u32,
        /// Time to wait for the lock, at most [`WAIT_MS_MAX`].
        wait_ms: u32,
    },
    /// Releases the owner's locks in a range. Answered by [`crate::path::Answer::Done`].
    Unlock {
        /// The file.
        handle: u32,
        /// The range.
        range: LockRange,
    },
    /// Queries the lock of another owner that is in the way of one. Answered by
    /// [`FileAnswer::InTheWay`].
    TestLock {
        /// The file.
        handle: u32,
        /// The range.
        range: LockRange,
        /// Whether the lock would be exclusive.
        exclusive: bool,
    },
    /// Renews the lease of the owner's locks. Answered by [`crate::path::Answer::Done`].
    Renew {
        /// The file.
        handle: u32,
        /// The number from [`FileAnswer::Held`]: fails if those locks were lost.
        holding: u64,
    },
    /// Queries the present attributes of the file. Answered by [`crate::path::Answer::Attributes`].
    Stat {
        /// The file.
        handle: u32,
    },
    /// Closes the file and releases the locks of its owner. Answered by
    /// [`crate::path::Answer::Done`].
    Close {
        /// The file.
        handle: u32,
    },
}

/// An answer to a file call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileAnswer {
    /// The file is open.
    Opened {
        /// Its handle in this session: at least 1, and never reused.
        handle: u32,
        /// Its identity.
        identity: FileIdentity,
        /// It was created by this call.
        created: bool,
        /// A number that changes when unsynchronised writes may have been lost, because the system
        /// of that side was restarted.
        run: u64,
        /// Its attributes.
        attributes: Attributes,
    },
    /// The data read.
    Data {
        /// Bytes of each extent: fewer than requested only at the end of the file. For a pipe those
        /// available, and none after the last writer has closed it.
        lengths: Vec<u32>,
        /// The bytes of all extents, in order.
        bytes: Arc<Vec<u8>>,
    },
    /// The result of an append.
    Appended {
        /// Offset of the first byte; 0 for a pipe.
        offset: u64,
        /// Number of bytes written: all, or for a pipe those that fitted.
        length: u32,
    },
    /// The owner holds locks on the file.
    Held {
        /// A number that changes if the owner has lost all its locks on the file in between.
        holding: u64,
    },
    /// The lock in the way of the requested one, if any.
    InTheWay(Option<HeldLock>),
}

/// A lock of another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// Its range.
    pub range: LockRange,
    /// Whether it is exclusive.
    pub exclusive: bool,
}

/// The locks of one owner on one file: in order, without overlaps, and merged where possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockSet(Vec<Span>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
    exclusive: bool,
}

impl Span {
    fn meets(&self, range: &LockRange) -> bool {
        self.first <= range.last() && range.offset <= self.last
    }

    fn shown(&self) -> HeldLock {
        let length = (self.last < u64::MAX).then(|| self.last - self.first + 1);
        HeldLock {
            range: LockRange {
                offset: self.first,
                length,
            },
            exclusive: self.exclusive,
        }
    }
}

impl LockSet {
    /// Number of locks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Releases the locks in a range.
    pub fn cut(&mut self, range: &LockRange) {
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for span in &self.0 {
            if !span.meets(range) {
                left.push(*span);
                continue;
            }
            if span.first < range.offset {
                left.push(Span {
                    last: range.offset - 1,
                    ..*span
                });
            }
            if span.last > range.last() {
                left.push(Span {
                    first: range.last() + 1,
                    ..*span
                });
            }
        }
        self.0 = left;
    }

    /// Locks a range, replacing the locks in it.
    pub fn put(&mut self, range: &LockRange, exclusive: bool) {
        self.cut(range);
        let at = self.0.partition_point(|span| span.first < range.offset);
        let new = Span {
            first: range.offset,
            last: range.last(),
            exclusive,
        };
        self.0.insert(at, new);
        self.0.dedup_by(|next, span| {
            let joins =
                span.exclusive == next.exclusive && span.last.checked_add(1) == Some(next.first);
            if joins {
                span.last = next.last;
            }
            joins
        });
    }

    /// Whether the whole range is locked, exclusively if requested.
    #[must_use]
    pub fn covers(&self, range: &LockRange, exclusive: bool) -> bool {
        let mut at = range.offset;
        for span in &self.0 {
            if span.first <= at && at <= span.last && (span.exclusive || !exclusive) {
                if span.last >= range.last() {
                    return true;
                }
                at = span.last + 1;
            }
        }
        false
    }

    /// The range, split where its lock state changes, with each part's state: locked or not,
    /// exclusively if requested. Bytes past 2^64 are ignored.
    #[must_use]
    pub fn parts(&self, offset: u64, length: u64, exclusive: bool) -> Vec<(u64, u64, bool)> {
        let end = offset.saturating_add(length);
        let mut parts: Vec<(u64, u64, bool)> = Vec::new();
        let mut add = |from: u64, to: u64, is_locked| match parts.last_mut() {
            _ if from >= to => {}
            Some(last) if last.2 == is_locked => last.1 += to - from,
            _ => parts.push((from, to - from, is_locked)),
        };
        let mut at = offset;
        for span in self.0.iter().filter(|span| span.exclusive || !exclusive) {
            let first = span.first.clamp(at, end);
            let last = span.last.saturating_add(1).clamp(first, end);
            add(at, first, false);
            add(first, last, true);
            at = last;
        }
        add(at, end, false);
        parts
    }

    /// The lock that prevents other owners from locking this range.
    #[must_use]
    pub fn in_the_way(&self, range: &LockRange, exclusive: bool) -> Option<HeldLock> {
        let mut spans = self.0.iter();
        spans
            .find(|span| span.meets(range) && (span.exclusive || exclusive))
            .map(Span::shown)
    }
}

impl FileCall {
    /// The handle of its file; `None` for one that is yet to be opened.
    #[must_use]
    pub fn handle(&self) -> Option<u32> {
        match self {
            Self::Open { .. } => None,
            Self::Read { handle, .. }
            | Self::Write { handle, .. }
            | Self::Append { handle, .. }
            | Self::Flush { handle, .. }
            | Self::SetLength { handle, .. }
            | Self::Lock { handle, .. }
            | Self::Unlock { handle, .. }
            | Self::TestLock { handle, .. }
            | Self::Renew { handle, .. }
            | Self::Stat { handle }
            | Self::Close { handle } => Some(*handle),
        }
    }

    /// The path; empty except for opening a file.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Open { path, .. } => path,
            _ => b"",
        }
    }

    /// The operation, for messages: "open".
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Read { .. } => "read",
            Self::Write { .. } => "write to",
            Self::Append { .. } => "append to",
            Self::Flush { .. } => "flush",
            Self::SetLength { .. } => "set the length of",
            Self::Lock { .. } => "lock",
            Self::Unlock { .. } => "unlock",
            Self::TestLock { .. } => "look for locks on",
            Self::Renew { .. } => "renew a lock on",
            Self::Stat { .. } => "look at",
            Self::Close { .. } => "close",
        }
    }

    /// Whether it is read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Open { flags, .. } => !flags.write,
            Self::Read { .. } | Self::TestLock { .. } | Self::Stat { .. } => true,
            _ => false,
        }
    }

    /// Maximum bytes of data in its answer.
    #[must_use]
    pub fn answer_data_bytes(&self) -> usize {
        match self {
            Self::Read { extents, .. } => extents
                .iter()
                .map(|extent| extent.length as usize)
                .fold(0, usize::saturating_add),
            _ => 0,
        }
    }
}
