//! The environment of the engine in a simulation: a clock that the simulation moves, and workers
//! whose next turn it chooses.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use xdfs_engine::environment::MakeTask;
use xdfs_engine::{Environment, Task, Turn};

use crate::network::Network;
use crate::random::{Random, mix};

/// Time, chance, the network and the workers of one run.
pub(crate) struct World {
    base: Instant,
    now_ns: AtomicU64,
    random: Mutex<Random>,
    /// Workers that were started and have not had a turn.
    started: Mutex<Vec<(MakeTask, Kind)>>,
    pub(crate) network: Network,
    /// A digest of everything that happened.
    trace: AtomicU64,
    /// Counts whatever changes something: a round without it is a quiet one.
    activity: AtomicU64,
    /// What must not happen and did.
    violations: Mutex<Vec<String>>,
    /// How often each source was opened, and whether the last of these was found changed.
    sources: Mutex<BTreeMap<Vec<u8>, (u64, bool)>>,
    /// Workers that could not be started.
    refused_workers: AtomicU64,
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "only differences to it are used")]
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            base: Instant::now(),
            now_ns: AtomicU64::new(0),
            random: Mutex::new(Random::new(seed)),
            started: Mutex::default(),
            network: Network::default(),
            trace: AtomicU64::new(seed),
            activity: AtomicU64::new(0),
            violations: Mutex::default(),
            sources: Mutex::default(),
            refused_workers: AtomicU64::new(0),
        })
    }

    /// Time since the run began.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn set_time(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap();
        self.now_ns.fetch_max(time, Ordering::Relaxed);
    }

    /// Makes a choice.
    pub(crate) fn choose<T>(&self, choose: impl FnOnce(&mut Random) -> T) -> T {
        choose(&mut self.random.lock().unwrap())
    }

    /// Adds to the trace.
    pub(crate) fn note(&self, what: u64) {
        let trace = self.trace.load(Ordering::Relaxed);
        let time = self.now_ns.load(Ordering::Relaxed);
        self.trace.store(
            mix(trace ^ mix(what ^ time.rotate_left(32))),
            Ordering::Relaxed,
        );
    }

    /// Something changed that others may wait for.
    pub(crate) fn act(&self, what: u64) {
        self.activity.fetch_add(1, Ordering::Relaxed);
        self.note(what);
    }

    pub(crate) fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    pub(crate) fn trace(&self) -> u64 {
        self.trace.load(Ordering::Relaxed)
    }

    pub(crate) fn refused_workers(&self) -> u64 {
        self.refused_workers.load(Ordering::Relaxed)
    }

    /// A source is opened: how often it was by now.
    pub(crate) fn open(&self, path: &[u8]) -> u64 {
        let mut sources = self.sources.lock().unwrap();
        let (opened, doubted) = sources.entry(path.to_vec()).or_default();
        (*opened, *doubted) = (*opened + 1, false);
        *opened
    }

    /// A source has changed since it was opened for this time.
    pub(crate) fn doubt(&self, path: &[u8], time: u64) {
        if let Some((opened, doubted)) = self.sources.lock().unwrap().get_mut(path) {
            *doubted |= *opened == time;
        }
    }

    pub(crate) fn is_doubted(&self, path: &[u8]) -> bool {
        let sources = self.sources.lock().unwrap();
        sources.get(path).is_some_and(|(_, doubted)| *doubted)
    }

    pub(crate) fn violation(&self, what: impl Into<String>) {
        self.violations.lock().unwrap().push(what.into());
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// The environment that engines of a world have.
#[derive(Clone, Debug)]
pub(crate) struct Outside(pub(crate) Arc<World>);

impl Environment for Outside {
    fn now(&self) -> Instant {
        self.0.base + self.0.time()
    }

    fn start(&self, name: &str, make: MakeTask) -> io::Result<()> {
        if self.0.choose(|random| random.permille(2)) {
            self.0.refused_workers.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let kind = match name {
            "xdfs-session" => Kind::Session,
            _ => Kind::Worker,
        };
        self.0.started.lock().unwrap().push((make, kind));
        self.0.act(1);
        Ok(())
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.0.choose(|random| {
            for byte in bytes {
                *byte = random.next() as u8;
            }
        });
        Ok(())
    }
}

/// What a worker does.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// It drives channels, and is as fast as the processor.
    Session,
    /// It may wait for a store.
    Worker,
}

/// A task, and when it may go on.
struct Actor {
    task: Box<dyn Task>,
    /// It is held up until then, as by a disk or by a processor that others have.
    held_until: Duration,
    /// It has to have a turn by then.
    due: Option<Duration>,
    /// Up to how long a turn of it takes.
    slowness: Duration,
}

/// What drives all tasks of a world.
pub(crate) struct Scheduler {
    world: Arc<World>,
    actors: Vec<Actor>,
    pub(crate) steps: u64,
    quiet: u32,
    /// Up to how long a piece of work of a worker takes.
    slowness: Duration,
}

/// Rounds in which nothing happened before time goes on to when something is due.
const QUIET_ROUNDS: u32 = 3;

impl Scheduler {
    pub(crate) fn new(world: &Arc<World>, slowness: Duration) -> Self {
        Self {
            world: Arc::clone(world),
            actors: Vec::new(),
            steps: 0,
            quiet: 0,
            slowness,
        }
    }

    /// Adds a task that no environment was asked for.
    pub(crate) fn add(&mut self, task: Box<dyn Task>) {
        self.add_slow(task, Duration::ZERO);
    }

    fn add_slow(&mut self, task: Box<dyn Task>, slowness: Duration) {
        self.actors.push(Actor {
            task,
            held_until: Duration::ZERO,
            due: None,
            slowness,
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.actors.is_empty() && self.world.started.lock().unwrap().is_empty()
    }

    /// Gives turns to some of the tasks, in an order of chance, and moves the clock.
    pub(crate) fn round(&mut self) {
        let world = Arc::clone(&self.world);
        let before = world.activity();
        world.network.deliver(&world);
        let started = std::mem::take(&mut *world.started.lock().unwrap());
        for (make, kind) in started {
            let most = match kind {
                Kind::Session => 0,
                Kind::Worker => u64::try_from(self.slowness.as_micros()).unwrap(),
            };
            let slowness = world.choose(|random| random.range(0, most));
            self.add_slow(make(), Duration::from_micros(slowness));
        }
        let count = self.actors.len();
        let first = world.choose(|random| random.below(count.max(1) as u64)) as usize;
        let mut ended = Vec::new();
        for number in 0..count {
            let at = (first + number) % count;
            let actor = &mut self.actors[at];
            let now = world.time();
            if actor.held_until > now || world.choose(|random| random.permille(200)) {
                continue;
            }
            self.steps += 1;
            actor.task.wait(Some(Duration::ZERO));
            let turn = actor.task.turn();
            match turn {
                Turn::Again | Turn::Wait(Some(Duration::ZERO)) => {
                    world.act(2 + at as u64);
                    actor.due = Some(now);
                    let most = u64::try_from(actor.slowness.as_micros()).unwrap();
                    if most > 0 {
                        let time = world.choose(|random| random.range(0, most));
                        actor.held_until = now + Duration::from_micros(time);
                    }
                }
                Turn::Wait(time) => actor.due = time.map(|time| now + time),
                Turn::Ended => {
                    world.act(at as u64);
                    ended.push(at);
                }
            }
        }
        ended.sort_unstable();
        for at in ended.into_iter().rev() {
            self.actors.swap_remove(at);
        }
        self.move_clock(before);
    }

    fn move_clock(&mut self, activity_before: u64) {
        let world = &self.world;
        self.quiet = match world.activity() == activity_before {
            true => self.quiet + 1,
            false => 0,
        };
        let now = world.time();
        let mut next = now + Duration::from_micros(world.choose(|random| random.range(1, 100)));
        if self.quiet >= QUIET_ROUNDS {
            self.quiet = 0;
            let held = self.actors.iter().map(|actor| actor.held_until);
            let due = self.actors.iter().filter_map(|actor| actor.due);
            let soonest = held
                .chain(due)
                .chain(world.network.next())
                .filter(|at| *at > now);
            next = next.max(soonest.min().unwrap_or(now + Duration::from_secs(1)));
        }
        world.set_time(next);
    }
}
