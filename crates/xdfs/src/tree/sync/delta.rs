//! Partly changed large files: while other entries move, the transfers of these files are seeded
//! from the old versions at the target. A file that can't be seeded is sent whole, so nothing here
//! is a failure.

use std::sync::mpsc::{self, SyncSender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use xdfs_proto::{Code, Fault, Side};

use super::name_matches::Listed;
use crate::paths::Attributes;
use crate::seeding::{Seeding, may_pay};
use crate::tree::run::TreeRun;

/// Concurrent seedings, and the length of their queue.
const WORKERS: usize = 2;
const WAITING: usize = 256;

/// A file of which parts may not have to be sent.
pub(super) struct Candidate {
    /// Its entry at the source.
    pub(super) entry: Listed,
    /// Size of the old file at the target, in bytes.
    pub(super) old: u64,
}

/// Seeding of large files from their old versions.
pub(super) struct Delta {
    is_wanted: bool,
    /// Why the server refuses seeding, once known.
    refusal: OnceLock<Fault>,
}

impl Delta {
    pub(super) fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            refusal: OnceLock::new(),
        }
    }

    /// Takes the reason for which the server refuses seeding.
    pub(super) fn take_refusal(&mut self) -> Option<Fault> {
        self.refusal.take()
    }

    /// Whether seeding may pay, judged by the sizes alone.
    pub(super) fn may_pay(&self, new: &Attributes, old: u64) -> bool {
        self.is_wanted && may_pay(new.size, old)
    }

    /// Runs `feed`, and on threads of its own `work` for each candidate. Waits for all of them.
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

    /// Seeds the transfer of a file with the parts that the old version at the target contains.
    pub(super) fn prepare(&self, candidate: &Candidate, run: &TreeRun<'_>) {
        if self.refusal.get().is_some() {
            return;
        }
        let seeding = Seeding {
            client: run.session.client,
            digest: run.session.client.digest(run.options.parameters.digest),
            stop: &run.stop,
        };
        let (path, attributes) = &candidate.entry;
        let (from, to) = (run.source.path(path), run.target.at(path));
        let seeded = if run.target.is_remote() {
            seeding.seed_upload(&from, &to, candidate.old)
        } else {
            let store = run.target.beneath();
            store.and_then(|store| seeding.seed_download(&from, attributes, &store, &to))
        };
        let target = to.escape_ascii();
        match seeded {
            Ok(bytes) => tracing::debug!(%target, bytes, "seeded from the old file"),
            // If something is wrong, the transfer reports it.
            Err(fault) => {
                tracing::debug!(%target, %fault, "not seeded from the old file");
                if fault.code == Code::Unsupported && fault.side == Side::Remote {
                    // Only the first refusal is kept.
                    let _ = self.refusal.set(fault);
                }
            }
        }
    }
}
