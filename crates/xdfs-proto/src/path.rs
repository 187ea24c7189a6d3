//! Path calls (xPathM): calls on the names of a store, and their answers. Calls on open files
//! (xDFSM) are among them: see [`crate::file`].
//!
//! These types are values; `codec` defines their encoding. A call is answered by any number of
//! parts and a last one, each an [`Answer`], or fails with a [`Fault`](crate::Fault). Paths are
//! byte strings in the form of the side that owns them, times are nanoseconds since 1970-01-01 UTC.

mod account;
mod codec;

pub use self::account::{ACCOUNT_NAME_BYTES_MAX, ACCOUNTS_MAX, Account};
pub use crate::attributes::{Attributes, Entry, FileKind, NO_TIME_NS, PartialFile, known_time};
use crate::delta::{Seed, Signatures};
use crate::digest::{ChecksumKind, ChecksumValue, DigestKind};
use crate::file::{Extent, FileAnswer, FileCall};
use crate::group::{GROUP_BYTES_MAX, Group};
use crate::relay::{LISTED_BYTES_MAX, ParcelList, ParcelStatus, RelayCall};
use crate::stripes::{STRIPES_BYTES_MAX, Stripes, StripesCall};
use crate::third_party::{CopyStatus, NEWS_BYTES, ThirdPartyCall, TreeStatus};

/// Maximum number of listing parts that may be produced and not yet taken by the client.
pub const PARTS_AHEAD_MAX: u32 = 8;
/// Approximate size of the listing parts made by a store: a frame has room for this, one more entry
/// with the longest name, and a cursor.
pub const PART_BYTES: usize = 32 << 10;

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// Queries attributes. Answered by [`Answer::Attributes`].
    Stat {
        /// The path.
        path: Vec<u8>,
        /// Follow a symbolic link.
        follow: bool,
    },
    /// Lists a directory, in the order of the store. Answered by [`Answer::Entries`], in parts.
    List {
        /// The directory.
        path: Vec<u8>,
        /// The cursor of an earlier listing; empty for the start.
        cursor: Vec<u8>,
        /// Maximum number of entries in this call, at least 1.
        entries_max: u32,
    },
    /// Creates a directory. Answered by [`Answer::Done`].
    MakeDirectory {
        /// Its path.
        path: Vec<u8>,
        /// Permission bits; `None` for the store's default.
        mode: Option<u32>,
        /// Create missing parents, and accept an existing directory.
        parents: bool,
    },
    /// Removes an entry other than a directory. Answered by [`Answer::Done`].
    RemoveFile {
        /// The path.
        path: Vec<u8>,
    },
    /// Removes an empty directory. Answered by [`Answer::Done`].
    RemoveDirectory {
        /// The path.
        path: Vec<u8>,
    },
    /// Removes a directory with its content, without following links. Answered by
    /// [`Answer::Removed`].
    RemoveTree {
        /// The path.
        path: Vec<u8>,
    },
    /// Renames an entry. Answered by [`Answer::Done`].
    Rename {
        /// The present path.
        from: Vec<u8>,
        /// The new path.
        to: Vec<u8>,
        /// Atomically replace an existing entry.
        overwrite: bool,
    },
    /// Copies a file within the store. Answered by [`Answer::Copied`].
    Copy {
        /// The source, a regular file.
        from: Vec<u8>,
        /// The target, which appears once it is complete.
        to: Vec<u8>,
        /// Replace an existing entry.
        overwrite: bool,
    },
    /// Creates a hard link. Answered by [`Answer::Done`].
    Link {
        /// The file.
        existing: Vec<u8>,
        /// The new name.
        path: Vec<u8>,
    },
    /// Creates a symbolic link. Answered by [`Answer::Done`].
    Symlink {
        /// The target of the link; not checked.
        target: Vec<u8>,
        /// The link.
        path: Vec<u8>,
    },
    /// Reads the target of a symbolic link. Answered by [`Answer::Target`].
    ReadLink {
        /// The link.
        path: Vec<u8>,
    },
    /// Sets permission bits, following a symbolic link. Answered by [`Answer::Done`].
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
        /// Time of the last access; `None` keeps it.
        atime_ns: Option<i64>,
        /// Modification time of the content; `None` keeps it.
        mtime_ns: Option<i64>,
        /// Follow a symbolic link.
        follow: bool,
    },
    /// Sets the owner and group. Answered by [`Answer::Done`].
    SetOwner {
        /// The path.
        path: Vec<u8>,
        /// Id of the owner; `None` keeps it.
        uid: Option<u32>,
        /// Id of the group; `None` keeps it.
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
    /// Queries the space of a path's file system. Answered by [`Answer::Space`].
    Space {
        /// The path.
        path: Vec<u8>,
    },
    /// Makes all changes in a path's file system durable, by any process. Answered by
    /// [`Answer::Done`].
    Sync {
        /// The path.
        path: Vec<u8>,
    },
    /// Computes the digest of a file or a part of it. Answered by [`Answer::Digest`].
    Checksum {
        /// The file.
        path: Vec<u8>,
        /// First byte.
        offset: u64,
        /// Number of bytes; `None` for all up to the end. Fewer are an error.
        length: Option<u64>,
        /// The kind of digest.
        kind: ChecksumKind,
    },
    /// Computes the signatures of some blocks of a file, for a side with another version of it.
    /// Answered by [`Answer::Signatures`].
    Signatures {
        /// The file.
        path: Vec<u8>,
        /// The kind of digest states to include; none for no states.
        digest: DigestKind,
        /// Size of a block: a power of two, from 1 KiB to 16 MiB.
        block_bytes: u32,
        /// The number of the first block.
        first: u64,
        /// Number of blocks: at least 1, at most [`crate::delta::SIGNATURES_MAX`], and of at most
        /// [`crate::delta::SIGNED_BYTES_MAX`] in total.
        count: u32,
    },
    /// Seeds a transfer with pieces of a file in the store, which need not be sent when the
    /// transfer starts and resumes from them. Pieces that don't match the old file are skipped.
    /// Answered by [`Answer::Copied`].
    Seed(Box<Seed>),
    /// Lists the unfinished transfers to names in a directory, in the order of the names. Answered
    /// by [`Answer::Partial`].
    ListPartial {
        /// The directory.
        path: Vec<u8>,
        /// The name to continue after; empty for the start.
        after: Vec<u8>,
    },
    /// Discards an unfinished transfer that isn't running. Answered by [`Answer::Done`].
    RemovePartial {
        /// The path of its target, or with a name from [`Answer::Partial`].
        path: Vec<u8>,
        /// Only if nothing has changed since this time; `None` for whatever its age is.
        unchanged_since_ns: Option<i64>,
    },
    /// Looks up users and groups of the answering side's system: names of numbers, and numbers of
    /// names. Answered by [`Answer::Accounts`].
    LookUp {
        /// A path that the caller may list; nothing needs to be there.
        path: Vec<u8>,
        /// The accounts: at least 1, at most [`ACCOUNTS_MAX`].
        accounts: Vec<Account>,
    },
    /// Finds out which owners the answering side can give to files. Answered by
    /// [`Answer::Accounts`]: one unknown account if it can give any owner; otherwise the user that
    /// it acts as, whose files it can change, and the groups that it can give to them.
    SettableOwners {
        /// A path that the caller may look at; nothing needs to be there.
        path: Vec<u8>,
    },
    /// Lists the group of acceptors that have this file. Answered by [`Answer::Group`].
    Group {
        /// The file.
        path: Vec<u8>,
    },
    /// A call about an upload of which several acceptors write parts.
    Stripes(StripesCall),
    /// A call about copies between two acceptors.
    ThirdParty(ThirdPartyCall),
    /// A call about parcels.
    Relay(RelayCall),
    /// A file call.
    File(FileCall),
}

/// An answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Success.
    Done,
    /// The attributes of the entry.
    Attributes(Attributes),
    /// Entries of a directory.
    Entries {
        /// The entries of this part.
        entries: Vec<Entry>,
        /// Where to continue after them; `None` at the end of the directory.
        cursor: Option<Vec<u8>>,
    },
    /// The target of a symbolic link.
    Target(Vec<u8>),
    /// The space of a file system.
    Space {
        /// Total bytes.
        total: u64,
        /// Free bytes.
        free: u64,
        /// Bytes available to this user.
        available: u64,
        /// Maximum number of files, or 0 if there is no such limit.
        files: u64,
        /// Number of files that can still be created.
        files_free: u64,
    },
    /// A digest.
    Digest {
        /// The value.
        value: ChecksumValue,
        /// Number of bytes covered.
        length: u64,
    },
    /// A tree was removed.
    Removed {
        /// Number of entries removed.
        entries: u64,
    },
    /// A file was copied, or pieces of one.
    Copied {
        /// Number of bytes copied.
        bytes: u64,
    },
    /// Signatures of blocks.
    Signatures(Signatures),
    /// Unfinished transfers.
    Partial {
        /// The transfers.
        files: Vec<PartialFile>,
        /// Whether there are others, after the last name.
        more: bool,
    },
    /// Users and groups: for each one asked for, in their order, the same one by name instead of
    /// number, or by number instead of name. `None` if it is unknown, or isn't told.
    Accounts(Vec<Option<Account>>),
    /// A capability: a secret for the acceptor that holds the key it is bound to.
    Capability(String),
    /// The state of a copy between two acceptors.
    CopyStatus(Box<CopyStatus>),
    /// The state of a tree.
    TreeStatus(Box<TreeStatus>),
    /// The state of a parcel.
    ParcelStatus(Box<ParcelStatus>),
    /// A part of the list of parcels.
    Parcels(ParcelList),
    /// The members of a group.
    Group(Group),
    /// An open target of which several acceptors write parts.
    Stripes(Box<Stripes>),
    /// The answer to a file call.
    File(FileAnswer),
}

impl Answer {
    /// Bytes of data in it; see [`Call::answer_data_bytes`].
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        match self {
            Self::File(FileAnswer::Data { bytes, .. }) => bytes.len(),
            Self::Signatures(signatures) => {
                let count = u32::try_from(signatures.blocks.len()).unwrap_or(u32::MAX);
                Signatures::data_bytes(signatures.digest, count)
            }
            Self::Partial { files, .. } => files.iter().map(PartialFile::bytes).sum(),
            Self::Accounts(accounts) => account::found_bytes(accounts),
            Self::TreeStatus(status) => status.bytes_max(),
            Self::Group(group) => group.data_bytes(),
            Self::Parcels(list) => list.data_bytes(),
            Self::Stripes(stripes) => stripes.data_bytes(),
            _ => 0,
        }
    }
}

impl Call {
    /// The path named in faults of this call: the one that it is mostly about.
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
            | Self::ListPartial { path, .. }
            | Self::RemovePartial { path, .. }
            | Self::LookUp { path, .. }
            | Self::SettableOwners { path }
            | Self::Group { path }
            | Self::Signatures { path, .. } => path,
            Self::Rename { from, .. } | Self::Copy { from, .. } => from,
            Self::Seed(seed) => &seed.from,
            Self::Stripes(call) => call.path(),
            Self::ThirdParty(call) => call.path(),
            Self::Relay(_) => &[],
            Self::File(call) => call.path(),
        }
    }

    /// The operation, for messages: "list".
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Stat { .. } => "look at",
            Self::List { .. } => "list",
            Self::MakeDirectory { .. } => "make the directory",
            Self::RemoveFile { .. } => "remove",
            Self::RemoveDirectory { .. } => "remove the directory",
            Self::RemoveTree { .. } => "remove the tree",
            Self::Rename { .. } => "rename",
            Self::Copy { .. } => "copy",
            Self::Link { .. } => "link",
            Self::Symlink { .. } => "make the symbolic link",
            Self::ReadLink { .. } => "read the symbolic link",
            Self::SetMode { .. } => "set the permissions of",
            Self::SetTimes { .. } => "set the times of",
            Self::SetOwner { .. } => "set the owner of",
            Self::Truncate { .. } => "set the length of",
            Self::Space { .. } => "look at the space left in",
            Self::Checksum { .. } => "compute the digest of",
            Self::Sync { .. } => "make changes durable in",
            Self::Signatures { .. } => "compute the block sums of",
            Self::Seed(_) => "begin with the old file",
            Self::ListPartial { .. } => "list the unfinished transfers in",
            Self::RemovePartial { .. } => "remove the unfinished transfer",
            Self::LookUp { .. } => "look up users and groups for",
            Self::SettableOwners { .. } => "find out which owners can be set in",
            Self::Group { .. } => "find out which servers have",
            Self::Stripes(call) => call.operation(),
            Self::ThirdParty(call) => call.operation(),
            Self::Relay(call) => call.operation(),
            Self::File(call) => call.operation(),
        }
    }

    /// Whether it is read-only.
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
                | Self::ListPartial { .. }
                | Self::LookUp { .. }
                | Self::SettableOwners { .. }
                | Self::Group { .. }
                | Self::ThirdParty(ThirdPartyCall::Status(_))
                | Self::Relay(RelayCall::Status(_) | RelayCall::List(_))
        )
    }

    /// Maximum bytes of data in its answer, which the answering side keeps until it is taken.
    #[must_use]
    pub fn answer_data_bytes(&self) -> usize {
        match self {
            Self::File(call) => call.answer_data_bytes(),
            Self::Signatures { digest, count, .. } => Signatures::data_bytes(*digest, *count),
            Self::ListPartial { .. } => PART_BYTES,
            Self::ThirdParty(ThirdPartyCall::TreeStatus(_)) => 2 * NEWS_BYTES,
            Self::LookUp { accounts, .. } => accounts.iter().map(Account::answer_bytes_max).sum(),
            Self::SettableOwners { .. } => account::SETTABLE_BYTES_MAX,
            Self::Group { .. } => GROUP_BYTES_MAX,
            Self::Relay(RelayCall::List(_)) => LISTED_BYTES_MAX,
            Self::Stripes(StripesCall::Open(_)) => STRIPES_BYTES_MAX,
            _ => 0,
        }
    }

    /// Whether an answer has the right kind for this call.
    #[must_use]
    pub fn is_answered_by(&self, answer: &Answer) -> bool {
        match self {
            Self::File(call) => return call.is_answered_by(answer),
            Self::ThirdParty(call) => {
                return matches!(
                    (call, answer),
                    (
                        ThirdPartyCall::Delegate(_) | ThirdPartyCall::DelegateTree(_),
                        Answer::Capability(_)
                    ) | (
                        ThirdPartyCall::Start(_)
                            | ThirdPartyCall::StartTree(_)
                            | ThirdPartyCall::Cancel(_),
                        Answer::Done
                    ) | (ThirdPartyCall::TreeStatus(_), Answer::TreeStatus(_))
                        | (ThirdPartyCall::Status(_), Answer::CopyStatus(_))
                );
            }
            Self::Stripes(call) => {
                return matches!(
                    (call, answer),
                    (StripesCall::Open(_), Answer::Stripes(_))
                        | (StripesCall::TakeIn { .. }, Answer::Copied { .. })
                        | (
                            StripesCall::Publish { .. } | StripesCall::Close { .. },
                            Answer::Done
                        )
                );
            }
            Self::Relay(call) => {
                return matches!(
                    (call, answer),
                    (RelayCall::Open(_) | RelayCall::End(..), Answer::Done)
                        | (RelayCall::Status(_), Answer::ParcelStatus(_))
                        | (RelayCall::List(_), Answer::Parcels(_))
                );
            }
            _ => {}
        }
        matches!(
            (self, answer),
            (Self::Stat { .. }, Answer::Attributes(_))
                | (Self::List { .. }, Answer::Entries { .. })
                | (Self::ReadLink { .. }, Answer::Target(_))
                | (Self::Space { .. }, Answer::Space { .. })
                | (Self::Group { .. }, Answer::Group(_))
                | (Self::RemoveTree { .. }, Answer::Removed { .. })
                | (Self::Copy { .. } | Self::Seed(_), Answer::Copied { .. })
                | (Self::ListPartial { .. }, Answer::Partial { .. })
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
                        | Self::RemovePartial { .. }
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
            (Self::Checksum { kind, .. }, Answer::Digest { value, .. }) => *kind == value.kind(),
            (Self::LookUp { accounts, .. }, Answer::Accounts(found)) => {
                let answers = |(asked, found): (&Account, &Option<Account>)| {
                    found.as_ref().is_none_or(|found| found.answers(asked))
                };
                accounts.len() == found.len() && accounts.iter().zip(found).all(answers)
            }
            (Self::SettableOwners { .. }, Answer::Accounts(found)) => match &found[..] {
                [None] => true,
                [Some(Account::User(_)), groups @ ..] => groups
                    .iter()
                    .all(|group| matches!(group, Some(Account::Group(_)))),
                _ => false,
            },
            _ => false,
        }
    }
}

impl FileCall {
    /// Whether an answer has the right kind for this call, and not more than was requested.
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
