//! Trees that lie in each other: a copy of a directory into itself would never end, and a
//! synchronisation would delete its own source.
//!
//! Directories are compared by identity, since symbolic links, mounts and the names of a server
//! lead to one directory by several paths. Not all places have identities.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use xdfs_proto::{Code, Fault};
use xdfs_store::local;

use super::filter::Filter;
use super::name_collisions::identity;
use super::namespace::{CALLS_MAX, FoundName, Namespace, Pending};
use crate::local_path::path_bytes;
use crate::paths::{Answer, Attributes, Call, FileKind, join};

/// Symbolic links that are resolved in a path, at most.
const LINKS_MAX: usize = 40;
/// How often two directories are looked at until their times of change are equal.
const LOOKS_MAX: usize = 3;

/// The directories on the way to a place that needn't exist.
struct Way {
    /// Those that exist, with real paths, the deepest first.
    above: Vec<(Vec<u8>, Attributes)>,
    /// The names below that are missing.
    missing: Vec<Vec<u8>>,
}

/// Calls that look at the directories on the way to a place on a server, the deepest last.
pub(super) struct Asked<'a>(Vec<(Vec<u8>, Pending<'a>)>);

impl<'a> Asked<'a> {
    fn of(side: &Namespace<'a>) -> Self {
        let (begin, names) = parts(side.root());
        // A place has fewer directories than a session may have calls at a time.
        let paths = paths(&begin, &names).into_iter().take(CALLS_MAX);
        let ask = |path: Vec<u8>| {
            let call = Call::Stat {
                path: path.clone(),
                follow: false,
            };
            (path, side.start(call))
        };
        Self(paths.map(ask).collect())
    }

    /// Begins to look at the way to a tree that [`check`] compares with the other one, to save a
    /// round trip.
    pub(super) fn begin(side: &Namespace<'a>, other: &Namespace<'_>) -> Option<Self> {
        (side.is_remote() && are_comparable(side, other)).then(|| Self::of(side))
    }
}

fn are_comparable(one: &Namespace<'_>, other: &Namespace<'_>) -> bool {
    let identify = one.traits().identities && other.traits().identities;
    identify && one.may_share_machine(other)
}

/// The target of a copy, as the walk of the source may meet it.
pub(super) struct OwnTarget {
    /// The target or, if it doesn't exist yet, the nearest directory above it that does.
    there: (Vec<u8>, Attributes),
    /// The first name below that is missing.
    missing: Option<Vec<u8>>,
    /// Paths in the source at which the target will be.
    met: Mutex<Vec<Vec<u8>>>,
}

/// Refuses a target that is the directory `source`, or lies in it where the filter leaves nothing
/// out. `root` has the attributes of the source. Returns the target to look out for in the walk,
/// if both sides may be on one machine.
///
/// # Errors
/// [`Code::InvalidArgument`], or the session ended.
pub(super) fn check<'a>(
    operation: &str,
    (source, root): (&Namespace<'_>, &Attributes),
    (target, asked): (&Namespace<'a>, Option<Asked<'a>>),
    filter: &Filter,
) -> Result<Option<OwnTarget>, Fault> {
    if !are_comparable(source, target) {
        return Ok(None);
    }
    let mut way = Way::to(target, asked)?;
    if let Some(names) = way.names_in((source, root), target) {
        let mut path = Vec::new();
        let is_left_out = names.iter().any(|name| {
            path = join(&path, name);
            filter.leaves_out(&path, true)
        });
        if !is_left_out {
            return Err(inside(operation).path(target.root()));
        }
    }
    let missing = way.missing.into_iter().next();
    let there = (!way.above.is_empty()).then(|| way.above.swap_remove(0));
    Ok(there.map(|there| OwnTarget {
        there,
        missing,
        met: Mutex::default(),
    }))
}

fn inside(operation: &str) -> Fault {
    let cause = "one of the two directories is the other one, or in it";
    Fault::new(Code::InvalidArgument, operation, cause)
        .hint("name two directories apart from each other")
}

impl OwnTarget {
    /// Refuses a directory of the source that is the target.
    pub(super) fn refusal(
        &self,
        source: &Namespace<'_>,
        target: &Namespace<'_>,
        found: &FoundName,
    ) -> Option<Fault> {
        let refusal = || inside("copy").path(&found.path);
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if met.contains(&found.path) {
            return Some(refusal());
        }
        let attributes = source.attributes(found)?;
        let (path, there) = &self.there;
        let at = source.path(&found.path);
        if !is_same((source, &at, &attributes), (target, path, there)) {
            return None;
        }
        match &self.missing {
            Some(name) => {
                met.push(join(&found.path, name));
                None
            }
            None => Some(refusal()),
        }
    }
}

impl Way {
    fn to<'a>(side: &Namespace<'a>, asked: Option<Asked<'a>>) -> Result<Self, Fault> {
        match side.is_remote() {
            true => Self::to_remote(side, asked.unwrap_or_else(|| Asked::of(side))),
            false => Ok(Self::to_local(side.root()).unwrap_or(Self {
                above: Vec::new(),
                missing: Vec::new(),
            })),
        }
    }

    fn to_local(root: &[u8]) -> Option<Self> {
        let path = xdfs_sys::fs::path_from_bytes(root).ok()?;
        let mut path = std::path::absolute(path).ok()?;
        let mut missing = Vec::new();
        let real = loop {
            match path.canonicalize() {
                Ok(real) => break real,
                Err(_) => {
                    missing.insert(0, path_bytes(Path::new(path.file_name()?)));
                    path.pop();
                }
            }
        };
        let found = |path: &Path| Some((path_bytes(path), local::look(path, true)?));
        Some(Self {
            above: real.ancestors().filter_map(found).collect(),
            missing,
        })
    }

    /// Likewise on a server, which resolves no path for others: links are resolved here.
    fn to_remote<'a>(side: &Namespace<'a>, asked: Asked<'a>) -> Result<Self, Fault> {
        let whole = side.with_root(Vec::new());
        let (mut begin, mut names) = parts(side.root());
        // More was asked for if it has become clear since where the tree goes.
        let asked = asked.0.into_iter().take(names.len() + 1);
        let mut found: Vec<_> = asked.map(|(path, asked)| (path, asked.found())).collect();
        let mut links = 0;
        loop {
            let mut above = Vec::new();
            let mut link = None;
            for (depth, (path, found)) in found.into_iter().enumerate() {
                match found {
                    Err(fault) if fault.ends_session => return Err(fault),
                    Ok(Some(found)) if found.kind == FileKind::Symlink && depth > 0 => {
                        link = Some((depth, path));
                        break;
                    }
                    Ok(Some(found)) => above.push((depth, path, found)),
                    _ => {}
                }
            }
            links += 1;
            if let Some((depth, path)) = link.filter(|_| links <= LINKS_MAX) {
                match side.start(Call::ReadLink { path }).wait() {
                    Ok(Answer::Target(target)) => {
                        let below = names.split_off(depth);
                        names.pop();
                        if target.starts_with(b"/") {
                            begin = b"/".to_vec();
                            names.clear();
                        }
                        add_names(&mut names, &target);
                        names.extend(below);
                        let paths = paths(&begin, &names);
                        let looked = whole.look_up(paths.iter().map(Vec::as_slice));
                        found = paths.into_iter().zip(looked).collect();
                        continue;
                    }
                    Err(fault) if fault.ends_session => return Err(fault),
                    // The directories above it are known at least.
                    _ => {}
                }
            }
            let depth = above.last().map_or(0, |(depth, ..)| *depth);
            let above = above.into_iter().rev();
            return Ok(Self {
                above: above.map(|(_, path, found)| (path, found)).collect(),
                missing: names.split_off(depth),
            });
        }
    }

    /// The names on the way from a directory to this place, which is at `target`; `None` if it
    /// isn't in that directory.
    fn names_in(
        &self,
        (source, root): (&Namespace<'_>, &Attributes),
        target: &Namespace<'_>,
    ) -> Option<Vec<Vec<u8>>> {
        let source = (source, source.root(), root);
        let mut above = self.above.iter();
        let (path, _) = above.find(|(path, found)| is_same(source, (target, path, found)))?;
        let (deepest, _) = self.above.first()?;
        let mut names = Vec::new();
        add_names(&mut names, deepest.get(path.len()..).unwrap_or_default());
        names.extend(self.missing.iter().cloned());
        Some(names)
    }
}

/// Where a path on a server begins, and its names.
fn parts(path: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let begin = match path.starts_with(b"/") {
        true => b"/".to_vec(),
        false => b".".to_vec(),
    };
    let mut names = Vec::new();
    add_names(&mut names, path);
    (begin, names)
}

/// The paths of all directories on the way, and that of the place itself.
fn paths(begin: &[u8], names: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut path = begin.to_vec();
    let mut paths = vec![path.clone()];
    paths.extend(names.iter().map(|name| {
        path = join(&path, name);
        path.clone()
    }));
    paths
}

/// Adds the names of a path without links to those above it.
fn add_names(names: &mut Vec<Vec<u8>>, path: &[u8]) {
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            // Nothing is above the root.
            b".." if names.last().is_none_or(|last| last != b"..") => {
                names.pop();
            }
            name => names.push(name.to_vec()),
        }
    }
}

/// A path on a side, and its attributes.
type Looked<'l> = (&'l Namespace<'l>, &'l [u8], &'l Attributes);

fn is_alike(one: &Attributes, other: &Attributes) -> bool {
    identity(one).is_some() && identity(one) == identity(other)
}

/// Whether two paths lead to one directory. Machines may use the same numbers for different ones,
/// with other times of change.
fn is_same(one: Looked<'_>, other: Looked<'_>) -> bool {
    if !is_alike(one.2, other.2) {
        return false;
    }
    let look = || {
        let asked = [one, other].map(|(side, path, _)| side.start_find(path));
        let [one, other] = asked.map(Pending::found);
        Some((one.ok()??, other.ok()??))
    };
    let looks = (0..LOOKS_MAX).map_while(|_| look());
    looks
        .take_while(|(one, other)| is_alike(one, other))
        .any(|(one, other)| one.ctime_ns == other.ctime_ns)
}
