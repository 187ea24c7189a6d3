//! Why a session ended, for whoever comes too late to hear it from the session itself.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use xdfs_proto::{Code, Fault, Retry};

/// Why a session ended. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionEnd(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    fault: OnceLock<Fault>,
    /// Tasks that wait for it.
    waiting: Mutex<Vec<Waker>>,
}

/// Tells the end of the session when it is dropped, at the latest.
#[derive(Debug)]
pub(crate) struct EndTeller(SessionEnd);

impl SessionEnd {
    /// The one that tells it.
    pub(crate) fn teller(&self) -> EndTeller {
        EndTeller(self.clone())
    }

    /// Why it ended; `None` as long as it has not.
    pub(crate) fn known(&self) -> Option<Fault> {
        self.0.fault.get().cloned()
    }

    /// Why it ended. To be asked only when its thread has begun to end, for which it waits.
    pub(crate) fn fault(&self) -> Fault {
        self.0.fault.wait().clone()
    }

    /// The same without waiting; the waker is woken when it is known.
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
        let _ = self.0.fault.set(fault);
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl EndTeller {
    /// Tells how it ended.
    pub(crate) fn tell(self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.0.set(fault);
        }
    }
}

impl Drop for EndTeller {
    fn drop(&mut self) {
        // In an orderly way, or by a panic.
        self.0.set(session_gone());
    }
}

fn session_gone() -> Fault {
    Fault::new(
        Code::ConnectionLost,
        "go on with the session",
        "it has ended",
    )
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
        let teller = end.teller();
        let woken = [(); 3].map(|()| Arc::new(Woken::default()));
        // Twice, as a task that is polled for another reason.
        for one in woken.iter().chain(&woken) {
            let waker = Waker::from(Arc::clone(one));
            assert!(end.poll_fault(&waker).is_pending());
        }
        assert_eq!(end.lock().len(), 3);
        teller.tell(Err(Fault::new(Code::Io, "read", "broken")));
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
        drop(end.teller());
        assert_eq!(end.known().unwrap().code, Code::ConnectionLost);
    }
}
