//! The flags of `xdfs serve`. A flag that isn't given is `None`, so that the file of `--config`
//! can fill it in.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum, ValueHint};
use serde::Deserialize;
use tracing::Level;
use xdfs::doors::HostPort;
use xdfs::metrics::MetricsSettings;
use xdfs::{Address, Listen, RelaySettings, gridftp_address};

use xdfs::settings::size::parse_memory;

use crate::doors;

/// The settings of the file up to those of doors.
const SETTINGS: &str = "\
The file of --config is TOML; flags go before it. Relative paths in it start at its directory:
  listen = [\"127.0.0.1:2799\", \"unix:/run/xdfs.sock\"]
  root = \"/srv/data\"
  read_only = false
  insecure = false
  protect = \"private\"     # \"clear\": clients may ask for payload in the clear
  sessions_max = 256
  memory_max = \"2G\"        # for the payload of all sessions
  grace_seconds = 10
  drivers = \"drivers\"      # load the drivers of all shared libraries in this directory
  partial_expiry = \"7d\"   # remove unfinished transfers that nothing came to for so long and
                           # that aren't running; also 12h, 30m; default: never
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
  mount = true             # refused while nothing is mounted there
  quota_bytes = \"10G\"
  [[export.grant]]
  user = \"alice\"           # or group = \"staff\"; \"*\" for everybody who is known
  rights = [\"read\", \"list\", \"create\", \"write\", \"delete\"]
  [groups]
  staff = [\"alice\", \"bob\"]
  [[tunnel.connect]]       # targets of xdfs tunnel -L; none without such tables
  user = \"alice\"           # or group = \"staff\"; \"*\" for everybody who is known; public = true
  host = \"db.example\"      # or \"*.lab\", \"10.0.0.0/8\", \"unix:/run/db.sock\", \"*\"
  ports = \"5432\"           # or \"8000-8100, 9000\"; \"*\" for all ports
  [tunnel]
  idle_seconds = 7200      # a tunnel ends if nothing moves for so long
  [[tunnel.fetch_from]]    # servers to copy files from for users, as --connect-to;
  user = \"alice\"           # send_to: to copy files to
  host = \"*.example\"
  ports = \"2799\"
";
/// The settings behind those of doors.
const MORE_SETTINGS: &str = "  [metrics]                # as --metrics
  listen = \"127.0.0.1:2798\"
  open = false             # true: anybody who reaches the address may read, as --metrics-open
  [limits]                 # of each user, over all sessions
  sessions_per_user_max = 64
  channels_per_user_max = 4096
  connections_per_user_max = 2048    # through tunnels
  bytes_per_second_per_user_max = \"100M\"   # payload, both directions together
  [accounts]               # root on Linux: sessions run with the ids of local accounts
  alice = \"alice_local\"
  anonymous = \"nobody\"
  \"*\" = \"{user}\"         # everybody else who is known; without it they are refused
  [service]                # for `xdfs service --config`
  administrators = [\"alice\"]
  listen_tls = \"0.0.0.0:2781\"

Examples:
  xdfs serve --root /srv/data
  xdfs serve --listen 127.0.0.1:0 --listen '[::1]:0' --read-only
  xdfs serve --listen unix:/run/xdfs.sock
  xdfs serve --config /etc/xdfs.toml
  xdfs serve --config /etc/xdfs.toml --check-config";

/// The help about the settings of the file.
fn settings_help() -> String {
    [SETTINGS, &doors::help(), MORE_SETTINGS].concat()
}

/// Serve a directory.
///
/// Clients read and write beneath the root and nowhere else: the kernel resolves paths beneath it,
/// so that neither '..' nor a symbolic link leads out. A root that contains the server's own files,
/// or the keys or settings of the user who starts it, is refused; a home directory usually does.
///
/// All channels are encrypted (TLS 1.3), and clients authenticate. Your own key is accepted without
/// any set-up, and so are the keys in authorized_keys in the server's folder and in ~/.ssh, users
/// with passwords (`xdfs user add`) and holders of tickets.
///
/// Prints a line 'listening on ADDR' with the actual port for each address, then a line 'serving
/// DIR', and the fingerprint of the server's key. SIGTERM and Ctrl-C drain the server: it accepts
/// no new sessions, and running ones get the grace period to end; whatever is left can be resumed
/// later. A second signal ends all sessions at once.
///
/// SIGHUP reloads the settings (flags, the file of --config and all files that it names) without
/// interrupting sessions and transfers: new sessions get what they say. A session ends at once, in
/// a resumable state, if its user would be refused now, or would get less rights or another
/// directory. If anything is wrong, the log says what, and the old settings stay; so they do if the
/// file is empty, is no regular file, or has lost its directories or [accounts]. Users, passwords,
/// keys and certificates need no reload: they are read at each login. Addresses, drivers, folder,
/// audit, sessions_max, memory_max, grace_seconds and insecure change at the next start only.
///
/// Started by systemd, it uses the sockets that it is handed (instead of the addresses), and tells
/// when it is ready, reloads and stops.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = settings_help())]
pub(crate) struct ServeFlags {
    /// Address to listen on: HOST, HOST:PORT, [IPV6]:PORT or unix:PATH; may be repeated.
    ///
    /// Port 0 picks a free port. Drivers before it are for the channels accepted there, as in
    /// 'quic://0.0.0.0:2799' or 'tcp,tls,zstd://0.0.0.0:2799': clients name the same ones with
    /// --stack. Default: 127.0.0.1:2799 over TCP.
    #[arg(short, long, value_name = "ADDR", value_parser = parse_listen)]
    pub(crate) listen: Vec<Listen>,

    /// Serve GridFTP too, at HOST, HOST:PORT or [IPV6]:PORT. Default: 127.0.0.1:2811.
    ///
    /// For globus-url-copy and ftp clients. Users with passwords log in under TLS (AUTH TLS), with
    /// the server's certificate. Without TLS all users are anonymous: they reach exports that are
    /// public, or with --insecure everything. Exports, rights, quotas, limits and the audit log are
    /// the same.
    #[arg(
        long,
        value_name = "ADDR",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:2811",
        value_parser = parse_gridftp
    )]
    pub(crate) gridftp: Option<HostPort>,

    /// Show metrics at http://ADDR/metrics, for Prometheus and `xdfs top`. Default: 127.0.0.1:2798.
    ///
    /// Sessions, channels, bytes, what limits transfers, failures and more, without names of users
    /// and files; docs/metrics.md lists them. Readers need no login, so the address has to be of
    /// this machine only, unless --metrics-open is given too.
    #[arg(
        long,
        value_name = "ADDR",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:2798",
        value_parser = parse_metrics
    )]
    pub(crate) metrics: Option<Address>,

    /// Let anybody who reaches the address of --metrics read them, from other machines too.
    ///
    /// There is no login and no encryption. They show how much is moved and what fails, not by
    /// whom.
    #[arg(long)]
    pub(crate) metrics_open: bool,

    /// Load a driver for the stacks of --listen from a shared library; may be repeated.
    ///
    /// The library becomes a part of the server, with all of its rights. A file that others than
    /// the server's user and root may change is refused.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) driver: Vec<PathBuf>,

    /// The directory to serve. Default: the current directory.
    ///
    /// Nothing outside of it can be reached, through symbolic links either. With [[export]] tables
    /// in the configuration it is not used.
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,

    /// Refuse all writes.
    ///
    /// Users may list and read as their rights allow. It needs no configuration.
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
    /// Anyone who can reach the address can then read and, without --read-only, write everything
    /// beneath the root. Clients must use --insecure too.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) insecure: Option<bool>,

    /// The minimum protection that clients must use: private, or clear for unencrypted payload.
    ///
    /// With `clear`, clients may use `--protect clear`, and with gsiftp:// `--protect
    /// unauthenticated`; their help says what that gives up. Default: private.
    #[arg(long, value_name = "LEVEL", value_enum, conflicts_with = "insecure")]
    pub(crate) protect: Option<ServeLevelFlag>,

    /// Servers that this one may connect to, to copy files for its users without their machines.
    ///
    /// A name, *.NAME, * for every public address, an address or a network such as 10.0.0.0/8, and
    /// ports behind a colon; can be given several times. Addresses that aren't public are reached
    /// only if they are named themselves. [[tunnel.fetch_from]] and [[tunnel.send_to]] in the
    /// configuration are for single users and one direction. Default: none, so that such copies
    /// go through the machine of the user.
    #[arg(long, value_name = "PATTERN", conflicts_with = "insecure")]
    pub(crate) connect_to: Vec<String>,

    /// The group of servers over one storage that this one is a member of: a TOML file.
    ///
    /// Clients with --stripe move one file by all of them. All members get the same file, in which
    /// each finds itself by its key, and serve the same directories by the same names to the same
    /// users:
    ///
    ///   storage = "shared"
    ///   [[member]]
    ///   address = "one.example:2799"     # as clients reach it
    ///   key = "SHA256:..."               # as it prints it when it starts
    ///   [[member]]
    ///   ...
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        conflicts_with = "insecure", verbatim_doc_comment)]
    pub(crate) group: Option<PathBuf>,

    /// Print a ticket that admits one client once, within a day.
    ///
    /// Pass it to a command there with `--ticket-file` or the variable XDFS_TICKET.
    #[arg(long, conflicts_with = "insecure")]
    pub(crate) ticket: bool,

    /// Serve all files to the command that starts this through ssh, for its ssh:// URL.
    ///
    /// Commands with ssh:// URLs start this themselves. It listens on the address that ssh came in
    /// at, on a free port, and at SOCKET; prints one line with the port, the fingerprint of a
    /// temporary key and a ticket; and ends when its standard input does.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["listen", "gridftp", "driver",
        "metrics", "metrics_open", "root", "read_only", "insecure", "connect_to", "ticket",
        "group", "sessions_max",
        "memory_max", "grace", "config"])]
    pub(crate) over_ssh: Option<PathBuf>,

    /// Serve all files by GridFTP to the client that starts this through ssh, for sshftp:// URLs.
    ///
    /// Clients start ~/.globus/sshftp there: make it a script that can be executed, with the line
    /// 'exec xdfs serve --gridftp-over-ssh'. Commands and replies go through ssh; data connections
    /// don't, and are not protected.
    #[cfg(unix)]
    #[arg(long, conflicts_with_all = ["listen", "gridftp", "driver", "root", "read_only",
        "metrics", "metrics_open", "group",
        "insecure", "protect", "ticket", "sessions_max", "memory_max", "grace", "config",
        "check_config", "over_ssh"])]
    pub(crate) gridftp_over_ssh: bool,

    /// Maximum number of concurrent sessions. Default: 256.
    ///
    /// A client beyond that is told to try again. Each session takes a thread and memory for its
    /// channels.
    #[arg(long, value_name = "N", value_parser = parse_sessions)]
    pub(crate) sessions_max: Option<usize>,

    /// Memory for the payload of all sessions together, such as 512M or 4G.
    ///
    /// When it is used up, transfers wait for each other; none fails. Each session may hold two
    /// blocks to send, half a MiB to receive and two packs of small files in any case. The buffers
    /// of sockets are the kernel's and come on top. Default: a quarter of the machine's memory, but
    /// at least 256M.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory_max: Option<u64>,

    /// Seconds that running sessions have to end after a signal. Default: 10.
    ///
    /// Transfers that end within this time are complete; others stop in a state from which they
    /// resume. A second signal ends them at once.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace: Option<u32>,

    /// Read settings from a TOML file.
    ///
    /// Flags override it. `--check-config` says whether it is right; SIGHUP reads it again.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Check the settings, print what would be served, and exit: 0 if they are valid, 2 if not.
    ///
    /// Reads the file of --config and all files that it names, as the server would: certificates,
    /// users, keys, issuers, accounts; and looks for the directories of exports. Prints every
    /// error, with its line in the file. Changes nothing and opens no port, so it can run beside
    /// the server, for example before a reload.
    #[arg(long, conflicts_with = "ticket")]
    pub(crate) check_config: bool,

    /// Log level on standard error.
    ///
    /// Each line has its fields as NAME=VALUE. A transfer is one line at its end, and so is each
    /// pack of small files in a tree. Similar refused logins are one line a minute, with their
    /// number as `repeats`. A server without authentication logs sessions only. Nothing secret is
    /// logged.
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub(crate) log: LogLevel,

    /// The server is a relay, for [`RelayFlags`](super::RelayFlags).
    #[arg(skip)]
    pub(crate) relay: Option<RelaySettings>,

    /// Log more: once for debug, twice for trace.
    ///
    /// It is for a moment at a terminal; --log is for services.
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "log")]
    pub(crate) verbose: u8,
}

impl ServeFlags {
    /// The level of the log; `None` if there is none.
    pub(crate) fn log_level(&self) -> Option<Level> {
        match self.verbose {
            0 => level(self.log),
            1 => Some(Level::DEBUG),
            _ => Some(Level::TRACE),
        }
    }
}

/// The level of `--log`; `None` for no log.
pub(super) fn level(log: LogLevel) -> Option<Level> {
    match log {
        LogLevel::Off => None,
        LogLevel::Error => Some(Level::ERROR),
        LogLevel::Warn => Some(Level::WARN),
        LogLevel::Info => Some(Level::INFO),
        LogLevel::Debug => Some(Level::DEBUG),
        LogLevel::Trace => Some(Level::TRACE),
    }
}

/// What a server lets its clients do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ServeLevelFlag {
    /// Nothing.
    #[default]
    Private,
    /// Encryption of the payload.
    Clear,
}

/// The levels of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Nothing.
    Off,
    /// Operations that failed.
    Error,
    /// Refused logins, and conditions that need attention.
    Warn,
    /// Logins, sessions, transfers, refusals and reloads.
    #[default]
    Info,
    /// Channels, changes of paths, files opened in place, and decisions.
    Debug,
    /// Everything.
    Trace,
}

pub(super) fn parse_listen(text: &str) -> Result<Listen, String> {
    match text.parse::<Listen>() {
        Ok(listen) if matches!(listen.address, Address::Host { .. } | Address::Unix(_)) => {
            Ok(listen)
        }
        Ok(_) => Err("write HOST, HOST:PORT, [IPV6]:PORT or unix:PATH".into()),
        Err(fault) => Err(format!("{}; {}", fault.cause, fault.hint)),
    }
}

pub(super) fn parse_gridftp(text: &str) -> Result<HostPort, String> {
    let address = gridftp_address(text);
    address.map_err(|fault| format!("{}; {}", fault.cause, fault.hint))
}

fn parse_metrics(text: &str) -> Result<Address, String> {
    let address = MetricsSettings::address(text);
    address.map_err(|fault| format!("{}; {}", fault.cause, fault.hint))
}

fn parse_sessions(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("it is a number from 1 on".into()),
        Ok(n) => Ok(n),
    }
}
