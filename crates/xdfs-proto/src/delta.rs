//! Deltas between versions of a file: the signatures of its blocks
//! ([`Signatures`](crate::path::Call::Signatures)), and transfers seeded from an old version
//! ([`Seed`]).
//!
//! A side with one version requests the block signatures of the other. It rolls a weak sum over
//! every offset of its own version, and compares the strong sum where the weak one matches
//! ([`find`]). The matching pieces are copied at the receiver from its old file into the partial
//! file of a transfer, together with their digest states: the transfer then begins like a resumed
//! one, and only the rest is sent. Nothing of this is trusted: a piece whose digest differs isn't
//! used.

mod codec;
pub mod find;

use crate::digest::{DigestKind, Fragment, FragmentState};
use crate::id::SourceTag;
use crate::limits::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN};
use crate::range::ByteRange;

/// Maximum number of signatures per call.
pub const SIGNATURES_MAX: u32 = 1024;
/// Maximum bytes of a file covered by the signatures of one call.
pub const SIGNED_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of pieces copied by one call.
pub const PIECES_MAX: usize = 512;
/// Maximum total size of the pieces of one call.
pub const SEEDED_BYTES_MAX: u64 = 256 << 20;
/// Maximum size of a piece in bytes: the largest block.
pub const PIECE_BYTES_MAX: u32 = BLOCK_SIZE_MAX;
/// Size of a strong sum.
pub const STRONG_BYTES: usize = 16;

/// The factor of the weak sum: the odd number closest to 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The signature of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The weak sum: see [`weak`].
    pub weak: u32,
    /// The strong sum: see [`strong`].
    pub strong: [u8; STRONG_BYTES],
    /// The digest state of the block at its offset; `None` if none was requested.
    pub state: FragmentState,
}

/// Signatures of consecutive blocks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signatures {
    /// The version of the file.
    pub tag: SourceTag,
    /// Length of the file in bytes.
    pub length: u64,
    /// The number of the first block.
    pub first: u64,
    /// The kind of the states.
    pub digest: DigestKind,
    /// The signatures: fewer than requested only at the end of the file, whose last block may be
    /// short.
    pub blocks: Vec<Signature>,
}

/// A piece of an old file to be reused in the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedPiece {
    /// Its offset in the new file.
    pub offset: u64,
    /// Its offset in the old file.
    pub from_offset: u64,
    /// Number of bytes, at least 1 and at most [`PIECE_BYTES_MAX`].
    pub length: u32,
    /// The required digest state in the new file.
    pub state: FragmentState,
}

impl SeedPiece {
    /// The piece as a fragment of the new file; `None` past the largest offset.
    #[must_use]
    pub fn fragment(&self) -> Option<Fragment> {
        let range = ByteRange::at(self.offset, u64::from(self.length))?;
        let state = self.state;
        Some(Fragment { range, state })
    }
}

/// The seed of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The old file.
    pub from: Vec<u8>,
    /// The target of the transfer.
    pub to: Vec<u8>,
    /// The transfer may replace an existing target.
    pub overwrite: bool,
    /// The source occupies less storage than its length, as in the offer of the transfer.
    pub sparse: bool,
    /// The version of the source: not all zeros.
    pub tag: SourceTag,
    /// Length of the source in bytes, at least 1.
    pub length: u64,
    /// The digest of the transfer, which isn't none.
    pub digest: DigestKind,
    /// The grid of its blocks in bytes: a power of two, from 1 KiB to 16 MiB.
    pub block_bytes: u32,
    /// The pieces, by offset: at least 1, at most [`PIECES_MAX`], of at most [`SEEDED_BYTES_MAX`]
    /// in total. Each begins on the grid, and ends there or at the end of the file. With BLAKE3
    /// each is a subtree.
    pub pieces: Vec<SeedPiece>,
}

/// Whether this is a valid block size.
pub(crate) fn is_block(bytes: u32) -> bool {
    bytes.is_power_of_two() && (BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&bytes)
}

impl Seed {
    /// Total size of all pieces.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let lengths = self.pieces.iter().map(|piece| u64::from(piece.length));
        lengths.fold(0, u64::saturating_add)
    }

    /// The name of a violated rule, if any, other than those for paths.
    pub(crate) fn broken_rule(&self) -> Option<&'static str> {
        let Self {
            tag,
            length,
            digest,
            block_bytes,
            pieces,
            ..
        } = self;
        if *tag == SourceTag::default() {
            return Some("tag of the source");
        }
        if *length == 0 {
            return Some("length");
        }
        if *digest == DigestKind::None {
            return Some("digest kind");
        }
        if !is_block(*block_bytes) {
            return Some("block size");
        }
        if pieces.is_empty() {
            return Some("number of pieces");
        }
        if self.bytes() > SEEDED_BYTES_MAX {
            return Some("bytes of the pieces");
        }
        let grid = u64::from(*block_bytes);
        let mut end = 0;
        for piece in pieces {
            let has_bytes = (1..=PIECE_BYTES_MAX).contains(&piece.length);
            let Some(fragment) = piece.fragment().filter(|_| has_bytes) else {
                return Some("length of a piece");
            };
            let range = fragment.range;
            let is_on_grid = range.start.is_multiple_of(grid)
                && (range.end.is_multiple_of(grid) || range.end == *length);
            let is_in_order = end <= range.start && range.end <= *length;
            let is_there = (piece.from_offset)
                .checked_add(u64::from(piece.length))
                .is_some();
            if !is_on_grid || !is_in_order || !is_there {
                return Some("piece");
            }
            if piece.state.kind() != *digest || !fragment.combines_in(*length) {
                return Some("digest of a piece");
            }
            end = range.end;
        }
        None
    }
}

/// The weak sum of a block: the upper 32 bits of the polynomial of its bytes, the first with the
/// highest power, at 0x9e3779b97f4a7c15, modulo 2^64.
#[must_use]
pub fn weak(block: &[u8]) -> u32 {
    upper(polynomial(block))
}

/// The strong sum of a block: the first half of its BLAKE3 hash.
#[must_use]
pub fn strong(block: &[u8]) -> [u8; STRONG_BYTES] {
    let mut strong = [0; STRONG_BYTES];
    strong.copy_from_slice(&blake3::hash(block).as_bytes()[..STRONG_BYTES]);
    strong
}

fn upper(sum: u64) -> u32 {
    // The upper half.
    (sum >> 32) as u32
}

fn polynomial(bytes: &[u8]) -> u64 {
    const SQUARE: u64 = FACTOR.wrapping_mul(FACTOR);
    const CUBE: u64 = SQUARE.wrapping_mul(FACTOR);
    const FOURTH: u64 = SQUARE.wrapping_mul(SQUARE);
    // Four at once, since each multiplication depends on the previous one.
    let (fours, rest) = bytes.as_chunks::<4>();
    let sum = fours.iter().fold(0u64, |sum, [a, b, c, d]| {
        sum.wrapping_mul(FOURTH)
            .wrapping_add(u64::from(*a).wrapping_mul(CUBE))
            .wrapping_add(u64::from(*b).wrapping_mul(SQUARE))
            .wrapping_add(u64::from(*c).wrapping_mul(FACTOR))
            .wrapping_add(u64::from(*d))
    });
    rest.iter().fold(sum, |sum, byte| {
        sum.wrapping_mul(FACTOR).wrapping_add(u64::from(*byte))
    })
}

/// A weak sum that is rolled over bytes, one at a time.
#[derive(Clone, Debug)]
pub struct RollingSum {
    sum: u64,
    /// The contribution of a byte when it leaves the window.
    leaving: Box<[u64; 256]>,
}

impl RollingSum {
    /// A rolling sum for blocks of this size.
    #[must_use]
    pub fn new(block_bytes: u32) -> Self {
        let power = (0..block_bytes).fold(1u64, |power, _| power.wrapping_mul(FACTOR));
        let mut leaving = Box::new([0; 256]);
        for (byte, leaving) in (0..).zip(leaving.iter_mut()) {
            *leaving = power.wrapping_mul(byte);
        }
        Self { sum: 0, leaving }
    }

    /// Starts at a block.
    pub fn begin(&mut self, block: &[u8]) {
        self.sum = polynomial(block);
    }

    /// Rolls on by a byte: `first` leaves the block, and `next` enters at its end.
    pub fn roll(&mut self, first: u8, next: u8) {
        self.sum = (self.sum)
            .wrapping_mul(FACTOR)
            .wrapping_sub(self.leaving[usize::from(first)])
            .wrapping_add(u64::from(next));
    }

    /// The weak sum of the current block.
    #[must_use]
    pub fn weak(&self) -> u32 {
        upper(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(count: usize) -> Vec<u8> {
        let mut state = 7u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_sum_that_rolls_is_that_of_each_block() {
        let bytes = bytes(5000);
        for block in [1usize, 3, 1024, 1027] {
            let mut rolling = RollingSum::new(block as u32);
            rolling.begin(&bytes[..block]);
            for at in 0..bytes.len() - block {
                assert_eq!(rolling.weak(), weak(&bytes[at..at + block]), "{block} {at}");
                rolling.roll(bytes[at], bytes[at + block]);
            }
        }
    }

    #[test]
    fn the_weak_sum_is_the_polynomial_by_its_definition() {
        let bytes = bytes(1027);
        let slow = bytes.iter().fold(0u64, |sum, byte| {
            sum.wrapping_mul(FACTOR).wrapping_add(u64::from(*byte))
        });
        assert_eq!(weak(&bytes), (slow >> 32) as u32);
        assert_eq!(weak(b""), 0);
    }

    #[test]
    fn one_seed_has_so_many_bytes_and_no_more() {
        let block = u64::from(BLOCK_SIZE_MAX);
        let most = SEEDED_BYTES_MAX / block;
        let piece = |n| SeedPiece {
            offset: n * block,
            from_offset: 0,
            length: BLOCK_SIZE_MAX,
            state: FragmentState::Crc64Nvme(1),
        };
        let mut seed = Seed {
            from: b"old".to_vec(),
            to: b"new".to_vec(),
            overwrite: true,
            sparse: false,
            tag: SourceTag([1; 16]),
            length: 1 << 40,
            digest: DigestKind::Crc64Nvme,
            block_bytes: BLOCK_SIZE_MAX,
            pieces: (0..most).map(piece).collect(),
        };
        assert_eq!((seed.bytes(), seed.broken_rule()), (SEEDED_BYTES_MAX, None));
        seed.pieces.push(SeedPiece {
            length: 1,
            ..piece(most)
        });
        assert_eq!(seed.broken_rule(), Some("bytes of the pieces"));
    }
}
