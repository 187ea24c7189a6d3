//! Systems without Unix sockets have no agent: commands open their own sessions.

use std::sync::Arc;

use xdfs::settings::Login;
use xdfs::{Client, Code, Fault, RemotePlace};

use crate::console::Console;
use crate::flags::{AgentCommand, OutputFlags};

/// Whether to start an agent that isn't there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    No,
    Yes,
}

/// A part in a session of an agent, which nobody has.
#[derive(Debug)]
pub(crate) enum AgentLease {}

impl AgentLease {
    /// Never called.
    pub(crate) fn explained(&self, _: &Fault) -> Option<Fault> {
        match *self {}
    }
}

/// Refuses `xdfs agent`.
pub(crate) fn run(_: &AgentCommand) -> u8 {
    let cause = "it needs Unix sockets";
    let fault = Fault::new(Code::Unsupported, "run the agent", cause);
    Console::new(OutputFlags::default()).error(&fault);
    fault.exit_code()
}

/// No session is shared.
///
/// # Errors
/// Never.
pub(crate) fn shared_session(
    _: &RemotePlace,
    _: &Login,
    _: Start,
) -> Result<Option<(Arc<Client>, AgentLease)>, Fault> {
    Ok(None)
}
