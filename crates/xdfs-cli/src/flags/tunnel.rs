//! The flags of `xdfs tunnel`.

use clap::{Args, ValueHint};
use xdfs::Forward;

use super::{OutputFlags, SecurityFlags};

/// Lead connections to local ports through a server to targets beyond it.
///
/// Any program can use such a port: whatever connects to it talks to the target, as if it were
/// there. The server looks the target's name up and connects to it; between here and the server the
/// bytes are encrypted. A server allows no targets unless its configuration does (see `xdfs serve
/// --help`), except the one that an ssh:// URL starts, which may connect wherever its user may.
///
/// Prints a line 'listening on ADDR for TARGET' for each port, and works until Ctrl-C. If the
/// server can't be reached at the start, or refuses the user or a target, it ends with the exit
/// code for that. A connection that is lost later ends; the port stays, and the next connection
/// opens another channel.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs tunnel -L [BIND:]PORT:HOST:PORT [OPTIONS] xdfs://HOST[:PORT]",
    after_help = "\
Examples:
  xdfs tunnel -L 5432:db.lab:5432 xdfs://gate         then: psql -h localhost
  xdfs tunnel -L 8080:10.0.0.7:80 -L 2222:build:22 xdfs://gate
  xdfs tunnel -L 0:web:80 --json xdfs://gate          any free port; the first line tells it
  xdfs tunnel -L unix:/tmp/db.sock:db.lab:5432 xdfs://gate
  xdfs tunnel -L 8080:unix:/run/app.sock ssh://host   a socket over there"
)]
pub(crate) struct TunnelFlags {
    /// The server, as xdfs://HOST[:PORT], without a path.
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) server: String,

    /// Listen here, and lead connections to a target; may be repeated.
    ///
    /// [BIND:]PORT:HOST:PORT. Either side may be unix:PATH instead. Without BIND only this machine
    /// can connect, and '*' lets others connect too: nobody is asked who they are. Port 0 picks a
    /// free one.
    #[arg(short = 'L', long = "local", value_name = "SPEC", required = true,
        value_parser = parse_forward)]
    pub(crate) local: Vec<Forward>,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

fn parse_forward(text: &str) -> Result<Forward, String> {
    text.parse()
        .map_err(|fault: xdfs::Fault| format!("{}; {}", fault.cause, fault.hint))
}
