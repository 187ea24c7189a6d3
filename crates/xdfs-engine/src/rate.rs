//! A token bucket for a bound on bytes a second. Time comes in as an argument.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Bucket {
    rate_bytes_per_s: f64,
    burst_bytes: f64,
    tokens: f64,
    last: Duration,
    waited: Duration,
}

impl Bucket {
    /// A bucket that lets `rate` bytes a second through (at least 1), in bursts of 50 ms.
    pub(crate) fn new(rate: u64, now: Duration) -> Self {
        let rate_bytes_per_s = rate.max(1) as f64;
        let burst_bytes = (rate_bytes_per_s * 0.05).max(1.0);
        Self {
            rate_bytes_per_s,
            burst_bytes,
            tokens: burst_bytes,
            last: now,
            waited: Duration::ZERO,
        }
    }

    /// Whether bytes may pass now. A block may overdraw the bucket; the next one then waits.
    pub(crate) fn is_open(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.last);
        if self.tokens <= 0.0 {
            self.waited += passed;
        }
        self.last = now;
        self.tokens =
            (self.tokens + passed.as_secs_f64() * self.rate_bytes_per_s).min(self.burst_bytes);
        self.tokens > 0.0
    }

    /// Bytes that may pass at once while the bucket is open; at least 1.
    pub(crate) fn allowance(&self) -> usize {
        self.tokens.max(1.0) as usize
    }

    /// Takes what passed.
    pub(crate) fn take(&mut self, bytes: u64) {
        self.tokens -= bytes as f64;
    }

    /// Time until the bucket opens.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_secs_f64((-self.tokens / self.rate_bytes_per_s).clamp(0.0, 3600.0))
    }

    /// Time during which bytes were held back.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_the_rate_through() {
        let mut bucket = Bucket::new(1000, Duration::ZERO);
        let (mut now, mut sent) = (Duration::ZERO, 0u64);
        while now < Duration::from_secs(10) {
            if bucket.is_open(now) {
                bucket.take(100);
                sent += 100;
            } else {
                now += bucket.delay().max(Duration::from_millis(1));
            }
        }
        assert!((9_900..=10_300).contains(&sent), "{sent}");
        assert!(bucket.waited() > Duration::from_secs(8));
    }
}
