//! Removal of extraneous entries. The source may have changed since the comparison, so each entry
//! is looked up there again immediately before.

use xdfs_proto::{Code, Fault};

use super::backup::{Backup, Keep};
use super::carry::Carrier;
use super::plan::Extraneous;
use super::{OPERATION, SyncResult};
use crate::events::SyncStep;
use crate::paths::{Answer, Attributes, Call, Entry, FileKind, join};
use crate::tree::filter::upwards;
use crate::tree::moving::Report;
use crate::tree::name_collisions::folded;
use crate::tree::namespace::{CALLS_MAX, Namespace};
use crate::tree::tracker::split;

/// Removes names from the target, the contents of a directory before it. A `backup` keeps all but
/// directories. Counts the removed names, and those that stay because the source has them.
pub(super) fn remove(
    carrier: &Carrier<'_>,
    extras: Vec<Extraneous>,
    backup: Option<&Backup<'_>>,
    counts: &mut SyncResult,
    report: &mut Report<'_>,
) -> Result<(), Fault> {
    if carrier.run.options.parameters.dry_run {
        for extra in extras {
            match carrier.foresee_removal(&extra.path) {
                Ok(()) => {
                    counts.deleted += 1;
                    report.step(SyncStep::Delete, &extra.path, None);
                }
                Err(fault) => report.failed(&extra.path, &fault),
            }
        }
        return Ok(());
    }
    let (mut directories, files): (Vec<_>, Vec<_>) =
        extras.into_iter().partition(Extraneous::is_directory);
    let depth = |extra: &Extraneous| extra.path.iter().filter(|b| **b == b'/').count();
    directories.sort_by_key(|extra| std::cmp::Reverse(depth(extra)));
    // Directories above come first: the way to the others may lead through them.
    for directory in directories.iter().rev() {
        carrier
            .run
            .open_directory(&directory.path, &directory.attributes);
    }
    let levels = directories.chunk_by(|a, b| depth(a) == depth(b));
    for level in std::iter::once(&*files).chain(levels) {
        // In groups of at most the calls in flight, so that the lookups are recent.
        for group in level.chunks(CALLS_MAX) {
            if report.is_stopped() {
                return Ok(());
            }
            let gone = still_gone(carrier.run.source, group, counts, report)?;
            if let Some(backup) = backup
                && level.first().is_some_and(|extra| !extra.is_directory())
            {
                let paths: Vec<_> = gone.iter().map(|extra| &extra.path[..]).collect();
                for (extra, result) in gone.iter().zip(backup.keep(&paths, Keep::Renamed)) {
                    removed(extra, result, counts, report)?;
                }
                continue;
            }
            let calls = gone.into_iter().map(|extra| {
                let path = carrier.run.target.at(&extra.path);
                let call = match extra.is_directory() {
                    true => Call::RemoveDirectory { path },
                    false => Call::RemoveFile { path },
                };
                (extra, call)
            });
            let mut not_empty = Vec::new();
            carrier.call_all(calls, report, &mut |extra, result, report| match result {
                Err(fault) if fault.code == Code::NotEmpty => not_empty.push((extra, fault)),
                // What ends the session doesn't come here.
                result => drop(removed(extra, result, counts, report)),
            })?;
            for (extra, fault) in not_empty {
                let result = remove_unfinished(carrier.run.target, &extra.path, fault);
                removed(extra, result, counts, report)?;
            }
        }
    }
    Ok(())
}

/// Removes a directory that wasn't empty for `fault`, if nothing is in it but unfinished transfers
/// that aren't running. These are discarded, as when a tree is removed.
fn remove_unfinished(target: &Namespace<'_>, directory: &[u8], fault: Fault) -> Result<(), Fault> {
    let path = target.at(directory);
    // Something else may be in it by now.
    if !Namespace::names(target.start_list(directory))?.is_empty() {
        return Err(fault);
    }
    loop {
        let found = target.start_beneath(Call::ListPartial {
            path: path.clone(),
            after: Vec::new(),
        });
        let (files, more) = match found.wait() {
            Ok(Answer::Partial { files, more }) => (files, more),
            // An older server.
            Err(other) if other.code == Code::Unsupported => return Err(fault),
            other => return other.and(Err(fault)),
        };
        for file in files {
            let discarded = target.start_beneath(Call::RemovePartial {
                path: target.at(&join(directory, &file.name)),
                unchanged_since_ns: None,
            });
            match discarded.wait() {
                Err(fault) if fault.code != Code::NotFound => return Err(fault),
                _ => {}
            }
        }
        if !more {
            break;
        }
    }
    let removed = target.start_beneath(Call::RemoveDirectory { path });
    removed.wait().map(|_| ())
}

/// Counts or reports the removal of an entry.
///
/// # Errors
/// The session ended.
fn removed(
    extra: &Extraneous,
    result: Result<(), Fault>,
    counts: &mut SyncResult,
    report: &mut Report<'_>,
) -> Result<(), Fault> {
    match result {
        Ok(()) => {
            counts.deleted += 1;
            report.step(SyncStep::Delete, &extra.path, None);
        }
        Err(fault) if fault.ends_session => return Err(fault),
        // Removed by another process.
        Err(fault) if fault.code == Code::NotFound => {}
        Err(fault) => report.failed(&extra.path, &fault),
    }
    Ok(())
}

/// The entries that the source lacks. The others stay, and are reported.
fn still_gone<'e>(
    source: &Namespace<'_>,
    extras: &'e [Extraneous],
    counts: &mut SyncResult,
    report: &mut Report<'_>,
) -> Result<Vec<&'e Extraneous>, Fault> {
    // All lookups at once, for a remote source.
    let asked: Vec<_> = extras
        .iter()
        .map(|extra| source.start_look(&extra.path))
        .collect();
    let mut gone = Vec::with_capacity(extras.len());
    for (extra, asked) in extras.iter().zip(asked) {
        let kept = match asked.found() {
            Ok(None) => None,
            Ok(Some(found)) => {
                let is_directory = found.kind == FileKind::Directory;
                let is_as_seen = extra.has_successor && is_directory != extra.is_directory();
                match is_as_seen {
                    true => None,
                    false => kept_for(source, &extra.path, &found)?,
                }
            }
            Err(fault) if fault.ends_session => return Err(fault),
            // Links that lead out of what a server offers can't be looked behind.
            Err(fault) => match is_behind_link(source, &extra.path)? {
                true => None,
                false => Some(fault),
            },
        };
        match kept {
            None => gone.push(extra),
            Some(fault) => {
                counts.kept += 1;
                report.failed(&extra.path, &fault);
            }
        }
    }
    Ok(gone)
}

/// Whether a link of the source is on the way to an entry, which then isn't in the tree.
///
/// # Errors
/// The session ended.
fn is_behind_link(source: &Namespace<'_>, path: &[u8]) -> Result<bool, Fault> {
    let (above, _) = split(path);
    for directory in upwards(above).filter(|directory| !directory.is_empty()) {
        match source.start_look(directory).found() {
            Ok(Some(found)) if found.kind == FileKind::Symlink => return Ok(true),
            Err(fault) if fault.ends_session => return Err(fault),
            _ => {}
        }
    }
    Ok(false)
}

/// Why an entry stays that a lookup has found in the source. `None` if it found another one: a name
/// that differs in case, or one behind a link that is not a directory of the tree.
///
/// # Errors
/// The session ended.
fn kept_for(
    source: &Namespace<'_>,
    path: &[u8],
    found: &Attributes,
) -> Result<Option<Fault>, Fault> {
    if is_behind_link(source, path)? {
        return Ok(None);
    }
    let (above, name) = split(path);
    let names = match Namespace::names(source.start_list(above)) {
        Ok(names) => names,
        Err(fault) if fault.ends_session => return Err(fault),
        Err(fault) => return Ok(Some(fault)),
    };
    let fault =
        |code, cause| source.fault(Fault::new(code, OPERATION, cause).path(source.path(path)));
    if names.iter().any(|entry| entry.name == name) {
        let cause = "it appeared in the source during the comparison";
        let fault = fault(Code::SourceChanged, cause).hint("run the same command again");
        return Ok(Some(fault));
    }
    let wanted = folded(name);
    let is_meant = |entry: &Entry| {
        let listed = &entry.attributes;
        let is_same = match (listed.kind, found.kind) {
            // It may have been followed.
            (FileKind::Symlink, _) => true,
            (FileKind::File, FileKind::File) => listed.size == found.size,
            (listed, found) => listed == found,
        };
        is_same && folded(&entry.name) == wanted
    };
    if names.iter().any(is_meant) {
        return Ok(None);
    }
    let cause = "the source has it, and leaves it out of its listing";
    let fault = fault(Code::Unsupported, cause);
    Ok(Some(fault.hint(
        "it stays; remove it at the target by hand if it isn't wanted",
    )))
}
