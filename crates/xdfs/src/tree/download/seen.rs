//! A pack on its way from the server to the files here.

use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_proto::pack::{Content, Failures, PackReader};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_store::{LocalStore, OpenedSink, PackHow, SinkRequest, Source, Store};

use crate::tree::moving::{Item, Kept, attributes_of};

/// What came for a name.
#[derive(Debug)]
pub(super) enum Came {
    Moved(Item),
    /// Its path, its size, the time of its last change, and what else is kept of it.
    Large(Vec<u8>, u64, Option<i64>, Kept),
    Failed(Vec<u8>, Fault),
}

/// Where a pack goes: looks at it and passes it on to the local files.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) names: Vec<Vec<u8>>,
    /// What is known of large files is wanted.
    keeps_more: bool,
    /// Files may get their names before they are durable.
    relaxed: bool,
    /// What comes is looked at, and nothing of it written.
    looks_only: bool,
    came: Mutex<Vec<Came>>,
}

impl Seen {
    pub(super) fn new(names: Vec<Vec<u8>>, keeps_more: bool, relaxed: bool) -> Self {
        Self {
            names,
            keeps_more,
            relaxed,
            looks_only: false,
            came: Mutex::default(),
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Came>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn only_packs(path: &[u8]) -> Fault {
    let cause = "only packs go here";
    Fault::new(Code::Unsupported, "copy a tree", cause).path(path)
}

impl Store for Seen {
    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        Err(only_packs(path))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        Err(only_packs(&request.path))
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        Err(only_packs(&request.path))
    }

    fn packs_wait(&self, root: &[u8]) -> bool {
        !self.relaxed && LocalStore::unrooted().packs_wait(root)
    }

    fn write_pack(&self, root: &[u8], how: PackHow, pack: &[u8]) -> Result<Failures, Fault> {
        let limits = Limits::default();
        let mut came = Vec::new();
        for entry in PackReader::new(pack, &limits) {
            let entry = entry.map_err(|e| e.fault())?;
            // Nobody writes here what wasn't asked for.
            if self
                .names
                .get(came.len())
                .is_none_or(|name| name != entry.path)
            {
                let cause = "the pack has entries that were not asked for";
                return Err(
                    Fault::new(Code::ProtocolViolation, "copy a tree", cause).path(entry.path)
                );
            }
            came.push(match entry.content {
                Content::Large(size) => {
                    let mtime_ns = entry.metadata.mtime_ns;
                    let kept = self.keeps_more.then(|| attributes_of(&entry));
                    Came::Large(entry.path.to_vec(), size, mtime_ns, kept)
                }
                Content::Failed(fault) => Came::Failed(entry.path.to_vec(), fault),
                _ => Came::Moved(Item::of(&entry)),
            });
        }
        if came.is_empty() {
            let cause = "the pack has none of the names that were asked for";
            return Err(Fault::new(Code::ProtocolViolation, "copy a tree", cause).path(root));
        }
        *self.lock() = came;
        if self.looks_only {
            return Ok(Failures::default());
        }
        let how = PackHow {
            relaxed: self.relaxed,
            ..how
        };
        LocalStore::unrooted().write_pack(root, how, pack)
    }
}
