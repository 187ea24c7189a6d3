//! A channel whose peer asks for a tunnel, and what it is answered.

use std::io::{self, IoSlice};
use std::sync::Arc;

use xdfs_proto::frame::{Exception, Frame, Scope, TunnelAccept, TunnelPurpose, TunnelRequest};
use xdfs_proto::tunnel::Action;
use xdfs_proto::{Code, Fault};
use xdfs_store::rate::SharedRate;
use xdfs_sys::poll::Token;
use xdfs_xio::Stream;

use super::OPEN_TUNNEL;
use crate::security::{Standing, TunnelEvent, TunnelOutcome, TunnelRights};

/// A channel whose peer asks for a tunnel.
pub(crate) struct HandedOver {
    pub(crate) stream: Box<dyn Stream>,
    /// Bytes read behind TUNNEL.
    pub(crate) input: Vec<u8>,
    /// Bytes of the opening exchange that aren't sent yet.
    pub(crate) output: Vec<u8>,
    pub(crate) rights: Arc<dyn TunnelRights>,
    pub(crate) standing: Option<Arc<dyn Standing>>,
    pub(crate) rate: Option<Arc<SharedRate>>,
    pub(crate) request: TunnelRequest,
}

impl HandedOver {
    /// Records the refusal, sends its reason to the peer and closes the channel.
    pub(super) fn refuse(self, fault: Fault) {
        self.record(TunnelOutcome::Refused(fault.code));
        refuse(self.stream, self.output, fault);
    }

    /// Says yes, and closes the channel.
    pub(super) fn affirm(mut self) {
        accept(&mut self.output, String::new());
        close(self.stream, self.output);
    }

    pub(super) fn action(&self) -> Action {
        action_of(self.request.purpose)
    }

    /// The answer to every request that the rules don't allow, whatever the reason.
    pub(super) fn forbidden(&self) -> Fault {
        let (what, by) = match self.action() {
            Action::Connect => ("target", "targets by [[tunnel.connect]]"),
            Action::Listen => ("port", "ports by [[tunnel.listen]]"),
        };
        let cause = format!("the server doesn't allow this user that {what}");
        Fault::new(Code::PermissionDenied, OPEN_TUNNEL, cause)
            .path(&self.request.target)
            .hint(format!(
                "its administrator allows {by} in its configuration"
            ))
    }

    pub(super) fn record(&self, outcome: TunnelOutcome) {
        record(&*self.rights, &self.request, outcome);
    }
}

/// Records what became of a request.
pub(super) fn record(rights: &dyn TunnelRights, request: &TunnelRequest, outcome: TunnelOutcome) {
    rights.record(&TunnelEvent {
        action: action_of(request.purpose),
        target: &request.target,
        outcome,
    });
}

fn action_of(purpose: TunnelPurpose) -> Action {
    match purpose {
        TunnelPurpose::Check | TunnelPurpose::Connect | TunnelPurpose::Join => Action::Connect,
        TunnelPurpose::Listen | TunnelPurpose::Take => Action::Listen,
    }
}

pub(super) fn accept(output: &mut Vec<u8>, address: String) {
    Frame::TunnelOk(TunnelAccept { address }).encode(output);
}

/// Sends the reason to the peer and closes the channel.
pub(super) fn refuse(stream: Box<dyn Stream>, mut output: Vec<u8>, fault: Fault) {
    tracing::debug!(peer = %stream.peer(), %fault, "a tunnel is refused");
    Frame::Exception(Exception {
        scope: Scope::Channel,
        fault,
    })
    .encode(&mut output);
    close(stream, output);
}

fn close(mut stream: Box<dyn Stream>, mut output: Vec<u8>) {
    // A fresh connection takes these few bytes at once; otherwise the peer sees its end only.
    let _ = write(&mut *stream, &mut output);
    let _ = stream.close();
}

/// Writes as much as the stream takes.
pub(super) fn write(stream: &mut dyn Stream, output: &mut Vec<u8>) -> io::Result<()> {
    while !output.is_empty() {
        let n = stream.write_vectored(&[IoSlice::new(output)])?;
        output.drain(..n);
    }
    stream.flush()
}

/// The token of a stream or listener of the tunnel `key`.
pub(super) fn token(key: u64, kind: usize) -> Token {
    Token(usize::try_from(key).unwrap_or(usize::MAX / 8) * 4 + kind)
}

/// The code of an error that ended a tunnel.
pub(super) fn code_of(error: &io::Error) -> Code {
    Fault::from_io(OPEN_TUNNEL, "", error).code
}
