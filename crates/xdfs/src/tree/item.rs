//! Entries of a tree on their way: what each counts as, and what is known of it.

use xdfs_proto::Limits;
use xdfs_proto::pack::{Content, Entry, PACK_BYTES_MAX, PackReader, PackWriter};
use xdfs_store::tree_journal::Mark;

use crate::paths::FileKind;

/// What an entry counts as when it is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Other,
    /// A further name of a file.
    Link,
    /// Only what is known of an entry that was moved before.
    Attributes,
    /// Likewise, where nobody is told if it can't be set.
    Unheard,
}

/// An entry of a pack: its path, what it counts as, and its bytes.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    /// What a journal says of it.
    pub(super) mark: Option<Mark>,
}

impl Kind {
    /// What an entry of a listing counts as.
    pub(super) fn of(kind: FileKind) -> Self {
        match kind {
            FileKind::File => Self::File,
            FileKind::Directory => Self::Directory,
            _ => Self::Other,
        }
    }

    /// Whether it gives something a name.
    pub(super) fn has_name(self) -> bool {
        !matches!(self, Self::Attributes | Self::Unheard)
    }
}

impl Item {
    /// One of which a journal says nothing.
    pub(super) fn new(path: Vec<u8>, kind: Kind, bytes: u64) -> Self {
        Self {
            path,
            kind,
            bytes,
            mark: None,
        }
    }

    /// What is moved by an entry.
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
        let mark = marked.zip(entry.metadata.mtime_ns);
        Self {
            path: entry.path.to_vec(),
            kind,
            bytes,
            mark: mark.map(|(kind, mtime_ns)| Mark {
                kind,
                size: bytes,
                mtime_ns,
            }),
        }
    }

    /// A file that is moved by itself.
    pub(super) fn large(path: Vec<u8>, bytes: u64, mtime_ns: Option<i64>) -> Self {
        Self {
            path,
            kind: Kind::File,
            bytes,
            mark: mtime_ns.map(|mtime_ns| Mark {
                kind: 0,
                size: bytes,
                mtime_ns,
            }),
        }
    }

    /// What is moved by a pack that was made here.
    pub(super) fn of_pack(pack: &[u8]) -> Vec<Self> {
        let limits = Limits::default();
        let entries = PackReader::new(pack, &limits);
        entries
            .map_while(Result::ok)
            .map(|e| Self::of(&e))
            .collect()
    }
}

/// What is kept of a large file beside what its transfer keeps: a pack that sets it once the file
/// is there.
pub(super) type DeferredMetadata = Option<Vec<u8>>;

/// A pack that sets what an entry says of what it names.
pub(super) fn attributes_of(entry: &Entry<'_>) -> Vec<u8> {
    let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
    // There is room: the entry came in a pack that is no larger.
    let _ = pack.entry(&Entry {
        path: entry.path,
        metadata: entry.metadata.clone(),
        content: Content::Attributes,
    });
    let (mut memory, length) = pack.finish();
    memory.truncate(length);
    memory
}
