//! The environment of the engine: time, threads and random bytes. (Channels come from driver
//! stacks.)
//!
//! The rest of the crate does not ask the system for these, so whole sessions can run in one thread
//! with a simulated clock. Programs use [`System`].

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_sys::poll::{Event, Notifier};

use crate::command::WAKE;

/// Creates the task of a worker, in the worker's thread.
pub type MakeTask = Box<dyn FnOnce() -> Box<dyn Task> + Send>;

/// Time, threads and random bytes.
pub trait Environment: Send + Sync + fmt::Debug {
    /// The time.
    fn now(&self) -> Instant;

    /// The processor time of the calling thread, where that is known.
    fn thread_time(&self) -> Option<Duration> {
        None
    }

    /// Starts a worker called `name`, which creates its task and drives it to its end.
    ///
    /// # Errors
    /// The thread can't be started.
    fn start(&self, name: &str, make: MakeTask) -> io::Result<()>;

    /// Fills `bytes` with unpredictable random bytes.
    ///
    /// # Errors
    /// The system has no source of randomness.
    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()>;
}

/// Work that is done in turns. Its driver calls [`Task::turn`] and follows the result.
pub trait Task {
    /// Does everything that can be done now, without waiting.
    fn turn(&mut self) -> Turn;

    /// Waits until a turn may have something to do, or until the timeout. Returns `false` after a
    /// timeout without an event.
    fn wait(&mut self, timeout: Option<Duration>) -> bool;
}

/// What to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Turn {
    /// Call the next turn at once.
    Again,
    /// The task has ended: drop it.
    Ended,
    /// Wait for an event, or for this time.
    Wait(Option<Duration>),
}

/// The clock and the threads of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl System {
    /// A shared instance.
    #[must_use]
    pub fn shared() -> Arc<dyn Environment> {
        Arc::new(Self)
    }
}

impl Environment for System {
    #[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn thread_time(&self) -> Option<Duration> {
        xdfs_sys::processor::thread_time()
    }

    fn start(&self, name: &str, make: MakeTask) -> io::Result<()> {
        let builder = thread::Builder::new().name(name.into());
        // `Worker` reports its end.
        builder.spawn(move || run(&mut *make())).map(drop)
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Drives a task to its end in the calling thread.
pub(crate) fn run(task: &mut dyn Task) {
    loop {
        match task.turn() {
            Turn::Again => {}
            Turn::Ended => return,
            Turn::Wait(timeout) => {
                task.wait(timeout);
            }
        }
    }
}

/// Waits for the next message; if the timeout is zero, only checks for one.
pub(crate) fn receive<T>(
    messages: &mpsc::Receiver<T>,
    timeout: Option<Duration>,
) -> Result<T, RecvTimeoutError> {
    match timeout {
        None => messages.recv().map_err(Into::into),
        // Even a wait of zero would enter the system.
        Some(Duration::ZERO) => messages.try_recv().map_err(|error| match error {
            TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            TryRecvError::Empty => RecvTimeoutError::Timeout,
        }),
        Some(timeout) => messages.recv_timeout(timeout),
    }
}

/// A started worker.
#[derive(Clone, Debug)]
pub(crate) struct Worker(Arc<AtomicBool>);

impl Worker {
    /// Starts a worker whose end wakes `notifier`.
    pub(crate) fn start<T: Task + 'static>(
        environment: &dyn Environment,
        name: &'static str,
        notifier: &Notifier,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Self> {
        let worker = Self(Arc::default());
        let end = End {
            name,
            worker: worker.clone(),
            notifier: notifier.clone(),
        };
        let make = move || {
            let task = make();
            Box::new(Watched { task, _end: end }) as Box<dyn Task>
        };
        environment.start(name, Box::new(make))?;
        Ok(worker)
    }

    /// Whether it has ended and released everything.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A task whose end is reported when it is dropped.
struct Watched<T> {
    task: T,
    /// Dropped after the task.
    _end: End,
}

impl<T: Task> Task for Watched<T> {
    fn turn(&mut self) -> Turn {
        self.task.turn()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.task.wait(timeout)
    }
}

struct End {
    name: &'static str,
    worker: Worker,
    notifier: Notifier,
}

impl Drop for End {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("a thread of {} panicked", self.name);
        }
        self.worker.0.store(true, Ordering::SeqCst);
        wake(&self.notifier);
    }
}

/// Wakes the poller of `notifier`.
pub(crate) fn wake(notifier: &Notifier) {
    notifier.notify(Event {
        token: WAKE,
        readable: false,
        writable: false,
    });
}

/// Waits for workers, for two seconds at most.
#[cfg(test)]
pub(crate) fn join(workers: &[Worker]) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while !workers.iter().all(Worker::has_ended) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}
