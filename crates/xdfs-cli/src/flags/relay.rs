//! The flags of `xdfs relay`, and those of `xdfs cp` for files that go by one.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use xdfs::settings::size::parse_size;
use xdfs::{CopyId, Listen};

use super::serve::{LogLevel, parse_listen};
use crate::paths::criteria::parse_age;

/// Take files for other servers, and deliver them when these are up.
///
/// `xdfs cp --via` leaves a file here, and may go once it is durable in the spool. It is delivered
/// now, or when its target is up again; once, and with the digest of its source. Users log in as to
/// `xdfs serve`, and reach nothing but their parcels.
///
/// At the target the relay logs in as `xdfs cp` of its own user would: with the keys and the known
/// servers of that user. So give it an account there that may write what its users may have
/// delivered. What it connects to is bounded by --connect-to.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs relay --listen 0.0.0.0 --spool /var/spool/xdfs --connect-to store.example:2799
  xdfs cp --via relay.example big.img xdfs://store.example/in/")]
pub(crate) struct RelayFlags {
    /// Address to listen on: HOST, HOST:PORT, [IPV6]:PORT or unix:PATH; may be repeated.
    ///
    /// Port 0 picks a free port. Default: 127.0.0.1:2799.
    #[arg(short, long, value_name = "ADDR", value_parser = parse_listen)]
    pub(crate) listen: Vec<Listen>,

    /// The directory of the spool; made if it isn't there, for this user only.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) spool: PathBuf,

    /// Servers to which files may be delivered.
    ///
    /// A name, *.NAME, * for every public address, an address or a network such as 10.0.0.0/8, and
    /// ports behind a colon; can be given several times. Addresses that aren't public are reached
    /// only if they are named themselves. [[tunnel.send_to]] in the configuration is for single
    /// users. Default: none, and then no file is taken.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) connect_to: Vec<String>,

    /// Largest size of all files that wait, such as 200G. Default: what the disk has.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) spool_max: Option<u64>,

    /// Largest size of the files of one user that wait. Default: that of --spool-max.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) user_max: Option<u64>,

    /// Read settings from a TOML file, as `xdfs serve` does: users, keys, limits, metrics.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Log level on standard error.
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub(crate) log: LogLevel,
}

/// A file that goes by a relay.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ViaFlags {
    /// Leave the file to a relay, which delivers it to the target, now or when that is up.
    ///
    /// Ends with 0 once the file is durable at the relay, and prints its identifier, which `xdfs
    /// status`, `wait`, `cancel` and `retry` take with the URL of the relay. The target is the URL
    /// of a file or directory, as the relay reaches it. docs/relay.md says what is promised.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["recursive", "archive", "files_from",
        "from_file", "offset", "length", "remove_source", "dry_run", "detach", "mirrors",
        "transfer_log"])]
    pub(crate) via: Option<String>,

    /// The identifier of the file at the relay, 32 hexadecimal digits. Default: a random one.
    ///
    /// The same command with the same identifier resumes where an earlier one has stopped, and
    /// changes nothing if the relay has the file already: however often it runs, the file is
    /// delivered once.
    #[arg(long, value_name = "ID", requires = "via")]
    pub(crate) parcel: Option<CopyId>,

    /// Give the file up if it isn't delivered within this time, such as 12h. Default: 7d.
    ///
    /// The time begins with the command; 30d is the longest. A file that was given up stays at the
    /// relay for a week, and `xdfs retry` puts it back with a new time.
    #[arg(long, value_name = "TIME", requires = "via", value_parser = parse_age)]
    pub(crate) expire: Option<Duration>,

    /// Wait until the relay has delivered the file.
    ///
    /// Ends with 0 if it was delivered, and else with the exit code of the reason, as `xdfs wait`
    /// does. Without this command the relay delivers it all the same.
    #[arg(long, requires = "via")]
    pub(crate) wait: bool,
}
