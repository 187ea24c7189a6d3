//! Passive opens in memory, and the registry of names.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use xdfs_sys::poll::{Event, Notifier, Poller, Token};

use super::stream::MemoryStream;
use crate::endpoint::Endpoint;
use crate::socket::BACKLOG;
use crate::stream::{Listener, Stream};

/// Listeners by name. Locked before a queue, never the other way round.
static NAMES: LazyLock<Mutex<HashMap<String, Arc<Queue>>>> = LazyLock::new(Mutex::default);

fn names() -> MutexGuard<'static, HashMap<String, Arc<Queue>>> {
    NAMES.lock().unwrap_or_else(|e| e.into_inner())
}

/// Channels waiting to be accepted.
#[derive(Debug, Default)]
struct Queue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    streams: VecDeque<MemoryStream>,
    registered: Option<(Notifier, Token)>,
    /// Number of channels so far, for the names of connecting ends.
    count: u64,
}

impl Waiting {
    fn wake(&self) {
        if let Some((notifier, token)) = &self.registered {
            notifier.notify(Event {
                token: *token,
                readable: true,
                writable: false,
            });
        }
    }
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Listens under a name within this process. Dropping it frees the name.
#[derive(Debug)]
pub struct MemoryListener {
    name: String,
    queue: Arc<Queue>,
}

impl MemoryListener {
    /// Listens under `name`.
    ///
    /// # Errors
    /// `AddrInUse` if the name is taken.
    pub fn listen(name: &str) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let mut names = names();
        if names.contains_key(name) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        names.insert(name.to_owned(), Arc::clone(&queue));
        Ok(Self {
            name: name.to_owned(),
            queue,
        })
    }
}

/// Connects to the listener called `name`. The channel is connected at once.
///
/// # Errors
/// `ConnectionRefused` if there is no such listener, `ResourceBusy` if its queue is full.
pub(super) fn connect(name: &str) -> io::Result<MemoryStream> {
    // The registry stays locked: otherwise a listener dropped meanwhile would leave the channel in
    // an abandoned queue.
    let names = names();
    let queue = names.get(name).ok_or(io::ErrorKind::ConnectionRefused)?;
    let mut waiting = queue.waiting();
    if waiting.streams.len() >= BACKLOG as usize {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the listener's queue is full",
        ));
    }
    let listener = Endpoint::memory(name).to_string();
    let client = format!("{listener}#{}", waiting.count);
    waiting.count += 1;
    let (near, far) = MemoryStream::pair(listener, client);
    waiting.streams.push_back(far);
    waiting.wake();
    Ok(near)
}

impl Listener for MemoryListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        match self.queue.waiting().streams.pop_front() {
            Some(stream) => Ok(Box::new(stream)),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let mut waiting = self.queue.waiting();
        waiting.registered = Some((poller.notifier(), token));
        if !waiting.streams.is_empty() {
            waiting.wake();
        }
        Ok(())
    }

    fn local_endpoint(&self) -> Endpoint {
        Endpoint::memory(self.name.as_str())
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        names().remove(&self.name);
        // Channels that were not accepted are dropped outside of the locks.
        let rest = std::mem::take(&mut self.queue.waiting().streams);
        drop(rest);
    }
}
