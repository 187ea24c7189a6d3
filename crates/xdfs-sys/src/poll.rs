//! Readiness: one [`Poller`] per thread over epoll, kqueue or IOCP, with events injected by other
//! threads and in-process transports.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Identifies a registered source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub usize);

/// A readiness event, edge-triggered: reported once; the owner must continue until `WouldBlock`
/// before it can expect another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token of the source.
    pub token: Token,
    /// Reading, or accepting, may succeed. Also set after the peer has closed or the transport has
    /// failed.
    pub readable: bool,
    /// Writing may succeed. Also set after the transport has failed.
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

/// Injects events into a [`Poller`] from any thread.
#[derive(Clone)]
pub struct Notifier(Arc<Injected>);

impl Poller {
    /// A new poller.
    ///
    /// # Errors
    /// Any error of the system call, for instance that no descriptors are left.
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

    /// Registers sources of the system.
    #[must_use]
    pub fn registry(&self) -> &mio::Registry {
        self.poll.registry()
    }

    /// A handle for injecting events.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier(Arc::clone(&self.injected))
    }

    /// Waits until something is ready or `timeout` has passed, and appends events to `out`. A
    /// signal is no error and may end the wait early.
    ///
    /// # Errors
    /// Any error of the system call.
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
            // Fails only if the poller is gone.
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
