//! Further names of files. They are made when everything else was moved, as links to the first
//! names: so a first name that could not be moved is looked at before. What stood there earlier is
//! not to get the other names too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use xdfs_proto::{Code, Fault};
use xdfs_store::tree_journal::Mark;

use super::moving::Report;
use super::name_collisions::BothEnds;
use super::version::{looks_like, mark_of};
use crate::paths::Attributes;

/// A further name of a file.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) path: Vec<u8>,
    /// The name that was found first.
    pub(super) first: Vec<u8>,
    /// What the source has under both.
    pub(super) mark: Option<Mark>,
}

/// A file, by its device and its number there.
type FileNumber = (u64, u64);

/// The first name of each file that has several. All passes of a synchronisation share one.
#[derive(Debug, Default)]
pub(super) struct FirstNames(Mutex<HashMap<FileNumber, Vec<u8>>>);

impl FirstNames {
    /// The name of a file that came first; `None` if that is this one.
    pub(super) fn before(&self, file: FileNumber, path: &[u8]) -> Option<Vec<u8>> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = names.entry(file).or_insert_with(|| path.to_vec());
        (first != path).then(|| first.clone())
    }
}

/// Of further names those that can be made: their first names have what the source has. The others
/// fail.
///
/// A first name that failed may be right all the same, if only its owner could not be given, or if
/// it was there and nothing is to be replaced. That is told by kind, size and time; where these
/// aren't enough ([`Report::marks_suffice`]) it is taken for wrong.
///
/// # Errors
/// The session ended.
pub(super) fn sound(
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
    let mut sound = Vec::new();
    for link in links {
        let Some(code) = report.why_lost(&link.first) else {
            sound.push(link);
            continue;
        };
        let problem = match found.get(&link.first) {
            Some(Err(fault)) if fault.ends_session => return Err(fault.clone()),
            Some(Err(_)) => "can't be looked at",
            None | Some(Ok(None)) => "isn't there",
            Some(Ok(Some(there))) if report.marks_suffice && is_it(there, &link) => {
                sound.push(link);
                continue;
            }
            Some(Ok(Some(_))) => "may be another file there",
        };
        report.fail_permanently(&link.path, &unsound(&link, code, problem));
    }
    Ok(sound)
}

fn is_it(there: &Attributes, link: &Link) -> bool {
    mark_of(there)
        .zip(link.mark)
        .is_some_and(|(there, wanted)| looks_like(there, wanted))
}

fn unsound(link: &Link, code: Code, problem: &str) -> Fault {
    let first = link.first.escape_ascii();
    let cause = format!(
        "it is a further name of '{first}', which was not moved ({}) and {problem}",
        code.as_str()
    );
    Fault::new(code, "link a file", cause)
        .path(&link.path)
        .hint(format!(
            "see what is said of '{first}', and run the same command again"
        ))
}
