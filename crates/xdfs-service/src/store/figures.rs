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
        let oldest = sqlx::query(
            "SELECT submitted_at, starts_at FROM jobs
             WHERE state = 'queued' AND (starts_at IS NULL OR starts_at <= $1)
             ORDER BY id LIMIT 1",
        )
        .bind(Time::now().microseconds())
        .fetch_optional(&self.pool)
        .await
        .map_err(fault)?;
        if let Some(row) = oldest {
            let times = [time(&row, "submitted_at")?, time(&row, "starts_at")?];
            let times = times.into_iter().flatten();
            stored.oldest = times.max_by_key(|time| time.microseconds());
        }
        Ok(stored)
    }
}
