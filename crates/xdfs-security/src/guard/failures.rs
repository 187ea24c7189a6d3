//! Failures of addresses or users, in a table of bounded size.
//!
//! When the table is full, a new address replaces the one with the fewest failures (among several,
//! the one with the oldest) and **inherits its count**. A table that evicted the oldest entry could
//! be flushed: one failure each from as many other addresses as it has slots, and an address with
//! many failures is unknown again. Here an address with n failures is displaced only when all
//! others in the table have at least n too, which costs n failures, with their delays, on each of
//! tens of thousands of networks; and if the address fails again after that, its count is at least
//! n + 1. The count of an address is never less than its failures while it was remembered. The
//! price: during such an attack, an address may be delayed after fewer failures of its own.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// Delay after the first failure beyond the free ones.
const DELAY_FIRST: Duration = Duration::from_secs(1);
/// Time without a failure after which all are forgiven.
const FORGIVEN_AFTER: Duration = Duration::from_secs(15 * 60);
/// Number of doublings after which any delay has reached its maximum.
const DOUBLINGS_MAX: u32 = 16;

/// A user, as a hash of the name with a key of this process.
pub(super) type UserHash = u64;

#[derive(Clone, Copy, Debug)]
struct Record<const USERS: usize> {
    failures: u32,
    last: Duration,
    /// Shares of the failures, by user.
    shares: [(UserHash, u32); USERS],
}

impl<const USERS: usize> Record<USERS> {
    /// Counts a failure at `user`.
    fn count(&mut self, user: UserHash) {
        self.failures = self.failures.saturating_add(1);
        let own = self.shares.iter().position(|(u, n)| *u == user && *n > 0);
        let place = own.unwrap_or_else(|| {
            let smallest = (0..USERS).min_by_key(|&i| self.shares[i].1);
            let place = smallest.unwrap_or_default();
            self.shares[place] = (user, 0);
            place
        });
        self.shares[place].1 = self.shares[place].1.saturating_add(1);
    }
}

/// Failures by key, with the time of the last one. So many `USERS` have a separate share of those
/// of a key, at least one; a failure of a further user replaces the smallest share, which can't be
/// forgiven any more.
#[derive(Debug)]
pub(super) struct Failures<K, const USERS: usize> {
    free: u32,
    most: usize,
    /// The maximum delay.
    delay_max: Duration,
    records: HashMap<K, Record<USERS>>,
    /// The same by count and time: the first is displaced first.
    order: BTreeSet<(u32, Duration, K)>,
    /// The same by time: the first is forgiven first.
    by_time: BTreeSet<(Duration, K)>,
}

impl<K: Copy + Eq + Hash + Ord, const USERS: usize> Failures<K, USERS> {
    pub(super) fn new(free: u32, most: usize, delay_max: Duration) -> Self {
        Self {
            free,
            most,
            delay_max,
            records: HashMap::new(),
            order: BTreeSet::new(),
            by_time: BTreeSet::new(),
        }
    }

    /// Whether `key` has had a delay.
    pub(super) fn is_delayed(&self, key: K) -> bool {
        let record = self.records.get(&key);
        record.is_some_and(|record| record.failures >= self.free.max(1))
    }

    /// Whether a failure of `key` at `user` has a share.
    pub(super) fn has_failed(&self, key: K, user: UserHash) -> bool {
        let record = self.records.get(&key);
        record.is_some_and(|record| record.shares.iter().any(|(u, n)| *u == user && *n > 0))
    }

    /// The remaining delay of `key`.
    pub(super) fn wait(&self, key: K, now: Duration) -> Option<Duration> {
        let record = self.records.get(&key)?;
        let since = now.saturating_sub(record.last);
        let left = self.delay(record.failures).checked_sub(since)?;
        (left > Duration::ZERO).then_some(left)
    }

    fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(self.free.max(1)) else {
            return Duration::ZERO;
        };
        (DELAY_FIRST * (1 << doublings.min(DOUBLINGS_MAX))).min(self.delay_max)
    }

    /// Counts a failure of `key` at `user`.
    pub(super) fn add(&mut self, key: K, user: UserHash, now: Duration) {
        if self.most == 0 {
            return;
        }
        self.forget_forgiven(now);
        let own = self.take(key);
        let mut record = own.unwrap_or_else(|| {
            let is_full = self.records.len() >= self.most;
            let weakest = self.order.first().filter(|_| is_full);
            let displaced = weakest
                .map(|&(_, _, key)| key)
                .and_then(|key| self.take(key));
            Record {
                failures: displaced.map_or(0, |record| record.failures),
                last: now,
                shares: [(0, 0); USERS],
            }
        });
        record.count(user);
        record.last = now;
        self.put(key, record);
    }

    /// Keeps the failures of `key` from being forgiven, as a further one would, without counting
    /// it.
    pub(super) fn remember(&mut self, key: K, now: Duration) {
        self.forget_forgiven(now);
        if let Some(mut record) = self.take(key) {
            record.last = now;
            self.put(key, record);
        }
    }

    /// Forgives the failures of `key` for `user`, and no others.
    pub(super) fn forgive(&mut self, key: K, user: UserHash) {
        let Some(mut record) = self.take(key) else {
            return;
        };
        for share in &mut record.shares {
            if share.0 == user {
                record.failures = record.failures.saturating_sub(share.1);
                *share = (0, 0);
            }
        }
        if record.failures > 0 {
            self.put(key, record);
        }
    }

    fn put(&mut self, key: K, record: Record<USERS>) {
        self.records.insert(key, record);
        self.order.insert((record.failures, record.last, key));
        self.by_time.insert((record.last, key));
    }

    fn take(&mut self, key: K) -> Option<Record<USERS>> {
        let record = self.records.remove(&key)?;
        self.order.remove(&(record.failures, record.last, key));
        self.by_time.remove(&(record.last, key));
        Some(record)
    }

    /// Each record is removed once, so the amortised cost is that of adding it.
    fn forget_forgiven(&mut self, now: Duration) {
        while let Some(&(last, key)) = self.by_time.first() {
            if now.saturating_sub(last) < FORGIVEN_AFTER {
                return;
            }
            self.take(key);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.records.len(), self.order.len());
        assert_eq!(self.records.len(), self.by_time.len());
        self.records.len()
    }
}
