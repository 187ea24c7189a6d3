//! Sinks of parcels.

use std::io::IoSlice;
use std::sync::Arc;

use xdfs_proto::digest::{DigestValue, Fragment, FragmentMap};
use xdfs_proto::frame::Resume;
use xdfs_proto::relay::ParcelState;
use xdfs_proto::{ByteRange, Code, Fault, Retry, SourceTag};
use xdfs_store::{BUSY_RETRY, Capabilities, OpenedSink, Sink, SinkRequest};

use crate::arrival::Arrival;
use crate::inner::{Inner, Writer};
use crate::parcel::Parcel;
use crate::segment::{Extent, Segment};

const OPEN: &str = "open the target";
/// Longest payload of a record, unless a single buffer is longer: a reader takes records whole.
const RECORD_BYTES: usize = 1 << 20;

/// The sink of a parcel that arrives, or has arrived.
#[derive(Debug)]
struct SpoolSink {
    writer: Writer,
    parcel: Parcel,
    path: Vec<u8>,
    arrival: Arrival,
    mode: Option<u32>,
    mtime_ns: Option<i64>,
    /// Records that the index doesn't have, with their segments.
    pending: Vec<(Extent, Option<Arc<Segment>>)>,
}

/// Opens the sink of a parcel.
pub(crate) fn open(
    spool: &Arc<Inner>,
    parcel: &Parcel,
    request: &SinkRequest,
) -> Result<OpenedSink, Fault> {
    let fault = |code, cause: &str| Fault::new(code, OPEN, cause).path(&request.path);
    let Some(writer) = Writer::new(spool, parcel.content) else {
        let pause = u32::try_from(BUSY_RETRY.as_millis()).unwrap_or(u32::MAX);
        let fault = fault(Code::Busy, "another transfer is writing it");
        return Err(fault.retry(Retry::AfterMs(pause)));
    };
    // The writer before may have published it meanwhile.
    let parcel = spool.index.parcel(parcel.number)?;
    let parcel = parcel.ok_or_else(|| fault(Code::NotFound, "the parcel is gone"))?;
    match parcel.state {
        ParcelState::Arriving | ParcelState::Held => {}
        ParcelState::Cancelled => {
            return Err(fault(Code::Cancelled, "the parcel was cancelled"));
        }
        state => {
            let cause = format!("the parcel is {} already", state.as_str());
            return Err(fault(Code::AlreadyExists, &cause));
        }
    }
    if request.offset != 0 || request.length != Some(parcel.order.bytes) {
        let cause = "the parcel was opened for a file of another length";
        return Err(fault(Code::InvalidArgument, cause));
    }
    let earlier = spool.index.arrival(parcel.content)?;
    let earlier = earlier.as_deref().and_then(Arrival::decode);
    let is_held = parcel.state == ParcelState::Held;
    let is_same = |earlier: &Arrival| {
        let is_resumed = is_held || request.resume != Resume::Never;
        let has_version = request.tag != SourceTag::default();
        is_resumed
            && has_version
            && earlier.tag == request.tag
            && earlier.durable.kind() == request.digest
    };
    let has_earlier = earlier.is_some();
    let arrival = match earlier.filter(is_same) {
        Some(earlier) => earlier,
        None if is_held => {
            let cause = "the parcel has another version of the file";
            return Err(fault(Code::AlreadyExists, cause));
        }
        None => {
            if has_earlier {
                spool.free_arriving(parcel.number)?;
            }
            Arrival {
                tag: request.tag,
                block_size: request.block_size,
                durable: FragmentMap::new(request.digest),
            }
        }
    };
    Ok(OpenedSink {
        path: request.path.clone(),
        durable: arrival.durable.fragments().copied().collect(),
        unverified: false,
        block_size: arrival.block_size,
        sink: Box::new(SpoolSink {
            writer,
            parcel,
            path: request.path.clone(),
            arrival,
            mode: request.mode,
            mtime_ns: request.mtime_ns,
            pending: Vec::new(),
        }),
    })
}

impl SpoolSink {
    fn spool(&self) -> &Arc<Inner> {
        &self.writer.spool
    }

    fn is_held(&self) -> bool {
        self.parcel.state == ParcelState::Held
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<(), Fault> {
        let refused = |code, cause: &str| {
            let fault = Fault::new(code, "write", cause);
            Err(fault.path(&self.path))
        };
        if self.is_held() {
            return refused(Code::Internal, "the parcel has arrived already");
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= self.parcel.order.bytes => Ok(()),
            _ => refused(Code::LimitExceeded, "the file is longer than announced"),
        }
    }

    fn named(&self, fault: Fault) -> Fault {
        Fault {
            path: self.path.clone(),
            ..fault
        }
    }

    /// Enters what was written into the index; `then` changes all parcels with this content that
    /// arrive, in the same transaction, and they are returned.
    fn enter(&mut self, then: impl Fn(&mut Parcel) + Send + 'static) -> Result<Vec<Parcel>, Fault> {
        // After a failure they have to be written again.
        let pending = std::mem::take(&mut self.pending);
        let extents: Vec<Extent> = pending.iter().map(|(extent, _)| *extent).collect();
        let Parcel {
            number, content, ..
        } = self.parcel;
        let arrival = self.arrival.encode();
        let entered = self.spool().index.change(move |change| {
            let Some(parcel) = change.parcel(number)? else {
                let cause = "the parcel is gone";
                return Ok(Err(Fault::new(Code::NotFound, "write", cause)));
            };
            if parcel.state != ParcelState::Arriving {
                let cause = format!("the parcel is {}", parcel.state.as_str());
                return Ok(Err(Fault::new(Code::Cancelled, "write", cause)));
            }
            if let Err(fault) = change.extend(content, &extents)? {
                return Ok(Err(fault));
            }
            change.put_arrival(content, &arrival)?;
            let mut all = Vec::new();
            for number in change.sharers(content)? {
                let Some(mut parcel) = change.parcel(number)? else {
                    continue;
                };
                if parcel.state == ParcelState::Arriving {
                    then(&mut parcel);
                    if parcel.state == ParcelState::Held {
                        parcel.taken = change.next_taken()?;
                    }
                    change.put(&parcel)?;
                    all.push(parcel);
                }
            }
            Ok(Ok(all))
        });
        // The index has the segments now.
        drop(pending);
        let all = entered.map_err(|fault| self.named(fault))?;
        if let Some(own) = all.iter().find(|own| own.number == number) {
            self.parcel = own.clone();
        }
        Ok(all)
    }
}

impl Sink for SpoolSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: true,
            durable: true,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let bytes: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.check(offset, bytes)?;
        let (mut offset, mut rest) = (offset, bufs);
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
                let segments = &self.spool().segments;
                let appended = segments.append(self.parcel.content, offset, record);
                let (extent, segment) = appended.map_err(|fault| self.named(fault))?;
                self.pending.push((extent, Some(segment)));
            }
            offset += bytes as u64;
            rest = after;
        }
        Ok(())
    }

    fn hole(&mut self, range: ByteRange) {
        if self.check(range.start, range.len()).is_ok() && !range.is_empty() {
            self.pending
                .push((Extent::hole(range.start, range.end), None));
        }
    }

    fn sync(&mut self) -> Result<(), Fault> {
        let synced = self.spool().segments.sync();
        let has_failed = |(_, segment): &(Extent, Option<Arc<Segment>>)| {
            let segment = segment.as_ref();
            segment.is_some_and(|own| self.spool().segments.has_failed(own.number))
        };
        // The synchronisation of another sink may have had the error.
        if self.pending.iter().any(has_failed) {
            self.pending.clear();
            let cause = "what was written could not be made durable";
            let fault = Fault::new(Code::Io, "synchronise", cause);
            return Err(self.named(synced.err().unwrap_or(fault)));
        }
        Ok(())
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        if self.is_held() {
            return Ok(());
        }
        for fragment in durable {
            self.arrival.durable.insert(*fragment);
        }
        self.enter(|_| {}).map(drop)
    }

    fn publish(&mut self, length: u64, fresh: &[Fragment]) -> Result<(), Fault> {
        if self.is_held() {
            return Ok(());
        }
        if length != self.parcel.order.bytes {
            let cause = "the parcel was opened for a file of another length";
            return Err(Fault::new(Code::InvalidArgument, "publish", cause).path(&self.path));
        }
        self.sync()?;
        for fragment in fresh {
            self.arrival.durable.insert(*fragment);
        }
        let digest = self.arrival.durable.digest(length);
        let expected = self.parcel.order.digest;
        if expected != DigestValue::None && digest != Some(expected) {
            self.discard()?;
            let cause = "the file has another digest than its source had";
            let fault = Fault::new(Code::IntegrityMismatch, "publish", cause);
            return Err(fault.path(&self.path));
        }
        let (mode, mtime_ns) = (self.mode, self.mtime_ns);
        let entered = self.enter(move |parcel| {
            let expected = parcel.order.digest;
            if expected != DigestValue::None && digest != Some(expected) {
                return;
            }
            parcel.state = ParcelState::Held;
            parcel.mode = mode;
            parcel.mtime_ns = mtime_ns;
            parcel.digest = digest.unwrap_or(parcel.digest);
        })?;
        for parcel in entered {
            self.spool().notify(parcel.number);
        }
        Ok(())
    }

    /// Removes what has arrived. A parcel that has arrived as a whole stays.
    fn discard(&mut self) -> Result<(), Fault> {
        if self.is_held() {
            return Ok(());
        }
        self.pending.clear();
        self.arrival.durable = FragmentMap::new(self.arrival.durable.kind());
        let freed = self.spool().free_arriving(self.parcel.number);
        freed.map_err(|fault| self.named(fault))
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, begin_write_back, verify, read_back,
        shared);
}
