//! A rate limit shared by sessions, whatever door they came through. Time is an argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Burst allowed after a pause, as time.
pub const BURST: Duration = Duration::from_millis(50);

/// Blocks aren't made smaller than this to share a limit, in bytes.
const BLOCK_BYTES_MIN: u32 = 64 << 10;

/// A rate limit in bytes per second for several sessions together, in both directions.
///
/// It is one number: the time at which all bytes taken so far are paid for. Taking bytes advances
/// it by their cost, and the taker waits until the resulting time. So sessions queue up one behind
/// another, each with one piece, without a lock, and get about equal shares. What a session takes
/// and doesn't wait for, because it ends, is paid for by the others.
#[derive(Debug)]
pub struct SharedRate {
    bytes_per_s: u64,
    /// Origin of times in nanoseconds.
    epoch: Instant,
    paid_at_ns: AtomicU64,
}

impl SharedRate {
    /// A limit of `bytes_per_s`, at least 1, with nothing taken at `now`.
    #[must_use]
    pub fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self {
            bytes_per_s: bytes_per_s.max(1),
            epoch: now,
            paid_at_ns: AtomicU64::new(0),
        }
    }

    /// Whether everything taken is paid for at `now`, so that replacing the limit makes no
    /// difference.
    #[must_use]
    pub fn is_settled(&self, now: Instant) -> bool {
        self.paid_at_ns.load(Ordering::Relaxed) <= self.time(now)
    }

    /// Charges work already done that is not payload of a session.
    pub fn charge(&self, bytes: u64, now: Instant) {
        self.take(bytes, self.time(now));
    }

    /// Bytes that may pass between two checks of the time.
    fn quantum(&self) -> u64 {
        (u128::from(self.bytes_per_s) * BURST.as_nanos() / 1_000_000_000)
            .try_into()
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// The largest block for sessions under this limit, in bytes: they share it block by block.
    #[must_use]
    pub fn block_bytes_max(&self) -> u32 {
        u32::try_from(self.quantum())
            .unwrap_or(u32::MAX)
            .max(BLOCK_BYTES_MIN)
    }

    fn time(&self, now: Instant) -> u64 {
        nanoseconds(now.saturating_duration_since(self.epoch))
    }

    /// Takes bytes and returns the time at which they are paid for.
    fn take(&self, bytes: u64, now_ns: u64) -> u64 {
        let cost = (u128::from(bytes) * 1_000_000_000).div_ceil(self.bytes_per_s.into());
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        // A pause is worth a burst and no more.
        let least = now_ns.saturating_sub(nanoseconds(BURST));
        let paid = |at: u64| at.max(least).saturating_add(cost);
        let before = self
            .paid_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| Some(paid(at)));
        // The update always succeeds; both variants hold the previous value.
        paid(before.unwrap_or_else(|at| at))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The share of one session in a [`SharedRate`].
///
/// Its times are relative to the start of the session.
#[derive(Debug)]
pub struct Share {
    rate: Arc<SharedRate>,
    /// Time of the shared limit at the start of the session, in nanoseconds.
    offset_ns: u64,
    /// Time at which everything taken by this session is paid for.
    paid_at_ns: u64,
}

impl Share {
    /// The share of a session that began at `started`.
    #[must_use]
    pub fn new(rate: Arc<SharedRate>, started: Instant) -> Self {
        Self {
            offset_ns: rate.time(started),
            // Behind all others: a new session must not evade the wait.
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

    /// Bytes that may pass between two checks of the time; at least 1.
    #[must_use]
    pub fn quantum(&self) -> u64 {
        self.rate.quantum()
    }

    /// Counts bytes that have passed.
    pub fn take(&mut self, bytes: u64, now: Duration) {
        self.paid_at_ns = self.rate.take(bytes, self.time(now));
    }

    /// Makes this session wait for everything taken by all sessions so far, including
    /// [charged](SharedRate::charge) bytes.
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
