//! What is known of running jobs beyond the database, and who wants to hear of changes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, broadcast, watch};

use crate::curve::Curve;
use crate::id::JobId;
use crate::model::LiveTransfer;
use crate::tally::Tally;
use crate::time::Time;

/// Changes that a slow listener may be behind. One that is further behind looks at everything
/// again.
const CHANGES_MAX: usize = 256;

/// Waits until a flag is set, or can't be set any more.
pub(crate) async fn is_set(flag: &mut watch::Receiver<bool>) {
    // The value is locked as long as it is borrowed.
    let _ = flag.wait_for(|is_set| *is_set).await;
}

/// The progress of running jobs, and the news that a job has changed.
#[derive(Debug)]
pub(crate) struct Live {
    /// The counts of this process.
    pub(crate) tally: Tally,
    transfers: Mutex<HashMap<JobId, LiveTransfer>>,
    curves: Mutex<HashMap<JobId, Curve>>,
    changes: broadcast::Sender<JobId>,
    any: Notify,
}

impl Live {
    pub(crate) fn new() -> Self {
        Self {
            tally: Tally::default(),
            transfers: Mutex::default(),
            curves: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES_MAX),
            any: Notify::new(),
        }
    }

    fn transfers(&self) -> MutexGuard<'_, HashMap<JobId, LiveTransfer>> {
        self.transfers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn curves(&self) -> MutexGuard<'_, HashMap<JobId, Curve>> {
        self.curves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker has begun with a job, whose curve is this so far.
    pub(crate) fn begin_curve(&self, id: JobId, curve: Curve) {
        self.curves().insert(id, curve);
    }

    /// The curve of a job that runs.
    pub(crate) fn curve(&self, id: JobId) -> Option<Curve> {
        self.curves().get(&id).cloned()
    }

    /// Bytes of a job that runs have arrived.
    pub(crate) fn arrived(&self, id: JobId, bytes: u64) {
        if let Some(curve) = self.curves().get_mut(&id) {
            curve.add(Time::now(), bytes);
        }
    }

    /// A worker is done with a job, whose curve this is.
    pub(crate) fn end_curve(&self, id: JobId) -> Option<Curve> {
        self.curves().remove(&id)
    }

    /// The running transfer of a job.
    pub(crate) fn transfer(&self, id: JobId) -> Option<LiveTransfer> {
        self.transfers().get(&id).cloned()
    }

    /// The number of running transfers, and the bytes that arrive in a second in all of them.
    pub(crate) fn running(&self) -> (u64, u64) {
        let transfers = self.transfers();
        let rates = transfers.values().filter_map(|transfer| transfer.rate);
        (transfers.len() as u64, rates.sum())
    }

    /// A job has changed, and perhaps so far has its transfer come.
    pub(crate) fn update(&self, id: JobId, transfer: Option<LiveTransfer>) {
        match transfer {
            Some(transfer) => self.transfers().insert(id, transfer),
            None => self.transfers().remove(&id),
        };
        self.changed(id);
    }

    /// A job has changed in the database.
    pub(crate) fn changed(&self, id: JobId) {
        // Without a listener it is no news.
        let _ = self.changes.send(id);
        self.any.notify_one();
    }

    /// Waits until a job has changed since the last call. For one caller.
    pub(crate) async fn any_change(&self) {
        self.any.notified().await;
    }

    /// Hears of changes from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<JobId> {
        self.changes.subscribe()
    }
}
