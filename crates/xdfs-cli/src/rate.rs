//! The rate over the last few seconds, from samples of progress.
//!
//! Time is an argument, so tests need no clock. Used by the progress lines.

use std::collections::VecDeque;
use std::time::Duration;

/// The period over which the rate is measured.
const SPAN: Duration = Duration::from_secs(3);

/// Shortest interval between two samples, which bounds their number.
const STEP: Duration = Duration::from_millis(100);

/// Measures a rate over the last three seconds.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    samples: VecDeque<(Duration, u64)>,
}

impl RateMeter {
    /// Adds a sample: the number of bytes done at `now`, a time since any fixed moment.
    pub(crate) fn record(&mut self, now: Duration, bytes: u64) {
        if let Some(&(last, _)) = self.samples.back()
            && now < last + STEP
            && self.samples.len() > 1
        {
            self.samples.pop_back();
            self.samples.push_back((last, bytes));
            return;
        }
        self.samples.push_back((now, bytes));
        // One sample older than the span stays, so that the span is always covered.
        while self.samples.len() > 2 && self.samples[1].0 + SPAN <= now {
            self.samples.pop_front();
        }
    }

    /// Bytes per second at `now`; 0 without samples.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate for people needs three digits"
    )]
    pub(crate) fn bytes_per_second(&self, now: Duration) -> f64 {
        let (Some(&(start, first)), Some(&(_, last))) = (self.samples.front(), self.samples.back())
        else {
            return 0.0;
        };
        let seconds = now.saturating_sub(start).as_secs_f64();
        if seconds > 0.0 {
            last.saturating_sub(first) as f64 / seconds
        } else {
            0.0
        }
    }

    /// Time to move `bytes` more at the current rate; `None` without a rate.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn time_left(&self, now: Duration, bytes: u64) -> Option<Duration> {
        let rate = self.bytes_per_second(now);
        if rate < 1.0 {
            return None;
        }
        // Nothing beyond a century.
        let seconds = bytes as f64 / rate;
        (seconds < 3.2e9).then(|| Duration::from_secs_f64(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_steady_rate_is_found() {
        let mut meter = RateMeter::default();
        for i in 0..=50 {
            meter.record(ms(i * 200), i * 200);
        }
        assert!((meter.bytes_per_second(ms(10_000)) - 1000.0).abs() < 1.0);
        assert_eq!(
            meter.time_left(ms(10_000), 5000),
            Some(Duration::from_secs(5))
        );
        assert!(meter.samples.len() < 20);
    }

    #[test]
    fn a_stall_shows_and_many_samples_cost_nothing() {
        let mut meter = RateMeter::default();
        for i in 0..100_000 {
            meter.record(Duration::from_micros(i * 10), i);
        }
        assert!(meter.samples.len() < 40);
        meter.record(ms(1_500), 100_000);
        meter.record(ms(5_000), 100_000);
        meter.record(ms(9_000), 100_000);
        assert!(meter.bytes_per_second(ms(9_000)).abs() < 1.0);
        assert_eq!(meter.time_left(ms(9_000), 1), None);
    }

    #[test]
    fn nothing_is_known_at_first() {
        let mut meter = RateMeter::default();
        assert!(meter.bytes_per_second(ms(5)).abs() < f64::EPSILON);
        meter.record(ms(5), 0);
        assert_eq!(meter.time_left(ms(5), 100), None);
    }
}
