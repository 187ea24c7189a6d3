//! One side of a comparison: a read-only view of a tree.

use xdfs_proto::{ChecksumKind, Fault};

use crate::paths::{Call, Entry};
use crate::tree::namespace::{LookedUp, Namespace, Pending};

/// A read-only view of a tree.
#[derive(Clone, Copy)]
pub(super) struct View<'a>(&'a Namespace<'a>);

impl<'a> View<'a> {
    pub(super) fn new(tree: &'a Namespace<'a>) -> Self {
        Self(tree)
    }

    /// Whether this is a view of the same tree.
    pub(super) fn is(self, other: Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    pub(super) fn is_remote(self) -> bool {
        self.0.is_remote()
    }

    /// Whether its side computes checksums of this kind where the files are.
    pub(super) fn computes(self, kind: ChecksumKind) -> bool {
        self.0.computes(kind)
    }

    /// A fault about an entry, with its machine and its whole path.
    pub(super) fn fault(self, path: &[u8], fault: Fault) -> Fault {
        self.0.fault(fault.path(self.0.path(path)))
    }

    /// Starts to list a directory.
    pub(super) fn start_list(self, path: &[u8]) -> Pending<'a> {
        self.0.start_list(path)
    }

    /// Follows the links among the names of a directory, as [`Namespace::follow_names`] does.
    pub(super) fn follow_names(
        self,
        directory: &[u8],
        names: &mut Vec<Entry>,
    ) -> Result<Vec<(Entry, Fault)>, Fault> {
        self.0.follow_names(directory, names)
    }

    /// Starts to read the target of a symbolic link.
    pub(super) fn start_read_link(self, path: &[u8]) -> Pending<'a> {
        let path = self.0.path(path);
        self.0.start(Call::ReadLink { path })
    }

    /// Starts to compute the digest of a file.
    pub(super) fn start_digest(self, path: &[u8], kind: ChecksumKind) -> Pending<'a> {
        self.0.start(Call::Checksum {
            path: self.0.path(path),
            offset: 0,
            length: None,
            kind,
        })
    }

    /// Looks up the paths of entries.
    pub(super) fn look_up<'p>(self, paths: impl Iterator<Item = &'p [u8]>) -> Vec<LookedUp> {
        self.0.look_up(paths)
    }
}
