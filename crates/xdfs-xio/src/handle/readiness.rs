//! Who waits for readiness, and what has become ready since.
//!
//! How lost wake-ups are prevented: each event raises a count under the lock that also guards the
//! list of waiting tasks. Who wants to wait brings the counts from before its last attempt, and is
//! turned away if one that it waits for has been raised since.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

/// The directions that an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interest {
    pub(super) readable: bool,
    pub(super) writable: bool,
}

/// The counts of events at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    readable: u64,
    writable: u64,
}

/// The readiness of one source.
#[derive(Debug, Default)]
pub(super) struct Readiness(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    seen: Seen,
    waiting: Vec<(u64, Interest, Waker)>,
    next_id: u64,
    /// Why the source can't be watched.
    failure: Option<(std::io::ErrorKind, String)>,
}

/// A task that waits. Dropping it ends the wait.
#[derive(Debug)]
pub(super) struct Waiting {
    readiness: Arc<Readiness>,
    id: u64,
}

impl Interest {
    /// Any event.
    pub(super) const ANY: Self = Self {
        readable: true,
        writable: true,
    };
}

impl Readiness {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The counts now.
    pub(super) fn seen(&self) -> Seen {
        self.state().seen
    }

    /// Whether a task waits.
    #[cfg(unix)]
    pub(super) fn is_awaited(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Wakes `waker` at the next event of `interest`; `None` if there was one after `seen`.
    pub(super) fn wait(
        self: &Arc<Self>,
        interest: Interest,
        seen: Seen,
        waker: &Waker,
    ) -> Option<Waiting> {
        let mut state = self.state();
        let is_new = (interest.readable && state.seen.readable != seen.readable)
            || (interest.writable && state.seen.writable != seen.writable);
        if is_new {
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.waiting.push((id, interest, waker.clone()));
        let readiness = Arc::clone(self);
        Some(Waiting { readiness, id })
    }

    /// Counts an event, and wakes those that wait for it.
    pub(super) fn notify(&self, readable: bool, writable: bool) {
        let mut state = self.state();
        state.seen.readable += u64::from(readable);
        state.seen.writable += u64::from(writable);
        let is_met = |i: &Interest| (i.readable && readable) || (i.writable && writable);
        let (met, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut state.waiting)
            .into_iter()
            .partition(|(_, interest, _)| is_met(interest));
        state.waiting = rest;
        drop(state);
        for (_, _, waker) in met {
            waker.wake();
        }
    }

    /// Keeps the reason why the source can't be watched, and wakes all.
    pub(super) fn fail(&self, error: &std::io::Error) {
        self.state().failure = Some((error.kind(), error.to_string()));
        self.notify(true, true);
    }

    /// The reason why the source can't be watched.
    pub(super) fn failure(&self) -> Option<std::io::Error> {
        let (kind, text) = self.state().failure.clone()?;
        Some(std::io::Error::new(kind, text))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.readiness.state();
        let at = state.waiting.iter().position(|(id, ..)| *id == self.id);
        let waker = at.map(|at| state.waiting.swap_remove(at));
        drop(state);
        // A waker may run foreign code when dropped.
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READING: Interest = Interest {
        readable: true,
        writable: false,
    };

    #[test]
    fn an_event_between_the_attempt_and_the_wait_is_not_lost() {
        let readiness = Arc::new(Readiness::default());
        let seen = readiness.seen();
        readiness.notify(false, true);
        let waiting = readiness.wait(READING, seen, Waker::noop());
        assert!(waiting.is_some());
        readiness.notify(true, false);
        assert!(readiness.wait(READING, seen, Waker::noop()).is_none());
    }

    #[test]
    fn who_stops_waiting_leaves_nothing_behind() {
        let readiness = Arc::new(Readiness::default());
        for _ in 0..3 {
            let seen = readiness.seen();
            let waiting = readiness.wait(READING, seen, Waker::noop());
            assert_eq!(readiness.state().waiting.len(), 1);
            drop(waiting);
        }
        assert_eq!(readiness.state().waiting.len(), 0);
    }
}
