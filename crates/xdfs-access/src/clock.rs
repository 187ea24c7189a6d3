//! The source of time.

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock. Tests provide their own.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The monotonic time.
    fn instant(&self) -> Instant;

    /// The time of day, which may be set back.
    fn time(&self) -> SystemTime;

    /// The time of day in seconds since 1970; 0 for earlier times.
    fn unix_s(&self) -> u64 {
        let since = self.time().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    /// The same, signed.
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
