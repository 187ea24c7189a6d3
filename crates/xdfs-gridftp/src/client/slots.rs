//! The sessions with a server, counted: one is enough for any work, and more are a gain that a
//! refusal takes back.
//!
//! Many servers take few sessions from one address or one user, and none says how many. So another
//! one is opened as long as the server takes it. Once one is refused beside others that are open,
//! there are no more than those, and work that needs one waits until it is free.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};

/// Pause before another attempt at a server that has no room for the only session.
pub(super) const FULL_PAUSE: Duration = Duration::from_millis(200);
/// Longest time of such attempts: an own session that has just ended may still be counted there.
pub(super) const FULL: Duration = Duration::from_secs(5);

/// See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Slots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Sessions that are open, or being opened.
    open: usize,
    /// As many as the server takes, once it has refused one.
    most: Option<usize>,
    /// Counts what may let somebody go on who waits.
    changes: u64,
    /// When a session was last used.
    used: Instant,
}

/// The place of a session that is open, or being opened.
#[derive(Debug)]
pub(super) struct Slot(Slots);

/// The state when a search for a session began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen(u64);

impl Slots {
    /// No sessions.
    pub(super) fn new() -> Self {
        let state = State {
            open: 0,
            most: None,
            changes: 0,
            used: Instant::now(),
        };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for another session, unless the server takes no more.
    pub(super) fn open(&self) -> Option<Slot> {
        let mut state = self.state();
        if state.most.is_some_and(|most| state.open >= most) {
            return None;
        }
        state.open += 1;
        state.used = Instant::now();
        Some(Slot(self.clone()))
    }

    /// The place of a session that takes the place of an open one, which ends next.
    pub(super) fn replacement(&self) -> Slot {
        self.state().open += 1;
        Slot(self.clone())
    }

    /// Takes note that another session could not be opened, whose place is free again. Returns
    /// whether others are open, which have to do.
    pub(super) fn note_refusal(&self, fault: &Fault) -> bool {
        // What another attempt, or the other sessions, would not change; and a server that doesn't
        // listen has ended, and the other sessions with it.
        let is_final = matches!(
            fault.code,
            Code::Cancelled
                | Code::ConnectionRefused
                | Code::Internal
                | Code::InvalidArgument
                | Code::ProtectionRefused
                | Code::ServerUntrusted
        );
        let mut state = self.state();
        if is_final || state.open == 0 {
            return false;
        }
        if state.most != Some(state.open) {
            let open = state.open;
            tracing::info!(%fault, open, "the server takes no more sessions: these have to do");
        }
        state.most = Some(state.open);
        true
    }

    /// Whether the server takes no more sessions than there are, or were.
    pub(super) fn are_few(&self) -> bool {
        self.state().most.is_some()
    }

    /// Any number is tried again.
    pub(super) fn reset(&self) {
        self.state().most = None;
    }

    /// The changes so far.
    pub(super) fn seen(&self) -> Seen {
        Seen(self.state().changes)
    }

    /// Lets everybody who waits look again.
    pub(super) fn note_change(&self) {
        self.state().changes += 1;
        self.0.changed.notify_all();
    }

    /// Waits until something has changed since, but not for longer than this. Returns for how long
    /// no session was used.
    pub(super) fn wait(&self, seen: Seen, most: Duration) -> Duration {
        let state = self.state();
        let is_same = |state: &mut State| state.changes == seen.0;
        let waited = self.0.changed.wait_timeout_while(state, most, is_same);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.used.elapsed()
    }
}

impl Slot {
    /// Takes note that its session is used.
    pub(super) fn touch(&self) {
        self.0.state().used = Instant::now();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.state().open -= 1;
        self.0.note_change();
    }
}

/// Whether a server says that it has no room for a session now.
pub(super) fn is_full(fault: &Fault) -> bool {
    fault.cause.starts_with("the server says 421 ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: Code) -> Fault {
        Fault::new(code, "connect", "the server says 421 too many")
    }

    #[test]
    fn a_refusal_lowers_the_number_to_that_of_the_others() {
        let slots = Slots::new();
        let first = slots.open().unwrap();
        let second = slots.open().unwrap();
        drop(slots.open().unwrap());
        assert!(slots.note_refusal(&refusal(Code::ConnectionLost)) && slots.are_few());
        assert!(slots.open().is_none());
        let seen = slots.seen();
        drop(second);
        assert_ne!(slots.seen(), seen);
        let again = slots.open().unwrap();
        assert!(slots.open().is_none());
        // The last one can't wait for others.
        drop((first, again));
        let only = slots.open();
        drop(only);
        assert!(!slots.note_refusal(&refusal(Code::ConnectionLost)));
        slots.reset();
        let all: Vec<_> = (0..100).map(|_| slots.open().unwrap()).collect();
        assert_eq!(all.len(), 100);
    }

    #[test]
    fn what_others_would_not_change_is_no_refusal_of_one_more() {
        let slots = Slots::new();
        let _open = slots.open().unwrap();
        let others = [
            Code::ServerUntrusted,
            Code::Cancelled,
            Code::ConnectionRefused,
        ];
        for code in others {
            assert!(!slots.note_refusal(&refusal(code)));
        }
        assert!(!slots.are_few());
        assert!(slots.note_refusal(&refusal(Code::AuthenticationFailed)));
    }

    #[test]
    fn a_change_ends_a_wait_also_if_it_came_before() {
        let slots = Slots::new();
        let seen = slots.seen();
        slots.note_change();
        // It would take an hour.
        slots.wait(seen, Duration::from_secs(3600));
        assert!(is_full(&refusal(Code::ConnectionLost)));
    }
}
