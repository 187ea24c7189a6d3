//! Packs of a session: those that are made for a peer that asked, and those that arrive.

use std::sync::Arc;

use xdfs_proto::frame::{Offer, Request, Resume};
use xdfs_proto::pack::PackRequest;
use xdfs_proto::{Code, DigestKind, Fault, FileId, Retry, SourceTag};
use xdfs_store::{PackHow, SinkRequest, Store};

use super::path::Moved;
use super::transfers::Making;
use super::{Pipeline, Role};
use crate::environment::Worker;
use crate::kernel::Kernel;
use crate::packs::{Done, PackThreads};

/// The threads of the packs, and what they have.
#[derive(Debug)]
pub(super) struct Packs {
    threads: PackThreads,
    /// Open sources and sinks of stores that are slow; threads of their own, so that packs don't
    /// wait for them.
    openers: PackThreads,
    /// Packs that are carried out or wait for that, those that nobody wants any more included.
    carried_out: usize,
}

impl Packs {
    pub(super) fn new(threads: PackThreads, openers: PackThreads) -> Self {
        Self {
            threads,
            openers,
            carried_out: 0,
        }
    }

    /// Begins nothing more, and returns the threads that end then.
    pub(super) fn finish(&mut self) -> Vec<Worker> {
        let mut workers = self.threads.finish();
        workers.extend(self.openers.finish());
        workers
    }
}

impl<K: Kernel> Pipeline<K> {
    /// Whether packs are being made or carried out.
    pub(super) fn packs_are_busy(&self) -> bool {
        self.transfers.makes_any() || self.packs.carried_out > 0
    }

    /// Has a pack made that a downloading peer asks for (acceptor).
    pub(super) fn make_pack(&mut self, request: Request, wish: PackRequest) -> Result<(), Fault> {
        let Role::Acceptor { store, .. } = &self.role else {
            return Ok(());
        };
        let (store, root) = (Arc::clone(store), request.path.clone());
        self.packs.threads.make(request.file, store, root, wish)?;
        self.transfers.make(request);
        Ok(())
    }

    /// Has a source opened that a downloading peer asks for (acceptor).
    pub(super) fn open_source_slowly(
        &mut self,
        request: Request,
        store: Arc<dyn Store>,
    ) -> Result<(), Fault> {
        let path = request.path.clone();
        self.packs.openers.open_source(request.file, store, path)?;
        self.transfers.make(request);
        Ok(())
    }

    /// Has a sink opened for what is offered.
    pub(super) fn open_sink_slowly(
        &mut self,
        offer: Offer,
        store: Arc<dyn Store>,
        request: SinkRequest,
        dry_run: bool,
    ) {
        let file = offer.file;
        let opened = self.packs.openers.open_sink(file, store, request, dry_run);
        match opened {
            Ok(()) => self.transfers.open_sink(offer),
            Err(fault) => self.receiver.fail(file, fault),
        }
    }

    /// Takes a pack that is offered.
    pub(super) fn open_pack(&mut self, offer: &Offer) {
        let (store, root, how) = match (&self.role, self.transfers.started(offer.file)) {
            (Role::Acceptor { store, .. }, _) => (
                Arc::clone(store),
                offer.path.clone(),
                PackHow {
                    overwrite: offer.overwrite,
                    relaxed: offer.relaxed,
                },
            ),
            (Role::Initiator(_), Some(transfer)) => {
                let Some(target) = transfer.target() else {
                    return;
                };
                let store = Arc::clone(&target.store);
                let how = PackHow {
                    overwrite: transfer.overwrites(),
                    // Who takes it here knows whether it is.
                    relaxed: false,
                };
                (store, target.path.clone(), how)
            }
            (Role::Initiator(_), None) => return,
        };
        // Files that the peer cancelled don't count in the machine, and yet take memory here.
        if self.transfers.arriving() + self.packs.carried_out >= self.limits.open_files_max {
            let cause = "too many packs wait to be carried out";
            let fault = Fault::new(Code::LimitExceeded, "take a pack", cause)
                .path(&root)
                .retry(Retry::AfterMs(100));
            self.receiver.fail(offer.file, fault);
            return;
        }
        let length = usize::try_from(offer.length.unwrap_or(0)).unwrap_or(usize::MAX);
        let threads = &self.packs.threads;
        let pack = threads.arriving(store, root.clone(), how, length);
        self.transfers.receive_pack(offer.file, pack);
        let opened =
            self.receiver
                .opened(offer.file, root, self.parameters.block_size(), Vec::new());
        match opened {
            Ok(()) => self.pick_channels(Moved::Packs),
            Err(fault) => self.receiver.fail(offer.file, fault),
        }
    }

    /// Has a pack carried out that has arrived; `false` if `file` is none.
    pub(super) fn carry_out(&mut self, file: FileId) -> bool {
        let Some(pack) = self.transfers.take_pack(file) else {
            return false;
        };
        match self.packs.threads.carry_out(file, pack) {
            Ok(()) => self.packs.carried_out += 1,
            Err(fault) => self.receiver.fail(file, fault),
        }
        true
    }

    /// Takes what the threads of the packs have done.
    pub(super) fn process_pack_completions(&mut self) {
        loop {
            let done = self.packs.threads.completion();
            let Some(done) = done.or_else(|| self.packs.openers.completion()) else {
                return;
            };
            match done {
                Done::Made { file, pack } => {
                    if let Some(making) = self.transfers.made(file) {
                        let digest = making.request.digest;
                        let result = wanted(&making, "make a pack", pack).and_then(|pack| {
                            let offer = offer_of_pack(file, Vec::new(), digest);
                            self.open_offer(Box::new(pack), offer, 0, None, false)
                        });
                        if let Err(fault) = result {
                            self.sender.refuse(file, &fault);
                        }
                    }
                }
                Done::SourceOpened { file, source } => {
                    if let Some(making) = self.transfers.made(file) {
                        let source = wanted(&making, "open the source", source);
                        self.answer_request(&making.request, source);
                    }
                }
                Done::SinkOpened { file, opened } => match self.transfers.sink_opened(file) {
                    Some(offer) => self.sink_opened(&offer, opened),
                    None => self.leave_sink(file, opened),
                },
                Done::CarriedOut {
                    file,
                    failures,
                    busy,
                } => {
                    self.packs.carried_out -= 1;
                    match failures {
                        Ok(failures) => self.published(file, busy, failures),
                        Err(fault) => self.receiver.fail(file, fault),
                    }
                }
            }
        }
    }
}

/// What a thread made, unless nobody wants it any more.
fn wanted<T>(making: &Making, operation: &str, made: Result<T, Fault>) -> Result<T, Fault> {
    if making.is_unwanted {
        let cause = "the peer doesn't want it any more";
        return Err(Fault::new(Code::Cancelled, operation, cause));
    }
    made
}

/// The offer of a pack, but for its length.
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
    }
}
