//! The pace of one stream: how fast its bytes go to the connection, whose congestion control and
//! pacer are not concerned. So acknowledgements and what is sent again never wait for it.

use std::time::{Duration, Instant};

/// Unused time counts as credit up to this: a thread that wakes up late catches up.
const CREDIT: Duration = Duration::from_millis(5);
/// The bytes of this time are taken in one step at least, so that the thread isn't woken for each
/// packet.
const STEP: Duration = Duration::from_millis(1);
/// Smallest and largest step in bytes: about a packet, and what has no use in being larger.
const STEP_BYTES_MIN: u64 = 1200;
const STEP_BYTES_MAX: u64 = 64 << 10;

/// A rate, and the time at which all bytes so far are paid for.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_s: u64,
    paid_until: Instant,
}

impl Pace {
    /// A pace that begins without credit; at least a byte in a second.
    pub(super) fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self {
            bytes_per_s: bytes_per_s.max(1),
            paid_until: now,
        }
    }

    /// Goes on with another rate.
    pub(super) fn change(&mut self, bytes_per_s: u64) {
        self.bytes_per_s = bytes_per_s.max(1);
    }

    /// The bytes that may be taken now, never none; or the time to wait for.
    pub(super) fn allowance(&mut self, now: Instant) -> Result<usize, Instant> {
        let rate = self.bytes_per_s as f64;
        let step = (rate * STEP.as_secs_f64()) as u64;
        let step = step.clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
        let step_time = Duration::from_secs_f64(step as f64 / rate);
        if let Some(oldest) = now.checked_sub(CREDIT.max(step_time)) {
            self.paid_until = self.paid_until.max(oldest);
        }
        let due = self.paid_until + step_time;
        if now < due {
            return Err(due);
        }
        let credit = now.saturating_duration_since(self.paid_until);
        // A step at least, whatever was rounded.
        let bytes = ((rate * credit.as_secs_f64()) as u64).max(step);
        Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Counts bytes that were taken.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.paid_until += Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all that is allowed for so long, with a wake-up so much later than asked for each
    /// time. Returns the bytes and the number of steps.
    fn run(pace: &mut Pace, from: Instant, time: Duration, late: Duration) -> (usize, usize) {
        let (mut now, mut total, mut steps) = (from, 0, 0);
        while now < from + time {
            match pace.allowance(now) {
                Ok(bytes) => {
                    total += bytes;
                    steps += 1;
                    pace.spend(bytes);
                }
                Err(due) => {
                    assert!(due > now);
                    now = due + late;
                }
            }
        }
        (total, steps)
    }

    #[test]
    fn the_rate_is_kept_by_slow_and_fast_paces() {
        let start = Instant::now();
        for rate in [1000_u64, 16_384, 1_000_000, 125_000_000, 5_000_000_000] {
            let mut pace = Pace::new(rate, start);
            let (total, steps) = run(&mut pace, start, 60 * STEP * 1000, STEP);
            let part = total as f64 / (rate as f64 * 60.0);
            assert!((0.97..1.03).contains(&part), "{part:.3} of {rate}");
            assert!(rate > 64_000_000 || steps <= 60_500, "{steps} at {rate}");
        }
    }

    #[test]
    fn time_without_bytes_is_worth_little() {
        let start = Instant::now();
        let mut pace = Pace::new(1_000_000, start);
        let later = start + Duration::from_secs(3600);
        let bytes = pace.allowance(later).unwrap();
        assert!((1200..=6000).contains(&bytes), "{bytes}");
        pace.spend(bytes);
        assert!(pace.allowance(later).is_err());
    }

    #[test]
    fn another_rate_holds_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new(1_000_000, start);
        let (slow, _) = run(&mut pace, start, Duration::from_secs(1), Duration::ZERO);
        pace.change(0);
        let due = pace.allowance(start + Duration::from_secs(2)).unwrap_err();
        assert!(due > start + Duration::from_secs(600));
        pace.change(10_000_000);
        let later = start + Duration::from_secs(2);
        let (fast, _) = run(&mut pace, later, Duration::from_secs(1), Duration::ZERO);
        let part = fast as f64 / slow as f64;
        assert!((9.0..11.0).contains(&part), "{part:.2}");
    }
}
