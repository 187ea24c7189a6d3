//! Complete files of a pack that wait for durability before they get their names.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use xdfs_proto::pack::Entry;
use xdfs_sys::fs::Dir;
use xdfs_sys::limit;

use super::metadata::FirstProblem;
use super::place::Unnamed;

/// Files that share one synchronisation in a pack.
const FILES_MAX: usize = 1024;
/// Maximum number of entries waiting in a pack, and of those that failed meanwhile. A pack may have
/// half a million entries.
pub(super) const WAITING_MAX: usize = 4096;
/// Divisor of the process's descriptor limit for files that wait.
const DESCRIPTORS_SHARE: u64 = 4;
/// Assumed descriptor limit if the system reports none.
const DESCRIPTORS: u64 = 256;

/// Permit to hold a file open until it has its name.
#[derive(Debug)]
pub(super) struct OpenFilePermit;

static HELD: AtomicU64 = AtomicU64::new(0);

impl OpenFilePermit {
    /// `None` if the limit is reached.
    pub(super) fn take() -> Option<Self> {
        let held = HELD.fetch_add(1, Ordering::Relaxed);
        let permit = Self;
        (held < most()).then_some(permit)
    }
}

impl Drop for OpenFilePermit {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

fn most() -> u64 {
    static MOST: OnceLock<u64> = OnceLock::new();
    let limit = || limit::descriptor_limit().unwrap_or(DESCRIPTORS) / DESCRIPTORS_SHARE;
    *MOST.get_or_init(limit)
}

/// A file that waits for its name.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) dir: Arc<Dir>,
    pub(super) unnamed: Unnamed,
    pub(super) replace: bool,
    /// It must be synchronised by itself.
    pub(super) is_alone: bool,
    /// The first metadata problem.
    pub(super) first_problem: FirstProblem,
    /// `None` for the one file held beyond the limit.
    pub(super) permit: Option<OpenFilePermit>,
}

/// An entry that is completed once those before it are durable.
#[derive(Debug)]
pub(super) struct PendingEntry<'p> {
    pub(super) number: u32,
    pub(super) entry: Entry<'p>,
    /// A file already written; `None` for an entry not begun.
    pub(super) staged: Option<Staged>,
}

/// Waiting entries, in order.
#[derive(Debug, Default)]
pub(super) struct Batch<'p> {
    waiting: Vec<PendingEntry<'p>>,
    paths: HashSet<&'p [u8]>,
    files: usize,
}

impl<'p> Batch<'p> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether another file or entry fits.
    pub(super) fn has_room(&self) -> bool {
        self.files < FILES_MAX && self.waiting.len() < WAITING_MAX
    }

    pub(super) fn push(&mut self, waiting: PendingEntry<'p>) {
        self.files += usize::from(waiting.staged.is_some());
        self.paths.insert(waiting.entry.path);
        self.waiting.push(waiting);
    }

    /// Whether an entry depends on one that waits: it has the same path, or lies beneath it.
    pub(super) fn decides(&self, path: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
        let ends = std::iter::once(path.len()).chain(slashes);
        let mut ends = ends.chain(std::iter::once(0));
        ends.any(|end| self.paths.contains(&path[..end]))
    }

    pub(super) fn entries(&self) -> &[PendingEntry<'p>] {
        &self.waiting
    }

    pub(super) fn into_entries(self) -> Vec<PendingEntry<'p>> {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use xdfs_proto::pack::{Content, Metadata};

    use super::*;

    /// A pack can contain hundreds of thousands of entries of a few bytes each.
    #[test]
    fn what_waits_is_bounded_also_where_it_is_no_file() {
        let mut batch = Batch::default();
        let waiting = || PendingEntry {
            number: 0,
            entry: Entry {
                path: b"",
                metadata: Metadata::default(),
                content: Content::Attributes,
            },
            staged: None,
        };
        for _ in 0..WAITING_MAX {
            assert!(batch.has_room());
            batch.push(waiting());
        }
        assert!(!batch.has_room());
    }
}
