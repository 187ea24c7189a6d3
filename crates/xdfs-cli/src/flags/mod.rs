//! The one definition of commands and flags: help, man pages and completions come from it.
//!
//! The flags of related commands share a file here, and another one beside `main.rs`, or in
//! `paths`, runs them. Values are
//! checked as far as possible without files or the network.

mod agent;
mod change;
mod check;
mod copies;
mod cp;
mod demo;
mod filter;
mod gridftp;
#[cfg(feature = "service")]
mod jobs;
mod look;
mod partial;
mod perf;
#[cfg(feature = "gsi")]
mod proxy;
mod relay;
mod remotes;
mod serve;
mod shell;
mod ssh;
mod stripe;
mod sync;
#[cfg(test)]
mod tests;
#[cfg(feature = "service")]
mod top;
mod tune;
mod tunnel;
mod users;
mod xioperf;

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use tracing::Level;
use xdfs::RemotePlace;
use xdfs::settings::{CHANNELS_MAX, Login, TypedSecrets, size};

pub(crate) use agent::{AgentCommand, AgentRunFlags};
pub(crate) use change::{
    ChmodFlags, ChownFlags, LnFlags, MkdirFlags, MvFlags, RmFlags, TouchFlags, TruncateFlags,
};
pub(crate) use check::CheckFlags;
pub(crate) use copies::DetachedFlags;
pub(crate) use cp::{CpFlags, DurabilityFlag, Places};
pub(crate) use demo::DemoFlags;
pub(crate) use filter::FilterFlags;
pub(crate) use gridftp::{DataNodeFlags, GridftpCommand};
#[cfg(feature = "service")]
pub(crate) use jobs::{
    AccountFlags, BackupFlags, DataFlag, DatabaseFlags, JobCommand, JobFlags, JobsFlags,
    ManifestFlags, ScheduleCommand, SchedulesFlags, SecretCommand, ServiceCommand, ServiceFlags,
    SetFlags, SubmitFlags, TokenCommand, VerifyFlags, WayFlags,
};
pub(crate) use look::{
    CatFlags, ColorFlag, DfFlags, DuFlags, FindFlags, LsFlags, PathFlags, StatFlags, SumFlags,
    is_find_test, words,
};
pub(crate) use partial::{PartialCommand, PartialFlags};
pub(crate) use perf::PerfFlags;
#[cfg(feature = "gsi")]
pub(crate) use proxy::{ProxyCommand, ProxyFile, ProxyInitFlags};
pub(crate) use relay::{
    AtRelayFlags, LOCAL, PARCEL_LIFE_S, RelayCommand, RelayEndFlags, RelayFlags, RelayLsFlags,
    RelayShowFlags,
};
pub(crate) use remotes::RemotesFlags;
pub(crate) use serve::{ServeFlags, ServeLevelFlag};
pub(crate) use shell::ShellFlags;
pub(crate) use ssh::SshFlags;
pub(crate) use stripe::StripeFlags;
pub(crate) use sync::SyncFlags;
#[cfg(feature = "service")]
pub(crate) use top::TopFlags;
pub(crate) use tune::{PictureFormat, TuneFlags};
pub(crate) use tunnel::TunnelFlags;
pub(crate) use users::{KeygenFlags, TrustCommand, UserCommand, WhoamiFlags};
pub(crate) use xioperf::{PatternFlag, XioperfFlags};

/// The end of the help of the program.
const EXAMPLES: &str = "\
Examples:
  xdfs demo                                 see it work on this machine
  xdfs serve --root /srv/data               offer a directory on 127.0.0.1:2799
  xdfs cp big.img xdfs://localhost/big.img  upload
  xdfs cp xdfs://localhost/big.img .        download
  xdfs cp big.img ssh://host/data/          over ssh, with no server there before
  xdfs ls -l xdfs://localhost/              look at what is there
  xdfs ls lab:                              a server with a name: 'xdfs remotes --help'

See 'xdfs COMMAND --help' for the flags of a command.";

/// Move files between machines over parallel channels, with resume and verification.
///
/// `xdfs serve` serves a directory and `xdfs cp` copies files to and from it. To resume an
/// interrupted copy, run the same command again. A target appears under its name only once it is
/// complete and its digest has been verified.
#[derive(Debug, Parser)]
#[command(
    name = "xdfs",
    version,
    max_term_width = 100,
    args_override_self = true,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit_codes::help_section()),
)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Append the log to a file, with the messages that go to standard error.
    ///
    /// Each line has a time (UTC) and a level. The engine's log goes there instead of standard
    /// error, at level info unless -v or --log sets another one. With --quiet, messages still go
    /// there. The file is created if missing, readable by its owner only.
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) log_file: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(ServeFlags),
    #[command(visible_aliases = ["put", "get"])]
    Cp(CpFlags),
    Sync(SyncFlags),
    /// Show how far a copy is that servers make by themselves, after `xdfs cp --detach` or `--via`.
    Status(DetachedFlags),
    /// Wait for the end of such a copy; ends with 0 if it succeeds.
    Wait(DetachedFlags),
    /// End such a copy early. What has arrived stays for a resume.
    Cancel(DetachedFlags),
    /// Have a relay try at once to deliver a file that waits, or that it has given up.
    Retry(DetachedFlags),
    Relay(RelayFlags),
    Shell(ShellFlags),
    Ls(LsFlags),
    Stat(StatFlags),
    Cat(CatFlags),
    Find(FindFlags),
    Sum(SumFlags),
    Check(CheckFlags),
    Df(DfFlags),
    Du(DuFlags),
    Mkdir(MkdirFlags),
    Rm(RmFlags),
    Mv(MvFlags),
    Ln(LnFlags),
    Touch(TouchFlags),
    Chmod(ChmodFlags),
    Chown(ChownFlags),
    Truncate(TruncateFlags),
    /// List and remove unfinished transfers, on a server or here.
    ///
    /// What has arrived of an interrupted transfer stays beside its target under a hidden name,
    /// until the same copy completes it. So it takes storage, which 'du' counts, and 'ls' doesn't
    /// show. A server can remove old ones by itself: see 'xdfs serve --help'.
    #[command(after_help = "\
Examples:
  xdfs partial ls xdfs://host/
  xdfs partial rm --older-than 7d xdfs://host/runs")]
    Partial {
        /// The action.
        #[command(subcommand)]
        command: PartialCommand,
    },
    /// Keep sessions open for other commands, so that they need not log in.
    ///
    /// With an agent, `ls`, `stat`, `find`, `du`, `df`, `mkdir`, `rm`, `mv`, `ln`, `chmod`, `chown`
    /// and `partial` of this user share its sessions: `xdfs ls` takes one round trip. They use one
    /// that runs. Where config.toml says `share = true`, in [defaults] or a [remote.NAME], they
    /// also start one, which ends after ten minutes without use; where it says `share = false`, and
    /// with --own-session, they don't use it. Other commands open their own sessions, as do logins
    /// with passwords, tokens and tickets, which the agent never gets.
    ///
    /// Whoever can open the agent's socket acts as you on your servers: that is you, and root.
    #[command(after_help = "\
Examples:
  xdfs agent run                           in the foreground
  xdfs agent status                        the sessions that it has
  xdfs agent stop")]
    Agent {
        /// The action.
        #[command(subcommand)]
        command: AgentCommand,
    },
    Perf(PerfFlags),
    Tune(TuneFlags),
    Xioperf(XioperfFlags),
    Tunnel(TunnelFlags),
    /// Parts of a GridFTP server that run apart from `xdfs serve --gridftp`.
    #[command(after_help = "\
Examples:
  xdfs gridftp data-node --config node.toml        moves files for a server on another machine")]
    Gridftp {
        /// The part.
        #[command(subcommand)]
        command: GridftpCommand,
    },
    Demo(DemoFlags),
    Remotes(RemotesFlags),
    Whoami(WhoamiFlags),
    Keygen(KeygenFlags),
    /// List, add and remove trusted servers.
    Trust {
        /// The action.
        #[command(subcommand)]
        command: TrustCommand,
    },
    /// Manage users with passwords, on the server's machine.
    User {
        /// The action.
        #[command(subcommand)]
        command: UserCommand,
        /// The configuration file of the server, if it names a folder of its own.
        #[arg(short, long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
        config: Option<PathBuf>,
    },
    /// Make, show and remove proxies for GSI (gsiftp).
    ///
    /// A proxy is a certificate that you make of your own, for some hours. The tools of Globus find
    /// it, as they find those of grid-proxy-init.
    #[cfg(feature = "gsi")]
    #[command(after_help = "\
Examples:
  xdfs proxy init
  xdfs proxy init --valid 24h --cert user.pem --key user.key
  xdfs proxy info
  xdfs proxy destroy")]
    Proxy {
        /// The action.
        #[command(subcommand)]
        command: ProxyCommand,
    },
    #[cfg(feature = "service")]
    Service(ServiceFlags),
    #[cfg(feature = "service")]
    Submit(SubmitFlags),
    #[cfg(feature = "service")]
    Jobs(JobsFlags),
    /// Show, change or delete a job of the service.
    #[cfg(feature = "service")]
    #[command(after_help = "\
Examples:
  xdfs job show ID
  xdfs job cancel ID")]
    Job {
        /// The action.
        #[command(subcommand)]
        command: JobCommand,
    },
    #[cfg(feature = "service")]
    Schedules(SchedulesFlags),
    /// Delete a schedule of the service.
    #[cfg(feature = "service")]
    #[command(after_help = "\
Examples:
  xdfs schedule delete ID")]
    Schedule {
        /// The action.
        #[command(subcommand)]
        command: ScheduleCommand,
    },
    #[cfg(feature = "service")]
    VerifyManifest(VerifyFlags),
    /// Make, list and revoke tokens, by which programs log in to the service.
    #[cfg(feature = "service")]
    #[command(after_help = "\
Examples:
  xdfs token create --scope submit --label 'nightly copies' > token
  xdfs submit --service-token token -r runs lab:archive
  xdfs token create --scope read --service http://127.0.0.1:2780 --user alice
  xdfs token revoke 0123456789abcdef")]
    Token {
        /// The action.
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Set, list and remove secrets, by which jobs of the service log in to servers.
    #[cfg(feature = "service")]
    #[command(after_help = "\
Examples:
  xdfs secret set lab --server xdfs://alice@lab.example
  xdfs secret set lab-key --kind key --file ~/.ssh/lab --server xdfs://alice@lab.example
  xdfs secret list")]
    Secret {
        /// The action.
        #[command(subcommand)]
        command: SecretCommand,
    },
    #[cfg(feature = "service")]
    Top(TopFlags),
    /// Print a completion script for a shell.
    ///
    /// In bash (4 or later), zsh and fish the script completes paths on servers too: `xdfs ls
    /// xdfs://host/ru<TAB>` offers the names there, and `xdfs://<TAB>` the servers in the list of
    /// `xdfs trust list`. The server is asked each time, with the security flags before the cursor.
    ///
    /// It has to be trusted already: from an unknown server nothing is offered. Nothing is asked,
    /// so a password or a ticket that you would have to type is not used; nor is a ticket from
    /// elsewhere, which may be good only once. After two seconds there are no names, nor are there
    /// any for ssh:// and sshftp:// URLs. Of more than 1000 names, the first 999 and the last are
    /// offered.
    #[command(after_help = "\
Examples:
  xdfs completions bash > ~/.local/share/bash-completion/completions/xdfs
  xdfs completions zsh > ~/.zfunc/_xdfs
  xdfs completions fish > ~/.config/fish/completions/xdfs.fish")]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory.
    #[command(after_help = "\
Examples:
  xdfs man ~/.local/share/man/man1          then: man xdfs-cp")]
    Man {
        /// The directory; created if missing.
        #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
        dir: PathBuf,
    },
}

impl Command {
    /// Whether only errors are to be printed.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Self::Cp(flags) => flags.output.quiet,
            Self::Sync(flags) => flags.output.quiet,
            Self::Perf(flags) => flags.output.quiet,
            Self::Tune(flags) => flags.output.quiet,
            Self::Xioperf(flags) => flags.output.quiet,
            Self::Tunnel(flags) => flags.output.quiet,
            _ => false,
        }
    }
}

/// Output options of the commands that transfer data.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct OutputFlags {
    /// Print JSON lines to standard output instead of progress.
    ///
    /// One object per line with `"schema": 1` and a `type`: `progress` during a transfer, `file`
    /// for each file, `error` for each failure, and exactly one `result` at the end.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print errors only.
    ///
    /// Neither progress nor results nor notices are printed; the exit code says how it ended.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print more to standard error; repeat for more.
    ///
    /// Once: digests, what limited the rate, and the engine's log at level info. Twice:
    /// level debug. Three times: level trace.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl OutputFlags {
    /// Whether progress is drawn or printed as it goes on.
    pub(crate) fn shows_progress(self) -> bool {
        !self.quiet && (self.json || std::io::stderr().is_terminal())
    }

    /// The level of the log; `None` if there is none.
    pub(crate) fn log_level(self) -> Option<Level> {
        match self.verbose {
            0 => None,
            1 => Some(Level::INFO),
            2 => Some(Level::DEBUG),
            _ => Some(Level::TRACE),
        }
    }
}

/// Headings of groups of flags.
const CONNECTION: &str = "Connection";
const SECURITY: &str = "Security";
const FILTERS: &str = "What is left out";
const METADATA: &str = "What is kept besides the content";
const OUTPUT: &str = "Output";

/// Session options of the commands that transfer data.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = CONNECTION)]
pub(crate) struct SessionFlags {
    /// Files of FTP servers aren't compared by checksums.
    #[arg(skip)]
    pub(crate) uncompared: bool,

    /// Number of parallel channels, 1 to 4096. Default: automatic.
    ///
    /// Automatic means one for small files, and a few for large ones. On long paths the number is
    /// then searched while a large file is moved: it grows as long as the total rate grows with it,
    /// up to 64. A given number stays as it is.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(CHANNELS_MAX))
    )]
    pub(crate) channels: Option<u32>,

    /// Block size, a power of two from 4K to 16M. Default: automatic.
    ///
    /// A block is the unit of checking, retransmission and resumption. The server may lower it.
    #[arg(short, long, value_name = "SIZE", value_parser = size::parse_block_size)]
    pub(crate) block_size: Option<u32>,

    /// Socket buffer size of each channel, 4K to 1G. Default: tuned by the system.
    ///
    /// Set it where the system's own tuning stops below the bandwidth-delay product divided by the
    /// number of channels.
    #[arg(short, long, value_name = "SIZE", value_parser = size::parse_window)]
    pub(crate) window: Option<u32>,

    /// Yield to others on the path: use only what they leave.
    ///
    /// The sender, here or at the server, keeps the queues of the path short: it slows down when
    /// packets begin to wait, and takes seconds to become faster again. Alone on the path it is
    /// nearly as fast as without. Over QUIC, or over TCP on Linux.
    #[arg(long)]
    pub(crate) nice: bool,

    #[command(flatten)]
    pub(crate) stack: StackFlags,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,
}

/// The drivers of channels, in all commands that open sessions.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = CONNECTION)]
pub(crate) struct StackFlags {
    /// Drivers of the channels, as the server listens with: quic, or tcp,tls,zstd:level=3.
    ///
    /// Repeated, the others are tried in order if the server can't be reached with the first one,
    /// with a message. Drivers are named from the bottom up; tls is added on top of a stack that
    /// doesn't protect, so write 'tcp,tls,zstd' to compress before it. A URL such as
    /// xdfs+quic://HOST/PATH names a stack by itself.
    #[arg(long, value_name = "STACK", value_parser = parse_stack)]
    pub(crate) stack: Vec<xdfs::drivers::StackSpec>,

    /// Load a driver for --stack from a shared library; may be repeated.
    ///
    /// The library becomes a part of this program, and the server needs the same driver. A file
    /// that others than you and root may change is refused. `drivers = "DIR"` in config.toml loads
    /// all libraries of a directory.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) driver: Vec<PathBuf>,
}

impl StackFlags {
    /// Whether none of these flags is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.stack.is_empty() && self.driver.is_empty()
    }

    /// The drivers as the library takes them.
    ///
    /// # Errors
    /// A driver can't be loaded.
    pub(crate) fn drivers(&self) -> Result<xdfs::drivers::Drivers, xdfs::Fault> {
        let mut drivers = xdfs::drivers::Drivers {
            stacks: self.stack.clone(),
            ..xdfs::drivers::Drivers::default()
        };
        self.driver.iter().try_for_each(|file| drivers.load(file))?;
        Ok(drivers)
    }
}

fn parse_stack(text: &str) -> Result<xdfs::drivers::StackSpec, String> {
    text.parse()
        .map_err(|error: xdfs::drivers::SpecError| error.to_string())
}

/// Retries of the commands that copy.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = CONNECTION)]
pub(crate) struct RetryFlags {
    /// Retries in a row without progress after transient failures. Default: 30; 0 for none.
    ///
    /// If the connection breaks or the server restarts, another session is opened, and the transfer
    /// goes on where it was. The pauses before the retries grow from 0.2 to 10 seconds: 30 retries
    /// take about four minutes while the server can't be reached. A server that never answered is
    /// not tried again, and one that closes the connection within the TLS handshake 5 times.
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
}

impl RetryFlags {
    /// The retries as the library takes them.
    pub(crate) fn policy(&self) -> xdfs::RetryPolicy {
        let default = xdfs::RetryPolicy::default();
        xdfs::RetryPolicy {
            retries_max: self.retries.unwrap_or(default.retries_max),
            ..default
        }
    }
}

impl SessionFlags {
    /// These flags for transfers with this digest.
    pub(crate) fn comparing(&self, digest: Option<cp::DigestFlag>) -> Self {
        Self {
            uncompared: matches!(digest, Some(cp::DigestFlag::None)),
            ..self.clone()
        }
    }

    /// The same options for the library, without security, which depends on the server.
    ///
    /// # Errors
    /// A driver can't be loaded.
    pub(crate) fn client_options(&self) -> Result<xdfs::ClientOptions, xdfs::Fault> {
        Ok(xdfs::ClientOptions {
            channels: self.channels,
            block_size: self.block_size,
            window: self.window,
            yields: self.nice,
            drivers: self.stack.drivers()?,
            settings: xdfs::PlaceSettings::default().with(xdfs::FtpSettings {
                uploads: crate::state::uploads(),
                uncompared: self.uncompared,
            }),
            ..xdfs::ClientOptions::default()
        })
    }
}

/// Which servers to trust, and how to authenticate to them.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = SECURITY)]
pub(crate) struct SecurityFlags {
    /// What `-` stood for, once it was typed.
    #[arg(skip)]
    pub(crate) typed: TypedSecrets,

    /// Authenticate with this OpenSSH private key. Default: xdfs's own key.
    ///
    /// The server has to list its public key for the user. A key with a passphrase is used through
    /// the ssh-agent (--agent).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<PathBuf>,

    /// Authenticate with the first key in the ssh-agent.
    ///
    /// The agent is the one of SSH_AUTH_SOCK. The private key stays there.
    #[arg(long, conflicts_with = "key")]
    pub(crate) agent: bool,

    /// Authenticate with the password on the first line of a file; '-' prompts for it.
    ///
    /// The user is the one of the URL, as in xdfs://alice@host/. The password itself is never sent,
    /// but to FTP servers (ftps://), which get it within TLS once they are trusted. Without this
    /// flag, a terminal prompts for it where the server doesn't accept the key.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) password_file: Option<PathBuf>,

    /// Authenticate with the bearer token in a file.
    ///
    /// Without this flag, BEARER_TOKEN and BEARER_TOKEN_FILE are tried. A token from these
    /// variables is sent only to servers that are known, pinned or vouched for by a certificate.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,

    /// Authenticate with the ticket on the first line of a file; '-' prompts for it.
    ///
    /// A ticket is what `xdfs serve --ticket` prints: ticket=SECRET&pin=FINGERPRINT. Without this
    /// flag, XDFS_TICKET is tried; then the server must match its pin or be known.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ticket_file: Option<PathBuf>,

    /// Do not authenticate, for public data. The same as xdfs://anonymous@HOST/.
    ///
    /// A server admits such users only to exports that are public.
    #[arg(long, conflicts_with_all = ["key", "agent", "password_file", "token_file", "ticket_file",
        "cert"])]
    pub(crate) anonymous: bool,

    /// Authenticate with the X.509 certificate chain in a PEM file.
    ///
    /// The client needs --cert-key too. The server maps the name in the certificate to a user.
    #[arg(long, value_name = "FILE", requires = "cert_key", value_hint = ValueHint::FilePath)]
    pub(crate) cert: Option<PathBuf>,

    /// The private key for --cert, as PEM.
    ///
    /// It has to belong to the first certificate of --cert.
    #[arg(long, value_name = "FILE", requires = "cert", value_hint = ValueHint::FilePath)]
    pub(crate) cert_key: Option<PathBuf>,

    /// Trust servers whose certificates these authorities (PEM) signed, and no new servers.
    ///
    /// The name in the certificate has to be that of the URL. Keys that are remembered from earlier
    /// sessions are not used then.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,

    /// Trust only the server with this key fingerprint, as printed by `xdfs serve`.
    ///
    /// Nothing is remembered, and a server with another key is refused.
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) pin: Option<xdfs::security::Fingerprint>,

    /// Refuse unknown servers instead of remembering their keys.
    ///
    /// Without this flag, the key of a server that is seen for the first time is remembered and
    /// shown.
    #[arg(long)]
    pub(crate) known_only: bool,

    /// Protection of the payload: private (the default), or clear; more with gsiftp://.
    ///
    /// With `clear`, the content of large files is sent unencrypted; authentication and everything
    /// else stay protected. An eavesdropper can read that content. It is checked with BLAKE3 unless
    /// --digest selects another digest, which an attacker on the path can forge. What an
    /// interrupted copy sent in the clear is sent again by the next one. Only servers started with
    /// `--protect clear` accept it. sshftp:// has nothing else: names in listings are in the clear
    /// too, data connections prove nothing, and content is checked with what the server has.
    ///
    /// With gsiftp:// names in listings are as content, and there are two more levels. `safe` is
    /// PROT S, the same on the wire as `private`. `unauthenticated` is `clear` with DCAU N: data
    /// connections don't prove either whose they are, so that whoever is first at one sends or gets
    /// what it carries. Use it only where a server can't do better. What a server refuses is an
    /// error: nothing is sent at another level.
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) protect: Option<LevelFlag>,

    /// Open channels without encryption and authentication.
    ///
    /// Only servers started with --insecure accept them. With ftp:// there are no others: FTP
    /// servers get passwords, names and data unencrypted then. Where one place of a copy is an
    /// ftp:// URL, this concerns FTP only: an xdfs:// or ssh:// place is protected as ever, and the
    /// other flags are about it. ftps:// is always protected. With sshftp:// it stands for
    /// --protect clear, for copies between such a server and others.
    #[arg(long)]
    pub(crate) insecure: bool,

    /// `insecure` is the consent to FTP without protection, and concerns no other place.
    #[arg(skip)]
    pub(crate) is_consent_to_clear: bool,

    #[command(flatten)]
    pub(crate) ssh: SshFlags,
}

impl SecurityFlags {
    /// The credentials as the library takes them.
    pub(crate) fn login(&self) -> Login {
        Login {
            key: self.key.clone(),
            agent: self.agent,
            password_file: self.password_file.clone(),
            token_file: self.token_file.clone(),
            ticket_file: self.ticket_file.clone(),
            anonymous: self.anonymous,
            cert: self.cert.clone(),
            cert_key: self.cert_key.clone(),
            ca: self.ca.clone(),
            pin: self.pin,
            known_only: self.known_only,
            protect: self.protect.map(Into::into),
            insecure: self.insecure,
            is_consent_to_clear: self.is_consent_to_clear,
            ssh: self.ssh.ssh.clone(),
            remote_program: self.ssh.remote_program.clone(),
            typed: self.typed.clone(),
        }
    }

    /// The flags for sessions with places that are used together.
    pub(crate) fn for_places<'a>(self, places: impl IntoIterator<Item = &'a RemotePlace>) -> Self {
        Self {
            is_consent_to_clear: self.login().for_places(places).is_consent_to_clear,
            ..self
        }
    }
}

/// Protection of the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LevelFlag {
    /// Encrypted, like everything else.
    #[default]
    Private,
    /// Protected from changes: gsiftp:// only, and encrypted there too.
    Safe,
    /// Unencrypted, with checksums.
    Clear,
    /// Clear, over data connections that prove nothing: gsiftp:// only.
    Unauthenticated,
}

impl From<LevelFlag> for xdfs::security::Level {
    fn from(flag: LevelFlag) -> Self {
        match flag {
            LevelFlag::Private => Self::Private,
            LevelFlag::Safe => Self::Safe,
            LevelFlag::Clear => Self::Clear,
            LevelFlag::Unauthenticated => Self::Unauthenticated,
        }
    }
}
