//! A tree in one file as a place, from which it is copied as from any other.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use xdfs_proto::pack::{Content, Entry, PackReader, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Attributes, Call, Entry as Named, FileKind};
use xdfs_proto::tree_file::{TREE_HEADER_BYTES, TreeHeader};
use xdfs_proto::{Code, Fault, Limits, SourceTag};
use xdfs_store::{Place, Source, SourceInfo, Store, Traits};

use crate::address::Address;
use crate::remote::RemotePlace;
use crate::scheme::{LoginBy, OpenPlace, Opening, Paths, PlaceRequest, RegisteredScheme, Scheme};
use crate::security::Level;

const READ: &str = "read the tree";
/// Entries of one part of a listing, at most.
const LISTED_MAX: usize = 4096;

/// The scheme, which isn't registered, and which no URL names.
static SCHEME: TreeScheme = TreeScheme;

/// Opens the file anew: each reader of a part has a source of its own.
pub(super) type OpenFile = dyn Fn() -> Box<dyn Source> + Send + Sync;

/// An entry of the tree.
#[derive(Debug)]
struct Node {
    name: Box<[u8]>,
    kind: FileKind,
    /// The entry in the index.
    entry: Range<usize>,
    /// The content in the file.
    at: u64,
    size: u64,
    /// The node of the first name of a file with several; else this one.
    first: usize,
    links: u64,
    /// The entries of a directory, sorted by name.
    children: Vec<usize>,
}

/// The index of a tree in one file.
pub(super) struct TreeFile {
    pub(super) header: TreeHeader,
    index: Vec<u8>,
    nodes: Vec<Node>,
    open: Box<OpenFile>,
    /// By which files of this tree are recognised.
    mark: u128,
}

impl fmt::Debug for TreeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeFile")
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

fn malformed(cause: &str) -> Fault {
    Fault::new(Code::MalformedFrame, READ, cause)
}

fn read_all(source: &mut dyn Source, mut at: u64, mut buf: &mut [u8]) -> Result<(), Fault> {
    while !buf.is_empty() {
        match source.read_at(at, buf)? {
            0 => return Err(malformed("it is shorter than it says")),
            read => {
                at += read as u64;
                buf = &mut buf[read..];
            }
        }
    }
    Ok(())
}

impl TreeFile {
    /// Reads the index of a file of so many bytes.
    ///
    /// # Errors
    /// It can't be read, or is no tree.
    pub(super) fn open(open: Box<OpenFile>, bytes: u64, mark: u128) -> Result<Self, Fault> {
        let mut source = open();
        let mut header = [0; TREE_HEADER_BYTES];
        if bytes < header.len() as u64 {
            return Err(malformed("it is too short"));
        }
        read_all(&mut *source, 0, &mut header)?;
        let header = TreeHeader::decode(&header)?;
        let begin = TREE_HEADER_BYTES as u64 + header.index_bytes;
        if begin > bytes {
            return Err(malformed("its index is longer than all of it"));
        }
        // Bounded by the header.
        let length = usize::try_from(header.index_bytes).unwrap_or(usize::MAX);
        let mut index = vec![0; length];
        read_all(&mut *source, TREE_HEADER_BYTES as u64, &mut index)?;
        let (nodes, end) = nodes_of(&index, begin)?;
        if end != bytes {
            return Err(malformed("its files have another length than all of it"));
        }
        Ok(Self {
            header,
            index,
            nodes,
            open,
            mark,
        })
    }

    /// The place that has it, and the setting of sessions with that.
    pub(super) fn place(self: &Arc<Self>) -> (RemotePlace, TreeSetting) {
        let place = RemotePlace {
            user: None,
            address: Address::Place {
                scheme: RegisteredScheme::new(&SCHEME),
                host: format!("{:032x}", self.mark),
                port: None,
            },
            stack: None,
            path: b"/".to_vec(),
            invitation: Default::default(),
            profile: None,
        };
        (place, TreeSetting(Arc::clone(self)))
    }

    fn node(&self, path: &[u8]) -> Result<usize, Fault> {
        let mut at = 0;
        let names = path.split(|byte| *byte == b'/');
        for name in names.filter(|name| !name.is_empty()) {
            let children = &self.nodes[at].children;
            let found = children.binary_search_by(|child| (*self.nodes[*child].name).cmp(name));
            let found = found.map_err(|_| {
                let cause = "there is no such entry";
                Fault::new(Code::NotFound, READ, cause).path(path)
            })?;
            at = children[found];
        }
        Ok(at)
    }

    /// The entry of a node in the index.
    fn entry<'a>(&'a self, node: &Node, limits: &'a Limits) -> Result<Entry<'a>, Fault> {
        let entry = PackReader::new(&self.index[node.entry.clone()], limits).next();
        let entry = entry.ok_or_else(|| malformed("an entry is missing"))?;
        entry.map_err(|error| malformed(&error.to_string()))
    }

    fn attributes(&self, number: usize) -> Result<Attributes, Fault> {
        let node = &self.nodes[self.nodes[number].first];
        let limits = Limits::default();
        let metadata = self.entry(node, &limits)?.metadata;
        let owner = metadata.owner;
        let mtime_ns = metadata.mtime_ns.unwrap_or(xdfs_proto::path::NO_TIME_NS);
        Ok(Attributes {
            kind: node.kind,
            size: node.size,
            allocated: node.size,
            mode: metadata.mode.unwrap_or_default().into(),
            uid: owner.map_or(0, |owner| owner.uid),
            gid: owner.map_or(0, |owner| owner.gid),
            links: node.links,
            device: self.mark as u64,
            inode: node.first as u64 + 1,
            atime_ns: metadata.atime_ns.unwrap_or(mtime_ns),
            mtime_ns,
            ctime_ns: mtime_ns,
        })
    }

    fn list(&self, path: &[u8], cursor: &[u8], entries_max: u32) -> Result<Answer, Fault> {
        let node = &self.nodes[self.node(path)?];
        if node.kind != FileKind::Directory {
            let cause = "it is no directory";
            return Err(Fault::new(Code::NotDirectory, READ, cause).path(path));
        }
        let children = &node.children;
        let from = children.partition_point(|child| *self.nodes[*child].name <= *cursor);
        let from = if cursor.is_empty() { 0 } else { from };
        let most = LISTED_MAX.min(entries_max as usize);
        let rest = &children[from..];
        let taken = &rest[..most.min(rest.len())];
        let entries = taken.iter().map(|child| {
            Ok(Named {
                name: self.nodes[*child].name.to_vec(),
                attributes: self.attributes(*child)?,
            })
        });
        let entries = entries.collect::<Result<Vec<_>, Fault>>()?;
        let last = entries.last().filter(|_| taken.len() < rest.len());
        let cursor = last.map(|entry| entry.name.clone());
        Ok(Answer::Entries { entries, cursor })
    }

    fn source(self: &Arc<Self>, path: &[u8]) -> Result<TreeSource, Fault> {
        let number = self.node(path)?;
        let node = &self.nodes[self.nodes[number].first];
        if node.kind != FileKind::File {
            let cause = "it is no file";
            return Err(Fault::new(Code::IsDirectory, READ, cause).path(path));
        }
        let attributes = self.attributes(number)?;
        let mark = self.mark.wrapping_add((node.first as u128) << 64);
        Ok(TreeSource {
            source: (self.open)(),
            at: node.at,
            info: SourceInfo {
                length: Some(node.size),
                tag: SourceTag(mark.to_be_bytes()),
                mode: Some(attributes.mode),
                mtime_ns: attributes.mtime(),
                random_reads: true,
                sparse: false,
            },
        })
    }

    /// Answers the request of a name; `false` if the pack has no room.
    fn grant(
        &self,
        root: &[u8],
        name: &[u8],
        most: u32,
        source: &mut dyn Source,
        pack: &mut PackWriter,
    ) -> Result<bool, Fault> {
        let node = &self.nodes[self.node(&[root, b"/", name].concat())?];
        let node = &self.nodes[node.first];
        let limits = Limits::default();
        let entry = self.entry(node, &limits)?;
        match entry.content {
            Content::Large(size) if size <= u64::from(most) => {
                // At most `most`.
                let length = usize::try_from(size).unwrap_or(usize::MAX);
                pack.file(name, &entry.metadata, length, |buf| {
                    read_all(source, node.at, buf).map(|()| length)
                })
            }
            _ => Ok(pack.entry(&Entry {
                path: name,
                ..entry
            })),
        }
    }
}

/// The nodes of an index, and where the contents end that begin at this offset.
fn nodes_of(index: &[u8], begin: u64) -> Result<(Vec<Node>, u64), Fault> {
    let limits = Limits::default();
    let mut reader = PackReader::new(index, &limits);
    let mut nodes: Vec<Node> = Vec::new();
    let mut by_path: HashMap<&[u8], usize> = HashMap::new();
    let (mut start, mut at) = (0, begin);
    while let Some(entry) = reader.next() {
        let entry = entry.map_err(|error| malformed(&error.to_string()))?;
        let end = index.len() - reader.remaining();
        let number = nodes.len();
        let (kind, size, first) = match entry.content {
            Content::Directory => (FileKind::Directory, 0, number),
            Content::Large(size) => (FileKind::File, size, number),
            Content::Symlink(target) => (FileKind::Symlink, target.len() as u64, number),
            Content::Fifo => (FileKind::Fifo, 0, number),
            Content::HardLink(existing) => {
                let first = by_path.get(existing).copied();
                let first = first.filter(|first| nodes[*first].kind == FileKind::File);
                let first = first.ok_or_else(|| malformed("a link leads to no file before it"))?;
                (FileKind::File, 0, nodes[first].first)
            }
            _ => return Err(malformed("an entry of another kind")),
        };
        let slash = entry.path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match slash {
            Some(slash) => (&entry.path[..slash], &entry.path[slash + 1..]),
            None => (&b""[..], entry.path),
        };
        if entry.path.is_empty() != nodes.is_empty() {
            return Err(malformed("its first entry has to be its only root"));
        }
        if !entry.path.is_empty() {
            let above = by_path.get(above).copied();
            let above = above.filter(|above| nodes[*above].kind == FileKind::Directory);
            let above = above.ok_or_else(|| malformed("an entry is in no directory before it"))?;
            nodes[above].children.push(number);
        } else if kind != FileKind::Directory {
            return Err(malformed("its root is no directory"));
        }
        if by_path.insert(entry.path, number).is_some() {
            return Err(malformed("two entries have one name"));
        }
        nodes.push(Node {
            name: name.into(),
            kind,
            entry: start..end,
            at,
            size,
            first,
            links: 1,
            children: Vec::new(),
        });
        if first != number {
            nodes[first].links += 1;
        }
        let next = at.checked_add(size);
        at = match kind {
            FileKind::File => next.ok_or_else(|| malformed("its files are too long"))?,
            _ => at,
        };
        start = end;
    }
    if nodes.is_empty() {
        return Err(malformed("it has no root"));
    }
    for number in 0..nodes.len() {
        let mut children = std::mem::take(&mut nodes[number].children);
        children.sort_by(|a, b| nodes[*a].name.cmp(&nodes[*b].name));
        nodes[number].children = children;
    }
    Ok((nodes, at))
}

/// The tree in the settings of a session.
#[derive(Clone, Debug)]
pub(super) struct TreeSetting(Arc<TreeFile>);

#[derive(Debug)]
struct TreeScheme;

impl Scheme for TreeScheme {
    fn name(&self) -> &'static str {
        // No registered scheme has a hyphen.
        "xdfs-parcel"
    }

    fn traits(&self) -> Traits {
        Traits {
            sessions: false,
            copies: false,
            ..Traits::FULL
        }
    }

    fn port(&self) -> Option<u16> {
        None
    }

    fn paths(&self) -> Paths {
        Paths::Root
    }

    fn login(&self) -> LoginBy {
        LoginBy::Nothing
    }

    fn check_level(&self, _: Level, _: &str) -> Result<(), Fault> {
        // No byte leaves the process.
        Ok(())
    }

    fn is_here(&self) -> bool {
        true
    }

    fn opening(&self) -> Opening<'_> {
        Opening::Place(self)
    }
}

impl OpenPlace for TreeScheme {
    fn open(&self, request: &PlaceRequest<'_>) -> Result<Arc<dyn Place>, Fault> {
        match request.settings.get::<TreeSetting>() {
            Some(TreeSetting(tree)) => Ok(Arc::new(TreePlace(Arc::clone(tree)))),
            None => {
                let cause = "the settings of the session have no tree";
                Err(Fault::new(Code::InvalidArgument, READ, cause))
            }
        }
    }
}

/// The store of the tree, which is only read.
#[derive(Debug)]
struct TreePlace(Arc<TreeFile>);

impl Place for TreePlace {}

impl Store for TreePlace {
    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(self.0.source(path)?))
    }

    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        let mut source = (self.0.open)();
        for name in &request.names {
            let most = request.file_bytes_max;
            if !self.0.grant(root, name, most, &mut *source, pack)? {
                break;
            }
        }
        Ok(())
    }

    fn call(
        &self,
        call: &Call,
        _: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let tree = &self.0;
        match call {
            Call::Stat { path, .. } => {
                let node = tree.node(path)?;
                Ok(Answer::Attributes(tree.attributes(node)?))
            }
            Call::List {
                path,
                cursor,
                entries_max,
            } => tree.list(path, cursor, *entries_max),
            Call::ReadLink { path } => {
                let limits = Limits::default();
                match tree.entry(&tree.nodes[tree.node(path)?], &limits)?.content {
                    Content::Symlink(target) => Ok(Answer::Target(target.to_vec())),
                    _ => {
                        let cause = "it is no symbolic link";
                        Err(Fault::new(Code::InvalidArgument, READ, cause).path(path))
                    }
                }
            }
            call => Err(xdfs_store::layer::no_names(call.operation(), call.path())),
        }
    }

    xdfs_store::defaults!(Store: is_slow, open_sink, check_sink, write_pack, packs_wait, open_file);
}

/// A file of the tree.
#[derive(Debug)]
struct TreeSource {
    source: Box<dyn Source>,
    at: u64,
    info: SourceInfo,
}

impl Source for TreeSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let left = self.info.length.unwrap_or(0).saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        match count {
            0 => Ok(0),
            count => self.source.read_at(self.at + offset, &mut buf[..count]),
        }
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory,
        is_uniform, shared);
}

#[cfg(test)]
mod tests {
    use xdfs_proto::pack::{Metadata, PACK_BYTES_MAX};

    use super::*;

    fn index(entries: &[(&str, Content<'_>)]) -> Vec<u8> {
        let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        for (path, content) in entries {
            assert!(pack.entry(&Entry {
                path: path.as_bytes(),
                metadata: Metadata::default(),
                content: content.clone(),
            }));
        }
        let (buffer, length) = pack.finish();
        buffer[..length].to_vec()
    }

    #[test]
    fn contents_follow_in_the_order_of_the_entries() {
        let entries = [
            ("", Content::Directory),
            ("b", Content::Large(7)),
            ("d", Content::Directory),
            ("d/a", Content::Large(u64::from(u32::MAX))),
            ("l", Content::HardLink(b"b")),
            ("a", Content::Symlink(b"anywhere")),
            ("z", Content::Large(1)),
        ];
        let (nodes, end) = nodes_of(&index(&entries), 100).unwrap();
        assert_eq!(end, 108 + u64::from(u32::MAX));
        let names: Vec<_> = nodes[0]
            .children
            .iter()
            .map(|child| &*nodes[*child].name)
            .collect();
        assert_eq!(names, [b"a", b"b", b"d", b"l", b"z"]);
        assert_eq!((nodes[3].at, nodes[3].size), (107, u32::MAX.into()));
        assert_eq!((nodes[4].first, nodes[1].links), (1, 2));
        assert_eq!(nodes[6].at, end - 1);
    }

    #[test]
    fn an_index_that_leads_elsewhere_is_refused() {
        let directory = || ("", Content::Directory);
        let wrong: [&[(&str, Content<'_>)]; 10] = [
            &[],
            &[("a", Content::Large(1))],
            &[directory(), directory()],
            &[directory(), ("a/b", Content::Large(1))],
            &[
                directory(),
                ("a", Content::Large(1)),
                ("a", Content::Large(1)),
            ],
            &[
                directory(),
                ("a", Content::Symlink(b"/")),
                ("a/b", Content::Large(1)),
            ],
            &[
                directory(),
                ("a", Content::HardLink(b"b")),
                ("b", Content::Large(1)),
            ],
            &[
                directory(),
                ("a", Content::Directory),
                ("b", Content::HardLink(b"a")),
            ],
            &[directory(), ("a", Content::File(b"x"))],
            &[directory(), ("a", Content::Large(u64::MAX))],
        ];
        for entries in wrong {
            let fault = nodes_of(&index(entries), 100).unwrap_err();
            assert_eq!(fault.code, Code::MalformedFrame, "{entries:?}");
        }
    }
}
