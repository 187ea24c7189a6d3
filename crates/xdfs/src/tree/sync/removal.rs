//! Removing what isn't in the source. What was seen of the source may have changed since, so that
//! it is looked at once more, right before.

use xdfs_proto::{Code, Fault};

use super::OPERATION;
use super::carry::Carrier;
use super::plan::Extraneous;
use crate::events::SyncStep;
use crate::paths::{Answer, Call, FileKind};
use crate::tree::moving::Report;
use crate::tree::namespace::{CALLS_MAX, Namespace, odd_answer};

/// What became of names that were too much.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Removed {
    pub(super) deleted: u64,
    /// They are in the source again.
    pub(super) kept: u64,
}

/// Removes names from the target, what is in a directory before it.
pub(super) fn remove(
    carrier: &Carrier<'_>,
    source: &Namespace<'_>,
    extras: Vec<Extraneous>,
    report: &mut Report<'_>,
) -> Result<Removed, Fault> {
    let mut removed = Removed::default();
    let (mut directories, files): (Vec<_>, Vec<_>) =
        extras.into_iter().partition(|extra| extra.is_directory);
    let depth = |extra: &Extraneous| extra.path.iter().filter(|b| **b == b'/').count();
    directories.sort_by_key(|extra| std::cmp::Reverse(depth(extra)));
    let levels = directories.chunk_by(|a, b| depth(a) == depth(b));
    for level in std::iter::once(&*files).chain(levels) {
        // No more at once than calls are under way: the look back is not to be old.
        for group in level.chunks(CALLS_MAX) {
            if report.is_stopped() {
                return Ok(removed);
            }
            let gone = still_gone(source, group, &mut removed, report)?;
            let calls = gone.into_iter().map(|extra| {
                let path = carrier.target.at(&extra.path);
                let call = if extra.is_directory {
                    Call::RemoveDirectory { path }
                } else {
                    Call::RemoveFile { path }
                };
                (extra, call)
            });
            carrier.call_all(calls, report, &mut |extra, result, report| match result {
                Ok(()) => {
                    removed.deleted += 1;
                    report.step(SyncStep::Delete, &extra.path, None);
                }
                // Somebody else was faster.
                Err(fault) if fault.code == Code::NotFound => {}
                Err(fault) => report.failed(&extra.path, &fault),
            })?;
        }
    }
    Ok(removed)
}

/// Those that the source still doesn't have. The others stay, and that is told.
fn still_gone<'e>(
    source: &Namespace<'_>,
    extras: &'e [Extraneous],
    removed: &mut Removed,
    report: &mut Report<'_>,
) -> Result<Vec<&'e Extraneous>, Fault> {
    // All questions at once, for a source that is far away.
    let asked: Vec<_> = extras
        .iter()
        .map(|extra| source.start_look(&extra.path))
        .collect();
    let mut gone = Vec::with_capacity(extras.len());
    for (extra, asked) in extras.iter().zip(asked) {
        let kept = match asked.wait() {
            Err(fault) if matches!(fault.code, Code::NotFound | Code::NotDirectory) => None,
            Ok(Answer::Attributes(found)) => {
                let is_directory = found.kind == FileKind::Directory;
                let is_as_seen = extra.has_successor && is_directory != extra.is_directory;
                let is_gone = is_as_seen || !is_listed(source, &extra.path)?;
                (!is_gone).then(|| {
                    let cause = "it came into the source while the trees were compared";
                    Fault::new(Code::SourceChanged, OPERATION, cause)
                        .path(&extra.path)
                        .hint("run the same command again")
                })
            }
            Ok(_) => return Err(odd_answer()),
            Err(fault) if fault.ends_session => return Err(fault),
            Err(fault) => Some(fault),
        };
        match kept {
            None => gone.push(extra),
            Some(fault) => {
                removed.kept += 1;
                report.failed(&extra.path, &fault);
            }
        }
    }
    Ok(gone)
}

/// Whether the source has exactly this name: a file system may find another one by it, which
/// differs in case only.
fn is_listed(source: &Namespace<'_>, path: &[u8]) -> Result<bool, Fault> {
    let at = path.iter().rposition(|b| *b == b'/');
    let (above, name) = match at {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    match Namespace::names(source.start_list(above)) {
        Ok(names) => Ok(names.iter().any(|entry| entry.name == name)),
        Err(fault) if fault.ends_session => Err(fault),
        // Nothing says that it is another one.
        Err(_) => Ok(true),
    }
}
