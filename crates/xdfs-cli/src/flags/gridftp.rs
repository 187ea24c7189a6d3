//! The flags of `xdfs gridftp`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use xdfs::doors::HostPort;
use xdfs::gridftp_node_address;

use super::serve::{LogLevel, ServeFlags, level};
use tracing::Level;

/// The actions of `xdfs gridftp`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum GridftpCommand {
    DataNode(DataNodeFlags),
}

/// Move files for a GridFTP server on another machine, as one of its data nodes.
///
/// The server (`xdfs serve --gridftp` with a [[gridftp.node]] table) has the logins, the listings
/// and the commands; its data nodes send and take files in MODE E, each a stripe of them. All of
/// them have to see the same file system, with exports of the same names.
///
/// Server and node prove to each other who they are: the server's table names the fingerprint that
/// this prints, and `obeys` here names the server's. Nothing is done for anybody else. SIGTERM and
/// Ctrl-C end it when no file moves, or after the grace period; a second signal ends it at once.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The file is that of `xdfs serve --config`; of it count [[export]] (or root and read_only), folder,
[certificate], sessions_max, grace_seconds, and
  [gridftp]
  ports = \"50000-51000\"    # of passive data connections
  address = \"192.0.2.11\"   # for clients behind a NAT, instead of the one above
  [gridftp.data_node]
  listen = \"192.0.2.11:2812\"
  obeys = [\"SHA256:...\"]   # the keys of servers, as they print them

Examples:
  xdfs gridftp data-node --config node.toml
  xdfs gridftp data-node --config node.toml --listen 192.0.2.11
  xdfs gridftp data-node --config node.toml --check-config")]
pub(crate) struct DataNodeFlags {
    /// Where to listen for the server: HOST, HOST:PORT or [IPV6]:PORT. Default: 127.0.0.1:2812.
    #[arg(short, long, value_name = "ADDR", value_parser = parse_listen)]
    pub(crate) listen: Option<HostPort>,

    /// Read settings from this TOML file.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,

    /// Check the settings, print what the node would do, and exit: 0 if they are valid, 2 if not.
    ///
    /// Prints every error, with its line in the file. Changes nothing and opens no port, so it can
    /// run beside the node.
    #[arg(long)]
    pub(crate) check_config: bool,

    /// Log level on standard error.
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub(crate) log: LogLevel,
}

impl DataNodeFlags {
    /// The flags of a server with the same file.
    pub(crate) fn as_server(&self) -> ServeFlags {
        ServeFlags {
            config: Some(self.config.clone()),
            ..ServeFlags::default()
        }
    }

    /// The level of the log; `None` if there is none.
    pub(crate) fn log_level(&self) -> Option<Level> {
        level(self.log)
    }
}

fn parse_listen(text: &str) -> Result<HostPort, String> {
    let address = gridftp_node_address(text);
    address.map_err(|fault| format!("{}; {}", fault.cause, fault.hint))
}
