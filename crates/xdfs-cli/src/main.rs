//! The program `xdfs`: serves a directory, copies files, inspects and changes paths on servers,
//! measures rates, and has a demonstration.
//!
//! Parse, run, exit. Related commands share a file, and those about
//! paths are in `paths`; [`flags`] is the one definition of the command line.
//! The program uses only the library `xdfs`. Data and JSON go to standard output, messages,
//! progress and logs to standard error.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "service")]
mod account;
#[cfg_attr(not(unix), path = "agent/unsupported.rs")]
mod agent;
mod candidates;
mod check_config;
mod client;
mod complete;
mod console;
mod context;
mod cp;
mod data_node;
mod demo;
mod doors;
mod exit_codes;
mod flags;
mod folded;
mod generate;
mod human;
mod interrupt;
#[cfg(feature = "service")]
mod jobs;
mod log;
mod missing;
mod parcels;
mod paths;
mod perf;
mod pipe;
mod place;
mod progress;
#[cfg(feature = "gsi")]
mod proxy;
mod rate;
mod relay;
mod remotes;
mod replicas;
mod report;
mod routes;
mod secret;
mod serve;
mod server_config;
mod service;
mod session;
mod shell;
#[cfg(unix)]
mod sshftp_server;
mod state;
mod stats;
mod stderr;
#[cfg(feature = "service")]
mod submitted_list;
mod sync;
mod tips;
#[cfg(feature = "service")]
mod top;
mod transfer_log;
mod tune;
mod tunnel;
mod users;
mod xioperf;

use std::process::ExitCode;

use clap::Parser;

use console::Console;
use context::Context;
use cp::detached::{self, Asked};
use flags::{Cli, Command, GridftpCommand, OutputFlags};
use report::print_parsed;

fn main() -> ExitCode {
    let words = flags::words(std::env::args_os());
    if let [_, command, line] = words.as_slice()
        && command == complete::COMMAND
    {
        return ExitCode::from(complete::run(line));
    }
    let command = words.get(1).map(|word| word.to_string_lossy().into_owned());
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            let error = tips::with_tip(command.as_deref().unwrap_or_default(), error);
            return ExitCode::from(print_parsed(&error).unwrap_or_else(|fault| {
                Console::new(OutputFlags::default()).error(&fault);
                fault.exit_code()
            }));
        }
    };
    if let Some(path) = &cli.log_file
        && let Err(fault) = log::use_file(path)
    {
        Console::new(OutputFlags::default()).error(&fault);
        return ExitCode::from(fault.exit_code());
    }
    let context = Context::new(cli.command.is_quiet());
    ExitCode::from(run_command(&context, cli.command))
}

/// Runs a command and returns the exit code.
fn run_command(context: &Context, command: Command) -> u8 {
    match command {
        Command::Serve(flags) => serve::run(flags),
        Command::Cp(flags) => cp::run(context, &flags),
        Command::Sync(flags) => sync::run(context, &flags),
        Command::Status(flags) => detached::run(context, &flags, Asked::Status),
        Command::Wait(flags) => detached::run(context, &flags, Asked::Wait),
        Command::Cancel(flags) => detached::run(context, &flags, Asked::Cancel),
        Command::Retry(flags) => detached::run(context, &flags, Asked::Retry),
        Command::Relay(flags) => relay::run(context, flags),
        Command::Shell(flags) => shell::run(context, &flags),
        Command::Ls(flags) => paths::ls(context, &flags),
        Command::Stat(flags) => paths::stat(context, &flags),
        Command::Cat(flags) => paths::cat(context, &flags),
        Command::Find(flags) => paths::find(context, &flags),
        Command::Sum(flags) => paths::sum(context, &flags),
        Command::Check(flags) => paths::check(context, &flags),
        Command::Df(flags) => paths::df(context, &flags),
        Command::Du(flags) => paths::du(context, &flags),
        Command::Mkdir(flags) => paths::mkdir(context, &flags),
        Command::Rm(flags) => paths::rm(context, &flags),
        Command::Mv(flags) => paths::mv(context, &flags),
        Command::Ln(flags) => paths::ln(context, &flags),
        Command::Touch(flags) => paths::touch(context, &flags),
        Command::Chmod(flags) => paths::chmod(context, &flags),
        Command::Chown(flags) => paths::chown(context, &flags),
        Command::Truncate(flags) => paths::truncate(context, &flags),
        Command::Partial { command } => paths::partial(context, &command),
        Command::Agent { command } => agent::run(&command),
        Command::Perf(flags) => perf::run(context, &flags),
        Command::Tune(flags) => tune::run(context, &flags),
        Command::Xioperf(flags) => xioperf::run(&flags),
        Command::Tunnel(flags) => tunnel::run(context, &flags),
        Command::Gridftp {
            command: GridftpCommand::DataNode(flags),
        } => data_node::run(&flags),
        Command::Demo(flags) => demo::run(flags),
        Command::Remotes(_) => remotes::run(context),
        Command::Whoami(flags) => users::whoami(context, &flags),
        Command::Keygen(flags) => users::keygen(flags),
        Command::Trust { command } => users::trust(command),
        Command::User { command, config } => users::user(command, config.as_deref()),
        #[cfg(feature = "gsi")]
        Command::Proxy { command } => proxy::run(&command),
        #[cfg(feature = "service")]
        Command::Service(flags) => jobs::service(&flags),
        #[cfg(feature = "service")]
        Command::Submit(flags) => jobs::submit(context, &flags),
        #[cfg(feature = "service")]
        Command::Jobs(flags) => jobs::jobs(&flags),
        #[cfg(feature = "service")]
        Command::Job { command } => jobs::job(&command),
        #[cfg(feature = "service")]
        Command::Schedules(flags) => jobs::schedules(&flags),
        #[cfg(feature = "service")]
        Command::Schedule { command } => jobs::schedule(&command),
        #[cfg(feature = "service")]
        Command::VerifyManifest(flags) => paths::verify_manifest(context, &flags),
        #[cfg(feature = "service")]
        Command::Token { command } => account::token(&command),
        #[cfg(feature = "service")]
        Command::Secret { command } => account::secret(&command),
        #[cfg(feature = "service")]
        Command::Top(flags) => top::run(&flags),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { dir } => generate::man(&dir),
    }
}
