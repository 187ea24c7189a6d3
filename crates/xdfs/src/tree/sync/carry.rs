//! Executes the actions of a comparison, but for removals.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xdfs_proto::pack::{Content, Entry, Metadata, Owner, PackReader};
use xdfs_proto::{Code, Fault, Limits};

use super::backup::{Backup, Keep};
use super::delta::{Candidate, Delta};
use super::name_matches::{DeferredEntry, Listed, same};
use super::plan::{Action, Emit, Outcome, Renaming, Replaces};
use super::swap;
use crate::events::SyncStep;
use crate::paths::{Attributes, Call, FileKind};
use crate::tree::feed::{Event, Feed};
use crate::tree::foreseen::ForeseenDirectories;
use crate::tree::item::{Item, Kind, attributes_of};
use crate::tree::moving::Report;
use crate::tree::namespace::{CALLS_MAX, FoundName, Pending};
use crate::tree::options::SET_ID;
use crate::tree::run::TreeRun;
use crate::tree::stripes;

/// Entries passed to the tree run at a time.
const BATCH_ENTRIES: usize = 128;
/// Interval of checks whether to cancel the transfer of a swap.
const SWAP_INTERVAL: Duration = Duration::from_millis(100);

/// Produces actions until the flag is set, and returns the deferred work.
pub(super) type Actions<'a> =
    dyn Fn(&AtomicBool, &mut Emit<'_>) -> Result<Outcome, Fault> + Sync + 'a;

/// Changes the target; in a dry run, only reports the changes.
pub(super) struct Carrier<'a> {
    /// Moves entries.
    pub(super) run: TreeRun<'a>,
    pub(super) delta: Delta,
    /// Keeps what is replaced or removed.
    pub(super) backup: Option<Backup<'a>>,
    /// In a dry run, the directories that would change.
    pub(super) foreseen: Mutex<ForeseenDirectories>,
}

/// Receives the result of a change.
pub(super) type Ended<'e, T> = dyn FnMut(T, Result<(), Fault>, &mut Report<'_>) + 'e;

impl Carrier<'_> {
    pub(super) fn is_dry(&self) -> bool {
        self.run.options.parameters.dry_run
    }

    /// Executes actions while they are produced.
    pub(super) fn carry(
        &self,
        actions: &Actions<'_>,
        report: &mut Report<'_>,
    ) -> Result<Outcome, Fault> {
        let ends = [self.run.source, self.run.target];
        let have_sessions = ends.iter().all(|end| end.traits().sessions);
        if !have_sessions || ends.iter().all(|end| end.is_remote()) {
            // A server that is lost isn't the session, which would be replaced.
            report.keep_retries();
        }
        // A stopped run may not call the provider.
        let given = Mutex::new(Ok(Outcome::default()));
        let provide = |feed: &Feed| {
            let prepare = |candidate: Candidate| self.prepare(candidate, feed);
            let outcome = self
                .delta
                .beside(&prepare, |candidates| self.feed(actions, feed, candidates));
            *given.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
        };
        self.run.run(Vec::new(), Some(&provide), None, report)?;
        given.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves these entries.
    pub(super) fn copy(
        &self,
        entries: &[Listed],
        replaces: Replaces,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        if entries.is_empty() {
            return Ok(());
        }
        let copies = |_: &AtomicBool, emit: &mut Emit<'_>| {
            let mut copies = entries.iter().cloned();
            copies.all(|entry| emit(Action::Copy(entry, replaces)));
            Ok(Outcome::default())
        };
        self.carry(&copies, report).map(drop)
    }

    /// Seeds the transfer of a large file from the old version at the target, and passes the file
    /// on.
    fn prepare(&self, candidate: Candidate, feed: &Feed) {
        let found = self.found(candidate.entry.clone());
        if !self.run.is_stopped() && self.run.first_name(&found).1.is_none() {
            self.delta.prepare(&candidate, &self.run);
        }
        feed.entries(vec![found]);
    }

    /// The entry to move. Attributes of a local source are read again then.
    fn found(&self, (path, attributes): Listed) -> FoundName {
        let mut found = FoundName::listed(path, attributes);
        if !self.run.source.is_remote() {
            found.attributes = None;
        }
        found
    }

    fn feed(
        &self,
        actions: &Actions<'_>,
        feed: &Feed,
        candidates: &SyncSender<Candidate>,
    ) -> Result<Outcome, Fault> {
        let run = &self.run;
        if self.is_dry() {
            return actions(&run.stop, &mut |action| {
                let event = self.dry_run_event(action);
                event.is_none_or(|event| feed.send(event))
            });
        }
        let mut batch = Vec::new();
        let mut replaced = Vec::new();
        let mut lost = Ok(());
        let mut sets = run.begin_pack();
        let outcome = actions(&run.stop, &mut |action| match action {
            Action::Copy(entry, replaces)
                if self.backup.is_some() && replaces != Replaces::Nothing =>
            {
                replaced.push((entry, replaces));
                if replaced.len() < BATCH_ENTRIES {
                    return true;
                }
                lost = self.feed_replaced(std::mem::take(&mut replaced), feed, candidates);
                lost.is_ok()
            }
            Action::Copy(entry, Replaces::File(old)) if self.delta.may_pay(&entry.1, old) => {
                candidates.send(Candidate { entry, old }).is_ok()
            }
            Action::Copy(entry, _) => {
                batch.push(self.found(entry));
                batch.len() < BATCH_ENTRIES || feed.entries(std::mem::take(&mut batch))
            }
            Action::Set((path, attributes)) => {
                let entry = self.attributes_entry(&path, &attributes);
                if !sets.entry(&entry) {
                    run.flush_pack(&mut sets, feed);
                    // It fits: a path is shorter than any pack.
                    let _ = sets.entry(&entry);
                }
                true
            }
            Action::Failed(path, fault) => feed.send(Event::Failed(path, fault)),
        });
        run.flush_pack(&mut sets, feed);
        feed.entries(batch);
        lost.and_then(|()| self.feed_replaced(replaced, feed, candidates))?;
        outcome
    }

    /// Keeps what these entries replace, and passes them on.
    ///
    /// # Errors
    /// The session ended.
    fn feed_replaced(
        &self,
        entries: Vec<(Listed, Replaces)>,
        feed: &Feed,
        candidates: &SyncSender<Candidate>,
    ) -> Result<(), Fault> {
        let paths: Vec<_> = entries.iter().map(|(entry, _)| &entry.0[..]).collect();
        let kept = self.backup.as_ref().map(|b| b.keep(&paths, Keep::Linked));
        let mut batch = Vec::new();
        for ((entry, replaces), kept) in entries.into_iter().zip(kept.into_iter().flatten()) {
            match (kept, replaces) {
                (Err(fault), _) if fault.ends_session => return Err(fault),
                (Err(fault), _) => {
                    feed.send(Event::Failed(entry.0, fault));
                }
                (Ok(()), Replaces::File(old)) if self.delta.may_pay(&entry.1, old) => {
                    // Unless the run was stopped, which the next step notices.
                    let _ = candidates.send(Candidate { entry, old });
                }
                (Ok(()), _) => batch.push(self.found(entry)),
            }
        }
        feed.entries(batch);
        Ok(())
    }

    fn attributes_entry<'e>(&self, path: &'e [u8], attributes: &Attributes) -> Entry<'e> {
        let is_kept = path.is_empty() && self.run.keeps_root;
        let mode = u16::try_from(self.run.options.kept_mode(attributes.mode)).ok();
        let owner = Owner {
            uid: attributes.uid,
            gid: attributes.gid,
            names: None,
        };
        Entry {
            path,
            metadata: Metadata {
                mode: mode.filter(|_| !is_kept),
                mtime_ns: attributes.mtime(),
                owner: (self.run.options.owner && !is_kept).then_some(owner),
                ..Metadata::default()
            },
            content: Content::Attributes,
        }
    }

    /// Creates the root of the target.
    pub(super) fn make_root(
        &self,
        source: &Attributes,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        match self.is_dry() {
            true => {
                self.run.check_root()?;
                self.foreseen().add_new(b"");
                report.step(SyncStep::Copy, b"", None);
            }
            false => {
                self.run.target.make_root()?;
                let mut root = Item::new(Vec::new(), Kind::Directory, 0);
                let owner = (source.uid, source.gid);
                root.owner = self.run.options.owner.then_some(owner);
                report.moved_owners.add(&root);
            }
        }
        report.result.directories += 1;
        Ok(())
    }

    /// Sets the extended attributes of the root of the target, which this run has made.
    pub(super) fn set_root_xattrs(&self, report: &mut Report<'_>) -> Result<(), Fault> {
        let xattrs = self.run.root_xattrs()?;
        let entry = Entry {
            path: b"",
            metadata: Metadata {
                xattrs: xattrs
                    .iter()
                    .map(|(name, value)| (&name[..], &value[..]))
                    .collect(),
                ..Metadata::default()
            },
            content: Content::Attributes,
        };
        let item = Item::of(&entry);
        let entries = (!xattrs.is_empty()).then_some((entry, item));
        self.run.apply(entries.into_iter(), true, report)
    }

    /// Sets the metadata of entries, in this order.
    pub(super) fn set<'e>(
        &self,
        entries: impl Iterator<Item = (&'e Vec<u8>, &'e Attributes)>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let entries = entries.map(|(path, attributes)| {
            let entry = self.attributes_entry(path, attributes);
            let mut item = Item::of(&entry);
            if attributes.kind == FileKind::Directory {
                item.kind = Kind::DirectoryAttributes;
            }
            (entry, item)
        });
        self.run.apply(entries, true, report)
    }

    /// Makes calls, several at a time and in any order, until the observer stops the run. `ended`
    /// receives the result of each.
    pub(super) fn call_all<T>(
        &self,
        calls: impl Iterator<Item = (T, Call)>,
        report: &mut Report<'_>,
        ended: &mut Ended<'_, T>,
    ) -> Result<(), Fault> {
        let mut under_way = VecDeque::new();
        let mut finish = |(what, begun): (T, Pending<'_>), report: &mut Report<'_>| {
            match begun.wait() {
                Err(fault) if fault.ends_session => return Err(fault),
                result => ended(what, result.map(|_| ()), report),
            }
            report.progress();
            Ok(())
        };
        for (what, call) in calls {
            if report.is_stopped() {
                break;
            }
            under_way.push_back((what, self.run.target.start_beneath(call)));
            if under_way.len() >= CALLS_MAX
                && let Some(first) = under_way.pop_front()
            {
                finish(first, report)?;
            }
        }
        under_way
            .into_iter()
            .try_for_each(|begun| finish(begun, report))
    }

    /// Renames files, and returns their number. Files that can't be renamed are added to `late`.
    pub(super) fn rename(
        &self,
        renamings: Vec<Renaming>,
        late: &mut Vec<Listed>,
        report: &mut Report<'_>,
    ) -> Result<u64, Fault> {
        let report_step = |renaming: &Renaming, report: &mut Report<'_>| {
            report.step(SyncStep::Rename, &renaming.to.0, Some(&renaming.from));
        };
        if self.is_dry() {
            let mut count = 0;
            for renaming in &renamings {
                match self.foresee(&renaming.to.0, false, false) {
                    Some(Ok(())) => {
                        report_step(renaming, report);
                        count += 1;
                    }
                    Some(Err(fault)) => report.failed(&renaming.to.0, &fault),
                    None => {}
                }
            }
            return Ok(count);
        }
        let target = self.run.target;
        let mut renamed = Vec::new();
        let calls = renamings.into_iter().map(|renaming| {
            let call = Call::Rename {
                from: target.at(&renaming.from),
                to: target.at(&renaming.to.0),
                overwrite: false,
            };
            (renaming, call)
        });
        self.call_all(calls, report, &mut |renaming, result, report| {
            if result.is_ok() {
                report_step(&renaming, report);
                renamed.push(renaming.to);
            } else {
                late.push(renaming.to);
            }
        })?;
        self.set(renamed.iter().map(|(path, a)| (path, a)), report)?;
        Ok(renamed.len() as u64)
    }

    /// The deferred entries whose names still don't exist at the target. The others fail: an entry
    /// found now was created by this run under another name.
    pub(super) fn keep_missing(
        &self,
        waited: Vec<DeferredEntry>,
        report: &mut Report<'_>,
    ) -> Result<Vec<DeferredEntry>, Fault> {
        if self.is_dry() {
            return Ok(waited);
        }
        let paths = waited.iter().map(|waits| &waits.entry.0[..]);
        let found = self.run.target.look_up(paths);
        let mut missing = Vec::new();
        for (waits, found) in waited.into_iter().zip(found) {
            let path = &waits.entry.0;
            match found {
                Ok(None) => missing.push(waits),
                Ok(Some(_)) => report.failed(path, &same(path, &waits.other)),
                Err(fault) if fault.ends_session => return Err(fault),
                Err(fault) => report.failed(path, &fault),
            }
        }
        Ok(missing)
    }

    /// Replaces entries that are neither files nor directories by large files: each is transferred
    /// under a temporary name in the same directory, and then renamed atomically. Further hard
    /// links follow at the end.
    pub(super) fn swap(&self, swaps: Vec<Listed>, report: &mut Report<'_>) -> Result<(), Fault> {
        if self.is_dry() {
            return self.copy(&swaps, Replaces::Entry, report);
        }
        let mut links = Vec::new();
        for entry in swaps {
            if report.is_stopped() {
                return Ok(());
            }
            if let Some(backup) = &self.backup {
                let kept = backup.keep(&[&entry.0], Keep::Linked);
                match kept.into_iter().collect::<Result<(), Fault>>() {
                    Err(fault) if fault.ends_session => return Err(fault),
                    Err(fault) => {
                        report.fail_permanently(&entry.0, &fault);
                        continue;
                    }
                    Ok(()) => {}
                }
            }
            let is_special = entry.1.mode & SET_ID != 0;
            if let Some(link) = self.run.first_name(&self.found(entry.clone())).1 {
                links.push(link);
                continue;
            }
            let swapped = loop {
                let generation = self.run.session.generation();
                match self.swap_one(&entry, report) {
                    Err(fault) if fault.ends_session => {
                        self.run.session.recover(generation, &fault)?;
                    }
                    swapped => break swapped,
                }
            };
            match swapped {
                Ok(bytes) => {
                    report.result.unkept += u64::from(is_special && !self.run.options.owner);
                    let (bytes, kept) = bytes;
                    report.moved(&Item::large(entry.0, bytes, None).owned_as(&kept));
                }
                Err(fault) => report.fail_permanently(&entry.0, &fault),
            }
        }
        if links.is_empty() || report.is_stopped() {
            return Ok(());
        }
        self.run.make_links(links, report)
    }

    /// Returns the bytes moved, and the pack that set the metadata.
    fn swap_one(
        &self,
        (path, attributes): &Listed,
        report: &mut Report<'_>,
    ) -> Result<(u64, Vec<u8>), Fault> {
        // Before it is read, which changes its access time.
        let kept = match self.run.options.keeps_more() {
            true => self.run.metadata_of(path)?,
            false => attributes_of(&self.attributes_entry(path, attributes)),
        };
        let (beside, bytes) = self.move_beside(path, report)?;
        match self.take_place(path, &beside, &kept) {
            Ok(lacks) => lacks.map_or(Ok((bytes, kept)), |fault| Err(fault.path(path))),
            Err(fault) if fault.ends_session => Err(fault),
            Err(fault) => {
                let path = self.run.target.at(&beside);
                let removed = self.run.target.start_beneath(Call::RemoveFile { path });
                match removed.wait() {
                    Err(fault) if fault.ends_session => Err(fault),
                    // The first fault is the reason.
                    _ => Err(fault),
                }
            }
        }
    }

    /// Moves a large file to a temporary name in the same directory. The names are deterministic,
    /// so that an interrupted transfer resumes. Existing files under such names stay.
    fn move_beside(&self, path: &[u8], report: &mut Report<'_>) -> Result<(Vec<u8>, u64), Fault> {
        let mut moved = Err(Fault::new(Code::AlreadyExists, "", ""));
        for number in 0..swap::NAMES {
            let beside = swap::beside(path, number);
            moved = self.move_to(path, &beside, report).map(|n| (beside, n));
            if !matches!(&moved, Err(fault) if fault.code == Code::AlreadyExists) {
                break;
            }
        }
        moved
    }

    fn move_to(&self, path: &[u8], to: &[u8], report: &mut Report<'_>) -> Result<u64, Fault> {
        let mut item = Item::large(path.to_vec(), 0, None);
        let target = self.run.target.at(to);
        let started = self.run.start_file(&mut item, target, false)?;
        let (mut transfer, is_striped) = (started.transfer, started.is_striped);
        while !transfer.is_finished() {
            if report.is_stopped() {
                transfer.cancel();
            }
            transfer.progress(SWAP_INTERVAL);
            report.progress();
        }
        let moved = transfer.wait();
        let moved = moved.map_err(|fault| stripes::fault_of(is_striped, fault))?;
        Ok(moved.bytes)
    }

    /// Renames a file over an existing entry, after its metadata has been set, so that an
    /// interruption leaves nothing that looks complete. If the pack fails as a whole, the old entry
    /// stays for the next run: once replaced, a later comparison would not notice the missing
    /// metadata. If only some metadata could not be set, the fault is returned.
    fn take_place(&self, path: &[u8], beside: &[u8], kept: &[u8]) -> Result<Option<Fault>, Fault> {
        let limits = Limits::default();
        let mut lacks = None;
        if let Some(Ok(entry)) = PackReader::new(kept, &limits).next() {
            let pack = attributes_of(&Entry {
                path: beside,
                ..entry
            });
            let length = pack.len();
            let pack = self
                .run
                .start_metadata_pack((pack, length), Vec::new(), true)?;
            lacks = match self.run.finish_pack(pack.transfer, false)?.1 {
                Err(fault) if !fault.ends_session => return Err(fault.path(path)),
                failures => failures?.of(0).cloned(),
            };
        }
        let target = self.run.target;
        let renamed = target.start_beneath(Call::Rename {
            from: target.at(beside),
            to: target.at(path),
            overwrite: true,
        });
        renamed.wait()?;
        Ok(lacks)
    }

    fn foreseen(&self) -> MutexGuard<'_, ForeseenDirectories> {
        self.foreseen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an entry could be created or replaced, as a dry run foresees it; `None` if it can't
    /// and the reason is reported.
    fn foresee(
        &self,
        path: &[u8],
        is_directory: bool,
        replaces: bool,
    ) -> Option<Result<(), Fault>> {
        self.foreseen()
            .check(&self.run, path, is_directory, replaces)
    }

    /// Whether an entry could be removed, as a dry run foresees it by whether another one could be
    /// created beside it.
    ///
    /// # Errors
    /// The reason for which it couldn't.
    pub(super) fn foresee_removal(&self, path: &[u8]) -> Result<(), Fault> {
        let foreseen = self.foresee(&swap::beside(path, 0), false, false);
        let foreseen = foreseen.unwrap_or(Ok(()));
        foreseen.map_err(|fault| fault.path(path))
    }

    /// The event by which a dry run reports an action; `None` if the reason that it fails is
    /// reported.
    fn dry_run_event(&self, action: Action) -> Option<Event> {
        Some(match action {
            Action::Copy((path, attributes), replaces) => {
                let (step, replaced) = match replaces {
                    Replaces::Nothing => (SyncStep::Copy, 0),
                    Replaces::Entry => (SyncStep::Replace, 0),
                    Replaces::File(old) => (SyncStep::Replace, old),
                };
                let kind = Kind::of(attributes.kind);
                let is_new = replaces == Replaces::Nothing;
                if let Err(fault) = self.foresee(&path, kind == Kind::Directory, !is_new)? {
                    return Some(Event::Failed(path, fault));
                }
                let bytes = if kind == Kind::File {
                    attributes.size
                } else {
                    0
                };
                Event::Step {
                    step,
                    item: Item::new(path, kind, bytes),
                    storage: (self.run.storage(&attributes), replaced),
                }
            }
            Action::Set((path, _)) => Event::Step {
                step: SyncStep::Set,
                item: Item::new(path, Kind::Attributes, 0),
                storage: (0, 0),
            },
            Action::Failed(path, fault) => Event::Failed(path, fault),
        })
    }
}
