//! The scanner's output, entries for the packers or the run, and its queue of directories to list.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};

use xdfs_proto::Fault;
use xdfs_store::tree_journal::Totals;

use super::item::Item;
use super::links::Link;
use super::namespace::FoundName;
use crate::events::SyncStep;

/// Events from the scanner and the packers to the run.
pub(super) enum Event {
    /// Entries of a remote source.
    Found(Vec<FoundName>),
    /// A pack of entries of a local source.
    Pack {
        memory: Vec<u8>,
        length: usize,
        items: Vec<Item>,
    },
    /// A local file that is too large for a pack.
    Large(Vec<u8>),
    /// An action that a dry run of a synchronisation only reports, with the bytes of storage that
    /// the entry needs and those that it replaces.
    Step {
        step: SyncStep,
        item: Item,
        storage: (u64, u64),
    },
    /// An entry whose name may collide with another.
    Deferred(FoundName),
    /// A further hard link.
    Link(Link),
    /// A name of a file with several hard links, which every run has to see.
    HardLinked(Vec<u8>),
    /// The listing of a directory has ended, `is_well` if without an error. `entries` are to be
    /// moved, and `taken` were moved earlier; `was_there` if it is known to have existed at the
    /// target.
    Listed {
        directory: Vec<u8>,
        was_there: bool,
        entries: u64,
        taken: Totals,
        is_well: bool,
    },
    /// An entry that was found can't be read.
    Unread(FoundName, Fault),
    Failed(Vec<u8>, Fault),
}

/// Destination of found entries: the packers for a local source, otherwise the run, which requests
/// them.
#[derive(Clone)]
pub(super) struct Feed {
    pub(super) packers: Option<mpsc::SyncSender<Vec<FoundName>>>,
    pub(super) events: mpsc::SyncSender<Event>,
}

impl Feed {
    /// Passes entries on; `false` if no more are wanted.
    pub(super) fn entries(&self, batch: Vec<FoundName>) -> bool {
        match &self.packers {
            _ if batch.is_empty() => true,
            Some(packers) => packers.send(batch).is_ok(),
            None => self.send(Event::Found(batch)),
        }
    }

    /// Sends an event to the run; `false` if it has ended.
    pub(super) fn send(&self, event: Event) -> bool {
        self.events.send(event).is_ok()
    }
}

/// Queue of directories to list.
#[derive(Default)]
pub(super) struct Unlisted {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    paths: VecDeque<Vec<u8>>,
    /// Listings in progress, which may add further directories.
    running: usize,
}

impl Unlisted {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a directory, waiting for one if necessary; `None` when all are listed, or after
    /// `stop`.
    pub(super) fn take(&self, stop: &AtomicBool) -> Option<Vec<u8>> {
        let mut queue = self.lock();
        loop {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(path) = queue.paths.pop_back() {
                queue.running += 1;
                return Some(path);
            }
            if queue.running == 0 {
                return None;
            }
            let changed = self.changed.wait(queue);
            queue = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn push(&self, path: Vec<u8>) {
        self.lock().paths.push_back(path);
        self.changed.notify_one();
    }

    /// The listing of a taken directory has ended.
    pub(super) fn end_one(&self) {
        self.lock().running -= 1;
        self.changed.notify_all();
    }

    /// Wakes waiting scanners, which then check for `stop`.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }
}
