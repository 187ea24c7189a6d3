//! The comparison: walks both trees in the same order, directory by directory, merges their sorted
//! names, and says what is to be done. It has no means to do it.
//!
//! Memory: the directories on the way to the present one, their listings ahead, and what has to
//! wait for the end: names to delete, files that may be renames, directories that change.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use xdfs_proto::{Code, DigestKind, DigestValue, Fault};

use super::name_matches::{DeferredEntry, NameMatch, NameMatches, match_names, same};
use super::{Compare, SyncOptions, swap};
use crate::mtime::is_equal_or_cut;
use crate::paths::{Answer, Attributes, Entry, FileKind, join};
use crate::tree::namespace::{Namespace, Pending, odd_answer};
use crate::tree::options::{SET_ID, SMALL_BYTES_MAX};

/// Listings on the server that are asked for ahead, and kept in all.
const LISTINGS_AHEAD: usize = 8;
const LISTINGS_MAX: usize = 32;
/// Contents that are compared at once.
const QUESTIONS_MAX: usize = 16;

/// What is to be done while the comparison goes on.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Move an entry; directories without what is in them.
    Copy {
        path: Vec<u8>,
        attributes: Attributes,
        replaces: bool,
        /// Bytes of the regular file that it replaces, if it is one and replaces one.
        old: Option<u64>,
    },
    /// Set what is known of an entry whose content is right.
    Set {
        path: Vec<u8>,
        attributes: Attributes,
    },
    /// It can't be compared, or not moved.
    Failed { path: Vec<u8>, fault: Fault },
}

/// An entry of the source that waits for the end.
pub(super) type Late = (Vec<u8>, Attributes);

/// A name that isn't in the source.
#[derive(Clone, Debug)]
pub(super) struct Extraneous {
    pub(super) path: Vec<u8>,
    pub(super) is_directory: bool,
    /// It has content of its own, which may be wanted under another name.
    is_file: bool,
    size: u64,
    /// It stands where something of another kind has to go, or beneath such a directory.
    pub(super) is_in_the_way: bool,
    /// The source has something of another kind under this name.
    pub(super) has_successor: bool,
}

impl Extraneous {
    fn new(
        path: Vec<u8>,
        attributes: &Attributes,
        (is_in_the_way, has_successor): (bool, bool),
    ) -> Self {
        Self {
            path,
            is_directory: attributes.kind == FileKind::Directory,
            is_file: attributes.kind == FileKind::File,
            size: attributes.size,
            is_in_the_way,
            has_successor,
        }
    }
}

/// A file that has another name in the target.
#[derive(Clone, Debug)]
pub(super) struct Renaming {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    pub(super) attributes: Attributes,
}

/// What is to be done when everything else is.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) renamings: Vec<Renaming>,
    /// Files that are too large for packs, which would replace what stands there in one step.
    pub(super) swaps: Vec<Late>,
    /// What goes where something is in the way.
    pub(super) late: Vec<Late>,
    /// What goes when all that is done: its name may mean something else then.
    pub(super) deferred: Vec<DeferredEntry>,
    pub(super) extras: Vec<Extraneous>,
    /// Files that earlier swaps left, which go in any case.
    pub(super) left_over: Vec<Extraneous>,
    /// Directories in which something changes, or that aren't as in the source.
    pub(super) directories: BTreeMap<Vec<u8>, Attributes>,
    /// Directories that aren't as in the source by themselves.
    pub(super) directories_set: Vec<Vec<u8>>,
    /// Failures that were told and keep nothing from being deleted: what is beneath a directory
    /// of the target that can't be listed stays anyway, and sockets and devices are never moved.
    pub(super) harmless: u64,
    /// Why nothing more can be done.
    pub(super) fault: Option<Fault>,
}

/// Takes an action; `false` if no more are wanted.
pub(super) type Give<'g> = dyn FnMut(Action) -> bool + 'g;

pub(super) struct Comparison<'a> {
    pub(super) source: &'a Namespace<'a>,
    pub(super) target: &'a Namespace<'a>,
    pub(super) options: &'a SyncOptions,
    pub(super) stop: &'a AtomicBool,
}

/// A directory of the source: what was known of it.
type Directory = Rc<Late>;

/// A directory that is to be visited.
struct Visit {
    path: Vec<u8>,
    place: Standing,
}

/// On which side a directory is.
enum Standing {
    Both(Attributes),
    /// In the source only; the second says that what is in it waits for the end.
    Source(Attributes, bool),
    /// In the target only; the second says that it is in the way.
    Target(bool),
}

/// Two contents that are compared.
struct Question {
    path: Vec<u8>,
    attributes: Attributes,
    parent: Directory,
    source: Pending,
    target: Pending,
    /// What else is known of it differs.
    differs: bool,
}

/// The bytes of an old file that a new one replaces; the entries have the same kind.
fn old_bytes(source: &Attributes, target: u64) -> Option<u64> {
    (source.kind == FileKind::File).then_some(target)
}

/// What is found on the way.
struct Comparing<'g> {
    give: &'g mut Give<'g>,
    wanted: bool,
    outcome: Outcome,
    stack: Vec<Visit>,
    listings: HashMap<Vec<u8>, Pending>,
    questions: VecDeque<Question>,
    /// Files that are missing, and may be there under another name.
    missing: Vec<Late>,
    /// Directories of the target that have to stay.
    kept: HashSet<Vec<u8>>,
}

impl Comparing<'_> {
    fn give(&mut self, action: Action) {
        self.wanted = self.wanted && (self.give)(action);
    }

    fn copy(&mut self, path: Vec<u8>, attributes: Attributes, replaces: bool) {
        self.give(Action::Copy {
            path,
            attributes,
            replaces,
            old: None,
        });
    }

    /// Both entries are of the same kind.
    fn replace(&mut self, path: Vec<u8>, attributes: Attributes, old: u64) {
        let old = old_bytes(&attributes, old);
        self.give(Action::Copy {
            path,
            attributes,
            replaces: true,
            old,
        });
    }

    fn failed(&mut self, path: &[u8], fault: Fault) {
        let path = path.to_vec();
        self.give(Action::Failed { path, fault });
    }

    fn failed_harmlessly(&mut self, path: &[u8], fault: Fault) {
        self.outcome.harmless += 1;
        self.failed(path, fault);
    }

    fn touch(&mut self, directory: &Directory) {
        let (path, attributes) = &**directory;
        if !self.outcome.directories.contains_key(path) {
            let directories = &mut self.outcome.directories;
            directories.insert(path.clone(), attributes.clone());
        }
    }

    /// An entry goes when another is there for which its name may be taken.
    fn wait(
        &mut self,
        path: Vec<u8>,
        attributes: Attributes,
        other: Vec<u8>,
        directory: &Directory,
    ) {
        if is_moved(attributes.kind) {
            self.touch(directory);
            let waits = DeferredEntry::new(path, attributes, other);
            self.outcome.deferred.push(waits);
        } else {
            self.failed_harmlessly(&path, not_moved(&path));
        }
    }

    /// An entry of the target stays, and so do the directories above it.
    fn keep(&mut self, path: &[u8]) {
        for path in upwards(path) {
            if !self.kept.insert(path.to_vec()) {
                return;
            }
        }
    }
}

/// A path, and those of the directories above it but the root.
fn upwards(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path| {
        let at = path.iter().rposition(|b| *b == b'/')?;
        Some(&path[..at])
    })
}

fn clash(path: &[u8], is_directory: bool) -> Fault {
    let (code, cause) = if is_directory {
        (Code::IsDirectory, "a directory stands where it has to go")
    } else {
        (
            Code::NotDirectory,
            "it is a directory, and none at the target",
        )
    };
    Fault::new(code, "synchronise", cause)
        .path(path)
        .hint("use --delete to have it replaced")
}

fn in_the_way(path: &[u8]) -> Fault {
    let cause = "what stands in its way has names that have to stay";
    Fault::new(Code::NotEmpty, "synchronise", cause).path(path)
}

fn not_moved(path: &[u8]) -> Fault {
    let cause = "it is neither a file, a directory, a link nor a named pipe";
    Fault::new(Code::Unsupported, "synchronise", cause).path(path)
}

fn is_moved(kind: FileKind) -> bool {
    use FileKind::{Directory, Fifo, File, Symlink};
    matches!(kind, Directory | Fifo | File | Symlink)
}

impl<'g> Comparing<'g> {
    fn new(give: &'g mut Give<'g>) -> Self {
        Self {
            give,
            wanted: true,
            outcome: Outcome::default(),
            stack: Vec::new(),
            listings: HashMap::new(),
            questions: VecDeque::new(),
            missing: Vec::new(),
            kept: HashSet::new(),
        }
    }
}

impl<'a> Comparison<'a> {
    /// Compares the trees. The roots are there, or are `None`.
    pub(super) fn run<'g>(
        &'a self,
        source: Option<Attributes>,
        target: Option<&Attributes>,
        give: &'g mut Give<'g>,
    ) -> Outcome {
        let mut state = Comparing::new(give);
        let place = match (source, target) {
            (Some(source), Some(target)) => {
                self.compare_directories(Vec::new(), &source, target, &mut state);
                Some(Standing::Both(source))
            }
            (Some(source), None) => {
                state.touch(&Rc::new((Vec::new(), source.clone())));
                Some(Standing::Source(source, false))
            }
            (None, Some(_)) => Some(Standing::Target(false)),
            (None, None) => None,
        };
        state.stack.extend(place.map(|place| Visit {
            path: Vec::new(),
            place,
        }));
        self.end(state)
    }

    /// Goes on with entries that waited, with all that is in them: they aren't at the target.
    pub(super) fn run_deferred<'g>(
        &'a self,
        waited: &[DeferredEntry],
        give: &'g mut Give<'g>,
    ) -> Outcome {
        let mut state = Comparing::new(give);
        for DeferredEntry {
            path, attributes, ..
        } in waited
        {
            if attributes.kind == FileKind::Directory {
                let place = Standing::Source(attributes.clone(), false);
                let path = path.clone();
                state.stack.push(Visit { path, place });
            }
            state.copy(path.clone(), attributes.clone(), false);
        }
        self.end(state)
    }

    fn end(&'a self, mut state: Comparing<'_>) -> Outcome {
        let walked = self.walk(&mut state);
        let ended = walked.and_then(|()| self.finish(&mut state));
        state.outcome.fault = ended.err();
        state.outcome
    }

    fn is_stopped(&self, state: &Comparing<'_>) -> bool {
        !state.wanted || self.stop.load(Ordering::Relaxed)
    }

    fn walk(&'a self, state: &mut Comparing<'_>) -> Result<(), Fault> {
        while let Some(visit) = state.stack.pop() {
            if self.is_stopped(state) {
                return Ok(());
            }
            self.look_ahead(state);
            self.visit(visit, state)?;
        }
        while let Some(question) = state.questions.pop_front() {
            if self.is_stopped(state) {
                return Ok(());
            }
            self.answer(question, state)?;
        }
        Ok(())
    }

    /// Asks for the listings of the directories that come next.
    fn look_ahead(&'a self, state: &mut Comparing<'_>) {
        for visit in state.stack.iter().rev().take(LISTINGS_AHEAD) {
            if state.listings.len() >= LISTINGS_MAX {
                return;
            }
            let side = match visit.place {
                Standing::Both(_) if self.source.is_remote() => self.source,
                Standing::Source(..) => self.source,
                Standing::Both(_) | Standing::Target(_) => self.target,
            };
            if side.is_remote() && !state.listings.contains_key(&visit.path) {
                let asked = side.start_list(&visit.path);
                state.listings.insert(visit.path.clone(), asked);
            }
        }
    }

    fn list(
        &'a self,
        side: &'a Namespace<'a>,
        path: &[u8],
        state: &mut Comparing<'_>,
    ) -> Result<Option<Vec<Entry>>, Fault> {
        let ahead = match side.is_remote() {
            true => state.listings.remove(path),
            false => None,
        };
        let asked = ahead.unwrap_or_else(|| side.start_list(path));
        match Namespace::names(asked) {
            Ok(names) => Ok(Some(names)),
            Err(fault) if fault.ends_session => Err(fault),
            // What a source doesn't show may be what stands elsewhere in the target, so that
            // nothing is deleted any more. What can't be seen of the target stays.
            Err(fault) if std::ptr::eq(side, self.source) => {
                state.failed(path, fault);
                Ok(None)
            }
            Err(fault) => {
                state.failed_harmlessly(path, fault);
                Ok(None)
            }
        }
    }

    pub(super) fn leaves_out(&self, path: &[u8], entry: &Entry) -> bool {
        let is_directory = entry.attributes.kind == FileKind::Directory;
        self.options.tree.filter.leaves_out(path, is_directory)
    }

    fn match_names(&self, path: &[u8], names: (&[Entry], &[Entry])) -> Result<NameMatches, Fault> {
        let leaves_out = |path: &[u8], entry: &Entry| self.leaves_out(path, entry);
        match_names(self.target, &leaves_out, path, names)
    }

    fn visit(&'a self, visit: Visit, state: &mut Comparing<'_>) -> Result<(), Fault> {
        let Visit { path, place } = visit;
        let below = state.stack.len();
        match place {
            Standing::Both(attributes) => {
                let there = self.list(self.target, &path, state)?;
                // What isn't known of the source isn't deleted at the target.
                if let Some(source) = self.list(self.source, &path, state)?
                    && let Some(target) = there
                {
                    let directory = Rc::new((path, attributes));
                    self.merge(&directory, source, target, state)?;
                }
            }
            Standing::Source(attributes, is_late) => {
                if let Some(source) = self.list(self.source, &path, state)? {
                    let mut matches = self.match_names(&path, (&source, &[]))?;
                    let directory = Rc::new((path, attributes));
                    for entry in source {
                        let path = join(&directory.0, &entry.name);
                        if self.leaves_out(&path, &entry) {
                            continue;
                        }
                        let (found, attributes) = (matches.take(&entry.name), entry.attributes);
                        match found {
                            Some(NameMatch::Deferred(other)) => {
                                state.wait(path, attributes, other, &directory);
                            }
                            _ => self.only_source(path, attributes, is_late, &directory, state),
                        }
                    }
                }
            }
            Standing::Target(is_in_the_way) => match self.list(self.target, &path, state)? {
                Some(target) => {
                    for entry in target {
                        let path = join(&path, &entry.name);
                        if self.leaves_out(&path, &entry) {
                            state.keep(&path);
                        } else {
                            let place = (is_in_the_way, false);
                            only_target(path, &entry.attributes, place, state);
                        }
                    }
                }
                None => state.keep(&path),
            },
        }
        // In the order of their names.
        state.stack[below..].reverse();
        Ok(())
    }

    fn merge(
        &'a self,
        directory: &Directory,
        source: Vec<Entry>,
        mut target: Vec<Entry>,
        state: &mut Comparing<'_>,
    ) -> Result<(), Fault> {
        for (path, entry) in swap::take_left_over(&directory.0, &source, &mut target) {
            if !self.leaves_out(&path, &entry) {
                state.touch(directory);
                let left = Extraneous::new(path, &entry.attributes, (false, false));
                state.outcome.left_over.push(left);
            }
        }
        let mut matches = self.match_names(&directory.0, (&source, &target))?;
        let mut target = target.into_iter().peekable();
        for entry in source {
            while let Some(extra) = target.next_if(|t| t.name < entry.name) {
                self.extra(directory, &extra, &matches, state);
            }
            let twin = target.next_if(|t| t.name == entry.name);
            let path = join(&directory.0, &entry.name);
            if self.leaves_out(&path, &entry) {
                continue;
            }
            match twin {
                Some(twin) if self.leaves_out(&path, &twin) => {}
                Some(twin) => {
                    self.both(path, entry.attributes, &twin.attributes, directory, state)?;
                }
                None => match (matches.take(&entry.name), entry.attributes) {
                    (None, attributes) => {
                        state.touch(directory);
                        self.only_source(path, attributes, false, directory, state);
                    }
                    (Some(NameMatch::Spelled(there)), attributes) => {
                        self.both(path, attributes, &there, directory, state)?;
                    }
                    (Some(NameMatch::Means(other)), _) => state.failed(&path, same(&path, &other)),
                    (Some(NameMatch::Deferred(other)), attributes) => {
                        state.wait(path, attributes, other, directory);
                    }
                    (Some(NameMatch::Failed(fault)), _) => state.failed(&path, fault),
                },
            }
            if self.is_stopped(state) {
                return Ok(());
            }
        }
        for extra in target {
            self.extra(directory, &extra, &matches, state);
        }
        Ok(())
    }

    /// A name that isn't in the source, in a directory that is.
    fn extra(
        &self,
        directory: &Directory,
        entry: &Entry,
        matches: &NameMatches,
        state: &mut Comparing<'_>,
    ) {
        let path = join(&directory.0, &entry.name);
        let is_extra = self.options.delete && !matches.spelled.contains(&entry.name);
        if is_extra && !self.leaves_out(&path, entry) {
            state.touch(directory);
            only_target(path, &entry.attributes, (false, false), state);
        }
    }

    fn only_source(
        &self,
        path: Vec<u8>,
        attributes: Attributes,
        is_late: bool,
        directory: &Directory,
        state: &mut Comparing<'_>,
    ) {
        if attributes.kind == FileKind::Directory {
            let place = Standing::Source(attributes.clone(), is_late);
            let path = path.clone();
            state.stack.push(Visit { path, place });
        }
        let may_be_renamed = self.finds_renames()
            && attributes.kind == FileKind::File
            && attributes.size > 0
            && attributes.links <= 1;
        if !is_moved(attributes.kind) {
            state.failed_harmlessly(&path, not_moved(&path));
        } else if is_late {
            state.outcome.late.push((path, attributes));
        } else if may_be_renamed {
            state.touch(directory);
            state.missing.push((path, attributes));
        } else {
            state.copy(path, attributes, false);
        }
    }

    fn finds_renames(&self) -> bool {
        self.options.compare == Compare::Digest && self.options.delete
    }

    fn both(
        &'a self,
        path: Vec<u8>,
        source: Attributes,
        target: &Attributes,
        directory: &Directory,
        state: &mut Comparing<'_>,
    ) -> Result<(), Fault> {
        use FileKind::{Directory, Fifo, File, Symlink};
        match (source.kind, target.kind) {
            (Directory, Directory) => {
                self.compare_directories(path.clone(), &source, target, state);
                let place = Standing::Both(source);
                state.stack.push(Visit { path, place });
            }
            (File, File) | (Symlink, Symlink) => {
                return self.compare_content(path, source, target, directory, state);
            }
            (Fifo, Fifo) => {
                if self.differs(&source, target) || source.mtime_ns != target.mtime_ns {
                    let attributes = source;
                    state.give(Action::Set { path, attributes });
                }
            }
            (kind, other) if !is_moved(kind) => {
                // What is the same on both sides needs no move.
                if kind != other {
                    state.failed_harmlessly(&path, not_moved(&path));
                }
            }
            (kind, other) if !self.options.delete && (kind == Directory || other == Directory) => {
                let fault = clash(&path, other == Directory);
                state.failed(&path, fault);
            }
            // Packs replace anything but directories in one step.
            (kind, other)
                if kind != Directory
                    && other != Directory
                    && (kind != File || source.size <= u64::from(SMALL_BYTES_MAX)) =>
            {
                state.touch(directory);
                state.copy(path, source, true);
            }
            (kind, other) if kind != Directory && other != Directory => {
                state.touch(directory);
                state.outcome.swaps.push((path, source));
            }
            _ => {
                state.touch(directory);
                only_target(path.clone(), target, (true, true), state);
                self.only_source(path, source, true, directory, state);
            }
        }
        Ok(())
    }

    fn compare_directories(
        &self,
        path: Vec<u8>,
        source: &Attributes,
        target: &Attributes,
        state: &mut Comparing<'_>,
    ) {
        // A root at a server keeps its mode and its owner: it may be that of an export.
        let is_kept = path.is_empty() && self.target.is_remote();
        let differs = !is_kept && self.differs(source, target);
        if differs || !is_equal_or_cut(source.mtime_ns, target.mtime_ns) {
            state.outcome.directories_set.push(path.clone());
            state.touch(&Rc::new((path, source.clone())));
        }
    }

    /// Whether something beside content and time differs.
    fn differs(&self, source: &Attributes, target: &Attributes) -> bool {
        let is_owner_kept = self.options.tree.owner;
        let ignored = match source.kind {
            FileKind::Directory => 0,
            // They are given together with owners alone.
            _ if !is_owner_kept => SET_ID,
            _ => 0,
        };
        (source.mode ^ target.mode) & !ignored != 0 || self.has_other_owner(source, target)
    }

    fn has_other_owner(&self, source: &Attributes, target: &Attributes) -> bool {
        self.options.tree.owner && (source.uid, source.gid) != (target.uid, target.gid)
    }

    fn compare_content(
        &'a self,
        path: Vec<u8>,
        source: Attributes,
        target: &Attributes,
        directory: &Directory,
        state: &mut Comparing<'_>,
    ) -> Result<(), Fault> {
        let is_file = source.kind == FileKind::File;
        let is_same_time = is_equal_or_cut(source.mtime_ns, target.mtime_ns);
        let by_time = is_file && self.options.compare == Compare::SizeAndTime;
        if source.size != target.size || by_time && !is_same_time {
            state.touch(directory);
            state.replace(path, source, target.size);
            return Ok(());
        }
        // Of links the owner alone counts. It is set by its numbers, which are compared here: a
        // link that came anew would get those that its names have there, and differ for ever.
        let differs = match is_file {
            true => self.differs(&source, target) || !is_same_time,
            false => self.has_other_owner(&source, target),
        };
        if by_time || is_file && source.size == 0 {
            if differs {
                let attributes = source;
                state.give(Action::Set { path, attributes });
            }
            return Ok(());
        }
        let (asked_source, asked_target) = if is_file {
            (
                self.start_digest(self.source, &path),
                self.start_digest(self.target, &path),
            )
        } else {
            (
                self.source.start_read_link(&path),
                self.target.start_read_link(&path),
            )
        };
        state.questions.push_back(Question {
            path,
            attributes: source,
            parent: Rc::clone(directory),
            source: asked_source,
            target: asked_target,
            differs,
        });
        while state.questions.len() >= QUESTIONS_MAX
            && let Some(question) = state.questions.pop_front()
        {
            self.answer(question, state)?;
        }
        Ok(())
    }

    fn start_digest(&self, side: &'a Namespace<'a>, path: &[u8]) -> Pending {
        let kind = match self.options.tree.digest.unwrap_or_default() {
            DigestKind::None => DigestKind::Blake3,
            kind => kind,
        };
        side.start_digest(path, kind)
    }

    fn answer(&self, question: Question, state: &mut Comparing<'_>) -> Result<(), Fault> {
        let Question {
            path,
            attributes,
            parent,
            source,
            target,
            differs,
        } = question;
        let source = match source.wait().and_then(compared_content) {
            Ok(source) => source,
            Err(fault) if fault.ends_session => return Err(fault),
            Err(fault) => {
                state.failed(&path, fault);
                return Ok(());
            }
        };
        match target.wait().and_then(compared_content) {
            Err(fault) if fault.ends_session => return Err(fault),
            Ok(target) if target == source => {
                if differs {
                    state.give(Action::Set { path, attributes });
                }
            }
            // What can't be read there can be replaced.
            Ok(_) | Err(_) => {
                state.touch(&parent);
                // They have as many bytes, or they would not have been asked for their content.
                let old = attributes.size;
                state.replace(path, attributes, old);
            }
        }
        Ok(())
    }

    /// Settles what is known only at the end: what stays, and what only has another name.
    fn finish(&'a self, state: &mut Comparing<'_>) -> Result<(), Fault> {
        let kept = std::mem::take(&mut state.kept);
        // What has to go where something stays can't, and then nothing has to make way for it.
        let mut blocked = HashSet::new();
        let mut late = std::mem::take(&mut state.outcome.late);
        late.retain(|(path, _)| {
            let is_blocked = kept.contains(path);
            if is_blocked {
                state.failed(path, in_the_way(path));
                blocked.insert(path.clone());
            }
            !is_blocked
        });
        state.outcome.late = late;
        state.outcome.extras.retain(|extra| {
            let is_blocked = || upwards(&extra.path).any(|path| blocked.contains(path));
            !(kept.contains(&extra.path) || extra.is_in_the_way && is_blocked())
        });
        self.find_renames(state)
    }

    fn find_renames(&'a self, state: &mut Comparing<'_>) -> Result<(), Fault> {
        let missing = std::mem::take(&mut state.missing);
        let mut by_size: HashMap<u64, Vec<usize>> = HashMap::new();
        let sizes: HashSet<u64> = missing.iter().map(|(_, a)| a.size).collect();
        for (at, extra) in state.outcome.extras.iter().enumerate() {
            if extra.is_file && !extra.is_in_the_way && sizes.contains(&extra.size) {
                by_size.entry(extra.size).or_default().push(at);
            }
        }
        let mut known: HashMap<usize, ComparedContent> = HashMap::new();
        let mut taken: HashSet<usize> = HashSet::new();
        for (path, attributes) in missing {
            if self.is_stopped(state) {
                return Ok(());
            }
            let candidates = by_size.get(&attributes.size).cloned().unwrap_or_default();
            let mut found = None;
            if candidates.iter().any(|at| !taken.contains(at)) {
                // All of this size at once; each is asked for once.
                let new: Vec<_> = candidates
                    .iter()
                    .filter(|at| !known.contains_key(at))
                    .collect();
                for group in new.chunks(QUESTIONS_MAX) {
                    let extras = &state.outcome.extras;
                    let asked: Vec<_> = group
                        .iter()
                        .map(|at| self.start_digest(self.target, &extras[**at].path))
                        .collect();
                    for (at, asked) in group.iter().zip(asked) {
                        match asked.wait().and_then(compared_content) {
                            Ok(content) => {
                                known.insert(**at, content);
                            }
                            Err(fault) if fault.ends_session => return Err(fault),
                            // Nothing is known of it, and so it is no candidate.
                            Err(_) => {
                                taken.insert(**at);
                            }
                        }
                    }
                }
                let asked = self.start_digest(self.source, &path);
                match asked.wait().and_then(compared_content) {
                    Ok(own) => {
                        found = candidates
                            .into_iter()
                            .find(|at| !taken.contains(at) && known.get(at) == Some(&own));
                    }
                    Err(fault) if fault.ends_session => return Err(fault),
                    // The copy tells why.
                    Err(_) => {}
                }
            }
            match found {
                Some(at) => {
                    taken.insert(at);
                    let from = state.outcome.extras[at].path.clone();
                    state.outcome.renamings.push(Renaming {
                        from,
                        to: path,
                        attributes,
                    });
                }
                None => state.copy(path, attributes, false),
            }
        }
        let renamed: HashSet<&[u8]> = (state.outcome.renamings.iter())
            .map(|renaming| renaming.from.as_slice())
            .collect();
        let extras = std::mem::take(&mut state.outcome.extras);
        let left = extras.into_iter().filter(|e| !renamed.contains(&*e.path));
        state.outcome.extras = left.collect();
        Ok(())
    }
}

fn only_target(
    path: Vec<u8>,
    attributes: &Attributes,
    (is_in_the_way, has_successor): (bool, bool),
    state: &mut Comparing<'_>,
) {
    if attributes.kind == FileKind::Directory {
        let place = Standing::Target(is_in_the_way);
        let path = path.clone();
        state.stack.push(Visit { path, place });
    }
    let extra = Extraneous::new(path, attributes, (is_in_the_way, has_successor));
    state.outcome.extras.push(extra);
}

/// What is compared of the content of two entries of the same size.
#[derive(PartialEq)]
enum ComparedContent {
    Link(Vec<u8>),
    File(DigestValue, u64),
}

/// What an answer says of the content.
fn compared_content(answer: Answer) -> Result<ComparedContent, Fault> {
    match answer {
        Answer::Target(target) => Ok(ComparedContent::Link(target)),
        Answer::Digest { value, length } => Ok(ComparedContent::File(value, length)),
        _ => Err(odd_answer()),
    }
}
