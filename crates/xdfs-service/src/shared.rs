//! What the parts of a service share.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use xdfs::Fault;

use crate::access::Access;
use crate::id::JobId;
use crate::live::Live;
use crate::manifest::ManifestKey;
use crate::model::JobDetail;
use crate::store::Store;
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
    pub(crate) closing: watch::Sender<bool>,
}

impl Shared {
    /// A job, with what is known of it this moment.
    pub(crate) async fn job(&self, id: JobId) -> Result<JobDetail, Fault> {
        let mut detail = self.store.job(id).await?;
        detail.update(self.live.transfer(id).as_ref());
        Ok(detail)
    }
}
