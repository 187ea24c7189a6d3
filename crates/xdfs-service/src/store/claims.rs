//! The retries of jobs.

use xdfs::Fault;

use super::leases::hold;
use super::{Store, fault};
use crate::id::JobId;
use crate::state::WorkerId;

/// The retries of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retries {
    /// In a row without progress.
    pub(crate) count: u32,
    pub(crate) max: u32,
}

impl Store {
    /// Stores how often a job was tried again.
    pub(crate) async fn set_retries(
        &self,
        id: JobId,
        worker: &WorkerId,
        count: u32,
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        hold(&mut transaction, id, worker).await?;
        sqlx::query("UPDATE jobs SET retries = $2 WHERE id = $1")
            .bind(id.to_string())
            .bind(i64::from(count))
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        transaction.commit().await
    }
}
