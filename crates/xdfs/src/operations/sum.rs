//! Digests of files, computed where the files are, several at once.

use std::collections::VecDeque;

use xdfs_proto::{ChecksumKind, ChecksumValue, Fault};

use super::calls::{SideCall, unexpected_answer};
use super::side::{PathSide, SidePath};
use super::walk::{Walk, WalkOptions, WalkStep};
use crate::paths::{Answer, Attributes, FileKind};

/// Files whose digests are computed at once.
const FILES_AHEAD: usize = 16;

/// The digest in an answer, and the bytes that it covers.
fn digest_of(asked: SideCall, path: &[u8]) -> Result<(ChecksumValue, u64), Fault> {
    match asked.wait()? {
        Answer::Digest { value, length } => Ok((value, length)),
        _ => Err(unexpected_answer("compute the digest of", path)),
    }
}

/// The digest of a file.
#[derive(Clone, Debug)]
pub struct Sum {
    /// The path of the file.
    pub path: Vec<u8>,
    /// The path as it is shown.
    pub name: Vec<u8>,
    /// The digits that the digest should have, in lower-case hex.
    pub expected: Option<String>,
    /// The digest, and the bytes that it covers; or the reason for which there is none.
    pub digest: Result<(ChecksumValue, u64), Fault>,
}

impl Sum {
    /// Whether the digest is the expected one; `None` if none is expected, or there is none.
    #[must_use]
    pub fn matches(&self) -> Option<bool> {
        let (value, _) = self.digest.as_ref().ok()?;
        Some(value.hex() == *self.expected.as_ref()?)
    }
}

#[derive(Debug)]
struct Pending {
    path: Vec<u8>,
    name: Vec<u8>,
    expected: Option<String>,
    asked: SideCall,
}

/// Digests that are being computed, at most 16, which are returned in order.
#[derive(Debug)]
pub struct Sums<'a> {
    side: &'a PathSide,
    kind: ChecksumKind,
    waiting: VecDeque<Pending>,
}

impl<'a> Sums<'a> {
    /// No digests yet, for files of this side.
    #[must_use]
    pub fn new(side: &'a PathSide, kind: ChecksumKind) -> Self {
        Self {
            side,
            kind,
            waiting: VecDeque::new(),
        }
    }

    /// Starts to compute the digest of a file, and returns the earliest one if enough are being
    /// computed. `name` is the path as it is shown, and `expected` the digits that the digest
    /// should have, in lower-case hex.
    pub fn push(&mut self, path: Vec<u8>, name: Vec<u8>, expected: Option<String>) -> Option<Sum> {
        let asked = self.side.start_digest(&path, self.kind);
        self.waiting.push_back(Pending {
            path,
            name,
            expected,
            asked,
        });
        let is_full = self.waiting.len() >= FILES_AHEAD;
        is_full.then(|| self.pop()).flatten()
    }

    /// Waits for the earliest digest; `None` if there is none.
    pub fn pop(&mut self) -> Option<Sum> {
        let Pending {
            path,
            name,
            expected,
            asked,
        } = self.waiting.pop_front()?;
        let digest = digest_of(asked, &path);
        Some(Sum {
            path,
            name,
            expected,
            digest,
        })
    }
}

/// A result of the digests of a tree.
#[derive(Debug)]
pub enum SumStep {
    /// The digest of a file.
    Sum(Sum),
    /// A directory could not be listed completely.
    Failed(Fault),
}

/// The digests of all regular files of a tree, in the order of their names, or that of a single
/// file. It is an iterator over them.
#[derive(Debug)]
pub struct SumTree<'a> {
    root: &'a SidePath,
    /// `None` for a file, and at the end.
    walk: Option<Walk<'a, PathSide>>,
    sums: Sums<'a>,
}

impl<'a> SumTree<'a> {
    /// Starts to compute the digests below `root`, which has these attributes. The names of the
    /// files are those of [`SidePath::name_of`].
    #[must_use]
    pub fn new(root: &'a SidePath, attributes: Attributes, kind: ChecksumKind) -> Self {
        let mut sums = Sums::new(&root.side, kind);
        let sorted = WalkOptions {
            sorted: true,
            ..WalkOptions::default()
        };
        let walk = match attributes.kind {
            FileKind::Directory => Some(root.walk(attributes, sorted)),
            _ => {
                // The first of them isn't waited for.
                sums.push(root.path.clone(), root.name_of(b""), None);
                None
            }
        };
        Self { root, walk, sums }
    }
}

impl Iterator for SumTree<'_> {
    type Item = SumStep;

    fn next(&mut self) -> Option<SumStep> {
        while let Some(walk) = &mut self.walk {
            match walk.next() {
                Some(WalkStep::Entry(found)) if found.attributes.kind == FileKind::File => {
                    let name = self.root.name_of(self.root.relative(&found.path));
                    if let Some(sum) = self.sums.push(found.path, name, None) {
                        return Some(SumStep::Sum(sum));
                    }
                }
                Some(WalkStep::Entry(_) | WalkStep::Left(_)) => {}
                Some(WalkStep::Failed(fault)) => return Some(SumStep::Failed(fault)),
                None => self.walk = None,
            }
        }
        self.sums.pop().map(SumStep::Sum)
    }
}
