//! How many jobs run on a link at the same time: more as long as that makes the total rate greater.
//! No input or output, and no clock.
//!
//! While jobs wait, one more is tried from time to time. If the rate with it is greater by a tenth,
//! it stays, and the next one is tried; otherwise it is taken back, and the next try is later.

use std::time::Duration;

use crate::time::Time;

/// The jobs on a link of which nothing is known yet: a large one and one that isn't.
pub(crate) const FIRST: u32 = 2;
/// The time over which a rate is measured.
pub(crate) const MEASURED_OVER: Duration = Duration::from_secs(10);
/// The pause after a try that brought nothing; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// What is known of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Concurrency {
    /// Jobs that may run at the same time.
    pub(crate) jobs: u32,
    /// The rate with one job less, while one more is tried, in bytes per second.
    pub(crate) rate_before: Option<u64>,
    /// No other try before this time.
    pub(crate) pause_until: Time,
    /// Tries in a row that brought nothing.
    pub(crate) vain: u32,
}

/// What was seen of a link in the time of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) now: Time,
    /// Bytes per second.
    pub(crate) rate: u64,
    /// Jobs that ran.
    pub(crate) running: u32,
    /// Another job waits for a place.
    pub(crate) is_waited_for: bool,
    /// Most jobs that may run.
    pub(crate) limit: u32,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self {
            jobs: FIRST,
            rate_before: None,
            pause_until: Time::from_microseconds(0),
            vain: 0,
        }
    }
}

/// A rate for people.
fn shown(rate: u64) -> String {
    match rate {
        0..10_000 => format!("{rate} B/s"),
        10_000..10_000_000 => format!("{} kB/s", rate / 1000),
        _ => format!("{} MB/s", rate / 1_000_000),
    }
}

impl Concurrency {
    /// What changes after a measurement, and why; `None` if nothing does.
    pub(crate) fn after(&self, seen: Seen) -> Option<(Self, String)> {
        let Seen { rate, limit, .. } = seen;
        if self.jobs > limit.max(1) {
            let next = Self {
                jobs: limit.max(1),
                rate_before: None,
                ..self.clone()
            };
            return Some((next, format!("the limit is {limit}")));
        }
        if seen.running < self.jobs {
            // Too few jobs to learn something from.
            let next = Self {
                rate_before: None,
                ..self.clone()
            };
            let reason = "there are too few jobs to compare rates".to_owned();
            return self.rate_before.is_some().then_some((next, reason));
        }
        if let Some(before) = self.rate_before {
            if rate > before.saturating_add(before / 10) {
                let text = format!(
                    "{} jobs together reach {}, and one less {}",
                    self.jobs,
                    shown(rate),
                    shown(before)
                );
                return Some((self.next(seen, 0), text));
            }
            let pause = PAUSE_FIRST.saturating_mul(1 << self.vain.min(16));
            let next = Self {
                jobs: (self.jobs - 1).max(1),
                rate_before: None,
                pause_until: seen.now.after(pause.min(PAUSE_MAX)),
                vain: self.vain.saturating_add(1),
            };
            let text = format!(
                "{} jobs together reach {} only, and one less {}",
                self.jobs,
                shown(rate),
                shown(before)
            );
            return Some((next, text));
        }
        if self.jobs < limit && seen.is_waited_for && seen.now >= self.pause_until {
            let text = format!(
                "other jobs wait: tries whether one more than {} makes {} greater",
                self.jobs,
                shown(rate)
            );
            return Some((self.next(seen, self.vain), text));
        }
        None
    }

    /// One more, if that is possible and there is a job for it.
    fn next(&self, seen: Seen, vain: u32) -> Self {
        let grows = self.jobs < seen.limit && seen.is_waited_for;
        Self {
            jobs: self.jobs + u32::from(grows),
            rate_before: grows.then_some(seen.rate),
            vain,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The jobs after each of many measurements of a link whose rate is a function of the jobs.
    fn course(rate: impl Fn(u32) -> u64, limit: u32) -> Vec<u32> {
        let mut now = Time::from_microseconds(1_000_000_000);
        let mut link = Concurrency::default();
        let mut course = Vec::new();
        for _ in 0..60 {
            now = now.after(MEASURED_OVER);
            let seen = Seen {
                now,
                rate: rate(link.jobs),
                running: link.jobs,
                is_waited_for: true,
                limit,
            };
            if let Some((next, reason)) = link.after(seen) {
                assert!(!reason.is_empty());
                assert!(next.jobs.abs_diff(link.jobs) <= 1, "{reason}");
                link = next;
            }
            assert!((1..=limit).contains(&link.jobs));
            course.push(link.jobs);
        }
        course
    }

    #[test]
    fn it_grows_while_the_rate_does() {
        // Up to five jobs get 10 MB/s each.
        let course = course(|jobs| 10_000_000 * u64::from(jobs.min(5)), 16);
        assert_eq!(course[..4], [3, 4, 5, 6]);
        assert_eq!(course[4], 5);
        assert!(course[4..].iter().all(|jobs| matches!(jobs, 5 | 6)));
        // Tries become rare.
        let tries = course[4..].iter().filter(|jobs| **jobs == 6).count();
        assert!((1..=4).contains(&tries), "{course:?}");
    }

    #[test]
    fn one_that_gains_nothing_stays_as_it_is() {
        let course = course(|_| 10_000_000, 16);
        assert_eq!(course[..2], [3, 2]);
        assert!(course.iter().all(|jobs| matches!(jobs, 2 | 3)));
    }

    #[test]
    fn its_limit_is_kept() {
        assert!(course(u64::from, 1).iter().all(|jobs| *jobs == 1));
        assert_eq!(course(|jobs| u64::from(jobs) << 20, 4).last(), Some(&4));
    }

    #[test]
    fn nothing_is_learned_from_too_few_jobs() {
        let link = Concurrency {
            jobs: 4,
            rate_before: Some(100),
            ..Concurrency::default()
        };
        let mut seen = Seen {
            now: Time::from_microseconds(0),
            rate: 1,
            running: 3,
            is_waited_for: false,
            limit: 8,
        };
        let (next, _) = link.after(seen).unwrap_or_else(|| panic!("it was tried"));
        assert_eq!((next.jobs, next.rate_before), (4, None));
        seen.running = 0;
        assert_eq!(next.after(seen), None);
        seen.running = 4;
        assert_eq!(next.after(seen), None);
    }
}
