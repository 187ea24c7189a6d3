//! Choices, all from one seed.

/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// One step of the mix that the generator and the traces use.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Random {
    /// The choices of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x5851_f42d_4c95_7f2d))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    /// A number from `start` to `end`, both included.
    pub fn range(&mut self, start: u64, end: u64) -> u64 {
        start + self.below(end - start + 1)
    }

    /// True so many times in a thousand.
    pub fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    /// One of these, of which there is at least one.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let at = self.below(from.len() as u64);
        from[usize::try_from(at).unwrap()]
    }
}
