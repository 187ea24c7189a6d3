//! Calls of file systems that have begun and not returned.
//!
//! A file system that doesn't answer holds the threads that call it, whatever becomes of their
//! session, and no message of any session can say so. So every call of a store, and every open
//! file, has an entry here while it is there, and a thread of [`Access`](crate::Access) looks for
//! those that take long.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::Clock;

/// Time after which a call is worth a line in the log. Healthy file systems take less, even under
/// load.
const LATE: Duration = Duration::from_secs(10);
/// The limit for a call that works through a file or a tree, or waits for a disk.
const LONG_LATE: Duration = Duration::from_secs(120);
/// Time that calls may take after the end of the sessions.
const HELD: Duration = Duration::from_secs(2);
/// Marks a time in [`Entry::logged`].
const ENDING: u64 = 1 << 63;

/// All of a server.
#[derive(Debug)]
pub struct Ongoing {
    begun: Instant,
    clock: Arc<dyn Clock>,
    /// When the server's sessions have to end, as in [`Entry::since`]; 0 while it serves.
    ends: AtomicU64,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    all: BTreeMap<u64, Arc<Entry>>,
}

/// A call, or an open file that is called again and again.
#[derive(Debug)]
struct Entry {
    user: String,
    from: String,
    operation: &'static str,
    path: Vec<u8>,
    /// When the present call began, in milliseconds of [`Ongoing`], plus 1; 0 between calls.
    since: AtomicU64,
    /// The call of that time is in the log; with [`ENDING`], also as one that delays a stop.
    logged: AtomicU64,
    patience: Duration,
}

/// An entry, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    ongoing: Arc<Ongoing>,
    number: u64,
    entry: Arc<Entry>,
}

impl Ongoing {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            begun: clock.instant(),
            clock,
            ends: AtomicU64::new(0),
            entries: Mutex::default(),
        }
    }

    /// An entry of a user for calls about a path. `is_long` if it may take minutes.
    pub(crate) fn watch(
        self: &Arc<Self>,
        (user, from): (&str, &str),
        operation: &'static str,
        path: &[u8],
        is_long: bool,
    ) -> Watched {
        let entry = Arc::new(Entry {
            user: user.to_owned(),
            from: from.to_owned(),
            operation,
            path: path.to_vec(),
            since: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            patience: if is_long { LONG_LATE } else { LATE },
        });
        let mut entries = self.entries();
        let number = entries.next;
        entries.next += 1;
        entries.all.insert(number, Arc::clone(&entry));
        Watched {
            ongoing: Arc::clone(self),
            number,
            entry,
        }
    }

    /// The sessions of the server end now, or after `grace`: what lasts longer is logged as held.
    pub fn end(&self, grace: Duration) {
        let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let ends = self.now().saturating_add(grace);
        self.ends.store(ends, Ordering::Relaxed);
    }

    /// Logs the calls that have begun to take long since the last time. Returns their number.
    pub(crate) fn look(&self) -> usize {
        let now = self.now();
        let since = |at| Duration::from_millis(now.saturating_sub(at));
        let ends = self.ends.load(Ordering::Relaxed);
        let is_ending = ends > 0 && since(ends) >= HELD;
        let all: Vec<_> = self.entries().all.values().map(Arc::clone).collect();
        let mut count = 0;
        for entry in all {
            let begun = entry.since.load(Ordering::Relaxed);
            let took = since(begun);
            let (patience, mark, text) = match is_ending {
                true => (
                    HELD,
                    begun | ENDING,
                    "a file system holds this call: the server may not end before it is answered",
                ),
                false => (
                    entry.patience,
                    begun,
                    "a file system doesn't answer: it holds this call, and its thread",
                ),
            };
            let is_late = begun > 0 && took >= patience;
            if is_late && entry.logged.swap(mark, Ordering::Relaxed) != mark {
                count += 1;
                tracing::warn!(user = entry.user, from = entry.from, operation = entry.operation,
                    path = %entry.path.escape_ascii(), seconds = took.as_secs(), "{text}");
            }
        }
        count
    }

    fn now(&self) -> u64 {
        let passed = self.clock.instant().saturating_duration_since(self.begun);
        u64::try_from(passed.as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// Calls a file system.
    pub(crate) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        self.entry
            .since
            .store(self.ongoing.now(), Ordering::Relaxed);
        let result = call();
        self.entry.since.store(0, Ordering::Relaxed);
        result
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.ongoing.entries().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[derive(Debug)]
    struct Hands(Instant, AtomicU64);

    impl Clock for Hands {
        fn instant(&self) -> Instant {
            self.0 + Duration::from_secs(self.1.load(Ordering::Relaxed))
        }

        fn time(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    #[test]
    fn a_call_that_takes_long_is_logged_once() {
        let clock = Arc::new(Hands(Instant::now(), AtomicU64::new(0)));
        let pass = |seconds| clock.1.fetch_add(seconds, Ordering::Relaxed);
        let ongoing = Arc::new(Ongoing::new(Arc::<Hands>::clone(&clock)));
        let who = ("alice", "192.0.2.1:7");
        let file = ongoing.watch(who, "write a file", b"/data/f", false);
        let tree = ongoing.watch(who, "remove a tree", b"/data/t", true);
        pass(100);
        assert_eq!(ongoing.look(), 0);
        file.during(|| {
            pass(9);
            assert_eq!(ongoing.look(), 0);
            pass(1);
            assert_eq!([ongoing.look(), ongoing.look()], [1, 0]);
        });
        // Another call of the same file.
        tree.during(|| {
            file.during(|| {
                pass(10);
                assert_eq!(ongoing.look(), 1);
            });
            pass(110);
            assert_eq!(ongoing.look(), 1);
            // At a stop it is logged once more, when the sessions should have ended.
            ongoing.end(Duration::from_secs(5));
            pass(6);
            assert_eq!(ongoing.look(), 0);
            pass(1);
            assert_eq!([ongoing.look(), ongoing.look()], [1, 0]);
        });
        drop((file, tree));
        assert!(ongoing.entries().all.is_empty());
    }
}
