//! What the parts of a service share.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use xdfs::Fault;

use crate::access::Access;
use crate::id::JobId;
use crate::lines::Incoming;
use crate::live::Live;
use crate::manifest::ManifestKey;
use crate::model::JobDetail;
use crate::places::Places;
use crate::spec::{Spec, Submission};
use crate::state::StateName;
use crate::store::{Idempotency, Store, Submitted};
use crate::time::Time;
use crate::webhook::Webhooks;
use crate::worker::Workers;

/// The parts that all requests of a service share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) live: Arc<Live>,
    pub(crate) workers: Arc<Workers>,
    /// Something may be due.
    pub(crate) upkeep: Notify,
    pub(crate) access: Access,
    pub(crate) manifest_key: ManifestKey,
    pub(crate) webhooks: Webhooks,
    pub(crate) places: Places,
    pub(crate) incoming: Incoming,
    pub(crate) closing: watch::Sender<bool>,
}

impl Shared {
    /// The home of the user of the process, where browsing begins.
    pub(crate) fn home() -> String {
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        home.map_or_else(|| "/".to_owned(), |home| home.display().to_string())
    }

    /// A job, with what is known of it this moment.
    pub(crate) async fn job(&self, id: JobId) -> Result<JobDetail, Fault> {
        let stored = self.store.stored_job(id).await?;
        let mut detail = stored.with(self.live.transfer(id).as_ref());
        detail.curve = match self.live.curve(id) {
            Some(curve) => Some(curve),
            None => self.store.curve(id).await?,
        };
        if matches!(detail.job.state, StateName::Queued | StateName::Retrying) {
            detail.waits_for = self.workers.waits_for(id).await?;
        }
        Ok(detail)
    }

    /// Adds a job, and wakes a worker.
    pub(crate) async fn submit(
        &self,
        submission: &Submission,
        owner: &str,
        idempotency: Option<Idempotency<'_>>,
    ) -> Result<Submitted, Fault> {
        let submitted = self.store.submit(submission, owner, idempotency).await?;
        self.added(submission, submitted);
        Ok(submitted)
    }

    /// Adds a job with transfers that are kept elsewhere, and wakes a worker.
    pub(crate) async fn submit_all(
        &self,
        submission: &Submission,
        specs: impl Iterator<Item = Result<Spec, Fault>> + Send,
        owner: &str,
        idempotency: Option<Idempotency<'_>>,
    ) -> Result<Submitted, Fault> {
        let submitted = self.store.submit_all(submission, specs, owner, idempotency);
        let submitted = submitted.await?;
        self.added(submission, submitted);
        Ok(submitted)
    }

    fn added(&self, submission: &Submission, submitted: Submitted) {
        let now = Time::now();
        match submission.starts_at.map(|moment| moment.from(now)) {
            Some(time) if time > now => self.workers.wait.notify_one(),
            _ => self.workers.wake.notify_one(),
        }
        if submission.deadline.is_some() {
            self.upkeep.notify_one();
        }
        self.live.changed(submitted.id);
    }
}
