//! The database: jobs, their transfers and what has happened to them.
//!
//! Every change of a state is one transaction, with its row in `transitions`. A change is computed
//! by [`State::after`] from the state that the transaction has read.

mod rows;

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{Connection as _, Row as _, SqlSafeStr as _, Sqlite, SqlitePool, Transaction};
use xdfs::{Code, Fault};

use self::rows::{
    damaged, entry_failure, failure, failure_text, id, signed, small, summary, text, time,
    transfer, transition, unsigned,
};
use crate::failure::Failure;
use crate::id::JobId;
use crate::model::{Counts, EntryFailure, JobDetail, JobSummary, TransferState};
use crate::spec::Submission;
use crate::state::{Actor, Change, State, StateName, WorkerId};
use crate::time::Time;

const OPERATION: &str = "use the database of the service";
/// Time that a statement waits for another process, such as a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECTIONS_MAX: u32 = 8;
/// Entries that failed in a [`JobDetail`].
const FAILURES_SHOWN: u32 = 100;
/// A writer takes the lock at its beginning: a transaction that reads first may find that what it
/// read has changed.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// The database of a service.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pool: SqlitePool,
}

/// The job of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub(crate) id: JobId,
    /// It was not there before: the key is new.
    pub(crate) is_new: bool,
}

/// A key by which a client submits a job once, and the digest of what it submits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idempotency<'a> {
    pub(crate) key: &'a str,
    pub(crate) digest: &'a str,
}

/// A transfer that a worker is to do.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) position: u32,
    pub(crate) text: String,
    /// Bytes that had arrived by earlier attempts.
    pub(crate) bytes: u64,
}

/// The retries of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retries {
    /// In a row without progress.
    pub(crate) count: u32,
    pub(crate) max: u32,
}

/// The end of a transfer.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) counts: Counts,
    pub(crate) limited_by: Option<&'static str>,
    pub(crate) failure: Option<Failure>,
}

/// Makes the file of the database, if there is none: for its owner alone, as SQLite makes the files
/// beside it then.
fn make(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn fault(error: impl Display) -> Fault {
    Fault::new(Code::Io, OPERATION, error.to_string())
}

/// Entries of a job that failed, after the one with the number `after`.
async fn failures_of(
    connection: &mut SqliteConnection,
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
    .bind(limit)
    .fetch_all(connection)
    .await
    .map_err(fault)?;
    rows.iter().map(entry_failure).collect()
}

/// The state of a job; `None` if there is no such job.
async fn state_of(connection: &mut SqliteConnection, id: JobId) -> Result<Option<State>, Fault> {
    let row = sqlx::query("SELECT state, worker, failure, not_before FROM jobs WHERE id = $1")
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .map_err(fault)?;
    let Some(row) = row else { return Ok(None) };
    let worker: Option<String> = row.try_get("worker").map_err(fault)?;
    let name: StateName = text(&row, "state")?.parse()?;
    let not_before = time(&row, "not_before")?;
    let state = State::from_parts(name, worker.map(WorkerId), failure(&row)?, not_before);
    state
        .map(Some)
        .ok_or_else(|| damaged("a state that is none"))
}

/// Writes what has happened to a job.
async fn write_transition(
    connection: &mut SqliteConnection,
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

/// Changes the state of a job, and returns the state after it; `None` if there is nothing to
/// change.
async fn change_in(
    connection: &mut SqliteConnection,
    id: JobId,
    change: Change,
    actor: &Actor,
    reason: &str,
) -> Result<Option<State>, Fault> {
    let before = state_of(&mut *connection, id).await?;
    let before = before.ok_or_else(|| no_job(id))?;
    let is_retry = change == Change::Retry;
    let Some(after) = before.after(change)? else {
        return Ok(None);
    };
    let at = Time::now();
    let ended_at = after.name().is_end().then_some(at.microseconds());
    let started_at = matches!(after, State::Running(_)).then_some(at.microseconds());
    sqlx::query(
        "UPDATE jobs SET state = $2, worker = $3, failure = $4, ended_at = $5,
         started_at = COALESCE(started_at, $6), not_before = $7 WHERE id = $1",
    )
    .bind(id.to_string())
    .bind(after.name().as_str())
    .bind(after.worker().map(|WorkerId(name)| name.clone()))
    .bind(failure_text(after.failure())?)
    .bind(ended_at)
    .bind(started_at)
    .bind(after.not_before().map(Time::microseconds))
    .execute(&mut *connection)
    .await
    .map_err(fault)?;
    if before.worker().is_some() && after.worker().is_none() {
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
        sqlx::query("UPDATE jobs SET retries = 0 WHERE id = $1")
            .bind(id.to_string())
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
    }
    let names = (Some(before.name()), after.name());
    write_transition(connection, id, at, actor, names, reason).await?;
    Ok(Some(after))
}

fn no_job(id: JobId) -> Fault {
    Fault::new(Code::NotFound, "find the job", "there is none with this id").path(id.to_string())
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
    /// Opens the database in a file, makes it if there is none, and brings its schema up to date.
    ///
    /// # Errors
    /// It can't be opened, or its schema is that of a newer version.
    pub(crate) async fn open(path: &Path) -> Result<Self, Fault> {
        make(path).map_err(|error| {
            Fault::from_io(OPERATION, path.as_os_str().as_encoded_bytes(), &error)
        })?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .foreign_keys(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            // SQLite itself rolls back on a full disk, which sqlx doesn't notice: it would begin no
            // other transaction on the connection.
            .before_acquire(|connection, _| {
                let is_free = !connection.is_in_transaction();
                Box::pin(async move { Ok(is_free) })
            })
            .connect_with(options)
            .await
            .map_err(|error| fault(error).path(path.as_os_str().as_encoded_bytes()))?;
        let store = Self { pool };
        store.migrate().await?;
        Ok(store)
    }

    async fn migrate(&self) -> Result<(), Fault> {
        let migrations = vec![Migration::new(
            1,
            "jobs".into(),
            MigrationType::Simple,
            include_str!("../migrations/0001_jobs.sql").into_sql_str(),
            false,
        )];
        let migrated = Migrator::with_migrations(migrations).run(&self.pool).await;
        migrated.map_err(|error| match error {
            sqlx::migrate::MigrateError::VersionMissing(version) => {
                let cause = format!("its schema has version {version}, of a newer xdfs");
                Fault::new(Code::Unsupported, OPERATION, cause)
                    .hint("start the service with the version of xdfs that it had before")
            }
            error => fault(error),
        })
    }

    async fn begin(&self) -> Result<Transaction<'static, Sqlite>, Fault> {
        self.pool.begin_with(BEGIN).await.map_err(fault)
    }

    /// Ends the use of the database.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    /// Adds a job, unless there is one with the key.
    ///
    /// # Errors
    /// Something in it doesn't suit a service; or another job has the key.
    pub(crate) async fn submit(
        &self,
        submission: &Submission,
        owner: &str,
        idempotency: Option<Idempotency<'_>>,
    ) -> Result<Submitted, Fault> {
        let specs = submission.specs()?;
        let mut transaction = self.begin().await?;
        if let Some(Idempotency { key, digest }) = idempotency {
            let row = sqlx::query(
                "SELECT job_id, digest FROM submissions
                 WHERE owner = $1 AND idempotency_key = $2",
            )
            .bind(owner)
            .bind(key)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(fault)?;
            if let Some(row) = row {
                if text(&row, "digest")? != digest {
                    let cause = "another job was submitted with the same Idempotency-Key";
                    let fault = Fault::new(Code::AlreadyExists, "submit the job", cause);
                    return Err(fault.hint("use another key for another job"));
                }
                let id = id(&row, "job_id")?;
                return Ok(Submitted { id, is_new: false });
            }
        }
        let at = Time::now();
        let id = JobId::new(at)?;
        sqlx::query(
            "INSERT INTO jobs (id, owner, label, state, submitted_at, retries, retries_max)
             VALUES ($1, $2, $3, 'queued', $4, 0, $5)",
        )
        .bind(id.to_string())
        .bind(owner)
        .bind(&submission.label)
        .bind(at.microseconds())
        .bind(submission.retries_max)
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        for (position, spec) in (0_i64..).zip(specs) {
            sqlx::query(
                "INSERT INTO transfers (job_id, position, kind, source, target, spec, state,
                 attempts, bytes, files, failed)
                 VALUES ($1, $2, $3, $4, $5, $6, 'waiting', 0, 0, 0, 0)",
            )
            .bind(id.to_string())
            .bind(position)
            .bind(spec.kind)
            .bind(spec.source)
            .bind(spec.target)
            .bind(spec.text)
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        }
        if let Some(Idempotency { key, digest }) = idempotency {
            sqlx::query(
                "INSERT INTO submissions (owner, idempotency_key, digest, job_id)
                 VALUES ($1, $2, $3, $4)",
            )
            .bind(owner)
            .bind(key)
            .bind(digest)
            .bind(id.to_string())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        }
        let actor = Actor::User(owner.to_owned());
        let names = (None, StateName::Queued);
        write_transition(&mut transaction, id, at, &actor, names, "submitted").await?;
        transaction.commit().await.map_err(fault)?;
        Ok(Submitted { id, is_new: true })
    }

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
        transaction.commit().await.map_err(fault)?;
        Ok(after)
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

    /// Gives the oldest job that waits, and not for a later time, to a worker.
    pub(crate) async fn claim(&self, worker: &WorkerId) -> Result<Option<JobId>, Fault> {
        let mut transaction = self.begin().await?;
        let row = sqlx::query(
            "SELECT id FROM jobs WHERE state IN ('queued', 'retrying')
             AND (not_before IS NULL OR not_before <= $1) ORDER BY id LIMIT 1",
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

    /// The time at which the next job is tried again.
    pub(crate) async fn next_retry(&self) -> Result<Option<Time>, Fault> {
        let row = sqlx::query(
            "SELECT MIN(not_before) AS not_before FROM jobs
             WHERE state IN ('queued', 'retrying')",
        )
        .fetch_one(&self.pool)
        .await
        .map_err(fault)?;
        time(&row, "not_before")
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

    /// The transfers of a job that are to be done.
    pub(crate) async fn tasks(&self, id: JobId) -> Result<Vec<Task>, Fault> {
        let rows = sqlx::query(
            "SELECT position, spec, bytes FROM transfers WHERE job_id = $1 AND state = 'waiting'
             ORDER BY position",
        )
        .bind(id.to_string())
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        let task = |row: &SqliteRow| {
            Ok(Task {
                position: small(row, "position")?,
                text: text(row, "spec")?,
                bytes: unsigned(row.try_get("bytes").map_err(fault)?),
            })
        };
        rows.iter().map(task).collect()
    }

    /// A worker begins with a transfer. Entries that failed before are tried again.
    pub(crate) async fn begin_transfer(&self, id: JobId, position: u32) -> Result<(), Fault> {
        sqlx::query("DELETE FROM failures WHERE job_id = $1 AND position = $2")
            .bind(id.to_string())
            .bind(position)
            .execute(&self.pool)
            .await
            .map_err(fault)?;
        sqlx::query(
            "UPDATE transfers SET state = 'running', attempts = attempts + 1,
             started_at = COALESCE(started_at, $3) WHERE job_id = $1 AND position = $2",
        )
        .bind(id.to_string())
        .bind(position)
        .bind(Time::now().microseconds())
        .execute(&self.pool)
        .await
        .map_err(fault)?;
        Ok(())
    }

    /// Adds entries of a transfer that failed.
    pub(crate) async fn add_failures(
        &self,
        id: JobId,
        position: u32,
        failures: &[Failure],
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        for failure in failures {
            sqlx::query(
                "INSERT INTO failures (job_id, number, position, failure)
                 SELECT $1, COALESCE(MAX(number), 0) + 1, $2, $3 FROM failures WHERE job_id = $1",
            )
            .bind(id.to_string())
            .bind(position)
            .bind(failure_text(Some(failure))?)
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        }
        transaction.commit().await.map_err(fault)
    }

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

    /// Stores how far a transfer is.
    pub(crate) async fn progress(
        &self,
        id: JobId,
        position: u32,
        counts: &Counts,
    ) -> Result<(), Fault> {
        sqlx::query(
            "UPDATE transfers SET bytes = $3, bytes_total = $4, files = $5, failed = $6
             WHERE job_id = $1 AND position = $2",
        )
        .bind(id.to_string())
        .bind(position)
        .bind(signed(counts.bytes))
        .bind(counts.bytes_total.map(signed))
        .bind(signed(counts.files))
        .bind(signed(counts.failed))
        .execute(&self.pool)
        .await
        .map_err(fault)?;
        Ok(())
    }

    /// A transfer is to be tried again later. Its failure is that of the job until then.
    pub(crate) async fn postpone_transfer(
        &self,
        id: JobId,
        position: u32,
        counts: &Counts,
    ) -> Result<(), Fault> {
        self.progress(id, position, counts).await?;
        sqlx::query("UPDATE transfers SET state = 'waiting' WHERE job_id = $1 AND position = $2")
            .bind(id.to_string())
            .bind(position)
            .execute(&self.pool)
            .await
            .map_err(fault)?;
        Ok(())
    }

    /// A transfer has succeeded or failed.
    pub(crate) async fn end_transfer(
        &self,
        id: JobId,
        position: u32,
        end: &End,
    ) -> Result<(), Fault> {
        let state = match end.failure {
            None => TransferState::Succeeded,
            Some(_) => TransferState::Failed,
        };
        sqlx::query(
            "UPDATE transfers SET state = $3, failure = $4, limited_by = $5, ended_at = $6,
             bytes = $7, bytes_total = $8, files = $9, failed = $10
             WHERE job_id = $1 AND position = $2",
        )
        .bind(id.to_string())
        .bind(position)
        .bind(state.as_str())
        .bind(failure_text(end.failure.as_ref())?)
        .bind(end.limited_by)
        .bind(Time::now().microseconds())
        .bind(signed(end.counts.bytes))
        .bind(end.counts.bytes_total.map(signed))
        .bind(signed(end.counts.files))
        .bind(signed(end.counts.failed))
        .execute(&self.pool)
        .await
        .map_err(fault)?;
        Ok(())
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

    /// A job with its parts.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) async fn job(&self, id: JobId) -> Result<JobDetail, Fault> {
        // One transaction, so that the parts are of one moment.
        let mut transaction = self.pool.begin().await.map_err(fault)?;
        let row = sqlx::query(
            "SELECT *, 0 AS bytes, NULL AS bytes_total, 0 AS files, 0 AS failed,
             '' AS source, '' AS target, 0 AS transfers_count FROM jobs WHERE id = $1",
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
        };
        detail.update(None);
        Ok(detail)
    }

    /// Jobs, the newest first: those in a state, or all, that are older than `after`.
    pub(crate) async fn jobs(
        &self,
        state: Option<StateName>,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<Vec<JobSummary>, Fault> {
        // Greater than all ids.
        let before = after.map_or_else(|| "~".to_owned(), |id| id.to_string());
        let query = match state {
            None => sqlx::query(jobs_where!("id < $1")).bind(before).bind(limit),
            Some(state) => sqlx::query(jobs_where!("id < $1 AND state = $3"))
                .bind(before)
                .bind(limit)
                .bind(state.as_str()),
        };
        let rows = query.fetch_all(&self.pool).await.map_err(fault)?;
        rows.iter().map(summary).collect()
    }

    /// Remembers the session of a browser, by the digest of its cookie, and forgets old ones.
    pub(crate) async fn add_session(
        &self,
        cookie_digest: &str,
        owner: &str,
        ends_at: Time,
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        sqlx::query("DELETE FROM sessions WHERE ends_at < $1")
            .bind(Time::now().microseconds())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        sqlx::query("INSERT INTO sessions (cookie_digest, owner, ends_at) VALUES ($1, $2, $3)")
            .bind(cookie_digest)
            .bind(owner)
            .bind(ends_at.microseconds())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        transaction.commit().await.map_err(fault)
    }

    /// The owner of a session that hasn't ended.
    pub(crate) async fn session(&self, cookie_digest: &str) -> Result<Option<String>, Fault> {
        let row =
            sqlx::query("SELECT owner FROM sessions WHERE cookie_digest = $1 AND ends_at >= $2")
                .bind(cookie_digest)
                .bind(Time::now().microseconds())
                .fetch_optional(&self.pool)
                .await
                .map_err(fault)?;
        row.map(|row| text(&row, "owner")).transpose()
    }
}

#[cfg(test)]
mod tests;
