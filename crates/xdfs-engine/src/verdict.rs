//! The verdict on a transfer: where its time went, as shares that sum to one.
//!
//! Each side knows what it did itself: it used its processor, waited for its store, or was held
//! back by a rate limit. Neither can tell why the other one is slow. So the verdict adds what both
//! sides did, and the time in which neither had anything to do is the network's.

use std::time::Duration;

/// The bottleneck of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitedBy {
    /// The network. With a peer that does not report the time of its processor, that too.
    Network,
    /// A rate limit of the user, on either side.
    RateLimit,
    /// Reading the source.
    SourceRead,
    /// The processor of the sender: reading from the page cache, hashing, encrypting, sending.
    SenderCpu,
    /// The processor of the receiver.
    ReceiverCpu,
    /// Writing the target.
    TargetWrite,
    /// Making the target durable, and publishing it.
    Durability,
}

impl LimitedBy {
    /// All causes, in the order in which payload meets them.
    pub const ALL: [Self; 7] = [
        Self::SourceRead,
        Self::SenderCpu,
        Self::RateLimit,
        Self::Network,
        Self::ReceiverCpu,
        Self::TargetWrite,
        Self::Durability,
    ];

    fn index(self) -> usize {
        Self::ALL.iter().position(|by| *by == self).unwrap_or(0)
    }
}

/// Where the time of a transfer went: a share for each cause. The shares are between 0 and 1, and
/// their sum is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeShares([f64; LimitedBy::ALL.len()]);

impl TimeShares {
    /// All of the time went to one cause.
    #[must_use]
    pub fn only(by: LimitedBy) -> Self {
        let mut shares = [0.0; LimitedBy::ALL.len()];
        shares[by.index()] = 1.0;
        Self(shares)
    }

    /// The share of a cause.
    #[must_use]
    pub fn of(&self, by: LimitedBy) -> f64 {
        self.0[by.index()]
    }

    /// All causes with their shares, in the order of [`LimitedBy::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (LimitedBy, f64)> {
        LimitedBy::ALL.into_iter().zip(self.0)
    }

    /// The cause with the largest share: the bottleneck.
    #[must_use]
    pub fn limited_by(&self) -> LimitedBy {
        let largest = self.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        largest.map_or(LimitedBy::Network, |(by, _)| by)
    }

    /// The shares of a transfer, from what its two sides did. Sides that were busy at the same
    /// time share it in proportion. Figures out of range count as the nearest in range.
    pub(crate) fn of_sides(sender: SideTime, receiver: SideTime) -> Self {
        let share = |permille: u16| f64::from(permille.min(1000)) / 1000.0;
        let durability = receiver.sync_permille.min(receiver.store_permille);
        let mut shares = Self([0.0; LimitedBy::ALL.len()]);
        for (by, busy) in [
            (LimitedBy::SourceRead, share(sender.store_permille)),
            (LimitedBy::SenderCpu, share(sender.cpu_permille)),
            (
                LimitedBy::RateLimit,
                share(sender.rate_permille) + share(receiver.rate_permille),
            ),
            (LimitedBy::ReceiverCpu, share(receiver.cpu_permille)),
            (
                LimitedBy::TargetWrite,
                share(receiver.store_permille) - share(durability),
            ),
            (LimitedBy::Durability, share(durability)),
        ] {
            shares.0[by.index()] = busy;
        }
        let busy: f64 = shares.0.iter().sum();
        if busy > 1.0 {
            shares.0 = shares.0.map(|share| share / busy);
        } else {
            shares.0[LimitedBy::Network.index()] = 1.0 - busy;
        }
        shares
    }
}

/// The time of several transfers by cause, each weighed by its length.
#[derive(Clone, Debug, Default)]
pub struct TimeSum {
    /// In seconds.
    sums: [f64; LimitedBy::ALL.len()],
}

impl TimeSum {
    /// Adds a transfer, or another sum, of this length.
    pub fn add(&mut self, shares: &TimeShares, time: Duration) {
        for (sum, share) in self.sums.iter_mut().zip(shares.0) {
            *sum += share * time.as_secs_f64();
        }
    }

    /// The shares of all together; `None` if they took no time.
    #[must_use]
    pub fn shares(&self) -> Option<TimeShares> {
        let total: f64 = self.sums.iter().sum();
        (total > 0.0).then(|| TimeShares(self.sums.map(|sum| sum / total)))
    }
}

/// What one side did in the time of a transfer, in thousandths of that time. The rest is waiting
/// for the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SideTime {
    /// It waited for its store.
    pub(crate) store_permille: u16,
    /// The part of `store_permille` in which data was made durable and published.
    pub(crate) sync_permille: u16,
    /// Its session thread worked.
    pub(crate) cpu_permille: u16,
    /// A rate limit held it back.
    pub(crate) rate_permille: u16,
}

impl SideTime {
    /// A side of which only the time for its store is known.
    pub(crate) fn of_store(permille: u16) -> Self {
        Self {
            store_permille: permille,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(store: u16, sync: u16, cpu: u16, rate: u16) -> SideTime {
        SideTime {
            store_permille: store,
            sync_permille: sync,
            cpu_permille: cpu,
            rate_permille: rate,
        }
    }

    fn verdict(sender: SideTime, receiver: SideTime) -> (LimitedBy, f64) {
        let shares = TimeShares::of_sides(sender, receiver);
        (shares.limited_by(), shares.of(shares.limited_by()))
    }

    #[test]
    fn the_busier_side_is_named() {
        let idle = SideTime::default();
        for (sender, receiver, by) in [
            (
                side(810, 0, 100, 0),
                side(0, 0, 100, 0),
                LimitedBy::SourceRead,
            ),
            (
                side(100, 0, 900, 0),
                side(100, 0, 300, 0),
                LimitedBy::SenderCpu,
            ),
            (side(0, 0, 100, 880), idle, LimitedBy::RateLimit),
            (idle, side(0, 0, 100, 880), LimitedBy::RateLimit),
            (
                side(100, 0, 100, 0),
                side(100, 0, 100, 0),
                LimitedBy::Network,
            ),
            (
                side(100, 0, 100, 0),
                side(0, 0, 900, 0),
                LimitedBy::ReceiverCpu,
            ),
            (
                side(50, 0, 50, 0),
                side(900, 100, 50, 0),
                LimitedBy::TargetWrite,
            ),
            (
                side(50, 0, 50, 0),
                side(900, 700, 50, 0),
                LimitedBy::Durability,
            ),
        ] {
            let (named, share) = verdict(sender, receiver);
            assert_eq!(named, by, "{sender:?} {receiver:?}");
            assert!(share > 0.5, "{share}");
        }
    }

    #[test]
    fn no_one_who_is_busy_means_the_network() {
        let idle = SideTime::default();
        assert_eq!(verdict(idle, idle), (LimitedBy::Network, 1.0));
    }

    #[test]
    fn transfers_are_weighed_by_their_time() {
        let mut sum = TimeSum::default();
        assert_eq!(sum.shares(), None);
        sum.add(&TimeShares::only(LimitedBy::Network), Duration::ZERO);
        assert_eq!(sum.shares(), None);
        for (by, seconds) in [(LimitedBy::TargetWrite, 3), (LimitedBy::Network, 1)] {
            sum.add(&TimeShares::only(by), Duration::from_secs(seconds));
        }
        let both = sum.shares().unwrap();
        assert_eq!(both.limited_by(), LimitedBy::TargetWrite);
        assert!((both.of(LimitedBy::TargetWrite) - 0.75).abs() < 1e-9);
    }

    /// Whatever a peer claims.
    #[test]
    fn the_sum_is_one() {
        let figures = [0, 1, 333, 1000, u16::MAX];
        let figure = |n: usize, place: u32| figures[n / figures.len().pow(place) % figures.len()];
        for n in 0..figures.len().pow(8) {
            let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|place| figure(n, place));
            let shares = TimeShares::of_sides(side(a, b, c, d), side(e, f, g, h));
            let sum: f64 = shares.iter().map(|(_, share)| share).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{shares:?}");
            assert!(
                shares.iter().all(|(_, share)| (0.0..=1.0).contains(&share)),
                "{shares:?}"
            );
        }
    }
}
