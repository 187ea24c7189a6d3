//! Packs and large files in flight, and the report of their outcomes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use xdfs_engine::command::TransferKind;
use xdfs_proto::pack::Failures;
use xdfs_proto::{CAUSE_ADDS_ONLY, Code, Fault, FileId, Retry};
use xdfs_store::tree_journal::{Mark, Totals};

use super::count::SourceCount;
use super::ends::Ends;
use super::inspector::PackInspector;
use super::item::{DeferredMetadata, Item, Kind};
use super::moved::{MovedOwners, NeededSpace};
use super::session::TreeSession;
use super::tracker::Tracker;
use super::version::{looks_like, mark_of};
use crate::events::{Deletion, Observer, SyncStep, TreeEvent, TreeResult};
use crate::mtime::time_warning;
use crate::paths::{Attributes, FileKind};
use crate::transfer::{SharedTime, Transfer, TransferOptions};

/// Interval of progress events.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Most entries kept for a retry; further failures are reported immediately.
const RETRIES_MAX: usize = 1 << 20;
/// Shortest and longest delay before a retry, in milliseconds.
const RETRY_WAIT_MS: (u32, u32) = (100, 2000);

/// A large file in flight.
#[derive(Debug)]
pub(super) struct MovingFile {
    pub(super) transfer: Transfer,
    /// The number of its session.
    pub(super) generation: u64,
    /// Groups of servers move it, in sessions of their own.
    pub(super) is_striped: bool,
    pub(super) item: Item,
    pub(super) kept: DeferredMetadata,
    /// Bytes that have arrived.
    pub(super) bytes: u64,
    pub(super) began: Instant,
}

impl MovingFile {
    /// Whether it has ended. Waits for up to `timeout` after the latest progress. The flag says
    /// whether it has moved anything in its session.
    pub(super) fn is_over(&mut self, timeout: Duration) -> (bool, bool) {
        let mut has_moved = false;
        while let Some(progress) = self.transfer.progress(timeout) {
            self.bytes = progress.bytes;
            has_moved |= progress.bytes > progress.resumed_bytes;
            if timeout > Duration::ZERO {
                break;
            }
        }
        (self.transfer.is_finished(), has_moved)
    }
}

/// A file that has begun to move.
#[derive(Debug)]
pub(super) struct StartedFile {
    pub(super) transfer: Transfer,
    /// The number of the tree's session.
    pub(super) generation: u64,
    /// Groups of servers move it.
    pub(super) is_striped: bool,
}

/// A failed entry to retry.
#[derive(Debug)]
pub(super) struct RetryEntry {
    pub(super) path: Vec<u8>,
    pub(super) mark: Option<Mark>,
    pub(super) fault: Fault,
}

/// Counts outcomes, and reports them to the observer.
pub(super) struct Report<'a> {
    observer: &'a mut dyn Observer,
    ends: Ends,
    pub(super) result: TreeResult,
    began: Instant,
    last_progress: Instant,
    stopped: bool,
    /// Tracks complete directories.
    pub(super) tracker: Tracker,
    /// Failed entries to retry; `None` if failures are final.
    retries: Option<Vec<RetryEntry>>,
    /// An earlier run may have created entries at the target.
    has_run: bool,
    /// A failed entry may exist at the target nevertheless.
    has_doubts: bool,
    /// Hashes of paths that failed for good, with their codes: of directories, and with
    /// `keeps_lost` of all entries.
    lost: HashMap<u64, Code>,
    pub(super) keeps_lost: bool,
    random: RandomState,
    /// Equal kind, size and time identify a version.
    pub(super) marks_suffice: bool,
    /// Likewise of entries that were in flight when their session broke.
    pub(super) trusts_marks: bool,
    /// Entries to move again since their session broke.
    interrupted: Vec<RetryEntry>,
    /// Hashes of all paths that were in flight when their session broke.
    was_interrupted: HashSet<u64>,
    /// Entries that were moved since the last synchronisation of the target, and during it.
    pub(super) unsynced: Vec<UnsyncedEntry>,
    pub(super) syncing: Vec<UnsyncedEntry>,
    pub(super) keeps_unsynced: bool,
    /// The session up to which the unsynced entries are known to be there.
    pub(super) unsynced_generation: u64,
    pub(super) server_run: ServerRun,
    /// The count of the source, if there is one.
    pub(super) count: Option<Arc<SourceCount>>,
    /// The moved entries, by owners.
    pub(super) moved_owners: MovedOwners,
    /// The storage that a dry run has found to be needed.
    pub(super) needed: NeededSpace,
    /// Directories without the mode and time of the source, since the user may only add entries.
    unset_directories: u64,
    /// The target is full, which stopped the run.
    full: Option<Fault>,
}

/// The number by which a server shows whether it may have lost what wasn't durable ([D-6] of the
/// specification).
#[derive(Clone, Debug, Default)]
pub(super) enum ServerRun {
    #[default]
    NotAsked,
    /// It doesn't say.
    Unknown,
    Known {
        run: u64,
        /// The file at the target by which it was learnt.
        file: Vec<u8>,
    },
}

/// An entry that was moved and may not be durable: its path and mark.
pub(super) type UnsyncedEntry = (Vec<u8>, Option<Mark>);

impl<'a> Report<'a> {
    pub(super) fn new(observer: &'a mut dyn Observer, ends: Ends) -> Self {
        let now = Instant::now();
        Self {
            observer,
            ends,
            result: TreeResult::default(),
            began: now,
            last_progress: now,
            stopped: false,
            tracker: Tracker::default(),
            retries: None,
            has_run: false,
            has_doubts: false,
            lost: HashMap::new(),
            keeps_lost: false,
            random: RandomState::new(),
            marks_suffice: true,
            trusts_marks: true,
            interrupted: Vec::new(),
            was_interrupted: HashSet::new(),
            unsynced: Vec::new(),
            syncing: Vec::new(),
            keeps_unsynced: false,
            unsynced_generation: 0,
            server_run: ServerRun::default(),
            count: None,
            moved_owners: MovedOwners::default(),
            needed: NeededSpace::default(),
            unset_directories: 0,
            full: None,
        }
    }

    /// The path of the tree at the target.
    pub(super) fn begin(&mut self, target: &[u8]) {
        self.result.target = target.to_vec();
        self.notify(TreeEvent::Target(target));
    }

    /// Starts to track outcomes and retries, with `journal` also claims.
    pub(super) fn track(&mut self, journal: bool, has_run: bool) {
        self.tracker = Tracker::new(journal);
        self.keep_retries();
        self.has_run = has_run;
    }

    /// Whether the observer has stopped the run.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether a failed entry may exist at the target nevertheless.
    pub(super) fn has_doubts(&self) -> bool {
        self.has_doubts
    }

    /// Whether anything needs to be made durable.
    pub(super) fn has_moved(&self) -> bool {
        self.result.files + self.result.directories + self.result.others > 0
    }

    pub(super) fn moved(&mut self, item: &Item) {
        let totals = self.count(item);
        if item.kind.has_name() {
            self.moved_owners.add(item);
            self.result.times_cut += u64::from(item.has_cut_time);
        }
        if self.keeps_unsynced && item.kind.has_name() {
            self.unsynced.push((item.path.clone(), item.mark));
        }
        if item.kind == Kind::File {
            self.notify(TreeEvent::File {
                path: &item.path,
                bytes: item.bytes,
                digest: &item.digest,
                pace: item.pace,
            });
        }
        match item.kind {
            Kind::File | Kind::Other => {
                self.tracker.settled(&item.path, Ok((totals, item.mark)));
            }
            // Every run has to see the file it belongs to.
            Kind::Link => self.tracker.settled(&item.path, Ok((totals, None))),
            Kind::Directory => {
                self.tracker.keep_xattrs(&item.path, &item.late_xattrs);
                self.tracker.made(&item.path, true);
            }
            Kind::Attributes | Kind::DirectoryAttributes | Kind::Silent => {}
        }
    }

    /// Counts an item that was moved, or would be in a dry run.
    pub(super) fn count(&mut self, item: &Item) -> Totals {
        let mut totals = Totals::default();
        match item.kind {
            Kind::File => totals.files = 1,
            Kind::Directory => totals.directories = 1,
            Kind::Other | Kind::Link => totals.others = 1,
            Kind::Attributes | Kind::DirectoryAttributes | Kind::Silent => {}
        }
        totals.bytes = item.bytes;
        let result = &mut self.result;
        result.files += totals.files;
        result.directories += totals.directories;
        result.others += totals.others;
        result.bytes += totals.bytes;
        totals
    }

    /// Reports and counts an entry that a dry run would copy, with the bytes of storage that its
    /// content takes. Directories are counted only: they
    /// may exist, and their entries show their names.
    pub(super) fn would_copy(&mut self, item: &Item, storage: u64) {
        self.needed.add(storage);
        if matches!(item.kind, Kind::File | Kind::Other | Kind::Link) {
            self.step(SyncStep::Copy, &item.path, None);
        }
        self.count(item);
    }

    /// Counts entries that an earlier run finished.
    pub(super) fn resumed(&mut self, totals: &Totals) {
        let resumed = &mut self.result.resumed;
        resumed.files += totals.files;
        resumed.directories += totals.directories;
        resumed.others += totals.others;
        resumed.bytes += totals.bytes;
    }

    pub(super) fn failed(&mut self, path: &[u8], fault: &Fault) {
        self.result.failed += 1;
        if fault.code == Code::NoSpace {
            self.stop_full(path, fault);
            return;
        }
        // A disk may fail after the names have been created.
        let lost = [Code::ConnectionLost, Code::DeadlineExceeded];
        let unstored = [Code::Io, Code::ReadOnly];
        self.has_doubts |= lost.contains(&fault.code) || unstored.contains(&fault.code);
        let fault = &self.ends.named(&self.result.target, path, fault);
        self.notify(TreeEvent::Failed { path, fault });
    }

    /// Stops the run since the target is full: everything else would fail for the same reason.
    fn stop_full(&mut self, path: &[u8], fault: &Fault) {
        self.has_doubts = true;
        self.stopped = true;
        if self.full.is_none() {
            let hint = "free some space there and run the same command again to resume";
            let named = self.ends.named(&self.result.target, path, fault);
            self.full = Some(named.hint(hint));
        }
    }

    /// The fault of a run that ended with `fault`: what filled the target is the reason.
    pub(super) fn reason(&mut self, fault: Fault) -> Fault {
        self.full.take().unwrap_or(fault)
    }

    /// Records that metadata could not be set. Not reported again for a directory whose creation
    /// failed.
    pub(super) fn metadata_failed(&mut self, path: &[u8], fault: &Fault) {
        let is_missing = fault.code == Code::NotFound;
        if !(is_missing && self.why_lost(path).is_some()) {
            self.failed(path, fault);
        }
    }

    /// Likewise of a directory. Returns whether that is no failure: a user who may only add entries
    /// can't set what becomes final when everything is in it, and is warned once.
    pub(super) fn directory_unset(&mut self, path: &[u8], fault: &Fault) -> bool {
        let adds_only = fault.code == Code::PermissionDenied && fault.cause == CAUSE_ADDS_ONLY;
        match adds_only {
            true => self.unset_directories += 1,
            false => self.metadata_failed(path, fault),
        }
        adds_only
    }

    /// Records the failure of an entry: keeps it for a retry, or reports it.
    pub(super) fn record_failure(
        &mut self,
        path: &[u8],
        is_directory: bool,
        mark: Option<Mark>,
        fault: Fault,
    ) {
        let is_directory = is_directory || self.tracker.knows(path);
        let is_there = fault.code == Code::AlreadyExists && !is_directory;
        let may_be_ours = self.has_run || self.was_interrupted(path);
        let is_ours = is_there && may_be_ours && mark.is_some();
        // An earlier run may have completed the directory and set its mode.
        let is_closed = fault.code == Code::PermissionDenied && self.has_run;
        let has_room = |again: &Vec<_>| again.len() < RETRIES_MAX;
        let is_retried = self.retries.as_ref().is_some_and(has_room);
        if is_retried && fault.code != Code::NoSpace && (is_closed || is_ours || may_pass(&fault)) {
            let is_unknown = matches!(fault.code, Code::ConnectionLost | Code::DeadlineExceeded);
            let path = path.to_vec();
            if is_unknown {
                // A server behind another one is lost, and not the session: it may have arrived.
                self.note_interrupted(&path);
                self.has_doubts = true;
            }
            let again = self.retries.get_or_insert_default();
            again.push(RetryEntry { path, mark, fault });
        } else {
            self.record_loss(path, is_directory, &fault);
        }
    }

    /// Like [`Self::record_failure`], for an item.
    pub(super) fn record_item_failure(&mut self, item: &Item, fault: Fault) {
        match item.kind {
            Kind::Silent => {}
            Kind::Attributes => self.metadata_failed(&item.path, &fault),
            Kind::DirectoryAttributes => {
                self.directory_unset(&item.path, &fault);
            }
            kind => {
                self.record_failure(&item.path, kind == Kind::Directory, item.mark, fault);
            }
        }
    }

    /// Takes the entries to retry: those with transient faults, and those that exist at the target
    /// and may come from an earlier run. Waits for as long as the faults ask. After the `last`
    /// round failures are final.
    pub(super) fn take_retries(&mut self, last: bool) -> (Vec<RetryEntry>, Vec<RetryEntry>) {
        let again = match last {
            true => self.retries.take(),
            false => self.retries.as_mut().map(std::mem::take),
        };
        let is_there = |a: &RetryEntry| a.fault.code == Code::AlreadyExists;
        let (ours, again): (Vec<_>, Vec<_>) =
            again.unwrap_or_default().into_iter().partition(is_there);
        if !again.is_empty() {
            let waits = again.iter().map(|again| match again.fault.retry {
                Retry::AfterMs(ms) => ms,
                _ => 0,
            });
            let (least, most) = RETRY_WAIT_MS;
            let ms = waits.max().unwrap_or(0).clamp(least, most);
            let until = Instant::now() + Duration::from_millis(ms.into());
            while !self.stopped && Instant::now() < until {
                std::thread::sleep(PROGRESS_INTERVAL.min(until - Instant::now()));
                self.progress();
            }
        }
        (again, ours)
    }

    /// Records the failure of an entry that isn't retried.
    pub(super) fn fail_permanently(&mut self, path: &[u8], fault: &Fault) {
        self.record_loss(path, self.tracker.knows(path), fault);
    }

    fn record_loss(&mut self, path: &[u8], is_directory: bool, fault: &Fault) {
        match is_directory {
            true => self.tracker.made(path, false),
            false => self.tracker.settled(path, Err(())),
        }
        if self.keeps_lost || is_directory {
            self.lost.insert(self.random.hash_one(path), fault.code);
        }
        self.failed(path, fault);
    }

    /// The code with which an entry failed for good; `None` if it was moved, now or by an earlier
    /// run.
    pub(super) fn why_lost(&self, path: &[u8]) -> Option<Code> {
        self.lost.get(&self.random.hash_one(path)).copied()
    }

    /// Records the failure of a directory, none of whose entries are moved.
    pub(super) fn fail_directory(&mut self, path: &[u8], fault: &Fault) {
        self.tracker.listed(path, 0, &Totals::default(), true);
        self.record_loss(path, true, fault);
    }

    /// Whether nothing has failed or been interrupted so far.
    pub(super) fn is_clean(&self) -> bool {
        self.result.failed == 0
            && self.retries.as_ref().is_none_or(Vec::is_empty)
            && self.was_interrupted.is_empty()
    }

    /// Keeps failed entries for a retry from now on.
    pub(super) fn keep_retries(&mut self) {
        self.retries.get_or_insert_default();
    }

    /// Makes the failures of all entries kept for a retry final.
    pub(super) fn give_up_retries(&mut self) {
        for again in self.retries.take().unwrap_or_default() {
            self.fail_permanently(&again.path, &again.fault);
        }
    }

    /// Whether an entry that was in flight when its session broke has arrived, by what was found
    /// at the target.
    pub(super) fn has_arrived(&self, item: &Item, found: &Attributes) -> bool {
        match item.kind {
            Kind::Directory => found.kind == FileKind::Directory,
            _ => {
                let marks = mark_of(found).zip(item.mark);
                self.trusts_marks && marks.is_some_and(|(found, wanted)| looks_like(found, wanted))
            }
        }
    }

    /// An entry was in flight when its session broke, and is moved again.
    pub(super) fn interrupt(&mut self, path: Vec<u8>, mark: Option<Mark>, fault: &Fault) {
        self.note_interrupted(&path);
        let fault = fault.clone();
        self.interrupted.push(RetryEntry { path, mark, fault });
    }

    /// An entry was in flight when its session broke.
    pub(super) fn note_interrupted(&mut self, path: &[u8]) {
        self.was_interrupted.insert(self.random.hash_one(path));
    }

    /// Whether an entry that exists at the target may have been sent by this run.
    pub(super) fn was_interrupted(&self, path: &[u8]) -> bool {
        self.was_interrupted.contains(&self.random.hash_one(path))
    }

    /// Takes the entries to move again since their session broke.
    pub(super) fn take_interrupted(&mut self) -> Vec<RetryEntry> {
        std::mem::take(&mut self.interrupted)
    }

    /// The target is synchronised from now on.
    pub(super) fn begin_sync(&mut self) {
        self.syncing.append(&mut self.unsynced);
    }

    /// The synchronisation has ended: entries moved before are durable, unless their session broke.
    pub(super) fn end_sync(&mut self, is_durable: bool) {
        let mut syncing = std::mem::take(&mut self.syncing);
        if !is_durable {
            syncing.append(&mut self.unsynced);
            self.unsynced = syncing;
        }
    }

    /// Reports a fault that doesn't stop the run.
    pub(super) fn warn(&mut self, fault: &Fault) {
        let fault = &self.ends.at(fault.clone());
        self.notify(TreeEvent::Warning(fault));
    }

    pub(super) fn deletion(&mut self, deletion: &Deletion) {
        self.notify(TreeEvent::Deletion(deletion));
    }

    pub(super) fn step(&mut self, step: SyncStep, path: &[u8], from: Option<&[u8]>) {
        self.notify(TreeEvent::Step { step, path, from });
    }

    /// Receives the next event, or reports progress and times out.
    pub(super) fn poll<T>(&mut self, given: &mpsc::Receiver<T>) -> Result<T, RecvTimeoutError> {
        if self.stopped {
            return Err(RecvTimeoutError::Disconnected);
        }
        let next = given.recv_timeout(PROGRESS_INTERVAL);
        if let Err(RecvTimeoutError::Timeout) = next {
            self.progress();
        }
        next
    }

    pub(super) fn progress(&mut self) {
        if self.last_progress.elapsed() >= PROGRESS_INTERVAL {
            self.last_progress = Instant::now();
            self.result.elapsed = self.began.elapsed();
            if let Some(count) = &self.count {
                let activity = &mut self.result.activity;
                (activity.counted, activity.is_counted) = count.now();
            }
            let result = self.result.clone();
            self.notify(TreeEvent::Progress(&result));
        }
    }

    /// Passes on an event of a tree that others move.
    pub(super) fn pass(&mut self, event: TreeEvent<'_>) {
        self.notify(event);
    }

    fn notify(&mut self, event: TreeEvent<'_>) {
        self.stopped |= self.observer.on_tree(event) == ControlFlow::Break(());
    }

    /// The end of a tree that others have moved, and warned about.
    ///
    /// # Errors
    /// The observer stopped it.
    pub(super) fn finish_of_others(mut self) -> Result<TreeResult, Fault> {
        if self.stopped {
            return Err(stopped());
        }
        self.result.elapsed = self.began.elapsed();
        Ok(self.result)
    }

    /// The end of a run, in which owners were to be kept if `has_owners`.
    ///
    /// # Errors
    /// The observer stopped it, or the target is full.
    pub(super) fn finish(mut self, has_owners: bool) -> Result<TreeResult, Fault> {
        if let Some(full) = self.full {
            return Err(full);
        }
        if self.stopped {
            return Err(stopped());
        }
        self.result.elapsed = self.began.elapsed();
        let existing = self.tracker.existing.min(self.result.directories);
        self.result.directories -= existing;
        self.result.resumed.directories += existing;
        let files = |number| match number {
            1 => "1 file".to_owned(),
            number => format!("{number} files"),
        };
        let TreeResult {
            unkept,
            owners_unkept,
            times_cut,
            ..
        } = self.result;
        if unkept > 0 {
            let (why, hint) = match has_owners {
                true => ("the target couldn't give it that owner", ""),
                false => (
                    "owners were not asked for",
                    "as root, --owner or -a keeps both",
                ),
            };
            let cause = format!(
                "set-user-id and set-group-id of {} were not kept: a program is to run as its \
                 owner alone, and {why}",
                files(unkept),
            );
            self.warn(&Fault::new(Code::PermissionDenied, "", cause).hint(hint));
        }
        if owners_unkept > 0 {
            let cause = format!(
                "the owner of {} was not kept: only root may give files to other users, or to \
                 groups that it isn't in",
                files(owners_unkept),
            );
            self.warn(&Fault::new(Code::PermissionDenied, "", cause));
        }
        if self.unset_directories > 0 {
            let directories = match self.unset_directories {
                1 => "1 directory".to_owned(),
                number => format!("{number} directories"),
            };
            let cause = format!("mode and time of {directories} were not kept: {CAUSE_ADDS_ONLY}");
            self.warn(&Fault::new(Code::PermissionDenied, "", cause).remote());
        }
        if let Some(fault) = time_warning(times_cut) {
            self.warn(&fault);
        }
        Ok(self.result)
    }
}

fn stopped() -> Fault {
    Fault::new(Code::Cancelled, "copy", "it was stopped")
        .hint("run the same command again to resume")
}

/// A pack in flight from or to a server, or the result of one at a local target.
pub(super) struct PackTransfer<'a> {
    pub(super) state: PackState,
    /// The server that it comes from or goes to.
    pub(super) session: Option<&'a TreeSession<'a>>,
    /// The number of its session.
    pub(super) generation: u64,
    /// The pack, and whether it replaces existing entries, if it can be sent again whatever the
    /// first attempt did.
    pub(super) repeatable: Option<(Vec<u8>, bool)>,
}

#[derive(Debug)]
pub(super) enum PackState {
    Ended(Result<Failures, Fault>),
    Moving(Box<Transfer>),
}

impl PackState {
    /// Waits for the end, and returns the entries that failed and where the time went.
    pub(super) fn wait(self) -> Result<(Failures, Option<SharedTime>), Fault> {
        match self {
            Self::Ended(result) => result.map(|failures| (failures, None)),
            Self::Moving(transfer) => {
                let (failures, time) = transfer.wait_for_pack()?;
                Ok((failures, Some(time)))
            }
        }
    }
}

impl<'a> PackTransfer<'a> {
    /// The result of a pack.
    pub(super) fn ended(result: Result<Failures, Fault>) -> Self {
        Self {
            state: PackState::Ended(result),
            session: None,
            generation: 0,
            repeatable: None,
        }
    }

    /// Starts a pack, which may have failed with its session.
    ///
    /// # Errors
    /// It could not be started for another reason.
    pub(super) fn start(
        session: &'a TreeSession<'a>,
        options: &TransferOptions,
        kind: TransferKind,
    ) -> Result<Self, Fault> {
        let (generation, started) = session.start(options, kind);
        let state = match started {
            Ok(transfer) => PackState::Moving(Box::new(transfer)),
            Err(fault) if fault.ends_session => PackState::Ended(Err(fault)),
            Err(fault) => return Err(fault),
        };
        Ok(Self {
            state,
            session: Some(session),
            generation,
            repeatable: None,
        })
    }

    /// Its number in the session, if it was started in one.
    pub(super) fn number(&self) -> Option<FileId> {
        match &self.state {
            PackState::Ended(_) => None,
            PackState::Moving(transfer) => transfer.number(),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, PackState::Ended(_))
    }

    /// Whether it has ended. Waits for up to `timeout` after the latest progress.
    pub(super) fn is_over(&mut self, timeout: Duration) -> bool {
        match &mut self.state {
            PackState::Ended(_) => true,
            PackState::Moving(transfer) => is_over(transfer, timeout),
        }
    }
}

/// A pack in flight, and its contents.
pub(super) struct MovingPack<'a> {
    pub(super) transfer: PackTransfer<'a>,
    /// Its entries, if it was built locally.
    pub(super) items: Vec<Item>,
    /// Records the entries of a requested pack.
    pub(super) inspector: Option<Arc<PackInspector>>,
}

/// The names of the next pack request, and its approximate size.
#[derive(Default)]
pub(super) struct NextRequest {
    pub(super) names: Vec<Vec<u8>>,
    pub(super) name_bytes: usize,
    pub(super) bytes: u64,
}

/// Takes the oldest pack if it has ended. Waits for up to `timeout` after the latest progress.
pub(super) fn take_ended<'a>(
    packs: &mut VecDeque<MovingPack<'a>>,
    timeout: Duration,
) -> Option<MovingPack<'a>> {
    let first = packs.front_mut()?;
    first.transfer.is_over(timeout).then(|| packs.pop_front())?
}

/// Whether a transfer has ended, so that its outcome can be taken without waiting. Waits for up to
/// `timeout` after the latest progress.
pub(super) fn is_over(transfer: &mut Transfer, timeout: Duration) -> bool {
    while transfer.progress(timeout).is_some() {}
    transfer.is_finished()
}

/// Whether a fault says that a server was away, which may be restarting. That of the session ends
/// it too; without that it is another one, from which files come.
pub(super) fn is_away(fault: &Fault) -> bool {
    matches!(
        fault.code,
        Code::ConnectionLost
            | Code::ConnectionRefused
            | Code::ShuttingDown
            | Code::SessionUnknown
            | Code::DeadlineExceeded
    )
}

/// Whether another attempt may succeed.
pub(super) fn may_pass(fault: &Fault) -> bool {
    fault.retry != Retry::Never
        || is_away(fault)
        || matches!(
            fault.code,
            Code::Busy | Code::IntegrityMismatch | Code::SourceChanged
        )
}

#[cfg(test)]
mod tests {
    use xdfs_proto::Machine;

    use super::*;

    #[test]
    fn what_fails_has_its_machine_and_its_whole_path() {
        let mut told = Vec::new();
        let mut observer = |event: TreeEvent<'_>| {
            if let TreeEvent::Failed { fault, .. } = event {
                told.push(fault.to_string());
            }
            ControlFlow::Continue(())
        };
        let there = Machine::server("there");
        let ends = Ends::new(b"here/d".to_vec(), [None, Some(there)]);
        let mut report = Report::new(&mut observer, ends);
        report.result.target = b"/there".to_vec();
        let fault = Fault::new(Code::Io, "set the attributes of", "it failed");
        let far = fault.clone().remote();
        report.failed(b"", &far);
        report.failed(b"a", &far.clone().path("a"));
        report.failed(b"a", &far.path("/there/a"));
        report.failed(b"a", &fault.path("a"));
        drop(report);
        let (server, wanted) = ("server there: ", "cannot set the attributes of");
        assert_eq!(
            told,
            [
                format!("{server}{wanted} '/there': it failed"),
                format!("{server}{wanted} '/there/a': it failed"),
                format!("{server}{wanted} '/there/a': it failed"),
                format!("{wanted} 'here/d/a': it failed"),
            ]
        );
    }
}
