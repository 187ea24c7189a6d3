//! Tracks which directories of a tree are complete: all their entries are settled, and all
//! directories below them are complete. Nothing more is created in a complete directory, so its
//! metadata can be set, and one claim covers everything in it.
//!
//! Memory: the incomplete directories, which are those at the edge of the walk. In a
//! synchronisation, which lists for itself, these are the directories in which a pass moves
//! anything.

use std::collections::{BTreeMap, HashMap, HashSet};

use xdfs_store::tree_journal::{Finished, Header, Mark, Record, Totals};

use super::item::OwnedXattr;
use crate::paths::Attributes;

/// Permissions that the owner of a directory needs to create entries in it.
pub(super) const OWNER_ALL: u32 = 0o700;

/// The state of an incomplete directory.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Entries to settle; `None` until the directory is listed, and always in a synchronisation.
    expected: Option<u64>,
    settled: u64,
    /// Its own entry is settled.
    is_made: bool,
    /// Something in it failed, or has to be seen by every run. Never claimed as a whole.
    is_open: bool,
    /// It wasn't created, and something else may have its name: its metadata isn't set.
    pub(super) is_absent: bool,
    /// Something in it failed.
    has_failed: bool,
    /// It is known to have existed before the run.
    was_there: bool,
    totals: Totals,
    /// Metadata to set, if the source was listed with it.
    pub(super) known: Option<DirectoryMetadata>,
    /// Extended attributes to set.
    pub(super) xattrs: Vec<OwnedXattr>,
    /// Claimed one by one if the directory can't be claimed as a whole.
    entries: Entries,
}

impl Directory {
    fn fail(&mut self) {
        self.is_open = true;
        self.has_failed = true;
    }

    /// Whether it was counted as created, though it existed.
    fn is_existing(&self) -> bool {
        self.was_there && self.is_made && !self.is_absent
    }

    /// The mode to set. The owner keeps full access while something in it has failed, so that a
    /// later run can continue there.
    pub(super) fn mode(&self, mode: u32) -> u32 {
        match self.has_failed {
            true => mode | OWNER_ALL,
            false => mode,
        }
    }
}

/// Entries to claim: their concatenated names, and the end of each with its mark.
#[derive(Debug, Default)]
struct Entries {
    names: Vec<u8>,
    marks: Vec<(usize, Mark)>,
}

/// Metadata to set on a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectoryMetadata {
    pub(super) mode: u32,
    pub(super) mtime_ns: i64,
    /// Owner and group.
    pub(super) owner: (u32, u32),
}

impl From<&Attributes> for DirectoryMetadata {
    fn from(attributes: &Attributes) -> Self {
        Self {
            mode: attributes.mode,
            mtime_ns: attributes.mtime_ns,
            owner: (attributes.uid, attributes.gid),
        }
    }
}

/// A complete directory.
#[derive(Debug)]
pub(super) struct CompletedDirectory {
    pub(super) path: Vec<u8>,
    pub(super) directory: Directory,
}

/// Claims to append once the entries are durable.
#[derive(Debug, Default)]
pub(super) struct Claims {
    finished: BTreeMap<Vec<u8>, Finished>,
    entries: Vec<(Vec<u8>, Entries)>,
}

impl Claims {
    /// The records of the journal.
    pub(super) fn records(self, header: &Header) -> Vec<Record> {
        let entries = self.entries.into_iter().map(|(directory, entries)| {
            let mut begin = 0;
            let claims = entries.marks.into_iter().map(|(end, mark)| {
                let name = entries.names.get(begin..end).unwrap_or_default();
                begin = end;
                header.claim(&directory, name, mark)
            });
            let claims = claims.collect();
            Record::Entries(directory, claims)
        });
        let finished = self.finished.into_iter();
        let finished = finished.map(|(path, finished)| Record::Directory(path, finished));
        // The two don't overlap: a directory with entries here isn't finished.
        entries.chain(finished).collect()
    }
}

/// Tracks the directories of a tree.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    directories: HashMap<Vec<u8>, Directory>,
    /// Subdirectories come before their parents.
    completed: Vec<CompletedDirectory>,
    /// Complete directories in which metadata could not be set further down.
    spoiled: HashSet<Vec<u8>>,
    /// Whether there is a journal.
    claims: bool,
    finished: BTreeMap<Vec<u8>, Finished>,
    /// Entries of complete directories that can't be claimed as a whole.
    loose: Vec<(Vec<u8>, Entries)>,
    /// Entries that were settled since claims were taken.
    fresh: u64,
    /// Directories that existed before the run.
    pub(super) existing: u64,
}

impl Tracker {
    /// With `claims`, settled entries are kept for a journal.
    pub(super) fn new(claims: bool) -> Self {
        Self {
            claims,
            ..Self::default()
        }
    }

    /// Entries that were settled since claims were taken.
    pub(super) fn fresh(&self) -> u64 {
        self.fresh
    }

    /// Stops keeping entries for a journal.
    pub(super) fn forgo_claims(&mut self) {
        self.claims = false;
    }

    /// Settles an entry other than a directory: it was moved, or failed for good.
    pub(super) fn settled(&mut self, path: &[u8], what: Result<(Totals, Option<Mark>), ()>) {
        let (parent, name) = split(path);
        self.fresh += 1;
        let claims = self.claims;
        let directory = self.directory(parent);
        directory.settled += 1;
        match what {
            Ok((totals, mark)) => {
                directory.totals.add(&totals);
                if let Some(mark) = mark.filter(|_| claims) {
                    let entries = &mut directory.entries;
                    entries.names.extend(name);
                    entries.marks.push((entries.names.len(), mark));
                }
            }
            Err(()) => directory.fail(),
        }
        self.close(parent);
    }

    /// Records that a directory was created, or failed.
    pub(super) fn made(&mut self, path: &[u8], is_well: bool) {
        self.fresh += 1;
        let directory = self.directory(path);
        directory.is_made = true;
        if !is_well {
            directory.fail();
            directory.is_absent = true;
        }
        self.close(path);
    }

    /// Records the metadata of a directory found at the source.
    pub(super) fn found(&mut self, path: &[u8], known: DirectoryMetadata) {
        self.directory(path).known = Some(known);
    }

    /// Records extended attributes that a directory gets when it is complete.
    pub(super) fn keep_xattrs(&mut self, path: &[u8], xattrs: &[OwnedXattr]) {
        if !xattrs.is_empty() {
            self.directory(path).xattrs = xattrs.to_vec();
        }
    }

    /// Records that an incomplete directory existed before the run.
    pub(super) fn was_there(&mut self, path: &[u8]) {
        self.directory(path).was_there = true;
    }

    /// Whether the path is an incomplete directory.
    pub(super) fn knows(&self, path: &[u8]) -> bool {
        self.directories.contains_key(path)
    }

    /// Records the listing of a directory: the number of `entries` to settle, and those that an
    /// earlier run finished.
    pub(super) fn listed(&mut self, path: &[u8], entries: u64, taken: &Totals, is_well: bool) {
        let directory = self.directory(path);
        directory.expected = Some(entries);
        directory.totals.add(taken);
        if !is_well {
            directory.fail();
        }
        self.close(path);
    }

    /// Keeps the directory of an entry from being claimed: every run has to list it.
    pub(super) fn keep_open(&mut self, path: &[u8]) {
        self.directory(split(path).0).is_open = true;
    }

    /// Takes the complete directories, subdirectories first.
    pub(super) fn take_completed(&mut self) -> Vec<CompletedDirectory> {
        std::mem::take(&mut self.completed)
    }

    /// Records that the metadata of a complete directory was set, or could not be.
    pub(super) fn closed(&mut self, completed: CompletedDirectory, is_well: bool) {
        let CompletedDirectory { path, directory } = completed;
        let is_spoiled = self.spoiled.remove(&path);
        if !is_well {
            let mut above: &[u8] = &path;
            while !above.is_empty() {
                above = split(above).0;
                match self.directories.get_mut(above) {
                    Some(directory) => directory.fail(),
                    None => {
                        self.spoiled.insert(above.to_vec());
                    }
                }
            }
        }
        if !self.claims {
            return;
        }
        // The root isn't claimed: a complete tree ends its journal.
        if is_well && !directory.is_open && !is_spoiled && !path.is_empty() {
            let first = [&path, &b"/"[..]].concat();
            while let Some((below, _)) = self.finished.range(first.clone()..).next()
                && below.starts_with(&first)
            {
                let below = below.clone();
                self.finished.remove(&below);
            }
            let finished = Finished {
                totals: directory.totals,
                mtime_ns: directory.known.map(|known| known.mtime_ns),
            };
            self.finished.insert(path, finished);
        } else if !directory.entries.marks.is_empty() {
            self.loose.push((path, directory.entries));
        }
    }

    /// Takes the claims gathered so far.
    pub(super) fn take_claims(&mut self) -> Claims {
        self.fresh = 0;
        if !self.claims {
            return Claims::default();
        }
        let open = self.directories.iter_mut();
        let open = open.filter(|(_, directory)| !directory.entries.marks.is_empty());
        let open =
            open.map(|(path, directory)| (path.clone(), std::mem::take(&mut directory.entries)));
        Claims {
            entries: std::mem::take(&mut self.loose)
                .into_iter()
                .chain(open)
                .collect(),
            finished: std::mem::take(&mut self.finished),
        }
    }

    /// The incomplete directories, subdirectories first, as they will be once everything in flight
    /// has arrived; `None` if one of them isn't listed yet or something in it failed.
    pub(super) fn foreseen(&self) -> Option<Vec<(&[u8], &Directory)>> {
        let is_well = |d: &Directory| d.expected.is_some() && !d.has_failed && !d.is_absent;
        if !self.directories.values().all(is_well) || !self.spoiled.is_empty() {
            return None;
        }
        let all = self.directories.iter();
        let mut all: Vec<_> = all
            .map(|(path, directory)| (&path[..], directory))
            .collect();
        all.sort_by(|a, b| b.0.cmp(a.0));
        Some(all)
    }

    /// Whether no directory is incomplete, or complete and not taken.
    pub(super) fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.completed.is_empty()
    }

    /// Takes the directories that never became complete, subdirectories first.
    pub(super) fn take_rest(&mut self) -> Vec<CompletedDirectory> {
        let rest = std::mem::take(&mut self.directories).into_iter();
        let rest = rest.filter(|(_, directory)| directory.is_made);
        let mut rest: Vec<_> = rest
            .map(|(path, mut directory)| {
                // A synchronisation lists for itself, and sets every directory that it tried to
                // create.
                let is_listed = directory.expected.is_some();
                directory.is_open = true;
                directory.has_failed = is_listed;
                directory.is_absent &= is_listed;
                CompletedDirectory { path, directory }
            })
            .collect();
        rest.sort_by(|a, b| b.path.cmp(&a.path));
        let existing = rest.iter().filter(|rest| rest.directory.is_existing());
        self.existing += existing.count() as u64;
        rest
    }

    fn directory(&mut self, path: &[u8]) -> &mut Directory {
        self.directories.entry(path.to_vec()).or_default()
    }

    /// Completes a directory if all of it is settled, and then those above it.
    fn close(&mut self, path: &[u8]) {
        let mut path = path;
        loop {
            let is_whole = self
                .directories
                .get(path)
                .is_some_and(|d| d.is_made && d.expected.is_some_and(|n| n <= d.settled));
            if !is_whole {
                return;
            }
            let Some((owned, mut directory)) = self.directories.remove_entry(path) else {
                return;
            };
            directory.totals.directories += 1;
            self.existing += u64::from(directory.is_existing());
            let (totals, is_open) = (directory.totals, directory.is_open);
            let has_failed = directory.has_failed;
            self.completed.push(CompletedDirectory {
                path: owned,
                directory,
            });
            if path.is_empty() {
                return;
            }
            path = split(path).0;
            let above = self.directory(path);
            above.settled += 1;
            above.totals.add(&totals);
            above.is_open |= is_open;
            above.has_failed |= has_failed;
        }
    }
}

/// The parent and the last name of a path.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Totals = Totals {
        files: 1,
        directories: 0,
        others: 0,
        bytes: 3,
    };
    const MARK: Mark = Mark {
        kind: 0,
        size: 3,
        mtime_ns: 1,
    };
    const HEADER: Header = Header {
        key: [0; 32],
        nonce: [0; 16],
    };

    fn file(tracker: &mut Tracker, path: &str) {
        tracker.settled(path.as_bytes(), Ok((FILE, Some(MARK))));
    }

    fn paths(completed: &[CompletedDirectory]) -> Vec<String> {
        let text = |w: &CompletedDirectory| String::from_utf8(w.path.clone()).unwrap();
        completed.iter().map(text).collect()
    }

    fn finished(claims: Claims) -> Vec<(String, u64)> {
        let records = claims.records(&HEADER).into_iter();
        let finished = records.filter_map(|record| match record {
            Record::Directory(path, finished) => Some((path, finished.totals)),
            _ => None,
        });
        finished
            .map(|(p, t)| (String::from_utf8(p).unwrap(), t.files))
            .collect()
    }

    /// Records a tree `a/{1,2}`, `a/b/3` in an unusual order.
    fn settle_in_odd_order(tracker: &mut Tracker, is_well: bool) -> Vec<CompletedDirectory> {
        let none = Totals::default();
        tracker.made(b"", true);
        file(tracker, "a/1");
        tracker.listed(b"a/b", 1, &none, true);
        tracker.listed(b"", 1, &none, true);
        if is_well {
            file(tracker, "a/b/3");
        } else {
            tracker.settled(b"a/b/3", Err(()));
        }
        assert!(tracker.take_completed().is_empty());
        tracker.made(b"a/b", true);
        tracker.made(b"a", true);
        assert_eq!(paths(&tracker.take_completed()), ["a/b"]);
        tracker.listed(b"a", 3, &none, true);
        file(tracker, "a/2");
        tracker.take_completed()
    }

    #[test]
    fn directories_are_whole_from_below() {
        let mut tracker = Tracker::new(true);
        let completed = settle_in_odd_order(&mut tracker, true);
        assert_eq!(paths(&completed), ["a", ""]);
        for completed in completed {
            tracker.closed(completed, true);
        }
        assert_eq!(finished(tracker.take_claims()), [("a".to_owned(), 3)]);
        assert!(
            tracker.take_claims().records(&HEADER).is_empty() && tracker.take_rest().is_empty()
        );
    }

    #[test]
    fn what_failed_keeps_those_above_open() {
        let mut tracker = Tracker::new(true);
        for completed in settle_in_odd_order(&mut tracker, false) {
            tracker.closed(completed, true);
        }
        // The other entries are claimed one by one.
        let claims = tracker.take_claims().records(&HEADER);
        let names = [&b"1"[..], b"2"].map(|name| HEADER.claim(b"a", name, MARK));
        assert_eq!(claims, [Record::Entries(b"a".to_vec(), names.to_vec())]);
        // So do metadata failures, and names that every run has to see.
        let mut tracker = Tracker::new(true);
        let none = Totals::default();
        tracker.made(b"", true);
        for name in [&b"x"[..], b"y", b"z"] {
            tracker.made(name, true);
            file(
                &mut tracker,
                &format!("{}/f", String::from_utf8_lossy(name)),
            );
        }
        tracker.keep_open(b"y/f");
        for name in [&b"x"[..], b"y", b"z"] {
            tracker.listed(name, 1, &none, true);
        }
        tracker.listed(b"", 3, &none, true);
        for completed in tracker.take_completed() {
            let is_well = completed.path != b"z";
            tracker.closed(completed, is_well);
        }
        assert_eq!(finished(tracker.take_claims()), [("x".to_owned(), 1)]);
    }

    #[test]
    fn entries_are_claimed_once_and_not_of_finished_directories() {
        let mut tracker = Tracker::new(true);
        let none = Totals::default();
        tracker.made(b"", true);
        file(&mut tracker, "f");
        file(&mut tracker, "g");
        tracker.settled(b"link", Ok((FILE, None)));
        let records = tracker.take_claims().records(&HEADER);
        let claims = [&b"f"[..], b"g"].map(|name| HEADER.claim(b"", name, MARK));
        assert_eq!(records, [Record::Entries(Vec::new(), claims.to_vec())]);
        assert!(tracker.take_claims().records(&HEADER).is_empty());
        tracker.made(b"d", true);
        file(&mut tracker, "d/f");
        tracker.listed(b"d", 1, &none, true);
        let completed = tracker.take_completed();
        assert!(
            tracker.take_claims().records(&HEADER).is_empty(),
            "its metadata aren't set"
        );
        for completed in completed {
            tracker.closed(completed, true);
        }
        assert_eq!(finished(tracker.take_claims()), [("d".to_owned(), 1)]);
        // Entries of an earlier run count too; the root never completes.
        tracker.made(b"e", true);
        tracker.listed(b"e", 0, &FILE, true);
        for completed in tracker.take_completed() {
            tracker.closed(completed, true);
        }
        assert_eq!(finished(tracker.take_claims()), [("e".to_owned(), 1)]);
        assert_eq!(paths(&tracker.take_rest()), [""]);
    }
}
