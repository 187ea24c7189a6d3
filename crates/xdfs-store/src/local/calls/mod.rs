//! Calls about paths.
//!
//! Each call first resolves the parent directory of a name, and from then on uses its open handle,
//! so that names exchanged concurrently can't redirect it.
//!
//! - Names of unfinished transfers aren't listed and are refused in any part of a path, and in the
//!   target of a new symbolic link.
//! - A copy or rename is durable when it is answered, as publishing is. All other changes are as
//!   durable as the file system makes them by itself: synchronising each of a million of them
//!   would take hours.
//! - With a root, no call sets set-user-id or set-group-id. Packs do, together with the owner.

mod attributes;
mod copy;
mod file;
mod list;
mod look;
mod names;
mod sync;
mod tree;
mod unfinished;
mod walk_partial;

pub use tree::RemovedName;

use std::io;

use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{self, Dir, Handle, Meta, ResolveError};

use super::owners;
use super::path;
use super::root::Root;
use super::store::LocalStore;
use crate::file::{FileRequest, OpenedFile};

pub(super) use file::opened as opened_file;
pub(super) use names::make_directories;
pub(super) use walk_partial::each_partial;

/// Answers a call.
pub(super) fn answer(
    store: &LocalStore,
    call: &Call,
    part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
) -> Result<Answer, Fault> {
    if store.read_only && !call.is_read_only() {
        let fault = Fault::new(Code::ReadOnly, "", "this server takes no writes");
        return Err(named(call, fault.path(call.path())));
    }
    // The faults of `part` are passed on unchanged.
    let mut stopped = false;
    let mut part = |answer| part(answer).inspect_err(|_| stopped = true);
    let result = dispatch(&Paths { store }, call, &mut part);
    result.map_err(|fault| if stopped { fault } else { named(call, fault) })
}

/// Opens a file for access in place.
pub(super) fn open_file(store: &LocalStore, request: &FileRequest) -> Result<OpenedFile, Fault> {
    file::open(store, request).map_err(|mut fault| {
        fault.operation = "open".into();
        fault
    })
}

/// Removes a tree, calling `removed` before and after each removal.
pub(super) fn remove_tree(
    store: &LocalStore,
    path: &[u8],
    removed: &mut tree::Removed<'_>,
) -> Result<u64, Fault> {
    let call = Call::RemoveTree {
        path: path.to_vec(),
    };
    if store.read_only {
        let fault = Fault::new(Code::ReadOnly, "", "this server takes no writes");
        return Err(named(&call, fault.path(path)));
    }
    let result = tree::remove(&Paths { store }, path, Some(removed));
    result.map_err(|fault| named(&call, fault))
}

/// Copies a file, calling `ready` before it gets its name.
pub(super) fn copy(
    store: &LocalStore,
    from: &[u8],
    to: &[u8],
    overwrite: bool,
    ready: &mut copy::Ready<'_>,
) -> Result<u64, Fault> {
    let call = Call::Copy {
        from: from.to_vec(),
        to: to.to_vec(),
        overwrite,
    };
    if store.read_only {
        let fault = Fault::new(Code::ReadOnly, "", "this server takes no writes");
        return Err(named(&call, fault.path(from)));
    }
    let result = copy::copy(&Paths { store }, from, to, overwrite, Some(ready));
    result.map_err(|fault| named(&call, fault))
}

fn dispatch(
    paths: &Paths<'_>,
    call: &Call,
    part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
) -> Result<Answer, Fault> {
    let done = |result: Result<(), Fault>| result.map(|()| Answer::Done);
    match call {
        Call::Stat { path, follow } => look::stat(paths, path, *follow).map(Answer::Attributes),
        Call::List {
            path,
            cursor,
            entries_max,
        } => list::list(paths, path, cursor, *entries_max, part),
        Call::MakeDirectory {
            path,
            mode,
            parents,
        } => done(names::make_directory(paths, path, *mode, *parents)),
        Call::RemoveFile { path } => done(names::remove_file(paths, path)),
        Call::RemoveDirectory { path } => done(names::remove_directory(paths, path)),
        Call::RemoveTree { path } => {
            tree::remove(paths, path, None).map(|entries| Answer::Removed { entries })
        }
        Call::Rename {
            from,
            to,
            overwrite,
        } => done(names::rename(paths, from, to, *overwrite)),
        Call::Copy {
            from,
            to,
            overwrite,
        } => {
            let copied = copy::copy(paths, from, to, *overwrite, None);
            copied.map(|bytes| Answer::Copied { bytes })
        }
        Call::Link { existing, path } => done(names::link(paths, existing, path)),
        Call::Symlink { target, path } => done(names::symlink(paths, target, path)),
        Call::ReadLink { path } => look::read_link(paths, path).map(Answer::Target),
        Call::SetMode { path, mode } => done(attributes::set_mode(paths, path, *mode)),
        Call::SetTimes {
            path,
            atime_ns,
            mtime_ns,
            follow,
        } => done(attributes::set_times(
            paths,
            path,
            [*atime_ns, *mtime_ns],
            *follow,
        )),
        Call::SetOwner {
            path,
            uid,
            gid,
            follow,
        } => done(attributes::set_owner(paths, path, [*uid, *gid], *follow)),
        Call::Truncate { path, length } => done(attributes::truncate(paths, path, *length)),
        Call::Space { path } => look::space(paths, path),
        Call::Sync { path } => done(sync::sync(paths, path)),
        Call::Checksum {
            path,
            offset,
            length,
            kind,
        } => look::checksum(paths, path, *offset, *length, *kind),
        Call::Signatures {
            path,
            digest,
            block_bytes,
            first,
            count,
        } => look::signatures(
            paths,
            path,
            *digest,
            *block_bytes,
            [*first, u64::from(*count)],
        ),
        Call::Seed(seed) => {
            paths.check(&seed.from)?;
            paths.check(&seed.to)?;
            let seeded = crate::delta::seed(paths.store, seed);
            seeded.map(|bytes| Answer::Copied { bytes })
        }
        Call::ListPartial { path, after } => unfinished::list(paths, path, after),
        Call::RemovePartial {
            path,
            unchanged_since_ns,
        } => done(unfinished::remove(paths, path, *unchanged_since_ns)),
        Call::LookUp { path, accounts } => {
            paths.check(path)?;
            let found = owners::look_up(accounts).map_err(|fault| fault.path(path))?;
            Ok(Answer::Accounts(found))
        }
        Call::SettableOwners { path } => {
            paths.check(path)?;
            let owners = owners::settable().map_err(|error| io_fault(path, &error))?;
            Ok(Answer::Accounts(owners.accounts()))
        }
        _ => {
            let cause = "this call isn't supported";
            Err(Fault::new(Code::Unsupported, "", cause).path(call.path()))
        }
    }
}

/// The fault with the operation and path of the call in place of those of the failed step.
fn named(call: &Call, mut fault: Fault) -> Fault {
    fault.operation = call.operation().into();
    fault
}

/// The fault of a system call.
fn io_fault(path: &[u8], error: &io::Error) -> Fault {
    use io::ErrorKind as K;
    let (code, cause, hint) = match error.kind() {
        K::ResourceBusy => (
            Code::Busy,
            "the system is using it, or has mounted on it",
            "",
        ),
        K::TooManyLinks => (Code::LimitExceeded, "it can have no more names", ""),
        K::InvalidInput => (
            Code::InvalidArgument,
            "the file system doesn't take this",
            "",
        ),
        K::AlreadyExists => (
            Code::AlreadyExists,
            "the name is taken",
            "choose another name, or remove the existing entry",
        ),
        K::DirectoryNotEmpty => (
            Code::NotEmpty,
            "the directory isn't empty",
            "remove its content first, or the whole tree",
        ),
        _ => return Fault::from_io("", path, error),
    };
    Fault::new(code, "", cause).path(path).hint(hint)
}

fn resolve_fault(path: &[u8], error: &ResolveError) -> Fault {
    match error {
        ResolveError::Io(error) if error.kind() == io::ErrorKind::InvalidInput => {
            path::resolve_fault(
                "",
                path,
                &ResolveError::Io(io::Error::other(error.to_string())),
            )
        }
        error => path::resolve_fault("", path, error),
    }
}

fn not_found(path: &[u8]) -> Fault {
    Fault::new(Code::NotFound, "", "no such file or directory").path(path)
}

/// Attributes as an answer.
pub(super) fn attributes(meta: &Meta) -> Attributes {
    let (device, inode) = meta.identity.unwrap_or_default();
    Attributes {
        kind: kind(meta.kind),
        size: meta.length,
        allocated: meta.allocated.unwrap_or(0),
        mode: meta.mode.unwrap_or(0),
        uid: meta.owner.unwrap_or(0),
        gid: meta.group.unwrap_or(0),
        links: meta.links,
        device,
        inode,
        atime_ns: meta.atime_ns,
        mtime_ns: meta.mtime_ns,
        ctime_ns: meta.ctime_ns,
    }
}

fn kind(kind: fs::FileKind) -> FileKind {
    match kind {
        fs::FileKind::Regular => FileKind::File,
        fs::FileKind::Directory => FileKind::Directory,
        fs::FileKind::Symlink => FileKind::Symlink,
        fs::FileKind::Fifo => FileKind::Fifo,
        fs::FileKind::Socket => FileKind::Socket,
        fs::FileKind::BlockDevice => FileKind::BlockDevice,
        fs::FileKind::CharacterDevice => FileKind::CharacterDevice,
        _ => FileKind::Other,
    }
}

/// Resolves the paths of a store.
pub(super) struct Paths<'a> {
    pub(super) store: &'a LocalStore,
}

/// A name in an open directory. It need not exist.
struct Name<'a> {
    dir: Dir,
    name: &'a [u8],
    /// The path as requested.
    path: &'a [u8],
    /// The path ended in '/', so it can only name a directory.
    is_directory: bool,
}

impl Paths<'_> {
    fn root(&self) -> Option<&Root> {
        self.store.root.as_deref()
    }

    /// Refuses paths that no call may have.
    pub(super) fn check(&self, requested: &[u8]) -> Result<(), Fault> {
        path::check_bytes("", requested)?;
        if self.root().is_none() && requested.is_empty() {
            return Err(Fault::new(Code::InvalidArgument, "", "the path is empty"));
        }
        if requested
            .split(path::is_separator)
            .any(path::is_hidden_name)
        {
            return Err(path::hidden_fault("", requested));
        }
        Ok(())
    }

    /// Opens a directory for lookups.
    pub(super) fn enter(&self, requested: &[u8]) -> Result<Dir, ResolveError> {
        match self.root() {
            Some(root) => root.enter(requested),
            None => Ok(Dir::enter(&fs::path_from_bytes(requested)?)?),
        }
    }

    /// Opens a directory that can be listed and synchronised.
    fn open(&self, requested: &[u8]) -> Result<Dir, ResolveError> {
        match self.root() {
            Some(root) => root.open(requested),
            None => Ok(Dir::open(&fs::path_from_bytes(requested)?)?),
        }
    }

    /// Resolves a path, following links.
    fn find(&self, requested: &[u8]) -> Result<Handle, Fault> {
        self.check(requested)?;
        let found = match self.root() {
            Some(root) => root.find(requested),
            None => fs::path_from_bytes(requested)
                .and_then(|path| Handle::find(&path))
                .map_err(ResolveError::Io),
        };
        found.map_err(|error| resolve_fault(requested, &error))
    }

    /// The last name of a path and its parent directory.
    fn name<'a>(&self, requested: &'a [u8]) -> Result<Name<'a>, Fault> {
        self.check(requested)?;
        let fault = |error: &ResolveError| resolve_fault(requested, error);
        let end = requested.iter().rposition(|b| !path::is_separator(b));
        let trimmed = &requested[..end.map_or(0, |end| end + 1)];
        let (parent, name) = path::split(trimmed);
        if name.is_empty() {
            // Errors of the parent directory take precedence.
            self.enter(requested).map_err(|error| fault(&error))?;
            let cause = "the path has no name at its end, so that nothing can be done with that";
            let wrong = Fault::new(Code::InvalidArgument, "", cause).path(requested);
            return Err(wrong.hint("name something in a directory"));
        }
        let found = Name {
            dir: self.enter(parent).map_err(|error| fault(&error))?,
            name,
            path: requested,
            is_directory: trimmed.len() < requested.len(),
        };
        if found.is_directory
            && let Some(meta) = found.meta()?
            && meta.kind != fs::FileKind::Directory
        {
            return Err(found.not_directory());
        }
        Ok(found)
    }
}

impl Name<'_> {
    /// Attributes of the entry with this name, links not followed; `None` if there is none.
    fn meta(&self) -> Result<Option<Meta>, Fault> {
        self.dir
            .meta_of(self.name)
            .map_err(|error| self.fault(&error))
    }

    fn existing(&self) -> Result<Meta, Fault> {
        self.meta()?.ok_or_else(|| not_found(self.path))
    }

    fn fault(&self, error: &io::Error) -> Fault {
        io_fault(self.path, error)
    }

    fn not_directory(&self) -> Fault {
        Fault::new(Code::NotDirectory, "", "it isn't a directory").path(self.path)
    }
}
