//! The terms of jobs: what can be set of them, deadlines that pass, and the end of their lifetime.
//!
//! A job is deleted in two steps: a mark takes it out of sight, and then its rows are removed in
//! transactions of bounded size, which other writers needn't wait for.

use std::time::Duration;

use xdfs::{Code, Fault};

use super::changes::write_transition;
use super::jobs::summary_of;
use super::rows::{id, time};
use super::states::{lock_state, no_job};
use super::{Connection, Store, fault};
use crate::id::JobId;
use crate::model::JobSummary;
use crate::spec::JobSettings;
use crate::state::Actor;
use crate::time::Time;

/// Most jobs that are looked at in one step.
const JOBS_MAX: i64 = 500;
/// Most rows that are removed in one transaction.
const ROWS_MAX: i64 = 2000;

/// Statements that remove rows of a job, at most so many; the job itself last.
const PARTS: [&str; 6] = [
    "DELETE FROM manifest_files WHERE job_id = $1 AND (position, path) IN
     (SELECT position, path FROM manifest_files WHERE job_id = $1 LIMIT $2)",
    // Each holds as much as many others.
    "DELETE FROM file_batches WHERE job_id = $1 AND number IN
     (SELECT number FROM file_batches WHERE job_id = $1 LIMIT 1 + $2 / 50)",
    "DELETE FROM failures WHERE job_id = $1 AND number IN
     (SELECT number FROM failures WHERE job_id = $1 LIMIT $2)",
    "DELETE FROM transitions WHERE job_id = $1 AND number IN
     (SELECT number FROM transitions WHERE job_id = $1 LIMIT $2)",
    "DELETE FROM transfers WHERE job_id = $1 AND position IN
     (SELECT position FROM transfers WHERE job_id = $1 LIMIT $2)",
    "DELETE FROM jobs WHERE id = $1 AND $2 > 0",
];

/// Statements for jobs whose time is over by `$1`, at most `$2`.
pub(super) struct Until {
    pub(super) find: &'static str,
    /// Marks them as deleted at `$3`.
    mark: &'static str,
}

macro_rules! until {
    ($condition:literal) => {
        Until {
            find: concat!(
                "SELECT id FROM jobs WHERE deleted_at IS NULL AND ended_at IS NOT NULL AND ",
                $condition,
                " LIMIT $2"
            ),
            mark: concat!(
                "UPDATE jobs SET deleted_at = $3 WHERE id IN
                 (SELECT id FROM jobs WHERE deleted_at IS NULL AND ended_at IS NOT NULL AND ",
                $condition,
                " LIMIT $2)"
            ),
        }
    };
}

/// Those that have a time of their own, after their end.
pub(super) const OWN_TIME: Until = until!("keep_until > ended_at AND keep_until <= $1");
/// The others, by their end.
pub(super) const COMMON_TIME: Until =
    until!("(keep_until IS NULL OR keep_until <= ended_at) AND ended_at <= $1");

/// A key of a deleted job is free.
async fn free_keys(connection: &mut Connection) -> Result<(), Fault> {
    sqlx::query(
        "DELETE FROM submissions WHERE job_id IN
         (SELECT id FROM jobs WHERE deleted_at IS NOT NULL)",
    )
    .execute(connection)
    .await
    .map_err(fault)?;
    Ok(())
}

impl Store {
    /// Sets what can be set of a job, if it meets a condition. Returns whether it does.
    ///
    /// # Errors
    /// There is no such job, or a value doesn't suit one.
    pub(crate) async fn set(
        &self,
        id: JobId,
        settings: &JobSettings,
        actor: &Actor,
        is_met: impl Fn(&JobSummary) -> bool,
    ) -> Result<bool, Fault> {
        let now = Time::now();
        let [deadline, keep_until] = settings.times(now)?;
        let mut transaction = self.begin().await?;
        let state = lock_state(&mut transaction, id).await?;
        if !is_met(&summary_of(&mut transaction, id).await?) {
            return Ok(false);
        }
        let state = state.ok_or_else(|| no_job(id))?.name();
        let mut changes = Vec::new();
        if let Some(priority) = settings.priority {
            sqlx::query("UPDATE jobs SET priority = $2 WHERE id = $1")
                .bind(id.to_string())
                .bind(i64::from(priority))
                .execute(&mut *transaction)
                .await
                .map_err(fault)?;
            changes.push(format!("the priority is {priority}"));
        }
        if let Some(label) = &settings.label {
            sqlx::query("UPDATE jobs SET label = $2 WHERE id = $1")
                .bind(id.to_string())
                .bind(label)
                .execute(&mut *transaction)
                .await
                .map_err(fault)?;
            changes.push(format!("the label is '{label}'"));
        }
        let shown =
            |time: Option<Time>| time.map_or_else(|| "none".to_owned(), |time| time.to_string());
        if let Some(deadline) = deadline {
            sqlx::query("UPDATE jobs SET deadline = $2 WHERE id = $1")
                .bind(id.to_string())
                .bind(deadline.map(Time::microseconds))
                .execute(&mut *transaction)
                .await
                .map_err(fault)?;
            changes.push(format!("the deadline is {}", shown(deadline)));
        }
        if let Some(keep_until) = keep_until {
            sqlx::query("UPDATE jobs SET keep_until = $2 WHERE id = $1")
                .bind(id.to_string())
                .bind(keep_until.map(Time::microseconds))
                .execute(&mut *transaction)
                .await
                .map_err(fault)?;
            changes.push(format!(
                "the time until which it is kept is {}",
                shown(keep_until)
            ));
        }
        if !changes.is_empty() {
            let (names, reason) = ((Some(state), state), changes.join(", "));
            write_transition(&mut transaction, id, now, actor, names, &reason).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Jobs that have not ended by their deadline, first those that no worker has.
    pub(crate) async fn overdue(&self, now: Time) -> Result<Vec<JobId>, Fault> {
        let rows = sqlx::query(
            "SELECT id FROM jobs WHERE deadline <= $1 AND ended_at IS NULL
             ORDER BY CASE WHEN worker IS NULL THEN 0 ELSE 1 END, deadline LIMIT $2",
        )
        .bind(now.microseconds())
        .bind(JOBS_MAX)
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        rows.iter().map(|row| id(row, "id")).collect()
    }

    /// The next deadline after a time.
    pub(crate) async fn next_deadline(&self, now: Time) -> Result<Option<Time>, Fault> {
        let row = sqlx::query(
            "SELECT MIN(deadline) AS deadline FROM jobs
             WHERE deadline > $1 AND deadline IS NOT NULL AND ended_at IS NULL",
        )
        .bind(now.microseconds())
        .fetch_one(&self.pool)
        .await
        .map_err(fault)?;
        time(&row, "deadline")
    }

    /// The deadline of a job.
    pub(crate) async fn deadline(&self, id: JobId) -> Result<Option<Time>, Fault> {
        let row = sqlx::query("SELECT deadline FROM jobs WHERE id = $1")
            .bind(id.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(fault)?;
        row.map_or(Ok(None), |row| time(&row, "deadline"))
    }

    /// Deletes a job that has ended, if it meets a condition: it is there no more, and
    /// [`Store::sweep`] removes its rows. Returns whether it does.
    ///
    /// # Errors
    /// There is no such job, or it hasn't ended.
    pub(crate) async fn delete(
        &self,
        id: JobId,
        is_met: impl Fn(&JobSummary) -> bool,
    ) -> Result<bool, Fault> {
        let mut transaction = self.begin().await?;
        let state = lock_state(&mut transaction, id).await?;
        if !is_met(&summary_of(&mut transaction, id).await?) {
            return Ok(false);
        }
        let state = state.ok_or_else(|| no_job(id))?.name();
        if !state.is_end() {
            let fault = Fault::new(Code::Stale, "delete the job", format!("it is {state}"));
            return Err(fault.hint("cancel it first"));
        }
        sqlx::query("UPDATE jobs SET deleted_at = $2 WHERE id = $1")
            .bind(id.to_string())
            .bind(Time::now().microseconds())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        free_keys(&mut transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Deletes jobs whose time is over: that of their own, or for those that have none or ended
    /// after it, `keep` after they ended; `None` keeps them. Returns whether there may be more.
    pub(crate) async fn expire(&self, now: Time, keep: Option<Duration>) -> Result<bool, Fault> {
        let keep = keep.and_then(|keep| i64::try_from(keep.as_micros()).ok());
        let ended_by = keep.map(|keep| now.microseconds().saturating_sub(keep));
        let mut may_be_more = false;
        for (until, by) in [
            (OWN_TIME, Some(now.microseconds())),
            (COMMON_TIME, ended_by),
        ] {
            let Some(by) = by else { continue };
            // As often as not there is none, and others needn't wait for the look.
            let first = sqlx::query(until.find).bind(by).bind(1_i64);
            if first
                .fetch_optional(&self.pool)
                .await
                .map_err(fault)?
                .is_none()
            {
                continue;
            }
            let mut transaction = self.begin().await?;
            let marked = sqlx::query(until.mark)
                .bind(by)
                .bind(JOBS_MAX)
                .bind(now.microseconds())
                .execute(&mut *transaction)
                .await
                .map_err(fault)?
                .rows_affected();
            free_keys(&mut transaction).await?;
            transaction.commit().await?;
            may_be_more |= marked >= JOBS_MAX.unsigned_abs();
        }
        Ok(may_be_more)
    }

    /// Removes rows of deleted jobs, a bounded number at once. Returns whether there may be more.
    pub(crate) async fn sweep(&self) -> Result<bool, Fault> {
        let first = sqlx::query("SELECT id FROM jobs WHERE deleted_at IS NOT NULL LIMIT 1");
        let first = first.fetch_optional(&self.pool).await.map_err(fault)?;
        if first.is_none() {
            return Ok(false);
        }
        let mut transaction = self.begin().await?;
        let mut room = ROWS_MAX;
        while room > 0 {
            let row = sqlx::query("SELECT id FROM jobs WHERE deleted_at IS NOT NULL LIMIT 1")
                .fetch_optional(&mut *transaction)
                .await
                .map_err(fault)?;
            let Some(row) = row else { break };
            let job = id(&row, "id")?;
            for part in PARTS {
                if room <= 0 {
                    break;
                }
                let removed = sqlx::query(part)
                    .bind(job.to_string())
                    .bind(room)
                    .execute(&mut *transaction)
                    .await
                    .map_err(fault)?
                    .rows_affected();
                room = room.saturating_sub_unsigned(removed);
            }
        }
        transaction.commit().await?;
        Ok(room <= 0)
    }
}
