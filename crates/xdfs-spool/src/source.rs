//! Sources of parcels that have arrived, or arrive.

use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::relay::ParcelState;
use xdfs_proto::{ByteRange, Code, Fault, Retry, SourceTag};
use xdfs_store::{Source, SourceInfo};

use crate::arrival::Arrival;
use crate::inner::Inner;
use crate::parcel::Parcel;
use crate::segment::{Extent, HOLE};

/// Interval of looks at whether a file that arrives is still wanted.
const TICK: Duration = Duration::from_millis(100);

/// The reader of a file that arrives, as its source sees it.
pub trait Ahead: Send + Sync + fmt::Debug {
    /// Whether more is wanted.
    ///
    /// # Errors
    /// It isn't.
    fn check(&self) -> Result<(), Fault>;

    /// Says that the file was taken, and waits until the end may be announced to the other server,
    /// at most for this time. Returns whether it may.
    fn may_end(&self, timeout: Duration) -> bool;
}

/// What is known of a file that arrives.
#[derive(Debug)]
struct Arriving {
    ahead: Arc<dyn Ahead>,
    /// A range that is durable.
    durable: ByteRange,
}

/// The file of a parcel.
#[derive(Debug)]
pub(crate) struct SpoolSource {
    spool: Arc<Inner>,
    parcel: Parcel,
    info: SourceInfo,
    /// The record that was read last: reads are smaller than records.
    last: Option<(Extent, Vec<u8>)>,
    /// The number of the arrival.
    began: u64,
    /// `None` for one that has arrived.
    arriving: Option<Arriving>,
}

impl SpoolSource {
    pub(crate) fn new(spool: &Arc<Inner>, parcel: Parcel, ahead: Option<Arc<dyn Ahead>>) -> Self {
        // One that can't be read fails with its first byte.
        let arrival = spool.index.arrival(parcel.content).ok().flatten();
        let arrival = arrival.as_deref().and_then(Arrival::decode);
        let began = arrival.as_ref().map_or(0, |arrival| arrival.began);
        let (mode, mtime_ns) = match &arrival {
            Some(arrival) if ahead.is_some() => (arrival.mode, arrival.mtime_ns),
            _ => (parcel.mode, parcel.mtime_ns),
        };
        // Marks of parcels differ in their lower half.
        let tag = spool
            .mark(parcel.number)
            .wrapping_add(u128::from(began) << 64);
        let info = SourceInfo {
            length: Some(parcel.order.bytes),
            tag: SourceTag(tag.to_be_bytes()),
            mode,
            mtime_ns,
            random_reads: true,
            sparse: false,
        };
        spool.set_damaged(parcel.number, false);
        Self {
            spool: Arc::clone(spool),
            parcel,
            info,
            last: None,
            began,
            arriving: ahead.map(|ahead| Arriving {
                ahead,
                durable: ByteRange { start: 0, end: 0 },
            }),
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

    /// Waits until the byte at this offset is durable, and returns the end of the range that is; or
    /// until all were taken, for the one at the end of the file.
    fn wait_for(&mut self, offset: u64) -> Result<u64, Fault> {
        let bytes = self.parcel.order.bytes;
        let Some(arriving) = &mut self.arriving else {
            return Ok(bytes);
        };
        if arriving.durable.start <= offset && offset < arriving.durable.end {
            return Ok(arriving.durable.end);
        }
        let fault = |code, cause: &str| {
            let fault = Fault::new(code, "read the parcel", cause).retry(Retry::Now);
            fault.path(self.parcel.order.id.to_string())
        };
        loop {
            arriving.ahead.check()?;
            // In this order: what comes later is news, and the writer ends after its last change.
            let seen = self.spool.news_seen();
            let is_being_sent = self.spool.has_writer(self.parcel.content);
            let parcel = self.spool.index.parcel(self.parcel.number)?;
            let state = parcel.map_or(ParcelState::Cancelled, |parcel| parcel.state);
            if !matches!(state, ParcelState::Arriving | ParcelState::Held) {
                return Err(fault(Code::Cancelled, "it was ended while it arrived"));
            }
            let arrival = self.spool.index.arrival(self.parcel.content)?;
            let arrival = arrival.as_deref().and_then(Arrival::decode);
            let arrival = arrival.filter(|arrival| arrival.began == self.began);
            let arrival = arrival
                .ok_or_else(|| fault(Code::SourceChanged, "it arrives again from its beginning"))?;
            let mut ranges = arrival.durable.ranges().as_slice().iter();
            let found = ranges.find(|range| range.start <= offset && offset < range.end);
            if let Some(found) = found {
                arriving.durable = *found;
                return Ok(found.end);
            }
            if state == ParcelState::Held && offset == bytes {
                return Ok(bytes);
            }
            if !is_being_sent {
                let cause = "its sender is gone before all of it has arrived";
                return Err(fault(Code::ConnectionLost, cause));
            }
            self.spool.wait_for_news(seen, TICK);
        }
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
            let durable = self.wait_for(at)?;
            let has = |(extent, _): &(Extent, Vec<u8>)| extent.start <= at && at < extent.end;
            if !self.last.as_ref().is_some_and(has) {
                self.load(at)?;
            }
            let Some((extent, payload)) = &self.last else {
                return Err(self.fault("nothing was read"));
            };
            let count = (extent.end.min(end).min(durable) - at) as usize;
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

    /// Waits until one that arrives was taken, so that nothing of it is published elsewhere before
    /// its digest was compared here.
    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        self.wait_for(self.parcel.order.bytes)?;
        while let Some(arriving) = &self.arriving
            && !arriving.ahead.may_end(TICK)
        {
            arriving.ahead.check()?;
        }
        Ok(())
    }

    /// One that arrives is read in a thread of its own, which may wait.
    fn is_slow(&self) -> bool {
        self.arriving.is_some()
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, memory, is_uniform,
        shared);
}
