//! Removal of old unfinished transfers, in a thread beside the server's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xdfs_proto::Fault;
use xdfs_security::export::Exports;

use crate::security::CurrentRules;

/// The longest and the shortest time between two walks of what is served.
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Where to look for them.
#[derive(Clone, Debug)]
pub(crate) enum Served {
    /// The exports of the rules at the time.
    ByRules(Weak<CurrentRules>),
    /// The root of a server without users.
    Root(Exports),
}

impl Served {
    fn exports(&self) -> Option<Exports> {
        match self {
            Self::ByRules(rules) => Some(rules.upgrade()?.exports()),
            Self::Root(exports) => Some(exports.clone()),
        }
    }
}

/// Removes old unfinished transfers as long as it lives.
#[derive(Debug)]
pub(crate) struct Expiry {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// Closed at the end, to wake the thread.
    wake: Option<Sender<()>>,
}

impl Expiry {
    /// Starts to discard transfers that haven't changed for `age`.
    pub(crate) fn start(served: Served, age: Duration) -> Result<Self, Fault> {
        let stop = Arc::new(AtomicBool::new(false));
        let (wake, woken) = mpsc::channel();
        let is_stopped = Arc::clone(&stop);
        let interval = (age / 4).clamp(INTERVAL_MIN, INTERVAL_MAX);
        let run = move || {
            loop {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let before = now.unwrap_or_default().saturating_sub(age);
                let before_ns = i64::try_from(before.as_nanos()).unwrap_or(i64::MAX);
                let Some(exports) = served.exports() else {
                    return;
                };
                let count =
                    exports.expire_partial(before_ns, &|| !is_stopped.load(Ordering::Relaxed));
                tracing::debug!(count, "looked for unfinished transfers to remove");
                if woken.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("xdfs-expiry".into()).spawn(run);
        let thread = thread.map_err(|e| Fault::from_io("start a thread", "", &e))?;
        Ok(Self {
            thread: Some(thread),
            stop,
            wake: Some(wake),
        })
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported.
            let _ = thread.join();
        }
    }
}
