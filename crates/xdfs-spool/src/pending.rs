//! Records of one content that the index doesn't have yet.

use std::io::IoSlice;
use std::sync::Arc;

use xdfs_proto::{ByteRange, Code, Fault};

use crate::inner::Inner;
use crate::segment::{Extent, Segment};

/// Longest payload of a record, unless a single buffer is longer: a reader takes records whole.
pub(crate) const RECORD_BYTES: usize = 1 << 20;

/// Records that were appended to segments for one content, and don't count yet. The segments stay
/// as long as this has records in them.
#[derive(Debug)]
pub(crate) struct Pending {
    spool: Arc<Inner>,
    content: u64,
    path: Vec<u8>,
    records: Vec<(Extent, Option<Arc<Segment>>)>,
}

impl Pending {
    /// Nothing of a content; faults have this path.
    pub(crate) fn new(spool: Arc<Inner>, content: u64, path: Vec<u8>) -> Self {
        Self {
            spool,
            content,
            path,
            records: Vec::new(),
        }
    }

    pub(crate) fn spool(&self) -> &Arc<Inner> {
        &self.spool
    }

    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// The fault with the path of the file, which is all that its sender knows.
    pub(crate) fn named(&self, fault: Fault) -> Fault {
        Fault {
            path: self.path.clone(),
            ..fault
        }
    }

    /// Appends adjacent bytes.
    pub(crate) fn append(&mut self, mut offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let mut rest = bufs;
        while !rest.is_empty() {
            let mut length = 0;
            let taken = rest.iter().take_while(|buf| {
                let is_first = length == 0;
                length += buf.len();
                is_first || length <= RECORD_BYTES
            });
            let (record, after) = rest.split_at(taken.count().max(1));
            let bytes: usize = record.iter().map(|buf| buf.len()).sum();
            if bytes > 0 {
                let appended = self.spool.segments.append(self.content, offset, record);
                let (extent, segment) = appended.map_err(|fault| self.named(fault))?;
                self.records.push((extent, Some(segment)));
            }
            offset += bytes as u64;
            rest = after;
        }
        Ok(())
    }

    /// Adds zeros that aren't stored.
    pub(crate) fn hole(&mut self, range: ByteRange) {
        if !range.is_empty() {
            let hole = Extent::hole(range.start, range.end);
            self.records.push((hole, None));
        }
    }

    /// Makes all of it durable.
    pub(crate) fn sync(&mut self) -> Result<(), Fault> {
        let synced = self.spool.segments.sync();
        let has_failed = |(_, segment): &(Extent, Option<Arc<Segment>>)| {
            let segment = segment.as_ref();
            segment.is_some_and(|own| self.spool.segments.has_failed(own.number))
        };
        // The synchronisation of another sink may have had the error.
        if self.records.iter().any(has_failed) {
            self.records.clear();
            let cause = "what was written could not be made durable";
            let fault = Fault::new(Code::Io, "synchronise", cause);
            return Err(self.named(synced.err().unwrap_or(fault)));
        }
        Ok(())
    }

    /// The records; the segments of those that aren't in the index go with them.
    pub(crate) fn take(&mut self) -> Vec<(Extent, Option<Arc<Segment>>)> {
        std::mem::take(&mut self.records)
    }
}
