//! Workers: each takes a job that waits, does its transfers one after the other by the library, and
//! stores how far they are.
//!
//! The copies themselves run in threads of the library. A worker only waits for their events.

mod follower;
mod leasing;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use xdfs::operations::path::last_part;
use xdfs::security::trusted;
use xdfs::{Code, Fault, FilePace, Job, JobResult, Retry, RunningJob};

use crate::access::{People, digest};
use crate::concurrency::MEASURED_OVER;
use crate::curve::Curve;
use crate::exact::exact;
use crate::failure::Failure;
use crate::id::JobId;
use crate::inventory::{Completion, Inventory, ask_for_digests, ask_for_some_digests};
use crate::lease::Lease;
use crate::listed::digest_text;
use crate::live::{Live, is_set};
use crate::model::Counts;
use crate::scheduler::{Carried, Limits, Link};
use crate::secret::{Keyring, SealingKey};
use crate::sessions::{Sessions, TransferSessions};
use crate::spec::check_for_user;
use crate::state::{Actor, Change, State, WorkerId};
use crate::store::{Claimed, End, Retries, Store, Task};
use crate::tally::Moved;
use crate::time::Time;
use crate::whose::Whose;

use self::follower::Follower;

/// Time until the database is tried again after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The pause before the first retry of a job; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Longest wait for the time of a retry: clocks can be set.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The means by which jobs are done.
#[derive(Debug)]
pub(crate) struct Means {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) people: Arc<People>,
    pub(crate) sealing: Arc<SealingKey>,
    /// The directory of the journals of trees.
    pub(crate) journals: PathBuf,
}

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
    /// A job waits for a time to come.
    pub(crate) wait: Notify,
    pub(crate) lease: Lease,
    limits: Limits,
    /// What was moved on links, and isn't stored yet.
    moved: Mutex<BTreeMap<Link, Carried>>,
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
    /// The job has ended with it, and that is stored.
    Job,
}

/// The end of a job for its worker.
enum JobEnd {
    /// It is stored.
    Stored,
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
    link: Link,
    /// It tries a server that was down.
    is_probe: bool,
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
        means: Means,
        lease: Lease,
        limits: Limits,
    ) -> Self {
        Self {
            store,
            live,
            sessions: means.sessions,
            people: means.people,
            sealing: means.sealing,
            journals: means.journals,
            wake: Notify::new(),
            wait: Notify::new(),
            lease,
            limits,
            moved: Mutex::default(),
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

    /// Why a job waits, as this process sees it.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn waits_for(&self, id: JobId) -> Result<Option<String>, Fault> {
        match self.lease.process() {
            Some(process) => self.store.waits_for(&process, self.limits, id).await,
            None => Ok(Some("this process doesn't reach the database".to_owned())),
        }
    }

    /// Bytes were moved on a link.
    fn moved(&self, link: &Link, bytes: u64) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        moved.entry(link.clone()).or_default().bytes += bytes;
    }

    /// A transfer of so many bytes has ended on a link, with this limit of its rate.
    fn limited(&self, link: &Link, bytes: u64, limited_by: &'static str) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let largest = &mut moved.entry(link.clone()).or_default().largest;
        if largest.is_none_or(|(before, _)| bytes >= before) {
            *largest = Some((bytes, limited_by));
        }
    }

    /// Measures the rates of links, and decides how many jobs may run on them. For ever.
    async fn measure(self: Arc<Self>) {
        loop {
            sleep(MEASURED_OVER / 2).await;
            let moved = {
                let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
                mem::take(&mut *moved)
            };
            let Some(process) = self.lease.process().filter(|_| !moved.is_empty()) else {
                continue;
            };
            match self.store.measure(&process, self.limits, &moved).await {
                Ok(true) => self.wake.notify_one(),
                Ok(false) => {}
                Err(fault) => tracing::warn!(%fault, "can't store the rates of links"),
            }
        }
    }

    /// Takes the jobs that the scheduler gives to this process.
    async fn claim(
        self: &Arc<Self>,
        jobs: &mut JoinSet<()>,
        number: &mut u64,
        closing: &watch::Receiver<bool>,
    ) -> Result<(), Fault> {
        let Some(process) = self.lease.process().filter(|_| !*closing.borrow()) else {
            return Ok(());
        };
        let scheduled = self.store.claim(&process, self.limits, number).await;
        if scheduled.is_err() {
            // It may have been done, and only the answer was lost.
            self.unsure.store(true, Ordering::Relaxed);
        }
        let (claimed, makes_place) = scheduled?;
        for claimed in claimed {
            let (stop, stopped) = watch::channel(false);
            self.running().insert(claimed.id, stop);
            jobs.spawn(Arc::clone(self).job(claimed, stopped, closing.clone()));
        }
        if let Some(id) = makes_place {
            self.stop(id);
            self.live.changed(id);
        }
        Ok(())
    }

    /// Runs jobs, until `closing` says that it is over. Then all are stopped, and wait again.
    pub(crate) async fn run(self: Arc<Self>, mut closing: watch::Receiver<bool>) {
        let mut jobs = JoinSet::new();
        let mut number = 0_u64;
        let measuring = tokio::spawn(Arc::clone(&self).measure());
        let keeping = self
            .store
            .is_shared()
            .then(|| tokio::spawn(Arc::clone(&self).keep_lease()));
        'work: loop {
            let looked_at = Time::now();
            if let Err(fault) = self.give_back().await {
                tracing::error!(%fault, "can't give back a job");
            } else if let Err(fault) = self.claim(&mut jobs, &mut number, &closing).await {
                tracing::error!(%fault, "can't take a job");
                sleep(RETRY_AFTER).await;
                self.wake.notify_one();
            }
            loop {
                // While one job follows another there is no need to know when the next is due.
                if self.wake.notified().now_or_never().is_some() {
                    break;
                }
                let pause = self.until_next_time(looked_at).await;
                tokio::select! {
                    () = self.wake.notified() => break,
                    // There is nothing to claim yet.
                    () = self.wait.notified() => {}
                    () = sleep(pause) => break,
                    Some(ended) = jobs.join_next() => {
                        if let Err(error) = ended {
                            tracing::error!(%error, "a worker has failed");
                        }
                        break;
                    }
                    () = is_set(&mut closing) => break 'work,
                }
            }
        }
        self.stop_all();
        while jobs.join_next().await.is_some() {}
        measuring.abort();
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

    /// Time until a job may be due that was not at the last look.
    async fn until_next_time(&self, looked_at: Time) -> Duration {
        let Ok(Some(at)) = self.store.next_time(looked_at).await else {
            return LOOK_EVERY;
        };
        let left = at.microseconds().saturating_sub(Time::now().microseconds());
        Duration::from_micros(u64::try_from(left).unwrap_or(0)).min(LOOK_EVERY)
    }

    /// Does a job, and writes how it ended.
    async fn job(
        self: Arc<Self>,
        claimed: Claimed,
        stopped: watch::Receiver<bool>,
        closing: watch::Receiver<bool>,
    ) {
        let (id, worker) = (claimed.id, claimed.worker.clone());
        // What came before it could be stopped here.
        let is_late = matches!(self.store.state(id).await, Ok(State::Stopping(..)));
        if is_late || *closing.borrow() {
            self.stop(id);
        }
        let begun = self.begin_curve(id, claimed.was_begun).await;
        if let Err(fault) = begun {
            tracing::warn!(job = %id, %fault, "can't read the curve of a job");
        }
        self.live.changed(id);
        let ended = match self.transfers(claimed, stopped).await {
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
            JobEnd::Stored => return Ok(()),
            JobEnd::Failed(failure) => Change::ended(Some(failure)),
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
            JobEnd::Succeeded => Change::ended(None),
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
    async fn keyring(&self, claimed: &Claimed) -> Result<Result<Keyring, Fault>, Fault> {
        let owner = &claimed.owner;
        let (named, rows) = match claimed.has_secrets {
            true => (
                self.store.named_secrets(claimed.id).await?,
                self.store.secrets(owner).await?,
            ),
            false => (Vec::new(), Vec::new()),
        };
        let whose = match self.people.is_administrator(owner) {
            true => Whose::Own,
            false => Whose::User(owner.clone()),
        };
        Ok(Keyring::new(whose, Arc::clone(&self.sealing), rows, &named))
    }

    /// Continues the curve of a job, or begins one.
    async fn begin_curve(&self, id: JobId, was_begun: bool) -> Result<(), Fault> {
        let curve = match was_begun {
            true => self.store.curve(id).await?,
            false => None,
        };
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
        claimed: Claimed,
        stopped: watch::Receiver<bool>,
    ) -> Result<JobEnd, Fault> {
        let (store, id) = (&self.store, claimed.id);
        let keyring = match stored!(id, self.keyring(&claimed))? {
            Ok(keyring) => keyring,
            Err(fault) => return Ok(JobEnd::Failed(Box::new((&fault).into()))),
        };
        let mut run = Run {
            id,
            worker: claimed.worker,
            link: claimed.link,
            is_probe: claimed.is_probe,
            keyring,
            has_manifest: claimed.has_manifest,
            retries: claimed.retries,
            has_progress: false,
            stopped,
        };
        let mut postponed = None;
        let mut last = None;
        let mut first = claimed.first;
        loop {
            let tasks = match first.take() {
                Some(first) => vec![first],
                None => stored!(id, store.tasks(id, last))?,
            };
            if tasks.is_empty() {
                break;
            }
            for task in tasks {
                if *run.stopped.borrow() {
                    return Ok(JobEnd::Stopped);
                }
                last = Some(task.position);
                // The others before it have ended.
                let may_end_job = postponed.is_none() && !run.has_manifest;
                match self.transfer(&task, &mut run, may_end_job).await? {
                    TransferEnd::Succeeded => run.has_progress = true,
                    TransferEnd::Failed => {}
                    TransferEnd::Postponed(failure) => {
                        postponed.get_or_insert(failure);
                    }
                    TransferEnd::Stopped => return Ok(JobEnd::Stopped),
                    TransferEnd::Job => return Ok(JobEnd::Stored),
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

    /// Does a transfer. If it is the last one, the job may end with it.
    async fn transfer(
        &self,
        task: &Task,
        run: &mut Run,
        may_end_job: bool,
    ) -> Result<TransferEnd, Fault> {
        let (store, id, worker, position) = (&self.store, run.id, &run.worker, task.position);
        if !task.has_begun {
            stored!(id, store.begin_transfer(id, worker, position))?;
        }
        let job = self.read(id, task, &run.keyring).await;
        // A single file is as its transfer.
        let is_file = matches!(job, Ok(Job::File(_)));
        let started = job.and_then(|job| self.start(job, run.has_manifest, &run.keyring));
        let mut end = End::default();
        match started {
            Err(fault) => end.failure = Some((&fault).into()),
            Ok(running) => {
                let is_listed = run.has_manifest;
                let inventory = match is_listed || !is_file {
                    true => Some(stored!(id, Inventory::new(store, id, position, is_listed))?),
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
                    link: &task.link,
                    is_probe: run.is_probe && task.link == run.link,
                    is_large: false,
                    bytes_moved: None,
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
                    inventory.add(name, file.bytes, &file.digest, Some(file.into()));
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
                        if let JobResult::File(file) = &result {
                            end.digest = digest_text(&file.digest);
                            end.rate = Some(FilePace::from(file).bytes_per_second);
                        }
                        end.failure = follower.failure(&result);
                    }
                }
                follower.arrive();
                end.counts = follower.counts;
            }
        }
        run.has_progress |= end.counts.bytes > task.bytes;
        if let Some(limited_by) = end.limited_by {
            self.limited(&task.link, end.counts.bytes, limited_by);
        }
        if let Some(failure) = end
            .failure
            .as_ref()
            .filter(|failure| failure.is_of_server())
        {
            let cause = failure.sentence();
            stored!(id, store.note_outage(&task.link, &cause))?;
        } else if run.is_probe && task.link == run.link {
            stored!(id, store.end_outage(&task.link))?;
            run.is_probe = false;
        }
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
                let is_job_over = match may_end_job {
                    true => stored!(id, self.end_both(id, worker, position, &end))?,
                    false => {
                        stored!(id, store.end_transfer(id, worker, position, &end))?;
                        false
                    }
                };
                match end.failure {
                    _ if is_job_over => TransferEnd::Job,
                    None => TransferEnd::Succeeded,
                    Some(_) => TransferEnd::Failed,
                }
            }
        };
        self.live.update(id, None);
        Ok(ended)
    }

    /// Stores the end of a transfer, and of its job if it is the last one. Whether it is.
    async fn end_both(
        &self,
        id: JobId,
        worker: &WorkerId,
        position: u32,
        end: &End,
    ) -> Result<bool, Fault> {
        let ended = self.store.end_transfer_and_job(id, worker, position, end);
        match ended.await {
            // It was stored, and the answer was lost.
            Err(fault) if fault.code == Code::LockLost => match self.store.state(id).await {
                Ok(state) if state.name().is_end() => Ok(true),
                _ => Err(fault),
            },
            ended => ended,
        }
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
        match has_manifest {
            true => ask_for_digests(&mut job),
            false => ask_for_some_digests(&mut job),
        }
        if let Job::Tree(tree) = &mut job {
            tree.options.journal = Some(self.journals_of(&keyring.whose)?);
            tree.options.count_source = true;
        }
        let sessions = TransferSessions::of(Arc::clone(&self.sessions), keyring.clone());
        job.start(move |place| sessions.get(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_be_away_for_a_day() {
        // What a submission has without more words.
        let retries = crate::Submission::new("", Vec::new()).retries_max;
        let pauses = (0..retries).map(pause);
        let day = Duration::from_secs(24 * 60 * 60);
        assert!(pauses.clone().sum::<Duration>() >= day);
        let pauses: Vec<_> = pauses.map(|pause| pause.as_secs()).collect();
        assert_eq!(pauses[..4], [5, 10, 20, 40]);
        assert!(pauses.iter().all(|seconds| *seconds <= 600));
    }
}
