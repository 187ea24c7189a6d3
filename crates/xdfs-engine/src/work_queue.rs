//! Threads of a session that each do work one after another, as it is handed to them: the writes of
//! [`disk_writers`](crate::disk_writers), and publications.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use xdfs_proto::Fault;
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Notifier;

use crate::environment::{Environment, Task, Turn, Worker, receive};
use crate::security::assume_ids;

/// Work that is handed to a thread. If the thread has ended it is dropped, so that a result which
/// is waited for belongs into `drop`.
pub(crate) trait Work: Send + 'static {
    /// Does the work; with a `refusal` the thread could not assume its ids, and nothing may be
    /// done.
    fn perform(self, refusal: Option<&Fault>);
}

/// Starts a thread, which ends after its work when the returned end of its queue is dropped.
///
/// # Errors
/// The thread can't be started.
pub(crate) fn start<W: Work>(
    environment: &dyn Environment,
    name: &'static str,
    notifier: &Notifier,
    ids: Option<Ids>,
) -> io::Result<mpsc::Sender<W>> {
    let (sender, queue) = mpsc::channel();
    let make = move || WorkTask {
        refusal: assume_ids(ids.as_ref()).err(),
        queue,
        next: None::<W>,
    };
    Worker::start(environment, name, notifier, make)?;
    Ok(sender)
}

struct WorkTask<W> {
    queue: mpsc::Receiver<W>,
    /// Received while waiting.
    next: Option<W>,
    /// The thread could not assume its ids.
    refusal: Option<Fault>,
}

impl<W: Work> Task for WorkTask<W> {
    fn turn(&mut self) -> Turn {
        match self.next.take().map_or_else(|| self.queue.try_recv(), Ok) {
            Ok(work) => work.perform(self.refusal.as_ref()),
            Err(TryRecvError::Empty) => return Turn::Wait(None),
            Err(TryRecvError::Disconnected) => return Turn::Ended,
        }
        Turn::Again
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        // The end is detected in the next turn.
        let come = receive(&self.queue, timeout);
        let has_come = !matches!(come, Err(RecvTimeoutError::Timeout));
        self.next = come.ok();
        has_come
    }
}
