//! The bounds on bytes a second that a session obeys: its own, and that of all sessions of its user
//! together. Time comes in as an argument.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_store::rate::{BURST, Share, SharedRate};

/// The bounds that a session obeys.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// The one it was asked for.
    own: Option<Bucket>,
    /// The one that it was asked for before: what it took has to be paid for all the same.
    last: Option<Bucket>,
    /// That of its user.
    share: Option<Share>,
}

impl Bounds {
    /// Puts a session that began at `started` under a bound with others.
    pub(crate) fn new(shared: Option<Arc<SharedRate>>, started: Instant) -> Self {
        Self {
            own: None,
            last: None,
            share: shared.map(|rate| Share::new(rate, started)),
        }
    }

    /// Puts the session under a bound of its own, of `rate` bytes a second. What was taken under
    /// the one before is still to be paid for, and no pause is saved up by it: however many
    /// transfers ask for a bound one after the other, it is one.
    pub(crate) fn bound(&mut self, rate: u64, now: Duration) {
        let before = self.own.take().or_else(|| self.last.take());
        self.own = Some(match before {
            Some(bucket) => bucket.at_rate(rate, now),
            None => Bucket::new(rate, now),
        });
    }

    /// Nothing is left to which the session's own bound applies.
    pub(crate) fn unbound(&mut self) {
        self.last = self.own.take().or_else(|| self.last.take());
    }

    /// Time for which the session's own bound held bytes back, since the session began.
    pub(crate) fn waited(&self) -> Duration {
        let own = self.own.as_ref().or(self.last.as_ref());
        own.map_or(Duration::ZERO, |bucket| bucket.waited)
    }

    /// Whether bytes may pass now, `now` after the session began.
    pub(crate) fn are_open(&mut self, now: Duration) -> bool {
        let shared = self.share.as_ref().is_none_or(|share| share.is_open(now));
        shared && self.own.as_mut().is_none_or(|bucket| bucket.is_open(now))
    }

    /// Bytes that may pass at once while they are open; at least 1.
    pub(crate) fn allowance(&self) -> usize {
        let own = self.own.as_ref().map_or(usize::MAX, Bucket::allowance);
        let shared = self.share.as_ref().map_or(u64::MAX, Share::quantum);
        own.min(usize::try_from(shared).unwrap_or(usize::MAX))
    }

    /// Takes what passed.
    pub(crate) fn take(&mut self, bytes: u64, now: Duration) {
        if let Some(bucket) = &mut self.own {
            bucket.take(bytes);
        }
        if let Some(share) = &mut self.share {
            share.take(bytes, now);
        }
    }

    /// Waits for all that was taken of the bound with others so far, as if by this session: what
    /// threads beside it have [charged](SharedRate::charge) is among that.
    pub(crate) fn catch_up(&mut self) {
        if let Some(share) = &mut self.share {
            share.catch_up();
        }
    }

    /// Time until they open.
    pub(crate) fn delay(&self, now: Duration) -> Duration {
        let own = self.own.as_ref();
        let own = own.map_or(Duration::ZERO, |bucket| bucket.delay(now));
        let shared = self.share.as_ref();
        own.max(shared.map_or(Duration::ZERO, |share| share.delay(now)))
    }

    /// Whether a bound with others holds bytes back.
    pub(crate) fn waits_for_others(&self, now: Duration) -> bool {
        self.share.as_ref().is_some_and(|share| !share.is_open(now))
    }
}

/// A token bucket for the bound of one session.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate_bytes_per_s: f64,
    burst_bytes: f64,
    tokens: f64,
    last: Duration,
    /// Time during which bytes were held back.
    waited: Duration,
}

impl Bucket {
    /// A bucket that lets `rate` bytes a second through (at least 1), in bursts of 50 ms.
    pub(crate) fn new(rate: u64, now: Duration) -> Self {
        let rate_bytes_per_s = rate.max(1) as f64;
        let burst_bytes = (rate_bytes_per_s * BURST.as_secs_f64()).max(1.0);
        Self {
            rate_bytes_per_s,
            burst_bytes,
            tokens: burst_bytes,
            last: now,
            waited: Duration::ZERO,
        }
    }

    /// The same at another rate: the bytes that are owed, and the time that was waited, stay.
    fn at_rate(mut self, rate: u64, now: Duration) -> Self {
        // Time in which nothing was asked of it fills it, and wasn't waited for.
        self.fill(now);
        let other = Self::new(rate, now);
        Self {
            tokens: self.tokens.min(other.burst_bytes),
            waited: self.waited,
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
        if self.tokens <= 0.0 {
            self.waited += now.saturating_sub(self.last);
        }
        self.fill(now);
        self.tokens > 0.0
    }

    /// Bytes that may pass at once while the bucket is open; at least 1.
    pub(crate) fn allowance(&self) -> usize {
        self.tokens.max(1.0) as usize
    }

    /// Takes what passed.
    pub(crate) fn take(&mut self, bytes: u64) {
        self.tokens -= bytes as f64;
    }

    /// Time from `now` until the bucket opens, also if nothing was asked of it for a while.
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
        // Nothing is asked of a bucket while there is nothing to send: nobody waits for it then.
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
        assert!(bucket.waited > Duration::from_secs(8));
    }

    /// Ten seconds of transfers of these sizes, one after the other, each under a bound that it
    /// asks for itself; what passed.
    fn one_after_the_other(rates: &[u64], bytes: u64) -> u64 {
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
            // Nothing holds back what has no bound.
            assert!(bounds.are_open(now) && bounds.delay(now).is_zero());
        }
        assert!(bounds.waited() > seconds(8));
        sent
    }

    #[test]
    fn transfers_one_after_the_other_have_one_bound() {
        for bytes in [10, 100, 5000] {
            let sent = one_after_the_other(&[1000], bytes);
            let most = 10_000 + 50 + bytes;
            assert!((9_800..=most).contains(&sent), "{sent} of {bytes}");
        }
        // Half of the bytes at each rate.
        let sent = one_after_the_other(&[1000, 3000], 100);
        assert!((14_500..=15_500).contains(&sent), "{sent}");
    }

    #[test]
    fn what_is_owed_is_bytes_and_not_time() {
        let mut bounds = Bounds::default();
        bounds.bound(1000, Duration::ZERO);
        bounds.take(1_000_050, Duration::ZERO);
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

    /// A bound, and when it began.
    fn shared_rate(bytes_per_s: u64) -> (Arc<SharedRate>, Instant) {
        let epoch = Instant::now();
        (Arc::new(SharedRate::new(bytes_per_s, epoch)), epoch)
    }

    /// Sessions that send pieces of these sizes whenever they may, for ten seconds; what each sent.
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
            // A burst at the beginning, and a piece of each at the end.
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
        // Who takes little at a time isn't shut out.
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
