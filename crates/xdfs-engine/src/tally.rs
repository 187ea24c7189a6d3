//! The figures of a server's sessions, for its metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use xdfs_store::tally::{Counter, Failing, Gauge, One, Tally};

use crate::memory::MemoryBudget;
use crate::verdict::{LimitedBy, TimeShares};

/// What the threads of sessions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// They work: hash, encrypt, read from the page cache, send and receive.
    Work,
    /// They wait for a source to be read.
    Source,
    /// They wait for a target to be written, or made durable.
    Target,
    /// They wait for payload that is on its way.
    Network,
    /// A rate limit, or the limit on memory, holds payload back.
    RateLimit,
    /// They wait for the client, and no payload is on its way.
    Idle,
}

impl Activity {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Work,
        Self::Source,
        Self::Target,
        Self::Network,
        Self::RateLimit,
        Self::Idle,
    ];

    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Source => "source",
            Self::Target => "target",
            Self::Network => "network",
            Self::RateLimit => "rate-limit",
            Self::Idle => "idle",
        }
    }
}

/// The figures of an acceptor.
#[derive(Debug)]
pub struct ServerTally {
    /// Those that every door has.
    pub door: Tally,
    /// Channels that broke while their sessions lived.
    pub channels_broken: Counter,
    /// Transfers to this server that have gone on from what an earlier attempt had stored.
    pub resumed: Counter,
    /// Bytes of payload that were sent or received again.
    pub repeated_bytes: Counter,
    /// Calls that have succeeded.
    pub calls: Counter,
    /// Microseconds of the threads of sessions, in the order of [`Activity::ALL`].
    activities: [Counter; Activity::ALL.len()],
    /// Transfers by what limited them, in the order of [`LimitedBy::ALL`].
    verdicts: [Counter; LimitedBy::ALL.len()],
    /// Tunnels at present.
    pub tunnels: Gauge,
    /// Number of threads of sessions.
    pub(crate) running: Arc<AtomicUsize>,
    /// Largest number of sessions at once.
    pub sessions_max: usize,
    memory: Arc<MemoryBudget>,
}

impl ServerTally {
    pub(crate) fn new(
        sessions_max: usize,
        running: &Arc<AtomicUsize>,
        memory: &Arc<MemoryBudget>,
    ) -> Self {
        Self {
            door: Tally::default(),
            channels_broken: Counter::default(),
            resumed: Counter::default(),
            repeated_bytes: Counter::default(),
            calls: Counter::default(),
            activities: std::array::from_fn(|_| Counter::default()),
            verdicts: std::array::from_fn(|_| Counter::default()),
            tunnels: Gauge::default(),
            running: Arc::clone(running),
            sessions_max,
            memory: Arc::clone(memory),
        }
    }

    /// What the threads of sessions have spent their time on.
    pub fn activities(&self) -> impl Iterator<Item = (Activity, Duration)> {
        let all = Activity::ALL.into_iter().zip(&self.activities);
        all.map(|(activity, spent)| (activity, Duration::from_micros(spent.get())))
    }

    /// How many transfers were limited by what.
    pub fn verdicts(&self) -> impl Iterator<Item = (LimitedBy, u64)> {
        let all = LimitedBy::ALL.into_iter().zip(&self.verdicts);
        all.map(|(by, count)| (by, count.get()))
    }

    /// Sessions whose threads haven't ended. Those that a file system holds outlive their sessions.
    #[must_use]
    pub fn session_threads(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Bytes of payload buffers that sessions hold, and the most that they may hold.
    #[must_use]
    pub fn memory_bytes(&self) -> (usize, usize) {
        (self.memory.used(), self.memory.bytes_max())
    }
}

/// Counts of one session, as they are now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionCounts {
    pub(crate) channels: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) receiving: u64,
    pub(crate) sending: u64,
    /// In the order of [`Activity::ALL`].
    pub(crate) activities: [Duration; Activity::ALL.len()],
}

/// A session's part of the figures.
#[derive(Debug)]
pub(crate) struct SessionTally {
    of: Arc<ServerTally>,
    /// What was added so far.
    added: SessionCounts,
    _session: One<ServerTally>,
}

impl SessionTally {
    /// A session begins.
    pub(crate) fn begin(of: &Arc<ServerTally>) -> Self {
        of.door.sessions_begun.add(1);
        Self {
            of: Arc::clone(of),
            added: SessionCounts::default(),
            _session: Gauge::one(of, |of| &of.door.sessions),
        }
    }

    /// Adds what has been counted since the last time.
    pub(crate) fn add(&mut self, now: SessionCounts) {
        let (of, before) = (&self.of, &self.added);
        let door = &of.door;
        door.channels.replace(before.channels, now.channels);
        door.receiving.replace(before.receiving, now.receiving);
        door.sending.replace(before.sending, now.sending);
        for (counter, before, now) in [
            (
                &door.received_bytes,
                before.received_bytes,
                now.received_bytes,
            ),
            (&door.sent_bytes, before.sent_bytes, now.sent_bytes),
        ] {
            if now > before {
                counter.add(now - before);
            }
        }
        let spent = before.activities.iter().zip(&now.activities);
        for (counter, (before, now)) in of.activities.iter().zip(spent) {
            // Rounded down both times, so that nothing is lost.
            let more = now.as_micros().saturating_sub(before.as_micros());
            if more > 0 {
                counter.add(u64::try_from(more).unwrap_or(u64::MAX));
            }
        }
        self.added = now;
    }

    /// A channel has opened.
    pub(crate) fn channel_opened(&self) {
        self.of.door.channels_opened.add(1);
    }

    /// A channel broke.
    pub(crate) fn channel_broke(&self) {
        self.of.channels_broken.add(1);
    }

    /// A transfer to this server continues from what is stored.
    pub(crate) fn resumed(&self) {
        self.of.resumed.add(1);
    }

    /// Bytes were sent or received again.
    pub(crate) fn repeated(&self, bytes: u64) {
        self.of.repeated_bytes.add(bytes);
    }

    /// A transfer has succeeded.
    pub(crate) fn transferred(&self, is_sent: bool, shares: &TimeShares) {
        let door = &self.of.door;
        match is_sent {
            true => door.sent.add(1),
            false => door.received.add(1),
        }
        let limited_by = shares.limited_by();
        let at = LimitedBy::ALL.iter().position(|by| *by == limited_by);
        if let Some(at) = at {
            self.of.verdicts[at].add(1);
        }
    }

    /// A call has ended.
    pub(crate) fn called(&self, failed: Option<xdfs_proto::Code>) {
        match failed {
            None => self.of.calls.add(1),
            Some(code) => self.failed(Failing::Call, code),
        }
    }

    /// Something has failed.
    pub(crate) fn failed(&self, what: Failing, code: xdfs_proto::Code) {
        self.of.door.failures.count(what, code);
    }
}

impl Drop for SessionTally {
    fn drop(&mut self) {
        let none = SessionCounts {
            channels: 0,
            receiving: 0,
            sending: 0,
            ..self.added
        };
        self.add(none);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_leaves_its_counts_and_takes_its_gauges_along() {
        let memory = MemoryBudget::new(100);
        let tally = Arc::new(ServerTally::new(7, &Arc::default(), &memory));
        let mut sessions = [(); 2].map(|()| SessionTally::begin(&tally));
        let mut counts = SessionCounts {
            channels: 4,
            received_bytes: 10,
            receiving: 1,
            ..SessionCounts::default()
        };
        for turn in 1..=3 {
            counts.received_bytes = 10 * turn;
            counts.activities[0] = Duration::from_nanos(700 * turn);
            sessions.iter_mut().for_each(|session| session.add(counts));
        }
        assert_eq!(
            (tally.door.sessions.get(), tally.door.channels.get()),
            (2, 8)
        );
        assert_eq!(
            (tally.door.received_bytes.get(), tally.door.receiving.get()),
            (60, 2)
        );
        let (activity, spent) = tally.activities().next().unwrap();
        assert_eq!(
            (activity, spent),
            (Activity::Work, Duration::from_micros(4))
        );
        drop(sessions);
        assert_eq!(
            (tally.door.sessions.get(), tally.door.channels.get()),
            (0, 0)
        );
        assert_eq!(
            (tally.door.received_bytes.get(), tally.door.receiving.get()),
            (60, 0)
        );
        assert_eq!(tally.door.sessions_begun.get(), 2);
        assert_eq!(tally.memory_bytes(), (0, 100));
    }
}
