//! Finds blocks of one version of a file in another, at any offset.
//!
//! An [`Index`] of the signatures of one version finds its blocks in the bytes of the other. Common
//! ranges are [`Stretch`]es, which [`cut`] turns into the pieces of a [`Seed`](super::Seed). Memory
//! is bounded by the number of blocks, and time by the number of bytes, whatever the signatures
//! are.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{RollingSum, SeedPiece, Signature, strong};
use crate::digest::{DigestKind, Fragment, FragmentMap, FragmentState};
use crate::fault::{Code, Fault};
use crate::range::ByteRange;

/// Minimum block size in bytes: below that the signatures would be a large part of what is sent.
const BLOCK_BYTES_MIN: u64 = 8 << 10;
/// Maximum block size in bytes: that of a transfer.
const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of blocks in a file. Each takes about 120 bytes of memory.
const BLOCKS_MAX: u64 = 1 << 18;
/// Bytes read at once.
const STEP_BYTES: usize = 1 << 20;
/// Size of a piece, unless a block is larger: a mismatch costs no more than this.
const PIECE_BYTES: u64 = 4 << 20;
/// Maximum number of blocks with the same weak sum that are compared; further ones aren't searched.
const CHAIN_MAX: usize = 32;
/// Bytes that may be hashed in vain, beyond twice those of the file: colliding sums, made on
/// purpose, would cost a hash of a block per byte.
const WASTE_BYTES: u64 = 64 << 20;

const NONE: u32 = u32::MAX;

/// The block size for two versions of a file, the longer of which has `length` bytes: about the
/// square root. `None` if the number of blocks would exceed the limit.
#[must_use]
pub fn block_bytes(length: u64) -> Option<u32> {
    let least = length.div_ceil(BLOCKS_MAX).max(length.isqrt());
    let block = least.checked_next_power_of_two()?.max(BLOCK_BYTES_MIN);
    (block <= BLOCK_BYTES_MAX)
        .then(|| u32::try_from(block).ok())
        .flatten()
}

/// A block found in another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FoundBlock {
    /// Its offset in the searched file.
    at: u64,
    /// Its number in the indexed file.
    block: u32,
    /// Its size in bytes.
    length: u32,
}

/// A range common to both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its offset in the new file.
    pub new: u64,
    /// Its offset in the old file.
    pub old: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// Appends a stretch, merging it with the previous one if they are adjacent in both files.
fn add(stretches: &mut Vec<Stretch>, stretch: Stretch) {
    match stretches.last_mut() {
        Some(last)
            if last.new + last.length == stretch.new && last.old + last.length == stretch.old =>
        {
            last.length += stretch.length;
        }
        _ => stretches.push(stretch),
    }
}

/// Reads at an offset; fewer bytes than requested only at the end.
pub type Read<'r> = dyn FnMut(u64, &mut [u8]) -> Result<usize, Fault> + 'r;

/// An index of the blocks of one version.
#[derive(Debug)]
pub struct Index {
    block: u32,
    /// Length of the version in bytes.
    length: u64,
    signatures: Vec<Signature>,
    /// Size of the last block if it is short, else 0.
    tail: u32,
    /// A bit for each possible weak sum, by its upper bits.
    filter: Vec<u64>,
    filter_shift: u32,
    /// The first block of each group of weak sums, and the next block after each.
    heads: Vec<u32>,
    heads_shift: u32,
    next: Vec<u32>,
    /// The next block with the same content.
    twin: Vec<u32>,
}

impl Index {
    /// An index of the signatures of all blocks of a file of `length` bytes.
    #[must_use]
    pub fn new(block: u32, length: u64, signatures: Vec<Signature>) -> Self {
        let count = signatures.len();
        let tail = u32::try_from(length % u64::from(block)).unwrap_or(0);
        let bits = (count.max(64)).next_power_of_two().trailing_zeros();
        // Sixteen bits per block, within the limit of a sum's size.
        let (filter_bits, heads_bits) = ((bits + 4).min(32), (bits + 1).min(32));
        let mut index = Self {
            block,
            length,
            tail,
            filter: vec![0; 1 << (filter_bits - 6)],
            filter_shift: 32 - filter_bits,
            heads: vec![NONE; 1 << heads_bits],
            heads_shift: 32 - heads_bits,
            next: vec![NONE; count],
            twin: vec![NONE; count],
            signatures,
        };
        let whole = count - usize::from(tail > 0 && count > 0);
        for number in 0..whole {
            index.insert(number);
        }
        index
    }

    fn insert(&mut self, number: usize) {
        let Some(signature) = self.signatures.get(number).copied() else {
            return;
        };
        let name = u32::try_from(number).unwrap_or(NONE);
        let head = (signature.weak >> self.heads_shift) as usize;
        let (mut at, mut seen) = (self.heads[head], 0);
        while let Some(other) = self.signatures.get(at as usize) {
            if (other.weak, other.strong) == (signature.weak, signature.strong) {
                self.twin[number] = self.twin[at as usize];
                self.twin[at as usize] = name;
                return;
            }
            seen += 1;
            at = self.next[at as usize];
        }
        if seen >= CHAIN_MAX {
            return;
        }
        self.next[number] = std::mem::replace(&mut self.heads[head], name);
        let bit = signature.weak >> self.filter_shift;
        self.filter[(bit >> 6) as usize] |= 1 << (bit & 63);
    }

    fn may_have(&self, weak: u32) -> bool {
        let bit = weak >> self.filter_shift;
        self.filter[(bit >> 6) as usize] & (1 << (bit & 63)) != 0
    }

    /// The block with these bytes, and whether they were hashed for the comparison.
    fn find_block(&self, weak: u32, bytes: &[u8]) -> (Option<u32>, bool) {
        if !self.may_have(weak) {
            return (None, false);
        }
        let mut hash = None;
        let mut at = self.heads[(weak >> self.heads_shift) as usize];
        while let Some(signature) = self.signatures.get(at as usize) {
            if signature.weak == weak
                && *hash.get_or_insert_with(|| strong(bytes)) == signature.strong
            {
                return (Some(at), true);
            }
            at = self.next[at as usize];
        }
        (None, hash.is_some())
    }

    fn is_block(&self, number: u32, bytes: &[u8]) -> bool {
        let whole = self.signatures.len() - usize::from(self.tail > 0);
        (number as usize) < whole
            && (self.signatures.get(number as usize)).is_some_and(|s| s.strong == strong(bytes))
    }

    /// The other blocks with the same content.
    fn twins(&self, block: u32) -> impl Iterator<Item = u32> {
        let next = |at: &u32| self.twin.get(*at as usize).copied();
        std::iter::successors(next(&block), next).take_while(|at| *at != NONE)
    }

    /// The digest state of a block, from its signature.
    #[must_use]
    pub fn state(&self, block: u64) -> Option<FragmentState> {
        let number = usize::try_from(block).ok()?;
        self.signatures.get(number).map(|s| s.state)
    }

    /// Adds the stretches that a range of the new version has in common with the old one, which is
    /// indexed. Ends early if `stop` is set, or the signatures turn out to be useless.
    ///
    /// # Errors
    /// The fault of `read`, or that there are fewer bytes than the range has.
    pub fn find_in_new(
        &self,
        range: ByteRange,
        read: &mut Read<'_>,
        stop: &AtomicBool,
        stretches: &mut Vec<Stretch>,
    ) -> Result<(), Fault> {
        self.scan(range, read, stop, &mut |found| {
            let (new, length) = (found.at, u64::from(found.length));
            let old = u64::from(found.block) * u64::from(self.block);
            add(stretches, Stretch { new, old, length });
        })
    }

    /// The stretches that the old version, of `old_bytes`, has in common with the new one, which is
    /// indexed, in the order of the new one. Ends early like [`Self::find_in_new`].
    ///
    /// # Errors
    /// As [`Self::find_in_new`].
    pub fn find_in_old(
        &self,
        old_bytes: u64,
        read: &mut Read<'_>,
        stop: &AtomicBool,
    ) -> Result<Vec<Stretch>, Fault> {
        // The offset of each block in the old version.
        let mut places = vec![None; self.signatures.len()];
        let all = ByteRange {
            start: 0,
            end: old_bytes,
        };
        self.scan(all, read, stop, &mut |found: FoundBlock| {
            let place = |number: u32, places: &mut Vec<Option<u64>>| {
                let place = places.get_mut(number as usize);
                place.is_some_and(|place| place.replace(found.at).is_none())
            };
            if place(found.block, &mut places) {
                // Twins found earlier were recorded for all of them.
                let mut twins = self.twins(found.block);
                while twins.next().is_some_and(|twin| place(twin, &mut places)) {}
            }
        })?;
        let mut stretches = Vec::new();
        for (number, place) in (0u64..).zip(places) {
            if let Some(old) = place {
                let new = number * u64::from(self.block);
                let length = u64::from(self.block).min(self.length.saturating_sub(new));
                add(&mut stretches, Stretch { new, old, length });
            }
        }
        Ok(stretches)
    }

    /// Searches the blocks in a range of another file, in order. Matches don't overlap.
    fn scan(
        &self,
        range: ByteRange,
        read: &mut Read<'_>,
        stop: &AtomicBool,
        found: &mut dyn FnMut(FoundBlock),
    ) -> Result<(), Fault> {
        let block = self.block as usize;
        let mut rolling = RollingSum::new(self.block);
        let mut waste_left = range.len().saturating_mul(2).saturating_add(WASTE_BYTES);
        // The bytes read, the offset of the first, and the index of the current window.
        let (mut bytes, mut base, mut at) = (Vec::new(), range.start, 0);
        let mut is_rolled = false;
        let mut expected = None;
        loop {
            let end = base + bytes.len() as u64;
            if bytes.len() - at <= block && end < range.end {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                bytes.drain(..at);
                base += at as u64;
                at = 0;
                fill(&mut bytes, end, range.end, read)?;
                continue;
            }
            let Some(window) = bytes.get(at..at + block) else {
                break;
            };
            let mut number = None;
            if !is_rolled {
                // After a match the next block usually follows, without any rolling.
                number = expected.take().filter(|n| self.is_block(*n, window));
                if number.is_none() {
                    rolling.begin(window);
                    is_rolled = true;
                }
            }
            if number.is_none() {
                let (same, was_hashed) = self.find_block(rolling.weak(), window);
                number = same;
                if was_hashed && same.is_none() {
                    waste_left = waste_left.saturating_sub(block as u64);
                    if waste_left == 0 {
                        return Ok(());
                    }
                }
            }
            if let Some(number) = number {
                found(FoundBlock {
                    at: base + at as u64,
                    block: number,
                    length: self.block,
                });
                at += block;
                is_rolled = false;
                expected = number.checked_add(1);
                continue;
            }
            if at + block >= bytes.len() {
                break;
            }
            let pairs = bytes[at..].iter().zip(&bytes[at + block..]);
            let mut moved = 0;
            for (first, next) in pairs {
                rolling.roll(*first, *next);
                moved += 1;
                if self.may_have(rolling.weak()) {
                    break;
                }
            }
            at += moved;
        }
        self.find_tail(&bytes[at..], range.end, found);
        Ok(())
    }

    /// Searches the short last block, at the end only.
    fn find_tail(&self, rest: &[u8], end: u64, found: &mut dyn FnMut(FoundBlock)) {
        let tail = self.tail as usize;
        let Some(last) = self.signatures.last().filter(|_| tail > 0) else {
            return;
        };
        let start = rest.len().checked_sub(tail);
        if let Some(start) = start
            && strong(&rest[start..]) == last.strong
        {
            found(FoundBlock {
                at: end - u64::from(self.tail),
                block: u32::try_from(self.signatures.len() - 1).unwrap_or(NONE),
                length: self.tail,
            });
        }
    }
}

/// Reads more bytes from `from` on.
fn fill(bytes: &mut Vec<u8>, from: u64, end: u64, read: &mut Read<'_>) -> Result<(), Fault> {
    let before = bytes.len();
    let left = usize::try_from(end - from).unwrap_or(usize::MAX);
    // At least doubles the buffer, so that the rest is rarely moved.
    let wanted = left.min(STEP_BYTES.max(before));
    bytes.resize(before + wanted, 0);
    if read(from, &mut bytes[before..])? < wanted {
        let cause = "it became shorter while it was read";
        return Err(Fault::new(Code::SourceChanged, "search for changes", cause));
    }
    Ok(())
}

/// Computes the digest state of a range of the new file.
pub type StateOf<'s> = dyn FnMut(ByteRange) -> Result<Option<FragmentState>, Fault> + 's;
/// Takes a piece; returns `false` if no more are wanted.
pub type Take<'t> = dyn FnMut(SeedPiece) -> Result<bool, Fault> + 't;

/// Cuts stretches into pieces of whole blocks of the new file, which has `length` bytes, in order.
/// The stretches must be in the order of the new file and not overlap there.
///
/// # Errors
/// Those of the two functions.
pub fn cut(
    stretches: &[Stretch],
    (block, length, kind): (u32, u64, DigestKind),
    state_of: &mut StateOf<'_>,
    take: &mut Take<'_>,
) -> Result<(), Fault> {
    let block = u64::from(block);
    let segment = PIECE_BYTES.max(block);
    for stretch in stretches {
        let stretch_end = stretch.new + stretch.length;
        let mut at = stretch.new.next_multiple_of(block);
        while at < stretch_end {
            let mut map = FragmentMap::new(kind);
            // Pieces don't cross a segment boundary.
            let segment_end = (at + 1).next_multiple_of(segment).min(length);
            while at < segment_end {
                let end = (at + block).min(length);
                if end > stretch_end {
                    break;
                }
                let range = ByteRange { start: at, end };
                if let Some(state) = state_of(range)? {
                    map.insert(Fragment { range, state });
                }
                at = end;
            }
            for Fragment { range, state } in map.fragments() {
                let piece = SeedPiece {
                    offset: range.start,
                    from_offset: range.start - stretch.new + stretch.old,
                    length: u32::try_from(range.len()).unwrap_or(u32::MAX),
                    state: *state,
                };
                if !take(piece)? {
                    return Ok(());
                }
            }
            if at < segment_end {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
