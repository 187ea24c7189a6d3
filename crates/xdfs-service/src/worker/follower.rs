//! A worker follows a running transfer: it shows how far it is, and stores that now and then.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, MissedTickBehavior, interval};
use xdfs::{Code, Fault, JobEvent, JobResult, RunningJob, TreeResult};

use super::Workers;
use crate::failure::Failure;
use crate::id::JobId;
use crate::inventory::Inventory;
use crate::live::is_set;
use crate::model::{Counts, LiveTransfer};
use crate::scheduler::Link;
use crate::state::WorkerId;
use crate::tally::Moved;

/// Time between two steps that are stored. After a kill, this much of the counts is older than the
/// files are; the mover's own journals say what is done.
const STORED_EVERY: Duration = Duration::from_secs(2);
/// Time between two steps that are shown.
const SHOWN_EVERY: Duration = Duration::from_millis(250);
/// Most failed entries that wait to be stored.
const FAILURES_MAX: usize = 500;
/// Time over which the rate is measured.
const RATE_OVER: Duration = Duration::from_secs(5);

/// Follows a running transfer.
pub(super) struct Follower<'a> {
    pub(super) workers: &'a Workers,
    pub(super) id: JobId,
    pub(super) worker: &'a WorkerId,
    pub(super) position: u32,
    /// The list of its files, if the job keeps one, or it is a tree.
    pub(super) inventory: Option<Inventory>,
    /// The path of a tree at the target.
    pub(super) target: Option<Vec<u8>>,
    pub(super) counts: Counts,
    pub(super) link: &'a Link,
    /// It tries a server that was down.
    pub(super) is_probe: bool,
    /// It is stored that it is large.
    pub(super) is_large: bool,
    /// The bytes that the link has moved; none before the first, which may have been there before.
    pub(super) bytes_moved: Option<u64>,
    /// What this attempt has moved, and what of it is counted for the metrics.
    pub(super) moved: Moved,
    pub(super) counted: Moved,
    /// The bytes at the last times at which they were shown.
    pub(super) marks: VecDeque<(Instant, u64)>,
    pub(super) retried: Option<Failure>,
    pub(super) first_failure: Option<Failure>,
    /// Entries that failed, and are to be stored.
    pub(super) failures: Vec<Failure>,
    /// Bytes that are in the curve of the job, of this attempt and earlier ones.
    pub(super) arrived: u64,
}

impl Follower<'_> {
    /// Follows it to its end.
    pub(super) async fn follow(
        &mut self,
        running: &RunningJob,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<JobResult, Fault> {
        let mut shown = interval(SHOWN_EVERY);
        shown.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stored_at = Instant::now();
        let (mut is_new, mut is_cancelled) = (true, false);
        loop {
            tokio::select! {
                event = poll_fn(|context| running.poll_event(context)) => match event {
                    Some(event) => {
                        is_new |= self.event(event);
                        if self.failures.len() >= FAILURES_MAX {
                            self.store_failures().await;
                        }
                        if let Some(inventory) = &mut self.inventory
                            && inventory.is_full()
                        {
                            inventory.store().await;
                        }
                        // Events may come faster than they are taken.
                        consume_budget().await;
                    }
                    None => break,
                },
                _ = shown.tick() => {
                    if !is_new {
                        continue;
                    }
                    is_new = false;
                    self.show();
                    self.measure().await;
                    if stored_at.elapsed() >= STORED_EVERY {
                        stored_at = Instant::now();
                        self.store_failures().await;
                        if let Some(inventory) = &mut self.inventory {
                            inventory.store().await;
                        }
                        // The next step is stored too; the end has to be.
                        let (store, id) = (&self.workers.store, self.id);
                        let stored = store.progress(id, self.worker, self.position, &self.counts);
                        if let Err(fault) = stored.await {
                            tracing::warn!(job = %self.id, %fault, "can't store the progress");
                        }
                        if let Some(curve) = self.workers.live.curve(self.id)
                            && let Err(fault) = store.set_curve(self.id, &curve).await
                        {
                            tracing::warn!(job = %self.id, %fault, "can't store the curve");
                        }
                    }
                }
                () = is_set(stopped), if !is_cancelled => {
                    is_cancelled = true;
                    running.cancel();
                }
            }
        }
        self.store_failures().await;
        self.count();
        // It has ended, so this doesn't wait.
        running.wait()
    }

    /// Gives the scheduler what it has to know.
    async fn measure(&mut self) {
        let store = &self.workers.store;
        let bytes = self.counts.bytes;
        let moved = bytes.saturating_sub(self.bytes_moved.unwrap_or(bytes));
        self.bytes_moved = Some(bytes);
        self.workers.moved(self.link, moved);
        if self.is_probe && moved > 0 {
            match store.end_outage(self.link).await {
                Ok(()) => {
                    self.is_probe = false;
                    self.workers.wake.notify_one();
                }
                // The end is stored in any case.
                Err(fault) => tracing::warn!(job = %self.id, %fault, "can't store an end"),
            }
        }
        if !self.is_large && self.counts.is_large() {
            let stored = store.progress(self.id, self.worker, self.position, &self.counts);
            match stored.await {
                Ok(()) => {
                    self.is_large = true;
                    self.workers.wake.notify_one();
                }
                Err(fault) => tracing::warn!(job = %self.id, %fault, "can't store a size"),
            }
        }
    }

    async fn store_failures(&mut self) {
        let failures = mem::take(&mut self.failures);
        if failures.is_empty() {
            return;
        }
        let store = &self.workers.store;
        let stored = store.add_failures(self.id, self.worker, self.position, &failures);
        if let Err(fault) = stored.await {
            // They are counted all the same.
            let count = failures.len();
            tracing::error!(job = %self.id, %fault, count, "can't store which entries failed");
        }
    }

    /// The bytes that have arrived in a second, of the last few ones.
    fn rate(&mut self) -> Option<u64> {
        let now = Instant::now();
        while self
            .marks
            .front()
            .is_some_and(|(at, _)| now - *at > RATE_OVER)
        {
            self.marks.pop_front();
        }
        self.marks.push_back((now, self.counts.bytes));
        let (at, bytes) = self.marks.front()?;
        let milliseconds = u64::try_from((now - *at).as_millis()).ok()?;
        let bytes = self.counts.bytes.checked_sub(*bytes)?;
        bytes.saturating_mul(1000).checked_div(milliseconds)
    }

    /// Counts what has been moved since the last time for the metrics.
    fn count(&mut self) {
        let before = mem::replace(&mut self.counted, self.moved);
        self.workers.live.tally.moved(before, self.moved);
    }

    /// Adds the bytes that have arrived since the last time to the curve of the job.
    pub(super) fn arrive(&mut self) {
        let bytes = self.counts.bytes.saturating_sub(self.arrived);
        self.arrived = self.arrived.max(self.counts.bytes);
        self.workers.live.arrived(self.id, bytes);
    }

    fn show(&mut self) {
        self.count();
        self.arrive();
        let transfer = LiveTransfer {
            position: self.position,
            rate: self.rate(),
            counts: self.counts.clone(),
            failure: self.retried.clone(),
        };
        self.workers.live.update(self.id, Some(transfer));
    }

    /// Takes an event. Whether there is something new to be shown.
    fn event(&mut self, event: JobEvent) -> bool {
        match event {
            JobEvent::Progress(progress) => {
                self.counts.bytes = progress.bytes;
                self.moved.bytes = progress.bytes.saturating_sub(progress.resumed_bytes);
                self.counts.bytes_total = progress.bytes_total;
                self.retried = None;
            }
            JobEvent::TreeProgress(result) => {
                self.tree(&result);
                let counted = result.activity.is_counted;
                self.counts.bytes_total = counted.then_some(result.activity.counted.bytes);
            }
            JobEvent::Failed { path, fault } => {
                let failure = Failure::from(&fault.preventing(path));
                self.first_failure.get_or_insert_with(|| failure.clone());
                self.failures.push(failure);
            }
            JobEvent::File {
                path,
                bytes,
                digest,
                pace,
            } => {
                if let Some(inventory) = &mut self.inventory {
                    inventory.add(&path, bytes, &digest, pace);
                }
                return false;
            }
            JobEvent::Target(path) => {
                self.target = Some(path);
                return false;
            }
            JobEvent::Retry { fault, .. } => self.retried = Some((&fault).into()),
            JobEvent::Reconnected => self.retried = None,
            JobEvent::Warning(fault) => {
                tracing::warn!(job = %self.id, %fault);
                return false;
            }
            _ => return false,
        }
        true
    }

    fn tree(&mut self, tree: &TreeResult) {
        self.counts.bytes = tree.bytes + tree.resumed.bytes + tree.activity.in_flight_bytes;
        self.counts.files = tree.files + tree.resumed.files;
        self.counts.failed = tree.failed;
        self.moved = Moved {
            bytes: tree.bytes + tree.activity.in_flight_bytes,
            files: tree.files,
            failed: tree.failed,
        };
    }

    /// Whether all files of the result have a row.
    pub(super) async fn is_listed(&self, result: &JobResult) -> Result<bool, Fault> {
        let Some(inventory) = &self.inventory else {
            return Ok(false);
        };
        match result {
            JobResult::File(_) => inventory.has_all(1).await,
            JobResult::Tree(tree) if tree.resumed.files == 0 => inventory.has_all(tree.files).await,
            // What was there already is to be looked at.
            _ => Ok(false),
        }
    }

    /// The published path of the target.
    pub(super) fn target(&mut self, result: &JobResult) -> Option<Vec<u8>> {
        match result {
            JobResult::File(file) => Some(file.target.clone()),
            _ => self.target.take(),
        }
    }

    /// Takes the result. Returns what limited the rate.
    pub(super) fn result(&mut self, result: &JobResult) -> Option<&'static str> {
        let shares = match result {
            JobResult::File(file) => {
                self.counts = Counts {
                    bytes: file.bytes,
                    bytes_total: Some(file.bytes),
                    files: 1,
                    failed: 0,
                };
                self.moved.bytes = file.bytes.saturating_sub(file.resumed_bytes);
                self.moved.files = 1;
                Some(file.time_shares)
            }
            JobResult::Tree(tree) => {
                self.tree(tree);
                tree.time_shares
            }
            JobResult::Sync(sync) => {
                self.tree(&sync.tree);
                sync.tree.time_shares
            }
            _ => None,
        };
        self.count();
        if self.counts.failed == 0 {
            self.counts.bytes_total = Some(self.counts.bytes);
        }
        shares.map(|shares| shares.limited_by().as_str())
    }

    /// Why a transfer with this result isn't a success.
    pub(super) fn failure(&mut self, result: &JobResult) -> Option<Failure> {
        let tree = match result {
            JobResult::Tree(tree) => tree,
            JobResult::Sync(sync) => &sync.tree,
            _ => return None,
        };
        let unknown = || {
            let cause = format!("{} entries have failed", tree.failed);
            Failure::from(&Fault::new(Code::Io, "copy everything", cause))
        };
        let failed = tree.failed > 0;
        failed.then(|| self.first_failure.take().unwrap_or_else(unknown))
    }
}
