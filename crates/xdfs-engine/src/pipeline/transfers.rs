//! The transfers of a session: one map from a file number to the state that the session thread has
//! of it, its source, its sink and the user to notify. The machines know its progress.
//!
//! The parts of an entry come and go independently, since a source may be closed before its user is
//! notified, and the other way round. An entry without parts is removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::frame::{Offer, Request, Resume, TimeAccount};
use xdfs_proto::pack::Failures;
use xdfs_proto::{ByteRange, DigestValue, Fault, FileId};
use xdfs_store::{SinkRequest, Store};

use super::ledger::Spent;
use super::source::OpenSource;
use crate::command::{Outcome, Progress, TransferEvent, TransferKind, TransferSpec};
use crate::mailbox;
use crate::pool::Buffer;
use crate::storage::StoreTime;
use crate::store_workers::ArrivingPack;
use crate::verdict::{SideTime, TimeShares};

/// The state of one transfer.
#[derive(Debug, Default)]
struct FileEntry {
    /// Present if this side started it.
    transfer: Option<StartedTransfer>,
    /// Its source, if this side sends it.
    source: Option<OpenSource>,
    /// The pack or source that a peer requested, while a worker prepares it.
    preparing: Option<Preparation>,
    /// Its memory, if it is an arriving pack.
    pack: Option<ArrivingPack>,
    sink: SinkEntry,
}

impl FileEntry {
    fn lacks_memory(&self) -> bool {
        self.pack.as_ref().is_some_and(ArrivingPack::lacks_memory)
    }
}

/// The state of a sink.
#[derive(Debug, Default)]
struct SinkEntry {
    /// The account of the session when the file was offered.
    offered: Option<Spent>,
    /// What this side did in the time of a transfer that is stored.
    own: Option<SideTime>,
    /// Nothing is missing but the store's work.
    is_storing: bool,
    /// The offer, while a worker opens the sink.
    opening: Option<Offer>,
    /// It takes bytes in order only.
    is_ordered: bool,
    /// Path and block size for ACCEPT, while the data of an earlier attempt is verified.
    unverified: Option<(Vec<u8>, u32)>,
    /// Set once EOFR has come for an incomplete file: the time of the last progress, and the bytes
    /// held then.
    incomplete: Option<(Duration, u64)>,
}

/// A request of the peer for which a worker reads a pack or opens a source.
#[derive(Debug)]
pub(super) struct Preparation {
    pub(super) request: Request,
    /// The peer has cancelled it.
    pub(super) is_unwanted: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    files: BTreeMap<FileId, FileEntry>,
    started_count: usize,
    sources: usize,
    preparing: usize,
    arriving: usize,
    /// Sinks that are open or being opened.
    sinks: usize,
    /// Sinks for which only the store has something to do.
    storing: usize,
    /// The account of the session when the last started transfer ended.
    last_end: Spent,
}

impl Transfers {
    fn entry(&mut self, file: FileId) -> &mut FileEntry {
        self.files.entry(file).or_default()
    }

    /// Removes a part of an entry, and the entry itself if it was the last part.
    fn take<T>(
        &mut self,
        file: FileId,
        take: impl FnOnce(&mut FileEntry) -> Option<T>,
    ) -> Option<T> {
        let entry = self.files.get_mut(&file)?;
        let taken = take(entry);
        let sink = &entry.sink;
        let is_needed = entry.transfer.is_some()
            || entry.source.is_some()
            || entry.preparing.is_some()
            || entry.pack.is_some()
            || sink.offered.is_some()
            || sink.opening.is_some()
            || sink.is_ordered
            || sink.unverified.is_some()
            || sink.incomplete.is_some();
        if !is_needed {
            self.files.remove(&file);
        }
        taken
    }

    // Transfers that this side started.

    pub(super) fn start(&mut self, file: FileId, transfer: StartedTransfer) {
        self.started_count += usize::from(self.entry(file).transfer.replace(transfer).is_none());
    }

    pub(super) fn started(&self, file: FileId) -> Option<&StartedTransfer> {
        self.files.get(&file)?.transfer.as_ref()
    }

    pub(super) fn started_mut(&mut self, file: FileId) -> Option<&mut StartedTransfer> {
        self.files.get_mut(&file)?.transfer.as_mut()
    }

    /// All started transfers that have not ended.
    pub(super) fn all_started(&self) -> Vec<FileId> {
        let started = self
            .files
            .iter()
            .filter(|(_, entry)| entry.transfer.is_some());
        started.map(|(&file, _)| file).collect()
    }

    pub(super) fn any_started(&self) -> bool {
        self.started_count > 0
    }

    pub(super) fn end(&mut self, file: FileId) -> Option<StartedTransfer> {
        let ended = self.take(file, |entry| entry.transfer.take());
        self.started_count -= usize::from(ended.is_some());
        ended
    }

    /// The user of a started transfer was notified of its end.
    pub(super) fn set_last_end(&mut self, spent: Spent) {
        self.last_end = spent;
    }

    /// The account of the session when the last started transfer ended.
    pub(super) fn last_end(&self) -> Spent {
        self.last_end
    }

    // Sources.

    pub(super) fn open_source(&mut self, file: FileId, source: OpenSource) {
        self.sources += usize::from(self.entry(file).source.replace(source).is_none());
    }

    pub(super) fn source_mut(&mut self, file: FileId) -> Option<&mut OpenSource> {
        self.files.get_mut(&file)?.source.as_mut()
    }

    /// Whether the session thread can read the same bytes of a file again.
    pub(super) fn can_be_read_again(&self, file: FileId) -> bool {
        let source = self
            .files
            .get(&file)
            .and_then(|entry| entry.source.as_ref());
        source.is_some_and(OpenSource::can_be_read_again)
    }

    pub(super) fn close_source(&mut self, file: FileId) -> Option<OpenSource> {
        let closed = self.take(file, |entry| entry.source.take());
        self.sources -= usize::from(closed.is_some());
        closed
    }

    /// The number of sources that are open or being prepared.
    pub(super) fn sources(&self) -> usize {
        self.sources + self.preparing
    }

    // Packs and sources that workers prepare.

    pub(super) fn begin_preparing(&mut self, request: Request) {
        let (file, is_unwanted) = (request.file, false);
        let preparing = Preparation {
            request,
            is_unwanted,
        };
        self.preparing += usize::from(self.entry(file).preparing.replace(preparing).is_none());
    }

    pub(super) fn preparing_mut(&mut self, file: FileId) -> Option<&mut Preparation> {
        self.files.get_mut(&file)?.preparing.as_mut()
    }

    pub(super) fn end_preparing(&mut self, file: FileId) -> Option<Preparation> {
        let made = self.take(file, |entry| entry.preparing.take());
        self.preparing -= usize::from(made.is_some());
        made
    }

    pub(super) fn is_preparing(&self) -> bool {
        self.preparing > 0
    }

    // Arriving packs.

    pub(super) fn receive_pack(&mut self, file: FileId, pack: ArrivingPack) {
        self.arriving += usize::from(self.entry(file).pack.replace(pack).is_none());
    }

    fn pack_mut(&mut self, file: FileId) -> Option<&mut ArrivingPack> {
        self.files.get_mut(&file)?.pack.as_mut()
    }

    /// The number of arriving packs.
    pub(super) fn arriving(&self) -> usize {
        self.arriving
    }

    /// Removes a pack that is complete or no longer needed.
    pub(super) fn take_pack(&mut self, file: FileId) -> Option<ArrivingPack> {
        let pack = self.take(file, |entry| entry.pack.take());
        self.arriving -= usize::from(pack.is_some());
        pack
    }

    /// Gets memory for an arriving pack; `None` if there is none.
    pub(super) fn get_memory(&mut self, file: FileId) -> Option<()> {
        self.pack_mut(file)?.get_memory()
    }

    /// Whether a file is an arriving pack without memory.
    pub(super) fn lacks_memory(&self, file: FileId) -> bool {
        let entry = self.files.get(&file);
        entry.is_some_and(FileEntry::lacks_memory)
    }

    /// Lends the memory of a pack to a channel, which reads a block into it that holds the whole
    /// pack.
    pub(super) fn lend(&mut self, file: FileId, offset: u64, length: usize) -> Option<Buffer> {
        self.pack_mut(file)?.lend(offset, length)
    }

    /// Takes back the memory of a pack, filled if it is `whole`; drops it if the pack is gone.
    pub(super) fn take_back(&mut self, file: FileId, memory: Buffer, whole: bool) {
        if let Some(pack) = self.pack_mut(file) {
            pack.take_back(memory, whole);
        }
    }

    /// Copies bytes into an arriving pack; `false` if `file` is not one.
    pub(super) fn write_pack(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> bool {
        let pack = self.pack_mut(file);
        pack.map(|pack| pack.write(offset, bytes)).is_some()
    }

    /// Writes zeros into an arriving pack; `false` if `file` is not one.
    pub(super) fn zero_pack(&mut self, file: FileId, range: ByteRange) -> bool {
        let pack = self.pack_mut(file);
        pack.map(|pack| pack.zero(range.start, range.len()))
            .is_some()
    }

    // Sinks.

    /// A file is offered.
    pub(super) fn offered(&mut self, file: FileId, spent: Spent) {
        let is_new = self.entry(file).sink.offered.replace(spent).is_none();
        self.sinks += usize::from(is_new);
    }

    /// The account of the session when a file was offered.
    pub(super) fn offered_at(&self, file: FileId) -> Option<Spent> {
        self.files.get(&file)?.sink.offered
    }

    /// Everything is stored; `own` is what this side did in the time of the transfer.
    pub(super) fn stored(&mut self, file: FileId, own: SideTime) {
        if let Some(entry) = self.files.get_mut(&file) {
            entry.sink.own = Some(own);
        }
    }

    /// Where the time of a transfer went that is stored, with what the peer did.
    pub(super) fn time_shares(&self, file: FileId, peer: TimeAccount) -> Option<TimeShares> {
        let own = self.files.get(&file)?.sink.own?;
        let peer = SideTime::of_peer(peer, own.all);
        Some(TimeShares::of_sides(peer, own))
    }

    /// The store works on a file alone, until its sink is closed or [`Self::end_storing`].
    pub(super) fn begin_storing(&mut self, file: FileId) {
        if let Some(entry) = self.files.get_mut(&file)
            && entry.sink.offered.is_some()
        {
            self.storing += usize::from(!entry.sink.is_storing);
            entry.sink.is_storing = true;
        }
    }

    /// The store has done that work.
    pub(super) fn end_storing(&mut self, file: FileId) {
        if let Some(entry) = self.files.get_mut(&file) {
            self.storing -= usize::from(entry.sink.is_storing);
            entry.sink.is_storing = false;
        }
    }

    /// The number of sinks that are open or being opened.
    pub(super) fn sinks(&self) -> usize {
        self.sinks
    }

    /// Whether there are sinks, and nothing is missing for any but the store's work.
    pub(super) fn are_all_sinks_storing(&self) -> bool {
        self.sinks > 0 && self.storing == self.sinks
    }

    /// A worker begins to open the sink of an offer.
    pub(super) fn begin_opening_sink(&mut self, offer: Offer) {
        let file = offer.file;
        self.entry(file).sink.opening = Some(offer);
        self.begin_storing(file);
    }

    /// The worker is done; `None` if the file has failed meanwhile.
    pub(super) fn end_opening_sink(&mut self, file: FileId) -> Option<Offer> {
        self.end_storing(file);
        self.take(file, |entry| entry.sink.opening.take())
    }

    /// The sink of a file takes bytes in order only.
    pub(super) fn set_ordered(&mut self, file: FileId) {
        self.entry(file).sink.is_ordered = true;
    }

    pub(super) fn is_ordered(&self, file: FileId) -> bool {
        let entry = self.files.get(&file);
        entry.is_some_and(|entry| entry.sink.is_ordered)
    }

    /// A sink is open, and the data of an earlier attempt is being verified.
    pub(super) fn verify(&mut self, file: FileId, path: Vec<u8>, block_size: u32) {
        self.entry(file).sink.unverified = Some((path, block_size));
        self.begin_storing(file);
    }

    /// The data is verified: path and block size of the sink.
    pub(super) fn verified(&mut self, file: FileId) -> Option<(Vec<u8>, u32)> {
        self.end_storing(file);
        self.take(file, |entry| entry.sink.unverified.take())
    }

    /// EOFR has arrived; `held` bytes of the file have been received so far.
    pub(super) fn eofr_received(&mut self, file: FileId, now: Duration, held: u64) {
        self.entry(file).sink.incomplete = Some((now, held));
    }

    /// The files with EOFR that are incomplete: the time of the last progress, the bytes held then,
    /// and whether they wait for memory.
    pub(super) fn incomplete(
        &mut self,
    ) -> impl Iterator<Item = (FileId, &mut (Duration, u64), bool)> {
        let files = self.files.iter_mut();
        files.filter_map(|(&file, entry)| {
            let lacks_memory = entry.lacks_memory();
            Some((file, entry.sink.incomplete.as_mut()?, lacks_memory))
        })
    }

    /// Forgets the sink of a file. Returns whether a worker is still opening it.
    pub(super) fn close_sink(&mut self, file: FileId) -> bool {
        self.end_storing(file);
        let closed = self.take(file, |entry| Some(std::mem::take(&mut entry.sink)));
        let is_open = |sink: &SinkEntry| sink.offered.is_some();
        self.sinks -= usize::from(closed.as_ref().is_some_and(is_open));
        closed.is_some_and(|sink| sink.opening.is_some())
    }
}

/// The interval between two progress events.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The local target of a download.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) store: Arc<dyn Store>,
    pub(super) path: Vec<u8>,
    pub(super) name: Vec<u8>,
}

/// A transfer that this side started.
#[derive(Debug)]
pub(super) struct StartedTransfer {
    events: mailbox::Sender<TransferEvent>,
    /// The account of the session when it started.
    started: Spent,
    until: Option<Duration>,
    last_progress: Duration,
    dry_run: bool,
    /// The target of a download; `None` for an upload.
    target: Option<Target>,
    overwrite: bool,
    resume: Resume,
    /// First byte of the source.
    offset: u64,
    path: Vec<u8>,
    resumed_bytes: u64,
    bytes_total: Option<u64>,
    retransmitted: u64,
    /// The modification time of the source, if known.
    mtime_ns: Option<i64>,
    /// The time that the local store took (download).
    store_time: StoreTime,
    /// For a pack: the entries that failed.
    failures: Failures,
    /// Why it failed, while its sink is being closed.
    fault: Option<Fault>,
}

impl StartedTransfer {
    /// A transfer that starts now. `spent` is the account of the session.
    pub(super) fn new(spec: &TransferSpec, now: Duration, spent: Spent) -> Self {
        let target = match &spec.kind {
            TransferKind::Upload(_) => None,
            TransferKind::Download(download) => Some(Target {
                store: Arc::clone(&download.store),
                path: download.target.clone(),
                name: download.name.clone(),
            }),
        };
        Self {
            events: spec.events.clone(),
            started: spent,
            until: spec.duration.map(|d| now + d),
            last_progress: now,
            dry_run: spec.parameters.dry_run,
            target,
            overwrite: spec.parameters.overwrite,
            resume: spec.parameters.resume,
            offset: spec.offset,
            path: Vec::new(),
            resumed_bytes: 0,
            bytes_total: None,
            retransmitted: 0,
            mtime_ns: None,
            store_time: StoreTime::default(),
            failures: Failures::default(),
            fault: None,
        }
    }

    pub(super) fn uploads(&self) -> bool {
        self.target.is_none()
    }

    pub(super) fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether existing files may be replaced.
    pub(super) fn overwrites(&self) -> bool {
        self.overwrite
    }

    /// Applies the local user's options to the request of a sink. The offset is one of them, so
    /// that a sender whose tags do not distinguish parts of a file cannot mix them up.
    pub(super) fn limit(&self, request: &mut SinkRequest) {
        request.offset = self.offset;
        request.overwrite = self.overwrite;
        request.resume = self.resume;
    }

    /// Sets the length of the transfer and the modification time of the source, if known.
    pub(super) fn set_source(&mut self, bytes: Option<u64>, mtime_ns: Option<i64>) {
        self.bytes_total = bytes;
        self.mtime_ns = mtime_ns;
    }

    /// The length of the transfer, if known.
    pub(super) fn bytes_total(&self) -> Option<u64> {
        self.bytes_total
    }

    /// Sets the path under which the file is published.
    pub(super) fn set_path(&mut self, path: Vec<u8>) {
        self.path = path;
    }

    /// Sets the bytes that an earlier attempt had made durable.
    pub(super) fn set_resumed(&mut self, bytes: u64) {
        self.resumed_bytes = bytes;
    }

    /// Sets the bytes sent more than once (upload).
    pub(super) fn set_retransmitted(&mut self, bytes: u64) {
        self.retransmitted = bytes;
    }

    /// Adds bytes received more than once (download).
    pub(super) fn count_again(&mut self, bytes: u64) {
        self.retransmitted += bytes;
    }

    /// Sets the entries of a pack that failed.
    pub(super) fn set_failures(&mut self, failures: Failures) {
        self.failures = failures;
    }

    /// Records that everything is stored, and the time that the store took for it (download).
    pub(super) fn stored(&mut self, time: StoreTime) {
        self.store_time = time;
    }

    /// Takes the length and the resumed bytes from the machine (download).
    pub(super) fn receives(&mut self, length: Option<u64>, resumed: u64) {
        self.resumed_bytes = self.resumed_bytes.max(resumed);
        self.bytes_total = self.bytes_total.or(length);
    }

    /// Whether the duration of the transfer is over; `true` once.
    pub(super) fn time_is_over(&mut self, now: Duration) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Reports progress, if the last report is old enough.
    pub(super) fn report_progress(&mut self, bytes: u64, channels: u32, now: Duration) {
        if self.last_progress + PROGRESS_INTERVAL <= now {
            self.last_progress = now;
            let progress = Progress {
                bytes,
                bytes_total: self.bytes_total,
                resumed_bytes: self.resumed_bytes,
                channels,
            };
            // The user may no longer be listening.
            let _ = self.events.send(TransferEvent::Progress(progress));
        }
    }

    /// What the session spent on the transfer, with the account of now. A transfer that waited
    /// behind another one began when that one ended.
    pub(super) fn spent(&self, last_end: Spent, now: Spent) -> Spent {
        now - if last_end.all() > self.started.all() {
            last_end
        } else {
            self.started
        }
    }

    /// Where the time of the transfer went.
    pub(super) fn time_shares(&self, spent: Spent, peer: TimeAccount) -> TimeShares {
        let peer = SideTime::of_peer(peer, spent.all());
        match self.uploads() {
            true => TimeShares::of_sides(spent.of_sender(), peer),
            false => TimeShares::of_sides(peer, spent.of_receiver(self.store_time)),
        }
    }

    /// The result, with `length` bytes moved.
    pub(super) fn outcome(
        &mut self,
        length: u64,
        elapsed: Duration,
        channels: u32,
        digest: DigestValue,
        time_shares: TimeShares,
    ) -> Outcome {
        // A dry run moves nothing, at no rate.
        let (bytes, elapsed) = if self.dry_run {
            (self.bytes_total.unwrap_or(length), Duration::ZERO)
        } else {
            (length, elapsed)
        };
        Outcome {
            bytes,
            elapsed,
            channels,
            resumed_bytes: self.resumed_bytes,
            retransmitted_bytes: self.retransmitted,
            digest,
            target: std::mem::take(&mut self.path),
            time_shares,
            failures: std::mem::take(&mut self.failures),
            is_skipped: false,
            passage: None,
            mtime_ns: self.mtime_ns,
        }
    }

    /// It has failed, which is reported once its target is free.
    pub(super) fn set_fault(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// Why it failed, if that isn't reported yet.
    pub(super) fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// Reports the end.
    pub(super) fn report_end(self, result: Result<Outcome, Fault>) {
        let _ = self.events.send(TransferEvent::Ended(result));
    }
}
