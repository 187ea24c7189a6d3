//! The counts of a service since it was started.

use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;
use xdfs::metrics::Counter;
use xdfs::{Code, LimitedBy};

use crate::failure::Failure;

/// Classes of statuses of answers.
pub(crate) const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What has been counted since the service was started.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) bytes: Counter,
    pub(crate) files: Counter,
    pub(crate) entries_failed: Counter,
    pub(crate) succeeded: Counter,
    pub(crate) failed: Counter,
    pub(crate) retries: Counter,
    /// In the order of [`LimitedBy::ALL`].
    pub(crate) limited: [Counter; LimitedBy::ALL.len()],
    /// In the order of [`Code::ALL`].
    pub(crate) codes: Mutex<Vec<u64>>,
    /// In the order of [`STATUSES`].
    pub(crate) requests: [Counter; STATUSES.len()],
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
