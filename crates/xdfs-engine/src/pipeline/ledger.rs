//! The account of a session's time: what its thread did, and what it waited for when nothing
//! could be done. It has no clock; a turn passes the times of its begin and of its end.

use std::ops::Sub;
use std::time::Duration;

use crate::storage::StoreTime;
use crate::tally::Activity;
use crate::verdict::SideTime;

/// What keeps a session from moving payload until its next turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nothing: the next turn follows at once.
    No,
    /// Answers of the peer; no payload is on its way.
    #[default]
    ForAnswer,
    /// Payload that is on its way: an acknowledgement of it, or its rest.
    ForPayload,
    /// A rate limit.
    ForRate,
    /// Memory that other sessions hold.
    ForMemory,
    /// A source that workers read.
    ForSource,
    /// The storage thread: a buffer, or the end of a file.
    ForTarget,
}

/// Times that a session has spent since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// All of the time.
    all: Duration,
    /// The session thread worked.
    cpu: Duration,
    /// A rate limit held payload back, or the limit on the memory of all sessions.
    rate: Duration,
    /// Nothing could be sent before a source was read.
    source: Duration,
    /// Nothing could be received before a target was written, or made durable.
    target: Duration,
    /// Nothing could be done before payload arrived that was on its way.
    payload: Duration,
}

impl Spent {
    /// All of the time.
    pub(super) fn all(&self) -> Duration {
        self.all
    }

    /// The times in the order of [`Activity::ALL`].
    pub(super) fn activities(&self) -> [Duration; Activity::ALL.len()] {
        let named = self.cpu + self.source + self.target + self.payload + self.rate;
        Activity::ALL.map(|activity| match activity {
            Activity::Work => self.cpu,
            Activity::Source => self.source,
            Activity::Target => self.target,
            Activity::Network => self.payload,
            Activity::RateLimit => self.rate,
            Activity::Idle => self.all.saturating_sub(named),
        })
    }

    /// The account of a side that sends.
    pub(super) fn of_sender(&self) -> SideTime {
        self.side(self.source, Duration::ZERO)
    }

    /// The account of a side that receives, whose store took these times for a file. How much of
    /// its waiting each of them explains is not known, so they divide it in proportion.
    pub(super) fn of_receiver(&self, store: StoreTime) -> SideTime {
        let both = store.writing + store.syncing;
        let syncing = match both.is_zero() {
            true => Duration::ZERO,
            false => self
                .target
                .mul_f64(store.syncing.as_secs_f64() / both.as_secs_f64()),
        };
        self.side(self.target, syncing)
    }

    fn side(&self, store: Duration, sync: Duration) -> SideTime {
        SideTime {
            all: self.all,
            store_permille: permille(store, self.all),
            sync_permille: permille(sync, self.all),
            cpu_permille: permille(self.cpu, self.all),
            rate_permille: permille(self.rate, self.all),
            payload_permille: Some(permille(self.payload, self.all)),
        }
    }
}

/// The times spent since an earlier state of the account.
impl Sub for Spent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            all: self.all.saturating_sub(before.all),
            cpu: self.cpu.saturating_sub(before.cpu),
            rate: self.rate.saturating_sub(before.rate),
            source: self.source.saturating_sub(before.source),
            target: self.target.saturating_sub(before.target),
            payload: self.payload.saturating_sub(before.payload),
        }
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    spent: Spent,
    waiting: Waiting,
    /// Time of the current turn that was spent in a store.
    in_store: Duration,
}

impl Ledger {
    /// A turn begins at `now`: the time since the last one is that of what it waited for.
    pub(super) fn begin_turn(&mut self, now: Duration) {
        let waited = self.pass(now);
        match self.waiting {
            Waiting::No => self.spent.cpu += waited,
            Waiting::ForAnswer => {}
            Waiting::ForPayload => self.spent.payload += waited,
            Waiting::ForRate | Waiting::ForMemory => self.spent.rate += waited,
            Waiting::ForSource => self.spent.source += waited,
            Waiting::ForTarget => self.spent.target += waited,
        }
    }

    /// A source was read within the turn.
    pub(super) fn read_source(&mut self, time: Duration) {
        self.spent.source += time;
        self.in_store += time;
    }

    /// A target was opened, written or published within the turn.
    pub(super) fn wrote_target(&mut self, time: Duration) {
        self.spent.target += time;
        self.in_store += time;
    }

    /// The turn ends at the time of the last account: the time until the next one is that of
    /// `waiting`.
    pub(super) fn wait_for(&mut self, waiting: Waiting) {
        self.waiting = waiting;
    }

    /// The account at `now`, within a turn.
    pub(super) fn spent_until(&mut self, now: Duration) -> Spent {
        let worked = self.pass(now);
        let in_store = std::mem::take(&mut self.in_store);
        self.spent.cpu += worked.saturating_sub(in_store);
        self.spent
    }

    /// The time that has passed since the account was last brought up to date.
    fn pass(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.spent.all);
        self.spent.all += passed;
        passed
    }
}

/// The share of `part` in `whole`, in thousandths.
fn permille(part: Duration, whole: Duration) -> u16 {
    let thousandths = (part.as_nanos() * 1000).checked_div(whole.as_nanos());
    // Not above 1000, since it is a part.
    thousandths.map_or(0, |share| share.min(1000) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{LimitedBy, TimeShares};

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A session of turns that work for 1 ms each and wait for 9 ms.
    fn session(waiting: Waiting) -> Spent {
        let mut ledger = Ledger::default();
        ledger.wait_for(waiting);
        for turn in 1..100 {
            ledger.begin_turn(ms(10 * turn - 1));
            ledger.spent_until(ms(10 * turn));
            ledger.wait_for(waiting);
        }
        ledger.spent_until(ms(990))
    }

    #[test]
    fn waiting_counts_for_its_cause() {
        let peer = SideTime::default();
        let store = StoreTime {
            writing: ms(1),
            syncing: ms(9),
        };
        for (waiting, by) in [
            (Waiting::ForAnswer, LimitedBy::RoundTrips),
            (Waiting::ForPayload, LimitedBy::Network),
            (Waiting::ForRate, LimitedBy::RateLimit),
            (Waiting::ForMemory, LimitedBy::RateLimit),
            (Waiting::ForSource, LimitedBy::SourceRead),
            (Waiting::No, LimitedBy::SenderCpu),
        ] {
            let shares = TimeShares::of_sides(session(waiting).of_sender(), peer);
            assert_eq!(shares.limited_by(), by);
            assert!(shares.of(by) > 0.89, "{shares:?}");
        }
        let writing = StoreTime {
            syncing: ms(0),
            ..store
        };
        for (waiting, store, by) in [
            (Waiting::ForAnswer, store, LimitedBy::RoundTrips),
            (Waiting::ForPayload, store, LimitedBy::Network),
            (Waiting::ForTarget, writing, LimitedBy::TargetWrite),
            (
                Waiting::ForTarget,
                StoreTime::default(),
                LimitedBy::TargetWrite,
            ),
            (Waiting::ForTarget, store, LimitedBy::Durability),
            (Waiting::No, store, LimitedBy::ReceiverCpu),
        ] {
            let shares = TimeShares::of_sides(peer, session(waiting).of_receiver(store));
            assert_eq!(shares.limited_by(), by);
            assert!(shares.of(by) > 0.8, "{shares:?}");
        }
    }

    #[test]
    fn a_turn_is_divided_between_processor_and_stores() {
        let mut ledger = Ledger::default();
        ledger.begin_turn(ms(0));
        ledger.read_source(ms(60));
        ledger.wrote_target(ms(10));
        let spent = ledger.spent_until(ms(100));
        let (sender, receiver) = (spent.of_sender(), spent.of_receiver(StoreTime::default()));
        assert_eq!((sender.store_permille, sender.cpu_permille), (600, 300));
        assert_eq!((receiver.store_permille, receiver.cpu_permille), (100, 300));
    }

    #[test]
    fn only_the_time_since_then_counts() {
        let mut ledger = Ledger::default();
        ledger.wait_for(Waiting::ForSource);
        ledger.begin_turn(ms(100));
        let before = ledger.spent_until(ms(100));
        ledger.spent_until(ms(150));
        ledger.wait_for(Waiting::ForAnswer);
        ledger.begin_turn(ms(200));
        let side = (ledger.spent_until(ms(200)) - before).of_sender();
        assert_eq!((side.store_permille, side.cpu_permille), (0, 500));
    }

    /// Other cores have other clocks on some machines.
    #[test]
    fn time_that_goes_back_counts_as_none() {
        let mut ledger = Ledger::default();
        ledger.begin_turn(ms(100));
        ledger.spent_until(ms(90));
        ledger.begin_turn(ms(80));
        assert_eq!(ledger.spent_until(ms(100)).all, ms(100));
    }
}
