//! The flags of `xdfs agent`.

use std::time::Duration;

use clap::{ArgAction, Args, Subcommand};

use super::OutputFlags;
use crate::paths::criteria::parse_age;

/// The actions of `xdfs agent`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Run the agent until it is idle or stopped.
    Run(AgentRunFlags),
    /// Print the agent's version and process, and the sessions that it has.
    Status,
    /// Stop the agent, also one of another version.
    ///
    /// Running commands have ten seconds to end. Waits until the agent has ended.
    Stop,
}

/// The flags of `xdfs agent run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs agent run
  xdfs agent run --idle 8h -v")]
pub(crate) struct AgentRunFlags {
    /// End after this time without use, and close sessions that nobody used for so long: 90s, 10m.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_age)]
    pub(crate) idle: Duration,

    /// Print the log to standard error; repeat for more.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Leave the terminal and everything inherited: how commands start the agent.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

impl AgentRunFlags {
    /// The same, for the log.
    pub(crate) fn output(&self) -> OutputFlags {
        OutputFlags {
            verbose: self.verbose,
            ..OutputFlags::default()
        }
    }
}
