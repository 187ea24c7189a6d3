//! Listings that are served in parts.

use std::collections::VecDeque;
use std::sync::Arc;

use xdfs_proto::path::Entry;

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
