//! Where the time comes from.

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock. Tests bring their own.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now, by a clock that never runs backwards.
    fn instant(&self) -> Instant;

    /// The time of day, which somebody may set back.
    fn time(&self) -> SystemTime;

    /// The time of day in seconds since 1970; 0 before that.
    fn unix_s(&self) -> u64 {
        let since = self.time().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    /// The same as a signed number.
    fn unix_s_signed(&self) -> i64 {
        i64::try_from(self.unix_s()).unwrap_or(i64::MAX)
    }
}

/// The clock of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn time(&self) -> SystemTime {
        SystemTime::now()
    }
}
