//! The failures of addresses, or of users, in a table of bounded size.
//!
//! When the table is full, a new address takes the place of the one with the fewest failures (of
//! several, the one that failed longest ago) and **inherits its count**. A table that forgot the
//! oldest could be flushed: one failure each from as many other addresses as it has places, and an
//! address with many failures is a stranger again. Here an address with n failures is displaced
//! only when every other in the table has at least n too, which costs n failures, with their
//! delays, on each of these tens of thousands of networks; and an address that comes back after
//! that and fails again has at least n + 1. What is counted for an address is never less than its
//! failures while it was remembered. The price: while such an attack runs, an address may get a
//! delay after fewer failures of its own.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The delay after the first failure that isn't free.
const DELAY_FIRST: Duration = Duration::from_secs(1);
/// The users of an address whose share of its failures is known. A failure at a further one takes
/// the place of the smallest share, which can't be forgiven any more then.
const USERS_MAX: usize = 4;
/// Time without a failure after which all are forgiven.
const FORGIVEN_AFTER: Duration = Duration::from_secs(15 * 60);
/// Doublings after which a delay is at its longest in any case.
const DOUBLINGS_MAX: u32 = 16;

/// An IPv4 address, or the upper 64 bits of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Network {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl Network {
    /// The network of an address. An IPv4 address in the clothes of IPv6 is an IPv4 address.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

/// A user, by a hash of the name with a key of this process.
pub(super) type UserHash = u64;

#[derive(Clone, Copy, Debug)]
struct Record {
    failures: u32,
    last: Duration,
    /// How many of them were at which user.
    shares: [(UserHash, u32); USERS_MAX],
}

impl Record {
    fn count(&mut self, user: UserHash) {
        self.failures = self.failures.saturating_add(1);
        let own = self.shares.iter().position(|(u, n)| *u == user && *n > 0);
        let place = own.unwrap_or_else(|| {
            let smallest = (0..USERS_MAX).min_by_key(|&i| self.shares[i].1);
            let place = smallest.unwrap_or_default();
            self.shares[place] = (user, 0);
            place
        });
        self.shares[place].1 = self.shares[place].1.saturating_add(1);
    }
}

/// Who failed how often, and when last.
#[derive(Debug)]
pub(super) struct Failures<K> {
    free: u32,
    most: usize,
    /// The longest delay.
    delay_max: Duration,
    records: HashMap<K, Record>,
    /// The same by number of failures and time: the first is displaced first.
    order: BTreeSet<(u32, Duration, K)>,
    /// The same by time alone: the first is forgiven first.
    by_time: BTreeSet<(Duration, K)>,
}

impl<K: Copy + Eq + Hash + Ord> Failures<K> {
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

    /// How long `key` has to wait still.
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
                shares: [(0, 0); USERS_MAX],
            }
        });
        record.count(user);
        record.last = now;
        self.put(key, record);
    }

    /// Forgives `key` what it failed at `user`, and nothing else.
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

    fn put(&mut self, key: K, record: Record) {
        self.records.insert(key, record);
        self.order.insert((record.failures, record.last, key));
        self.by_time.insert((record.last, key));
    }

    fn take(&mut self, key: K) -> Option<Record> {
        let record = self.records.remove(&key)?;
        self.order.remove(&(record.failures, record.last, key));
        self.by_time.remove(&(record.last, key));
        Some(record)
    }

    /// Every record is removed once, so that this costs nothing beyond what adding it did.
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
