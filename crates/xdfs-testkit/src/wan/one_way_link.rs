//! The model of one direction: what becomes of a packet, and when it arrives.
//!
//! No clock, no device: time is an argument (nanoseconds since the start), and so the model is
//! tested on its own. Packets never overtake each other. A packet that waits is not decided yet:
//! when the link changes, its time on the wire follows the new one; what is on the wire stays.

use std::collections::VecDeque;

use super::link::Link;
use super::packet_store::PacketStore;
use crate::tree::Random;

/// What becomes of a packet that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketFate {
    Dropped,
    Kept,
    Lost,
}

#[derive(Debug)]
struct QueuedPacket {
    /// Bytes in the store.
    len: usize,
    /// Bytes on the wire.
    wire: u64,
    /// When it came; once it is on the wire, when it arrives.
    at: u64,
}

/// One direction.
#[derive(Debug)]
pub(super) struct OneWayLink {
    link: Link,
    queue_bytes: u64,
    random: Random,
    store: PacketStore,
    entries: VecDeque<QueuedPacket>,
    /// So many of `entries` are on the wire; the others wait.
    on_wire: usize,
    /// Bytes that wait.
    waiting: u64,
    /// When the wire can take the next packet.
    free_at: u64,
    /// What rounding left over of `free_at`, in parts of a nanosecond, `bandwidth` to one.
    remainder: u64,
    /// When the last packet on the wire arrives.
    last_due: u64,
}

impl OneWayLink {
    pub(super) fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            queue_bytes: link.queue_bytes(),
            random: Random::new(seed),
            store: PacketStore::default(),
            entries: VecDeque::new(),
            on_wire: 0,
            waiting: 0,
            free_at: 0,
            remainder: 0,
            last_due: 0,
        }
    }

    /// Changes the link; what is on the wire already arrives as it would have.
    pub(super) fn set(&mut self, now: u64, link: Link) {
        self.advance(now);
        self.link = link;
        self.queue_bytes = link.queue_bytes();
        self.remainder = 0;
        // Else what a slow link has begun to send would hold up a fast one for its whole time.
        self.free_at = self.free_at.min(now);
    }

    /// Room for a packet of up to `len` bytes; `None` if too much is under way.
    pub(super) fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        self.store.room(len)
    }

    /// What becomes of a packet of `wire` bytes that comes now, behind `ahead` bytes that came
    /// with it and are not kept yet. To be asked once for each packet.
    pub(super) fn fate(&mut self, now: u64, ahead: u64, wire: u64) -> PacketFate {
        if self.loses() {
            return PacketFate::Lost;
        }
        self.advance(now);
        let idle = ahead == 0 && self.waiting == 0 && self.free_at <= now;
        let fits = || {
            let waiting = self.waiting.saturating_add(ahead).saturating_add(wire);
            waiting <= self.queue_bytes
        };
        if idle || self.link.bandwidth.is_none() || fits() {
            PacketFate::Kept
        } else {
            PacketFate::Dropped
        }
    }

    /// Keeps the first `len` bytes of the room given last, which take `wire` bytes of the link.
    pub(super) fn keep(&mut self, now: u64, len: usize, wire: u64) {
        self.store.keep(len);
        self.waiting = self.waiting.saturating_add(wire);
        let at = now;
        self.entries.push_back(QueuedPacket { len, wire, at });
        self.advance(now);
    }

    /// The packet that has arrived by now, when it was due, and its bytes on the wire.
    pub(super) fn arrived(&mut self, now: u64) -> Option<(&[u8], u64, u64)> {
        self.advance(now);
        let first = self.entries.front().filter(|_| self.on_wire > 0)?;
        let (len, due, wire) = (first.len, first.at, first.wire);
        (due <= now).then(|| (self.store.oldest(len), due, wire))
    }

    /// Forgets the packet that arrived.
    pub(super) fn forget(&mut self) {
        if self.on_wire > 0
            && let Some(first) = self.entries.pop_front()
        {
            self.on_wire -= 1;
            self.store.forget(first.len);
        }
    }

    /// When something happens next without a new packet; `None` if nothing is under way.
    pub(super) fn next(&self) -> Option<u64> {
        let first = self.entries.front()?;
        Some(if self.on_wire > 0 {
            first.at
        } else {
            self.free_at.max(first.at)
        })
    }

    /// Puts on the wire what has begun to be sent by now.
    fn advance(&mut self, now: u64) {
        while let Some(entry) = self.entries.get_mut(self.on_wire) {
            let start = self.free_at.max(entry.at);
            if start > now {
                return;
            }
            let sending = match self.link.bandwidth {
                None => 0,
                Some(bandwidth) => {
                    let bandwidth = u128::from(bandwidth.max(1));
                    let parts = u128::from(entry.wire) * 1_000_000_000 + u128::from(self.remainder);
                    // Under the bandwidth, so it fits.
                    self.remainder = u64::try_from(parts % bandwidth).unwrap_or(0);
                    u64::try_from(parts / bandwidth).unwrap_or(u64::MAX)
                }
            };
            self.waiting = self.waiting.saturating_sub(entry.wire);
            self.free_at = start.saturating_add(sending);
            let mut travel = nanoseconds(self.link.delay);
            if !self.link.jitter.is_zero() {
                let jitter = nanoseconds(self.link.jitter);
                travel = travel.saturating_add(self.random.below(jitter.saturating_add(1)));
            }
            self.last_due = self.last_due.max(self.free_at.saturating_add(travel));
            entry.at = self.last_due;
            self.on_wire += 1;
        }
    }

    /// One draw for one packet, also where the answer is known: the next ones don't depend on it.
    fn loses(&mut self) -> bool {
        // 53 bits, as many as a fraction of this type has.
        let drawn = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        drawn < self.link.loss
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Sends a packet of `wire` bytes and says what became of it.
    fn send(line: &mut OneWayLink, now: u64, wire: u64) -> PacketFate {
        let fate = line.fate(now, 0, wire);
        if fate == PacketFate::Kept {
            line.room(2000).unwrap()[0] = 7;
            line.keep(now, 1, wire);
        }
        fate
    }

    /// When all packets under way arrive, jumping from one event to the next.
    fn arrivals(line: &mut OneWayLink) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(now) = line.next() {
            while let Some((bytes, due, _)) = line.arrived(now) {
                assert_eq!(bytes, [7]);
                assert!(due <= now);
                times.push(due);
                line.forget();
            }
        }
        times
    }

    #[test]
    fn a_perfect_link_only_delays() {
        let mut line = OneWayLink::new(Link::delay(Duration::from_millis(25)), 1);
        for now in [0, 1, 1, 5 * MS] {
            assert_eq!(send(&mut line, now, 1500), PacketFate::Kept);
        }
        assert!(line.arrived(25 * MS - 1).is_none());
        assert_eq!(
            arrivals(&mut line),
            [25 * MS, 25 * MS + 1, 25 * MS + 1, 30 * MS]
        );
        assert_eq!(line.next(), None);
    }

    #[test]
    fn packets_follow_each_other_at_the_bandwidth() {
        // 1500 bytes at 1.5 MB/s take a millisecond.
        let link = Link::delay(Duration::from_millis(10)).with_bandwidth(1_500_000);
        let mut line = OneWayLink::new(link, 1);
        for _ in 0..4 {
            assert_eq!(send(&mut line, 0, 1500), PacketFate::Kept);
        }
        assert_eq!(
            arrivals(&mut line),
            [11 * MS, 12 * MS, 13 * MS, 14 * MS],
            "each after the one before"
        );
        send(&mut line, 100 * MS, 750);
        assert_eq!(arrivals(&mut line), [110 * MS + MS / 2]);
    }

    #[test]
    fn rounding_adds_up_to_nothing() {
        // A packet takes 333.33 nanoseconds.
        let mut line = OneWayLink::new(Link::default().with_bandwidth(3_000_000_000), 1);
        for _ in 0..60 {
            send(&mut line, 0, 1000);
        }
        assert_eq!(arrivals(&mut line).last(), Some(&20_000));
    }

    #[test]
    fn a_full_queue_drops_the_last_to_come() {
        let link = Link::default()
            .with_bandwidth(1_500_000)
            .with_queue(3000)
            .with_jitter(Duration::ZERO);
        let mut line = OneWayLink::new(link, 1);
        // One on the wire, two that wait.
        let fates: Vec<_> = (0..4).map(|_| send(&mut line, 0, 1500)).collect();
        assert_eq!(
            fates,
            [
                PacketFate::Kept,
                PacketFate::Kept,
                PacketFate::Kept,
                PacketFate::Dropped
            ]
        );
        assert_eq!(send(&mut line, MS - 1, 1500), PacketFate::Dropped);
        assert_eq!(send(&mut line, MS, 1500), PacketFate::Kept);
        assert_eq!(arrivals(&mut line), [MS, 2 * MS, 3 * MS, 4 * MS]);
    }

    #[test]
    fn an_idle_link_takes_a_packet_without_a_queue() {
        let link = Link::default().with_bandwidth(1_500_000).with_queue(0);
        let mut line = OneWayLink::new(link, 1);
        assert_eq!(send(&mut line, 0, 1500), PacketFate::Kept);
        assert_eq!(send(&mut line, MS / 2, 1), PacketFate::Dropped);
        assert_eq!(send(&mut line, MS, 1500), PacketFate::Kept);
        // What comes in one piece waits for itself.
        assert_eq!(line.fate(9 * MS, 0, 1500), PacketFate::Kept);
        assert_eq!(line.fate(9 * MS, 1500, 1500), PacketFate::Dropped);
    }

    #[test]
    fn the_queue_is_a_round_trip_unless_asked() {
        let link = Link::delay(Duration::from_millis(50)).with_bandwidth(10_000_000);
        assert_eq!(link.queue_bytes(), 1_000_000);
        assert_eq!(link.with_queue(10).queue_bytes(), 10);
        let short = Link::default().with_bandwidth(10_000_000);
        assert_eq!(short.queue_bytes(), 64 << 10);
        let endless = Link::delay(Duration::MAX).with_bandwidth(u64::MAX);
        assert_eq!(endless.queue_bytes(), u64::MAX);
    }

    #[test]
    fn losses_follow_from_the_seed_alone() {
        let fates = |seed, loss| {
            let mut line = OneWayLink::new(Link::default().with_loss(loss), seed);
            (0..10_000)
                .map(|now| send(&mut line, now, 100) == PacketFate::Lost)
                .collect::<Vec<_>>()
        };
        let lost = |fates: &[bool]| fates.iter().filter(|lost| **lost).count();
        let fixed = fates(3, 0.05);
        assert_eq!(fixed, fates(3, 0.05));
        assert_ne!(fixed, fates(4, 0.05));
        // Five standard deviations of 22.
        assert!((390..=610).contains(&lost(&fixed)), "{}", lost(&fixed));
        assert_eq!(lost(&fates(3, 0.0)), 0);
        assert_eq!(lost(&fates(3, 1.0)), 10_000);
        assert_eq!(lost(&fates(3, f64::NAN)), 0);
    }

    #[test]
    fn jitter_changes_no_order() {
        let link = Link::delay(Duration::from_millis(10)).with_jitter(Duration::from_millis(5));
        let mut line = OneWayLink::new(link, 9);
        for now in 0..1000 {
            send(&mut line, now * MS / 10, 100);
        }
        let times = arrivals(&mut line);
        assert_eq!(times.len(), 1000);
        assert!(times.is_sorted());
        let travels: Vec<_> = (0_u64..)
            .zip(&times)
            .map(|(n, at)| at - n * MS / 10)
            .collect();
        assert!(travels.iter().all(|t| (10 * MS..=15 * MS).contains(t)));
        assert!(travels.iter().any(|t| *t < 13 * MS) && travels.iter().any(|t| *t > 14 * MS));
    }

    #[test]
    fn a_change_is_for_what_waits() {
        let link = Link::default().with_bandwidth(1000).with_queue(10_000);
        let mut line = OneWayLink::new(link, 1);
        for _ in 0..3 {
            send(&mut line, 0, 1000);
        }
        // The first is on the wire for a second; the others would wait for it.
        line.set(MS, Link::default().with_bandwidth(1_000_000));
        assert_eq!(
            arrivals(&mut line),
            [1000 * MS, 1000 * MS, 1000 * MS],
            "what waited is sent at once, and overtakes nothing"
        );
        line.set(2000 * MS, Link::default().with_loss(1.0));
        assert_eq!(send(&mut line, 2000 * MS, 1), PacketFate::Lost);
        line.set(2000 * MS, Link::default());
        assert_eq!(send(&mut line, 2000 * MS, 1), PacketFate::Kept);
        assert_eq!(arrivals(&mut line), [2000 * MS]);
    }
}
