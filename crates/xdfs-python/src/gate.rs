//! Turns for what a session accepts only so many of at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::waiting::locked;

/// The turns of a session, given in the order in which they were asked for.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<Arc<Mutex<Waiter>>>,
}

#[derive(Debug, Default)]
struct Waiter {
    has_turn: bool,
    /// The turn was taken: it waits no more.
    is_over: bool,
    waker: Option<Waker>,
}

/// A wait for a turn.
#[derive(Debug)]
pub(crate) struct Turn {
    gate: Gate,
    waiter: Arc<Mutex<Waiter>>,
}

/// A turn, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Gate);

impl Gate {
    /// A gate with so many turns at a time.
    pub(crate) fn new(turns: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: turns,
            waiting: VecDeque::new(),
        })))
    }

    /// Asks for a turn.
    pub(crate) fn ask(&self) -> Turn {
        let mut state = locked(&self.0);
        let waiter = Arc::<Mutex<Waiter>>::default();
        if state.free > 0 {
            state.free -= 1;
            locked(&waiter).has_turn = true;
        } else {
            state.waiting.push_back(Arc::clone(&waiter));
        }
        Turn {
            gate: self.clone(),
            waiter,
        }
    }

    /// Gives a turn that has ended to the next one.
    fn pass_on(&self) {
        let mut state = locked(&self.0);
        let Some(next) = state.waiting.pop_front() else {
            state.free += 1;
            return;
        };
        drop(state);
        let mut next = locked(&next);
        next.has_turn = true;
        let waker = next.waker.take();
        drop(next);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Turn {
    /// Polls for the turn. To be called until it is ready, and not again.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Permit> {
        let mut waiter = locked(&self.waiter);
        if std::mem::take(&mut waiter.has_turn) {
            waiter.is_over = true;
            return Poll::Ready(Permit(self.gate.clone()));
        }
        waiter.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Wakes who polls for it.
    pub(crate) fn wake(&self) {
        let waker = locked(&self.waiter).waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if locked(&self.waiter).is_over {
            return;
        }
        let mut state = locked(&self.gate.0);
        state
            .waiting
            .retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        drop(state);
        // It was given and not taken.
        if std::mem::take(&mut locked(&self.waiter).has_turn) {
            self.gate.pass_on();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}
