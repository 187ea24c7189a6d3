//! What files have that are only read.

use xdfs_proto::{ByteRange, SourceTag};

use crate::random::mix;

/// The content of a file, which follows from a seed.
#[derive(Clone, Debug)]
pub struct FileContent {
    /// What the bytes follow from.
    pub seed: u64,
    /// Number of bytes.
    pub length: u64,
    /// Zeros, of which the store knows.
    pub hole: ByteRange,
    /// It is read once, from front to back, and its length shows at its end.
    pub is_stream: bool,
}

impl FileContent {
    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length as usize];
        self.read(0, &mut bytes);
        bytes
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let rest = usize::try_from(self.length.saturating_sub(offset)).unwrap();
        let count = buf.len().min(rest);
        let mut word = u64::MAX;
        let mut value = 0;
        for (at, byte) in (offset..).zip(&mut buf[..count]) {
            if word != at / 8 {
                word = at / 8;
                value = mix(self.seed ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            }
            let is_hole = self.hole.start <= at && at < self.hole.end;
            *byte = if is_hole {
                0
            } else {
                value.to_le_bytes()[(at % 8) as usize]
            };
        }
        count
    }

    pub(super) fn tag(&self) -> SourceTag {
        let mut tag = SourceTag::default();
        if !self.is_stream {
            tag.0[..8].copy_from_slice(&(mix(self.seed) | 1).to_le_bytes());
        }
        tag
    }
}
