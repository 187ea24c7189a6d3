//! The library as programs use it: transfers and calls that are awaited, queues, jobs, and the
//! examples.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something can't be done"
)]

mod awaited;
#[cfg(unix)]
mod cold;
mod examples;
mod jobs;
mod metrics;
#[cfg(unix)]
mod operations;
mod queue;
mod ranges;
#[cfg(unix)]
mod small_files;
#[cfg(unix)]
mod ssh;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod support;
