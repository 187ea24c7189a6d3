//! Bounds on bytes a second: of one session, and of all sessions of a user together. Time comes in
//! as an argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What may pass at once after a pause, as time.
const BURST: Duration = Duration::from_millis(50);

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
    /// A bound of so many bytes a second, at least 1. Nothing was taken yet.
    #[must_use]
    pub fn new(bytes_per_s: u64) -> Self {
        Self {
            bytes_per_s: bytes_per_s.max(1),
            epoch: Instant::now(),
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
    pub(crate) fn charge(&self, bytes: u64) {
        self.take(bytes, self.time(Instant::now()));
    }

    /// Bytes that may pass between two looks at the time.
    pub(crate) fn quantum(&self) -> u64 {
        (u128::from(self.bytes_per_s) * BURST.as_nanos() / 1_000_000_000)
            .try_into()
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// The largest block that sessions under this bound should have, in bytes: they share it block
    /// by block.
    pub(crate) fn block_bytes_max(&self) -> u32 {
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
#[derive(Debug)]
struct Share {
    rate: Arc<SharedRate>,
    /// The time of the bound at which the session began, in nanoseconds.
    offset_ns: u64,
    /// When what this session took will have been paid for.
    paid_at_ns: u64,
}

impl Share {
    fn new(rate: Arc<SharedRate>, started: Instant) -> Self {
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

    fn is_open(&self, now: Duration) -> bool {
        self.paid_at_ns <= self.time(now)
    }

    fn take(&mut self, bytes: u64, now: Duration) {
        self.paid_at_ns = self.rate.take(bytes, self.time(now));
    }

    fn delay(&self, now: Duration) -> Duration {
        Duration::from_nanos(self.paid_at_ns.saturating_sub(self.time(now)))
    }
}

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
        let shared = self.share.as_ref().map_or(u64::MAX, |s| s.rate.quantum());
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
            share.paid_at_ns = share.rate.paid_at_ns.load(Ordering::Relaxed);
        }
    }

    /// Time until they open.
    pub(crate) fn delay(&self, now: Duration) -> Duration {
        let own = self.own.as_ref().map_or(Duration::ZERO, Bucket::delay);
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

    /// Time until the bucket opens.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_secs_f64((-self.tokens / self.rate_bytes_per_s).clamp(0.0, 3600.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_the_rate_through() {
        let mut bucket = Bucket::new(1000, Duration::ZERO);
        let (mut now, mut sent) = (Duration::ZERO, 0u64);
        while now < Duration::from_secs(10) {
            if bucket.is_open(now) {
                bucket.take(100);
                sent += 100;
            } else {
                now += bucket.delay().max(Duration::from_millis(1));
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

    /// Sessions that send pieces of these sizes whenever they may, for ten seconds; what each sent.
    fn compete(rate: &Arc<SharedRate>, pieces: &[u64]) -> Vec<u64> {
        let bounds = |_: &u64| Bounds::new(Some(Arc::clone(rate)), rate.epoch);
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
            let rate = Arc::new(SharedRate::new(1_000_000));
            let sent = compete(&rate, &vec![10_000; n]);
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
        let rate = Arc::new(SharedRate::new(1_000_000));
        let sent = compete(&rate, &[2 << 20, 50_000]);
        let all: u64 = sent.iter().sum();
        assert!(all <= 10_000_000 + 50_000 + (2 << 20) + 50_000, "{sent:?}");
        // Who takes little at a time isn't shut out.
        assert!(sent[1] >= 200_000, "{sent:?}");
    }

    #[test]
    fn beginning_anew_saves_no_wait() {
        let rate = Arc::new(SharedRate::new(1000));
        let session = |at| Bounds::new(Some(Arc::clone(&rate)), rate.epoch + at);
        session(Duration::ZERO).take(10_000, Duration::ZERO);
        let mut second = session(seconds(1));
        assert!(!second.are_open(Duration::ZERO) && second.waits_for_others(Duration::ZERO));
        assert_eq!(second.delay(Duration::ZERO), seconds(9));
        assert!(!rate.is_settled(rate.epoch + seconds(9)));
        assert!(rate.is_settled(rate.epoch + seconds(10)));
        assert!(second.are_open(seconds(9)) && !second.waits_for_others(seconds(9)));
    }

    #[test]
    fn a_pause_saves_up_a_burst_alone() {
        let rate = Arc::new(SharedRate::new(1000));
        let mut session = Bounds::new(Some(Arc::clone(&rate)), rate.epoch);
        assert_eq!(session.allowance(), 50);
        session.take(50, seconds(1000));
        assert!(session.are_open(seconds(1000)));
        session.take(100, seconds(1000));
        let delay = session.delay(seconds(1000));
        assert_eq!(delay, Duration::from_millis(100));
    }

    #[test]
    fn both_bounds_hold() {
        let rate = Arc::new(SharedRate::new(1000));
        let mut session = Bounds::new(Some(Arc::clone(&rate)), rate.epoch);
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
            let rate = Arc::new(SharedRate::new(bytes_per_s));
            let mut session = Bounds::new(Some(Arc::clone(&rate)), rate.epoch);
            for bytes in [0, 1, u64::MAX, u64::MAX] {
                session.take(bytes, seconds(u64::MAX));
                session.take(bytes, Duration::ZERO);
            }
            let _ = session.delay(Duration::ZERO);
            assert!(session.allowance() >= 1);
        }
    }

    #[test]
    fn threads_that_take_at_once_take_all_of_it() {
        let rate = SharedRate::new(1_000_000_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).map(|_| rate.take(7, 0)).max());
            }
        });
        assert_eq!(rate.paid_at_ns.load(Ordering::Relaxed), 28_000);
    }
}
