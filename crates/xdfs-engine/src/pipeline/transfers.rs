//! The transfers of a session: one map from a file number to the state that the session thread has
//! of it, its source, its sink and the user to notify. The machines know its progress.
//!
//! The parts of an entry come and go independently, since a source may be closed before its user is
//! notified, and the other way round. An entry without parts is removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::frame::{Offer, Request, Resume};
use xdfs_proto::pack::Failures;
use xdfs_proto::{ByteRange, DigestValue, Fault, FileId};
use xdfs_store::{SinkRequest, Store};

use super::source::OpenSource;
use crate::command::{LimitedBy, Outcome, Progress, TransferEvent, TransferKind, TransferSpec};
use crate::mailbox;
use crate::pool::Buffer;
use crate::store_workers::ArrivingPack;

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

/// The state of a sink.
#[derive(Debug, Default)]
struct SinkEntry {
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
    /// When the last started transfer ended.
    last_end: Duration,
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
    pub(super) fn set_last_end(&mut self, now: Duration) {
        self.last_end = now;
    }

    /// When the last started transfer ended.
    pub(super) fn last_end(&self) -> Duration {
        self.last_end
    }

    // Sources.

    pub(super) fn open_source(&mut self, file: FileId, source: OpenSource) {
        self.sources += usize::from(self.entry(file).source.replace(source).is_none());
    }

    pub(super) fn source_mut(&mut self, file: FileId) -> Option<&mut OpenSource> {
        self.files.get_mut(&file)?.source.as_mut()
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

    /// A worker begins to open the sink of an offer.
    pub(super) fn begin_opening_sink(&mut self, offer: Offer) {
        let file = offer.file;
        self.entry(file).sink.opening = Some(offer);
    }

    /// The worker is done; `None` if the file has failed meanwhile.
    pub(super) fn end_opening_sink(&mut self, file: FileId) -> Option<Offer> {
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
    }

    /// The data is verified: path and block size of the sink.
    pub(super) fn verified(&mut self, file: FileId) -> Option<(Vec<u8>, u32)> {
        self.take(file, |entry| entry.sink.unverified.take())
    }

    /// EOFR has arrived; `held` bytes of the file have been received so far.
    pub(super) fn eofr_received(&mut self, file: FileId, now: Duration, held: u64) {
        self.entry(file).sink.incomplete = Some((now, held));
    }

    /// The files with EOFR that are incomplete: the time of the last progress, and the bytes held
    /// then.
    pub(super) fn incomplete(&mut self) -> impl Iterator<Item = (FileId, &mut (Duration, u64))> {
        let files = self.files.iter_mut();
        files.filter_map(|(&file, entry)| Some((file, entry.sink.incomplete.as_mut()?)))
    }

    /// Forgets the sink of a file.
    pub(super) fn close_sink(&mut self, file: FileId) {
        self.take(file, |entry| {
            entry.sink = SinkEntry::default();
            None::<()>
        });
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
    started: Duration,
    until: Option<Duration>,
    last_progress: Duration,
    /// The session's rate delay when the transfer began.
    rate_delay_before: Duration,
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
    /// Share of the time spent waiting for the local store, in thousandths (download).
    store_wait_permille: u16,
    /// For a pack: the entries that failed.
    failures: Failures,
}

impl StartedTransfer {
    /// A transfer that starts now. `rate_delay` is the time for which the session's rate limit has
    /// delayed payload so far.
    pub(super) fn new(spec: &TransferSpec, now: Duration, rate_delay: Duration) -> Self {
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
            started: now,
            until: spec.duration.map(|d| now + d),
            last_progress: now,
            rate_delay_before: rate_delay,
            dry_run: spec.dry_run,
            target,
            overwrite: spec.overwrite,
            resume: spec.resume,
            offset: spec.offset,
            path: Vec::new(),
            resumed_bytes: 0,
            bytes_total: None,
            retransmitted: 0,
            store_wait_permille: 0,
            failures: Failures::default(),
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

    /// Sets the length of the transfer, if known.
    pub(super) fn set_total(&mut self, bytes: Option<u64>) {
        self.bytes_total = bytes;
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

    /// The share of the time until `now` that `store_wait` makes up, in thousandths.
    pub(super) fn wait_permille(&self, store_wait: Duration, now: Duration) -> u16 {
        permille(store_wait, now.saturating_sub(self.started))
    }

    /// Records that everything is stored, and returns the share of the time spent waiting for the
    /// store (download).
    pub(super) fn stored(&mut self, store_wait: Duration, now: Duration) -> u16 {
        self.store_wait_permille = self.wait_permille(store_wait, now);
        self.store_wait_permille
    }

    pub(super) fn store_wait_permille(&self) -> u16 {
        self.store_wait_permille
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

    /// The duration. A transfer that waited behind another one began when that one ended.
    pub(super) fn elapsed(&self, last_end: Duration, now: Duration) -> Duration {
        now.saturating_sub(self.started.max(last_end))
    }

    /// The bottleneck: from the time for which the session's rate limit has delayed payload, and
    /// the shares of the time that this side and the peer spent waiting for their stores.
    pub(super) fn limited_by(
        &self,
        elapsed: Duration,
        rate_delay: Duration,
        own_wait_permille: u16,
        peer_wait_permille: u16,
    ) -> LimitedBy {
        let (source, target) = if self.uploads() {
            (own_wait_permille, peer_wait_permille)
        } else {
            (peer_wait_permille, own_wait_permille)
        };
        let held_back = rate_delay.saturating_sub(self.rate_delay_before);
        if permille(held_back, elapsed) > 300 {
            LimitedBy::RateLimit
        } else if target >= 600 && target >= source {
            LimitedBy::TargetWrite
        } else if source >= 600 {
            LimitedBy::SourceRead
        } else {
            LimitedBy::Network
        }
    }

    /// The result, with `length` bytes moved.
    pub(super) fn outcome(
        &mut self,
        length: u64,
        elapsed: Duration,
        channels: u32,
        digest: DigestValue,
        limited_by: LimitedBy,
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
            limited_by,
            failures: std::mem::take(&mut self.failures),
            is_skipped: false,
        }
    }

    /// Reports the end.
    pub(super) fn report_end(self, result: Result<Outcome, Fault>) {
        let _ = self.events.send(TransferEvent::Ended(result));
    }
}

/// The share of `part` in `whole`, in thousandths.
pub(super) fn permille(part: Duration, whole: Duration) -> u16 {
    if whole.is_zero() {
        return 0;
    }
    (part.as_secs_f64() / whole.as_secs_f64() * 1000.0).min(1000.0) as u16
}
