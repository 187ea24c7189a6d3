//! Jobs as they are shown.

use xdfs::Fault;

use super::changes::{no_job, state_of};
use super::rows::{entry_failure, signed, summary, text, transfer, transition};
use super::webhooks::webhook;
use super::{Connection, Store, fault};
use crate::id::JobId;
use crate::model::{EntryFailure, JobDetail, JobSummary};
use crate::state::StateName;

/// Entries that failed in a [`JobDetail`].
const FAILURES_SHOWN: u32 = 100;

/// Entries of a job that failed, after the one with the number `after`.
async fn failures_of(
    connection: &mut Connection,
    id: JobId,
    after: u64,
    limit: u32,
) -> Result<Vec<EntryFailure>, Fault> {
    let rows = sqlx::query(
        "SELECT number, position, failure FROM failures WHERE job_id = $1 AND number > $2
         ORDER BY number LIMIT $3",
    )
    .bind(id.to_string())
    .bind(signed(after))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await
    .map_err(fault)?;
    rows.iter().map(entry_failure).collect()
}

/// The statement for jobs of a condition.
macro_rules! jobs_where {
    ($condition:literal) => {
        concat!(
            "SELECT jobs.*,
             (SELECT CAST(SUM(bytes) AS BIGINT) FROM transfers WHERE job_id = jobs.id) AS bytes,
             (SELECT CASE WHEN COUNT(*) = COUNT(bytes_total)
                     THEN CAST(SUM(bytes_total) AS BIGINT) END
              FROM transfers WHERE job_id = jobs.id) AS bytes_total,
             (SELECT CAST(SUM(files) AS BIGINT) FROM transfers WHERE job_id = jobs.id) AS files,
             (SELECT CAST(SUM(failed) AS BIGINT) FROM transfers WHERE job_id = jobs.id) AS failed,
             (SELECT source FROM transfers WHERE job_id = jobs.id AND position = 0) AS source,
             (SELECT target FROM transfers WHERE job_id = jobs.id AND position = 0) AS target,
             (SELECT COUNT(*) FROM transfers WHERE job_id = jobs.id) AS transfers_count
             FROM jobs WHERE ",
            $condition,
            " ORDER BY id DESC LIMIT $2"
        )
    };
}

impl Store {
    /// Entries of a job that failed in the last attempt, after the one with the number `after`.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) async fn failures(
        &self,
        id: JobId,
        after: u64,
        limit: u32,
    ) -> Result<Vec<EntryFailure>, Fault> {
        let mut connection = self.pool.acquire().await.map_err(fault)?;
        let state = state_of(&mut connection, id).await?;
        state.ok_or_else(|| no_job(id))?;
        failures_of(&mut connection, id, after, limit).await
    }

    /// A job with its parts.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) async fn job(&self, id: JobId) -> Result<JobDetail, Fault> {
        // One transaction, so that the parts are of one moment.
        let mut transaction = self.begin_reading().await?;
        let row = sqlx::query(
            "SELECT *, 0 AS bytes, NULL AS bytes_total, 0 AS files, 0 AS failed,
             '' AS source, '' AS target, 0 AS transfers_count FROM jobs
             WHERE id = $1 AND deleted_at IS NULL",
        )
        .bind(id.to_string())
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fault)?;
        let row = row.ok_or_else(|| no_job(id))?;
        let transfers = sqlx::query("SELECT * FROM transfers WHERE job_id = $1 ORDER BY position")
            .bind(id.to_string())
            .fetch_all(&mut *transaction)
            .await
            .map_err(fault)?;
        let transitions =
            sqlx::query("SELECT * FROM transitions WHERE job_id = $1 ORDER BY number")
                .bind(id.to_string())
                .fetch_all(&mut *transaction)
                .await
                .map_err(fault)?;
        let mut detail = JobDetail {
            job: summary(&row)?,
            failures: failures_of(&mut transaction, id, 0, FAILURES_SHOWN).await?,
            transfers: transfers.iter().map(transfer).collect::<Result<_, _>>()?,
            transitions: transitions
                .iter()
                .map(transition)
                .collect::<Result<_, _>>()?,
            webhook: webhook(&mut transaction, id).await?,
        };
        detail.update(None);
        Ok(detail)
    }

    /// The owner of a job.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) async fn owner(&self, id: JobId) -> Result<String, Fault> {
        let row = sqlx::query("SELECT owner FROM jobs WHERE id = $1 AND deleted_at IS NULL")
            .bind(id.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(fault)?;
        text(&row.ok_or_else(|| no_job(id))?, "owner")
    }

    /// Jobs, the newest first: those of an owner, or of all, in a state, or all, that are older
    /// than `after`.
    pub(crate) async fn jobs(
        &self,
        owner: Option<&str>,
        state: Option<StateName>,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<Vec<JobSummary>, Fault> {
        // Greater than all ids.
        let before = after.map_or_else(|| "~".to_owned(), |id| id.to_string());
        let query = match (owner, state) {
            (None, None) => sqlx::query(jobs_where!("id < $1 AND deleted_at IS NULL")),
            (None, Some(_)) => {
                sqlx::query(jobs_where!("id < $1 AND deleted_at IS NULL AND state = $3"))
            }
            (Some(_), None) => {
                sqlx::query(jobs_where!("id < $1 AND deleted_at IS NULL AND owner = $3"))
            }
            (Some(_), Some(_)) => sqlx::query(jobs_where!(
                "id < $1 AND deleted_at IS NULL AND owner = $3 AND state = $4"
            )),
        };
        let mut query = query.bind(before).bind(i64::from(limit));
        if let Some(owner) = owner {
            query = query.bind(owner);
        }
        if let Some(state) = state {
            query = query.bind(state.as_str());
        }
        let rows = query.fetch_all(&self.pool).await.map_err(fault)?;
        rows.iter().map(summary).collect()
    }
}
