//! `xdfs agent`: a process that keeps sessions open for the commands of its user.
//!
//! ```text
//!   xdfs ls ---- "a session with xdfs://host" ----> agent.sock     xdfs agent
//!      |  <-------------- "at 7.sock" --------------  |                |
//!      |                                              |                |
//!      +== xDFS: calls about paths ============> 7.sock: forwarding == one session ==> host
//! ```
//!
//! A command asks by one line, and gets a socket with a server of its own, which passes its calls
//! on in the shared session ([`xdfs::ServerBuilder::bind_forwarding`]). It keeps the connection on
//! which it asked: when that is closed, its server ends, and with it the calls that are left.
//!
//! The agent never asks its user for anything, and no secret reaches it: commands with a password,
//! a token or a ticket open sessions of their own, as do commands that move data. So does a command
//! that trusts a new server, and any command if there is no agent of the same version.

mod ask;
mod folder;
mod keep;
mod message;
mod serve;

use xdfs::Fault;

use crate::console::{Console, printable};
use crate::exit_codes::SUCCESS;
use crate::flags::{AgentCommand, OutputFlags};
use crate::report::print;
use message::{Answer, Ask};

pub(crate) use ask::{AgentLease, Start, shared_session};

/// Runs `xdfs agent` and returns the exit code.
pub(crate) fn run(command: &AgentCommand) -> u8 {
    let done = match command {
        AgentCommand::Run(flags) => serve::run(flags),
        AgentCommand::Status => status(),
        AgentCommand::Stop => ask::stop(),
    };
    match done {
        Ok(()) => SUCCESS,
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.exit_code()
        }
    }
}

/// Prints the state of the agent and its sessions.
fn status() -> Result<(), Fault> {
    let reply = ask::control(Ask::Status)?;
    let Answer::Status(status) = reply.answer else {
        return Err(ask::strange("look at the agent"));
    };
    let mut text = format!(
        "xdfs {}, process {}, ends after {} s without use\n",
        reply.program, status.process, status.idle_s
    );
    for session in status.sessions {
        text += &format!("{} used by {}\n", session.url, session.users);
    }
    let lines = text.lines().map(|line| printable(line) + "\n");
    print(lines.collect::<String>())
}
