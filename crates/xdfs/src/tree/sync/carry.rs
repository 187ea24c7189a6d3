//! Carrying out what a comparison found: the only part of a synchronisation that changes things.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use xdfs_proto::pack::{Content, Entry, Metadata, Owner, PackReader};
use xdfs_proto::{Code, Fault, Limits};

use super::delta::{self, Candidate, Preparation};
use super::name_matches::DeferredEntry;
use super::plan::{Action, Give, Late, Renaming};
use super::swap;
use crate::client::Client;
use crate::events::SyncStep;
use crate::paths::{Attributes, Call};
use crate::tree::feed::{Event, Feed};
use crate::tree::item::{Item, attributes_of};
use crate::tree::links::FirstNames;
use crate::tree::moving::Report;
use crate::tree::namespace::{CALLS_MAX, FoundName, Namespace, Pending};
use crate::tree::options::{PackSizes, SET_ID, TreeOptions};
use crate::tree::run::TreeRun;

/// Entries that are given to a mover at once.
const BATCH_ENTRIES: usize = 128;
/// How often it is looked whether a file that takes a place is to be broken off.
const SWAP_INTERVAL: Duration = Duration::from_millis(100);

/// Gives actions, until the flag is set.
pub(super) type Actions<'a> = dyn Fn(&AtomicBool, &mut Give<'_>) + Sync + 'a;

/// What changes the target.
pub(super) struct Carrier<'a> {
    client: &'a Client,
    source: &'a Namespace<'a>,
    pub(super) target: &'a Namespace<'a>,
    options: &'a TreeOptions,
    /// Old files are looked at for what they have of new ones.
    delta: bool,
    /// Why the server doesn't do that, once it has said so.
    refusal: OnceLock<Fault>,
    /// The observer has heard it.
    is_refusal_told: AtomicBool,
    /// The root of the target stays whose it is: it may be that of an export.
    keeps_root: bool,
    cut: PackSizes,
    /// What comes in a later pass may be a further name of what came before.
    names: FirstNames,
}

/// Is told what came of a change.
pub(super) type Ended<'e, T> = dyn FnMut(T, Result<(), Fault>, &mut Report<'_>) + 'e;

impl<'a> Carrier<'a> {
    pub(super) fn new(
        client: &'a Client,
        (source, target): (&'a Namespace<'a>, &'a Namespace<'a>),
        options: &'a TreeOptions,
        (delta, keeps_root): (bool, bool),
        cut: PackSizes,
    ) -> Self {
        Self {
            client,
            source,
            target,
            options,
            delta,
            refusal: OnceLock::new(),
            is_refusal_told: AtomicBool::new(false),
            keeps_root,
            cut,
            names: FirstNames::default(),
        }
    }

    /// What moves entries.
    fn run(&self) -> TreeRun<'a> {
        let run = TreeRun::new(
            self.client,
            self.source,
            self.target,
            self.options,
            self.cut,
        );
        let names = self.names.clone();
        TreeRun { names, ..run }
    }

    /// Moves what the actions name, while they are given.
    pub(super) fn carry(
        &self,
        actions: &Actions<'_>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let provide = |run: &TreeRun<'_>, feed: &Feed| {
            let prepare = |candidate: Candidate| self.prepare(candidate, run, feed);
            delta::beside(self.delta, &prepare, |candidates| {
                self.feed(actions, run, feed, candidates);
            });
        };
        let moved = self.run().run(Vec::new(), Some(&provide), None, report);
        if let Some(fault) = self.refusal.get()
            && !self.is_refusal_told.swap(true, Ordering::Relaxed)
        {
            let fault = fault.clone();
            report.warn(&fault.hint("large files that changed were sent whole"));
        }
        moved
    }

    /// Has what the target has of a large file taken from its old one, and the rest moved.
    fn prepare(&self, candidate: Candidate, run: &TreeRun<'_>, feed: &Feed) {
        let found = self.found(candidate.path.clone(), candidate.attributes.clone());
        if !run.is_stopped() && run.first_name(&found).1.is_none() {
            let preparation = self.preparation(&run.stop);
            preparation.prepare(&candidate, self.source, self.target);
        }
        feed.entries(vec![found]);
    }

    /// What is to be moved. A source here is looked at again then.
    fn found(&self, path: Vec<u8>, attributes: Attributes) -> FoundName {
        let mut found = FoundName::listed(path, attributes);
        if !self.source.is_remote() {
            found.attributes = None;
        }
        found
    }

    fn feed(
        &self,
        actions: &Actions<'_>,
        run: &TreeRun<'_>,
        feed: &Feed,
        candidates: &SyncSender<Candidate>,
    ) {
        let mut batch = Vec::new();
        let mut sets = run.begin_pack();
        actions(&run.stop, &mut |action| match action {
            Action::Copy {
                path,
                attributes,
                old: Some(old),
                ..
            } if self.may_pay(&attributes, old) => {
                let candidate = Candidate {
                    path,
                    attributes,
                    old,
                };
                candidates.send(candidate).is_ok()
            }
            Action::Copy {
                path, attributes, ..
            } => {
                batch.push(self.found(path, attributes));
                batch.len() < BATCH_ENTRIES || feed.entries(std::mem::take(&mut batch))
            }
            Action::Set { path, attributes } => {
                let entry = self.attributes_entry(&path, &attributes);
                if !sets.entry(&entry) {
                    run.hand_over(&mut sets, feed);
                    // A path is shorter than any pack.
                    let _ = sets.entry(&entry);
                }
                true
            }
            Action::Failed { path, fault } => feed.tell(Event::Failed(path, fault)),
        });
        run.hand_over(&mut sets, feed);
        feed.entries(batch);
    }

    fn may_pay(&self, attributes: &Attributes, old: u64) -> bool {
        self.delta && delta::may_pay(attributes.size, old)
    }

    fn preparation<'p>(&'p self, stop: &'p AtomicBool) -> Preparation<'p> {
        Preparation {
            client: self.client,
            digest: self.client.digest(self.options.digest),
            stop,
            refusal: &self.refusal,
        }
    }

    fn attributes_entry<'e>(&self, path: &'e [u8], attributes: &Attributes) -> Entry<'e> {
        let is_kept = path.is_empty() && self.keeps_root;
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
                owner: (self.options.owner && !is_kept).then_some(owner),
                ..Metadata::default()
            },
            content: Content::Attributes,
        }
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
        self.run().apply(entries, true, report)
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
            under_way.push_back((what, self.target.start_beneath(call)));
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
        late: &mut Vec<Late>,
        report: &mut Report<'_>,
    ) -> Result<u64, Fault> {
        let mut renamed = Vec::new();
        let calls = renamings.into_iter().map(|renaming| {
            let call = Call::Rename {
                from: self.target.at(&renaming.from),
                to: self.target.at(&renaming.to),
                overwrite: false,
            };
            (renaming, call)
        });
        self.call_all(calls, report, &mut |renaming, result, report| {
            let Renaming {
                from,
                to,
                attributes,
            } = renaming;
            match result {
                Ok(()) => {
                    report.step(SyncStep::Rename, &to, Some(&from));
                    renamed.push((to, attributes));
                }
                Err(_) => late.push((to, attributes)),
            }
        })?;
        self.set(renamed.iter().map(|(path, a)| (path, a)), report)?;
        Ok(renamed.len() as u64)
    }

    /// Of entries that waited those under whose names nothing stands. The others failed.
    pub(super) fn keep_missing(
        &self,
        waited: Vec<DeferredEntry>,
        report: &mut Report<'_>,
    ) -> Result<Vec<DeferredEntry>, Fault> {
        let mut missing = Vec::new();
        let calls = waited.into_iter().map(|waits| {
            let path = self.target.at(&waits.path);
            let follow = false;
            (waits, Call::Stat { path, follow })
        });
        self.call_all(calls, report, &mut |waits, result, report| match result {
            Ok(()) => report.failed(&waits.path, &waits.fault()),
            Err(fault) if fault.code == Code::NotFound => missing.push(waits),
            Err(fault) => report.failed(&waits.path, &fault),
        })?;
        Ok(missing)
    }

    /// Puts large files where something stands that is no file and no directory: each comes whole
    /// under a name of its own beside it, and takes the place in one step. Further names of files
    /// are made when these are there.
    pub(super) fn swap(&self, swaps: Vec<Late>, report: &mut Report<'_>) -> Result<(), Fault> {
        let (run, mut links) = (self.run(), Vec::new());
        for (path, attributes) in swaps {
            if report.is_stopped() {
                return Ok(());
            }
            let found = self.found(path, attributes.clone());
            if let Some(link) = run.first_name(&found).1 {
                links.push(link);
                continue;
            }
            let path = found.path;
            match self.swap_one(&run, &path, &attributes, report) {
                Ok(bytes) => {
                    let is_special = attributes.mode & SET_ID != 0;
                    report.result.unkept += u64::from(is_special && !self.options.owner);
                    report.moved(&Item::large(path, bytes, None));
                }
                Err(fault) if fault.ends_session => return Err(fault),
                Err(fault) => report.fail_permanently(&path, &fault),
            }
        }
        if links.is_empty() || report.is_stopped() {
            return Ok(());
        }
        run.make_links(links, report)
    }

    fn swap_one(
        &self,
        run: &TreeRun<'_>,
        path: &[u8],
        attributes: &Attributes,
        report: &mut Report<'_>,
    ) -> Result<u64, Fault> {
        // Before it is read, which changes the time of the last read.
        let kept = match self.options.keeps_more() {
            true => run.metadata_of(path)?,
            false => attributes_of(&self.attributes_entry(path, attributes)),
        };
        // The same ones each time, so that a transfer that was broken off goes on. What somebody
        // else has under such a name stays.
        let mut moved = Err(Fault::new(Code::AlreadyExists, "", ""));
        for number in 0..swap::NAMES {
            moved = self.move_beside(run, path, number, report);
            if !matches!(&moved, Err(fault) if fault.code == Code::AlreadyExists) {
                break;
            }
        }
        let (beside, bytes) = moved?;
        let lacks = match self.apply_metadata(run, &beside, &kept) {
            // Nothing of it may have been set, and who compares later would see nothing missing:
            // what stands there stays until the next run.
            Err(fault) if !fault.ends_session => {
                self.remove(&beside)?;
                return Err(fault.path(path));
            }
            applied => applied?,
        };
        let renamed = self.target.start_beneath(Call::Rename {
            from: self.target.at(&beside),
            to: self.target.at(path),
            overwrite: true,
        });
        let renamed = renamed.wait();
        if renamed.is_err() {
            self.remove(&beside)?;
        }
        renamed?;
        lacks.map_or(Ok(bytes), |fault| Err(fault.path(path)))
    }

    /// Removes a file of which is told why it has to go.
    fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        let path = self.target.at(path);
        match self.target.start_beneath(Call::RemoveFile { path }).wait() {
            Err(fault) if fault.ends_session => Err(fault),
            _ => Ok(()),
        }
    }

    /// Sets what a pack has for a file before that has its name: who breaks it off then leaves
    /// nothing that looks as if it were finished. Returns what of it could not be set.
    fn apply_metadata(
        &self,
        run: &TreeRun<'_>,
        beside: &[u8],
        kept: &[u8],
    ) -> Result<Option<Fault>, Fault> {
        let limits = Limits::default();
        let Some(Ok(entry)) = PackReader::new(kept, &limits).next() else {
            return Ok(None);
        };
        let pack = attributes_of(&Entry {
            path: beside,
            ..entry
        });
        let length = pack.len();
        let pack = run.start_pack((pack, length), Vec::new(), true)?;
        let failures = pack.transfer.wait()?;
        Ok(failures.of(0).cloned())
    }

    /// Moves a large file to a name beside its own.
    fn move_beside(
        &self,
        run: &TreeRun<'_>,
        path: &[u8],
        number: u32,
        report: &mut Report<'_>,
    ) -> Result<(Vec<u8>, u64), Fault> {
        let beside = swap::beside(path, number);
        let mut item = Item::large(path.to_vec(), 0, None);
        let mut transfer = run.start_file(&mut item, self.target.at(&beside), false)?;
        while !transfer.is_finished() {
            if report.is_stopped() {
                transfer.cancel();
            }
            transfer.progress(SWAP_INTERVAL);
            report.progress();
        }
        Ok((beside, transfer.wait()?.bytes))
    }
}
