//! Guards of a running copy: one for its end, and one for that of its session.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};

use super::state::Copy;
use crate::client::Client;

/// Time in which a cancelled copy ends in an orderly way.
const ORDERLY: Duration = Duration::from_secs(5);
/// Interval of looks at whether it is cancelled.
const TICK: Duration = Duration::from_millis(100);

/// The end of a copy whose thread panics: it would count as running for ever.
pub(super) struct EndGuard(pub(super) Arc<Copy>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        if self.0.ended_for().is_none() {
            let cause = "its thread has failed";
            self.0.fail(Fault::new(Code::Internal, "copy", cause));
        }
    }
}

/// A thread that stops the session of a cancelled copy, which may wait for an answer that the other
/// server withholds. It ends with this.
pub(super) struct Watch {
    _over: Sender<()>,
}

impl Watch {
    /// Starts to watch over the session of this client.
    pub(super) fn over(copy: &Arc<Copy>, client: &Arc<Client>) -> Result<Self, Fault> {
        let client = Arc::downgrade(client);
        Self::start(copy, ORDERLY, move || {
            if let Some(client) = client.upgrade() {
                client.stop();
            }
        })
    }

    /// Starts to watch; `stop` is called once the copy has been cancelled for this long.
    fn start(
        copy: &Arc<Copy>,
        orderly: Duration,
        stop: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Fault> {
        let (over, is_over) = mpsc::channel::<()>();
        let copy = Arc::clone(copy);
        let watch = move || {
            let mut since = None;
            while is_over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if copy.is_cancelled()
                    && since.get_or_insert_with(Instant::now).elapsed() >= orderly
                {
                    return stop();
                }
            }
        };
        let thread = thread::Builder::new().name("xdfs-watch".into());
        thread
            .spawn(watch)
            .map_err(|error| Fault::from_io("start the thread of a copy", "", &error))?;
        Ok(Self { _over: over })
    }
}

#[cfg(test)]
mod tests {
    use std::panic;

    use xdfs_proto::third_party::CopyState;

    use super::*;

    /// Longest wait on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn copy() -> Arc<Copy> {
        Arc::new(Copy::new(Instant::now()))
    }

    #[test]
    fn a_cancelled_copy_that_does_not_end_has_its_session_stopped() {
        let copy = copy();
        let (stop, stopped) = mpsc::channel();
        let began = Instant::now();
        let orderly = Duration::from_millis(300);
        let watch = Watch::start(&copy, orderly, move || stop.send(Instant::now()).unwrap());
        let watch = watch.unwrap();
        // It isn't wanted any more while the session waits for an answer.
        copy.cancel();
        let at = stopped.recv_timeout(PATIENCE).unwrap();
        assert!(at - began >= orderly);
        drop(watch);
    }

    #[test]
    fn a_session_is_stopped_neither_while_its_copy_is_wanted_nor_after_its_end() {
        let (wanted, ended) = (copy(), copy());
        for copy in [&wanted, &ended] {
            let (stop, stopped) = mpsc::channel::<()>();
            let kept = stop.clone();
            let orderly = match Arc::ptr_eq(copy, &wanted) {
                true => Duration::ZERO,
                false => PATIENCE,
            };
            let watch = Watch::start(copy, orderly, move || stop.send(()).unwrap()).unwrap();
            if Arc::ptr_eq(copy, &ended) {
                copy.cancel();
            }
            let heard = stopped.recv_timeout(TICK * 3);
            assert_eq!(heard, Err(RecvTimeoutError::Timeout));
            // The thread ends with the copy.
            drop((watch, kept));
            let heard = stopped.recv_timeout(PATIENCE);
            assert_eq!(heard, Err(RecvTimeoutError::Disconnected));
        }
    }

    #[test]
    fn a_copy_whose_thread_panics_has_failed() {
        let copy = copy();
        let guard = EndGuard(Arc::clone(&copy));
        let panicked = panic::catch_unwind(panic::AssertUnwindSafe(move || {
            let _guard = guard;
            panic!("on purpose");
        }));
        assert!(panicked.is_err() && copy.ended_for().is_some());
        let status = copy.status();
        assert!(status.state.is_failure());
        assert_eq!(status.fault.unwrap().code, Code::Internal);
        // The end that it has reported stays.
        let copy = self::copy();
        copy.fail(Fault::new(Code::Cancelled, "copy", "it was cancelled"));
        drop(EndGuard(Arc::clone(&copy)));
        assert_eq!(copy.status().state, CopyState::Failed);
        assert_eq!(copy.status().fault.unwrap().code, Code::Cancelled);
    }
}
