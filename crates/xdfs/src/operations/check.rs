//! Compares two trees, on any sides, by walking both in the same order.

use std::cmp::Ordering;
use std::collections::VecDeque;

use xdfs_proto::{ChecksumKind, ChecksumValue, Code, Fault};

use super::calls::{SideCall, unexpected_answer};
use super::side::{PathSide, SidePath};
use super::walk::{Walk, WalkEntry, WalkOptions, WalkStep};
use crate::paths::{Answer, Attributes, Call, FileKind};
use crate::record::CheckCounts;
use crate::tree::Filter;

/// Entries that are compared at once.
const ENTRIES_AHEAD: usize = 16;

/// How trees are compared.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The digest by which files of one size are compared. Default: BLAKE3.
    pub digest: ChecksumKind,
    /// The entries that it leaves out, on both sides, are not compared. Default: none.
    pub filter: Filter,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            digest: ChecksumKind::Blake3,
            filter: Filter::default(),
        }
    }
}

/// One of the two places that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckEnd {
    /// The place that the other one is compared with.
    Source,
    /// The other one.
    Target,
}

/// An entry that isn't the same in both places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path, relative to the roots; `.` for two files.
    pub path: Vec<u8>,
    /// The entry in the source; without one, it is extra in the target.
    pub source: Option<Attributes>,
    /// The entry in the target; without one, it is missing there.
    pub target: Option<Attributes>,
}

/// A result of a comparison.
#[derive(Debug)]
pub enum CheckStep {
    /// An entry that is the same in both places.
    Equal,
    /// An entry that isn't.
    Different(Difference),
    /// A directory could not be listed completely, or an entry not be compared: it counts neither
    /// as equal nor as different.
    Failed(CheckEnd, Fault),
}

/// Counts an entry.
fn count(counts: &mut CheckCounts, entry: &Difference, is_equal: bool) {
    let number = match (&entry.source, &entry.target) {
        (Some(found), Some(_)) if is_equal => {
            if found.kind == FileKind::File {
                counts.equal_bytes = counts.equal_bytes.saturating_add(found.size);
            }
            &mut counts.equal
        }
        (Some(_), Some(_)) => &mut counts.differs,
        (Some(_), None) => &mut counts.missing,
        (None, _) => &mut counts.extra,
    };
    *number += 1;
}

/// One of the two trees: its next entry, and what could not be listed.
#[derive(Debug)]
struct Tree<'a> {
    end: CheckEnd,
    root: &'a SidePath,
    walk: Walk<'a, PathSide>,
    next: Option<WalkEntry>,
    /// The latest entry, relative to the root.
    latest: Vec<u8>,
    /// Directories that were not listed completely, above the latest entry or at it.
    unlisted: Vec<Vec<u8>>,
}

impl<'a> Tree<'a> {
    fn new(end: CheckEnd, root: &'a SidePath, attributes: Attributes, filter: &'a Filter) -> Self {
        let keeps = |found: &WalkEntry| {
            let (path, a) = (root.relative(&found.path), &found.attributes);
            let is_beyond = a.kind == FileKind::File && filter.leaves_out_file(a.size, a.mtime_ns);
            !is_beyond && !filter.leaves_out(path, found.is_directory())
        };
        let sorted = WalkOptions {
            sorted: true,
            ..WalkOptions::default()
        };
        Self {
            end,
            root,
            walk: root.walk(attributes, sorted).only(keeps),
            next: None,
            latest: Vec::new(),
            unlisted: Vec::new(),
        }
    }

    /// Goes to the next entry, and reports directories that can't be listed.
    fn advance(&mut self, ready: &mut VecDeque<CheckStep>) {
        self.next = loop {
            match self.walk.next() {
                Some(WalkStep::Entry(found)) => {
                    self.latest = self.root.relative(&found.path).to_vec();
                    // The root has been looked at.
                    if found.depth > 0 {
                        break Some(found);
                    }
                }
                Some(WalkStep::Left(_)) => {}
                // Follows its directory at once.
                Some(WalkStep::Failed(fault)) => {
                    self.unlisted.push(self.latest.clone());
                    ready.push_back(CheckStep::Failed(self.end, fault));
                }
                None => break None,
            }
        };
    }

    fn next_path(&self) -> Option<Vec<u8>> {
        let next = self.next.as_ref()?;
        Some(self.root.relative(&next.path).to_vec())
    }

    /// Whether the path may be in a directory that was not listed completely.
    fn may_have(&mut self, path: &[u8]) -> bool {
        let is_in = |above: &Vec<u8>| {
            let below = path.strip_prefix(above.as_slice());
            above.is_empty() || below.is_some_and(|below| below.starts_with(b"/"))
        };
        // Both trees are in the same order: none of the others is needed again.
        self.unlisted.retain(is_in);
        !self.unlisted.is_empty()
    }
}

/// The order of a walk: by the names, one directory after the other.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    a.split(|&c| c == b'/').cmp(b.split(|&c| c == b'/'))
}

/// An entry that is on one side or both.
#[derive(Debug)]
struct Compared {
    entry: Difference,
    /// Content that has to be compared, of source and target.
    asked: Option<[(Vec<u8>, SideCall); 2]>,
}

/// A comparison of two trees, or of two files, which is an iterator over its results in the order
/// of the names. Kinds are compared, sizes and digests of files, and targets of symbolic links;
/// neither times nor permissions. Digests are computed where the files are.
#[derive(Debug)]
pub struct Check<'a> {
    source: &'a SidePath,
    target: &'a SidePath,
    digest: ChecksumKind,
    /// Source and target; `None` for files, and at the end.
    trees: Option<[Tree<'a>; 2]>,
    waiting: VecDeque<Compared>,
    /// Results not yet returned.
    ready: VecDeque<CheckStep>,
    counts: CheckCounts,
}

impl<'a> Check<'a> {
    /// Starts to compare two places with these attributes, of which links have been followed.
    ///
    /// # Errors
    /// [`Code::NotDirectory`]: one is a directory, and the other one isn't.
    pub fn new(
        [source, target]: [&'a SidePath; 2],
        attributes: [Attributes; 2],
        options: &'a CheckOptions,
    ) -> Result<Self, Fault> {
        let mut check = Self {
            source,
            target,
            digest: options.digest,
            trees: None,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            counts: CheckCounts::default(),
        };
        let [is_tree, is_other_tree] = [0, 1].map(|at| attributes[at].kind == FileKind::Directory);
        if is_tree != is_other_tree {
            let file = if is_tree { target } else { source };
            let cause = "the other one is a directory";
            let fault = Fault::new(Code::NotDirectory, "compare", cause).path(&file.path);
            return Err((file.side).fault(fault.hint("name two files, or two directories")));
        }
        if !is_tree {
            let paths = [source.path.clone(), target.path.clone()];
            check.both(b".".to_vec(), paths, attributes);
            return Ok(check);
        }
        let [one, other] = attributes;
        let mut trees = [
            Tree::new(CheckEnd::Source, source, one, &options.filter),
            Tree::new(CheckEnd::Target, target, other, &options.filter),
        ];
        for tree in &mut trees {
            tree.advance(&mut check.ready);
        }
        check.trees = Some(trees);
        Ok(check)
    }

    /// The numbers of entries compared up to now.
    #[must_use]
    pub fn counts(&self) -> CheckCounts {
        self.counts
    }

    /// Starts to compare the next entry of the trees; `false` if there are none.
    fn merge(&mut self, [source, target]: &mut [Tree<'a>; 2]) -> bool {
        let (one, other) = match (source.next_path(), target.next_path()) {
            (None, None) => return false,
            (Some(one), Some(other)) => match order(&one, &other) {
                Ordering::Less => (Some(one), None),
                Ordering::Equal => (Some(one), Some(other)),
                Ordering::Greater => (None, Some(other)),
            },
            other => other,
        };
        match (one, other) {
            (Some(path), Some(_)) => {
                if let (Some(one), Some(other)) = (source.next.take(), target.next.take()) {
                    let paths = [one.path, other.path];
                    self.both(path, paths, [one.attributes, other.attributes]);
                }
                source.advance(&mut self.ready);
                target.advance(&mut self.ready);
            }
            (Some(path), None) => {
                let found = source.next.take().map(|found| found.attributes);
                if !target.may_have(&path) {
                    self.push(path, (found, None), None);
                }
                source.advance(&mut self.ready);
            }
            (None, path) => {
                let path = path.unwrap_or_default();
                let found = target.next.take().map(|found| found.attributes);
                if !source.may_have(&path) {
                    self.push(path, (None, found), None);
                }
                target.advance(&mut self.ready);
            }
        }
        true
    }

    /// Compares an entry that is on both sides under these paths.
    fn both(&mut self, path: Vec<u8>, paths: [Vec<u8>; 2], [source, target]: [Attributes; 2]) {
        let is_content_needed = source.kind == target.kind
            && match source.kind {
                FileKind::File => source.size == target.size && source.size > 0,
                FileKind::Symlink => true,
                _ => false,
            };
        let ask = |side: &PathSide, path: Vec<u8>| {
            let asked = match source.kind {
                FileKind::Symlink => side.start_call(Call::ReadLink { path: path.clone() }),
                _ => side.start_digest(&path, self.digest),
            };
            (path, asked)
        };
        let asked = is_content_needed.then(|| {
            let [one, other] = paths;
            [ask(&self.source.side, one), ask(&self.target.side, other)]
        });
        self.push(path, (Some(source), Some(target)), asked);
    }

    fn push(
        &mut self,
        path: Vec<u8>,
        (source, target): (Option<Attributes>, Option<Attributes>),
        asked: Option<[(Vec<u8>, SideCall); 2]>,
    ) {
        let entry = Difference {
            path,
            source,
            target,
        };
        self.waiting.push_back(Compared { entry, asked });
        if self.waiting.len() >= ENTRIES_AHEAD {
            self.settle();
        }
    }

    /// Waits for the earliest entry; `false` if there is none.
    fn settle(&mut self) -> bool {
        let Some(Compared { entry, asked }) = self.waiting.pop_front() else {
            return false;
        };
        let is_equal = match (&entry.source, &entry.target, asked) {
            (Some(_), Some(_), Some([one, other])) => match (content(one), content(other)) {
                (Ok(one), Ok(other)) => one == other,
                (one, other) => {
                    let one = one.err().map(|fault| (CheckEnd::Source, fault));
                    let other = other.err().map(|fault| (CheckEnd::Target, fault));
                    let faults = [one, other].into_iter().flatten();
                    let failed = faults.map(|(end, fault)| CheckStep::Failed(end, fault));
                    self.ready.extend(failed);
                    return true;
                }
            },
            (Some(one), Some(other), None) => {
                one.kind == other.kind && (one.kind != FileKind::File || one.size == other.size)
            }
            _ => false,
        };
        count(&mut self.counts, &entry, is_equal);
        self.ready.push_back(match is_equal {
            true => CheckStep::Equal,
            false => CheckStep::Different(entry),
        });
        true
    }
}

impl Iterator for Check<'_> {
    type Item = CheckStep;

    fn next(&mut self) -> Option<CheckStep> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            match self.trees.take() {
                Some(mut trees) => {
                    if self.merge(&mut trees) {
                        self.trees = Some(trees);
                    }
                }
                None if self.settle() => {}
                None => return None,
            }
        }
    }
}

/// Content in a form that can be compared: the target of a link, or a digest.
#[derive(PartialEq)]
enum Content {
    Link(Vec<u8>),
    File(ChecksumValue, u64),
}

fn content((path, asked): (Vec<u8>, SideCall)) -> Result<Content, Fault> {
    match asked.wait()? {
        Answer::Target(target) => Ok(Content::Link(target)),
        Answer::Digest { value, length } => Ok(Content::File(value, length)),
        _ => Err(unexpected_answer("compare", &path)),
    }
}
