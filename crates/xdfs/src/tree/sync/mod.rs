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
mod view;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use xdfs_proto::{Code, DigestKind, Fault};

use super::moving::Report;
use super::name_collisions::Deferred;
use super::namespace::Namespace;
use super::options::{Durability, PackSizes, TreeOptions};
use super::run::TreeRun;
use crate::client::{Client, path_bytes};
use crate::events::{Observer, SyncStep, TreeResult};
use crate::paths::{Attributes, Entry, FileKind};
use carry::Carrier;
use delta::Delta;
use name_matches::{DeferredEntry, Listed};
use plan::{Action, Comparison, Give, Outcome, Replaces};
use view::View;

const OPERATION: &str = "synchronise";

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
    let cut = PackSizes::new(client, round_trip);
    let mut run = TreeRun::new(client, source, target, &carried, cut);
    // One that is there keeps its mode and its owner at a server: it may be that of an export.
    run.keeps_root = target.is_remote() && target_root.is_some();
    let mut sync = Sync {
        carrier: Carrier {
            run,
            delta: Delta::new(options.delta),
        },
        roots: (source_root, target_root),
        options,
        counts: SyncResult::default(),
    };
    sync.execute(&mut report)?;
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
    carrier: Carrier<'a>,
    roots: (Option<Attributes>, Option<Attributes>),
    options: &'a SyncOptions,
    counts: SyncResult,
}

impl Sync<'_> {
    fn comparison<'s>(&'s self, stop: &'s AtomicBool, give: &'s mut Give<'s>) -> Comparison<'s> {
        let run = &self.carrier.run;
        let sides = (View::new(run.source), View::new(run.target));
        Comparison::new(sides, self.options, stop, give)
    }

    fn compare(&self, stop: &AtomicBool, give: &mut Give<'_>) -> Result<Outcome, Fault> {
        let (source, target) = &self.roots;
        let comparison = self.comparison(stop, give);
        comparison.run(source.clone(), target.as_ref())
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
                .path(self.carrier.run.target.root())
                .hint("look at what would be deleted with --dry-run");
            report.failed(b"", &fault);
            return false;
        }
        true
    }

    fn execute(&mut self, report: &mut Report<'_>) -> Result<(), Fault> {
        if self.roots.1.is_none() {
            self.carrier.make_root(report)?;
        }
        let mut outcome = self.carry(report)?;
        if report.is_stopped() {
            return Ok(());
        }
        self.counts.replaced = outcome.replaced;
        self.counts.set = outcome.set + outcome.directories_set.len() as u64;
        if self.carrier.is_dry() {
            for path in &outcome.directories_set {
                report.step(SyncStep::Set, path, None);
            }
        }
        self.settle(&mut outcome, report)?;
        if report.is_stopped() || self.carrier.is_dry() {
            return Ok(());
        }
        // Those below first, since one above may take away the right to get there.
        let directories = outcome.directories.iter().rev();
        self.carrier.set(directories, report)?;
        if self.options.tree.durability == Durability::None {
            return Ok(());
        }
        let counts = &self.counts;
        let has_changed = report.has_moved() || counts.set + counts.renamed + counts.deleted > 0;
        // Also what an earlier run has left that was killed before its end.
        match self.carrier.run.target.start_sync().wait() {
            Err(fault) if !has_changed && may_only_look(&fault) => Ok(()),
            synced => synced.map(|_| ()),
        }
    }

    /// Compares, and moves what differs meanwhile.
    fn carry(&mut self, report: &mut Report<'_>) -> Result<Outcome, Fault> {
        if self.roots.0.is_none() {
            // There is nothing to be moved.
            return self.compare(&AtomicBool::new(false), &mut |action| {
                if let Action::Failed(path, fault) = action {
                    report.failed(&path, &fault);
                }
                !report.is_stopped()
            });
        }
        let carrier = &self.carrier;
        let carried = carrier.carry(&|stop, give| self.compare(stop, give), report);
        if let Some(fault) = self.carrier.delta.take_refusal() {
            report.warn(&fault.hint("large files that changed were sent whole"));
        }
        carried
    }

    /// Renames, replaces what is of another kind, and deletes.
    fn settle(&mut self, outcome: &mut Outcome, report: &mut Report<'_>) -> Result<(), Fault> {
        let left_over = std::mem::take(&mut outcome.left_over);
        removal::remove(&self.carrier, left_over, &mut self.counts, report)?;
        let may_delete = self.may_delete(outcome, report);
        let extras = std::mem::take(&mut outcome.extras);
        let (in_the_way, extras): (Vec<_>, Vec<_>) =
            extras.into_iter().partition(|extra| extra.is_in_the_way);
        let swaps = std::mem::take(&mut outcome.swaps);
        self.counts.replaced += swaps.len() as u64;
        self.carrier.swap(swaps, report)?;
        let renamings = std::mem::take(&mut outcome.renamings);
        let mut late: Vec<Listed> = Vec::new();
        if may_delete {
            self.counts.renamed = self.carrier.rename(renamings, &mut late, report)?;
            removal::remove(&self.carrier, in_the_way, &mut self.counts, report)?;
            late.append(&mut outcome.late);
        } else {
            late.extend(renamings.into_iter().map(|renaming| renaming.to));
            self.counts.kept += in_the_way.len() as u64;
            if !self.carrier.is_dry() {
                for (path, _) in &outcome.late {
                    let cause = "what stands in its way was not deleted, since something failed";
                    let fault = Fault::new(Code::AlreadyExists, OPERATION, cause).path(path);
                    report.failed(path, &fault);
                }
            }
        }
        if report.is_stopped() {
            return Ok(());
        }
        self.carrier.copy(&late, Replaces::Nothing, report)?;
        self.carry_deferred(outcome, report)?;
        if may_delete && report.result.failed <= outcome.harmless && !report.is_stopped() {
            removal::remove(&self.carrier, extras, &mut self.counts, report)
        } else {
            self.counts.kept += extras.len() as u64;
            Ok(())
        }
    }

    /// Moves what waited, unless something means it by now.
    fn carry_deferred(&self, outcome: &mut Outcome, report: &mut Report<'_>) -> Result<(), Fault> {
        let mut waiting = Deferred::new(|waits: &DeferredEntry| &waits.entry.0);
        let mut found = std::mem::take(&mut outcome.deferred);
        loop {
            found.drain(..).for_each(|waits| waiting.add(waits));
            if waiting.is_empty() || report.is_stopped() {
                return Ok(());
            }
            let round = self.carrier.keep_missing(waiting.take_round(), report)?;
            let more = self.carrier.carry(
                &|stop, give| self.comparison(stop, give).run_deferred(&round),
                report,
            )?;
            outcome.harmless += more.harmless;
            outcome.directories.extend(more.directories);
            found = more.deferred;
        }
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
