//! The scanner: lists the directories of a source one after the other, several at once where they
//! are far away, and leaves out what an earlier run has finished.

use xdfs_store::tree_journal::Totals;

use super::feed::{Event, Feed};
use super::journal::FinishedEntries;
use super::links::Link;
use super::name_collisions::ListedNames;
use super::namespace::FoundName;
use super::run::TreeRun;
use super::tracker::split;
use super::version::{mark_of, totals_of};
use crate::paths::FileKind;

/// Names that are given on at once.
const BATCH_NAMES: usize = 256;

impl TreeRun<'_> {
    /// Finds names, directories before what is in them.
    pub(super) fn scan(&self, feed: &Feed) {
        let mut batch = Vec::new();
        while let Some(directory) = self.unlisted.take(&self.stop) {
            self.list(directory, &mut batch, feed);
            if self.source.is_remote() {
                // The next listing may have to be waited for.
                feed.entries(std::mem::take(&mut batch));
            }
            self.unlisted.end_one();
        }
        feed.entries(batch);
    }

    fn list(&self, directory: Vec<u8>, batch: &mut Vec<FoundName>, feed: &Feed) {
        let mut names = ListedNames::default();
        let finished = self.finished_in(&directory, &mut names);
        let (mut given, mut taken, mut is_well) = (0, Totals::default(), true);
        for found in self.source.entries(&directory) {
            if self.is_stopped() {
                is_well = false;
                break;
            }
            let found = match found {
                Ok(found) => found,
                Err(fault) => {
                    is_well = false;
                    feed.tell(Event::Failed(directory.clone(), fault));
                    break;
                }
            };
            if self.leaves_out(&found) {
                continue;
            }
            let waits = names.add(split(&found.path).1) && !self.options.dry_run;
            if let Some(totals) = self.finished(finished.as_ref(), &found) {
                taken.add(&totals);
                continue;
            }
            given += 1;
            if waits {
                feed.tell(Event::Deferred(found));
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
        feed.tell(Event::Listed {
            directory,
            entries: given,
            taken,
            is_well,
        });
    }

    pub(super) fn leaves_out(&self, found: &FoundName) -> bool {
        let filter = &self.options.filter;
        filter.leaves_out(&found.path, found.is_directory)
    }

    /// What of a directory is finished and still stands at the target: `names` is told it.
    fn finished_in(
        &self,
        directory: &[u8],
        names: &mut ListedNames,
    ) -> Option<FinishedEntries<'_>> {
        let mut finished = self.resume.as_ref()?.of(directory)?;
        for found in self.target.entries(directory) {
            let found = match found {
                Ok(found) => found,
                // The journal is as true as before.
                Err(fault) if fault.ends_session => return None,
                Err(_) => break,
            };
            let name = split(&found.path).1;
            let is_moved = if found.is_directory {
                let mtime_ns = || self.target.attributes(&found).map(|a| a.mtime_ns);
                finished.see_directory(name, mtime_ns)
            } else {
                let mark = self.target.mark(&found);
                mark.is_some_and(|mark| finished.see(name, mark))
            };
            if is_moved {
                names.moved(name);
            }
            if self.is_stopped() {
                return None;
            }
        }
        finished.seen_all();
        Some(finished)
    }

    /// What an entry has that an earlier run finished.
    fn finished(
        &self,
        finished: Option<&FinishedEntries<'_>>,
        found: &FoundName,
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
        // Further names of it are links to this one. If it is one itself, the first may be moved
        // anew, and is another file then.
        match self.first_name(found).1 {
            Some(_) => None,
            None => Some(totals_of(mark)),
        }
    }

    /// Whether a file has several names that are to stay, and for a further one the link that it
    /// is to be.
    pub(super) fn first_name(&self, found: &FoundName) -> (bool, Option<Link>) {
        if !self.options.hard_links || found.is_directory {
            return (false, None);
        }
        let several = self.source.attributes(found);
        let several = several.filter(|a| a.links > 1 && a.kind != FileKind::Directory);
        let Some(attributes) = several else {
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
