//! Looks host names up: a blocking call of the system, in a few threads.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use xdfs_sys::poll::Notifier;

use crate::environment::{self, Environment, Task, Turn};

/// Threads that look names up: a slow name server delays this many names at once.
const THREADS: usize = 4;
/// Names that wait for a thread.
const QUEUE_MAX: usize = 1024;
/// Addresses of a name that are used.
const ADDRESSES_MAX: usize = 16;

/// The result of a look-up, with the number of its request.
pub(super) type Resolved = (u64, io::Result<Vec<IpAddr>>);

/// The threads; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Resolver {
    names: mpsc::SyncSender<(u64, String)>,
}

impl Resolver {
    /// Starts the threads. They send results to `results`, and wake `notifier`.
    pub(super) fn start(
        environment: &dyn Environment,
        results: &mpsc::Sender<Resolved>,
        notifier: &Notifier,
    ) -> io::Result<Self> {
        let (names, queue) = mpsc::sync_channel(QUEUE_MAX);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..THREADS {
            let worker = Worker {
                queue: Arc::clone(&queue),
                results: results.clone(),
                notifier: notifier.clone(),
            };
            environment.start("xdfs-names", Box::new(move || Box::new(worker)))?;
        }
        Ok(Self { names })
    }

    /// Looks `name` up for the request with this number.
    ///
    /// # Errors
    /// Too many names wait.
    pub(super) fn resolve(&self, number: u64, name: String) -> io::Result<()> {
        let sent = self.names.try_send((number, name));
        sent.map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "too many names wait"))
    }
}

struct Worker {
    queue: Arc<Mutex<mpsc::Receiver<(u64, String)>>>,
    results: mpsc::Sender<Resolved>,
    notifier: Notifier,
}

impl Task for Worker {
    fn turn(&mut self) -> Turn {
        // The others wait for the lock as they would for a name.
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let next = queue.recv();
        drop(queue);
        let Ok((number, name)) = next else {
            return Turn::Ended;
        };
        // The port is of no matter.
        let found = (name.as_str(), 0).to_socket_addrs().map(|found| {
            let mut addresses: Vec<IpAddr> = Vec::new();
            for address in found.map(|address| address.ip().to_canonical()) {
                if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            addresses
        });
        // Without the service nobody waits for it.
        let _ = self.results.send((number, found));
        environment::wake(&self.notifier);
        Turn::Again
    }

    fn wait(&mut self, _: Option<Duration>) -> bool {
        true
    }
}
