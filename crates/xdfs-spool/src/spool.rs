//! The spool: parcels from their submission to their end.

use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use xdfs_proto::digest::{DigestKind, DigestValue};
use xdfs_proto::relay::{ParcelState, RelayId};
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_store::{OpenedSink, SinkRequest, Source};

use crate::arrival::Arrival;
use crate::incoming;
use crate::index::{Change, Changed, OpenIndex};
use crate::inner::Inner;
use crate::parcel::{Counted, NewParcel, Parcel};
use crate::room::{Room, SpoolLimits};
use crate::segment::{Segments, path_bytes};
use crate::sink;
use crate::source::{Ahead, SpoolSource};

/// Seconds for which the end of a parcel is remembered at least: a week, so that a user who says
/// the same again after a holiday doesn't have it delivered twice.
pub const KEPT_S: u64 = 7 * 24 * 3600;

/// Parcels in a directory. One process at a time has it open.
#[derive(Clone, Debug)]
pub struct Spool {
    inner: Arc<Inner>,
}

/// Bytes that a parcel needs beside those of others.
fn own_bytes(order: &NewParcel) -> u64 {
    match order.of {
        Some(_) => 0,
        None => order.bytes,
    }
}

/// A parcel with the file of another one, and the number of that content.
fn shared(change: &Change<'_>, mut new: Parcel, of: CopyId) -> Changed<(Parcel, u64)> {
    let gone = || {
        let cause = format!("the file of parcel {of} isn't here, or is another one");
        Fault::new(Code::NotFound, "open the parcel", cause)
    };
    let Some(other) = change.find(&new.order.user, of)? else {
        return Ok(Err(gone()));
    };
    let content = other.content;
    let (old, own) = (&other.order, &new.order);
    let is_alike = (old.bytes, old.tree) == (own.bytes, own.tree);
    // Any of those that need it knows how far it is.
    let sharers = change.sharers(content)?;
    let Some(number) = sharers.first().filter(|_| is_alike) else {
        return Ok(Err(gone()));
    };
    let Some(sharer) = change.parcel(*number)? else {
        return Ok(Err(gone()));
    };
    if sharer.state != ParcelState::Arriving {
        if own.digest != DigestValue::None && own.digest != sharer.digest {
            return Ok(Err(gone()));
        }
        new.state = ParcelState::Held;
        new.taken = change.next_taken()?;
        (new.mode, new.mtime_ns) = (sharer.mode, sharer.mtime_ns);
        new.digest = sharer.digest;
    }
    Ok(Ok((new, content)))
}

impl Spool {
    /// Opens the spool in a directory, which is made if it isn't there. What wasn't acknowledged
    /// by an earlier process is removed.
    ///
    /// # Errors
    /// [`Code::Busy`]: another process has it. Or it can't be read, is damaged, or is of another
    /// version.
    pub fn open(dir: &Path, limits: SpoolLimits) -> Result<Self, Fault> {
        let fault = |error| Fault::from_io("open the spool", path_bytes(dir), &error);
        fs::create_dir_all(dir).map_err(fault)?;
        let index = OpenIndex::open(&dir.join("index.redb"))?;
        let identity = index.identity;
        let (segment_bytes, reserve_bytes) = (limits.segment_bytes, limits.reserve_bytes);
        let segments = dir.join("segments");
        let segments = Segments::open(&segments, segment_bytes, reserve_bytes, &index.uses)?;
        let segments = Arc::new(segments);
        let index = index.start(Arc::clone(&segments))?;
        // The names of both are durable before anything is promised.
        let synced = fs::File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(fault)?;
        let spool = Self {
            inner: Arc::new(Inner::new(index, segments, Room::new(limits), identity)),
        };
        let room = &spool.inner.room;
        let mut contents = HashSet::new();
        spool.inner.index.each(|parcel| {
            // Several may share one.
            let has_content = parcel.has_content() && contents.insert(parcel.content);
            let bytes = if has_content { parcel.order.bytes } else { 0 };
            room.add(&parcel.order.user, bytes, 1);
        })?;
        Ok(spool)
    }

    /// Has the numbers of parcels sent that arrive from now on, or are put back.
    pub fn listen(&self, listener: Sender<u64>) {
        self.inner.listen(listener);
    }

    /// Adds a parcel, which is arriving then. Returns the one that the user has with this
    /// identifier, if it has the same fields: so the call can be repeated.
    ///
    /// # Errors
    /// [`Code::AlreadyExists`]: the user has another parcel with the identifier.
    /// [`Code::QuotaExceeded`] and [`Code::NoSpace`] with a time to wait: there is no room.
    pub fn submit(&self, order: NewParcel, now_s: u64) -> Result<Parcel, Fault> {
        const OPERATION: &str = "open the parcel";
        let same = |found: Parcel| match found.order.is_same(&order) {
            true => Ok(found),
            false => {
                let cause = format!("there is another parcel {}", order.id);
                Err(Fault::new(Code::AlreadyExists, OPERATION, cause))
            }
        };
        if let Some(found) = self.inner.index.find(&order.user, order.id)? {
            if found.order.is_completed_by(&order) {
                return self.complete(found.number, order);
            }
            return same(found);
        }
        self.inner.room.take(&order.user, own_bytes(&order), 1)?;
        let new = Parcel::new(order.clone(), now_s);
        let added = self.inner.index.change(move |change| {
            // The same call may have been made in another session.
            if let Some(found) = change.find(&new.order.user, new.order.id)? {
                return Ok(Ok((found, false)));
            }
            let Some(of) = new.order.of else {
                return Ok(Ok((change.add(new, None)?, true)));
            };
            match shared(change, new, of)? {
                Ok((new, content)) => Ok(Ok((change.add(new, Some(content))?, true))),
                Err(fault) => Ok(Err(fault)),
            }
        });
        match added {
            Ok((added, true)) => {
                if added.state == ParcelState::Held {
                    self.notify(added.number);
                }
                Ok(added)
            }
            Ok((found, false)) => {
                self.inner.room.give_back(&order.user, own_bytes(&order), 1);
                same(found)
            }
            Err(fault) => {
                self.inner.room.give_back(&order.user, own_bytes(&order), 1);
                Err(fault)
            }
        }
    }

    /// Enters the digest of a parcel that was opened without it.
    fn complete(&self, number: u64, order: NewParcel) -> Result<Parcel, Fault> {
        self.inner.index.change(move |change| {
            const OPERATION: &str = "open the parcel";
            let Some(mut parcel) = change.parcel(number)? else {
                return Ok(Err(Fault::new(Code::NotFound, OPERATION, "it is gone")));
            };
            if parcel.order.is_completed_by(&order) {
                (parcel.order.digest, parcel.order.ahead) = (order.digest, false);
                change.put(&parcel)?;
            }
            Ok(Ok(parcel))
        })
    }

    /// The parcel of a user.
    ///
    /// # Errors
    /// [`Code::NotFound`], or the index can't be read.
    pub fn find(&self, user: &str, id: CopyId) -> Result<Parcel, Fault> {
        let found = self.inner.index.find(user, id)?;
        found.ok_or_else(|| {
            let cause = format!("there is no parcel {id} of this user");
            Fault::new(Code::NotFound, "look at the parcel", cause)
        })
    }

    /// The parcel with a number.
    ///
    /// # Errors
    /// [`Code::NotFound`], or the index can't be read.
    pub fn parcel(&self, number: u64) -> Result<Parcel, Fault> {
        let found = self.inner.index.parcel(number)?;
        found.ok_or_else(|| Fault::new(Code::NotFound, "look at the parcel", "it is gone"))
    }

    /// Passes all parcels on, in the order of their submission.
    ///
    /// # Errors
    /// The index can't be read, or is damaged.
    pub fn each(&self, each: impl FnMut(Parcel)) -> Result<(), Fault> {
        self.inner.index.each(each)
    }

    /// Passes the parcels from a number on, in the order of their submission, until `each` breaks.
    ///
    /// # Errors
    /// As [`Self::each`].
    pub fn each_from(
        &self,
        from: u64,
        each: impl FnMut(Parcel) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        self.inner.index.each_from(from, each)
    }

    /// Passes what counts of the parcels that take room on, from memory.
    pub fn counted(&self, each: impl FnMut(&Counted)) {
        self.inner.index.counted(each);
    }

    /// Bytes in the segments that belong to parcels.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.inner.index.stored_bytes()
    }

    /// Bytes of a parcel that are durable here.
    ///
    /// # Errors
    /// The index can't be read.
    pub fn arrived(&self, parcel: &Parcel) -> Result<u64, Fault> {
        if parcel.state.is_taken() {
            return Ok(parcel.order.bytes);
        }
        let arrival = self.inner.index.arrival(parcel.content)?;
        let arrival = arrival.as_deref().and_then(Arrival::decode);
        Ok(arrival.map_or(0, |arrival| arrival.bytes()))
    }

    /// Opens the sink of a parcel that arrives. A parcel that has arrived already takes the same
    /// file again without a byte of it.
    ///
    /// # Errors
    /// [`Code::Busy`]: another sink is open. [`Code::InvalidArgument`]: the file has another length
    /// than announced. [`Code::AlreadyExists`]: the parcel has another version of the file, or is
    /// beyond that state.
    pub fn open_sink(&self, parcel: &Parcel, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        sink::open(&self.inner, parcel, request)
    }

    /// Opens the sink of a parcel that is added, and is held at once, when its file is published:
    /// before that there is none, and nothing stays of a file that isn't. The file may have any
    /// length; that of the order is reserved now, and the rest as it comes. What the spool hasn't
    /// room for any more fails with the fault of [`Self::submit`]. A digest of the file is computed
    /// as it comes, if each of its bytes comes once.
    ///
    /// # Errors
    /// As of [`Self::submit`].
    pub fn open_incoming(
        &self,
        order: NewParcel,
        request: &SinkRequest,
        now_s: u64,
    ) -> Result<OpenedSink, Fault> {
        incoming::open(&self.inner, order, request, now_s)
    }

    /// The number by which this spool is known to others.
    #[must_use]
    pub fn identity(&self) -> RelayId {
        RelayId(self.inner.identity.to_be_bytes())
    }

    /// A number that no other parcel has, of this spool or of another one: what is sent of it to a
    /// target is recognised by that, since users choose identifiers as they like.
    #[must_use]
    pub fn mark(&self, parcel: &Parcel) -> u128 {
        self.inner.mark(parcel.number)
    }

    /// The identifier of a parcel at the next relay.
    #[must_use]
    pub fn id_beyond(&self, parcel: &Parcel) -> CopyId {
        // The mark of no other parcel: numbers of parcels have 64 bits.
        let mark = self.mark(parcel);
        CopyId((mark.wrapping_add(u128::from(parcel.sent_anew) << 64)).to_be_bytes())
    }

    /// Opens the file of a parcel that has arrived.
    #[must_use]
    pub fn open_source(&self, parcel: Parcel) -> Box<dyn Source> {
        Box::new(SpoolSource::new(&self.inner, parcel, None))
    }

    /// Opens the file of a parcel that arrives. Reads wait for what isn't durable yet, and the
    /// source is unchanged once the file was taken. Also returns the kind of its digest.
    ///
    /// # Errors
    /// [`Code::NotFound`]: nothing of it has arrived.
    pub fn open_source_ahead(
        &self,
        parcel: Parcel,
        ahead: Arc<dyn Ahead>,
    ) -> Result<(Box<dyn Source>, DigestKind), Fault> {
        let arrival = self.inner.index.arrival(parcel.content)?;
        let arrival = arrival.as_deref().and_then(Arrival::decode);
        let arrival = arrival.ok_or_else(|| {
            let cause = "nothing of it has arrived";
            Fault::new(Code::NotFound, "read the parcel", cause).retry(Retry::Now)
        })?;
        let source = SpoolSource::new(&self.inner, parcel, Some(ahead));
        Ok((Box::new(source), arrival.durable.kind()))
    }

    /// Whether a file is being sent to a parcel.
    #[must_use]
    pub fn is_being_sent(&self, parcel: &Parcel) -> bool {
        self.inner.has_writer(parcel.content)
    }

    /// Whether the last look at the file of a parcel has shown that it is damaged.
    #[must_use]
    pub fn is_damaged(&self, parcel: &Parcel) -> bool {
        self.inner.is_damaged(parcel.number)
    }

    /// Changes a parcel, and returns once that is durable. The content of one that has reached its
    /// end is removed, unless it was given up.
    ///
    /// # Errors
    /// The fault of `alter`, which changes nothing then. [`Code::NotFound`]: it is gone.
    pub fn alter(
        &self,
        number: u64,
        now_s: u64,
        alter: impl FnOnce(&mut Parcel) -> Result<(), Fault> + Send + 'static,
    ) -> Result<Parcel, Fault> {
        let (parcel, freed) = self.inner.index.change(move |change| {
            const OPERATION: &str = "change the parcel";
            let Some(mut parcel) = change.parcel(number)? else {
                return Ok(Err(Fault::new(Code::NotFound, OPERATION, "it is gone")));
            };
            let (old, had_content) = (parcel.state, parcel.has_content());
            if let Err(fault) = alter(&mut parcel) {
                return Ok(Err(fault));
            }
            if parcel.state != old {
                if !old.may_become(parcel.state) {
                    let (old, new) = (old.as_str(), parcel.state.as_str());
                    let cause = format!("it is {old}, and can't become {new}");
                    return Ok(Err(Fault::new(Code::InvalidArgument, OPERATION, cause)));
                }
                parcel.ended_s = if parcel.state.is_end() { now_s } else { 0 };
            }
            let freed = had_content && !parcel.has_content() && change.free(&parcel)?;
            change.put(&parcel)?;
            Ok(Ok((parcel, freed)))
        })?;
        if freed {
            self.inner
                .room
                .give_back(&parcel.order.user, parcel.order.bytes, 0);
        }
        Ok(parcel)
    }

    /// The last time that [`Self::set_clock`] has entered; 0 if none was.
    ///
    /// # Errors
    /// The index can't be read.
    pub fn clock(&self) -> Result<u64, Fault> {
        self.inner.index.clock()
    }

    /// Enters the present time, for the next start.
    ///
    /// # Errors
    /// The index can't be written.
    pub fn set_clock(&self, now_s: u64) -> Result<(), Fault> {
        self.inner.index.change(move |change| {
            change.set_clock(now_s)?;
            Ok(Ok(()))
        })
    }

    /// Announces a parcel that is to be tried at once.
    pub fn notify(&self, number: u64) {
        self.inner.notify(number);
    }

    /// Forgets parcels that ended more than [`KEPT_S`] and their life ago, with the content of
    /// those that were given up. Returns their number.
    ///
    /// # Errors
    /// The index can't be read or written.
    pub fn forget(&self, now_s: u64) -> Result<usize, Fault> {
        let mut old = Vec::new();
        self.each(|parcel| {
            let age_s = now_s.saturating_sub(parcel.ended_s);
            // A relay that has sent it here may ask again until its life is over there.
            if parcel.state.is_end() && age_s > KEPT_S.max(parcel.order.life_s.into()) {
                old.push(parcel.number);
            }
        })?;
        let mut forgotten = 0;
        for number in old {
            let removed = self.inner.index.change(move |change| {
                let found = change.parcel(number)?;
                // It may have been put back.
                match found.filter(|parcel| parcel.state.is_end()) {
                    Some(parcel) => {
                        let freed = change.remove(&parcel)?;
                        Ok(Ok(Some((parcel, freed))))
                    }
                    None => Ok(Ok(None)),
                }
            })?;
            if let Some((parcel, freed)) = removed {
                let bytes = if freed { parcel.order.bytes } else { 0 };
                self.inner.room.give_back(&parcel.order.user, bytes, 1);
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }
}
