//! The end of the threads that a session has beside its pipeline.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the end of a session waits for what its threads are at.
const FAREWELL: Duration = Duration::from_secs(2);

/// Waits for the end of threads that tell on `done` what they do, `what` by name. Those that are
/// still at work after a short time are left behind, and end with what they do.
pub(crate) fn part<T>(what: &str, done: &mpsc::Receiver<T>, handles: Vec<JoinHandle<()>>) {
    if handles.is_empty() {
        return;
    }
    let deadline = Instant::now() + FAREWELL;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match done.recv_timeout(left) {
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("{what} outlive their session: the file system holds them");
                return;
            }
        }
    }
    for handle in handles {
        if handle.join().is_err() {
            tracing::error!("a thread for {what} panicked");
        }
    }
}
