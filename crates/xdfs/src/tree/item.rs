//! Entries in flight: how each is counted, and its mark in a journal.

use xdfs_proto::digest::{BlockHasher, FragmentMap};
use xdfs_proto::pack::{Content, Entry, Metadata, PACK_BYTES_MAX, PackReader, PackWriter};
use xdfs_proto::{DigestKind, DigestValue, FileId, Limits};
use xdfs_store::tree_journal::Mark;

use super::options::SET_ID;
use crate::events::FilePace;
use crate::mtime::is_cut;
use crate::paths::FileKind;

/// How a moved entry is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Other,
    /// A further hard link of a file.
    Link,
    /// Metadata of an entry that was moved earlier.
    Attributes,
    /// Metadata of a directory.
    DirectoryAttributes,
    /// Likewise, but a failure isn't reported.
    Silent,
}

/// An entry of a pack, or a large file.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    /// Its version in a journal; `None` if it is never claimed.
    pub(super) mark: Option<Mark>,
    /// The digest of a file's content, if it was asked for and is known.
    pub(super) digest: DigestValue,
    /// The pace of a file that is a transfer of its own, once it has arrived.
    pub(super) pace: Option<FilePace>,
    /// Owner and group at the source, if they are to be kept.
    pub(super) owner: Option<(u32, u32)>,
    /// It has set-user-id or set-group-id, and isn't a directory.
    pub(super) has_set_id: bool,
    /// Its modification time is beyond the range that can be carried.
    pub(super) has_cut_time: bool,
    /// Extended attributes of a directory that it gets when it is complete: entries made in it
    /// would inherit some, and the root isn't made by an entry.
    pub(super) late_xattrs: Vec<OwnedXattr>,
}

/// Name and value of an extended attribute.
pub(super) type OwnedXattr = (Vec<u8>, Vec<u8>);

/// The access control list that new entries of a directory inherit.
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// The extended attributes of an entry with names that are `wanted`.
pub(super) fn owned_xattrs(
    metadata: &Metadata<'_>,
    wanted: impl Fn(&[u8]) -> bool,
) -> Vec<OwnedXattr> {
    let xattrs = metadata.xattrs.iter();
    let wanted = xattrs.filter(|(name, _)| wanted(name));
    wanted
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect()
}

impl Kind {
    /// The kind of a listed entry.
    pub(super) fn of(kind: FileKind) -> Self {
        match kind {
            FileKind::File => Self::File,
            FileKind::Directory => Self::Directory,
            _ => Self::Other,
        }
    }

    /// Whether the entry creates a name.
    pub(super) fn has_name(self) -> bool {
        !matches!(
            self,
            Self::Attributes | Self::DirectoryAttributes | Self::Silent
        )
    }
}

impl Item {
    /// An item without a mark.
    pub(super) fn new(path: Vec<u8>, kind: Kind, bytes: u64) -> Self {
        Self {
            path,
            kind,
            bytes,
            mark: None,
            digest: DigestValue::None,
            pace: None,
            owner: None,
            has_set_id: false,
            has_cut_time: false,
            late_xattrs: Vec::new(),
        }
    }

    /// The item of a pack entry.
    pub(super) fn of(entry: &Entry<'_>) -> Self {
        let (kind, bytes, marked) = match entry.content {
            Content::File(bytes) => (Kind::File, bytes.len() as u64, Some(0)),
            Content::Symlink(_) => (Kind::Other, 0, Some(1)),
            Content::Fifo => (Kind::Other, 0, Some(2)),
            Content::Directory => (Kind::Directory, 0, None),
            Content::Attributes => (Kind::Attributes, 0, None),
            Content::HardLink(_) => (Kind::Link, 0, None),
            _ => (Kind::Other, 0, None),
        };
        let metadata = &entry.metadata;
        let mark = marked.zip(metadata.mtime_ns);
        let late_xattrs = match kind {
            Kind::Directory => owned_xattrs(metadata, |name| {
                entry.path.is_empty() || name == DEFAULT_ACL
            }),
            _ => Vec::new(),
        };
        Self {
            mark: mark.map(|(kind, mtime_ns)| Mark {
                kind,
                size: bytes,
                mtime_ns,
            }),
            has_cut_time: is_cut(metadata.mtime_ns),
            late_xattrs,
            ..Self::new(entry.path.to_vec(), kind, bytes)
        }
        .owned(metadata)
    }

    /// Likewise, with a digest of this kind of a file's content.
    pub(super) fn with_digest(entry: &Entry<'_>, kind: DigestKind) -> Self {
        let digest = match entry.content {
            Content::File(bytes) => digest_of(kind, bytes),
            _ => DigestValue::None,
        };
        Self {
            digest,
            ..Self::of(entry)
        }
    }

    /// A file with a transfer of its own.
    pub(super) fn large(path: Vec<u8>, bytes: u64, mtime_ns: Option<i64>) -> Self {
        Self {
            mark: mtime_ns.map(|mtime_ns| Mark {
                kind: 0,
                size: bytes,
                mtime_ns,
            }),
            has_cut_time: is_cut(mtime_ns),
            ..Self::new(path, Kind::File, bytes)
        }
    }

    /// The same item with the owner and the set-id bits of the source.
    fn owned(self, metadata: &Metadata<'_>) -> Self {
        let mode = metadata.mode.map_or(0, u32::from);
        Self {
            owner: metadata.owner.map(|owner| (owner.uid, owner.gid)),
            has_set_id: self.kind != Kind::Directory && mode & SET_ID != 0,
            ..self
        }
    }

    /// Likewise those in a pack that sets its metadata.
    pub(super) fn owned_as(self, kept: &[u8]) -> Self {
        match PackReader::new(kept, &Limits::default()).next() {
            Some(Ok(entry)) => self.owned(&entry.metadata),
            _ => self,
        }
    }

    /// The items of a pack that was built locally, with digests of this kind.
    pub(super) fn of_pack(pack: &[u8], kind: DigestKind) -> Vec<Self> {
        let limits = Limits::default();
        let entries = PackReader::new(pack, &limits);
        entries
            .map_while(Result::ok)
            .map(|e| Self::with_digest(&e, kind))
            .collect()
    }
}

/// The digest of the whole content of a file.
fn digest_of(kind: DigestKind, content: &[u8]) -> DigestValue {
    if kind == DigestKind::None {
        return DigestValue::None;
    }
    let mut hasher = BlockHasher::new(kind, false, 0);
    hasher.update(content);
    let mut map = FragmentMap::new(kind);
    if !content.is_empty() {
        map.insert(hasher.finish(FileId(0)).1);
    }
    map.digest(content.len() as u64)
        .unwrap_or(DigestValue::None)
}

/// Metadata of a large file beyond what its transfer preserves, as a pack that sets it once the
/// file is there.
pub(super) type DeferredMetadata = Option<Vec<u8>>;

/// A pack that sets the metadata of an entry.
pub(super) fn attributes_of(entry: &Entry<'_>) -> Vec<u8> {
    let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
    // It fits: the entry came in a pack of at most this size.
    let _ = pack.entry(&Entry {
        path: entry.path,
        metadata: entry.metadata.clone(),
        content: Content::Attributes,
    });
    let (mut memory, length) = pack.finish();
    memory.truncate(length);
    memory
}
