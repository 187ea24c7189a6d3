//! Counts of a relay, for its metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use xdfs_spool::Parcel;

/// Counts of events since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(super) delivered: AtomicU64,
    pub(super) delivered_bytes: AtomicU64,
    pub(super) dead: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) attempts: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Tally {
    /// Counts a parcel that is at its target.
    pub(super) fn delivered(&self, parcel: &Parcel) {
        Self::count(&self.delivered);
        Self::add(&self.delivered_bytes, parcel.order.bytes);
    }

    pub(super) fn count(counter: &AtomicU64) {
        Self::add(counter, 1);
    }

    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
