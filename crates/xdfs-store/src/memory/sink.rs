//! An object in memory as a sink.

use std::io::IoSlice;

use xdfs_proto::digest::Fragment;
use xdfs_proto::{Code, Fault};

use super::{MemStore, exists};
use crate::{Capabilities, Sink, SinkRequest};

/// An unpublished object, invisible to others.
#[derive(Debug)]
pub(super) struct MemSink {
    store: MemStore,
    name: Vec<u8>,
    bytes: Vec<u8>,
    mode: Option<u32>,
    mtime_ns: Option<i64>,
    overwrite: bool,
}

impl MemSink {
    pub(super) fn new(store: MemStore, name: Vec<u8>, request: &SinkRequest) -> Self {
        Self {
            store,
            name,
            bytes: Vec::new(),
            mode: request.mode,
            mtime_ns: request.mtime_ns,
            overwrite: request.overwrite,
        }
    }

    /// The end of a range as an index into memory, if it is within the limit.
    fn place(&self, operation: &str, offset: u64, length: usize) -> Result<usize, Fault> {
        let limit = self.store.object_bytes_max;
        offset
            .checked_add(length as u64)
            .filter(|end| *end <= limit)
            .and_then(|end| usize::try_from(end).ok())
            .ok_or_else(|| {
                let cause = format!("an object in memory may have {limit} bytes");
                Fault::new(Code::NoSpace, operation, cause).path(&self.name)
            })
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
        let end = self.place("write", offset, length)?;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let mut at = end - length;
        for buf in bufs {
            self.bytes[at..at + buf.len()].copy_from_slice(buf);
            at += buf.len();
        }
        Ok(())
    }

    fn read_back(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.bytes.get(at..).unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn sync(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        let _ = durable;
        Ok(())
    }

    fn publish(&mut self, length: u64, _fresh: &[Fragment]) -> Result<(), Fault> {
        let end = self.place("publish", length, 0)?;
        self.bytes.resize(end, 0);
        let mut shared = self.store.lock();
        if !self.overwrite && shared.objects.contains_key(&self.name) {
            return Err(exists("publish", &self.name));
        }
        shared.put(
            &self.name,
            std::mem::take(&mut self.bytes),
            self.mode,
            self.mtime_ns,
        );
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.bytes = Vec::new();
        Ok(())
    }

    crate::defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, verify, shared);
}
