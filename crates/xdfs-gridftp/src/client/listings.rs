//! Listings that are served in parts, and what they have told of files.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_proto::path::{Entry, FileKind};

use super::listed::Listed;
use super::tree::join;

/// Most names in a directory, which are remembered at a time.
pub(super) const NAMES_MAX: usize = 1_000_000;
/// Listings that are kept for their further parts, at most.
const LISTINGS_MAX: usize = 256;
/// Names in all of them, at most, beside the latest.
const KEPT_NAMES_MAX: usize = 2 * NAMES_MAX;

/// A directory that is listed to its end.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) all: Vec<Entry>,
    /// Names that the server couldn't tell.
    pub(super) left_out: u64,
}

/// Listings that are read, and not yet served to their end. The oldest go first.
#[derive(Debug, Default)]
pub(super) struct Listings {
    latest: u64,
    kept: VecDeque<(u64, Arc<Directory>)>,
}

impl Listings {
    /// Keeps a listing. Returns its number.
    pub(super) fn keep(&mut self, all: &Arc<Directory>) -> u64 {
        self.latest += 1;
        self.kept.push_back((self.latest, Arc::clone(all)));
        let names = |kept: &VecDeque<(_, Arc<Directory>)>| {
            let counts = kept.iter().map(|(_, one)| one.all.len());
            counts.sum::<usize>()
        };
        while self.kept.len() > 1
            && (self.kept.len() > LISTINGS_MAX || names(&self.kept) > KEPT_NAMES_MAX)
        {
            self.kept.pop_front();
        }
        self.latest
    }

    pub(super) fn get(&self, id: u64) -> Option<Arc<Directory>> {
        let found = self.kept.iter().find(|(other, _)| *other == id);
        found.map(|(_, all)| Arc::clone(all))
    }

    pub(super) fn forget(&mut self, id: u64) {
        self.kept.retain(|(other, _)| *other != id);
    }
}

/// Most files that are remembered.
const FILES_MAX: usize = 100_000;
/// Time for which they are.
const FILES_TIME: Duration = Duration::from_secs(60);

/// What was listed of files lately, so that those of a tree aren't looked at once more before they
/// are read. Each is told once: whoever finds that a file has changed looks at it by itself.
#[derive(Debug, Default)]
pub(super) struct Files {
    by_path: HashMap<Vec<u8>, (Instant, Listed)>,
    /// When the first of them was listed.
    since: Option<Instant>,
}

impl Files {
    /// Remembers an entry of a directory, unless it is more than a file, or they are too many.
    pub(super) fn note(&mut self, directory: &[u8], listed: &Listed) {
        let attributes = &listed.attributes;
        let is_file = attributes.kind == FileKind::File && listed.link.is_none();
        if !is_file || !listed.has_size || attributes.mtime().is_none() {
            return;
        }
        if self.by_path.len() >= FILES_MAX {
            if self.since.is_some_and(|since| since.elapsed() < FILES_TIME) {
                return;
            }
            self.clear();
        }
        let now = Instant::now();
        self.since.get_or_insert(now);
        let path = join(directory, &listed.name);
        self.by_path.insert(path, (now, listed.clone()));
    }

    /// What was listed of a file.
    pub(super) fn take(&mut self, path: &[u8]) -> Option<Listed> {
        let (since, listed) = self.by_path.remove(path)?;
        (since.elapsed() < FILES_TIME).then_some(listed)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
