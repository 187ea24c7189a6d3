//! Lists of the paths of a tree that are copied.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use xdfs_proto::{Code, Fault, quoted};

use super::calls::InFlight;
use super::path::join;
use super::side::SidePath;
use crate::paths::{Answer, FileKind};

const OPERATION: &str = "read the list of files";
/// Longest list, in bytes: it is held in memory.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// The paths of a list, beneath the source.
#[derive(Debug, Default)]
pub struct ListedPaths {
    /// Relative paths.
    pub paths: Vec<Vec<u8>>,
    /// The source itself is listed, and so everything in it.
    pub has_all: bool,
    /// Lines that name nothing beneath the source, with their faults.
    pub refused: Vec<(Vec<u8>, Fault)>,
}

impl ListedPaths {
    /// Reads a list of paths, each of which ends with the byte `end`. They are relative to the
    /// source, with or without `./` or `/` before them, as `find` and other programs write them.
    /// Faults name the list by `list_name`.
    ///
    /// # Errors
    /// The list can't be read, or is longer than a GiB.
    pub fn read(list: impl Read, list_name: &[u8], end: u8) -> Result<Self, Fault> {
        let mut bytes = Vec::new();
        let read = list.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| Fault::from_io(OPERATION, list_name, &error))?;
        let bad =
            |cause: String| Fault::new(Code::InvalidArgument, OPERATION, cause).path(list_name);
        if bytes.len() as u64 > LIST_BYTES_MAX {
            return Err(bad(format!("it is longer than {LIST_BYTES_MAX} bytes")));
        }
        let mut listed = Self::default();
        for (number, line) in (1..).zip(bytes.split(|&b| b == end)) {
            if line.is_empty() {
                continue;
            }
            let parts = line.split(|&b| b == b'/');
            let parts: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
            if parts.contains(&&b".."[..]) {
                let cause = format!("path {number}, {}, has '..' in it", quoted(line));
                let fault = bad(cause).hint("list paths relative to SOURCE, without '..'");
                listed.refused.push((line.to_vec(), fault));
            } else if parts.is_empty() {
                listed.has_all = true;
            } else {
                listed.paths.push(parts.join(&b'/'));
            }
        }
        Ok(listed)
    }

    /// The listed paths of the tree at `root` that can't be copied, with their faults: those that
    /// aren't there, and unless links are followed, those that lead through one.
    #[must_use]
    pub fn unreachable(&self, root: &SidePath, follows_links: bool) -> Vec<(Vec<u8>, Fault)> {
        // Each directory above them is looked up once.
        let slashes = |path: &[u8]| {
            let places = path.iter().enumerate().filter(|(_, b)| **b == b'/');
            places.map(|(at, _)| at).collect::<Vec<_>>()
        };
        let mut names: BTreeSet<&[u8]> = self.paths.iter().map(Vec::as_slice).collect();
        for path in &self.paths {
            names.extend(slashes(path).into_iter().map(|at| &path[..at]));
        }
        let found = look_up(root, names);
        let mut failed = Vec::new();
        for path in &self.paths {
            let above = slashes(path).into_iter().map(|at| &path[..at]);
            let link = above.into_iter().find(|above| {
                let kind = found.get(above).and_then(|found| found.as_ref().ok());
                kind == Some(&FileKind::Symlink) && !follows_links
            });
            if let Some(link) = link {
                let link = String::from_utf8_lossy(link);
                let cause = format!("'{link}' is a symbolic link, and is copied as one");
                let fault = Fault::new(Code::Unsupported, "find the listed path", cause).path(path);
                let fault = fault.hint("list the path that the link leads to");
                failed.push((path.clone(), fault));
            } else if let Some(Err(fault)) = found.get(path.as_slice()) {
                failed.push((path.clone(), fault.clone()));
            }
        }
        failed
    }
}

/// Looks up all paths in the tree, without following links.
fn look_up<'p>(
    root: &SidePath,
    paths: BTreeSet<&'p [u8]>,
) -> BTreeMap<&'p [u8], Result<FileKind, Fault>> {
    let kind = |answer: Result<Answer, Fault>| match answer? {
        Answer::Attributes(attributes) => Ok(attributes.kind),
        _ => Ok(FileKind::Other),
    };
    let mut found = BTreeMap::new();
    let mut calls = InFlight::new();
    for path in paths {
        let call = root.side.start_stat(&join(&root.path, path), false);
        found.extend(
            calls
                .push(path, call)
                .map(|(path, answer)| (path, kind(answer))),
        );
    }
    while let Some((path, answer)) = calls.pop() {
        found.insert(path, kind(answer));
    }
    found
}
