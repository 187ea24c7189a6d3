//! Path calls (xPathM): what can be asked of a store about its names, and what it answers. Calls
//! about open files (xDFSM) are among them: see [`crate::file`].
//!
//! These are values; how they look on the wire is in `codec`. A call is answered by any number of
//! parts and one end, each an [`Answer`], or ends with a [`Fault`](crate::Fault). Paths are byte
//! strings in the form of the side that owns them, times are nanoseconds since 1970-01-01 UTC.

mod codec;

pub use crate::attributes::{Attributes, Entry, FileKind};
use crate::delta::{Seed, Signatures};
use crate::digest::{DigestKind, DigestValue};
use crate::file::{Extent, FileAnswer, FileCall};

/// Parts of a listing that may be made and not yet taken by the side that asked.
pub const PARTS_AHEAD_MAX: u32 = 8;
/// Bytes that a store makes the parts of a listing of, about: a frame has room for them even with
/// one more entry of the longest name and a cursor.
pub const PART_BYTES: usize = 32 << 10;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// What stands under a path. Answered by [`Answer::Attributes`].
    Stat {
        /// The path.
        path: Vec<u8>,
        /// Follow a symbolic link.
        follow: bool,
    },
    /// The names in a directory, in the order of the store. Answered by [`Answer::Entries`], in
    /// parts.
    List {
        /// The directory.
        path: Vec<u8>,
        /// Where an earlier listing stopped; empty from the start.
        cursor: Vec<u8>,
        /// Most entries of this call, at least 1.
        entries_max: u32,
    },
    /// Makes a directory. Answered by [`Answer::Done`].
    MakeDirectory {
        /// Its path.
        path: Vec<u8>,
        /// Permission bits; `None` for the default of the store.
        mode: Option<u32>,
        /// Make the directories above it that are missing, and take one that is there already.
        parents: bool,
    },
    /// Removes a name that isn't a directory. Answered by [`Answer::Done`].
    RemoveFile {
        /// The path.
        path: Vec<u8>,
    },
    /// Removes an empty directory. Answered by [`Answer::Done`].
    RemoveDirectory {
        /// The path.
        path: Vec<u8>,
    },
    /// Removes a directory with everything in it, links not followed. Answered by
    /// [`Answer::Removed`].
    RemoveTree {
        /// The path.
        path: Vec<u8>,
    },
    /// Gives another name. Answered by [`Answer::Done`].
    Rename {
        /// The path of today.
        from: Vec<u8>,
        /// The new path.
        to: Vec<u8>,
        /// Replace what stands there, as one step.
        overwrite: bool,
    },
    /// Copies a file within the store. Answered by [`Answer::Copied`].
    Copy {
        /// The source, a regular file.
        from: Vec<u8>,
        /// The target, which appears when it is complete.
        to: Vec<u8>,
        /// Replace what stands there.
        overwrite: bool,
    },
    /// Gives a file a further name. Answered by [`Answer::Done`].
    Link {
        /// The file.
        existing: Vec<u8>,
        /// The further name.
        path: Vec<u8>,
    },
    /// Makes a symbolic link. Answered by [`Answer::Done`].
    Symlink {
        /// What the link says; not looked at.
        target: Vec<u8>,
        /// The link.
        path: Vec<u8>,
    },
    /// What a symbolic link says. Answered by [`Answer::Target`].
    ReadLink {
        /// The link.
        path: Vec<u8>,
    },
    /// Sets permission bits; a symbolic link is followed. Answered by [`Answer::Done`].
    SetMode {
        /// The path.
        path: Vec<u8>,
        /// The bits, at most 0o7777.
        mode: u32,
    },
    /// Sets times. Answered by [`Answer::Done`].
    SetTimes {
        /// The path.
        path: Vec<u8>,
        /// Time of the last read; `None` leaves it.
        atime_ns: Option<i64>,
        /// Time of the last change of the content; `None` leaves it.
        mtime_ns: Option<i64>,
        /// Follow a symbolic link.
        follow: bool,
    },
    /// Sets owner and group. Answered by [`Answer::Done`].
    SetOwner {
        /// The path.
        path: Vec<u8>,
        /// Number of the owner; `None` leaves it.
        uid: Option<u32>,
        /// Number of the group; `None` leaves it.
        gid: Option<u32>,
        /// Follow a symbolic link.
        follow: bool,
    },
    /// Sets the length of a file. Answered by [`Answer::Done`].
    Truncate {
        /// The file.
        path: Vec<u8>,
        /// The new length in bytes.
        length: u64,
    },
    /// The space of the file system that holds a path. Answered by [`Answer::Space`].
    Space {
        /// The path.
        path: Vec<u8>,
    },
    /// Makes durable what was changed in the file system that holds a path, by whomever. Answered
    /// by [`Answer::Done`].
    Sync {
        /// The path.
        path: Vec<u8>,
    },
    /// The digest of a file, or of a part of it. Answered by [`Answer::Digest`].
    Checksum {
        /// The file.
        path: Vec<u8>,
        /// First byte.
        offset: u64,
        /// Number of bytes; `None` up to the end. Fewer are an error.
        length: Option<u64>,
        /// The kind of digest, which isn't none.
        kind: DigestKind,
    },
    /// The sums of some blocks of a file, for whoever has another version of it. Answered by
    /// [`Answer::Signatures`].
    Signatures {
        /// The file.
        path: Vec<u8>,
        /// The kind of the digest states that are wanted too; none if they aren't.
        digest: DigestKind,
        /// Bytes of a block: a power of two, of 1 KiB to 16 MiB.
        block_bytes: u32,
        /// The number of the first block.
        first: u64,
        /// How many: at least 1, at most [`crate::delta::SIGNATURES_MAX`], and of no more than
        /// [`crate::delta::SIGNED_BYTES_MAX`] together.
        count: u32,
    },
    /// Has an unfinished transfer begin with pieces of a file of the store: they needn't be sent
    /// when the transfer is begun, and goes on. Pieces that aren't in the old file as said are left
    /// out. Answered by [`Answer::Copied`].
    Seed(Box<Seed>),
    /// Works on an open file, or opens one.
    File(FileCall),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// It is done.
    Done,
    /// What stands under the path.
    Attributes(Attributes),
    /// Names in a directory.
    Entries {
        /// Some of them.
        entries: Vec<Entry>,
        /// Where to go on after them; `None` at the end of the directory.
        cursor: Option<Vec<u8>>,
    },
    /// What a symbolic link says.
    Target(Vec<u8>),
    /// The space of a file system.
    Space {
        /// Bytes in all.
        total: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes that this user may still take.
        available: u64,
        /// Files in all, if the file system has such a bound, else 0.
        files: u64,
        /// Files that may still be made.
        files_free: u64,
    },
    /// A digest.
    Digest {
        /// The value.
        value: DigestValue,
        /// Bytes that it covers.
        length: u64,
    },
    /// A tree was removed.
    Removed {
        /// Names that were removed.
        entries: u64,
    },
    /// A file was copied, or pieces of one.
    Copied {
        /// Bytes that were copied.
        bytes: u64,
    },
    /// Sums of blocks.
    Signatures(Signatures),
    /// What came of work on an open file.
    File(FileAnswer),
}

impl Answer {
    /// Bytes of data that it has; see [`Call::answer_data_bytes`].
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        match self {
            Self::File(FileAnswer::Data { bytes, .. }) => bytes.len(),
            Self::Signatures(signatures) => {
                let count = u32::try_from(signatures.blocks.len()).unwrap_or(u32::MAX);
                Signatures::data_bytes(signatures.digest, count)
            }
            _ => 0,
        }
    }
}

impl Call {
    /// The path that a fault of this call names: the one that it is mostly about.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Stat { path, .. }
            | Self::List { path, .. }
            | Self::MakeDirectory { path, .. }
            | Self::RemoveFile { path }
            | Self::RemoveDirectory { path }
            | Self::RemoveTree { path }
            | Self::Link { path, .. }
            | Self::Symlink { path, .. }
            | Self::ReadLink { path }
            | Self::SetMode { path, .. }
            | Self::SetTimes { path, .. }
            | Self::SetOwner { path, .. }
            | Self::Truncate { path, .. }
            | Self::Space { path }
            | Self::Sync { path }
            | Self::Checksum { path, .. }
            | Self::Signatures { path, .. } => path,
            Self::Rename { from, .. } | Self::Copy { from, .. } => from,
            Self::Seed(seed) => &seed.from,
            Self::File(call) => call.path(),
        }
    }

    /// What it does, for messages: "list a directory".
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Stat { .. } => "look at a path",
            Self::List { .. } => "list a directory",
            Self::MakeDirectory { .. } => "make a directory",
            Self::RemoveFile { .. } => "remove a file",
            Self::RemoveDirectory { .. } => "remove a directory",
            Self::RemoveTree { .. } => "remove a tree",
            Self::Rename { .. } => "rename",
            Self::Copy { .. } => "copy a file",
            Self::Link { .. } => "link a file",
            Self::Symlink { .. } => "make a symbolic link",
            Self::ReadLink { .. } => "read a symbolic link",
            Self::SetMode { .. } => "set the permissions",
            Self::SetTimes { .. } => "set the times",
            Self::SetOwner { .. } => "set the owner",
            Self::Truncate { .. } => "set the length",
            Self::Space { .. } => "look at the space left",
            Self::Checksum { .. } => "compute a digest",
            Self::Sync { .. } => "make changes durable",
            Self::Signatures { .. } => "compute the sums of blocks",
            Self::Seed(_) => "begin with an old file",
            Self::File(call) => call.operation(),
        }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        if let Self::File(call) = self {
            return call.is_read_only();
        }
        matches!(
            self,
            Self::Stat { .. }
                | Self::List { .. }
                | Self::ReadLink { .. }
                | Self::Space { .. }
                | Self::Sync { .. }
                | Self::Checksum { .. }
                | Self::Signatures { .. }
        )
    }

    /// Most bytes of data that its answer may have: what the answering side keeps until it is
    /// taken.
    #[must_use]
    pub fn answer_data_bytes(&self) -> usize {
        match self {
            Self::File(call) => call.answer_data_bytes(),
            Self::Signatures { digest, count, .. } => Signatures::data_bytes(*digest, *count),
            _ => 0,
        }
    }

    /// Whether an answer is of the kind that answers this call.
    #[must_use]
    pub fn is_answered_by(&self, answer: &Answer) -> bool {
        if let Self::File(call) = self {
            return call.is_answered_by(answer);
        }
        matches!(
            (self, answer),
            (Self::Stat { .. }, Answer::Attributes(_))
                | (Self::List { .. }, Answer::Entries { .. })
                | (Self::ReadLink { .. }, Answer::Target(_))
                | (Self::Space { .. }, Answer::Space { .. })
                | (Self::RemoveTree { .. }, Answer::Removed { .. })
                | (Self::Copy { .. } | Self::Seed(_), Answer::Copied { .. })
                | (
                    Self::MakeDirectory { .. }
                        | Self::RemoveFile { .. }
                        | Self::RemoveDirectory { .. }
                        | Self::Rename { .. }
                        | Self::Link { .. }
                        | Self::Symlink { .. }
                        | Self::SetMode { .. }
                        | Self::SetTimes { .. }
                        | Self::SetOwner { .. }
                        | Self::Truncate { .. }
                        | Self::Sync { .. },
                    Answer::Done
                )
        ) || match (self, answer) {
            (
                Self::Signatures {
                    digest,
                    first,
                    count,
                    ..
                },
                Answer::Signatures(signatures),
            ) => {
                (digest, first) == (&signatures.digest, &signatures.first)
                    && signatures.blocks.len() <= *count as usize
            }
            (Self::Checksum { kind, .. }, Answer::Digest { value, .. }) => matches!(
                (kind, value),
                (DigestKind::Crc64Nvme, DigestValue::Crc64Nvme(_))
                    | (DigestKind::Blake3, DigestValue::Blake3(_))
            ),
            _ => false,
        }
    }
}

impl FileCall {
    /// Whether an answer is of the kind that answers this call, and no more than was asked for.
    fn is_answered_by(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Self::Open { .. }, Answer::File(FileAnswer::Opened { .. }))
            | (Self::Lock { .. }, Answer::File(FileAnswer::Held { .. }))
            | (Self::TestLock { .. }, Answer::File(FileAnswer::InTheWay(_)))
            | (Self::Stat { .. }, Answer::Attributes(_))
            | (
                Self::Write { .. }
                | Self::Flush { .. }
                | Self::SetLength { .. }
                | Self::Unlock { .. }
                | Self::Renew { .. }
                | Self::Close { .. },
                Answer::Done,
            ) => true,
            (Self::Read { extents, .. }, Answer::File(FileAnswer::Data { lengths, .. })) => {
                let fits = |(extent, length): (&Extent, &u32)| *length <= extent.length;
                extents.len() == lengths.len() && extents.iter().zip(lengths).all(fits)
            }
            (Self::Append { bytes, .. }, Answer::File(FileAnswer::Appended { length, .. })) => {
                *length as usize <= bytes.len()
            }
            _ => false,
        }
    }
}
