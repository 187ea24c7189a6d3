//! Jobs that workers take, and that wait for them.

use xdfs::Fault;

use super::changes::change_in;
use super::rows::{id, small, time};
use super::{Store, fault};
use crate::id::JobId;
use crate::state::{Actor, Change, WorkerId};
use crate::time::Time;

/// The retries of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retries {
    /// In a row without progress.
    pub(crate) count: u32,
    pub(crate) max: u32,
}

impl Store {
    /// Gives a job that waits, and not for a later time, to a worker: the oldest one of the highest
    /// priority.
    pub(crate) async fn claim(&self, worker: &WorkerId) -> Result<Option<JobId>, Fault> {
        let mut transaction = self.begin().await?;
        let row = sqlx::query(
            "SELECT id FROM jobs WHERE state IN ('queued', 'retrying')
             AND (not_before IS NULL OR not_before <= $1)
             AND (starts_at IS NULL OR starts_at <= $1)
             ORDER BY priority DESC, id LIMIT 1",
        )
        .bind(Time::now().microseconds())
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fault)?;
        let Some(row) = row else { return Ok(None) };
        let id = id(&row, "id")?;
        let change = Change::Start(worker.clone());
        let actor = Actor::Worker(worker.clone());
        change_in(&mut transaction, id, change, &actor, "its turn").await?;
        transaction.commit().await.map_err(fault)?;
        Ok(Some(id))
    }

    /// The time at which the next job may be taken that waits for one.
    pub(crate) async fn next_retry(&self) -> Result<Option<Time>, Fault> {
        let row = sqlx::query(
            "SELECT MIN(COALESCE(not_before, starts_at)) AS due FROM jobs
             WHERE state IN ('queued', 'retrying')",
        )
        .fetch_one(&self.pool)
        .await
        .map_err(fault)?;
        time(&row, "due")
    }

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
    pub(crate) async fn set_retries(&self, id: JobId, count: u32) -> Result<(), Fault> {
        sqlx::query("UPDATE jobs SET retries = $2 WHERE id = $1")
            .bind(id.to_string())
            .bind(count)
            .execute(&self.pool)
            .await
            .map_err(fault)?;
        Ok(())
    }

    /// Takes back the jobs that workers had when the service ended without a word. To be called
    /// before there is a worker. Returns their number.
    pub(crate) async fn take_back(&self) -> Result<usize, Fault> {
        let mut transaction = self.begin().await?;
        let rows = sqlx::query("SELECT id FROM jobs WHERE worker IS NOT NULL ORDER BY id")
            .fetch_all(&mut *transaction)
            .await
            .map_err(fault)?;
        for row in &rows {
            let id = id(row, "id")?;
            let reason = "the service had ended while it ran";
            change_in(
                &mut transaction,
                id,
                Change::Stopped,
                &Actor::Service,
                reason,
            )
            .await?;
        }
        transaction.commit().await.map_err(fault)?;
        Ok(rows.len())
    }
}
