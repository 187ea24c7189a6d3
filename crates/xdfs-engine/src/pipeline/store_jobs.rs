//! The jobs of a session for store workers: packs that the peer requests or sends, and sources and
//! sinks of slow stores, which workers open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::frame::{Offer, Request, Resume};
use xdfs_proto::pack::PackRequest;
use xdfs_proto::{Code, DigestKind, Fault, FileId, Retry, SourceTag};
use xdfs_store::{PackOptions, SinkRequest, Store};

use super::buffers::{Buffers, Purpose};
use super::network_path::Workload;
use super::transfers::Preparation;
use super::{Pipeline, Role};
use crate::environment::Worker;
use crate::kernel::Kernel;
use crate::storage::StoreTime;
use crate::store_workers::{ArrivingPack, StoreCompletion, StoreWorkers};

/// The workers of a session, and the packs that they hold.
#[derive(Debug)]
pub(super) struct StoreJobs {
    /// Read and write packs.
    pack_workers: StoreWorkers,
    /// Open sources and sinks of slow stores. They are separate, so that packs do not wait for
    /// them.
    openers: StoreWorkers,
    /// Packs that the peer requests and for which there was no memory.
    requested: VecDeque<(Request, PackRequest)>,
    /// Number of packs that are being written or wait for a worker or for other packs, cancelled
    /// ones included.
    packs_writing: usize,
    /// Complete packs that are not being written yet: last packs of trees, which wait for others.
    complete_packs: VecDeque<(FileId, ArrivingPack)>,
    /// Arriving packs of which blocks were dropped, since there was no memory.
    dropped: VecDeque<FileId>,
}

impl StoreJobs {
    pub(super) fn new(pack_workers: StoreWorkers, openers: StoreWorkers) -> Self {
        Self {
            pack_workers,
            openers,
            requested: VecDeque::new(),
            packs_writing: 0,
            complete_packs: VecDeque::new(),
            dropped: VecDeque::new(),
        }
    }

    /// A block of an arriving pack was dropped, since there was no memory.
    pub(super) fn wait_for_memory(&mut self, file: FileId) {
        if !self.dropped.contains(&file) {
            self.dropped.push_back(file);
        }
    }

    /// Lets the workers end after the jobs that have begun, and returns them.
    pub(super) fn finish(&mut self) -> Vec<Worker> {
        let mut workers = self.pack_workers.finish();
        workers.extend(self.openers.finish());
        workers
    }
}

impl<K: Kernel> Pipeline<K> {
    /// Whether packs are being read or written.
    pub(super) fn has_pack_jobs(&self) -> bool {
        self.transfers.is_preparing() || self.store_jobs.packs_writing > 0
    }

    /// Reads a pack requested by a downloading peer as soon as there is memory for it (acceptor).
    pub(super) fn read_pack(&mut self, request: Request, pack_request: PackRequest) {
        self.transfers.begin_preparing(request.clone());
        let requested = &mut self.store_jobs.requested;
        requested.push_back((request, pack_request));
        self.read_requested_packs();
    }

    /// Goes on with packs that waited for memory.
    pub(super) fn serve_waiting_packs(&mut self) {
        self.read_requested_packs();
        while let Some(&file) = self.store_jobs.dropped.front() {
            if self.transfers.lacks_memory(file) {
                let get = |_: &mut Buffers| self.transfers.get_memory(file);
                let asked = self.buffers.ask(Purpose::DroppedPack, self.now, get);
                if asked.is_none() {
                    return;
                }
            }
            self.store_jobs.dropped.pop_front();
            self.receiver.request_dropped(file);
        }
    }

    /// Starts to read requested packs, as far as there is memory.
    fn read_requested_packs(&mut self) {
        while !self.store_jobs.requested.is_empty() {
            let workers = &mut self.store_jobs.pack_workers;
            let get = |_: &mut Buffers| workers.memory_to_read();
            let memory = self.buffers.ask(Purpose::PackToRead, self.now, get);
            let Some(memory) = memory else { return };
            let Some((request, pack_request)) = self.store_jobs.requested.pop_front() else {
                return;
            };
            let Role::Acceptor { store, .. } = &self.role else {
                return;
            };
            let (file, root) = (request.file, request.path.clone());
            let store = Arc::clone(store);
            let submitted = workers.submit_read_pack(file, store, root, pack_request, memory);
            if let Err(fault) = submitted {
                self.transfers.end_preparing(file);
                self.refuse_request(file, &fault.path(&request.path));
            }
        }
    }

    /// Frees memory of packs that is not in use.
    pub(super) fn trim_packs(&self) {
        if !self.has_pack_jobs() && self.transfers.arriving() == 0 {
            self.store_jobs.pack_workers.trim();
        }
    }

    /// Starts to open a source requested by a downloading peer (acceptor).
    pub(super) fn open_source_in_worker(
        &mut self,
        request: Request,
        store: Arc<dyn Store>,
    ) -> Result<(), Fault> {
        let path = request.path.clone();
        self.store_jobs
            .openers
            .submit_open_source(request.file, store, path)?;
        self.transfers.begin_preparing(request);
        Ok(())
    }

    /// Starts to open the sink of an offered file.
    pub(super) fn open_sink_in_worker(
        &mut self,
        offer: Offer,
        store: Arc<dyn Store>,
        request: SinkRequest,
        dry_run: bool,
    ) {
        let file = offer.file;
        let opened = self
            .store_jobs
            .openers
            .submit_open_sink(file, store, request, dry_run);
        match opened {
            Ok(()) => self.transfers.begin_opening_sink(offer),
            Err(fault) => self.receiver.fail(file, fault),
        }
    }

    /// Accepts an offered pack.
    pub(super) fn open_pack(&mut self, offer: &Offer) {
        let (store, root, options, last) = match (&self.role, self.transfers.started(offer.file)) {
            (Role::Acceptor { store, .. }, _) => (
                Arc::clone(store),
                offer.path.clone(),
                PackOptions {
                    overwrite: offer.overwrite,
                    relaxed: offer.relaxed,
                },
                offer.last.clone(),
            ),
            (Role::Initiator(_), Some(transfer)) => {
                let Some(target) = transfer.target() else {
                    return;
                };
                let store = Arc::clone(&target.store);
                let options = PackOptions {
                    overwrite: transfer.overwrites(),
                    // The store of a download decides this itself.
                    relaxed: false,
                };
                (store, target.path.clone(), options, None)
            }
            (Role::Initiator(_), None) => return,
        };
        // Packs cancelled by the peer no longer count in the machine, but still take memory here.
        if self.transfers.arriving() + self.store_jobs.packs_writing >= self.limits.open_files_max {
            let cause = "too many packs are waiting to be written";
            let fault = Fault::new(Code::LimitExceeded, "receive", cause)
                .path(&root)
                .retry(Retry::AfterMs(100));
            self.receiver.fail(offer.file, fault);
            return;
        }
        let length = usize::try_from(offer.length.unwrap_or(0)).unwrap_or(usize::MAX);
        let workers = &self.store_jobs.pack_workers;
        let pack = workers.arriving(store, root.clone(), options, length, last);
        self.transfers.receive_pack(offer.file, pack);
        let opened =
            self.receiver
                .opened(offer.file, root, self.parameters.block_size(), Vec::new());
        match opened {
            Ok(()) => self.pick_channels(Workload::Packs),
            Err(fault) => self.receiver.fail(offer.file, fault),
        }
    }

    /// Has a complete pack written; `false` if `file` is not a pack.
    pub(super) fn write_pack(&mut self, file: FileId) -> bool {
        let Some(pack) = self.transfers.take_pack(file) else {
            return false;
        };
        self.store_jobs.packs_writing += 1;
        self.store_jobs.complete_packs.push_back((file, pack));
        true
    }

    /// Starts to write the complete packs that wait for no other pack any more.
    ///
    /// # Errors
    /// One of them can't be written, which the machine is to tell the peer.
    pub(super) fn write_packs(&mut self) -> Result<(), ()> {
        let mut result = Ok(());
        for _ in 0..self.store_jobs.complete_packs.len() {
            let Some((file, pack)) = self.store_jobs.complete_packs.pop_front() else {
                break;
            };
            let awaited = pack.last.as_deref().unwrap_or_default();
            let submitted = match self.have_arrived(awaited) {
                None => {
                    self.store_jobs.complete_packs.push_back((file, pack));
                    continue;
                }
                Some(true) => self.store_jobs.pack_workers.submit_write_pack(file, pack),
                Some(false) => Err(incomplete()),
            };
            if let Err(fault) = submitted {
                self.store_jobs.packs_writing -= 1;
                self.receiver.fail(file, fault);
                result = Err(());
            }
        }
        result
    }

    /// Whether all of the files have arrived whole; `None` as long as they still may.
    fn have_arrived(&self, files: &[FileId]) -> Option<bool> {
        let arrived = || files.iter().map(|file| self.receiver.arrived(*file));
        if arrived().any(|arrived| arrived == Some(false)) {
            return Some(false);
        }
        arrived().all(|arrived| arrived.is_some()).then_some(true)
    }

    /// Handles the results of the workers.
    pub(super) fn process_store_completions(&mut self) {
        loop {
            let done = self.store_jobs.pack_workers.completion();
            let Some(done) = done.or_else(|| self.store_jobs.openers.completion()) else {
                return;
            };
            match done {
                StoreCompletion::PackRead { file, pack } => {
                    if let Some(preparing) = self.transfers.end_preparing(file) {
                        let digest = preparing.request.digest;
                        let result = unless_cancelled(&preparing, "read", pack).and_then(|pack| {
                            let offer = offer_of_pack(file, Vec::new(), digest);
                            self.open_offer(Box::new(pack), offer, 0, None, false)
                        });
                        if let Err(fault) = result {
                            self.refuse_request(file, &fault);
                        }
                    }
                }
                StoreCompletion::SourceOpened { file, source } => {
                    if let Some(preparing) = self.transfers.end_preparing(file) {
                        let source = unless_cancelled(&preparing, "open the source", source);
                        self.answer_request(&preparing.request, source);
                    }
                }
                StoreCompletion::SinkOpened { file, opened } => {
                    match self.transfers.end_opening_sink(file) {
                        Some(offer) => self.sink_opened(&offer, opened),
                        None => self.leave_sink(file, opened),
                    }
                }
                StoreCompletion::PackWritten {
                    file,
                    failures,
                    writing,
                } => {
                    self.store_jobs.packs_writing -= 1;
                    match failures {
                        Ok(failures) => {
                            let syncing = Duration::ZERO;
                            let time = StoreTime { writing, syncing };
                            self.published(file, time, failures);
                        }
                        Err(fault) => self.receiver.fail(file, fault),
                    }
                }
            }
        }
    }
}

/// The result of a worker, or a fault if the peer has cancelled the request.
fn unless_cancelled<T>(
    preparing: &Preparation,
    operation: &str,
    result: Result<T, Fault>,
) -> Result<T, Fault> {
    if preparing.is_unwanted {
        let cause = "the peer doesn't want it any more";
        return Err(Fault::new(Code::Cancelled, operation, cause));
    }
    result
}

/// The fault of a last pack that is not carried out.
fn incomplete() -> Fault {
    let cause = "entries that it was to follow were not written, in whole or in part";
    let fault = Fault::new(Code::Stale, "complete the tree", cause);
    fault.retry(Retry::AfterMs(0))
}

/// The offer of a pack, without its length.
pub(super) fn offer_of_pack(file: FileId, path: Vec<u8>, digest: DigestKind) -> Offer {
    Offer {
        file,
        path,
        name: Vec::new(),
        length: None,
        tag: SourceTag::default(),
        mode: None,
        mtime_ns: None,
        digest,
        overwrite: false,
        resume: Resume::Never,
        dry_run: false,
        pack: true,
        sparse: false,
        relaxed: false,
        last: None,
    }
}
