//! Transfers of jobs, as their workers do them.

use sqlx::Row as _;
use xdfs::Fault;

use super::leases::hold;
use super::rows::{failure, failure_text, signed, small, text, unsigned};
use super::{Connection, Row, Store, fault};
use crate::failure::Failure;
use crate::id::JobId;
use crate::listed::hex;
use crate::model::{Counts, TransferState};
use crate::scheduler::Link;
use crate::state::WorkerId;
use crate::time::Time;

/// Most tasks that are read at once.
const TASKS_MAX: u32 = 100;

/// A transfer that a worker is to do.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) position: u32,
    pub(crate) text: String,
    /// Bytes that had arrived by earlier attempts.
    pub(crate) bytes: u64,
    /// Its servers.
    pub(crate) link: Link,
}

/// The end of a transfer.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) counts: Counts,
    pub(crate) limited_by: Option<&'static str>,
    pub(crate) failure: Option<Failure>,
    /// The published path of the target.
    pub(crate) target: Option<Vec<u8>>,
    /// All of its files have a row.
    pub(crate) is_listed: bool,
}

/// Stores the counts of a transfer, and with them the sums of its job.
async fn set_counts(
    connection: &mut Connection,
    id: JobId,
    position: u32,
    counts: &Counts,
) -> Result<(), Fault> {
    for statement in [
        "UPDATE jobs SET bytes = jobs.bytes + $3 - one.bytes,
         bytes_total = jobs.bytes_total + COALESCE(CAST($4 AS BIGINT), 0)
             - COALESCE(one.bytes_total, 0),
         totals_count = totals_count + (CASE WHEN CAST($4 AS BIGINT) IS NULL THEN 0 ELSE 1 END)
             - (CASE WHEN one.bytes_total IS NULL THEN 0 ELSE 1 END),
         files = jobs.files + $5 - one.files, failed = jobs.failed + $6 - one.failed
         FROM (SELECT bytes, bytes_total, files, failed FROM transfers
               WHERE job_id = $1 AND position = $2) AS one
         WHERE id = $1",
        "UPDATE transfers SET bytes = $3, bytes_total = $4, files = $5, failed = $6
         WHERE job_id = $1 AND position = $2",
    ] {
        sqlx::query(statement)
            .bind(id.to_string())
            .bind(i64::from(position))
            .bind(signed(counts.bytes))
            .bind(counts.bytes_total.map(signed))
            .bind(signed(counts.files))
            .bind(signed(counts.failed))
            .execute(&mut *connection)
            .await
            .map_err(fault)?;
    }
    if counts.is_large() {
        sqlx::query("UPDATE jobs SET is_large = 1 WHERE id = $1 AND is_large = 0")
            .bind(id.to_string())
            .execute(connection)
            .await
            .map_err(fault)?;
    }
    Ok(())
}

impl Store {
    /// The next transfers of a job that are to be done, beyond the position `after`; none if there
    /// are no more.
    pub(crate) async fn tasks(&self, id: JobId, after: Option<u32>) -> Result<Vec<Task>, Fault> {
        let rows = sqlx::query(
            "SELECT position, spec, bytes, source_server, target_server FROM transfers
             WHERE job_id = $1 AND position > $2 AND state = 'waiting' ORDER BY position LIMIT $3",
        )
        .bind(id.to_string())
        .bind(after.map_or(-1, i64::from))
        .bind(i64::from(TASKS_MAX))
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        let task = |row: &Row| {
            Ok(Task {
                position: small(row, "position")?,
                text: text(row, "spec")?,
                bytes: unsigned(row.try_get("bytes").map_err(fault)?),
                link: Link {
                    source: text(row, "source_server")?,
                    target: text(row, "target_server")?,
                },
            })
        };
        rows.iter().map(task).collect()
    }

    /// A worker begins with a transfer. Entries that failed before are tried again.
    ///
    /// # Errors
    /// As of all that a worker writes: [`Code::LockLost`](xdfs::Code::LockLost) if it doesn't have
    /// the job any more.
    pub(crate) async fn begin_transfer(
        &self,
        id: JobId,
        worker: &WorkerId,
        position: u32,
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        hold(&mut transaction, id, worker).await?;
        sqlx::query("DELETE FROM failures WHERE job_id = $1 AND position = $2")
            .bind(id.to_string())
            .bind(i64::from(position))
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        sqlx::query(
            "UPDATE transfers SET state = 'running', attempts = attempts + 1,
             started_at = COALESCE(started_at, $3) WHERE job_id = $1 AND position = $2",
        )
        .bind(id.to_string())
        .bind(i64::from(position))
        .bind(Time::now().microseconds())
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        transaction.commit().await
    }

    /// Adds entries of a transfer that failed.
    pub(crate) async fn add_failures(
        &self,
        id: JobId,
        worker: &WorkerId,
        position: u32,
        failures: &[Failure],
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        hold(&mut transaction, id, worker).await?;
        for failure in failures {
            sqlx::query(
                "INSERT INTO failures (job_id, number, position, failure)
                 SELECT $1, COALESCE(MAX(number), 0) + 1, $2, $3 FROM failures WHERE job_id = $1",
            )
            .bind(id.to_string())
            .bind(i64::from(position))
            .bind(failure_text(Some(failure))?)
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        }
        transaction.commit().await
    }

    /// Stores how far a transfer is.
    pub(crate) async fn progress(
        &self,
        id: JobId,
        worker: &WorkerId,
        position: u32,
        counts: &Counts,
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        hold(&mut transaction, id, worker).await?;
        set_counts(&mut transaction, id, position, counts).await?;
        transaction.commit().await
    }

    /// A transfer is to be tried again later. Its failure is that of the job until then.
    pub(crate) async fn postpone_transfer(
        &self,
        id: JobId,
        worker: &WorkerId,
        position: u32,
        counts: &Counts,
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        hold(&mut transaction, id, worker).await?;
        set_counts(&mut transaction, id, position, counts).await?;
        sqlx::query("UPDATE transfers SET state = 'waiting' WHERE job_id = $1 AND position = $2")
            .bind(id.to_string())
            .bind(i64::from(position))
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        transaction.commit().await
    }

    /// A transfer has succeeded or failed.
    pub(crate) async fn end_transfer(
        &self,
        id: JobId,
        worker: &WorkerId,
        position: u32,
        end: &End,
    ) -> Result<(), Fault> {
        let state = match end.failure {
            None => TransferState::Succeeded,
            Some(_) => TransferState::Failed,
        };
        let mut transaction = self.begin().await?;
        hold(&mut transaction, id, worker).await?;
        set_counts(&mut transaction, id, position, &end.counts).await?;
        sqlx::query(
            "UPDATE transfers SET state = $3, failure = $4, limited_by = $5, ended_at = $6,
             target_path = COALESCE($7, target_path), listed = $8
             WHERE job_id = $1 AND position = $2",
        )
        .bind(id.to_string())
        .bind(i64::from(position))
        .bind(state.as_str())
        .bind(failure_text(end.failure.as_ref())?)
        .bind(end.limited_by)
        .bind(Time::now().microseconds())
        .bind(end.target.as_deref().map(hex))
        .bind(i64::from(end.is_listed))
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        transaction.commit().await
    }

    /// The failure of the first transfer of a job that has failed.
    pub(crate) async fn first_failure(&self, id: JobId) -> Result<Option<Failure>, Fault> {
        let row = sqlx::query(
            "SELECT failure FROM transfers WHERE job_id = $1 AND state = 'failed'
             ORDER BY position LIMIT 1",
        )
        .bind(id.to_string())
        .fetch_optional(&self.pool)
        .await
        .map_err(fault)?;
        row.as_ref().map_or(Ok(None), failure)
    }
}
