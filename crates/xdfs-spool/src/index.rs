//! The index: which parcels there are, and which records of segments are theirs.
//!
//! All changes are made by one thread, many in one transaction: it synchronises the segments first,
//! so that the index never names bytes that a power cut may take. After a failure of the storage
//! the index is opened again, as its state in memory is of no use then.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition,
    WriteTransaction,
};
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{Code, Fault, Retry};

use crate::parcel::{Counted, Parcel};
use crate::segment::{Extent, SegmentUse, Segments, full, path_bytes};

/// Version of the tables and of the records in segments.
const VERSION: u64 = 3;
/// Most changes in one transaction.
const BATCH_MAX: usize = 1024;
/// Memory for pages of the index.
const CACHE_BYTES: usize = 16 << 20;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const PARCELS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("parcels");
/// Numbers of parcels by user and identifier.
const NAMES: TableDefinition<'_, (&str, u128), u64> = TableDefinition::new("names");
/// The parcels that need the content of one.
const SHARES: TableDefinition<'_, (u64, u64), ()> = TableDefinition::new("shares");
/// By content and first byte: segment, position, offset and length of the record, and end.
type ExtentRow = (u64, u64, u64, u64, u64);
const EXTENTS: TableDefinition<'_, (u64, u64), ExtentRow> = TableDefinition::new("extents");
/// The durable fragments of a content.
const ARRIVALS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("arrivals");
/// Live bytes of a segment, and the end of its last record.
const SEGMENTS: TableDefinition<'_, u64, (u64, u64)> = TableDefinition::new("segments");

const VERSION_KEY: &str = "version";
const NEXT_KEY: &str = "next";
const CLOCK_KEY: &str = "clock";
const TAKEN_KEY: &str = "taken";
/// The upper and the lower half of the spool's identity.
const IDENTITY_KEYS: [&str; 2] = ["identity-high", "identity-low"];

fn extent((_, start): (u64, u64), row: ExtentRow) -> Extent {
    let (segment, position, record_offset, record_bytes, end) = row;
    Extent {
        segment,
        position,
        record_offset,
        record_bytes,
        start,
        end,
    }
}

fn row(extent: &Extent) -> ExtentRow {
    let Extent {
        segment,
        position,
        record_offset,
        record_bytes,
        start: _,
        end,
    } = *extent;
    (segment, position, record_offset, record_bytes, end)
}

fn name(id: CopyId) -> u128 {
    u128::from_be_bytes(id.0)
}

/// A transaction that changes the index.
pub(crate) struct Change<'a> {
    transaction: &'a WriteTransaction,
    segments: &'a Segments,
    uses: BTreeMap<u64, SegmentUse>,
    /// Parcels that were changed, with what counts of them; `None` for those that were removed.
    counted: Vec<(u64, Option<Counted>)>,
}

/// What a change comes to; the outer error is one of the storage, which undoes all changes of the
/// transaction.
pub(crate) type Changed<T> = Result<Result<T, Fault>, redb::Error>;

impl Change<'_> {
    pub(crate) fn find(&self, user: &str, id: CopyId) -> Result<Option<Parcel>, redb::Error> {
        let names = self.transaction.open_table(NAMES)?;
        let number = names.get((user, name(id)))?.map(|number| number.value());
        drop(names);
        number.map_or(Ok(None), |number| self.parcel(number))
    }

    pub(crate) fn parcel(&self, number: u64) -> Result<Option<Parcel>, redb::Error> {
        let parcels = self.transaction.open_table(PARCELS)?;
        let found = parcels.get(number)?;
        Ok(found.and_then(|bytes| Parcel::decode(number, bytes.value())))
    }

    /// Adds a parcel, and gives it a number; with the content of another one or of its own.
    pub(crate) fn add(
        &mut self,
        mut parcel: Parcel,
        content: Option<u64>,
    ) -> Result<Parcel, redb::Error> {
        parcel.number = self.next_number()?;
        parcel.content = content.unwrap_or(parcel.number);
        let mut shares = self.transaction.open_table(SHARES)?;
        shares.insert((parcel.content, parcel.number), ())?;
        drop(shares);
        let mut names = self.transaction.open_table(NAMES)?;
        let order = &parcel.order;
        names.insert((order.user.as_str(), name(order.id)), parcel.number)?;
        drop(names);
        self.put(&parcel)?;
        Ok(parcel)
    }

    /// A number that neither a parcel nor a content has.
    pub(crate) fn next_number(&self) -> Result<u64, redb::Error> {
        let mut meta = self.transaction.open_table(META)?;
        let next = meta.get(NEXT_KEY)?.map_or(0, |number| number.value());
        meta.insert(NEXT_KEY, next + 1)?;
        Ok(next)
    }

    /// The number at which a parcel is taken, from 1.
    pub(crate) fn next_taken(&self) -> Result<u64, redb::Error> {
        let mut meta = self.transaction.open_table(META)?;
        let next = meta.get(TAKEN_KEY)?.map_or(1, |taken| taken.value() + 1);
        meta.insert(TAKEN_KEY, next)?;
        Ok(next)
    }

    pub(crate) fn set_clock(&self, now_s: u64) -> Result<(), redb::Error> {
        let mut meta = self.transaction.open_table(META)?;
        meta.insert(CLOCK_KEY, now_s)?;
        Ok(())
    }

    pub(crate) fn put(&mut self, parcel: &Parcel) -> Result<(), redb::Error> {
        let mut parcels = self.transaction.open_table(PARCELS)?;
        parcels.insert(parcel.number, parcel.encode().as_slice())?;
        self.counted.push((parcel.number, Counted::of(parcel)));
        Ok(())
    }

    /// The numbers of the parcels that need a content.
    pub(crate) fn sharers(&self, content: u64) -> Result<Vec<u64>, redb::Error> {
        let shares = self.transaction.open_table(SHARES)?;
        let found = shares.range((content, 0)..=(content, u64::MAX))?;
        found.map(|found| Ok(found?.0.value().1)).collect()
    }

    /// Removes a parcel with all that is of it alone. Returns whether that was the last one with
    /// its content.
    pub(crate) fn remove(&mut self, parcel: &Parcel) -> Result<bool, redb::Error> {
        let freed = self.free(parcel)?;
        let order = &parcel.order;
        let mut names = self.transaction.open_table(NAMES)?;
        names.remove((order.user.as_str(), name(order.id)))?;
        let mut parcels = self.transaction.open_table(PARCELS)?;
        parcels.remove(parcel.number)?;
        self.counted.push((parcel.number, None));
        Ok(freed)
    }

    /// Enters that a parcel doesn't need its content any more, which is removed if no other one
    /// does. Returns whether it was the last.
    pub(crate) fn free(&mut self, parcel: &Parcel) -> Result<bool, redb::Error> {
        let mut shares = self.transaction.open_table(SHARES)?;
        let was_there = shares.remove((parcel.content, parcel.number))?.is_some();
        drop(shares);
        let is_last = was_there && self.sharers(parcel.content)?.is_empty();
        if is_last {
            self.empty(parcel.content)?;
        }
        Ok(is_last)
    }

    /// Removes what has arrived of a content.
    pub(crate) fn empty(&mut self, number: u64) -> Result<(), redb::Error> {
        let mut arrivals = self.transaction.open_table(ARRIVALS)?;
        arrivals.remove(number)?;
        drop(arrivals);
        let mut extents = self.transaction.open_table(EXTENTS)?;
        let mut freed = Vec::new();
        for found in extents.range((number, 0)..=(number, u64::MAX))? {
            let (key, row) = found?;
            freed.push(extent(key.value(), row.value()));
        }
        for extent in &freed {
            extents.remove((number, extent.start))?;
        }
        drop(extents);
        for extent in freed {
            self.count(extent.segment, 0, extent.stored_bytes(), 0)?;
        }
        Ok(())
    }

    pub(crate) fn put_arrival(&self, number: u64, bytes: &[u8]) -> Result<(), redb::Error> {
        let mut arrivals = self.transaction.open_table(ARRIVALS)?;
        arrivals.insert(number, bytes)?;
        Ok(())
    }

    /// Adds records to a parcel, in place of what was there. Refused if one of them may be lost.
    pub(crate) fn extend(&mut self, number: u64, new: &[Extent]) -> Changed<()> {
        if new
            .iter()
            .any(|extent| self.segments.has_failed(extent.segment))
        {
            let cause = "what was written could not be made durable";
            let fault = Fault::new(Code::Io, "write", cause).retry(Retry::Now);
            return Ok(Err(fault));
        }
        for extent in new {
            self.replace(number, extent)?;
        }
        Ok(Ok(()))
    }

    fn replace(&mut self, number: u64, new: &Extent) -> Result<(), redb::Error> {
        let mut extents = self.transaction.open_table(EXTENTS)?;
        let mut old = Vec::new();
        for found in extents.range((number, 0)..(number, new.end))?.rev() {
            let (key, row) = found?;
            let found = extent(key.value(), row.value());
            // They don't overlap each other, so that all before end before, too.
            if found.end <= new.start {
                break;
            }
            old.push(found);
        }
        for old in &old {
            extents.remove((number, old.start))?;
            let left = Extent {
                end: new.start,
                ..*old
            };
            let right = Extent {
                start: new.end,
                ..*old
            };
            for rest in [left, right] {
                if rest.start < rest.end && rest.end <= old.end && rest.start >= old.start {
                    extents.insert((number, rest.start), row(&rest))?;
                }
            }
        }
        extents.insert((number, new.start), row(new))?;
        drop(extents);
        for old in old {
            let covered = new.end.min(old.end) - new.start.max(old.start);
            self.count(old.segment, 0, covered.min(old.stored_bytes()), 0)?;
        }
        self.count(new.segment, new.stored_bytes(), 0, new.record_end())
    }

    /// Adds to what the index names of a segment, and takes from it.
    fn count(&mut self, segment: u64, more: u64, less: u64, end: u64) -> Result<(), redb::Error> {
        if segment == crate::segment::HOLE {
            return Ok(());
        }
        let mut segments = self.transaction.open_table(SEGMENTS)?;
        let (live, last) = segments.get(segment)?.map_or((0, 0), |found| found.value());
        let now = SegmentUse {
            live: (live + more).saturating_sub(less),
            end: last.max(end),
        };
        match now.live {
            0 => drop(segments.remove(segment)?),
            live => drop(segments.insert(segment, (live, now.end))?),
        }
        self.uses.insert(segment, now);
        Ok(())
    }
}

type Work = Box<dyn FnOnce(&mut Change<'_>) -> Result<(), redb::Error> + Send>;

struct Job {
    work: Work,
    done: Sender<Result<(), Fault>>,
}

/// The index of a spool.
#[derive(Debug)]
pub(crate) struct Index {
    shared: Arc<Shared>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// `None` after a failure, until it is opened again.
    database: Mutex<Option<Arc<Database>>>,
    segments: Arc<Segments>,
    uses: Mutex<BTreeMap<u64, SegmentUse>>,
    /// The parcels that take room.
    counted: Mutex<BTreeMap<u64, Counted>>,
}

/// An index that is open, before the segments are.
pub(crate) struct OpenIndex {
    path: PathBuf,
    database: Database,
    pub(crate) uses: BTreeMap<u64, SegmentUse>,
    counted: BTreeMap<u64, Counted>,
    /// A random number that no other spool has.
    pub(crate) identity: u128,
}

impl OpenIndex {
    /// # Errors
    /// Another process has it, or it is damaged or of another version.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let database = open(path)?;
        let mut drawn = [0; 16];
        getrandom::fill(&mut drawn).map_err(|_| {
            let cause = "the system has no randomness";
            Fault::new(Code::Internal, "open the spool", cause)
        })?;
        let drawn = u128::from_be_bytes(drawn);
        let prepare = || {
            let transaction = database.begin_write()?;
            let mut meta = transaction.open_table(META)?;
            let version = meta.get(VERSION_KEY)?.map(|version| version.value());
            if version.is_none() {
                meta.insert(VERSION_KEY, VERSION)?;
                for (key, half) in IDENTITY_KEYS.into_iter().zip([drawn >> 64, drawn]) {
                    // The lower half of the number.
                    meta.insert(key, half as u64)?;
                }
            }
            let mut identity = 0;
            for key in IDENTITY_KEYS {
                let half = meta.get(key)?.map_or(0, |half| half.value());
                identity = identity << 64 | u128::from(half);
            }
            drop(meta);
            transaction.open_table(PARCELS)?;
            transaction.open_table(NAMES)?;
            transaction.open_table(SHARES)?;
            transaction.open_table(EXTENTS)?;
            transaction.open_table(ARRIVALS)?;
            transaction.open_table(SEGMENTS)?;
            transaction.commit()?;
            let found = (uses_in(&database)?, counted_in(&database)?);
            Ok((version.unwrap_or(VERSION), found, identity))
        };
        let (version, (uses, counted), identity) =
            prepare().map_err(|error| fault("open the spool", path, &error))?;
        if version != VERSION {
            let cause = format!("it has version {version}, and this program knows {VERSION}");
            let fault = Fault::new(Code::Unsupported, "open the spool", cause);
            return Err(fault.path(path_bytes(path)));
        }
        Ok(Self {
            path: path.to_owned(),
            database,
            uses,
            counted,
            identity,
        })
    }

    /// Starts the thread that changes it.
    pub(crate) fn start(self, segments: Arc<Segments>) -> Result<Index, Fault> {
        let shared = Arc::new(Shared {
            path: self.path,
            database: Mutex::new(Some(Arc::new(self.database))),
            segments,
            uses: Mutex::new(self.uses),
            counted: Mutex::new(self.counted),
        });
        let (jobs, received) = mpsc::channel();
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("xdfs-spool".into())
            .spawn(move || own.serve(&received))
            .map_err(|error| Fault::from_io("start the thread of the spool", "", &error))?;
        Ok(Index {
            shared,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }
}

fn open(path: &Path) -> Result<Database, Fault> {
    let mut builder = Database::builder();
    let opened = builder.set_cache_size(CACHE_BYTES).create(path);
    opened.map_err(|error| match error {
        redb::DatabaseError::DatabaseAlreadyOpen => {
            let fault = Fault::new(Code::Busy, "open the spool", "another process uses it");
            fault.path(path_bytes(path))
        }
        error => fault("open the spool", path, &error.into()),
    })
}

/// The bytes of each segment that an index names.
fn uses_in(database: &Database) -> Result<BTreeMap<u64, SegmentUse>, redb::Error> {
    let transaction = database.begin_read()?;
    let mut uses = BTreeMap::new();
    for found in transaction.open_table(SEGMENTS)?.iter()? {
        let (number, found) = found?;
        let (live, end) = found.value();
        uses.insert(number.value(), SegmentUse { live, end });
    }
    Ok(uses)
}

/// The parcels in an index that take room. One that can't be read is found when it is needed.
fn counted_in(database: &Database) -> Result<BTreeMap<u64, Counted>, redb::Error> {
    let transaction = database.begin_read()?;
    let mut counted = BTreeMap::new();
    for found in transaction.open_table(PARCELS)?.iter()? {
        let (number, bytes) = found?;
        let number = number.value();
        let parcel = Parcel::decode(number, bytes.value());
        counted.extend(parcel.and_then(|parcel| Some((number, Counted::of(&parcel)?))));
    }
    Ok(counted)
}

fn fault(operation: &str, path: &Path, error: &redb::Error) -> Fault {
    let path = path_bytes(path);
    match error {
        redb::Error::Io(error) => match Fault::from_io(operation, path, error) {
            fault if fault.code == Code::NoSpace => full(fault),
            fault => fault,
        },
        error => Fault::new(Code::Io, operation, format!("the index: {error}")).path(path),
    }
}

impl Shared {
    fn database(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> Result<Arc<Database>, Fault> {
        let mut database = self.database();
        if let Some(database) = &*database {
            return Ok(Arc::clone(database));
        }
        let opened = open(&self.path).map_err(|fault| match fault.code {
            // This process itself, in a thread that has not noticed the failure yet.
            Code::Busy => {
                let cause = "the index is in use since before a failure";
                let fault = Fault::new(Code::Io, "open the spool", cause);
                fault.path(path_bytes(&self.path)).retry(Retry::Now)
            }
            _ => fault,
        })?;
        // A change that failed may be durable all the same.
        let found = uses_in(&opened).and_then(|uses| Ok((uses, counted_in(&opened)?)));
        let found = found.map_err(|error| fault("open the spool", &self.path, &error))?;
        (*self.uses(), *self.counted()) = found;
        let opened = Arc::new(opened);
        *database = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Takes a failure of the storage for what it is, and has the index opened again.
    fn failed(&self, operation: &str, error: &redb::Error) -> Fault {
        *self.database() = None;
        fault(operation, &self.path, error)
    }

    fn serve(&self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let (mut works, mut waiting) = (vec![first.work], vec![first.done]);
            while works.len() < BATCH_MAX
                && let Ok(job) = jobs.try_recv()
            {
                works.push(job.work);
                waiting.push(job.done);
            }
            let result = self.run(works);
            for done in waiting {
                // Its thread may have been ended.
                let _ = done.send(result.clone());
            }
        }
    }

    fn run(&self, works: Vec<Work>) -> Result<(), Fault> {
        // Changes that need what could not be made durable are refused one by one.
        let _ = self.segments.sync();
        let database = self.opened()?;
        let changed = change(&database, &self.segments, works);
        drop(database);
        let (uses, counted) = changed.map_err(|error| self.failed("write", &error))?;
        let mut all = self.counted();
        for (number, own) in counted {
            match own {
                Some(own) => drop(all.insert(number, own)),
                None => drop(all.remove(&number)),
            }
        }
        drop(all);
        if uses.is_empty() {
            return Ok(());
        }
        let mut known = self.uses();
        known.extend(&uses);
        known.retain(|_, own| own.live > 0);
        drop(known);
        self.remove_unused(uses.values().any(|own| own.live == 0));
        Ok(())
    }

    /// Removes the segments of which the index names nothing and that no sink has; also the one
    /// that is appended to, if it `closes`.
    fn remove_unused(&self, closes: bool) {
        let live = self.uses().clone();
        let is_live = |number| live.contains_key(&number);
        if closes {
            self.segments.close_unused(is_live);
        }
        self.segments.remove_unused(is_live);
    }

    fn counted(&self) -> MutexGuard<'_, BTreeMap<u64, Counted>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uses(&self) -> MutexGuard<'_, BTreeMap<u64, SegmentUse>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The changes of a transaction.
type Done = (BTreeMap<u64, SegmentUse>, Vec<(u64, Option<Counted>)>);

fn change(database: &Database, segments: &Segments, works: Vec<Work>) -> Result<Done, redb::Error> {
    let transaction = database.begin_write()?;
    let mut change = Change {
        transaction: &transaction,
        segments,
        uses: BTreeMap::new(),
        counted: Vec::new(),
    };
    for work in works {
        work(&mut change)?;
    }
    let done = (change.uses, change.counted);
    transaction.commit()?;
    Ok(done)
}

impl Index {
    /// Makes a change, and returns once it is durable.
    pub(crate) fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Change<'_>) -> Changed<T> + Send + 'static,
    ) -> Result<T, Fault> {
        let ended = || Fault::new(Code::ShuttingDown, "write", "the spool is closed");
        let (value, result) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        let work = move |change: &mut Change<'_>| {
            // The receiver is beneath.
            let _ = value.send(work(change)?);
            Ok(())
        };
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        let job = Job {
            work: Box::new(work),
            done,
        };
        jobs.send(job).map_err(|_| ended())?;
        is_done.recv().map_err(|_| ended())??;
        result.recv().map_err(|_| ended())?
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, Fault> {
        let database = self.shared.opened()?;
        let done = database
            .begin_read()
            .map_err(redb::Error::from)
            .and_then(|transaction| read(&transaction));
        drop(database);
        done.map_err(|error| self.shared.failed("read", &error))
    }

    pub(crate) fn find(&self, user: &str, id: CopyId) -> Result<Option<Parcel>, Fault> {
        let number = self.read(|transaction| {
            let names = transaction.open_table(NAMES)?;
            Ok(names.get((user, name(id)))?.map(|number| number.value()))
        })?;
        number.map_or(Ok(None), |number| self.parcel(number))
    }

    pub(crate) fn parcel(&self, number: u64) -> Result<Option<Parcel>, Fault> {
        self.read(|transaction| {
            let parcels = transaction.open_table(PARCELS)?;
            let found = parcels.get(number)?;
            Ok(found.and_then(|bytes| Parcel::decode(number, bytes.value())))
        })
    }

    /// All parcels, in the order of their numbers.
    ///
    /// # Errors
    /// The index can't be read, or a parcel in it.
    pub(crate) fn each(&self, mut each: impl FnMut(Parcel)) -> Result<(), Fault> {
        self.each_from(0, |parcel| {
            each(parcel);
            ControlFlow::Continue(())
        })
    }

    /// The parcels from a number on, in the order of their numbers, until `each` breaks.
    ///
    /// # Errors
    /// As [`Self::each`].
    pub(crate) fn each_from(
        &self,
        from: u64,
        mut each: impl FnMut(Parcel) -> ControlFlow<()>,
    ) -> Result<(), Fault> {
        let damaged = self.read(|transaction| {
            let parcels = transaction.open_table(PARCELS)?;
            for found in parcels.range(from..)? {
                let (number, bytes) = found?;
                match Parcel::decode(number.value(), bytes.value()) {
                    Some(parcel) => {
                        if each(parcel).is_break() {
                            return Ok(None);
                        }
                    }
                    None => return Ok(Some(number.value())),
                }
            }
            Ok(None)
        })?;
        match damaged {
            None => Ok(()),
            Some(number) => {
                let cause = format!("parcel {number} in the index is damaged");
                Err(Fault::new(Code::Io, "read the spool", cause))
            }
        }
    }

    /// The last time that was entered; 0 if none was.
    pub(crate) fn clock(&self) -> Result<u64, Fault> {
        self.read(|transaction| {
            let meta = transaction.open_table(META)?;
            Ok(meta.get(CLOCK_KEY)?.map_or(0, |clock| clock.value()))
        })
    }

    /// Bytes in segments that belong to parcels.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.shared.uses().values().map(|own| own.live).sum()
    }

    /// Removes the segments of which the index names nothing and that no sink has.
    pub(crate) fn remove_unused(&self) {
        self.shared.remove_unused(true);
    }

    /// Passes the parcels that take room on.
    pub(crate) fn counted(&self, each: impl FnMut(&Counted)) {
        self.shared.counted().values().for_each(each);
    }

    pub(crate) fn arrival(&self, number: u64) -> Result<Option<Vec<u8>>, Fault> {
        self.read(|transaction| {
            let arrivals = transaction.open_table(ARRIVALS)?;
            Ok(arrivals.get(number)?.map(|bytes| bytes.value().to_vec()))
        })
    }

    /// The part of a parcel in which this byte is.
    pub(crate) fn extent_at(&self, number: u64, offset: u64) -> Result<Option<Extent>, Fault> {
        let found = self.read(|transaction| {
            let extents = transaction.open_table(EXTENTS)?;
            let mut range = extents.range((number, 0)..=(number, offset))?;
            let found = range.next_back().transpose()?;
            Ok(found.map(|(key, row)| extent(key.value(), row.value())))
        })?;
        Ok(found.filter(|extent| offset < extent.end))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by it.
            let _ = thread.join();
        }
    }
}
