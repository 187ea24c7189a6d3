//! A bound on the bytes a second that several sessions move together, whatever door they came by.
//! Time comes in as an argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What may pass at once after a pause, as time.
pub const BURST: Duration = Duration::from_millis(50);

/// Blocks aren't made smaller than this for the sake of a bound, in bytes.
const BLOCK_BYTES_MIN: u32 = 64 << 10;

/// A bound on the bytes a second of several sessions together, in both directions.
///
/// It is one number: the time at which all that was taken so far will have been paid for. Whoever
/// takes bytes moves it on by what they cost, and waits until the time that comes out. So sessions
/// queue up behind one another, each with one piece, without a lock, and each gets about the same
/// share; what a session takes that ends before it has waited is paid for by the others.
#[derive(Debug)]
pub struct SharedRate {
    bytes_per_s: u64,
    /// Times in nanoseconds count from here.
    epoch: Instant,
    paid_at_ns: AtomicU64,
}

impl SharedRate {
    /// A bound of so many bytes a second, at least 1. Nothing was taken yet at `now`.
    #[must_use]
    pub fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self {
            bytes_per_s: bytes_per_s.max(1),
            epoch: now,
            paid_at_ns: AtomicU64::new(0),
        }
    }

    /// Whether all that was taken is paid for at `now`: nobody would notice another bound in place
    /// of this one.
    #[must_use]
    pub fn is_settled(&self, now: Instant) -> bool {
        self.paid_at_ns.load(Ordering::Relaxed) <= self.time(now)
    }

    /// Takes what was done already, and isn't of a session's payload.
    pub fn charge(&self, bytes: u64, now: Instant) {
        self.take(bytes, self.time(now));
    }

    /// Bytes that may pass between two looks at the time.
    fn quantum(&self) -> u64 {
        (u128::from(self.bytes_per_s) * BURST.as_nanos() / 1_000_000_000)
            .try_into()
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// The largest block that sessions under this bound should have, in bytes: they share it block
    /// by block.
    #[must_use]
    pub fn block_bytes_max(&self) -> u32 {
        u32::try_from(self.quantum())
            .unwrap_or(u32::MAX)
            .max(BLOCK_BYTES_MIN)
    }

    fn time(&self, now: Instant) -> u64 {
        nanoseconds(now.saturating_duration_since(self.epoch))
    }

    /// Takes bytes and returns when they will have been paid for.
    fn take(&self, bytes: u64, now_ns: u64) -> u64 {
        let cost = (u128::from(bytes) * 1_000_000_000).div_ceil(self.bytes_per_s.into());
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        // Time in which nothing passed is worth a burst and no more.
        let least = now_ns.saturating_sub(nanoseconds(BURST));
        let paid = |at: u64| at.max(least).saturating_add(cost);
        let before = self
            .paid_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| Some(paid(at)));
        // The update is never refused; both ways lead to the value before it.
        paid(before.unwrap_or_else(|at| at))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The part of one session in a [`SharedRate`].
///
/// Its times count from the session's beginning.
#[derive(Debug)]
pub struct Share {
    rate: Arc<SharedRate>,
    /// The time of the bound at which the session began, in nanoseconds.
    offset_ns: u64,
    /// When what this session took will have been paid for.
    paid_at_ns: u64,
}

impl Share {
    /// The part of a session that began at `started`.
    #[must_use]
    pub fn new(rate: Arc<SharedRate>, started: Instant) -> Self {
        Self {
            offset_ns: rate.time(started),
            // Behind all the others: beginning anew is no way around the wait.
            paid_at_ns: rate.paid_at_ns.load(Ordering::Relaxed),
            rate,
        }
    }

    fn time(&self, now: Duration) -> u64 {
        self.offset_ns.saturating_add(nanoseconds(now))
    }

    /// Whether bytes may pass now.
    #[must_use]
    pub fn is_open(&self, now: Duration) -> bool {
        self.paid_at_ns <= self.time(now)
    }

    /// Bytes that may pass between two looks at the time; at least 1.
    #[must_use]
    pub fn quantum(&self) -> u64 {
        self.rate.quantum()
    }

    /// Takes what passed.
    pub fn take(&mut self, bytes: u64, now: Duration) {
        self.paid_at_ns = self.rate.take(bytes, self.time(now));
    }

    /// Waits for all that all sessions took so far, as if it were of this one: what was
    /// [charged](SharedRate::charge) is among that.
    pub fn catch_up(&mut self) {
        self.paid_at_ns = self.rate.paid_at_ns.load(Ordering::Relaxed);
    }

    /// Time until bytes may pass.
    #[must_use]
    pub fn delay(&self, now: Duration) -> Duration {
        Duration::from_nanos(self.paid_at_ns.saturating_sub(self.time(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_take_at_once_take_all_of_it() {
        let rate = SharedRate::new(1_000_000_000, Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).map(|_| rate.take(7, 0)).max());
            }
        });
        assert_eq!(rate.paid_at_ns.load(Ordering::Relaxed), 28_000);
    }
}
