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
use crate::pending::Pending;
use crate::segment::Extent;

const OPEN: &str = "open the target";

/// The sink of a parcel that arrives, or has arrived.
#[derive(Debug)]
struct SpoolSink {
    /// Held as long as this is: there is no other sink.
    _writer: Writer,
    parcel: Parcel,
    arrival: Arrival,
    /// It was said that something has arrived.
    is_announced: bool,
    pending: Pending,
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
        ParcelState::Arriving if parcel.cancel_wanted => {
            return Err(fault(Code::Cancelled, "the parcel is being cancelled"));
        }
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
        Some(earlier) => Arrival {
            mode: request.mode,
            mtime_ns: request.mtime_ns,
            ..earlier
        },
        None if is_held => {
            let cause = "the parcel has another version of the file";
            return Err(fault(Code::AlreadyExists, cause));
        }
        None => {
            if has_earlier {
                spool.free_arriving(parcel.number)?;
            }
            Arrival {
                began: draw()?,
                tag: request.tag,
                block_size: request.block_size,
                mode: request.mode,
                mtime_ns: request.mtime_ns,
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
            pending: Pending::new(Arc::clone(spool), parcel.content, request.path.clone()),
            _writer: writer,
            parcel,
            arrival,
            is_announced: false,
        }),
    })
}

/// A random number.
fn draw() -> Result<u64, Fault> {
    let mut drawn = [0; 8];
    let filled = getrandom::fill(&mut drawn);
    filled.map_err(|_| Fault::new(Code::Internal, OPEN, "the system has no randomness"))?;
    Ok(u64::from_be_bytes(drawn))
}

impl SpoolSink {
    fn spool(&self) -> &Arc<Inner> {
        self.pending.spool()
    }

    fn is_held(&self) -> bool {
        self.parcel.state == ParcelState::Held
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<(), Fault> {
        let refused = |code, cause: &str| {
            let fault = Fault::new(code, "write", cause);
            Err(fault.path(self.pending.path()))
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
        self.pending.named(fault)
    }

    /// Enters what was written into the index; `then` changes all parcels with this content that
    /// arrive, in the same transaction, and they are returned.
    fn enter(&mut self, then: impl Fn(&mut Parcel) + Send + 'static) -> Result<Vec<Parcel>, Fault> {
        // After a failure they have to be written again.
        let pending = self.pending.take();
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
            if parcel.state != ParcelState::Arriving || parcel.cancel_wanted {
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
        self.spool().add_news();
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
        self.pending.append(offset, bufs)
    }

    fn hole(&mut self, range: ByteRange) {
        if self.check(range.start, range.len()).is_ok() {
            self.pending.hole(range);
        }
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.pending.sync()
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        if self.is_held() {
            return Ok(());
        }
        for fragment in durable {
            self.arrival.durable.insert(*fragment);
        }
        self.enter(|_| {})?;
        if !self.is_announced && self.parcel.may_go_ahead() {
            self.is_announced = true;
            self.spool().notify(self.parcel.number);
        }
        Ok(())
    }

    fn publish(&mut self, length: u64, fresh: &[Fragment]) -> Result<(), Fault> {
        if self.is_held() {
            return Ok(());
        }
        if length != self.parcel.order.bytes {
            let cause = "the parcel was opened for a file of another length";
            return Err(
                Fault::new(Code::InvalidArgument, "publish", cause).path(self.pending.path())
            );
        }
        self.sync()?;
        for fragment in fresh {
            self.arrival.durable.insert(*fragment);
        }
        let digest = self.arrival.durable.digest(length);
        // It may be known since the sink was opened.
        let order = self.spool().index.parcel(self.parcel.number)?;
        let order = order.map_or_else(|| self.parcel.order.clone(), |parcel| parcel.order);
        if order.ahead {
            let cause = "its digest isn't known yet";
            let fault = Fault::new(Code::Busy, "publish", cause).path(self.pending.path());
            return Err(fault.retry(Retry::Now));
        }
        let expected = order.digest;
        if expected != DigestValue::None && digest != Some(expected) {
            self.discard()?;
            let cause = "the file has another digest than its source had";
            let fault = Fault::new(Code::IntegrityMismatch, "publish", cause);
            return Err(fault.path(self.pending.path()));
        }
        let (mode, mtime_ns) = (self.arrival.mode, self.arrival.mtime_ns);
        let entered = self.enter(move |parcel| {
            let expected = parcel.order.digest;
            let is_other = expected != DigestValue::None && digest != Some(expected);
            if is_other || parcel.order.ahead {
                return;
            }
            parcel.state = ParcelState::Held;
            parcel.mode = mode;
            parcel.mtime_ns = mtime_ns;
            parcel.digest = digest.unwrap_or(parcel.digest);
        })?;
        if self.parcel.state != ParcelState::Held {
            let cause = "the parcel was opened for another file meanwhile";
            return Err(Fault::new(Code::Internal, "publish", cause).path(self.pending.path()));
        }
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
        drop(self.pending.take());
        self.arrival.durable = FragmentMap::new(self.arrival.durable.kind());
        self.arrival.began = draw()?;
        let freed = self.spool().free_arriving(self.parcel.number);
        freed.map_err(|fault| self.named(fault))
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, begin_write_back, verify, read_back,
        shared);
}
