//! Content of files: sources and sinks.

use std::io::IoSlice;
use std::sync::{Arc, Mutex, PoisonError};

use xdfs::store::{
    Capabilities, Fragment, Sink, SinkRequest, Source, SourceInfo, SourceTag, defaults,
};
use xdfs::{Code, Fault};

use crate::Why;
use crate::tree::{File, Tree};

/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug)]
pub(crate) struct MemSource {
    bytes: Arc<Vec<u8>>,
    info: SourceInfo,
}

impl MemSource {
    pub(crate) fn new(file: File) -> Self {
        let length = file.bytes.len() as u64;
        let mut tag = [0; 16];
        tag[..8].copy_from_slice(&file.number.to_be_bytes());
        tag[8..].copy_from_slice(&length.to_be_bytes());
        Self {
            bytes: file.bytes,
            info: SourceInfo {
                length: Some(length),
                tag: SourceTag(tag),
                mode: Some(file.mode),
                mtime_ns: Some(file.mtime_ns),
                random_reads: true,
                sparse: false,
            },
        }
    }
}

/// Copies what there is from `offset` on, as much as fits.
fn read(bytes: &[u8], offset: u64, buf: &mut [u8]) -> usize {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = bytes.get(at..).unwrap_or_default();
    let count = rest.len().min(buf.len());
    buf[..count].copy_from_slice(&rest[..count]);
    count
}

impl Source for MemSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        Ok(read(&self.bytes, offset, buf))
    }

    fn memory(&self) -> Option<Arc<Vec<u8>>> {
        Some(Arc::clone(&self.bytes))
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    defaults!(Source: next_data, will_read, is_cold, direct, is_slow, is_uniform, shared);
}

/// A file that has no name yet.
#[derive(Debug)]
pub(crate) struct MemSink {
    tree: Arc<Mutex<Tree>>,
    path: Vec<u8>,
    bytes: Vec<u8>,
    metadata: (Option<u32>, Option<i64>),
    overwrite: bool,
}

impl MemSink {
    pub(crate) fn new(tree: Arc<Mutex<Tree>>, path: Vec<u8>, request: &SinkRequest) -> Self {
        Self {
            tree,
            path,
            bytes: Vec::new(),
            metadata: (request.mode, request.mtime_ns),
            overwrite: request.overwrite,
        }
    }

    /// The end of a range, if a file may have one there.
    fn end(&self, offset: u64, length: usize) -> Result<usize, Fault> {
        let end = offset.checked_add(length as u64);
        let end = end.filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.and_then(|end| usize::try_from(end).ok());
        let full = Why(Code::NoSpace, "a file in memory may have 1 GiB");
        end.ok_or_else(|| full.fault("write", &self.path))
    }
}

impl Sink for MemSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: false,
            durable: false,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let length = bufs.iter().map(|buf| buf.len()).sum();
        let end = self.end(offset, length)?;
        self.bytes.resize(self.bytes.len().max(end), 0);
        let mut at = end - length;
        for buf in bufs {
            self.bytes[at..at + buf.len()].copy_from_slice(buf);
            at += buf.len();
        }
        Ok(())
    }

    fn read_back(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        Ok(read(&self.bytes, offset, buf))
    }

    fn sync(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn record(&mut self, _: &[Fragment]) -> Result<(), Fault> {
        Ok(())
    }

    fn publish(&mut self, length: u64, _: &[Fragment]) -> Result<(), Fault> {
        let end = self.end(length, 0)?;
        self.bytes.resize(end, 0);
        let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = std::mem::take(&mut self.bytes);
        let published = tree.publish(&self.path, bytes, self.metadata, self.overwrite);
        published.map_err(|why| why.fault("publish", &self.path))
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.bytes = Vec::new();
        Ok(())
    }

    defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, verify, shared);
}
