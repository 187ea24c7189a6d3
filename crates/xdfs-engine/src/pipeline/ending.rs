//! Whether and how a session ends, and the refusal of new work from then on.

use std::time::Duration;

use xdfs_proto::{Code, Fault, Retry};

use crate::environment::Worker;

/// Whether and how a session ends.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// New files are refused; the session ends once it is idle.
    is_draining: bool,
    /// Deadline of the drain.
    until: Option<Duration>,
    /// The reason why the user of the session isn't admitted any more.
    withdrawn: Option<&'static str>,
    /// The result; the first one is kept.
    pub(super) result: Option<Result<(), Fault>>,
    /// The peer has ended it by an exception, and reads nothing any more.
    pub(super) is_by_peer: bool,
    /// Workers that are still ending.
    pub(super) workers: Vec<Worker>,
}

impl Ending {
    /// Ends the session once it is idle.
    pub(super) fn close(&mut self) {
        self.is_draining = true;
    }

    /// Ends the session once it is idle, or at `until`.
    pub(super) fn drain(&mut self, until: Duration) {
        self.is_draining = true;
        self.until = Some(until);
    }

    /// Ends the session at once, as its user isn't admitted any more.
    pub(super) fn withdraw(&mut self, now: Duration, why: &'static str) {
        self.drain(now);
        self.withdrawn = Some(why);
    }

    /// The refusal of new work, and the end of what is in progress.
    pub(super) fn refusal(&self, operation: &str) -> Fault {
        let (cause, hint) = match self.withdrawn {
            Some(why) => (why, "ask the administrator of the server"),
            None => (
                "the server is shutting down",
                "run the same command again later to resume",
            ),
        };
        Fault::new(Code::ShuttingDown, operation, cause)
            .hint(hint)
            .retry(Retry::AfterMs(1000))
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Whether the deadline of the drain has passed.
    pub(super) fn is_overdue(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.result.is_some()
    }
}
