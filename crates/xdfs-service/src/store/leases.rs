//! Leases: which processes run jobs, and what becomes of the jobs of one that has died.
//!
//! A lease is that of a process, and so of all of its workers; it is renewed by one statement.
//! Its times are those of the clock of PostgreSQL, so that those of the machines don't matter. A
//! worker locks its job before it writes something about it, and finds that it still has it.

use std::time::Duration;

use xdfs::{Code, Fault};

use super::changes::change_in;
use super::open::Engine;
use super::rows::id;
use super::states::{is_sqlite, lost};
use super::{Connection, Store, fault};
use crate::id::JobId;
use crate::state::{Actor, Change, ProcessId, WorkerId};

/// Locks a job that a worker has, until the transaction has ended.
///
/// # Errors
/// [`Code::LockLost`] if it has lost it.
pub(super) async fn hold(
    connection: &mut Connection,
    id: JobId,
    worker: &WorkerId,
) -> Result<(), Fault> {
    let statement = match is_sqlite(connection) {
        true => "SELECT id FROM jobs WHERE id = $1 AND worker = $2",
        false => "SELECT id FROM jobs WHERE id = $1 AND worker = $2 FOR UPDATE",
    };
    let held = sqlx::query(statement)
        .bind(id.to_string())
        .bind(worker.to_string())
        .fetch_optional(connection)
        .await
        .map_err(fault)?;
    held.map(drop).ok_or_else(|| lost(id))
}

fn microseconds(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl Store {
    /// Gives a process its lease. With SQLite no other one can have one: what stands there is of
    /// processes that have ended.
    pub(crate) async fn register(&self, process: &ProcessId, lease: Duration) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        let added = match self.engine {
            Engine::Sqlite => {
                sqlx::query("DELETE FROM processes")
                    .execute(&mut *transaction)
                    .await
                    .map_err(fault)?;
                sqlx::query("INSERT INTO processes (id, lease_until) VALUES ($1, $2)")
                    .bind(process.to_string())
                    .bind(i64::MAX)
            }
            Engine::Postgres => sqlx::query(
                "INSERT INTO processes (id, lease_until)
                 VALUES ($1, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) + $2)",
            )
            .bind(process.to_string())
            .bind(microseconds(lease)),
        };
        added.execute(&mut *transaction).await.map_err(fault)?;
        transaction.commit().await
    }

    /// Renews the lease of a process. Whether it still had one.
    pub(crate) async fn renew(&self, process: &ProcessId, lease: Duration) -> Result<bool, Fault> {
        let statement = match self.engine {
            Engine::Sqlite => {
                "UPDATE processes SET lease_until = lease_until + 0 * $2 WHERE id = $1"
            }
            Engine::Postgres => {
                "UPDATE processes SET lease_until =
                 CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) + $2 WHERE id = $1"
            }
        };
        let renewed = self
            .write(
                sqlx::query(statement)
                    .bind(process.to_string())
                    .bind(microseconds(lease)),
            )
            .await?;
        Ok(renewed.rows_affected() > 0)
    }

    /// Ends the lease of a process that has no job any more.
    pub(crate) async fn unregister(&self, process: &ProcessId) -> Result<(), Fault> {
        self.write(sqlx::query("DELETE FROM processes WHERE id = $1").bind(process.to_string()))
            .await?;
        Ok(())
    }

    /// Queues the jobs of processes that have no lease any more. Returns their ids.
    pub(crate) async fn take_over(&self) -> Result<Vec<JobId>, Fault> {
        let mut transaction = self.begin().await?;
        if self.engine == Engine::Postgres {
            sqlx::query(
                "DELETE FROM processes WHERE lease_until <
                 CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
            )
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        }
        let rows = sqlx::query(
            "SELECT id FROM jobs WHERE worker IS NOT NULL AND
             (process IS NULL OR process NOT IN (SELECT id FROM processes)) ORDER BY id",
        )
        .fetch_all(&mut *transaction)
        .await
        .map_err(fault)?;
        let mut taken = Vec::new();
        for row in &rows {
            let id = id(row, "id")?;
            let reason = "the service that ran it had ended";
            if release(&mut transaction, id, reason).await? {
                taken.push(id);
            }
        }
        transaction.commit().await?;
        Ok(taken)
    }

    /// Queues the jobs that a process has but doesn't know of: the answer to its claim was lost.
    pub(crate) async fn give_back(
        &self,
        process: &ProcessId,
        known: &[JobId],
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        for id in jobs_of(&mut transaction, process).await? {
            if !known.contains(&id) {
                release(&mut transaction, id, "its claim was lost").await?;
            }
        }
        transaction.commit().await
    }

    /// The jobs of a process that are to be stopped.
    pub(crate) async fn stopping(&self, process: &ProcessId) -> Result<Vec<JobId>, Fault> {
        let rows = sqlx::query(
            "SELECT id FROM jobs WHERE worker IS NOT NULL AND process = $1
             AND state <> 'running' ORDER BY id",
        )
        .bind(process.to_string())
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        rows.iter().map(|row| id(row, "id")).collect()
    }

    /// The jobs that workers of other processes have.
    pub(crate) async fn running_elsewhere(&self, process: &ProcessId) -> Result<Vec<JobId>, Fault> {
        let rows = sqlx::query(
            "SELECT id FROM jobs WHERE worker IS NOT NULL AND process <> $1 ORDER BY id",
        )
        .bind(process.to_string())
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        rows.iter().map(|row| id(row, "id")).collect()
    }
}

async fn jobs_of(connection: &mut Connection, process: &ProcessId) -> Result<Vec<JobId>, Fault> {
    let rows =
        sqlx::query("SELECT id FROM jobs WHERE worker IS NOT NULL AND process = $1 ORDER BY id")
            .bind(process.to_string())
            .fetch_all(connection)
            .await
            .map_err(fault)?;
    rows.iter().map(|row| id(row, "id")).collect()
}

/// Takes a job from its worker. Whether it had one.
async fn release(connection: &mut Connection, id: JobId, reason: &str) -> Result<bool, Fault> {
    let released = change_in(connection, id, Change::Stopped, &Actor::Service, reason).await;
    match released {
        Ok(after) => Ok(after.is_some()),
        // It has none any more.
        Err(fault) if matches!(fault.code, Code::Stale | Code::NotFound) => Ok(false),
        Err(fault) => Err(fault),
    }
}
