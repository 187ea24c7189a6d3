//! A tree at a server with MODE T, as one listing told it: its directories are served from there,
//! and its files by segments.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use xdfs_proto::path::FileKind;
use xdfs_proto::{Code, Fault};

use super::PathOrigin;
use super::fault::violation;
use super::listed::{Listed, is_entry_name};
use super::listing::{ROW_BYTES_MAX, parse_facts};
use crate::segment::{ENTRIES_MAX, Opening, TransactionId};

const OPERATION: &str = "list the tree";

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Tree {
    /// The path at the server.
    pub(super) root: Vec<u8>,
    home: Home,
    pub(super) transaction: TransactionId,
    /// Its entries in the server's order, with their paths beneath the root as names.
    rows: Vec<Listed>,
    numbers: HashMap<Vec<u8>, u32>,
    /// The numbers of what is in each directory. Each listing is served once, so that another one
    /// shows what is there by then.
    listings: Mutex<HashMap<Vec<u8>, Vec<u32>>>,
}

/// The directory and the name of a path in a tree.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// The path of a name in a directory, or in the root of a tree; that itself without a name.
pub(super) fn join(root: &[u8], name: &[u8]) -> Vec<u8> {
    match (root, name) {
        (_, []) => root.to_vec(),
        (b"/", _) => [b"/", name].concat(),
        _ => [root, b"/", name].concat(),
    }
}

/// The directories in which paths of calls begin.
#[derive(Clone, Debug)]
pub(super) struct Home {
    /// The directory of the login.
    pub(super) directory: Vec<u8>,
    pub(super) origin: PathOrigin,
}

impl Home {
    /// The path at the server.
    pub(super) fn resolve(&self, path: &[u8]) -> Vec<u8> {
        let home = &self.directory;
        let home = home.strip_suffix(b"/").unwrap_or(home);
        let path = match (self.origin, path) {
            (_, []) | (PathOrigin::Login, b"/") | (PathOrigin::Root, b"/~") => home.to_vec(),
            (PathOrigin::Root, [b'/', b'~', rest @ ..]) if rest.starts_with(b"/") => {
                [home, rest].concat()
            }
            (PathOrigin::Root, [b'/', ..]) => path.to_vec(),
            (PathOrigin::Login, [b'/', rest @ ..]) if rest.starts_with(b"/") => rest.to_vec(),
            (PathOrigin::Login, [b'/', ..]) => [home, path].concat(),
            _ => [home, b"/", path].concat(),
        };
        // One of several slashes at the beginning is left, also where the home is the root.
        let start = path.iter().position(|byte| *byte != b'/');
        let end = path.iter().rposition(|byte| *byte != b'/');
        match start.zip(end) {
            None => b"/".to_vec(),
            Some((start, end)) => [b"/", &path[start..=end]].concat(),
        }
    }
}

impl Tree {
    /// A tree of what a server has listed.
    ///
    /// # Errors
    /// It isn't what `opening` says, or no tree.
    pub(super) fn read(
        root: Vec<u8>,
        home: Home,
        rows: &[u8],
        opening: &Opening,
    ) -> Result<Self, Fault> {
        let broken = |cause: String| violation(OPERATION, cause).path(&root);
        let mut tree = Self {
            root: root.clone(),
            home,
            transaction: opening.transaction,
            rows: Vec::new(),
            numbers: HashMap::new(),
            listings: Mutex::default(),
        };
        let mut listings = HashMap::from([(Vec::new(), Vec::new())]);
        for row in rows
            .split(|byte| *byte == b'\n')
            .filter(|row| !row.is_empty())
        {
            let row = row.strip_suffix(b"\r").unwrap_or(row);
            if row.len() > ROW_BYTES_MAX || tree.rows.len() >= ENTRIES_MAX {
                return Err(broken(
                    "it has too many entries, or too long ones".to_owned(),
                ));
            }
            let listed = parse_facts(row).map_err(|error| broken(error.to_string()))?;
            let name = &listed.name;
            let number = u32::try_from(tree.rows.len()).unwrap_or(u32::MAX);
            let is_path = name.split(|byte| *byte == b'/').all(is_entry_name);
            // Directories come first, and those above before what is in them.
            let above = listings.get_mut(split(name).0).filter(|_| is_path);
            let Some(above) = above.filter(|_| !tree.numbers.contains_key(name)) else {
                let name = name.escape_ascii();
                return Err(broken(format!(
                    "it has '{name}', which isn't a new path in it"
                )));
            };
            above.push(number);
            tree.numbers.insert(name.clone(), number);
            if listed.attributes.kind == FileKind::Directory && listed.link.is_none() {
                listings.insert(name.clone(), Vec::new());
            }
            tree.rows.push(listed);
        }
        if tree.rows.len() as u64 != opening.entries {
            return Err(broken(format!(
                "{} entries came of {}",
                tree.rows.len(),
                opening.entries
            )));
        }
        tree.listings = Mutex::new(listings);
        Ok(tree)
    }

    /// Bytes of its files.
    pub(super) fn bytes(&self) -> u64 {
        let sizes = self.rows.iter().map(|row| row.attributes.size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Whether a path of a call is its root.
    pub(super) fn is_at(&self, path: &[u8]) -> bool {
        self.home.resolve(path) == self.root
    }

    /// The entries of a directory, unless they were served already or aren't known.
    pub(super) fn take_listing(&self, path: &[u8]) -> Option<Vec<Listed>> {
        let path = self.home.resolve(path);
        let below = match self.root.as_slice() {
            b"/" => path.strip_prefix(b"/")?,
            root => match path.strip_prefix(root)? {
                b"" => b"",
                below => below.strip_prefix(b"/")?,
            },
        };
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = listings.remove(below)?;
        let rows = numbers
            .iter()
            .filter_map(|number| self.rows.get(*number as usize));
        Some(
            rows.map(|row| Listed {
                name: split(&row.name).1.to_vec(),
                ..row.clone()
            })
            .collect(),
        )
    }

    /// The number of an entry, and what is known of it.
    pub(super) fn find(&self, name: &[u8]) -> Option<(u32, &Listed)> {
        let number = *self.numbers.get(name)?;
        Some((number, self.rows.get(number as usize)?))
    }
}

/// Whether a fault says that the server can't do this, and not that it can't be reached.
pub(super) fn is_refusal(fault: &Fault) -> bool {
    !matches!(
        fault.code,
        Code::Cancelled | Code::ConnectionLost | Code::DeadlineExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rows: &str, entries: u64) -> Result<Tree, Fault> {
        let transaction = TransactionId([1; 16]);
        let opening = Opening {
            transaction,
            entries,
            left_out: 0,
        };
        let home = Home {
            directory: b"/".to_vec(),
            origin: PathOrigin::Login,
        };
        Tree::read(b"/r".to_vec(), home, rows.as_bytes(), &opening)
    }

    #[test]
    fn paths_begin_where_their_urls_say() {
        for (origin, directory, path, wanted) in [
            (PathOrigin::Login, "/home/u", "/a", "/home/u/a"),
            (PathOrigin::Login, "/home/u", "a/", "/home/u/a"),
            (PathOrigin::Login, "/home/u", "/", "/home/u"),
            (PathOrigin::Login, "/home/u", "", "/home/u"),
            (PathOrigin::Login, "/home/u", "//", "/"),
            (PathOrigin::Login, "/home/u", "//a/b/", "/a/b"),
            (PathOrigin::Login, "/home/u", "/~/a", "/home/u/~/a"),
            (PathOrigin::Login, "/", "/a", "/a"),
            (PathOrigin::Root, "/home/u", "/a", "/a"),
            (PathOrigin::Root, "/home/u", "//a", "/a"),
            (PathOrigin::Root, "/home/u", "/", "/"),
            (PathOrigin::Root, "/home/u", "", "/home/u"),
            (PathOrigin::Root, "/home/u", "/~", "/home/u"),
            (PathOrigin::Root, "/home/u", "/~/", "/home/u"),
            (PathOrigin::Root, "/home/u/", "/~/a/b/", "/home/u/a/b"),
            (PathOrigin::Root, "/", "/~/a", "/a"),
            (PathOrigin::Root, "/", "/~", "/"),
            (PathOrigin::Root, "/home/u", "/~v/a", "/~v/a"),
        ] {
            let directory = directory.as_bytes().to_vec();
            let home = Home { directory, origin };
            let found = home.resolve(path.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), wanted, "{origin:?} {path}");
        }
    }

    #[test]
    fn directories_are_served_once() {
        let rows =
            "Type=dir; d\r\nType=dir; d/e\r\nType=file;Size=1; d/f\r\nType=file;Size=2; g\r\n";
        let tree = read(rows, 4).unwrap();
        let names = |path: &[u8]| {
            let listed = tree.take_listing(path)?;
            Some(listed.into_iter().map(|row| row.name).collect::<Vec<_>>())
        };
        assert_eq!(names(b"/r"), Some(vec![b"d".to_vec(), b"g".to_vec()]));
        assert_eq!(names(b"r/d"), Some(vec![b"e".to_vec(), b"f".to_vec()]));
        assert_eq!(names(b"/r/d/e"), Some(vec![]));
        for path in [&b"/r"[..], b"/r/d", b"/rx", b"/x", b"/r/x"] {
            assert_eq!(names(path), None);
        }
        assert_eq!(tree.find(b"d/f").map(|(number, _)| number), Some(2));
        assert!(tree.is_at(b"r") && tree.is_at(b"//r/") && !tree.is_at(b"/"));
    }

    #[test]
    fn rows_that_make_no_tree_are_refused() {
        for rows in [
            "Type=file; ../x",
            "Type=file; /x",
            "Type=file; a/b",
            "Type=file; a\r\nType=file; a/b",
            "Type=dir; a\r\nType=dir; a",
            "Type=dir; a\r\nType=file; a/",
            "Type=dir; a\r\nType=file; a/..",
            "nothing",
        ] {
            let entries = rows.lines().count() as u64;
            assert!(read(rows, entries).is_err(), "{rows}");
        }
        assert!(read("Type=file; a", 2).is_err(), "one is missing");
    }
}
