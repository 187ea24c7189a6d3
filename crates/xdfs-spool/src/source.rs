//! Sources of parcels that have arrived.

use std::io::ErrorKind;
use std::sync::Arc;

use xdfs_proto::{Code, Fault, SourceTag};
use xdfs_store::{Source, SourceInfo};

use crate::inner::Inner;
use crate::parcel::Parcel;
use crate::segment::{Extent, HOLE};

/// The file of a parcel.
#[derive(Debug)]
pub(crate) struct SpoolSource {
    spool: Arc<Inner>,
    parcel: Parcel,
    info: SourceInfo,
    /// The record that was read last: reads are smaller than records.
    last: Option<(Extent, Vec<u8>)>,
}

impl SpoolSource {
    pub(crate) fn new(spool: &Arc<Inner>, parcel: Parcel) -> Self {
        let info = SourceInfo {
            length: Some(parcel.order.bytes),
            tag: SourceTag(spool.mark(parcel.number).to_be_bytes()),
            mode: parcel.mode,
            mtime_ns: parcel.mtime_ns,
            random_reads: true,
            sparse: false,
        };
        spool.set_damaged(parcel.number, false);
        Self {
            spool: Arc::clone(spool),
            parcel,
            info,
            last: None,
        }
    }

    fn fault(&self, cause: &str) -> Fault {
        let path = self.parcel.order.id.to_string();
        Fault::new(Code::Io, "read the parcel", cause).path(path)
    }

    /// The fault of a parcel that no other attempt will read.
    fn damaged(&self, cause: &str) -> Fault {
        self.spool.set_damaged(self.parcel.number, true);
        self.fault(cause)
    }

    /// Reads the record in which this byte is.
    fn load(&mut self, offset: u64) -> Result<(), Fault> {
        let number = self.parcel.content;
        let found = self.spool.index.extent_at(number, offset)?;
        let extent = found.ok_or_else(|| self.damaged("a part of it is missing in the spool"))?;
        let payload = match extent.segment {
            HOLE => Vec::new(),
            segment => {
                let segment = self.spool.segments.get(segment);
                let segment =
                    segment.ok_or_else(|| self.damaged("a segment of the spool is missing"))?;
                let read = segment.read(number, &extent);
                read.map_err(|error| match error.kind() {
                    ErrorKind::InvalidData => self.damaged(&error.to_string()),
                    _ => self.fault(&error.to_string()),
                })?
            }
        };
        self.last = Some((extent, payload));
        Ok(())
    }
}

impl Source for SpoolSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let end = self
            .parcel
            .order
            .bytes
            .min(offset.saturating_add(buf.len() as u64));
        let mut done = 0;
        while offset + (done as u64) < end {
            let at = offset + done as u64;
            let has = |(extent, _): &(Extent, Vec<u8>)| extent.start <= at && at < extent.end;
            if !self.last.as_ref().is_some_and(has) {
                self.load(at)?;
            }
            let Some((extent, payload)) = &self.last else {
                return Err(self.fault("nothing was read"));
            };
            let count = (extent.end.min(end) - at) as usize;
            let target = &mut buf[done..done + count];
            match extent.segment {
                HOLE => target.fill(0),
                _ => {
                    let from = (at - extent.record_offset) as usize;
                    let bytes = payload.get(from..from + count);
                    let bytes = bytes.ok_or_else(|| self.fault("a record is too short"))?;
                    target.copy_from_slice(bytes);
                }
            }
            done += count;
        }
        Ok(done)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory,
        is_uniform, shared);
}
