//! Changes of the states of jobs.

use xdfs::Fault;

use super::jobs::summary_of;
use super::rows::failure_text;
use super::states::{lock_state, lost, no_job, state_of};
use super::webhooks::note_end;
use super::{Connection, Store, fault};
use crate::id::JobId;
use crate::model::JobSummary;
use crate::scheduler::Link;
use crate::state::{Actor, Change, State, StateName, WorkerId};
use crate::time::Time;

/// Writes what has happened to a job.
pub(super) async fn write_transition(
    connection: &mut Connection,
    id: JobId,
    at: Time,
    actor: &Actor,
    (from, to): (Option<StateName>, StateName),
    reason: &str,
) -> Result<(), Fault> {
    sqlx::query(
        "INSERT INTO transitions (job_id, number, at, actor, from_state, to_state, reason)
         SELECT $1, COALESCE(MAX(number), 0) + 1, $2, $3, $4, $5, $6
         FROM transitions WHERE job_id = $1",
    )
    .bind(id.to_string())
    .bind(at.microseconds())
    .bind(actor.to_string())
    .bind(from.map(StateName::as_str))
    .bind(to.as_str())
    .bind(reason)
    .execute(connection)
    .await
    .map_err(fault)?;
    Ok(())
}

/// The queue of a new job, as [`write_queue`] names it.
pub(super) fn queue(owner: &str, link: &Link) -> String {
    format!("{owner}|{}|{}|0", link.source, link.target)
}

/// Puts a job into the queue of its owner, its size and the servers of its next transfer.
pub(super) async fn write_queue(connection: &mut Connection, id: JobId) -> Result<(), Fault> {
    sqlx::query(
        "UPDATE jobs SET
         source_server = COALESCE((SELECT source_server FROM transfers
             WHERE job_id = $1 AND state = 'waiting' ORDER BY position LIMIT 1), source_server),
         target_server = COALESCE((SELECT target_server FROM transfers
             WHERE job_id = $1 AND state = 'waiting' ORDER BY position LIMIT 1), target_server)
         WHERE id = $1",
    )
    .bind(id.to_string())
    .execute(&mut *connection)
    .await
    .map_err(fault)?;
    sqlx::query(
        "UPDATE jobs SET queue = owner || '|' || source_server || '|' || target_server || '|'
         || CAST(is_large AS TEXT) WHERE id = $1",
    )
    .bind(id.to_string())
    .execute(connection)
    .await
    .map_err(fault)?;
    Ok(())
}

/// Changes the state of a job, and returns the state after it; `None` if there is nothing to
/// change.
pub(super) async fn change_in(
    connection: &mut Connection,
    id: JobId,
    change: Change,
    actor: &Actor,
    reason: &str,
) -> Result<Option<State>, Fault> {
    let before = lock_state(&mut *connection, id).await?;
    let before = before.ok_or_else(|| no_job(id))?;
    if let Actor::Worker(worker) = actor
        && before.worker().is_some_and(|other| other != worker)
    {
        return Err(lost(id));
    }
    let is_retry = change == Change::Retry;
    let process = match &change {
        Change::Start(worker) => Some(worker.process().to_owned()),
        _ => None,
    };
    let Some(after) = before.after(change)? else {
        return Ok(None);
    };
    let at = Time::now();
    let ended_at = after.name().is_end().then_some(at.microseconds());
    let started_at = matches!(after, State::Running(_)).then_some(at.microseconds());
    sqlx::query(
        "UPDATE jobs SET state = $2, worker = $3, failure = $4, ended_at = $5,
         started_at = COALESCE(started_at, $6), not_before = $7,
         process = CASE WHEN $3 IS NULL THEN NULL ELSE COALESCE($8, process) END,
         claimed_at = COALESCE($9, claimed_at),
         is_later = CASE WHEN COALESCE($7, starts_at) > $10 THEN 1 ELSE 0 END WHERE id = $1",
    )
    .bind(id.to_string())
    .bind(after.name().as_str())
    .bind(after.worker().map(|WorkerId(name)| name.clone()))
    .bind(failure_text(after.failure())?)
    .bind(ended_at)
    .bind(started_at)
    .bind(after.not_before().map(Time::microseconds))
    .bind(process.as_deref())
    .bind(process.as_ref().map(|_| at.microseconds()))
    .bind(at.microseconds())
    .execute(&mut *connection)
    .await
    .map_err(fault)?;
    if before.worker().is_some() && *actor == Actor::Service {
        // Without a word: files may have been replaced of which it wrote nothing.
        sqlx::query(
            "UPDATE transfers SET listed_from = attempts + 1
             WHERE job_id = $1 AND state = 'running'",
        )
        .bind(id.to_string())
        .execute(&mut *connection)
        .await
        .map_err(fault)?;
    }
    let is_done = after.name() == StateName::Succeeded;
    if before.worker().is_some() && after.worker().is_none() && !is_done {
        sqlx::query(
            "UPDATE transfers SET state = 'waiting', failure = NULL
             WHERE job_id = $1 AND state = 'running'",
        )
        .bind(id.to_string())
        .execute(&mut *connection)
        .await
        .map_err(fault)?;
    }
    if is_retry {
        // It could not be done by a deadline that has passed.
        sqlx::query(
            "UPDATE jobs SET retries = 0,
             deadline = CASE WHEN deadline > $2 THEN deadline END,
             failed = failed - (SELECT COALESCE(CAST(SUM(failed) AS BIGINT), 0) FROM transfers
                                WHERE job_id = $1 AND state = 'failed') WHERE id = $1",
        )
        .bind(id.to_string())
        .bind(at.microseconds())
        .execute(&mut *connection)
        .await
        .map_err(fault)?;
        sqlx::query(
            "UPDATE transfers SET state = 'waiting', failure = NULL, ended_at = NULL, failed = 0
             WHERE job_id = $1 AND state = 'failed'",
        )
        .bind(id.to_string())
        .execute(&mut *connection)
        .await
        .map_err(fault)?;
        // It is to be tried at once, though its server was said to be down.
        sqlx::query(
            "UPDATE outages SET try_at = $2 WHERE try_at > $2 AND EXISTS (SELECT 1 FROM jobs
             WHERE id = $1 AND (server = source_server OR server = target_server
             OR server = source_server || ' -> ' || target_server))",
        )
        .bind(id.to_string())
        .bind(at.microseconds())
        .execute(&mut *connection)
        .await
        .map_err(fault)?;
    }
    if before.name().is_end() != after.name().is_end() {
        note_end(&mut *connection, id, after.name().is_end().then_some(at)).await?;
    }
    if after.worker().is_none() && !after.name().is_end() {
        write_queue(&mut *connection, id).await?;
    }
    let names = (Some(before.name()), after.name());
    write_transition(connection, id, at, actor, names, reason).await?;
    Ok(Some(after))
}

impl Store {
    /// Changes the state of a job. Returns the state after it; `None` if there is nothing to
    /// change.
    ///
    /// # Errors
    /// There is no such job, or the change isn't possible.
    pub(crate) async fn change(
        &self,
        id: JobId,
        change: Change,
        actor: &Actor,
        reason: &str,
    ) -> Result<Option<State>, Fault> {
        let mut transaction = self.begin().await?;
        let after = change_in(&mut transaction, id, change, actor, reason).await?;
        transaction.commit().await?;
        Ok(after)
    }

    /// Changes the state of a job as [`Self::change`] does, if the job meets a condition; `None` if
    /// it doesn't.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub(crate) async fn change_if(
        &self,
        id: JobId,
        change: Change,
        actor: &Actor,
        reason: &str,
        is_met: impl Fn(&JobSummary) -> bool,
    ) -> Result<Option<Option<State>>, Fault> {
        let mut transaction = self.begin().await?;
        lock_state(&mut transaction, id).await?;
        if !is_met(&summary_of(&mut transaction, id).await?) {
            return Ok(None);
        }
        let after = change_in(&mut transaction, id, change, actor, reason).await?;
        transaction.commit().await?;
        Ok(Some(after))
    }

    /// The state of a job.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) async fn state(&self, id: JobId) -> Result<State, Fault> {
        let mut connection = self.pool.acquire().await.map_err(fault)?;
        let state = state_of(&mut connection, id).await?;
        state.ok_or_else(|| no_job(id))
    }
}
