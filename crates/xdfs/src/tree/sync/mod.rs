//! Synchronisation: what differs of two trees is moved, and what is too much is removed.
//!
//! The comparison (`plan`) only looks at both sides, and gives actions.
//! Only `carry` has the means to carry them out: the movers of whole trees, fed with these paths.

mod carry;
mod delta;
mod name_matches;
mod plan;
mod removal;
mod swap;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use xdfs_proto::{Code, DigestKind, Fault};

use super::item::{Item, Kind};
use super::moving::Report;
use super::name_collisions::Deferred;
use super::namespace::Namespace;
use super::options::{Durability, PackSizes, TreeOptions};
use crate::client::{Client, path_bytes};
use crate::events::{Observer, SyncStep, TreeResult};
use crate::paths::{Attributes, Entry, FileKind};
use carry::Carrier;
use name_matches::DeferredEntry;
use plan::{Action, Comparison, Extraneous, Give, Late, Outcome, Renaming};

const OPERATION: &str = "synchronise";
/// Actions of a dry run that nobody took yet.
const ACTIONS_WAITING: usize = 1024;

/// How files that are on both sides are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compare {
    /// Their sizes, then the times of the last change. Times are equal if they are as far as the
    /// target keeps them.
    #[default]
    SizeAndTime,
    /// Their sizes, then digests of the content, which each side computes: of the kind
    /// [`TreeOptions::digest`], or BLAKE3 if that is none. Finds renamed files too.
    Digest,
}

/// What is made equal, and how.
#[derive(Clone, Debug, Default)]
pub struct SyncOptions {
    /// What is kept of entries, and how they are moved. `overwrite` is taken as set.
    pub tree: TreeOptions,
    /// How files are compared.
    pub compare: Compare,
    /// Remove what is in the target and not in the source, when everything else succeeded and
    /// every directory of the source was listed. What came into the source meanwhile stays. What
    /// the filter leaves out stays, and the directories above it. What a synchronisation that was
    /// killed left goes also without this. With [`Compare::Digest`] a
    /// missing file that has the content of one that would be removed is renamed instead.
    pub delete: bool,
    /// Remove nothing if more names than this would be; `None` for no bound.
    pub delete_max: Option<u64>,
    /// Delete even if the source is empty or missing.
    pub force: bool,
    /// Send only what changed of files of 1 MiB and more that are on both sides, if at least a
    /// quarter is found in the old one, wherever it is there. Both sides read their version for
    /// that, so that it pays where sending takes longer than reading. Large files have a digest
    /// then, also if [`TreeOptions::digest`] is none.
    pub delta: bool,
}

/// What came of a synchronisation.
#[derive(Clone, Debug, Default)]
pub struct SyncResult {
    /// What was moved, failures and time.
    pub tree: TreeResult,
    /// Entries whose content or kind was to be replaced; they are among those that were moved.
    pub replaced: u64,
    /// Entries whose mode, time or owner was to be set, and nothing else.
    pub set: u64,
    /// Files that were renamed; in a dry run those that would be.
    pub renamed: u64,
    /// Names that were removed; in a dry run those that would be.
    pub deleted: u64,
    /// Names that would have been removed, had nothing failed before, or had they not come into
    /// the source meanwhile.
    pub kept: u64,
}

impl Client {
    /// Makes the directory `target` on the server equal to the directory `source`: moves what
    /// differs or is missing. Waits for the end.
    ///
    /// # Errors
    /// Why it could not be begun, or why the session ended. An empty source with
    /// [`SyncOptions::delete`] and without `force` is one. What fails of the tree is told to
    /// `observer` and counted in the result; then nothing is deleted. Of names that the target's
    /// file system takes for one the first is kept, and the others fail; one that is there in
    /// another spelling keeps that.
    pub fn sync_to(
        &self,
        source: &Path,
        target: &[u8],
        options: &SyncOptions,
        observer: &mut dyn Observer,
    ) -> Result<SyncResult, Fault> {
        let from = Namespace::local(path_bytes(source));
        let to = Namespace::remote(self, target.to_vec());
        run(self, &from, &to, options, observer)
    }

    /// Makes the directory `target` here equal to the directory `source` on the server, likewise.
    ///
    /// # Errors
    /// As [`Client::sync_to`].
    pub fn sync_from(
        &self,
        source: &[u8],
        target: &Path,
        options: &SyncOptions,
        observer: &mut dyn Observer,
    ) -> Result<SyncResult, Fault> {
        let from = Namespace::remote(self, source.to_vec());
        let to = Namespace::local(path_bytes(target));
        run(self, &from, &to, options, observer)
    }
}

fn run(
    client: &Client,
    source: &Namespace<'_>,
    target: &Namespace<'_>,
    options: &SyncOptions,
    observer: &mut dyn Observer,
) -> Result<SyncResult, Fault> {
    client.prepare_packs();
    let mut round_trip = Duration::ZERO;
    let source_root = source.find_directory(&mut round_trip)?;
    check_source(source, source_root.as_ref(), options)?;
    let target_root = target.find_directory(&mut round_trip)?;
    let mut report = Report::new(observer);
    report.result.target = target.root().to_vec();
    report.marks_suffice = options.compare == Compare::SizeAndTime;
    let carried = TreeOptions {
        overwrite: true,
        digest: match options.tree.digest {
            Some(DigestKind::None) if options.delta => None,
            kind => kind,
        },
        ..options.tree.clone()
    };
    let mut sync = Sync {
        source,
        target,
        roots: (source_root, target_root),
        options,
        counts: SyncResult::default(),
    };
    if options.tree.dry_run {
        sync.tell(&mut report)?;
    } else {
        let cut = PackSizes::new(client, round_trip);
        // One that is there keeps its mode and its owner at a server: it may be that of an export.
        let keeps_root = target.is_remote() && sync.roots.1.is_some();
        let how = (options.delta, keeps_root);
        let carrier = Carrier::new(client, (source, target), &carried, how, cut);
        sync.execute(&carrier, &mut report)?;
    }
    let tree = report.finish()?;
    Ok(SyncResult {
        tree,
        ..sync.counts
    })
}

/// Whether the source can be trusted to say what is to be deleted.
fn check_source(
    source: &Namespace<'_>,
    root: Option<&Attributes>,
    options: &SyncOptions,
) -> Result<(), Fault> {
    let refused = |code, cause: &str| {
        let fault = Fault::new(code, OPERATION, cause).path(source.root());
        if options.delete {
            fault.hint("use --force to delete everything at the target")
        } else {
            fault
        }
    };
    let is_forced = options.delete && options.force;
    if root.is_none() {
        return if is_forced {
            Ok(())
        } else {
            Err(refused(Code::NotFound, "no such directory"))
        };
    }
    if options.delete && !is_forced {
        let names = Namespace::names(source.start_list(b""))?;
        // What the filter leaves out says nothing about what is missing.
        let filter = &options.tree.filter;
        let is_kept = |entry: &Entry| {
            !filter.leaves_out(&entry.name, entry.attributes.kind == FileKind::Directory)
        };
        if !names.iter().any(is_kept) {
            let cause = "the source is empty, and everything at the target would be deleted";
            return Err(refused(Code::InvalidArgument, cause));
        }
    }
    Ok(())
}

struct Sync<'a> {
    source: &'a Namespace<'a>,
    target: &'a Namespace<'a>,
    roots: (Option<Attributes>, Option<Attributes>),
    options: &'a SyncOptions,
    counts: SyncResult,
}

impl Sync<'_> {
    fn comparison<'s>(&'s self, stop: &'s AtomicBool) -> Comparison<'s> {
        Comparison {
            source: self.source,
            target: self.target,
            options: self.options,
            stop,
        }
    }

    fn compare(&self, stop: &AtomicBool, give: &mut Give<'_>) -> Outcome {
        let (source, target) = &self.roots;
        let comparison = self.comparison(stop);
        comparison.run(source.clone(), target.as_ref(), give)
    }

    /// Says what would be done.
    fn tell(&mut self, report: &mut Report<'_>) -> Result<(), Fault> {
        if self.roots.1.is_none() {
            report.step(SyncStep::Copy, b"", None);
            report.result.directories += 1;
        }
        let (sender, actions) = mpsc::sync_channel(ACTIONS_WAITING);
        let stop = AtomicBool::new(false);
        let (mut set, mut replaced) = (0, 0);
        let outcome = thread::scope(|scope| {
            let (this, stop) = (&*self, &stop);
            let comparing =
                scope.spawn(move || this.compare(stop, &mut |action| sender.send(action).is_ok()));
            while let Some(action) = report.next(&actions) {
                match action {
                    Action::Copy {
                        path,
                        attributes,
                        replaces,
                        ..
                    } => {
                        replaced += u64::from(replaces);
                        tell_copy(&path, &attributes, replaces, report);
                    }
                    Action::Set { path, .. } => {
                        set += 1;
                        report.step(SyncStep::Set, &path, None);
                    }
                    Action::Failed { path, fault } => report.failed(&path, &fault),
                }
            }
            stop.store(true, Ordering::Relaxed);
            drop(actions);
            comparing.join()
        });
        (self.counts.set, self.counts.replaced) = (set, replaced);
        let Ok(outcome) = outcome else {
            let cause = "the comparison broke off";
            return Err(Fault::new(Code::Internal, OPERATION, cause));
        };
        if let Some(fault) = outcome.fault {
            return Err(fault);
        }
        if report.is_stopped() {
            return Ok(());
        }
        for path in &outcome.directories_set {
            self.counts.set += 1;
            report.step(SyncStep::Set, path, None);
        }
        for left in &outcome.left_over {
            self.counts.deleted += 1;
            report.step(SyncStep::Delete, &left.path, None);
        }
        let may_delete = self.may_delete(&outcome, report);
        for Renaming {
            from,
            to,
            attributes,
        } in &outcome.renamings
        {
            if may_delete {
                self.counts.renamed += 1;
                report.step(SyncStep::Rename, to, Some(from));
            } else {
                tell_copy(to, attributes, false, report);
            }
        }
        for (path, attributes) in &outcome.swaps {
            self.counts.replaced += 1;
            tell_copy(path, attributes, true, report);
        }
        for (path, attributes) in &outcome.late {
            if may_delete {
                tell_copy(path, attributes, false, report);
            }
        }
        let mut waiting = outcome.deferred;
        while !waiting.is_empty() {
            let stop = AtomicBool::new(false);
            let comparison = self.comparison(&stop);
            let more = comparison.run_deferred(&waiting, &mut |action| {
                match action {
                    Action::Copy {
                        path, attributes, ..
                    } => tell_copy(&path, &attributes, false, report),
                    Action::Failed { path, fault } => report.failed(&path, &fault),
                    Action::Set { .. } => {}
                }
                !report.is_stopped()
            });
            if let Some(fault) = more.fault {
                return Err(fault);
            }
            waiting = more.deferred;
        }
        if may_delete {
            for extra in &outcome.extras {
                self.counts.deleted += 1;
                report.step(SyncStep::Delete, &extra.path, None);
            }
        } else {
            self.counts.kept = outcome.extras.len() as u64;
        }
        Ok(())
    }

    /// Whether what is too much may go, as far as is known now.
    fn may_delete(&self, outcome: &Outcome, report: &mut Report<'_>) -> bool {
        if report.result.failed > outcome.harmless {
            return false;
        }
        let count = outcome.extras.len() as u64;
        if let Some(max) = self.options.delete_max.filter(|max| count > *max) {
            let cause = format!("{count} names would be deleted, and {max} are allowed");
            let fault = Fault::new(Code::LimitExceeded, OPERATION, cause)
                .path(self.target.root())
                .hint("look at what would be deleted with --dry-run");
            report.failed(b"", &fault);
            return false;
        }
        true
    }

    fn execute(&mut self, carrier: &Carrier<'_>, report: &mut Report<'_>) -> Result<(), Fault> {
        if self.roots.1.is_none() {
            self.target.make_root()?;
            report.result.directories += 1;
        }
        let mut outcome = if self.roots.0.is_some() {
            self.carry(carrier, report)?
        } else {
            // There is nothing to be moved.
            self.compare(&AtomicBool::new(false), &mut |action| {
                if let Action::Failed { path, fault } = action {
                    report.failed(&path, &fault);
                }
                !report.is_stopped()
            })
        };
        if let Some(fault) = outcome.fault.take() {
            return Err(fault);
        }
        if report.is_stopped() {
            return Ok(());
        }
        self.counts.set += outcome.directories_set.len() as u64;
        self.settle(carrier, &mut outcome, report)?;
        if report.is_stopped() {
            return Ok(());
        }
        // Those below first, since one above may take away the right to get there.
        carrier.set(outcome.directories.iter().rev(), report)?;
        if self.options.tree.durability == Durability::None {
            return Ok(());
        }
        let counts = &self.counts;
        let has_changed = report.has_moved() || counts.set + counts.renamed + counts.deleted > 0;
        // Also what an earlier run has left that was killed before its end.
        match self.target.start_sync().wait() {
            Err(fault) if !has_changed && may_only_look(&fault) => Ok(()),
            synced => synced.map(|_| ()),
        }
    }

    /// Compares, and moves what differs meanwhile.
    fn carry(&mut self, carrier: &Carrier<'_>, report: &mut Report<'_>) -> Result<Outcome, Fault> {
        let (set, replaced) = (AtomicU64::new(0), AtomicU64::new(0));
        let compared = Mutex::new(None);
        let this = &*self;
        carrier.carry(
            &|stop, give| {
                let outcome = this.compare(stop, &mut |action| {
                    let count = match &action {
                        Action::Copy { replaces: true, .. } => Some(&replaced),
                        Action::Set { .. } => Some(&set),
                        _ => None,
                    };
                    if let Some(count) = count {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    give(action)
                });
                *compared.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            },
            report,
        )?;
        self.counts.set = set.into_inner();
        self.counts.replaced = replaced.into_inner();
        let compared = compared.into_inner();
        let compared = compared.unwrap_or_else(PoisonError::into_inner);
        // A mover that was stopped may not have asked.
        Ok(compared.unwrap_or_default())
    }

    /// Renames, replaces what is of another kind, and deletes.
    fn settle(
        &mut self,
        carrier: &Carrier<'_>,
        outcome: &mut Outcome,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        self.delete(carrier, std::mem::take(&mut outcome.left_over), report)?;
        let may_delete = self.may_delete(outcome, report);
        let extras = std::mem::take(&mut outcome.extras);
        let (in_the_way, extras): (Vec<_>, Vec<_>) =
            extras.into_iter().partition(|extra| extra.is_in_the_way);
        let mut late: Vec<Late> = Vec::new();
        let swaps = std::mem::take(&mut outcome.swaps);
        self.counts.replaced += swaps.len() as u64;
        carrier.swap(swaps, report)?;
        let renamings = std::mem::take(&mut outcome.renamings);
        if may_delete {
            self.counts.renamed = carrier.rename(renamings, &mut late, report)?;
            self.delete(carrier, in_the_way, report)?;
            late.append(&mut outcome.late);
        } else {
            late.extend(renamings.into_iter().map(|r| (r.to, r.attributes)));
            self.counts.kept += in_the_way.len() as u64;
            for (path, _) in &outcome.late {
                let cause = "what stands in its way was not deleted, since something failed";
                let fault = Fault::new(Code::AlreadyExists, OPERATION, cause).path(path);
                report.failed(path, &fault);
            }
        }
        if report.is_stopped() {
            return Ok(());
        }
        if !late.is_empty() {
            let late = Mutex::new(late);
            carrier.carry(
                &|_, give| {
                    let late =
                        std::mem::take(&mut *late.lock().unwrap_or_else(PoisonError::into_inner));
                    for (path, attributes) in late {
                        if !give(Action::Copy {
                            path,
                            attributes,
                            replaces: false,
                            old: None,
                        }) {
                            return;
                        }
                    }
                },
                report,
            )?;
        }
        self.carry_deferred(carrier, outcome, report)?;
        if may_delete && report.result.failed <= outcome.harmless && !report.is_stopped() {
            self.delete(carrier, extras, report)
        } else {
            self.counts.kept += extras.len() as u64;
            Ok(())
        }
    }

    /// Moves what waited, unless something means it by now.
    fn carry_deferred(
        &self,
        carrier: &Carrier<'_>,
        outcome: &mut Outcome,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let mut waiting = Deferred::new(|waits: &DeferredEntry| &waits.path);
        let mut found = std::mem::take(&mut outcome.deferred);
        loop {
            found.drain(..).for_each(|waits| waiting.add(waits));
            if waiting.is_empty() || report.is_stopped() {
                return Ok(());
            }
            let round = carrier.keep_missing(waiting.take_round(), report)?;
            let compared = Mutex::new(Outcome::default());
            carrier.carry(
                &|stop, give| {
                    let more = self.comparison(stop).run_deferred(&round, give);
                    *compared.lock().unwrap_or_else(PoisonError::into_inner) = more;
                },
                report,
            )?;
            let more = compared.into_inner();
            let more = more.unwrap_or_else(PoisonError::into_inner);
            if let Some(fault) = more.fault {
                return Err(fault);
            }
            outcome.harmless += more.harmless;
            outcome.directories.extend(more.directories);
            found = more.deferred;
        }
    }

    fn delete(
        &mut self,
        carrier: &Carrier<'_>,
        extras: Vec<Extraneous>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let removed = removal::remove(carrier, self.source, extras, report)?;
        self.counts.deleted += removed.deleted;
        self.counts.kept += removed.kept;
        Ok(())
    }
}

/// Whether a user who changed nothing is refused to make anything durable, which only those may
/// who change something, or the system can't.
fn may_only_look(fault: &Fault) -> bool {
    matches!(
        fault.code,
        Code::PermissionDenied | Code::ReadOnly | Code::Unsupported
    )
}

fn tell_copy(path: &[u8], attributes: &Attributes, replaces: bool, report: &mut Report<'_>) {
    let step = if replaces {
        SyncStep::Replace
    } else {
        SyncStep::Copy
    };
    report.step(step, path, None);
    let kind = Kind::of(attributes.kind);
    let bytes = if kind == Kind::File {
        attributes.size
    } else {
        0
    };
    report.count(&Item::new(path.to_vec(), kind, bytes));
}
