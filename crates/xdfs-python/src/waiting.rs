//! Waits that release Python's lock and end for signals, and wake-ups of event loops.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::fault::Owner;

/// The interval between two looks for signals, which only the main thread gets.
const TICK: Duration = Duration::from_millis(50);

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this is Python's main thread.
fn is_main(py: Python<'_>) -> bool {
    thread_local! {
        static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
    }
    if let Some(known) = IS_MAIN.get() {
        return known;
    }
    let find = || -> PyResult<bool> {
        let threading = py.import("threading")?;
        let main = threading.call_method0("main_thread")?.getattr("ident")?;
        main.eq(threading.call_method0("get_ident")?)
    };
    let found = find().unwrap_or(true);
    IS_MAIN.set(Some(found));
    found
}

struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls until something is ready, at most for `timeout`; `None` after that.
///
/// # Errors
/// An exception of a signal's handler, such as `KeyboardInterrupt`.
pub(crate) fn wait_for<T>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> PyResult<Option<T>> {
    let unpark = Arc::new(Unpark {
        thread: thread::current(),
        is_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&unpark));
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let is_main = is_main(py);
    loop {
        if let Poll::Ready(value) = poll(&mut Context::from_waker(&waker)) {
            return Ok(Some(value));
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(None);
        }
        let pause = match (left, is_main) {
            (Some(left), true) => Some(left.min(TICK)),
            (None, true) => Some(TICK),
            (left, false) => left,
        };
        py.detach(|| {
            // A wake-up before this would be lost otherwise, if something else has parked here.
            if unpark.is_woken.swap(false, Ordering::Acquire) {
                return;
            }
            match pause {
                Some(pause) => thread::park_timeout(pause),
                None => thread::park(),
            }
            unpark.is_woken.store(false, Ordering::Release);
        });
        py.check_signals()?;
    }
}

type Task = Box<dyn FnOnce() + Send>;

/// Threads without a task, which take the next ones.
static IDLE: Mutex<Vec<(Owner, Sender<Task>)>> = Mutex::new(Vec::new());

/// Does work that blocks without polling, such as reading a file. In the main thread it is given to
/// another thread, so that the wait ends for a signal; the work goes to its end all the same.
///
/// # Errors
/// An exception of a signal's handler, or a thread can't be started.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if !is_main(py) {
        return Ok(py.detach(work));
    }
    let (sender, result) = mpsc::sync_channel(1);
    give(Box::new(move || {
        // A wait that was interrupted wants no result.
        let _ = sender.send(work());
    }))?;
    // A receiver can't be shared, and the lock is given up with a reference to it.
    let result = Mutex::new(result);
    loop {
        match py.detach(|| locked(&result).recv_timeout(TICK)) {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the thread has panicked"));
            }
        }
    }
}

/// Gives a task to a thread.
fn give(task: Task) -> PyResult<()> {
    let mut task = task;
    // Threads of a process before a fork are not here.
    let idle = || {
        let mut idle = locked(&IDLE);
        idle.retain(|(owner, _)| owner.is_here());
        idle.pop()
    };
    while let Some((_, thread)) = idle() {
        match thread.send(task) {
            Ok(()) => return Ok(()),
            Err(unsent) => task = unsent.0,
        }
    }
    let (sender, tasks) = mpsc::channel::<Task>();
    let own = sender.clone();
    let thread = thread::Builder::new().name("xdfs-python".into());
    thread.spawn(move || {
        while let Ok(task) = tasks.recv() {
            task();
            locked(&IDLE).push((Owner::here(), own.clone()));
        }
    })?;
    sender
        .send(task)
        .map_err(|_| PyRuntimeError::new_err("the thread has ended"))
}

/// Calls something in an event loop of asyncio, by the one thread that does so for all of them: a
/// thread of the library never waits for Python's lock.
pub(crate) struct LoopWaker {
    event_loop: Py<PyAny>,
    callback: Py<PyAny>,
    notifier: Sender<Arc<Self>>,
    is_woken: AtomicBool,
}

static NOTIFIER: Mutex<Option<(Owner, Sender<Arc<LoopWaker>>)>> = Mutex::new(None);

impl LoopWaker {
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn waker(event_loop: Py<PyAny>, callback: Py<PyAny>) -> PyResult<Waker> {
        let mut notifier = locked(&NOTIFIER);
        let known = notifier.as_ref().filter(|(owner, _)| owner.is_here());
        let sender = match known {
            Some((_, sender)) => sender.clone(),
            None => {
                let (sender, woken) = mpsc::channel::<Arc<Self>>();
                let thread = thread::Builder::new().name("xdfs-asyncio".into());
                thread.spawn(move || {
                    while let Ok(first) = woken.recv() {
                        // After the end of the interpreter nothing waits.
                        let called = Python::try_attach(|py| {
                            first.call(py);
                            woken.try_iter().for_each(|waker| waker.call(py));
                        });
                        if called.is_none() {
                            // It must not drop what belongs to the interpreter.
                            std::mem::forget(first);
                            return;
                        }
                    }
                })?;
                // The parent's sender has no thread here, and dropping it would free little.
                std::mem::forget(notifier.replace((Owner::here(), sender.clone())));
                sender
            }
        };
        Ok(Waker::from(Arc::new(Self {
            event_loop,
            callback,
            notifier: sender,
            is_woken: AtomicBool::new(false),
        })))
    }

    fn call(&self, py: Python<'_>) {
        let callback = (self.callback.bind(py),);
        // A loop that was closed waits for nothing.
        let _ = self
            .event_loop
            .call_method1(py, "call_soon_threadsafe", callback);
    }
}

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            let notifier = self.notifier.clone();
            // The thread ends with the interpreter.
            let _ = notifier.send(self);
        }
    }
}
