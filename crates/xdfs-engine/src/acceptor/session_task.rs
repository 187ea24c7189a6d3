//! The thread of a session, with the lines of its end in the log.

use std::time::Duration;

use xdfs_proto::Code;

use super::sessions::Registration;
use crate::environment::{Task, Turn};
use crate::kernel::Readiness;
use crate::pipeline::Pipeline;

/// A session's thread.
pub(super) struct SessionTask {
    pub(super) pipeline: Pipeline<Readiness>,
    pub(super) user: String,
    pub(super) peer: String,
    /// Dropped after the pipeline.
    pub(super) registration: Registration,
}

impl Task for SessionTask {
    fn turn(&mut self) -> Turn {
        let turn = self.pipeline.turn();
        if turn == Turn::Ended {
            let (id, peer, user) = (self.registration.id, &self.peer, &self.user);
            let channels = self.pipeline.most_channels();
            match self.pipeline.result() {
                Ok(()) => tracing::info!(session = %id, user, %peer, channels, "a session ends"),
                // Clients may leave whenever they like, and servers may end sessions.
                Err(fault) if is_usual(fault.code) => {
                    tracing::info!(session = %id, user, %peer, channels, %fault, "a session ends");
                }
                Err(fault) => {
                    tracing::warn!(session = %id, user, %peer, channels, %fault, "a session ends");
                }
            }
        }
        turn
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.pipeline.wait(timeout)
    }
}

/// Whether sessions end so without anything being wrong at the server.
fn is_usual(code: Code) -> bool {
    use Code::{Cancelled, ConnectionLost, ShuttingDown};
    matches!(code, ConnectionLost | Cancelled | ShuttingDown)
}
