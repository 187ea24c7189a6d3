//! Packs from the server: their entries are recorded on the way to the local store.

use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_proto::pack::{Content, Failures, PackReader};
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

/// The store that receives a pack: records its entries, and passes it to the local store.
#[derive(Debug)]
pub(super) struct PackInspector {
    pub(super) names: Vec<Vec<u8>>,
    /// Record the metadata of large files.
    keeps_more: bool,
    /// Files may be published before they are durable.
    relaxed: bool,
    /// Inspect entries without writing them.
    metadata_only: bool,
    /// Record digests of this kind.
    digests: DigestKind,
    /// The target.
    store: LocalStore,
    received: Mutex<Vec<Received>>,
}

impl PackInspector {
    pub(super) fn new(
        names: Vec<Vec<u8>>,
        keeps_more: bool,
        relaxed: bool,
        store: LocalStore,
    ) -> Self {
        Self {
            store,
            names,
            keeps_more,
            relaxed,
            metadata_only: false,
            digests: DigestKind::None,
            received: Mutex::default(),
        }
    }

    /// The same, which records digests of this kind.
    pub(super) fn with_digests(self, digests: DigestKind) -> Self {
        Self { digests, ..self }
    }

    /// An inspector that writes nothing, to get the metadata of a large file or a directory.
    pub(super) fn for_metadata(name: &[u8]) -> Self {
        let metadata_only = true;
        Self {
            metadata_only,
            ..Self::new(vec![name.to_vec()], true, true, LocalStore::unrooted())
        }
    }

    /// Takes the recorded entries.
    pub(super) fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Received>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for PackInspector {
    fn packs_wait(&self, root: &[u8]) -> bool {
        !self.relaxed && self.store.packs_wait(root)
    }

    fn write_pack(&self, root: &[u8], how: PackOptions, pack: &[u8]) -> Result<Failures, Fault> {
        let limits = Limits::default();
        let refused = |cause: &str, path: &[u8]| {
            let fault = Fault::new(Code::ProtocolViolation, "copy", cause);
            fault.path(path).ending_session()
        };
        let mut received = Vec::new();
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
                Content::Directory if self.metadata_only => {
                    Received::Large(Item::of(&entry), Some(attributes_of(&entry)))
                }
                _ => Received::Moved(Item::with_digest(&entry, self.digests)),
            });
        }
        if received.is_empty() {
            let cause = "the pack has none of the requested names";
            return Err(refused(cause, root));
        }
        *self.lock() = received;
        if self.metadata_only {
            return Ok(Failures::default());
        }
        let how = PackOptions {
            relaxed: self.relaxed,
            ..how
        };
        self.store.write_pack(root, how, pack)
    }

    xdfs_store::defaults!(Store: is_slow, open_source, open_sink, check_sink, read_pack, call,
        open_file);
}
