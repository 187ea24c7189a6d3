//! Faults that several parts of a session tell of.

use xdfs_proto::{Code, Fault, Retry};

/// The server takes nothing more.
pub(super) fn shutting_down(operation: &str) -> Fault {
    Fault::new(Code::ShuttingDown, operation, "the server is shutting down")
        .hint("run the same command again later to go on where it stopped")
        .retry(Retry::AfterMs(1000))
}

/// The fault of a transfer or a call, with whether its session goes on: a peer that shuts down
/// takes nothing more.
pub(super) fn mark_session_end(fault: Fault) -> Fault {
    match fault.code {
        Code::ShuttingDown => fault.ending_session(),
        _ => fault,
    }
}
