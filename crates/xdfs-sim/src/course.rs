//! The course of a run: time, chance, and what happened.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::random::{Random, mix};

/// The clock of a run, its choices, and a record of what happened.
#[derive(Debug)]
pub struct Course {
    now_ns: AtomicU64,
    random: Mutex<Random>,
    trace: AtomicU64,
    activity: AtomicU64,
    faults: Mutex<BTreeMap<&'static str, u64>>,
}

impl Course {
    /// The course of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now_ns: AtomicU64::new(0),
            random: Mutex::new(Random::new(seed)),
            trace: AtomicU64::new(seed),
            activity: AtomicU64::new(0),
            faults: Mutex::default(),
        }
    }

    /// Time since the run began.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Relaxed))
    }

    /// Moves the clock, which never goes back.
    pub(crate) fn set_time(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap();
        self.now_ns.fetch_max(time, Ordering::Relaxed);
    }

    /// Makes a choice.
    pub fn choose<T>(&self, choose: impl FnOnce(&mut Random) -> T) -> T {
        choose(&mut self.random.lock().unwrap())
    }

    /// Adds to the trace.
    pub fn note(&self, what: u64) {
        let trace = self.trace.load(Ordering::Relaxed);
        let time = self.now_ns.load(Ordering::Relaxed);
        let trace = mix(trace ^ mix(what ^ time.rotate_left(32)));
        self.trace.store(trace, Ordering::Relaxed);
    }

    /// Something changed that others may wait for.
    pub fn act(&self, what: u64) {
        self.activity.fetch_add(1, Ordering::Relaxed);
        self.note(what);
    }

    /// How often something changed: a round without it is a quiet one.
    pub(crate) fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    /// A digest of everything that happened.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.trace.load(Ordering::Relaxed)
    }

    /// Counts a fault that happens.
    pub fn count(&self, fault: &'static str) {
        *self.faults.lock().unwrap().entry(fault).or_default() += 1;
        self.note(0xfa);
    }

    /// The faults that happened, by kind.
    #[must_use]
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.faults.lock().unwrap().clone()
    }
}
