//! How the bytes of a file are dealt out to stripes: the layouts of `OPTS RETR` (GFD.20).

use xdfs_proto::{ByteRange, RangeSet};

/// Bytes of a block where the client asks for none.
const BLOCK_BYTES: u64 = 1 << 20;
/// Fewest bytes of a block: smaller ones would take more headers than they are worth.
const BLOCK_BYTES_MIN: u64 = 16 << 10;

/// Which stripe has which bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Blocks of so many bytes, one stripe after the other, again and again.
    Blocked(u64),
    /// As many parts as there are stripes, of the same size.
    Partitioned,
}

impl Default for Layout {
    fn default() -> Self {
        Self::Blocked(BLOCK_BYTES)
    }
}

impl Layout {
    /// Bytes of a block of a file, or a part of one, with `length` bytes on `stripes`.
    #[must_use]
    pub fn block_bytes(self, length: u64, stripes: u64) -> u64 {
        match self {
            Self::Blocked(bytes) => bytes.max(BLOCK_BYTES_MIN),
            Self::Partitioned => length.div_ceil(stripes.max(1)).max(1),
        }
    }
}

/// One of several stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Its number, from 0.
    pub index: u64,
    /// How many there are; at least 1.
    pub count: u64,
    /// Bytes of a block; at least 1.
    pub block_bytes: u64,
}

impl Stripe {
    /// The only one.
    pub const WHOLE: Self = Self {
        index: 0,
        count: 1,
        block_bytes: u64::MAX,
    };

    /// Bytes of this stripe before `end`.
    fn bytes_before(&self, end: u64) -> u64 {
        let cycle = self.block_bytes.saturating_mul(self.count);
        let begun = (end % cycle).saturating_sub(self.index.saturating_mul(self.block_bytes));
        (end / cycle) * self.block_bytes + begun.min(self.block_bytes)
    }
}

/// What one stripe has of some ranges, in order.
///
/// It takes no more memory than the ranges, however many blocks they have.
#[derive(Clone, Debug)]
pub struct Portion {
    /// Begins with a byte of this stripe.
    left: RangeSet,
    stripe: Stripe,
}

impl Portion {
    /// The bytes of `ranges` that are of this stripe.
    #[must_use]
    pub fn new(ranges: RangeSet, stripe: Stripe) -> Self {
        let left = ranges;
        let mut portion = Self { left, stripe };
        portion.skip();
        portion
    }

    /// Number of bytes that are left.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let before = |at| self.stripe.bytes_before(at);
        let ranges = self.left.as_slice().iter();
        ranges
            .map(|range| before(range.end) - before(range.start))
            .sum()
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left.as_slice().is_empty()
    }

    /// Takes the next range of at most `most` bytes (at least 1), which crosses no multiple of it.
    pub fn next_range(&mut self, most: u64) -> Option<ByteRange> {
        let first = self.left.as_slice().first()?;
        let block = self.stripe.block_bytes;
        let within = block - first.start % block;
        let taken = self.left.take_front(most.min(within), most, 0);
        self.skip();
        taken
    }

    /// Drops what the other stripes have before the next byte of this one.
    fn skip(&mut self) {
        let Stripe {
            index,
            count,
            block_bytes,
        } = self.stripe;
        while let Some(first) = self.left.as_slice().first() {
            let block = first.start / block_bytes;
            let ahead = (index + count - block % count) % count;
            if ahead == 0 {
                return;
            }
            let end = block.saturating_add(ahead).saturating_mul(block_bytes);
            self.left.remove(ByteRange { start: 0, end });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(list: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::new();
        for (start, end) in list {
            set.insert(ByteRange {
                start: *start,
                end: *end,
            });
        }
        set
    }

    #[test]
    fn each_byte_is_of_one_stripe() {
        let whole = ranges(&[(3, 40), (57, 58), (60, 101)]);
        for count in 1..5 {
            for block_bytes in [1, 7, 10, 64, 1000] {
                let mut seen = RangeSet::new();
                for index in 0..count {
                    let stripe = Stripe {
                        index,
                        count,
                        block_bytes,
                    };
                    let mut portion = Portion::new(whole.clone(), stripe);
                    let (bytes, mut taken) = (portion.bytes(), 0);
                    while let Some(range) = portion.next_range(4) {
                        assert!(range.len() <= 4 && !range.is_empty());
                        assert!(!seen.overlaps(range), "{stripe:?} {range}");
                        assert_eq!(range.start / block_bytes % count, index);
                        assert_eq!((range.end - 1) / block_bytes % count, index);
                        seen.insert(range);
                        taken += range.len();
                    }
                    assert!(portion.is_empty());
                    assert_eq!(bytes, taken, "{stripe:?}");
                }
                assert_eq!(seen, whole, "{count} {block_bytes}");
            }
        }
    }

    #[test]
    fn large_files_and_blocks_have_no_overflow() {
        let whole = ranges(&[(0, i64::MAX as u64)]);
        let far = Stripe {
            index: 1,
            count: 2,
            block_bytes: u64::MAX,
        };
        assert!(Portion::new(whole.clone(), far).is_empty());
        assert_eq!(Portion::new(whole.clone(), far).bytes(), 0);
        let all = Portion::new(whole, Stripe::WHOLE);
        assert_eq!(all.bytes(), i64::MAX as u64);
    }

    #[test]
    fn partitioned_is_a_block_for_each() {
        assert_eq!(Layout::Partitioned.block_bytes(10, 3), 4);
        assert_eq!(Layout::Partitioned.block_bytes(0, 3), 1);
        assert_eq!(Layout::Blocked(1).block_bytes(10, 3), BLOCK_BYTES_MIN);
    }
}
