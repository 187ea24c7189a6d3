//! Events at a time, for transforms that let their caller wait when nothing below them does.
//!
//! One thread serves the whole process. It starts with the first alarm and ends when there was none
//! for a while. An alarm that has gone off is an event like any other: edge-triggered, and possibly
//! without need.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_sys::poll::{Event, Notifier, Poller, Token};

/// Time without an alarm after which the thread ends.
const IDLE: Duration = Duration::from_secs(5);

static CLOCK: Clock = Clock {
    state: Mutex::new(State {
        due: BinaryHeap::new(),
        is_running: false,
    }),
    changed: Condvar::new(),
};

struct Clock {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The earliest first. An alarm is in here at most once for each direction.
    due: BinaryHeap<Reverse<Due>>,
    is_running: bool,
}

/// The alarm of one stream.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Arc<Mutex<Bell>>);

#[derive(Debug, Default)]
struct Bell {
    registered: Option<(Notifier, Token)>,
    /// Directions for which it is set.
    reading: bool,
    writing: bool,
}

/// A direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Reading,
    Writing,
}

impl Alarm {
    /// The poller that reports its events.
    pub(crate) fn register(&self, poller: &Poller, token: Token) {
        lock(&self.0).registered = Some((poller.notifier(), token));
    }

    /// No event is reported from now on.
    pub(crate) fn deregister(&self) {
        lock(&self.0).registered = None;
    }

    /// Reports an event at `time`. An alarm that is set already for this direction stays as it is.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn set(&self, time: Instant, direction: Direction) -> io::Result<()> {
        {
            let mut bell = lock(&self.0);
            let is_set = bell.direction(direction);
            if std::mem::replace(is_set, true) {
                return Ok(());
            }
        }
        let result = CLOCK.add(Due {
            time,
            direction,
            bell: Arc::clone(&self.0),
        });
        if result.is_err() {
            *lock(&self.0).direction(direction) = false;
        }
        result
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // The poller may be closed before the alarm goes off.
        self.deregister();
    }
}

impl Bell {
    fn direction(&mut self, direction: Direction) -> &mut bool {
        match direction {
            Direction::Reading => &mut self.reading,
            Direction::Writing => &mut self.writing,
        }
    }
}

impl Clock {
    fn add(&'static self, due: Due) -> io::Result<()> {
        let mut state = lock(&self.state);
        if !state.is_running {
            let thread = thread::Builder::new().name("xdfs-timer".to_owned());
            thread.spawn(|| self.run())?;
            state.is_running = true;
        }
        let is_first = state.due.peek().is_none_or(|first| due < first.0);
        state.due.push(Reverse(due));
        if is_first {
            self.changed.notify_one();
        }
        Ok(())
    }

    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            let left = state
                .due
                .peek()
                .map(|first| first.0.time - now.min(first.0.time));
            if left == Some(Duration::ZERO) {
                if let Some(Reverse(due)) = state.due.pop() {
                    drop(state);
                    due.ring();
                    state = lock(&self.state);
                }
                continue;
            }
            let waited = self.changed.wait_timeout(state, left.unwrap_or(IDLE));
            let timeout;
            (state, timeout) = waited.unwrap_or_else(|e| e.into_inner());
            if timeout.timed_out() && left.is_none() && state.due.is_empty() {
                state.is_running = false;
                return;
            }
        }
    }
}

/// An alarm that is set.
struct Due {
    time: Instant,
    direction: Direction,
    bell: Arc<Mutex<Bell>>,
}

impl Due {
    fn ring(self) {
        let mut bell = lock(&self.bell);
        *bell.direction(self.direction) = false;
        // Under the lock, so that there is no event after a stream was deregistered.
        if let Some((notifier, token)) = &bell.registered {
            notifier.notify(Event {
                token: *token,
                readable: self.direction == Direction::Reading,
                writable: self.direction == Direction::Writing,
            });
        }
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.time == other.time
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.time.cmp(&other.time)
    }
}

/// No code panics in the middle of a change, so the state is consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
