//! Readiness: one [`Poller`] per thread over epoll, kqueue or IOCP, with events injected by other
//! threads and in-process transports.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Identifies a registered source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub usize);

/// Whether the peer of a stream socket has ended its side, or the connection is lost, even while
/// bytes of before are still to be read.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] on systems that don't tell; any error of the system call.
#[cfg(target_os = "linux")]
pub fn has_peer_ended(socket: &impl std::os::fd::AsFd) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut one = [PollFd::new(socket, ended)];
    poll(&mut one, Some(&Timespec::default()))?;
    Ok(one[0].revents().intersects(ended))
}

/// Whether the peer of a stream socket has ended its side.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`]: this system doesn't tell.
#[cfg(not(target_os = "linux"))]
pub fn has_peer_ended<T>(_socket: &T) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Marks the token of a source that is one of several behind a token.
const MERGED: usize = 1 << (usize::BITS - 2);

impl Token {
    /// The token for one of several sources that stand behind this one, as the parallel streams of
    /// one channel do. Their events are reported under this token, and each as readable and
    /// writable, since news of any source may allow either.
    #[must_use]
    pub fn merged(self) -> Self {
        Self(self.0 | MERGED)
    }
}

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
    /// None in a handle made by [`Poller::handle`].
    poll: Option<mio::Poll>,
    registry: Arc<mio::Registry>,
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
            registry: Arc::new(poll.registry().try_clone()?),
            poll: Some(poll),
            events: mio::Events::with_capacity(1024),
            injected: Arc::new(Injected {
                waker,
                queue: Mutex::new(Vec::new()),
            }),
        })
    }

    /// Another handle on this poller, with which any thread registers sources. It can't wait:
    /// [`Poller::wait`] fails with [`io::ErrorKind::Unsupported`].
    #[must_use]
    pub fn handle(&self) -> Self {
        Self {
            poll: None,
            registry: Arc::clone(&self.registry),
            events: mio::Events::with_capacity(0),
            injected: Arc::clone(&self.injected),
        }
    }

    /// Registers sources of the system.
    #[must_use]
    pub fn registry(&self) -> &mio::Registry {
        &self.registry
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
        let poll = self.poll.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        let before = out.len();
        match poll.poll(&mut self.events, timeout) {
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
        drop(queue);
        for event in &mut out[before..] {
            if event.token.0 & MERGED != 0 {
                event.token.0 &= !MERGED;
                (event.readable, event.writable) = (true, true);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_behind_a_merged_token_allow_either() {
        let mut poller = Poller::new().unwrap();
        let readable = |token| Event {
            token,
            readable: true,
            writable: false,
        };
        poller.notifier().notify(readable(Token(7).merged()));
        poller.notifier().notify(readable(Token(8)));
        let mut out = Vec::new();
        poller.wait(&mut out, Some(Duration::ZERO)).unwrap();
        let both = Event {
            writable: true,
            ..readable(Token(7))
        };
        assert_eq!(out, [both, readable(Token(8))]);
    }

    #[test]
    fn a_handle_registers_from_another_thread_and_does_not_wait() {
        let mut poller = Poller::new().unwrap();
        let mut handle = poller.handle();
        let waits = handle.wait(&mut Vec::new(), Some(Duration::ZERO));
        assert_eq!(waits.unwrap_err().kind(), io::ErrorKind::Unsupported);
        let mut listener = mio::net::TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let interest = mio::Interest::READABLE;
            let token = mio::Token(Token(3).merged().0);
            handle
                .registry()
                .register(&mut listener, token, interest)
                .unwrap();
            (listener, handle)
        });
        let _kept = other.join().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        let mut out = Vec::new();
        while out.is_empty() {
            poller
                .wait(&mut out, Some(Duration::from_secs(30)))
                .unwrap();
        }
        assert_eq!(out[0].token, Token(3));
        assert!(out[0].writable);
    }
}
