//! Transfers: how one starts, which source and sink it gets, how far it is and how it ends.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use xdfs_proto::digest::Fragment;
use xdfs_proto::frame::{Offer, Request, Resume, SourceTag};
use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, DigestValue, Fault, FileId};
use xdfs_store::{SinkRequest, Source, Store};

use super::send::OpenSource;
use super::{PIECE_BYTES, Pipeline, Role};
use crate::command::{
    DownloadJob, Job, JobKind, LimitedBy, Outcome, Progress, TransferEvent, UploadJob,
};
use crate::kernel::Kernel;

/// How often a transfer tells how far it is.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of a file for which one channel is enough, since opening more takes longer.
const ONE_CHANNEL_BYTES: u64 = 16 << 20;
/// Channels picked for a large file on a short path, and the most on a long one.
const CHANNELS_SHORT: u32 = 4;
const CHANNELS_LONG: u32 = 16;
/// Channels picked for packs on a long path. Many that begin at once with little each would
/// overrun the queue of the path when all of them have doubled what they send often enough.
const CHANNELS_PACKS: u32 = 4;

/// What channels are picked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moved {
    /// A file of this length in bytes.
    File(u64),
    /// Packs of many small files.
    Packs,
}

impl Moved {
    /// One whose length nobody knows may be of any.
    fn file(length: Option<u64>) -> Self {
        Self::File(length.unwrap_or(u64::MAX))
    }
}

/// Where a download goes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) store: Arc<dyn Store>,
    pub(super) path: Vec<u8>,
    name: Vec<u8>,
}

/// A transfer that this side started.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) events: mpsc::Sender<TransferEvent>,
    pub(super) started: Duration,
    pub(super) until: Option<Duration>,
    pub(super) last_progress: Duration,
    /// Time for which the session's own bound had held bytes back when the transfer began.
    pub(super) waited_before: Duration,
    pub(super) dry_run: bool,
    pub(super) uploads: bool,
    pub(super) target: Option<Target>,
    pub(super) overwrite: bool,
    pub(super) resume: Resume,
    /// First byte of the source.
    pub(super) offset: u64,
    pub(super) path: Vec<u8>,
    pub(super) resumed_bytes: u64,
    pub(super) bytes_total: Option<u64>,
    pub(super) retransmitted: u64,
    /// Share of the time that this side's storage was busy, in thousandths (download).
    pub(super) store_permille: u16,
    /// Of a pack, what wasn't carried out.
    pub(super) failures: Failures,
}

impl<K: Kernel> Pipeline<K> {
    /// Starts a transfer (initiator).
    pub(super) fn start(&mut self, job: Job) {
        if let Some(rate) = job.rate_bytes_per_s_max {
            self.bounds.bound(rate, self.now);
        }
        let (uploads, target) = match &job.kind {
            JobKind::Upload(_) => (true, None),
            JobKind::Download(DownloadJob {
                store,
                target,
                name,
                ..
            }) => {
                let (store, path, name) = (Arc::clone(store), target.clone(), name.clone());
                (false, Some(Target { store, path, name }))
            }
        };
        let transfer = Transfer {
            events: job.events.clone(),
            started: self.now,
            until: job.duration.map(|d| self.now + d),
            last_progress: self.now,
            waited_before: self.bounds.waited(),
            dry_run: job.dry_run,
            uploads,
            target,
            overwrite: job.overwrite,
            resume: job.resume,
            offset: job.offset,
            path: Vec::new(),
            resumed_bytes: 0,
            bytes_total: None,
            retransmitted: 0,
            store_permille: 0,
            failures: Failures::default(),
        };
        self.transfers.insert(job.file, transfer);
        if self.ended.is_some() {
            return;
        }
        match job.kind {
            JobKind::Upload(UploadJob {
                source,
                source_path,
                target,
                name,
                pack,
                relaxed,
            }) => {
                let offer = Offer {
                    file: job.file,
                    path: target,
                    name,
                    length: None,
                    tag: SourceTag::default(),
                    mode: source.info().mode,
                    mtime_ns: source.info().mtime_ns,
                    digest: job.digest,
                    overwrite: job.overwrite,
                    resume: job.resume,
                    dry_run: job.dry_run,
                    pack,
                    sparse: source.info().sparse,
                    relaxed,
                };
                match self.open_offer(source, offer, job.offset, job.length, true) {
                    Ok(length) => {
                        if let Some(transfer) = self.transfers.get_mut(&job.file) {
                            transfer.bytes_total = length;
                        }
                        if pack {
                            self.pick_channels(Moved::Packs);
                        } else {
                            self.pick_channels(Moved::file(length));
                        }
                    }
                    Err(fault) => {
                        self.transfer_ended(job.file, Err(fault.path(source_path)));
                    }
                }
            }
            JobKind::Download(DownloadJob { source, wish, .. }) => self.receiver.request(Request {
                file: job.file,
                path: source,
                offset: job.offset,
                length: job.length,
                digest: job.digest,
                pack: wish,
            }),
        }
    }

    /// Offers a source, or the part of it that is wanted; returns the length of the transfer.
    pub(super) fn open_offer(
        &mut self,
        source: Box<dyn Source>,
        mut offer: Offer,
        offset: u64,
        length: Option<u64>,
        upload: bool,
    ) -> Result<Option<u64>, Fault> {
        let info = source.info().clone();
        offer.length = match info.length {
            Some(whole) if offset > whole => {
                return Err(Fault::new(
                    Code::OffsetPastEnd,
                    "read the source",
                    format!("the offset {offset} lies past its end at {whole}"),
                )
                .hint("choose an offset within the source"));
            }
            Some(whole) => Some(length.unwrap_or(u64::MAX).min(whole - offset)),
            // Endless, or of a length that shows at its end.
            None if info.random_reads => length,
            None if offset == 0 && length.is_none() => None,
            None => {
                return Err(Fault::new(
                    Code::Unsupported,
                    "read the source",
                    "an offset or a length needs a source that can be read anywhere",
                ));
            }
        };
        offer.tag = info.tag;
        if offset > 0 || offer.length != info.length {
            offer.tag = info.tag.of_part(offset, offer.length);
        }
        let length = offer.length;
        self.sources.insert(
            offer.file,
            OpenSource::new(source, offset, offer.digest, self.now),
        );
        self.sender.offer(offer, upload);
        Ok(length)
    }

    /// Picks the number of channels, where the user left it open (initiator): as soon as the path
    /// is known.
    pub(super) fn pick_channels(&mut self, what: Moved) {
        if !matches!(self.role, Role::Initiator(_)) || self.explicit_channels() {
            return;
        }
        if !self.local && self.round_trip.is_none() {
            self.unpicked.push(what);
            return;
        }
        let is_short = self.is_short_path();
        let wanted = match what {
            // Within one machine further channels are no faster.
            Moved::Packs if is_short => 1,
            Moved::Packs => CHANNELS_PACKS,
            Moved::File(length) if length <= ONE_CHANNEL_BYTES => 1,
            Moved::File(_) if is_short => CHANNELS_SHORT,
            Moved::File(length) => {
                let by_length = u32::try_from(length / (ONE_CHANNEL_BYTES / 4));
                by_length.unwrap_or(u32::MAX).clamp(1, CHANNELS_LONG)
            }
        };
        self.want_channels(wanted);
    }

    /// Picks it for what was started before the path was known.
    pub(super) fn pick_channels_late(&mut self) {
        for what in std::mem::take(&mut self.unpicked) {
            self.pick_channels(what);
        }
    }

    /// Opens the sink of a file that is offered.
    pub(super) fn open_sink(&mut self, offer: Offer) {
        let file = offer.file;
        if offer.pack {
            self.open_pack(&offer);
            return;
        }
        let (store, mut request) = match (&self.role, self.transfers.get_mut(&file)) {
            (Role::Acceptor { store, .. }, _) => (
                Arc::clone(store),
                sink_request(&offer, offer.path.clone(), offer.name.clone()),
            ),
            (Role::Initiator(_), Some(transfer)) => {
                let Some(Target { store, path, name }) = transfer.target.clone() else {
                    return;
                };
                transfer.bytes_total = offer.length;
                let mut request = sink_request(&offer, path, name);
                // A sender whose tags don't tell parts from one another must not mix them here.
                request.offset = transfer.offset;
                request.overwrite = transfer.overwrite;
                request.resume = transfer.resume;
                (store, request)
            }
            (Role::Initiator(_), None) => return,
        };
        request.block_size = self.block_size;
        let local_dry_run = self.transfers.get(&file).is_some_and(|t| t.dry_run);
        if offer.dry_run || local_dry_run {
            match store.check_sink(&request) {
                Ok(path) if local_dry_run => {
                    let length = offer.length.unwrap_or(0);
                    if let Some(transfer) = self.transfers.get_mut(&file) {
                        transfer.path = path;
                    }
                    self.transfer_finished(file, length, DigestValue::None, 0, 0);
                    let fault = Fault::new(Code::Cancelled, "receive the file", "a dry run");
                    self.receiver.fail(file, fault);
                }
                Ok(path) => {
                    // Nothing durable is claimed, so nothing can fail here.
                    let _ = self
                        .receiver
                        .opened(file, path, self.block_size, Vec::new());
                }
                Err(fault) => self.receiver.fail(file, fault),
            }
            return;
        }
        let result = store.open_sink(&request).and_then(|opened| {
            let unverified = opened.unverified;
            let resumed = opened.durable.iter().map(|f| f.range.len()).sum();
            let mut block_size = opened.block_size;
            if !opened.sink.capabilities().random_writes {
                // A block that is one piece can be checked before it goes out for good.
                self.ordered.insert(file);
                block_size = block_size.min(PIECE_BYTES as u32);
            }
            if let Some(transfer) = self.transfers.get_mut(&file) {
                transfer.path.clone_from(&opened.path);
                transfer.resumed_bytes = if unverified { 0 } else { resumed };
            }
            self.storage
                .attach(file, opened.sink, offer.digest, resumed, unverified)?;
            if unverified {
                // ACCEPT waits for it; NOOP keeps the peer patient meanwhile.
                self.unverified.insert(file, (opened.path, block_size));
                return Ok(());
            }
            self.receiver
                .opened(file, opened.path, block_size, opened.durable)
        });
        match result {
            Ok(()) => {
                // Bytes that must go out in order gain nothing from many channels.
                if self.transfers.contains_key(&file) && !self.ordered.contains(&file) {
                    self.pick_channels(Moved::file(offer.length));
                }
            }
            Err(fault) => self.receiver.fail(file, fault),
        }
    }

    /// What an earlier attempt has left of a file was read again: accepts it.
    pub(super) fn sink_verified(&mut self, file: FileId, durable: Vec<Fragment>) {
        let Some((path, block_size)) = self.unverified.remove(&file) else {
            return;
        };
        if let Some(transfer) = self.transfers.get_mut(&file) {
            transfer.resumed_bytes = durable.iter().map(|f| f.range.len()).sum();
        }
        if let Err(fault) = self.receiver.opened(file, path, block_size, durable) {
            self.receiver.fail(file, fault);
        }
    }

    pub(super) fn tick_transfer(&mut self, file: FileId) {
        let sent = self.sender.progress(file);
        let (held, length, resumed) = self.receiver.progress(file);
        let channels = self.live();
        let Some(transfer) = self.transfers.get_mut(&file) else {
            return;
        };
        let bytes = if transfer.uploads { sent } else { held };
        if !transfer.uploads {
            transfer.resumed_bytes = transfer.resumed_bytes.max(resumed);
            transfer.bytes_total = transfer.bytes_total.or(length);
        }
        if transfer.until.is_some_and(|t| t <= self.now) {
            transfer.until = None;
            if transfer.uploads {
                let end = self.sender.cursor(file);
                self.sender.source_ended(file, end);
            } else {
                self.transfer_finished(file, bytes, DigestValue::None, 0, 0);
                let fault = Fault::new(Code::Cancelled, "receive the file", "its time is over");
                self.receiver.cancel(file, fault);
            }
            return;
        }
        if transfer.last_progress + PROGRESS_INTERVAL <= self.now {
            transfer.last_progress = self.now;
            let progress = Progress {
                bytes,
                bytes_total: transfer.bytes_total,
                resumed_bytes: transfer.resumed_bytes,
                channels,
            };
            // Nobody may be listening any more.
            let _ = transfer.events.send(TransferEvent::Progress(progress));
        }
    }

    pub(super) fn fail_file(&mut self, file: FileId, fault: Fault) {
        if self.sender.has_file(file) {
            self.sender.fail(file, fault);
        } else if self.receiver.has_file(file) {
            self.receiver.cancel(file, fault);
        } else {
            self.transfer_ended(file, Err(fault));
        }
    }

    pub(super) fn transfer_finished(
        &mut self,
        file: FileId,
        length: u64,
        digest: DigestValue,
        own_permille: u16,
        peer_permille: u16,
    ) {
        let Some(transfer) = self.transfers.get_mut(&file) else {
            return;
        };
        // A transfer that waited behind another one began when that one ended.
        let began = transfer.started.max(self.last_transfer_end);
        let elapsed = self.started.elapsed().saturating_sub(began);
        let (source, target) = if transfer.uploads {
            (own_permille, peer_permille)
        } else {
            (peer_permille, own_permille)
        };
        let waited = self.bounds.waited();
        let held_back = waited.saturating_sub(transfer.waited_before);
        let limited_by = if permille(held_back, elapsed) > 300 {
            LimitedBy::RateLimit
        } else if target >= 600 && target >= source {
            LimitedBy::TargetWrite
        } else if source >= 600 {
            LimitedBy::SourceRead
        } else {
            LimitedBy::Network
        };
        let outcome = Outcome {
            bytes: if transfer.dry_run {
                transfer.bytes_total.unwrap_or(length)
            } else {
                length
            },
            // Nothing was moved, at no rate.
            elapsed: if transfer.dry_run {
                Duration::ZERO
            } else {
                elapsed
            },
            channels: self.live_max,
            resumed_bytes: transfer.resumed_bytes,
            retransmitted_bytes: transfer.retransmitted,
            digest,
            target: std::mem::take(&mut transfer.path),
            limited_by,
            failures: std::mem::take(&mut transfer.failures),
        };
        self.transfer_ended(file, Ok(outcome));
    }

    pub(super) fn transfer_ended(&mut self, file: FileId, result: Result<Outcome, Fault>) {
        if let Some(transfer) = self.transfers.remove(&file) {
            let _ = transfer.events.send(TransferEvent::Ended(result));
            self.last_transfer_end = self.started.elapsed();
        }
        if self.transfers.is_empty() {
            self.bounds.unbound();
        }
    }

    fn explicit_channels(&self) -> bool {
        match &self.role {
            Role::Initiator(dialer) => dialer.is_explicit(),
            Role::Acceptor { .. } => true,
        }
    }
}

fn sink_request(offer: &Offer, path: Vec<u8>, name: Vec<u8>) -> SinkRequest {
    SinkRequest {
        path,
        name,
        offset: 0,
        length: offer.length,
        tag: offer.tag,
        mode: offer.mode,
        mtime_ns: offer.mtime_ns,
        digest: offer.digest,
        block_size: 0,
        overwrite: offer.overwrite,
        resume: offer.resume,
        sparse: offer.sparse,
    }
}

pub(super) fn permille(part: Duration, whole: Duration) -> u16 {
    if whole.is_zero() {
        return 0;
    }
    (part.as_secs_f64() / whole.as_secs_f64() * 1000.0).min(1000.0) as u16
}
