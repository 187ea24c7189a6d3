//! A bounded queue whose taker learns of items by events in its poller.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use xdfs_sys::poll::{Event, Notifier, Token};

/// A queue from one part of a driver to the user of a listener or stream.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    items_max: usize,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    registered: Option<(Notifier, Token)>,
    is_closed: bool,
}

impl<T> State<T> {
    fn wake(&self) {
        if let Some((notifier, token)) = &self.registered {
            notifier.notify(Event {
                token: *token,
                readable: true,
                writable: false,
            });
        }
    }
}

impl<T> Queue<T> {
    /// For at most `items_max` items.
    pub(crate) fn new(items_max: usize) -> Self {
        Self {
            items_max,
            state: Mutex::new(State {
                items: VecDeque::new(),
                registered: None,
                is_closed: false,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether it takes another item.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.state();
        !state.is_closed && state.items.len() < self.items_max
    }

    /// Adds an item.
    ///
    /// # Errors
    /// The item, if the queue is full or closed.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.state();
        if state.is_closed || state.items.len() >= self.items_max {
            return Err(item);
        }
        state.items.push_back(item);
        state.wake();
        Ok(())
    }

    /// The next item; `None` if there is none at present.
    pub(crate) fn pop(&self) -> Option<T> {
        self.state().items.pop_front()
    }

    /// Tells the taker to look, though there may be no item.
    pub(crate) fn wake(&self) {
        self.state().wake();
    }

    /// Where events go; one comes at once if there are items.
    pub(crate) fn register(&self, notifier: Notifier, token: Token) {
        let mut state = self.state();
        state.registered = Some((notifier, token));
        if !state.items.is_empty() {
            state.wake();
        }
    }

    /// Withdraws the registration.
    pub(crate) fn deregister(&self) {
        self.state().registered = None;
    }

    /// Takes no further items. Returns those that nobody took, to be dropped outside of locks.
    pub(crate) fn close(&self) -> VecDeque<T> {
        let mut state = self.state();
        state.is_closed = true;
        std::mem::take(&mut state.items)
    }
}
