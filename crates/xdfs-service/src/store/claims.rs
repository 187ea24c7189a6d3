//! Jobs that workers take, and that wait for them.

use xdfs::Fault;

use super::changes::change_in;
use super::leases::hold;
use super::open::Engine;
use super::rows::{id, small, time};
use super::{Store, fault};
use crate::id::JobId;
use crate::state::{Actor, Change, ProcessId, WorkerId};
use crate::time::Time;

/// The retries of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retries {
    /// In a row without progress.
    pub(crate) count: u32,
    pub(crate) max: u32,
}

/// The statement for the job that a worker may take: the oldest one of the highest priority.
macro_rules! first_job {
    ($lock:literal) => {
        concat!(
            "SELECT id FROM jobs WHERE state IN ('queued', 'retrying')
             AND (not_before IS NULL OR not_before <= $1)
             AND (starts_at IS NULL OR starts_at <= $1)
             ORDER BY priority DESC, id LIMIT 1",
            $lock
        )
    };
}

impl Store {
    /// Gives a job that waits, and not for a later time, to a worker of a process.
    pub(crate) async fn claim(
        &self,
        process: &ProcessId,
        worker: &WorkerId,
    ) -> Result<Option<JobId>, Fault> {
        let mut transaction = self.begin().await?;
        // Another process may be about to take the first one, or a user about to change it.
        let statement = match self.engine {
            Engine::Sqlite => first_job!(""),
            Engine::Postgres => first_job!(" FOR UPDATE SKIP LOCKED"),
        };
        let row = sqlx::query(statement)
            .bind(Time::now().microseconds())
            .fetch_optional(&mut *transaction)
            .await
            .map_err(fault)?;
        let Some(row) = row else { return Ok(None) };
        let id = id(&row, "id")?;
        let change = Change::Start(worker.clone());
        let actor = Actor::Worker(worker.clone());
        change_in(&mut transaction, id, change, &actor, "its turn").await?;
        sqlx::query("UPDATE jobs SET process = $2 WHERE id = $1")
            .bind(id.to_string())
            .bind(process.to_string())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
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
        transaction.commit().await.map_err(fault)
    }
}
