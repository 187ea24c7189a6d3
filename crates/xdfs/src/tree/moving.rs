//! What is under way of a tree: packs and large files in bounded numbers, and what came of them.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use xdfs_proto::pack::{Content, Entry, Metadata, PACK_BYTES_MAX, PackReader, PackWriter};
use xdfs_proto::{Code, Fault, Limits, Retry};
use xdfs_store::tree_journal::{Mark, Totals};

use super::tracker::{OWNER_ALL, Tracker};
use super::{LARGE_MAX, Observer, PACKS_MAX, SyncStep, TreeEvent, TreeOptions, TreeResult};
use crate::paths::{Attributes, FileKind};
use crate::transfer::{Transfer, TransferOptions};

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Most entries that are kept to be tried again; what fails beyond them is told at once.
const AGAIN_MAX: usize = 1 << 20;
/// Longest time to wait before entries are tried again, and the shortest.
const AGAIN_WAIT_MS: (u32, u32) = (100, 2000);

/// What an entry counts as when it is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Other,
    /// A further name of a file.
    Link,
    /// Only what is known of an entry that was moved before.
    Attributes,
}

/// An entry of a pack: its path, what it counts as, and its bytes.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    /// What a journal says of it.
    pub(super) mark: Option<Mark>,
}

/// An entry that failed, and is to be tried again.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) path: Vec<u8>,
    pub(super) mark: Option<Mark>,
    pub(super) fault: Fault,
}

/// The directories above entries that could not be made, or not replaced: those above first, one
/// level after the other.
pub(super) fn levels_above<'a>(again: impl Iterator<Item = &'a Again>) -> Vec<Vec<Vec<u8>>> {
    let mut levels: Vec<BTreeSet<Vec<u8>>> = Vec::new();
    for Again { path, fault, .. } in again {
        if !matches!(fault.code, Code::AlreadyExists | Code::PermissionDenied) {
            continue;
        }
        let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
        for (level, at) in std::iter::once(0).chain(slashes).enumerate() {
            if levels.len() <= level {
                levels.push(BTreeSet::new());
            }
            if !levels[level].contains(&path[..at]) {
                levels[level].insert(path[..at].to_vec());
            }
        }
    }
    let levels = levels.into_iter();
    levels.map(|level| level.into_iter().collect()).collect()
}

/// What gives the owner of a directory back the right to make something in it, if it isn't there.
pub(super) fn opening<'p>(path: &'p [u8], found: &Attributes) -> Option<Entry<'p>> {
    let is_closed = found.kind == FileKind::Directory && found.mode & OWNER_ALL != OWNER_ALL;
    let mode = u16::try_from(found.mode | OWNER_ALL).ok();
    is_closed.then(|| Entry {
        path,
        metadata: Metadata {
            mode,
            ..Metadata::default()
        },
        content: Content::Attributes,
    })
}

/// What became of the wait for the next thing.
pub(super) enum Polled<T> {
    Given(T),
    /// Nothing came for a while.
    Quiet,
    /// Nothing more comes, or the observer wants no more.
    Ended,
}

impl Item {
    /// What is moved by an entry.
    pub(super) fn of(entry: &Entry<'_>) -> Self {
        let (kind, bytes) = match entry.content {
            Content::File(bytes) => (Kind::File, bytes.len() as u64),
            Content::Directory => (Kind::Directory, 0),
            Content::Attributes => (Kind::Attributes, 0),
            Content::HardLink(_) => (Kind::Link, 0),
            _ => (Kind::Other, 0),
        };
        let kind_number = match entry.content {
            Content::File(_) => Some(0),
            Content::Symlink(_) => Some(1),
            Content::Fifo => Some(2),
            _ => None,
        };
        let mark = kind_number.zip(entry.metadata.mtime_ns);
        Self {
            path: entry.path.to_vec(),
            kind,
            bytes,
            mark: mark.map(|(kind, mtime_ns)| Mark {
                kind,
                size: bytes,
                mtime_ns,
            }),
        }
    }

    /// A file that is moved by itself.
    pub(super) fn large(path: Vec<u8>, bytes: u64, mtime_ns: Option<i64>) -> Self {
        Self {
            path,
            kind: Kind::File,
            bytes,
            mark: mtime_ns.map(|mtime_ns| Mark {
                kind: 0,
                size: bytes,
                mtime_ns,
            }),
        }
    }

    /// What is moved by a pack that was made here.
    pub(super) fn of_pack(pack: &[u8]) -> Vec<Self> {
        let limits = Limits::default();
        let entries = PackReader::new(pack, &limits);
        entries
            .map_while(Result::ok)
            .map(|e| Self::of(&e))
            .collect()
    }
}

/// Counts and tells.
pub(super) struct Report<'a> {
    observer: &'a mut Observer<'a>,
    pub(super) result: TreeResult,
    began: Instant,
    told: Instant,
    stopped: bool,
    /// Which directories are whole, if that is wanted.
    pub(super) tracker: Option<Tracker>,
    /// What failed and may pass, while it is kept.
    again: Option<Vec<Again>>,
    /// Entries that stand at the target may be those that an earlier run moved.
    has_run: bool,
    /// Something failed that may stand under its name all the same.
    has_doubts: bool,
    /// Digests of paths that were not moved, and why: while several names of a file are kept.
    lost: Option<HashMap<u64, Code>>,
    /// Digests of the paths of directories that were not made, while they aren't followed.
    unmade: HashSet<u64>,
    random: RandomState,
    /// What has the kind, the size and the time of an entry is taken for it.
    pub(super) marks_suffice: bool,
}

impl<'a> Report<'a> {
    pub(super) fn new(observer: &'a mut Observer<'a>) -> Self {
        let now = Instant::now();
        Self {
            observer,
            result: TreeResult::default(),
            began: now,
            told: now,
            stopped: false,
            tracker: None,
            again: None,
            has_run: false,
            has_doubts: false,
            lost: None,
            unmade: HashSet::new(),
            random: RandomState::new(),
            marks_suffice: true,
        }
    }

    /// Follows the directories from now on, for a journal if there is one.
    pub(super) fn track(&mut self, journal: bool, has_run: bool) {
        self.tracker = Some(Tracker::new(journal));
        self.again = Some(Vec::new());
        self.has_run = has_run;
    }

    /// Whether the observer wants no more.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether something failed that may stand under its name all the same.
    pub(super) fn has_doubts(&self) -> bool {
        self.has_doubts
    }

    /// Whether there is anything to be made durable.
    pub(super) fn has_moved(&self) -> bool {
        self.result.files + self.result.directories + self.result.others > 0
    }

    pub(super) fn moved(&mut self, item: &Item) {
        let mut totals = Totals::default();
        match item.kind {
            Kind::File => totals.files = 1,
            Kind::Directory => totals.directories = 1,
            Kind::Other | Kind::Link => totals.others = 1,
            Kind::Attributes => {}
        }
        totals.bytes = item.bytes;
        let result = &mut self.result;
        result.files += totals.files;
        result.directories += totals.directories;
        result.others += totals.others;
        result.bytes += totals.bytes;
        if let Some(tracker) = &mut self.tracker {
            match item.kind {
                Kind::File | Kind::Other => tracker.settled(&item.path, Ok((totals, item.mark))),
                // Each run has to see which file it belongs to.
                Kind::Link => tracker.settled(&item.path, Ok((totals, None))),
                Kind::Directory => tracker.made(&item.path, true),
                Kind::Attributes => {}
            }
        }
    }

    /// An earlier run finished this.
    pub(super) fn resumed(&mut self, totals: &Totals) {
        let resumed = &mut self.result.resumed;
        resumed.files += totals.files;
        resumed.directories += totals.directories;
        resumed.others += totals.others;
        resumed.bytes += totals.bytes;
    }

    pub(super) fn failed(&mut self, path: &[u8], fault: &Fault) {
        self.result.failed += 1;
        // A disk may fail when the names are made already.
        self.has_doubts |= matches!(fault.code, Code::Io | Code::NoSpace | Code::ReadOnly);
        // A fault of a whole pack names none of its entries; an empty path is the tree itself.
        let named;
        let fault = if fault.path.is_empty() {
            let is_root = path.is_empty();
            let name = if is_root { &self.result.target } else { path };
            named = fault.clone().path(name);
            &named
        } else {
            fault
        };
        self.tell(&TreeEvent::Failed { path, fault });
    }

    /// What is known of an entry couldn't be set. Of a directory that wasn't made it is told why.
    pub(super) fn unset(&mut self, path: &[u8], fault: &Fault) {
        let is_missing = fault.code == Code::NotFound;
        if !(is_missing && self.unmade.contains(&self.random.hash_one(path))) {
            self.failed(path, fault);
        }
    }

    /// An entry wasn't moved: it is tried again, or that is told.
    pub(super) fn missed(
        &mut self,
        path: &[u8],
        is_directory: bool,
        mark: Option<Mark>,
        fault: Fault,
    ) {
        let Some(tracker) = &mut self.tracker else {
            if is_directory {
                self.unmade.insert(self.random.hash_one(path));
            }
            self.lost(path, &fault);
            return;
        };
        let is_directory = is_directory || tracker.knows(path);
        let is_there = fault.code == Code::AlreadyExists && !is_directory;
        let is_ours = is_there && self.has_run && mark.is_some();
        // An earlier run may have set the mode of the directory, which was whole.
        let is_closed = fault.code == Code::PermissionDenied && self.has_run;
        if let Some(again) = &mut self.again
            && again.len() < AGAIN_MAX
            && (is_closed || is_ours || may_pass(&fault))
        {
            let path = path.to_vec();
            again.push(Again { path, mark, fault });
        } else if is_directory {
            tracker.made(path, false);
            self.failed(path, &fault);
        } else {
            self.lost(path, &fault);
        }
    }

    /// Likewise of one that is known.
    pub(super) fn missed_item(&mut self, item: &Item, fault: Fault) {
        let is_directory = item.kind == Kind::Directory;
        if item.kind == Kind::Attributes {
            self.unset(&item.path, &fault);
        } else {
            self.missed(&item.path, is_directory, item.mark, fault);
        }
    }

    /// What failed and may pass: those that are tried again as they are, and those that stand at
    /// the target and may be the work of an earlier run. Waits for as long as their faults ask.
    /// With `last` what fails from now on is told at once.
    pub(super) fn take_again(&mut self, last: bool) -> (Vec<Again>, Vec<Again>) {
        let again = match last {
            true => self.again.take(),
            false => self.again.as_mut().map(std::mem::take),
        };
        let is_there = |a: &Again| a.fault.code == Code::AlreadyExists;
        let (ours, again): (Vec<_>, Vec<_>) =
            again.unwrap_or_default().into_iter().partition(is_there);
        if !again.is_empty() {
            let waits = again.iter().map(|again| match again.fault.retry {
                Retry::AfterMs(ms) => ms,
                _ => 0,
            });
            let (least, most) = AGAIN_WAIT_MS;
            let ms = waits.max().unwrap_or(0).clamp(least, most);
            let until = Instant::now() + Duration::from_millis(ms.into());
            while !self.stopped && Instant::now() < until {
                std::thread::sleep(PROGRESS_INTERVAL.min(until - Instant::now()));
                self.progress();
            }
        }
        (again, ours)
    }

    /// An entry wasn't moved, and isn't tried again.
    pub(super) fn lost(&mut self, path: &[u8], fault: &Fault) {
        match &mut self.tracker {
            Some(tracker) if tracker.knows(path) => tracker.made(path, false),
            Some(tracker) => tracker.settled(path, Err(())),
            None => {}
        }
        if let Some(lost) = &mut self.lost {
            lost.insert(self.random.hash_one(path), fault.code);
        }
        self.failed(path, fault);
    }

    /// Paths that are lost are remembered from now on.
    pub(super) fn keep_lost(&mut self) {
        self.lost.get_or_insert_default();
    }

    /// Why an entry wasn't moved; `None` if it was, or an earlier run had done that.
    pub(super) fn why_lost(&self, path: &[u8]) -> Option<Code> {
        let lost = self.lost.as_ref()?;
        lost.get(&self.random.hash_one(path)).copied()
    }

    /// A directory isn't moved, nor anything in it.
    pub(super) fn lost_directory(&mut self, path: &[u8], fault: &Fault) {
        if let Some(tracker) = &mut self.tracker {
            tracker.listed(path, 0, &Totals::default(), true);
            tracker.made(path, false);
        }
        self.failed(path, fault);
    }

    /// What fails from now on is tried again.
    pub(super) fn keep_again(&mut self) {
        self.again.get_or_insert_default();
    }

    /// What is kept to be tried again has failed.
    pub(super) fn give_up_again(&mut self) {
        for again in self.again.take().unwrap_or_default() {
            self.lost(&again.path, &again.fault);
        }
    }

    /// Something that the tree goes on without.
    pub(super) fn warn(&mut self, fault: &Fault) {
        self.tell(&TreeEvent::Warning(fault));
    }

    pub(super) fn step(&mut self, step: SyncStep, path: &[u8], from: Option<&[u8]>) {
        self.tell(&TreeEvent::Step { step, path, from });
    }

    /// The next of what others give, while progress is told; `None` if nothing more comes, or the
    /// observer wants no more.
    pub(super) fn next<T>(&mut self, given: &mpsc::Receiver<T>) -> Option<T> {
        loop {
            match self.poll(given) {
                Polled::Given(next) => return Some(next),
                Polled::Quiet => {}
                Polled::Ended => return None,
            }
        }
    }

    /// Likewise, and returns when nothing came for a while.
    pub(super) fn poll<T>(&mut self, given: &mpsc::Receiver<T>) -> Polled<T> {
        if self.stopped {
            return Polled::Ended;
        }
        match given.recv_timeout(PROGRESS_INTERVAL) {
            Ok(next) => Polled::Given(next),
            Err(RecvTimeoutError::Timeout) => {
                self.progress();
                Polled::Quiet
            }
            Err(RecvTimeoutError::Disconnected) => Polled::Ended,
        }
    }

    pub(super) fn progress(&mut self) {
        if self.told.elapsed() >= PROGRESS_INTERVAL {
            self.told = Instant::now();
            self.result.elapsed = self.began.elapsed();
            let result = self.result.clone();
            self.tell(&TreeEvent::Progress(&result));
        }
    }

    fn tell(&mut self, event: &TreeEvent<'_>) {
        let event = match event {
            TreeEvent::Progress(result) => TreeEvent::Progress(result),
            TreeEvent::Failed { path, fault } => TreeEvent::Failed { path, fault },
            TreeEvent::Warning(fault) => TreeEvent::Warning(fault),
            TreeEvent::Step { step, path, from } => TreeEvent::Step {
                step: *step,
                path,
                from: *from,
            },
        };
        self.stopped |= (self.observer)(event) == ControlFlow::Break(());
    }

    /// The end.
    ///
    /// # Errors
    /// The observer stopped it.
    pub(super) fn finish(mut self) -> Result<TreeResult, Fault> {
        if self.stopped {
            let cause = "it was stopped";
            return Err(Fault::new(Code::Cancelled, "copy a tree", cause)
                .hint("run the same command again to go on"));
        }
        self.result.elapsed = self.began.elapsed();
        if self.result.unkept > 0 {
            let cause = format!(
                "set-user-id and set-group-id of {} were not kept: a program is to run as its \
                 owner alone, and owners are not kept",
                if self.result.unkept == 1 {
                    "1 file".to_owned()
                } else {
                    format!("{} files", self.result.unkept)
                }
            );
            let fault = Fault::new(Code::PermissionDenied, "copy a tree", cause);
            self.warn(&fault.hint("as root, keep owners too, by --owner or -a"));
        }
        Ok(self.result)
    }
}

/// A pack that is under way.
#[derive(Debug)]
pub(super) struct MovingPack {
    pub(super) transfer: Transfer,
    pub(super) items: Vec<Item>,
}

/// What is kept of a large file beside what its transfer keeps: a pack that sets it once the file
/// is there.
pub(super) type Kept = Option<Vec<u8>>;

/// A pack that sets what an entry says of what it names.
pub(super) fn attributes_of(entry: &Entry<'_>) -> Vec<u8> {
    let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
    // There is room: the entry came in a pack that is no larger.
    let _ = pack.entry(&Entry {
        path: entry.path,
        metadata: entry.metadata.clone(),
        content: Content::Attributes,
    });
    let (mut memory, length) = pack.finish();
    memory.truncate(length);
    memory
}

/// A large file that is under way.
#[derive(Debug)]
struct MovingFile {
    transfer: Transfer,
    item: Item,
    kept: Kept,
}

/// Large files that are under way.
#[derive(Debug, Default)]
pub(super) struct LargeFiles {
    moving: VecDeque<MovingFile>,
    /// Those that are there, but for what is kept of them.
    bare: Vec<(Item, Vec<u8>)>,
}

impl LargeFiles {
    /// Adds one.
    pub(super) fn push(&mut self, item: Item, transfer: Transfer, kept: Kept) {
        self.moving.push_back(MovingFile {
            transfer,
            item,
            kept,
        });
    }

    /// Whether no more may be begun.
    pub(super) fn is_full(&self) -> bool {
        self.moving.len() >= LARGE_MAX
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.moving.is_empty()
    }

    /// Takes those that are there, but for what is kept of them.
    pub(super) fn take_bare(&mut self) -> Vec<(Item, Vec<u8>)> {
        std::mem::take(&mut self.bare)
    }

    /// Takes what came of one, for which it waits.
    fn end(&mut self, file: MovingFile, report: &mut Report<'_>) -> Result<(), Fault> {
        let MovingFile {
            transfer,
            mut item,
            kept,
        } = file;
        match transfer.wait() {
            Ok(result) => {
                report.result.matched_bytes += result.resumed_bytes;
                item.bytes = result.bytes;
                match kept {
                    None => report.moved(&item),
                    Some(kept) => self.bare.push((item, kept)),
                }
            }
            Err(fault) if ends_session(&fault) => return Err(fault),
            // Broken off because the observer wants no more: the tree goes on with it later.
            Err(fault) if fault.code == Code::Cancelled && report.is_stopped() => {}
            Err(fault) => report.missed_item(&item, fault),
        }
        Ok(())
    }

    /// Ends all of them if the observer wants no more.
    pub(super) fn stop_if_unwanted(&self, report: &Report<'_>) {
        if report.is_stopped() {
            for file in &self.moving {
                file.transfer.cancel();
            }
        }
    }

    /// Waits a while for the one that was begun first, and takes what has ended. If the observer
    /// wants no more all of them are ended.
    ///
    /// # Errors
    /// The session ended.
    pub(super) fn wait(&mut self, report: &mut Report<'_>) -> Result<(), Fault> {
        self.stop_if_unwanted(report);
        if let Some(file) = self.moving.front_mut() {
            file.transfer.progress(PROGRESS_INTERVAL);
        }
        report.progress();
        self.poll(report)
    }

    /// Takes what has ended.
    ///
    /// # Errors
    /// The session ended.
    pub(super) fn poll(&mut self, report: &mut Report<'_>) -> Result<(), Fault> {
        let mut at = 0;
        while let Some(file) = self.moving.get_mut(at) {
            if !is_over(&mut file.transfer) {
                at += 1;
            } else if let Some(file) = self.moving.remove(at) {
                self.end(file, report)?;
            }
        }
        Ok(())
    }
}

/// Packs that are under way.
pub(super) struct Packs<T>(VecDeque<T>);

impl<T> Packs<T> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn push(&mut self, pack: T) {
        self.0.push_back(pack);
    }

    /// Whether no more may be begun.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= PACKS_MAX
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one that was begun first, if it ends within a while.
    pub(super) fn take_soon(&mut self, transfer: impl Fn(&mut T) -> &mut Transfer) -> Option<T> {
        let first = transfer(self.0.front_mut()?);
        while first.progress(PROGRESS_INTERVAL).is_some() {}
        first.is_finished().then(|| self.0.pop_front())?
    }

    /// The one that was begun first, if it has ended.
    pub(super) fn take_ended(&mut self, transfer: impl Fn(&mut T) -> &mut Transfer) -> Option<T> {
        let first = self.0.front_mut()?;
        is_over(transfer(first)).then(|| self.0.pop_front())?
    }

    /// The one that was begun first.
    pub(super) fn take(&mut self) -> Option<T> {
        self.0.pop_front()
    }
}

/// Waits for a pack that was sent.
///
/// # Errors
/// The session ended.
pub(super) fn wait_for_pack(pack: MovingPack, report: &mut Report<'_>) -> Result<(), Fault> {
    wait_for_durable_pack(pack, report, || Ok(()))
}

/// Likewise, with something that is done between the end of the pack and its count.
///
/// # Errors
/// The session ended, or that of `make_durable`.
pub(super) fn wait_for_durable_pack(
    pack: MovingPack,
    report: &mut Report<'_>,
    make_durable: impl FnOnce() -> Result<(), Fault>,
) -> Result<(), Fault> {
    match pack.transfer.wait_for_pack() {
        Ok(failures) => {
            make_durable()?;
            for (number, item) in (0..).zip(&pack.items) {
                match failures.of(number) {
                    Some(fault) => report.missed_item(item, fault.clone().path(&item.path)),
                    None => report.moved(item),
                }
            }
        }
        Err(fault) if ends_session(&fault) => return Err(fault),
        Err(fault) => {
            for item in &pack.items {
                report.missed_item(item, fault.clone());
            }
        }
    }
    report.progress();
    Ok(())
}

/// Whether a transfer has ended, so that what came of it can be taken without waiting.
pub(super) fn is_over(transfer: &mut Transfer) -> bool {
    while transfer.progress(Duration::ZERO).is_some() {}
    transfer.is_finished()
}

/// Whether what failed may go well when it is tried again soon.
fn may_pass(fault: &Fault) -> bool {
    fault.retry != Retry::Never
        || matches!(
            fault.code,
            Code::Busy | Code::DeadlineExceeded | Code::IntegrityMismatch | Code::SourceChanged
        )
}

/// Whether nothing more can be moved after a fault.
pub(super) fn ends_session(fault: &Fault) -> bool {
    matches!(
        fault.code,
        Code::ConnectionLost
            | Code::ConnectionRefused
            | Code::ShuttingDown
            | Code::ProtocolViolation
    )
}

/// How a pack, or a large file, is transferred.
pub(super) fn transfer_options(options: &TreeOptions) -> TransferOptions {
    TransferOptions {
        rate_bytes_per_s_max: options.rate_bytes_per_s_max,
        overwrite: options.overwrite,
        digest: options.digest,
        resume: !options.begin_anew,
        verify_resumed: options.verify_resumed,
        ..TransferOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_of_the_tree_itself_has_its_path() {
        let mut told = Vec::new();
        let mut observer = |event: TreeEvent<'_>| {
            if let TreeEvent::Failed { fault, .. } = event {
                told.push(fault.to_string());
            }
            ControlFlow::Continue(())
        };
        let mut report = Report::new(&mut observer);
        report.result.target = b"/there".to_vec();
        let fault = Fault::new(Code::Io, "set attributes", "it failed");
        report.failed(b"", &fault);
        report.failed(b"a", &fault.path("a"));
        drop(report);
        let wanted = ["'/there'", "'a'"].map(|p| format!("local set attributes {p}: it failed"));
        assert_eq!(told, wanted);
    }
}
