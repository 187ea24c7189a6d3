//! Further hard links of files. They are created after everything else has been moved, as links to
//! the first names. A first name that could not be moved is therefore checked before: an older file
//! under that name must not get the other names too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_proto::{Code, Fault};
use xdfs_store::tree_journal::Mark;

use super::moving::Report;
use super::name_collisions::BothEnds;
use super::version::{looks_like, mark_of};
use crate::paths::Attributes;

/// A further hard link of a file.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) path: Vec<u8>,
    /// The first name of the file.
    pub(super) first: Vec<u8>,
    /// Version of the file at the source.
    pub(super) mark: Option<Mark>,
}

/// Device and inode.
pub(super) type FileNumber = (u64, u64);

/// The first name of each file with several hard links, shared by all passes of a synchronisation.
#[derive(Debug, Default)]
pub(super) struct FirstNames(Mutex<HashMap<FileNumber, FirstName>>);

#[derive(Debug)]
struct FirstName {
    path: Vec<u8>,
    /// The file that has this name at the target, if it stays as it is.
    there: Option<FileNumber>,
}

impl FirstNames {
    /// The first name of a file; `None` if it is `path`.
    pub(super) fn before(&self, file: FileNumber, path: &[u8]) -> Option<Vec<u8>> {
        let mut names = self.names();
        let first = names.entry(file).or_insert_with(|| FirstName {
            path: path.to_vec(),
            there: None,
        });
        (first.path != path).then(|| first.path.clone())
    }

    /// Notes that a name of a file exists at the target, as the file `there`. Returns whether it is
    /// the first name, or a link to what the first name is there.
    pub(super) fn exists(&self, file: FileNumber, path: &[u8], there: FileNumber) -> bool {
        let mut names = self.names();
        let first = names.entry(file).or_insert_with(|| FirstName {
            path: path.to_vec(),
            there: Some(there),
        });
        first.path == path || first.there == Some(there)
    }

    fn names(&self) -> MutexGuard<'_, HashMap<FileNumber, FirstName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The links that can be created: those whose first names match the source. The others fail.
///
/// A first name that failed may still be correct, if only its owner could not be set, or if it
/// existed and must not be replaced. Kind, size and time decide; where these don't suffice
/// ([`Report::marks_suffice`]), it counts as wrong.
///
/// # Errors
/// The session ended.
pub(super) fn linkable(
    ends: &dyn BothEnds,
    links: Vec<Link>,
    report: &mut Report<'_>,
) -> Result<Vec<Link>, Fault> {
    let is_lost = |first: &&Vec<u8>| report.why_lost(first).is_some();
    let lost: BTreeSet<_> = links
        .iter()
        .map(|link| &link.first)
        .filter(is_lost)
        .collect();
    let lost: Vec<_> = lost.into_iter().cloned().collect();
    let found: BTreeMap<_, _> = lost.iter().zip(ends.look(&lost)).collect();
    let mut linkable = Vec::new();
    for link in links {
        let Some(code) = report.why_lost(&link.first) else {
            linkable.push(link);
            continue;
        };
        let problem = match found.get(&link.first) {
            Some(Err(fault)) if fault.ends_session => return Err(fault.clone()),
            Some(Err(_)) => "can't be looked at",
            None | Some(Ok(None)) => "isn't there",
            Some(Ok(Some(there))) if report.marks_suffice && is_it(there, &link) => {
                linkable.push(link);
                continue;
            }
            Some(Ok(Some(_))) => "may be another file there",
        };
        report.fail_permanently(&link.path, &unlinkable(&link, code, problem));
    }
    Ok(linkable)
}

fn is_it(there: &Attributes, link: &Link) -> bool {
    mark_of(there)
        .zip(link.mark)
        .is_some_and(|(there, wanted)| looks_like(there, wanted))
}

fn unlinkable(link: &Link, code: Code, problem: &str) -> Fault {
    let first = link.first.escape_ascii();
    let cause = format!(
        "it is a further name of '{first}', which was not moved ({}) and {problem}",
        code.as_str()
    );
    Fault::new(code, "link", cause)
        .path(&link.path)
        .hint(format!(
            "see the failure of '{first}', and run the same command again"
        ))
}
