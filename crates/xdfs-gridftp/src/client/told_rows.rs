//! What listings have told of entries, for servers that tell it in no other way: what are links,
//! and where there is LIST alone, modes.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use xdfs_proto::path::FileKind;

use super::listed::Listed;

/// Time after which rows may be wrong: somebody else may have changed what they tell.
const FRESH: Duration = Duration::from_secs(60);
/// Names that are remembered beside those of the latest listing, at most.
const NAMES_MAX: usize = 200_000;

/// What a row has told of an entry beside its size.
#[derive(Clone, Debug)]
struct Told {
    kind: FileKind,
    /// Its permission bits, if the row has them.
    mode: Option<u32>,
    link: Option<Vec<u8>>,
}

/// What rows of a directory have told, by the names.
type Names = HashMap<Vec<u8>, Told>;

/// Rows of directories by their resolved paths. The oldest go first.
#[derive(Debug, Default)]
pub(super) struct ToldRows {
    rows: HashMap<Vec<u8>, (Instant, Names)>,
    /// In the order in which they were kept; some are gone, or were kept again.
    order: VecDeque<Vec<u8>>,
    /// Number of names, each directory counted as one.
    names: usize,
}

/// The directory and the name of a resolved path; `None` for the root.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    let name = &path[slash + 1..];
    let above = if slash == 0 { b"/" } else { &path[..slash] };
    (!name.is_empty()).then_some((above, name))
}

impl ToldRows {
    /// Remembers rows of a directory.
    pub(super) fn keep<'a>(&mut self, directory: &[u8], rows: impl Iterator<Item = &'a Listed>) {
        self.forget(directory);
        let told = rows.map(|row| {
            let told = Told {
                kind: row.attributes.kind,
                mode: Some(row.attributes.mode).filter(|_| row.has_mode),
                link: row.link.clone(),
            };
            (row.name.clone(), told)
        });
        let told: Names = told.collect();
        let count = told.len() + 1;
        while self.names > 0
            && self.names + count > NAMES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.forget(&oldest);
        }
        self.names += count;
        self.order.push_back(directory.to_vec());
        self.rows.insert(directory.to_vec(), (Instant::now(), told));
    }

    fn forget(&mut self, directory: &[u8]) {
        if let Some((_, gone)) = self.rows.remove(directory) {
            self.names -= gone.len() + 1;
        }
        if self.order.len() > 2 * NAMES_MAX {
            self.order.retain(|one| self.rows.contains_key(one));
        }
    }

    /// Forgets everything: something has been changed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether the rows of a directory are remembered.
    pub(super) fn knows(&self, directory: &[u8]) -> bool {
        self.fresh(directory).is_some()
    }

    fn fresh(&self, directory: &[u8]) -> Option<&Names> {
        let (when, rows) = self.rows.get(directory)?;
        (when.elapsed() < FRESH).then_some(rows)
    }

    /// Adds to an entry what its row has told, if that is remembered.
    pub(super) fn complete(&self, path: &[u8], listed: &mut Listed) {
        let Some((directory, name)) = split(path) else {
            return;
        };
        let rows = self.fresh(directory);
        let Some(told) = rows.and_then(|rows| rows.get(name)) else {
            return;
        };
        if told.kind == FileKind::Symlink {
            // Its mode is its own, and not that of what it leads to.
            if listed.link.is_none() {
                listed.link.clone_from(&told.link);
            }
            if listed.link.is_none() {
                listed.attributes.kind = FileKind::Symlink;
            }
            return;
        }
        if told.kind == FileKind::Directory {
            // Some servers tell a size of directories too.
            listed.attributes.kind = FileKind::Directory;
        }
        if let Some(mode) = told.mode {
            listed.attributes.mode = mode;
            listed.has_mode = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::long_row::parse_long_row;
    use super::*;

    #[test]
    fn the_oldest_rows_go_first() {
        let row = |name: usize| {
            let row = format!("-rw------- 1 0 0 5 Nov 21 19:23 {name}");
            parse_long_row(row.as_bytes()).unwrap()
        };
        let rows: Vec<_> = (0..NAMES_MAX / 2 - 1).map(row).collect();
        let mut told = ToldRows::default();
        for directory in [b"/a", b"/b", b"/c", b"/a"] {
            told.keep(directory, rows.iter());
        }
        let known = [b"/a", b"/b", b"/c"].map(|directory| told.knows(directory));
        assert_eq!(known, [true, false, true]);
        for _ in 0..3 * NAMES_MAX {
            told.keep(b"/c", std::iter::empty());
        }
        assert!(told.order.len() <= 2 * NAMES_MAX + 1 && !told.rows.is_empty());
        told.keep(b"/c", rows.iter());
        let mut listed = row(7);
        (listed.attributes.mode, listed.has_mode) = (0o644, false);
        told.complete(b"/c/7", &mut listed);
        assert_eq!((listed.attributes.mode, listed.has_mode), (0o600, true));
        let directory = parse_long_row(b"drwx------ 1 0 0 5 Nov 21 19:23 d").unwrap();
        told.keep(b"/d", std::iter::once(&directory));
        told.complete(b"/d/d", &mut listed);
        assert_eq!(listed.attributes.kind, FileKind::Directory);
        assert_eq!(split(b"/"), None);
        assert_eq!(split(b"/x"), Some((&b"/"[..], &b"x"[..])));
    }
}
