//! The simulated stores: sources whose bytes a formula gives, and sinks that forget at a crash
//! what wasn't made durable.

use xdfs_proto::FileId;
use xdfs_proto::digest::{BlockHasher, DigestKind, DigestValue, Fragment, FragmentMap};
use xdfs_proto::{ByteRange, RangeSet};

use crate::rng::Rng;

/// What a crash leaves where nothing was durable, and what stands in a fresh sink.
const GARBAGE: u8 = 0xee;

/// A file to be moved.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) bytes: Vec<u8>,
    /// Regions of zeros that the source knows of.
    pub(crate) holes: RangeSet,
    pub(crate) known_length: bool,
    pub(crate) reads_twice: bool,
}

impl Source {
    pub(crate) fn random(rng: &mut Rng, block: u64) -> Self {
        let k = 1 + rng.below(7) as u64;
        let length = *rng.pick(&[
            0,
            1,
            k * block,
            k * block + 1,
            k * block - 1,
            3 * block + 77,
        ]);
        let key = rng.next();
        let mut bytes: Vec<u8> = (0..length)
            .map(|i| ((i + 1).wrapping_mul(key) >> 29) as u8 | 1)
            .collect();
        let mut holes = RangeSet::new();
        let known_length = !rng.chance(250);
        if known_length && rng.chance(400) {
            for start in (0..length).step_by(block as usize) {
                if rng.chance(500) {
                    let range = ByteRange {
                        start,
                        end: (start + block).min(length),
                    };
                    bytes[range.start as usize..range.end as usize].fill(0);
                    holes.insert(range);
                }
            }
        }
        Self {
            bytes,
            holes,
            known_length,
            reads_twice: known_length || rng.chance(500),
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The digest by one pass of the libraries, which fragments have to arrive at.
    pub(crate) fn digest(&self, kind: DigestKind) -> DigestValue {
        match kind {
            DigestKind::Crc64Nvme => DigestValue::Crc64Nvme(crc_fast::checksum(
                crc_fast::CrcAlgorithm::Crc64Nvme,
                &self.bytes,
            )),
            DigestKind::Blake3 => DigestValue::Blake3(blake3::hash(&self.bytes).into()),
            _ => DigestValue::None,
        }
    }
}

/// The check value and fragment of a block.
pub(crate) fn hash(kind: DigestKind, offset: u64, bytes: &[u8]) -> (u32, Fragment) {
    let mut hasher = BlockHasher::new(kind, true, offset);
    hasher.update(bytes);
    hasher.finish(FileId(1))
}

/// The partial file of one target and what stands under its name.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    written: Vec<u8>,
    durable: Vec<u8>,
    pub(crate) journal: FragmentMap,
    fresh: FragmentMap,
    pub(crate) published: Option<Vec<u8>>,
    /// Block size of the attempt that the journal is of.
    pub(crate) block_size: u32,
}

impl Sink {
    pub(crate) fn new(kind: DigestKind) -> Self {
        Self {
            written: Vec::new(),
            durable: Vec::new(),
            journal: FragmentMap::new(kind),
            fresh: FragmentMap::new(kind),
            published: None,
            block_size: 0,
        }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        if self.written.len() < end {
            self.written.resize(end, GARBAGE);
        }
        self.written[offset as usize..end].copy_from_slice(bytes);
    }

    pub(crate) fn held(&mut self, fragment: Fragment) {
        assert!(self.fresh.insert(fragment), "held twice: {fragment:?}");
        assert!(
            !self.journal.ranges().overlaps(fragment.range),
            "a durable range was taken again: {fragment:?}"
        );
    }

    pub(crate) fn hole(&mut self, range: ByteRange, fragments: &[Fragment]) {
        for fragment in fragments {
            self.held(*fragment);
        }
        assert!(self.fresh.ranges().contains(range), "not all of a hole");
        self.write(range.start, &vec![0; range.len() as usize]);
    }

    /// Makes durable what was written and records what is held; returns the durable bytes.
    pub(crate) fn checkpoint(&mut self) -> u64 {
        self.durable.clone_from(&self.written);
        for fragment in self.fresh.fragments() {
            assert!(self.journal.insert(*fragment));
        }
        self.fresh = FragmentMap::new(self.journal.kind());
        self.journal.ranges().total()
    }

    /// The host fails: what wasn't durable is lost.
    pub(crate) fn crash(&mut self) {
        self.fresh = FragmentMap::new(self.journal.kind());
        let mut left = vec![GARBAGE; self.written.len()];
        for range in self.journal.ranges().as_slice() {
            let (start, end) = (range.start as usize, range.end as usize);
            left[start..end].copy_from_slice(&self.durable[start..end]);
        }
        self.written = left;
    }

    /// Throws everything away.
    pub(crate) fn discard(&mut self) {
        let published = self.published.take();
        *self = Self::new(self.journal.kind());
        self.published = published;
    }

    pub(crate) fn publish(&mut self, length: u64) {
        assert!(self.published.is_none(), "published twice");
        self.checkpoint();
        assert_eq!(self.written.len() as u64, length);
        self.published = Some(self.written.clone());
    }
}
