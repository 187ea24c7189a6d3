//! A session's rate limits: its own, and that shared by all sessions of its user. Time is an
//! argument.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_store::rate::{BURST, Share, SharedRate};

/// The rate limits that apply to a session.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// The session's own limit.
    own: Option<Bucket>,
    /// The previous own limit, whose debt is still to be paid.
    last: Option<Bucket>,
    /// The share of the user's limit.
    share: Option<Share>,
}

impl Bounds {
    /// The limits of a session that began at `started`.
    pub(crate) fn new(shared: Option<Arc<SharedRate>>, started: Instant) -> Self {
        Self {
            own: None,
            last: None,
            share: shared.map(|rate| Share::new(rate, started)),
        }
    }

    /// Sets the session's own limit, in bytes per second. The debt and credit of the previous limit
    /// carry over, so a series of transfers with a limit each does not exceed it by bursts.
    pub(crate) fn bound(&mut self, rate: u64, now: Duration) {
        let before = self.own.take().or_else(|| self.last.take());
        self.own = Some(match before {
            Some(bucket) => bucket.at_rate(rate, now),
            // Without the burst, which would show in the rate of a small file.
            None => Bucket {
                tokens: 1.0,
                ..Bucket::new(rate, now)
            },
        });
    }

    /// Removes the session's own limit: no transfer asks for it any more.
    pub(crate) fn unbound(&mut self) {
        self.last = self.own.take().or_else(|| self.last.take());
    }

    /// Whether a limit applies.
    pub(crate) fn are_set(&self) -> bool {
        self.own.is_some() || self.share.is_some()
    }

    /// Whether bytes may pass at `now`, the time since the session began.
    pub(crate) fn are_open(&mut self, now: Duration) -> bool {
        let shared = self.share.as_ref().is_none_or(|share| share.is_open(now));
        shared && self.own.as_mut().is_none_or(|bucket| bucket.is_open(now))
    }

    /// Whether the session's own limit still delays what has passed.
    pub(crate) fn owes(&mut self, now: Duration) -> bool {
        self.own.as_mut().is_some_and(|bucket| !bucket.is_open(now))
    }

    /// Bytes that may pass at once while [open](Self::are_open); at least 1.
    pub(crate) fn allowance(&self) -> usize {
        let own = self.own.as_ref().map_or(usize::MAX, Bucket::allowance);
        let shared = self.share.as_ref().map_or(u64::MAX, Share::quantum);
        own.min(usize::try_from(shared).unwrap_or(usize::MAX))
    }

    /// Counts bytes that have passed.
    pub(crate) fn take(&mut self, bytes: u64, now: Duration) {
        if let Some(bucket) = &mut self.own {
            bucket.take(bytes);
        }
        if let Some(share) = &mut self.share {
            share.take(bytes, now);
        }
    }

    /// Makes the session wait for all bytes counted against the user's limit so far as if they were
    /// its own, including those [charged](SharedRate::charge) by other threads.
    pub(crate) fn catch_up(&mut self) {
        if let Some(share) = &mut self.share {
            share.catch_up();
        }
    }

    /// Time until bytes may pass.
    pub(crate) fn delay(&self, now: Duration) -> Duration {
        let own = self.own.as_ref();
        let own = own.map_or(Duration::ZERO, |bucket| bucket.delay(now));
        let shared = self.share.as_ref();
        own.max(shared.map_or(Duration::ZERO, |share| share.delay(now)))
    }

    /// Whether the user's limit delays payload.
    pub(crate) fn waits_for_others(&self, now: Duration) -> bool {
        self.share.as_ref().is_some_and(|share| !share.is_open(now))
    }
}

/// A token bucket for the limit of one session.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate_bytes_per_s: f64,
    burst_bytes: f64,
    tokens: f64,
    last: Duration,
}

impl Bucket {
    /// A bucket of `rate` bytes per second (at least 1), with bursts of 50 ms.
    pub(crate) fn new(rate: u64, now: Duration) -> Self {
        let rate_bytes_per_s = rate.max(1) as f64;
        let burst_bytes = (rate_bytes_per_s * BURST.as_secs_f64()).max(1.0);
        Self {
            rate_bytes_per_s,
            burst_bytes,
            tokens: burst_bytes,
            last: now,
        }
    }

    /// The same bucket at another rate: its debt carries over.
    fn at_rate(mut self, rate: u64, now: Duration) -> Self {
        // Time without demand fills the bucket.
        self.fill(now);
        let other = Self::new(rate, now);
        Self {
            tokens: self.tokens.min(other.burst_bytes),
            ..other
        }
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last);
        self.last = now;
        self.tokens =
            (self.tokens + passed.as_secs_f64() * self.rate_bytes_per_s).min(self.burst_bytes);
    }

    /// Whether bytes may pass now. A block may overdraw the bucket; the next one then waits.
    pub(crate) fn is_open(&mut self, now: Duration) -> bool {
        self.fill(now);
        // Not by the sign: a debt of less than a nanosecond would be one that no timer ends.
        self.delay(now).is_zero()
    }

    /// Bytes that may pass at once while the bucket is open; at least 1.
    pub(crate) fn allowance(&self) -> usize {
        self.tokens.max(1.0) as usize
    }

    /// Counts bytes that have passed.
    pub(crate) fn take(&mut self, bytes: u64) {
        self.tokens -= bytes as f64;
    }

    /// Time from `now` until the bucket opens.
    pub(crate) fn delay(&self, now: Duration) -> Duration {
        let owed =
            Duration::from_secs_f64((-self.tokens / self.rate_bytes_per_s).clamp(0.0, 3600.0));
        owed.saturating_sub(now.saturating_sub(self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_owed_is_paid_by_time_alone() {
        // Without demand nothing waits for the bucket.
        let mut bucket = Bucket::new(1000, Duration::ZERO);
        bucket.take(100);
        let delay = bucket.delay(Duration::ZERO);
        assert!(delay > Duration::ZERO);
        assert_eq!(bucket.delay(delay), Duration::ZERO);
    }

    #[test]
    fn lets_the_rate_through() {
        let mut bucket = Bucket::new(1000, Duration::ZERO);
        let (mut now, mut sent) = (Duration::ZERO, 0u64);
        while now < Duration::from_secs(10) {
            if bucket.is_open(now) {
                bucket.take(100);
                sent += 100;
            } else {
                now += bucket.delay(now).max(Duration::from_millis(1));
            }
        }
        assert!((9_900..=10_300).contains(&sent), "{sent}");
    }

    /// Bytes passed in ten seconds of consecutive transfers of `bytes` each, which set these limits
    /// in turn.
    fn consecutive_transfers(rates: &[u64], bytes: u64) -> u64 {
        let mut bounds = Bounds::default();
        let (mut now, mut sent) = (Duration::ZERO, 0);
        for rate in rates.iter().cycle() {
            bounds.bound(*rate, now);
            while !bounds.are_open(now) {
                now += bounds.delay(now).max(Duration::from_millis(1));
            }
            if now >= seconds(10) {
                break;
            }
            bounds.take(bytes, now);
            sent += bytes;
            bounds.unbound();
            // Nothing is delayed without a limit.
            assert!(bounds.are_open(now) && bounds.delay(now).is_zero());
        }
        sent
    }

    #[test]
    fn transfers_consecutive_transfers_have_one_bound() {
        for bytes in [10, 100, 5000] {
            let sent = consecutive_transfers(&[1000], bytes);
            let most = 10_000 + 50 + bytes;
            assert!((9_800..=most).contains(&sent), "{sent} of {bytes}");
        }
        // Half of the bytes at each rate.
        let sent = consecutive_transfers(&[1000, 3000], 100);
        assert!((14_500..=15_500).contains(&sent), "{sent}");
    }

    #[test]
    fn what_is_owed_is_bytes_and_not_time() {
        let mut bounds = Bounds::default();
        bounds.bound(1000, Duration::ZERO);
        bounds.take(1_000_001, Duration::ZERO);
        assert_eq!(bounds.delay(Duration::ZERO), seconds(1000));
        bounds.unbound();
        bounds.bound(1_000_000, Duration::ZERO);
        assert_eq!(bounds.delay(Duration::ZERO), seconds(1));
    }

    #[test]
    fn a_transfer_without_a_bound_has_none() {
        let mut bounds = Bounds::default();
        bounds.bound(1000, Duration::ZERO);
        bounds.take(100_000, Duration::ZERO);
        bounds.bound(1000, Duration::ZERO);
        assert!(!bounds.are_open(Duration::ZERO));
        bounds.unbound();
        bounds.unbound();
        assert!(bounds.are_open(Duration::ZERO));
        assert_eq!(bounds.allowance(), usize::MAX);
        bounds.bound(1000, seconds(1));
        assert!(!bounds.are_open(seconds(98)) && bounds.are_open(seconds(101)));
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A shared limit and its start.
    fn shared_rate(bytes_per_s: u64) -> (Arc<SharedRate>, Instant) {
        let epoch = Instant::now();
        (Arc::new(SharedRate::new(bytes_per_s, epoch)), epoch)
    }

    /// Bytes sent in ten seconds by each of several sessions, with these piece sizes, that send
    /// whenever they may.
    fn compete(bytes_per_s: u64, pieces: &[u64]) -> Vec<u64> {
        let (rate, epoch) = shared_rate(bytes_per_s);
        let bounds = |_: &u64| Bounds::new(Some(Arc::clone(&rate)), epoch);
        let mut sessions: Vec<Bounds> = pieces.iter().map(bounds).collect();
        let mut sent = vec![0; pieces.len()];
        let mut now = Duration::ZERO;
        while now < seconds(10) {
            for (i, session) in sessions.iter_mut().enumerate() {
                if session.are_open(now) {
                    session.take(pieces[i], now);
                    sent[i] += pieces[i];
                }
            }
            let next = sessions.iter().map(|s| s.delay(now)).min().unwrap();
            now += next.max(Duration::from_millis(1));
        }
        sent
    }

    #[test]
    fn sessions_share_one_bound_and_about_equally() {
        for n in [1, 2, 7] {
            let sent = compete(1_000_000, &vec![10_000; n]);
            let all: u64 = sent.iter().sum();
            // A burst at the beginning, and one piece each at the end.
            let most = 10_000_000 + 50_000 + 10_000 * n as u64;
            assert!((9_800_000..=most).contains(&all), "{sent:?}");
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            assert!(most - least <= 60_000, "{sent:?}");
        }
    }

    #[test]
    fn large_pieces_keep_the_bound_too() {
        let sent = compete(1_000_000, &[2 << 20, 50_000]);
        let all: u64 = sent.iter().sum();
        assert!(all <= 10_000_000 + 50_000 + (2 << 20) + 50_000, "{sent:?}");
        // Sessions with small pieces are not starved.
        assert!(sent[1] >= 200_000, "{sent:?}");
    }

    #[test]
    fn beginning_anew_saves_no_wait() {
        let (rate, epoch) = shared_rate(1000);
        let session = |at| Bounds::new(Some(Arc::clone(&rate)), epoch + at);
        session(Duration::ZERO).take(10_000, Duration::ZERO);
        let mut second = session(seconds(1));
        assert!(!second.are_open(Duration::ZERO) && second.waits_for_others(Duration::ZERO));
        assert_eq!(second.delay(Duration::ZERO), seconds(9));
        assert!(!rate.is_settled(epoch + seconds(9)));
        assert!(rate.is_settled(epoch + seconds(10)));
        assert!(second.are_open(seconds(9)) && !second.waits_for_others(seconds(9)));
    }

    #[test]
    fn a_pause_saves_up_a_burst_alone() {
        let (rate, epoch) = shared_rate(1000);
        let mut session = Bounds::new(Some(Arc::clone(&rate)), epoch);
        assert_eq!(session.allowance(), 50);
        session.take(50, seconds(1000));
        assert!(session.are_open(seconds(1000)));
        session.take(100, seconds(1000));
        let delay = session.delay(seconds(1000));
        assert_eq!(delay, Duration::from_millis(100));
    }

    #[test]
    fn both_bounds_hold() {
        let (rate, epoch) = shared_rate(1000);
        let mut session = Bounds::new(Some(Arc::clone(&rate)), epoch);
        session.own = Some(Bucket::new(100, Duration::ZERO));
        assert_eq!(session.allowance(), 5);
        session.take(105, Duration::ZERO);
        assert_eq!(session.delay(Duration::ZERO), seconds(1));
        session.own = None;
        assert_eq!(session.delay(Duration::ZERO), Duration::from_millis(105));
        assert!(Bounds::default().are_open(Duration::ZERO));
        assert_eq!(Bounds::default().allowance(), usize::MAX);
    }

    #[test]
    fn extreme_numbers_do_no_harm() {
        for bytes_per_s in [0, 1, u64::MAX] {
            let (rate, epoch) = shared_rate(bytes_per_s);
            let mut session = Bounds::new(Some(Arc::clone(&rate)), epoch);
            for bytes in [0, 1, u64::MAX, u64::MAX] {
                session.take(bytes, seconds(u64::MAX));
                session.take(bytes, Duration::ZERO);
            }
            let _ = session.delay(Duration::ZERO);
            assert!(session.allowance() >= 1);
        }
    }
}
