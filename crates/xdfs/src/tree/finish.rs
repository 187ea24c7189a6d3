//! What follows when the names of a tree were found: what failed is tried again, names that may
//! collide and further names of files come, and directories get their metadata.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use xdfs_proto::pack::{Content, Entry, Metadata, Owner, PackReader};
use xdfs_proto::{Fault, Limits};

use super::item::{Item, Kind};
use super::links::{Link, sound};
use super::moving::{MovingPack, PackTransfer, Packs, Report, RetryEntry, levels_above, opening};
use super::name_collisions::{
    BothEnds, Deferred, Names, Pathed, Verdict, identity, resolve_collisions,
};
use super::namespace::{FoundName, LookedUp};
use super::options::ROUNDS;
use super::run::{Moving, TreeRun};
use super::tracker::{CompletedDirectory, Directory, DirectoryMetadata, split};
use super::version::mark_of;
use crate::paths::FileKind;

impl BothEnds for TreeRun<'_> {
    fn source(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault> {
        for found in self.source.entries(directory) {
            let found = found?;
            if !self.leaves_out(&found) {
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

impl TreeRun<'_> {
    /// Tries again what failed and may pass.
    pub(super) fn retry(&self, moving: &mut Moving<'_, '_>) -> Result<(), Fault> {
        for round in 1..=ROUNDS {
            if moving.report.is_stopped() {
                break;
            }
            let (again, ours) = moving.report.take_retries(round == ROUNDS);
            if again.is_empty() && ours.is_empty() {
                break;
            }
            let levels = levels_above(again.iter().chain(&ours));
            self.grant_owner_access(levels, moving.report)?;
            self.move_again(again, self.options.overwrite, moving)?;
            let ours = self.find_ours(ours, moving.report)?;
            self.move_again(ours, true, moving)?;
        }
        Ok(())
    }

    fn move_again(
        &self,
        entries: Vec<RetryEntry>,
        overwrite: bool,
        moving: &mut Moving<'_, '_>,
    ) -> Result<(), Fault> {
        if entries.is_empty() {
            return Ok(());
        }
        moving.overwrite = overwrite;
        if self.source.is_remote() {
            for RetryEntry { path, mark, .. } in entries {
                self.request(path, mark, moving)?;
            }
        } else {
            // What is in a directory is tried by itself.
            let found = entries
                .into_iter()
                .map(|RetryEntry { path, .. }| FoundName {
                    path,
                    is_directory: false,
                    attributes: None,
                });
            let unkept = self.unkept.load(Ordering::Relaxed);
            self.pass(found.collect(), None, moving)?;
            // They were counted the first time.
            self.unkept.store(unkept, Ordering::Relaxed);
        }
        self.drain(moving)?;
        moving.overwrite = self.options.overwrite;
        Ok(())
    }

    /// Of entries that stand at the target, those that an earlier run moved there without claiming
    /// them, by their size and time. The others are failures.
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
            let is_ours = index
                .zip(there)
                .zip(entry.mark)
                .is_some_and(|((index, there), wanted)| index.is_ours(&entry.path, there, wanted));
            if is_ours {
                ours.push(entry);
            } else {
                report.fail_permanently(&entry.path, &entry.fault);
            }
        }
        Ok(ours)
    }

    /// Gives the owner of directories at the target what is needed to go on in them. They get their
    /// modes when they are complete.
    fn grant_owner_access(
        &self,
        levels: Vec<Vec<Vec<u8>>>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        for level in levels {
            let found = self.target.look_up(level.iter().map(Vec::as_slice));
            let closed = level.iter().zip(found).filter_map(|(path, found)| {
                let is_kept = path.is_empty() && self.keeps_root;
                let entry = opening(path, &found.ok()??).filter(|_| !is_kept)?;
                // What can't be seen or set is told by what is made in it.
                Some((entry, Item::new(path.clone(), Kind::Unheard, 0)))
            });
            self.apply(closed, true, report)?;
        }
        Ok(())
    }

    /// Moves the names that waited, if they mean nothing else at the target.
    pub(super) fn move_deferred(&self, moving: &mut Moving<'_, '_>) -> Result<(), Fault> {
        while !moving.deferred.is_empty() && !moving.report.is_stopped() {
            let mut roots = Vec::new();
            for (found, verdict) in self.next_round(&mut moving.deferred)? {
                match verdict {
                    Ok(()) => roots.push(found),
                    Err(fault) if found.is_directory => {
                        moving.report.fail_directory(&found.path, &fault)
                    }
                    Err(fault) => moving.report.fail_permanently(&found.path, &fault),
                }
            }
            moving.report.keep_retries();
            self.pass(roots, None, moving)?;
            self.drain(moving)?;
            self.retry(moving)?;
        }
        Ok(())
    }

    /// The first of each kind that waits, and whether it may be moved.
    fn next_round<E: Pathed>(
        &self,
        deferred: &mut Deferred<E>,
    ) -> Result<Vec<(E, Verdict)>, Fault> {
        let round = deferred.take_round();
        let paths: Vec<_> = round.iter().map(Pathed::path).collect();
        let verdicts = resolve_collisions(self, &paths)?;
        Ok(round.into_iter().zip(verdicts).collect())
    }

    /// Gives files their further names. What was moved has its first names by now.
    pub(super) fn link(&self, moving: &mut Moving<'_, '_>) -> Result<(), Fault> {
        let mut late = Deferred::default();
        let (alike, links): (Vec<_>, Vec<_>) = std::mem::take(&mut moving.links)
            .into_iter()
            .partition(|link| moving.deferred.has_kind(&link.path));
        self.make_links(links, moving.report)?;
        alike.into_iter().for_each(|link| late.add(link));
        while !late.is_empty() && !moving.report.is_stopped() {
            let mut links = Vec::new();
            for (link, verdict) in self.next_round(&mut late)? {
                match verdict {
                    Ok(()) => links.push(link),
                    Err(fault) => moving.report.fail_permanently(&link.path, &fault),
                }
            }
            self.make_links(links, moving.report)?;
        }
        Ok(())
    }

    /// Gives files these further names.
    pub(super) fn make_links(
        &self,
        links: Vec<Link>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let links = sound(self, links, report)?;
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
        let overwrite = self.options.overwrite;
        if self.resume.is_none() {
            return make(None, overwrite, report);
        }
        // An earlier run may have given these names to files that were moved again since.
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

    /// Has entries carried out that have no content, in this order, and counts them.
    pub(super) fn apply<'e>(
        &self,
        entries: impl Iterator<Item = (Entry<'e>, Item)>,
        overwrite: bool,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let mut packs = Packs::default();
        self.fill_packs(entries, overwrite, |pack| {
            packs.push(pack);
            match packs.is_full().then(|| packs.take()) {
                Some(Some(pack)) => self.count_pack(pack, report),
                _ => Ok(()),
            }
        })?;
        while let Some(pack) = packs.take() {
            self.count_pack(pack, report)?;
        }
        Ok(())
    }

    /// Puts entries that have no content into packs, and begins these.
    fn fill_packs<'e>(
        &self,
        entries: impl Iterator<Item = (Entry<'e>, Item)>,
        overwrite: bool,
        mut begun: impl FnMut(MovingPack) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (mut pack, mut items) = (self.begin_pack(), Vec::new());
        for (entry, item) in entries {
            if !pack.entry(&entry) {
                let full = std::mem::replace(&mut pack, self.begin_pack()).finish();
                begun(self.start_pack(full, std::mem::take(&mut items), overwrite)?)?;
                // A path is shorter than any pack, and so is what came in one.
                let _ = pack.entry(&entry);
            }
            items.push(item);
        }
        if pack.is_empty() {
            return Ok(());
        }
        begun(self.start_pack(pack.finish(), items, overwrite)?)
    }

    /// Gives large files that are there what else is kept of them. They are moved then.
    pub(super) fn apply_metadata(&self, moving: &mut Moving<'_, '_>) -> Result<(), Fault> {
        let (limits, bare) = (Limits::default(), moving.large.take_bare());
        if bare.is_empty() {
            return Ok(());
        }
        let entries = bare.iter().filter_map(|(item, kept)| {
            let entry = PackReader::new(kept, &limits).next()?.ok()?;
            Some((entry, item.clone()))
        });
        self.fill_packs(entries, true, |pack| self.push(pack, moving))
    }

    /// What a directory is to have; `None` if there is none any more. A source here is asked now,
    /// what is known of one on the server was listed.
    fn known_here(&self, path: &[u8]) -> Option<DirectoryMetadata> {
        let is_here = !self.source.is_remote();
        let found = is_here.then(|| self.source.local_attributes(path))??;
        (found.kind == FileKind::Directory).then(|| (&found).into())
    }

    /// What a directory is given, of what it is to have.
    fn directory_metadata(
        &self,
        path: &[u8],
        directory: &Directory,
        known: DirectoryMetadata,
    ) -> Metadata<'static> {
        let is_kept = path.is_empty() && self.keeps_root;
        // Systems without modes have none to give.
        let has_mode = self.source.is_remote() || cfg!(unix);
        let mode = u16::try_from(directory.mode(known.mode)).ok();
        let (uid, gid) = known.owner;
        let owner = Owner {
            uid,
            gid,
            names: None,
        };
        Metadata {
            mode: mode.filter(|_| has_mode && !is_kept),
            mtime_ns: Some(known.mtime_ns),
            // Those below have got theirs with their names.
            owner: (path.is_empty() && self.options.owner && !is_kept).then_some(owner),
            ..Metadata::default()
        }
    }

    /// Begins to set what is known of directories in which nothing more is made. One such pack is
    /// under way at a time: those below have to be set before those above, since one above may
    /// take away the right to get there.
    pub(super) fn start_finalizing(&self, moving: &mut Moving<'_, '_>) -> Result<(), Fault> {
        if moving.finalizing.is_some() || moving.completed.is_empty() {
            return Ok(());
        }
        let mut pack = self.begin_pack();
        let mut directories = Vec::new();
        while let Some(CompletedDirectory { path, directory }) = moving.completed.front_mut() {
            let known = directory.known.or_else(|| self.known_here(path));
            let known = known.filter(|_| !directory.is_absent);
            directory.known = known;
            if let Some(known) = known
                && !pack.entry(&Entry {
                    path,
                    metadata: self.directory_metadata(path, directory, known),
                    content: Content::Attributes,
                })
            {
                break;
            }
            let Some(completed) = moving.completed.pop_front() else {
                break;
            };
            match known {
                Some(_) => directories.push(completed),
                // It was not made, or is gone or something else by now.
                None => moving.report.tracker.closed(completed, false),
            }
        }
        if !directories.is_empty() {
            let pack = self.start_pack(pack.finish(), Vec::new(), true)?;
            let is_ended = matches!(pack.transfer, PackTransfer::Ended(_));
            moving.finalizing = Some((pack.transfer, directories));
            if is_ended {
                return self.end_finalizing(moving);
            }
        }
        Ok(())
    }

    /// Waits for the directories that are being set.
    pub(super) fn end_finalizing(&self, moving: &mut Moving<'_, '_>) -> Result<(), Fault> {
        let Some((transfer, directories)) = moving.finalizing.take() else {
            return Ok(());
        };
        let ended = transfer.wait();
        if let Err(fault) = &ended
            && fault.ends_session
        {
            return Err(fault.clone());
        }
        for (number, directory) in (0..).zip(directories) {
            let fault = match &ended {
                Ok(failures) => failures.of(number),
                Err(fault) => Some(fault),
            };
            if let Some(fault) = fault {
                let fault = fault.clone().path(&directory.path);
                moving.report.unset(&directory.path, &fault);
            }
            moving.report.tracker.closed(directory, fault.is_none());
        }
        Ok(())
    }

    /// Sets what is known of all directories that aren't set yet. When the tree is stopped those
    /// that aren't complete are left as they are.
    pub(super) fn finalize_directories(&self, moving: &mut Moving<'_, '_>) -> Result<(), Fault> {
        let tracker = &mut moving.report.tracker;
        moving.completed.extend(tracker.take_completed());
        if !moving.report.is_stopped() {
            let rest = moving.report.tracker.take_rest();
            moving.completed.extend(rest);
        }
        loop {
            self.end_finalizing(moving)?;
            let left = moving.completed.len();
            self.start_finalizing(moving)?;
            if moving.finalizing.is_none() && moving.completed.len() == left {
                return Ok(());
            }
        }
    }
}
