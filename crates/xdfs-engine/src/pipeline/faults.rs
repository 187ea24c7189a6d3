//! Faults used by several modules of the pipeline.

use xdfs_proto::{Code, Fault, Retry};

/// The session refuses new work because it is shutting down.
pub(super) fn shutting_down(operation: &str) -> Fault {
    Fault::new(Code::ShuttingDown, operation, "the server is shutting down")
        .hint("run the same command again later to resume")
        .retry(Retry::AfterMs(1000))
}

/// Marks the fault of a transfer or call as ending the session if it does: a peer that shuts down
/// accepts nothing more.
pub(super) fn mark_session_end(fault: Fault) -> Fault {
    match fault.code {
        Code::ShuttingDown => fault.ending_session(),
        _ => fault,
    }
}
