//! Name collisions in a comparison: names with another spelling at the target, names that resolve
//! to another entry of the source, and names that may do so once another entry has been moved.

use std::collections::{HashMap, HashSet};

use xdfs_proto::Fault;

use super::OPERATION;
use super::view::View;
use crate::paths::{Attributes, Entry, join};
use crate::tree::name_collisions::{self, folded, identity};

/// An entry of the source: path and attributes.
pub(super) type Listed = (Vec<u8>, Attributes);

/// An entry of the source that waits until everything else has been moved: its name may collide
/// with another at the target.
#[derive(Clone, Debug)]
pub(super) struct DeferredEntry {
    pub(super) entry: Listed,
    /// The name that it may collide with.
    pub(super) other: Vec<u8>,
}

/// The fault of a name that collides with another at the target.
pub(super) fn same(path: &[u8], other: &[u8]) -> Fault {
    let fault = name_collisions::same(path, other);
    Fault {
        operation: OPERATION.into(),
        ..fault
    }
}

/// How a name of the source relates to the target, which doesn't list it.
pub(super) enum NameMatch {
    /// It exists with another spelling.
    Spelled(Attributes),
    /// It resolves to another entry of the source, or to one that has to stay.
    Means(Vec<u8>),
    /// It may collide with this name once that exists.
    Deferred(Vec<u8>),
    Failed(Fault),
}

/// Names of a directory that may collide.
#[derive(Default)]
pub(super) struct NameMatches {
    found: HashMap<Vec<u8>, NameMatch>,
    /// Names at the target that match a name of the source with another spelling.
    pub(super) spelled: HashSet<Vec<u8>>,
}

impl NameMatches {
    pub(super) fn take(&mut self, name: &[u8]) -> Option<NameMatch> {
        self.found.remove(name)
    }
}

/// Names that may collide with each other.
#[derive(Default)]
struct NameGroup<'e> {
    source: Vec<&'e Entry>,
    target: Vec<&'e Entry>,
}

impl<'e> NameGroup<'e> {
    /// Entries of the source that the target doesn't list.
    fn missing(&self) -> impl Iterator<Item = &'e Entry> {
        let is_listed = |entry: &Entry| self.target.iter().any(|t| t.name == entry.name);
        self.source.iter().copied().filter(move |e| !is_listed(e))
    }
}

/// The folded names that several different names have.
fn several(source: &[Entry], target: &[Entry]) -> HashSet<Vec<u8>> {
    use std::hash::{BuildHasher as _, RandomState};
    let random = RandomState::new();
    let mut seen = HashMap::new();
    let mut several = HashSet::new();
    for entry in source.iter().chain(target) {
        let folded = folded(&entry.name);
        let name = random.hash_one(&entry.name);
        if *seen.entry(random.hash_one(&folded)).or_insert(name) != name {
            several.insert(folded);
        }
    }
    several
}

/// Lookups at the target of names that it doesn't list.
type TargetNames<'e> = HashMap<&'e [u8], Result<Option<Attributes>, Fault>>;

/// Whether the filter leaves out a path.
type LeavesOut<'l> = dyn Fn(&[u8], &Entry, bool) -> bool + 'l;

/// Matches the names of a directory that may collide. Names that `there` doesn't list are looked
/// up.
///
/// # Errors
/// The session ended.
pub(super) fn match_names(
    there: View<'_>,
    leaves_out: &LeavesOut<'_>,
    directory: &[u8],
    (source, target): (&[Entry], &[Entry]),
) -> Result<NameMatches, Fault> {
    let several = several(source, target);
    let mut alike = NameMatches::default();
    if several.is_empty() {
        return Ok(alike);
    }
    let mut kinds: HashMap<Vec<u8>, NameGroup<'_>> = HashMap::new();
    for (entries, is_source) in [(source, true), (target, false)] {
        for entry in entries {
            let folded = folded(&entry.name);
            // Excluded entries don't belong to the source.
            if !several.contains(&folded)
                || is_source && leaves_out(&join(directory, &entry.name), entry, true)
            {
                continue;
            }
            let kind = kinds.entry(folded).or_default();
            match is_source {
                true => kind.source.push(entry),
                false => kind.target.push(entry),
            }
        }
    }
    let asked = kinds.values().filter(|kind| !kind.target.is_empty());
    let asked: Vec<_> = asked.flat_map(NameGroup::missing).collect();
    let paths: Vec<_> = asked.iter().map(|e| join(directory, &e.name)).collect();
    let looked_up = there.look_up(paths.iter().map(Vec::as_slice));
    let mut found = HashMap::new();
    for (entry, looked_up) in asked.into_iter().zip(looked_up) {
        match looked_up {
            Err(fault) if fault.ends_session => return Err(fault),
            looked_up => found.insert(&entry.name[..], looked_up),
        };
    }
    for kind in kinds.values() {
        sort(leaves_out, (directory, kind), &mut found, &mut alike);
    }
    Ok(alike)
}

fn sort(
    leaves_out: &LeavesOut<'_>,
    (directory, kind): (&[u8], &NameGroup<'_>),
    there: &mut TargetNames<'_>,
    alike: &mut NameMatches,
) {
    let mut first: Option<&[u8]> = None;
    let mut taken: HashMap<&[u8], &[u8]> = HashMap::new();
    for entry in kind.missing() {
        let name = &entry.name[..];
        let found = match there.remove(name) {
            Some(Ok(Some(found))) => {
                let number = identity(&found);
                let mut others = kind.target.iter();
                let is_it = |t: &&&Entry| number.is_some() && identity(&t.attributes) == number;
                let other = others.find(is_it).or_else(|| kind.target.first());
                let Some(other) = other else { continue };
                let own = kind.source.iter().find(|s| s.name == other.name);
                let means = own.map(|own| &own.name[..]);
                let means = means.or_else(|| taken.get(&other.name[..]).copied());
                // Excluded entries stay as they are.
                let stays = leaves_out(&join(directory, &other.name), other, false);
                match means.or_else(|| stays.then_some(&other.name[..])) {
                    Some(means) => Some(NameMatch::Means(means.to_vec())),
                    None => {
                        taken.insert(&other.name, name);
                        alike.spelled.insert(other.name.clone());
                        Some(NameMatch::Spelled(other.attributes.clone()))
                    }
                }
            }
            Some(Err(fault)) => Some(NameMatch::Failed(fault)),
            Some(Ok(None)) | None => match first {
                Some(first) => Some(NameMatch::Deferred(first.to_vec())),
                None => {
                    first = Some(name);
                    None
                }
            },
        };
        if let Some(found) = found {
            alike.found.insert(name.to_vec(), found);
        }
    }
}
