//! The paths that `xdfs cp --files-from` copies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Stdin};
use std::path::Path;

use xdfs::operations::path::join;
use xdfs::{Answer, Call, Client, Code, Fault, FileKind, call_local, quoted};

const OPERATION: &str = "read the list of files";
/// Longest list, in bytes: it is held in memory.
const LIST_BYTES_MAX: u64 = 1 << 30;
/// Lookups in flight.
const LOOKUPS_AHEAD: usize = 64;

/// The paths of a list, beneath the source.
#[derive(Debug, Default)]
pub(super) struct ListedPaths {
    /// Relative paths.
    pub(super) paths: Vec<Vec<u8>>,
    /// The source itself is listed, and so everything in it.
    pub(super) has_all: bool,
    /// Lines that name nothing beneath the source, with their faults.
    pub(super) refused: Vec<(Vec<u8>, Fault)>,
}

/// Reads a list of paths. They are relative to the source, with or without `./` or `/` before them,
/// as `find` and other programs write them.
///
/// # Errors
/// The file can't be read.
pub(super) fn read(list: &Path, ended_by_nul: bool) -> Result<ListedPaths, Fault> {
    let name = list.as_os_str().as_encoded_bytes();
    let failed = |error: &std::io::Error| Fault::from_io(OPERATION, name, error);
    let mut bytes = Vec::new();
    let read = if name == b"-" {
        let stdin: Stdin = std::io::stdin();
        stdin
            .lock()
            .take(LIST_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
    } else {
        let file = File::open(list).map_err(|error| failed(&error))?;
        file.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes)
    };
    read.map_err(|error| failed(&error))?;
    let bad = |cause: String| Fault::new(Code::InvalidArgument, OPERATION, cause).path(name);
    if bytes.len() as u64 > LIST_BYTES_MAX {
        return Err(bad(format!("it is longer than {LIST_BYTES_MAX} bytes")));
    }
    let end = if ended_by_nul { b'\0' } else { b'\n' };
    let mut listed = ListedPaths::default();
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

/// The tree in which paths are looked up.
pub(super) enum Root<'a> {
    Local(&'a Path),
    Server(&'a Client, &'a [u8]),
}

impl Root<'_> {
    /// Looks up all paths in the tree, without following links.
    fn look_up(&self, paths: &[&[u8]]) -> Vec<Result<FileKind, Fault>> {
        let call = |root: &[u8], path: &[u8]| Call::Stat {
            path: join(root, path),
            follow: false,
        };
        let kind = |answer: Result<Answer, Fault>| match answer? {
            Answer::Attributes(attributes) => Ok(attributes.kind),
            _ => Ok(FileKind::Other),
        };
        match self {
            Self::Local(root) => {
                let root = root.as_os_str().as_encoded_bytes();
                let found = paths.iter().map(|path| kind(call_local(&call(root, path))));
                found.collect()
            }
            Self::Server(client, root) => {
                let mut found = Vec::with_capacity(paths.len());
                for paths in paths.chunks(LOOKUPS_AHEAD) {
                    let asked = paths.iter().map(|path| client.start_call(call(root, path)));
                    let asked: Vec<_> = asked.collect();
                    found.extend(asked.into_iter().map(|asked| kind(asked?.wait())));
                }
                found
            }
        }
    }
}

/// The listed paths that can't be copied, with their faults. Unless links are followed, none leads
/// through one.
pub(super) fn unreachable(
    root: &Root<'_>,
    paths: &[Vec<u8>],
    follows_links: bool,
) -> Vec<(Vec<u8>, Fault)> {
    // Each directory above them is looked up once.
    let slashes = |path: &[u8]| {
        let places = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        places.map(|(at, _)| at).collect::<Vec<_>>()
    };
    let mut names: BTreeSet<&[u8]> = paths.iter().map(Vec::as_slice).collect();
    for path in paths {
        names.extend(slashes(path).into_iter().map(|at| &path[..at]));
    }
    let names: Vec<&[u8]> = names.into_iter().collect();
    let found = root.look_up(&names);
    let found: BTreeMap<&[u8], Result<FileKind, Fault>> = names.into_iter().zip(found).collect();
    let mut failed = Vec::new();
    for path in paths {
        let above = slashes(path).into_iter().map(|at| &path[..at]);
        let link = above.into_iter().find(|above| {
            let kind = found.get(above).and_then(|found| found.as_ref().ok());
            kind == Some(&FileKind::Symlink) && !follows_links
        });
        if let Some(link) = link {
            let link = String::from_utf8_lossy(link);
            let cause = format!("'{link}' is a symbolic link, and is copied as one");
            let fault = Fault::new(Code::Unsupported, "find the listed path", cause).path(path);
            failed.push((
                path.clone(),
                fault.hint("list the path that the link leads to"),
            ));
        } else if let Some(Err(fault)) = found.get(path.as_slice()) {
            failed.push((path.clone(), fault.clone()));
        }
    }
    failed
}
