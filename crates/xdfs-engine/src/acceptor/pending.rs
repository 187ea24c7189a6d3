//! Channels that do not belong to a session yet.

use std::io::IoSlice;
use std::time::Instant;

use xdfs_proto::frame::{Exception, Frame, Scope};
use xdfs_proto::{Fault, handshake};
use xdfs_xio::Stream;

use crate::security::{Proof, SessionGrant};

/// A channel that does not belong to a session yet.
pub(super) struct PendingChannel {
    pub(super) stream: Box<dyn Stream>,
    pub(super) machine: handshake::Acceptor,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) since: Instant,
    pub(super) answered: Option<Instant>,
    /// Bytes counted against [`HELD_MAX`].
    pub(super) held: usize,
    pub(super) proof: Option<Box<dyn Proof>>,
    pub(super) grant: Option<SessionGrant>,
}

impl PendingChannel {
    /// Sends pending output, as far as the stream accepts it.
    pub(super) fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write_vectored(&[IoSlice::new(&self.output)]) {
                Ok(n) => {
                    self.output.drain(..n);
                }
                // The rest is sent with later output; a closed connection shows up on reading.
                Err(_) => return,
            }
        }
        // A driver may hold what was written, and a failure shows up on reading.
        let _ = self.stream.flush();
    }

    pub(super) fn refuse(&mut self, fault: Fault) {
        Frame::Exception(Exception {
            scope: Scope::Channel,
            fault,
        })
        .encode(&mut self.output);
    }

    pub(super) fn answer_refusal(&mut self, fault: Fault) {
        xdfs_proto::opening::Answer::Refused(fault).encode(&mut self.output);
    }

    pub(super) fn close(mut self) {
        self.flush();
        // Pending output, with the reason, is sent by the socket before the end of the stream.
        let _ = self.stream.close();
    }
}
