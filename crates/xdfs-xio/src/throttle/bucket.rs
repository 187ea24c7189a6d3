//! A bucket of tokens: the right to send bytes, which grows with time.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// Tokens of a byte: one for each nanosecond at a rate of a byte a second, so that nothing is lost
/// by rounding.
const BYTE: u128 = 1_000_000_000;

/// Buckets by name, rate and burst.
static NAMED: LazyLock<Mutex<HashMap<Key, Weak<Bucket>>>> = LazyLock::new(Mutex::default);

type Key = (String, u64, u64);

/// The right to send, of one stream or of several.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: u64,
    burst: u64,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    tokens: u128,
    time: Instant,
}

impl Bucket {
    /// A full bucket of `burst` bytes that gains `rate` bytes a second.
    pub(super) fn new(rate: u64, burst: u64) -> Self {
        Self {
            rate,
            burst,
            level: Mutex::new(Level {
                tokens: u128::from(burst) * BYTE,
                time: Instant::now(),
            }),
        }
    }

    /// The bucket of all that give the same name, rate and burst.
    pub(super) fn shared(name: &str, rate: u64, burst: u64) -> Arc<Self> {
        let mut named = NAMED.lock().unwrap_or_else(|e| e.into_inner());
        named.retain(|_, bucket| bucket.strong_count() > 0);
        let key = (name.to_owned(), rate, burst);
        if let Some(bucket) = named.get(&key).and_then(Weak::upgrade) {
            return bucket;
        }
        let bucket = Arc::new(Self::new(rate, burst));
        named.insert(key, Arc::downgrade(&bucket));
        bucket
    }

    /// Takes the right to send up to `wanted` bytes, or returns the time to wait for it. Waits for
    /// a quarter of the burst rather than for single bytes.
    pub(super) fn take(&self, wanted: usize) -> Result<usize, Duration> {
        let wanted = (wanted as u64).min(self.burst);
        let enough = u128::from(wanted.min((self.burst / 4).max(1))) * BYTE;
        let mut level = self.level();
        level.gain(Instant::now(), self);
        if level.tokens < enough {
            let rate = u128::from(self.rate);
            let nanos = (enough - level.tokens).div_ceil(rate);
            return Err(Duration::from_nanos(
                u64::try_from(nanos).unwrap_or(u64::MAX),
            ));
        }
        let taken = (level.tokens / BYTE).min(u128::from(wanted));
        level.tokens -= taken * BYTE;
        // At most `wanted`, a length in memory.
        Ok(taken as usize)
    }

    /// Returns the right to send bytes that weren't sent.
    pub(super) fn give_back(&self, bytes: usize) {
        let mut level = self.level();
        level.tokens = self.full().min(level.tokens + bytes as u128 * BYTE);
    }

    fn full(&self) -> u128 {
        u128::from(self.burst) * BYTE
    }

    fn level(&self) -> MutexGuard<'_, Level> {
        self.level.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Level {
    fn gain(&mut self, now: Instant, bucket: &Bucket) {
        let passed = now.saturating_duration_since(self.time).as_nanos();
        let gained = passed.saturating_mul(u128::from(bucket.rate));
        self.tokens = bucket.full().min(self.tokens.saturating_add(gained));
        self.time = self.time.max(now);
    }
}
