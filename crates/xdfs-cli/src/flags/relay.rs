//! The flags of `xdfs relay`, and those of `xdfs cp` for files that go by one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use xdfs::doors::HostPort;
use xdfs::settings::size::parse_size;
use xdfs::{CopyId, Listen, ParcelState};

use super::serve::{LogLevel, parse_gridftp, parse_listen};
use super::{SecurityFlags, StackFlags};
use crate::paths::criteria::parse_age;

/// The relay on this machine.
pub(crate) const LOCAL: &str = "xdfs://localhost";
/// How long a relay tries to deliver a file, unless the user or the route says otherwise.
pub(crate) const PARCEL_LIFE_S: u32 = 7 * 24 * 3600;

/// Take files for other servers, and deliver them when these are up.
///
/// `xdfs cp --via` leaves a file here, and may go once it is durable in the spool. It is delivered
/// now, or when its target is up again; once, and with the digest of its source. Users log in as to
/// `xdfs serve`, and reach nothing but their parcels.
///
/// At the target the relay logs in as `xdfs cp` of its own user would: with the keys and the known
/// servers of that user. So give it an account there that may write what its users may have
/// delivered. What it connects to is bounded by --connect-to.
///
/// `xdfs relay ls`, `show`, `retry` and `drop` are for what is at a relay: of the user who asks,
/// and of all users for the one who runs the relay.
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
The file of --routes:
  [[route]]
  name = \"in\"                        # curl -T FILE ftp://relay.example:2811/in/
  to = \"xdfs://store.example/in/\"
  overwrite = true                     # replace files there; false: give up what exists there
  expire = \"7d\"                      # give up what isn't delivered by then

Examples:
  xdfs relay --listen 0.0.0.0 --spool /var/spool/xdfs --connect-to store.example:2799
  xdfs relay --ftp 0.0.0.0 --spool /var/spool/xdfs --connect-to store.example --routes routes.toml
  xdfs cp --via relay.example big.img xdfs://store.example/in/
  xdfs relay ls xdfs://relay.example"
)]
pub(crate) struct RelayFlags {
    /// The command about files at a relay.
    #[command(subcommand)]
    pub(crate) command: Option<RelayCommand>,

    /// Address to listen on: HOST, HOST:PORT, [IPV6]:PORT or unix:PATH; may be repeated.
    ///
    /// Port 0 picks a free port. Default: 127.0.0.1:2799.
    #[arg(short, long, value_name = "ADDR", value_parser = parse_listen)]
    pub(crate) listen: Vec<Listen>,

    /// Take files by FTP and GridFTP too, at HOST, HOST:PORT or [IPV6]:PORT.
    ///
    /// For ftp clients and globus-url-copy, which leave files in the directories of --routes as at
    /// any server: the answer that a file was stored comes when it is durable in the spool. Users
    /// log in as at `xdfs serve --gridftp`: by passwords under TLS, or by GSI. Default:
    /// 127.0.0.1:2811.
    #[arg(
        long,
        visible_alias = "gridftp",
        value_name = "ADDR",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:2811",
        value_parser = parse_gridftp
    )]
    pub(crate) ftp: Option<HostPort>,

    /// Directories whose files are delivered to other servers, from a TOML file.
    ///
    /// For programs that know nothing of relays, and by any protocol: who may have a file delivered
    /// to the server of a route, by --connect-to, may leave files in its directory. The file has a
    /// table for each, as shown below.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) routes: Option<PathBuf>,

    /// The directory of the spool; made if it isn't there, for this user only.
    #[arg(long, required = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) spool: Option<PathBuf>,

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

/// The commands about files at a relay.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RelayCommand {
    /// List the files at a relay that aren't delivered, in the order in which they came.
    ///
    /// Prints a line for each, with identifier, state, size, age and number of attempts, and where
    /// it goes; the next line says why the last attempt failed.
    Ls(RelayLsFlags),
    /// Show all that a relay knows of one file.
    Show(RelayShowFlags),
    /// Have files tried at once that wait, or put back those that were given up.
    Retry(RelayEndFlags),
    /// Remove files from a relay, which are not delivered then, as `xdfs cancel` does.
    ///
    /// A file that was delivered stays where it is.
    Drop(RelayEndFlags),
}

/// A relay, and how to reach it.
#[derive(Clone, Debug, Args)]
pub(crate) struct AtRelayFlags {
    /// Print JSON objects to standard output, one in a line.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) stack: StackFlags,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,
}

/// The flags of `xdfs relay ls`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs relay ls                                  those of this user at the relay on this machine
  xdfs relay ls --state dead --all-users xdfs://relay.example")]
pub(crate) struct RelayLsFlags {
    /// The relay.
    #[arg(value_name = "URL", default_value = LOCAL)]
    pub(crate) server: String,

    /// Only files in this state: arriving, held, delivering, delivered, dead or cancelled; may be
    /// repeated. Default: all but delivered and cancelled.
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    pub(crate) state: Vec<ParcelState>,

    /// Files of all users, with their names; for the user who runs the relay.
    #[arg(long)]
    pub(crate) all_users: bool,

    #[command(flatten)]
    pub(crate) at: AtRelayFlags,
}

/// The flags of `xdfs relay show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs relay show $id xdfs://relay.example")]
pub(crate) struct RelayShowFlags {
    /// The identifier that `xdfs cp` has printed.
    #[arg(value_name = "ID")]
    pub(crate) id: CopyId,

    /// The relay.
    #[arg(value_name = "URL", default_value = LOCAL)]
    pub(crate) server: String,

    /// The user whose it is; for the user who runs the relay.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) at: AtRelayFlags,
}

/// The flags of `xdfs relay retry` and `drop`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs relay retry $id xdfs://relay.example
  xdfs relay retry --dead --all-users xdfs://relay.example
  xdfs relay drop $id xdfs://relay.example")]
pub(crate) struct RelayEndFlags {
    /// The identifiers that `xdfs cp` has printed, and the relay. Default: the one of this machine.
    #[arg(value_name = "ID|URL")]
    pub(crate) words: Vec<String>,

    /// All that were given up; prints their identifiers.
    #[arg(long)]
    pub(crate) dead: bool,

    /// Files of all users; for the user who runs the relay.
    #[arg(long, requires = "dead", conflicts_with = "user")]
    pub(crate) all_users: bool,

    /// The user whose they are; for the user who runs the relay.
    #[arg(long, value_name = "NAME", conflicts_with = "dead")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) at: AtRelayFlags,
}

fn parse_state(text: &str) -> Result<ParcelState, String> {
    let mut all = ParcelState::ALL.into_iter();
    all.find(|state| state.as_str() == text).ok_or_else(|| {
        let names = ParcelState::ALL.map(ParcelState::as_str);
        format!("expected one of {}", names.join(", "))
    })
}

/// A file that goes by a relay.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ViaFlags {
    /// Leave the file to a relay, which delivers it to the target, now or when that is up.
    ///
    /// With several, HOST,HOST, the first one sends it to the next, as it reaches that, and so on;
    /// each stores it, and removes it once the next one has it.
    ///
    /// Ends with 0 once the file is durable at the first relay, and prints its identifier, which
    /// `xdfs status`, `wait`, `cancel` and `retry` take with the URL of that. The target is the URL
    /// of a file or directory, as the last relay reaches it. With --recursive it is a tree, which
    /// gets its name at the target once all of it is there. docs/relay.md says what is promised.
    #[arg(long, value_name = "HOST", value_delimiter = ',', conflicts_with_all = ["files_from",
        "from_file", "offset", "length", "remove_source", "dry_run", "detach", "mirrors",
        "transfer_log"])]
    pub(crate) via: Vec<String>,

    /// A further target of the same file, which goes to the relay once; may be repeated.
    ///
    /// Each target has an identifier of its own, is delivered by itself, and waits for none of the
    /// others. --expire, --force and the further relays of --via are for all of them.
    #[arg(long, value_name = "URL", requires = "via")]
    pub(crate) also_to: Vec<OsString>,

    /// Deliver the file after those that were left with the same name before.
    ///
    /// The order is that in which the relay has taken them. One that waits for its target holds up
    /// those behind it; one that is given up or cancelled doesn't. Each user has names of its own,
    /// of 1 to 64 bytes.
    #[arg(long, value_name = "NAME", requires = "via")]
    pub(crate) in_order: Option<String>,

    /// The identifier of the file at the relay, 32 hexadecimal digits. Default: a random one.
    ///
    /// The same command with the same identifier resumes where an earlier one has stopped, and
    /// changes nothing if the relay has the file already: however often it runs, the file is
    /// delivered once. That of each --also-to is one more than the one before.
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
