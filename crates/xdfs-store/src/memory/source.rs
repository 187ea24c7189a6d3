//! An object in memory as a source.

use xdfs_proto::{Fault, SourceTag};

use super::Object;
use crate::{Source, SourceInfo};

/// One immutable version of an object.
#[derive(Debug)]
pub(super) struct MemSource {
    object: Object,
    info: SourceInfo,
}

impl MemSource {
    pub(super) fn new(object: Object) -> Self {
        let length = object.bytes.len() as u64;
        let mut tag = [0; 16];
        tag[..8].copy_from_slice(&object.version.to_be_bytes());
        tag[8..].copy_from_slice(&length.to_be_bytes());
        let info = SourceInfo {
            length: Some(length),
            tag: SourceTag(tag),
            mode: object.mode,
            mtime_ns: object.mtime_ns,
            random_reads: true,
            sparse: false,
        };
        Self { object, info }
    }
}

impl Source for MemSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|at| self.object.bytes.get(at..));
        let bytes = bytes.unwrap_or_default();
        let count = bytes.len().min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    crate::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory, is_uniform,
        shared);
}
