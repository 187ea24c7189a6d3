//! Faults used by several modules of the pipeline.

use std::fmt;

use xdfs_proto::{Code, Fault, Retry};

/// The session can't go on: its last channel broke, or no other one could be opened, for a `cause`.
pub(super) fn all_channels_lost(peer: impl fmt::Display, cause: &str) -> Fault {
    Fault::new(
        Code::ConnectionLost,
        format!("keep the connection to {peer}"),
        format!("it was lost ({cause})"),
    )
    .hint("run the same command again to resume")
    .retry(Retry::AfterMs(200))
}

/// Marks the fault of a transfer or call as ending the session if it does: a peer that shuts down
/// accepts nothing more.
pub(super) fn mark_session_end(fault: Fault) -> Fault {
    match fault.code {
        Code::ShuttingDown => fault.ending_session(),
        _ => fault,
    }
}
