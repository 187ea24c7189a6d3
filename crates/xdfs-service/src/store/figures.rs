//! What the database says for the metrics.

use sqlx::Row as _;
use xdfs::Fault;

use super::rows::{text, time, unsigned};
use super::{Store, fault};
use crate::state::StateName;
use crate::time::Time;

/// The figures of the database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// The number of jobs in each state that has any.
    pub(crate) jobs: Vec<(StateName, u64)>,
    /// The time of submission of the oldest job that waits for a worker.
    pub(crate) oldest: Option<Time>,
}

/// Statements for the time since which the oldest job waits for a worker: of those without a time,
/// and of those that are due by `$1`. Those that are tried again have a `not_before`.
pub(super) const OLDEST: [&str; 2] = [
    "SELECT submitted_at AS since FROM jobs
     WHERE worker IS NULL AND ended_at IS NULL AND state <> 'paused'
     AND COALESCE(not_before, starts_at) IS NULL AND $1 > 0 ORDER BY id LIMIT 1",
    "SELECT MIN(COALESCE(not_before, starts_at)) AS since FROM jobs
     WHERE worker IS NULL AND ended_at IS NULL AND state <> 'paused'
     AND COALESCE(not_before, starts_at) <= $1 AND not_before IS NULL",
];

impl Store {
    /// The numbers of jobs, and since when the oldest waits for a worker.
    pub(crate) async fn stored(&self) -> Result<Stored, Fault> {
        let rows = sqlx::query(
            "SELECT state, COUNT(*) AS jobs FROM jobs WHERE deleted_at IS NULL GROUP BY state",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        let mut stored = Stored::default();
        for row in &rows {
            let state = text(row, "state")?.parse()?;
            let count = unsigned(row.try_get("jobs").map_err(fault)?);
            stored.jobs.push((state, count));
        }
        // Ids are in the order of submission. A job that is to start later doesn't wait before.
        let now = Time::now().microseconds();
        for statement in OLDEST {
            let row = sqlx::query(statement)
                .bind(now)
                .fetch_optional(&self.pool)
                .await
                .map_err(fault)?;
            let Some(row) = row else { continue };
            let since = time(&row, "since")?;
            stored.oldest = stored.oldest.into_iter().chain(since).min();
        }
        Ok(stored)
    }
}
