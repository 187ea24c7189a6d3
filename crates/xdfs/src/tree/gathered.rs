//! A tree of this machine as one file, which is made while it is read: its index is in memory, and
//! its files are opened one after the other.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use xdfs_proto::pack::{Content, Entry, Metadata, PACK_BYTES_MAX, PackReader, PackWriter};
use xdfs_proto::tree_file::{TREE_INDEX_BYTES_MAX, TreeHeader};
use xdfs_proto::{Code, Fault, Limits, SourceTag};
use xdfs_store::{Added, LocalStore, Source, SourceInfo, Store as _};

use super::TreeOptions;
use super::namespace::{FoundName, Namespace, check_length};
use crate::local_path::path_bytes;
use crate::made_file::{MadeFile, MakeFile};
use crate::paths::{FileKind, join};

const OPERATION: &str = "read the tree";
/// Entries of one request for their metadata.
const NAMES_MAX: usize = 256;

/// A file of the tree, with content.
struct GatheredFile {
    path: Box<[u8]>,
    /// Where its content begins in the whole.
    at: u64,
    size: u64,
    mtime_ns: Option<i64>,
}

/// A tree of this machine as one file, as it was when it was listed. Cheap to clone.
#[derive(Clone)]
pub struct GatheredTree(Arc<Gathered>);

struct Gathered {
    root: Vec<u8>,
    /// Header and index.
    head: Vec<u8>,
    files: Vec<GatheredFile>,
    entries: u64,
    bytes: u64,
    tag: SourceTag,
}

impl GatheredTree {
    /// Lists the tree at a local path, with the metadata and without the entries of which these
    /// options say so.
    ///
    /// # Errors
    /// An entry can't be read: what goes away as a whole is whole.
    pub fn list(root: &Path, options: &TreeOptions) -> Result<Self, Fault> {
        let source = Namespace::local(path_bytes(root)).following(options.follow_links);
        let mut listing = Listing {
            store: LocalStore::unrooted(),
            source: &source,
            options,
            index: Vec::new(),
            files: Vec::new(),
            entries: 0,
            content: 0,
            first_names: HashMap::new(),
        };
        listing.directory(Vec::new())?;
        let mut unlisted = vec![Vec::new()];
        while let Some(directory) = unlisted.pop() {
            listing.list(&directory, &mut unlisted)?;
        }
        let Listing {
            index,
            mut files,
            entries,
            content,
            ..
        } = listing;
        let header = TreeHeader {
            keep: options.keep(),
            hard_links: options.hard_links,
            index_bytes: index.len() as u64,
        };
        let head = [&header.encode()[..], &index].concat();
        for file in &mut files {
            file.at += head.len() as u64;
        }
        let mut tag = [0; 16];
        tag.copy_from_slice(&blake3::hash(&head).as_bytes()[..16]);
        Ok(Self(Arc::new(Gathered {
            root: source.root().to_vec(),
            bytes: head.len() as u64 + content,
            head,
            files,
            entries,
            tag: SourceTag(tag),
        })))
    }

    /// Its length as one file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The number of its entries, with the root.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.0.entries
    }

    /// It as a file.
    #[must_use]
    pub fn file(&self) -> MadeFile {
        MadeFile::new(Arc::new(self.clone()))
    }
}

impl MakeFile for GatheredTree {
    fn path(&self) -> &[u8] {
        &self.0.root
    }

    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    fn tag(&self) -> SourceTag {
        self.0.tag
    }

    fn open(&self) -> Box<dyn Source> {
        Box::new(GatheredSource {
            info: SourceInfo {
                length: Some(self.0.bytes),
                tag: self.0.tag,
                mode: None,
                mtime_ns: None,
                random_reads: true,
                sparse: false,
            },
            tree: self.clone(),
            open: None,
        })
    }
}

impl fmt::Debug for GatheredTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatheredTree")
            .field("root", &self.0.root.escape_ascii().to_string())
            .field("bytes", &self.0.bytes)
            .finish_non_exhaustive()
    }
}

struct Listing<'a> {
    store: LocalStore,
    source: &'a Namespace<'a>,
    options: &'a TreeOptions,
    index: Vec<u8>,
    files: Vec<GatheredFile>,
    entries: u64,
    /// Length of all contents so far.
    content: u64,
    /// The first names of files with several.
    first_names: HashMap<(u64, u64), Vec<u8>>,
}

impl Listing<'_> {
    /// Adds the entries of a directory.
    fn list(&mut self, directory: &[u8], unlisted: &mut Vec<Vec<u8>>) -> Result<(), Fault> {
        let mut names = Vec::new();
        for found in self.source.entries(directory) {
            let found = found?;
            if self.leaves_out(&found) {
                continue;
            }
            if let Some(fault) = found.fault {
                return Err(*fault);
            }
            check_length(&found.path)?;
            if found.is_directory {
                unlisted.push(found.path.clone());
            }
            names.push(found);
        }
        names.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        for some in names.chunks(NAMES_MAX) {
            self.add(some)?;
        }
        Ok(())
    }

    fn leaves_out(&self, found: &FoundName) -> bool {
        let filter = &self.options.filter;
        let is_limited = filter.has_limits() && !found.is_directory;
        filter.leaves_out(&found.path, found.is_directory)
            || is_limited
                && self.source.attributes(found).is_some_and(|found| {
                    let time = found.mtime();
                    self.options.is_beyond_limits(&found, time)
                })
    }

    /// Adds the directory itself.
    fn directory(&mut self, path: Vec<u8>) -> Result<(), Fault> {
        let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        let root = self.source.root();
        let keep = self.options.keep();
        let mut builder = self.store.pack_builder(root, keep, 0)?;
        builder = builder.following(self.options.follow_links);
        match builder.add_attributes(&path, &mut pack) {
            Added::Failed(fault) => return Err(fault),
            Added::Done | Added::Large(_) | Added::Full => {}
        }
        let (buffer, length) = pack.finish();
        let limits = Limits::default();
        let metadata = match PackReader::new(&buffer[..length], &limits).next() {
            Some(Ok(entry)) => entry.metadata,
            _ => Metadata::default(),
        };
        self.push(&Entry {
            path: &path,
            metadata,
            content: Content::Directory,
        })
    }

    fn push(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        let fits = pack.entry(entry);
        let (buffer, length) = pack.finish();
        let end = self.index.len() + length;
        if !fits || end as u64 > TREE_INDEX_BYTES_MAX {
            let cause = "the tree has too many entries to go as one file";
            let fault = Fault::new(Code::LimitExceeded, OPERATION, cause);
            let hint = "leave its parts one by one, or pack it with tar";
            return Err(fault.path(self.source.root()).hint(hint));
        }
        self.index.extend_from_slice(&buffer[..length]);
        self.entries += 1;
        Ok(())
    }

    /// Adds entries with their metadata.
    fn add(&mut self, names: &[FoundName]) -> Result<(), Fault> {
        let mut rest = names;
        while !rest.is_empty() {
            let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
            let keep = self.options.keep();
            let builder = self.store.pack_builder(self.source.root(), keep, 0)?;
            let mut builder = builder.following(self.options.follow_links);
            let paths: Vec<_> = rest.iter().map(|found| found.path.clone()).collect();
            builder.grant(&paths, &mut pack);
            let (buffer, length) = pack.finish();
            let limits = Limits::default();
            let mut count = 0;
            for (entry, found) in PackReader::new(&buffer[..length], &limits).zip(rest) {
                let entry = entry.map_err(|error| {
                    Fault::new(Code::Internal, OPERATION, error.to_string()).path(&found.path)
                })?;
                self.add_entry(entry, found)?;
                count += 1;
            }
            if count == 0 {
                let cause = "its metadata is too long";
                let path = join(self.source.root(), &rest[0].path);
                return Err(Fault::new(Code::LimitExceeded, OPERATION, cause).path(path));
            }
            rest = &rest[count..];
        }
        Ok(())
    }

    fn add_entry(&mut self, entry: Entry<'_>, found: &FoundName) -> Result<(), Fault> {
        let size = match entry.content {
            Content::File(_) => Some(0),
            Content::Large(size) => Some(size),
            Content::Failed(fault) => return Err(fault),
            _ => None,
        };
        let is_same = (entry.content == Content::Directory) == found.is_directory;
        if !is_same {
            let path = join(self.source.root(), &found.path);
            let cause = "it has changed while the tree was listed";
            return Err(Fault::new(Code::SourceChanged, OPERATION, cause).path(path));
        }
        let Some(size) = size else {
            return self.push(&entry);
        };
        if let Some(first) = self.first_name(found) {
            return self.push(&Entry {
                content: Content::HardLink(&first),
                metadata: Metadata::default(),
                ..entry
            });
        }
        if size > 0 {
            self.files.push(GatheredFile {
                path: entry.path.into(),
                at: self.content,
                size,
                mtime_ns: entry.metadata.mtime_ns,
            });
        }
        self.content = self.content.saturating_add(size);
        self.push(&Entry {
            metadata: Metadata {
                sparse: false,
                ..entry.metadata
            },
            content: Content::Large(size),
            ..entry
        })
    }

    /// The first name of a file with several, if this is a further one.
    fn first_name(&mut self, found: &FoundName) -> Option<Vec<u8>> {
        if !self.options.hard_links {
            return None;
        }
        let own = self.source.attributes(found)?;
        if own.links < 2 || own.kind != FileKind::File {
            return None;
        }
        let file = (own.device, own.inode);
        let first = self.first_names.entry(file);
        let first = first.or_insert_with(|| found.path.clone());
        (*first != found.path).then(|| first.clone())
    }
}

/// The whole as it is read.
#[derive(Debug)]
struct GatheredSource {
    tree: GatheredTree,
    info: SourceInfo,
    /// The file that was read last, by its number.
    open: Option<(usize, Box<dyn Source>)>,
}

impl GatheredSource {
    /// The file whose content has this byte.
    fn file_at(&self, offset: u64) -> Option<usize> {
        let files = &self.tree.0.files;
        let after = files.partition_point(|file| file.at <= offset);
        let file = after.checked_sub(1)?;
        (offset < files[file].at + files[file].size).then_some(file)
    }

    fn changed(&self, file: &GatheredFile) -> Fault {
        let path = join(&self.tree.0.root, &file.path);
        let cause = "it has changed since the tree was listed";
        Fault::new(Code::SourceChanged, "read", cause).path(path)
    }

    /// Opens a file, which has to be as it was listed.
    fn open(&mut self, number: usize) -> Result<&mut dyn Source, Fault> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            if let Some((_, mut before)) = self.open.take() {
                before.verify_unchanged()?;
            }
            let file = &self.tree.0.files[number];
            let path = join(&self.tree.0.root, &file.path);
            let source = LocalStore::unrooted().open_source(&path)?;
            let info = source.info();
            if info.length != Some(file.size) || info.mtime_ns != file.mtime_ns {
                return Err(self.changed(file));
            }
            self.open = Some((number, source));
        }
        match &mut self.open {
            Some((_, source)) => Ok(&mut **source),
            None => Err(Fault::new(Code::Internal, "read", "no file is open")),
        }
    }
}

impl Source for GatheredSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let rest = &mut buf[done..];
            let head = &self.tree.0.head;
            if let Some(head) = usize::try_from(at).ok().and_then(|at| head.get(at..))
                && !head.is_empty()
            {
                let count = head.len().min(rest.len());
                rest[..count].copy_from_slice(&head[..count]);
                done += count;
                continue;
            }
            let Some(number) = self.file_at(at) else {
                break;
            };
            let (begin, size) = {
                let file = &self.tree.0.files[number];
                (file.at, file.size)
            };
            let left = usize::try_from(begin + size - at).unwrap_or(usize::MAX);
            let count = left.min(rest.len());
            let read = self.open(number)?.read_at(at - begin, &mut rest[..count])?;
            if read == 0 {
                return Err(self.changed(&self.tree.0.files[number]));
            }
            done += read;
        }
        Ok(done)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        match &mut self.open {
            Some((_, source)) => source.verify_unchanged(),
            None => Ok(()),
        }
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory,
        is_uniform, shared);
}
