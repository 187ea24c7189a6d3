//! Names with their attributes, and the calls about them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use xdfs::store::SinkRequest;
use xdfs::{Answer, Attributes, Call, Code, Entry, FileKind};

use crate::Why;

/// The mode of directories, and of files, unless a request names another one.
const MODES: [u32; 2] = [0o755, 0o644];
/// Entries of one part of a listing, at most.
const LISTED_MAX: usize = 1000;

const MISSING: Why = Why(Code::NotFound, "there is no such entry");
const EXISTS: Why = Why(Code::AlreadyExists, "the name is taken");
const IS_DIRECTORY: Why = Why(Code::IsDirectory, "it is a directory");
const IS_FILE: Why = Why(Code::NotDirectory, "it is a file");

/// One version of a file, which never changes.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) mode: u32,
    pub(crate) mtime_ns: i64,
    /// No other version has it.
    pub(crate) number: u64,
}

/// Directories and files by their paths without a slash at either end. The root has no path, and
/// always exists.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The number of this place: no other one has it.
    device: u64,
    nodes: BTreeMap<Vec<u8>, Node>,
    root: Node,
    /// The number of the latest entry.
    latest: u64,
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    mode: u32,
    mtime_ns: i64,
    ctime_ns: i64,
    number: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Directory,
    File(Arc<Vec<u8>>),
}

impl Kind {
    fn is_directory(&self) -> bool {
        matches!(self, Self::Directory)
    }
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(i64::MAX)
}

/// The path as it is in the tree.
fn cleaned(path: &[u8]) -> Result<Vec<u8>, Why> {
    let names = path.split(|byte| *byte == b'/');
    let names: Vec<_> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    match names.contains(&&b".."[..]) {
        true => Err(Why(Code::InvalidArgument, "a path here has no '..'")),
        false => Ok(names.join(&b'/')),
    }
}

fn parent(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    &path[..slash.unwrap_or(0)]
}

/// The path relative to a directory above it.
fn beneath<'p>(path: &'p [u8], directory: &[u8]) -> Option<&'p [u8]> {
    match directory {
        b"" => Some(path),
        _ => path.strip_prefix(directory)?.strip_prefix(b"/"),
    }
}

impl Tree {
    pub(crate) fn new(number: u64) -> Self {
        let mut tree = Self {
            device: u64::MAX - number,
            nodes: BTreeMap::new(),
            root: Node {
                kind: Kind::Directory,
                mode: MODES[0],
                mtime_ns: 0,
                ctime_ns: 0,
                number: 0,
            },
            latest: 0,
        };
        tree.root = tree.made(Kind::Directory, None, None);
        tree
    }

    fn made(&mut self, kind: Kind, mode: Option<u32>, mtime_ns: Option<i64>) -> Node {
        self.latest += 1;
        let now = now_ns();
        Node {
            mode: mode.unwrap_or(MODES[usize::from(!kind.is_directory())]),
            kind,
            mtime_ns: mtime_ns.unwrap_or(now),
            ctime_ns: now,
            number: self.latest,
        }
    }

    /// The entry at a path of the tree.
    fn node(&self, path: &[u8]) -> Result<&Node, Why> {
        match path {
            b"" => Ok(&self.root),
            path => self.nodes.get(path).ok_or(MISSING),
        }
    }

    fn node_mut(&mut self, path: &[u8]) -> Result<&mut Node, Why> {
        match cleaned(path)?.as_slice() {
            b"" => Ok(&mut self.root),
            path => self.nodes.get_mut(path).ok_or(MISSING),
        }
    }

    fn directory(&self, path: &[u8]) -> Result<(), Why> {
        match self.node(path)?.kind {
            Kind::Directory => Ok(()),
            Kind::File(_) => Err(IS_FILE),
        }
    }

    /// The path of an entry that exists, and isn't the root.
    fn entry(&self, path: &[u8]) -> Result<Vec<u8>, Why> {
        let path = cleaned(path)?;
        self.node(&path)?;
        match path.is_empty() {
            true => Err(Why(Code::InvalidArgument, "the root stays")),
            false => Ok(path),
        }
    }

    /// The version of the file at a path.
    pub(crate) fn file(&self, path: &[u8]) -> Result<File, Why> {
        let node = self.node(&cleaned(path)?)?;
        match &node.kind {
            Kind::Directory => Err(IS_DIRECTORY),
            Kind::File(bytes) => Ok(File {
                bytes: Arc::clone(bytes),
                mode: node.mode,
                mtime_ns: node.mtime_ns,
                number: node.number,
            }),
        }
    }

    /// The path that a request is about, as it was written, and whether a file may be made there.
    pub(crate) fn target(&self, request: &SinkRequest) -> (Vec<u8>, Result<(), Why>) {
        let path = &request.path;
        let found = cleaned(path);
        let is_directory = match &found {
            Ok(found) => path.ends_with(b"/") || self.directory(found).is_ok(),
            Err(_) => false,
        };
        if !is_directory {
            return (path.clone(), self.free(path, request.overwrite).map(drop));
        }
        if request.name.is_empty() {
            return (path.clone(), Err(IS_DIRECTORY));
        }
        let slash: &[u8] = match path.is_empty() || path.ends_with(b"/") {
            true => b"",
            false => b"/",
        };
        let path = [path, slash, &request.name].concat();
        let free = self.free(&path, request.overwrite);
        (path, free.map(drop))
    }

    /// The path in the tree at which a file may be made.
    fn free(&self, path: &[u8], overwrite: bool) -> Result<Vec<u8>, Why> {
        let path = cleaned(path)?;
        self.directory(parent(&path))?;
        match self.node(&path).map(|node| node.kind.is_directory()) {
            Ok(true) => Err(IS_DIRECTORY),
            Ok(false) if !overwrite => Err(EXISTS),
            _ => Ok(path),
        }
    }

    /// Makes a file.
    pub(crate) fn publish(
        &mut self,
        path: &[u8],
        bytes: Vec<u8>,
        (mode, mtime_ns): (Option<u32>, Option<i64>),
        overwrite: bool,
    ) -> Result<(), Why> {
        let path = self.free(path, overwrite)?;
        let node = self.made(Kind::File(Arc::new(bytes)), mode, mtime_ns);
        self.nodes.insert(path, node);
        Ok(())
    }

    fn attributes(&self, node: &Node) -> Attributes {
        let (kind, size) = match &node.kind {
            Kind::Directory => (FileKind::Directory, 0),
            Kind::File(bytes) => (FileKind::File, bytes.len() as u64),
        };
        Attributes {
            kind,
            size,
            allocated: size,
            mode: node.mode,
            uid: 0,
            gid: 0,
            links: 1,
            device: self.device,
            inode: node.number,
            atime_ns: node.mtime_ns,
            mtime_ns: node.mtime_ns,
            ctime_ns: node.ctime_ns,
        }
    }

    pub(crate) fn call(&mut self, call: &Call) -> Result<Answer, Why> {
        match call {
            Call::Stat { path, .. } => {
                let node = self.node(&cleaned(path)?)?;
                return Ok(Answer::Attributes(self.attributes(node)));
            }
            Call::List {
                path,
                cursor,
                entries_max,
            } => return self.list(path, cursor, *entries_max),
            Call::MakeDirectory {
                path,
                mode,
                parents,
            } => self.make_directory(&cleaned(path)?, *mode, *parents)?,
            Call::RemoveFile { path } => {
                let path = self.entry(path)?;
                match self.directory(&path) {
                    Ok(()) => return Err(IS_DIRECTORY),
                    Err(_) => self.nodes.remove(&path),
                };
            }
            Call::RemoveDirectory { path } => {
                let path = self.entry(path)?;
                self.directory(&path)?;
                if self.nodes.keys().any(|other| parent(other) == path) {
                    return Err(Why(Code::NotEmpty, "it isn't empty"));
                }
                self.nodes.remove(&path);
            }
            Call::RemoveTree { path } => {
                let path = self.entry(path)?;
                self.directory(&path)?;
                let before = self.nodes.len();
                let is_kept = |other: &[u8]| other != path && beneath(other, &path).is_none();
                self.nodes.retain(|other, _| is_kept(other));
                let entries = (before - self.nodes.len()) as u64;
                return Ok(Answer::Removed { entries });
            }
            Call::Rename {
                from,
                to,
                overwrite,
            } => self.rename(from, to, *overwrite)?,
            Call::Copy {
                from,
                to,
                overwrite,
            } => {
                let File {
                    bytes,
                    mode,
                    mtime_ns,
                    ..
                } = self.file(from)?;
                let count = bytes.len() as u64;
                let to = self.free(to, *overwrite)?;
                let node = self.made(Kind::File(bytes), Some(mode), Some(mtime_ns));
                self.nodes.insert(to, node);
                return Ok(Answer::Copied { bytes: count });
            }
            Call::SetMode { path, mode } => {
                let node = self.node_mut(path)?;
                (node.mode, node.ctime_ns) = (*mode, now_ns());
            }
            Call::SetTimes { path, mtime_ns, .. } => {
                let node = self.node_mut(path)?;
                node.mtime_ns = mtime_ns.unwrap_or(node.mtime_ns);
                node.ctime_ns = now_ns();
            }
            Call::Sync { path } => {
                self.node(&cleaned(path)?)?;
            }
            _ => return Err(Why(Code::Unsupported, "a place in memory can't do it")),
        }
        Ok(Answer::Done)
    }

    fn list(&self, path: &[u8], cursor: &[u8], entries_max: u32) -> Result<Answer, Why> {
        let path = cleaned(path)?;
        self.directory(&path)?;
        let most = LISTED_MAX.min(entries_max as usize);
        let mut entries = Vec::new();
        let mut is_cut = false;
        for (other, node) in &self.nodes {
            let name = match beneath(other, &path) {
                Some(name) if !name.contains(&b'/') && name > cursor => name,
                _ => continue,
            };
            is_cut = entries.len() >= most;
            if is_cut {
                break;
            }
            entries.push(Entry {
                name: name.to_vec(),
                attributes: self.attributes(node),
            });
        }
        let last = entries.last().filter(|_| is_cut);
        let cursor = last.map(|entry| entry.name.clone());
        Ok(Answer::Entries { entries, cursor })
    }

    fn make_directory(&mut self, path: &[u8], mode: Option<u32>, parents: bool) -> Result<(), Why> {
        match self.node(path).map(|node| node.kind.is_directory()) {
            Ok(true) if parents => return Ok(()),
            Ok(true) => return Err(EXISTS),
            Ok(false) => return Err(if parents { IS_FILE } else { EXISTS }),
            Err(_) => {}
        }
        let above = parent(path);
        match self.directory(above) {
            Err(Why(Code::NotFound, _)) if parents => self.make_directory(above, None, true)?,
            above => above?,
        }
        let node = self.made(Kind::Directory, mode, None);
        self.nodes.insert(path.to_vec(), node);
        Ok(())
    }

    fn rename(&mut self, from: &[u8], to: &[u8], overwrite: bool) -> Result<(), Why> {
        let (from, to) = (self.entry(from)?, cleaned(to)?);
        if from == to {
            return Ok(());
        }
        let is_directory = self.directory(&from).is_ok();
        self.directory(parent(&to))?;
        if beneath(&to, &from).is_some() {
            let cause = "a directory can't be moved into itself";
            return Err(Why(Code::InvalidArgument, cause));
        }
        match (
            self.node(&to).map(|node| node.kind.is_directory()),
            is_directory,
        ) {
            (Err(_), _) => {}
            (Ok(_), _) if !overwrite => return Err(EXISTS),
            (Ok(true), false) => return Err(IS_DIRECTORY),
            (Ok(false), true) => return Err(IS_FILE),
            (Ok(true), true) if self.nodes.keys().any(|other| parent(other) == to) => {
                return Err(Why(Code::NotEmpty, "it isn't empty"));
            }
            _ => {}
        }
        let is_moved = |path: &[u8]| path == from || beneath(path, &from).is_some();
        let moved: Vec<_> = self
            .nodes
            .extract_if(.., |path, _| is_moved(path))
            .collect();
        let renamed = moved
            .into_iter()
            .map(|(path, node)| ([&to, &path[from.len()..]].concat(), node));
        self.nodes.extend(renamed);
        Ok(())
    }
}
