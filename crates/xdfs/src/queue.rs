//! Queues of transfers with any number of servers.

mod schedule;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Instant;

use xdfs_engine::TransferEvent;
use xdfs_engine::mailbox::{Sender, mailbox};
use xdfs_proto::Fault;

use self::schedule::{Connect, QueueCommand, QueuedJob, RunningTransfer, Schedule, Session, Turn};
pub use self::schedule::{FileCopy, QueueOptions};
use crate::client::Client;
use crate::events::Observer;
use crate::remote::RemotePlace;
use crate::retry::RetryPolicy;
use crate::session_end::SessionEnd;
use crate::transfer::{Transfer, TransferOptions, TransferRoute};

/// Copies files with a limit on concurrent transfers, and retries transient failures.
///
/// A session with a server is opened for the first job and used for all further ones, even those
/// added later. A broken session is replaced. The jobs of a server start in the order in which they
/// were added.
///
/// Transient failures are retried after a pause: a broken connection (which resumes from durable
/// data), a server that has answered before and can't be reached now, and every fault that advises
/// a retry ([`Fault::retry`]). Cancelled jobs, and jobs that have started to use a standard stream,
/// are not retried. If a server can't be reached at all, all jobs that wait for it fail with the
/// same fault; jobs added later connect again.
///
/// ```no_run
/// use std::sync::Arc;
/// use xdfs::{Client, ClientOptions, FileCopy, LocalPlace, Queue, QueueOptions, Silent};
/// use xdfs::{RemotePlace, TransferOptions, TransferRoute};
///
/// # fn main() -> Result<(), xdfs::Fault> {
/// let connect = |server: &RemotePlace| {
///     Client::connect(server, ClientOptions::default()).map(Arc::new)
/// };
/// let queue = Queue::new(QueueOptions::default(), connect, Silent)?;
/// let server: RemotePlace = "xdfs://localhost".parse()?;
/// let jobs = ["a", "b", "c"].map(|name| FileCopy {
///     server: server.clone(),
///     route: TransferRoute::Download {
///         from: format!("/data/{name}").into_bytes(),
///         to: LocalPlace::Path(name.into()),
///     },
///     options: TransferOptions::default(),
/// });
/// for transfer in queue.add(jobs) {
///     println!("{} bytes", transfer.wait()?.bytes);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Queue {
    commands: Sender<QueueCommand>,
    /// Number of jobs added.
    count: AtomicU64,
    end: SessionEnd,
    thread: Option<thread::JoinHandle<()>>,
}

impl Queue {
    /// An empty queue. It opens sessions by `connect`, which runs in the queue's thread: nothing
    /// starts while it looks up a name. The client that it returns may be used elsewhere too.
    /// `observer` receives the events, in the same thread.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn new(
        options: QueueOptions,
        connect: impl FnMut(&RemotePlace) -> Result<Arc<Client>, Fault> + Send + 'static,
        observer: impl Observer + Send + 'static,
    ) -> Result<Self, Fault> {
        let (sender, commands) = mailbox();
        let end = SessionEnd::default();
        let end_reporter = end.end_reporter();
        let schedule = Schedule::new(connect, options, Box::new(observer), commands);
        let thread = thread::Builder::new()
            .name("xdfs-queue".into())
            .spawn(move || {
                run(schedule);
                drop(end_reporter);
            })
            .map_err(|e| Fault::from_io("start the thread of a queue", "", &e))?;
        Ok(Self {
            commands: sender,
            count: AtomicU64::new(0),
            end,
            thread: Some(thread),
        })
    }

    /// Adds jobs and returns a transfer for each, in the same order. [`Transfer::cancel`] ends the
    /// job in any state; dropping the transfer leaves it in the queue. The observer sees the jobs
    /// numbered from 0 in the order in which they were added.
    pub fn add(&self, jobs: impl IntoIterator<Item = FileCopy>) -> Vec<Transfer> {
        let jobs: Vec<FileCopy> = jobs.into_iter().collect();
        let first = self.count.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        let added = (first..).zip(jobs).map(|(number, job)| {
            let (sender, events) = mailbox();
            let commands = self.commands.clone();
            let cancel = move || {
                // In a queue that has ended there is nothing to cancel.
                let _ = commands.send(QueueCommand::Cancel(number));
            };
            let transfer = Transfer::new(cancel, events, self.end.clone());
            (QueuedJob::new(number, job, sender), transfer)
        });
        let (tasks, transfers) = added.unzip();
        // If the thread has panicked, the transfers report it.
        let _ = self.commands.send(QueueCommand::Add(tasks));
        transfers
    }

    /// Cancels running jobs; waiting jobs, and those added later, fail with
    /// [`Code::Cancelled`](crate::Code::Cancelled). Doesn't wait.
    pub fn stop(&self) {
        let _ = self.commands.send(QueueCommand::Stop);
    }

    /// Waits until every job has ended, and closes the sessions. Dropping the queue does the same.
    pub fn close(self) {}
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.commands.send(QueueCommand::Close);
        if let Some(thread) = self.thread.take() {
            // After a panic the transfers report that the queue is gone.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Wakes the thread of a queue.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A queue with a single job, which runs in the thread of the caller. Returns how to cancel it, and
/// how to run it; `observer` sees the job with number 0, and its end.
pub(crate) fn run_alone(
    copy: FileCopy,
    retry: RetryPolicy,
    connect: impl FnMut(&RemotePlace) -> Result<Arc<Client>, Fault>,
    observer: impl Observer + Send + 'static,
) -> (impl Fn() + Send + 'static, impl FnOnce()) {
    let (commands, received) = mailbox();
    // Only the observer hears of it.
    let (events, _) = mailbox();
    let job = QueuedJob::new(0, copy, events);
    for command in [QueueCommand::Add(vec![job]), QueueCommand::Close] {
        // The mailbox is there.
        let _ = commands.send(command);
    }
    let cancel = move || {
        // In a queue that has ended there is nothing to cancel.
        let _ = commands.send(QueueCommand::Cancel(0));
    };
    let options = QueueOptions {
        running_max: 1,
        retry,
    };
    let schedule = Schedule::new(connect, options, Box::new(observer), received);
    (cancel, move || run(schedule))
}

fn run(mut schedule: Schedule<impl Connect>) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match schedule.turn(Instant::now(), &mut context) {
            Turn::Done => return,
            Turn::Wait(None) => thread::park(),
            Turn::Wait(Some(time)) => {
                thread::park_timeout(time.saturating_duration_since(Instant::now()));
            }
        }
    }
}

impl<F> Connect for F
where
    F: FnMut(&RemotePlace) -> Result<Arc<Client>, Fault>,
{
    type Session = Arc<Client>;

    fn connect(&mut self, server: &RemotePlace) -> Result<Arc<Client>, Fault> {
        self(server)
    }
}

impl Session for Arc<Client> {
    type RunningTransfer = Transfer;

    fn start(&self, route: &TransferRoute, options: &TransferOptions) -> Result<Transfer, Fault> {
        self.transfer(route, options)
    }

    fn is_over(&self) -> bool {
        self.ended().is_some()
    }
}

impl RunningTransfer for Transfer {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<TransferEvent> {
        Self::poll_event(self, context)
    }

    fn cancel(&self) {
        Self::cancel(self);
    }
}
