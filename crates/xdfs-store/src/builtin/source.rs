//! `mem:zero`.

use xdfs_proto::{Fault, SourceTag};

use crate::{Source, SourceInfo};

/// Zeros. Producing them again costs nothing, so a transfer of them is never resumed.
#[derive(Debug)]
pub struct ZeroSource {
    info: SourceInfo,
}

impl ZeroSource {
    /// `length` zeros, or an endless source. An endless source reports no length, and each read
    /// fills its buffer: the reader must know how much to read.
    #[must_use]
    pub fn new(length: Option<u64>) -> Self {
        let info = SourceInfo {
            length,
            tag: SourceTag::default(),
            mode: None,
            mtime_ns: None,
            random_reads: true,
            sparse: false,
        };
        Self { info }
    }
}

impl Source for ZeroSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let left = self
            .info
            .length
            .map_or(u64::MAX, |length| length.saturating_sub(offset));
        let count = usize::try_from(left).map_or(buf.len(), |left| buf.len().min(left));
        buf[..count].fill(0);
        Ok(count)
    }

    fn is_uniform(&self) -> bool {
        true
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    crate::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory, shared);
}
