//! The failures of addresses, in a table of bounded size.
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
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The delay after the first failure that isn't free.
const DELAY_FIRST: Duration = Duration::from_secs(1);
/// The longest delay.
const DELAY_MAX: Duration = Duration::from_secs(300);
/// Time without a failure after which all are forgiven.
const FORGIVEN_AFTER: Duration = Duration::from_secs(15 * 60);
/// Doublings after which a delay is at its longest in any case.
const DOUBLINGS_MAX: u32 = 16;

/// An IPv4 address, or the upper 64 bits of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Network {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl Network {
    /// The network of an address. An IPv4 address in the clothes of IPv6 is an IPv4 address.
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Record {
    failures: u32,
    last: Duration,
}

/// Who failed how often, and when last.
#[derive(Debug)]
pub(super) struct Failures {
    free: u32,
    most: usize,
    records: HashMap<Network, Record>,
    /// The same by number of failures and time: the first is displaced first.
    order: BTreeSet<(u32, Duration, Network)>,
    /// The same by time alone: the first is forgiven first.
    by_time: BTreeSet<(Duration, Network)>,
}

impl Failures {
    pub(super) fn new(free: u32, most: usize) -> Self {
        Self {
            free,
            most,
            records: HashMap::new(),
            order: BTreeSet::new(),
            by_time: BTreeSet::new(),
        }
    }

    /// How long the network has to wait still.
    pub(super) fn wait(&self, network: Network, now: Duration) -> Option<Duration> {
        let record = self.records.get(&network)?;
        let since = now.saturating_sub(record.last);
        let left = self.delay(record.failures).checked_sub(since)?;
        (left > Duration::ZERO).then_some(left)
    }

    fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(self.free.max(1)) else {
            return Duration::ZERO;
        };
        (DELAY_FIRST * (1 << doublings.min(DOUBLINGS_MAX))).min(DELAY_MAX)
    }

    pub(super) fn add(&mut self, network: Network, now: Duration) {
        if self.most == 0 {
            return;
        }
        self.forget_forgiven(now);
        let mut displaced = self.take(network);
        if displaced.is_none() && self.records.len() >= self.most {
            let weakest = self.order.first().map(|&(_, _, weakest)| weakest);
            displaced = weakest.and_then(|weakest| self.take(weakest));
        }
        let earlier = displaced.map_or(0, |record| record.failures);
        let record = Record {
            failures: earlier.saturating_add(1),
            last: now,
        };
        self.records.insert(network, record);
        self.order.insert((record.failures, record.last, network));
        self.by_time.insert((record.last, network));
    }

    pub(super) fn forgive(&mut self, network: Network) {
        self.take(network);
    }

    fn take(&mut self, network: Network) -> Option<Record> {
        let record = self.records.remove(&network)?;
        self.order.remove(&(record.failures, record.last, network));
        self.by_time.remove(&(record.last, network));
        Some(record)
    }

    /// Every record is removed once, so that this costs nothing beyond what adding it did.
    fn forget_forgiven(&mut self, now: Duration) {
        while let Some(&(last, network)) = self.by_time.first() {
            if now.saturating_sub(last) < FORGIVEN_AFTER {
                return;
            }
            self.take(network);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.records.len(), self.order.len());
        assert_eq!(self.records.len(), self.by_time.len());
        self.records.len()
    }
}
