//! The count of a source, beside its copy: the totals of progress events. A local source is walked
//! for that by a thread of its own; listings of a remote one run ahead of its copy anyway.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::events::TreeCounts;
use crate::paths::FileKind;

/// Entries of a source that were counted so far.
#[derive(Debug, Default)]
pub(super) struct SourceCount {
    files: AtomicU64,
    directories: AtomicU64,
    others: AtomicU64,
    bytes: AtomicU64,
    is_complete: AtomicBool,
}

impl SourceCount {
    /// The counts, and whether they are complete.
    pub(super) fn now(&self) -> (TreeCounts, bool) {
        let is_complete = self.is_complete.load(Ordering::Acquire);
        let counts = TreeCounts {
            files: self.files.load(Ordering::Relaxed),
            directories: self.directories.load(Ordering::Relaxed),
            others: self.others.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        };
        (counts, is_complete)
    }

    /// Counts an entry; a directory when it is listed.
    pub(super) fn add(&self, kind: FileKind, size: u64) {
        match kind {
            FileKind::Directory => {}
            FileKind::File => {
                self.files.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(size, Ordering::Relaxed);
            }
            _ => drop(self.others.fetch_add(1, Ordering::Relaxed)),
        }
    }

    pub(super) fn add_directory(&self) {
        self.directories.fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing else will be counted.
    pub(super) fn complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }
}
