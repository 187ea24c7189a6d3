//! The bound on the bytes in flight within one machine. Few suffice there, and stay in the CPU
//! caches, while acknowledgements take less than milliseconds. An address of this machine may be
//! that of a forwarder to another one, though: then a bound that is reached at a low rate is what
//! limits it, and is lifted step by step. A store that is slow for a moment looks alike, so the
//! bound comes back with the rate. Time and bytes are arguments.

use std::time::Duration;

/// The rate, in bytes per second, below which a bound that is reached is too low, and from which
/// the first one suffices: 4 MiB that are acknowledged within 25 ms.
const FAST: f64 = 160e6;
/// Time over which the rate has to be low for the next step, and high for the way back: blocks are
/// acknowledged in lumps.
const SLOW_SPAN: Duration = Duration::from_millis(50);
const FAST_SPAN: Duration = Duration::from_millis(500);
/// How many times as much may be in flight after a step, and the number of steps with a bound.
const STEP: u64 = 4;
const STEPS: u32 = 2;

/// Bytes moved, in both directions, at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at: Duration,
    moved: u64,
}

impl Mark {
    /// The rate since then, if so much time has passed.
    fn rate(&self, now: Duration, moved: u64, span: Duration) -> Option<f64> {
        let time = now.saturating_sub(self.at);
        (time >= span).then(|| moved.saturating_sub(self.moved) as f64 / time.as_secs_f64())
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct InFlightBound {
    /// Steps by which the bound was lifted.
    steps: u32,
    /// The beginnings of the measurements for the next step, and for the way back.
    slow: Mark,
    fast: Mark,
    /// The last rate was low.
    is_slow: bool,
}

impl InFlightBound {
    /// The bound, of a first one in bytes.
    pub(super) fn bytes(&self, first: u64) -> u64 {
        match self.steps <= STEPS {
            true => first.saturating_mul(STEP.pow(self.steps)),
            false => u64::MAX,
        }
    }

    /// Whether little was moved for a while, though something was to be moved: other channels, or
    /// more of them, may bring more.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Looks at the bytes `moved` so far, and at whether the bound `is_reached`. Returns whether
    /// the bound has changed.
    pub(super) fn step(&mut self, now: Duration, moved: u64, is_reached: bool) -> bool {
        let before = self.steps;
        if let Some(rate) = self.fast.rate(now, moved, FAST_SPAN) {
            self.is_slow = rate < FAST;
            self.fast = Mark { at: now, moved };
            if !self.is_slow {
                self.steps = 0;
            }
        }
        if !is_reached {
            self.slow = Mark { at: now, moved };
        } else if let Some(rate) = self.slow.rate(now, moved, SLOW_SPAN) {
            self.slow = Mark { at: now, moved };
            if rate < FAST && self.steps <= STEPS {
                self.steps += 1;
            }
        }
        self.steps != before
    }

    /// Nothing is moved: what comes is measured from now on.
    pub(super) fn rest(&mut self, now: Duration, moved: u64) {
        (self.slow, self.fast) = (Mark { at: now, moved }, Mark { at: now, moved });
        self.is_slow = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 4 << 20;

    /// Moves data for so many milliseconds at the rate that `rate` gives for the bytes in flight,
    /// which are as many as the bound allows, up to `most`. Returns the bounds.
    fn run(
        bound: &mut InFlightBound,
        ms: std::ops::Range<u64>,
        moved: &mut u64,
        most: u64,
        rate: impl Fn(u64) -> f64,
    ) -> Vec<u64> {
        let mut bounds = vec![bound.bytes(FIRST)];
        for ms in ms {
            let in_flight = bound.bytes(FIRST).min(most);
            *moved += (rate(in_flight) / 1000.0) as u64;
            let is_reached = in_flight == bound.bytes(FIRST);
            if bound.step(Duration::from_millis(ms), *moved, is_reached) {
                bounds.push(bound.bytes(FIRST));
            }
        }
        bounds
    }

    /// 8 connections of 2 MB/s each, over which a block takes a second.
    #[test]
    fn behind_a_forwarder_the_bound_is_lifted() {
        let mut bound = InFlightBound::default();
        let mut moved = 0;
        let rate = |in_flight: u64| (in_flight as f64 / 2e6).min(8.0) * 2e6 / 2.0;
        let bounds = run(&mut bound, 0..5000, &mut moved, 16 << 20, rate);
        assert_eq!(bounds[..3], [FIRST, 4 * FIRST, 16 * FIRST]);
        assert!(bound.is_slow());
        // At once, not when the first block is acknowledged.
        let mut bound = InFlightBound::default();
        let bounds = run(&mut bound, 0..201, &mut 0, u64::MAX, |_| 0.0);
        assert_eq!(bounds, [FIRST, 4 * FIRST, 16 * FIRST, u64::MAX]);
    }

    #[test]
    fn within_one_machine_it_stays() {
        for bytes_per_s in [200e6, 1e9, 6e9] {
            let mut bound = InFlightBound::default();
            let bounds = run(&mut bound, 0..60_000, &mut 0, u64::MAX, |_| bytes_per_s);
            assert_eq!(bounds, [FIRST]);
            assert!(!bound.is_slow());
        }
        // A rate below that of the bound, as of a slow disk or a limit, changes nothing either.
        let mut bound = InFlightBound::default();
        let bounds = run(&mut bound, 0..60_000, &mut 0, FIRST - 1, |_| 20e6);
        assert_eq!(bounds, [FIRST]);
    }

    #[test]
    fn after_a_pause_of_the_store_it_comes_back() {
        let mut bound = InFlightBound::default();
        let mut moved = 0;
        run(&mut bound, 0..2000, &mut moved, u64::MAX, |_| 3e9);
        let bounds = run(&mut bound, 2000..2300, &mut moved, u64::MAX, |_| 0.0);
        assert_eq!(bounds.last(), Some(&u64::MAX));
        let bounds = run(&mut bound, 2300..4000, &mut moved, u64::MAX, |_| 3e9);
        assert_eq!(bounds, [u64::MAX, FIRST]);
    }

    #[test]
    fn a_session_without_work_is_not_slow() {
        let mut bound = InFlightBound::default();
        run(&mut bound, 0..2000, &mut 0, FIRST - 1, |_| 1e6);
        assert!(bound.is_slow());
        bound.rest(Duration::from_secs(9), 0);
        assert!(!bound.is_slow());
        assert!(!bound.step(Duration::from_millis(9049), 0, true));
    }
}
