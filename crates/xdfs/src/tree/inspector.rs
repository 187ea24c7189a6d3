//! Packs from the server of a source: their entries are recorded on the way to the target.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_engine::Spares;
use xdfs_proto::pack::{Content, Failures, PACK_BYTES_MAX, PackReader, PackWriter};
use xdfs_proto::{Code, DigestKind, Fault, Limits};
use xdfs_store::{LocalStore, PackOptions, Store};

use super::item::{DeferredMetadata, Item, attributes_of};

/// The pack entry of a requested name.
#[derive(Debug)]
pub(super) enum Received {
    Moved(Item),
    /// A file that needs a transfer of its own, with its further metadata; or the metadata alone
    /// of a directory.
    Large(Item, DeferredMetadata),
    Failed(Vec<u8>, Fault),
}

/// The destination of the entries of a pack.
#[derive(Debug)]
pub(super) enum PackTarget {
    /// They are written to a store on this machine. If `relaxed`, files may be published before
    /// they are durable.
    Store { store: LocalStore, relaxed: bool },
    /// Those that can be written are kept, as a pack for another server in one of these buffers.
    Kept(Spares),
    /// None: the entries are only recorded, to get the metadata of a large file or a directory.
    Nowhere,
}

/// A pack: the buffer that it is in, and its length.
type KeptPack = (Vec<u8>, usize);

/// The store that receives a pack: records its entries, and passes it to the target.
#[derive(Debug)]
pub(super) struct PackInspector {
    pub(super) names: Vec<Vec<u8>>,
    /// Record the metadata of large files.
    keeps_more: bool,
    /// Record digests of this kind.
    digests: DigestKind,
    target: PackTarget,
    received: Mutex<(Vec<Received>, Option<KeptPack>)>,
}

impl PackInspector {
    pub(super) fn new(names: Vec<Vec<u8>>, keeps_more: bool, target: PackTarget) -> Self {
        Self {
            names,
            keeps_more,
            digests: DigestKind::None,
            target,
            received: Mutex::default(),
        }
    }

    /// The same, which records digests of this kind.
    pub(super) fn with_digests(self, digests: DigestKind) -> Self {
        Self { digests, ..self }
    }

    /// An inspector that writes nothing, to get the metadata of a large file or a directory.
    pub(super) fn for_metadata(name: &[u8]) -> Self {
        Self::new(vec![name.to_vec()], true, PackTarget::Nowhere)
    }

    /// Takes the recorded entries.
    pub(super) fn take(&self) -> Vec<Received> {
        mem::take(&mut self.lock().0)
    }

    /// Takes the pack that is kept for another server: those of the recorded entries that are
    /// [`Received::Moved`], in their order.
    pub(super) fn take_kept(&self) -> Option<KeptPack> {
        self.lock().1.take()
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Received>, Option<KeptPack>)> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for PackInspector {
    fn packs_wait(&self, root: &[u8]) -> bool {
        match &self.target {
            PackTarget::Store { store, relaxed } => !relaxed && store.packs_wait(root),
            PackTarget::Kept(_) | PackTarget::Nowhere => false,
        }
    }

    fn write_pack(&self, root: &[u8], how: PackOptions, pack: &[u8]) -> Result<Failures, Fault> {
        let limits = Limits::default();
        let refused = |cause: &str, path: &[u8]| {
            let fault = Fault::new(Code::ProtocolViolation, "copy", cause);
            fault.path(path).ending_session()
        };
        let mut received = Vec::new();
        let mut kept = match &self.target {
            PackTarget::Kept(spares) => Some(PackWriter::new(spares.take(0), PACK_BYTES_MAX)),
            PackTarget::Store { .. } | PackTarget::Nowhere => None,
        };
        for entry in PackReader::new(pack, &limits) {
            let entry = entry.map_err(|e| e.fault())?;
            // A peer may only send requested entries.
            let asked = self.names.get(received.len());
            if asked.is_none_or(|name| name != entry.path) {
                let cause = "the pack has entries that were not requested";
                return Err(refused(cause, entry.path));
            }
            received.push(match entry.content {
                Content::Large(size) => {
                    let item = Item::large(entry.path.to_vec(), size, entry.metadata.mtime_ns);
                    let kept = self.keeps_more.then(|| attributes_of(&entry));
                    Received::Large(item, kept)
                }
                Content::Failed(fault) => Received::Failed(entry.path.to_vec(), fault),
                Content::Directory if matches!(self.target, PackTarget::Nowhere) => {
                    Received::Large(Item::of(&entry), Some(attributes_of(&entry)))
                }
                _ => {
                    // It fits: the entry came in a pack of at most this size.
                    if kept.as_mut().is_some_and(|pack| !pack.entry(&entry)) {
                        return Err(refused("the pack is too large", entry.path));
                    }
                    Received::Moved(Item::with_digest(&entry, self.digests))
                }
            });
        }
        if received.is_empty() {
            let cause = "the pack has none of the requested names";
            return Err(refused(cause, root));
        }
        *self.lock() = (received, kept.map(PackWriter::finish));
        let PackTarget::Store { store, relaxed } = &self.target else {
            return Ok(Failures::default());
        };
        let how = PackOptions {
            relaxed: *relaxed,
            ..how
        };
        store.write_pack(root, how, pack)
    }

    xdfs_store::defaults!(Store: is_slow, open_source, open_sink, check_sink, read_pack, call,
        open_file);
}
