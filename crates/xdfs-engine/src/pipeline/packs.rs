//! Packs of a session: those that are made for a peer that asked, and those that arrive.

use std::collections::{BTreeMap, BTreeSet};

use xdfs_proto::frame::{Offer, Request, Resume, SourceTag};
use xdfs_proto::pack::Wish;
use xdfs_proto::{ByteRange, Code, DigestKind, Fault, FileId, Retry};
use xdfs_store::PackHow;

use super::transfer::{Moved, permille};
use super::{Pipeline, Role};
use crate::kernel::Kernel;
use crate::packs::{Arriving, Done, PackThreads};
use crate::pool::Buffer;

/// The packs of a session.
#[derive(Debug)]
pub(super) struct Packs {
    threads: PackThreads,
    /// Packs that a peer asked for and that are being made, with the digest it wants.
    made: BTreeMap<FileId, DigestKind>,
    /// Of those, the ones that nobody wants any more.
    unwanted: BTreeSet<FileId>,
    arriving: BTreeMap<FileId, Arriving>,
    /// Packs that are carried out or wait for that, those that nobody wants any more included.
    carried_out: usize,
}

impl Packs {
    pub(super) fn new(threads: PackThreads) -> Self {
        Self {
            threads,
            made: BTreeMap::new(),
            unwanted: BTreeSet::new(),
            arriving: BTreeMap::new(),
            carried_out: 0,
        }
    }

    /// Packs that are being made.
    pub(super) fn being_made(&self) -> usize {
        self.made.len()
    }

    /// Whether nothing is under way.
    pub(super) fn are_idle(&self) -> bool {
        self.made.is_empty() && self.carried_out == 0
    }

    /// Whether a pack is being made.
    pub(super) fn is_made(&self, file: FileId) -> bool {
        self.made.contains_key(&file)
    }

    /// Nobody wants a pack that is being made.
    pub(super) fn unwant(&mut self, file: FileId) {
        if self.made.contains_key(&file) {
            self.unwanted.insert(file);
        }
    }

    /// The memory of a pack that arrives, for a channel to read a block into it that is all of
    /// the pack.
    pub(super) fn lend(&mut self, file: FileId, offset: u64, length: usize) -> Option<Buffer> {
        self.arriving.get_mut(&file)?.lend(offset, length)
    }

    /// Takes the memory of a pack back, with all of it if it is `whole`; that of a pack which
    /// nobody wants any more is dropped.
    pub(super) fn take_back(&mut self, file: FileId, memory: Buffer, whole: bool) {
        if let Some(pack) = self.arriving.get_mut(&file) {
            pack.take_back(memory, whole);
        }
    }

    /// Takes bytes of a pack that arrives; `false` if `file` is none.
    pub(super) fn write(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> bool {
        let pack = self.arriving.get_mut(&file);
        pack.map(|pack| pack.write(offset, bytes)).is_some()
    }

    /// Takes zeros of a pack that arrives; `false` if `file` is none.
    pub(super) fn zero(&mut self, file: FileId, range: ByteRange) -> bool {
        let pack = self.arriving.get_mut(&file);
        pack.map(|pack| pack.zero(range.start, range.len()))
            .is_some()
    }

    /// A pack that arrived in part isn't needed.
    pub(super) fn discard(&mut self, file: FileId) {
        self.arriving.remove(&file);
    }

    pub(super) fn finish(self) {
        self.threads.finish();
    }
}

impl<K: Kernel> Pipeline<K> {
    /// Has a pack made that a downloading peer asks for (acceptor).
    pub(super) fn make_pack(&mut self, request: &Request, wish: Wish) -> Result<(), Fault> {
        let Role::Acceptor { store, .. } = &self.role else {
            return Ok(());
        };
        let (store, root) = (std::sync::Arc::clone(store), request.path.clone());
        self.packs.threads.make(request.file, store, root, wish)?;
        self.packs.made.insert(request.file, request.digest);
        Ok(())
    }

    /// Takes a pack that is offered.
    pub(super) fn open_pack(&mut self, offer: &Offer) {
        let (store, root, how) = match (&self.role, self.transfers.get(&offer.file)) {
            (Role::Acceptor { store, .. }, _) => (
                std::sync::Arc::clone(store),
                offer.path.clone(),
                PackHow {
                    overwrite: offer.overwrite,
                    relaxed: offer.relaxed,
                },
            ),
            (Role::Initiator(_), Some(transfer)) => {
                let Some(target) = &transfer.target else {
                    return;
                };
                let store = std::sync::Arc::clone(&target.store);
                let how = PackHow {
                    overwrite: transfer.overwrite,
                    // Who takes it here knows whether it is.
                    relaxed: false,
                };
                (store, target.path.clone(), how)
            }
            (Role::Initiator(_), None) => return,
        };
        // Files that the peer cancelled don't count in the machine, and yet take memory here.
        if self.packs.arriving.len() + self.packs.carried_out >= self.limits.open_files_max {
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
        self.packs.arriving.insert(offer.file, pack);
        let opened = self
            .receiver
            .opened(offer.file, root, self.block_size, Vec::new());
        match opened {
            Ok(()) => self.pick_channels(Moved::Packs),
            Err(fault) => self.receiver.fail(offer.file, fault),
        }
    }

    /// Has a pack carried out that has arrived; `false` if `file` is none.
    pub(super) fn carry_out(&mut self, file: FileId) -> bool {
        let Some(pack) = self.packs.arriving.remove(&file) else {
            return false;
        };
        match self.packs.threads.carry_out(file, pack) {
            Ok(()) => self.packs.carried_out += 1,
            Err(fault) => self.receiver.fail(file, fault),
        }
        true
    }

    /// Takes what the threads of the packs have done.
    pub(super) fn complete_packs(&mut self) {
        while let Some(done) = self.packs.threads.completion() {
            match done {
                Done::Made { file, pack } => {
                    let digest = self.packs.made.remove(&file).unwrap_or_default();
                    let result = if self.packs.unwanted.remove(&file) {
                        let cause = "the peer doesn't want it any more";
                        Err(Fault::new(Code::Cancelled, "make a pack", cause))
                    } else {
                        pack
                    };
                    let result = result.and_then(|pack| {
                        let offer = offer_of_pack(file, Vec::new(), digest);
                        self.open_offer(Box::new(pack), offer, 0, None, false)
                    });
                    if let Err(fault) = result {
                        self.sender.refuse(file, &fault);
                    }
                }
                Done::CarriedOut {
                    file,
                    failures,
                    busy,
                } => {
                    self.packs.carried_out -= 1;
                    match failures {
                        Ok(failures) => {
                            let elapsed = self.transfers.get(&file).map_or(self.now, |t| {
                                self.started.elapsed().saturating_sub(t.started)
                            });
                            let own = permille(busy, elapsed);
                            if let Some(transfer) = self.transfers.get_mut(&file) {
                                transfer.store_permille = own;
                            }
                            self.receiver.published(file, own, failures);
                        }
                        Err(fault) => self.receiver.fail(file, fault),
                    }
                }
            }
        }
    }
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
