//! Synchronisation of two trees: moves entries that differ, and removes extraneous ones.
//!
//! The comparison (`plan`) only reads both sides, and produces actions. `carry` moves,
//! renames and sets, by feeding paths to a tree copy; `removal` deletes, and `backup` keeps.

mod backup;
mod carry;
mod consent;
mod delta;
mod name_matches;
mod plan;
mod refusals;
mod removal;
mod swap;
mod view;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xdfs_engine::TransferParameters;
use xdfs_proto::third_party::TreeFigures;
use xdfs_proto::{Code, DigestKind, Fault};

use super::announced::AnnouncedTree;
use super::apart::{self, Asked};
use super::ends::Ends;
use super::moving::Report;
use super::name_collisions::Deferred;
use super::namespace::Namespace;
use super::options::{Durability, PackSizes, TreeOptions};
use super::run::TreeRun;
use super::session::TreeSession;
use super::straight::{TreeErrand, TreeRequest};
use crate::between::ServerFile;
use crate::client::Client;
use crate::events::{Deletion, Observer, SyncStep, TreeResult};
use crate::local_path::path_bytes;
use crate::paths::{Attributes, Entry, FileKind};
use backup::Backup;
use carry::Carrier;
use consent::Consent;
pub use consent::{DeletionConsent, DeletionRisk};
use delta::Delta;
use name_matches::{DeferredEntry, Listed};
use plan::{Comparison, Emit, Outcome, Replaces};

const OPERATION: &str = "synchronise";
/// Names given as examples of those that are about to be removed.
const EXAMPLES: usize = 5;

/// How files that exist on both sides are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Compare {
    /// Sizes, then modification times, in the resolution of the target.
    #[default]
    SizeAndTime,
    /// Sizes, then digests of the content, which each side computes: of the kind
    /// [`TransferParameters::digest`], or BLAKE3 if that is none. Detects renamed files too.
    Digest,
}

/// Options of a synchronisation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SyncOptions {
    /// How entries are moved, and which metadata is preserved.
    pub tree: TreeOptions,
    /// How files are compared.
    pub compare: Compare,
    /// Remove entries of the target that the source lacks, if everything else succeeded and every
    /// directory of the source was listed. Entries that have meanwhile appeared in the source stay,
    /// as do entries that the filter leaves out, and the directories above them. Temporary files of
    /// a killed synchronisation are removed even without this option. With [`Compare::Digest`], an
    /// extraneous file with the content of a missing one is renamed instead.
    pub delete: bool,
    /// Remove nothing if there are more names to remove than this, even with `force`. A limit that
    /// isn't exceeded is consent to the removal. Without one, some removals need `consent`.
    pub delete_max: Option<u64>,
    /// Decides about removals that might be a surprise, each a [`DeletionRisk`]. Not asked with
    /// `force`, with a `delete_max`, and in a dry run. Not a part of the text of a
    /// [`Job`](crate::Job).
    #[serde(skip)]
    pub consent: DeletionConsent,
    /// Remove entries even if the source is empty, and without asking for `consent`.
    pub force: bool,
    /// Directory on the target's side that keeps what is replaced or removed, under its relative
    /// name and instead of what an earlier run kept there; `None` to keep nothing. A path that
    /// isn't absolute is relative to the target. It has to be in the same file system, and where
    /// there are no hard links nothing can be replaced. Created when it is needed; one within the
    /// target takes no part in the comparison, and later runs without it don't delete it. Removed
    /// directories aren't kept, only their contents. If replacing an entry fails, it is in both
    /// places.
    #[serde(with = "crate::text")]
    pub backup: Option<Vec<u8>>,
    /// Send only the changed parts of files of 1 MiB or more that exist on both sides, if at least
    /// a quarter of the new version occurs in the old one, at any offset. Both sides read their
    /// version for that, so it pays where sending takes longer than reading. Large files then have
    /// a digest even if [`TransferParameters::digest`] is none.
    pub delta: bool,
}

/// The result of a synchronisation.
#[derive(Clone, Debug, Default)]
pub struct SyncResult {
    /// Moved entries, failures and elapsed time.
    pub tree: TreeResult,
    /// Entries whose content or kind had to be replaced. Those that were moved are counted in
    /// `tree` too.
    pub replaced: u64,
    /// Entries of which only mode, time or owner had to be set.
    pub set: u64,
    /// Renamed files; in a dry run, files that would be renamed.
    pub renamed: u64,
    /// Removed names; in a dry run, names that would be removed.
    pub deleted: u64,
    /// Names that stayed because something failed before, because there was no consent to their
    /// removal, or because the source has them: they appeared meanwhile, or it doesn't list them.
    pub kept: u64,
}

impl Client {
    /// Makes the directory `target` on the server equal to the directory `source`: moves entries
    /// that differ or are missing. Blocks until the end.
    ///
    /// # Errors
    /// The synchronisation could not start, or the session ended. With [`SyncOptions::delete`], an
    /// empty source is refused unless `force` is set, and a target that seems to be the wrong one
    /// unless there is `consent`. Failed entries are reported to `observer` and counted in the
    /// result; then nothing is deleted. If the target's file system treats several names as equal,
    /// the first is kept, and the others fail; an existing name with another spelling keeps its
    /// spelling.
    pub fn sync_to(
        &self,
        source: &Path,
        target: &[u8],
        options: &SyncOptions,
        observer: &mut dyn Observer,
    ) -> Result<SyncResult, Fault> {
        let session = TreeSession::new(self, &options.tree);
        let from = Namespace::local(path_bytes(source)).following(options.tree.follow_links);
        let to = Namespace::remote(&session, target.to_vec());
        run(&session, &from, &to, options, observer)
    }

    /// Makes the local directory `target` equal to the directory `source` on the server, like
    /// [`Client::sync_to`].
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
        let session = TreeSession::new(self, &options.tree);
        let from = Namespace::remote(&session, source.to_vec());
        let from = from.following(options.tree.follow_links);
        let to = Namespace::local(path_bytes(target));
        run(&session, &from, &to, options, observer)
    }

    /// Makes the directory `target` on the server equal to a directory of another server, like
    /// [`Client::sync_to`]. Files go from one server to the other as
    /// [`Client::copy_tree_from`] has it. Changed files are sent whole.
    ///
    /// # Errors
    /// As [`Client::sync_to`]; or the options ask for what isn't preserved.
    pub fn sync_between(
        &self,
        source: &ServerFile,
        target: &[u8],
        options: &SyncOptions,
        observer: &mut dyn Observer,
    ) -> Result<SyncResult, Fault> {
        let tree = &options.tree;
        if options.delta {
            let cause = "changed files are sent whole between servers";
            return Err(Fault::new(Code::InvalidArgument, OPERATION, cause));
        }
        let client = source.client()?;
        let there = TreeSession::with_source(&client, source, tree);
        let session = TreeSession::new(self, tree);
        let from = Namespace::origin(&there, source).following(tree.follow_links);
        let to = Namespace::remote(&session, target.to_vec());
        from.check_kept(&to, tree, OPERATION)?;
        run(&session, &from, &to, options, observer)
    }
}

fn run(
    session: &TreeSession<'_>,
    source: &Namespace<'_>,
    target: &Namespace<'_>,
    options: &SyncOptions,
    observer: &mut dyn Observer,
) -> Result<SyncResult, Fault> {
    let announced = AnnouncedTree::prepare([source, target], &options.tree);
    let ways = [Asked::begin(source, target), Asked::begin(target, source)];
    let mut round_trip = Duration::ZERO;
    let Some(source_root) = source.find_and_list(&mut round_trip)? else {
        let fault = Fault::new(Code::NotFound, OPERATION, "no such directory").path(source.root());
        return Err(source.fault(fault));
    };
    let target_root = target.find_and_list(&mut round_trip)?;
    let filter = &options.tree.filter;
    let [way_to_source, way_to_target] = ways;
    let at_target = (target, way_to_target);
    apart::check(OPERATION, (source, &source_root), at_target, filter)?;
    if let Some(root) = &target_root {
        let at_source = (source, way_to_source);
        apart::check(OPERATION, (target, root), at_source, filter)?;
    }
    let errand = TreeErrand {
        session,
        source,
        target,
        keeps_root: false,
        again: target_root.is_some(),
        has_doubts: false,
    };
    let mut report = Report::new(observer, Ends::of(source, target));
    report.result.target = target.root().to_vec();
    if let Some(ended) = between_servers(&errand, options, &mut report) {
        return finish(ended, report);
    }
    source.check_kept_alone(target, &options.tree, OPERATION)?;
    let backup = options.backup.as_ref();
    if backup.is_some() && !target.traits().hard_links {
        let cause =
            "the server has no hard links, by which a backup directory keeps what is replaced";
        let fault = Fault::new(Code::InvalidArgument, OPERATION, cause)
            .path(target.root())
            .hint("leave out the backup directory, or reach the server by xdfs:// or ssh://");
        return Err(target.fault(fault));
    }
    let backup = backup.map(|path| Backup::new(target, path)).transpose()?;
    let mut consent = Consent::new((source, target), options);
    if options.delete {
        let names = check_source(source, options)?;
        if target_root.is_some() {
            consent.decide_on_target(&names, backup.as_ref())?;
            // That may have taken a while.
            target.end_listing();
        }
    }
    report.marks_suffice = options.compare == Compare::SizeAndTime;
    let carried = TreeOptions {
        parameters: TransferParameters {
            overwrite: true,
            digest: match options.tree.parameters.digest {
                Some(DigestKind::None) if options.delta => None,
                kind => kind,
            },
            ..options.tree.parameters
        },
        ..options.tree.clone()
    };
    let servers = [source, target].into_iter().filter_map(Namespace::session);
    let pack_sizes = PackSizes::new(servers.map(|server| server.client), round_trip);
    let mut run = TreeRun::new(session, source, target, &carried, pack_sizes);
    // Sorting waits for the end of the comparison, which takes long by content.
    run.is_by_size = options.compare == Compare::SizeAndTime
        && announced
            .as_ref()
            .is_some_and(|announced| announced.is_by_size);
    // An existing root on a server keeps its mode and owner: it may be the root of an export.
    run.keeps_root = target.is_remote() && target_root.is_some();
    let mut sync = Sync {
        carrier: Carrier {
            run,
            delta: Delta::new(options.delta),
            backup,
            foreseen: Mutex::default(),
        },
        roots: (source_root, target_root),
        options,
        consent,
        counts: SyncResult::default(),
    };
    sync.carrier
        .run
        .follow_sessions(&mut report, options.compare == Compare::SizeAndTime);
    sync.execute(&mut report)
        .map_err(|fault| report.reason(fault))?;
    if carried.parameters.dry_run {
        sync.carrier.run.check_space(false, &report)?;
    }
    sync.carrier.run.count_unkept_owners(&mut report);
    let tree = report.finish(options.tree.owner)?;
    Ok(SyncResult {
        tree,
        ..sync.counts
    })
}

/// Has two servers synchronise their trees; `None` if they go through this process.
fn between_servers(
    errand: &TreeErrand<'_>,
    options: &SyncOptions,
    report: &mut Report<'_>,
) -> Option<Result<TreeFigures, Fault>> {
    let sent = SyncOptions {
        tree: TreeErrand::ordered(&options.tree),
        ..options.clone()
    };
    let request = TreeRequest {
        options: serde_json::to_string(&sent).ok()?,
        synchronises: true,
        // A directory for backups may be anywhere, and consent depends on what is above the tree.
        may_send: !options.tree.owner
            && options.backup.is_none()
            && (!options.delete || options.force || options.delete_max.is_some()),
        consents: &|question| options.consent.gives(&DeletionRisk::from(question)),
    };
    errand.run(&options.tree, &request, report)
}

/// The end of a synchronisation that two servers have made.
fn finish(ended: Result<TreeFigures, Fault>, report: Report<'_>) -> Result<SyncResult, Fault> {
    let figures = match ended {
        Err(fault) if !report.is_stopped() => return Err(fault),
        ended => ended.unwrap_or_default(),
    };
    Ok(SyncResult {
        tree: report.finish_of_others()?,
        replaced: figures.replaced,
        set: figures.set,
        renamed: figures.renamed,
        deleted: figures.deleted,
        kept: figures.kept,
    })
}

/// The names directly in the source, without those that are left out. Refuses a source without any,
/// unless forced.
fn check_source(source: &Namespace<'_>, options: &SyncOptions) -> Result<Vec<Entry>, Fault> {
    let (mut names, fault) = Namespace::told_names(source.start_list(b""));
    if let Some(fault) = fault.filter(|_| names.is_empty()) {
        return Err(fault);
    }
    let failed = source.follow_names(b"", &mut names)?;
    names.extend(failed.into_iter().map(|(entry, _)| entry));
    let filter = &options.tree.filter;
    names.retain(|entry| {
        let found = &entry.attributes;
        !filter.leaves_out(&entry.name, found.kind == FileKind::Directory)
            && !options.tree.is_beyond_limits(found, found.mtime())
    });
    if names.is_empty() && !options.force {
        let cause = "the source is empty, and everything at the target would be deleted";
        let fault = Fault::new(Code::InvalidArgument, OPERATION, cause)
            .path(source.root())
            .hint("use --force to delete everything at the target");
        return Err(source.fault(fault));
    }
    Ok(names)
}

struct Sync<'a> {
    carrier: Carrier<'a>,
    roots: (Attributes, Option<Attributes>),
    options: &'a SyncOptions,
    consent: Consent<'a>,
    counts: SyncResult,
}

impl Sync<'_> {
    fn comparison<'s>(&'s self, stop: &'s AtomicBool, emit: &'s mut Emit<'s>) -> Comparison<'s> {
        let backup = self.carrier.backup.as_ref();
        Comparison::new(&self.carrier.run, self.options, backup, (stop, emit))
    }

    fn compare(&self, stop: &AtomicBool, emit: &mut Emit<'_>) -> Result<Outcome, Fault> {
        let (source, target) = &self.roots;
        let comparison = self.comparison(stop, emit);
        comparison.run(source.clone(), target.as_ref())
    }

    /// Whether extraneous entries may be deleted, as far as known now.
    ///
    /// # Errors
    /// The session ended.
    fn may_delete(&self, outcome: &Outcome, report: &mut Report<'_>) -> Result<bool, Fault> {
        if report.result.failed > outcome.harmless {
            return Ok(false);
        }
        let extras = &outcome.extras;
        let deletion = Deletion {
            names: extras.len() as u64,
            names_at_target: outcome.target_names,
            examples: extras
                .iter()
                .take(EXAMPLES)
                .map(|extra| extra.path.clone())
                .collect(),
        };
        if deletion.names > 0 && !self.carrier.is_dry() {
            report.deletion(&deletion);
        }
        match self.consent.decide_on_deletion(&deletion) {
            Ok(()) => Ok(true),
            Err(fault) if fault.ends_session => Err(fault),
            Err(fault) => {
                report.failed(b"", &fault);
                Ok(false)
            }
        }
    }

    fn execute(&mut self, report: &mut Report<'_>) -> Result<(), Fault> {
        let executed = self.apply(report);
        let run = &self.carrier.run;
        let is_lost = executed.as_ref().is_err_and(|fault| fault.ends_session);
        let has_ended_early = executed.is_err() || report.is_stopped();
        if has_ended_early && !(is_lost && run.target.is_remote()) {
            run.close_directories(&|_| false);
        }
        executed
    }

    fn apply(&mut self, report: &mut Report<'_>) -> Result<(), Fault> {
        if self.roots.1.is_none() {
            self.carrier.make_root(&self.roots.0, report)?;
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
        // Subdirectories first, since the mode of a parent may deny access to them.
        let directories = outcome.directories.iter().rev();
        self.carrier.set(directories, report)?;
        let run = &self.carrier.run;
        run.close_directories(&|path| {
            outcome.directories.contains_key(path) && !(path.is_empty() && run.keeps_root)
        });
        if self.roots.1.is_none() && self.options.tree.xattrs {
            self.carrier.set_root_xattrs(report)?;
        }
        if self.options.tree.durability == Durability::None {
            return Ok(());
        }
        let counts = &self.counts;
        let has_changed = report.has_moved() || counts.set + counts.renamed + counts.deleted > 0;
        // Even without changes, since an earlier run may have been killed before this.
        match self.carrier.run.sync_target(report) {
            Err(fault) if !has_changed && may_only_look(&fault) => Ok(()),
            synced => synced,
        }
    }

    /// Compares, and at the same time moves entries that differ.
    fn carry(&mut self, report: &mut Report<'_>) -> Result<Outcome, Fault> {
        let carrier = &self.carrier;
        let carried = carrier.carry(&|stop, emit| self.compare(stop, emit), report);
        if let Some(fault) = self.carrier.delta.take_refusal() {
            report.warn(&fault.hint("large files that changed were sent whole"));
        }
        carried
    }

    /// Renames, replaces entries of another kind, and deletes.
    fn settle(&mut self, outcome: &mut Outcome, report: &mut Report<'_>) -> Result<(), Fault> {
        if self.options.delete {
            for path in &outcome.backups {
                let cause = "not deleted: it keeps what an earlier run has replaced or removed";
                let fault = Fault::new(Code::NotEmpty, "", cause);
                let hint = "name it with --backup-dir, or remove it by hand";
                report.warn(&fault.path(path).hint(hint));
            }
        }
        let left_over = std::mem::take(&mut outcome.left_over);
        removal::remove(&self.carrier, left_over, None, &mut self.counts, report)?;
        let may_delete = self.may_delete(outcome, report)?;
        let extras = std::mem::take(&mut outcome.extras);
        let (in_the_way, extras): (Vec<_>, Vec<_>) =
            extras.into_iter().partition(|extra| extra.is_in_the_way);
        let swaps = std::mem::take(&mut outcome.swaps);
        self.counts.replaced += swaps.len() as u64;
        self.carrier.swap(swaps, report)?;
        let backup = self.carrier.backup.as_ref();
        let renamings = std::mem::take(&mut outcome.renamings);
        let mut late: Vec<Listed> = Vec::new();
        if may_delete {
            self.counts.renamed = self.carrier.rename(renamings, &mut late, report)?;
            removal::remove(&self.carrier, in_the_way, backup, &mut self.counts, report)?;
            late.append(&mut outcome.late);
        } else {
            late.extend(renamings.into_iter().map(|renaming| renaming.to));
            self.counts.kept += in_the_way.len() as u64;
            if !self.carrier.is_dry() {
                for (path, _) in &outcome.late {
                    let cause = "the entry in its way was not deleted";
                    let target = self.carrier.run.target;
                    let fault = Fault::new(Code::AlreadyExists, OPERATION, cause);
                    report.failed(path, &target.fault(fault.path(target.path(path))));
                }
            }
        }
        if report.is_stopped() {
            return Ok(());
        }
        self.carrier.copy(&late, Replaces::Nothing, report)?;
        self.carry_deferred(outcome, report)?;
        if may_delete && report.result.failed <= outcome.harmless && !report.is_stopped() {
            removal::remove(&self.carrier, extras, backup, &mut self.counts, report)
        } else {
            self.counts.kept += extras.len() as u64;
            Ok(())
        }
    }

    /// Moves deferred entries, unless their names resolve to others by now.
    fn carry_deferred(&self, outcome: &mut Outcome, report: &mut Report<'_>) -> Result<(), Fault> {
        let mut waiting = Deferred::new(|waits: &DeferredEntry| &waits.entry.0);
        let mut found = std::mem::take(&mut outcome.deferred);
        loop {
            found.drain(..).for_each(|waits| waiting.add(waits));
            if waiting.is_empty() || report.is_stopped() {
                return Ok(());
            }
            let round = self.carrier.keep_missing(waiting.take_round(), report)?;
            let run = &self.carrier.run;
            run.open_parents(round.iter().map(|waits| &waits.entry.0[..]))?;
            let more = self.carrier.carry(
                &|stop, emit| self.comparison(stop, emit).run_deferred(&round),
                report,
            )?;
            outcome.harmless += more.harmless;
            outcome.directories.extend(more.directories);
            found = more.deferred;
        }
    }
}

/// Whether the target could not be made durable because the user may not write, or because the
/// system doesn't support it. That is no failure if nothing changed.
fn may_only_look(fault: &Fault) -> bool {
    matches!(
        fault.code,
        Code::PermissionDenied | Code::ReadOnly | Code::Unsupported
    )
}
