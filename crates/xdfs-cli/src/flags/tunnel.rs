//! The flags of `xdfs tunnel`.

use clap::{ArgGroup, Args, ValueHint};
use xdfs::Forward;

use super::{OutputFlags, SecurityFlags, StackFlags};

/// Forward connections through a server: from local ports to targets beyond it (-L), and from ports
/// of the server to targets on this side (-R).
///
/// Any program can use such a port: whatever connects to it talks to the target, as if it were
/// there. The target's name is looked up by the side that connects to it; between here and the
/// server the bytes are encrypted. A server allows no targets and no ports unless its configuration
/// does (see `xdfs serve --help`), except the one that an ssh:// URL starts, which may do whatever
/// its user may.
///
/// Prints a line 'listening on ADDR for TARGET' for each port, and works until Ctrl-C. If the
/// server can't be reached at the start, or refuses the user, a target or a port, it ends with the
/// exit code for that. A connection that is lost later ends; the port stays, and the next
/// connection opens another channel. With -n a connection survives the loss of channels, as long as
/// new ones can be opened within 20 seconds.
#[derive(Clone, Debug, Args)]
#[command(
    group = ArgGroup::new("ports").args(["local", "remote"]).required(true).multiple(true),
    override_usage = "xdfs tunnel {-L|-R} [BIND:]PORT:HOST:PORT... [OPTIONS] xdfs://HOST[:PORT]",
    after_help = "\
Examples:
  xdfs tunnel -L 5432:db.lab:5432 xdfs://gate         then: psql -h localhost
  xdfs tunnel -L 8080:10.0.0.7:80 -L 2222:build:22 xdfs://gate
  xdfs tunnel -n 8 -L 8730:files:873 xdfs://far       rsync over eight channels
  xdfs tunnel -R 8080:localhost:3000 xdfs://gate      the gate's port 8080 leads to this machine
  xdfs tunnel -L 8080:web:80 xdfs+quic://gate         over QUIC, where the server listens so
  xdfs tunnel -L 0:web:80 --json xdfs://gate          any free port; the first line tells it
  xdfs tunnel -L unix:/tmp/db.sock:db.lab:5432 xdfs://gate
  xdfs tunnel -L 8080:unix:/run/app.sock ssh://host   a socket over there"
)]
pub(crate) struct TunnelFlags {
    /// The server, as xdfs://HOST[:PORT], without a path.
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) server: String,

    /// Listen here, and forward connections to a target; may be repeated.
    ///
    /// [BIND:]PORT:HOST:PORT. Either side may be unix:PATH instead. Without BIND only this machine
    /// can connect, and '*' lets others connect too: nobody is asked who they are. Port 0 picks a
    /// free one.
    #[arg(short = 'L', long = "local", value_name = "SPEC", value_parser = parse_forward)]
    pub(crate) local: Vec<Forward>,

    /// Have the server listen, and forward connections to a target on this side; may be repeated.
    ///
    /// [BIND:]PORT:HOST:PORT, as for -L, with BIND and PORT at the server. Without BIND only the
    /// server's machine can connect. A name of the target is looked up once, at the start.
    #[arg(short = 'R', long = "remote", value_name = "SPEC", value_parser = parse_forward)]
    pub(crate) remote: Vec<Forward>,

    /// Carry each connection over so many channels, from 1 to 64.
    ///
    /// For long paths and those that lose packets. A new connection takes a round trip more.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) channels: u16,

    #[command(flatten)]
    pub(crate) stack: StackFlags,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

fn parse_forward(text: &str) -> Result<Forward, String> {
    text.parse()
        .map_err(|fault: xdfs::Fault| format!("{}; {}", fault.cause, fault.hint))
}
