//! The end of a tree copy, after the scan: retries, names that may collide, further hard links, and
//! the metadata of directories.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::atomic::Ordering;

use xdfs_proto::pack::{Content, Entry, Metadata, Owner};
use xdfs_proto::{Code, Fault};

use super::item::{Item, Kind, OwnedXattr};
use super::links::{Link, linkable};
use super::moving::{Report, RetryEntry, is_away};
use super::name_collisions::{BothEnds, Deferred, Names, Verdict, identity, resolve_collisions};
use super::namespace::{FoundName, LookedUp};
use super::options::{PACKS_MAX, ROUNDS};
use super::run::{Moving, TreeRun};
use super::tracker::{CompletedDirectory, Directory, DirectoryMetadata, OWNER_ALL, split};
use super::version::{looks_like, mark_of};
use crate::paths::{FileKind, known_time};

impl BothEnds for TreeRun<'_> {
    fn source(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault> {
        for found in self.source.entries(directory) {
            let found = found?;
            if found.fault.is_none() && !self.leaves_out(&found) {
                let attributes = self.source.attributes(&found);
                let identity = attributes.as_ref().and_then(identity);
                names(split(&found.path).1, identity);
            }
        }
        Ok(())
    }

    fn target(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault> {
        for found in self.target.entries(directory) {
            names(split(&found?.path).1, None);
        }
        Ok(())
    }

    fn look(&self, paths: &[Vec<u8>]) -> Vec<LookedUp> {
        self.target.look_up(paths.iter().map(Vec::as_slice))
    }
}

impl Moving<'_, '_> {
    /// Retries entries with transient faults.
    pub(super) fn retry(&mut self) -> Result<(), Fault> {
        self.move_interrupted()?;
        for round in 1..=ROUNDS {
            if self.report.is_stopped() {
                break;
            }
            let (again, ours) = self.report.take_retries(round == ROUNDS);
            if again.is_empty() && ours.is_empty() {
                break;
            }
            let failed = again.iter().chain(&ours);
            let faults = failed.clone().map(|entry| &entry.fault);
            if faults.clone().any(is_away) {
                // Waits for another session with the server of a source, if its own has ended.
                let _ = self.run.source.find_root();
            }
            self.run.session.await_server(faults);
            self.run.grant_owner_access(failed, self.report)?;
            self.move_again(again, self.run.options.parameters.overwrite)?;
            let ours = self.run.find_ours(ours, self.report)?;
            self.move_again(ours, true)?;
            self.move_interrupted()?;
        }
        Ok(())
    }

    /// Moves entries again that were in flight when their session broke. Each round needs another
    /// session, which can't be had for ever without progress.
    fn move_interrupted(&mut self) -> Result<(), Fault> {
        loop {
            let entries = self.report.take_interrupted();
            if entries.is_empty() || self.report.is_stopped() {
                return Ok(());
            }
            self.move_again(entries, self.run.options.parameters.overwrite)?;
        }
    }

    fn move_again(&mut self, entries: Vec<RetryEntry>, overwrite: bool) -> Result<(), Fault> {
        if entries.is_empty() {
            return Ok(());
        }
        self.overwrite = overwrite;
        if self.run.source.is_remote() {
            for RetryEntry { path, mark, .. } in entries {
                self.request(path, mark)?;
            }
        } else {
            // The contents of a directory are retried separately.
            let found = entries
                .into_iter()
                .map(|RetryEntry { path, .. }| FoundName {
                    path,
                    is_directory: false,
                    attributes: None,
                    fault: None,
                });
            let unkept = self.run.unkept.load(Ordering::Relaxed);
            self.pass(found.collect(), None)?;
            // Counted in the first attempt.
            self.run.unkept.store(unkept, Ordering::Relaxed);
        }
        self.drain()?;
        self.overwrite = self.run.options.parameters.overwrite;
        Ok(())
    }

    /// Moves deferred entries whose names don't collide at the target.
    pub(super) fn move_deferred(&mut self) -> Result<(), Fault> {
        while !self.deferred.is_empty() && !self.report.is_stopped() {
            let mut roots = Vec::new();
            let round = self.deferred.take_round();
            for (found, verdict) in self.judge(round, |found| &found.path)? {
                match verdict {
                    Ok(()) => roots.push(found),
                    Err(fault) if found.is_directory => {
                        self.report.fail_directory(&found.path, &fault)
                    }
                    Err(fault) => self.report.fail_permanently(&found.path, &fault),
                }
            }
            self.report.keep_retries();
            self.pass(roots, None)?;
            self.drain()?;
            self.retry()?;
        }
        Ok(())
    }

    /// Whether deferred entries, one of each kind, may be moved.
    fn judge<E>(
        &mut self,
        round: Vec<E>,
        path: fn(&E) -> &[u8],
    ) -> Result<Vec<(E, Verdict)>, Fault> {
        let paths: Vec<_> = round.iter().map(path).collect();
        let verdicts = resolve_collisions(self.run, &self.refused, &paths)?;
        let outcomes = paths.iter().zip(&verdicts);
        let refused = outcomes.filter(|(_, verdict)| verdict.is_err());
        let refused: Vec<_> = refused.map(|(path, _)| path.to_vec()).collect();
        self.refused.extend(refused);
        Ok(round.into_iter().zip(verdicts).collect())
    }

    /// Creates further hard links. The first names exist by now.
    pub(super) fn link(&mut self) -> Result<(), Fault> {
        let mut late = Deferred::new(|link: &Link| &link.path);
        let (alike, mut links): (Vec<_>, Vec<_>) = std::mem::take(&mut self.links)
            .into_iter()
            .partition(|link| self.deferred.has_kind(&link.path));
        alike.into_iter().for_each(|link| late.add(link));
        loop {
            self.run
                .make_links(std::mem::take(&mut links), self.report)?;
            if late.is_empty() || self.report.is_stopped() {
                return Ok(());
            }
            for (link, verdict) in self.judge(late.take_round(), |link| &link.path)? {
                match verdict {
                    Ok(()) => links.push(link),
                    Err(fault) => self.report.fail_permanently(&link.path, &fault),
                }
            }
        }
    }

    /// Starts to set the metadata of complete directories. One such pack is in flight at a time:
    /// subdirectories come before their parents, since the mode of a parent may deny access to
    /// them.
    pub(super) fn start_finalizing(&mut self) -> Result<(), Fault> {
        if self.finalizing.is_some() || self.completed.is_empty() {
            return Ok(());
        }
        let mut pack = self.run.begin_pack();
        let mut directories = Vec::new();
        while let Some(mut completed) = self.completed.pop_front() {
            let CompletedDirectory { path, directory } = &mut completed;
            let known = directory.known.or_else(|| self.run.known_here(path));
            directory.known = known.filter(|_| !directory.is_absent);
            let Some(known) = directory.known else {
                // It was not created, has been removed, or isn't a directory any more.
                self.report.tracker.closed(completed, false);
                continue;
            };
            let entry = Entry {
                path,
                metadata: self
                    .run
                    .directory_metadata(path, directory, known, &directory.xattrs),
                content: Content::Attributes,
            };
            if !pack.entry(&entry) {
                self.completed.push_front(completed);
                break;
            }
            directories.push(completed);
        }
        if !directories.is_empty() {
            let pack = self
                .run
                .start_metadata_pack(pack.finish(), Vec::new(), true)?;
            let is_ended = pack.transfer.has_ended() && !self.run.target.is_remote();
            self.finalizing = Some((pack.transfer, directories));
            if is_ended {
                return self.end_finalizing();
            }
        }
        Ok(())
    }

    /// Waits for the directory metadata in flight.
    pub(super) fn end_finalizing(&mut self) -> Result<(), Fault> {
        let Some((transfer, directories)) = self.finalizing.take() else {
            return Ok(());
        };
        let ended = self.run.finish_pack(transfer, false)?.1;
        for (number, directory) in (0..).zip(directories) {
            let fault = match &ended {
                Ok(failures) => failures.of(number),
                Err(fault) => Some(fault),
            };
            let is_well = fault.is_none_or(|fault| {
                let fault = fault.clone().path(&directory.path);
                self.report.directory_unset(&directory.path, &fault)
            });
            self.report.tracker.closed(directory, is_well);
        }
        Ok(())
    }

    /// Sets the metadata of all remaining directories. In a stopped run, incomplete ones stay as
    /// they are.
    pub(super) fn finalize_directories(&mut self) -> Result<(), Fault> {
        let is_stopped = self.report.is_stopped();
        let tracker = &mut self.report.tracker;
        self.completed.extend(tracker.take_completed());
        if !is_stopped {
            self.completed.extend(tracker.take_rest());
        }
        self.end_finalizing()?;
        while !self.completed.is_empty() {
            self.start_finalizing()?;
            self.end_finalizing()?;
        }
        Ok(())
    }
}

impl TreeRun<'_> {
    /// The entries that an earlier run moved to the target without claiming them, recognised by
    /// size and time. The others fail.
    fn find_ours(
        &self,
        entries: Vec<RetryEntry>,
        report: &mut Report<'_>,
    ) -> Result<Vec<RetryEntry>, Fault> {
        let found = self
            .target
            .look_up(entries.iter().map(|entry| &entry.path[..]));
        let mut ours = Vec::new();
        for (entry, found) in entries.into_iter().zip(found) {
            let there = match found {
                Err(fault) if fault.ends_session => return Err(fault),
                found => found.ok().flatten().as_ref().and_then(mark_of),
            };
            let index = self.resume.as_ref();
            let looks_so = there
                .zip(entry.mark)
                .is_some_and(|(there, wanted)| looks_like(there, wanted));
            let was_sent = looks_so && report.was_interrupted(&entry.path);
            let is_ours = was_sent
                || index
                    .zip(there)
                    .zip(entry.mark)
                    .is_some_and(|((index, there), wanted)| {
                        index.is_ours(&entry.path, there, wanted)
                    });
            if is_ours {
                ours.push(entry);
            } else {
                report.fail_permanently(&entry.path, &entry.fault);
            }
        }
        Ok(ours)
    }

    /// Gives owners full access to the directories above entries that could not be created or
    /// replaced. They get their final modes when they are complete.
    fn grant_owner_access<'e>(
        &self,
        entries: impl Iterator<Item = &'e RetryEntry>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let mut levels: BTreeMap<usize, BTreeSet<&[u8]>> = BTreeMap::new();
        for RetryEntry { path, fault, .. } in entries {
            if matches!(fault.code, Code::AlreadyExists | Code::PermissionDenied) {
                let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
                for (level, at) in std::iter::once(0).chain(slashes).enumerate() {
                    levels.entry(level).or_default().insert(&path[..at]);
                }
            }
        }
        // Parents come first.
        for level in levels.into_values() {
            let found = self.target.look_up(level.iter().copied());
            let closed = level.into_iter().zip(found).filter_map(|(path, found)| {
                let found = found.ok()??;
                let is_kept = path.is_empty() && self.keeps_root;
                let is_open = found.mode & OWNER_ALL == OWNER_ALL;
                if found.kind != FileKind::Directory || is_open || is_kept {
                    return None;
                }
                let metadata = Metadata {
                    mode: u16::try_from(found.mode | OWNER_ALL).ok(),
                    ..Metadata::default()
                };
                let entry = Entry {
                    path,
                    metadata,
                    content: Content::Attributes,
                };
                // A failure here shows in the entries beneath.
                Some((entry, Item::new(path.to_vec(), Kind::Silent, 0)))
            });
            self.apply(closed, true, report)?;
        }
        Ok(())
    }

    /// Creates hard links.
    pub(super) fn make_links(
        &self,
        links: Vec<Link>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let links = linkable(self, links, report)?;
        let make = |wanted: Option<&HashSet<Vec<u8>>>, overwrite, report: &mut Report<'_>| {
            let links = links.iter();
            let links = links.filter(|link| wanted.is_none_or(|paths| paths.contains(&link.path)));
            let entries = links.map(|link| {
                let entry = Entry {
                    path: &link.path,
                    metadata: Metadata::default(),
                    content: Content::HardLink(&link.first),
                };
                let mut item = Item::of(&entry);
                item.mark = link.mark;
                (entry, item)
            });
            self.apply(entries, overwrite, report)
        };
        let overwrite = self.options.parameters.overwrite;
        if self.resume.is_none() {
            return make(None, overwrite, report);
        }
        // The links of an earlier run may refer to files that have been moved again since.
        report.keep_retries();
        make(None, overwrite, report)?;
        let (again, ours) = report.take_retries(true);
        let ours = self.find_ours(ours, report)?;
        for (entries, overwrite) in [(again, overwrite), (ours, true)] {
            let paths = entries.into_iter().map(|entry| entry.path).collect();
            make(Some(&paths), overwrite, report)?;
        }
        Ok(())
    }

    /// Applies entries without content in packs, in this order, and records their outcomes.
    pub(super) fn apply<'e>(
        &self,
        entries: impl Iterator<Item = (Entry<'e>, Item)>,
        overwrite: bool,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let mut packs = VecDeque::new();
        let (mut pack, mut items) = (self.begin_pack(), Vec::new());
        for (entry, item) in entries {
            if !pack.entry(&entry) {
                let full = std::mem::replace(&mut pack, self.begin_pack()).finish();
                let items = std::mem::take(&mut items);
                packs.push_back(self.start_metadata_pack(full, items, overwrite)?);
                if packs.len() >= PACKS_MAX
                    && let Some(pack) = packs.pop_front()
                {
                    self.count_pack(pack, report)?;
                }
                // A path is shorter than any pack.
                let _ = pack.entry(&entry);
            }
            items.push(item);
        }
        if !pack.is_empty() {
            packs.push_back(self.start_metadata_pack(pack.finish(), items, overwrite)?);
        }
        packs
            .into_iter()
            .try_for_each(|pack| self.count_pack(pack, report))
    }

    /// Current metadata of a directory of a local source; `None` if it is no longer a directory, or
    /// if the source is remote, where listings provided it.
    pub(super) fn known_here(&self, path: &[u8]) -> Option<DirectoryMetadata> {
        let is_here = !self.source.is_remote();
        let found = is_here.then(|| self.source.local_attributes(path))??;
        (found.kind == FileKind::Directory).then(|| (&found).into())
    }

    /// The metadata to set on a directory.
    pub(super) fn directory_metadata<'x>(
        &self,
        path: &[u8],
        directory: &Directory,
        known: DirectoryMetadata,
        xattrs: &'x [OwnedXattr],
    ) -> Metadata<'x> {
        let is_kept = path.is_empty() && self.keeps_root;
        // Systems without modes provide none.
        let has_mode = self.source.is_remote() || cfg!(unix);
        let mode = directory.mode(self.options.kept_mode(known.mode));
        let mode = u16::try_from(mode).ok();
        let (uid, gid) = known.owner;
        let owner = Owner {
            uid,
            gid,
            names: None,
        };
        Metadata {
            mode: mode.filter(|_| has_mode && !is_kept),
            mtime_ns: known_time(known.mtime_ns),
            // Others got their owner when they were created.
            owner: (path.is_empty() && self.options.owner && !is_kept).then_some(owner),
            xattrs: match is_kept {
                true => Vec::new(),
                false => xattrs
                    .iter()
                    .map(|(name, value)| (&name[..], &value[..]))
                    .collect(),
            },
            ..Metadata::default()
        }
    }
}
