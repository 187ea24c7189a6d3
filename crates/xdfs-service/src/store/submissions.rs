//! Jobs that are added.

use sqlx::AssertSqlSafe;
use xdfs::{Code, Fault};

use super::changes::{queue, write_transition};
use super::rows::{id, text};
use super::secrets::name_secrets;
use super::writing::Length;
use super::{Connection, Store, fault, odd, webhooks};
use crate::id::{JobId, ScheduleId};
use crate::spec::{Spec, Submission, Times};
use crate::state::{Actor, StateName};
use crate::time::Time;

/// The job of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub(crate) id: JobId,
    /// It was not there before: the key is new.
    pub(crate) is_new: bool,
}

/// A key by which a client submits a job once, and the digest of what it submits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idempotency<'a> {
    pub(crate) key: &'a str,
    pub(crate) digest: &'a str,
}

impl Idempotency<'_> {
    /// The refusal of a key that has submitted something else.
    pub(super) fn used() -> Fault {
        let cause = "another one was submitted with the same Idempotency-Key";
        let fault = Fault::new(Code::AlreadyExists, "submit the job", cause);
        fault.hint("use another key for another job")
    }
}

/// What is known of a job beside its submission.
pub(super) struct Terms<'a, S> {
    /// Its transfers.
    pub(super) specs: S,
    pub(super) times: Times,
    pub(super) owner: &'a str,
    /// The schedule that submits it.
    pub(super) schedule: Option<ScheduleId>,
}

/// Adds a job, which has been checked.
pub(super) async fn insert(
    connection: &mut Connection,
    submission: &Submission,
    Terms {
        mut specs,
        times,
        owner,
        schedule,
    }: Terms<'_, impl Iterator<Item = Result<Spec, Fault>> + Send>,
    at: Time,
) -> Result<JobId, Fault> {
    let id = JobId::new(at)?;
    let mut batch = next_batch(&mut specs)?;
    let first = batch
        .first()
        .ok_or_else(|| odd("a job without transfers"))?;
    let servers = &first.link;
    sqlx::query(
        "INSERT INTO jobs (id, owner, label, state, submitted_at, retries, retries_max,
         priority, starts_at, deadline, keep_until, schedule_id, manifest, source, target,
         source_server, target_server, queue, transfers_count, is_later)
         VALUES ($1, $2, $3, 'queued', $4, 0, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
         $16, $17, $18)",
    )
    .bind(id.to_string())
    .bind(owner)
    .bind(&submission.label)
    .bind(at.microseconds())
    .bind(i64::from(submission.retries_max))
    .bind(i64::from(submission.priority))
    .bind(times.starts_at.map(Time::microseconds))
    .bind(times.deadline.map(Time::microseconds))
    .bind(times.keep_until.map(Time::microseconds))
    .bind(schedule.map(|id| id.to_string()))
    .bind(i64::from(submission.manifest))
    .bind(&first.source)
    .bind(&first.target)
    .bind(&servers.source)
    .bind(&servers.target)
    .bind(queue(owner, servers))
    .bind(i64::try_from(batch.len()).map_err(odd)?)
    .bind(i64::from(times.starts_at > Some(at)))
    .execute(&mut *connection)
    .await
    .map_err(fault)?;
    let mut position = 0;
    let mut is_first = true;
    while !batch.is_empty() {
        is_first = position == 0;
        position = insert_transfers(connection, id, position, batch).await?;
        batch = next_batch(&mut specs)?;
    }
    if !is_first {
        sqlx::query("UPDATE jobs SET transfers_count = $2 WHERE id = $1")
            .bind(id.to_string())
            .bind(position)
            .execute(&mut *connection)
            .await
            .map_err(fault)?;
    }
    name_secrets(&mut *connection, id, &submission.secrets).await?;
    if let Some(url) = &submission.webhook {
        webhooks::add(&mut *connection, id, url).await?;
    }
    let (actor, reason) = match schedule {
        None => (Actor::User(owner.to_owned()), "submitted".to_owned()),
        Some(id) => (Actor::Service, format!("submitted by schedule {id}")),
    };
    let names = (None, StateName::Queued);
    write_transition(connection, id, at, &actor, names, &reason).await?;
    Ok(id)
}

/// Transfers that are added by one statement.
const BATCH: usize = 200;

fn next_batch(specs: &mut impl Iterator<Item = Result<Spec, Fault>>) -> Result<Vec<Spec>, Fault> {
    specs.by_ref().take(BATCH).collect()
}

/// Adds transfers from a position on. Returns the position after the last one.
async fn insert_transfers(
    connection: &mut Connection,
    id: JobId,
    position: i64,
    specs: Vec<Spec>,
) -> Result<i64, Fault> {
    let mut statement = String::from(
        "INSERT INTO transfers (job_id, position, kind, source, target, spec, state,
         attempts, bytes, files, failed, source_server, target_server) VALUES",
    );
    for row in 0..specs.len() {
        let first = 2 + row * 7;
        let comma = if row == 0 { "" } else { "," };
        statement.push_str(&format!(
            "{comma} ($1, ${}, ${}, ${}, ${}, ${}, 'waiting', 0, 0, 0, 0, ${}, ${})",
            first,
            first + 1,
            first + 2,
            first + 3,
            first + 4,
            first + 5,
            first + 6
        ));
    }
    // The text has numbers of parameters only.
    let mut query = sqlx::query(AssertSqlSafe(statement)).bind(id.to_string());
    let mut next = position;
    for spec in specs {
        query = query.bind(next).bind(spec.kind);
        query = query.bind(spec.source).bind(spec.target).bind(spec.text);
        query = query.bind(spec.link.source).bind(spec.link.target);
        next += 1;
    }
    query.execute(connection).await.map_err(fault)?;
    Ok(next)
}

impl Store {
    /// The job that a user has submitted with a key.
    ///
    /// # Errors
    /// Another job has the key.
    async fn submitted(
        &self,
        owner: &str,
        Idempotency { key, digest }: Idempotency<'_>,
    ) -> Result<Option<JobId>, Fault> {
        let row = sqlx::query(
            "SELECT job_id, digest FROM submissions WHERE owner = $1 AND idempotency_key = $2",
        )
        .bind(owner)
        .bind(key)
        .fetch_optional(&self.pool)
        .await
        .map_err(fault)?;
        let Some(row) = row else { return Ok(None) };
        if text(&row, "digest")? != digest {
            return Err(Idempotency::used());
        }
        id(&row, "job_id").map(Some)
    }

    /// Adds a job, unless there is one with the key.
    ///
    /// # Errors
    /// Something in it doesn't suit a service; or another job has the key.
    pub(crate) async fn submit(
        &self,
        submission: &Submission,
        owner: &str,
        idempotency: Option<Idempotency<'_>>,
    ) -> Result<Submitted, Fault> {
        let specs = submission.specs()?.into_iter().map(Ok);
        self.submit_in(Length::Short, submission, specs, owner, idempotency)
            .await
    }

    /// Adds a job with these transfers instead of its own, unless there is one with the key.
    ///
    /// # Errors
    /// A transfer can't be read; or another job has the key.
    pub(crate) async fn submit_all(
        &self,
        submission: &Submission,
        specs: impl Iterator<Item = Result<Spec, Fault>> + Send,
        owner: &str,
        idempotency: Option<Idempotency<'_>>,
    ) -> Result<Submitted, Fault> {
        self.submit_in(Length::Long, submission, specs, owner, idempotency)
            .await
    }

    async fn submit_in(
        &self,
        length: Length,
        submission: &Submission,
        specs: impl Iterator<Item = Result<Spec, Fault>> + Send,
        owner: &str,
        idempotency: Option<Idempotency<'_>>,
    ) -> Result<Submitted, Fault> {
        let at = Time::now();
        let times = submission.times(at)?;
        if let Some(idempotency) = idempotency
            && let Some(id) = self.submitted(owner, idempotency).await?
        {
            return Ok(Submitted { id, is_new: false });
        }
        let mut transaction = self.begin_of(length).await?;
        let terms = Terms {
            specs,
            times,
            owner,
            schedule: None,
        };
        let id = insert(&mut transaction, submission, terms, at).await?;
        if let Some(idempotency) = idempotency {
            // Of two requests at the same time the second one waits here for the first.
            let added = sqlx::query(
                "INSERT INTO submissions (owner, idempotency_key, digest, job_id)
                 VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            )
            .bind(owner)
            .bind(idempotency.key)
            .bind(idempotency.digest)
            .bind(id.to_string())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
            if added.rows_affected() == 0 {
                drop(transaction);
                let id = self.submitted(owner, idempotency).await?;
                let id = id.ok_or_else(|| odd("a key without a job"))?;
                return Ok(Submitted { id, is_new: false });
            }
        }
        transaction.commit().await?;
        Ok(Submitted { id, is_new: true })
    }
}
