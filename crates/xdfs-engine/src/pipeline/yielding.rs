//! Yielding to others on the path: a session that sends only what nobody else would.
//!
//! Packets of everybody wait in the same queue before the narrowest link of a path. A yielding
//! sender keeps the wait that it sees short, as LEDBAT does (RFC 6817): it sends slower as soon as
//! packets wait longer than is allowed, down to half as fast at each decision, and faster only by
//! little. The transport sends at the rate ([`xdfs_xio::Stream::set_pace`]), so that
//! the sender makes no bursts.
//!
//! The wait is the smoothed round-trip time less its mean deviation and less the shortest
//! round-trip time: a path whose times vary by themselves is not taken for a full one. Nor is one
//! whose receiver acknowledges every second packet (RFC 9293, section 3.8.6.3): where packets are
//! far apart, the time between two of them is part of the round-trip time, up to the longest delay
//! of an acknowledgement. Queues that are shorter than the wait that is allowed are not seen;
//! there, this session shares like others.

use std::time::Duration;

use xdfs_xio::PathSample;

/// Time between two decisions, at least two round trips: a change shows after one.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// The wait that is allowed: this, and this part of the shortest round-trip time, since what delays
/// packets on a long path is more.
const WAIT: Duration = Duration::from_millis(1);
const WAIT_PART: u32 = 32;
/// Growth of the rate in [`INTERVAL`] while no packets wait. A competitor that lost packets needs
/// seconds to fill the link again; this takes less than half of the room by then.
const GROWTH: f64 = 0.02;
/// The smallest rate of a channel in bytes per second. It hinders nobody, and has some packets a
/// second: with fewer, the smoothed round-trip time would tell for long of a queue that is gone.
const RATE_MIN: f64 = 32768.0;
/// The channels of a file: as few as fill most paths, since each has [`RATE_MIN`], and tells less
/// of the queue the slower it is.
pub(super) const CHANNELS: u32 = 2;
/// A packet without its headers, in bytes.
const PACKET_BYTES: f64 = 1448.0;
/// The longest delay of an acknowledgement: Linux has 40 ms to begin with, and grants itself more.
const ACKNOWLEDGEMENT_DELAY_MAX: Duration = Duration::from_millis(60);

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Yielding {
    /// The rate of all channels in bytes per second; `None` until packets have waited: up to then,
    /// the congestion control looks for the rate of the path.
    rate: Option<f64>,
    /// The last decision, and the bytes that had been sent once by then.
    last: Option<(Duration, u64)>,
    due: Duration,
    /// The transport was found to have no pace, and the log says so.
    is_told: bool,
}

impl Yielding {
    /// Whether a decision is due.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.due <= now
    }

    /// Notes that the transport of a channel has no pace.
    pub(super) fn note_unpaced(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!(%error, "the stack has no pace: nothing is left to others");
        }
    }

    /// Decides by the measurements of all channels. Returns the rate of each in bytes per second;
    /// `None` if there is no limit.
    pub(super) fn step(&mut self, samples: &[PathSample], now: Duration) -> Option<u64> {
        let measured = || samples.iter().filter(|s| !s.round_trip_min.is_zero());
        let mut waits: Vec<Duration> = Vec::new();
        let shortest = measured().map(|s| s.round_trip_min).min();
        let count = samples.len().max(1) as f64;
        if let Some(shortest) = shortest {
            let between_packets = self.rate.map_or(0.0, |rate| PACKET_BYTES * count / rate);
            let delay = Duration::from_secs_f64(between_packets).min(ACKNOWLEDGEMENT_DELAY_MAX);
            let wait = |s: &PathSample| {
                s.round_trip
                    .saturating_sub(s.round_trip_deviation)
                    .saturating_sub(shortest + delay)
            };
            waits.extend(measured().map(wait));
            waits.sort_unstable();
        }
        let round_trip = measured().map(|s| s.round_trip).max();
        self.due = now + INTERVAL.max(2 * round_trip.unwrap_or_default());
        let once = |s: &PathSample| s.sent_bytes.saturating_sub(s.resent_bytes);
        let sent = samples.iter().map(once).sum();
        let before = self.last.replace((now, sent));
        if let (Some((at, sent_then)), Some(shortest), Some(wait)) =
            (before, shortest, waits.get(waits.len() / 2))
        {
            let seconds = now.saturating_sub(at).as_secs_f64();
            if seconds > 0.0 {
                let delivered = sent.saturating_sub(sent_then) as f64 / seconds;
                let allowed = WAIT + shortest / WAIT_PART;
                self.decide(
                    wait.as_secs_f64() / allowed.as_secs_f64(),
                    delivered,
                    seconds,
                );
                self.rate = self.rate.map(|rate| rate.max(RATE_MIN * count));
            }
        }
        // Saturates.
        self.rate.map(|rate| (rate / count) as u64)
    }

    /// Changes the rate. `fill` is the wait as a part of the allowed one.
    fn decide(&mut self, fill: f64, delivered: f64, seconds: f64) {
        let rate = self.rate.unwrap_or(delivered);
        if fill > 1.0 {
            // The whole excess at once would leave the link idle: it shows a round trip late.
            let less = ((fill - 1.0) / 4.0).min(0.5);
            // Not from a rate that isn't reached.
            self.rate = Some(rate.min(2.0 * delivered) * (1.0 - less));
        } else if self.rate.is_some() && delivered > rate / 2.0 {
            let steps = seconds / INTERVAL.as_secs_f64();
            self.rate = Some(rate * (1.0 + GROWTH * (1.0 - fill) * steps));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link with a queue, in steps of a millisecond: the yielding sender, and one that fills the
    /// queue and halves its rate when packets are lost, as most others do.
    struct Link {
        bytes_per_s: f64,
        queue_bytes: f64,
        round_trip: f64,
        /// Deviation of the round-trip times that nobody causes.
        jitter: f64,
        queued: f64,
        own_sent: f64,
        other_rate: f64,
        other_sent: f64,
        smooth: f64,
        yielding: Yielding,
        pace: f64,
        now: f64,
    }

    impl Link {
        fn new(bytes_per_s: f64, queue_bytes: f64, round_trip: f64, jitter: f64) -> Self {
            Self {
                bytes_per_s,
                queue_bytes,
                round_trip,
                jitter,
                queued: 0.0,
                own_sent: 0.0,
                other_rate: 0.0,
                other_sent: 0.0,
                smooth: round_trip,
                yielding: Yielding::default(),
                pace: bytes_per_s * 1.2,
                now: 0.0,
            }
        }

        /// The bytes that both delivered in so many seconds, as parts of what the link carries.
        fn run(&mut self, seconds: f64, with_other: bool) -> (f64, f64) {
            let (own, other) = (self.own_sent, self.other_sent);
            self.other_rate = if with_other {
                self.bytes_per_s / 2.0
            } else {
                0.0
            };
            let end = self.now + seconds;
            while self.now < end {
                self.step(with_other);
            }
            let carried = self.bytes_per_s * seconds;
            (
                (self.own_sent - own) / carried,
                (self.other_sent - other) / carried,
            )
        }

        fn step(&mut self, with_other: bool) {
            const STEP: f64 = 0.001;
            self.now += STEP;
            let offered = self.pace + self.other_rate;
            self.queued = (self.queued + (offered - self.bytes_per_s) * STEP).max(0.0);
            let carried = offered.min(self.bytes_per_s);
            self.own_sent += carried * self.pace / offered.max(1.0) * STEP;
            self.other_sent += carried * self.other_rate / offered.max(1.0) * STEP;
            if self.queued > self.queue_bytes {
                self.queued = self.queue_bytes * 0.9;
                self.other_rate *= 0.7;
            } else if with_other {
                // A packet more in each round trip.
                self.other_rate += 1460.0 / self.round_trip.powi(2) * STEP;
            }
            // An acknowledgement waits for the second packet, but not for ever.
            let between = PACKET_BYTES / self.pace;
            let delayed = between.min(0.058);
            let time = self.round_trip + self.queued / self.bytes_per_s + self.jitter + delayed;
            // Of the samples in this step, of which there may be less than one.
            let samples = STEP / (between + delayed) / 8.0;
            self.smooth += (time - self.smooth) * samples.min(1.0 / 16.0);
            let now = Duration::from_secs_f64(self.now);
            if self.yielding.is_due(now) {
                let sample = PathSample {
                    round_trip: Duration::from_secs_f64(self.smooth),
                    round_trip_deviation: Duration::from_secs_f64(self.jitter),
                    round_trip_min: Duration::from_secs_f64(self.round_trip),
                    sent_bytes: self.own_sent as u64,
                    ..PathSample::default()
                };
                if let Some(pace) = self.yielding.step(&[sample], now) {
                    self.pace = pace as f64;
                }
            }
        }
    }

    #[test]
    fn another_sender_gets_the_link_and_gives_it_back() {
        // Bytes per second, bytes of queue, round-trip time.
        for (rate, queue, time) in [
            (12.5e6, 64e3, 0.02),
            (12.5e6, 1e6, 0.02),
            (2.5e6, 64e3, 0.076),
            (125e6, 500e3, 0.02),
        ] {
            let mut link = Link::new(rate, queue, time, 0.0);
            let (alone, _) = link.run(60.0, false);
            assert!(alone > 0.85, "{alone:.2} alone at {rate}, {queue}, {time}");
            let _ = link.run(20.0, true);
            let (own, other) = link.run(60.0, true);
            assert!(
                other > 0.75 && own < 0.2,
                "{own:.2} {other:.2} at {rate}, {queue}, {time}"
            );
            let _ = link.run(60.0, false);
            let (again, _) = link.run(30.0, false);
            assert!(again > 0.85, "{again:.2} again at {rate}, {queue}, {time}");
        }
    }

    #[test]
    fn times_that_vary_by_themselves_do_not_starve() {
        let mut link = Link::new(12.5e6, 1e6, 0.02, 0.01);
        let (alone, _) = link.run(60.0, false);
        assert!(alone > 0.8, "{alone:.2}");
    }

    #[test]
    fn the_rate_never_ends_and_has_no_meaning_without_measurements() {
        let mut yielding = Yielding::default();
        assert_eq!(yielding.step(&[], Duration::ZERO), None);
        assert_eq!(yielding.step(&[PathSample::default()], INTERVAL), None);
        let full = PathSample {
            round_trip: Duration::from_secs(1),
            round_trip_min: Duration::from_millis(1),
            ..PathSample::default()
        };
        let mut last = None;
        for step in 2..40 {
            last = yielding.step(&[full.clone(), full.clone()], step * Duration::from_secs(3));
        }
        assert_eq!(last, Some(RATE_MIN as u64));
    }
}
