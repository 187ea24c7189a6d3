//! The faults of one direction, at places in its bytes.

use std::time::Duration;

use super::options::FaultOptions;

/// The course of one direction.
#[derive(Debug)]
pub(super) struct Course {
    /// Bytes passed.
    at: u64,
    random: Random,
    short: Places,
    delay: Places,
    delay_ms_max: u64,
    corrupt: Places,
    lose: Places,
}

/// A fault that is due before the next byte passes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Delay(Duration),
    Loss,
}

/// Places of one kind of fault.
#[derive(Debug)]
struct Places {
    /// Mean distance in bytes; zero for no fault.
    mean: u64,
    next: u64,
}

impl Course {
    /// A course of its own for each `number` and seed.
    pub(super) fn new(options: &FaultOptions, number: u64) -> Self {
        let mut random = Random::new(options.seed, number);
        let mut places = |mean| {
            let mut places = Places { mean, next: 0 };
            places.advance(&mut random);
            places
        };
        let short = places(options.short);
        let delay = places(options.delay);
        let corrupt = places(options.corrupt);
        let mut lose = places(options.lose);
        if options.lose_after > 0 {
            lose.next = lose.next.min(options.lose_after);
        }
        Self {
            at: 0,
            random,
            short,
            delay,
            delay_ms_max: options.delay_ms_max,
            corrupt,
            lose,
        }
    }

    /// The fault that is due before the next byte.
    pub(super) fn due(&mut self) -> Option<Due> {
        if self.at >= self.lose.next {
            return Some(Due::Loss);
        }
        if self.at >= self.short.next {
            self.short.advance(&mut self.random);
        }
        if self.at >= self.delay.next {
            self.delay.advance(&mut self.random);
            let millis = self.random.up_to(self.delay_ms_max);
            return Some(Due::Delay(Duration::from_millis(millis)));
        }
        None
    }

    /// The number of bytes that may pass in the next call; not zero where nothing is due.
    pub(super) fn room(&self) -> usize {
        let places = [&self.short, &self.delay, &self.lose];
        let next = places.map(|places| places.next).into_iter().min();
        let room = next.unwrap_or(u64::MAX).saturating_sub(self.at);
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// The first place among the next `len` bytes that is to be changed, from `from` on, and the
    /// bit.
    pub(super) fn corrupted(&mut self, from: usize, len: usize) -> Option<(usize, u8)> {
        let place = usize::try_from(self.corrupt.next.checked_sub(self.at)?).ok()?;
        if !(from..len).contains(&place) {
            return None;
        }
        self.corrupt.advance(&mut self.random);
        Some((place, 1 << (self.random.up_to(8) - 1)))
    }

    /// Counts bytes that passed.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.at += bytes as u64;
    }
}

impl Places {
    /// Moves to the next place, one byte to twice the mean distance away.
    fn advance(&mut self, random: &mut Random) {
        self.next = match self.mean {
            0 => u64::MAX,
            mean => self.next.saturating_add(random.up_to(2 * mean - 1)),
        };
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): every seed is a good one.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64, number: u64) -> Self {
        let mut random = Self(seed);
        let first = random.next();
        Self(first ^ number.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 1 to `most`.
    fn up_to(&mut self, most: u64) -> u64 {
        self.next() % most.max(1) + 1
    }
}
