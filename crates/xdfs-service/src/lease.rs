//! The lease of this process: as long as it has one, no other process takes over its jobs.
//!
//! With SQLite the lock of the folder is the lease. With PostgreSQL it is renewed, and ends with
//! the process or with its way to the database. A process that can't renew it stops its jobs before
//! others may take them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::state::ProcessId;

/// The lease of this process.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Its length.
    pub(crate) length: Duration,
    /// The process, as long as it has a lease.
    process: Mutex<Option<ProcessId>>,
}

impl Lease {
    pub(crate) fn new(process: ProcessId, length: Duration) -> Self {
        let process = Mutex::new(Some(process));
        Self { length, process }
    }

    /// The process; `None` while it has no lease.
    pub(crate) fn process(&self) -> Option<ProcessId> {
        let process = self.process.lock();
        process.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, process: Option<ProcessId>) {
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = process;
    }
}
