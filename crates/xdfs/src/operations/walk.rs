//! Walks a tree, one directory after the other, with the listings of the next ones in flight.

use std::collections::VecDeque;
use std::fmt;

use xdfs_proto::Fault;

use super::path::{join, last_part};
use crate::client::Client;
use crate::paths::{Attributes, Entry, FileKind, Listing};

/// Listings requested ahead, unless other options say otherwise: enough to hide round trips, and
/// few of the slots for calls of a session.
pub const LISTINGS_AHEAD: usize = 8;

/// Lists directories, for a walk.
pub trait List {
    /// A listing in progress.
    type Pending;

    /// Starts to list a directory.
    fn begin_listing(&self, path: &[u8]) -> Self::Pending;

    /// Waits for its entries, and passes each to `take`.
    ///
    /// # Errors
    /// The directory can't be listed completely.
    fn finish_listing(
        &self,
        pending: Self::Pending,
        take: &mut dyn FnMut(Entry),
    ) -> Result<(), Fault>;
}

impl List for Client {
    type Pending = Listing;

    fn begin_listing(&self, path: &[u8]) -> Listing {
        self.list(path).begin()
    }

    fn finish_listing(
        &self,
        mut pending: Listing,
        take: &mut dyn FnMut(Entry),
    ) -> Result<(), Fault> {
        pending.try_for_each(|entry| entry.map(&mut *take))
    }
}

/// A path in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkEntry {
    /// The path, which begins with that of the start.
    pub path: Vec<u8>,
    /// The last part of the path; empty for the root.
    pub name: Vec<u8>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Levels below the start.
    pub depth: u32,
}

impl WalkEntry {
    /// The start of a walk, with these attributes.
    #[must_use]
    pub fn start(path: &[u8], attributes: Attributes) -> Self {
        Self {
            path: path.to_vec(),
            name: last_part(path).to_vec(),
            attributes,
            depth: 0,
        }
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }
}

/// A step of a walk.
#[derive(Debug)]
pub enum WalkStep {
    /// An entry; its contents follow.
    Entry(WalkEntry),
    /// The end of a directory's contents.
    Left(WalkEntry),
    /// A directory could not be listed completely.
    Failed(Fault),
}

/// How a tree is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkOptions {
    /// Levels below the start that are walked at most; 0 yields the start only. Default: all.
    pub depth_max: u32,
    /// Listings requested ahead at most. With 0, a directory is listed only in the step after its
    /// own. Default: [`LISTINGS_AHEAD`].
    pub listings_ahead_max: usize,
    /// The entries of each directory are in the order of the bytes of their names. Default: in that
    /// of their side.
    pub sorted: bool,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self {
            depth_max: u32::MAX,
            listings_ahead_max: LISTINGS_AHEAD,
            sorted: false,
        }
    }
}

/// An entry and, if it is a directory, its listing once that is requested.
struct PendingEntry<L> {
    found: WalkEntry,
    listing: Option<L>,
}

/// A directory whose contents are being returned.
struct Level<L> {
    directory: WalkEntry,
    waiting: VecDeque<PendingEntry<L>>,
    /// Number of entries of `waiting` checked for listings to request.
    looked_at: usize,
}

/// A walk of a tree: the start, and after each directory its contents. Symbolic links aren't
/// followed. It holds the entries of the directories above the present one, and those listed ahead.
pub struct Walk<'a, C: List> {
    client: &'a C,
    options: WalkOptions,
    /// Listings requested and not yet read.
    ahead: usize,
    /// The directory to enter in the next step.
    next: Option<PendingEntry<C::Pending>>,
    start: Option<WalkEntry>,
    levels: Vec<Level<C::Pending>>,
    failed: Option<Fault>,
    keeps: Option<Keeps<'a>>,
}

impl<C: List> fmt::Debug for Walk<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("options", &self.options)
            .field("depth", &self.levels.len())
            .finish_non_exhaustive()
    }
}

/// Whether an entry is part of a walk.
type Keeps<'a> = Box<dyn Fn(&WalkEntry) -> bool + 'a>;

impl<'a, C: List> Walk<'a, C> {
    /// A walk from `start`.
    pub fn new(client: &'a C, start: WalkEntry, options: WalkOptions) -> Self {
        Self {
            client,
            options,
            ahead: 0,
            next: None,
            start: Some(start),
            levels: Vec::new(),
            failed: None,
            keeps: None,
        }
    }

    /// Without the entries below the start that `keeps` refuses, and what is in them.
    #[must_use]
    pub fn only(mut self, keeps: impl Fn(&WalkEntry) -> bool + 'a) -> Self {
        self.keeps = Some(Box::new(keeps));
        self
    }

    fn goes_into(&self, found: &WalkEntry) -> bool {
        found.is_directory() && found.depth < self.options.depth_max
    }

    /// Enters a directory, and reads its listing.
    fn enter(&mut self, waiting: PendingEntry<C::Pending>) {
        let PendingEntry { found, listing } = waiting;
        self.ahead -= usize::from(listing.is_some());
        let listing = listing.unwrap_or_else(|| self.client.begin_listing(&found.path));
        let mut below = VecDeque::new();
        let keeps = self.keeps.as_deref();
        let mut take = |Entry { name, attributes }| {
            let found = WalkEntry {
                path: join(&found.path, &name),
                name,
                attributes,
                depth: found.depth.saturating_add(1),
            };
            if keeps.is_none_or(|keeps| keeps(&found)) {
                let listing = None;
                below.push_back(PendingEntry { found, listing });
            }
        };
        let outcome = self.client.finish_listing(listing, &mut take);
        if self.options.sorted {
            let below = below.make_contiguous();
            below.sort_unstable_by(|a, b| a.found.name.cmp(&b.found.name));
        }
        self.failed = outcome.err();
        self.levels.push(Level {
            directory: found,
            waiting: below,
            looked_at: 0,
        });
    }

    /// Requests the listings of the next directories.
    fn look_ahead(&mut self) {
        let WalkOptions {
            depth_max,
            listings_ahead_max,
            ..
        } = self.options;
        for level in self.levels.iter_mut().rev() {
            while self.ahead < listings_ahead_max {
                let Some(waiting) = level.waiting.get_mut(level.looked_at) else {
                    break;
                };
                level.looked_at += 1;
                if waiting.found.is_directory() && waiting.found.depth < depth_max {
                    waiting.listing = Some(self.client.begin_listing(&waiting.found.path));
                    self.ahead += 1;
                }
            }
        }
    }
}

impl<C: List> Iterator for Walk<'_, C> {
    type Item = WalkStep;

    fn next(&mut self) -> Option<WalkStep> {
        if let Some(waiting) = self.next.take() {
            self.enter(waiting);
        }
        if let Some(fault) = self.failed.take() {
            return Some(WalkStep::Failed(fault));
        }
        let waiting = match self.start.take() {
            Some(found) => PendingEntry {
                found,
                listing: None,
            },
            None => {
                self.look_ahead();
                let level = self.levels.last_mut()?;
                match level.waiting.pop_front() {
                    Some(waiting) => {
                        level.looked_at = level.looked_at.saturating_sub(1);
                        waiting
                    }
                    None => {
                        return self
                            .levels
                            .pop()
                            .map(|level| WalkStep::Left(level.directory));
                    }
                }
            }
        };
        let found = waiting.found.clone();
        if self.goes_into(&found) {
            self.next = Some(waiting);
        }
        Some(WalkStep::Entry(found))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use xdfs_proto::Code;

    use super::*;

    /// A tree in memory: directories with their names; those of directories end in `/`.
    struct Tree {
        directories: BTreeMap<&'static str, Vec<&'static str>>,
        asked: RefCell<Vec<String>>,
    }

    impl List for Tree {
        type Pending = String;

        fn begin_listing(&self, path: &[u8]) -> String {
            let path = String::from_utf8(path.to_vec()).unwrap();
            self.asked.borrow_mut().push(path.clone());
            path
        }

        fn finish_listing(&self, path: String, take: &mut dyn FnMut(Entry)) -> Result<(), Fault> {
            if let Some(names) = self.directories.get(&*path) {
                names.iter().map(|name| entry(name)).for_each(take);
                return Ok(());
            }
            take(entry("seen"));
            Err(Fault::new(Code::PermissionDenied, "list", "no").path(path))
        }
    }

    fn attributes(kind: FileKind) -> Attributes {
        Attributes {
            kind,
            size: 0,
            allocated: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            links: 1,
            device: 0,
            inode: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
        }
    }

    fn entry(name: &str) -> Entry {
        let kind = if name.ends_with('/') {
            FileKind::Directory
        } else {
            FileKind::File
        };
        Entry {
            name: name.trim_end_matches('/').into(),
            attributes: attributes(kind),
        }
    }

    fn tree() -> Tree {
        Tree {
            directories: BTreeMap::from([
                ("/", vec!["a/", "f", "b/"]),
                ("/a", vec!["x/", "g"]),
                ("/a/x", vec![]),
                ("/b", vec!["closed/"]),
            ]),
            asked: RefCell::default(),
        }
    }

    fn walk(tree: &Tree, depth_max: u32, listings_ahead_max: usize) -> Vec<String> {
        let start = WalkEntry::start(b"/", attributes(FileKind::Directory));
        let options = WalkOptions {
            depth_max,
            listings_ahead_max,
            sorted: false,
        };
        let text = |found: WalkEntry| String::from_utf8(found.path).unwrap();
        Walk::new(tree, start, options)
            .map(|step| match step {
                WalkStep::Entry(found) => text(found),
                WalkStep::Left(found) => format!("left {}", text(found)),
                WalkStep::Failed(fault) => format!("failed {}", fault.code),
            })
            .collect()
    }

    #[test]
    fn everything_comes_once_and_in_order() {
        for ahead in [0, 1, 2, 8] {
            let tree = tree();
            assert_eq!(
                walk(&tree, u32::MAX, ahead),
                [
                    "/",
                    "/a",
                    "/a/x",
                    "left /a/x",
                    "/a/g",
                    "left /a",
                    "/f",
                    "/b",
                    "/b/closed",
                    "failed permission-denied",
                    "/b/closed/seen",
                    "left /b/closed",
                    "left /b",
                    "left /",
                ]
            );
            let mut asked = tree.asked.into_inner();
            asked.sort();
            assert_eq!(asked, ["/", "/a", "/a/x", "/b", "/b/closed"], "{ahead}");
        }
    }

    #[test]
    fn it_goes_no_deeper_than_it_may() {
        let tree = tree();
        assert_eq!(walk(&tree, 0, 8), ["/"]);
        assert_eq!(walk(&tree, 1, 8), ["/", "/a", "/f", "/b", "left /"]);
        assert_eq!(tree.asked.into_inner(), ["/"]);
    }

    #[test]
    fn listings_are_asked_for_ahead_only_if_wanted() {
        let ahead = tree();
        walk(&ahead, u32::MAX, 8);
        assert_eq!(ahead.asked.borrow()[..3], ["/", "/a", "/b"]);
        let behind = tree();
        walk(&behind, u32::MAX, 0);
        assert_eq!(behind.asked.borrow()[..3], ["/", "/a", "/a/x"]);
    }
}
