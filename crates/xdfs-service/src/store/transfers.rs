//! Transfers of jobs, as their workers do them.

use sqlx::{Any, Row as _};
use xdfs::Fault;

use super::changes::change_in;
use super::leases::hold;
use super::rows::{failure, failure_text, signed, small, text, unsigned};
use super::writing::Transaction;
use super::{Connection, Row, Store, fault};
use crate::failure::Failure;
use crate::id::JobId;
use crate::listed::hex;
use crate::model::{Counts, TransferState};
use crate::scheduler::Link;
use crate::state::{Actor, Change, WorkerId};
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
    /// It was begun when its job was claimed.
    pub(crate) has_begun: bool,
}

/// The end of a transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct End {
    pub(crate) counts: Counts,
    pub(crate) limited_by: Option<&'static str>,
    pub(crate) failure: Option<Failure>,
    /// The digest and the rate of a single file.
    pub(crate) digest: Option<String>,
    pub(crate) rate: Option<u64>,
    /// The published path of the target.
    pub(crate) target: Option<Vec<u8>>,
    /// All of its files have a row.
    pub(crate) is_listed: bool,
}

const TASKS: &str = "
    SELECT position, spec, bytes, attempts, source_server, target_server FROM transfers
    WHERE job_id = $1 AND position > $2 AND state = 'waiting' ORDER BY position LIMIT $3";

fn task(row: &Row) -> Result<Task, Fault> {
    Ok(Task {
        position: small(row, "position")?,
        text: text(row, "spec")?,
        bytes: unsigned(row.try_get("bytes").map_err(fault)?),
        link: Link {
            source: text(row, "source_server")?,
            target: text(row, "target_server")?,
        },
        has_begun: false,
    })
}

/// Entries of a transfer that failed before are to be tried again.
async fn forget_failures(
    connection: &mut Connection,
    id: JobId,
    position: u32,
) -> Result<(), Fault> {
    sqlx::query("DELETE FROM failures WHERE job_id = $1 AND position = $2")
        .bind(id.to_string())
        .bind(i64::from(position))
        .execute(connection)
        .await
        .map_err(fault)?;
    Ok(())
}

/// A transfer begins, unless it has.
async fn begin_in(connection: &mut Connection, id: JobId, position: u32) -> Result<(), Fault> {
    sqlx::query(
        "UPDATE transfers SET state = 'running', attempts = attempts + 1,
         started_at = COALESCE(started_at, $3)
         WHERE job_id = $1 AND position = $2 AND state = 'waiting'",
    )
    .bind(id.to_string())
    .bind(i64::from(position))
    .bind(Time::now().microseconds())
    .execute(connection)
    .await
    .map_err(fault)?;
    Ok(())
}

/// The next transfer of a job that is to be done begins. Returns it; `None` if there is none.
pub(super) async fn begin_next(
    connection: &mut Connection,
    id: JobId,
) -> Result<Option<Task>, Fault> {
    let row = sqlx::query(TASKS)
        .bind(id.to_string())
        .bind(-1_i64)
        .bind(1_i64)
        .fetch_optional(&mut *connection)
        .await
        .map_err(fault)?;
    let Some(row) = row else { return Ok(None) };
    let next = task(&row)?;
    if small(&row, "attempts")? > 0 {
        forget_failures(connection, id, next.position).await?;
    }
    begin_in(connection, id, next.position).await?;
    Ok(Some(Task {
        has_begun: true,
        ..next
    }))
}

type Query<'a> = sqlx::query::Query<'a, Any, <Any as sqlx::Database>::Arguments>;

/// A statement with the counts of a transfer as its first six parameters.
fn with_counts(
    statement: &'static str,
    id: JobId,
    position: u32,
    counts: &Counts,
) -> Query<'static> {
    sqlx::query(statement)
        .bind(id.to_string())
        .bind(i64::from(position))
        .bind(signed(counts.bytes))
        .bind(counts.bytes_total.map(signed))
        .bind(signed(counts.files))
        .bind(signed(counts.failed))
}

/// Stores the counts of a transfer, and with them the sums of its job.
async fn set_counts(
    connection: &mut Connection,
    id: JobId,
    position: u32,
    counts: &Counts,
) -> Result<(), Fault> {
    set_sums(&mut *connection, id, position, counts).await?;
    let statement = "UPDATE transfers SET bytes = $3, bytes_total = $4, files = $5, failed = $6
         WHERE job_id = $1 AND position = $2";
    let counted = with_counts(statement, id, position, counts);
    counted.execute(connection).await.map_err(fault)?;
    Ok(())
}

/// Stores the sums of a job with other counts of a transfer, which are still to be stored.
async fn set_sums(
    connection: &mut Connection,
    id: JobId,
    position: u32,
    counts: &Counts,
) -> Result<(), Fault> {
    let statement = "UPDATE jobs SET bytes = jobs.bytes + $3 - one.bytes,
         bytes_total = jobs.bytes_total + COALESCE(CAST($4 AS BIGINT), 0)
             - COALESCE(one.bytes_total, 0),
         totals_count = totals_count + (CASE WHEN CAST($4 AS BIGINT) IS NULL THEN 0 ELSE 1 END)
             - (CASE WHEN one.bytes_total IS NULL THEN 0 ELSE 1 END),
         files = jobs.files + $5 - one.files, failed = jobs.failed + $6 - one.failed
         FROM (SELECT bytes, bytes_total, files, failed FROM transfers
               WHERE job_id = $1 AND position = $2) AS one
         WHERE id = $1";
    let summed = with_counts(statement, id, position, counts);
    summed.execute(&mut *connection).await.map_err(fault)?;
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
        let rows = sqlx::query(TASKS)
            .bind(id.to_string())
            .bind(after.map_or(-1, i64::from))
            .bind(i64::from(TASKS_MAX))
            .fetch_all(&self.pool)
            .await
            .map_err(fault)?;
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
        forget_failures(&mut transaction, id, position).await?;
        begin_in(&mut transaction, id, position).await?;
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
        let transaction = self.counted(id, worker, position, counts).await?;
        transaction.commit().await
    }

    /// Begins a transaction of a worker with what has arrived of a transfer.
    async fn counted(
        &self,
        id: JobId,
        worker: &WorkerId,
        position: u32,
        counts: &Counts,
    ) -> Result<Transaction, Fault> {
        let mut transaction = self.begin().await?;
        hold(&mut transaction, id, worker).await?;
        set_counts(&mut transaction, id, position, counts).await?;
        Ok(transaction)
    }

    /// A transfer is to be tried again later. Its failure is that of the job until then.
    pub(crate) async fn postpone_transfer(
        &self,
        id: JobId,
        worker: &WorkerId,
        position: u32,
        counts: &Counts,
    ) -> Result<(), Fault> {
        let mut transaction = self.counted(id, worker, position, counts).await?;
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
        let mut transaction = self.begin().await?;
        hold(&mut transaction, id, worker).await?;
        end_in(&mut transaction, id, position, end).await?;
        transaction.commit().await
    }

    /// A transfer has succeeded or failed, and its job with it, if no other one comes after it.
    /// Returns whether that is so.
    pub(crate) async fn end_transfer_and_job(
        &self,
        id: JobId,
        worker: &WorkerId,
        position: u32,
        end: &End,
    ) -> Result<bool, Fault> {
        let mut transaction = self.begin().await?;
        hold(&mut transaction, id, worker).await?;
        end_in(&mut transaction, id, position, end).await?;
        let next = sqlx::query(
            "SELECT position FROM transfers
             WHERE job_id = $1 AND position > $2 AND state = 'waiting' LIMIT 1",
        )
        .bind(id.to_string())
        .bind(i64::from(position))
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fault)?;
        if next.is_none() {
            let failure = first_failure(&mut transaction, id).await?;
            let (change, reason) = Change::ended(failure.map(Box::new));
            let actor = Actor::Worker(worker.clone());
            change_in(&mut transaction, id, change, &actor, &reason).await?;
        }
        transaction.commit().await?;
        Ok(next.is_none())
    }

    /// The failure of the first transfer of a job that has failed.
    pub(crate) async fn first_failure(&self, id: JobId) -> Result<Option<Failure>, Fault> {
        let mut connection = self.pool.acquire().await.map_err(fault)?;
        first_failure(&mut connection, id).await
    }
}

async fn end_in(
    connection: &mut Connection,
    id: JobId,
    position: u32,
    end: &End,
) -> Result<(), Fault> {
    let state = match end.failure {
        None => TransferState::Succeeded,
        Some(_) => TransferState::Failed,
    };
    set_sums(&mut *connection, id, position, &end.counts).await?;
    let statement = "UPDATE transfers SET bytes = $3, bytes_total = $4, files = $5, failed = $6,
         state = $7, failure = $8, limited_by = $9, ended_at = $10,
         target_path = COALESCE($11, target_path), listed = $12, digest = $13, rate = $14
         WHERE job_id = $1 AND position = $2";
    let ended = with_counts(statement, id, position, &end.counts)
        .bind(state.as_str())
        .bind(failure_text(end.failure.as_ref())?)
        .bind(end.limited_by)
        .bind(Time::now().microseconds())
        .bind(end.target.as_deref().map(hex))
        .bind(i64::from(end.is_listed))
        .bind(end.digest.clone())
        .bind(end.rate.map(signed));
    ended.execute(connection).await.map_err(fault)?;
    Ok(())
}

async fn first_failure(connection: &mut Connection, id: JobId) -> Result<Option<Failure>, Fault> {
    let row = sqlx::query(
        "SELECT failure FROM transfers WHERE job_id = $1 AND state = 'failed'
         ORDER BY position LIMIT 1",
    )
    .bind(id.to_string())
    .fetch_optional(connection)
    .await
    .map_err(fault)?;
    row.as_ref().map_or(Ok(None), failure)
}
