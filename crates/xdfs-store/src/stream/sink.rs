//! A stream as a sink.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{IoSlice, Write};

use xdfs_proto::digest::Fragment;
use xdfs_proto::{ByteRange, Code, Fault};

use crate::{Capabilities, Sink};

/// Maximum bytes held in memory until their predecessors arrive.
pub const REORDER_BYTES_MAX: usize = 64 << 20;

/// A stream that takes bytes in order. Blocks that arrive early wait in memory for their turn.
///
/// Written bytes can't be taken back: publishing and discarding only end the stream. Zeros must be
/// written like other bytes, since nothing can be skipped.
pub struct StreamSink {
    stream: Box<dyn Write + Send>,
    name: String,
    position: u64,
    /// Blocks by offset, each past `position`.
    early: BTreeMap<u64, Vec<u8>>,
    early_bytes: usize,
    early_bytes_max: usize,
}

impl StreamSink {
    /// Writes to `stream`, called `name` in faults.
    #[must_use]
    pub fn new(stream: Box<dyn Write + Send>, name: impl Into<String>) -> Self {
        Self::with_limit(stream, name, REORDER_BYTES_MAX)
    }

    /// [`Self::new`] with another bound on the bytes held in memory.
    #[must_use]
    pub fn with_limit(
        stream: Box<dyn Write + Send>,
        name: impl Into<String>,
        early_bytes_max: usize,
    ) -> Self {
        Self {
            stream,
            name: name.into(),
            position: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            early_bytes_max,
        }
    }

    fn refuse(&self, code: Code, operation: &str, cause: impl Into<String>) -> Fault {
        Fault::new(code, operation, cause).path(&self.name)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.stream
            .write_all(bytes)
            .map_err(|error| super::fault("write", &self.name, &error))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Keeps an early block.
    fn keep(&mut self, range: ByteRange, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let before = self.early.range(..range.end).next_back();
        if before.is_some_and(|(at, held)| at + held.len() as u64 > range.start) {
            let cause = format!("the range {range} came twice");
            return Err(self.refuse(Code::Internal, "write", cause));
        }
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        let limit = self.early_bytes_max;
        if self.early_bytes.saturating_add(length) > limit {
            let cause = format!(
                "more than {limit} bytes wait for those at {}, which are late",
                self.position
            );
            return Err(self
                .refuse(Code::LimitExceeded, "write", cause)
                .hint("use fewer channels, or write to a file"));
        }
        let mut block = Vec::with_capacity(length);
        bufs.iter().for_each(|buf| block.extend_from_slice(buf));
        self.early_bytes += length;
        self.early.insert(range.start, block);
        Ok(())
    }
}

impl Sink for StreamSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: false,
            slow_writes: true,
            durable: false,
            atomic_publish: false,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        let range = ByteRange::at(offset, length as u64)
            .filter(|range| range.start >= self.position)
            .ok_or_else(|| {
                let cause = format!("bytes at {offset} can't be written any more");
                self.refuse(Code::Internal, "write", cause)
            })?;
        if range.is_empty() {
            return Ok(());
        }
        if range.start > self.position {
            return self.keep(range, bufs);
        }
        for buf in bufs {
            self.put(buf)?;
        }
        while let Some(next) = self.early.first_entry() {
            if *next.key() > self.position {
                break;
            }
            let block = next.remove();
            self.early_bytes -= block.len();
            self.put(&block)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        let _ = durable;
        Ok(())
    }

    /// Flushes the stream, of which `length` bytes must have been written.
    fn publish(&mut self, length: u64, _fresh: &[Fragment]) -> Result<(), Fault> {
        if self.position != length || !self.early.is_empty() {
            let cause = format!("{} of {length} bytes were written", self.position);
            return Err(self.refuse(Code::Internal, "publish", cause));
        }
        self.stream
            .flush()
            .map_err(|error| super::fault("publish", &self.name, &error))
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.early.clear();
        self.early_bytes = 0;
        Ok(())
    }

    crate::defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, verify, read_back,
        shared);
}

impl fmt::Debug for StreamSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSink")
            .field("name", &self.name)
            .field("position", &self.position)
            .field("early_bytes", &self.early_bytes)
            .finish_non_exhaustive()
    }
}
