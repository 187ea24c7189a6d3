//! The life of a transfer: start, source and sink, progress, end.

use std::sync::Arc;

use xdfs_proto::digest::Fragment;
use xdfs_proto::frame::{Offer, Request, TimeAccount};
use xdfs_proto::pack::Failures;
use xdfs_proto::{Code, DigestKind, DigestValue, Fault, FileId, SourceTag};
use xdfs_store::{OpenedSink, SinkRequest, Source};

use super::buffers::piece_bytes;
use super::channel_count::Traffic;
use super::faults::mark_session_end;
use super::network_path::{ONE_CHANNEL_BYTES, Workload};
use super::source::{OpenSource, Reader};
use super::transfers::{StartedTransfer, Target};
use super::{Pipeline, Role, yielding};
use crate::command::{DownloadSpec, Outcome, TransferKind, TransferSpec, UploadSpec};
use crate::kernel::Kernel;
use crate::reader::BlockReader;
use crate::storage::{SinkJob, StoreTime};
use crate::store_workers::{SinkOutcome, open_or_check_sink};

impl<K: Kernel> Pipeline<K> {
    /// Starts a transfer (initiator).
    pub(super) fn start(&mut self, spec: TransferSpec) {
        if let Some(rate) = spec.parameters.rate_bytes_per_s_max {
            self.bounds.bound(rate, self.now);
        }
        let spent = self.account();
        let transfer = StartedTransfer::new(&spec, self.now, spent);
        self.transfers.start(spec.file, transfer);
        if self.ending.has_ended() {
            return;
        }
        match spec.kind {
            TransferKind::Upload(UploadSpec {
                source,
                source_path,
                target,
                name,
                pack,
                relaxed,
                last,
            }) => {
                if last.is_some() && !self.acceptor_takes_last_packs() {
                    let cause = "the server doesn't know the last pack of a tree";
                    let fault = Fault::new(Code::FeatureUnsupported, "send", cause);
                    return self.transfer_ended(spec.file, Err(fault.path(target).remote()));
                }
                let offer = Offer {
                    file: spec.file,
                    path: target,
                    name,
                    length: None,
                    tag: SourceTag::default(),
                    mode: source.info().mode,
                    mtime_ns: source.info().mtime_ns,
                    digest: spec.parameters.digest.unwrap_or_default(),
                    overwrite: spec.parameters.overwrite,
                    resume: spec.parameters.resume,
                    dry_run: spec.parameters.dry_run,
                    pack,
                    sparse: source.info().sparse,
                    relaxed,
                    last,
                };
                let mtime_ns = offer.mtime_ns;
                match self.open_offer(source, offer, spec.offset, spec.length, true) {
                    Ok(length) => {
                        if let Some(transfer) = self.transfers.started_mut(spec.file) {
                            transfer.set_source(length, mtime_ns);
                        }
                        if pack {
                            self.pick_channels(Workload::Packs);
                        } else {
                            self.pick_channels(Workload::file(length));
                        }
                    }
                    Err(fault) => {
                        self.transfer_ended(spec.file, Err(fault.path(source_path)));
                    }
                }
            }
            TransferKind::Download(DownloadSpec {
                source,
                pack_request,
                ..
            }) => {
                let follows = pack_request.as_ref().is_some_and(|pack| pack.follow);
                if follows && !self.acceptor_follows_links() {
                    let cause = "the server can't follow symbolic links within directories";
                    let fault = Fault::new(Code::FeatureUnsupported, "read", cause);
                    let hint = "it needs a newer xdfs; without following, links stay links";
                    let fault = fault.path(source).hint(hint).remote();
                    return self.transfer_ended(spec.file, Err(fault));
                }
                self.receiver.request(Request {
                    file: spec.file,
                    path: source,
                    offset: spec.offset,
                    length: spec.length,
                    digest: spec.parameters.digest.unwrap_or_default(),
                    pack: pack_request,
                });
            }
        }
    }

    fn acceptor_follows_links(&self) -> bool {
        matches!(&self.role, Role::Initiator(dialer) if dialer.follows_links())
    }

    fn acceptor_takes_last_packs(&self) -> bool {
        matches!(&self.role, Role::Initiator(dialer) if dialer.takes_last_packs())
    }

    /// Offers a source, or the requested part of it; returns the length of the transfer.
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
            // Endless, or of unknown length.
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
        let (reader, ahead) = match (info.random_reads, source.is_slow()) {
            (false, _) => (Reader::Stream(Some(source), None), None),
            (true, false) => (Reader::Random(source), None),
            (true, true) => {
                let (environment, notifier) = (&*self.environment, self.kernel.notifier());
                let sources = vec![source];
                let ids = self.ids.as_ref();
                let ahead = BlockReader::start(environment, sources, &notifier, ids)?;
                (Reader::Slow, Some(ahead))
            }
        };
        let mut source = OpenSource::new(reader, offset, offer.digest, self.account());
        source.ahead = ahead;
        // Other files move meanwhile.
        source.announce_reads(0, length.unwrap_or(0));
        self.transfers.open_source(offer.file, source);
        self.sender.offer(offer, upload);
        Ok(length)
    }

    /// Chooses the number of channels, unless the user did, as soon as the network path is measured
    /// (initiator).
    pub(super) fn pick_channels(&mut self, workload: Workload) {
        if !matches!(self.role, Role::Initiator(_)) || self.explicit_channels() {
            return;
        }
        if let Some(wanted) = self.network_path.pick_channels(workload) {
            let most = match self.yielding {
                Some(_) => yielding::CHANNELS,
                None => u32::MAX,
            };
            self.want_channels(wanted.min(most));
        }
    }

    /// Chooses the number of channels for transfers that started before the path was measured.
    pub(super) fn pick_channels_late(&mut self) {
        for workload in self.network_path.take_unpicked() {
            self.pick_channels(workload);
        }
    }

    /// Opens the sink of an offered file, or hands that to a worker if the store is slow.
    pub(super) fn handle_offer(&mut self, offer: Offer) {
        let file = offer.file;
        let spent = self.account();
        if offer.pack {
            self.transfers.offered(file, spent);
            self.open_pack(&offer);
            return;
        }
        let (store, mut request) = match (&self.role, self.transfers.started_mut(file)) {
            (Role::Acceptor { store, .. }, _) => (
                Arc::clone(store),
                sink_request(&offer, offer.path.clone(), offer.name.clone()),
            ),
            (Role::Initiator(_), Some(transfer)) => {
                let Some(Target { store, path, name }) = transfer.target().cloned() else {
                    return;
                };
                transfer.set_source(offer.length, offer.mtime_ns);
                let mut request = sink_request(&offer, path, name);
                transfer.limit(&mut request);
                (store, request)
            }
            (Role::Initiator(_), None) => return,
        };
        if !offer.dry_run {
            self.transfers.offered(file, spent);
        }
        request.block_size = self.network_path.block_size(self.parameters.block_size());
        let started = self.transfers.started(file);
        let dry_run = offer.dry_run || started.is_some_and(StartedTransfer::is_dry_run);
        if store.is_slow() {
            self.open_sink_in_worker(offer, store, request, dry_run);
        } else {
            let began = self.elapsed();
            let opened = open_or_check_sink(&*store, &request, dry_run);
            self.ledger.wrote_target(self.elapsed() - began);
            self.sink_opened(&offer, opened);
        }
    }

    /// The sink of an offered file was opened, or in a dry run checked.
    pub(super) fn sink_opened(&mut self, offer: &Offer, opened: Result<SinkOutcome, Fault>) {
        let result = opened.and_then(|opened| match opened {
            SinkOutcome::Checked(path) => {
                self.sink_checked(offer, path);
                Ok(())
            }
            SinkOutcome::Open(opened) => self.use_sink(offer, opened),
        });
        // The store may itself have used another machine.
        if let Err(fault) = result {
            self.receiver.fail(offer.file, fault.local());
        }
    }

    /// Closes a sink whose file failed while it was opened. Its content stays for a resume.
    pub(super) fn leave_sink(&mut self, file: FileId, opened: Result<SinkOutcome, Fault>) {
        if let Ok(SinkOutcome::Open(opened)) = opened {
            let kind = DigestKind::None;
            // If the thread can't be started, the sink is dropped here.
            let _ = self.storage.attach(file, opened.sink, kind, 0, false);
        }
        self.storage.submit(file, SinkJob::Detach(file));
    }

    /// A dry run has found that the file can be received.
    fn sink_checked(&mut self, offer: &Offer, path: Vec<u8>) {
        let file = offer.file;
        match self.transfers.started_mut(file).filter(|t| t.is_dry_run()) {
            Some(transfer) => {
                transfer.set_path(path);
                let length = offer.length.unwrap_or(0);
                self.transfer_finished(file, length, DigestValue::None, TimeAccount::default());
                let fault = Fault::new(Code::Cancelled, "receive the file", "a dry run");
                self.receiver.fail(file, fault);
            }
            None => {
                // Without durable ranges nothing can fail here.
                let _ = self
                    .receiver
                    .opened(file, path, self.parameters.block_size(), Vec::new());
            }
        }
    }

    fn use_sink(&mut self, offer: &Offer, opened: OpenedSink) -> Result<(), Fault> {
        let file = offer.file;
        let unverified = opened.unverified;
        let resumed = opened.durable.iter().map(|f| f.range.len()).sum();
        let mut block_size = opened.block_size;
        if !opened.sink.capabilities().random_writes {
            // A block of one piece is verified before it is written; written data can't be undone
            // here.
            self.transfers.set_ordered(file);
            block_size = block_size.min(piece_bytes() as u32);
        }
        if let Some(tally) = self.moved.tally.as_ref().filter(|_| resumed > 0) {
            tally.resumed();
        }
        if let Some(transfer) = self.transfers.started_mut(file) {
            transfer.set_path(opened.path.clone());
            transfer.set_resumed(if unverified { 0 } else { resumed });
        }
        self.storage
            .attach(file, opened.sink, offer.digest, resumed, unverified)?;
        if unverified {
            // ACCEPT waits for the verification, while NOOP keeps the session alive.
            self.transfers.verify(file, opened.path, block_size);
        } else {
            self.receiver
                .opened(file, opened.path, block_size, opened.durable)?;
        }
        // A sink that takes bytes in order gains nothing from several channels.
        if self.transfers.started(file).is_some() && !self.transfers.is_ordered(file) {
            self.pick_channels(Workload::file(offer.length));
        }
        Ok(())
    }

    /// The data of an earlier attempt is verified: accepts the file.
    pub(super) fn sink_verified(&mut self, file: FileId, durable: Vec<Fragment>) {
        let Some((path, block_size)) = self.transfers.verified(file) else {
            return;
        };
        if let Some(transfer) = self.transfers.started_mut(file) {
            transfer.set_resumed(durable.iter().map(|f| f.range.len()).sum());
        }
        if let Err(fault) = self.receiver.opened(file, path, block_size, durable) {
            self.receiver.fail(file, fault);
        }
    }

    pub(super) fn tick_transfer(&mut self, file: FileId) {
        let sent = self.sender.progress(file);
        let (held, length, resumed) = self.receiver.progress(file);
        let channels = self.count().live;
        let Some(transfer) = self.transfers.started_mut(file) else {
            return;
        };
        let uploads = transfer.uploads();
        if !uploads {
            transfer.receives(length, resumed);
        }
        let bytes = if uploads { sent } else { held };
        if !transfer.time_is_over(self.now) {
            transfer.report_progress(bytes, channels, self.now);
        } else if uploads {
            let end = self.sender.cursor(file);
            self.sender.source_ended(file, end);
        } else {
            self.transfer_finished(file, bytes, DigestValue::None, TimeAccount::default());
            let fault = Fault::new(Code::Cancelled, "receive the file", "its time is over");
            self.receiver.cancel(file, fault);
        }
    }

    /// A file was published, or a pack written, which took this time in the store.
    pub(super) fn published(&mut self, file: FileId, time: StoreTime, failures: Failures) {
        let spent = self.account() - self.transfers.offered_at(file).unwrap_or_default();
        self.transfers.end_storing(file);
        if let Some(transfer) = self.transfers.started_mut(file) {
            transfer.stored(time);
        }
        let own = spent.of_receiver(time);
        self.transfers.stored(file, own);
        let report = own.report(self.parameters.reports_time());
        self.receiver.published(file, report, failures);
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
        peer: TimeAccount,
    ) {
        let (now, last_end) = (self.account(), self.transfers.last_end());
        let Some(transfer) = self.transfers.started_mut(file) else {
            return;
        };
        let spent = transfer.spent(last_end, now);
        let shares = transfer.time_shares(spent, peer);
        let channels = self.open_channels_max;
        let outcome = transfer.outcome(length, spent.all(), channels, digest, shares);
        self.transfer_ended(file, Ok(outcome));
    }

    pub(super) fn transfer_ended(&mut self, file: FileId, result: Result<Outcome, Fault>) {
        if let Some(transfer) = self.transfers.end(file) {
            let result = result.map_err(mark_session_end);
            transfer.report_end(result);
            let spent = self.account();
            self.transfers.set_last_end(spent);
        }
        if !self.transfers.any_started() {
            self.bounds.unbound();
        }
    }

    /// Looks for a better number of channels while much is left to move, unless the user chose the
    /// number (initiator): on a long path, and on any other out of the machine that moves little,
    /// since what is known of it may be only its way to a forwarder.
    pub(super) fn tune_channels(&mut self) {
        // More channels would only take more from others.
        let yields = self.yielding.is_some();
        let is_settled = self.explicit_channels() || self.bounds.are_set() || yields;
        let is_slow = self.in_flight_bound.is_slow() && !self.network_path.is_local();
        let searches = self.network_path.is_long() || is_slow;
        let left = match !is_settled && searches {
            true => self.bytes_left(),
            false => Some(0),
        };
        if left.is_some_and(|bytes| bytes <= ONE_CHANNEL_BYTES) {
            self.network_path.stop_tuning();
            return;
        }
        let traffic = Traffic {
            now: self.now,
            bytes: self.moved_bytes(),
            left,
            channels: self.count().staying,
            round_trip: self.network_path.present_round_trip(),
            is_queued: self.network_path.is_queued(),
            block_bytes: self
                .network_path
                .block_size(self.parameters.block_size())
                .into(),
        };
        let max = self.channels_max();
        if let Some(wanted) = self.network_path.tune_channels(traffic, max) {
            self.set_channels(wanted);
        }
    }

    /// Bytes that the started transfers still have to move; `None` if the length of one is unknown.
    pub(super) fn bytes_left(&self) -> Option<u64> {
        let left = |file| {
            let transfer = self.transfers.started(file)?;
            let moved = match transfer.uploads() {
                true => self.sender.progress(file),
                false => self.receiver.progress(file).0,
            };
            transfer
                .bytes_total()
                .map(|total| total.saturating_sub(moved))
        };
        self.transfers.all_started().into_iter().map(left).sum()
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
