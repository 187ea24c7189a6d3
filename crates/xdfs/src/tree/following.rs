//! Symbolic links of a source that are followed: the target of a link takes its place.
//!
//! A link that can't be followed is a failure of its entry alone. So is one to a directory that the
//! link is in: any walk without an end passes links without an end, and as there are only so many
//! directories, one of them leads to a directory above it. So the directories above a link are all
//! that has to be known, and they are looked up anew in each directory with such links.

use std::collections::{HashSet, VecDeque};

use xdfs_proto::{Code, Fault};

use super::name_collisions::{Identity, identity};
use super::namespace::{CALLS_MAX, FoundName, Namespace, Pending, odd_answer};
use crate::local_path::path_bytes;
use crate::paths::{Answer, Attributes, Entry, FileKind, join};

const OPERATION: &str = "follow a symbolic link";

/// Entries as a directory lists them, with the flag of those that are links.
type Listed<'a> = dyn Iterator<Item = Result<(FoundName, bool), Fault>> + 'a;

/// The entries of a directory.
type Entries<'a> = dyn Iterator<Item = Result<FoundName, Fault>> + 'a;

/// The target of a link.
struct End {
    /// `None` if it leads nowhere.
    attributes: Option<Attributes>,
    /// Why it can't be followed.
    fault: Option<Fault>,
}

impl Namespace<'_> {
    /// The entries of a directory, unsorted. An error is the last item.
    pub(super) fn entries(&self, directory: &[u8]) -> Box<Entries<'_>> {
        self.entries_with(directory, false)
    }

    /// Likewise; with `attributes`, those of local entries are looked up too.
    pub(super) fn entries_with(&self, directory: &[u8], attributes: bool) -> Box<Entries<'_>> {
        let listed = self.listed(directory, attributes);
        match self.follows() {
            true => Box::new(Followed::new(self, directory, listed)),
            false => Box::new(listed.map(|found| found.map(|(found, _)| found))),
        }
    }
}

/// The links in a directory.
struct Links<'n, 'a> {
    tree: &'n Namespace<'a>,
    directory: Vec<u8>,
    /// The directory and those above it, once known.
    above: Option<HashSet<Identity>>,
}

impl<'n, 'a> Links<'n, 'a> {
    fn new(tree: &'n Namespace<'a>, directory: &[u8]) -> Self {
        Self {
            tree,
            directory: directory.to_vec(),
            above: None,
        }
    }

    /// Starts to look up the target of a link.
    fn start(&self, link: &[u8]) -> Pending<'a> {
        self.tree.start_find(&self.tree.path(link))
    }

    /// The target of the link.
    ///
    /// # Errors
    /// The session ended.
    fn end(&mut self, link: &[u8], asked: Pending<'_>) -> Result<End, Fault> {
        let (attributes, fault) = match asked.wait() {
            Ok(Answer::Attributes(found)) => {
                let cause = self.problem(&found);
                let fault = cause.map(|cause| self.fault(Code::Unsupported, cause, link));
                (Some(found), fault)
            }
            Ok(_) => return Err(odd_answer()),
            Err(fault) if fault.ends_session => return Err(fault),
            Err(fault) if fault.code == Code::NotFound => {
                let cause = "the link's target doesn't exist";
                (None, Some(self.fault(Code::NotFound, cause, link)))
            }
            Err(fault) => (None, Some(fault)),
        };
        let fault = fault.map(|fault| Fault {
            operation: OPERATION.into(),
            ..fault.hint("leave it out with --exclude, or let links stay links")
        });
        Ok(End { attributes, fault })
    }

    /// The reason for which the target of a link can't take its place, if any.
    fn problem(&mut self, found: &Attributes) -> Option<&'static str> {
        if found.kind != FileKind::Directory {
            return None;
        }
        let found = identity(found);
        if found.is_none() {
            return Some("the file system doesn't tell directories apart, so it may be a loop");
        }
        let above = match self.above.take() {
            Some(above) => above,
            None => self.find_above(),
        };
        let is_loop = self.above.insert(above).contains(&found);
        is_loop.then_some("the link leads to a directory that it is in")
    }

    /// The directory and those above it, as far as they can be looked up.
    fn find_above(&self) -> HashSet<Identity> {
        let mut root = self.tree.root().to_vec();
        if !self.tree.is_remote() {
            let named = xdfs_sys::fs::path_from_bytes(&root);
            // One that can't be resolved has no entries either.
            if let Ok(real) = named.and_then(std::fs::canonicalize) {
                root = path_bytes(&real);
            }
        }
        let ends = |path: &[u8]| -> Vec<usize> {
            let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
            slashes.chain([path.len()]).collect()
        };
        let above_root = ends(&root).into_iter().map(|end| match &root[..end] {
            b"" => b"/".to_vec(),
            path => path.to_vec(),
        });
        let beneath = ends(&self.directory);
        let beneath = beneath
            .into_iter()
            .map(|end| join(&root, &self.directory[..end]));
        let asked: Vec<_> = above_root
            .chain(beneath)
            .map(|path| self.tree.start_find(&path))
            .collect();
        let found = asked.into_iter().filter_map(|asked| asked.found().ok()?);
        found.map(|found| identity(&found)).collect()
    }

    fn fault(&self, code: Code, cause: &str, link: &[u8]) -> Fault {
        let fault = Fault::new(code, OPERATION, cause).path(self.tree.path(link));
        self.tree.fault(fault)
    }
}

/// Follows the links among the entries of a directory. An error is the last item.
pub(super) struct Followed<'n, 'a> {
    listed: Box<Listed<'a>>,
    links: Links<'n, 'a>,
    /// Links that are being looked up.
    asked: VecDeque<(FoundName, Pending<'a>)>,
    /// How the listing ended.
    end: Option<Result<(), Fault>>,
}

impl<'n, 'a> Followed<'n, 'a> {
    pub(super) fn new(tree: &'n Namespace<'a>, directory: &[u8], listed: Box<Listed<'a>>) -> Self {
        Self {
            listed,
            links: Links::new(tree, directory),
            asked: VecDeque::new(),
            end: None,
        }
    }
}

impl Iterator for Followed<'_, '_> {
    type Item = Result<FoundName, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.end.is_none() && self.asked.len() < CALLS_MAX {
            match self.listed.next() {
                Some(Ok((found, false))) => return Some(Ok(found)),
                Some(Ok((found, true))) => {
                    let asked = self.links.start(&found.path);
                    self.asked.push_back((found, asked));
                }
                Some(Err(fault)) => self.end = Some(Err(fault)),
                None => self.end = Some(Ok(())),
            }
        }
        let Some((mut found, asked)) = self.asked.pop_front() else {
            let end = self.end.as_mut()?;
            return std::mem::replace(end, Ok(())).err().map(Err);
        };
        let End { attributes, fault } = match self.links.end(&found.path, asked) {
            Ok(end) => end,
            Err(fault) => {
                self.asked.clear();
                self.end = Some(Ok(()));
                return Some(Err(fault));
            }
        };
        found.is_directory = attributes
            .as_ref()
            .is_some_and(|found| found.kind == FileKind::Directory);
        if attributes.is_some() {
            found.attributes = attributes;
        }
        found.fault = fault.map(Box::new);
        Some(Ok(found))
    }
}

impl Namespace<'_> {
    /// Follows the links among the names of a directory, if this tree does that. Those that can't
    /// be followed are taken out, and returned with their faults.
    ///
    /// # Errors
    /// The session ended.
    pub(super) fn follow_names(
        &self,
        directory: &[u8],
        names: &mut Vec<Entry>,
    ) -> Result<Vec<(Entry, Fault)>, Fault> {
        if !self.follows() {
            return Ok(Vec::new());
        }
        let mut links = Links::new(self, directory);
        let is_link = |entry: &&mut Entry| entry.attributes.kind == FileKind::Symlink;
        let mut found: Vec<&mut Entry> = names.iter_mut().filter(is_link).collect();
        let mut faults: Vec<(Vec<u8>, Fault)> = Vec::new();
        for group in found.chunks_mut(CALLS_MAX) {
            let paths: Vec<_> = group.iter().map(|e| join(directory, &e.name)).collect();
            let asked: Vec<_> = paths.iter().map(|path| links.start(path)).collect();
            for ((entry, path), asked) in group.iter_mut().zip(&paths).zip(asked) {
                let End { attributes, fault } = links.end(path, asked)?;
                if let Some(attributes) = attributes {
                    entry.attributes = attributes;
                }
                faults.extend(fault.map(|fault| (entry.name.clone(), fault)));
            }
        }
        // Both are in the same order.
        let mut faults = faults.into_iter().peekable();
        let mut failed = Vec::new();
        for entry in std::mem::take(names) {
            match faults.next_if(|(name, _)| *name == entry.name) {
                Some((_, fault)) => failed.push((entry, fault)),
                None => names.push(entry),
            }
        }
        Ok(failed)
    }
}
