//! Schedules, and the jobs that they submit.

use xdfs::{Code, Fault};

use super::rows::{failure_text, id, schedule, text, time};
use super::states::state_of;
use super::submissions::{Terms, insert};
use super::{Connection, Idempotency, Row, Store, fault, odd};
use crate::failure::Failure;
use crate::id::{JobId, ScheduleId};
use crate::model::Schedule;
use crate::rule::Rule;
use crate::spec::{ScheduleSubmission, Submission};
use crate::time::Time;

/// Most schedules that are looked at in one step.
const LOOK_MAX: i64 = 100;

/// The fault of a schedule that isn't there.
pub(crate) fn no_schedule(id: ScheduleId) -> Fault {
    let cause = "there is none with this id";
    Fault::new(Code::NotFound, "find the schedule", cause).path(id.to_string())
}

/// The time of a column that has one.
fn some_time(row: &Row, column: &str) -> Result<Time, Fault> {
    let time = time(row, column)?;
    time.ok_or_else(|| odd("a schedule without a time"))
}

/// Never again.
const NEVER: Time = Time::from_microseconds(i64::MAX);

/// Whether a job exists that hasn't ended.
async fn is_unfinished(connection: &mut Connection, id: JobId) -> Result<bool, Fault> {
    let state = state_of(connection, id).await?;
    Ok(state.is_some_and(|state| !state.name().is_end()))
}

/// Submits a job of a schedule.
async fn submit(
    connection: &mut Connection,
    schedule: ScheduleId,
    row: &Row,
    now: Time,
) -> Result<JobId, Fault> {
    let submission: Submission = serde_json::from_str(&text(row, "spec")?).map_err(|error| {
        let cause = format!("this version can't read it: {error}");
        Fault::new(Code::Unsupported, "submit the job", cause)
    })?;
    let terms = Terms {
        specs: submission.specs()?.into_iter().map(Ok),
        times: submission.times(now)?,
        owner: &text(row, "owner")?,
        schedule: Some(schedule),
    };
    insert(connection, &submission, terms, now).await
}

impl Store {
    /// Adds a schedule, unless there is one with the key. Returns whether it is new.
    ///
    /// # Errors
    /// Something in it doesn't suit a service; or another schedule has the key.
    pub(crate) async fn add_schedule(
        &self,
        submission: &ScheduleSubmission,
        owner: &str,
        digest: &str,
        key: Option<&str>,
    ) -> Result<(ScheduleId, bool), Fault> {
        let now = Time::now();
        let (_, first, specs) = submission.check(now)?;
        let (source, target) = match specs.first() {
            Some(spec) => (spec.source.as_str(), spec.target.as_str()),
            None => ("", ""),
        };
        let spec = serde_json::to_string(&submission.job).map_err(odd)?;
        let mut transaction = self.begin().await?;
        let row = sqlx::query(
            "SELECT id, digest FROM schedules WHERE owner = $1 AND idempotency_key = $2",
        )
        .bind(owner)
        .bind(key)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fault)?;
        if let Some(row) = row {
            if text(&row, "digest")? != digest {
                return Err(Idempotency::used());
            }
            return Ok((text(&row, "id")?.parse()?, false));
        }
        let id = ScheduleId::new(now)?;
        sqlx::query(
            "INSERT INTO schedules (id, owner, spec, label, source, target, rule,
             idempotency_key, digest, created_at, next_at, reckoned_at, submitted, skipped)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $10, 0, 0)",
        )
        .bind(id.to_string())
        .bind(owner)
        .bind(spec)
        .bind(&submission.job.label)
        .bind(source)
        .bind(target)
        .bind(&submission.every)
        .bind(key)
        .bind(digest)
        .bind(now.microseconds())
        .bind(first.microseconds())
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        transaction.commit().await?;
        Ok((id, true))
    }

    /// A schedule.
    ///
    /// # Errors
    /// There is no such schedule.
    pub(crate) async fn schedule(&self, id: ScheduleId) -> Result<Schedule, Fault> {
        let row = sqlx::query("SELECT * FROM schedules WHERE id = $1")
            .bind(id.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(fault)?;
        row.as_ref().map_or_else(|| Err(no_schedule(id)), schedule)
    }

    /// The owner of a schedule.
    ///
    /// # Errors
    /// There is no such schedule.
    pub(crate) async fn owner_of_schedule(&self, id: ScheduleId) -> Result<String, Fault> {
        let row = sqlx::query("SELECT owner FROM schedules WHERE id = $1")
            .bind(id.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(fault)?;
        text(&row.ok_or_else(|| no_schedule(id))?, "owner")
    }

    /// Schedules of an owner, or of all, the newest first, that are older than `after`.
    pub(crate) async fn schedules(
        &self,
        owner: Option<&str>,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> Result<Vec<Schedule>, Fault> {
        // Greater than all ids.
        let before = after.map_or_else(|| "~".to_owned(), |id| id.to_string());
        let rows = sqlx::query(
            "SELECT * FROM schedules WHERE id < $1 AND owner = COALESCE($3, owner)
             ORDER BY id DESC LIMIT $2",
        )
        .bind(before)
        .bind(i64::from(limit))
        .bind(owner)
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        rows.iter().map(schedule).collect()
    }

    /// Deletes a schedule. Its jobs stay.
    ///
    /// # Errors
    /// There is no such schedule.
    pub(crate) async fn delete_schedule(&self, id: ScheduleId) -> Result<(), Fault> {
        let deleted = self
            .write(sqlx::query("DELETE FROM schedules WHERE id = $1").bind(id.to_string()))
            .await?;
        match deleted.rows_affected() {
            0 => Err(no_schedule(id)),
            _ => Ok(()),
        }
    }

    /// The time at which the next schedule is due.
    pub(crate) async fn next_of_schedules(&self) -> Result<Option<Time>, Fault> {
        let row = sqlx::query("SELECT MIN(next_at) AS next_at FROM schedules")
            .fetch_one(&self.pool)
            .await
            .map_err(fault)?;
        time(&row, "next_at")
    }

    /// Submits the jobs of schedules that are due. Returns them.
    pub(crate) async fn submit_due(&self, now: Time) -> Result<Vec<JobId>, Fault> {
        self.reckon_again(now).await?;
        let mut submitted = Vec::new();
        loop {
            let rows = sqlx::query(
                "SELECT * FROM schedules WHERE next_at <= $1 ORDER BY next_at LIMIT $2",
            )
            .bind(now.microseconds())
            .bind(LOOK_MAX)
            .fetch_all(&self.pool)
            .await
            .map_err(fault)?;
            if rows.is_empty() {
                return Ok(submitted);
            }
            for row in &rows {
                submitted.extend(self.submit_of(row, now).await?);
            }
        }
    }

    /// Submits the job of a schedule that is due, unless its last one has not ended. Nothing if
    /// another process has done it.
    async fn submit_of(&self, row: &Row, now: Time) -> Result<Option<JobId>, Fault> {
        let schedule: ScheduleId = text(row, "id")?.parse()?;
        let due = some_time(row, "next_at")?;
        let rule = Rule::parse(&text(row, "rule")?);
        let next = rule.map(|rule| rule.next(due, now));
        let next_at = next.as_ref().ok().copied().flatten().unwrap_or(NEVER);
        let mut transaction = self.begin().await?;
        let taken = sqlx::query(
            "UPDATE schedules SET next_at = $3, reckoned_at = $4, failure = NULL
             WHERE id = $1 AND next_at = $2",
        )
        .bind(schedule.to_string())
        .bind(due.microseconds())
        .bind(next_at.microseconds())
        .bind(now.microseconds())
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        if taken.rows_affected() == 0 {
            return Ok(None);
        }
        let last: Option<JobId> = match sqlx::Row::try_get::<Option<String>, _>(row, "last_job") {
            Ok(Some(_)) => Some(id(row, "last_job")?),
            _ => None,
        };
        if let Some(last) = last
            && is_unfinished(&mut transaction, last).await?
        {
            sqlx::query(
                "UPDATE schedules SET skipped = skipped + 1, skipped_at = $2 WHERE id = $1",
            )
            .bind(schedule.to_string())
            .bind(due.microseconds())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
            transaction.commit().await?;
            tracing::info!(%schedule, job = %last, "skipped a time: the last job has not ended");
            return Ok(None);
        }
        let job = match next {
            Ok(_) => submit(&mut transaction, schedule, row, now).await,
            Err(fault) => Err(fault),
        };
        let job = match job {
            Ok(job) => job,
            // Of the job itself nothing was written yet.
            Err(refused) if refused.code != Code::Io => {
                tracing::error!(%schedule, fault = %refused, "the job of a schedule is refused");
                sqlx::query("UPDATE schedules SET failure = $2 WHERE id = $1")
                    .bind(schedule.to_string())
                    .bind(failure_text(Some(&Failure::from(&refused)))?)
                    .execute(&mut *transaction)
                    .await
                    .map_err(fault)?;
                transaction.commit().await?;
                return Ok(None);
            }
            Err(fault) => return Err(fault),
        };
        sqlx::query(
            "UPDATE schedules SET submitted = submitted + 1, last_job = $2, last_at = $3
             WHERE id = $1",
        )
        .bind(schedule.to_string())
        .bind(job.to_string())
        .bind(now.microseconds())
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        transaction.commit().await?;
        Ok(Some(job))
    }

    /// Reckons the next times again that come from a clock that was set back since.
    async fn reckon_again(&self, now: Time) -> Result<(), Fault> {
        let rows = sqlx::query(
            "SELECT * FROM schedules WHERE reckoned_at > $1 ORDER BY reckoned_at DESC LIMIT $2",
        )
        .bind(now.microseconds())
        .bind(LOOK_MAX)
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        for row in &rows {
            let schedule: ScheduleId = text(row, "id")?.parse()?;
            let (next, then) = (some_time(row, "next_at")?, some_time(row, "reckoned_at")?);
            let Ok(rule) = Rule::parse(&text(row, "rule")?) else {
                continue;
            };
            let again = rule.set_back(next, then, now).unwrap_or(NEVER);
            if again == next {
                continue;
            }
            tracing::warn!(%schedule, %again, "the clock was set back");
            self.write(
                sqlx::query(
                    "UPDATE schedules SET next_at = $3, reckoned_at = $4
                 WHERE id = $1 AND next_at = $2",
                )
                .bind(schedule.to_string())
                .bind(next.microseconds())
                .bind(again.microseconds())
                .bind(now.microseconds()),
            )
            .await?;
        }
        Ok(())
    }
}
