//! Workers that answer a session's calls about paths and files. A slow directory delays neither
//! transfers nor, while a worker is free, other calls.
//!
//! Workers are started on demand, assume the session's ids before they access the store, and share
//! one bounded queue, whose lock is held only briefly. The pipeline's machine
//! ([`CallServer`](xdfs_proto::call_server::CallServer)) decides which calls may run and how many
//! parts they may produce.
//!
//! A file call that waits for a lock or for the other end of a pipe is parked, and retried until
//! its deadline. A parked call occupies no worker, only one of the session's slots.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xdfs_proto::call_server::Work;
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{CallId, Code, Fault};
use xdfs_store::rate::SharedRate;
use xdfs_store::{Store, SyncGroup, watched};
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Notifier;

use crate::cost::cost;
use crate::environment::{self, Environment, Task, Turn, Worker};
use crate::files::{CallStep, SessionFiles};
use crate::guard::guarded;
use crate::security::{PeerGuard, assume_ids};

/// Workers per session. As many slow calls block all others.
const THREADS_MAX: usize = 4;
/// Workers per session with a slow store, where calls wait for a network: as many as calls.
const THREADS_SLOW_MAX: usize = JOBS_MAX;
/// Maximum number of calls running or queued: enough to keep the workers busy.
const JOBS_MAX: usize = 32;
/// First and longest pause between two attempts of a parked call.
const RETRY_MIN: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_millis(30);

/// Progress of a call.
#[derive(Debug)]
pub(crate) enum CallProgress {
    /// A part of a listing, not the last.
    Part { id: CallId, answer: Answer },
    /// The last part of the answer, or the fault.
    Finished {
        id: CallId,
        answer: Result<Answer, Fault>,
        /// The call was charged to its user's rate limit.
        is_charged: bool,
    },
    /// The listing has used up its parts, or was told to stop.
    Paused { id: CallId },
    /// The call was parked, so there is room for another one.
    Parked,
}

#[derive(Debug)]
struct QueuedCall {
    work: Work,
    /// No further parts are wanted.
    stop: Arc<AtomicBool>,
    /// Set once the call has been parked.
    wait: Option<RetrySchedule>,
}

/// Deadline of a parked call, and time of its next attempt.
#[derive(Clone, Copy, Debug)]
struct RetrySchedule {
    end: Instant,
    next: Instant,
    pause: Duration,
}

impl RetrySchedule {
    fn begin(now: Instant, patience: Duration) -> Self {
        Self {
            end: now + patience,
            next: now + RETRY_MIN.min(patience),
            pause: RETRY_MIN,
        }
    }

    fn retry_later(self, now: Instant) -> Self {
        let pause = (self.pause * 2).min(RETRY_MAX);
        Self {
            next: (now + pause).min(self.end),
            pause,
            ..self
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    ready: VecDeque<QueuedCall>,
    parked: Vec<QueuedCall>,
    /// The session has ended.
    is_closed: bool,
}

impl Queue {
    /// The next call to run: a parked one that is due, or else the oldest.
    fn take(&mut self, now: Instant) -> Option<QueuedCall> {
        let is_due = |job: &QueuedCall| job.wait.is_none_or(|wait| wait.next <= now);
        match self.parked.iter().position(is_due) {
            Some(at) => Some(self.parked.swap_remove(at)),
            None => self.ready.pop_front(),
        }
    }

    /// Time of the next attempt of a parked call.
    fn next(&self) -> Option<Instant> {
        let waits = self.parked.iter().filter_map(|job| job.wait);
        waits.map(|wait| wait.next).min()
    }
}

/// State shared by the workers and the pipeline.
#[derive(Debug)]
struct Shared {
    environment: Arc<dyn Environment>,
    store: Arc<dyn Store>,
    files: SessionFiles,
    ids: Option<Ids>,
    /// All threads of the session.
    sync_group: Arc<SyncGroup>,
    /// The user's rate limit.
    rate: Option<Arc<SharedRate>>,
    jobs: Mutex<Queue>,
    /// Signalled after a change of the queue.
    added: Condvar,
    /// Number of parked calls.
    parked: AtomicUsize,
    notifier: Notifier,
    /// The pipeline was woken and has not polled yet.
    woken: AtomicBool,
    /// The session has ended.
    ended: AtomicBool,
    /// Held while any thread of the session runs. The mutex makes it shareable.
    _guard: Arc<Mutex<PeerGuard>>,
}

/// The pipeline's side of the queue.
#[derive(Debug)]
pub(crate) struct CallWorkers {
    shared: Arc<Shared>,
    done: mpsc::Receiver<CallProgress>,
    /// Cloned for each worker.
    done_sender: mpsc::Sender<CallProgress>,
    workers: Vec<Worker>,
    /// Calls that run or wait for a worker, with their stop flags.
    running: BTreeMap<CallId, Arc<AtomicBool>>,
}

impl CallWorkers {
    #[expect(
        clippy::too_many_arguments,
        reason = "all that the threads of a session share"
    )]
    pub(crate) fn new(
        environment: Arc<dyn Environment>,
        store: Arc<dyn Store>,
        files: SessionFiles,
        ids: Option<Ids>,
        sync_group: Arc<SyncGroup>,
        rate: Option<Arc<SharedRate>>,
        guard: Arc<Mutex<PeerGuard>>,
        notifier: Notifier,
    ) -> Self {
        let (done_sender, done) = mpsc::channel();
        let shared = Arc::new(Shared {
            environment,
            store,
            files,
            ids,
            sync_group,
            rate,
            jobs: Mutex::default(),
            added: Condvar::new(),
            parked: AtomicUsize::new(0),
            notifier,
            woken: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            _guard: guard,
        });
        Self {
            shared,
            done,
            done_sender,
            workers: Vec::new(),
            running: BTreeMap::new(),
        }
    }

    /// Whether another call may be submitted.
    pub(crate) fn have_room(&self) -> bool {
        let parked = self.shared.parked.load(Ordering::SeqCst);
        self.running.len().saturating_sub(parked) < JOBS_MAX
    }

    /// Queues a call.
    ///
    /// # Errors
    /// No worker can be started.
    pub(crate) fn submit(&mut self, work: Work) -> Result<(), Fault> {
        let count = self.workers.len();
        let threads_max = match self.shared.store.is_slow() {
            true => THREADS_SLOW_MAX,
            false => THREADS_MAX,
        };
        if count < threads_max && self.running.len() >= count {
            match self.start() {
                Ok(worker) => self.workers.push(worker),
                Err(error) if count == 0 => {
                    let fault = Fault::from_io(work.call.operation(), work.call.path(), &error);
                    return Err(fault);
                }
                Err(error) => tracing::warn!(%error, "a thread for calls could not be started"),
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        self.running.insert(work.id, Arc::clone(&stop));
        let wait = None;
        self.shared
            .queue()
            .ready
            .push_back(QueuedCall { work, stop, wait });
        self.shared.added.notify_one();
        Ok(())
    }

    fn start(&self) -> std::io::Result<Worker> {
        let (shared, done) = (Arc::clone(&self.shared), self.done_sender.clone());
        let make = move || {
            let ids = assume_ids(shared.ids.as_ref());
            shared.sync_group.join();
            CallTask { shared, done, ids }
        };
        let Shared {
            environment,
            notifier,
            ..
        } = &*self.shared;
        Worker::start(&**environment, "xdfs-calls", notifier, make)
    }

    /// Tells a listing that no further parts are wanted.
    pub(crate) fn stop(&self, id: CallId) {
        if let Some(stop) = self.running.get(&id) {
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// The next event, if there is one.
    pub(crate) fn completion(&mut self) -> Option<CallProgress> {
        let done = match self.done.try_recv() {
            Ok(done) => done,
            Err(_) => {
                // Later events wake the pipeline again; this checks once for events sent just
                // before.
                self.shared.woken.swap(false, Ordering::SeqCst);
                self.done.try_recv().ok()?
            }
        };
        if let CallProgress::Finished { id, .. } | CallProgress::Paused { id } = &done {
            self.running.remove(id);
        }
        Some(done)
    }

    /// Starts no further call and lets the workers end; calls that read files end soon. Returns the
    /// workers: one blocked by a file system keeps the session's permit until it ends.
    pub(crate) fn finish(&mut self) -> Vec<Worker> {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.queue().is_closed = true;
        self.shared.added.notify_all();
        self.shared.files.end();
        std::mem::take(&mut self.workers)
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn park(&self, job: QueuedCall) {
        self.parked.fetch_add(1, Ordering::SeqCst);
        self.queue().parked.push(job);
        // Waiting workers must recompute their timeout.
        self.added.notify_one();
    }
}

fn wake(shared: &Shared) {
    if !shared.woken.swap(true, Ordering::SeqCst) {
        environment::wake(&shared.notifier);
    }
}

/// Sends an event to the pipeline. After the end of the session nobody receives it.
fn report(shared: &Shared, done: &mpsc::Sender<CallProgress>, what: CallProgress) {
    let _ = done.send(what);
    wake(shared);
}

/// A worker.
struct CallTask {
    shared: Arc<Shared>,
    done: mpsc::Sender<CallProgress>,
    /// Whether the worker may access the store.
    ids: Result<(), Fault>,
}

impl Task for CallTask {
    fn turn(&mut self) -> Turn {
        let now = self.shared.environment.now();
        let mut queue = self.shared.queue();
        if queue.is_closed {
            return Turn::Ended;
        }
        let Some(job) = queue.take(now) else {
            let next = queue.next();
            return Turn::Wait(next.map(|next| next.saturating_duration_since(now)));
        };
        drop(queue);
        if job.wait.is_some() {
            self.shared.parked.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(end) = self.step(job, now) {
            report(&self.shared, &self.done, end);
        }
        Turn::Again
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let queue = self.shared.queue();
        let has_come = |queue: &Queue| queue.is_closed || !queue.ready.is_empty();
        if has_come(&queue) || timeout == Some(Duration::ZERO) {
            return has_come(&queue);
        }
        // Another worker may have parked a call in the meantime.
        let now = self.shared.environment.now();
        let next = queue.next().map(|at| at.saturating_duration_since(now));
        let added = &self.shared.added;
        let queue = match timeout.into_iter().chain(next).min() {
            Some(time) => {
                let waited = added.wait_timeout(queue, time);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => added.wait(queue).unwrap_or_else(PoisonError::into_inner),
        };
        has_come(&queue)
    }
}

impl CallTask {
    /// Runs a call, or one attempt of it; `None` if it is parked again.
    fn step(&self, mut job: QueuedCall, now: Instant) -> Option<CallProgress> {
        let shared = &self.shared;
        let id = job.work.id;
        match (&self.ids, &job.work.call) {
            (Err(fault), call) => {
                let fault = fault.clone().path(call.path());
                Some(finished(shared, call, id, 0, Err(fault)))
            }
            (Ok(()), Call::File(call)) => {
                let may_wait = match job.wait {
                    Some(wait) => now < wait.end,
                    None => !SessionFiles::patience(call).is_zero(),
                };
                let step = || shared.files.step(&*shared.store, call, may_wait);
                match guarded(job.work.call.operation(), step) {
                    Err(fault) => Some(finished(shared, &job.work.call, id, 0, Err(fault))),
                    Ok(CallStep::Done(answer)) => {
                        Some(finished(shared, &job.work.call, id, 0, answer))
                    }
                    Ok(CallStep::Later) => {
                        let patience = SessionFiles::patience(call);
                        let begun = job.wait.is_none();
                        let wait = job.wait.map(|wait| wait.retry_later(now));
                        job.wait =
                            Some(wait.unwrap_or_else(|| RetrySchedule::begin(now, patience)));
                        shared.park(job);
                        begun.then_some(CallProgress::Parked)
                    }
                }
            }
            (Ok(()), _) => Some(call_store(shared, &job.work, &job.stop, &self.done)),
        }
    }
}

/// Finishes a call that has read `passed` bytes. Its cost is charged here, since the session may
/// end before the call does.
fn finished(
    shared: &Shared,
    call: &Call,
    id: CallId,
    passed: u64,
    answer: Result<Answer, Fault>,
) -> CallProgress {
    let mut is_charged = false;
    if let Some(rate) = &shared.rate {
        let bytes = cost(call, passed, &answer);
        is_charged = bytes > 0;
        if is_charged {
            rate.charge(bytes, shared.environment.now());
        }
    }
    CallProgress::Finished {
        id,
        answer,
        is_charged,
    }
}

fn call_store(
    shared: &Arc<Shared>,
    work: &Work,
    stop: &AtomicBool,
    done: &mpsc::Sender<CallProgress>,
) -> CallProgress {
    let id = work.id;
    let mut left = work.parts_max;
    let mut paused = false;
    let mut part = |answer| {
        if left > 0 && !paused {
            left -= 1;
            report(shared, done, CallProgress::Part { id, answer });
        } else {
            // The listing ignored the request to stop, or produced more parts than it may.
            paused = true;
        }
        let ended = stop.load(Ordering::Relaxed) || shared.ended.load(Ordering::Relaxed);
        paused |= left == 0 || ended;
        if paused {
            return Err(Fault::new(Code::Cancelled, work.call.operation(), "enough"));
        }
        Ok(())
    };
    let operation = work.call.operation();
    let watching = Arc::clone(shared);
    let check = move || {
        if watching.ended.load(Ordering::Relaxed) {
            let cause = "the session has ended";
            return Err(Fault::new(Code::Cancelled, operation, cause));
        }
        Ok(())
    };
    let call = || shared.store.call(&work.call, &mut part);
    let (answer, passed) = watched(check, || guarded(operation, call));
    match answer {
        Ok(_) if paused => CallProgress::Paused { id },
        // After a panic a listing is not resumed, even if it was to pause.
        answer => finished(shared, &work.call, id, passed, answer.flatten()),
    }
}

#[cfg(test)]
mod tests;
