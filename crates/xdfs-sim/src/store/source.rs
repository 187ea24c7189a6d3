//! What is read.

use xdfs_proto::{ByteRange, Code, Fault, Retry};
use xdfs_store::{Source, SourceInfo};

use super::{FileContent, SimStore};
use crate::world::Held;

const READ: &str = "read the source";

/// Where the bytes come from.
#[derive(Debug)]
pub(super) enum Bytes {
    Made(FileContent),
    /// Those of a file when it was opened.
    Written(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct SimSource {
    store: SimStore,
    path: Vec<u8>,
    /// How often its path had been opened then.
    opened: u64,
    info: SourceInfo,
    bytes: Bytes,
    _held: Held,
}

impl SimSource {
    pub(super) fn new(
        store: SimStore,
        path: Vec<u8>,
        opened: u64,
        info: SourceInfo,
        bytes: Bytes,
    ) -> Self {
        Self {
            _held: store.world.hold(),
            store,
            path,
            opened,
            info,
            bytes,
        }
    }
}

impl Source for SimSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.store
            .fails(|habits| habits.failing_reads, "read failed", READ)?;
        self.store.world.note(offset);
        Ok(match &self.bytes {
            Bytes::Made(content) => content.read(offset, buf),
            Bytes::Written(bytes) => {
                let bytes = &bytes[bytes.len().min(offset as usize)..];
                let count = bytes.len().min(buf.len());
                buf[..count].copy_from_slice(&bytes[..count]);
                count
            }
        })
    }

    fn is_slow(&self) -> bool {
        self.store.disk().habits.is_slow
    }

    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<ByteRange>, Fault> {
        let hole = match &self.bytes {
            Bytes::Made(content) => content.hole,
            Bytes::Written(_) => ByteRange { start: 0, end: 0 },
        };
        let start = match hole.start <= offset && offset < hole.end {
            true => hole.end,
            false => offset,
        };
        let until = if start < hole.start {
            hole.start.min(end)
        } else {
            end
        };
        let range = ByteRange { start, end: until };
        Ok((start < end).then_some(range))
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        if self
            .store
            .happens(|habits| habits.changed_sources, "source changed")
        {
            self.store.doubt(&self.path, self.opened);
            let fault = Fault::new(Code::SourceChanged, READ, "it changed");
            return Err(fault.path(&self.path).retry(Retry::Now));
        }
        Ok(())
    }

    xdfs_store::defaults!(Source: will_read, is_cold, direct, memory, is_uniform, shared);
}
