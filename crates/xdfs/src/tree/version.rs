//! Versions of an entry, identified by kind, size and time as in the claims of a journal.

use xdfs_store::tree_journal::{Mark, Totals};

use crate::mtime::is_same_time;
use crate::paths::{Attributes, FileKind, known_time};

/// The mark of an entry with these attributes; `None` for kinds that are never claimed.
pub(super) fn mark_of(attributes: &Attributes) -> Option<Mark> {
    let (kind, size) = match attributes.kind {
        FileKind::File => (0, attributes.size),
        FileKind::Symlink => (1, 0),
        FileKind::Fifo => (2, 0),
        _ => return None,
    };
    let mtime_ns = attributes.mtime_ns;
    Some(Mark {
        kind,
        size,
        mtime_ns,
    })
}

/// Whether the entry at the target looks like the wanted version.
pub(super) fn looks_like(there: Mark, wanted: Mark) -> bool {
    there.kind == wanted.kind
        && known_time(wanted.mtime_ns).is_some()
        && there.size == wanted.size
        && is_same_time(there.mtime_ns, wanted.mtime_ns)
}

/// The counts of an entry with this mark.
pub(super) fn totals_of(mark: Mark) -> Totals {
    let is_file = mark.kind == 0;
    Totals {
        files: u64::from(is_file),
        others: u64::from(!is_file),
        bytes: mark.size,
        directories: 0,
    }
}
