//! What the sinks and sources of a spool share.

use std::collections::HashSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xdfs_proto::Fault;
use xdfs_proto::relay::ParcelState;

use crate::index::Index;
use crate::room::Room;
use crate::segment::Segments;

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) index: Index,
    pub(crate) segments: Arc<Segments>,
    pub(crate) room: Room,
    /// A random number that no other spool has.
    pub(crate) identity: u128,
    /// Contents to which somebody writes.
    writers: Mutex<HashSet<u64>>,
    /// Parcels whose content could not be read as it was written.
    damaged: Mutex<HashSet<u64>>,
    /// Gets the numbers of parcels that have arrived.
    listener: Mutex<Option<Sender<u64>>>,
    /// Counts up with everything that readers of what arrives wait for.
    news: Mutex<u64>,
    has_news: Condvar,
}

impl Inner {
    pub(crate) fn new(index: Index, segments: Arc<Segments>, room: Room, identity: u128) -> Self {
        Self {
            index,
            segments,
            room,
            identity,
            writers: Mutex::default(),
            damaged: Mutex::default(),
            listener: Mutex::default(),
            news: Mutex::default(),
            has_news: Condvar::new(),
        }
    }

    fn writers(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listener(&self) -> MutexGuard<'_, Option<Sender<u64>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn damaged(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters that a parcel is damaged, or is to be read anew.
    pub(crate) fn set_damaged(&self, number: u64, is_damaged: bool) {
        match is_damaged {
            true => drop(self.damaged().insert(number)),
            false => drop(self.damaged().remove(&number)),
        }
    }

    pub(crate) fn is_damaged(&self, number: u64) -> bool {
        self.damaged().contains(&number)
    }

    fn news(&self) -> MutexGuard<'_, u64> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The count of news, for [`Self::wait_for_news`].
    pub(crate) fn news_seen(&self) -> u64 {
        *self.news()
    }

    /// Wakes the readers of what arrives.
    pub(crate) fn add_news(&self) {
        *self.news() += 1;
        self.has_news.notify_all();
    }

    /// Waits for news after those seen, at most for this time.
    pub(crate) fn wait_for_news(&self, seen: u64, timeout: Duration) {
        let is_old = |news: &mut u64| *news == seen;
        drop(
            self.has_news
                .wait_timeout_while(self.news(), timeout, is_old),
        );
    }

    /// Whether somebody writes to a content.
    pub(crate) fn has_writer(&self, content: u64) -> bool {
        self.writers().contains(&content)
    }

    pub(crate) fn listen(&self, listener: Sender<u64>) {
        *self.listener() = Some(listener);
    }

    /// Announces a parcel that has arrived, or that is to be tried again.
    pub(crate) fn notify(&self, number: u64) {
        if let Some(listener) = &*self.listener() {
            // It may have ended.
            let _ = listener.send(number);
        }
    }

    /// A number that no other parcel has, of this spool or of another one.
    pub(crate) fn mark(&self, number: u64) -> u128 {
        self.identity.wrapping_add(number.into())
    }

    /// Removes what has arrived of a parcel, unless that is all of it.
    pub(crate) fn free_arriving(&self, number: u64) -> Result<(), Fault> {
        self.index.change(move |change| {
            let parcel = change.parcel(number)?;
            if let Some(parcel) = parcel.filter(|own| own.state == ParcelState::Arriving) {
                change.empty(parcel.content)?;
            }
            Ok(Ok(()))
        })
    }
}

/// The only writer of a content.
#[derive(Debug)]
pub(crate) struct Writer {
    spool: Arc<Inner>,
    number: u64,
}

impl Writer {
    /// `None` if there is another one.
    pub(crate) fn new(spool: &Arc<Inner>, number: u64) -> Option<Self> {
        let is_first = spool.writers().insert(number);
        is_first.then(|| Self {
            spool: Arc::clone(spool),
            number,
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.spool.writers().remove(&self.number);
        self.spool.add_news();
    }
}
