//! Finds the parts of a sparse file's content that need no storage.

use std::ops::Range;

/// Grid on which zeros are searched, in bytes: the allocation unit of most file systems. Smaller
/// holes save nothing.
const GRAIN_BYTES: usize = 4096;

/// A part of a buffer that is either all zero or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Its range in the buffer. Not empty.
    pub(super) range: Range<usize>,
    /// All of its bytes are zero.
    pub(super) is_zero: bool,
}

/// Splits a buffer, destined for `offset` of a file, into alternating zero and non-zero stretches,
/// with boundaries on the grid of the file.
pub(super) fn stretches(offset: u64, data: &[u8]) -> impl Iterator<Item = Stretch> {
    let mut grains = grains(offset, data).peekable();
    std::iter::from_fn(move || {
        let mut stretch = grains.next()?;
        while let Some(next) = grains.next_if(|next| next.is_zero == stretch.is_zero) {
            stretch.range.end = next.range.end;
        }
        Some(stretch)
    })
}

/// The grid cells of a buffer; the first and last may be partial.
fn grains(offset: u64, data: &[u8]) -> impl Iterator<Item = Stretch> {
    const ZEROS: [u8; GRAIN_BYTES] = [0; GRAIN_BYTES];
    let past = (offset % GRAIN_BYTES as u64) as usize;
    let mut at = 0;
    std::iter::from_fn(move || {
        let room = if at == 0 {
            GRAIN_BYTES - past
        } else {
            GRAIN_BYTES
        };
        let end = data.len().min(at + room);
        let grain = data.get(at..end).filter(|grain| !grain.is_empty())?;
        let range = at..end;
        at = end;
        Some(Stretch {
            range,
            is_zero: *grain == ZEROS[..grain.len()],
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stretches of a buffer, checked to cover it.
    fn cut(offset: u64, data: &[u8]) -> Vec<(usize, usize, bool)> {
        let all: Vec<Stretch> = stretches(offset, data).collect();
        let mut end = 0;
        for stretch in &all {
            assert_eq!(stretch.range.start, end);
            assert!(stretch.range.end > end);
            end = stretch.range.end;
            let is_zero = data[stretch.range.clone()].iter().all(|b| *b == 0);
            assert_eq!(stretch.is_zero, is_zero);
        }
        assert_eq!(end, data.len());
        let turns = all.windows(2).all(|w| w[0].is_zero != w[1].is_zero);
        assert!(turns, "{all:?}");
        let plain = all.iter().map(|s| (s.range.start, s.range.end, s.is_zero));
        plain.collect()
    }

    #[test]
    fn stretches_meet_on_the_grid() {
        assert_eq!(cut(0, &[]), []);
        assert_eq!(cut(5, &[0]), [(0, 1, true)]);
        assert_eq!(cut(5, &[7; 9000]), [(0, 9000, false)]);
        assert_eq!(cut(0, &[0; 9000]), [(0, 9000, true)]);
        let mut data = [0; 5 * 4096 + 1];
        data[4095] = 1;
        data[3 * 4096] = 1;
        let whole = [
            (0, 4096, false),
            (4096, 3 * 4096, true),
            (3 * 4096, 4 * 4096, false),
            (4 * 4096, 5 * 4096 + 1, true),
        ];
        assert_eq!(cut(0, &data), whole);
        assert_eq!(cut(1 << 40, &data), whole);
        // One byte before the grid: the byte at 4095 is alone in its cell.
        let shifted = [
            (0, 1, true),
            (1, 4097, false),
            (4097, 2 * 4096 + 1, true),
            (2 * 4096 + 1, 3 * 4096 + 1, false),
            (3 * 4096 + 1, 5 * 4096 + 1, true),
        ];
        assert_eq!(cut(4095, &data), shifted);
        // The largest offsets.
        assert_eq!(cut(u64::MAX - 1, &[0, 1]), [(0, 2, false)]);
    }
}
