//! The flags of `xdfs serve`. A flag that isn't given is `None`, so that the file of `--config`
//! can fill it in.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum, ValueHint};
use tracing::Level;
use xdfs::Address;

use super::LevelFlag;

/// Serve a directory.
///
/// Clients read and write beneath the root and nowhere else: paths are resolved by the kernel
/// beneath it, so that neither '..' nor a symbolic link leads out. A root that holds the server's
/// own files, or the keys and settings of who starts it, is refused: a home directory, mostly.
///
/// All channels are encrypted (TLS 1.3), and clients show who they are: your own key is let in
/// without any set-up, so are those in authorized_keys in the server's folder and in ~/.ssh, users
/// with passwords (`xdfs user add`) and who has a ticket.
///
/// Prints one line 'listening on ADDR' for each address, with its real port, then one line
/// 'serving DIR', and what clients see of the server's key. SIGTERM and Ctrl-C drain: no new
/// session is taken, running ones get the grace period to end, and what is left then can be resumed
/// later. A second signal ends them at once.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The file of --config is TOML; flags go before it:
  listen = [\"127.0.0.1:2799\", \"unix:/run/xdfs.sock\"]
  root = \"/srv/data\"      # relative to the directory of the file
  read_only = false
  insecure = false
  protect = \"private\"     # \"clear\": clients may ask for payload in the clear
  sessions_max = 256
  grace_seconds = 10
  folder = \"server\"        # the server's key, users, lists of keys
  owner = \"alice\"          # whom keys in folder/authorized_keys belong to
  audit = \"audit.jsonl\"
  [certificate]            # instead of folder/server.crt and folder/server.key
  chain = \"chain.pem\"
  key = \"key.pem\"
  [client_certificates]
  authorities = \"ca.pem\"
  grid_map = \"grid-mapfile\"
  [[issuers]]              # of bearer tokens
  issuer = \"https://issuer.example\"
  audience = [\"https://host.example\"]
  jwks_url = \"https://issuer.example/jwks\" # left out: asked for at the issuer
  jwks_authorities = \"ca.pem\"              # left out: those of the system
  profile = \"wlcg\"       # or \"scitokens\", \"plain\"
  [[issuers]]
  issuer = \"https://other.example\"
  audience = [\"https://host.example\"]
  jwks_file = \"jwks.json\" # instead of jwks_url
  profile = \"plain\"
  [[export]]               # instead of root
  name = \"data\"
  path = \"/srv/data\"       # may hold {user}
  quota_bytes = \"10G\"
  [[export.grant]]
  user = \"alice\"           # or group = \"staff\"; \"*\" for everybody who is known
  rights = [\"read\", \"list\", \"create\", \"write\", \"delete\"]
  [groups]
  staff = [\"alice\", \"bob\"]
  [limits]                 # of each user, over all sessions
  sessions_per_user_max = 64
  channels_per_user_max = 4096
  bytes_per_second_per_user_max = \"100M\"   # payload, both directions together
  [accounts]               # root on Linux: sessions run with the ids of local accounts
  alice = \"alice_local\"
  anonymous = \"nobody\"
  \"*\" = \"{user}\"         # everybody else who is known; without it they are refused

Examples:
  xdfs serve --root /srv/data
  xdfs serve --listen 127.0.0.1:0 --listen '[::1]:0' --read-only
  xdfs serve --listen unix:/run/xdfs.sock
  xdfs serve --config /etc/xdfs.toml")]
pub(crate) struct ServeFlags {
    /// Where to listen: HOST, HOST:PORT, [IPV6]:PORT or unix:PATH; may be repeated.
    ///
    /// Port 0 takes a free one. Default: 127.0.0.1:2799.
    #[arg(short, long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) listen: Vec<Address>,

    /// The directory to serve. Default: the current one.
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,

    /// Refuse everything that writes.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) read_only: Option<bool>,

    /// Serve without encryption and authentication.
    ///
    /// Everybody who reaches the address can then read and, unless --read-only is given, write
    /// all that lies beneath the root. Clients have to say --insecure too.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) insecure: Option<bool>,

    /// The least that clients get away with: private, or clear for payload beside the protection.
    ///
    /// With `clear`, clients may ask for it by `--protect clear`; what it gives up is said there.
    /// Default: private.
    #[arg(long, value_name = "LEVEL", value_enum, conflicts_with = "insecure")]
    pub(crate) protect: Option<LevelFlag>,

    /// Print a ticket for another machine that lets it in once, within a day.
    ///
    /// It is given to a command there by `--ticket-file`, or the variable XDFS_TICKET.
    #[arg(long, conflicts_with = "insecure")]
    pub(crate) ticket: bool,

    /// Most sessions at once. Default: 256.
    #[arg(long, value_name = "N", value_parser = parse_sessions)]
    pub(crate) sessions_max: Option<usize>,

    /// Seconds that running sessions get to end after a signal. Default: 10.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace: Option<u32>,

    /// Read settings from a TOML file.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// What goes to the log on standard error.
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Warn)]
    pub(crate) log: LogLevel,

    /// Log more: once for info, twice for debug, three times for trace.
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "log")]
    pub(crate) verbose: u8,
}

impl ServeFlags {
    /// The level of the log; `None` if there is none.
    pub(crate) fn log_level(&self) -> Option<Level> {
        match (self.verbose, self.log) {
            (0, LogLevel::Off) => None,
            (0, LogLevel::Error) => Some(Level::ERROR),
            (0, LogLevel::Warn) => Some(Level::WARN),
            (1, _) | (0, LogLevel::Info) => Some(Level::INFO),
            (2, _) | (0, LogLevel::Debug) => Some(Level::DEBUG),
            _ => Some(Level::TRACE),
        }
    }
}

/// The levels of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Nothing.
    Off,
    /// What the server could not do.
    Error,
    /// What somebody should look at.
    Warn,
    /// Sessions and transfers.
    Info,
    /// Channels and decisions.
    Debug,
    /// Everything.
    Trace,
}

fn parse_address(text: &str) -> Result<Address, String> {
    match text.parse() {
        Ok(address @ (Address::Tcp { .. } | Address::Unix(_))) => Ok(address),
        Ok(_) => Err("write HOST, HOST:PORT, [IPV6]:PORT or unix:PATH".into()),
        Err(fault) => Err(format!("{}; {}", fault.cause, fault.hint)),
    }
}

fn parse_sessions(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("it is a number from 1 on".into()),
        Ok(n) => Ok(n),
    }
}
