//! The retries of jobs.

use xdfs::Fault;

use super::leases::hold;
use super::rows::small;
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
    /// The retries of a job.
    pub(crate) async fn retries(&self, id: JobId) -> Result<Retries, Fault> {
        let row = sqlx::query("SELECT retries, retries_max FROM jobs WHERE id = $1")
            .bind(id.to_string())
            .fetch_one(&self.pool)
            .await
            .map_err(fault)?;
        Ok(Retries {
            count: small(&row, "retries")?,
            max: small(&row, "retries_max")?,
        })
    }

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
