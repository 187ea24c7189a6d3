//! States of jobs, as they are stored.

use sqlx::Row as _;
use xdfs::{Code, Fault};

use super::rows::{damaged, failure, text, time};
use super::{Connection, Row, fault};
use crate::id::JobId;
use crate::state::{State, StateName, WorkerId};

/// The fault of a job that isn't there.
pub(crate) fn no_job(id: JobId) -> Fault {
    Fault::new(Code::NotFound, "find the job", "there is none with this id").path(id.to_string())
}

/// A worker has lost its job to another process.
pub(super) fn lost(id: JobId) -> Fault {
    let cause = "the lease of this process has ended, and another one has the job";
    Fault::new(Code::LockLost, "keep the job", cause).path(id.to_string())
}

/// The state of a job; `None` if there is no such job.
pub(super) async fn state_of(
    connection: &mut Connection,
    id: JobId,
) -> Result<Option<State>, Fault> {
    let row = sqlx::query(
        "SELECT state, worker, failure, not_before FROM jobs
         WHERE id = $1 AND deleted_at IS NULL",
    )
    .bind(id.to_string())
    .fetch_optional(connection)
    .await
    .map_err(fault)?;
    row.as_ref().map(state).transpose()
}

/// The state of a job, which no other changes until the transaction has ended.
pub(super) async fn lock_state(
    connection: &mut Connection,
    id: JobId,
) -> Result<Option<State>, Fault> {
    if !is_sqlite(connection) {
        sqlx::query("SELECT id FROM jobs WHERE id = $1 FOR UPDATE")
            .bind(id.to_string())
            .fetch_optional(&mut *connection)
            .await
            .map_err(fault)?;
    }
    state_of(connection, id).await
}

/// Whether the database is SQLite, where a transaction that writes is the only one, and needs no
/// locks of rows.
pub(super) fn is_sqlite(connection: &Connection) -> bool {
    connection.backend_name() == "SQLite"
}

fn state(row: &Row) -> Result<State, Fault> {
    let worker: Option<String> = row.try_get("worker").map_err(fault)?;
    let name: StateName = text(row, "state")?.parse()?;
    let not_before = time(row, "not_before")?;
    let state = State::from_parts(name, worker.map(WorkerId), failure(row)?, not_before);
    state.ok_or_else(|| damaged("a state that is none"))
}
