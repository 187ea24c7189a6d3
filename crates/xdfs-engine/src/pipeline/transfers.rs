//! The files that a session moves: one map from a file to all that is known of it here.
//!
//! The machines keep how far a file is; here is what it is read from, what it arrives in, and who
//! is told of its end. What a file has is put in and taken out piece by piece, since its source may
//! go before those who wait for it are told, and the other way round. An entry goes with its last
//! piece.

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

/// What is known of one file.
#[derive(Debug, Default)]
struct FileEntry {
    /// It was started here.
    transfer: Option<Transfer>,
    /// What it is read from.
    source: Option<OpenSource>,
    /// A peer asked for it, and it is a pack that is being made, or a source that is being opened.
    preparing: Option<Preparation>,
    /// It is a pack that arrives.
    pack: Option<ArrivingPack>,
    sink: SinkEntry,
}

/// What is known of the sink of a file.
#[derive(Debug, Default)]
struct SinkEntry {
    /// It is being opened by another thread.
    opening: Option<Offer>,
    /// It takes bytes only in order.
    is_ordered: bool,
    /// It is open, and this is what ACCEPT will say of it once what an earlier attempt has left was
    /// read again: path and block size.
    unverified: Option<(Vec<u8>, u32)>,
    /// The end of the file is known, and it isn't complete: since when nothing came, and how many
    /// bytes were held then.
    incomplete: Option<(Duration, u64)>,
}

/// What a peer asked for and a thread makes or opens.
#[derive(Debug)]
pub(super) struct Preparation {
    pub(super) request: Request,
    /// Nobody wants it any more.
    pub(super) is_unwanted: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    files: BTreeMap<FileId, FileEntry>,
    started: usize,
    sources: usize,
    preparing: usize,
    arriving: usize,
    /// When the last one ended that was started here.
    last_end: Duration,
}

impl Transfers {
    fn entry(&mut self, file: FileId) -> &mut FileEntry {
        self.files.entry(file).or_default()
    }

    /// Takes a piece out of an entry, and the entry away if it was the last one.
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

    // What was started here.

    pub(super) fn start(&mut self, file: FileId, transfer: Transfer) {
        self.started += usize::from(self.entry(file).transfer.replace(transfer).is_none());
    }

    pub(super) fn started(&self, file: FileId) -> Option<&Transfer> {
        self.files.get(&file)?.transfer.as_ref()
    }

    pub(super) fn started_mut(&mut self, file: FileId) -> Option<&mut Transfer> {
        self.files.get_mut(&file)?.transfer.as_mut()
    }

    /// All that were started here and have not ended.
    pub(super) fn all_started(&self) -> Vec<FileId> {
        let started = self
            .files
            .iter()
            .filter(|(_, entry)| entry.transfer.is_some());
        started.map(|(&file, _)| file).collect()
    }

    pub(super) fn has_started(&self) -> bool {
        self.started > 0
    }

    pub(super) fn end(&mut self, file: FileId) -> Option<Transfer> {
        let ended = self.take(file, |entry| entry.transfer.take());
        self.started -= usize::from(ended.is_some());
        ended
    }

    /// Who waited for a transfer was told of its end.
    pub(super) fn set_last_end(&mut self, now: Duration) {
        self.last_end = now;
    }

    /// When the last one ended that was started here.
    pub(super) fn last_end(&self) -> Duration {
        self.last_end
    }

    // What is sent.

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

    /// Sources that are open, and packs that become such.
    pub(super) fn sources(&self) -> usize {
        self.sources + self.preparing
    }

    // Packs that are made, and sources that are opened, by other threads.

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

    // Packs that arrive.

    pub(super) fn receive_pack(&mut self, file: FileId, pack: ArrivingPack) {
        self.arriving += usize::from(self.entry(file).pack.replace(pack).is_none());
    }

    fn pack_mut(&mut self, file: FileId) -> Option<&mut ArrivingPack> {
        self.files.get_mut(&file)?.pack.as_mut()
    }

    /// Packs that arrive.
    pub(super) fn arriving(&self) -> usize {
        self.arriving
    }

    /// Takes a pack out that has arrived, or isn't needed any more.
    pub(super) fn take_pack(&mut self, file: FileId) -> Option<ArrivingPack> {
        let pack = self.take(file, |entry| entry.pack.take());
        self.arriving -= usize::from(pack.is_some());
        pack
    }

    /// The memory of a pack that arrives, for a channel to read a block into it that is all of
    /// the pack.
    pub(super) fn lend(&mut self, file: FileId, offset: u64, length: usize) -> Option<Buffer> {
        self.pack_mut(file)?.lend(offset, length)
    }

    /// Takes the memory of a pack back, with all of it if it is `whole`; that of a pack which
    /// nobody wants any more is dropped.
    pub(super) fn take_back(&mut self, file: FileId, memory: Buffer, whole: bool) {
        if let Some(pack) = self.pack_mut(file) {
            pack.take_back(memory, whole);
        }
    }

    /// Takes bytes of a pack that arrives; `false` if `file` is none.
    pub(super) fn write_pack(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> bool {
        let pack = self.pack_mut(file);
        pack.map(|pack| pack.write(offset, bytes)).is_some()
    }

    /// Takes zeros of a pack that arrives; `false` if `file` is none.
    pub(super) fn zero_pack(&mut self, file: FileId, range: ByteRange) -> bool {
        let pack = self.pack_mut(file);
        pack.map(|pack| pack.zero(range.start, range.len()))
            .is_some()
    }

    // Sinks.

    /// Another thread opens the sink of what is offered.
    pub(super) fn begin_opening_sink(&mut self, offer: Offer) {
        let file = offer.file;
        self.entry(file).sink.opening = Some(offer);
    }

    /// It was opened; `None` if nobody wants it any more.
    pub(super) fn end_opening_sink(&mut self, file: FileId) -> Option<Offer> {
        self.take(file, |entry| entry.sink.opening.take())
    }

    /// The sink of a file takes bytes only in order.
    pub(super) fn set_ordered(&mut self, file: FileId) {
        self.entry(file).sink.is_ordered = true;
    }

    pub(super) fn is_ordered(&self, file: FileId) -> bool {
        let entry = self.files.get(&file);
        entry.is_some_and(|entry| entry.sink.is_ordered)
    }

    /// A sink is open, and what an earlier attempt has left is read again.
    pub(super) fn verify(&mut self, file: FileId, path: Vec<u8>, block_size: u32) {
        self.entry(file).sink.unverified = Some((path, block_size));
    }

    /// It was read again: the path and the block size of the sink.
    pub(super) fn verified(&mut self, file: FileId) -> Option<(Vec<u8>, u32)> {
        self.take(file, |entry| entry.sink.unverified.take())
    }

    /// The peer has told the end of a file of which so many bytes are held.
    pub(super) fn end_told(&mut self, file: FileId, now: Duration, held: u64) {
        self.entry(file).sink.incomplete = Some((now, held));
    }

    /// Those whose end was told: since when nothing came, and how many bytes were held then.
    pub(super) fn incomplete(&mut self) -> impl Iterator<Item = (FileId, &mut (Duration, u64))> {
        let files = self.files.iter_mut();
        files.filter_map(|(&file, entry)| Some((file, entry.sink.incomplete.as_mut()?)))
    }

    /// The sink of a file isn't written any more.
    pub(super) fn close_sink(&mut self, file: FileId) {
        self.take(file, |entry| {
            entry.sink = SinkEntry::default();
            None::<()>
        });
    }
}

/// How often a transfer tells how far it is.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Where a download goes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) store: Arc<dyn Store>,
    pub(super) path: Vec<u8>,
    pub(super) name: Vec<u8>,
}

/// A transfer that this side started.
#[derive(Debug)]
pub(super) struct Transfer {
    events: mailbox::Sender<TransferEvent>,
    started: Duration,
    until: Option<Duration>,
    last_progress: Duration,
    /// Time for which the session's own bound had held bytes back when the transfer began.
    waited_before: Duration,
    dry_run: bool,
    /// Where a download goes; `None` for an upload.
    target: Option<Target>,
    overwrite: bool,
    resume: Resume,
    /// First byte of the source.
    offset: u64,
    path: Vec<u8>,
    resumed_bytes: u64,
    bytes_total: Option<u64>,
    retransmitted: u64,
    /// Share of the time that this side's storage was busy, in thousandths (download).
    store_permille: u16,
    /// Of a pack, what wasn't carried out.
    failures: Failures,
}

impl Transfer {
    /// One that starts now. `waited` is for how long the session's own bound has held bytes back.
    pub(super) fn new(spec: &TransferSpec, now: Duration, waited: Duration) -> Self {
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
            waited_before: waited,
            dry_run: spec.dry_run,
            target,
            overwrite: spec.overwrite,
            resume: spec.resume,
            offset: spec.offset,
            path: Vec::new(),
            resumed_bytes: 0,
            bytes_total: None,
            retransmitted: 0,
            store_permille: 0,
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

    /// Whether files that are there may be replaced.
    pub(super) fn overwrites(&self) -> bool {
        self.overwrite
    }

    /// Has a sink opened as this side's user wants it: a sender whose tags don't tell parts from
    /// one another must not mix them here.
    pub(super) fn limit(&self, request: &mut SinkRequest) {
        request.offset = self.offset;
        request.overwrite = self.overwrite;
        request.resume = self.resume;
    }

    /// The length of what is transferred, if it is known.
    pub(super) fn set_total(&mut self, bytes: Option<u64>) {
        self.bytes_total = bytes;
    }

    /// Where the file lies once it is published.
    pub(super) fn set_path(&mut self, path: Vec<u8>) {
        self.path = path;
    }

    /// Bytes that were there from an earlier attempt.
    pub(super) fn set_resumed(&mut self, bytes: u64) {
        self.resumed_bytes = bytes;
    }

    /// Bytes that were sent more than once (upload).
    pub(super) fn set_retransmitted(&mut self, bytes: u64) {
        self.retransmitted = bytes;
    }

    /// Counts bytes that came, or will have come, more than once (download).
    pub(super) fn count_again(&mut self, bytes: u64) {
        self.retransmitted += bytes;
    }

    /// What of a pack wasn't carried out.
    pub(super) fn set_failures(&mut self, failures: Failures) {
        self.failures = failures;
    }

    /// The share of the time until `now` that this side's store was busy, in thousandths.
    pub(super) fn busy_permille(&self, busy: Duration, now: Duration) -> u16 {
        permille(busy, now.saturating_sub(self.started))
    }

    /// All is stored, for which the store was `busy`: the share of the time (download).
    pub(super) fn stored(&mut self, busy: Duration, now: Duration) -> u16 {
        self.store_permille = self.busy_permille(busy, now);
        self.store_permille
    }

    pub(super) fn store_permille(&self) -> u16 {
        self.store_permille
    }

    /// What the machine knows of a download that goes on.
    pub(super) fn receives(&mut self, length: Option<u64>, resumed: u64) {
        self.resumed_bytes = self.resumed_bytes.max(resumed);
        self.bytes_total = self.bytes_total.or(length);
    }

    /// Whether the time is over that it was given; `true` once.
    pub(super) fn time_is_over(&mut self, now: Duration) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Tells how far it is, from time to time.
    pub(super) fn tell_progress(&mut self, bytes: u64, channels: u32, now: Duration) {
        if self.last_progress + PROGRESS_INTERVAL <= now {
            self.last_progress = now;
            let progress = Progress {
                bytes,
                bytes_total: self.bytes_total,
                resumed_bytes: self.resumed_bytes,
                channels,
            };
            // Nobody may be listening any more.
            let _ = self.events.send(TransferEvent::Progress(progress));
        }
    }

    /// How long it took. One that waited behind another began when that one ended.
    pub(super) fn elapsed(&self, last_end: Duration, now: Duration) -> Duration {
        now.saturating_sub(self.started.max(last_end))
    }

    /// What held it up, by the time that the session's own bound has held bytes back until now, and
    /// the shares that the stores of this side and of the peer were busy.
    pub(super) fn limited_by(
        &self,
        elapsed: Duration,
        waited: Duration,
        own_permille: u16,
        peer_permille: u16,
    ) -> LimitedBy {
        let (source, target) = if self.uploads() {
            (own_permille, peer_permille)
        } else {
            (peer_permille, own_permille)
        };
        let held_back = waited.saturating_sub(self.waited_before);
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

    /// What came of it, with `length` bytes moved.
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
        }
    }

    /// Tells the end.
    pub(super) fn tell_end(self, result: Result<Outcome, Fault>) {
        let _ = self.events.send(TransferEvent::Ended(result));
    }
}

/// A share of a time in thousandths.
pub(super) fn permille(part: Duration, whole: Duration) -> u16 {
    if whole.is_zero() {
        return 0;
    }
    (part.as_secs_f64() / whole.as_secs_f64() * 1000.0).min(1000.0) as u16
}
