//! Reads entries into packs.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use xdfs_proto::pack::{Content, Entry, Metadata, Owner, PackWriter, Preserve, Xattr, is_path};
use xdfs_proto::path::Attributes;
use xdfs_proto::{Code, Fault, Limits};
use xdfs_sys::fs::{self, Dir, FileKind, Meta, ResolveError};

use super::super::calls::{self, Paths};
use super::super::owners::OwnerNames;
use super::super::path;
use super::super::source::{difference, grain, unsettled_for};
use super::super::store::LocalStore;
use super::dirs::Dirs;
use super::metadata::{SET_ID, is_carried};
use super::{Problem, check_name, shown, split};

const OPERATION: &str = "read";
/// Attempts to read a changing file.
const ATTEMPTS: u32 = 4;

/// Adds entries beneath a directory to packs, by name.
///
/// A small file costs five system calls: open, stat, read, stat and close. As for single files, a
/// file modified a moment ago must settle first: another change within the same clock tick would
/// not change its times. One wait settles all files modified before it, so each pack waits at most
/// once. A file modified after that counts as changing, and is retried by the requester at the end.
#[derive(Debug)]
pub struct PackBuilder {
    root: Vec<u8>,
    dirs: Dirs,
    store: LocalStore,
    /// Links are followed, those on the way to a name too.
    follow: bool,
    keep: Preserve,
    file_bytes_max: u64,
    owners: OwnerNames,
    limits: Limits,
    /// The last entry has set-user-id or set-group-id, which it will lose.
    is_special: bool,
    unkept: u64,
    /// The current pack has waited for files to settle.
    has_waited: bool,
    /// Number of entries in the current pack.
    entries: u32,
}

/// The result of adding a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// Added to the pack.
    Done,
    /// A file that is too large for a pack, or for the room in this one.
    Large(Attributes),
    /// The pack has no room for it; the next one will.
    Full,
    /// It can't be read.
    Failed(Fault),
}

/// Where an entry is opened.
enum Place<'a> {
    /// Under a name in a directory; a link isn't followed.
    Name(Arc<Dir>, &'a [u8]),
    /// At the end of all links from a path in the store.
    Behind(LocalStore, Vec<u8>),
}

/// An entry with its attributes.
struct FoundEntry<'a> {
    path: &'a [u8],
    meta: Meta,
    xattrs: Vec<fs::Xattr>,
}

impl PackBuilder {
    /// Opens the directory `root` of a store, to add entries beneath it: files of up to
    /// `file_bytes_max` bytes, with modification time, mode, and the metadata to be preserved.
    pub(in super::super) fn open(
        store: &LocalStore,
        root: &[u8],
        keep: Preserve,
        file_bytes_max: u32,
    ) -> Result<Self, Fault> {
        let paths = Paths { store };
        paths.check(root).map_err(|mut fault| {
            fault.operation = OPERATION.into();
            fault
        })?;
        let base = paths.enter(root);
        let base = base.map_err(|error| path::resolve_fault(OPERATION, root, &error))?;
        Ok(Self {
            root: root.to_vec(),
            dirs: Dirs::new(base),
            store: store.clone(),
            follow: false,
            keep,
            file_bytes_max: file_bytes_max.into(),
            owners: OwnerNames::default(),
            limits: Limits::default(),
            is_special: false,
            unkept: 0,
            has_waited: false,
            entries: 0,
        })
    }

    /// The same builder; with `follow` it adds what symbolic links lead to instead of the links,
    /// those on the way to a name too. They lead as far as in any other path of the store.
    #[must_use]
    pub fn following(mut self, follow: bool) -> Self {
        self.follow = follow;
        self
    }

    /// Adds the entry at a path beneath the directory. Hard links are added as separate files.
    pub fn add(&mut self, path: &[u8], pack: &mut PackWriter) -> Added {
        let added = match self.try_add(path, pack) {
            Ok(Some(large)) => Added::Large(calls::attributes(&large.meta)),
            Ok(None) => Added::Done,
            Err(NotAdded::Full) => Added::Full,
            Err(NotAdded::Problem(problem)) => Added::Failed(self.fault(path, problem)),
        };
        let is_added = matches!(added, Added::Done | Added::Large(_));
        self.unkept += u64::from(is_added && self.is_special);
        added
    }

    /// Number of files added without set-user-id and set-group-id, since owners aren't preserved.
    #[must_use]
    pub fn unkept(&self) -> u64 {
        self.unkept
    }

    /// Adds an entry's metadata without its content: [`Added::Done`], [`Added::Full`] or
    /// [`Added::Failed`].
    pub fn add_attributes(&mut self, path: &[u8], pack: &mut PackWriter) -> Added {
        match self.try_add_attributes(path, pack) {
            Ok(()) => Added::Done,
            Err(NotAdded::Full) => Added::Full,
            Err(NotAdded::Problem(problem)) => Added::Failed(self.fault(path, problem)),
        }
    }

    /// Answers a request as far as the pack has room: one entry per name, in order.
    pub fn grant(&mut self, names: &[Vec<u8>], pack: &mut PackWriter) {
        for name in names {
            if !self.grant_one(name, pack, Ok(()), &|fault| fault) {
                return;
            }
        }
    }

    /// Adds the entry that answers the request of a name, including one for a file that is too
    /// large, and one for a name that can't be read or isn't `allowed`; `see` may rewrite the
    /// fault. `false` if the pack has no room.
    #[must_use]
    pub fn grant_one(
        &mut self,
        path: &[u8],
        pack: &mut PackWriter,
        allowed: Result<(), Fault>,
        see: &dyn Fn(Fault) -> Fault,
    ) -> bool {
        let fault = match allowed {
            Err(fault) => fault,
            Ok(()) => match self.try_add(path, pack) {
                Ok(None) => return true,
                Ok(Some(large)) => {
                    let size = large.meta.length;
                    return pack.entry(&Entry {
                        path,
                        metadata: self.metadata(&large.meta, &large.xattrs),
                        content: Content::Large(size),
                    });
                }
                Err(NotAdded::Full) => return false,
                Err(NotAdded::Problem(problem)) => self.fault(path, problem),
            },
        };
        pack.entry(&Entry {
            path,
            metadata: Metadata::default(),
            content: Content::Failed(see(fault)),
        })
    }

    fn fault(&self, path: &[u8], problem: Problem) -> Fault {
        let mut fault = *problem.fault;
        fault.operation = OPERATION.into();
        fault.path(shown(&self.root, path))
    }

    fn try_add_attributes(&mut self, path: &[u8], pack: &mut PackWriter) -> Result<(), NotAdded> {
        let file = self.place(path)?.open().map_err(|e| Problem::resolve(&e))?;
        let found = self.look(path, &file)?;
        self.put(&found, Content::Attributes, pack)
    }

    fn place<'a>(&mut self, path: &'a [u8]) -> Result<Place<'a>, NotAdded> {
        if !is_path(path, &self.limits) {
            let cause = "it isn't a path beneath the directory";
            return Err(Problem::new(Code::InvalidArgument, cause).into());
        }
        if self.follow {
            path.split(|&b| b == b'/').try_for_each(check_name)?;
            return Ok(Place::Behind(self.store.clone(), shown(&self.root, path)));
        }
        let (parent, name) = match path {
            b"" => (path, &b"."[..]),
            path => split(path),
        };
        check_name(name)?;
        Ok(Place::Name(self.dirs.find(parent)?, name))
    }

    /// Reads the attributes of an open entry.
    fn look<'a>(&mut self, path: &'a [u8], file: &File) -> Result<FoundEntry<'a>, NotAdded> {
        let mut meta = fs::meta(file).map_err(|error| Problem::io(&error))?;
        let set_id = match self.keep.owner {
            true => 0,
            false => meta.mode.unwrap_or(0) & SET_ID,
        };
        self.is_special = set_id != 0 && meta.kind != FileKind::Directory;
        meta.mode = meta.mode.map(|mode| mode & !set_id);
        let mut found = FoundEntry {
            path,
            meta,
            xattrs: Vec::new(),
        };
        if self.keep.xattrs {
            let read = fs::xattrs(file, &is_carried);
            found.xattrs = read.map_err(|error| Problem::io(&error))?;
        }
        Ok(found)
    }

    /// Adds the entry at a path; returns it if it is a file that is too large.
    fn try_add<'a>(
        &mut self,
        path: &'a [u8],
        pack: &mut PackWriter,
    ) -> Result<Option<FoundEntry<'a>>, NotAdded> {
        self.is_special = false;
        // Fewer entries mean that this is another pack.
        self.has_waited &= pack.entries() >= self.entries;
        let added = self.try_add_named(path, pack);
        self.entries = pack.entries();
        added
    }

    fn try_add_named<'a>(
        &mut self,
        path: &'a [u8],
        pack: &mut PackWriter,
    ) -> Result<Option<FoundEntry<'a>>, NotAdded> {
        let place = self.place(path)?;
        let file = match place.open() {
            Ok(file) => file,
            Err(ResolveError::Io(error)) if error.kind() != io::ErrorKind::NotFound => {
                return self.closed(path, &place, &error, pack);
            }
            Err(error) => return Err(Problem::resolve(&error).into()),
        };
        self.opened(path, &file, pack)
    }

    /// Adds an open entry.
    fn opened<'a>(
        &mut self,
        path: &'a [u8],
        file: &File,
        pack: &mut PackWriter,
    ) -> Result<Option<FoundEntry<'a>>, NotAdded> {
        for _ in 0..ATTEMPTS {
            let found = self.look(path, file)?;
            let meta = found.meta;
            match meta.kind {
                FileKind::Regular => {}
                FileKind::Directory => {
                    self.put(&found, Content::Directory, pack)?;
                    return Ok(None);
                }
                FileKind::Fifo => {
                    self.put(&found, Content::Fifo, pack)?;
                    return Ok(None);
                }
                kind => return Err(unsupported(kind).into()),
            }
            if meta.length > self.file_bytes_max {
                return Ok(Some(found));
            }
            if !unsettled_for(&meta, SystemTime::now()).is_zero() {
                if std::mem::replace(&mut self.has_waited, true) {
                    break;
                }
                // Long enough for all files modified before the end of the wait.
                thread::sleep(grain(&meta));
                continue;
            }
            match self.content(&found, file, pack) {
                Ok(true) => return Ok(None),
                // It fits into no pack.
                Ok(false) if pack.is_empty() => return Ok(Some(found)),
                Ok(false) => return Err(NotAdded::Full),
                Err(ReadFailure::Changed) => {
                    fs::rewind(file).map_err(|error| Problem::io(&error))?;
                }
                Err(ReadFailure::Io(error)) => return Err(Problem::io(&error).into()),
            }
        }
        let cause = "it changes while it is read";
        let fault = Fault::new(Code::SourceChanged, "", cause);
        let hint = "run the same command again when nothing writes to the file";
        Err(Problem::from(fault.hint(hint)).into())
    }

    /// Adds an entry that can't be opened: a link, or an unreadable one.
    fn closed<'a>(
        &mut self,
        path: &'a [u8],
        place: &Place<'_>,
        error: &io::Error,
        pack: &mut PackWriter,
    ) -> Result<Option<FoundEntry<'a>>, NotAdded> {
        let meta = place.meta().map_err(|error| Problem::resolve(&error))?;
        let found = FoundEntry {
            path,
            meta,
            xattrs: Vec::new(),
        };
        match (meta.kind, place) {
            (FileKind::Symlink, Place::Name(dir, name)) => {
                let target = dir.read_link(name).map_err(|error| Problem::io(&error))?;
                self.put(&found, Content::Symlink(&target), pack)?;
            }
            (FileKind::Directory, _) if !self.keep.xattrs => {
                self.put(&found, Content::Directory, pack)?;
            }
            (FileKind::Fifo, _) if !self.keep.xattrs => self.put(&found, Content::Fifo, pack)?,
            (FileKind::Regular | FileKind::Directory | FileKind::Fifo, _) => {
                return Err(Problem::io(error).into());
            }
            (kind, _) => return Err(unsupported(kind).into()),
        }
        Ok(None)
    }

    /// Reads a file into the pack. `false` if there is no room.
    fn content(
        &mut self,
        found: &FoundEntry<'_>,
        file: &File,
        pack: &mut PackWriter,
    ) -> Result<bool, ReadFailure> {
        let length = usize::try_from(found.meta.length).unwrap_or(usize::MAX);
        let metadata = Metadata {
            sparse: found.meta.is_sparse(),
            ..self.metadata(&found.meta, &found.xattrs)
        };
        // One byte more, so that one call also detects the end.
        pack.file(found.path, &metadata, length.saturating_add(1), |room| {
            let mut filled = 0;
            while filled < room.len() {
                match fs::read(file, &mut room[filled..]).map_err(ReadFailure::Io)? {
                    0 => break,
                    read => filled += read,
                }
                if filled == length {
                    // A short read is the end.
                    break;
                }
            }
            let now = fs::meta(file).map_err(ReadFailure::Io)?;
            if filled == length && difference(&found.meta, &now).is_none() {
                Ok(filled)
            } else {
                Err(ReadFailure::Changed)
            }
        })
    }

    fn put(
        &mut self,
        found: &FoundEntry<'_>,
        content: Content<'_>,
        pack: &mut PackWriter,
    ) -> Result<(), NotAdded> {
        let entry = Entry {
            path: found.path,
            metadata: self.metadata(&found.meta, &found.xattrs),
            content,
        };
        if pack.entry(&entry) {
            Ok(())
        } else if pack.is_empty() {
            let cause = "its attributes are too large to be sent";
            Err(Problem::new(Code::LimitExceeded, cause).into())
        } else {
            Err(NotAdded::Full)
        }
    }

    fn metadata<'a>(&'a mut self, meta: &Meta, xattrs: &'a [fs::Xattr]) -> Metadata<'a> {
        let owner = meta.owner.zip(meta.group).filter(|_| self.keep.owner);
        let owner: Option<Owner<'a>> = match owner {
            Some((uid, gid)) => {
                self.owners.learn(uid, gid);
                Some(self.owners.of(uid, gid))
            }
            None => None,
        };
        let xattrs = xattrs
            .iter()
            .map(|(name, value)| -> Xattr<'a> { (name, value) });
        Metadata {
            mode: meta.mode.and_then(|mode| u16::try_from(mode).ok()),
            mtime_ns: Some(meta.mtime_ns),
            atime_ns: self.keep.read_times.then_some(meta.atime_ns),
            owner,
            xattrs: xattrs.collect(),
            // Only files have holes, and they announce where their data is.
            sparse: false,
        }
    }
}

impl Place<'_> {
    fn open(&self) -> Result<File, ResolveError> {
        match self {
            Self::Name(dir, name) => Ok(dir.open_name(name)?),
            Self::Behind(store, path) => {
                // Opening a device has side effects.
                use FileKind::{Directory, Fifo, Regular};
                if !matches!(self.meta()?.kind, Directory | Fifo | Regular) {
                    return Err(ResolveError::Io(io::ErrorKind::Unsupported.into()));
                }
                match &store.root {
                    Some(root) => root.open_for_reading(path),
                    None => Ok(fs::open_for_reading(&fs::path_from_bytes(path)?)?),
                }
            }
        }
    }

    fn meta(&self) -> Result<Meta, ResolveError> {
        let meta = match self {
            Self::Name(dir, name) => dir.meta_of(name)?,
            Self::Behind(store, path) => {
                let found = match &store.root {
                    Some(root) => root.find(path)?,
                    None => fs::Handle::find(&fs::path_from_bytes(path)?)?,
                };
                Some(found.meta()?)
            }
        };
        meta.ok_or_else(|| ResolveError::Io(io::ErrorKind::NotFound.into()))
    }
}

/// Why an entry wasn't added.
enum NotAdded {
    Full,
    Problem(Problem),
}

impl From<Problem> for NotAdded {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Why a file wasn't read.
enum ReadFailure {
    Changed,
    Io(io::Error),
}

fn unsupported(kind: FileKind) -> Problem {
    let cause = format!("it is {kind}, which isn't transferred");
    Problem::new(Code::Unsupported, cause)
}
