//! One side of a comparison: a tree that can be looked at, and no more.

use xdfs_proto::DigestKind;

use crate::paths::Call;
use crate::tree::namespace::{LookedUp, Namespace, Pending};

/// A tree that can't be changed by this.
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

    /// Asks for the names in a directory.
    pub(super) fn start_list(self, path: &[u8]) -> Pending {
        self.0.start_list(path)
    }

    /// Asks what a symbolic link says.
    pub(super) fn start_read_link(self, path: &[u8]) -> Pending {
        let path = self.0.path(path);
        self.0.start(Call::ReadLink { path })
    }

    /// Asks for the digest of a file.
    pub(super) fn start_digest(self, path: &[u8], kind: DigestKind) -> Pending {
        self.0.start(Call::Checksum {
            path: self.0.path(path),
            offset: 0,
            length: None,
            kind,
        })
    }

    /// What stands under the paths of entries.
    pub(super) fn look_up<'p>(self, paths: impl Iterator<Item = &'p [u8]>) -> Vec<LookedUp> {
        self.0.look_up(paths)
    }
}
