//! Check values of blocks and digests of whole files that combine in any order.
//!
//! A [`Fragment`] is the digest state of one range. Two fragments that touch combine into one:
//! CRC-64/NVME always, BLAKE3 when they are sibling subtrees of the file's hash tree. When one
//! state covers the file, the digest of the whole is known, whatever the order of arrival.

use crate::range::{ByteRange, RangeSet};

/// Which digest of the whole file is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DigestKind {
    /// None: nothing is published and there is nothing to verify.
    None,
    /// CRC-64/NVME, as S3 uses for full objects.
    #[default]
    Crc64Nvme,
    /// BLAKE3, cryptographic.
    Blake3,
}

/// The digest of a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestValue {
    /// No digest was asked for.
    None,
    /// CRC-64/NVME.
    Crc64Nvme(u64),
    /// BLAKE3.
    Blake3([u8; 32]),
}

/// The digest state of a range, in a form that combines with its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentState {
    /// No digest.
    None,
    /// CRC-64/NVME of the bytes of the range.
    Crc64Nvme(u64),
    /// A subtree of BLAKE3.
    Blake3 {
        /// Chaining value of the subtree when it is part of a larger one.
        node: [u8; 32],
        /// Hash if the subtree is the whole file; only meaningful for ranges that start at 0.
        root: [u8; 32],
    },
}

/// A range and its digest state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The bytes, counted from the start of the transfer.
    pub range: ByteRange,
    /// The state.
    pub state: FragmentState,
}

/// Computes the CRC-32C of a block and its [`Fragment`] as the payload passes, in pieces.
#[derive(Debug)]
pub struct BlockHasher {}

impl BlockHasher {
    /// A hasher for a block at `offset`. With `check` false the check value stays 0.
    /// For BLAKE3 `offset` must be a multiple of the block size, a power of two of at least 1024.
    #[must_use]
    pub fn new(kind: DigestKind, check: bool, offset: u64) -> Self {
        let _ = (kind, check, offset);
        todo!()
    }

    /// Takes the next bytes of the payload.
    pub fn update(&mut self, bytes: &[u8]) {
        let _ = bytes;
        todo!()
    }

    /// The check value and the fragment.
    #[must_use]
    pub fn finish(self) -> (u32, Fragment) {
        todo!()
    }
}

/// The fragments of one file, merged as far as they can be.
#[derive(Clone, Debug)]
pub struct FragmentMap {
    kind: DigestKind,
    ranges: RangeSet,
}

impl FragmentMap {
    /// An empty map.
    #[must_use]
    pub fn new(kind: DigestKind) -> Self {
        Self { kind, ranges: RangeSet::new() }
    }

    /// The kind of digest.
    #[must_use]
    pub fn kind(&self) -> DigestKind {
        self.kind
    }

    /// Adds a fragment; one that overlaps what is held already is ignored and `false` returned.
    pub fn insert(&mut self, fragment: Fragment) -> bool {
        let _ = fragment;
        todo!()
    }

    /// Adds a range of zeros without touching so many bytes where the kind allows it.
    pub fn insert_zeros(&mut self, range: ByteRange, block_size: u64) {
        let _ = (range, block_size);
        todo!()
    }

    /// The bytes that are covered.
    #[must_use]
    pub fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// The fragments in order.
    pub fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        [].iter()
    }

    /// The digest of the whole, once bytes 0..`length` are covered; `None` before.
    #[must_use]
    pub fn digest(&self, length: u64) -> Option<DigestValue> {
        let _ = length;
        todo!()
    }
}
