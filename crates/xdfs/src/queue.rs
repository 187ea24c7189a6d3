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

use self::schedule::{Connect, Order, Running, Schedule, Session, Task, Turn};
pub use self::schedule::{Job, QueueOptions};
use crate::client::Client;
use crate::events::Observer;
use crate::remote::RemotePlace;
use crate::session_end::SessionEnd;
use crate::transfer::{Transfer, TransferOptions, TransferRoute};

/// Copies files, at most some of them at once, and tries again what is worth it.
///
/// A session is opened for each server when its first job comes. It is used for all others as well,
/// those that are added later too, and opened again when it broke. Jobs of a server start in the
/// order in which they were added.
///
/// What may pass is tried again after a pause: a broken connection (what has arrived is durable, so
/// that going on is cheap), a server that has answered before and is away now, and every fault that
/// says so itself ([`Fault::retry`]). Never again starts what was cancelled, and a standard stream
/// that was begun. Where a server can't be reached at all, everything that waits for it fails by
/// the same fault, and what is added later asks it anew.
///
/// ```no_run
/// use std::sync::Arc;
/// use xdfs::{Client, ClientOptions, Job, LocalPlace, Queue, QueueOptions, Silent};
/// use xdfs::{RemotePlace, TransferOptions, TransferRoute};
///
/// # fn main() -> Result<(), xdfs::Fault> {
/// let connect = |server: &RemotePlace| {
///     Client::connect(server, ClientOptions::default()).map(Arc::new)
/// };
/// let queue = Queue::new(QueueOptions::default(), connect, Silent)?;
/// let server: RemotePlace = "xdfs://localhost".parse()?;
/// let jobs = ["a", "b", "c"].map(|name| Job {
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
    orders: Sender<Order>,
    /// Jobs that were added.
    count: AtomicU64,
    end: SessionEnd,
    thread: Option<thread::JoinHandle<()>>,
}

impl Queue {
    /// An empty queue. It opens sessions by `connect`, which is called in the thread of the queue:
    /// while a name is looked up there, nothing is started. A client that it returns may be used
    /// elsewhere too. What happens is told to `observer`, in that thread as well.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn new(
        options: QueueOptions,
        connect: impl FnMut(&RemotePlace) -> Result<Arc<Client>, Fault> + Send + 'static,
        observer: impl Observer + Send + 'static,
    ) -> Result<Self, Fault> {
        let (sender, orders) = mailbox();
        let end = SessionEnd::default();
        let teller = end.teller();
        let schedule = Schedule::new(connect, options, Box::new(observer), orders);
        let thread = thread::Builder::new()
            .name("xdfs-queue".into())
            .spawn(move || {
                run(schedule);
                drop(teller);
            })
            .map_err(|e| Fault::from_io("start the thread of a queue", "", &e))?;
        Ok(Self {
            orders: sender,
            count: AtomicU64::new(0),
            end,
            thread: Some(thread),
        })
    }

    /// Adds jobs, and returns a transfer for each, in the same order, to wait for or to be awaited.
    /// It waits, runs and is tried again; [`Transfer::cancel`] ends it wherever it is, and dropping
    /// it leaves the job in the queue. To the observer the jobs of a queue are numbered from 0 in
    /// the order in which they were added.
    pub fn add(&self, jobs: impl IntoIterator<Item = Job>) -> Vec<Transfer> {
        let jobs: Vec<Job> = jobs.into_iter().collect();
        let first = self.count.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        let added = (first..).zip(jobs).map(|(number, job)| {
            let (sender, events) = mailbox();
            let orders = self.orders.clone();
            let cancel = move || {
                // In a queue that has ended there is nothing to cancel.
                let _ = orders.send(Order::Cancel(number));
            };
            let transfer = Transfer::new(cancel, events, self.end.clone());
            (Task::new(number, job, sender), transfer)
        });
        let (tasks, transfers) = added.unzip();
        // If its thread is gone, which takes a panic, the transfers say so.
        let _ = self.orders.send(Order::Add(tasks));
        transfers
    }

    /// Ends everything in an orderly way: what runs is cancelled, and what waits fails with
    /// [`Code::Cancelled`](crate::Code::Cancelled), as does what is added later. Doesn't wait.
    pub fn stop(&self) {
        let _ = self.orders.send(Order::Stop);
    }

    /// Waits until every job has ended, and closes the sessions. Dropping the queue does the same.
    pub fn close(self) {}
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Close);
        if let Some(thread) = self.thread.take() {
            // After a panic its transfers say that the queue is gone.
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
    type Running = Transfer;

    fn start(&self, route: &TransferRoute, options: &TransferOptions) -> Result<Transfer, Fault> {
        self.transfer(route, options)
    }

    fn is_over(&self) -> bool {
        self.ended().is_some()
    }
}

impl Running for Transfer {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<TransferEvent> {
        Self::poll_event(self, context)
    }

    fn cancel(&self) {
        Self::cancel(self);
    }
}
