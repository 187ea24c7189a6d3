//! The clock by which parcels grow old.
//!
//! It begins with that of the machine, runs on by itself, and never goes back: a clock that is set
//! while the relay runs, or is wrong after a start, ends no life. What it has shown is kept in the
//! spool.

use std::time::{Duration, Instant, SystemTime};

use xdfs_proto::relay::PARCEL_LIFE_S_MAX;

/// A relay that was off for longer than any parcel lives is one whose clock is wrong.
const OFF_MAX_S: u64 = PARCEL_LIFE_S_MAX as u64;

/// A clock that doesn't jump.
#[derive(Debug)]
pub(super) struct Clock {
    began_s: u64,
    began: Instant,
    /// The clock of the machine isn't believed.
    is_odd: bool,
}

impl Clock {
    /// A clock that has shown `last_s` before; 0 for a new one.
    pub(super) fn start(last_s: u64) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self::start_at(last_s, since.map_or(0, |since| since.as_secs()))
    }

    fn start_at(last_s: u64, machine_s: u64) -> Self {
        let is_odd = last_s > 0 && !(last_s..=last_s + OFF_MAX_S).contains(&machine_s);
        Self {
            began_s: if is_odd { last_s } else { machine_s },
            began: Instant::now(),
            is_odd,
        }
    }

    /// Whether the clock of the machine was wrong at the start, or the relay off for very long.
    pub(super) fn is_odd(&self) -> bool {
        self.is_odd
    }

    /// The present time in seconds since 1970.
    pub(super) fn now_s(&self) -> u64 {
        self.after(self.began.elapsed())
    }

    fn after(&self, elapsed: Duration) -> u64 {
        self.began_s.saturating_add(elapsed.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_wrong_at_the_start_is_not_believed() {
        let day = 24 * 3600;
        let last = 1_700_000_000;
        for (machine, expected) in [
            (last + day, last + day),
            (last + 29 * day, last + 29 * day),
            (last + 365 * day, last),
            (last - 1, last),
            (0, last),
        ] {
            let clock = Clock::start_at(last, machine);
            assert_eq!(clock.after(Duration::ZERO), expected, "{machine}");
            assert_eq!(clock.is_odd(), machine != expected);
            assert_eq!(clock.after(Duration::from_millis(5500)), expected + 5);
        }
        assert_eq!(Clock::start_at(0, last).after(Duration::ZERO), last);
    }
}
