//! A source of zeros that ends after a number of bytes, or when the duration of its transfer does.

use xdfs_proto::{Fault, SourceTag};
use xdfs_store::{Source, SourceInfo};

/// The length isn't announced, since a transfer whose length is known ends with that.
#[derive(Debug)]
pub(super) struct BoundedZeros {
    info: SourceInfo,
    bytes_max: u64,
}

impl BoundedZeros {
    pub(super) fn new(bytes_max: u64) -> Self {
        let info = SourceInfo {
            length: None,
            tag: SourceTag::default(),
            mode: None,
            mtime_ns: None,
            random_reads: true,
            sparse: false,
        };
        Self { info, bytes_max }
    }
}

impl Source for BoundedZeros {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let left = self.bytes_max.saturating_sub(offset);
        let count = usize::try_from(left).map_or(buf.len(), |left| buf.len().min(left));
        buf[..count].fill(0);
        Ok(count)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory,
        is_uniform, shared);
}
