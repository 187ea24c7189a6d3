//! What quinn-proto doesn't tell of the round-trip time: its mean deviation, and its minimum of the
//! last minutes instead of the whole life of a connection, whose path may become longer.

use std::time::{Duration, Instant};

/// The minimum is that of the last one to two times this.
const MEMORY: Duration = Duration::from_secs(150);

/// Figures of the round-trip time, from its smoothed values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Duration,
    /// `smoothed` is no measurement.
    is_new: bool,
    /// Mean deviation; zero before the second sample.
    pub(super) deviation: Duration,
    /// The minimum of the present period and of the one before, and the present one's start.
    minima: [Option<Duration>; 2],
    since: Option<Instant>,
}

impl RoundTrip {
    /// For a new path, of which `smoothed` tells nothing yet.
    pub(super) fn of_new_path(smoothed: Duration) -> Self {
        Self {
            smoothed,
            is_new: true,
            ..Self::default()
        }
    }

    /// Notes the smoothed time after a datagram, which changes it once at most.
    pub(super) fn note(&mut self, smoothed: Duration, now: Instant) {
        if smoothed == self.smoothed {
            return;
        }
        let before = std::mem::replace(&mut self.smoothed, smoothed);
        let sample = if std::mem::take(&mut self.is_new) || before.is_zero() {
            smoothed
        } else {
            // An eighth of each sample goes into the smoothed value (RFC 9002, section 5.3).
            let change = 8 * smoothed.abs_diff(before);
            self.deviation = (3 * self.deviation + change) / 4;
            (8 * smoothed).saturating_sub(7 * before)
        };
        if sample.is_zero() {
            // No path is as short: the value was changed by something else.
            return;
        }
        let since = *self.since.get_or_insert(now);
        if now >= since + MEMORY {
            self.minima = [None, self.minima[0]];
            self.since = Some(now);
        }
        let least = self.minima[0].map_or(sample, |least| least.min(sample));
        self.minima[0] = Some(least);
    }

    /// The shortest time of the last minutes; zero before the first sample.
    pub(super) fn min(&self) -> Duration {
        self.minima.into_iter().flatten().min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Smoothed(RoundTrip, Duration, Instant);

    impl Smoothed {
        fn sample(&mut self, sample: Duration) {
            self.1 = match self.1 {
                Duration::ZERO => sample,
                before => (7 * before + sample) / 8,
            };
            self.0.note(self.1, self.2);
            self.2 += MS * 100;
        }
    }

    fn near(is: Duration, wanted: Duration) -> bool {
        is.abs_diff(wanted) < MS / 100
    }

    #[test]
    fn deviation_and_minimum_are_those_of_the_samples() {
        let mut path = Smoothed(RoundTrip::default(), Duration::ZERO, Instant::now());
        assert_eq!(path.0.min(), Duration::ZERO);
        for _ in 0..200 {
            path.sample(50 * MS);
        }
        assert!(path.0.deviation < MS / 100, "{path:?}", path = path.0);
        for _ in 0..200 {
            path.sample(40 * MS);
            path.sample(60 * MS);
        }
        let deviation = path.0.deviation;
        assert!(deviation > 9 * MS && deviation < 12 * MS, "{deviation:?}");
        assert!(near(path.0.min(), 40 * MS), "{path:?}", path = path.0);
    }

    #[test]
    fn a_new_path_begins_with_its_first_sample() {
        let now = Instant::now();
        let mut path = RoundTrip::of_new_path(333 * MS);
        path.note(333 * MS, now);
        assert_eq!(path.min(), Duration::ZERO);
        path.note(5 * MS, now);
        assert_eq!(path.min(), 5 * MS);
        assert_eq!(path.deviation, Duration::ZERO);
        // A value that no sample makes.
        path.note(333 * MS, now);
        path.note(5 * MS, now);
        assert_eq!(path.min(), 5 * MS);
    }

    #[test]
    fn a_path_that_becomes_longer_has_another_minimum_later() {
        let mut path = Smoothed(RoundTrip::default(), Duration::ZERO, Instant::now());
        path.sample(20 * MS);
        path.sample(21 * MS);
        for _ in 0..1000 {
            path.sample(80 * MS);
            path.sample(81 * MS);
        }
        assert!(near(path.0.min(), 20 * MS), "{path:?}", path = path.0);
        for _ in 0..1000 {
            path.sample(80 * MS);
            path.sample(81 * MS);
        }
        assert!(near(path.0.min(), 80 * MS), "{path:?}", path = path.0);
    }
}
