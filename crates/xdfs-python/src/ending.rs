//! The end of the interpreter, while other threads are still in frames of this crate.
//!
//! A thread that asks for Python's lock once the interpreter ends never gets it: before Python 3.14
//! it is ended there by unwinding its frames, which those of Rust don't allow. Where a thread takes
//! the lock back after a wait, pyo3 stops it instead. Functions of Python that are called from here
//! remain, since they may give the lock away at any of their instructions: all of them are called
//! by [`calling`], and the end waits for those that run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Longest time for which the end waits for other threads: they make exceptions, and call no code
/// of the user.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct State {
    /// The process whose threads are counted: after a fork they are not here.
    process: u32,
    /// Calls of functions of Python that have not returned.
    calls: usize,
    /// The thread that ends the interpreter.
    ender: Option<ThreadId>,
}

static STATE: Mutex<State> = Mutex::new(State {
    process: 0,
    calls: 0,
    ender: None,
});
static RETURNED: Condvar = Condvar::new();

/// The state of this process.
fn state() -> MutexGuard<'static, State> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if state.process != process {
        *state = State {
            process,
            calls: 0,
            ender: None,
        };
    }
    state
}

/// A call of a function of Python.
struct InCall;

impl Drop for InCall {
    fn drop(&mut self) {
        let mut state = state();
        // A fork within the call has begun another count.
        state.calls = state.calls.saturating_sub(1);
        drop(state);
        RETURNED.notify_all();
    }
}

/// Calls a function of Python. Once the interpreter ends only the thread that ends it may do so,
/// and others get `None`.
pub(crate) fn calling<T>(_py: Python<'_>, call: impl FnOnce() -> T) -> Option<T> {
    let mut state = state();
    let here = thread::current().id();
    if state.ender.is_some_and(|ender| ender != here) {
        return None;
    }
    state.calls += 1;
    drop(state);
    let _in_call = InCall;
    Some(call())
}

/// Whether the interpreter ends.
pub(crate) fn has_begun() -> bool {
    state().ender.is_some()
}

/// Begins the end, in the thread that ends the interpreter: waits until no other thread calls a
/// function of Python.
pub(crate) fn begin(py: Python<'_>) {
    state().ender = Some(thread::current().id());
    // The calls need Python's lock to return.
    py.detach(|| {
        let end = Instant::now() + PATIENCE;
        let mut state = state();
        while state.calls > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = RETURNED.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    });
}
