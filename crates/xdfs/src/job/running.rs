//! The handle of a job that runs.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use xdfs_proto::{Code, Fault};

use super::events::{Events, JobEvent, JobResult, cancelled};

/// The handle of a job that runs in a thread of the library. It may be shared by threads: one that
/// reads the events, and others that cancel the job or wait for it.
///
/// Events wait until they are read, up to 1024; then the job pauses. So somebody has to read them,
/// or to wait for the end, which discards them. Dropping the handle discards them too, and leaves
/// the job running.
///
/// The handle is also a future with the result of [`RunningJob::wait`], for any asynchronous
/// runtime. Polling does no work and never blocks; if several tasks poll, the latest is woken. It
/// may be polled again after the end.
pub struct RunningJob {
    events: Arc<Events>,
}

/// The work of a job, which ends early once the events say that it is cancelled.
pub(super) type Work = Box<dyn FnOnce(&Arc<Events>) -> Result<JobResult, Fault> + Send>;

/// Ends the job even if its work panics.
struct Ending(Arc<Events>);

impl Ending {
    fn run(self, work: Work) {
        let events = &self.0;
        let result = match events.is_cancelled() {
            true => Err(cancelled()),
            false => work(events),
        };
        events.end(result);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let fault = Fault::new(Code::Internal, "run the job", "its thread has panicked");
        self.0.end(Err(fault));
    }
}

impl RunningJob {
    /// # Errors
    /// The thread can't be started.
    pub(super) fn start(work: Work) -> Result<Self, Fault> {
        let events = Arc::<Events>::default();
        let ending = Ending(Arc::clone(&events));
        thread::Builder::new()
            .name("xdfs-job".into())
            .spawn(move || ending.run(work))
            .map_err(|error| Fault::from_io("start the thread of a job", "", &error))?;
        Ok(Self { events })
    }

    /// Waits up to `timeout` for the next event. `None` after the timeout, and after the last
    /// event.
    #[must_use = "an event is returned once"]
    pub fn event(&self, timeout: Duration) -> Option<JobEvent> {
        self.events.next(timeout)
    }

    /// Polls for the next event: the task of `context` is woken when there may be one. `None` after
    /// the last event.
    #[must_use = "it may be pending, and an event is returned once"]
    pub fn poll_event(&self, context: &mut Context<'_>) -> Poll<Option<JobEvent>> {
        self.events.poll(context.waker())
    }

    /// Whether the job has ended. Events may still wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.events.has_ended()
    }

    /// Cancels the job in an orderly way, and doesn't wait for that: it ends with
    /// [`Code::Cancelled`], unless it is at its end already. What is durable stays, and the journal
    /// of a tree, so that the same job resumes. A file ends at once. A tree ends when what is in
    /// flight has ended or was cancelled, and what has arrived is durable; with a server that
    /// doesn't answer any more, after the time limits of its session. A server that has begun to
    /// remove a tree may remove it all.
    pub fn cancel(&self) {
        self.events.cancel();
    }

    /// Waits for the end, and discards the events up to it. May be called again.
    ///
    /// # Errors
    /// The fault that ended the job.
    pub fn wait(&self) -> Result<JobResult, Fault> {
        loop {
            while self.events.next(Duration::MAX).is_some() {}
            if let Some(result) = self.events.result() {
                return result;
            }
        }
    }
}

impl Future for RunningJob {
    type Output = Result<JobResult, Fault>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        while ready!(self.events.poll(context.waker())).is_some() {}
        // There are no events any more since it has ended.
        self.events.result().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        self.events.abandon();
    }
}

impl fmt::Debug for RunningJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningJob")
            .field("result", &self.events.result())
            .finish_non_exhaustive()
    }
}
