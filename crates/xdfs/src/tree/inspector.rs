//! A pack on its way from the server to the files here: what is in it is noted while it passes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_proto::pack::{Content, Failures, PackReader};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_store::{LocalStore, PackOptions, Store};

use super::item::{DeferredMetadata, Item, attributes_of};

/// What came for a name.
#[derive(Debug)]
pub(super) enum Received {
    Moved(Item),
    /// It comes by itself; with what else is kept of it.
    Large(Item, DeferredMetadata),
    Failed(Vec<u8>, Fault),
}

/// The store to which a pack goes: notes what it has and passes it on to the local files.
#[derive(Debug)]
pub(super) struct PackInspector {
    pub(super) names: Vec<Vec<u8>>,
    /// What is known of large files is wanted.
    keeps_more: bool,
    /// Files may get their names before they are durable.
    relaxed: bool,
    /// What comes is inspected, and nothing of it written.
    looks_only: bool,
    received: Mutex<Vec<Received>>,
}

impl PackInspector {
    pub(super) fn new(names: Vec<Vec<u8>>, keeps_more: bool, relaxed: bool) -> Self {
        Self {
            names,
            keeps_more,
            relaxed,
            looks_only: false,
            received: Mutex::default(),
        }
    }

    /// One that writes nothing: only what is known of a large file is wanted.
    pub(super) fn looking(name: &[u8]) -> Self {
        let looks_only = true;
        Self {
            looks_only,
            ..Self::new(vec![name.to_vec()], true, true)
        }
    }

    /// What the pack had, once.
    pub(super) fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Received>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for PackInspector {
    fn packs_wait(&self, root: &[u8]) -> bool {
        !self.relaxed && LocalStore::unrooted().packs_wait(root)
    }

    fn write_pack(&self, root: &[u8], how: PackOptions, pack: &[u8]) -> Result<Failures, Fault> {
        let limits = Limits::default();
        let refused = |cause: &str, path: &[u8]| {
            let fault = Fault::new(Code::ProtocolViolation, "copy a tree", cause);
            fault.path(path).ending_session()
        };
        let mut received = Vec::new();
        for entry in PackReader::new(pack, &limits) {
            let entry = entry.map_err(|e| e.fault())?;
            // Nobody writes here what wasn't asked for.
            let asked = self.names.get(received.len());
            if asked.is_none_or(|name| name != entry.path) {
                let cause = "the pack has entries that were not asked for";
                return Err(refused(cause, entry.path));
            }
            received.push(match entry.content {
                Content::Large(size) => {
                    let item = Item::large(entry.path.to_vec(), size, entry.metadata.mtime_ns);
                    let kept = self.keeps_more.then(|| attributes_of(&entry));
                    Received::Large(item, kept)
                }
                Content::Failed(fault) => Received::Failed(entry.path.to_vec(), fault),
                _ => Received::Moved(Item::of(&entry)),
            });
        }
        if received.is_empty() {
            let cause = "the pack has none of the names that were asked for";
            return Err(refused(cause, root));
        }
        *self.lock() = received;
        if self.looks_only {
            return Ok(Failures::default());
        }
        let how = PackOptions {
            relaxed: self.relaxed,
            ..how
        };
        LocalStore::unrooted().write_pack(root, how, pack)
    }
}
