//! The files of trees whose job keeps no list for a manifest, as their copies reported them: many
//! in each row.

use xdfs::Fault;

use super::manifests::{has_manifest, listed_files};
use super::rows::{damaged, signed, small, text};
use super::states::{no_job, state_of};
use super::{Row, Store, fault, odd};
use crate::id::JobId;
use crate::listed::{Cursor, FilePath, JobFile};
use crate::time::Time;

/// A file in a row: its path, bytes, digest, time, rate and the limit of that.
type Packed = (
    String,
    u64,
    Option<String>,
    i64,
    Option<u64>,
    Option<String>,
);

/// The files of a row.
fn unpack(row: &Row) -> Result<Vec<JobFile>, Fault> {
    let bad = || damaged("files that are none");
    let packed: Vec<Packed> = serde_json::from_str(&text(row, "files")?).map_err(|_| bad())?;
    let (position, attempts) = (small(row, "position")?, small(row, "attempt")?);
    let file = |(path, bytes, digest, at, rate_bytes_per_s, limited_by): Packed| {
        Some(JobFile {
            position,
            path: FilePath::from_column(&path)?,
            bytes,
            digest,
            at: Time::from_microseconds(at),
            attempts,
            rate_bytes_per_s,
            limited_by,
        })
    };
    packed
        .into_iter()
        .map(|one| file(one).ok_or_else(bad))
        .collect()
}

impl Store {
    /// Adds files that have arrived in an attempt of a transfer.
    pub(crate) async fn add_batch(
        &self,
        id: JobId,
        (position, attempt): (u32, u32),
        files: &[JobFile],
    ) -> Result<(), Fault> {
        let pack = |file: &JobFile| -> Packed {
            (
                file.path.column(),
                file.bytes,
                file.digest.clone(),
                file.at.microseconds(),
                file.rate_bytes_per_s,
                file.limited_by.clone(),
            )
        };
        let packed: Vec<_> = files.iter().map(pack).collect();
        self.write(
            sqlx::query(
                "INSERT INTO file_batches (job_id, number, position, attempt, files)
                 SELECT $1, COALESCE(MAX(number), -1) + 1, $2, $3, $4 FROM file_batches
                 WHERE job_id = $1",
            )
            .bind(id.to_string())
            .bind(i64::from(position))
            .bind(i64::from(attempt))
            .bind(serde_json::to_string(&packed).map_err(odd)?),
        )
        .await?;
        Ok(())
    }

    /// A page of the files of a job, after the cursor: those of its list in the order of their
    /// transfers and paths, or those that its copies reported, in the order in which they arrived.
    /// With it the cursor of the next page, if there are more.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) async fn page_of_files(
        &self,
        id: JobId,
        after: &Cursor,
        limit: u32,
    ) -> Result<(Vec<JobFile>, Option<Cursor>), Fault> {
        let mut connection = self.pool.acquire().await.map_err(fault)?;
        let state = state_of(&mut connection, id).await?;
        state.ok_or_else(|| no_job(id))?;
        let room = limit as usize;
        if has_manifest(&mut connection, id).await? {
            let mut files = listed_files(&mut connection, id, after, limit + 1).await?;
            let has_more = files.len() > room;
            files.truncate(room);
            let next = files.last().filter(|_| has_more).map(Cursor::after);
            return Ok((files, next));
        }
        let (mut number, mut index) = after.in_batches();
        let mut files = Vec::new();
        loop {
            let row = sqlx::query(
                "SELECT number, position, attempt, files FROM file_batches
                 WHERE job_id = $1 AND number >= $2 ORDER BY number LIMIT 1",
            )
            .bind(id.to_string())
            .bind(signed(number))
            .fetch_optional(&mut *connection)
            .await
            .map_err(fault)?;
            let Some(row) = row else {
                return Ok((files, None));
            };
            let found = small(&row, "number")?;
            if u64::from(found) != number {
                index = 0;
            }
            let batch = unpack(&row)?;
            for (at, file) in (0_u32..).zip(batch).skip(index as usize) {
                if files.len() == room {
                    return Ok((files, Some(Cursor::in_batch(found, at))));
                }
                files.push(file);
            }
            (number, index) = (u64::from(found) + 1, 0);
        }
    }
}
