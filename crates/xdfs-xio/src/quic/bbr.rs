//! BBR for QUIC: a congestion control that sends at the rate at which the path delivers, with
//! little more in flight than the path holds, and so neither fills queues nor slows down for random
//! losses.
//!
//! The model is that of N. Cardwell et al., "BBR: Congestion-Based Congestion Control" (2016), with
//! rate samples as in draft-cheng-iccrg-delivery-rate-estimation. quinn-proto's own BBR takes the
//! rate of the path from two packets, and sends in bursts of many times what the path holds.
//!
//! A controller of quinn-proto has one lever: the window, from which the connection also takes its
//! pace, 1.25 windows in a round trip. So the gains here are those of the window.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};

/// The initial window in packets (RFC 9002, section 7.2).
const INITIAL_PACKETS: u64 = 10;
/// The smallest window in packets.
const MIN_PACKETS: u64 = 4;
/// The rate is the largest of this many round trips.
const RATE_ROUNDS: u64 = 10;
/// The least gain that doubles the rate in each round trip: 2 / ln 2.
const STARTUP_GAIN: f64 = 2.885;
/// The path is full when in so many round trips the rate grew by less than [`GROWTH`].
const FULL_ROUNDS: u32 = 3;
/// See [`FULL_ROUNDS`].
const GROWTH: f64 = 1.25;
/// The gain that empties the queue which the beginning has built.
const DRAIN_GAIN: f64 = 0.5;
/// What the window has beyond what the path holds, where that costs no losses: round trips that
/// aren't all the shortest ones. Twice as much looks for a higher rate.
const SPARE_GAIN: f64 = 0.15;
/// The least gain that looks for a higher rate.
const MORE_GAIN: f64 = 1.1;
/// The gain that empties the queue after that. It is below 1: if the shortest round trip is taken
/// for too long, a shorter one shows up.
const LESS_GAIN: f64 = 0.8;
/// The round trips of a cycle: in the first there is more, in the second less.
const CYCLE: usize = 8;
/// Time for which the window has more, since acknowledgements come and timers fire in batches.
const SPARE: Duration = Duration::from_millis(2);
/// Losses of more than this part of a round trip's bytes are those of a full queue.
const LOSS: f64 = 0.03;
/// A shortest round trip is looked for again when none was seen for this time.
const ROUND_TRIP_LIFE: Duration = Duration::from_secs(10);
/// A round trip at most this many times the shortest one confirms it.
const ABOUT: f64 = 1.0625;
/// For at least this time the window is small to find the shortest round trip.
const PROBE_TIME: Duration = Duration::from_millis(200);
/// The gain meanwhile.
const PROBE_GAIN: f64 = 0.5;
/// Batches that are remembered. More are sent without a sample of the rate.
const BATCHES_MAX: usize = 1 << 14;

/// What was known when packets were sent. One stands for all until more is known, so that a peer
/// that acknowledges nothing costs no memory.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// When the first of them was sent.
    from: Instant,
    /// Bytes delivered until then, and when the last of them were.
    delivered: u64,
    delivered_at: Instant,
    /// When the packets were sent that were delivered last.
    first_sent: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Startup,
    Drain,
    /// The place in the cycle, and since when.
    Cycle(usize, Instant),
    /// Until when, once so little is in flight.
    Probe(Option<Instant>),
}

/// The state of one path.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    packet: u64,
    window: u64,
    phase: Phase,
    batches: VecDeque<Batch>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// The newest of the packets that are acknowledged now: its batch, and when it was sent.
    newest: Option<(Batch, Instant)>,
    /// The number of round trips, and the bytes delivered at which the present one ends.
    round: u64,
    round_end: u64,
    /// Bytes lost, and delivered, at the beginning of the round trip.
    lost: u64,
    lost_before: u64,
    delivered_before: u64,
    /// The largest rates, in bytes a second, each with its round trip; the largest comes first.
    rates: VecDeque<(u64, f64)>,
    /// The shortest round trip, and when it was last seen.
    round_trip: Option<(Duration, Instant)>,
    /// The rate when it last grew, and the round trips since.
    full_rate: f64,
    full_rounds: u32,
    /// From 0 to [`SPARE_GAIN`].
    spare: f64,
    /// Nothing is in flight.
    is_idle: bool,
}

impl Bbr {
    pub(super) fn new(now: Instant, packet: u16) -> Self {
        let packet = u64::from(packet);
        Self {
            packet,
            window: INITIAL_PACKETS * packet,
            phase: Phase::Startup,
            batches: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            newest: None,
            round: 0,
            round_end: 0,
            lost: 0,
            lost_before: 0,
            delivered_before: 0,
            rates: VecDeque::new(),
            round_trip: None,
            full_rate: 0.0,
            full_rounds: 0,
            spare: SPARE_GAIN,
            is_idle: true,
        }
    }

    fn sent(&mut self, now: Instant) {
        let begins = std::mem::take(&mut self.is_idle);
        if begins {
            // Time without anything in flight says nothing about the path.
            self.delivered_at = now;
            self.first_sent = now;
        }
        let last = self.batches.back();
        let is_known = last.is_some_and(|batch| batch.delivered == self.delivered) && !begins;
        if is_known || self.batches.len() == BATCHES_MAX {
            return;
        }
        self.batches.push_back(Batch {
            from: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
        });
    }

    fn acknowledged(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered += bytes;
        self.delivered_at = now;
        while self.batches.get(1).is_some_and(|next| next.from <= sent) {
            self.batches.pop_front();
        }
        let batch = self.batches.front().filter(|batch| batch.from <= sent);
        if let Some(batch) = batch {
            self.first_sent = sent;
            self.newest = Some((*batch, sent));
        }
    }

    /// All that came at once was acknowledged.
    fn end_acknowledged(&mut self, now: Instant, in_flight: u64, app_limited: bool) {
        self.is_idle = in_flight == 0;
        let Some((batch, sent)) = self.newest.take() else {
            return;
        };
        let begins = batch.delivered >= self.round_end;
        if begins {
            self.round += 1;
            self.round_end = self.delivered;
        }
        let took = now.saturating_duration_since(sent);
        let expired = self.see_round_trip(took, now, in_flight);
        self.see_rate(&batch, sent, now, app_limited);
        if begins {
            self.end_round(app_limited);
        }
        if expired && !matches!(self.phase, Phase::Startup | Phase::Probe(_)) {
            self.phase = Phase::Probe(None);
        }
        self.advance(now, in_flight, took);
        self.set_window();
    }

    /// Takes a round trip. Whether the shortest one is too long ago.
    fn see_round_trip(&mut self, took: Duration, now: Instant, in_flight: u64) -> bool {
        let Some((shortest, at)) = &mut self.round_trip else {
            self.round_trip = Some((took, now));
            return false;
        };
        if took <= *shortest {
            (*shortest, *at) = (took, now);
        } else if took.as_secs_f64() <= shortest.as_secs_f64() * ABOUT {
            *at = now;
        } else if now.saturating_duration_since(*at) > ROUND_TRIP_LIFE {
            if in_flight > self.held() / 2 {
                return true;
            }
            // Nothing waits in a queue of the path now.
            self.round_trip = Some((took, now));
        }
        false
    }

    fn see_rate(&mut self, batch: &Batch, sent: Instant, now: Instant, app_limited: bool) {
        let acknowledging = now.saturating_duration_since(batch.delivered_at);
        let sending = sent.saturating_duration_since(batch.first_sent);
        let time = acknowledging.max(sending);
        let shortest = self.round_trip.map_or(Duration::ZERO, |(time, _)| time);
        if time < shortest || time.is_zero() {
            return;
        }
        let rate = (self.delivered - batch.delivered) as f64 / time.as_secs_f64();
        if app_limited && rate < self.rate() {
            return;
        }
        while self.rates.back().is_some_and(|(_, less)| *less <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        let oldest = self.round.saturating_sub(RATE_ROUNDS);
        while self.rates.len() > 1 && self.rates.front().is_some_and(|(round, _)| *round < oldest) {
            self.rates.pop_front();
        }
    }

    /// The rate of the path in bytes a second; 0 if it isn't known.
    fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    /// Bytes that the path holds: the bandwidth-delay product.
    fn held(&self) -> u64 {
        let round_trip = self.round_trip.map_or(Duration::ZERO, |(time, _)| time);
        (self.rate() * round_trip.as_secs_f64()) as u64
    }

    fn end_round(&mut self, app_limited: bool) {
        let lost = self.lost - self.lost_before;
        let delivered = self.delivered - self.delivered_before;
        (self.lost_before, self.delivered_before) = (self.lost, self.delivered);
        let is_lossy = lost as f64 > LOSS * (lost + delivered) as f64 && lost > 4 * self.packet;
        self.spare = match is_lossy {
            true => self.spare / 2.0,
            false => (self.spare + SPARE_GAIN / 32.0).min(SPARE_GAIN),
        };
        if self.phase == Phase::Startup && !app_limited {
            if self.rate() >= self.full_rate * GROWTH {
                self.full_rate = self.rate();
                self.full_rounds = 0;
            } else {
                self.full_rounds += 1;
            }
            if self.full_rounds >= FULL_ROUNDS {
                self.phase = Phase::Drain;
            }
        }
    }

    fn advance(&mut self, now: Instant, in_flight: u64, took: Duration) {
        let held = self.held();
        let round_trip = self.round_trip.map_or(Duration::ZERO, |(time, _)| time);
        match self.phase {
            Phase::Startup => {}
            Phase::Drain if in_flight <= held => {
                // Not the place that looks for more: the path was full a moment ago.
                self.phase = Phase::Cycle(2, now);
            }
            Phase::Drain => {}
            Phase::Cycle(place, since) => {
                let is_over = now.saturating_duration_since(since) > round_trip;
                if is_over {
                    self.phase = Phase::Cycle((place + 1) % CYCLE, now);
                }
            }
            Phase::Probe(None) => {
                if in_flight as f64 <= (held as f64 * PROBE_GAIN).max(self.least() as f64) {
                    self.phase = Phase::Probe(Some(now + PROBE_TIME.max(round_trip)));
                    // Of what comes from now on the shortest counts.
                    self.round_trip = Some((took, now));
                }
            }
            Phase::Probe(Some(until)) => {
                if now >= until {
                    self.phase = Phase::Cycle(2, now);
                }
            }
        }
    }

    fn least(&self) -> u64 {
        MIN_PACKETS * self.packet
    }

    fn set_window(&mut self) {
        let rate = self.rate();
        if rate == 0.0 {
            return;
        }
        let gain = match self.phase {
            Phase::Startup => STARTUP_GAIN,
            Phase::Drain => DRAIN_GAIN,
            Phase::Cycle(0, _) => MORE_GAIN.max(1.0 + 2.0 * self.spare),
            Phase::Cycle(1, _) => LESS_GAIN,
            Phase::Cycle(..) => 1.0 + self.spare,
            Phase::Probe(_) => PROBE_GAIN,
        };
        let spare = rate * SPARE.as_secs_f64() + (3 * self.packet) as f64;
        let wanted = ((self.held() as f64 * gain + spare) as u64).max(self.least());
        self.window = match self.phase {
            // Samples of the first packets may be too low.
            Phase::Startup => self.window.max(wanted),
            _ => wanted,
        };
    }

    fn lost(&mut self, bytes: u64, is_persistent: bool, now: Instant) {
        // A mark (ECN) has no bytes.
        self.lost += bytes.max(self.packet);
        if is_persistent {
            let (batches, packet) = (std::mem::take(&mut self.batches), self.packet);
            let (delivered, lost) = (self.delivered, self.lost);
            *self = Self::new(now, u16::try_from(packet).unwrap_or(u16::MAX));
            self.batches = batches;
            (self.delivered, self.delivered_before) = (delivered, delivered);
            (self.lost, self.lost_before) = (lost, lost);
            self.window = self.least();
        }
    }
}

impl Controller for Bbr {
    fn on_sent(&mut self, now: Instant, _: u64, _: u64) {
        self.sent(now);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, _: bool, _: &RttEstimator) {
        self.acknowledged(now, sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _: Option<u64>) {
        self.end_acknowledged(now, in_flight, app_limited);
    }

    fn on_congestion_event(&mut self, now: Instant, _: Instant, is_persistent: bool, lost: u64) {
        self.lost(lost, is_persistent, now);
    }

    fn on_mtu_update(&mut self, packet: u16) {
        self.packet = packet.into();
        self.window = self.window.max(self.least());
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        INITIAL_PACKETS * self.packet
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Makes a [`Bbr`] for each path.
#[derive(Debug)]
pub(super) struct BbrFactory;

impl ControllerFactory for BbrFactory {
    fn build(self: Arc<Self>, now: Instant, packet: u16) -> Box<dyn Controller> {
        Box::new(Bbr::new(now, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1400;
    const TICK: Duration = Duration::from_micros(100);

    /// A link with a queue, on which packets are lost at even distances.
    #[derive(Clone, Copy)]
    struct Link {
        /// Bytes a second.
        rate: f64,
        round_trip: Duration,
        queue: f64,
        /// One in so many packets is lost; 0 for none.
        loss: u64,
    }

    const LINK: Link = Link {
        rate: 12.5e6,
        round_trip: Duration::from_millis(100),
        queue: 1.25e6,
        loss: 0,
    };

    struct Sender {
        bbr: Bbr,
        in_flight: u64,
        tokens: f64,
        smoothed: f64,
        /// When the acknowledgement, or the news of the loss, of a packet comes, and when it was
        /// sent.
        coming: VecDeque<(Duration, Duration, bool)>,
        delivered: u64,
        lost: u64,
    }

    struct World {
        start: Instant,
        now: Duration,
        link: Link,
        queued: f64,
        packets: u64,
        /// Queued bytes, added up over the ticks.
        queued_sum: f64,
        senders: Vec<Sender>,
    }

    impl World {
        fn new(link: Link, senders: usize) -> Self {
            let start = Instant::now();
            let sender = || Sender {
                bbr: Bbr::new(start, PACKET as u16),
                in_flight: 0,
                tokens: 0.0,
                smoothed: 0.1,
                coming: VecDeque::new(),
                delivered: 0,
                lost: 0,
            };
            Self {
                start,
                now: Duration::ZERO,
                link,
                queued: 0.0,
                packets: 0,
                queued_sum: 0.0,
                senders: (0..senders).map(|_| sender()).collect(),
            }
        }

        /// Runs for a time, and returns the part of the link that each sender had, the part of its
        /// bytes that were lost, and the mean time in the queue.
        fn run(&mut self, time: Duration) -> (Vec<f64>, f64, Duration) {
            let before: Vec<u64> = self.senders.iter().map(|s| s.delivered).collect();
            let lost: u64 = self.senders.iter().map(|s| s.lost).sum();
            self.queued_sum = 0.0;
            let ticks = (time.as_secs_f64() / TICK.as_secs_f64()) as u32;
            for tick in 0..ticks {
                self.now += TICK;
                self.queued = (self.queued - self.link.rate * TICK.as_secs_f64()).max(0.0);
                self.queued_sum += self.queued;
                let count = self.senders.len();
                for n in 0..count {
                    self.step((n + tick as usize) % count);
                }
            }
            let mut lost_now = 0;
            let capacity = self.link.rate * time.as_secs_f64();
            let shares = self.senders.iter().zip(before).map(|(sender, before)| {
                lost_now += sender.lost;
                (sender.delivered - before) as f64 / capacity
            });
            let shares: Vec<f64> = shares.collect();
            let waited = self.queued_sum / f64::from(ticks) / self.link.rate;
            let part = (lost_now - lost) as f64 / capacity;
            (shares, part, Duration::from_secs_f64(waited))
        }

        fn step(&mut self, n: usize) {
            let (now, at) = (self.now, self.start + self.now);
            let sender = &mut self.senders[n];
            let mut acknowledged = false;
            while let Some((_, sent, comes)) = sender.coming.pop_front_if(|c| c.0 <= now) {
                sender.in_flight -= PACKET;
                if comes {
                    acknowledged = true;
                    sender.delivered += PACKET;
                    let took = (now - sent).as_secs_f64();
                    sender.smoothed += (took - sender.smoothed) / 8.0;
                    sender.bbr.acknowledged(at, self.start + sent, PACKET);
                } else {
                    sender.lost += PACKET;
                    sender.bbr.lost(PACKET, false, at);
                }
            }
            if acknowledged {
                sender.bbr.end_acknowledged(at, sender.in_flight, false);
            }
            // The pace of quinn-proto.
            let window = sender.bbr.window;
            let pace = 1.25 * window as f64 / sender.smoothed;
            sender.tokens = (sender.tokens + pace * TICK.as_secs_f64()).min(pace * 0.002 + 14e3);
            while sender.in_flight + PACKET <= window && sender.tokens >= PACKET as f64 {
                sender.tokens -= PACKET as f64;
                sender.in_flight += PACKET;
                sender.bbr.sent(at);
                self.packets += 1;
                let loss = self.link.loss;
                let is_lost = loss > 0 && self.packets.is_multiple_of(loss);
                let fits = self.queued + PACKET as f64 <= self.link.queue;
                if fits {
                    self.queued += PACKET as f64;
                }
                let waits = Duration::from_secs_f64(self.queued / self.link.rate);
                let comes = now + self.link.round_trip + waits;
                sender.coming.push_back((comes, now, fits && !is_lost));
            }
        }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_path_is_filled_and_its_queue_is_not() {
        let mut world = World::new(LINK, 1);
        world.run(seconds(3));
        let (shares, lost, waited) = world.run(seconds(30));
        assert!(shares[0] > 0.96, "{shares:?}");
        assert!(lost < 0.001, "{lost}");
        assert!(waited < Duration::from_millis(25), "{waited:?}");
    }

    #[test]
    fn random_losses_cost_what_is_lost() {
        for (loss, least) in [(1000, 0.95), (100, 0.94), (30, 0.9)] {
            let mut world = World::new(Link { loss, ..LINK }, 1);
            world.run(seconds(3));
            let (shares, ..) = world.run(seconds(20));
            assert!(shares[0] > least, "1 of {loss}: {shares:?}");
        }
    }

    #[test]
    fn the_beginning_takes_a_second() {
        let mut world = World::new(LINK, 1);
        let (shares, lost, _) = world.run(seconds(2));
        assert!(shares[0] > 0.5, "{shares:?}");
        assert!(lost < 0.2, "{lost}");
    }

    #[test]
    fn a_short_queue_loses_little() {
        let link = Link {
            round_trip: Duration::from_millis(20),
            queue: 64e3,
            ..LINK
        };
        let mut world = World::new(link, 1);
        world.run(seconds(3));
        let (shares, lost, _) = world.run(seconds(20));
        assert!(shares[0] > 0.95, "{shares:?}");
        assert!(lost < 0.02, "{lost}");
    }

    #[test]
    fn the_rate_of_the_path_is_followed_down_and_up() {
        let mut world = World::new(LINK, 1);
        world.run(seconds(5));
        world.link.rate /= 10.0;
        world.run(seconds(15));
        let (shares, lost, waited) = world.run(seconds(20));
        assert!(shares[0] > 0.9 && lost < 0.03, "{shares:?}, {lost}");
        assert!(waited < Duration::from_millis(100), "{waited:?}");
        world.link.rate *= 10.0;
        world.run(seconds(15));
        let (shares, ..) = world.run(seconds(20));
        assert!(shares[0] > 0.9, "{shares:?}");
    }

    #[test]
    fn a_longer_path_is_found_out() {
        let mut world = World::new(LINK, 1);
        world.run(seconds(5));
        world.link.round_trip *= 3;
        world.run(seconds(25));
        let (shares, ..) = world.run(seconds(20));
        assert!(shares[0] > 0.9, "{shares:?}");
        world.link.round_trip /= 6;
        world.run(seconds(15));
        let (shares, _, waited) = world.run(seconds(20));
        assert!(shares[0] > 0.9, "{shares:?}");
        assert!(waited < Duration::from_millis(30), "{waited:?}");
    }

    #[test]
    fn two_share_a_path() {
        let mut world = World::new(LINK, 1);
        world.run(seconds(5));
        let second = World::new(LINK, 1).senders.remove(0);
        let bbr = Bbr::new(world.start + world.now, PACKET as u16);
        world.senders.push(Sender { bbr, ..second });
        world.run(seconds(30));
        let (shares, lost, _) = world.run(seconds(60));
        assert!(shares.iter().sum::<f64>() > 0.93, "{shares:?}");
        assert!(shares.iter().all(|share| *share > 0.25), "{shares:?}");
        assert!(lost < 0.02, "{lost}");
    }

    #[test]
    fn a_peer_that_acknowledges_nothing_costs_no_memory() {
        let start = Instant::now();
        let mut bbr = Bbr::new(start, PACKET as u16);
        for packet in 0..100_000 {
            bbr.sent(start + packet * TICK);
        }
        assert_eq!(bbr.batches.len(), 1);
        // And whatever comes then, what was acknowledged is forgotten.
        for packet in 100_000..200_000 {
            let sent = start + packet * TICK;
            bbr.sent(sent);
            bbr.acknowledged(sent + TICK, sent, PACKET);
            bbr.end_acknowledged(sent + TICK, PACKET, true);
        }
        assert!(bbr.batches.len() <= 2, "{}", bbr.batches.len());
    }

    #[test]
    fn after_silence_it_begins_anew() {
        let mut world = World::new(LINK, 1);
        world.run(seconds(3));
        let at = world.start + world.now;
        let bbr = &mut world.senders[0].bbr;
        bbr.lost(PACKET, true, at);
        assert_eq!(bbr.window, MIN_PACKETS * PACKET);
        world.run(seconds(3));
        let (shares, ..) = world.run(seconds(10));
        assert!(shares[0] > 0.94, "{shares:?}");
    }
}
