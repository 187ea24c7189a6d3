//! The pace of a server that moves ranges of a file: how many it has under way, and how long it may
//! be silent.

use std::time::{Duration, Instant};

/// The most ranges that a source has under way: one, until its rate is known.
const RANGES_MAX: usize = 8;
/// The work that a source has under way, in seconds at its rate, beside one range.
const AHEAD_S: f64 = 0.5;
/// Less of a range than this is no reason for a second one: it would take more than five seconds.
const AHEAD_MIN: f64 = 0.1;
/// A source that was silent for so long while others weren't is dropped, as a channel is.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// The limit if all of them are silent, that of sessions.
pub(super) const SILENCE_OF_ALL: Duration = Duration::from_secs(60);

/// The pace of a server.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes a second; 0 if unknown.
    pub(super) rate: f64,
    pub(super) silence: Silence,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            rate: 0.0,
            silence: Silence::new(),
        }
    }

    /// Ranges that it may have under way. A second one fills the pause after the first, unless the
    /// server is so slow that others would wait for it.
    pub(super) fn ranges_max(&self, range_bytes: u64) -> usize {
        let ahead = self.rate * AHEAD_S / range_bytes as f64;
        if ahead < AHEAD_MIN {
            return 1;
        }
        // Bounded.
        1 + (ahead.ceil() as usize).min(RANGES_MAX - 1)
    }

    /// Notes a range that was moved.
    pub(super) fn measured(&mut self, bytes: u64, began: Instant) {
        let since = began.max(self.silence.heard);
        let seconds = since.elapsed().as_secs_f64().max(0.001);
        let rate = bytes as f64 / seconds;
        self.rate = match self.rate {
            0.0 => rate,
            before => 0.7 * before + 0.3 * rate,
        };
    }
}

/// The time for which a source has had work and nothing came from it. It counts on if others do the
/// work in its place: otherwise a source that has stopped would get some again and again.
#[derive(Debug)]
pub(super) struct Silence {
    /// Up to the latest pause.
    before: Duration,
    /// Since then, while it has work.
    since: Option<Instant>,
    heard: Instant,
}

impl Silence {
    pub(super) fn new() -> Self {
        Self {
            before: Duration::ZERO,
            since: None,
            heard: Instant::now(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    pub(super) fn pause(&mut self) {
        let since = self.since.take();
        self.before += since.map_or(Duration::ZERO, |since| since.elapsed());
    }

    pub(super) fn end(&mut self, is_idle: bool) {
        self.heard = Instant::now();
        self.before = Duration::ZERO;
        self.since = (!is_idle).then_some(self.heard);
    }

    pub(super) fn is_longer(&self, limit: Duration) -> bool {
        let since = self.since.map(|since| since.elapsed());
        since.is_some_and(|since| self.before + since > limit)
    }
}
