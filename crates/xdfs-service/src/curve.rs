//! The bytes of a job over time, in a bounded number of steps: when they are used up, two become
//! one.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Most steps of a curve.
const STEPS_MAX: usize = 240;
/// The first length of a step, in microseconds.
const STEP_US: i64 = 1_000_000;

/// The bytes that have arrived in each step of time since a job was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Curve {
    /// When the first step begins.
    pub began_at: Time,
    /// The length of each step.
    pub step_ms: u64,
    /// Bytes that have arrived in each step, at most 240 of them. A job that waits has steps of 0.
    pub bytes: Vec<u64>,
}

impl Curve {
    pub(crate) fn new(began_at: Time) -> Self {
        Self {
            began_at,
            step_ms: u64::try_from(STEP_US / 1000).unwrap_or(1000),
            bytes: Vec::new(),
        }
    }

    /// Adds bytes that have arrived by a time. A clock that was set back changes the last step.
    pub(crate) fn add(&mut self, at: Time, bytes: u64) {
        let since = at.microseconds() - self.began_at.microseconds();
        let since_ms = u64::try_from(since / 1000).unwrap_or(0);
        let mut step = usize::try_from(since_ms / self.step_ms.max(1)).unwrap_or(usize::MAX);
        while step >= STEPS_MAX {
            self.bytes = self.bytes.chunks(2).map(|two| two.iter().sum()).collect();
            self.step_ms = self.step_ms.saturating_mul(2);
            step = usize::try_from(since_ms / self.step_ms).unwrap_or(usize::MAX);
        }
        if step >= self.bytes.len() {
            self.bytes.resize(step + 1, 0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last = last.saturating_add(bytes);
        }
    }

    /// Bytes per second in each step.
    pub(crate) fn rates(&self) -> impl Iterator<Item = u64> {
        let step_ms = self.step_ms.max(1);
        self.bytes
            .iter()
            .map(move |bytes| bytes.saturating_mul(1000) / step_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Time {
        Time::from_microseconds(1_700_000_000_000_000 + milliseconds * 1000)
    }

    #[test]
    fn bytes_are_counted_in_the_step_in_which_they_arrive() {
        let mut curve = Curve::new(at(0));
        for (milliseconds, bytes) in [(0, 1), (999, 2), (1000, 4), (3500, 8)] {
            curve.add(at(milliseconds), bytes);
        }
        assert_eq!(curve.bytes, [3, 4, 0, 8]);
        // The clock was set back.
        curve.add(at(-5000), 16);
        assert_eq!(curve.bytes, [3, 4, 0, 24]);
        assert_eq!(curve.rates().collect::<Vec<_>>(), [3, 4, 0, 24]);
    }

    #[test]
    fn a_long_job_has_longer_steps_and_no_more_of_them() {
        let mut curve = Curve::new(at(0));
        for second in 0..100_000 {
            curve.add(at(second * 1000), 1);
        }
        assert!(curve.bytes.len() <= STEPS_MAX, "{}", curve.bytes.len());
        assert_eq!(curve.bytes.iter().sum::<u64>(), 100_000);
        assert_eq!(curve.step_ms, 512_000);
        // As after a year in which it was paused.
        curve.add(at(365 * 86_400_000), 7);
        assert!(curve.bytes.len() <= STEPS_MAX);
        assert_eq!(curve.bytes.iter().sum::<u64>(), 100_007);
    }
}
