//! The bytes of jobs over time.

use xdfs::Fault;

use super::rows::{damaged, text};
use super::{Store, fault, odd};
use crate::curve::Curve;
use crate::id::JobId;

impl Store {
    /// The curve of a job, if it has one.
    pub(crate) async fn curve(&self, id: JobId) -> Result<Option<Curve>, Fault> {
        let row = sqlx::query("SELECT curve FROM curves WHERE job_id = $1")
            .bind(id.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(fault)?;
        let Some(row) = row else { return Ok(None) };
        let curve = serde_json::from_str(&text(&row, "curve")?);
        curve.map(Some).map_err(|_| damaged("a curve that is none"))
    }

    /// Stores the curve of a job.
    pub(crate) async fn set_curve(&self, id: JobId, curve: &Curve) -> Result<(), Fault> {
        self.write(
            sqlx::query(
                "INSERT INTO curves (job_id, curve) VALUES ($1, $2)
             ON CONFLICT (job_id) DO UPDATE SET curve = excluded.curve",
            )
            .bind(id.to_string())
            .bind(serde_json::to_string(curve).map_err(odd)?),
        )
        .await?;
        Ok(())
    }
}
