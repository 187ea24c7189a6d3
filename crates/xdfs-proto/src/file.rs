//! File calls (xDFSM): work on an open file of the other side, in place.
//!
//! They are calls as those about paths are, in the same slots and answered by the same machines:
//! see [`crate::path`]. An open file is named by a [handle](FileCall::Open) that lasts as long as
//! the session. What outlasts the session is known to the side that asks: the path, the
//! [identity](FileIdentity) of the file, and who it is ([`FileOwner`]). With these it opens the
//! file again, and is told if that is another one by now.

mod codec;

use std::fmt;
use std::sync::Arc;

use crate::attributes::Attributes;

/// Most bytes that one call reads or writes. A frame has room for them beside [`EXTENTS_MAX`]
/// extents.
pub const DATA_BYTES_MAX: usize = 60 << 10;
/// Most stretches of a file that one call reads or writes.
pub const EXTENTS_MAX: usize = 256;
/// Longest lease of locks, in seconds.
pub const LEASE_SECONDS_MAX: u32 = 3600;
/// Longest time that a call waits at the answering side, in milliseconds: for a lock, for bytes in
/// a pipe or for room there, and for whom a pipe is opened for.
pub const WAIT_MS_MAX: u32 = 10_000;

/// Who works on a file: 16 random bytes that the asking side draws for each file that it opens. It
/// holds locks with its user, so that they outlast a session, and stands for the file when it is
/// opened again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileOwner(pub [u8; 16]);

impl fmt::Debug for FileOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileOwner(..)")
    }
}

/// Which file it is, whatever its names are. Fields that a store doesn't know are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// Number of the file system.
    pub device: u64,
    /// Number in that file system.
    pub inode: u64,
    /// When the file was made, in nanoseconds since 1970: tells it from one that had the same
    /// numbers before.
    pub born_ns: i64,
}

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub length: u32,
}

/// Bytes that locks are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at least 1; `None` for all that there are and ever will be.
    pub length: Option<u64>,
}

impl LockRange {
    /// All bytes.
    pub const ALL: Self = Self {
        offset: 0,
        length: None,
    };

    /// The number of the last byte.
    #[must_use]
    pub fn last(&self) -> u64 {
        let last = |length: u64| self.offset.saturating_add(length.saturating_sub(1));
        self.length.map_or(u64::MAX, last)
    }
}

/// How a file is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Everything that is written goes to the end, as one step with finding it. Needs `write`.
    pub append: bool,
    /// Make it if it isn't there. Needs `write`.
    pub create: bool,
    /// Make it, and fail if anything has the name. Needs `create`.
    pub exclusive: bool,
    /// Remove its content. Needs `write`.
    pub truncate: bool,
}

/// What is asked about files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileCall {
    /// Opens a regular file or a named pipe, links followed. Answered by [`FileAnswer::Opened`].
    /// Whatever the same owner, as the same user, had open of this file is closed before.
    Open {
        /// The path.
        path: Vec<u8>,
        /// How.
        flags: FileFlags,
        /// Permission bits of a file that is made; `None` for the default of the store.
        mode: Option<u32>,
        /// Who works on it.
        owner: FileOwner,
        /// The file that it has to be: it was open before. Then nothing is made or removed.
        identity: Option<FileIdentity>,
    },
    /// Reads. Answered by [`FileAnswer::Data`]. Of a pipe it is one extent, whose offset means
    /// nothing.
    Read {
        /// The file.
        handle: u32,
        /// Only under a lock of the owner that covers all of it.
        locked: bool,
        /// What: at most [`EXTENTS_MAX`], of at most [`DATA_BYTES_MAX`] together.
        extents: Vec<Extent>,
    },
    /// Writes at given places, one after the other. Answered by [`crate::path::Answer::Done`].
    Write {
        /// The file.
        handle: u32,
        /// Only under an exclusive lock of the owner that covers all of it.
        locked: bool,
        /// Where: at most [`EXTENTS_MAX`].
        extents: Vec<Extent>,
        /// The bytes of all extents: at most [`DATA_BYTES_MAX`].
        bytes: Arc<Vec<u8>>,
    },
    /// Writes at the end, or into a pipe. Answered by [`FileAnswer::Appended`].
    Append {
        /// The file, opened so.
        handle: u32,
        /// Only under an exclusive lock of the owner that covers the end and all beyond.
        locked: bool,
        /// The bytes: at least 1, at most [`DATA_BYTES_MAX`].
        bytes: Arc<Vec<u8>>,
    },
    /// Makes durable what was written by calls that were answered before. Answered by
    /// [`crate::path::Answer::Done`].
    Flush {
        /// The file.
        handle: u32,
        /// Only the content, and of what is known of the file what reading it needs.
        data_only: bool,
    },
    /// Sets the length. Answered by [`crate::path::Answer::Done`].
    SetLength {
        /// The file.
        handle: u32,
        /// Only under an exclusive lock of the owner that covers what changes, and all beyond.
        locked: bool,
        /// The length in bytes.
        length: u64,
    },
    /// Locks bytes against other owners. Answered by [`FileAnswer::Held`].
    Lock {
        /// The file: opened for reading, and for writing if it is exclusive.
        handle: u32,
        /// The bytes. Locks that the owner has on them are changed to this one.
        range: LockRange,
        /// Nobody else may hold any lock there, rather than no exclusive one.
        exclusive: bool,
        /// How long the locks of this owner on the file last without a word about it, in seconds:
        /// 1 to [`LEASE_SECONDS_MAX`].
        lease_s: u32,
        /// How long to wait for others, at most [`WAIT_MS_MAX`].
        wait_ms: u32,
    },
    /// Gives up locks, those of the owner on some bytes. Answered by [`crate::path::Answer::Done`].
    Unlock {
        /// The file.
        handle: u32,
        /// The bytes.
        range: LockRange,
    },
    /// Asks who is in the way of a lock. Answered by [`FileAnswer::InTheWay`].
    TestLock {
        /// The file.
        handle: u32,
        /// The bytes.
        range: LockRange,
        /// An exclusive lock.
        exclusive: bool,
    },
    /// Renews the lease of the owner's locks. Answered by [`crate::path::Answer::Done`].
    Renew {
        /// The file.
        handle: u32,
        /// What [`FileAnswer::Held`] said: other locks than those aren't meant.
        holding: u64,
    },
    /// What is known of the file now. Answered by [`crate::path::Answer::Attributes`].
    Stat {
        /// The file.
        handle: u32,
    },
    /// Closes the file and gives up the locks of its owner. Answered by
    /// [`crate::path::Answer::Done`].
    Close {
        /// The file.
        handle: u32,
    },
}

/// What is answered about files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileAnswer {
    /// The file is open.
    Opened {
        /// Its name in this session: at least 1, and none that was given before.
        handle: u32,
        /// Which file it is.
        identity: FileIdentity,
        /// It was made by this call.
        created: bool,
        /// A number that is another one if what was written and not made durable may have been lost
        /// meanwhile, because the system of that side was started anew.
        run: u64,
        /// What is known of it.
        attributes: Attributes,
    },
    /// What was read.
    Data {
        /// Bytes of each extent: fewer than asked for only at the end of the file. Of a pipe as
        /// many as there are, and none when nobody writes to it any more.
        lengths: Vec<u32>,
        /// All of them, one extent after the other.
        bytes: Arc<Vec<u8>>,
    },
    /// What was appended.
    Appended {
        /// Where the first byte went; 0 of a pipe.
        offset: u64,
        /// How many: all, and of a pipe as many as there was room for.
        length: u32,
    },
    /// The owner holds locks on the file.
    Held {
        /// A number that is another one if it had lost all its locks on the file before.
        holding: u64,
    },
    /// What is in the way of a lock, if anything is.
    InTheWay(Option<HeldLock>),
}

/// A lock of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// The bytes.
    pub range: LockRange,
    /// It shuts out all others.
    pub exclusive: bool,
}

/// Locks of one owner on one file: in order, apart from each other, and joined where they can be.
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

    /// Gives up the locks on some bytes.
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

    /// Locks some bytes; locks on them are changed to this one.
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

    /// Whether there are locks on all of these bytes, and exclusive ones if that is asked for.
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

    /// These bytes, cut where it changes whether there is a lock on them, and whether there is; an
    /// exclusive one if that is asked for. Bytes past 2^64 aren't there.
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

    /// The lock that keeps others from having one on these bytes.
    #[must_use]
    pub fn in_the_way(&self, range: &LockRange, exclusive: bool) -> Option<HeldLock> {
        let mut spans = self.0.iter();
        spans
            .find(|span| span.meets(range) && (span.exclusive || exclusive))
            .map(Span::shown)
    }
}

impl FileCall {
    /// The file that it is about; `None` for one that is yet to be opened.
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

    /// The path that it names; only that of a file to be opened isn't empty.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Open { path, .. } => path,
            _ => b"",
        }
    }

    /// What it does, for messages: "open a file".
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open a file",
            Self::Read { .. } => "read a file",
            Self::Write { .. } => "write to a file",
            Self::Append { .. } => "append to a file",
            Self::Flush { .. } => "make a file durable",
            Self::SetLength { .. } => "set the length of a file",
            Self::Lock { .. } => "lock a file",
            Self::Unlock { .. } => "unlock a file",
            Self::TestLock { .. } => "look for locks",
            Self::Renew { .. } => "renew a lock",
            Self::Stat { .. } => "look at a file",
            Self::Close { .. } => "close a file",
        }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Open { flags, .. } => !flags.write,
            Self::Read { .. } | Self::TestLock { .. } | Self::Stat { .. } => true,
            _ => false,
        }
    }

    /// Most bytes of data that its answer may have.
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
