//! Rows of the database as values, and numbers and failures as columns.

use sqlx::Row as _;
use xdfs::{Code, Fault};

use super::{OPERATION, Row, fault, odd};
use crate::failure::Failure;
use crate::id::{JobId, ScheduleId};
use crate::model::{
    Counts, EntryFailure, JobSummary, Schedule, Totals, Transfer, TransferState, Transition,
};
use crate::time::Time;

/// A row that isn't as the schema has it.
pub(super) fn damaged(what: &str) -> Fault {
    Fault::new(Code::Internal, OPERATION, format!("it has {what}"))
}

/// A number of the database, whose integers have a sign.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn time(row: &Row, column: &str) -> Result<Option<Time>, Fault> {
    let time: Option<i64> = row.try_get(column).map_err(fault)?;
    Ok(time.map(Time::from_microseconds))
}

pub(super) fn failure(row: &Row) -> Result<Option<Failure>, Fault> {
    let text: Option<String> = row.try_get("failure").map_err(fault)?;
    let failure = text.map(|text| serde_json::from_str(&text));
    failure
        .transpose()
        .map_err(|_| damaged("a failure that is none"))
}

pub(super) fn failure_text(failure: Option<&Failure>) -> Result<Option<String>, Fault> {
    failure.map(serde_json::to_string).transpose().map_err(odd)
}

pub(super) fn counts(row: &Row) -> Result<Counts, Fault> {
    let total: Option<i64> = row.try_get("bytes_total").map_err(fault)?;
    Ok(Counts {
        bytes: unsigned(row.try_get("bytes").map_err(fault)?),
        bytes_total: total.map(unsigned),
        files: unsigned(row.try_get("files").map_err(fault)?),
        failed: unsigned(row.try_get("failed").map_err(fault)?),
    })
}

pub(super) fn text(row: &Row, column: &str) -> Result<String, Fault> {
    row.try_get(column).map_err(fault)
}

pub(super) fn small(row: &Row, column: &str) -> Result<u32, Fault> {
    let number: i64 = row.try_get(column).map_err(fault)?;
    u32::try_from(number).map_err(odd)
}

fn priority(row: &Row) -> Result<i8, Fault> {
    let number: i64 = row.try_get("priority").map_err(fault)?;
    i8::try_from(number).map_err(odd)
}

pub(super) fn id(row: &Row, column: &str) -> Result<JobId, Fault> {
    text(row, column)?.parse()
}

fn schedule_id(row: &Row) -> Result<Option<ScheduleId>, Fault> {
    let id: Option<String> = row.try_get("schedule_id").map_err(fault)?;
    id.map(|id| id.parse()).transpose()
}

pub(super) fn schedule(row: &Row) -> Result<Schedule, Fault> {
    let some = |time: Option<Time>| time.ok_or_else(|| damaged("a schedule without a time"));
    let last_job: Option<String> = row.try_get("last_job").map_err(fault)?;
    Ok(Schedule {
        id: text(row, "id")?.parse()?,
        owner: text(row, "owner")?,
        label: text(row, "label")?,
        source: text(row, "source")?,
        target: text(row, "target")?,
        every: text(row, "rule")?,
        created_at: some(time(row, "created_at")?)?,
        next_at: some(time(row, "next_at")?)?,
        last_job: last_job.map(|id| id.parse()).transpose()?,
        last_at: time(row, "last_at")?,
        submitted: unsigned(row.try_get("submitted").map_err(fault)?),
        skipped: unsigned(row.try_get("skipped").map_err(fault)?),
        skipped_at: time(row, "skipped_at")?,
        failure: failure(row)?,
    })
}

/// What is known of the totals of a job's transfers.
pub(super) fn totals(row: &Row) -> Result<Totals, Fault> {
    Ok(Totals {
        bytes: unsigned(row.try_get("bytes_total").map_err(fault)?),
        count: small(row, "totals_count")?,
    })
}

/// The columns of a [`summary`]. The others, a third of all, are for the scheduler.
pub(super) const SUMMARY: &str = "id, owner, label, source, target, transfers_count, state, bytes, \
    bytes_total, totals_count, files, failed, failure, not_before, priority, starts_at, deadline, \
    keep_until, schedule_id, manifest, retries, submitted_at, started_at, ended_at";

pub(super) fn summary(row: &Row) -> Result<JobSummary, Fault> {
    let submitted_at = time(row, "submitted_at")?;
    let transfers_count = small(row, "transfers_count")?;
    let totals = totals(row)?;
    let counts = Counts {
        bytes_total: (totals.count == transfers_count).then_some(totals.bytes),
        ..counts(row)?
    };
    Ok(JobSummary {
        id: id(row, "id")?,
        owner: text(row, "owner")?,
        label: text(row, "label")?,
        source: text(row, "source")?,
        target: text(row, "target")?,
        transfers_count,
        state: text(row, "state")?.parse()?,
        counts,
        failure: failure(row)?,
        not_before: time(row, "not_before")?,
        priority: priority(row)?,
        starts_at: time(row, "starts_at")?,
        deadline: time(row, "deadline")?,
        keep_until: time(row, "keep_until")?,
        schedule: schedule_id(row)?,
        manifest: small(row, "manifest")? != 0,
        retries: small(row, "retries")?,
        submitted_at: submitted_at.ok_or_else(|| damaged("a job without a time"))?,
        started_at: time(row, "started_at")?,
        ended_at: time(row, "ended_at")?,
    })
}

pub(super) fn transfer(row: &Row) -> Result<Transfer, Fault> {
    let state = TransferState::from_name(&text(row, "state")?);
    let rate: Option<i64> = row.try_get("rate").map_err(fault)?;
    Ok(Transfer {
        position: small(row, "position")?,
        kind: text(row, "kind")?,
        source: text(row, "source")?,
        target: text(row, "target")?,
        state: state.ok_or_else(|| damaged("a transfer of no state"))?,
        attempts: small(row, "attempts")?,
        counts: counts(row)?,
        rate_bytes_per_s: None,
        mean_rate_bytes_per_s: rate.map(unsigned),
        limited_by: row.try_get("limited_by").map_err(fault)?,
        digest: row.try_get("digest").map_err(fault)?,
        failure: failure(row)?,
        started_at: time(row, "started_at")?,
        ended_at: time(row, "ended_at")?,
    })
}

pub(super) fn entry_failure(row: &Row) -> Result<EntryFailure, Fault> {
    let failure = failure(row)?;
    Ok(EntryFailure {
        number: unsigned(row.try_get("number").map_err(fault)?),
        position: small(row, "position")?,
        failure: failure.ok_or_else(|| damaged("an entry without a failure"))?,
    })
}

pub(super) fn transition(row: &Row) -> Result<Transition, Fault> {
    let from: Option<String> = row.try_get("from_state").map_err(fault)?;
    Ok(Transition {
        at: time(row, "at")?.ok_or_else(|| damaged("a transition without a time"))?,
        actor: text(row, "actor")?,
        from: from.map(|name| name.parse()).transpose()?,
        to: text(row, "to_state")?.parse()?,
        reason: text(row, "reason")?,
    })
}
