//! Large files that changed in part: while others are moved, the transfers of these are seeded with
//! what the target has of them in its old versions. A file that can't be seeded is sent whole, so
//! that nothing here is a failure.

use std::sync::mpsc::{self, SyncSender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use xdfs_proto::{Code, Fault, Side};

use super::name_matches::Listed;
use crate::paths::Attributes;
use crate::seeding::{Seeding, may_pay};
use crate::tree::run::TreeRun;

/// Files that are looked through at once, and others that may wait for it.
const WORKERS: usize = 2;
const WAITING: usize = 256;

/// A file that may be sent in part.
pub(super) struct Candidate {
    /// What is known of it at the source.
    pub(super) entry: Listed,
    /// Bytes of the regular file that stands at the target.
    pub(super) old: u64,
}

/// Whether old files are looked at for what they have of new ones.
pub(super) struct Delta {
    is_wanted: bool,
    /// Why the server doesn't take part, once it has said so.
    refusal: OnceLock<Fault>,
}

impl Delta {
    pub(super) fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            refusal: OnceLock::new(),
        }
    }

    /// Why the server doesn't take part.
    pub(super) fn take_refusal(&mut self) -> Option<Fault> {
        self.refusal.take()
    }

    /// Whether it may pay, by what is known before anything is read.
    pub(super) fn may_pay(&self, new: &Attributes, old: u64) -> bool {
        self.is_wanted && may_pay(new.size, old)
    }

    /// Runs `feed`, and `work` for what it puts in, by threads of its own; waits for them.
    pub(super) fn beside<T>(
        &self,
        work: &(dyn Fn(Candidate) + Sync),
        feed: impl FnOnce(&SyncSender<Candidate>) -> T,
    ) -> T {
        let (sender, queue) = mpsc::sync_channel(WAITING);
        let queue = Mutex::new(queue);
        thread::scope(|scope| {
            let workers = if self.is_wanted { WORKERS } else { 0 };
            for _ in 0..workers {
                scope.spawn(|| {
                    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    while let Ok(candidate) = next() {
                        work(candidate);
                    }
                });
            }
            let fed = feed(&sender);
            drop(sender);
            fed
        })
    }

    /// Has the target keep what its old version of a file has of the one that is to be moved.
    pub(super) fn prepare(&self, candidate: &Candidate, run: &TreeRun<'_>) {
        if self.refusal.get().is_some() {
            return;
        }
        let seeding = Seeding {
            client: run.client,
            digest: run.client.digest(run.options.digest),
            stop: &run.stop,
        };
        let (path, attributes) = &candidate.entry;
        let (from, to) = (run.source.path(path), run.target.at(path));
        let seeded = if run.target.is_remote() {
            seeding.at_server(&from, &to, candidate.old)
        } else {
            let store = run.target.beneath();
            store.and_then(|store| seeding.here(&from, attributes, &store, &to))
        };
        let target = to.escape_ascii();
        match seeded {
            Ok(bytes) => tracing::debug!(%target, bytes, "the old file has these of the new one"),
            // The transfer tells what is really wrong.
            Err(fault) => {
                tracing::debug!(%target, %fault, "the old file was of no use");
                if fault.code == Code::Unsupported && fault.side == Side::Remote {
                    // Whoever was first has said it.
                    let _ = self.refusal.set(fault);
                }
            }
        }
    }
}
