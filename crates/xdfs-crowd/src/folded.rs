//! Warnings that strangers can cause, at most one a minute.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The interval between two warnings of one kind, in milliseconds: a minute.
static INTERVAL_MS: AtomicU64 = AtomicU64::new(60_000);

/// Changes the interval between two warnings of one kind in this process, for tests that can't wait
/// for a minute.
pub fn set_warning_interval(interval: Duration) {
    let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    INTERVAL_MS.store(interval_ms, Ordering::Relaxed);
}

/// The events of one kind since the last warning about them. Each event is in a warning, at the
/// latest when this is dropped.
#[derive(Debug)]
pub struct Folded<T> {
    events: u64,
    /// What the warning says of the last event; `None` if all events have been in a warning.
    last: Option<T>,
    warned_at: Option<Instant>,
    warn: fn(u64, &T),
}

impl<T> Folded<T> {
    /// No events so far. `warn` writes a warning, which stands for so many events.
    #[must_use]
    pub fn new(warn: fn(u64, &T)) -> Self {
        Self {
            events: 0,
            last: None,
            warned_at: None,
            warn,
        }
    }

    /// Counts an event. Warns, if a warning is due.
    pub fn count(&mut self, event: T, now: Instant) {
        self.events += 1;
        self.last = Some(event);
        self.tick(now);
    }

    /// Warns of events that have been in no warning, if one is due.
    pub fn tick(&mut self, now: Instant) {
        if self
            .due_at()
            .is_some_and(|at| at.is_none_or(|at| at <= now))
        {
            self.warned_at = Some(now);
            self.warn_now();
        }
    }

    /// The time of the next warning, if there are events that have been in none.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Instant> {
        self.due_at().flatten()
    }

    /// The same; at once if there was no warning before.
    fn due_at(&self) -> Option<Option<Instant>> {
        self.last.as_ref()?;
        let interval = Duration::from_millis(INTERVAL_MS.load(Ordering::Relaxed));
        Some(self.warned_at.map(|at| at + interval))
    }

    fn warn_now(&mut self) {
        if let Some(last) = self.last.take() {
            (self.warn)(std::mem::take(&mut self.events), &last);
        }
    }
}

impl<T> Drop for Folded<T> {
    fn drop(&mut self) {
        self.warn_now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    type Warnings = Arc<Mutex<Vec<u64>>>;

    #[test]
    fn a_minute_has_one_warning_and_each_event_is_in_one() {
        let (warnings, start) = (Warnings::default(), Instant::now());
        let mut folded = Folded::new(|events, warnings: &Warnings| {
            warnings.lock().unwrap().push(events);
        });
        let at = |seconds| start + Duration::from_secs(seconds);
        let seen = || std::mem::take(&mut *warnings.lock().unwrap());
        folded.tick(at(0));
        assert_eq!((seen(), folded.wakes_at()), (vec![], None));
        let count = |folded: &mut Folded<_>, seconds| {
            folded.count(Arc::clone(&warnings), at(seconds));
            seen()
        };
        let of = [0, 1, 2, 59, 60, 61].map(|seconds| count(&mut folded, seconds));
        assert_eq!(of.concat(), [1, 4]);
        // The one of second 61 is in none yet, and no other comes.
        assert_eq!(folded.wakes_at(), Some(at(120)));
        folded.tick(at(119));
        assert_eq!(seen(), []);
        folded.tick(at(120));
        assert_eq!((seen(), folded.wakes_at()), (vec![1], None));
        folded.tick(at(1000));
        folded.count(Arc::clone(&warnings), at(1000));
        folded.count(Arc::clone(&warnings), at(1001));
        folded.count(Arc::clone(&warnings), at(1002));
        assert_eq!(seen(), [1]);
        drop(folded);
        assert_eq!(seen(), [2]);
    }
}
