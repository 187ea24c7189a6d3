//! Webhooks of jobs, and how far their delivery is.

use sqlx::Row as _;
use xdfs::Fault;

use super::rows::{damaged, failure, failure_text, id, small, text, time};
use super::{Connection, Row, Store, fault};
use crate::failure::Failure;
use crate::id::JobId;
use crate::model::{Webhook, WebhookState};
use crate::time::Time;

/// A webhook that is to be sent now.
#[derive(Clone, Debug)]
pub(crate) struct DueWebhook {
    pub(crate) job: JobId,
    pub(crate) url: String,
    /// Attempts before this one.
    pub(crate) attempts: u32,
}

/// The end of an attempt to send a webhook.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    /// It has arrived.
    Delivered,
    /// It is tried again at this time.
    Again(Box<Failure>, Time),
    /// It isn't tried again.
    Failed(Box<Failure>),
}

/// Adds the webhook of a job.
pub(super) async fn add(connection: &mut Connection, id: JobId, url: &str) -> Result<(), Fault> {
    sqlx::query(
        "INSERT INTO webhooks (job_id, url, state, attempts) VALUES ($1, $2, 'waiting', 0)",
    )
    .bind(id.to_string())
    .bind(url)
    .execute(connection)
    .await
    .map_err(fault)?;
    Ok(())
}

/// The webhook of a job that has ended is due; that of one that is to be done again waits.
pub(super) async fn note_end(
    connection: &mut Connection,
    id: JobId,
    ended_at: Option<Time>,
) -> Result<(), Fault> {
    let state = match ended_at {
        Some(_) => WebhookState::Due,
        None => WebhookState::Waiting,
    };
    sqlx::query(
        "UPDATE webhooks SET state = $2, attempts = 0, next_attempt_at = $3, delivered_at = NULL,
         failure = NULL WHERE job_id = $1",
    )
    .bind(id.to_string())
    .bind(state.as_str())
    .bind(ended_at.map(Time::microseconds))
    .execute(connection)
    .await
    .map_err(fault)?;
    Ok(())
}

/// The webhook of a job.
pub(super) async fn webhook(
    connection: &mut Connection,
    id: JobId,
) -> Result<Option<Webhook>, Fault> {
    let row = sqlx::query("SELECT * FROM webhooks WHERE job_id = $1")
        .bind(id.to_string())
        .fetch_optional(connection)
        .await
        .map_err(fault)?;
    let read = |row: Row| {
        let state = WebhookState::from_name(&text(&row, "state")?);
        Ok(Webhook {
            url: text(&row, "url")?,
            state: state.ok_or_else(|| damaged("a webhook of no state"))?,
            attempts: small(&row, "attempts")?,
            next_attempt_at: time(&row, "next_attempt_at")?,
            delivered_at: time(&row, "delivered_at")?,
            failure: failure(&row)?,
        })
    };
    row.map(read).transpose()
}

impl Store {
    /// Takes a webhook that is due. Others may take it from `until` on, if this process is killed
    /// meanwhile.
    pub(crate) async fn take_webhook(
        &self,
        now: Time,
        until: Time,
    ) -> Result<Option<DueWebhook>, Fault> {
        let mut transaction = self.begin().await?;
        let row = sqlx::query(
            "SELECT webhooks.job_id, webhooks.url, webhooks.attempts, next_attempt_at
             FROM webhooks JOIN jobs ON jobs.id = webhooks.job_id
             WHERE webhooks.state = 'due' AND next_attempt_at <= $1 AND jobs.deleted_at IS NULL
             ORDER BY next_attempt_at LIMIT 1",
        )
        .bind(now.microseconds())
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fault)?;
        let Some(row) = row else { return Ok(None) };
        let job = id(&row, "job_id")?;
        let due: i64 = row.try_get("next_attempt_at").map_err(fault)?;
        let taken = sqlx::query(
            "UPDATE webhooks SET next_attempt_at = $3
             WHERE job_id = $1 AND state = 'due' AND next_attempt_at = $2",
        )
        .bind(job.to_string())
        .bind(due)
        .bind(until.microseconds())
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        transaction.commit().await?;
        if taken.rows_affected() == 0 {
            return Ok(None);
        }
        Ok(Some(DueWebhook {
            job,
            url: text(&row, "url")?,
            attempts: small(&row, "attempts")?,
        }))
    }

    /// The time at which the next webhook is due.
    pub(crate) async fn next_webhook(&self) -> Result<Option<Time>, Fault> {
        let row = sqlx::query(
            "SELECT MIN(next_attempt_at) AS next_attempt_at FROM webhooks WHERE state = 'due'",
        )
        .fetch_one(&self.pool)
        .await
        .map_err(fault)?;
        time(&row, "next_attempt_at")
    }

    /// Stores how an attempt has ended, unless the job was retried meanwhile.
    pub(crate) async fn end_attempt(
        &self,
        webhook: &DueWebhook,
        delivery: &Delivery,
    ) -> Result<(), Fault> {
        let (state, failure, next, delivered) = match delivery {
            Delivery::Delivered => (WebhookState::Delivered, None, None, Some(Time::now())),
            Delivery::Again(failure, at) => (WebhookState::Due, Some(&**failure), Some(*at), None),
            Delivery::Failed(failure) => (WebhookState::Failed, Some(&**failure), None, None),
        };
        self.write(
            sqlx::query(
                "UPDATE webhooks SET state = $3, attempts = attempts + 1, next_attempt_at = $4,
             delivered_at = $5, failure = $6
             WHERE job_id = $1 AND state = 'due' AND attempts = $2",
            )
            .bind(webhook.job.to_string())
            .bind(i64::from(webhook.attempts))
            .bind(state.as_str())
            .bind(next.map(Time::microseconds))
            .bind(delivered.map(Time::microseconds))
            .bind(failure_text(failure)?),
        )
        .await?;
        Ok(())
    }
}
