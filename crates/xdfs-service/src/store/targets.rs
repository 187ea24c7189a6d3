//! The exact targets of trees.

use xdfs::Fault;

use super::{Store, fault};
use crate::id::JobId;
use crate::listed::{bytes_of, hex};

impl Store {
    /// The path of the target of a transfer, if it is settled.
    pub(crate) async fn target_path(
        &self,
        id: JobId,
        position: u32,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let row =
            sqlx::query("SELECT target_path FROM transfers WHERE job_id = $1 AND position = $2")
                .bind(id.to_string())
                .bind(i64::from(position))
                .fetch_one(&self.pool)
                .await
                .map_err(fault)?;
        let path: Option<String> = sqlx::Row::try_get(&row, "target_path").map_err(fault)?;
        Ok(path.as_deref().and_then(bytes_of))
    }

    /// Settles the path of the target of a transfer, and returns it: the first one that was given.
    pub(crate) async fn settle_target(
        &self,
        id: JobId,
        position: u32,
        path: &[u8],
    ) -> Result<Option<Vec<u8>>, Fault> {
        self.write(
            sqlx::query(
                "UPDATE transfers SET target_path = $3
             WHERE job_id = $1 AND position = $2 AND target_path IS NULL",
            )
            .bind(id.to_string())
            .bind(i64::from(position))
            .bind(hex(path)),
        )
        .await?;
        self.target_path(id, position).await
    }
}
