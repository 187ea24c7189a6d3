//! The scanner: lists the directories of a source, several at a time if it is remote, and skips
//! entries that an earlier run finished.

use std::collections::{HashMap, HashSet};
use std::sync::{MutexGuard, PoisonError};

use xdfs_proto::Fault;
use xdfs_store::tree_journal::{Mark, Totals};

use super::count::SourceCount;
use super::feed::{Event, Feed};
use super::foreseen::CheckedRights;
use super::journal::FinishedEntries;
use super::links::{FileNumber, Link};
use super::name_collisions::ListedNames;
use super::namespace::{FoundName, check_length};
use super::run::TreeRun;
use super::tracker::split;
use super::version::{looks_like, mark_of, totals_of};
use crate::paths::{Answer, Attributes, FileKind};
use crate::skip::Skip;

/// Entries passed on at a time.
const BATCH_NAMES: usize = 256;

/// An entry that exists at the target.
struct Existing {
    kind: FileKind,
    /// `None` for kinds that are never skipped.
    mark: Option<Mark>,
    file: FileNumber,
}

impl TreeRun<'_> {
    /// Finds entries; a directory comes before its contents.
    pub(super) fn scan(&self, feed: &Feed) {
        let mut batch = Vec::new();
        while let Some(directory) = self.unlisted.take(&self.stop) {
            self.list(directory, &mut batch, feed);
            if self.source.is_remote() {
                // The next listing may take a while.
                feed.entries(std::mem::take(&mut batch));
            }
            self.unlisted.end_one();
        }
        if let Some(count) = self.listing_count()
            && !self.is_stopped()
        {
            count.complete();
        }
        feed.entries(batch);
    }

    fn list(&self, directory: Vec<u8>, batch: &mut Vec<FoundName>, feed: &Feed) {
        let mut names = ListedNames::default();
        // The root may be new by itself, but not with something in it.
        let mut was_there = self.existing_directories().remove(&directory) && !directory.is_empty();
        let (finished, existing) = self.at_target(&directory, &mut names, &mut was_there);
        if directory.is_empty() {
            self.target.end_listing();
        }
        let (mut given, mut taken, mut is_well) = (0, Totals::default(), true);
        let mut checked = CheckedRights::default();
        if let Some(count) = self.listing_count() {
            count.add_directory();
        }
        let filter = &self.options.filter;
        let compares = finished.as_ref().is_some_and(FinishedEntries::has_entries)
            || !existing.is_empty()
            || filter.has_limits();
        for found in self.source.entries_with(&directory, compares) {
            if self.is_stopped() {
                is_well = false;
                break;
            }
            let mut found = match found {
                Ok(found) => found,
                Err(fault) => {
                    is_well = false;
                    feed.send(Event::Failed(directory.clone(), fault));
                    break;
                }
            };
            if self.leaves_out(&found) {
                continue;
            }
            if let Some(fault) = found.fault.take() {
                given += 1;
                found.is_directory = false;
                feed.send(Event::Unread(found, *fault));
                continue;
            }
            if let Err(fault) = check_length(&found.path) {
                given += 1;
                found.is_directory = false;
                feed.send(Event::Unread(found, self.source.fault(fault)));
                continue;
            }
            if let Some(fault) = self.own_target(&found) {
                given += 1;
                feed.send(Event::Unread(found, fault));
                continue;
            }
            if let (Some(count), Some(found)) = (self.listing_count(), &found.attributes) {
                count.add(found.kind, found.size);
            }
            let waits = names.add(split(&found.path).1) && !self.options.parameters.dry_run;
            let there = existing.get(split(&found.path).1);
            let done = self.finished(finished.as_ref(), &found, there);
            if let Some(totals) = done.or_else(|| self.existing(there?, &found)) {
                taken.add(&totals);
                if self.names_of(&found).is_some() {
                    feed.send(Event::HardLinked(found.path));
                }
                continue;
            }
            given += 1;
            if self.options.parameters.dry_run {
                let kind = there.map(|there| there.kind);
                let has_parent = was_there || directory.is_empty() && self.has_root;
                if let Some(fault) = self.foreseen(&found, kind, has_parent, &mut checked) {
                    feed.send(Event::Unread(found, fault));
                    continue;
                }
            }
            if !self.source.is_remote() {
                // The file may change until it is read.
                found.attributes = None;
            }
            if waits {
                feed.send(Event::Deferred(found));
                continue;
            }
            if found.is_directory {
                self.unlisted.push(found.path.clone());
            }
            batch.push(found);
            if batch.len() >= BATCH_NAMES && !feed.entries(std::mem::take(batch)) {
                return;
            }
        }
        feed.send(Event::Listed {
            directory,
            was_there,
            entries: given,
            taken,
            is_well,
        });
    }

    /// The refusal of a directory that is the target.
    fn own_target(&self, found: &FoundName) -> Option<Fault> {
        let own = self.own.as_ref().filter(|_| found.is_directory)?;
        own.refusal(self.source, self.target, found)
    }

    /// The count of a source that is listed by the scanner alone.
    fn listing_count(&self) -> Option<&SourceCount> {
        self.count.as_deref().filter(|_| self.source.is_remote())
    }

    /// The entries of a directory that are at the target: those that an earlier run finished, and,
    /// if some are skipped, all that exist. They are added to `names`. Directories are listed there
    /// too.
    fn at_target(
        &self,
        directory: &[u8],
        names: &mut ListedNames,
        was_there: &mut bool,
    ) -> (Option<FinishedEntries<'_>>, HashMap<Vec<u8>, Existing>) {
        let mut existing = HashMap::new();
        let compares = self.skips_existing || self.has_root;
        let skips = compares && (*was_there || directory.is_empty());
        let mut finished = self.resume.as_ref().and_then(|index| index.of(directory));
        if finished.is_none() && !skips {
            return (None, existing);
        }
        for found in self.target.entries_with(directory, true) {
            let found = match found {
                Ok(found) => found,
                // The claims remain valid.
                Err(fault) if fault.ends_session => return (None, existing),
                // What can't be listed is refused or replaced when it is copied.
                Err(_) => break,
            };
            *was_there = true;
            let name = split(&found.path).1;
            let attributes = self.target.attributes(&found);
            let mark = attributes.as_ref().and_then(mark_of);
            let is_moved = finished.as_mut().is_some_and(|finished| {
                if found.is_directory {
                    let mtime_ns = || attributes.as_ref().map(|found| found.mtime_ns);
                    finished.see_directory(name, mtime_ns)
                } else {
                    mark.is_some_and(|mark| finished.see(name, mark))
                }
            });
            if is_moved || skips {
                names.at_target(name);
            }
            if let Some(found) = attributes.filter(|_| skips) {
                let there = Existing {
                    kind: found.kind,
                    mark,
                    file: (found.device, found.inode),
                };
                existing.insert(name.to_vec(), there);
            }
            if found.is_directory && !is_moved {
                self.existing_directories().insert(found.path);
            }
            if self.is_stopped() {
                return (None, existing);
            }
        }
        if let Some(finished) = &mut finished {
            finished.seen_all();
        }
        (finished, existing)
    }

    /// Counts a local source, until the run is stopped. Directories that can't be
    /// listed aren't counted: the copy itself reports them.
    pub(super) fn count_source(&self, count: &SourceCount) {
        let mut unlisted = vec![Vec::new()];
        while let Some(directory) = unlisted.pop() {
            if self.is_stopped() {
                return;
            }
            count.add_directory();
            for found in self.source.entries(&directory).map_while(Result::ok) {
                if self.is_stopped() {
                    return;
                }
                if found.fault.is_some() || self.leaves_out(&found) {
                    continue;
                }
                if found.is_directory {
                    unlisted.push(found.path);
                } else if let Some(file) = self.source.attributes(&found) {
                    count.add(file.kind, file.size);
                }
            }
        }
        count.complete();
    }

    pub(super) fn existing_directories(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        let directories = &self.existing_directories;
        directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of an entry that is skipped, since it exists at the target.
    fn existing(&self, existing: &Existing, found: &FoundName) -> Option<Totals> {
        let there = existing.mark?;
        let mark = self.source.mark(found)?;
        let (is_skipped, is_same) = match self.options.skip {
            Skip::Never => (false, false),
            Skip::SizeAndTime => (looks_like(there, mark), true),
            Skip::Identical => {
                let is_same =
                    looks_like(there, mark) && self.has_same_content(&found.path, there, mark);
                (is_same, true)
            }
            Skip::Content => (self.has_same_content(&found.path, there, mark), true),
            Skip::NotOlder => {
                let is_same = looks_like(there, mark);
                (is_same || there.mtime_ns >= mark.mtime_ns, is_same)
            }
            Skip::All => (true, looks_like(there, mark)),
        };
        let stays = is_skipped && (!is_same || self.may_stay(found, Some(existing)));
        stays.then(|| totals_of(mark))
    }

    /// Whether an entry that is the same at the target may stay there as it is. Of a further hard
    /// link that has to be a link to the first name there; without the right to replace it it stays
    /// in any case.
    fn may_stay(&self, found: &FoundName, there: Option<&Existing>) -> bool {
        let Some(attributes) = self.names_of(found) else {
            return true;
        };
        let file = (attributes.device, attributes.inode);
        match there {
            Some(there) => {
                let belongs = self.names.exists(file, &found.path, there.file);
                belongs || !self.options.parameters.overwrite
            }
            None => self.names.before(file, &found.path).is_none(),
        }
    }

    /// Whether two files have the same content; of other entries, whether they look alike.
    fn has_same_content(&self, path: &[u8], there: Mark, wanted: Mark) -> bool {
        if there.kind != 0 || there.kind != wanted.kind || there.size != wanted.size {
            return looks_like(there, wanted);
        }
        // Each side reads its file at the same time.
        let asked = [self.source, self.target].map(|side| side.start_digest(path));
        let [source, target] = asked.map(|asked| match asked.wait() {
            Ok(Answer::Digest { value, length }) => Some((value, length)),
            // It is moved, which reports what is wrong.
            _ => None,
        });
        source.is_some() && source == target
    }

    pub(super) fn leaves_out(&self, found: &FoundName) -> bool {
        let filter = &self.options.filter;
        let is_limited = filter.has_limits() && !found.is_directory;
        filter.leaves_out(&found.path, found.is_directory)
            || is_limited
                && self.source.attributes(found).is_some_and(|found| {
                    let time = found.mtime();
                    self.options.is_beyond_limits(&found, time)
                })
    }

    /// The counts of an entry that an earlier run finished; `None` if it has to be moved.
    fn finished(
        &self,
        finished: Option<&FinishedEntries<'_>>,
        found: &FoundName,
        there: Option<&Existing>,
    ) -> Option<Totals> {
        let (finished, name) = (finished?, split(&found.path).1);
        if found.is_directory {
            return finished.directory(name);
        }
        if !finished.has_entries() {
            return None;
        }
        let mark = self.source.mark(found)?;
        if !finished.entry(name, mark) {
            return None;
        }
        // The first name of a file stays finished: further names link to it. A further name
        // doesn't unless it is such a link: the first may be moved again, and is then another file.
        self.may_stay(found, there).then(|| totals_of(mark))
    }

    /// The attributes of an entry that is one of several hard links to preserve.
    fn names_of(&self, found: &FoundName) -> Option<Attributes> {
        if !self.options.hard_links || found.is_directory {
            return None;
        }
        let several = self.source.attributes(found);
        several.filter(|a| a.links > 1 && a.kind != FileKind::Directory)
    }

    /// Whether the entry is one of several hard links to preserve, and the link to create if it
    /// isn't the first.
    pub(super) fn first_name(&self, found: &FoundName) -> (bool, Option<Link>) {
        let Some(attributes) = self.names_of(found) else {
            return (false, None);
        };
        let file = (attributes.device, attributes.inode);
        let first = self.names.before(file, &found.path);
        let link = first.map(|first| Link {
            path: found.path.clone(),
            first,
            mark: mark_of(&attributes),
        });
        (true, link)
    }
}
