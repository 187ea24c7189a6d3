//! The thread that watches sources for those that can't wait on a descriptor: futures, and streams
//! without one.
//!
//! One thread for the process, started by the first that needs it. It holds the only poller, so
//! sources are registered by requests; a registration reports what is ready already, and therefore
//! nobody waits for its completion.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::task::Waker;
use std::time::Instant;

#[cfg(unix)]
use std::os::fd::{BorrowedFd, OwnedFd};

use xdfs_sys::poll::{Event, Notifier, Poller, Token};

use super::readiness::Readiness;

/// The token of requests; sources begin above it.
const REQUESTS: usize = 0;
/// The token of a source that the reactor doesn't watch, because others notify it.
const OTHERS: usize = usize::MAX - 1;

/// What can be waited for.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) readiness: Arc<Readiness>,
    /// 0 until it is registered.
    token: AtomicUsize,
    /// A copy of the stream's descriptor, so that a thread can wait on it without the stream.
    #[cfg(unix)]
    descriptor: OnceLock<OwnedFd>,
}

/// Something with a source, which a poller can watch.
pub(super) trait Watched: Send + Sync + 'static {
    fn source(&self) -> &Source;
    fn register(&self, poller: &mut Poller, token: Token) -> io::Result<()>;
    fn deregister(&self, poller: &mut Poller);
}

impl Source {
    /// A source that is notified by its maker.
    pub(super) fn notified() -> Self {
        let source = Self::default();
        source.token.store(OTHERS, Ordering::SeqCst);
        source
    }

    #[cfg(unix)]
    pub(super) fn descriptor(&self) -> Option<&OwnedFd> {
        self.descriptor.get()
    }

    /// Keeps a copy of the stream's descriptor. Without descriptors left, the reactor watches.
    #[cfg(unix)]
    pub(super) fn keep_descriptor(&self, descriptor: Option<BorrowedFd<'_>>) {
        if self.descriptor.get().is_none()
            && let Some(descriptor) = descriptor
            && let Ok(copy) = descriptor.try_clone_to_owned()
        {
            // Lost only to a copy of the same descriptor.
            let _ = self.descriptor.set(copy);
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let token = *self.token.get_mut();
        if token != 0
            && token != OTHERS
            && let Some(Ok(reactor)) = REACTOR.get()
        {
            reactor.state().sources.remove(&token);
        }
    }
}

static REACTOR: OnceLock<Result<Reactor, (io::ErrorKind, String)>> = OnceLock::new();

struct Reactor {
    notifier: Notifier,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sources: HashMap<usize, Arc<Readiness>>,
    requests: Vec<Request>,
    timers: BTreeMap<(Instant, u64), Waker>,
    last: usize,
    last_timer: u64,
}

enum Request {
    Watch(Weak<dyn Watched>, usize),
    Leave(Arc<dyn Watched>, Sender<()>),
}

impl Reactor {
    fn running() -> io::Result<&'static Self> {
        let started = REACTOR.get_or_init(|| {
            Self::start().map_err(|e| (e.kind(), format!("starting the reactor's thread: {e}")))
        });
        match started {
            Ok(reactor) => Ok(reactor),
            Err((kind, why)) => Err(io::Error::new(*kind, why.as_str())),
        }
    }

    fn start() -> io::Result<Self> {
        let poller = Poller::new()?;
        let notifier = poller.notifier();
        std::thread::Builder::new()
            .name("xdfs-xio".to_owned())
            .spawn(move || run(poller))?;
        let state = Mutex::default();
        Ok(Self { notifier, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Makes the thread look at its requests and timers.
    fn wake(&self) {
        self.notifier.notify(Event {
            token: Token(REQUESTS),
            readable: true,
            writable: false,
        });
    }
}

/// Has the reactor watch the source of `watched`.
pub(super) fn watch<W: Watched>(watched: &Arc<W>) -> io::Result<()> {
    let source = watched.source();
    if source.token.load(Ordering::SeqCst) != 0 {
        return Ok(());
    }
    let reactor = Reactor::running()?;
    let mut state = reactor.state();
    if source.token.load(Ordering::SeqCst) != 0 {
        return Ok(());
    }
    state.last += 1;
    let token = state.last;
    source.token.store(token, Ordering::SeqCst);
    state.sources.insert(token, Arc::clone(&source.readiness));
    let weak: Weak<dyn Watched> = Arc::downgrade(&(Arc::clone(watched) as Arc<dyn Watched>));
    state.requests.push(Request::Watch(weak, token));
    drop(state);
    reactor.wake();
    Ok(())
}

/// Ends the watching of a source. The poller has forgotten it when the receiver gets the answer.
pub(super) fn leave<W: Watched>(watched: &Arc<W>) -> Option<Receiver<()>> {
    let source = watched.source();
    let Some(Ok(reactor)) = REACTOR.get() else {
        return None;
    };
    let (done, left) = channel();
    // Under the lock, so that a new request to watch it comes after this one.
    let mut state = reactor.state();
    let token = source.token.load(Ordering::SeqCst);
    if token == 0 || token == OTHERS {
        return None;
    }
    source.token.store(0, Ordering::SeqCst);
    state.sources.remove(&token);
    let watched = Arc::clone(watched) as Arc<dyn Watched>;
    state.requests.push(Request::Leave(watched, done));
    drop(state);
    reactor.wake();
    // A task that has just begun to wait asks for it to be watched again.
    source.readiness.notify(true, true);
    Some(left)
}

/// Ends the watching of a source for which no task waits, so that threads waiting on its descriptor
/// don't also wake the reactor.
#[cfg(unix)]
pub(super) fn release<W: Watched>(watched: &Arc<W>) {
    let source = watched.source();
    let token = source.token.load(Ordering::SeqCst);
    if token != 0 && token != OTHERS && !source.readiness.is_awaited() {
        // The poller may report it until then, which wakes nobody.
        drop(leave(watched));
    }
}

/// Wakes a task at a moment. Dropping it stops that.
pub(super) struct Timer(Instant, u64);

impl Timer {
    pub(super) fn start(at: Instant, waker: &Waker) -> io::Result<Self> {
        let reactor = Reactor::running()?;
        let mut state = reactor.state();
        state.last_timer += 1;
        let timer = Self(at, state.last_timer);
        state.timers.insert((at, timer.1), waker.clone());
        let is_first = state.timers.keys().next() == Some(&(at, timer.1));
        drop(state);
        if is_first {
            reactor.wake();
        }
        Ok(timer)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(Ok(reactor)) = REACTOR.get() {
            let waker = reactor.state().timers.remove(&(self.0, self.1));
            drop(waker);
        }
    }
}

/// The reactor's thread. It lives as long as the process.
fn run(mut poller: Poller) {
    // The thread may start before its reactor is stored.
    let reactor = loop {
        match REACTOR.get() {
            Some(Ok(reactor)) => break reactor,
            Some(Err(_)) => return,
            None => std::thread::yield_now(),
        }
    };
    let mut events = Vec::new();
    loop {
        let timeout = {
            let state = reactor.state();
            let first = state.timers.keys().next().map(|(at, _)| *at);
            first.map(|at| at.saturating_duration_since(Instant::now()))
        };
        if let Err(error) = poller.wait(&mut events, timeout) {
            // Only a lack of memory is known to cause this; the next round may succeed.
            tracing::warn!(%error, "waiting for readiness");
            std::thread::yield_now();
        }
        for event in events.drain(..).filter(|e| e.token.0 != REQUESTS) {
            let readiness = reactor.state().sources.get(&event.token.0).cloned();
            if let Some(readiness) = readiness {
                readiness.notify(event.readable, event.writable);
            }
        }
        let (requests, due) = {
            let mut state = reactor.state();
            let later = state.timers.split_off(&(Instant::now(), u64::MAX));
            let due = std::mem::replace(&mut state.timers, later);
            (std::mem::take(&mut state.requests), due)
        };
        for waker in due.into_values() {
            waker.wake();
        }
        for request in requests {
            serve(request, &mut poller);
        }
    }
}

fn serve(request: Request, poller: &mut Poller) {
    match request {
        Request::Watch(watched, token) => {
            let Some(watched) = watched.upgrade() else {
                return;
            };
            // It may have left before the registration.
            if watched.source().token.load(Ordering::SeqCst) == token
                && let Err(error) = watched.register(poller, Token(token))
            {
                watched.source().readiness.fail(&error);
            }
        }
        Request::Leave(watched, done) => {
            watched.deregister(poller);
            // Nobody has to wait for it.
            let _ = done.send(());
        }
    }
}
