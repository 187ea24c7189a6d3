//! Check values of blocks and digests of whole files that combine in any order.
//!
//! A [`Fragment`] is the digest state of one range. Two adjacent fragments combine into one:
//! CRC-64/NVME always, BLAKE3 when they are sibling subtrees of the file's hash tree. When one
//! state covers the file, the digest of the whole is known, regardless of the order of arrival.
//!
//! Both machines keep one [`FragmentMap`] per file. The code that reads or writes payload feeds one
//! [`BlockHasher`] per block, in one pass over bytes that are in the cache anyway.
//!
//! BLAKE3 needs blocks that are subtrees: a block starts at a multiple of its size, a power of two,
//! and only the last of a file may be shorter. [`FragmentMap::insert`] refuses other blocks;
//! nothing here panics.

mod crc64;

use std::collections::BTreeMap;

use blake3::hazmat::{
    HasherExt, Mode, max_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use crc_fast::CrcAlgorithm;

use crate::id::FileId;
use crate::range::{ByteRange, RangeSet};

/// The smallest subtree of BLAKE3, in bytes: one chunk. Every subtree starts at a multiple of it.
pub const SUBTREE_BYTES_MIN: u64 = blake3::CHUNK_LEN as u64;
/// Bytes per pass of all digests of a block: few enough to stay in the cache.
const PASS_BYTES: usize = 64 << 10;

/// The kind of a whole-file digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DigestKind {
    /// None: nothing to publish or verify.
    None,
    /// CRC-64/NVME, as used by S3 for full objects.
    #[default]
    Crc64Nvme,
    /// BLAKE3, cryptographic.
    Blake3,
}

impl DigestKind {
    /// The checksum of this kind; `None` without a digest.
    #[must_use]
    pub fn checksum(self) -> Option<ChecksumKind> {
        match self {
            Self::None => None,
            Self::Crc64Nvme => Some(ChecksumKind::Crc64Nvme),
            Self::Blake3 => Some(ChecksumKind::Blake3),
        }
    }

    /// Its stable name; `none` without a digest.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.checksum().map_or("none", ChecksumKind::as_str)
    }

    /// The digest of the empty file.
    fn of_nothing(self) -> DigestValue {
        match self {
            Self::None => DigestValue::None,
            Self::Crc64Nvme => DigestValue::Crc64Nvme(crc64::zeros(0)),
            Self::Blake3 => DigestValue::Blake3(blake3::hash(&[]).into()),
        }
    }
}

/// The digest of a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestValue {
    /// No digest was requested.
    None,
    /// CRC-64/NVME.
    Crc64Nvme(u64),
    /// BLAKE3.
    Blake3([u8; 32]),
}

impl DigestValue {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> DigestKind {
        match self {
            Self::None => DigestKind::None,
            Self::Crc64Nvme(_) => DigestKind::Crc64Nvme,
            Self::Blake3(_) => DigestKind::Blake3,
        }
    }

    /// The same as a checksum; `None` without a digest.
    #[must_use]
    pub fn checksum(&self) -> Option<ChecksumValue> {
        match *self {
            Self::None => None,
            Self::Crc64Nvme(crc) => Some(ChecksumValue::Crc64Nvme(crc)),
            Self::Blake3(hash) => Some(ChecksumValue::Blake3(hash)),
        }
    }
}

/// The kind of a checksum: the digests of transfers, and those of other programs, which don't
/// combine and so can't be digests of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChecksumKind {
    /// CRC-64/NVME.
    Crc64Nvme,
    /// BLAKE3.
    Blake3,
    /// SHA-256, as by sha256sum.
    Sha256,
    /// MD5, as by md5sum: anybody can make two files with the same one.
    Md5,
}

impl ChecksumKind {
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crc64Nvme => "crc64nvme",
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
            Self::Md5 => "md5",
        }
    }
}

/// The checksum of a file or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChecksumValue {
    /// CRC-64/NVME.
    Crc64Nvme(u64),
    /// BLAKE3.
    Blake3([u8; 32]),
    /// SHA-256.
    Sha256([u8; 32]),
    /// MD5.
    Md5([u8; 16]),
}

impl ChecksumValue {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ChecksumKind {
        match self {
            Self::Crc64Nvme(_) => ChecksumKind::Crc64Nvme,
            Self::Blake3(_) => ChecksumKind::Blake3,
            Self::Sha256(_) => ChecksumKind::Sha256,
            Self::Md5(_) => ChecksumKind::Md5,
        }
    }

    /// Its value in lower-case hex.
    #[must_use]
    pub fn hex(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Crc64Nvme(crc) => format!("{crc:016x}"),
            Self::Blake3(hash) | Self::Sha256(hash) => hex(hash),
            Self::Md5(hash) => hex(hash),
        }
    }
}

/// The digest state of a range, which can be combined with its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentState {
    /// No digest.
    None,
    /// CRC-64/NVME of the bytes of the range.
    Crc64Nvme(u64),
    /// A subtree of BLAKE3.
    Blake3 {
        /// Chaining value of the subtree as part of a larger one.
        node: [u8; 32],
        /// Hash if the subtree is the whole file. Only for ranges that start at 0; all zero
        /// otherwise.
        root: [u8; 32],
    },
}

impl FragmentState {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> DigestKind {
        match self {
            Self::None => DigestKind::None,
            Self::Crc64Nvme(_) => DigestKind::Crc64Nvme,
            Self::Blake3 { .. } => DigestKind::Blake3,
        }
    }
}

/// A range and its digest state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The range, relative to the start of the transfer.
    pub range: ByteRange,
    /// The state.
    pub state: FragmentState,
}

impl Fragment {
    /// Whether the range can be a subtree of BLAKE3: it starts on a chunk and doesn't exceed the
    /// largest subtree that starts there.
    fn is_subtree(&self) -> bool {
        let range = self.range;
        range.start.is_multiple_of(SUBTREE_BYTES_MIN)
            && max_subtree_len(range.start).is_none_or(|max| range.len() <= max)
    }

    /// Whether the range is a subtree without a ragged end.
    fn is_full_subtree(&self) -> bool {
        let len = self.range.len();
        len.is_power_of_two() && len >= SUBTREE_BYTES_MIN && self.is_subtree()
    }

    /// Whether it can be combined with others to the digest of a file of `length` bytes: with
    /// BLAKE3 only a full subtree can, or the ragged one at the end.
    pub(crate) fn combines_in(&self, length: u64) -> bool {
        self.state.kind() != DigestKind::Blake3
            || self.is_full_subtree()
            || self.range.end == length && self.is_subtree()
    }

    /// The fragment of two adjacent ranges, `self` being the left one; `None` if their states don't
    /// combine.
    fn merged(&self, right: &Self) -> Option<Self> {
        if self.range.end != right.range.start {
            return None;
        }
        let range = ByteRange {
            start: self.range.start,
            end: right.range.end,
        };
        let state = match (self.state, right.state) {
            (FragmentState::None, FragmentState::None) => FragmentState::None,
            (FragmentState::Crc64Nvme(a), FragmentState::Crc64Nvme(b)) => {
                FragmentState::Crc64Nvme(crc64::combine(a, b, right.range.len()))
            }
            (FragmentState::Blake3 { node: a, .. }, FragmentState::Blake3 { node: b, .. }) => {
                // Siblings have the same size, and the left one starts where their parent does. A
                // ragged right sibling must wait until the end of the file is known.
                let siblings = self.is_full_subtree()
                    && self.range.len() == right.range.len()
                    && range.start.is_multiple_of(range.len());
                if !siblings {
                    return None;
                }
                let root = match range.start {
                    0 => merge_subtrees_root(&a, &b, Mode::Hash).into(),
                    _ => [0; 32],
                };
                FragmentState::Blake3 {
                    node: merge_subtrees_non_root(&a, &b, Mode::Hash),
                    root,
                }
            }
            _ => return None,
        };
        Some(Self { range, state })
    }
}

/// Computes the CRC-32C of a block and its [`Fragment`] as the payload passes, in pieces.
#[derive(Debug)]
pub struct BlockHasher {
    check: Option<crc_fast::Digest>,
    offset: u64,
    length: u64,
    state: HasherState,
}

/// The state of a block's whole-file digest.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the CRC is the common case: an allocation a block would cost more than the bytes"
)]
enum HasherState {
    None,
    Crc64Nvme(crc_fast::Digest),
    // Two kilobytes: too large to move around, while the allocation is cheap compared with hashing
    // a block.
    Blake3(Box<blake3::Hasher>),
    // The block is no subtree, so its state is useless.
    NoSubtree,
}

impl BlockHasher {
    /// A hasher for a block at `offset`. Without `check` the check value stays 0. For BLAKE3
    /// `offset` must be a multiple of the block size, a power of two of at least 1024; otherwise
    /// [`FragmentMap::insert`] refuses the fragment.
    #[must_use]
    pub fn new(kind: DigestKind, check: bool, offset: u64) -> Self {
        let state = match kind {
            DigestKind::None => HasherState::None,
            DigestKind::Crc64Nvme => {
                HasherState::Crc64Nvme(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme))
            }
            DigestKind::Blake3 if offset.is_multiple_of(SUBTREE_BYTES_MIN) => {
                let mut hasher = Box::new(blake3::Hasher::new());
                hasher.set_input_offset(offset);
                HasherState::Blake3(hasher)
            }
            DigestKind::Blake3 => HasherState::NoSubtree,
        };
        let check = check.then(|| crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi));
        Self {
            check,
            offset,
            length: 0,
            state,
        }
    }

    /// Hashes the next bytes of the payload.
    pub fn update(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(PASS_BYTES) {
            if let Some(check) = &mut self.check {
                check.update(bytes);
            }
            self.length = self.length.saturating_add(bytes.len() as u64);
            match &mut self.state {
                HasherState::None | HasherState::NoSubtree => {}
                HasherState::Crc64Nvme(crc) => crc.update(bytes),
                HasherState::Blake3(hasher) => {
                    // The hasher would panic beyond the size of the subtree.
                    if max_subtree_len(self.offset).is_none_or(|max| self.length <= max) {
                        hasher.update(bytes);
                    } else {
                        self.state = HasherState::NoSubtree;
                    }
                }
            }
        }
    }

    /// The hasher of a block with the same payload at another offset, without hashing the bytes
    /// again. `None` for BLAKE3, whose state depends on the offset.
    #[must_use]
    pub fn moved_to(&self, offset: u64) -> Option<Self> {
        let state = match &self.state {
            HasherState::None => HasherState::None,
            HasherState::Crc64Nvme(crc) => HasherState::Crc64Nvme(*crc),
            HasherState::Blake3(_) | HasherState::NoSubtree => return None,
        };
        Some(Self {
            check: self.check,
            offset,
            length: self.length,
            state,
        })
    }

    /// The check value of the block, and its fragment. The check covers, after the payload, the
    /// file number and the offset: a misplaced payload is as bad as a damaged one.
    #[must_use]
    pub fn finish(self, file: FileId) -> (u32, Fragment) {
        let check = self.check.map_or(0, |mut check| {
            check.update(&file.0.to_be_bytes());
            check.update(&self.offset.to_be_bytes());
            // A 32-bit CRC has no higher bits.
            check.finalize() as u32
        });
        let end = self.offset.saturating_add(self.length);
        let state = match self.state {
            HasherState::None | HasherState::NoSubtree => FragmentState::None,
            HasherState::Crc64Nvme(crc) => FragmentState::Crc64Nvme(crc.finalize()),
            // The empty range has no subtree.
            HasherState::Blake3(_) if self.length == 0 => FragmentState::None,
            HasherState::Blake3(hasher) => FragmentState::Blake3 {
                node: hasher.finalize_non_root(),
                root: match self.offset {
                    0 => hasher.finalize().into(),
                    _ => [0; 32],
                },
            },
        };
        (
            check,
            Fragment {
                range: ByteRange {
                    start: self.offset,
                    end,
                },
                state,
            },
        )
    }
}

/// The fragments of one file, merged as far as possible.
#[derive(Clone, Debug)]
pub struct FragmentMap {
    kind: DigestKind,
    ranges: RangeSet,
    /// By start of the range; none overlap, and no adjacent ones could be merged.
    fragments: BTreeMap<u64, Fragment>,
}

impl FragmentMap {
    /// An empty map.
    #[must_use]
    pub fn new(kind: DigestKind) -> Self {
        Self {
            kind,
            ranges: RangeSet::new(),
            fragments: BTreeMap::new(),
        }
    }

    /// The kind of digest.
    #[must_use]
    pub fn kind(&self) -> DigestKind {
        self.kind
    }

    /// Adds a fragment. Returns `false`, and ignores it, if it is empty, overlaps a present one,
    /// has a state of another kind, or, with BLAKE3, can't be a subtree.
    pub fn insert(&mut self, fragment: Fragment) -> bool {
        let usable = !fragment.range.is_empty()
            && fragment.state.kind() == self.kind
            && (self.kind != DigestKind::Blake3 || fragment.is_subtree());
        if !usable || self.overlaps(fragment.range) {
            return false;
        }
        self.ranges.insert(fragment.range);
        let mut merged = fragment;
        // Each merge of BLAKE3 subtrees can complete a sibling for the next level.
        loop {
            let left = self
                .fragments
                .range(..merged.range.start)
                .next_back()
                .map(|(_, f)| *f);
            if let Some((left, whole)) = left.and_then(|l| Some((l, l.merged(&merged)?))) {
                self.fragments.remove(&left.range.start);
                merged = whole;
                continue;
            }
            let right = self.fragments.get(&merged.range.end).copied();
            if let Some((right, whole)) = right.and_then(|r| Some((r, merged.merged(&r)?))) {
                self.fragments.remove(&right.range.start);
                merged = whole;
                continue;
            }
            break;
        }
        self.fragments.insert(merged.range.start, merged);
        true
    }

    /// Adds a range of zeros, like [`Self::insert`]. Computed without touching bytes where the kind
    /// allows it; BLAKE3 hashes the zeros, in pieces of at most `block_size` (a power of two of at
    /// least 1024), so the caller must bound the range.
    pub fn insert_zeros(&mut self, range: ByteRange, block_size: u64) -> bool {
        if range.is_empty() || self.overlaps(range) {
            return false;
        }
        match self.kind {
            DigestKind::None => self.insert(Fragment {
                range,
                state: FragmentState::None,
            }),
            DigestKind::Crc64Nvme => {
                let state = FragmentState::Crc64Nvme(crc64::zeros(range.len()));
                self.insert(Fragment { range, state })
            }
            DigestKind::Blake3 => {
                let block = block_size.max(SUBTREE_BYTES_MIN);
                if !range.start.is_multiple_of(SUBTREE_BYTES_MIN) || !block.is_power_of_two() {
                    return false;
                }
                let mut start = range.start;
                while start < range.end {
                    let len = max_subtree_len(start).unwrap_or(block).min(block);
                    let len = len.min(range.end - start);
                    self.insert(zero_subtree(start, len));
                    start += len;
                }
                true
            }
        }
    }

    fn overlaps(&self, range: ByteRange) -> bool {
        // Of the fragments that start before the end, only the last can overlap.
        self.fragments
            .range(..range.end)
            .next_back()
            .is_some_and(|(_, held)| held.range.end > range.start)
    }

    /// The covered ranges.
    #[must_use]
    pub fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// The fragments in order.
    pub fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.fragments.values()
    }

    /// The digest of the whole, once exactly the bytes 0..`length` are covered; `None` before. It
    /// stays `None` if blocks that were no proper subtrees make the digest unknowable.
    #[must_use]
    pub fn digest(&self, length: u64) -> Option<DigestValue> {
        if length == 0 {
            return self.fragments.is_empty().then(|| self.kind.of_nothing());
        }
        let whole = ByteRange {
            start: 0,
            end: length,
        };
        if self.ranges.as_slice() != [whole] {
            return None;
        }
        match self.kind {
            DigestKind::None => Some(DigestValue::None),
            DigestKind::Crc64Nvme => match self.fragments.get(&0)? {
                Fragment {
                    range,
                    state: FragmentState::Crc64Nvme(crc),
                } if *range == whole => Some(DigestValue::Crc64Nvme(*crc)),
                _ => None,
            },
            DigestKind::Blake3 => self.blake3_root().map(DigestValue::Blake3),
        }
    }

    /// The hash of the whole from subtrees that cover it without a gap. What is left after merging
    /// siblings is one subtree per bit of the length and a ragged one: the right edge of the tree,
    /// folded from the right.
    fn blake3_root(&self) -> Option<[u8; 32]> {
        let mut right_edge = self.fragments.values().rev();
        let last = right_edge.next()?;
        let FragmentState::Blake3 { node, root } = last.state else {
            return None;
        };
        if last.range.start == 0 {
            return Some(root);
        }
        let (mut right, mut right_len) = (node, last.range.len());
        for fragment in right_edge {
            let FragmentState::Blake3 { node, .. } = fragment.state else {
                return None;
            };
            // A right child is never larger than its left sibling.
            if !fragment.is_full_subtree() || fragment.range.len() < right_len {
                return None;
            }
            if fragment.range.start == 0 {
                return Some(merge_subtrees_root(&node, &right, Mode::Hash).into());
            }
            right = merge_subtrees_non_root(&node, &right, Mode::Hash);
            right_len += fragment.range.len();
        }
        None
    }
}

/// The fragment of `len` zeros from `start` on, a multiple of a chunk.
fn zero_subtree(start: u64, len: u64) -> Fragment {
    static ZEROS: [u8; PASS_BYTES] = [0; PASS_BYTES];
    let mut hasher = BlockHasher::new(DigestKind::Blake3, false, start);
    let mut left = len;
    while left > 0 {
        let piece = left.min(PASS_BYTES as u64);
        // At most PASS_BYTES, so it fits any usize.
        hasher.update(&ZEROS[..piece as usize]);
        left -= piece;
    }
    hasher.finish(FileId(0)).1
}
