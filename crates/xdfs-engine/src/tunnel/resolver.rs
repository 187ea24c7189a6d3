//! Looks host names up: a blocking call of the system, in a few threads.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use xdfs_sys::poll::Notifier;

use crate::environment::{self, Environment, Task, Turn};

/// Threads that look names up: a slow name server delays this many names at once.
const THREADS: usize = 4;
/// Names of one peer's host that are looked up at once.
const SHARE: usize = THREADS / 2;
/// Names that wait for a thread.
const QUEUE_MAX: usize = 1024;
/// Addresses of a name that are used.
const ADDRESSES_MAX: usize = 16;

/// The result of a look-up, with the number of its request.
pub(super) type Resolved = (u64, io::Result<Vec<IpAddr>>);

/// The threads; they end when this is dropped.
#[derive(Debug)]
struct Resolver {
    names: mpsc::SyncSender<(u64, String)>,
}

impl Resolver {
    /// Starts the threads. They send results to `results`, and wake `notifier`.
    fn start(
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
    fn resolve(&self, number: u64, name: String) -> io::Result<()> {
        let sent = self.names.try_send((number, name));
        sent.map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "too many names wait"))
    }
}

/// The names that peers want to be looked up, each host's in its turn: a name server that is
/// silent, or one that a peer has made so, must not stop those of others.
#[derive(Debug)]
pub(super) struct Lookups {
    resolver: Resolver,
    /// By the hosts of the peers.
    hosts: HashMap<String, Share>,
}

/// The names of one host, with the keys of their tunnels.
#[derive(Debug, Default)]
struct Share {
    running: Vec<u64>,
    waiting: VecDeque<(u64, String)>,
}

/// What could not be handed to the resolver.
type Failed = Vec<(u64, io::Error)>;

impl Lookups {
    /// Starts the resolver; see [`Resolver::start`].
    pub(super) fn start(
        environment: &dyn Environment,
        results: &mpsc::Sender<Resolved>,
        notifier: &Notifier,
    ) -> io::Result<Self> {
        Ok(Self {
            resolver: Resolver::start(environment, results, notifier)?,
            hosts: HashMap::new(),
        })
    }

    /// Adds a name of a host, if `is_wanted` says of its tunnel's key that somebody waits for it
    /// when its turn comes.
    pub(super) fn add(
        &mut self,
        host: String,
        name: (u64, String),
        is_wanted: impl Fn(u64) -> bool,
    ) -> Failed {
        let share = self.hosts.entry(host.clone()).or_default();
        share.waiting.push_back(name);
        self.hand_over(&host, is_wanted)
    }

    /// The resolver is done with the name of this key.
    pub(super) fn done(&mut self, key: u64, is_wanted: impl Fn(u64) -> bool) -> Failed {
        let mut hosts = self.hosts.iter_mut();
        let Some((host, share)) = hosts.find(|(_, share)| share.running.contains(&key)) else {
            return Vec::new();
        };
        share.running.retain(|running| *running != key);
        let host = host.clone();
        self.hand_over(&host, is_wanted)
    }

    /// Forgets names that nobody waits for.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(u64) -> bool) {
        for share in self.hosts.values_mut() {
            share.waiting.retain(|(key, _)| is_wanted(*key));
        }
    }

    /// Hands names of a host to the resolver, as many as are its share.
    fn hand_over(&mut self, host: &str, is_wanted: impl Fn(u64) -> bool) -> Failed {
        let mut failed = Vec::new();
        let Some(share) = self.hosts.get_mut(host) else {
            return failed;
        };
        while share.running.len() < SHARE
            && let Some((key, name)) = share.waiting.pop_front()
        {
            if !is_wanted(key) {
                continue;
            }
            match self.resolver.resolve(key, name) {
                Ok(()) => share.running.push(key),
                Err(error) => failed.push((key, error)),
            }
        }
        if share.running.is_empty() && share.waiting.is_empty() {
            self.hosts.remove(host);
        }
        failed
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
