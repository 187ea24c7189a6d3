//! What a scanner gives on: names to the packers or to the run, and the directories that it has
//! still to list.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};

use xdfs_proto::Fault;
use xdfs_store::tree_journal::Totals;

use super::item::Item;
use super::links::Link;
use super::namespace::FoundName;
use crate::events::SyncStep;

/// What the scanner and the packers tell the run.
pub(super) enum Event {
    /// Names of a source on the server.
    Found(Vec<FoundName>),
    /// A pack of entries of a source here.
    Pack {
        memory: Vec<u8>,
        length: usize,
        items: Vec<Item>,
    },
    /// A file that is too large for packs.
    Large(Vec<u8>),
    /// What a dry run of a synchronisation would do.
    Step(SyncStep, Item),
    /// A name that waits, since another may be taken for it.
    Deferred(FoundName),
    /// A further name.
    Link(Link),
    /// A name of a file that has several: each run has to see it.
    Several(Vec<u8>),
    /// All entries of a directory were found: so many are moved, others were moved earlier.
    Listed {
        directory: Vec<u8>,
        entries: u64,
        taken: Totals,
        is_well: bool,
    },
    /// An entry that was found can't be had.
    Unread(FoundName, Fault),
    Failed(Vec<u8>, Fault),
}

/// Where names go that were found: to the packers if the source is here, else to the run, which
/// asks for them.
#[derive(Clone)]
pub(super) struct Feed {
    pub(super) packers: Option<mpsc::SyncSender<Vec<FoundName>>>,
    pub(super) events: mpsc::SyncSender<Event>,
}

impl Feed {
    /// Gives names on; `false` if no more are wanted.
    pub(super) fn entries(&self, batch: Vec<FoundName>) -> bool {
        match &self.packers {
            _ if batch.is_empty() => true,
            Some(packers) => packers.send(batch).is_ok(),
            None => self.tell(Event::Found(batch)),
        }
    }

    /// Tells the run; `false` if it has ended.
    pub(super) fn tell(&self, event: Event) -> bool {
        self.events.send(event).is_ok()
    }
}

/// Directories that wait to be listed.
#[derive(Default)]
pub(super) struct Unlisted {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    paths: VecDeque<Vec<u8>>,
    /// Listings that run, and may find further directories.
    running: usize,
}

impl Unlisted {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one to list; `None` when all are listed.
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

    /// One that was taken is listed.
    pub(super) fn end_one(&self) {
        self.lock().running -= 1;
        self.changed.notify_all();
    }

    /// Those who wait look whether anything is wanted.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }
}
