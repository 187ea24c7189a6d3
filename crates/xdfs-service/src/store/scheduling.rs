//! What the scheduler decides from, and what follows from its decisions.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row as _};
use xdfs::{Code, Fault};

use super::changes::change_in;
use super::open::Engine;
use super::rows::{id, signed, small, text, time, unsigned};
use super::transfers::begin_next;
use super::{Connection, Retries, Row, Store, Task, fault, odd};
use crate::concurrency::{Concurrency, FIRST, MEASURED_OVER, Seen};
use crate::id::JobId;
use crate::model::{Decision, LinkState, ServerOutage};
use crate::scheduler::{Carried, Limits, Link, Outage, Plan, Running, Situation, Wait, Waiting};
use crate::state::{Actor, Change, ProcessId, WorkerId};
use crate::time::Time;

/// The pause before a server that is down is tried again; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Decisions that are kept of a link.
const DECISIONS_MAX: i64 = 50;
/// Jobs that are counted at most before one that waits: each answer about a job counts them.
const COUNTED_MAX: i64 = 1000;
/// A number by which processes take turns at the scheduler.
const TURN: i64 = 0x7864_6673;

/// A job that a worker has got.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) id: JobId,
    pub(crate) worker: WorkerId,
    pub(crate) owner: String,
    pub(crate) link: Link,
    /// Its server is known to be down.
    pub(crate) is_probe: bool,
    /// It keeps a list of its files.
    pub(crate) has_manifest: bool,
    /// A worker had it before.
    pub(crate) was_begun: bool,
    /// It names secrets, or its owner has some.
    pub(crate) has_secrets: bool,
    /// Its next transfer, which has begun with it.
    pub(crate) first: Option<Task>,
    pub(crate) retries: Retries,
}

/// The jobs at the head of each queue: those of one user on one link, large or not. Each queue is
/// found by a look at the index, since there may be many jobs and few queues. Those that wait for a
/// time aren't in this index before [`Store::take_due`] has put them there.
pub(super) const HEADS: &str = "
    WITH RECURSIVE queues (queue) AS (
        SELECT MIN(queue) FROM jobs
        WHERE worker IS NULL AND ended_at IS NULL AND state <> 'paused' AND is_later = 0
        UNION ALL
        SELECT (SELECT MIN(jobs.queue) FROM jobs
                WHERE worker IS NULL AND ended_at IS NULL AND state <> 'paused' AND is_later = 0
                AND jobs.queue > queues.queue)
        FROM queues WHERE queues.queue IS NOT NULL
    )
    SELECT id, owner, source_server, target_server, is_large, priority,
        COALESCE(not_before, starts_at) AS not_before
    FROM queues JOIN jobs ON jobs.id IN (
        SELECT id FROM jobs AS heads
        WHERE heads.queue = queues.queue AND heads.is_later = 0
        AND heads.worker IS NULL AND heads.ended_at IS NULL AND heads.state <> 'paused'
        AND (heads.not_before IS NULL OR heads.not_before <= $1)
        AND (heads.starts_at IS NULL OR heads.starts_at <= $1)
        ORDER BY heads.priority DESC, heads.id LIMIT 16)
    LIMIT 4096";

/// Jobs that waited for a time and are due at `$1`, at most `$2`.
pub(super) const DUE: &str = "
    SELECT id FROM jobs WHERE is_later = 1 AND COALESCE(not_before, starts_at) <= $1
    ORDER BY COALESCE(not_before, starts_at) LIMIT $2";
/// Most jobs that are put into their queues by one transaction.
const DUE_MAX: i64 = 1000;

/// The next time of a job or of a server that is down.
pub(super) const NEXT_TIME: &str = "
    SELECT MIN(at) AS at FROM (
        SELECT MIN(COALESCE(not_before, starts_at)) AS at FROM jobs
        WHERE worker IS NULL AND ended_at IS NULL AND state <> 'paused'
        AND COALESCE(not_before, starts_at) > $1
        UNION ALL SELECT MIN(try_at) AS at FROM outages WHERE try_at > $1) AS times";

/// The links between the servers of a user's jobs.
pub(super) const LINKS_OF: &str = "
    SELECT * FROM links WHERE EXISTS (SELECT 1 FROM jobs WHERE owner = $1
        AND jobs.source_server = links.source_server
        AND jobs.target_server = links.target_server AND deleted_at IS NULL)
    ORDER BY source_server, target_server";

/// The servers of a user's jobs that are down, under the names of [`Link::outages`].
pub(super) const OUTAGES_OF: &str = "
    WITH used (source, target) AS (
        SELECT DISTINCT source_server, target_server FROM jobs
        WHERE owner = $1 AND deleted_at IS NULL)
    SELECT server, failures, try_at, cause FROM outages WHERE server IN (
        SELECT source FROM used UNION SELECT target FROM used
        UNION SELECT source || ' -> ' || target FROM used) ORDER BY server";

fn link(row: &Row) -> Result<Link, Fault> {
    Ok(Link {
        source: text(row, "source_server")?,
        target: text(row, "target_server")?,
    })
}

fn is_set(row: &Row, column: &str) -> Result<bool, Fault> {
    let number: i64 = row.try_get(column).map_err(fault)?;
    Ok(number != 0)
}

fn waiting(row: &Row) -> Result<Waiting, Fault> {
    Ok(Waiting {
        id: id(row, "id")?,
        owner: text(row, "owner")?,
        link: link(row)?,
        priority: row.try_get("priority").map_err(fault)?,
        is_large: is_set(row, "is_large")?,
        not_before: time(row, "not_before")?,
    })
}

fn concurrency(row: &Row) -> Result<Concurrency, Fault> {
    let rate: Option<i64> = row.try_get("rate_before").map_err(fault)?;
    Ok(Concurrency {
        jobs: small(row, "jobs")?,
        rate_before: rate.map(unsigned),
        pause_until: time(row, "pause_until")?.ok_or_else(|| odd("a link without a time"))?,
        vain: small(row, "vain")?,
    })
}

/// What is there to decide from, as this process sees it.
async fn situation(
    connection: &mut Connection,
    process: &ProcessId,
    limits: Limits,
) -> Result<Situation, Fault> {
    let now = Time::now();
    let rows = sqlx::query(
        "SELECT id, owner, source_server, target_server, is_large, has_yielded, state, process,
         claimed_at FROM jobs WHERE worker IS NOT NULL",
    )
    .fetch_all(&mut *connection)
    .await
    .map_err(fault)?;
    let mut running = Vec::new();
    for row in &rows {
        let is_running = text(row, "state")? == "running";
        let its: Option<String> = row.try_get("process").map_err(fault)?;
        running.push(Running {
            id: id(row, "id")?,
            owner: text(row, "owner")?,
            link: link(row)?,
            is_large: is_set(row, "is_large")?,
            may_yield: is_running && !is_set(row, "has_yielded")?,
            is_here: its.as_ref() == Some(&process.0),
            since: time(row, "claimed_at")?.unwrap_or(now),
        });
    }
    let rows = sqlx::query(HEADS)
        .bind(now.microseconds())
        .fetch_all(&mut *connection)
        .await
        .map_err(fault)?;
    let waiting: Vec<_> = rows.iter().map(waiting).collect::<Result<_, _>>()?;
    let rows = sqlx::query("SELECT server, try_at, cause FROM outages")
        .fetch_all(&mut *connection)
        .await
        .map_err(fault)?;
    let mut outages = HashMap::new();
    for row in &rows {
        let try_at = time(row, "try_at")?.ok_or_else(|| odd("an outage without a time"))?;
        let cause = text(row, "cause")?;
        outages.insert(text(row, "server")?, Outage { try_at, cause });
    }
    let rows = sqlx::query("SELECT source_server, target_server, jobs FROM links")
        .fetch_all(&mut *connection)
        .await
        .map_err(fault)?;
    let mut links = HashMap::new();
    for row in &rows {
        links.insert(link(row)?, small(row, "jobs")?);
    }
    for job in &waiting {
        links.entry(job.link.clone()).or_insert(FIRST);
    }
    Ok(Situation {
        now,
        limits,
        links,
        outages,
        running,
        waiting,
    })
}

/// Locks a job that waits, so that it can be changed; `None` if it is changed already.
async fn lock_waiting(
    connection: &mut Connection,
    engine: Engine,
    id: JobId,
) -> Result<Option<Row>, Fault> {
    macro_rules! waiting_job {
        ($lock:literal) => {
            concat!(
                "SELECT id, owner, source_server, target_server, is_large, priority,
                 COALESCE(not_before, starts_at) AS not_before, manifest, started_at, retries,
                 retries_max, (SELECT COUNT(*) FROM job_secrets WHERE job_id = $1)
                     + (SELECT COUNT(*) FROM secrets WHERE secrets.owner = jobs.owner) AS secrets
                 FROM jobs
                 WHERE id = $1 AND state IN ('queued', 'retrying')",
                $lock
            )
        };
    }
    // A user may be about to change it; the others needn't wait for that.
    let statement = match engine {
        Engine::Sqlite => waiting_job!(""),
        Engine::Postgres => waiting_job!(" FOR UPDATE SKIP LOCKED"),
    };
    let row = sqlx::query(statement).bind(id.to_string());
    row.fetch_optional(connection).await.map_err(fault)
}

/// A running job makes place: it is stopped, and waits again.
async fn make_place(connection: &mut Connection, id: JobId, reason: &str) -> Result<(), Fault> {
    for change in [Change::Pause, Change::Resume] {
        change_in(&mut *connection, id, change, &Actor::Service, reason).await?;
    }
    sqlx::query("UPDATE jobs SET has_yielded = 1 WHERE id = $1")
        .bind(id.to_string())
        .execute(connection)
        .await
        .map_err(fault)?;
    Ok(())
}

impl Store {
    /// Gives jobs that wait to workers of a process, as the scheduler decides, and has one make
    /// place if it says so. Returns what was claimed, and the one that makes place.
    pub(crate) async fn claim(
        &self,
        process: &ProcessId,
        limits: Limits,
        number: &mut u64,
    ) -> Result<(Vec<Claimed>, Option<JobId>), Fault> {
        self.take_due().await?;
        loop {
            if let Some(claimed) = self.try_to_claim(process, limits, number).await? {
                return Ok(claimed);
            }
        }
    }

    /// Puts jobs that are due into their queues.
    async fn take_due(&self) -> Result<(), Fault> {
        let now = Time::now().microseconds();
        loop {
            // Mostly there are none, and nothing is to be written.
            let found = sqlx::query(DUE)
                .bind(now)
                .bind(DUE_MAX)
                .fetch_all(&self.pool)
                .await
                .map_err(fault)?;
            if found.is_empty() {
                return Ok(());
            }
            // Another process may be about to do the same, in another order.
            let lock = match self.engine {
                Engine::Sqlite => "",
                Engine::Postgres => " FOR UPDATE SKIP LOCKED",
            };
            let statement = format!("UPDATE jobs SET is_later = 0 WHERE id IN ({DUE}{lock})");
            let update = sqlx::query(AssertSqlSafe(statement))
                .bind(now)
                .bind(DUE_MAX);
            if self.write(update).await?.rows_affected() == 0 {
                return Ok(());
            }
        }
    }

    /// Does as [`Self::claim`]; `None` if what was decided is of no use, since others have changed
    /// the jobs meanwhile.
    async fn try_to_claim(
        &self,
        process: &ProcessId,
        limits: Limits,
        number: &mut u64,
    ) -> Result<Option<(Vec<Claimed>, Option<JobId>)>, Fault> {
        let mut begun = None;
        let situation = match self.engine {
            // Only this process starts jobs, so there is a place for them until its turn.
            Engine::Sqlite => {
                let mut transaction = self.begin_reading().await?;
                situation(&mut transaction, process, limits).await?
            }
            // Two at the same time would both take the last place.
            Engine::Postgres => {
                let mut transaction = self.begin().await?;
                sqlx::query("SELECT pg_advisory_xact_lock($1)")
                    .bind(TURN)
                    .execute(&mut *transaction)
                    .await
                    .map_err(fault)?;
                let situation = situation(&mut transaction, process, limits).await?;
                begun = Some(transaction);
                situation
            }
        };
        let Plan {
            start,
            mut makes_place,
            ..
        } = situation.plan();
        if start.is_empty() && makes_place.is_none() {
            return Ok(Some((Vec::new(), None)));
        }
        let mut transaction = match begun {
            Some(transaction) => transaction,
            None => self.begin().await?,
        };
        let mut claimed = Vec::new();
        let mut is_stale = false;
        for (id, reason) in start {
            let Some(row) = lock_waiting(&mut transaction, self.engine, id).await? else {
                is_stale = self.engine == Engine::Sqlite;
                continue;
            };
            let job = waiting(&row)?;
            *number += 1;
            let worker = process.worker(*number);
            let change = Change::Start(worker.clone());
            let actor = Actor::Worker(worker.clone());
            change_in(&mut transaction, id, change, &actor, &reason).await?;
            claimed.push(Claimed {
                id,
                first: begin_next(&mut transaction, id).await?,
                worker,
                owner: job.owner,
                is_probe: situation.is_down(&job.link),
                link: job.link,
                has_manifest: is_set(&row, "manifest")?,
                was_begun: time(&row, "started_at")?.is_some(),
                has_secrets: is_set(&row, "secrets")?,
                retries: Retries {
                    count: small(&row, "retries")?,
                    max: small(&row, "retries_max")?,
                },
            });
        }
        if let Some((id, reason)) = &makes_place {
            match make_place(&mut transaction, *id, reason).await {
                // It has just ended.
                Err(fault) if matches!(fault.code, Code::Stale | Code::NotFound) => {
                    makes_place = None;
                }
                made => made?,
            }
        }
        let makes_place = makes_place.map(|(id, _)| id);
        if !claimed.is_empty() || makes_place.is_some() {
            transaction.commit().await?;
        } else if is_stale {
            return Ok(None);
        }
        Ok(Some((claimed, makes_place)))
    }

    /// Why a job waits; `None` if it doesn't, or is about to start.
    pub(crate) async fn waits_for(
        &self,
        process: &ProcessId,
        limits: Limits,
        job: JobId,
    ) -> Result<Option<String>, Fault> {
        let mut transaction = self.begin_reading().await?;
        let row = sqlx::query(
            "SELECT id, owner, source_server, target_server, is_large, priority, queue,
             COALESCE(not_before, starts_at) AS not_before FROM jobs
             WHERE id = $1 AND state IN ('queued', 'retrying')",
        )
        .bind(job.to_string())
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fault)?;
        let Some(row) = row else { return Ok(None) };
        let this = waiting(&row)?;
        if let Some(time) = this.not_before.filter(|time| *time > Time::now()) {
            // The other jobs don't matter, and there may be many.
            return Ok(Some(Wait::Until(time).to_string()));
        }
        let (queue, priority) = (text(&row, "queue")?, this.priority);
        let (owner, link) = (this.owner.clone(), this.link.clone());
        let mut situation = situation(&mut transaction, process, limits).await?;
        if situation.waiting.iter().all(|one| one.id != job) {
            situation.waiting.push(this);
        }
        let wait = match situation.plan().waits.remove(&job) {
            Some(wait @ (Wait::Limit(..) | Wait::Kept(..))) => wait,
            wait => return Ok(wait.map(|wait| wait.to_string())),
        };
        let row = sqlx::query(
            "SELECT COUNT(*) AS count FROM (SELECT 1 AS one FROM jobs
             WHERE worker IS NULL AND ended_at IS NULL AND state <> 'paused' AND is_later = 0
             AND queue = $1 AND (priority > $2 OR priority = $2 AND id < $3) LIMIT $4) AS before",
        )
        .bind(queue)
        .bind(priority)
        .bind(job.to_string())
        .bind(COUNTED_MAX)
        .fetch_one(&mut *transaction)
        .await
        .map_err(fault)?;
        let before: i64 = row.try_get("count").map_err(fault)?;
        Ok(Some(match before {
            0 => wait.to_string(),
            COUNTED_MAX.. => {
                format!("{wait}; {before} or more jobs of {owner} on {link} come before it")
            }
            _ => format!("{wait}; {before} jobs of {owner} on {link} come before it"),
        }))
    }

    /// The first time after `since` at which a job may be due without a change.
    pub(crate) async fn next_time(&self, since: Time) -> Result<Option<Time>, Fault> {
        let row = sqlx::query(NEXT_TIME)
            .bind(since.microseconds())
            .fetch_one(&self.pool)
            .await
            .map_err(fault)?;
        time(&row, "at")
    }

    /// A worker couldn't reach the servers of a link.
    pub(crate) async fn note_outage(&self, link: &Link, cause: &str) -> Result<(), Fault> {
        let now = Time::now();
        let mut transaction = self.begin().await?;
        let server = link.outage();
        let row = sqlx::query("SELECT failures, try_at FROM outages WHERE server = $1")
            .bind(&server)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(fault)?;
        let failures = match &row {
            None => 0,
            // Several jobs that find the same are one failure.
            Some(row) if time(row, "try_at")? > Some(now) => return Ok(()),
            Some(row) => small(row, "failures")?,
        };
        let pause = PAUSE_FIRST.saturating_mul(1 << failures.min(16));
        sqlx::query(
            "INSERT INTO outages (server, failures, try_at, cause) VALUES ($1, $2, $3, $4)
             ON CONFLICT (server) DO UPDATE SET failures = excluded.failures,
             try_at = excluded.try_at, cause = excluded.cause",
        )
        .bind(&server)
        .bind(i64::from(failures) + 1)
        .bind(now.after(pause.min(PAUSE_MAX)).microseconds())
        .bind(cause)
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        transaction.commit().await
    }

    /// The servers of a link answer: their jobs needn't wait any longer.
    pub(crate) async fn end_outage(&self, link: &Link) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        let [source, target, both] = link.outages();
        sqlx::query("DELETE FROM outages WHERE server IN ($1, $2, $3)")
            .bind(&source)
            .bind(&target)
            .bind(both)
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        sqlx::query(
            "UPDATE jobs SET not_before = $1 WHERE state = 'retrying' AND not_before > $1
             AND source_server = $2 AND target_server = $3",
        )
        .bind(Time::now().microseconds())
        .bind(source)
        .bind(target)
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        transaction.commit().await
    }

    /// Adds bytes that were moved on a link, and decides about its concurrency, if its rate was
    /// measured for long enough. Whether more jobs may run.
    pub(crate) async fn measure(
        &self,
        process: &ProcessId,
        limits: Limits,
        moved: &BTreeMap<Link, Carried>,
    ) -> Result<bool, Fault> {
        let mut grown = false;
        let mut transaction = self.begin().await?;
        let mut seen = None;
        for (link, carried) in moved {
            let now = Time::now();
            let first = Concurrency::default();
            sqlx::query(
                "INSERT INTO links (source_server, target_server, jobs, pause_until, vain, bytes,
                 measured_at) VALUES ($1, $2, $3, $4, 0, 0, $5) ON CONFLICT DO NOTHING",
            )
            .bind(&link.source)
            .bind(&link.target)
            .bind(i64::from(first.jobs))
            .bind(first.pause_until.microseconds())
            .bind(now.microseconds())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
            let row = sqlx::query(
                "UPDATE links SET bytes = bytes + $3 WHERE source_server = $1 AND target_server = $2
                 RETURNING jobs, rate_before, pause_until, vain, bytes, measured_at",
            )
            .bind(&link.source)
            .bind(&link.target)
            .bind(signed(carried.bytes))
            .fetch_one(&mut *transaction)
            .await
            .map_err(fault)?;
            if let Some((_, limited_by)) = carried.largest {
                sqlx::query(
                    "UPDATE links SET limited_by = $3, limited_at = $4
                     WHERE source_server = $1 AND target_server = $2",
                )
                .bind(&link.source)
                .bind(&link.target)
                .bind(limited_by)
                .bind(now.microseconds())
                .execute(&mut *transaction)
                .await
                .map_err(fault)?;
            }
            let since = time(&row, "measured_at")?.unwrap_or(now);
            let seconds = now.seconds_since(since);
            if seconds < MEASURED_OVER.as_secs_f64() {
                continue;
            }
            let bytes: i64 = row.try_get("bytes").map_err(fault)?;
            let rate = rate(unsigned(bytes), seconds);
            if seen.is_none() {
                seen = Some(situation(&mut transaction, process, limits).await?);
            }
            let situation = seen.as_ref().ok_or_else(|| odd("no situation"))?;
            let before = concurrency(&row)?;
            let decided = before.after(Seen {
                now,
                rate,
                running: situation.running_on(link),
                is_waited_for: situation.is_waited_for(link),
                limit: limits.link,
            });
            let next = decided.as_ref().map_or(&before, |(next, _)| next);
            grown |= next.jobs > before.jobs;
            sqlx::query(
                "UPDATE links SET jobs = $3, rate_before = $4, pause_until = $5, vain = $6,
                 rate = $7, bytes = 0, measured_at = $8
                 WHERE source_server = $1 AND target_server = $2",
            )
            .bind(&link.source)
            .bind(&link.target)
            .bind(i64::from(next.jobs))
            .bind(next.rate_before.map(signed))
            .bind(next.pause_until.microseconds())
            .bind(i64::from(next.vain))
            .bind(signed(rate))
            .bind(now.microseconds())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
            if let Some((next, reason)) = &decided {
                decide(&mut transaction, link, now, next.jobs, reason).await?;
            }
        }
        transaction.commit().await?;
        Ok(grown)
    }

    /// The links of which something is known, with the last decisions about each, the newest first:
    /// those on which a user has jobs, or all.
    pub(crate) async fn links(&self, of: Option<&str>) -> Result<Vec<LinkState>, Fault> {
        let mut transaction = self.begin_reading().await?;
        let query = match of {
            None => sqlx::query("SELECT * FROM links ORDER BY source_server, target_server"),
            Some(owner) => sqlx::query(LINKS_OF).bind(owner),
        };
        let rows = query.fetch_all(&mut *transaction).await.map_err(fault)?;
        let mut links = Vec::new();
        for row in &rows {
            let link = link(row)?;
            let decisions = sqlx::query(
                "SELECT at, jobs, reason FROM link_decisions
                 WHERE source_server = $1 AND target_server = $2 ORDER BY number DESC",
            )
            .bind(&link.source)
            .bind(&link.target)
            .fetch_all(&mut *transaction)
            .await
            .map_err(fault)?;
            let decision = |row: &Row| {
                Ok(Decision {
                    at: time(row, "at")?.ok_or_else(|| odd("a decision without a time"))?,
                    jobs_max: small(row, "jobs")?,
                    reason: text(row, "reason")?,
                })
            };
            let rate: Option<i64> = row.try_get("rate").map_err(fault)?;
            links.push(LinkState {
                source: link.source,
                target: link.target,
                jobs_max: small(row, "jobs")?,
                rate_bytes_per_s: rate.map(unsigned),
                limited_by: row.try_get("limited_by").map_err(fault)?,
                limited_at: time(row, "limited_at")?,
                decisions: decisions
                    .iter()
                    .map(decision)
                    .collect::<Result<_, Fault>>()?,
            });
        }
        Ok(links)
    }

    /// The servers that are down: those of a user's jobs, or all.
    pub(crate) async fn outages(&self, of: Option<&str>) -> Result<Vec<ServerOutage>, Fault> {
        let query = match of {
            None => {
                sqlx::query("SELECT server, failures, try_at, cause FROM outages ORDER BY server")
            }
            Some(owner) => sqlx::query(OUTAGES_OF).bind(owner),
        };
        let rows = query.fetch_all(&self.pool).await.map_err(fault)?;
        let outage = |row: &Row| {
            Ok(ServerOutage {
                server: text(row, "server")?,
                failures: small(row, "failures")?,
                try_at: time(row, "try_at")?.ok_or_else(|| odd("an outage without a time"))?,
                cause: text(row, "cause")?,
            })
        };
        rows.iter().map(outage).collect()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a rate for a comparison"
)]
fn rate(bytes: u64, seconds: f64) -> u64 {
    (bytes as f64 / seconds) as u64
}

/// Stores a decision about a link, and forgets old ones.
async fn decide(
    connection: &mut Connection,
    link: &Link,
    at: Time,
    jobs: u32,
    reason: &str,
) -> Result<(), Fault> {
    sqlx::query(
        "INSERT INTO link_decisions (source_server, target_server, number, at, jobs, reason)
         SELECT $1, $2, COALESCE(MAX(number), 0) + 1, $3, $4, $5 FROM link_decisions
         WHERE source_server = $1 AND target_server = $2",
    )
    .bind(&link.source)
    .bind(&link.target)
    .bind(at.microseconds())
    .bind(i64::from(jobs))
    .bind(reason)
    .execute(&mut *connection)
    .await
    .map_err(fault)?;
    sqlx::query(
        "DELETE FROM link_decisions WHERE source_server = $1 AND target_server = $2
         AND number <= (SELECT MAX(number) FROM link_decisions
         WHERE source_server = $1 AND target_server = $2) - $3",
    )
    .bind(&link.source)
    .bind(&link.target)
    .bind(DECISIONS_MAX)
    .execute(connection)
    .await
    .map_err(fault)?;
    Ok(())
}
