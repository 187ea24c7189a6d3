//! Carrying out the entries of a pack.

use std::fs::File;
use std::io;
use std::sync::Arc;

use xdfs_proto::pack::{Content, Entry, Failures, Metadata, PackReader};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_sys::fs::{self, Dir, FileKind, Handle, ResolveError};
use xdfs_sys::ids;

use super::super::calls::{self, Paths};
use super::super::{LocalStore, path};
use super::dirs::Dirs;
use super::metadata::{DEFAULT_ACL, SET_ID, Thing, Wrong, give, give_owner};
use super::owners::OwnerNumbers;
use super::place::{Bytes, Named, Place};
use super::{PackChange, PackRules, Problem, check_name, shown, split};

const OPERATION: &str = "write a pack";
/// What the owner of a directory needs to put something into it.
const OWNER_ALL: u32 = 0o700;

/// Carries out the entries of a pack beneath `root`.
pub(in super::super) fn write(
    store: &LocalStore,
    root: &[u8],
    pack: &[u8],
    rules: &mut dyn PackRules,
) -> Result<(Failures, PackChange), Fault> {
    if store.read_only {
        let fault = Fault::new(Code::ReadOnly, OPERATION, "this server takes no writes");
        return Err(fault.path(root));
    }
    let limits = Limits::default();
    // As a whole first, so that nothing is done of a pack that is damaged.
    for entry in PackReader::new(pack, &limits) {
        entry.map_err(|error| undecodable(root, &error))?;
    }
    let mut change = PackChange::default();
    let base = enter_or_make(&Paths { store }, root, rules, &mut change)?;
    let mut writing = Writing {
        dirs: Dirs::new(base),
        sets_id: store.root.is_none() || (rules.may_set_id() && ids::effective_user() == Some(0)),
        store,
        nameless: true,
        counts: rules.counts(),
        owners: OwnerNumbers::default(),
        rules,
        change,
    };
    let mut failures = Failures::default();
    let mut ended: Option<Fault> = None;
    for (number, entry) in (0_u32..).zip(PackReader::new(pack, &limits)) {
        let entry = entry.map_err(|error| undecodable(root, &error))?;
        if let Some(fault) = &ended {
            failures.push(number, fault.clone());
            continue;
        }
        if let Err(problem) = writing.entry(&entry) {
            let mut fault = problem.fault;
            fault.operation = operation(&entry.content).into();
            fault.path = shown(root, entry.path);
            if problem.is_final {
                ended = Some(fault.clone());
            }
            failures.push(number, fault);
        }
    }
    Ok((failures, writing.change))
}

fn undecodable(root: &[u8], error: &dyn std::error::Error) -> Fault {
    Fault::new(Code::MalformedFrame, OPERATION, error.to_string()).path(root)
}

fn operation(content: &Content<'_>) -> &'static str {
    match content {
        Content::File(_) => "write a file",
        Content::Directory => "make a directory",
        Content::Symlink(_) => "make a symbolic link",
        Content::HardLink(_) => "link a file",
        Content::Fifo => "make a named pipe",
        Content::Attributes => "set attributes",
        _ => OPERATION,
    }
}

/// Opens the directory of a transfer; makes it, and those above it, if they are missing.
fn enter_or_make(
    paths: &Paths<'_>,
    root: &[u8],
    rules: &mut dyn PackRules,
    change: &mut PackChange,
) -> Result<Dir, Fault> {
    let named = |mut fault: Fault| -> Fault {
        fault.operation = OPERATION.into();
        fault.path(root)
    };
    paths.check(root).map_err(named)?;
    match paths.enter(root) {
        Ok(dir) => Ok(dir),
        Err(ResolveError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            let made = &mut change.directories;
            let allow = &mut || rules.directory();
            calls::make_directories(paths, root, allow, made)
                .and_then(|()| {
                    let entered = paths.enter(root);
                    entered.map_err(|error| path::resolve_fault("", root, &error))
                })
                .inspect(|_| change.names += change.directories)
                .map_err(named)
        }
        Err(error) => Err(path::resolve_fault(OPERATION, root, &error)),
    }
}

struct Writing<'r> {
    dirs: Dirs,
    /// Files get set-user-id and set-group-id together with their owners.
    sets_id: bool,
    store: &'r LocalStore,
    /// Files can be made without a name, as far as that is known.
    nameless: bool,
    counts: bool,
    owners: OwnerNumbers,
    rules: &'r mut dyn PackRules,
    change: PackChange,
}

impl Writing<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Problem> {
        let replace = self.rules.entry(entry)?;
        let metadata = &entry.metadata;
        if entry.path.is_empty() {
            return match entry.content {
                Content::Attributes => self.attributes_of_base(metadata),
                // It is there.
                _ => Ok(()),
            };
        }
        let (parent, name) = split(entry.path);
        check_name(name)?;
        if matches!(entry.content, Content::Attributes) {
            let dir = self.dirs.find(parent)?;
            return self.attributes(&dir, name, metadata);
        }
        let mut link = None;
        if let Content::HardLink(existing) = entry.content {
            // Nothing is made for what can't be linked.
            let (parent, name) = split(existing);
            check_name(name)?;
            link = Some((self.dirs.find(parent)?, name));
        }
        let dir = self.parent(parent)?;
        let place = Place {
            dir: &dir,
            name,
            replace,
            counts: self.counts,
        };
        match &entry.content {
            Content::File(data) => self.file(&place, data, metadata),
            Content::Directory => self.directory(&place, metadata),
            Content::Symlink(target) => self.symlink(&place, target, metadata),
            Content::Fifo => self.pipe(&place, metadata),
            _ => match link {
                Some((from, existing)) => self.link(&place, &from, existing),
                None => {
                    let cause = "only answers have such an entry";
                    Err(Problem::new(Code::InvalidArgument, cause))
                }
            },
        }
    }

    fn parent(&mut self, path: &[u8]) -> Result<Arc<Dir>, Problem> {
        let mut made = 0;
        let rules = &mut *self.rules;
        let dir = self.dirs.make(path, &mut || rules.directory(), &mut made);
        self.change.directories += made;
        self.change.names += made;
        dir
    }

    fn count(&mut self, named: Named, bytes: u64) {
        self.change.bytes += bytes;
        match named {
            Named::New => self.change.names += 1,
            Named::Replaced(length) => self.change.replaced_bytes += length,
        }
    }

    /// The mode that something which isn't a directory may get: what runs as its owner is made with
    /// the owner of the source alone.
    fn mode(&self, metadata: &Metadata<'_>) -> Option<u32> {
        let may_set_id = self.sets_id && metadata.owner.is_some();
        let denied = if may_set_id { 0 } else { SET_ID };
        metadata.mode.map(|mode| u32::from(mode) & !denied)
    }

    fn file(
        &mut self,
        place: &Place<'_>,
        data: &[u8],
        metadata: &Metadata<'_>,
    ) -> Result<(), Problem> {
        let mode = self.mode(metadata);
        let mut wrong = Wrong::default();
        let owners = &mut self.owners;
        let dress = &mut |file: &File, has: u32| {
            give(file, metadata, mode, Some(has), owners, &mut wrong);
        };
        let made_as = mode.map_or(0o666, |mode| mode & 0o777);
        let bytes = Bytes {
            data,
            sparse: metadata.sparse,
        };
        let named = place.file(bytes, made_as, &mut self.nameless, dress)?;
        self.count(named, data.len() as u64);
        wrong.end()
    }

    fn directory(&mut self, place: &Place<'_>, metadata: &Metadata<'_>) -> Result<(), Problem> {
        let mode = metadata.mode.map(u32::from);
        // What stays closed to ourselves until the tree is complete.
        let is_open = mode.is_none_or(|mode| mode & OWNER_ALL == OWNER_ALL);
        let made_as = mode.map_or(0o777, |mode| mode & 0o777 | OWNER_ALL);
        let is_new = match place.dir.make_dir_masked(place.name, made_as) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(Problem::io(&error)),
        };
        if is_new {
            self.count(Named::New, 0);
            let is_bare = metadata.owner.is_none() && metadata.xattrs.is_empty();
            if is_bare && mode.is_none_or(|mode| !is_open || mode == fs::masked(made_as)) {
                return Ok(());
            }
        }
        let found = find(place.dir, place.name)?;
        let meta = found.meta().map_err(|error| Problem::io(&error))?;
        if meta.kind != FileKind::Directory {
            let cause = format!("{} has this name", meta.kind);
            return Err(Problem::new(Code::NotDirectory, cause));
        }
        let mut wrong = Wrong::default();
        // Also where it is there: what is put into it may have been faster than its entry.
        let mut own = metadata.clone();
        (own.mode, own.mtime_ns, own.atime_ns) = (None, None, None);
        // What is made in it would inherit that.
        own.xattrs.retain(|(name, _)| *name != DEFAULT_ACL);
        give(&found, &own, None, None, &mut self.owners, &mut wrong);
        if let Some(mode) = mode.filter(|_| is_open && (is_new || place.replace)) {
            let has = meta.mode.unwrap_or(mode);
            // The bit that it has from the directory it stands in.
            let wanted = mode | has & 0o2000;
            if has != wanted {
                let set = found.set_mode(wanted);
                wrong.note("mode", set.map_err(|error| Problem::io(&error)));
            }
        }
        wrong.end()
    }

    fn symlink(
        &mut self,
        place: &Place<'_>,
        target: &[u8],
        metadata: &Metadata<'_>,
    ) -> Result<(), Problem> {
        // What the link says isn't resolved. But an unfinished transfer isn't to be reached by it.
        if target.split(path::is_separator).any(path::is_hidden_name) {
            return Err(path::hidden_fault("", b"").into());
        }
        let named = place.make(|name| place.dir.symlink(target, name))?;
        self.count(named, 0);
        let mut wrong = Wrong::default();
        self.link_metadata(place.dir, place.name, metadata, &mut wrong);
        wrong.end()
    }

    /// Sets what a symbolic link itself has: it has no mode.
    fn link_metadata(
        &mut self,
        dir: &Dir,
        name: &[u8],
        metadata: &Metadata<'_>,
        wrong: &mut Wrong,
    ) {
        if let Some(owner) = &metadata.owner {
            let given = give_owner(owner, &mut self.owners, |uid, gid| {
                dir.set_owner(name, Some(uid), Some(gid))
            });
            wrong.note("owner", given);
        }
        if !metadata.xattrs.is_empty() {
            let error = io::ErrorKind::Unsupported.into();
            wrong.note("extended attributes", Err(Problem::io(&error)));
        }
        if metadata.mtime_ns.is_some() || metadata.atime_ns.is_some() {
            let set = dir.set_times(name, metadata.atime_ns, metadata.mtime_ns);
            wrong.note("times", set.map_err(|error| Problem::io(&error)));
        }
    }

    fn pipe(&mut self, place: &Place<'_>, metadata: &Metadata<'_>) -> Result<(), Problem> {
        let mode = self.mode(metadata);
        let made_as = mode.map_or(0o666, |mode| mode & 0o777);
        let named = place.make(|name| place.dir.make_pipe(name, made_as))?;
        self.count(named, 0);
        let mut wrong = Wrong::default();
        match find(place.dir, place.name) {
            Ok(found) => {
                let has = Some(fs::masked(made_as));
                give(&found, metadata, mode, has, &mut self.owners, &mut wrong);
            }
            Err(problem) => {
                wrong.note("metadata", Err(problem));
            }
        }
        wrong.end()
    }

    fn link(&mut self, place: &Place<'_>, from: &Dir, existing: &[u8]) -> Result<(), Problem> {
        let meta = from.meta_of(existing);
        let Some(meta) = meta.map_err(|error| Problem::io(&error))? else {
            return Err(Problem::new(Code::NotFound, "the file to link isn't there"));
        };
        self.store.check_kept(meta.kind)?;
        if meta.kind == FileKind::Directory {
            let cause = "a directory can't have two names";
            return Err(Problem::new(Code::IsDirectory, cause));
        }
        let named = match place.make(|name| from.link_to(existing, place.dir, name)) {
            // It is that file already, for instance by an attempt that was broken off.
            Err(problem) if problem.fault.code == Code::AlreadyExists => {
                return match place.dir.meta_of(place.name) {
                    Ok(Some(there))
                        if there.identity.is_some() && there.identity == meta.identity =>
                    {
                        Ok(())
                    }
                    _ => Err(problem),
                };
            }
            named => named?,
        };
        let is_file = meta.kind == FileKind::Regular;
        self.count(named, if is_file { meta.length } else { 0 });
        Ok(())
    }

    fn attributes(
        &mut self,
        dir: &Dir,
        name: &[u8],
        metadata: &Metadata<'_>,
    ) -> Result<(), Problem> {
        let meta = dir.meta_of(name).map_err(|error| Problem::io(&error))?;
        let mut wrong = Wrong::default();
        if meta.is_some_and(|meta| meta.kind == FileKind::Symlink) {
            self.link_metadata(dir, name, metadata, &mut wrong);
        } else {
            self.attributes_of(&find(dir, name)?, metadata, &mut wrong)?;
        }
        wrong.end()
    }

    fn attributes_of_base(&mut self, metadata: &Metadata<'_>) -> Result<(), Problem> {
        let base = self.dirs.base().find_beneath(b"");
        let base = base.map_err(|error| Problem::resolve(&error))?;
        let mut wrong = Wrong::default();
        self.attributes_of(&base, metadata, &mut wrong)?;
        wrong.end()
    }

    fn attributes_of(
        &mut self,
        found: &Handle,
        metadata: &Metadata<'_>,
        wrong: &mut Wrong,
    ) -> Result<(), Problem> {
        let meta = found.meta().map_err(|error| Problem::io(&error))?;
        let mode = match meta.kind {
            // It was swapped at this moment.
            FileKind::Symlink => {
                return Err(Problem::new(Code::Busy, "it is changed at this moment"));
            }
            FileKind::Directory => metadata.mode.map(u32::from),
            _ => self.mode(metadata),
        };
        let thing: &dyn Thing = found;
        give(thing, metadata, mode, meta.mode, &mut self.owners, wrong);
        Ok(())
    }
}

fn find(dir: &Dir, name: &[u8]) -> Result<Handle, Problem> {
    dir.find_name(name).map_err(|error| Problem::io(&error))
}
