//! The threads that carry out the path calls of one session, so that a directory that answers
//! slowly holds up neither transfers nor, as long as a thread is left, other calls.
//!
//! They are started as they are needed, take on the ids of the session before they touch the
//! store, and share one queue of jobs. The pipeline puts in no more than the queue's bound and
//! never takes the lock, which only the threads hold while they wait for a job. Which call may run
//! and how many parts it may make is decided by the machine in the pipeline.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xdfs_proto::answerer::Work;
use xdfs_proto::path::Answer;
use xdfs_proto::{CallId, Code, Fault};
use xdfs_store::Store;
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::{Event, Notifier};

use crate::command::WAKE;
use crate::security::{Place, take_on};

/// Threads of a session: so many calls that take long leave none for others.
const THREADS_MAX: usize = 4;
/// Calls that are carried out or wait for a thread: enough to keep the threads busy.
const JOBS_MAX: usize = 32;
/// How long the end of a session waits for calls that are being carried out. A thread that a file
/// system doesn't let go ends by itself when it does.
const FAREWELL: Duration = Duration::from_secs(2);

/// What the threads tell.
#[derive(Debug)]
pub(crate) enum Done {
    /// A part of a listing before its end.
    Part { id: CallId, answer: Answer },
    /// The end.
    Finished {
        id: CallId,
        answer: Result<Answer, Fault>,
    },
    /// The listing made as many parts as it may, or was told to stop.
    Paused { id: CallId },
}

#[derive(Debug)]
struct Job {
    work: Work,
    /// Nobody wants further parts.
    stop: Arc<AtomicBool>,
}

/// What the threads share with each other and the pipeline.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    ids: Option<Ids>,
    jobs: Mutex<mpsc::Receiver<Job>>,
    notifier: Notifier,
    /// The pipeline was woken, and has not looked yet.
    woken: AtomicBool,
    /// The session is over.
    ended: AtomicBool,
    /// Held as long as anything of the session runs. Only the mutex makes it shareable.
    _place: Arc<Mutex<Place>>,
}

/// The pipeline's end of the queue.
#[derive(Debug)]
pub(crate) struct PathThreads {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    done: mpsc::Receiver<Done>,
    /// For further threads.
    teller: mpsc::Sender<Done>,
    handles: Vec<JoinHandle<()>>,
    /// Calls that are carried out or wait for a thread.
    running: BTreeMap<CallId, Arc<AtomicBool>>,
}

impl PathThreads {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        ids: Option<Ids>,
        place: Arc<Mutex<Place>>,
        notifier: Notifier,
    ) -> Self {
        let (jobs, receiver) = mpsc::channel();
        let (teller, done) = mpsc::channel();
        let shared = Arc::new(Shared {
            store,
            ids,
            jobs: Mutex::new(receiver),
            notifier,
            woken: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            _place: place,
        });
        Self {
            shared,
            jobs,
            done,
            teller,
            handles: Vec::new(),
            running: BTreeMap::new(),
        }
    }

    /// Whether another call may be put in.
    pub(crate) fn have_room(&self) -> bool {
        self.running.len() < JOBS_MAX
    }

    /// Has a call carried out.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn submit(&mut self, work: Work) -> Result<(), Fault> {
        // One that panicked is gone.
        self.handles.retain(|handle| !handle.is_finished());
        let count = self.handles.len();
        if count < THREADS_MAX && self.running.len() >= count {
            match self.start() {
                Ok(handle) => self.handles.push(handle),
                Err(error) if count == 0 => {
                    let fault = Fault::from_io(work.call.operation(), work.call.path(), &error);
                    return Err(fault);
                }
                Err(error) => tracing::warn!(%error, "a thread for calls could not be started"),
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        self.running.insert(work.id, Arc::clone(&stop));
        // The other end of the queue is in `shared`.
        let _ = self.jobs.send(Job { work, stop });
        Ok(())
    }

    fn start(&self) -> std::io::Result<JoinHandle<()>> {
        let (shared, done) = (Arc::clone(&self.shared), self.teller.clone());
        thread::Builder::new()
            .name("xdfs-paths".into())
            .spawn(move || run(&shared, &done))
    }

    /// Tells a listing that nobody wants further parts.
    pub(crate) fn stop(&self, id: CallId) {
        if let Some(stop) = self.running.get(&id) {
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// What was done since the last call.
    pub(crate) fn completion(&mut self) -> Option<Done> {
        let done = match self.done.try_recv() {
            Ok(done) => done,
            Err(_) => {
                // What comes from here on wakes again; what came just before is looked for once.
                self.shared.woken.swap(false, Ordering::SeqCst);
                self.done.try_recv().ok()?
            }
        };
        if let Done::Finished { id, .. } | Done::Paused { id } = &done {
            self.running.remove(id);
        }
        Some(done)
    }

    /// Begins no further call and ends the threads. Those that are still at work after a short time
    /// are left behind, with the place of the session, and end with what they do.
    pub(crate) fn finish(self) {
        let Self {
            shared,
            jobs,
            done,
            teller,
            handles,
            running,
        } = self;
        shared.ended.store(true, Ordering::SeqCst);
        drop((jobs, teller, running));
        if handles.is_empty() {
            return;
        }
        let deadline = Instant::now() + FAREWELL;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match done.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("calls outlive their session: the file system holds them");
                    return;
                }
            }
        }
        for handle in handles {
            if handle.join().is_err() {
                tracing::error!("a thread for calls panicked");
            }
        }
    }
}

fn wake(shared: &Shared) {
    if !shared.woken.swap(true, Ordering::SeqCst) {
        shared.notifier.notify(Event {
            token: WAKE,
            readable: false,
            writable: false,
        });
    }
}

/// Sends the end of a call also when the store panics.
struct Ending<'a> {
    shared: &'a Shared,
    done: &'a mpsc::Sender<Done>,
    id: CallId,
    told: bool,
}

impl Ending<'_> {
    fn tell(&mut self, done: Done) {
        self.told |= !matches!(done, Done::Part { .. });
        // If the session is over nobody listens.
        let _ = self.done.send(done);
        wake(self.shared);
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.told {
            let cause = "carrying it out failed by a defect of the program";
            self.tell(Done::Finished {
                id: self.id,
                answer: Err(Fault::new(Code::Internal, "answer a call", cause)),
            });
        }
    }
}

/// One thread.
fn run(shared: &Shared, done: &mpsc::Sender<Done>) {
    let ids = take_on(shared.ids.as_ref());
    loop {
        let job = {
            let jobs = shared.jobs.lock();
            jobs.unwrap_or_else(PoisonError::into_inner).recv()
        };
        let Ok(Job { work, stop }) = job else { return };
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let mut ending = Ending {
            shared,
            done,
            id: work.id,
            told: false,
        };
        let end = match &ids {
            Ok(()) => carry_out(shared, &work, &stop, &mut ending),
            Err(fault) => Done::Finished {
                id: work.id,
                answer: Err(fault.clone().path(work.call.path())),
            },
        };
        ending.tell(end);
    }
}

fn carry_out(shared: &Shared, work: &Work, stop: &AtomicBool, ending: &mut Ending<'_>) -> Done {
    let id = work.id;
    let mut left = work.parts_max;
    let mut paused = false;
    let result = shared.store.call(&work.call, &mut |answer| {
        if left > 0 && !paused {
            left -= 1;
            ending.tell(Done::Part { id, answer });
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
    });
    if paused {
        return Done::Paused { id };
    }
    Done::Finished { id, answer: result }
}

#[cfg(test)]
mod tests;
