//! Writes the entries of a pack.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;

use xdfs_proto::pack::{Content, Entry, Failures, Metadata, PackReader};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_sys::fs::{self, Dir, FileKind, Handle, ResolveError, SyncKind};
use xdfs_sys::ids;

use super::super::calls::{self, Paths};
use super::super::file_systems::Writer;
use super::super::owners::OwnerNumbers;
use super::super::path;
use super::super::store::LocalStore;
use super::dirs::Dirs;
use super::metadata::{DEFAULT_ACL, FirstProblem, MetadataTarget, SET_ID, set_metadata, set_owner};
use super::place::{Bytes, Destination, NameOutcome, Unnamed};
use super::stage::{Batch, OpenFilePermit, PendingEntry, Staged, WAITING_MAX};
use super::{PackChange, PackRules, Problem, check_name, shown, split};

const OPERATION: &str = "write";
/// Permissions that the owner of a directory needs to add entries.
const OWNER_ALL: u32 = 0o700;

/// Writes the entries of a pack beneath `root`.
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
    // Decode the whole pack first, so that a damaged one changes nothing.
    for entry in PackReader::new(pack, &limits) {
        entry.map_err(|error| undecodable(root, &error))?;
    }
    let mut change = PackChange::default();
    let base = enter_or_make(&Paths { store }, root, rules, &mut change)?;
    let mut writing = Writing::new(store, root, base, rules, change);
    let mut count = 0;
    for (number, entry) in (0_u32..).zip(PackReader::new(pack, &limits)) {
        let entry = entry.map_err(|error| undecodable(root, &error))?;
        count = number + 1;
        if let Some(fault) = writing.ended.clone() {
            writing.flush();
            writing.failures.push(number, fault);
        } else {
            writing.take(number, entry);
        }
    }
    writing.flush();
    writing.sync_directories(count);
    Ok((writing.failures, writing.change))
}

fn undecodable(root: &[u8], error: &dyn std::error::Error) -> Fault {
    Fault::new(Code::MalformedFrame, OPERATION, error.to_string()).path(root)
}

fn operation(content: &Content<'_>) -> &'static str {
    match content {
        Content::File(_) => "write",
        Content::Directory => "make the directory",
        Content::Symlink(_) => "make the symbolic link",
        Content::HardLink(_) => "link",
        Content::Fifo => "make the named pipe",
        Content::Attributes => "set the attributes of",
        _ => OPERATION,
    }
}

/// Opens the directory of a transfer, creating it and its missing parents.
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

/// How entries of a directory become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// Never, or nobody waits for it.
    Volatile,
    /// By synchronising the whole file system, through the writer at this index.
    Whole(usize),
    /// By synchronising each file and directory.
    Each,
}

struct Writing<'r, 'p> {
    root: &'r [u8],
    /// Real path of the directory; empty if unknown.
    place: Vec<u8>,
    dirs: Dirs,
    /// Set-user-id and set-group-id are set together with owners.
    sets_id: bool,
    store: &'r LocalStore,
    /// Files can be created without a name, as far as is known.
    nameless: bool,
    /// Files get their names before they are durable.
    is_relaxed: bool,
    counts: bool,
    owners: OwnerNumbers,
    rules: &'r mut dyn PackRules,
    change: PackChange,
    /// The medium of the most recently used directory.
    durability: Option<(Arc<Dir>, Durability)>,
    /// Writers of file systems, by device.
    writers: Vec<(u64, Writer)>,
    batch: Batch<'p>,
    /// Directories with new entries that must be synchronised by themselves.
    unsynced: BTreeSet<&'p [u8]>,
    /// Entries that failed while others before them wait.
    failed: BTreeMap<u32, Fault>,
    /// Failures before those.
    failures: Failures,
    /// The fault that ended the pack: no further entry is written.
    ended: Option<Fault>,
}

impl<'r, 'p> Writing<'r, 'p> {
    fn new(
        store: &'r LocalStore,
        root: &'r [u8],
        base: Dir,
        rules: &'r mut dyn PackRules,
        change: PackChange,
    ) -> Self {
        Self {
            root,
            place: base.real_path().unwrap_or_default(),
            dirs: Dirs::new(base),
            sets_id: store.root.is_none()
                || (rules.may_set_id() && ids::effective_user() == Some(0)),
            store,
            nameless: true,
            is_relaxed: rules.is_relaxed(),
            counts: rules.counts(),
            owners: OwnerNumbers::default(),
            rules,
            change,
            durability: None,
            writers: Vec::new(),
            batch: Batch::default(),
            unsynced: BTreeSet::new(),
            failed: BTreeMap::new(),
            failures: Failures::default(),
            ended: None,
        }
    }

    /// Writes an entry, or as much of it as is allowed before the waiting ones are durable.
    fn take(&mut self, number: u32, entry: Entry<'p>) {
        let is_full = !self.batch.has_room() || self.failed.len() >= WAITING_MAX;
        if is_full || self.batch.decides(entry.path) {
            self.flush();
        }
        let carried_out = match entry.content {
            Content::File(_) if !self.is_relaxed => self.stage(number, &entry),
            // A new directory is empty, and a staged file has no name yet.
            Content::Directory | Content::File(_) => self.entry(&entry),
            _ if self.batch.is_empty() => self.entry(&entry),
            _ => {
                self.batch.push(PendingEntry {
                    number,
                    entry,
                    staged: None,
                });
                return;
            }
        };
        if let Err(problem) = carried_out {
            self.fail(number, &entry, problem);
        }
        if self.batch.is_empty() {
            self.settle();
        }
    }

    /// Moves faults to the failures, once nothing before them waits: there they take little memory.
    fn settle(&mut self) {
        for (number, fault) in std::mem::take(&mut self.failed) {
            self.failures.push(number, fault);
        }
    }

    fn fail(&mut self, number: u32, entry: &Entry<'_>, problem: Problem) {
        let mut fault = *problem.fault;
        fault.operation = operation(&entry.content).into();
        fault.path = shown(self.root, entry.path);
        if problem.is_final {
            self.ended.get_or_insert_with(|| fault.clone());
        }
        self.failed.insert(number, fault);
    }

    /// The medium of a directory. Must be called before anything is written in it.
    fn durability(&mut self, dir: &Arc<Dir>) -> Result<Durability, Problem> {
        if self.is_relaxed {
            return Ok(Durability::Volatile);
        }
        if let Some((known, durability)) = &self.durability
            && Arc::ptr_eq(known, dir)
        {
            return Ok(*durability);
        }
        let io = |error: io::Error| Problem::io(&error);
        let device = dir.meta().map_err(io)?.identity.map(|(device, _)| device);
        let known = self.writers.iter().position(|(d, _)| Some(*d) == device);
        let durability = match (known, device) {
            (Some(at), _) => Durability::Whole(at),
            (None, _) if dir.sync_kind() == SyncKind::Needless => Durability::Volatile,
            (None, None) => Durability::Each,
            (None, Some(device)) => match Writer::begin(dir, &self.place).map_err(io)? {
                None => Durability::Each,
                Some(writer) => {
                    self.writers.push((device, writer));
                    Durability::Whole(self.writers.len() - 1)
                }
            },
        };
        self.durability = Some((Arc::clone(dir), durability));
        Ok(durability)
    }

    /// Writes a file that gets its name later.
    fn stage(&mut self, number: u32, entry: &Entry<'p>) -> Result<(), Problem> {
        let replace = self.rules.entry(entry)?;
        let (parent, name) = split(entry.path);
        check_name(name)?;
        let dir = self.parent(parent)?;
        let Content::File(data) = entry.content else {
            return Ok(());
        };
        let place = place_of(&dir, entry, replace, self.counts);
        let durability = self.durability(&dir)?;
        match durability {
            Durability::Volatile => return self.file(&place, data, &entry.metadata),
            Durability::Each => {
                self.unsynced.insert(parent);
            }
            Durability::Whole(_) => {}
        }
        let mut permit = OpenFilePermit::take();
        if permit.is_none() && !self.batch.is_empty() {
            self.flush();
            permit = OpenFilePermit::take();
        }
        if self.batch.is_empty() {
            for (_, writer) in &mut self.writers {
                writer.begin_batch();
            }
        }
        let mut first_problem = FirstProblem::default();
        let unnamed = self.write(&place, data, &entry.metadata, &mut first_problem)?;
        self.batch.push(PendingEntry {
            number,
            entry: entry.clone(),
            staged: Some(Staged {
                dir: Arc::clone(&dir),
                unnamed,
                replace,
                is_alone: durability == Durability::Each,
                first_problem,
                permit,
            }),
        });
        Ok(())
    }

    fn write(
        &mut self,
        place: &Destination<'_>,
        data: &[u8],
        metadata: &Metadata<'_>,
        first_problem: &mut FirstProblem,
    ) -> Result<Unnamed, Problem> {
        let mode = self.mode(metadata);
        let owners = &mut self.owners;
        let apply_metadata = &mut |file: &File, current_mode: u32| {
            set_metadata(
                file,
                metadata,
                mode,
                Some(current_mode),
                owners,
                first_problem,
            );
        };
        let made_as = mode.map_or(0o666, |mode| mode & 0o777);
        let bytes = Bytes {
            data,
            sparse: metadata.sparse,
        };
        place.write(bytes, made_as, &mut self.nameless, apply_metadata)
    }

    /// Makes waiting entries durable, and then completes them in order.
    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            self.settle();
            return;
        }
        let synced = self.make_durable(&batch);
        for PendingEntry {
            number,
            entry,
            staged,
        } in batch.into_entries()
        {
            let carried_out = match (staged, &synced) {
                (Some(staged), Ok(())) => self.name(&entry, staged),
                (Some(staged), Err(problem)) => {
                    place_of(&staged.dir, &entry, false, false).discard(staged.unnamed);
                    Err(problem.clone())
                }
                (None, Ok(())) => self.entry(&entry),
                (None, Err(problem)) => Err(problem.clone()),
            };
            if let Err(problem) = carried_out {
                self.fail(number, &entry, problem);
            }
        }
        self.settle();
    }

    fn make_durable(&self, batch: &Batch<'_>) -> Result<(), Problem> {
        let staged = batch.entries().iter().filter_map(|w| w.staged.as_ref());
        let (mut alone, mut together) = (Vec::new(), 0);
        for staged in staged {
            match staged.is_alone {
                true => alone.push(&staged.unnamed.file),
                false => together += 1,
            }
        }
        let synced = alone.into_iter().try_for_each(File::sync_all);
        let synced = synced.and_then(|()| {
            let mut writers = self.writers.iter().filter(|_| together > 0);
            writers.try_for_each(|(_, writer)| writer.sync())
        });
        synced.map_err(|error| {
            let mut problem = Problem::io(&error);
            let cause = &problem.fault.cause;
            problem.fault.cause = format!("it could not be made durable: {cause}");
            problem
        })
    }

    /// Gives a durable file its name.
    fn name(&mut self, entry: &Entry<'_>, staged: Staged) -> Result<(), Problem> {
        let Staged {
            dir,
            unnamed,
            replace,
            first_problem,
            permit,
            ..
        } = staged;
        let place = place_of(&dir, entry, replace, self.counts);
        let Content::File(data) = entry.content else {
            return Ok(());
        };
        let metadata = &entry.metadata;
        let named = self.give_name(&place, data, metadata, unnamed, first_problem, true);
        drop(permit);
        named
    }

    /// Gives a file its name. Where files without a name can't get one after all, it is written
    /// again with a hidden name, and made durable if it is to be durable.
    fn give_name(
        &mut self,
        place: &Destination<'_>,
        data: &[u8],
        metadata: &Metadata<'_>,
        unnamed: Unnamed,
        mut first_problem: FirstProblem,
        is_durable: bool,
    ) -> Result<(), Problem> {
        let named = match place.give_name(unnamed)? {
            Some(named) => named,
            None => {
                self.nameless = false;
                first_problem = FirstProblem::default();
                let hidden = self.write(place, data, metadata, &mut first_problem)?;
                if is_durable && let Err(error) = hidden.file.sync_all() {
                    place.discard(hidden);
                    return Err(Problem::io(&error));
                }
                place.give_name(hidden)?.unwrap_or(NameOutcome::New)
            }
        };
        self.count(named, data.len() as u64);
        first_problem.into_result()
    }

    /// Synchronises the directories with new entries, unless their whole file system is
    /// synchronised.
    fn sync_directories(&mut self, count: u32) {
        let mut paths: BTreeSet<&[u8]> = BTreeSet::new();
        for path in std::mem::take(&mut self.unsynced) {
            let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
            let ends = slashes.chain([0, path.len()]);
            paths.extend(ends.map(|end| &path[..end]));
        }
        let mut lost = None;
        for path in paths {
            if let Err(problem) = self.sync_directory(path) {
                let fault = problem.fault.path(shown(self.root, path));
                lost.get_or_insert(fault);
            }
        }
        // The entries of a lost directory are no longer known. So all entries that have succeeded
        // fail with its fault, which also covers the faults of further directories.
        if let Some(fault) = lost {
            let earlier = std::mem::take(&mut self.failures);
            for number in 0..count {
                let own = earlier.of(number).unwrap_or(&fault);
                self.failures.push(number, own.clone());
            }
        }
    }

    fn sync_directory(&mut self, path: &[u8]) -> Result<(), Problem> {
        let dir = self.dirs.find(path)?;
        let synced = dir.reopen().and_then(|dir| dir.sync_all());
        let synced = synced.map_err(|error| Problem::io(&error));
        synced.or_else(|problem| {
            // Unsupported by some systems, and impossible for directories that can't be opened.
            let codes = [
                Code::InvalidArgument,
                Code::Unsupported,
                Code::PermissionDenied,
            ];
            match codes.contains(&problem.fault.code) {
                true => Ok(()),
                false => Err(problem),
            }
        })
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Problem> {
        let replace = self.rules.entry(entry)?;
        let metadata = &entry.metadata;
        if entry.path.is_empty() {
            return match entry.content {
                Content::Attributes => self.attributes_of_base(metadata),
                // It exists.
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
            // Nothing is created for a link that can't be made.
            let (parent, name) = split(existing);
            check_name(name)?;
            link = Some((self.dirs.find(parent)?, name));
        }
        let dir = self.parent(parent)?;
        // Before anything is written to its file system.
        self.durability(&dir)?;
        let place = place_of(&dir, entry, replace, self.counts);
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

    fn count(&mut self, named: NameOutcome, bytes: u64) {
        self.change.bytes += bytes;
        match named {
            NameOutcome::New => self.change.names += 1,
            NameOutcome::Replaced(length) => self.change.replaced_bytes += length,
        }
    }

    /// The mode that an entry other than a directory gets.
    fn mode(&self, metadata: &Metadata<'_>) -> Option<u32> {
        let denied = self.denied(metadata, self.sets_id);
        let mode = metadata.mode.map(u32::from);
        mode.map(|mode| self.store.granted(mode & !denied))
    }

    /// The mode that a directory gets, which has the mode `has`. What the entry can't decide stays
    /// as it is, such as the set-group-id bit inherited from the parent.
    fn directory_mode(&self, metadata: &Metadata<'_>, has: u32) -> Option<u32> {
        let denied = self.denied(metadata, true);
        let mode = metadata.mode.map(u32::from);
        mode.map(|mode| self.store.granted(mode & !denied) | has & denied)
    }

    /// The special bits that an entry doesn't get: set-user-id and set-group-id come only together
    /// with the owner of the source.
    fn denied(&self, metadata: &Metadata<'_>, sets_id: bool) -> u32 {
        let may_set_id = sets_id && metadata.owner.is_some();
        self.store.denied() | if may_set_id { 0 } else { SET_ID }
    }

    fn file(
        &mut self,
        place: &Destination<'_>,
        data: &[u8],
        metadata: &Metadata<'_>,
    ) -> Result<(), Problem> {
        let mut first_problem = FirstProblem::default();
        let unnamed = self.write(place, data, metadata, &mut first_problem)?;
        self.give_name(place, data, metadata, unnamed, first_problem, false)
    }

    fn directory(
        &mut self,
        place: &Destination<'_>,
        metadata: &Metadata<'_>,
    ) -> Result<(), Problem> {
        let mode = self.directory_mode(metadata, 0);
        // Directories closed to the owner get their mode when the tree is complete.
        let is_open = mode.is_none_or(|mode| mode & OWNER_ALL == OWNER_ALL);
        let made_as = mode.map_or(0o777, |mode| mode & 0o777 | OWNER_ALL);
        let is_new = match place.dir.make_dir_masked(place.name, made_as) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(Problem::io(&error)),
        };
        if is_new {
            self.count(NameOutcome::New, 0);
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
        let mut first_problem = FirstProblem::default();
        // Also if it exists: its entries may have been written before its own.
        let mut own = metadata.clone();
        (own.mtime_ns, own.atime_ns) = (None, None);
        // Entries created in it would inherit this.
        own.xattrs.retain(|(name, _)| *name != DEFAULT_ACL);
        // The entry that comes when the tree is complete has no owner, so it can't set set-id bits.
        let is_set = own.owner.is_some() || is_open && (is_new || place.replace);
        own.mode = own.mode.filter(|_| is_set);
        let mode = self.directory_mode(&own, meta.mode.unwrap_or(0));
        set_metadata(
            &found,
            &own,
            mode.map(|mode| mode | OWNER_ALL),
            meta.mode,
            &mut self.owners,
            &mut first_problem,
        );
        first_problem.into_result()
    }

    fn symlink(
        &mut self,
        place: &Destination<'_>,
        target: &[u8],
        metadata: &Metadata<'_>,
    ) -> Result<(), Problem> {
        // The target of the link isn't resolved, but must not lead to an unfinished transfer.
        if target.split(path::is_separator).any(path::is_hidden_name) {
            return Err(path::hidden_fault("", b"").into());
        }
        let mut first_problem = FirstProblem::default();
        // It gets its name with complete metadata, so that its owner is certain.
        let named = place.make_with_metadata(
            |name| place.dir.symlink(target, name),
            |name| self.link_metadata(place.dir, name, metadata, &mut first_problem),
        )?;
        self.count(named, 0);
        first_problem.into_result()
    }

    /// Applies the metadata of a symbolic link, which has no mode.
    fn link_metadata(
        &mut self,
        dir: &Dir,
        name: &[u8],
        metadata: &Metadata<'_>,
        first_problem: &mut FirstProblem,
    ) {
        if let Some(owner) = &metadata.owner {
            let set = |uid, gid| dir.set_owner(name, uid, gid);
            let result = set_owner(owner, &mut self.owners, set);
            first_problem.record("owner", result.map(drop));
        }
        if !metadata.xattrs.is_empty() {
            let error = io::ErrorKind::Unsupported.into();
            first_problem.record("extended attributes", Err(Problem::io(&error)));
        }
        if metadata.mtime_ns.is_some() || metadata.atime_ns.is_some() {
            let set = dir.set_times(name, metadata.atime_ns, metadata.mtime_ns);
            first_problem.record("times", set.map_err(|error| Problem::io(&error)));
        }
    }

    fn pipe(&mut self, place: &Destination<'_>, metadata: &Metadata<'_>) -> Result<(), Problem> {
        let mode = self.mode(metadata);
        let made_as = mode.map_or(0o666, |mode| mode & 0o777);
        let mut first_problem = FirstProblem::default();
        let owners = &mut self.owners;
        let named = place.make_with_metadata(
            |name| place.dir.make_pipe(name, made_as),
            |name| match find(place.dir, name) {
                Ok(found) => {
                    let current_mode = Some(fs::masked(made_as));
                    set_metadata(
                        &found,
                        metadata,
                        mode,
                        current_mode,
                        owners,
                        &mut first_problem,
                    );
                }
                Err(problem) => {
                    first_problem.record("metadata", Err(problem));
                }
            },
        )?;
        self.count(named, 0);
        first_problem.into_result()
    }

    fn link(
        &mut self,
        place: &Destination<'_>,
        from: &Dir,
        existing: &[u8],
    ) -> Result<(), Problem> {
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
            // It already is that file, for instance from an interrupted attempt.
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
        let mut first_problem = FirstProblem::default();
        if meta.is_some_and(|meta| meta.kind == FileKind::Symlink) {
            self.link_metadata(dir, name, metadata, &mut first_problem);
        } else {
            self.attributes_of(&find(dir, name)?, metadata, &mut first_problem)?;
        }
        first_problem.into_result()
    }

    fn attributes_of_base(&mut self, metadata: &Metadata<'_>) -> Result<(), Problem> {
        let base = self.dirs.base().find_beneath(b"");
        let base = base.map_err(|error| Problem::resolve(&error))?;
        let mut first_problem = FirstProblem::default();
        self.attributes_of(&base, metadata, &mut first_problem)?;
        first_problem.into_result()
    }

    fn attributes_of(
        &mut self,
        found: &Handle,
        metadata: &Metadata<'_>,
        first_problem: &mut FirstProblem,
    ) -> Result<(), Problem> {
        let meta = found.meta().map_err(|error| Problem::io(&error))?;
        let mode = match meta.kind {
            // It was exchanged concurrently.
            FileKind::Symlink => {
                return Err(Problem::new(Code::Busy, "it is changed at this moment"));
            }
            FileKind::Directory => self.directory_mode(metadata, meta.mode.unwrap_or(0)),
            _ => self.mode(metadata),
        };
        let thing: &dyn MetadataTarget = found;
        set_metadata(
            thing,
            metadata,
            mode,
            meta.mode,
            &mut self.owners,
            first_problem,
        );
        Ok(())
    }
}

fn place_of<'e>(
    dir: &'e Dir,
    entry: &'e Entry<'_>,
    replace: bool,
    counts: bool,
) -> Destination<'e> {
    Destination {
        dir,
        name: split(entry.path).1,
        replace,
        counts,
    }
}

fn find(dir: &Dir, name: &[u8]) -> Result<Handle, Problem> {
    dir.find_name(name).map_err(|error| Problem::io(&error))
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
