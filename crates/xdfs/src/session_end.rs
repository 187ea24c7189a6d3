//! The reason of a session's end, for users that the session can no longer notify.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use xdfs_proto::{Code, Fault, Machine, Retry};

/// The reason of a session's end. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionEnd(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The server of the session.
    machine: Option<Machine>,
    fault: OnceLock<Fault>,
    /// Tasks that wait for the reason.
    waiting: Mutex<Vec<Waker>>,
}

/// Reports the end of the session, at the latest when it is dropped.
#[derive(Debug)]
pub(crate) struct EndReporter(SessionEnd);

impl SessionEnd {
    /// Of a session with this server.
    pub(crate) fn of(machine: Machine) -> Self {
        Self(Arc::new(Shared {
            machine: Some(machine),
            ..Shared::default()
        }))
    }

    /// A fault of the session, with its server named if it arose there. All faults of a session
    /// come by here.
    pub(crate) fn named(&self, fault: Fault) -> Fault {
        match &self.0.machine {
            Some(machine) => fault.at(machine),
            None => fault,
        }
    }

    /// The reporter, for the session's thread.
    pub(crate) fn end_reporter(&self) -> EndReporter {
        EndReporter(self.clone())
    }

    /// The reason, if the session has ended.
    pub(crate) fn known(&self) -> Option<Fault> {
        self.0.fault.get().cloned()
    }

    /// Waits for the reason. To be called only when the session's thread is about to end.
    pub(crate) fn fault(&self) -> Fault {
        self.0.fault.wait().clone()
    }

    /// Polls for the reason; the waker is woken when it is known.
    pub(crate) fn poll_fault(&self, waker: &Waker) -> Poll<Fault> {
        let mut waiting = self.lock();
        match self.known() {
            Some(fault) => Poll::Ready(fault),
            None => {
                if !waiting.iter().any(|one| one.will_wake(waker)) {
                    waiting.push(waker.clone());
                }
                Poll::Pending
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, fault: Fault) {
        // The first one counts.
        let _ = self.0.fault.set(self.named(fault));
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl EndReporter {
    /// Reports the result of the session.
    pub(crate) fn report(self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.0.set(fault);
        }
    }
}

impl Drop for EndReporter {
    fn drop(&mut self) {
        // The session has ended in order, or its thread has panicked.
        self.0.set(session_gone());
    }
}

fn session_gone() -> Fault {
    Fault::new(Code::ConnectionLost, "keep the connection", "it has ended")
        .retry(Retry::AfterMs(200))
        .ending_session()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn every_task_that_waits_is_woken_and_hears_the_first_fault() {
        let end = SessionEnd::default();
        let end_reporter = end.end_reporter();
        let woken = [(); 3].map(|()| Arc::new(Woken::default()));
        // Twice, like a task polled for another reason.
        for one in woken.iter().chain(&woken) {
            let waker = Waker::from(Arc::clone(one));
            assert!(end.poll_fault(&waker).is_pending());
        }
        assert_eq!(end.lock().len(), 3);
        end_reporter.report(Err(Fault::new(Code::Io, "read", "broken")));
        for one in woken {
            assert_eq!(one.0.load(Ordering::SeqCst), 1);
            let waker = Waker::from(one);
            let polled = end.poll_fault(&waker);
            assert!(matches!(polled, Poll::Ready(fault) if fault.code == Code::Io));
        }
        assert_eq!(end.fault().code, Code::Io);
    }

    #[test]
    fn a_session_that_tells_nothing_has_ended_too() {
        let end = SessionEnd::default();
        drop(end.end_reporter());
        assert_eq!(end.known().unwrap().code, Code::ConnectionLost);
    }
}
