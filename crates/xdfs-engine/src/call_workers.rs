//! The workers that answer the calls of one session about paths and files. A slow directory delays
//! neither transfers nor, while a worker is free, other calls.
//!
//! The workers are started on demand, take on the ids of the session before they touch the store,
//! and share one bounded queue, whose lock is held only briefly. The machine in the pipeline
//! ([`CallServer`](xdfs_proto::call_server::CallServer)) decides which call may run and how many
//! parts it may make.
//!
//! A file call that waits for a lock or for the other end of a pipe is parked and tried again until
//! its deadline. A parked call holds no worker, and counts only against the slots of the session.

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

/// Workers of a session. As many slow calls block all others.
const THREADS_MAX: usize = 4;
/// Calls that run or wait for a worker: enough to keep the workers busy.
const JOBS_MAX: usize = 32;
/// The pause between two tries of a parked call: the first, and the longest.
const RETRY_MIN: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_millis(30);

/// An event of a call.
#[derive(Debug)]
pub(crate) enum CallProgress {
    /// A part of a listing before its end.
    Part { id: CallId, answer: Answer },
    /// The end.
    Finished {
        id: CallId,
        answer: Result<Answer, Fault>,
        /// It was charged to a bound of its user.
        is_charged: bool,
    },
    /// The listing made as many parts as it may, or was told to stop.
    Paused { id: CallId },
    /// The call was parked: there is room for another one.
    Parked,
}

#[derive(Debug)]
struct QueuedCall {
    work: Work,
    /// Nobody wants further parts.
    stop: Arc<AtomicBool>,
    /// Set when the call was parked.
    wait: Option<Wait>,
}

/// How long a parked call may wait, and when it is tried again.
#[derive(Clone, Copy, Debug)]
struct Wait {
    end: Instant,
    next: Instant,
    pause: Duration,
}

impl Wait {
    fn begin(now: Instant, patience: Duration) -> Self {
        Self {
            end: now + patience,
            next: now + RETRY_MIN.min(patience),
            pause: RETRY_MIN,
        }
    }

    fn go_on(self, now: Instant) -> Self {
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
    /// The session is over.
    is_closed: bool,
}

impl Queue {
    /// The next call to run: a parked one that is due, else the oldest.
    fn take(&mut self, now: Instant) -> Option<QueuedCall> {
        let is_due = |job: &QueuedCall| job.wait.is_none_or(|wait| wait.next <= now);
        match self.parked.iter().position(is_due) {
            Some(at) => Some(self.parked.swap_remove(at)),
            None => self.ready.pop_front(),
        }
    }

    /// When the first of the parked jobs is tried again.
    fn next(&self) -> Option<Instant> {
        let waits = self.parked.iter().filter_map(|job| job.wait);
        waits.map(|wait| wait.next).min()
    }
}

/// What the threads share with each other and the pipeline.
#[derive(Debug)]
struct Shared {
    environment: Arc<dyn Environment>,
    store: Arc<dyn Store>,
    files: SessionFiles,
    ids: Option<Ids>,
    /// The threads of the session, these and others.
    sync_group: Arc<SyncGroup>,
    /// The bound of the user on bytes a second.
    rate: Option<Arc<SharedRate>>,
    jobs: Mutex<Queue>,
    /// Something was put into the queue.
    added: Condvar,
    /// Jobs that are parked.
    parked: AtomicUsize,
    notifier: Notifier,
    /// The pipeline was woken, and has not looked yet.
    woken: AtomicBool,
    /// The session is over.
    ended: AtomicBool,
    /// Held while anything of the session runs. The mutex makes it shareable.
    _guard: Arc<Mutex<PeerGuard>>,
}

/// The pipeline's end of the queue.
#[derive(Debug)]
pub(crate) struct CallWorkers {
    shared: Arc<Shared>,
    done: mpsc::Receiver<CallProgress>,
    /// For further threads.
    teller: mpsc::Sender<CallProgress>,
    workers: Vec<Worker>,
    /// Calls that run or wait for a worker.
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
        let (teller, done) = mpsc::channel();
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
            teller,
            workers: Vec::new(),
            running: BTreeMap::new(),
        }
    }

    /// Whether another call may be put in.
    pub(crate) fn have_room(&self) -> bool {
        let parked = self.shared.parked.load(Ordering::SeqCst);
        self.running.len().saturating_sub(parked) < JOBS_MAX
    }

    /// Queues a call.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn submit(&mut self, work: Work) -> Result<(), Fault> {
        let count = self.workers.len();
        if count < THREADS_MAX && self.running.len() >= count {
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
        let (shared, done) = (Arc::clone(&self.shared), self.teller.clone());
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
        Worker::start(&**environment, "xdfs-paths", notifier, make)
    }

    /// Tells a listing that nobody wants further parts.
    pub(crate) fn stop(&self, id: CallId) {
        if let Some(stop) = self.running.get(&id) {
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// What was done since the last call.
    pub(crate) fn completion(&mut self) -> Option<CallProgress> {
        let done = match self.done.try_recv() {
            Ok(done) => done,
            Err(_) => {
                // What comes from here on wakes again; what came just before is looked for once.
                self.shared.woken.swap(false, Ordering::SeqCst);
                self.done.try_recv().ok()?
            }
        };
        if let CallProgress::Finished { id, .. } | CallProgress::Paused { id } = &done {
            self.running.remove(id);
        }
        Some(done)
    }

    /// Begins no further call and lets the threads end; calls that read files end soon. Returns
    /// the threads: one that a file system holds keeps the permit of the session until it ends.
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
        // Whoever waits for a job has to wake in time for this one.
        self.added.notify_one();
    }
}

fn wake(shared: &Shared) {
    if !shared.woken.swap(true, Ordering::SeqCst) {
        environment::wake(&shared.notifier);
    }
}

/// Tells the pipeline. If the session is over nobody listens.
fn tell(shared: &Shared, done: &mpsc::Sender<CallProgress>, what: CallProgress) {
    let _ = done.send(what);
    wake(shared);
}

/// One thread.
struct CallTask {
    shared: Arc<Shared>,
    done: mpsc::Sender<CallProgress>,
    /// Whether it may touch the store.
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
            tell(&self.shared, &self.done, end);
        }
        Turn::Again
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let queue = self.shared.queue();
        let has_come = |queue: &Queue| queue.is_closed || !queue.ready.is_empty();
        if has_come(&queue) || timeout == Some(Duration::ZERO) {
            return has_come(&queue);
        }
        // Another thread may have parked something meanwhile.
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
    /// Runs a call, or a step of it; `None` if it is parked again.
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
                        let wait = job.wait.map(|wait| wait.go_on(now));
                        job.wait = Some(wait.unwrap_or_else(|| Wait::begin(now, patience)));
                        shared.park(job);
                        begun.then_some(CallProgress::Parked)
                    }
                }
            }
            (Ok(()), _) => Some(call_store(shared, &job.work, &job.stop, &self.done)),
        }
    }
}

/// Ends a call that read `passed` bytes. Its cost is charged here, since the session may be
/// over before the call is.
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
            tell(shared, done, CallProgress::Part { id, answer });
        } else {
            // It went on although it was told not to, or gives parts where there are none.
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
    let look = move || {
        if watching.ended.load(Ordering::Relaxed) {
            let cause = "the session has ended";
            return Err(Fault::new(Code::Cancelled, operation, cause));
        }
        Ok(())
    };
    let call = || shared.store.call(&work.call, &mut part);
    let (answer, passed) = watched(look, || guarded(operation, call));
    match answer {
        Ok(_) if paused => CallProgress::Paused { id },
        // After a panic a listing isn't gone on with, also if it had to pause.
        answer => finished(shared, &work.call, id, passed, answer.flatten()),
    }
}

#[cfg(test)]
mod tests;
