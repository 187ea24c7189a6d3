//! The metrics of the service: what is counted while it runs, and what the database says.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use xdfs::metrics::{Counter, Family, of_process, text};
use xdfs::{Code, Fault, LimitedBy};

use crate::failure::Failure;
use crate::shared::Shared;
use crate::state::StateName;
use crate::time::Time;

pub(crate) use xdfs::metrics::CONTENT_TYPE as TYPE;

/// Classes of statuses of answers.
const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What has been counted since the service was started.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    bytes: Counter,
    files: Counter,
    entries_failed: Counter,
    succeeded: Counter,
    failed: Counter,
    retries: Counter,
    /// In the order of [`LimitedBy::ALL`].
    limited: [Counter; LimitedBy::ALL.len()],
    /// In the order of [`Code::ALL`].
    codes: Mutex<Vec<u64>>,
    /// In the order of [`STATUSES`].
    requests: [Counter; STATUSES.len()],
}

/// What a transfer has moved in this attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    pub(crate) failed: u64,
}

impl Tally {
    /// A transfer has moved more: `now` instead of `before`.
    pub(crate) fn moved(&self, before: Moved, now: Moved) {
        self.bytes.add(now.bytes.saturating_sub(before.bytes));
        self.files.add(now.files.saturating_sub(before.files));
        let failed = now.failed.saturating_sub(before.failed);
        self.entries_failed.add(failed);
    }

    /// A transfer has ended for good.
    pub(crate) fn ended(&self, limited_by: Option<&str>, failure: Option<&Failure>) {
        match failure {
            None => self.succeeded.add(1),
            Some(failure) => {
                self.failed.add(1);
                self.code(failure);
            }
        }
        let all = LimitedBy::ALL.iter();
        let at = limited_by.and_then(|name| all.clone().position(|by| by.as_str() == name));
        if let Some(at) = at {
            self.limited[at].add(1);
        }
    }

    /// A transfer is to be tried again.
    pub(crate) fn postponed(&self, failure: &Failure) {
        self.retries.add(1);
        self.code(failure);
    }

    fn code(&self, failure: &Failure) {
        let at = Code::ALL.iter().position(|c| c.as_str() == failure.code);
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.resize(Code::ALL.len(), 0);
        // Any other is a bug somewhere.
        codes[at.unwrap_or(0)] += 1;
    }

    /// A request was answered.
    pub(crate) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        if let Some(counter) = class.checked_sub(1).and_then(|at| self.requests.get(at)) {
            counter.add(1);
        }
    }
}

/// What the database says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// The number of jobs in each state that has any.
    pub(crate) jobs: Vec<(StateName, u64)>,
    /// When the oldest job was submitted that waits for a worker.
    pub(crate) oldest: Option<Time>,
}

/// The text of all metrics, as they are now.
///
/// # Errors
/// The database can't be read.
pub(crate) async fn metrics(shared: &Shared) -> Result<String, Fault> {
    let began = Instant::now();
    let stored = shared.store.stored().await?;
    let took = began.elapsed();
    let mut families = families(shared, &stored, took);
    families.extend(of_process());
    Ok(text(families))
}

fn families(shared: &Shared, stored: &Stored, took: Duration) -> Vec<Family> {
    let tally = &shared.live.tally;
    let (running, rate) = shared.live.running();
    let waits = stored.oldest.map_or(0, |at| {
        let age = Time::now().microseconds().saturating_sub(at.microseconds());
        // The clock may have been set back.
        u64::try_from(age).unwrap_or(0)
    });
    let jobs = StateName::ALL.into_iter().fold(
        Family::gauge("xdfs_service_jobs", "Jobs in this state"),
        |family, state| {
            let of = stored.jobs.iter().find(|(name, _)| *name == state);
            let count = of.map_or(0, |(_, count)| *count);
            family.with(&[("state", state.as_str())], count)
        },
    );
    let codes = tally.codes.lock().unwrap_or_else(PoisonError::into_inner);
    let failures = Code::ALL.iter().zip(codes.iter()).fold(
        Family::counter(
            "xdfs_service_failures",
            "Attempts of transfers that failed, by the code of the fault",
        ),
        |family, (code, count)| match count {
            0 => family,
            _ => family.with(&[("code", code.as_str())], *count),
        },
    );
    drop(codes);
    let limited = LimitedBy::ALL.iter().zip(&tally.limited).fold(
        Family::counter(
            "xdfs_service_transfers_limited",
            "Transfers that have ended, by what limited their rate",
        ),
        |family, (by, count)| family.with(&[("limited_by", by.as_str())], count.get()),
    );
    let requests = STATUSES.iter().zip(&tally.requests).fold(
        Family::counter(
            "xdfs_service_requests",
            "Requests that were answered, by the class of the status",
        ),
        |family, (status, count)| family.with(&[("status", status)], count.get()),
    );
    vec![
        jobs,
        Family::gauge(
            "xdfs_service_queue_oldest_seconds",
            "Age of the oldest job that waits for a worker, or 0",
        )
        .with(&[], Duration::from_micros(waits).as_secs_f64()),
        Family::gauge("xdfs_service_transfers_running", "Transfers that run").with(&[], running),
        Family::gauge(
            "xdfs_service_bytes_per_second",
            "Content that arrives in a second, over all running transfers",
        )
        .with(&[], rate),
        Family::counter(
            "xdfs_service_content_bytes",
            "Content of files that has arrived, without what was there already",
        )
        .with(&[], tally.bytes.get()),
        Family::counter("xdfs_service_files", "Files that have arrived")
            .with(&[], tally.files.get()),
        Family::counter(
            "xdfs_service_entries_failed",
            "Entries of trees that failed",
        )
        .with(&[], tally.entries_failed.get()),
        Family::counter(
            "xdfs_service_transfers",
            "Transfers that have ended for good",
        )
        .with(&[("result", "succeeded")], tally.succeeded.get())
        .with(&[("result", "failed")], tally.failed.get()),
        limited,
        Family::counter(
            "xdfs_service_retries",
            "Attempts of transfers that failed and are tried again",
        )
        .with(&[], tally.retries.get()),
        failures,
        requests,
        Family::gauge(
            "xdfs_service_database_seconds",
            "Time that the database took for the figures of this answer",
        )
        .with(&[], took.as_secs_f64()),
    ]
}
