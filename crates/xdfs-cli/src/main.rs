//! The program `xdfs`: serve a directory, copy files, look at paths on servers and change them,
//! measure, demonstrate.
//!
//! Parse, run, exit. Each command has a file; [`flags`] is the one definition of the command line.
//! Everything is written on the library `xdfs` alone. Data and JSON go to standard output,
//! messages, progress and logs to standard error.

#![forbid(unsafe_code)]

mod console;
mod cp;
mod demo;
mod exit_codes;
mod flags;
mod generate;
mod human;
mod identity;
mod interrupt;
mod json;
mod paths;
mod perf;
mod pipe;
mod place;
mod progress;
mod rate;
mod report;
mod serve;
mod session;
mod size;
mod state;
mod sync;
mod users;

use std::process::ExitCode;

use clap::Parser;

use flags::{Cli, Command};

fn main() -> ExitCode {
    let code = match Cli::parse_from(flags::words(std::env::args_os())).command {
        Command::Serve(flags) => serve::run(flags),
        Command::Cp(flags) => cp::run(&flags),
        Command::Sync(flags) => sync::run(&flags),
        Command::Ls(flags) => paths::ls(&flags),
        Command::Stat(flags) => paths::stat(&flags),
        Command::Cat(flags) => paths::cat(&flags),
        Command::Find(flags) => paths::find(&flags),
        Command::Sum(flags) => paths::sum(&flags),
        Command::Df(flags) => paths::df(&flags),
        Command::Du(flags) => paths::du(&flags),
        Command::Mkdir(flags) => paths::mkdir(&flags),
        Command::Rm(flags) => paths::rm(&flags),
        Command::Mv(flags) => paths::mv(&flags),
        Command::Ln(flags) => paths::ln(&flags),
        Command::Touch(flags) => paths::touch(&flags),
        Command::Chmod(flags) => paths::chmod(&flags),
        Command::Chown(flags) => paths::chown(&flags),
        Command::Truncate(flags) => paths::truncate(&flags),
        Command::Perf(flags) => perf::run(&flags),
        Command::Demo(flags) => demo::run(flags),
        Command::Whoami(flags) => users::whoami(&flags),
        Command::Keygen(flags) => users::keygen(flags),
        Command::Trust { command } => users::trust(command),
        Command::User { command } => users::user(command),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { dir } => generate::man(&dir),
    };
    ExitCode::from(code)
}
