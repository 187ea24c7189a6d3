//! Names and contents, and what calls about paths do to them. A store has one, and so has a model
//! that its answers are compared with.

use std::collections::BTreeMap;

use xdfs_proto::file::FileFlags;
use xdfs_proto::path::{Answer, Attributes, Call, Entry, FileKind};
use xdfs_proto::{Code, Fault};

/// Files and directories by their paths, which begin with `/`. Names are durable at once, contents
/// when they are synchronised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<Vec<u8>, Node>,
    contents: BTreeMap<u64, Content>,
    latest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File(u64),
}

/// What a file has, whatever its names are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// What who reads it sees.
    pub bytes: Vec<u8>,
    /// What is left of it after a power cut.
    pub durable: Vec<u8>,
}

fn parent(path: &[u8]) -> &[u8] {
    let at = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &path[..at]
}

fn is_beneath(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.first() == Some(&b'/'))
}

impl Tree {
    /// The content of a file, durable or not.
    #[must_use]
    pub fn get(&self, path: &[u8]) -> Option<&Content> {
        match self.node(path)? {
            Node::Directory => None,
            Node::File(number) => self.contents.get(&number),
        }
    }

    /// Puts a file there, in place of what was there, with the directories above it.
    pub fn put(&mut self, path: &[u8], content: Content) {
        let mut above = parent(path);
        while !above.is_empty() {
            self.nodes.entry(above.to_vec()).or_insert(Node::Directory);
            above = parent(above);
        }
        let number = self.add(content);
        self.nodes.insert(path.to_vec(), Node::File(number));
    }

    /// Paths beneath a directory, with the content of those that are files.
    #[must_use]
    pub fn beneath(&self, directory: &[u8]) -> BTreeMap<Vec<u8>, Option<&Content>> {
        let nodes = self
            .nodes
            .iter()
            .filter(|(path, _)| is_beneath(path, directory));
        let content = |node: &Node| match node {
            Node::Directory => None,
            Node::File(number) => self.contents.get(number),
        };
        nodes
            .map(|(path, node)| (path.clone(), content(node)))
            .collect()
    }

    /// A file by the number that [`Self::open`] told.
    #[must_use]
    pub fn content(&mut self, number: u64) -> &mut Content {
        self.contents.entry(number).or_default()
    }

    /// Contents are as they were when they were synchronised last.
    pub fn crash(&mut self) {
        for content in self.contents.values_mut() {
            content.bytes.clone_from(&content.durable);
        }
    }

    /// Bytes of all files that have a name.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let files = self.nodes.values().filter_map(|node| match node {
            Node::Directory => None,
            Node::File(number) => self.contents.get(number),
        });
        files.map(|content| content.bytes.len() as u64).sum()
    }

    /// Opens a file in place: its number, and whether it was made.
    ///
    /// # Errors
    /// Why it can't be opened so.
    pub fn open(&mut self, path: &[u8], flags: &FileFlags) -> Result<(u64, bool), Fault> {
        let fault = |code, cause: &str| Fault::new(code, "open", cause).path(path);
        match self.node(path) {
            Some(Node::Directory) => Err(fault(Code::IsDirectory, "it is a directory")),
            Some(Node::File(_)) if flags.exclusive => Err(fault(Code::AlreadyExists, "it exists")),
            Some(Node::File(number)) => {
                if flags.truncate {
                    self.content(number).bytes.clear();
                }
                Ok((number, false))
            }
            None if flags.create => {
                self.directory(parent(path))
                    .map_err(|code| fault(code, "no directory"))?;
                let number = self.add(Content::default());
                self.nodes.insert(path.to_vec(), Node::File(number));
                Ok((number, true))
            }
            None => Err(fault(Code::NotFound, "no such file")),
        }
    }

    /// Answers a call about paths; a listing all at once.
    ///
    /// # Errors
    /// Why it can't be done; nothing is done then.
    pub fn call(&mut self, call: &Call) -> Result<Answer, Fault> {
        self.carry_out(call).map_err(|code| {
            Fault::new(code, call.operation(), format!("{code} in the simulation"))
                .path(call.path())
        })
    }

    fn carry_out(&mut self, call: &Call) -> Result<Answer, Code> {
        match call {
            Call::Stat { path, .. } => {
                let node = self.node(path).ok_or(Code::NotFound)?;
                return Ok(Answer::Attributes(self.attributes(node)));
            }
            Call::List { path, .. } => {
                self.directory(path)?;
                let nodes = self.nodes.iter().filter(|(other, _)| parent(other) == path);
                let entry = |(other, node): (&Vec<u8>, &Node)| Entry {
                    name: other[path.len() + 1..].to_vec(),
                    attributes: self.attributes(*node),
                };
                return Ok(Answer::Entries {
                    entries: nodes.map(entry).collect(),
                    cursor: None,
                });
            }
            Call::MakeDirectory { path, parents, .. } => match self.node(path) {
                Some(Node::Directory) if *parents => {}
                Some(_) => return Err(Code::AlreadyExists),
                None if *parents => {
                    let mut missing = Vec::new();
                    let mut above = path.as_slice();
                    while !above.is_empty() && self.node(above).is_none() {
                        missing.push(above.to_vec());
                        above = parent(above);
                    }
                    self.directory(above)?;
                    let made = missing.into_iter().map(|path| (path, Node::Directory));
                    self.nodes.extend(made);
                }
                None => {
                    self.directory(parent(path))?;
                    self.nodes.insert(path.clone(), Node::Directory);
                }
            },
            Call::RemoveFile { path } => match self.node(path).ok_or(Code::NotFound)? {
                Node::Directory => return Err(Code::IsDirectory),
                Node::File(_) => drop(self.nodes.remove(path)),
            },
            Call::RemoveDirectory { path } => {
                self.directory(path)?;
                if !self.beneath(path).is_empty() {
                    return Err(Code::NotEmpty);
                }
                self.nodes.remove(path);
            }
            Call::RemoveTree { path } => {
                self.directory(path)?;
                let before = self.nodes.len();
                self.nodes
                    .retain(|other, _| other != path && !is_beneath(other, path));
                let entries = (before - self.nodes.len()) as u64;
                return Ok(Answer::Removed { entries });
            }
            Call::Rename {
                from,
                to,
                overwrite,
            } => {
                let node = self.node(from).ok_or(Code::NotFound)?;
                self.directory(parent(to))?;
                if is_beneath(to, from) {
                    return Err(Code::InvalidArgument);
                }
                match (self.node(to), node) {
                    _ if from == to => return Ok(Answer::Done),
                    (Some(_), _) if !overwrite => return Err(Code::AlreadyExists),
                    (Some(Node::Directory), Node::File(_)) => return Err(Code::IsDirectory),
                    (Some(Node::File(_)), Node::Directory) => return Err(Code::NotDirectory),
                    (Some(Node::Directory), _) if !self.beneath(to).is_empty() => {
                        return Err(Code::NotEmpty);
                    }
                    _ => {}
                }
                let is_moved = |path: &[u8]| path == from || is_beneath(path, from);
                let moved = self.nodes.extract_if(.., |path, _| is_moved(path));
                let renamed: Vec<_> = moved
                    .map(|(path, node)| ([to, &path[from.len()..]].concat(), node))
                    .collect();
                self.nodes.extend(renamed);
            }
            Call::Copy {
                from,
                to,
                overwrite,
            } => {
                let content = match self.node(from).ok_or(Code::NotFound)? {
                    Node::Directory => return Err(Code::IsDirectory),
                    Node::File(number) => self.content(number).bytes.clone(),
                };
                self.directory(parent(to))?;
                match self.node(to) {
                    Some(_) if !overwrite => return Err(Code::AlreadyExists),
                    Some(Node::Directory) => return Err(Code::IsDirectory),
                    _ => {}
                }
                let bytes = content.len() as u64;
                let number = self.add(Content::of(content));
                self.nodes.insert(to.clone(), Node::File(number));
                return Ok(Answer::Copied { bytes });
            }
            Call::Sync { path } => drop(self.node(path).ok_or(Code::NotFound)?),
            _ => return Err(Code::Unsupported),
        }
        Ok(Answer::Done)
    }

    fn node(&self, path: &[u8]) -> Option<Node> {
        match path {
            b"" | b"/" => Some(Node::Directory),
            path => self.nodes.get(path).copied(),
        }
    }

    fn directory(&self, path: &[u8]) -> Result<(), Code> {
        match self.node(path) {
            Some(Node::Directory) => Ok(()),
            Some(Node::File(_)) => Err(Code::NotDirectory),
            None => Err(Code::NotFound),
        }
    }

    fn add(&mut self, content: Content) -> u64 {
        self.latest += 1;
        self.contents.insert(self.latest, content);
        self.latest
    }

    fn attributes(&self, node: Node) -> Attributes {
        let (kind, size) = match node {
            Node::Directory => (FileKind::Directory, 0),
            Node::File(number) => (FileKind::File, self.contents[&number].bytes.len() as u64),
        };
        attributes(kind, size)
    }
}

/// What is known of a file or a directory.
pub(super) fn attributes(kind: FileKind, size: u64) -> Attributes {
    Attributes {
        kind,
        size,
        allocated: size,
        mode: 0o644,
        uid: 0,
        gid: 0,
        links: 1,
        device: 1,
        inode: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
    }
}

impl Content {
    /// Bytes that are durable.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        Self {
            durable: bytes.clone(),
            bytes,
        }
    }

    /// Writes, and fills a gap before it with zeros.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset as usize..end].copy_from_slice(bytes);
    }

    /// What there is from `offset` on, at most `length` bytes.
    #[must_use]
    pub fn read(&self, offset: u64, length: usize) -> &[u8] {
        let start = self.bytes.len().min(offset as usize);
        let end = self.bytes.len().min(start + length);
        &self.bytes[start..end]
    }

    /// Makes it durable.
    pub fn sync(&mut self) {
        self.durable.clone_from(&self.bytes);
    }
}
