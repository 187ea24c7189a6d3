//! One operation: attempts, and waits between them, by a thread or by a task.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::reactor::{self, Timer, Watched};
use super::readiness::{Interest, Waiting};
use super::wait::{Wait, timed_out};

/// The result of an attempt.
pub(super) enum Step<T> {
    /// The operation is over.
    Done(io::Result<T>),
    /// It has to wait.
    Blocked(Interest),
}

/// Runs an operation on the calling thread.
///
/// A source with a descriptor is waited for by poll(2), which costs one system call and no switch
/// to another thread; any other is watched by the reactor. With `first`, it waits before the first
/// attempt too: an attempt that would have to be repeated costs a system call.
pub(super) fn block<W: Watched, T>(
    watched: &Arc<W>,
    wait: &Wait,
    first: Option<Interest>,
    mut attempt: impl FnMut() -> Step<T> + Unpin,
) -> io::Result<T> {
    #[cfg(unix)]
    if let (Some(interest), Some(descriptor)) = (first, watched.source().descriptor()) {
        wait.check_cancelled()?;
        descriptor::wait(descriptor, interest, wait)?;
    }
    #[cfg(unix)]
    loop {
        wait.check_cancelled()?;
        match attempt() {
            Step::Done(done) => return done,
            Step::Blocked(interest) => match watched.source().descriptor() {
                Some(descriptor) => {
                    reactor::release(watched);
                    descriptor::wait(descriptor, interest, wait)?;
                }
                None => break,
            },
        }
    }
    block_on(Operation::new(Arc::clone(watched), wait.clone(), attempt))
}

/// An operation as a future. Dropping it ends the wait; an attempt is never left half-way.
pub(super) struct Operation<W, A> {
    watched: Arc<W>,
    wait: Wait,
    attempt: A,
    pending: Option<(Waiting, Option<Waiting>)>,
    timer: Option<Timer>,
}

impl<W: Watched, A> Operation<W, A> {
    pub(super) fn new(watched: Arc<W>, wait: Wait, attempt: A) -> Self {
        Self {
            watched,
            wait,
            attempt,
            pending: None,
            timer: None,
        }
    }
}

impl<W: Watched, A: FnMut() -> Step<T> + Unpin, T> Future for Operation<W, A> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.pending = None;
        let done = self.advance(context.waker());
        match done {
            Ok(None) => Poll::Pending,
            Ok(Some(done)) => Poll::Ready(Ok(done)),
            Err(e) => Poll::Ready(Err(e)),
        }
    }
}

impl<W: Watched, A: FnMut() -> Step<T> + Unpin, T> Operation<W, A> {
    /// `None` after it has arranged to be woken.
    fn advance(&mut self, waker: &Waker) -> io::Result<Option<T>> {
        loop {
            let cancelled = self
                .wait
                .canceller()
                .map(|c| (c.readiness(), c.readiness().seen()));
            self.wait.check_cancelled()?;
            let readiness = &self.watched.source().readiness;
            let seen = readiness.seen();
            let interest = match (self.attempt)() {
                Step::Done(done) => return done.map(Some),
                Step::Blocked(interest) => interest,
            };
            if let Some(failure) = readiness.failure() {
                return Err(failure);
            }
            self.wait.left()?;
            reactor::watch(&self.watched)?;
            self.timer = match self.wait.deadline() {
                Some(at) => Some(Timer::start(at, waker)?),
                None => None,
            };
            let Some(event) = readiness.wait(interest, seen, waker) else {
                continue;
            };
            let cancellation = match cancelled {
                Some((readiness, seen)) => match readiness.wait(Interest::ANY, seen, waker) {
                    Some(waiting) => Some(waiting),
                    None => continue,
                },
                None => None,
            };
            self.pending = Some((event, cancellation));
            return Ok(None);
        }
    }
}

/// Runs a future on the calling thread.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Parked(std::thread::Thread);

    impl Wake for Parked {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Parked(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(unix)]
mod descriptor {
    use std::os::fd::OwnedFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Waits until `descriptor` is ready as `interest` says. It may return early.
    pub(super) fn wait(descriptor: &OwnedFd, interest: Interest, wait: &Wait) -> io::Result<()> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, interest.readable);
        flags.set(PollFlags::OUT, interest.writable);
        let left = match wait.left()? {
            Some(left) => Some(Timespec::try_from(left).map_err(|_| timed_out())?),
            None => None,
        };
        let source = PollFd::new(descriptor, flags);
        let polled = match wait.canceller() {
            None => poll(&mut [source], left.as_ref()),
            Some(canceller) => {
                let end = canceller.pipe()?;
                wait.check_cancelled()?;
                poll(
                    &mut [source, PollFd::new(end, PollFlags::IN)],
                    left.as_ref(),
                )
            }
        };
        match polled {
            Ok(0) => wait.left().map(|_| ()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}
