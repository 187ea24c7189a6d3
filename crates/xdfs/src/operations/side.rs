//! Paths on either side, looked at by the same calls.

use std::sync::Arc;

use xdfs_proto::{ChecksumKind, Fault};

use super::calls::{SideCall, unexpected_answer};
use super::path::{join, last_part, trimmed};
use super::walk::{List, Walk, WalkEntry, WalkOptions};
use crate::client::Client;
use crate::paths::{Answer, Attributes, Call, Entry, FileKind, Listing, call_local};
use crate::tree::Filter;

/// The side of a path. Cheap to clone; a session lasts at least as long as the last clone.
#[derive(Clone, Debug)]
pub enum PathSide {
    /// This machine.
    Local,
    /// The server of a session.
    Remote(Arc<Client>),
}

impl PathSide {
    /// A fault about a path of this side, which it names.
    #[must_use]
    pub fn fault(&self, fault: Fault) -> Fault {
        match self {
            Self::Local => fault,
            Self::Remote(client) => client.fault_there(fault),
        }
    }

    /// Starts a call.
    #[must_use]
    pub fn start_call(&self, call: Call) -> SideCall {
        match self {
            Self::Local => SideCall::Local(call),
            Self::Remote(client) => client.start_call(call).into(),
        }
    }

    /// Starts to look at a path; with `follow`, at the target of a symbolic link.
    #[must_use]
    pub fn start_stat(&self, path: &[u8], follow: bool) -> SideCall {
        let path = path.to_vec();
        self.start_call(Call::Stat { path, follow })
    }

    /// Starts to compute the digest of a whole file, on its side.
    #[must_use]
    pub fn start_digest(&self, path: &[u8], kind: ChecksumKind) -> SideCall {
        self.start_call(Call::Checksum {
            path: path.to_vec(),
            offset: 0,
            length: None,
            kind,
        })
    }
}

/// A listing in progress.
#[derive(Debug)]
pub enum SideListing {
    /// The path of a directory here, which is listed when the entries are waited for.
    Local(Vec<u8>),
    /// On a server.
    Remote(Box<Listing>),
}

impl List for PathSide {
    type Pending = SideListing;

    fn begin_listing(&self, path: &[u8]) -> SideListing {
        match self {
            Self::Local => SideListing::Local(path.to_vec()),
            Self::Remote(client) => SideListing::Remote(Box::new(client.begin_listing(path))),
        }
    }

    fn finish_listing(
        &self,
        pending: SideListing,
        take: &mut dyn FnMut(Entry),
    ) -> Result<(), Fault> {
        match pending {
            SideListing::Remote(mut listing) => listing.try_for_each(|entry| entry.map(&mut *take)),
            SideListing::Local(path) => {
                let call = Call::List {
                    path: path.clone(),
                    cursor: Vec::new(),
                    entries_max: u32::MAX,
                };
                let Answer::Entries { entries, .. } = call_local(&call)? else {
                    return Err(unexpected_answer("list", &path));
                };
                entries.into_iter().for_each(take);
                Ok(())
            }
        }
    }
}

/// A path on either side: a file, or the root of a tree.
#[derive(Clone, Debug)]
pub struct SidePath {
    /// Its side.
    pub side: PathSide,
    /// The path, without trailing slashes.
    pub path: Vec<u8>,
}

impl SidePath {
    /// A path, which may have trailing slashes. On an FTP server `//` is the root, and `/` the
    /// directory of the login.
    #[must_use]
    pub fn new(side: PathSide, path: &[u8]) -> Self {
        let path = match (trimmed(path), &side) {
            (b"" | b"/", PathSide::Local) if !path.is_empty() => &b"/"[..],
            (b"", _) if !path.is_empty() => b"/",
            (b"/", _) => b"//",
            (path, _) => path,
        };
        let path = path.to_vec();
        Self { side, path }
    }

    /// Attributes of the path; with `follow`, of the target of a symbolic link.
    ///
    /// # Errors
    /// As [`SideCall::attributes`].
    pub fn stat(&self, follow: bool) -> Result<Attributes, Fault> {
        self.side
            .start_stat(&self.path, follow)
            .attributes(&self.path)
    }

    /// Whether a filter leaves out this path, if it is no directory, as if it were an entry `name`
    /// of a directory that is copied. What isn't there, or can't be looked up, isn't left out.
    #[must_use]
    pub fn is_left_out(&self, filter: &Filter, name: &[u8]) -> bool {
        let Ok(found) = self.stat(true) else {
            return false;
        };
        let is_beyond = || filter.leaves_out_file(found.size, found.mtime_ns);
        match found.kind {
            FileKind::Directory => false,
            FileKind::File => filter.leaves_out(name, false) || is_beyond(),
            _ => filter.leaves_out(name, false),
        }
    }

    /// A walk of the tree, whose root has these attributes.
    #[must_use]
    pub fn walk(&self, attributes: Attributes, options: WalkOptions) -> Walk<'_, PathSide> {
        let start = WalkEntry::start(&self.path, attributes);
        Walk::new(&self.side, start, options)
    }

    /// The name of an entry with this path relative to the root, as from where the program runs: a
    /// local tree has the path as it was written, and one on a server, of which a copy may be here,
    /// its last part.
    #[must_use]
    pub fn name_of(&self, relative: &[u8]) -> Vec<u8> {
        let root = match &self.side {
            PathSide::Local if self.path == b"." => b"",
            PathSide::Local => self.path.as_slice(),
            PathSide::Remote(_) => last_part(&self.path),
        };
        match (root, relative) {
            (b"", relative) => relative.to_vec(),
            (root, b"") => root.to_vec(),
            (root, relative) => join(root, relative),
        }
    }

    /// The path of an entry of the tree, relative to its root; empty for the root.
    #[must_use]
    pub fn relative<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let rest = path.get(self.path.len()..).unwrap_or_default();
        rest.strip_prefix(b"/").unwrap_or(rest)
    }
}
