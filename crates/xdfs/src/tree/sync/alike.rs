//! Names that the target's file system may take for one, as the comparison finds them: names that
//! are spelled in another way there, names that mean another entry of the source, and names of
//! which only the copy of another can tell.

use std::collections::{HashMap, HashSet};

use xdfs_proto::{Code, Fault};

use super::OPERATION;
use super::plan::{Comparison, QUESTIONS_MAX};
use super::side::odd_answer;
use crate::paths::{Answer, Attributes, Entry};
use crate::tree::alike::{self, Pathed, folded, identity};
use crate::tree::join;
use crate::tree::moving::ends_session;

/// An entry of the source that waits until everything else is moved: the target may take its name
/// for that of another.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    pub(super) path: Vec<u8>,
    pub(super) attributes: Attributes,
    /// The other name.
    other: Vec<u8>,
}

impl Pathed for Waits {
    fn path(&self) -> &[u8] {
        &self.path
    }
}

impl Waits {
    pub(super) fn new(path: Vec<u8>, attributes: Attributes, other: Vec<u8>) -> Self {
        Self {
            path,
            attributes,
            other,
        }
    }

    /// Why it isn't moved: something stands there, where nothing was but what is moved.
    pub(super) fn fault(&self) -> Fault {
        same(&self.path, &self.other)
    }
}

/// The fault of a name that means something else at the target.
pub(super) fn same(path: &[u8], other: &[u8]) -> Fault {
    let fault = alike::same(path, other);
    Fault {
        operation: OPERATION.into(),
        ..fault
    }
}

/// What a name of the source is that the target doesn't list.
pub(super) enum Found {
    /// It is there, with another spelling.
    Spelled(Attributes),
    /// It means another entry of the source, or one that has to stay.
    Means(Vec<u8>),
    /// It may mean this one when that is there.
    Waits(Vec<u8>),
    Failed(Fault),
}

/// Names of a directory that may be taken for others.
#[derive(Default)]
pub(super) struct Alike {
    found: HashMap<Vec<u8>, Found>,
    /// Names at the target that stand for one of the source with another spelling.
    pub(super) spelled: HashSet<Vec<u8>>,
}

impl Alike {
    pub(super) fn take(&mut self, name: &[u8]) -> Option<Found> {
        self.found.remove(name)
    }
}

/// Names that may be taken for one.
#[derive(Default)]
struct Kind<'e> {
    source: Vec<&'e Entry>,
    target: Vec<&'e Entry>,
}

impl<'e> Kind<'e> {
    /// Those of the source that the target doesn't list.
    fn missing(&self) -> impl Iterator<Item = &'e Entry> {
        let is_listed = |entry: &Entry| self.target.iter().any(|t| t.name == entry.name);
        self.source.iter().copied().filter(move |e| !is_listed(e))
    }
}

/// What some names have in common of which a file system may take one for another.
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

/// What stands at the target under names that it doesn't list.
type There<'e> = HashMap<&'e [u8], Result<Option<Attributes>, Fault>>;

impl Comparison<'_> {
    /// Sorts the names of a directory that may be taken for others.
    ///
    /// # Errors
    /// The session ended.
    pub(super) fn find_alike(
        &self,
        directory: &[u8],
        source: &[Entry],
        target: &[Entry],
    ) -> Result<Alike, Fault> {
        let several = several(source, target);
        let mut alike = Alike::default();
        if several.is_empty() {
            return Ok(alike);
        }
        let mut kinds: HashMap<Vec<u8>, Kind<'_>> = HashMap::new();
        for (entries, is_source) in [(source, true), (target, false)] {
            for entry in entries {
                let folded = folded(&entry.name);
                // What is left out of the source is none of it.
                if !several.contains(&folded)
                    || is_source && self.leaves_out(&join(directory, &entry.name), entry)
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
        let asked: Vec<_> = asked.flat_map(Kind::missing).collect();
        let mut there = self.look_for(directory, &asked)?;
        for kind in kinds.values() {
            self.sort(directory, kind, &mut there, &mut alike);
        }
        Ok(alike)
    }

    /// What the target has under names that it doesn't list.
    fn look_for<'e>(&self, directory: &[u8], names: &[&'e Entry]) -> Result<There<'e>, Fault> {
        let mut there = HashMap::new();
        for names in names.chunks(QUESTIONS_MAX) {
            let asked = names.iter().map(|entry| {
                let path = join(directory, &entry.name);
                (entry, self.target.start_look(&path))
            });
            let asked: Vec<_> = asked.collect();
            for (entry, asked) in asked {
                let found = match asked.wait() {
                    Ok(Answer::Attributes(attributes)) => Ok(Some(attributes)),
                    Ok(_) => Err(odd_answer()),
                    Err(fault) if fault.code == Code::NotFound => Ok(None),
                    Err(fault) if ends_session(&fault) => return Err(fault),
                    Err(fault) => Err(fault),
                };
                there.insert(&entry.name[..], found);
            }
        }
        Ok(there)
    }

    fn sort(&self, directory: &[u8], kind: &Kind<'_>, there: &mut There<'_>, alike: &mut Alike) {
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
                    // What the filter leaves out stays as it is.
                    let stays = self.leaves_out(&join(directory, &other.name), other);
                    match means.or_else(|| stays.then_some(&other.name[..])) {
                        Some(means) => Some(Found::Means(means.to_vec())),
                        None => {
                            taken.insert(&other.name, name);
                            alike.spelled.insert(other.name.clone());
                            Some(Found::Spelled(other.attributes.clone()))
                        }
                    }
                }
                Some(Err(fault)) => Some(Found::Failed(fault)),
                Some(Ok(None)) | None => match first {
                    Some(first) => Some(Found::Waits(first.to_vec())),
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
}
