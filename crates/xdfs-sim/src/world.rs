//! What a run shares: its course, the network, the workers, and what must not happen.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use xdfs_engine::Environment;
use xdfs_engine::environment::MakeTask;

use crate::course::Course;
use crate::network::Network;

/// Where a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The machine of the client.
    Client,
    /// The machine of the server.
    Server,
}

/// A worker that was started and has not had a turn.
pub(crate) struct Started {
    pub(crate) make: MakeTask,
    pub(crate) host: Host,
    pub(crate) name: String,
}

/// The course, the network and the workers of one run.
pub struct World {
    base: Instant,
    course: Course,
    started: Mutex<Vec<Started>>,
    network: Network,
    violations: Mutex<Vec<String>>,
    held: Arc<AtomicUsize>,
    refusals: AtomicU64,
}

impl World {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            base: Instant::now(),
            course: Course::new(seed),
            started: Mutex::default(),
            network: Network::default(),
            violations: Mutex::default(),
            held: Arc::default(),
            refusals: AtomicU64::new(0),
        })
    }

    /// What the engines of a host take from outside.
    #[must_use]
    pub fn environment(self: &Arc<Self>, host: Host) -> Arc<dyn Environment> {
        let world = Arc::clone(self);
        Arc::new(Outside { world, host })
    }

    /// The network between the hosts.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// So many workers in a thousand can't be started.
    pub fn refuse_workers(&self, permille: u64) {
        self.refusals.store(permille, Ordering::Relaxed);
    }

    /// Tells what must not happen and did.
    pub fn violation(&self, what: impl Into<String>) {
        self.violations.lock().unwrap().push(what.into());
    }

    /// What must not happen and did.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    /// Something of a store is open, until what this returns is dropped.
    #[must_use]
    pub fn hold(&self) -> Held {
        self.held.fetch_add(1, Ordering::Relaxed);
        Held(Arc::clone(&self.held))
    }

    /// How many sources, sinks and files are open.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn take_started(&self) -> Vec<Started> {
        std::mem::take(&mut *self.started.lock().unwrap())
    }

    pub(crate) fn has_started(&self) -> bool {
        !self.started.lock().unwrap().is_empty()
    }

    /// Takes the workers of a host out that have not had a turn.
    pub(crate) fn take_started_of(&self, host: Host) -> Vec<Started> {
        let mut started = self.started.lock().unwrap();
        started.extract_if(.., |one| one.host == host).collect()
    }
}

impl Deref for World {
    type Target = Course;

    fn deref(&self) -> &Course {
        &self.course
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("time", &self.time())
            .finish_non_exhaustive()
    }
}

/// Counts what is open, until it is dropped.
#[derive(Debug)]
pub struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The environment that engines of a world have.
#[derive(Clone, Debug)]
struct Outside {
    world: Arc<World>,
    host: Host,
}

impl Environment for Outside {
    fn now(&self) -> Instant {
        self.world.base + self.world.time()
    }

    fn start(&self, name: &str, make: MakeTask) -> io::Result<()> {
        let world = &self.world;
        let chance = world.refusals.load(Ordering::Relaxed);
        if chance > 0 && world.choose(|random| random.permille(chance)) {
            world.count("worker refused");
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        world.started.lock().unwrap().push(Started {
            make,
            host: self.host,
            name: name.into(),
        });
        world.act(1);
        Ok(())
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.world.choose(|random| {
            for byte in bytes {
                *byte = random.draw() as u8;
            }
        });
        Ok(())
    }
}
