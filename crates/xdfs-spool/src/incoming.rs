//! Sinks of parcels without an announcement: those of other programs, which open a file and say
//! at its end how long it was.
//!
//! There is no parcel before all of its file is durable, so that a sender that breaks off, and a
//! process that dies, leave nothing to be continued or removed: the index never names a byte of it.

use std::io::IoSlice;
use std::sync::Arc;

use xdfs_proto::digest::{BlockHasher, DigestKind, DigestValue, Fragment, FragmentMap};
use xdfs_proto::relay::ParcelState;
use xdfs_proto::{ByteRange, Code, Fault, FileId, RangeSet};
use xdfs_store::{Capabilities, OpenedSink, Sink, SinkRequest};

use crate::inner::Inner;
use crate::parcel::{NewParcel, Parcel};
use crate::pending::{Pending, RECORD_BYTES};
use crate::segment::Extent;

/// Room that is reserved at a time: few steps, and little too much.
const STEP_BYTES: u64 = 16 << 20;
/// Bytes after which they are made durable, so that the last synchronisation is short.
const SYNC_BYTES: u64 = 64 << 20;
/// Computed here: the protocols of other programs have no digests.
const DIGEST: DigestKind = DigestKind::Crc64Nvme;

/// The sink of a parcel that is added once its file is complete.
#[derive(Debug)]
struct IncomingSink {
    spool: Arc<Inner>,
    order: NewParcel,
    content: u64,
    opened_s: u64,
    mode: Option<u32>,
    mtime_ns: Option<i64>,
    pending: Pending,
    /// Bytes from an offset on that aren't written yet: TLS brings a few at a time.
    gathered: (u64, Vec<u8>),
    /// The written ranges.
    ranges: RangeSet,
    digests: FragmentMap,
    /// Each byte was written once, so that the digests are those of the file.
    has_digests: bool,
    reserved_bytes: u64,
    unsynced_bytes: u64,
    is_published: bool,
}

/// Opens the sink. The file has the length of the order at least in room.
pub(crate) fn open(
    spool: &Arc<Inner>,
    order: NewParcel,
    request: &SinkRequest,
    now_s: u64,
) -> Result<OpenedSink, Fault> {
    let reserved_bytes = order.bytes;
    spool.room.take(&order.user, reserved_bytes, 1)?;
    let number = spool.index.change(|change| Ok(Ok(change.next_number()?)));
    let content = number.inspect_err(|_| spool.room.give_back(&order.user, reserved_bytes, 1))?;
    let path = request.path.clone();
    Ok(OpenedSink {
        path: path.clone(),
        durable: Vec::new(),
        unverified: false,
        block_size: request.block_size,
        sink: Box::new(IncomingSink {
            pending: Pending::new(Arc::clone(spool), content, path),
            spool: Arc::clone(spool),
            order,
            content,
            opened_s: now_s,
            mode: request.mode,
            mtime_ns: request.mtime_ns,
            gathered: (0, Vec::new()),
            ranges: RangeSet::new(),
            digests: FragmentMap::new(DIGEST),
            has_digests: true,
            reserved_bytes,
            unsynced_bytes: 0,
            is_published: false,
        }),
    })
}

impl IncomingSink {
    /// Reserves room for the file up to this byte.
    fn reserve(&mut self, end: u64) -> Result<(), Fault> {
        let Some(more) = end
            .checked_sub(self.reserved_bytes)
            .filter(|more| *more > 0)
        else {
            return Ok(());
        };
        let user = &self.order.user;
        let step = more.max(STEP_BYTES);
        // The last steps before the end of a quota are small ones.
        let taken = self.spool.room.take(user, step, 0).map(|()| step);
        let taken = taken.or_else(|_| self.spool.room.take(user, more, 0).map(|()| more));
        self.reserved_bytes += taken.map_err(|fault| self.pending.named(fault))?;
        Ok(())
    }

    fn note(&mut self, range: ByteRange, add: impl FnOnce(&mut FragmentMap) -> bool) {
        self.ranges.insert(range);
        self.has_digests = self.has_digests && add(&mut self.digests);
    }

    fn append(&mut self, offset: u64, bufs: &[IoSlice<'_>], bytes: u64) -> Result<(), Fault> {
        self.pending.append(offset, bufs)?;
        let mut hasher = BlockHasher::new(DIGEST, false, offset);
        bufs.iter().for_each(|buf| hasher.update(buf));
        let (_, fragment) = hasher.finish(FileId(0));
        self.note(fragment.range, |digests| digests.insert(fragment));
        self.unsynced_bytes += bytes;
        match self.unsynced_bytes >= SYNC_BYTES {
            true => self.make_durable(),
            false => Ok(()),
        }
    }

    fn make_durable(&mut self) -> Result<(), Fault> {
        self.unsynced_bytes = 0;
        self.pending.sync().inspect_err(|_| {
            // They are gone from `pending`.
            self.ranges = RangeSet::new();
        })
    }

    /// Writes what was gathered.
    fn flush(&mut self) -> Result<(), Fault> {
        let (offset, bytes) = std::mem::take(&mut self.gathered);
        match bytes.is_empty() {
            true => Ok(()),
            false => self.append(offset, &[IoSlice::new(&bytes)], bytes.len() as u64),
        }
    }

    /// Adds the parcel. All of its file is durable.
    fn add(&self, length: u64, digest: DigestValue, extents: Vec<Extent>) -> Result<u64, Fault> {
        let order = NewParcel {
            bytes: length,
            ..self.order.clone()
        };
        let content = self.content;
        let new = Parcel {
            state: ParcelState::Held,
            mode: self.mode,
            mtime_ns: self.mtime_ns,
            digest,
            ..Parcel::new(order, self.opened_s)
        };
        self.spool.index.change(move |change| {
            if change.find(&new.order.user, new.order.id)?.is_some() {
                let cause = format!("there is another parcel {}", new.order.id);
                return Ok(Err(Fault::new(Code::AlreadyExists, "publish", cause)));
            }
            if let Err(fault) = change.extend(content, &extents)? {
                return Ok(Err(fault));
            }
            let taken = change.next_taken()?;
            let added = change.add(Parcel { taken, ..new }, Some(content))?;
            Ok(Ok(added.number))
        })
    }
}

impl Sink for IncomingSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: true,
            // Nothing is kept of what was broken off.
            durable: false,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
        let end = offset.checked_add(bytes as u64).ok_or_else(|| {
            let cause = "the file is too long";
            Fault::new(Code::LimitExceeded, "write", cause).path(self.pending.path())
        })?;
        self.reserve(end)?;
        let (start, gathered) = &self.gathered;
        let is_next = *start + gathered.len() as u64 == offset;
        if !is_next || gathered.len() + bytes > RECORD_BYTES {
            self.flush()?;
        }
        if bytes >= RECORD_BYTES {
            return self.append(offset, bufs, bytes as u64);
        }
        let (start, gathered) = &mut self.gathered;
        if gathered.is_empty() {
            *start = offset;
        }
        bufs.iter().for_each(|buf| gathered.extend_from_slice(buf));
        Ok(())
    }

    fn hole(&mut self, range: ByteRange) {
        // A range that can't be reserved or written is missing at the end.
        if !range.is_empty() && self.flush().is_ok() && self.reserve(range.end).is_ok() {
            self.pending.hole(range);
            let block = RECORD_BYTES as u64;
            self.note(range, |digests| digests.insert_zeros(range, block));
        }
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.flush()?;
        self.make_durable()
    }

    /// There is no journal.
    fn record(&mut self, _durable: &[Fragment]) -> Result<(), Fault> {
        Ok(())
    }

    fn publish(&mut self, length: u64, _fresh: &[Fragment]) -> Result<(), Fault> {
        self.sync()?;
        let whole = ByteRange {
            start: 0,
            end: length,
        };
        // Once: the records of this attempt are in the index then, or gone.
        let ranges = std::mem::take(&mut self.ranges);
        let is_whole = match ranges.as_slice() {
            [] => length == 0,
            [range] => *range == whole,
            _ => false,
        };
        if self.is_published || !is_whole {
            let cause = "a part of the file is missing";
            return Err(self.pending.named(Fault::new(Code::Io, "publish", cause)));
        }
        let digest = self.digests.digest(length).filter(|_| self.has_digests);
        // The segments stay until the index has them.
        let records = self.pending.take();
        let extents = records.iter().map(|(extent, _)| *extent).collect();
        let added = self.add(length, digest.unwrap_or(DigestValue::None), extents);
        drop(records);
        let number = added.map_err(|fault| self.pending.named(fault))?;
        self.is_published = true;
        let spare = self.reserved_bytes.saturating_sub(length);
        self.spool.room.give_back(&self.order.user, spare, 0);
        self.spool.notify(number);
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.gathered.1.clear();
        drop(self.pending.take());
        self.ranges = RangeSet::new();
        self.digests = FragmentMap::new(DIGEST);
        self.spool.index.remove_unused();
        Ok(())
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, begin_write_back, verify, read_back,
        shared);
}

impl Drop for IncomingSink {
    fn drop(&mut self) {
        if self.is_published {
            return;
        }
        self.spool
            .room
            .give_back(&self.order.user, self.reserved_bytes, 1);
        // A quiet relay would keep the segments until the next parcel ends.
        drop(self.pending.take());
        self.spool.index.remove_unused();
    }
}
