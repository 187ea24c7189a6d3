//! What is under way of a tree: packs and large files in bounded numbers, and what came of them.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_store::tree_journal::{Mark, Totals};

use super::inspector::PackInspector;
use super::item::{DeferredMetadata, Item, Kind};
use super::tracker::Tracker;
use crate::events::{Observer, SyncStep, TreeEvent, TreeResult};
use crate::transfer::Transfer;

/// How often progress is told.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Most entries that are kept to be tried again; what fails beyond them is told at once.
const RETRIES_MAX: usize = 1 << 20;
/// Longest time to wait before entries are tried again, and the shortest.
const RETRY_WAIT_MS: (u32, u32) = (100, 2000);

/// A large file that is under way.
#[derive(Debug)]
pub(super) struct MovingFile {
    pub(super) transfer: Transfer,
    pub(super) item: Item,
    pub(super) kept: DeferredMetadata,
}

/// An entry that failed, and is to be tried again.
#[derive(Debug)]
pub(super) struct RetryEntry {
    pub(super) path: Vec<u8>,
    pub(super) mark: Option<Mark>,
    pub(super) fault: Fault,
}

/// Counts and tells.
pub(super) struct Report<'a> {
    observer: &'a mut dyn Observer,
    pub(super) result: TreeResult,
    began: Instant,
    told: Instant,
    stopped: bool,
    /// Which directories are whole.
    pub(super) tracker: Tracker,
    /// What failed and may pass, while it is kept.
    again: Option<Vec<RetryEntry>>,
    /// Entries that stand at the target may be those that an earlier run moved.
    has_run: bool,
    /// Something failed that may stand under its name all the same.
    has_doubts: bool,
    /// Digests of paths that were not moved, and why: of directories, and while several names of a
    /// file are kept of all.
    lost: HashMap<u64, Code>,
    pub(super) keeps_lost: bool,
    random: RandomState,
    /// What has the kind, the size and the time of an entry is taken for it.
    pub(super) marks_suffice: bool,
}

impl<'a> Report<'a> {
    pub(super) fn new(observer: &'a mut dyn Observer) -> Self {
        let now = Instant::now();
        Self {
            observer,
            result: TreeResult::default(),
            began: now,
            told: now,
            stopped: false,
            tracker: Tracker::default(),
            again: None,
            has_run: false,
            has_doubts: false,
            lost: HashMap::new(),
            keeps_lost: false,
            random: RandomState::new(),
            marks_suffice: true,
        }
    }

    /// Remembers what is moved, for a journal if there is one, and what is to be tried again.
    pub(super) fn track(&mut self, journal: bool, has_run: bool) {
        self.tracker = Tracker::new(journal);
        self.keep_retries();
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
        let totals = self.count(item);
        match item.kind {
            Kind::File | Kind::Other => {
                self.tracker.settled(&item.path, Ok((totals, item.mark)));
            }
            // Each run has to see which file it belongs to.
            Kind::Link => self.tracker.settled(&item.path, Ok((totals, None))),
            Kind::Directory => self.tracker.made(&item.path, true),
            Kind::Attributes | Kind::Unheard => {}
        }
    }

    /// Counts what is moved, or would be.
    pub(super) fn count(&mut self, item: &Item) -> Totals {
        let mut totals = Totals::default();
        match item.kind {
            Kind::File => totals.files = 1,
            Kind::Directory => totals.directories = 1,
            Kind::Other | Kind::Link => totals.others = 1,
            Kind::Attributes | Kind::Unheard => {}
        }
        totals.bytes = item.bytes;
        let result = &mut self.result;
        result.files += totals.files;
        result.directories += totals.directories;
        result.others += totals.others;
        result.bytes += totals.bytes;
        totals
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
        self.tell(TreeEvent::Failed { path, fault });
    }

    /// What is known of an entry couldn't be set. Of a directory that wasn't made it is told why.
    pub(super) fn unset(&mut self, path: &[u8], fault: &Fault) {
        let is_missing = fault.code == Code::NotFound;
        if !(is_missing && self.why_lost(path).is_some()) {
            self.failed(path, fault);
        }
    }

    /// An entry wasn't moved: it is tried again, or that is told.
    pub(super) fn record_failure(
        &mut self,
        path: &[u8],
        is_directory: bool,
        mark: Option<Mark>,
        fault: Fault,
    ) {
        let is_directory = is_directory || self.tracker.knows(path);
        let is_there = fault.code == Code::AlreadyExists && !is_directory;
        let is_ours = is_there && self.has_run && mark.is_some();
        // An earlier run may have set the mode of the directory, which was whole.
        let is_closed = fault.code == Code::PermissionDenied && self.has_run;
        if let Some(again) = &mut self.again
            && again.len() < RETRIES_MAX
            && (is_closed || is_ours || may_pass(&fault))
        {
            let path = path.to_vec();
            again.push(RetryEntry { path, mark, fault });
        } else {
            self.lose(path, is_directory, &fault);
        }
    }

    /// Likewise of one that is known.
    pub(super) fn record_item_failure(&mut self, item: &Item, fault: Fault) {
        match item.kind {
            Kind::Unheard => {}
            Kind::Attributes => self.unset(&item.path, &fault),
            kind => {
                self.record_failure(&item.path, kind == Kind::Directory, item.mark, fault);
            }
        }
    }

    /// What failed and may pass: those that are tried again as they are, and those that stand at
    /// the target and may be the work of an earlier run. Waits for as long as their faults ask.
    /// With `last` what fails from now on is told at once.
    pub(super) fn take_retries(&mut self, last: bool) -> (Vec<RetryEntry>, Vec<RetryEntry>) {
        let again = match last {
            true => self.again.take(),
            false => self.again.as_mut().map(std::mem::take),
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

    /// An entry wasn't moved, and isn't tried again.
    pub(super) fn fail_permanently(&mut self, path: &[u8], fault: &Fault) {
        self.lose(path, self.tracker.knows(path), fault);
    }

    fn lose(&mut self, path: &[u8], is_directory: bool, fault: &Fault) {
        match is_directory {
            true => self.tracker.made(path, false),
            false => self.tracker.settled(path, Err(())),
        }
        if self.keeps_lost || is_directory {
            self.lost.insert(self.random.hash_one(path), fault.code);
        }
        self.failed(path, fault);
    }

    /// Why an entry wasn't moved; `None` if it was, or an earlier run had done that.
    pub(super) fn why_lost(&self, path: &[u8]) -> Option<Code> {
        self.lost.get(&self.random.hash_one(path)).copied()
    }

    /// A directory isn't moved, nor anything in it.
    pub(super) fn fail_directory(&mut self, path: &[u8], fault: &Fault) {
        self.tracker.listed(path, 0, &Totals::default(), true);
        self.lose(path, true, fault);
    }

    /// What fails from now on is tried again.
    pub(super) fn keep_retries(&mut self) {
        self.again.get_or_insert_default();
    }

    /// What is kept to be tried again has failed.
    pub(super) fn give_up_retries(&mut self) {
        for again in self.again.take().unwrap_or_default() {
            self.fail_permanently(&again.path, &again.fault);
        }
    }

    /// Something that the tree goes on without.
    pub(super) fn warn(&mut self, fault: &Fault) {
        self.tell(TreeEvent::Warning(fault));
    }

    pub(super) fn step(&mut self, step: SyncStep, path: &[u8], from: Option<&[u8]>) {
        self.tell(TreeEvent::Step { step, path, from });
    }

    /// The next of what others give; tells progress, and returns when nothing came for a while.
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
        if self.told.elapsed() >= PROGRESS_INTERVAL {
            self.told = Instant::now();
            self.result.elapsed = self.began.elapsed();
            let result = self.result.clone();
            self.tell(TreeEvent::Progress(&result));
        }
    }

    fn tell(&mut self, event: TreeEvent<'_>) {
        self.stopped |= self.observer.on_tree(event) == ControlFlow::Break(());
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
            let files = match self.result.unkept {
                1 => "1 file".to_owned(),
                number => format!("{number} files"),
            };
            let cause = format!(
                "set-user-id and set-group-id of {files} were not kept: a program is to run as its \
                 owner alone, and owners are not kept",
            );
            let fault = Fault::new(Code::PermissionDenied, "copy a tree", cause);
            self.warn(&fault.hint("as root, keep owners too, by --owner or -a"));
        }
        Ok(self.result)
    }
}

/// A pack on its way to a target: in a transfer, or carried out here.
#[derive(Debug)]
pub(super) enum PackTransfer {
    Ended(Result<Failures, Fault>),
    Moving(Box<Transfer>),
}

impl PackTransfer {
    /// Whether it has ended, or does so while `timeout` passes without progress.
    pub(super) fn is_over(&mut self, timeout: Duration) -> bool {
        match self {
            Self::Ended(_) => true,
            Self::Moving(transfer) => is_over(transfer, timeout),
        }
    }

    /// Waits for the end, and tells what of it wasn't carried out.
    pub(super) fn wait(self) -> Result<Failures, Fault> {
        match self {
            Self::Ended(result) => result,
            Self::Moving(transfer) => transfer.wait_for_pack(),
        }
    }
}

/// A pack that is under way, and what is in it.
#[derive(Debug)]
pub(super) struct MovingPack {
    pub(super) transfer: PackTransfer,
    /// What it has, of one that was made here.
    pub(super) items: Vec<Item>,
    /// Of one that was asked for, what sees its content.
    pub(super) inspector: Option<Arc<PackInspector>>,
}

/// Names for the next pack, and about what it will have.
#[derive(Default)]
pub(super) struct NextRequest {
    pub(super) names: Vec<Vec<u8>>,
    pub(super) name_bytes: usize,
    pub(super) bytes: u64,
}

/// The pack that was begun first, if it ends while `timeout` passes without progress.
pub(super) fn take_ended(
    packs: &mut VecDeque<MovingPack>,
    timeout: Duration,
) -> Option<MovingPack> {
    let first = packs.front_mut()?;
    first.transfer.is_over(timeout).then(|| packs.pop_front())?
}

/// Whether a transfer has ended, or does so while `timeout` passes without progress, so that what
/// came of it can be taken without waiting.
pub(super) fn is_over(transfer: &mut Transfer, timeout: Duration) -> bool {
    while transfer.progress(timeout).is_some() {}
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
