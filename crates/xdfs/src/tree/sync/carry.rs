//! Carrying out what a comparison found: the only part of a synchronisation that changes things.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use xdfs_proto::pack::{Content, Entry, Metadata, Owner, PackReader};
use xdfs_proto::{Code, Fault, Limits};

use super::delta::{Candidate, Delta};
use super::name_matches::{DeferredEntry, Listed, same};
use super::plan::{Action, Give, Outcome, Renaming, Replaces};
use super::swap;
use crate::events::SyncStep;
use crate::paths::{Attributes, Call};
use crate::tree::feed::{Event, Feed};
use crate::tree::item::{Item, Kind, attributes_of};
use crate::tree::moving::Report;
use crate::tree::namespace::{CALLS_MAX, FoundName, Pending};
use crate::tree::options::SET_ID;
use crate::tree::run::TreeRun;

/// Entries that are given to a mover at once.
const BATCH_ENTRIES: usize = 128;
/// How often it is looked whether a file that takes a place is to be broken off.
const SWAP_INTERVAL: Duration = Duration::from_millis(100);

/// Gives actions, until the flag is set, and says what is left to be done.
pub(super) type Actions<'a> =
    dyn Fn(&AtomicBool, &mut Give<'_>) -> Result<Outcome, Fault> + Sync + 'a;

/// What changes the target; in a dry run it tells what it would change.
pub(super) struct Carrier<'a> {
    /// What moves entries.
    pub(super) run: TreeRun<'a>,
    pub(super) delta: Delta,
}

/// Is told what came of a change.
pub(super) type Ended<'e, T> = dyn FnMut(T, Result<(), Fault>, &mut Report<'_>) + 'e;

impl Carrier<'_> {
    pub(super) fn is_dry(&self) -> bool {
        self.run.options.dry_run
    }

    /// Moves what the actions name, while they are given.
    pub(super) fn carry(
        &self,
        actions: &Actions<'_>,
        report: &mut Report<'_>,
    ) -> Result<Outcome, Fault> {
        // A mover that was stopped may not have asked.
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
        let copies = |_: &AtomicBool, give: &mut Give<'_>| {
            let mut copies = entries.iter().cloned();
            copies.all(|entry| give(Action::Copy(entry, replaces)));
            Ok(Outcome::default())
        };
        self.carry(&copies, report).map(drop)
    }

    /// Has what the target has of a large file taken from its old one, and the rest moved.
    fn prepare(&self, candidate: Candidate, feed: &Feed) {
        let found = self.found(candidate.entry.clone());
        if !self.run.is_stopped() && self.run.first_name(&found).1.is_none() {
            self.delta.prepare(&candidate, &self.run);
        }
        feed.entries(vec![found]);
    }

    /// What is to be moved. A source here is looked at again then.
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
            return actions(&run.stop, &mut |action| feed.tell(told(action)));
        }
        let mut batch = Vec::new();
        let mut sets = run.begin_pack();
        let outcome = actions(&run.stop, &mut |action| match action {
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
                    run.hand_over(&mut sets, feed);
                    // A path is shorter than any pack.
                    let _ = sets.entry(&entry);
                }
                true
            }
            Action::Failed(path, fault) => feed.tell(Event::Failed(path, fault)),
        });
        run.hand_over(&mut sets, feed);
        feed.entries(batch);
        outcome
    }

    fn attributes_entry<'e>(&self, path: &'e [u8], attributes: &Attributes) -> Entry<'e> {
        let is_kept = path.is_empty() && self.run.keeps_root;
        let owner = Owner {
            uid: attributes.uid,
            gid: attributes.gid,
            names: None,
        };
        Entry {
            path,
            metadata: Metadata {
                mode: u16::try_from(attributes.mode).ok().filter(|_| !is_kept),
                mtime_ns: Some(attributes.mtime_ns),
                owner: (self.run.options.owner && !is_kept).then_some(owner),
                ..Metadata::default()
            },
            content: Content::Attributes,
        }
    }

    /// Makes the root of the target.
    pub(super) fn make_root(&self, report: &mut Report<'_>) -> Result<(), Fault> {
        match self.is_dry() {
            true => report.step(SyncStep::Copy, b"", None),
            false => self.run.target.make_root()?,
        }
        report.result.directories += 1;
        Ok(())
    }

    /// Sets what is known of entries, in this order.
    pub(super) fn set<'e>(
        &self,
        entries: impl Iterator<Item = (&'e Vec<u8>, &'e Attributes)>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let entries = entries.map(|(path, attributes)| {
            let entry = self.attributes_entry(path, attributes);
            let item = Item::of(&entry);
            (entry, item)
        });
        self.run.apply(entries, true, report)
    }

    /// Makes calls, several at once and in any order, until the observer wants no more. `ended` is
    /// told what came of each.
    pub(super) fn call_all<T>(
        &self,
        calls: impl Iterator<Item = (T, Call)>,
        report: &mut Report<'_>,
        ended: &mut Ended<'_, T>,
    ) -> Result<(), Fault> {
        let mut under_way = VecDeque::new();
        let mut finish = |(what, begun): (T, Pending), report: &mut Report<'_>| {
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

    /// Gives files their new names; what can't be renamed is added to `late`. Returns how many
    /// were.
    pub(super) fn rename(
        &self,
        renamings: Vec<Renaming>,
        late: &mut Vec<Listed>,
        report: &mut Report<'_>,
    ) -> Result<u64, Fault> {
        let told = |renaming: &Renaming, report: &mut Report<'_>| {
            report.step(SyncStep::Rename, &renaming.to.0, Some(&renaming.from));
        };
        if self.is_dry() {
            renamings.iter().for_each(|renaming| told(renaming, report));
            return Ok(renamings.len() as u64);
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
                told(&renaming, report);
                renamed.push(renaming.to);
            } else {
                late.push(renaming.to);
            }
        })?;
        self.set(renamed.iter().map(|(path, a)| (path, a)), report)?;
        Ok(renamed.len() as u64)
    }

    /// Of entries that waited those under whose names nothing stands. The others failed: where
    /// something stands now, nothing was but what is moved.
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

    /// Puts large files where something stands that is no file and no directory: each comes whole
    /// under a name of its own beside it, and takes the place in one step. Further names of files
    /// are made when these are there.
    pub(super) fn swap(&self, swaps: Vec<Listed>, report: &mut Report<'_>) -> Result<(), Fault> {
        if self.is_dry() {
            return self.copy(&swaps, Replaces::Entry, report);
        }
        let mut links = Vec::new();
        for entry in swaps {
            if report.is_stopped() {
                return Ok(());
            }
            let is_special = entry.1.mode & SET_ID != 0;
            if let Some(link) = self.run.first_name(&self.found(entry.clone())).1 {
                links.push(link);
                continue;
            }
            match self.swap_one(&entry, report) {
                Ok(bytes) => {
                    report.result.unkept += u64::from(is_special && !self.run.options.owner);
                    report.moved(&Item::large(entry.0, bytes, None));
                }
                Err(fault) if fault.ends_session => return Err(fault),
                Err(fault) => report.fail_permanently(&entry.0, &fault),
            }
        }
        if links.is_empty() || report.is_stopped() {
            return Ok(());
        }
        self.run.make_links(links, report)
    }

    fn swap_one(&self, (path, attributes): &Listed, report: &mut Report<'_>) -> Result<u64, Fault> {
        // Before it is read, which changes the time of the last read.
        let kept = match self.run.options.keeps_more() {
            true => self.run.metadata_of(path)?,
            false => attributes_of(&self.attributes_entry(path, attributes)),
        };
        let (beside, bytes) = self.move_beside(path, report)?;
        match self.take_place(path, &beside, &kept) {
            Ok(lacks) => lacks.map_or(Ok(bytes), |fault| Err(fault.path(path))),
            Err(fault) if fault.ends_session => Err(fault),
            Err(fault) => {
                let path = self.run.target.at(&beside);
                let removed = self.run.target.start_beneath(Call::RemoveFile { path });
                match removed.wait() {
                    Err(fault) if fault.ends_session => Err(fault),
                    // Why it has to go is told.
                    _ => Err(fault),
                }
            }
        }
    }

    /// Moves a large file to a name beside its own: the same ones each time, so that a transfer
    /// that was broken off goes on. What somebody else has under such a name stays.
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
        let mut transfer = self.run.start_file(&mut item, target, false)?;
        while !transfer.is_finished() {
            if report.is_stopped() {
                transfer.cancel();
            }
            transfer.progress(SWAP_INTERVAL);
            report.progress();
        }
        Ok(transfer.wait()?.bytes)
    }

    /// Has a file take the place of another, after what is kept of it is set: who breaks it off
    /// then leaves nothing that looks as if it were finished. If nothing of that can be set, what
    /// stands there stays until the next run: who compares later would see nothing missing. Returns
    /// what of it could not be set.
    fn take_place(&self, path: &[u8], beside: &[u8], kept: &[u8]) -> Result<Option<Fault>, Fault> {
        let limits = Limits::default();
        let mut lacks = None;
        if let Some(Ok(entry)) = PackReader::new(kept, &limits).next() {
            let pack = attributes_of(&Entry {
                path: beside,
                ..entry
            });
            let length = pack.len();
            let pack = self.run.start_pack((pack, length), Vec::new(), true)?;
            lacks = match pack.transfer.wait() {
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
}

/// What a dry run says of an action.
fn told(action: Action) -> Event {
    match action {
        Action::Copy((path, attributes), replaces) => {
            let step = match replaces {
                Replaces::Nothing => SyncStep::Copy,
                Replaces::Entry | Replaces::File(_) => SyncStep::Replace,
            };
            let kind = Kind::of(attributes.kind);
            let bytes = if kind == Kind::File {
                attributes.size
            } else {
                0
            };
            Event::Step(step, Item::new(path, kind, bytes))
        }
        Action::Set((path, _)) => Event::Step(SyncStep::Set, Item::new(path, Kind::Attributes, 0)),
        Action::Failed(path, fault) => Event::Failed(path, fault),
    }
}
