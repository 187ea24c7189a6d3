//! What the clones of a handle share: the stream, and the operations on it that aren't over.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use xdfs_sys::poll::{Poller, Token};

use super::operation::Step;
use super::reactor::{self, Source, Watched};
use super::readiness::Interest;
use crate::stream::Stream;

/// Reads after one that had to wait that are expected to wait too.
const WAITS: usize = 16;

/// The direction of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Reading,
    Writing,
}

/// One attempt of an operation, with the error that the next read returns.
pub(super) type Attempt<'a, T> =
    dyn FnMut(&mut dyn Stream, &mut Option<io::Error>) -> io::Result<T> + 'a;

#[derive(Debug)]
pub(super) struct Shared {
    source: Source,
    state: Mutex<State>,
    /// Operations that aren't over, by direction.
    active: [AtomicUsize; 2],
    /// Set by the one that closes; no operation begins after it.
    is_closing: AtomicBool,
    /// Notified when the last operation of a direction is over while somebody closes.
    pub(super) over: Arc<Over>,
    /// How many reads of a socket without transforms are likely to wait, because one had to.
    waits: AtomicUsize,
    pub(super) peer: String,
}

#[derive(Debug)]
pub(super) struct State {
    /// `None` once it is closed, or its opening has failed.
    pub(super) stream: Option<Box<dyn Stream>>,
    is_open: bool,
    /// An error that came after bytes of the same read, for the next read.
    deferred: Option<io::Error>,
}

/// An operation that isn't over.
#[derive(Debug)]
pub(super) struct Active(Arc<Shared>, Direction);

/// The end of the last operation of a direction, as something to be waited for.
#[derive(Debug)]
pub(super) struct Over(Source);

impl Shared {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            source: Source::default(),
            peer: stream.peer(),
            state: Mutex::new(State {
                stream: Some(stream),
                is_open: false,
                deferred: None,
            }),
            active: [AtomicUsize::new(0), AtomicUsize::new(0)],
            is_closing: AtomicBool::new(false),
            over: Arc::new(Over(Source::notified())),
            waits: AtomicUsize::new(0),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a driver leaves a stream that fails or goes on by itself.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Begins an operation, unless the handle is being closed.
    pub(super) fn begin(self: &Arc<Self>, direction: Direction) -> io::Result<Active> {
        self.active[direction as usize].fetch_add(1, Ordering::SeqCst);
        let active = Active(Arc::clone(self), direction);
        if self.is_closing.load(Ordering::SeqCst) {
            return Err(closed());
        }
        Ok(active)
    }

    /// Starts to close; false if somebody else does already.
    pub(super) fn begin_close(&self) -> bool {
        !self.is_closing.swap(true, Ordering::SeqCst)
    }

    /// Allows operations again, after a close that had to end early.
    pub(super) fn end_close(&self) {
        self.is_closing.store(false, Ordering::SeqCst);
    }

    /// Whether no operation of `direction` is left.
    pub(super) fn is_idle(&self, direction: Direction) -> bool {
        self.active[direction as usize].load(Ordering::SeqCst) == 0
    }

    /// Attempts `operation` once, after the opening. A read that would wait flushes first: the
    /// peer's answer may depend on what a transform still holds.
    pub(super) fn attempt<T>(
        self: &Arc<Self>,
        direction: Direction,
        operation: &mut Attempt<'_, T>,
    ) -> Step<T> {
        let mut state = self.state();
        let State {
            stream: Some(stream),
            is_open,
            deferred,
        } = &mut *state
        else {
            return Step::Done(Err(closed()));
        };
        if !*is_open {
            match stream.finish_open() {
                Ok(true) => *is_open = true,
                Ok(false) => {
                    keep_descriptor(&self.source, &**stream);
                    // A transport that connects gets writable; all others are watched for both.
                    let readable = self.watches_edges();
                    let writable = true;
                    return Step::Blocked(Interest { readable, writable });
                }
                Err(e) => {
                    state.stream = None;
                    return Step::Done(Err(e));
                }
            }
        }
        let result = loop {
            match operation(&mut **stream, deferred) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                done => break done,
            }
        };
        if !matches!(&result, Err(e) if e.kind() == ErrorKind::WouldBlock) {
            return Step::Done(result);
        }
        let readable = direction == Direction::Reading;
        let mut writable = !readable;
        if readable && stream.has_unflushed() {
            match stream.flush() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => writable = true,
                Err(e) => return Step::Done(Err(e)),
                Ok(()) => {}
            }
        }
        keep_descriptor(&self.source, &**stream);
        if readable && stream.tcp_socket().is_some() {
            self.waits.store(WAITS, Ordering::Relaxed);
        }
        drop(state);
        if !self.watches_edges() {
            return Step::Blocked(Interest { readable, writable });
        }
        // A transform may have to write before it can read, and the other way round.
        Step::Blocked(Interest::ANY)
    }

    /// Whether the next read is likely to wait, because one of the last had to. Never with
    /// transforms, which may hold what the descriptor doesn't tell of.
    pub(super) fn is_likely_to_wait(&self) -> bool {
        let left = self.waits.load(Ordering::Relaxed);
        // Nothing but speed depends on the count.
        self.waits.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    /// Whether waits need the reactor.
    fn watches_edges(&self) -> bool {
        #[cfg(unix)]
        return self.source.descriptor().is_none();
        #[cfg(not(unix))]
        true
    }

    /// Takes the stream out of its handle.
    pub(super) fn take(self: &Arc<Self>) -> Option<Box<dyn Stream>> {
        if let Some(left) = reactor::leave(self) {
            // Fails only if the reactor's thread is gone, and its poller with it.
            let _ = left.recv();
        }
        self.state().stream.take()
    }
}

#[cfg(unix)]
fn keep_descriptor(source: &Source, stream: &dyn Stream) {
    source.keep_descriptor(stream.descriptor());
}

#[cfg(not(unix))]
fn keep_descriptor(_: &Source, _: &dyn Stream) {}

pub(super) fn closed() -> io::Error {
    io::Error::new(ErrorKind::NotConnected, "the handle is closed")
}

impl Drop for Active {
    fn drop(&mut self) {
        let Self(shared, direction) = self;
        let before = shared.active[*direction as usize].fetch_sub(1, Ordering::SeqCst);
        if before == 1 && shared.is_closing.load(Ordering::SeqCst) {
            shared.over.0.readiness.notify(true, true);
        }
    }
}

impl Watched for Shared {
    fn source(&self) -> &Source {
        &self.source
    }

    fn register(&self, poller: &mut Poller, token: Token) -> io::Result<()> {
        match &mut self.state().stream {
            Some(stream) => stream.register(poller, token),
            None => Ok(()),
        }
    }

    fn deregister(&self, poller: &mut Poller) {
        if let Some(stream) = &mut self.state().stream {
            // A stream that wasn't registered yet has nothing to withdraw.
            let _ = stream.deregister(poller);
        }
    }
}

impl Watched for Over {
    fn source(&self) -> &Source {
        &self.0
    }

    fn register(&self, _: &mut Poller, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn deregister(&self, _: &mut Poller) {}
}
