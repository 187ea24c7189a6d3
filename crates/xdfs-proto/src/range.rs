//! Byte ranges and sets of them.

use std::fmt;

/// The bytes from `start` to `end`, exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset just past the last byte; never below `start`.
    pub end: u64,
}

impl ByteRange {
    /// The range of `len` bytes at `start`; `None` if it would end past `u64::MAX`.
    #[must_use]
    pub fn at(start: u64, len: u64) -> Option<Self> {
        Some(Self {
            start,
            end: start.checked_add(len)?,
        })
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Whether it contains all bytes of `other`.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// A set of bytes, as a minimal ordered list of ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<ByteRange>,
}

impl RangeSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The ranges in order; none are adjacent.
    #[must_use]
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.ranges
    }

    /// Number of bytes in the set.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(ByteRange::len).sum()
    }

    /// Adds all bytes of `range`.
    pub fn insert(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let last = self.ranges.partition_point(|r| r.start <= range.end);
        let mut merged = range;
        if first < last {
            merged.start = merged.start.min(self.ranges[first].start);
            merged.end = merged.end.max(self.ranges[last - 1].end);
        }
        self.ranges.splice(first..last, [merged]);
    }

    /// Removes all bytes of `range`.
    pub fn remove(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end <= range.start);
        let last = self.ranges.partition_point(|r| r.start < range.end);
        if first >= last {
            return;
        }
        let left = ByteRange {
            start: self.ranges[first].start,
            end: range.start,
        };
        let right = ByteRange {
            start: range.end,
            end: self.ranges[last - 1].end,
        };
        self.ranges.splice(
            first..last,
            [left, right].into_iter().filter(|r| r.start < r.end),
        );
    }

    /// Whether all bytes of `range` are in the set.
    #[must_use]
    pub fn contains(&self, range: ByteRange) -> bool {
        if range.is_empty() {
            return true;
        }
        let i = self.ranges.partition_point(|r| r.end <= range.start);
        self.ranges.get(i).is_some_and(|r| r.contains(&range))
    }

    /// Whether any byte of `range` is in the set.
    #[must_use]
    pub fn overlaps(&self, range: ByteRange) -> bool {
        if range.is_empty() {
            return false;
        }
        let i = self.ranges.partition_point(|r| r.end <= range.start);
        self.ranges.get(i).is_some_and(|r| r.start < range.end)
    }

    /// The bytes of `whole` that are not in the set.
    #[must_use]
    pub fn gaps(&self, whole: ByteRange) -> Self {
        let mut gaps = Self {
            ranges: vec![whole],
        };
        gaps.ranges.retain(|r| !r.is_empty());
        for range in &self.ranges {
            gaps.remove(*range);
        }
        gaps
    }

    /// Removes up to `len_max` bytes from the front, without crossing a multiple of `grid` counted
    /// from `origin`. `None` when the set is empty.
    pub fn take_front(&mut self, len_max: u64, grid: u64, origin: u64) -> Option<ByteRange> {
        let first = *self.ranges.first()?;
        let boundary = first
            .start
            .saturating_add(grid - (first.start - origin) % grid);
        let end = first
            .end
            .min(boundary)
            .min(first.start.saturating_add(len_max));
        let taken = ByteRange {
            start: first.start,
            end,
        };
        if end == first.end {
            self.ranges.remove(0);
        } else {
            self.ranges[0].start = end;
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        let mut s = RangeSet::new();
        for &(start, end) in ranges {
            s.insert(ByteRange { start, end });
        }
        s
    }

    #[test]
    fn touching_ranges_merge() {
        assert_eq!(
            set(&[(0, 4), (8, 12), (4, 8)]).as_slice(),
            &[ByteRange { start: 0, end: 12 }]
        );
    }

    #[test]
    fn removing_the_middle_splits() {
        let mut s = set(&[(0, 10)]);
        s.remove(ByteRange { start: 3, end: 5 });
        assert_eq!(s, set(&[(0, 3), (5, 10)]));
        assert!(s.contains(ByteRange { start: 5, end: 10 }));
        assert!(!s.contains(ByteRange { start: 2, end: 6 }));
        assert!(s.overlaps(ByteRange { start: 2, end: 6 }));
        assert!(!s.overlaps(ByteRange { start: 3, end: 5 }));
        assert!(s.overlaps(ByteRange { start: 4, end: 6 }));
    }

    #[test]
    fn gaps_are_the_complement() {
        let s = set(&[(2, 4), (6, 8)]);
        assert_eq!(
            s.gaps(ByteRange { start: 0, end: 10 }),
            set(&[(0, 2), (4, 6), (8, 10)])
        );
        assert_eq!(s.total(), 4);
    }

    #[test]
    fn blocks_follow_the_grid() {
        let mut s = set(&[(5, 30)]);
        let mut blocks = Vec::new();
        while let Some(b) = s.take_front(8, 8, 0) {
            blocks.push((b.start, b.end));
        }
        assert_eq!(blocks, [(5, 8), (8, 16), (16, 24), (24, 30)]);
    }
}
