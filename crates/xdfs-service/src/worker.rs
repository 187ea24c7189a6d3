//! Workers: each takes a job that waits, does its transfers one after the other by the library, and
//! stores how far they are.
//!
//! The copies themselves run in threads of the library. A worker only waits for their events.

mod leasing;

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::coop::consume_budget;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use xdfs::operations::path::last_part;
use xdfs::security::trusted;
use xdfs::{Code, Fault, Job, JobEvent, JobResult, Retry, RunningJob, TreeResult};

use crate::access::{People, digest};
use crate::curve::Curve;
use crate::exact::exact;
use crate::failure::Failure;
use crate::id::JobId;
use crate::inventory::{Completion, Inventory, ask_for_digests};
use crate::lease::Lease;
use crate::live::{Live, is_set};
use crate::model::{Counts, LiveTransfer};
use crate::secret::{Keyring, SealingKey};
use crate::sessions::{Sessions, TransferSessions};
use crate::spec::check_for_user;
use crate::state::{Actor, Change, State, WorkerId};
use crate::store::{End, Retries, Store, Task};
use crate::tally::Moved;
use crate::time::Time;
use crate::whose::Whose;

/// Time between two steps that are stored. After a kill, this much of the counts is older than the
/// files are; the mover's own journals say what is done.
const STORED_EVERY: Duration = Duration::from_secs(2);
/// Time between two steps that are shown.
const SHOWN_EVERY: Duration = Duration::from_millis(250);
/// Most failed entries that wait to be stored.
const FAILURES_MAX: usize = 500;
/// Time over which the rate is measured.
const RATE_OVER: Duration = Duration::from_secs(5);
/// Time until the database is tried again after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The pause before the first retry of a job; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Longest wait for the time of a retry: clocks can be set.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The parts that all workers of a service use.
#[derive(Debug)]
pub(crate) struct Workers {
    pub(crate) store: Store,
    pub(crate) live: Arc<Live>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) people: Arc<People>,
    pub(crate) sealing: Arc<SealingKey>,
    /// The directory of the journals of trees.
    pub(crate) journals: PathBuf,
    /// A job may wait.
    pub(crate) wake: Notify,
    pub(crate) lease: Lease,
    /// A job may have been claimed without an answer.
    unsure: AtomicBool,
    running: Mutex<HashMap<JobId, watch::Sender<bool>>>,
}

/// The end of a transfer for its worker.
enum TransferEnd {
    /// It has succeeded, and that is stored.
    Succeeded,
    /// It has failed for good, and that is stored.
    Failed,
    /// It failed for this reason, and may succeed later.
    Postponed(Box<Failure>),
    /// It can be continued.
    Stopped,
}

/// The end of a job for its worker.
enum JobEnd {
    Succeeded,
    /// The first failure of a transfer.
    Failed(Box<Failure>),
    /// The first failure that may pass, and when to try again.
    Postponed(Box<Failure>, Time),
    Stopped,
}

/// The progress of a worker with a job.
struct Run {
    id: JobId,
    worker: WorkerId,
    /// It keeps a list of its files.
    has_manifest: bool,
    /// The credentials for sessions with servers.
    keyring: Keyring,
    retries: Retries,
    /// Something has arrived that was missing before.
    has_progress: bool,
    stopped: watch::Receiver<bool>,
}

impl Run {
    /// The number of retries in a row without progress.
    fn count(&self) -> u32 {
        match self.has_progress {
            true => 0,
            false => self.retries.count,
        }
    }

    fn may_retry(&self) -> bool {
        self.count() < self.retries.max
    }
}

/// The pause before the retry that follows `count` others.
fn pause(count: u32) -> Duration {
    let doubled = PAUSE_FIRST.saturating_mul(1 << count.min(20));
    doubled.min(PAUSE_MAX)
}

/// Tries a statement until the database is neither away nor full any more.
macro_rules! stored {
    ($job:expr, $statement:expr) => {
        loop {
            match $statement.await {
                Err(fault) if fault.retry != Retry::Never => {
                    tracing::error!(job = %$job, %fault, "can't store what a job has done");
                    sleep(RETRY_AFTER).await;
                }
                result => break result,
            }
        }
    };
}

impl Workers {
    pub(crate) fn new(
        store: Store,
        live: Arc<Live>,
        sessions: Arc<Sessions>,
        people: Arc<People>,
        sealing: Arc<SealingKey>,
        journals: PathBuf,
        lease: Lease,
    ) -> Self {
        Self {
            store,
            live,
            sessions,
            people,
            sealing,
            journals,
            wake: Notify::new(),
            lease,
            unsure: AtomicBool::new(false),
            running: Mutex::default(),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<JobId, watch::Sender<bool>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops a job, if a worker of this process has it.
    pub(crate) fn stop(&self, id: JobId) {
        if let Some(stop) = self.running().get(&id) {
            stop.send_replace(true);
        }
    }

    /// Stops all jobs of this process.
    pub(crate) fn stop_all(&self) {
        for stop in self.running().values() {
            stop.send_replace(true);
        }
    }

    /// Whether no worker of this process has a job.
    pub(crate) fn is_idle(&self) -> bool {
        self.running().is_empty()
    }

    /// Takes jobs while there are some, and less than `count` run.
    async fn claim(
        self: &Arc<Self>,
        jobs: &mut JoinSet<()>,
        count: usize,
        number: &mut u64,
        closing: &watch::Receiver<bool>,
    ) -> Result<(), Fault> {
        while jobs.len() < count
            && !*closing.borrow()
            && let Some(process) = self.lease.process()
        {
            *number += 1;
            let worker = process.worker(*number);
            let claimed = self.store.claim(&process, &worker).await;
            if claimed.is_err() {
                // It may have been done, and only the answer was lost.
                self.unsure.store(true, Ordering::Relaxed);
            }
            let Some(id) = claimed? else { break };
            let (stop, stopped) = watch::channel(false);
            self.running().insert(id, stop);
            jobs.spawn(Arc::clone(self).job(id, worker, stopped, closing.clone()));
        }
        Ok(())
    }

    /// Runs up to `count` jobs at the same time, until `closing` says that it is over. Then all are
    /// stopped, and wait again.
    pub(crate) async fn run(self: Arc<Self>, count: usize, mut closing: watch::Receiver<bool>) {
        let mut jobs = JoinSet::new();
        let mut number = 0_u64;
        let keeping = self
            .store
            .is_shared()
            .then(|| tokio::spawn(Arc::clone(&self).keep_lease()));
        loop {
            if let Err(fault) = self.give_back().await {
                tracing::error!(%fault, "can't give back a job");
            } else if let Err(fault) = self.claim(&mut jobs, count, &mut number, &closing).await {
                tracing::error!(%fault, "can't take a job");
                sleep(RETRY_AFTER).await;
                self.wake.notify_one();
            }
            let pause = self.until_next_retry().await;
            tokio::select! {
                () = self.wake.notified(), if jobs.len() < count => {}
                () = sleep(pause), if jobs.len() < count => {}
                Some(ended) = jobs.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a worker has failed");
                    }
                }
                () = is_set(&mut closing) => break,
            }
        }
        self.stop_all();
        while jobs.join_next().await.is_some() {}
        if let Some(keeping) = keeping {
            keeping.abort();
        }
        if let Some(process) = self.lease.process()
            && let Err(fault) = self.store.unregister(&process).await
        {
            tracing::warn!(%fault, "can't end the lease");
        }
    }

    /// Queues jobs that were claimed in vain, if there may be some.
    async fn give_back(&self) -> Result<(), Fault> {
        if let Some(process) = self.lease.process()
            && self.unsure.load(Ordering::Relaxed)
        {
            let known: Vec<_> = self.running().keys().copied().collect();
            self.store.give_back(&process, &known).await?;
            self.unsure.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Time until a job may be due.
    async fn until_next_retry(&self) -> Duration {
        let Ok(Some(at)) = self.store.next_retry().await else {
            return LOOK_EVERY;
        };
        let left = at.microseconds().saturating_sub(Time::now().microseconds());
        Duration::from_micros(u64::try_from(left).unwrap_or(0)).min(LOOK_EVERY)
    }

    /// Does a job, and writes how it ended.
    async fn job(
        self: Arc<Self>,
        id: JobId,
        worker: WorkerId,
        stopped: watch::Receiver<bool>,
        closing: watch::Receiver<bool>,
    ) {
        // What came before it could be stopped here.
        let is_late = matches!(self.store.state(id).await, Ok(State::Stopping(..)));
        if is_late || *closing.borrow() {
            self.stop(id);
        }
        if let Err(fault) = self.begin_curve(id).await {
            tracing::warn!(job = %id, %fault, "can't read the curve of a job");
        }
        self.live.changed(id);
        let ended = match self.transfers(id, worker.clone(), stopped).await {
            Err(fault) if fault.code == Code::LockLost => Err(fault),
            Err(fault) => {
                let end = JobEnd::Failed(Box::new((&fault).into()));
                self.end(id, worker, end).await
            }
            Ok(end) => self.end(id, worker, end).await,
        };
        match ended {
            Ok(()) => {}
            Err(fault) if fault.code == Code::LockLost => {
                tracing::error!(job = %id, %fault, "another process has the job");
            }
            Err(fault) => tracing::error!(job = %id, %fault, "can't store the end of a job"),
        }
        self.end_curve(id).await;
        self.running().remove(&id);
        self.live.update(id, None);
        self.wake.notify_one();
    }

    /// Writes how a job ended.
    async fn end(&self, id: JobId, worker: WorkerId, end: JobEnd) -> Result<(), Fault> {
        let (change, reason) = match end {
            JobEnd::Failed(failure) => {
                let reason = failure.sentence();
                (Change::Fail(failure), reason)
            }
            JobEnd::Postponed(failure, at) => {
                let reason = format!("it may succeed later: {}", failure.sentence());
                (Change::Postpone(failure, at), reason)
            }
            JobEnd::Stopped => match self.passed_deadline(id).await {
                Some(deadline) => {
                    let reason = format!("its deadline was {deadline}");
                    (Change::Fail(Box::new(Failure::late(deadline))), reason)
                }
                None => (Change::Stopped, "it was stopped".to_owned()),
            },
            JobEnd::Succeeded => (Change::Succeed, "all transfers have succeeded".to_owned()),
        };
        let actor = Actor::Worker(worker);
        let store = &self.store;
        match stored!(id, store.change(id, change.clone(), &actor, &reason)) {
            // It was stored, and the answer was lost; or it isn't the job of this worker.
            Err(fault) if matches!(fault.code, Code::Stale | Code::NotFound) => Ok(()),
            changed => changed.map(drop),
        }
    }

    /// The deadline of a job that has passed, unless the job is to be paused or cancelled.
    async fn passed_deadline(&self, id: JobId) -> Option<Time> {
        let deadline = self.store.deadline(id).await.ok()??;
        let is_running = matches!(self.store.state(id).await, Ok(State::Running(_)));
        (is_running && deadline <= Time::now()).then_some(deadline)
    }

    /// The credentials of a job; why it can't be done if there are not those that it names.
    ///
    /// # Errors
    /// The database can't be read.
    async fn keyring(&self, id: JobId) -> Result<Result<Keyring, Fault>, Fault> {
        let owner = self.store.owner(id).await?;
        let named = self.store.named_secrets(id).await?;
        let rows = self.store.secrets(&owner).await?;
        let whose = match self.people.is_administrator(&owner) {
            true => Whose::Own,
            false => Whose::User(owner),
        };
        Ok(Keyring::new(whose, Arc::clone(&self.sealing), rows, &named))
    }

    /// Continues the curve of a job, or begins one.
    async fn begin_curve(&self, id: JobId) -> Result<(), Fault> {
        let curve = self.store.curve(id).await?;
        let curve = curve.unwrap_or_else(|| Curve::new(Time::now()));
        self.live.begin_curve(id, curve);
        Ok(())
    }

    /// Stores the curve of a job, if it took long enough to have one.
    async fn end_curve(&self, id: JobId) {
        if let Some(curve) = self.live.curve(id)
            && curve.bytes.len() > 1
            && let Err(fault) = self.store.set_curve(id, &curve).await
        {
            tracing::warn!(job = %id, %fault, "can't store the curve of a job");
        }
        self.live.end_curve(id);
    }

    /// Does the transfers of a job that are to be done.
    async fn transfers(
        &self,
        id: JobId,
        worker: WorkerId,
        stopped: watch::Receiver<bool>,
    ) -> Result<JobEnd, Fault> {
        let store = &self.store;
        let keyring = match stored!(id, self.keyring(id))? {
            Ok(keyring) => keyring,
            Err(fault) => return Ok(JobEnd::Failed(Box::new((&fault).into()))),
        };
        let mut run = Run {
            id,
            worker,
            keyring,
            has_manifest: stored!(id, store.has_manifest(id))?,
            retries: stored!(id, store.retries(id))?,
            has_progress: false,
            stopped,
        };
        let mut postponed = None;
        let mut last = None;
        loop {
            let tasks = stored!(id, store.tasks(id, last))?;
            if tasks.is_empty() {
                break;
            }
            for task in tasks {
                if *run.stopped.borrow() {
                    return Ok(JobEnd::Stopped);
                }
                last = Some(task.position);
                match self.transfer(&task, &mut run).await? {
                    TransferEnd::Succeeded => run.has_progress = true,
                    TransferEnd::Failed => {}
                    TransferEnd::Postponed(failure) => {
                        postponed.get_or_insert(failure);
                    }
                    TransferEnd::Stopped => return Ok(JobEnd::Stopped),
                }
            }
        }
        if let Some(failure) = postponed {
            let count = run.count();
            let next = count.saturating_add(1);
            let worker = &run.worker;
            stored!(id, store.set_retries(id, worker, next))?;
            return Ok(JobEnd::Postponed(failure, Time::now().after(pause(count))));
        }
        // Everything is done, whatever somebody wanted meanwhile.
        match stored!(id, store.first_failure(id))? {
            Some(failure) => Ok(JobEnd::Failed(Box::new(failure))),
            None if run.has_manifest => self.list(id, &run).await,
            None => Ok(JobEnd::Succeeded),
        }
    }

    /// Completes the list of the files of a job, of which all have arrived.
    async fn list(&self, id: JobId, run: &Run) -> Result<JobEnd, Fault> {
        for transfer in stored!(id, self.store.unlisted(id))? {
            let completion = Completion {
                store: self.store.clone(),
                runtime: Handle::current(),
                sessions: TransferSessions::of(Arc::clone(&self.sessions), run.keyring.clone()),
                id,
                transfer,
                stopped: run.stopped.clone(),
            };
            let completed = spawn_blocking(|| completion.run()).await;
            let completed = completed.map_err(|error| {
                Fault::new(
                    Code::Internal,
                    "list the files of the job",
                    error.to_string(),
                )
            })?;
            let Err(fault) = completed else { continue };
            if fault.code == Code::Cancelled && *run.stopped.borrow() {
                return Ok(JobEnd::Stopped);
            }
            let failure = Box::new(Failure::from(&fault));
            if !failure.may_pass() || !run.may_retry() {
                return Ok(JobEnd::Failed(failure));
            }
            let count = run.count();
            let next = count.saturating_add(1);
            stored!(id, self.store.set_retries(id, &run.worker, next))?;
            let at = Time::now().after(pause(count));
            return Ok(JobEnd::Postponed(failure, at));
        }
        Ok(JobEnd::Succeeded)
    }

    async fn transfer(&self, task: &Task, run: &mut Run) -> Result<TransferEnd, Fault> {
        let (store, id, worker, position) = (&self.store, run.id, &run.worker, task.position);
        stored!(id, store.begin_transfer(id, worker, position))?;
        let job = self.read(id, task, &run.keyring).await;
        let started = job.and_then(|job| self.start(job, run.has_manifest, &run.keyring));
        let mut end = End {
            counts: Counts::default(),
            limited_by: None,
            failure: None,
            target: None,
            is_listed: false,
        };
        match started {
            Err(fault) => end.failure = Some((&fault).into()),
            Ok(running) => {
                let inventory = match run.has_manifest {
                    true => Some(stored!(id, Inventory::new(store, id, position))?),
                    false => None,
                };
                let mut follower = Follower {
                    inventory,
                    target: None,
                    workers: self,
                    id,
                    worker,
                    position,
                    counts: Counts::default(),
                    moved: Moved::default(),
                    counted: Moved::default(),
                    marks: VecDeque::new(),
                    retried: None,
                    first_failure: None,
                    failures: Vec::new(),
                    arrived: task.bytes,
                };
                let result = follower.follow(&running, &mut run.stopped).await;
                let is_stopped = *run.stopped.borrow();
                if let (Some(inventory), Ok(JobResult::File(file))) =
                    (&mut follower.inventory, &result)
                {
                    let name = last_part(&file.target);
                    inventory.add(name, file.bytes, &file.digest);
                }
                if let Some(inventory) = &mut follower.inventory {
                    stored!(id, inventory.end())?;
                }
                match result {
                    Err(fault) if fault.code == Code::Cancelled && is_stopped => {
                        let counts = &follower.counts;
                        stored!(id, store.progress(id, worker, position, counts))?;
                        return Ok(TransferEnd::Stopped);
                    }
                    Err(fault) => end.failure = Some((&fault).into()),
                    Ok(result) => {
                        end.is_listed = stored!(id, follower.is_listed(&result))?;
                        end.target = follower.target(&result);
                        end.limited_by = follower.result(&result);
                        end.failure = follower.failure(&result);
                    }
                }
                follower.arrive();
                end.counts = follower.counts;
            }
        }
        run.has_progress |= end.counts.bytes > task.bytes;
        let tally = &self.live.tally;
        let ended = match end
            .failure
            .take_if(|failure| failure.may_pass() && run.may_retry())
        {
            Some(failure) => {
                tally.postponed(&failure);
                let counts = &end.counts;
                stored!(id, store.postpone_transfer(id, worker, position, counts))?;
                TransferEnd::Postponed(Box::new(failure))
            }
            None => {
                tally.ended(end.limited_by, end.failure.as_ref());
                stored!(id, store.end_transfer(id, worker, position, &end))?;
                match end.failure {
                    None => TransferEnd::Succeeded,
                    Some(_) => TransferEnd::Failed,
                }
            }
        };
        self.live.update(id, None);
        Ok(ended)
    }

    /// The directory of the journals of a user, since they say what has arrived already.
    fn journals_of(&self, whose: &Whose) -> Result<PathBuf, Fault> {
        match whose {
            Whose::Own => Ok(self.journals.clone()),
            Whose::User(name) => {
                let folder = self.journals.join(digest(name));
                trusted::make_folder("keep a journal", &folder)?;
                Ok(folder)
            }
        }
    }

    /// The job of a task, as it is started.
    async fn read(&self, id: JobId, task: &Task, keyring: &Keyring) -> Result<Job, Fault> {
        let job = Job::from_json(&task.text)?;
        if keyring.whose != Whose::Own {
            // Again: its user may have been an administrator when it was submitted.
            check_for_user(&job)?;
        }
        let sessions = TransferSessions::of(Arc::clone(&self.sessions), keyring.clone());
        exact(&self.store, sessions, (id, task.position), job).await
    }

    /// Starts a transfer by the library.
    fn start(
        &self,
        mut job: Job,
        has_manifest: bool,
        keyring: &Keyring,
    ) -> Result<RunningJob, Fault> {
        if has_manifest {
            ask_for_digests(&mut job);
        }
        if let Job::Tree(tree) = &mut job {
            tree.options.journal = Some(self.journals_of(&keyring.whose)?);
            tree.options.count_source = true;
        }
        let sessions = TransferSessions::of(Arc::clone(&self.sessions), keyring.clone());
        job.start(move |place| sessions.get(place))
    }
}

/// Follows a running transfer.
struct Follower<'a> {
    workers: &'a Workers,
    id: JobId,
    worker: &'a WorkerId,
    position: u32,
    /// The list of its files, if the job keeps one.
    inventory: Option<Inventory>,
    /// The path of a tree at the target.
    target: Option<Vec<u8>>,
    counts: Counts,
    /// What this attempt has moved, and what of it is counted for the metrics.
    moved: Moved,
    counted: Moved,
    /// The bytes at the last times at which they were shown.
    marks: VecDeque<(Instant, u64)>,
    retried: Option<Failure>,
    first_failure: Option<Failure>,
    /// Entries that failed, and are to be stored.
    failures: Vec<Failure>,
    /// Bytes that are in the curve of the job, of this attempt and earlier ones.
    arrived: u64,
}

impl Follower<'_> {
    /// Follows it to its end.
    async fn follow(
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
    fn arrive(&mut self) {
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
            } => {
                if let Some(inventory) = &mut self.inventory {
                    inventory.add(&path, bytes, &digest);
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
    async fn is_listed(&self, result: &JobResult) -> Result<bool, Fault> {
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
    fn target(&mut self, result: &JobResult) -> Option<Vec<u8>> {
        match result {
            JobResult::File(file) => Some(file.target.clone()),
            _ => self.target.take(),
        }
    }

    /// Takes the result. Returns what limited the rate.
    fn result(&mut self, result: &JobResult) -> Option<&'static str> {
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
    fn failure(&mut self, result: &JobResult) -> Option<Failure> {
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
