//! Jobs as they are shown.

use sqlx::AssertSqlSafe;
use xdfs::Fault;

use super::rows::{SUMMARY, entry_failure, signed, summary, text, totals, transfer, transition};
use super::states::{no_job, state_of};
use super::webhooks::webhook;
use super::{Connection, Store, fault};
use crate::id::JobId;
use crate::model::{
    EntryFailure, JobDetail, JobFilter, JobSummary, StoredJob, Transfer, TransferState,
};

/// Entries that failed in a [`JobDetail`].
const FAILURES_SHOWN: u32 = 100;
/// Transfers in a [`JobDetail`], beside those that run.
const TRANSFERS_SHOWN: u32 = 100;

/// Entries of a job that failed with a text in their faults, after the one with the number `after`.
async fn failures_of(
    connection: &mut Connection,
    id: JobId,
    text: &str,
    after: u64,
    limit: u32,
) -> Result<Vec<EntryFailure>, Fault> {
    let rows = sqlx::query(
        "SELECT number, position, failure FROM failures WHERE job_id = $1 AND number > $2
         AND LOWER(failure) LIKE $4 ESCAPE '\\' ORDER BY number LIMIT $3",
    )
    .bind(id.to_string())
    .bind(signed(after))
    .bind(i64::from(limit))
    .bind(containing(text))
    .fetch_all(connection)
    .await
    .map_err(fault)?;
    rows.iter().map(entry_failure).collect()
}

/// The statement for a list of jobs. What it looks at in jobs that it doesn't list is in an index.
/// Its parameters: the id before which they are, their number, and what the filter has.
pub(super) fn list_statement(filter: &JobFilter) -> String {
    let conditions = [
        (filter.owner.is_some(), "owner = $"),
        (filter.state.is_some(), "state = $"),
        (filter.label.is_some(), "LOWER(label) LIKE $"),
    ];
    let mut inner = "SELECT id FROM jobs WHERE deleted_at IS NULL AND id < $1".to_owned();
    let mut parameters = 2;
    for (is_there, condition) in conditions {
        if is_there {
            parameters += 1;
            inner.push_str(&format!(" AND {condition}{parameters}"));
        }
    }
    if filter.label.is_some() {
        // It comes last.
        inner.push_str(" ESCAPE '\\'");
    }
    format!(
        "SELECT {SUMMARY} FROM jobs WHERE id IN ({inner} ORDER BY id DESC LIMIT $2)
         ORDER BY id DESC"
    )
}

/// A job without its parts.
///
/// # Errors
/// There is no such job.
pub(super) async fn summary_of(
    connection: &mut Connection,
    id: JobId,
) -> Result<JobSummary, Fault> {
    let row = sqlx::query("SELECT * FROM jobs WHERE id = $1 AND deleted_at IS NULL")
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .map_err(fault)?;
    summary(&row.ok_or_else(|| no_job(id))?)
}

/// A pattern for texts in lower case that contain a text.
fn containing(text: &str) -> String {
    let mut pattern = String::from("%");
    for char in text.to_ascii_lowercase().chars() {
        if matches!(char, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(char);
    }
    pattern.push('%');
    pattern
}

impl Store {
    /// Entries of a job that failed in the last attempt, after the one with the number `after`,
    /// whose faults contain a text, whatever the case of ASCII letters.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) async fn failures(
        &self,
        id: JobId,
        text: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<EntryFailure>, Fault> {
        let mut connection = self.pool.acquire().await.map_err(fault)?;
        let state = state_of(&mut connection, id).await?;
        state.ok_or_else(|| no_job(id))?;
        failures_of(&mut connection, id, text, after, limit).await
    }

    /// Transfers of a job: those in a state, or all, beyond the position `after`.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) async fn transfers(
        &self,
        id: JobId,
        state: Option<TransferState>,
        after: Option<u32>,
        limit: u32,
    ) -> Result<Vec<Transfer>, Fault> {
        let mut connection = self.pool.acquire().await.map_err(fault)?;
        let job = state_of(&mut connection, id).await?;
        job.ok_or_else(|| no_job(id))?;
        let after = after.map_or(-1, i64::from);
        let query = match state {
            None => sqlx::query(
                "SELECT * FROM transfers WHERE job_id = $1 AND position > $2
                 ORDER BY position LIMIT $3",
            ),
            Some(_) => sqlx::query(
                "SELECT * FROM transfers WHERE job_id = $1 AND position > $2 AND state = $4
                 ORDER BY position LIMIT $3",
            ),
        };
        let query = query
            .bind(id.to_string())
            .bind(after)
            .bind(i64::from(limit));
        let query = match state {
            None => query,
            Some(state) => query.bind(state.as_str()),
        };
        let rows = query.fetch_all(&mut *connection).await.map_err(fault)?;
        rows.iter().map(transfer).collect()
    }

    /// A job with its parts.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) async fn job(&self, id: JobId) -> Result<JobDetail, Fault> {
        Ok(self.stored_job(id).await?.with(None))
    }

    /// A job with its parts, as it is stored.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) async fn stored_job(&self, id: JobId) -> Result<StoredJob, Fault> {
        // One transaction, so that the parts are of one moment.
        let mut transaction = self.begin_reading().await?;
        let row = sqlx::query("SELECT * FROM jobs WHERE id = $1 AND deleted_at IS NULL")
            .bind(id.to_string())
            .fetch_optional(&mut *transaction)
            .await
            .map_err(fault)?;
        let row = row.ok_or_else(|| no_job(id))?;
        let mut transfers = sqlx::query(
            "SELECT * FROM transfers WHERE job_id = $1 AND position < $2 ORDER BY position",
        )
        .bind(id.to_string())
        .bind(i64::from(TRANSFERS_SHOWN))
        .fetch_all(&mut *transaction)
        .await
        .map_err(fault)?;
        let job = summary(&row)?;
        if job.transfers_count > TRANSFERS_SHOWN {
            let running = sqlx::query(
                "SELECT * FROM transfers WHERE job_id = $1 AND position >= $2
                 AND state = 'running' ORDER BY position LIMIT $2",
            )
            .bind(id.to_string())
            .bind(i64::from(TRANSFERS_SHOWN))
            .fetch_all(&mut *transaction)
            .await
            .map_err(fault)?;
            transfers.extend(running);
        }
        let failures = match job.started_at {
            None => Vec::new(),
            Some(_) => failures_of(&mut transaction, id, "", 0, FAILURES_SHOWN).await?,
        };
        let transitions =
            sqlx::query("SELECT * FROM transitions WHERE job_id = $1 ORDER BY number")
                .bind(id.to_string())
                .fetch_all(&mut *transaction)
                .await
                .map_err(fault)?;
        let detail = JobDetail {
            job,
            waits_for: None,
            failures,
            transfers: transfers.iter().map(transfer).collect::<Result<_, _>>()?,
            transitions: transitions
                .iter()
                .map(transition)
                .collect::<Result<_, _>>()?,
            webhook: webhook(&mut transaction, id).await?,
            curve: None,
        };
        Ok(StoredJob {
            detail,
            totals: totals(&row)?,
        })
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

    /// Jobs that a filter lets through and that are older than `after`, the newest first.
    pub(crate) async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<Vec<JobSummary>, Fault> {
        // Greater than all ids.
        let before = after.map_or_else(|| "~".to_owned(), |id| id.to_string());
        let JobFilter {
            owner,
            state,
            label,
        } = filter;
        // The text has numbers of parameters only.
        let query = sqlx::query(AssertSqlSafe(list_statement(filter)));
        let mut query = query.bind(before).bind(i64::from(limit));
        if let Some(owner) = owner {
            query = query.bind(owner);
        }
        if let Some(state) = state {
            query = query.bind(state.as_str());
        }
        if let Some(label) = label {
            query = query.bind(containing(label));
        }
        let rows = query.fetch_all(&self.pool).await.map_err(fault)?;
        rows.iter().map(summary).collect()
    }
}
