//! The verdict on a transfer: where its time went, as shares that sum to one.
//!
//! Each side knows what it did itself: it used its processor, waited for its store, or was held
//! back by a rate limit. Neither can tell why the other one is slow: a socket is full because of
//! the path or of a busy receiver, and empty because of the path or of a busy sender. So the
//! verdict adds what both sides did. In the rest of the time neither had anything to do. While
//! payload was on its way, that is the network's: the sockets of the sender were full, or those of
//! the receiver empty. Otherwise the sides waited for answers to their frames.

use std::time::Duration;

use xdfs_proto::frame::{TimeAccount, TimeDetails};

/// The bottleneck of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitedBy {
    /// The network: payload was on its way, and nobody had anything to do. With a peer that does
    /// not report the time of its processor, that too.
    Network,
    /// Round trips without payload on its way: channels were being opened, or the offer of the file
    /// or its end was still to be answered.
    RoundTrips,
    /// A rate limit of the user, on either side, or the limit on a server's memory for transfers.
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
    pub const ALL: [Self; 8] = [
        Self::SourceRead,
        Self::SenderCpu,
        Self::RateLimit,
        Self::RoundTrips,
        Self::Network,
        Self::ReceiverCpu,
        Self::TargetWrite,
        Self::Durability,
    ];

    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SourceRead => "source-read",
            Self::SenderCpu => "sender-cpu",
            Self::RateLimit => "rate-limit",
            Self::RoundTrips => "round-trips",
            Self::Network => "network",
            Self::ReceiverCpu => "receiver-cpu",
            Self::TargetWrite => "target-write",
            Self::Durability => "durability",
        }
    }

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
    /// time share it in proportion. Figures out of range count as the nearest in range. The rest of
    /// the time is divided as the receiver waited, who sees payload come: a sender can't tell the
    /// last of it from its acknowledgement.
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
            let rest = 1.0 - busy;
            let on_the_way = receiver.on_the_way().or_else(|| sender.on_the_way());
            let on_the_way = on_the_way.unwrap_or(1.0);
            shares.0[LimitedBy::Network.index()] = rest * on_the_way;
            shares.0[LimitedBy::RoundTrips.index()] = rest * (1.0 - on_the_way);
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
    /// The time of which the others are shares.
    pub(crate) all: Duration,
    /// It waited for its store.
    pub(crate) store_permille: u16,
    /// The part of `store_permille` in which data was made durable and published.
    pub(crate) sync_permille: u16,
    /// Its session thread worked.
    pub(crate) cpu_permille: u16,
    /// A rate limit held it back.
    pub(crate) rate_permille: u16,
    /// It had nothing to do while payload was on its way. `None` if that isn't known.
    pub(crate) payload_permille: Option<u16>,
}

impl SideTime {
    /// The report to the peer, with details if `whole`: not every peer knows them.
    pub(crate) fn report(self, whole: bool) -> TimeAccount {
        TimeAccount {
            store_permille: self.store_permille,
            details: whole.then_some(TimeDetails {
                time_us: u64::try_from(self.all.as_micros()).unwrap_or(u64::MAX),
                sync_permille: self.sync_permille,
                cpu_permille: self.cpu_permille,
                rate_permille: self.rate_permille,
                payload_permille: self.payload_permille.unwrap_or(0),
            }),
        }
    }

    /// The peer, by its report, in a transfer that took the time `all` here. What isn't reported
    /// counts as no time, and so does the time that the transfer took beyond that of the report: a
    /// sender's ends when its last bytes are in its sockets.
    pub(crate) fn of_peer(report: TimeAccount, all: Duration) -> Self {
        let details = report.details.unwrap_or_default();
        let reported = match report.details {
            Some(details) => Duration::from_micros(details.time_us).min(all),
            None => all,
        };
        let part = match all.is_zero() {
            true => 1.0,
            false => reported.as_secs_f64() / all.as_secs_f64(),
        };
        // At most 1000.
        let share = |permille: u16| (f64::from(permille.min(1000)) * part).round() as u16;
        Self {
            all,
            store_permille: share(report.store_permille),
            sync_permille: share(details.sync_permille),
            cpu_permille: share(details.cpu_permille),
            rate_permille: share(details.rate_permille),
            payload_permille: report.details.map(|_| share(details.payload_permille)),
        }
    }

    /// The part of its waiting for the other side in which payload was on its way, if known.
    fn on_the_way(self) -> Option<f64> {
        let busy = [self.store_permille, self.cpu_permille, self.rate_permille];
        let busy = busy.map(|share| share.min(1000)).iter().sum();
        let waited = 1000_u16.saturating_sub(busy);
        let payload = self.payload_permille?.min(waited);
        (waited > 0).then(|| f64::from(payload) / f64::from(waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(store: u16, sync: u16, cpu: u16, rate: u16) -> SideTime {
        SideTime {
            all: Duration::from_secs(1),
            store_permille: store,
            sync_permille: sync,
            cpu_permille: cpu,
            rate_permille: rate,
            payload_permille: None,
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
    fn time_in_which_nobody_is_busy_is_that_of_the_network_or_of_round_trips() {
        let idle = SideTime::default();
        assert_eq!(verdict(idle, idle), (LimitedBy::Network, 1.0));
        let with = |side, payload| SideTime {
            payload_permille: Some(payload),
            ..side
        };
        // Who receives knows best.
        for (sender, receiver) in [
            (with(idle, 1000), with(side(200, 0, 0, 0), 200)),
            (with(idle, 250), side(200, 0, 0, 0)),
        ] {
            let shares = TimeShares::of_sides(sender, receiver);
            assert_eq!(shares.limited_by(), LimitedBy::RoundTrips);
            assert!((shares.of(LimitedBy::RoundTrips) - 0.6).abs() < 1e-9);
            assert!((shares.of(LimitedBy::Network) - 0.2).abs() < 1e-9);
        }
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

    #[test]
    fn a_peer_may_report_its_store_alone() {
        let own = SideTime {
            payload_permille: Some(30),
            ..side(700, 600, 200, 50)
        };
        let of_peer = |whole| SideTime::of_peer(own.report(whole), own.all);
        assert_eq!(of_peer(true), own);
        assert_eq!(of_peer(false), side(700, 0, 0, 0));
    }

    /// A small file is in the sockets before its bytes are on a narrow path.
    #[test]
    fn what_a_peer_did_counts_for_its_time_alone() {
        let report = side(100, 0, 800, 0).report(true);
        let peer = |all| SideTime::of_peer(report, all);
        let longer = peer(Duration::from_secs(100));
        assert_eq!((longer.store_permille, longer.cpu_permille), (1, 8));
        for shorter in [Duration::ZERO, Duration::from_millis(1)] {
            assert_eq!(peer(shorter).cpu_permille, 800);
        }
    }

    #[test]
    fn absurd_figures_count_as_the_nearest_possible_ones() {
        let idle = SideTime::default();
        for (absurd, nearest) in [
            (side(300, u16::MAX, 0, 0), side(300, 300, 0, 0)),
            (side(0, 1000, 0, 0), side(0, 0, 0, 0)),
            (side(u16::MAX, 0, 1001, 0), side(1000, 0, 1000, 0)),
            (side(0, 0, 0, u16::MAX), side(0, 0, 0, 1000)),
        ] {
            let verdict = |receiver| TimeShares::of_sides(idle, receiver);
            assert_eq!(verdict(absurd), verdict(nearest));
        }
    }

    /// Whatever a peer claims.
    #[test]
    fn the_sum_is_one() {
        let figures = [0, 1, 333, 1000, u16::MAX];
        let figure = |n: usize, place: u32| figures[n / figures.len().pow(place) % figures.len()];
        for n in 0..figures.len().pow(8) {
            let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|place| figure(n, place));
            let receiver = SideTime {
                payload_permille: [None, Some(0), Some(300), Some(u16::MAX)][n % 4],
                ..side(e, f, g, h)
            };
            let shares = TimeShares::of_sides(side(a, b, c, d), receiver);
            let sum: f64 = shares.iter().map(|(_, share)| share).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{shares:?}");
            assert!(
                shares.iter().all(|(_, share)| (0.0..=1.0).contains(&share)),
                "{shares:?}"
            );
        }
    }
}
