//! The search for the number of channels that fills a long path.
//!
//! More channels help where each is limited by its losses or its socket buffer, and only cost where
//! the path is full. So the number doubles while the total rate grows by more than noise, and goes
//! back to the one before when it doesn't. Where packets wait in a queue of the path it is full,
//! and no channels are added to find that out, unless the rate has fallen: then the path has
//! changed, and so may have its delay. Rates are measured over some round trips and some blocks of
//! each channel, after a pause in which the new channels open and fill. A path that is silent says
//! nothing about the number, and one that has changed is measured anew before a number is compared
//! with it. Time and bytes are arguments.

use std::time::Duration;

/// Growth of the total rate for which twice as many channels are kept.
const WORTH: f64 = 1.15;
/// Share of the best rate below which the search begins anew: the path has changed.
const CHANGED: f64 = 0.7;
/// Round trips, and least times, of the pause at the beginning, in which the first channels find
/// their rates, of the pause after a change, and of a measurement.
const BEGINNING: (u32, Duration) = (10, Duration::from_millis(250));
const SETTLING: (u32, Duration) = (8, Duration::from_millis(250));
const MEASUREMENT: (u32, Duration) = (8, Duration::from_millis(500));
/// Blocks of each channel in a measurement, since whole blocks are counted when they arrive, and
/// the time after which it ends with fewer.
const MEASURED_BLOCKS: u64 = 4;
const MEASUREMENT_MAX: Duration = Duration::from_secs(5);
/// Pauses between searches, the first and the longest.
const REST: Duration = Duration::from_secs(8);
const REST_MAX: Duration = Duration::from_secs(120);
/// Seconds for which the transfer must still last, at the present rate, for channels to be added.
const LEFT_MIN_S: f64 = 2.0;

/// The state of a session as seen by the search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    /// Time since the session began.
    pub(super) now: Duration,
    /// Payload bytes moved so far, in both directions.
    pub(super) bytes: u64,
    /// Payload bytes that are left; `None` if unknown.
    pub(super) left: Option<u64>,
    /// Open channels that stay.
    pub(super) channels: u32,
    /// Round-trip time of the path.
    pub(super) round_trip: Duration,
    /// Packets wait in a queue of the path.
    pub(super) is_queued: bool,
    /// Payload bytes of a block.
    pub(super) block_bytes: u64,
}

/// A rate in bytes per second with a number of channels.
#[derive(Clone, Copy, Debug)]
struct Rated {
    channels: u32,
    rate: f64,
}

/// The stages of a search.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The channels open and fill, until this time.
    Settling(Duration),
    /// The rate of the number of channels is measured.
    Measuring(Window),
    /// The number is found. It is looked at again at this time, or when the rate falls.
    Resting(Duration, Window),
}

/// A measurement under way.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Duration,
    bytes_before: u64,
}

impl Window {
    fn new(traffic: Traffic) -> Self {
        Self {
            since: traffic.now,
            bytes_before: traffic.bytes,
        }
    }

    /// The rate in bytes per second, once enough time has passed.
    fn rate(&self, traffic: Traffic) -> Option<f64> {
        let time = traffic.now.saturating_sub(self.since);
        let bytes = traffic.bytes.saturating_sub(self.bytes_before);
        let enough = MEASURED_BLOCKS * traffic.block_bytes * u64::from(traffic.channels);
        let is_over = match bytes >= enough {
            true => time >= span(MEASUREMENT, traffic.round_trip),
            false => time >= span(MEASUREMENT, traffic.round_trip).max(MEASUREMENT_MAX),
        };
        is_over.then(|| bytes as f64 / time.as_secs_f64())
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct ChannelCount {
    stage: Stage,
    /// The number of channels to which the present one is compared.
    base: Option<Rated>,
    /// The rate has fallen since the last search.
    has_changed: bool,
    rest: Duration,
}

impl ChannelCount {
    /// A search that begins at this time.
    pub(super) fn new(traffic: Traffic) -> Self {
        Self {
            stage: settling(traffic, BEGINNING),
            base: None,
            has_changed: false,
            rest: REST,
        }
    }

    /// Continues the search. Returns another number of channels, at most `max`, if there should be
    /// one.
    pub(super) fn step(&mut self, traffic: Traffic, max: u32) -> Option<u32> {
        let channels = traffic.channels;
        match self.stage {
            Stage::Settling(until) => {
                if until <= traffic.now {
                    self.stage = Stage::Measuring(Window::new(traffic));
                }
                None
            }
            Stage::Measuring(window) => {
                let rate = window.rate(traffic)?;
                self.measured(traffic, Rated { channels, rate }, max)
            }
            Stage::Resting(until, window) => {
                let rate = window.rate(traffic)?;
                let best = self.base.map_or(0.0, |base| base.rate);
                if rate < best * CHANGED {
                    // A rate from the middle of a change is no measure for those that follow.
                    self.base = None;
                    self.has_changed = true;
                    self.rest = REST;
                    self.stage = settling(traffic, SETTLING);
                    return None;
                }
                if until <= traffic.now {
                    self.base = None;
                    let rated = Rated { channels, rate };
                    return self.measured(traffic, rated, max);
                }
                // At once would be without end on a path whose rate goes up and down.
                let until = match rate * CHANGED > best {
                    true => until.min(traffic.now + REST),
                    false => until,
                };
                self.stage = Stage::Resting(until, Window::new(traffic));
                None
            }
        }
    }

    fn measured(&mut self, traffic: Traffic, found: Rated, max: u32) -> Option<u32> {
        if found.rate <= 0.0 {
            self.stage = settling(traffic, SETTLING);
            return None;
        }
        tracing::debug!(
            channels = found.channels,
            bytes_per_s = found.rate.round(),
            queued = traffic.is_queued,
            "the rate of a number of channels is measured"
        );
        let before = self.base.filter(|base| base.channels < found.channels);
        if let Some(before) = before
            && found.rate < before.rate * WORTH
        {
            self.rest(traffic);
            return Some(before.channels);
        }
        self.base = Some(found);
        let left_s = traffic.left.map_or(f64::MAX, |left| left as f64) / found.rate.max(1.0);
        let next = found.channels.saturating_mul(2).min(max);
        let is_full = traffic.is_queued && !self.has_changed;
        if is_full || next <= found.channels || left_s < LEFT_MIN_S {
            self.rest(traffic);
            return None;
        }
        self.stage = settling(traffic, SETTLING);
        Some(next)
    }

    fn rest(&mut self, traffic: Traffic) {
        self.has_changed = false;
        self.stage = Stage::Resting(traffic.now + self.rest, Window::new(traffic));
        self.rest = (self.rest * 2).min(REST_MAX);
    }
}

fn settling(traffic: Traffic, pause: (u32, Duration)) -> Stage {
    Stage::Settling(traffic.now + span(pause, traffic.round_trip))
}

fn span((round_trips, least): (u32, Duration), round_trip: Duration) -> Duration {
    (round_trip * round_trips).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);
    const MAX: u32 = 64;
    const BLOCK_BYTES: u64 = 64 << 10;

    /// Moves data for `seconds` at the rate that `rate` gives for a number of channels and a time;
    /// returns the numbers of channels in the order in which they were used.
    fn run(start: u32, seconds: u64, left: u64, rate: impl Fn(u32, f64) -> f64) -> Vec<u32> {
        run_queued(start, seconds, left, rate, |_| false)
    }

    /// The same where packets wait in a queue at the times for which `is_queued` says so.
    fn run_queued(
        start: u32,
        seconds: u64,
        left: u64,
        rate: impl Fn(u32, f64) -> f64,
        is_queued: impl Fn(f64) -> bool,
    ) -> Vec<u32> {
        let step = Duration::from_millis(100);
        let mut traffic = Traffic {
            now: Duration::ZERO,
            bytes: 0,
            left: Some(left),
            channels: start,
            round_trip: ROUND_TRIP,
            is_queued: false,
            block_bytes: BLOCK_BYTES,
        };
        let mut count = ChannelCount::new(traffic);
        let mut used = vec![start];
        while traffic.now < Duration::from_secs(seconds) {
            traffic.now += step;
            traffic.is_queued = is_queued(traffic.now.as_secs_f64());
            let moved = rate(traffic.channels, traffic.now.as_secs_f64()) * step.as_secs_f64();
            traffic.bytes += moved as u64;
            traffic.left = Some(left.saturating_sub(traffic.bytes));
            if let Some(next) = count.step(traffic, MAX) {
                traffic.channels = next;
                used.push(next);
            }
        }
        used
    }

    #[test]
    fn channels_are_added_while_each_brings_its_share() {
        let used = run(8, 10, u64::MAX, |n, _| f64::from(n) * 1e6);
        assert_eq!(used, [8, 16, 32, 64]);
    }

    #[test]
    fn channels_that_bring_nothing_are_taken_away() {
        let used = run(8, 10, u64::MAX, |_, _| 100e6);
        assert_eq!(used, [8, 16, 8]);
        // The path takes 20 channels' worth.
        let used = run(8, 12, u64::MAX, |n, _| f64::from(n.min(20)) * 1e6);
        assert_eq!(used, [8, 16, 32, 64, 32]);
        let used = run(8, 12, u64::MAX, |n, _| f64::from(n.min(17)) * 1e6);
        assert_eq!(used, [8, 16, 32, 16]);
    }

    #[test]
    fn a_full_path_gets_no_further_channels() {
        let used = run_queued(8, 100, u64::MAX, |_, _| 100e6, |_| true);
        assert_eq!(used, [8]);
        // The queue stands once there are 16 channels.
        let rate = |n: u32, _| f64::from(n.min(16)) * 1e6;
        let used = run_queued(8, 7, u64::MAX, rate, |s| s > 2.5);
        assert_eq!(used, [8, 16]);
    }

    /// A longer delay looks like a queue.
    #[test]
    fn a_path_whose_rate_fell_is_searched_in_spite_of_a_queue() {
        let rate = |n, s| match s < 3.0 {
            true => 100e6,
            false => f64::from(n) * 1e6,
        };
        let used = run_queued(8, 20, u64::MAX, rate, |_| true);
        assert_eq!(used[..2], [8, 16]);
    }

    /// A few blocks in half a second say nothing of a slow path.
    #[test]
    fn a_slow_path_is_measured_for_longer() {
        let lumps = |n: u32, s: f64| match (s * 10.0).round() as u64 % 20 < 10 {
            true => 2e6 * f64::from(n.min(8)) / 8.0,
            false => 1e6 * f64::from(n.min(8)) / 8.0,
        };
        assert_eq!(run(8, 14, u64::MAX, lumps), [8, 16, 8]);
    }

    #[test]
    fn a_search_is_repeated_after_longer_and_longer_times() {
        let used = run(8, 100, u64::MAX, |_, _| 100e6);
        assert_eq!(used, [8, 16, 8, 16, 8, 16, 8, 16, 8]);
    }

    #[test]
    fn a_path_that_changes_is_searched_again_without_a_rest() {
        // The path is ten times as slow from the second measurement on, and lossy.
        let used = run(8, 40, u64::MAX, |n, s| match s < 1.9 {
            true => 100e6,
            false => f64::from(n) * 0.2e6,
        });
        assert_eq!(used[..4], [8, 16, 8, 16]);
        assert_eq!(used.last(), Some(&64));
    }

    #[test]
    fn a_transfer_that_is_nearly_over_gets_no_further_channels() {
        assert_eq!(run(8, 3, 10_000_000, |n, _| f64::from(n) * 1e6), [8]);
    }

    #[test]
    fn a_path_that_got_better_is_searched_again_after_a_short_rest() {
        // By then the rests have become longer than the time that is left.
        let used = run(8, 85, u64::MAX, |n, s| match s < 70.0 {
            true => 10e6,
            false => f64::from(n) * 10e6,
        });
        assert_eq!(used, [8, 16, 8, 16, 8, 16, 8, 16, 8, 16, 32, 64]);
    }

    #[test]
    fn a_short_dip_of_the_rate_adds_no_channels() {
        let used = run(8, 8, u64::MAX, |_, s| match (4.0..4.6).contains(&s) {
            true => 10e6,
            false => 100e6,
        });
        assert_eq!(used, [8, 16, 8, 16, 8]);
    }

    #[test]
    fn a_silent_path_is_no_reason_for_more_channels() {
        assert_eq!(run(8, 200, u64::MAX, |_, _| 0.0), [8]);
        // Nor is it while a number is compared.
        let used = run(8, 20, u64::MAX, |_, s| match (2.0..7.0).contains(&s) {
            true => 0.0,
            false => 100e6,
        });
        assert_eq!(used[..3], [8, 16, 8]);
        assert_eq!(used.iter().max(), Some(&16), "{used:?}");
    }
}
