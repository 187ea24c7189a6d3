//! The metrics of the service: what is counted while it runs, and what the database says.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use xdfs::metrics::{Family, of_process, text};
use xdfs::{Code, Fault, LimitedBy};

use crate::shared::Shared;
use crate::state::StateName;
use crate::store::Stored;
use crate::tally::STATUSES;
use crate::time::Time;

pub(crate) use xdfs::metrics::CONTENT_TYPE as TYPE;

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
