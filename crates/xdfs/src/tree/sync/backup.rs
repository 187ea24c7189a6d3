//! The backup directory of a synchronisation: what is replaced or removed keeps its relative name
//! there, without a copy.
//!
//! What is removed is renamed. What is replaced gets a second name (a hard link) first, since it
//! has to stay in its place until the new content takes that over.

use std::collections::{HashSet, VecDeque};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use xdfs_proto::{Code, Fault};

use super::OPERATION;
use crate::local_path::path_bytes;
use crate::paths::{Call, Entry};
use crate::tree::namespace::{CALLS_MAX, Namespace, Pending};
use crate::tree::tracker::split;

/// The entry by which a later run without a backup directory recognises one within the target,
/// which it then doesn't delete.
const MARK: &[u8] = b".xdfs-backup";

/// Whether a directory of the target with these entries is the backup directory of an earlier run.
pub(super) fn is_marked(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| entry.name == MARK)
}

/// How an entry gets into the backup directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// It stays in its place too.
    Linked,
    Renamed,
}

/// The backup directory, on the side of the target.
pub(super) struct Backup<'a> {
    target: &'a Namespace<'a>,
    directory: Namespace<'a>,
    /// Its path in the target, if it is there.
    beneath: Option<Vec<u8>>,
    /// Device and number, if it exists at the start.
    identity: Option<(u64, u64)>,
    /// Directories in it that exist.
    made: Mutex<HashSet<Vec<u8>>>,
}

impl<'a> Backup<'a> {
    /// The backup directory at `path`, which is relative to the target if it isn't absolute.
    ///
    /// # Errors
    /// It is the target or above it, or can't be looked up.
    pub(super) fn new(target: &'a Namespace<'a>, path: &[u8]) -> Result<Self, Fault> {
        let (root, directory) = match target.is_remote() {
            true => (resolved(b"", target.root()), resolved(target.root(), path)),
            false => local(target.root(), path)?,
        };
        if is_above(&directory, &root) {
            let cause = "the backup directory is the target, or above it";
            return Err(Fault::new(Code::InvalidArgument, OPERATION, cause)
                .path(path)
                .hint("name a directory in the target, or beside it"));
        }
        let beneath = is_above(&root, &directory).then(|| {
            let rest = &directory[root.len()..];
            rest.strip_prefix(b"/").unwrap_or(rest).to_vec()
        });
        let directory = target.with_root(directory);
        let identity = directory.find_directory(&mut std::time::Duration::default())?;
        let identity = identity.map(|found| (found.device, found.inode));
        Ok(Self {
            target,
            directory,
            beneath,
            identity: identity.filter(|identity| *identity != (0, 0)),
            made: Mutex::default(),
        })
    }

    /// Whether a path of the target is that of the backup directory.
    pub(super) fn is_named(&self, path: &[u8]) -> bool {
        self.beneath.as_deref() == Some(path)
    }

    /// Whether an entry of the target is the backup directory, whatever its path is.
    pub(super) fn is_at(&self, path: &[u8], entry: &Entry) -> bool {
        let found = (entry.attributes.device, entry.attributes.inode);
        self.is_named(path) || self.identity == Some(found)
    }

    /// Whether a path of the target is the backup directory, or a directory above it.
    pub(super) fn is_beneath(&self, path: &[u8]) -> bool {
        self.beneath
            .as_ref()
            .is_some_and(|beneath| is_above(path, beneath))
    }

    /// Keeps entries of the target, by their relative paths, and replaces what an earlier run kept
    /// under these names. The results are in their order.
    pub(super) fn keep(&self, paths: &[&[u8]], keep: Keep) -> Vec<Result<(), Fault>> {
        let made = self.make_above(paths);
        let start = |index: usize| -> Result<Pending<'a>, Fault> {
            let path = paths[index];
            made[index].clone()?;
            let (from, to) = (self.target.path(path), self.directory.path(path));
            Ok(self.target.start(match keep {
                Keep::Linked => Call::Link {
                    existing: from,
                    path: to,
                },
                Keep::Renamed => Call::Rename {
                    from,
                    to,
                    overwrite: false,
                },
            }))
        };
        let mut results = several(paths.len(), &start);
        let is_old = |index: &usize| match &results[*index] {
            Err(fault) => fault.code == Code::AlreadyExists,
            Ok(()) => false,
        };
        let old: Vec<usize> = (0..paths.len()).filter(is_old).collect();
        // Not by one rename: of two names of one file it would leave both.
        let removed = several(old.len(), &|index| {
            let path = self.directory.path(paths[old[index]]);
            Ok(self.target.start(Call::RemoveFile { path }))
        });
        let again = several(old.len(), &|index| {
            removed[index].clone()?;
            start(old[index])
        });
        for (index, result) in old.into_iter().zip(again) {
            results[index] = result;
        }
        results
            .into_iter()
            .map(|result| result.map_err(|fault| self.named(fault)))
            .collect()
    }

    fn named(&self, fault: Fault) -> Fault {
        if fault.ends_session {
            return fault;
        }
        let directory = String::from_utf8_lossy(self.directory.root()).into_owned();
        fault.hint(format!(
            "it was neither replaced nor deleted, as it could not be kept in {directory}"
        ))
    }

    /// Makes the directories above these paths in the backup directory.
    fn make_above(&self, paths: &[&[u8]]) -> Vec<Result<(), Fault>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        paths
            .iter()
            .map(|path| {
                let above = split(path).0;
                if made.contains(above) {
                    return Ok(());
                }
                let make = |path: &[u8]| {
                    let call = Call::MakeDirectory {
                        path: self.directory.path(path),
                        mode: None,
                        parents: true,
                    };
                    self.target.start(call).wait()
                };
                if made.is_empty() && self.beneath.is_some() {
                    // It is there if an earlier run has made it.
                    make(MARK)?;
                }
                make(above)?;
                made.insert(above.to_vec());
                Ok(())
            })
            .collect()
    }
}

/// Makes calls, several at a time. The results are in their order.
fn several<'a>(
    count: usize,
    start: &dyn Fn(usize) -> Result<Pending<'a>, Fault>,
) -> Vec<Result<(), Fault>> {
    let mut results = Vec::with_capacity(count);
    let mut under_way = VecDeque::new();
    for index in 0..count {
        under_way.push_back(start(index));
        if under_way.len() >= CALLS_MAX {
            results.extend(under_way.pop_front().map(ended));
        }
    }
    results.extend(under_way.into_iter().map(ended));
    results
}

fn ended(begun: Result<Pending<'_>, Fault>) -> Result<(), Fault> {
    begun?.wait().map(|_| ())
}

fn is_above(directory: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || directory.ends_with(b"/") || rest.starts_with(b"/"))
}

/// A path on a server from `base`, absolute and without `.` and `..`, which servers refuse.
fn resolved(base: &[u8], path: &[u8]) -> Vec<u8> {
    let base = match path.starts_with(b"/") {
        true => &[][..],
        false => base,
    };
    let mut names: Vec<&[u8]> = Vec::new();
    for name in base.split(|b| *b == b'/').chain(path.split(|b| *b == b'/')) {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    [b"/", &names.join(&b'/')[..]].concat()
}

/// The local target and the backup directory, both absolute.
fn local(root: &[u8], path: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Fault> {
    let fault = |e: &std::io::Error| Fault::from_io(OPERATION, path, e);
    let root = xdfs_sys::fs::path_from_bytes(root).map_err(|e| fault(&e))?;
    let path = xdfs_sys::fs::path_from_bytes(path).map_err(|e| fault(&e))?;
    let absolute = |path: &Path| -> Result<Vec<u8>, Fault> {
        let mut clean = PathBuf::new();
        for component in std::path::absolute(path)
            .map_err(|e| fault(&e))?
            .components()
        {
            match component {
                Component::ParentDir => drop(clean.pop()),
                component => clean.push(component),
            }
        }
        Ok(path_bytes(&clean))
    };
    Ok((absolute(&root)?, absolute(&root.join(path))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_on_a_server_have_one_form() {
        for (base, path, expected) in [
            ("/a/b", "c", "/a/b/c"),
            ("/a/b/", "../c/./d", "/a/c/d"),
            ("/a", "/c//d/", "/c/d"),
            ("a", "../../..", "/"),
            ("/", "", "/"),
        ] {
            let found = resolved(base.as_bytes(), path.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), expected);
        }
        assert!(is_above(b"/", b"/a") && is_above(b"/a", b"/a/b") && is_above(b"/a", b"/a"));
        assert!(!is_above(b"/a", b"/ab") && !is_above(b"/a/b", b"/a"));
    }

    #[test]
    fn the_target_is_no_place_for_its_backup() {
        let session_less = Namespace::local(b"/some/target".to_vec());
        for path in ["", ".", "..", "/some", "/", "../target/x/.."] {
            let refused = Backup::new(&session_less, path.as_bytes())
                .err()
                .map(|f| f.code);
            assert_eq!(refused, Some(Code::InvalidArgument), "{path}");
        }
        for (path, beneath) in [("x/y", Some("x/y")), ("../target2", None), ("/other", None)] {
            let Ok(backup) = Backup::new(&session_less, path.as_bytes()) else {
                panic!("{path}");
            };
            assert_eq!(
                backup.beneath.as_deref(),
                beneath.map(str::as_bytes),
                "{path}"
            );
        }
    }
}
