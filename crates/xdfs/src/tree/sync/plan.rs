//! The comparison: walks both trees in the same order, directory by directory, merges their sorted
//! names, and produces actions. It can't change anything.
//!
//! Memory: the pending directories, some listings ahead, and everything that waits for the end:
//! names to delete, files that may be renames, directories that change.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use xdfs_proto::{ChecksumKind, ChecksumValue, Fault};
use xdfs_store::local::SettableOwners;
use xdfs_sys::fs::masked;

use super::backup::{Backup, is_marked};
use super::name_matches::{DeferredEntry, Listed, NameMatch, NameMatches, match_names, same};
use super::refusals::{clash, in_the_way, not_moved};
use super::view::View;
use super::{Compare, SyncOptions, swap};
use crate::mtime::is_equal_or_cut;
use crate::paths::{Answer, Attributes, Entry, FileKind, join};
use crate::tree::filter::upwards;
use crate::tree::namespace::{Namespace, Pending, check_length, odd_answer};
use crate::tree::options::SMALL_BYTES_MAX;
use crate::tree::run::TreeRun;
use crate::tree::tracker::OWNER_ALL;

/// Pending directories that are listed ahead on the server, and the most such listings in total.
const LISTINGS_AHEAD: usize = 8;
const LISTINGS_MAX: usize = 32;
/// Permissions that the owner of a directory needs to list it.
const OWNER_LOOKS: u32 = 0o500;
/// What everybody may do with an entry: its mode without set-user-id, set-group-id and sticky.
const PERMISSIONS: u32 = 0o777;
/// Concurrent comparisons of contents.
const QUESTIONS_MAX: usize = 16;

/// An action, executed while the comparison continues.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Move an entry; a directory without its contents.
    Copy(Listed, Replaces),
    /// Set the metadata of an entry whose content is equal.
    Set(Listed),
    /// The entry can't be compared or moved.
    Failed(Vec<u8>, Fault),
}

/// What an entry replaces at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaces {
    Nothing,
    Entry,
    /// A regular file replaces one of this size in bytes.
    File(u64),
}

/// A name of the target that the source lacks.
#[derive(Clone, Debug)]
pub(super) struct Extraneous {
    pub(super) path: Vec<u8>,
    pub(super) attributes: Attributes,
    /// An entry of another kind has to take its place, or that of a directory above it.
    pub(super) is_in_the_way: bool,
    /// The source has an entry of another kind under this name.
    pub(super) has_successor: bool,
}

impl Extraneous {
    fn new(path: Vec<u8>, found: &Attributes, is_in_the_way: bool, has_successor: bool) -> Self {
        Self {
            path,
            attributes: found.clone(),
            is_in_the_way,
            has_successor,
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }
}

/// A file of the source that has another name at the target.
#[derive(Clone, Debug)]
pub(super) struct Renaming {
    pub(super) from: Vec<u8>,
    pub(super) to: Listed,
}

/// The results of a comparison, with the work that follows the actions.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) renamings: Vec<Renaming>,
    /// Files too large for packs, which would replace the old entries atomically.
    pub(super) swaps: Vec<Listed>,
    /// Entries to copy once those in the way are deleted.
    pub(super) late: Vec<Listed>,
    /// Entries to copy at the end, since their names may collide with others.
    pub(super) deferred: Vec<DeferredEntry>,
    pub(super) extras: Vec<Extraneous>,
    /// Backup directories of earlier runs, which stay.
    pub(super) backups: Vec<Vec<u8>>,
    /// Number of names that were found at the target.
    pub(super) target_names: u64,
    /// Temporary files of interrupted swaps, deleted in any case.
    pub(super) left_over: Vec<Extraneous>,
    /// Directories in which something changes, or whose metadata differs.
    pub(super) directories: BTreeMap<Vec<u8>, Attributes>,
    /// Directories whose own metadata differs.
    pub(super) directories_set: Vec<Vec<u8>>,
    /// Reported failures that don't prevent deletion: the contents of an unlistable directory of
    /// the target stay anyway, and sockets and devices are never moved.
    pub(super) harmless: u64,
    /// Number of replacing and of setting actions.
    pub(super) replaced: u64,
    pub(super) set: u64,
}

/// Takes an action; `false` if no more are wanted.
pub(super) type Emit<'g> = dyn FnMut(Action) -> bool + 'g;

/// A directory of the source, as listed.
type Directory = Rc<Listed>;

/// A directory to visit.
type Visit = (Vec<u8>, Presence);

/// Listings that were begun, each for the source or, with the flag, for the target.
type Listings<'a> = HashMap<(bool, Vec<u8>), Pending<'a>>;

/// The side or sides on which a directory exists.
enum Presence {
    Both(Attributes),
    /// In the source only; the flag defers its contents to the end.
    Source(Attributes, bool),
    /// In the target only; the flag says that it is in the way.
    Target(bool),
}

/// A comparison of contents in progress.
struct Question<'a> {
    entry: Listed,
    parent: Directory,
    source: Pending<'a>,
    target: Pending<'a>,
    /// The metadata differs.
    differs: bool,
}

/// The walk and its results.
pub(super) struct Comparison<'a> {
    source: View<'a>,
    target: View<'a>,
    run: &'a TreeRun<'a>,
    /// Directories of the target that are closed to the user until their modes are set, by path.
    closed: HashMap<Vec<u8>, Attributes>,
    options: &'a SyncOptions,
    /// By which contents are compared.
    digest: ChecksumKind,
    backup: Option<&'a Backup<'a>>,
    stop: &'a AtomicBool,
    emit: &'a mut Emit<'a>,
    wanted: bool,
    outcome: Outcome,
    stack: Vec<Visit>,
    listings: Listings<'a>,
    questions: VecDeque<Question<'a>>,
    /// Missing files that may exist under another name.
    missing: Vec<Listed>,
    /// Entries and directories of the target that have to stay.
    kept: HashSet<Vec<u8>>,
}

impl<'a> Comparison<'a> {
    /// A comparison that ends early when `stop` is set.
    pub(super) fn new(
        run: &'a TreeRun<'a>,
        options: &'a SyncOptions,
        backup: Option<&'a Backup<'a>>,
        (stop, emit): (&'a AtomicBool, &'a mut Emit<'a>),
    ) -> Self {
        let (source, target) = (View::new(run.source), View::new(run.target));
        Self {
            source,
            target,
            run,
            closed: HashMap::new(),
            options,
            digest: digest_kind(options, [source, target]),
            backup,
            stop,
            emit,
            wanted: true,
            outcome: Outcome::default(),
            stack: Vec::new(),
            listings: HashMap::new(),
            questions: VecDeque::new(),
            missing: Vec::new(),
            kept: HashSet::new(),
        }
    }

    /// Compares the trees. A missing target is `None`.
    ///
    /// # Errors
    /// The session ended.
    pub(super) fn run(
        mut self,
        source: Attributes,
        target: Option<&Attributes>,
    ) -> Result<Outcome, Fault> {
        let place = match target {
            Some(target) => {
                self.compare_directories(Vec::new(), &source, target);
                Presence::Both(source)
            }
            None => {
                self.touch(&(Vec::new(), source.clone()));
                Presence::Source(source, false)
            }
        };
        self.stack.push((Vec::new(), place));
        self.end()
    }

    /// Copies deferred entries with everything beneath them, as they don't exist at the target.
    ///
    /// # Errors
    /// The session ended.
    pub(super) fn run_deferred(mut self, waited: &[DeferredEntry]) -> Result<Outcome, Fault> {
        for DeferredEntry { entry, .. } in waited {
            let (path, attributes) = entry;
            if attributes.kind == FileKind::Directory {
                let place = Presence::Source(attributes.clone(), false);
                self.stack.push((path.clone(), place));
            }
            self.copy(entry.clone(), Replaces::Nothing);
        }
        self.end()
    }

    fn end(mut self) -> Result<Outcome, Fault> {
        self.walk()?;
        self.finish()?;
        Ok(self.outcome)
    }

    fn is_stopped(&self) -> bool {
        !self.wanted || self.stop.load(Ordering::Relaxed)
    }

    fn emit(&mut self, action: Action) {
        self.wanted = self.wanted && (self.emit)(action);
    }

    fn copy(&mut self, entry: Listed, replaces: Replaces) {
        self.outcome.replaced += u64::from(replaces != Replaces::Nothing);
        self.emit(Action::Copy(entry, replaces));
    }

    fn set(&mut self, entry: Listed) {
        self.outcome.set += 1;
        self.emit(Action::Set(entry));
    }

    fn failed(&mut self, path: &[u8], fault: Fault) {
        self.emit(Action::Failed(path.to_vec(), fault));
    }

    /// An entry can't be moved because of what it is.
    fn failed_at_source(&mut self, path: &[u8], fault: Fault) {
        let fault = self.source.fault(path, fault);
        self.failed(path, fault);
    }

    fn failed_harmlessly(&mut self, path: &[u8], fault: Fault) {
        self.outcome.harmless += 1;
        self.failed_at_source(path, fault);
    }

    /// Something in this directory changes, or its own metadata.
    fn touch(&mut self, (path, attributes): &Listed) {
        if let Some(there) = self.closed.remove(path) {
            self.run.open_directory(path, &there);
        }
        let directories = &mut self.outcome.directories;
        if !directories.contains_key(path) {
            directories.insert(path.clone(), attributes.clone());
        }
    }

    /// Defers an entry until the one that its name may collide with has been moved.
    fn wait(&mut self, entry: Listed, other: Vec<u8>, directory: &Directory) {
        if is_moved(entry.1.kind) {
            self.touch(directory);
            self.outcome.deferred.push(DeferredEntry { entry, other });
        } else {
            self.failed_harmlessly(&entry.0, not_moved());
        }
    }

    /// Keeps an entry of the target, and the directories above it.
    fn keep(&mut self, path: &[u8]) {
        for path in upwards(path) {
            if !self.kept.insert(path.to_vec()) {
                return;
            }
        }
    }

    fn walk(&mut self) -> Result<(), Fault> {
        while let Some(visit) = self.stack.pop() {
            if self.is_stopped() {
                return Ok(());
            }
            self.look_ahead();
            self.visit(visit)?;
        }
        while let Some(question) = self.questions.pop_front() {
            if self.is_stopped() {
                return Ok(());
            }
            self.answer(question)?;
        }
        Ok(())
    }

    /// Starts the listings of the next directories.
    fn look_ahead(&mut self) {
        for (path, place) in self.stack.iter().rev().take(LISTINGS_AHEAD) {
            let sides = match place {
                Presence::Both(_) => &[self.source, self.target][..],
                Presence::Source(..) => &[self.source],
                Presence::Target(_) => &[self.target],
            };
            for side in sides.iter().filter(|side| side.is_remote()) {
                if self.listings.len() >= LISTINGS_MAX {
                    return;
                }
                let key = (side.is(self.target), path.clone());
                self.listings
                    .entry(key)
                    .or_insert_with(|| side.start_list(path));
            }
        }
    }

    fn list(&mut self, side: View<'_>, path: &[u8]) -> Result<Option<Vec<Entry>>, Fault> {
        let ahead = match side.is_remote() {
            true => self.listings.remove(&(side.is(self.target), path.to_vec())),
            false => None,
        };
        let asked = ahead.unwrap_or_else(|| side.start_list(path));
        let (mut names, fault) = Namespace::told_names(asked);
        if let Some(fault) = fault {
            match fault {
                fault if fault.ends_session => return Err(fault),
                // An unlisted source directory may contain the entries that seem extraneous
                // elsewhere, so this prevents deletion. An unlisted target directory stays.
                fault if side.is(self.source) => self.failed(path, fault),
                fault => self.failed_harmlessly(path, fault),
            }
            if names.is_empty() {
                return Ok(None);
            }
        }
        if side.is(self.target) {
            self.outcome.target_names += names.len() as u64;
        }
        for (entry, fault) in side.follow_names(path, &mut names)? {
            let path = join(path, &entry.name);
            if !self.leaves_out(&path, &entry) {
                self.failed(&path, fault);
            }
        }
        Ok(Some(names))
    }

    /// Whether the filter leaves out an entry, be it of the source or an extraneous one.
    fn leaves_out(&self, path: &[u8], entry: &Entry) -> bool {
        let found = &entry.attributes;
        let is_beyond = || self.options.tree.is_beyond_limits(found, found.mtime());
        self.leaves_out_name(path, entry) || is_beyond()
    }

    /// Whether the filter leaves out an entry by its name. Of an entry on both sides the limits on
    /// files concern the source only: the version at the target may be beyond them.
    fn leaves_out_name(&self, path: &[u8], entry: &Entry) -> bool {
        let is_directory = entry.attributes.kind == FileKind::Directory;
        self.options.tree.filter.leaves_out(path, is_directory)
    }

    fn is_backup(&self, path: &[u8], entry: &Entry) -> bool {
        self.backup.is_some_and(|backup| backup.is_at(path, entry))
    }

    fn visit(&mut self, (path, place): Visit) -> Result<(), Fault> {
        let below = self.stack.len();
        match place {
            Presence::Both(attributes) => {
                let there = self.list(self.target, &path)?;
                // If the source isn't listed, nothing is deleted at the target.
                if let Some(source) = self.list(self.source, &path)?
                    && let Some(target) = there
                {
                    self.merge(&Rc::new((path, attributes)), None, source, target)?;
                }
            }
            Presence::Source(attributes, is_late) => {
                if let Some(source) = self.list(self.source, &path)? {
                    let directory = Rc::new((path, attributes));
                    self.merge(&directory, Some(is_late), source, Vec::new())?;
                }
            }
            Presence::Target(is_in_the_way) => match self.list(self.target, &path)? {
                Some(target) if is_marked(&target) => {
                    self.keep(&path);
                    self.outcome.backups.push(path);
                }
                Some(target) => {
                    for entry in target {
                        let path = join(&path, &entry.name);
                        if self.leaves_out(&path, &entry) || self.is_backup(&path, &entry) {
                            self.keep(&path);
                        } else {
                            self.only_target(path, &entry.attributes, is_in_the_way, false);
                        }
                    }
                }
                None => self.keep(&path),
            },
        }
        // So that they are popped in the order of their names.
        self.stack[below..].reverse();
        Ok(())
    }

    /// Compares the contents of a directory. `is_late` is `Some` for a directory in the source
    /// only: whether its contents wait for the end.
    fn merge(
        &mut self,
        directory: &Directory,
        is_late: Option<bool>,
        mut source: Vec<Entry>,
        mut target: Vec<Entry>,
    ) -> Result<(), Fault> {
        // Nothing goes into the backup directory but what is replaced or removed.
        if let Some(backup) = self.backup {
            let at = |entry: &Entry| join(&directory.0, &entry.name);
            let found = target.extract_if(.., |entry| backup.is_at(&at(entry), entry));
            let found: Vec<_> = found.map(|entry| entry.name).collect();
            source.retain(|entry| !backup.is_named(&at(entry)) && !found.contains(&entry.name));
        }
        if is_marked(&target) && !is_marked(&source) {
            // It stays even if the source has a directory of this name by now.
            target.retain(|there| source.iter().any(|entry| entry.name == there.name));
            self.outcome.backups.push(directory.0.clone());
        }
        for (path, entry) in swap::take_left_over(&directory.0, &source, &mut target) {
            if !self.leaves_out_name(&path, &entry) {
                self.touch(directory);
                let left = Extraneous::new(path, &entry.attributes, false, false);
                self.outcome.left_over.push(left);
            }
        }
        let leaves_out = |path: &[u8], entry: &Entry, is_source: bool| match is_source {
            true => self.leaves_out(path, entry),
            false => self.leaves_out_name(path, entry),
        };
        let names = (&source[..], &target[..]);
        let mut matches = match_names(self.target, &leaves_out, &directory.0, names)?;
        let mut target = target.into_iter().peekable();
        for entry in source {
            while let Some(extra) = target.next_if(|t| t.name < entry.name) {
                self.extra(directory, &extra, &matches);
            }
            let twin = target.next_if(|t| t.name == entry.name);
            let path = join(&directory.0, &entry.name);
            if self.leaves_out(&path, &entry) {
                continue;
            }
            if let Err(fault) = check_length(&path) {
                self.failed_at_source(&path, fault);
                continue;
            }
            let attributes = entry.attributes;
            match twin {
                Some(twin) if self.leaves_out_name(&path, &twin) => {}
                Some(twin) => self.both((path, attributes), &twin.attributes, directory)?,
                None => match matches.take(&entry.name) {
                    None => {
                        if is_late.is_none() {
                            self.touch(directory);
                        }
                        self.only_source((path, attributes), is_late == Some(true), directory);
                    }
                    Some(NameMatch::Spelled(there)) => {
                        self.both((path, attributes), &there, directory)?;
                    }
                    Some(NameMatch::Means(other)) => self.failed(&path, same(&path, &other)),
                    Some(NameMatch::Deferred(other)) => {
                        self.wait((path, attributes), other, directory);
                    }
                    Some(NameMatch::Failed(fault)) => self.failed(&path, fault),
                },
            }
            if self.is_stopped() {
                return Ok(());
            }
        }
        for extra in target {
            self.extra(directory, &extra, &matches);
        }
        Ok(())
    }

    /// Handles a name that the source lacks, in a directory that it has.
    fn extra(&mut self, directory: &Directory, entry: &Entry, matches: &NameMatches) {
        let path = join(&directory.0, &entry.name);
        let is_extra = self.options.delete && !matches.spelled.contains(&entry.name);
        if is_extra && !self.leaves_out(&path, entry) {
            self.touch(directory);
            self.only_target(path, &entry.attributes, false, false);
        }
    }

    fn only_target(
        &mut self,
        path: Vec<u8>,
        found: &Attributes,
        is_in_the_way: bool,
        has_successor: bool,
    ) {
        if found.kind == FileKind::Directory {
            let place = Presence::Target(is_in_the_way);
            self.stack.push((path.clone(), place));
        }
        let extra = Extraneous::new(path, found, is_in_the_way, has_successor);
        self.outcome.extras.push(extra);
    }

    fn only_source(&mut self, entry: Listed, is_late: bool, directory: &Directory) {
        let (path, attributes) = &entry;
        if attributes.kind == FileKind::Directory {
            let place = Presence::Source(attributes.clone(), is_late);
            self.stack.push((path.clone(), place));
        }
        let may_be_renamed = self.finds_renames()
            && attributes.kind == FileKind::File
            && attributes.size > 0
            && attributes.links <= 1;
        if !is_moved(attributes.kind) {
            self.failed_harmlessly(path, not_moved());
        } else if is_late {
            self.outcome.late.push(entry);
        } else if may_be_renamed {
            self.touch(directory);
            self.missing.push(entry);
        } else {
            self.copy(entry, Replaces::Nothing);
        }
    }

    fn finds_renames(&self) -> bool {
        self.options.compare == Compare::Digest && self.options.delete
    }

    fn both(
        &mut self,
        entry: Listed,
        target: &Attributes,
        directory: &Directory,
    ) -> Result<(), Fault> {
        use FileKind::{Directory, Fifo, File, Symlink};
        let (path, source) = &entry;
        match (source.kind, target.kind) {
            (Directory, Directory) => {
                self.compare_directories(path.clone(), source, target);
                self.stack.push((entry.0, Presence::Both(entry.1)));
            }
            (File, File) | (Symlink, Symlink) => {
                return self.compare_content(entry, target, directory);
            }
            (Fifo, Fifo) => {
                if self.differs(source, target) || source.mtime_ns != target.mtime_ns {
                    self.set(entry);
                }
            }
            (kind, other) if !is_moved(kind) => {
                // Equal kinds need no move.
                if kind != other {
                    self.failed_harmlessly(path, not_moved());
                }
            }
            (kind, other) if !self.options.delete && (kind == Directory || other == Directory) => {
                self.failed_at_source(path, clash(other == Directory));
            }
            (Directory, _) | (_, Directory) => {
                self.touch(directory);
                self.only_target(path.clone(), target, true, true);
                self.only_source(entry, true, directory);
            }
            (File, _) if source.size > u64::from(SMALL_BYTES_MAX) || !self.run.has_packs => {
                self.touch(directory);
                self.outcome.swaps.push(entry);
            }
            // Packs replace anything but directories atomically.
            _ => {
                self.touch(directory);
                self.copy(entry, Replaces::Entry);
            }
        }
        Ok(())
    }

    fn compare_directories(&mut self, path: Vec<u8>, source: &Attributes, target: &Attributes) {
        // A root on a server keeps its mode and owner: it may be the root of an export.
        let is_kept = path.is_empty() && self.target.is_remote();
        let differs = !is_kept && self.differs(source, target);
        if differs || self.has_other_time(source, target) {
            self.outcome.directories_set.push(path.clone());
            self.touch(&(path.clone(), source.clone()));
        }
        if target.mode & OWNER_ALL != OWNER_ALL {
            self.closed.insert(path.clone(), target.clone());
            // Its entries can't be looked up otherwise.
            if target.mode & OWNER_LOOKS != OWNER_LOOKS {
                self.touch(&(path, source.clone()));
            }
        }
    }

    /// Whether the time has to be set.
    fn has_other_time(&self, source: &Attributes, target: &Attributes) -> bool {
        let times = source.mtime().zip(target.mtime());
        times.is_some_and(|(source, target)| !is_equal_or_cut(source, target))
    }

    /// Whether metadata other than the time differs.
    fn differs(&self, source: &Attributes, target: &Attributes) -> bool {
        let wanted = match self.run.masks_modes() {
            true => masked(source.mode),
            false => source.mode,
        };
        let other = wanted ^ target.mode;
        // Without owners the target may refuse the other bits.
        let differs = other & PERMISSIONS != 0 || other != 0 && self.keeps_set_id(source);
        differs || self.has_other_owner(source, target)
    }

    /// Whether an owner or a group differs that can be set.
    fn has_other_owner(&self, source: &Attributes, target: &Attributes) -> bool {
        self.options.tree.owner
            && match self.run.settable_owners() {
                SettableOwners::Any => (source.uid, source.gid) != (target.uid, target.gid),
                SettableOwners::Own { uid, gids } => {
                    target.uid == *uid && source.gid != target.gid && gids.contains(&source.gid)
                }
            }
    }

    /// Whether the target gives set-user-id, set-group-id and the sticky bit to an entry.
    fn keeps_set_id(&self, source: &Attributes) -> bool {
        self.options.tree.owner
            && match self.run.settable_owners() {
                SettableOwners::Any => true,
                settable => !self.target.is_remote() && settable.contains(source.uid, source.gid),
            }
    }

    fn compare_content(
        &mut self,
        entry: Listed,
        target: &Attributes,
        directory: &Directory,
    ) -> Result<(), Fault> {
        let (path, source) = &entry;
        let is_file = source.kind == FileKind::File;
        let times = source.mtime().zip(target.mtime());
        let is_same_time = times.is_some_and(|(source, target)| is_equal_or_cut(source, target));
        let by_time = is_file && self.options.compare == Compare::SizeAndTime;
        if source.size != target.size || by_time && !is_same_time {
            self.replace(entry, target.size, directory);
            return Ok(());
        }
        // Of a link only the owner counts. It is set by the numeric ids that are compared here: a
        // newly copied link would get the ids that its owner's names have there, and would differ
        // forever.
        let differs = match is_file {
            true => self.differs(source, target) || self.has_other_time(source, target),
            false => self.has_other_owner(source, target),
        };
        if by_time || is_file && source.size == 0 {
            if differs {
                self.set(entry);
            }
            return Ok(());
        }
        let kind = self.digest;
        let ask = |side: View<'a>| match is_file {
            true => side.start_digest(path, kind),
            false => side.start_read_link(path),
        };
        self.questions.push_back(Question {
            source: ask(self.source),
            target: ask(self.target),
            entry,
            parent: Rc::clone(directory),
            differs,
        });
        while self.questions.len() >= QUESTIONS_MAX
            && let Some(question) = self.questions.pop_front()
        {
            self.answer(question)?;
        }
        Ok(())
    }

    /// Replaces an entry with different content, of `old` bytes at the target.
    fn replace(&mut self, entry: Listed, old: u64, directory: &Directory) {
        self.touch(directory);
        let replaces = match entry.1.kind {
            FileKind::File => Replaces::File(old),
            _ => Replaces::Entry,
        };
        self.copy(entry, replaces);
    }

    fn answer(&mut self, question: Question<'_>) -> Result<(), Fault> {
        let entry = question.entry;
        let source = match question.source.wait().and_then(compared_content) {
            Ok(source) => source,
            Err(fault) if fault.ends_session => return Err(fault),
            Err(fault) => {
                self.failed(&entry.0, fault);
                return Ok(());
            }
        };
        match question.target.wait().and_then(compared_content) {
            Err(fault) if fault.ends_session => return Err(fault),
            Ok(target) if target == source => {
                if question.differs {
                    self.set(entry);
                }
            }
            // An unreadable target can be replaced.
            Ok(_) | Err(_) => {
                // Contents are compared only if the sizes are equal.
                let old = entry.1.size;
                self.replace(entry, old, &question.parent);
            }
        }
        Ok(())
    }

    /// Settles what depends on the whole walk: entries that stay, and renames.
    fn finish(&mut self) -> Result<(), Fault> {
        let kept = std::mem::take(&mut self.kept);
        // Entries can't replace those that stay, and then nothing has to make way for them.
        let late = &mut self.outcome.late;
        let blocked: Vec<_> = late.extract_if(.., |late| kept.contains(&late.0)).collect();
        for (path, _) in &blocked {
            self.failed(path, self.target.fault(path, in_the_way()));
        }
        let blocked: HashSet<_> = blocked.into_iter().map(|(path, _)| path).collect();
        self.outcome.extras.retain(|extra| {
            let is_blocked = || upwards(&extra.path).any(|path| blocked.contains(path));
            !(kept.contains(&extra.path) || extra.is_in_the_way && is_blocked())
        });
        self.find_renames()
    }

    fn find_renames(&mut self) -> Result<(), Fault> {
        let missing = std::mem::take(&mut self.missing);
        let sizes: HashSet<u64> = missing.iter().map(|(_, a)| a.size).collect();
        let mut extras: HashMap<u64, Vec<Vec<u8>>> = HashMap::new();
        for extra in &self.outcome.extras {
            let found = &extra.attributes;
            let is_file = found.kind == FileKind::File && !extra.is_in_the_way;
            if is_file && sizes.contains(&found.size) {
                let same_size = extras.entry(found.size).or_default();
                same_size.push(extra.path.clone());
            }
        }
        let mut known: HashMap<u64, Vec<(Vec<u8>, ComparedContent)>> = HashMap::new();
        for entry in missing {
            if self.is_stopped() {
                return Ok(());
            }
            let (path, size) = (&entry.0, entry.1.size);
            // All candidates of this size together, each of them once.
            if let Some(extras) = extras.remove(&size) {
                known.insert(size, self.contents(extras)?);
            }
            let mut found = None;
            if let Some(candidates) = known.get_mut(&size).filter(|c| !c.is_empty()) {
                let asked = self.source.start_digest(path, self.digest);
                match asked.wait().and_then(compared_content) {
                    Ok(own) => {
                        let at = candidates.iter().position(|(_, content)| *content == own);
                        found = at.map(|at| candidates.remove(at).0);
                    }
                    Err(fault) if fault.ends_session => return Err(fault),
                    // The copy reports the reason.
                    Err(_) => {}
                }
            }
            match found {
                Some(from) => self.outcome.renamings.push(Renaming { from, to: entry }),
                None => self.copy(entry, Replaces::Nothing),
            }
        }
        let renamed = self.outcome.renamings.iter();
        let renamed: HashSet<_> = renamed.map(|renaming| &renaming.from).collect();
        let extras = &mut self.outcome.extras;
        extras.retain(|extra| !renamed.contains(&extra.path));
        Ok(())
    }

    /// The contents of files at the target, without those that can't be read.
    fn contents(&self, files: Vec<Vec<u8>>) -> Result<Vec<(Vec<u8>, ComparedContent)>, Fault> {
        let mut known = Vec::with_capacity(files.len());
        for group in files.chunks(QUESTIONS_MAX) {
            let asked = group
                .iter()
                .map(|path| self.target.start_digest(path, self.digest));
            let asked: Vec<_> = asked.collect();
            for (path, asked) in group.iter().zip(asked) {
                match asked.wait().and_then(compared_content) {
                    Ok(content) => known.push((path.clone(), content)),
                    Err(fault) if fault.ends_session => return Err(fault),
                    Err(_) => {}
                }
            }
        }
        Ok(known)
    }
}

/// The kind of digests to compare by: what the user wants, or else one that both sides compute, so
/// that no content has to come here for that.
fn digest_kind(options: &SyncOptions, sides: [View<'_>; 2]) -> ChecksumKind {
    let wanted = options
        .tree
        .parameters
        .digest
        .unwrap_or_default()
        .checksum();
    let wanted = wanted.unwrap_or(ChecksumKind::Blake3);
    if options.compare != Compare::Digest || options.tree.parameters.digest.is_some() {
        return wanted;
    }
    let others = [
        ChecksumKind::Blake3,
        ChecksumKind::Sha256,
        ChecksumKind::Md5,
    ];
    let mut kinds = std::iter::once(wanted).chain(others);
    let both = |kind: &ChecksumKind| sides.iter().all(|side| side.computes(*kind));
    kinds.find(both).unwrap_or(wanted)
}

fn is_moved(kind: FileKind) -> bool {
    use FileKind::{Directory, Fifo, File, Symlink};
    matches!(kind, Directory | Fifo | File | Symlink)
}

/// Content of an entry, compared with another of the same size.
#[derive(PartialEq)]
enum ComparedContent {
    Link(Vec<u8>),
    File(ChecksumValue, u64),
}

/// The content in an answer.
fn compared_content(answer: Answer) -> Result<ComparedContent, Fault> {
    match answer {
        Answer::Target(target) => Ok(ComparedContent::Link(target)),
        Answer::Digest { value, length } => Ok(ComparedContent::File(value, length)),
        _ => Err(odd_answer()),
    }
}
