//! The files of jobs that keep a list of them.

use xdfs::{Code, Fault};

use super::rows::{damaged, signed, small, text, time, unsigned};
use super::states::{no_job, state_of};
use super::{Connection, Row, Store, fault};
use crate::id::JobId;
use crate::listed::{BLAKE3, Cursor, FilePath, JobFile, ListedTransfer, bytes_of};
use crate::state::StateName;
use crate::time::Time;

/// Most rows that are removed in one transaction.
const ROWS_MAX: i64 = 2000;

/// A transfer that has succeeded, and of whose files some have no row.
#[derive(Clone, Debug)]
pub(crate) struct Unlisted {
    pub(crate) position: u32,
    /// [`xdfs::Job::to_json`].
    pub(crate) text: String,
    /// The published path of the target.
    pub(crate) target: Option<Vec<u8>>,
    pub(crate) attempt: u32,
}

fn file(row: &Row) -> Result<JobFile, Fault> {
    let at = time(row, "at")?;
    let rate: Option<i64> = sqlx::Row::try_get(row, "rate").map_err(fault)?;
    Ok(JobFile {
        position: small(row, "position")?,
        path: FilePath::from_column(&text(row, "path")?).ok_or_else(|| damaged("no path"))?,
        bytes: unsigned(sqlx::Row::try_get(row, "bytes").map_err(fault)?),
        digest: Some(format!("{BLAKE3}{}", text(row, "blake3")?)),
        at: at.ok_or_else(|| damaged("a file without a time"))?,
        attempts: small(row, "attempts")?,
        rate_bytes_per_s: rate.map(unsigned),
        limited_by: sqlx::Row::try_get(row, "limited_by").map_err(fault)?,
    })
}

/// Whether a job keeps a list of its files.
pub(super) async fn has_manifest(connection: &mut Connection, id: JobId) -> Result<bool, Fault> {
    let row = sqlx::query("SELECT manifest FROM jobs WHERE id = $1")
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .map_err(fault)?;
    let flag = row.map(|row| small(&row, "manifest")).transpose()?;
    Ok(flag.is_some_and(|flag| flag != 0))
}

/// Files of a job that keeps a list of them, after the cursor.
pub(super) async fn listed_files(
    connection: &mut Connection,
    id: JobId,
    after: &Cursor,
    limit: u32,
) -> Result<Vec<JobFile>, Fault> {
    let rows = sqlx::query(
        "SELECT position, path, bytes, blake3, at, attempts, rate, limited_by
         FROM manifest_files WHERE job_id = $1 AND (position, path) > ($2, $3)
         ORDER BY position, path LIMIT $4",
    )
    .bind(id.to_string())
    .bind(i64::from(after.position))
    .bind(after.path.as_ref().map_or(String::new(), FilePath::column))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await
    .map_err(fault)?;
    rows.iter().map(file).collect()
}

impl Store {
    /// The number of the present attempt of a transfer.
    pub(crate) async fn attempt(&self, id: JobId, position: u32) -> Result<u32, Fault> {
        let row = sqlx::query("SELECT attempts FROM transfers WHERE job_id = $1 AND position = $2")
            .bind(id.to_string())
            .bind(i64::from(position))
            .fetch_one(&self.pool)
            .await
            .map_err(fault)?;
        small(&row, "attempts")
    }

    /// Adds files of an attempt, in the place of rows with the same paths.
    pub(crate) async fn add_files(
        &self,
        id: JobId,
        attempt: u32,
        files: &[JobFile],
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        for file in files {
            sqlx::query(
                "INSERT INTO manifest_files (job_id, position, path, bytes, blake3, at, attempt,
                 attempts, rate, limited_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                 ON CONFLICT (job_id, position, path) DO UPDATE SET bytes = excluded.bytes,
                 blake3 = excluded.blake3, at = excluded.at, attempt = excluded.attempt,
                 attempts = excluded.attempts, rate = excluded.rate,
                 limited_by = excluded.limited_by",
            )
            .bind(id.to_string())
            .bind(i64::from(file.position))
            .bind(file.path.column())
            .bind(signed(file.bytes))
            .bind(file.blake3().unwrap_or_default())
            .bind(file.at.microseconds())
            .bind(i64::from(attempt))
            .bind(i64::from(file.attempts))
            .bind(file.rate_bytes_per_s.map(signed))
            .bind(&file.limited_by)
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        }
        transaction.commit().await
    }

    /// The number of files of an attempt.
    pub(crate) async fn count_files(
        &self,
        id: JobId,
        position: u32,
        attempt: u32,
    ) -> Result<u64, Fault> {
        let row = sqlx::query(
            "SELECT COUNT(*) AS files FROM manifest_files
             WHERE job_id = $1 AND position = $2 AND attempt = $3",
        )
        .bind(id.to_string())
        .bind(i64::from(position))
        .bind(i64::from(attempt))
        .fetch_one(&self.pool)
        .await
        .map_err(fault)?;
        Ok(unsigned(sqlx::Row::try_get(&row, "files").map_err(fault)?))
    }

    /// Rows that may be missing: those of the attempts up to this one count no more.
    pub(crate) async fn distrust_files(
        &self,
        id: JobId,
        position: u32,
        attempt: u32,
    ) -> Result<(), Fault> {
        self.write(
            sqlx::query(
                "UPDATE transfers SET listed_from = $3 WHERE job_id = $1 AND position = $2",
            )
            .bind(id.to_string())
            .bind(i64::from(position))
            .bind(i64::from(attempt) + 1),
        )
        .await?;
        Ok(())
    }

    /// Succeeded transfers of a job of whose files some have no row.
    pub(crate) async fn unlisted(&self, id: JobId) -> Result<Vec<Unlisted>, Fault> {
        let rows = sqlx::query(
            "SELECT position, spec, target_path, attempts FROM transfers
             WHERE job_id = $1 AND state = 'succeeded' AND listed = 0 ORDER BY position",
        )
        .bind(id.to_string())
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        let unlisted = |row: &Row| {
            let target: Option<String> = sqlx::Row::try_get(row, "target_path").map_err(fault)?;
            Ok(Unlisted {
                position: small(row, "position")?,
                text: text(row, "spec")?,
                target: target.as_deref().and_then(bytes_of),
                attempt: small(row, "attempts")?,
            })
        };
        rows.iter().map(unlisted).collect()
    }

    /// Takes note that these paths were seen in an attempt. Returns those that have no row.
    pub(crate) async fn see_files(
        &self,
        id: JobId,
        (position, attempt): (u32, u32),
        paths: Vec<FilePath>,
    ) -> Result<Vec<FilePath>, Fault> {
        let mut transaction = self.begin().await?;
        let mut unknown = Vec::new();
        for path in paths {
            let seen = sqlx::query(
                "UPDATE manifest_files SET attempt = $4
                 WHERE job_id = $1 AND position = $2 AND path = $3 AND attempt >=
                 (SELECT listed_from FROM transfers WHERE job_id = $1 AND position = $2)",
            )
            .bind(id.to_string())
            .bind(i64::from(position))
            .bind(path.column())
            .bind(i64::from(attempt))
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
            if seen.rows_affected() == 0 {
                unknown.push(path);
            }
        }
        transaction.commit().await?;
        Ok(unknown)
    }

    /// All files of a transfer have a row. Those of earlier attempts, which are there no more, are
    /// removed.
    pub(crate) async fn end_list(
        &self,
        id: JobId,
        position: u32,
        attempt: u32,
    ) -> Result<(), Fault> {
        loop {
            let removed = self
                .write(
                    sqlx::query(
                        "DELETE FROM manifest_files WHERE job_id = $1 AND position = $2 AND path IN
                 (SELECT path FROM manifest_files
                  WHERE job_id = $1 AND position = $2 AND attempt < $3 LIMIT $4)",
                    )
                    .bind(id.to_string())
                    .bind(i64::from(position))
                    .bind(i64::from(attempt))
                    .bind(ROWS_MAX),
                )
                .await?;
            if removed.rows_affected() == 0 {
                break;
            }
        }
        self.write(
            sqlx::query("UPDATE transfers SET listed = 1 WHERE job_id = $1 AND position = $2")
                .bind(id.to_string())
                .bind(i64::from(position)),
        )
        .await?;
        Ok(())
    }

    /// Files of a job, in the order of their transfers and paths, after the cursor.
    ///
    /// # Errors
    /// There is no such job, or it keeps no list of its files.
    pub(crate) async fn files(
        &self,
        id: JobId,
        after: &Cursor,
        limit: u32,
    ) -> Result<Vec<JobFile>, Fault> {
        let mut connection = self.pool.acquire().await.map_err(fault)?;
        let state = state_of(&mut connection, id).await?;
        state.ok_or_else(|| no_job(id))?;
        if !has_manifest(&mut connection, id).await? {
            let cause = "the job keeps no list of its files";
            let fault = Fault::new(Code::NotFound, "list the files of the job", cause);
            return Err(fault
                .path(id.to_string())
                .hint("submit it with a manifest: xdfs submit --manifest"));
        }
        listed_files(&mut connection, id, after, limit).await
    }

    /// Transfers of a job from a position on.
    pub(crate) async fn listed_transfers(
        &self,
        id: JobId,
        from: u64,
        limit: u32,
    ) -> Result<Vec<ListedTransfer>, Fault> {
        let rows = sqlx::query(
            "SELECT position, kind, source, target FROM transfers
             WHERE job_id = $1 AND position >= $2 ORDER BY position LIMIT $3",
        )
        .bind(id.to_string())
        .bind(signed(from))
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        let listed = |row: &Row| {
            Ok(ListedTransfer {
                position: small(row, "position")?,
                kind: text(row, "kind")?,
                source: text(row, "source")?,
                target: text(row, "target")?,
            })
        };
        rows.iter().map(listed).collect()
    }

    /// Checks that a job has a manifest.
    ///
    /// # Errors
    /// There is no such job, it keeps no list of its files, or it hasn't succeeded.
    pub(crate) async fn check_manifest(&self, id: JobId) -> Result<Time, Fault> {
        self.files(id, &Cursor::default(), 1).await?;
        let job = self.job(id).await?.job;
        match (job.state, job.ended_at) {
            (StateName::Succeeded, Some(ended_at)) => Ok(ended_at),
            (state, _) => {
                let cause = format!("a job has one when it has succeeded, and it is {state}");
                Err(Fault::new(Code::Stale, "read the manifest", cause).path(id.to_string()))
            }
        }
    }
}
