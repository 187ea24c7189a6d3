//! The events of a job as values, its result, and the bounded queue in which events wait for the
//! owner of its handle.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use xdfs_proto::{Code, DigestValue, Fault};

use crate::events::{
    Deletion, FilePace, Progress, SyncStep, TransferResult, TreeEvent, TreeResult,
};
use crate::retry::ReconnectEvent;
use crate::tree::SyncResult;

/// Most events that wait to be read.
const EVENTS_MAX: usize = 1024;

/// An event of a job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum JobEvent {
    /// A synchronisation is about to remove these names ([`TreeEvent::Deletion`]).
    Deletion(Deletion),
    /// An entry that could not be moved, or not with all requested metadata.
    Failed {
        /// The entry, relative to the tree.
        path: Vec<u8>,
        /// Why.
        fault: Fault,
    },
    /// A file of a tree that was moved.
    File {
        /// The file, relative to the tree.
        path: Vec<u8>,
        /// Bytes of its content.
        bytes: u64,
        /// The digest of its content ([`TreeEvent::File`]).
        digest: DigestValue,
        /// Its own pace ([`TreeEvent::File`]).
        pace: Option<FilePace>,
    },
    /// Progress of a file, at most ten times a second.
    Progress(Progress),
    /// The session is open again, after [`JobEvent::Retry`].
    Reconnected,
    /// An attempt failed, or the session was lost; another attempt follows.
    Retry {
        /// Why.
        fault: Fault,
        /// The number of the retry, 1 for the first one after progress.
        retry: u32,
        /// Time until the retry.
        pause: Duration,
    },
    /// A step of a synchronisation, or of a dry run ([`TreeEvent::Step`]).
    Step {
        /// The kind of step.
        step: SyncStep,
        /// The entry, relative to the tree.
        path: Vec<u8>,
        /// Its old path, if it is renamed.
        from: Option<Vec<u8>>,
    },
    /// The path of a copied tree at the target, before anything happens there.
    Target(Vec<u8>),
    /// Progress of a tree or a synchronisation, at most ten times a second.
    TreeProgress(TreeResult),
    /// A problem that doesn't stop the job.
    Warning(Fault),
}

/// The result of a job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum JobResult {
    /// A file was copied.
    File(TransferResult),
    /// A tree was copied, apart from the entries that failed.
    Tree(TreeResult),
    /// A directory was synchronised, apart from the entries that failed.
    Sync(SyncResult),
    /// Everything was removed.
    Removed {
        /// Number of removed names; `None` if an attempt whose answer was lost has removed them.
        names: Option<u64>,
    },
}

impl From<TreeEvent<'_>> for JobEvent {
    fn from(event: TreeEvent<'_>) -> Self {
        match event {
            TreeEvent::Target(path) => Self::Target(path.to_vec()),
            TreeEvent::Progress(result) => Self::TreeProgress(result.clone()),
            TreeEvent::Failed { path, fault } => Self::Failed {
                path: path.to_vec(),
                fault: fault.clone(),
            },
            TreeEvent::File {
                path,
                bytes,
                digest,
                pace,
            } => Self::File {
                path: path.to_vec(),
                bytes,
                digest: *digest,
                pace,
            },
            TreeEvent::Warning(fault) => Self::Warning(fault.clone()),
            TreeEvent::Deletion(deletion) => Self::Deletion(deletion.clone()),
            TreeEvent::Step { step, path, from } => Self::Step {
                step,
                path: path.to_vec(),
                from: from.map(<[u8]>::to_vec),
            },
        }
    }
}

impl JobEvent {
    /// The event of a session; `None` while a pause continues.
    pub(super) fn of_session(event: &ReconnectEvent<'_>) -> Option<Self> {
        match event {
            ReconnectEvent::Lost {
                fault,
                retry,
                pause,
            } => Some(Self::Retry {
                fault: (*fault).clone(),
                retry: *retry,
                pause: *pause,
            }),
            ReconnectEvent::Waiting => None,
            ReconnectEvent::Restored => Some(Self::Reconnected),
        }
    }

    /// Whether this event says all that the earlier one says.
    fn replaces(&self, earlier: &Self) -> bool {
        matches!(
            (self, earlier),
            (Self::Progress(_), Self::Progress(_)) | (Self::TreeProgress(_), Self::TreeProgress(_))
        )
    }
}

/// Cancels work that doesn't look at [`Events::is_cancelled`] by itself.
type Canceller = Box<dyn Fn() + Send>;

/// What the thread of a job and its handle share. The job pauses while [`EVENTS_MAX`] events wait
/// for a reader; only the latest of several reports of progress waits.
#[derive(Default)]
pub(super) struct Events {
    state: Mutex<State>,
    /// An event was taken, or none will be read any more.
    taken: Condvar,
    /// An event was added, or the job has ended.
    added: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<JobEvent>,
    result: Option<Result<JobResult, Fault>>,
    is_cancelled: bool,
    /// The handle is gone.
    is_unread: bool,
    reader: Option<Waker>,
    canceller: Option<Canceller>,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the reader.
    fn change(&self, mut state: MutexGuard<'_, State>, change: impl FnOnce(&mut State)) {
        change(&mut state);
        let reader = state.reader.take();
        drop(state);
        self.added.notify_all();
        // Without the lock, since a runtime may poll the task right here.
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Adds an event, once there is room. Breaks if the job is cancelled.
    pub(super) fn add(&self, event: JobEvent) -> ControlFlow<()> {
        let mut state = self.lock();
        let replaced = state.waiting.back_mut().filter(|last| event.replaces(last));
        if let Some(last) = replaced {
            *last = event;
        } else {
            while state.waiting.len() >= EVENTS_MAX && !state.is_cancelled && !state.is_unread {
                let waited = self.taken.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            }
            // After that, only as many as there is room for.
            if state.waiting.len() < EVENTS_MAX && !state.is_unread {
                let is_cancelled = state.is_cancelled;
                self.change(state, |state| state.waiting.push_back(event));
                return flow(is_cancelled);
            }
        }
        flow(state.is_cancelled)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.lock().is_cancelled
    }

    /// Whether the job continues, without an event.
    pub(super) fn flow(&self) -> ControlFlow<()> {
        flow(self.is_cancelled())
    }

    /// Sets how the work of the job is cancelled from now on.
    pub(super) fn cancel_by(&self, canceller: impl Fn() + Send + 'static) {
        let mut state = self.lock();
        if state.is_cancelled {
            drop(state);
            canceller();
        } else {
            state.canceller = Some(Box::new(canceller));
        }
    }

    pub(super) fn cancel(&self) {
        let mut state = self.lock();
        state.is_cancelled = true;
        let canceller = state.canceller.take();
        drop(state);
        self.taken.notify_all();
        if let Some(cancel) = canceller {
            cancel();
        }
    }

    /// No event will be read any more.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.is_unread = true;
        state.waiting.clear();
        state.reader = None;
        drop(state);
        self.taken.notify_all();
    }

    /// The job has ended. Only the first end counts.
    pub(super) fn end(&self, result: Result<JobResult, Fault>) {
        self.change(self.lock(), |state| {
            state.canceller = None;
            state.result.get_or_insert(result);
        });
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().result.is_some()
    }

    /// The next event; `None` after the timeout, and after the last one of a job that has ended.
    pub(super) fn next(&self, timeout: Duration) -> Option<JobEvent> {
        let end = Instant::now().checked_add(timeout);
        let mut state = self.lock();
        loop {
            if let Some(event) = state.waiting.pop_front() {
                drop(state);
                self.taken.notify_all();
                return Some(event);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if state.result.is_some() || left == Some(Duration::ZERO) {
                return None;
            }
            let left = left.unwrap_or(timeout);
            let waited = self.added.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Polls for the next event; `None` after the last one.
    pub(super) fn poll(&self, waker: &Waker) -> Poll<Option<JobEvent>> {
        let mut state = self.lock();
        if let Some(event) = state.waiting.pop_front() {
            drop(state);
            self.taken.notify_all();
            return Poll::Ready(Some(event));
        }
        if state.result.is_some() {
            return Poll::Ready(None);
        }
        state.reader = Some(waker.clone());
        Poll::Pending
    }

    /// The result of a job that has ended.
    pub(super) fn result(&self) -> Option<Result<JobResult, Fault>> {
        self.lock().result.clone()
    }
}

fn flow(is_cancelled: bool) -> ControlFlow<()> {
    match is_cancelled {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// The fault of a job that was cancelled before it did anything, or that can't say more.
pub(super) fn cancelled() -> Fault {
    Fault::new(Code::Cancelled, "run the job", "it was cancelled")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn target(number: usize) -> JobEvent {
        JobEvent::Target(number.to_string().into_bytes())
    }

    fn progress(files: u64) -> JobEvent {
        JobEvent::TreeProgress(TreeResult {
            files,
            ..TreeResult::default()
        })
    }

    /// Events for which there is no reader, in a thread that adds one more.
    fn full() -> (Arc<Events>, thread::JoinHandle<ControlFlow<()>>) {
        let events = Arc::<Events>::default();
        for number in 0..EVENTS_MAX {
            assert!(events.add(target(number)).is_continue());
        }
        let own = Arc::clone(&events);
        let adds = thread::spawn(move || own.add(target(EVENTS_MAX)));
        (events, adds)
    }

    #[test]
    fn events_wait_for_a_reader_and_their_job_for_room() {
        let (events, adds) = full();
        for number in 0..=EVENTS_MAX {
            let event = events.next(PATIENCE);
            let expected = number.to_string().into_bytes();
            assert!(matches!(event, Some(JobEvent::Target(path)) if path == expected));
        }
        assert!(adds.join().unwrap().is_continue());
        assert_eq!(events.lock().waiting.len(), 0);
    }

    #[test]
    fn a_full_queue_ends_no_cancelled_and_no_abandoned_job_late() {
        let (events, adds) = full();
        events.cancel();
        assert!(adds.join().unwrap().is_break());
        assert_eq!(events.lock().waiting.len(), EVENTS_MAX);
        assert!(events.add(target(0)).is_break());

        let (events, adds) = full();
        events.abandon();
        assert!(adds.join().unwrap().is_continue());
        assert!(events.lock().waiting.is_empty());
        assert!(events.add(target(0)).is_continue());
        assert!(events.lock().waiting.is_empty());
    }

    #[test]
    fn only_the_latest_progress_waits() {
        let events = Events::default();
        for files in 0..10 * EVENTS_MAX as u64 {
            assert!(events.add(progress(files)).is_continue());
        }
        assert!(events.add(target(0)).is_continue());
        assert!(events.add(progress(1)).is_continue());
        let last = 10 * EVENTS_MAX as u64 - 1;
        let first = events.next(PATIENCE);
        assert!(matches!(first, Some(JobEvent::TreeProgress(now)) if now.files == last));
        assert!(matches!(events.next(PATIENCE), Some(JobEvent::Target(_))));
        assert!(matches!(
            events.next(PATIENCE),
            Some(JobEvent::TreeProgress(_))
        ));
        assert!(events.next(Duration::ZERO).is_none());
    }

    #[test]
    fn the_first_end_counts_and_the_canceller_is_called_once() {
        let events = Events::default();
        let (sender, calls) = std::sync::mpsc::channel();
        let call = move || {
            let _ = sender.send(());
        };
        events.cancel_by(call.clone());
        events.cancel();
        events.cancel();
        // Cancelled before there was anything to cancel.
        events.cancel_by(call);
        assert_eq!(calls.iter().count(), 2);
        assert!(events.result().is_none());
        events.end(Err(cancelled()));
        events.end(Ok(JobResult::Removed { names: None }));
        assert!(events.result().is_some_and(|result| result.is_err()));
    }
}
