//! Waits that release Python's lock and end for signals, and wake-ups of event loops.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::ending::{self, calling};
use crate::fault::Owner;

/// The interval between two looks for signals, which only the main thread gets.
const TICK: Duration = Duration::from_millis(50);

/// Event loops that are called before Python's lock is released once.
const WOKEN_AT_ONCE: usize = 64;

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
    // A thread that isn't known once the interpreter ends is not the one that ends it.
    let found = calling(py, find).is_some_and(|found| found.unwrap_or(true));
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
    mut poll: impl FnMut(&Waker) -> Poll<T>,
) -> PyResult<Option<T>> {
    let unpark = Arc::new(Unpark {
        thread: thread::current(),
        is_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&unpark));
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let is_main = is_main(py);
    loop {
        if let Poll::Ready(value) = poll(&waker) {
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

/// Drops a value in another thread, since that waits. The end of the interpreter waits for it.
pub(crate) fn drop_aside<T: Send + 'static>(owner: Owner, value: T) {
    if !owner.is_here() || ending::has_begun() {
        owner.drop(value);
        return;
    }
    // If there is no thread the value is dropped here.
    let _ = give(Box::new(move || drop(value)));
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
pub(crate) fn give(task: Task) -> PyResult<()> {
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
    notifier: Sender<News>,
    is_woken: AtomicBool,
}

/// A message to the thread that calls event loops.
enum News {
    Woken(Arc<LoopWaker>),
    /// The interpreter ends.
    End,
}

/// The thread that calls event loops.
struct Notifier {
    owner: Owner,
    sender: Sender<News>,
    thread: JoinHandle<()>,
}

static NOTIFIER: Mutex<Option<Notifier>> = Mutex::new(None);

/// Prepares the end of the interpreter, and ends the thread that calls event loops.
#[pyfunction]
fn prepare_end(py: Python<'_>) {
    ending::begin(py);
    let notifier = locked(&NOTIFIER).take();
    let Some(notifier) = notifier.filter(|notifier| notifier.owner.is_here()) else {
        return;
    };
    // The thread may have ended.
    let _ = notifier.sender.send(News::End);
    // Without the lock, which it may wait for.
    let _ = py.detach(|| notifier.thread.join());
}

/// Has the interpreter call [`prepare_end`] at its end.
pub(crate) fn end_with_interpreter(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(prepare_end, module)?;
    let py = module.py();
    py.import("atexit")?.call_method1("register", (end,))?;
    Ok(())
}

impl LoopWaker {
    /// # Errors
    /// The thread can't be started, or the interpreter ends.
    pub(crate) fn waker(event_loop: Py<PyAny>, callback: Py<PyAny>) -> PyResult<Waker> {
        let notifier = Self::notifier()?;
        Ok(Waker::from(Arc::new(Self {
            event_loop,
            callback,
            notifier,
            is_woken: AtomicBool::new(false),
        })))
    }

    fn notifier() -> PyResult<Sender<News>> {
        let mut notifier = locked(&NOTIFIER);
        if ending::has_begun() {
            let cause = "the interpreter ends: nothing can be awaited any more";
            return Err(PyRuntimeError::new_err(cause));
        }
        if let Some(known) = notifier.as_ref().filter(|known| known.owner.is_here()) {
            return Ok(known.sender.clone());
        }
        let (sender, news) = mpsc::channel();
        let thread = thread::Builder::new().name("xdfs-asyncio".into());
        let thread = thread.spawn(move || {
            while let Ok(News::Woken(first)) = news.recv() {
                let goes_on = Python::try_attach(|py| {
                    first.call(py);
                    // Not all that come meanwhile, which would keep the lock for ever.
                    for next in news.try_iter().take(WOKEN_AT_ONCE) {
                        match next {
                            News::Woken(waker) => waker.call(py),
                            News::End => return false,
                        }
                    }
                    true
                });
                if goes_on != Some(true) {
                    break;
                }
            }
        })?;
        // A parent's thread is not here, and dropping its handle would free little.
        std::mem::forget(notifier.replace(Notifier {
            owner: Owner::here(),
            sender: sender.clone(),
            thread,
        }));
        Ok(sender)
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
            let _ = notifier.send(News::Woken(self));
        }
    }
}
