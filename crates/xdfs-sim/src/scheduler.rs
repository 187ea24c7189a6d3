//! Turns and time: which task goes on next, and when it is next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use xdfs_engine::{Task, Turn};

use crate::world::{Host, World};

/// Rounds in which nothing happened before time goes on to when something is due.
const QUIET_ROUNDS: u32 = 3;

/// A task, and when it may go on.
struct Actor {
    task: Box<dyn Task>,
    host: Host,
    name: String,
    /// It is held up until then, as by a disk or by a processor that others have.
    held_until: Duration,
    /// It has to have a turn by then; `None` if it waits for an event only.
    due: Option<Duration>,
    /// When it had its last turn.
    last_turn: Duration,
    /// Up to how long a turn of it takes.
    slowness: Duration,
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host, name, due, ..
        } = self;
        write!(
            f,
            "{name} of the {host:?}, due {due:?}, held until {:?}",
            self.held_until
        )
    }
}

impl Actor {
    /// Gives it a turn; `true` when it has ended.
    fn turn(&mut self, number: u64, world: &World) -> bool {
        let now = world.time();
        self.last_turn = now;
        let turn = self.task.turn();
        match turn {
            Turn::Again | Turn::Wait(Some(Duration::ZERO)) => {
                world.act(2 + number);
                self.due = Some(now);
                let most = u64::try_from(self.slowness.as_micros()).unwrap();
                if most > 0 {
                    let time = world.choose(|random| random.range(0, most));
                    self.held_until = now + Duration::from_micros(time);
                }
            }
            Turn::Wait(time) => self.due = time.map(|time| now + time),
            Turn::Ended => world.act(number),
        }
        turn == Turn::Ended
    }
}

/// What drives all tasks of a world.
///
/// A task that waits has a turn when something has come for it or its time is over, and at no other
/// moment, so that a lost wake-up holds it up as it would in a thread. Now and then, when nothing
/// goes on, those that had a turn at this very time have another one: what they find to do is not
/// due to time, so that somebody should have woken them for it. That is a violation.
pub struct Scheduler {
    world: Arc<World>,
    actors: Vec<Actor>,
    steps: u64,
    quiet: u32,
    slowness: Duration,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("tasks", &self.actors)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// A scheduler without tasks. A turn of a worker that isn't a session takes up to `slowness`,
    /// a bound that each of them draws once.
    #[must_use]
    pub fn new(world: &Arc<World>, slowness: Duration) -> Self {
        Self {
            world: Arc::clone(world),
            actors: Vec::new(),
            steps: 0,
            quiet: 0,
            slowness,
        }
    }

    /// Adds a task that no environment was asked for.
    pub fn add(&mut self, host: Host, name: &str, task: Box<dyn Task>) {
        self.add_slow(host, name.into(), task, Duration::ZERO);
    }

    fn add_slow(&mut self, host: Host, name: String, task: Box<dyn Task>, slowness: Duration) {
        self.actors.push(Actor {
            task,
            host,
            name,
            held_until: Duration::ZERO,
            due: Some(Duration::ZERO),
            last_turn: Duration::ZERO,
            slowness,
        });
    }

    /// Turns that were given so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether all tasks have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actors.is_empty() && !self.world.has_started()
    }

    /// Ends all tasks of a host where they stand, as a signal or a power cut does.
    pub fn kill(&mut self, host: Host) {
        drop(self.world.take_started_of(host));
        let mut dead: Vec<Actor> = self.actors.extract_if(.., |a| a.host == host).collect();
        while !dead.is_empty() {
            let at = self.world.choose(|random| random.below(dead.len() as u64));
            drop(dead.swap_remove(at as usize));
        }
        self.world.act(14);
    }

    /// Gives turns to some of the tasks that have something to do, in an order of chance, and moves
    /// the clock.
    pub fn round(&mut self) {
        let world = Arc::clone(&self.world);
        let before = world.activity();
        world.network().deliver(&world);
        for started in world.take_started() {
            let most = match started.name.as_str() {
                // It is as fast as the processor; others may wait for a store.
                "xdfs-session" => 0,
                _ => u64::try_from(self.slowness.as_micros()).unwrap(),
            };
            let slowness = world.choose(|random| random.range(0, most));
            let task = (started.make)();
            let slowness = Duration::from_micros(slowness);
            self.add_slow(started.host, started.name, task, slowness);
        }
        let count = self.actors.len();
        let first = world.choose(|random| random.below(count.max(1) as u64)) as usize;
        let mut ended = Vec::new();
        for number in 0..count {
            let at = (first + number) % count;
            let actor = &mut self.actors[at];
            let now = world.time();
            // Nobody is passed over before time goes on: it would be late by as much as that is.
            let is_passed_over = self.quiet == 0 && world.choose(|random| random.permille(200));
            if actor.held_until > now || is_passed_over {
                continue;
            }
            let has_come = actor.task.wait(Some(Duration::ZERO));
            if has_come || actor.due.is_some_and(|due| due <= now) {
                self.steps += 1;
                if actor.turn(at as u64, &world) {
                    ended.push(at);
                }
            }
        }
        self.remove(ended);
        self.move_clock(before);
    }

    fn remove(&mut self, mut ended: Vec<usize>) {
        ended.sort_unstable();
        for at in ended.into_iter().rev() {
            self.actors.swap_remove(at);
        }
    }

    fn move_clock(&mut self, activity_before: u64) {
        let now = self.world.time();
        if self.world.activity() != activity_before {
            self.quiet = 0;
            // Much happens at one time, so that what happens later is known to be due to time.
            let (moves, step) = self.world.choose(|r| (r.permille(300), r.range(1, 100)));
            if moves {
                self.world.set_time(now + Duration::from_micros(step));
            }
            return;
        }
        self.quiet += 1;
        if self.quiet < QUIET_ROUNDS {
            return;
        }
        self.quiet = 0;
        if self.world.choose(|random| random.permille(250)) && self.look_for_lost_wake_ups() {
            return;
        }
        let held = self.actors.iter().map(|actor| actor.held_until);
        let due = self.actors.iter().filter_map(|actor| actor.due);
        let times = held.chain(due).chain(self.world.network().next());
        let soonest = times.filter(|at| *at > now).min();
        self.world
            .set_time(soonest.unwrap_or(now + Duration::from_secs(1)));
    }

    /// Gives turns to those that wait since this time; `true` if one had something to do after all.
    fn look_for_lost_wake_ups(&mut self) -> bool {
        let world = Arc::clone(&self.world);
        let now = world.time();
        let waits = |actor: &Actor| actor.due.is_none_or(|due| due > now);
        if !self
            .actors
            .iter()
            .all(|actor| actor.held_until <= now && waits(actor))
        {
            // A worker may tell of several pieces of work at once, when it has done the last.
            return false;
        }
        let before = world.activity();
        let mut ended = Vec::new();
        for (at, actor) in self.actors.iter_mut().enumerate() {
            if actor.last_turn < now {
                continue;
            }
            let has_come = actor.task.wait(Some(Duration::ZERO));
            let activity = world.activity();
            self.steps += 1;
            if actor.turn(at as u64, &world) {
                ended.push(at);
            }
            if !has_come && world.activity() != activity {
                let (host, name) = (actor.host, &actor.name);
                world.violation(format!("{name} of the {host:?} was not woken for its work"));
            }
        }
        self.remove(ended);
        world.activity() != before
    }
}
