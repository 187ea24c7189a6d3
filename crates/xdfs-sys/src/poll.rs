//! Readiness: one [`Poller`] a thread over epoll, kqueue or IOCP, with events that other threads
//! and in-process transports can inject.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Names what became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub usize);

/// One readiness, edge-triggered: it comes once, after which the owner has to go on until
/// `WouldBlock` before it can expect another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What was registered.
    pub token: Token,
    /// Reading, or accepting, may succeed. Also set when the peer closed or the transport failed.
    pub readable: bool,
    /// Writing may succeed. Also set when the transport failed.
    pub writable: bool,
}

const WAKE: mio::Token = mio::Token(usize::MAX);

/// Waits for readiness.
pub struct Poller {
    poll: mio::Poll,
    events: mio::Events,
    injected: Arc<Injected>,
}

struct Injected {
    waker: mio::Waker,
    queue: Mutex<Vec<Event>>,
}

/// Injects events into a [`Poller`] from anywhere.
#[derive(Clone)]
pub struct Notifier(Arc<Injected>);

impl Poller {
    /// A new poller.
    ///
    /// # Errors
    /// What the system says, for instance that no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKE)?;
        Ok(Self {
            poll,
            events: mio::Events::with_capacity(1024),
            injected: Arc::new(Injected {
                waker,
                queue: Mutex::new(Vec::new()),
            }),
        })
    }

    /// Where sources of the system are registered.
    #[must_use]
    pub fn registry(&self) -> &mio::Registry {
        self.poll.registry()
    }

    /// A handle that injects events.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier(Arc::clone(&self.injected))
    }

    /// Waits until something is ready or `timeout` is over, and appends what is ready to `out`.
    /// An interruption by a signal is no error and may return early.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&mut self, out: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(e) => return Err(e),
        }
        for event in &self.events {
            if event.token() == WAKE {
                continue;
            }
            let failed = event.is_error();
            out.push(Event {
                token: Token(event.token().0),
                readable: event.is_readable() || event.is_read_closed() || failed,
                writable: event.is_writable() || event.is_write_closed() || failed,
            });
        }
        let mut queue = self
            .injected
            .queue
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        out.append(&mut queue);
        Ok(())
    }
}

impl Notifier {
    /// Makes the poller report `event`, and wakes it.
    pub fn notify(&self, event: Event) {
        let mut queue = self.0.queue.lock().unwrap_or_else(|e| e.into_inner());
        let first = queue.is_empty();
        queue.push(event);
        drop(queue);
        if first {
            // A poller that is gone needs no waking.
            let _ = self.0.waker.wake();
        }
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").finish_non_exhaustive()
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}
