//! Passive opens in memory, and the registry of names.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use xdfs_sys::poll::{Poller, Token};

use super::stream::MemoryStream;
use crate::endpoint::Endpoint;
use crate::queue::Queue;
use crate::socket::BACKLOG;
use crate::stream::{Listener, Stream};

/// The channels that wait to be accepted, by the names of their listeners.
type Names = HashMap<String, Arc<Queue<MemoryStream>>>;

/// Locked before a queue, never the other way round.
static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

/// Number of channels so far, for the names of connecting ends.
static COUNT: AtomicU64 = AtomicU64::new(0);

fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(|e| e.into_inner())
}

/// Listens under a name within this process. Dropping it frees the name.
#[derive(Debug)]
pub struct MemoryListener {
    name: String,
    queue: Arc<Queue<MemoryStream>>,
}

impl MemoryListener {
    /// Listens under `name`.
    ///
    /// # Errors
    /// `AddrInUse` if the name is taken.
    pub fn listen(name: &str) -> io::Result<Self> {
        let queue = Arc::new(Queue::new(BACKLOG as usize));
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
    let listener = Endpoint::memory(name).to_string();
    let client = format!("{listener}#{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let (near, far) = MemoryStream::pair(listener, client);
    queue
        .push(far)
        .map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "the listener's queue is full"))?;
    Ok(near)
}

impl Listener for MemoryListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        match self.queue.pop() {
            Some(stream) => Ok(Box::new(stream)),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.queue.register(poller.notifier(), token);
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
        drop(self.queue.close());
    }
}
