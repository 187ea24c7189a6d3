//! The flags of `xdfs service`, `submit`, `jobs` and `job`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Subcommand, ValueHint};
use tracing::Level;
use xdfs::security::Network;
use xdfs::settings::size;
use xdfs_service::{JobId, Moment, ScheduleId, Scope, SecretKind, StateName, parse_duration};

use super::look::PathFlags;

/// How long jobs are kept after they have ended, by default.
const KEEP: &str = "30d";

/// The lifetime of jobs that have ended: a duration, or `forever`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep(pub(crate) Option<Duration>);

fn parse_keep(text: &str) -> Result<Keep, String> {
    match text {
        "forever" => Ok(Keep(None)),
        text => duration(text).map(|keep| Keep(Some(keep))),
    }
}

/// The hint of a fault stands beside the usage already.
fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|fault| fault.cause)
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).map_err(str::to_owned)
}

fn moment(text: &str) -> Result<Moment, String> {
    Moment::parse_local(text).map_err(|fault| format!("{}; {}", fault.cause, fault.hint))
}

/// Keep a queue of copies, run them, and show them in a browser.
///
/// Jobs are submitted with 'xdfs submit', are kept in a database, and continue after the service or
/// the machine was stopped in any way. The service prints a link that logs in one browser, once.
/// Commands of the same user find a token in the folder of the service; everybody else is refused.
///
/// With --config, the users of a server log in by their passwords too, and each sees and changes
/// jobs of that user alone. The owner of the service, and administrators, see all. Jobs of other
/// users copy between servers, with nothing of the owner's: no files of this machine, and neither
/// its keys nor its settings.
///
/// The first Ctrl-C, or SIGTERM, stops running jobs in an orderly way; they continue when the
/// service is started again.
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  xdfs service                             then open the link that it prints
  xdfs service --data /var/lib/xdfs        with another folder
  xdfs service --database postgres://host/jobs --journals /shared/journals
                                           one of several that share the work
  xdfs service --config /etc/xdfs.toml     for the users of `xdfs user --config /etc/xdfs.toml add`

In the file of --config, which is that of `xdfs serve`, the service reads folder, owner, audit,
[limits] and:
  [service]
  administrators = [\"alice\"]             # they see and change the jobs of all users
  listen_tls = \"0.0.0.0:2781\"            # as --listen-tls, by which also [certificate] and
                                         # [client_certificates] are read"
)]
pub(crate) struct ServiceFlags {
    #[command(subcommand)]
    pub(crate) command: Option<ServiceCommand>,

    /// The address and port to listen on, of this machine only. Port 0 is any free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2780")]
    pub(crate) listen: SocketAddr,

    /// The address and port to listen on for other machines, by TLS, with the certificate of the
    /// server of --config: users log in by certificates too, where the file has
    /// [client_certificates]. Default: listen_tls in the file, or nowhere.
    #[arg(long, value_name = "ADDRESS", requires = "config")]
    pub(crate) listen_tls: Option<SocketAddr>,

    /// The URL under which others reach the service, such as https://copies.example: that of a
    /// proxy with TLS in front of it, or of --listen-tls. Logins by keys are for this name, and so
    /// is the printed link.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) public_url: Option<String>,

    /// The number of jobs that this process runs at the same time.
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) workers: u32,

    /// Most jobs that all services with the same database run at the same time. Default: none.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit_all: Option<u32>,

    /// Most jobs of one user that run at the same time. Default: none.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit_user: Option<u32>,

    /// Most jobs that run at the same time between the same two servers. Within it their number
    /// grows as long as that makes them faster together.
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit_link: u32,

    /// How long jobs are kept after they have ended, such as 12h or 90d, or 'forever'. Then they
    /// are deleted, unless they have a time of their own.
    #[arg(long, value_name = "DURATION", default_value = KEEP, value_parser = parse_keep)]
    pub(crate) keep: Keep,

    /// A network whose addresses webhooks may reach though they aren't public, such as
    /// 192.168.0.0/16, or an address. May be given several times.
    #[arg(long, value_name = "CIDR", value_parser = network)]
    pub(crate) webhook_allow: Vec<Network>,

    /// The file of the secret by which webhooks are signed: 'whsec_' and base64, or any text of 16
    /// bytes or more. XDFS_WEBHOOK_SECRET has the secret itself. Default: webhook-secret in the
    /// folder of the service, which is made once.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) webhook_secret: Option<PathBuf>,

    /// The configuration file of a server, whose users may log in. Default: only you.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// The file of the key that secrets of users are sealed by: 64 hexadecimal digits. Default:
    /// that in XDFS_SERVICE_SECRETS_KEY, or the credential xdfs-secrets-key of systemd, or
    /// secrets.key in the folder, which is made there.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) secrets_key: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) data: DataFlag,

    #[command(flatten)]
    pub(crate) database: DatabaseFlags,

    /// The folder of the journals of trees, which services with one database share: one of them
    /// continues what another one has begun. Default: journals in the folder of the service.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) journals: Option<PathBuf>,

    /// Seconds after which other services with the same database take over the jobs of one that has
    /// died, or doesn't reach the database any more.
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
        value_parser = clap::value_parser!(u32).range(2..=3600))]
    pub(crate) lease: u32,

    /// Print the log to standard error; twice for level debug.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl ServiceFlags {
    /// The level of the log; `None` if there is none.
    pub(crate) fn log_level(&self) -> Option<Level> {
        match self.verbose {
            0 => None,
            1 => Some(Level::INFO),
            _ => Some(Level::DEBUG),
        }
    }
}

/// Commands beside the service itself.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Write the database of a service to a new file, while it runs or not.
    Backup(BackupFlags),
}

/// The flags of `xdfs service backup`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BackupFlags {
    /// The new file. To restore it, stop the service, and put it in the place of service.db in the
    /// folder, without service.db-wal and service.db-shm.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) data: DataFlag,

    #[command(flatten)]
    pub(crate) database: DatabaseFlags,
}

/// The database of a service.
#[derive(Clone, Debug, Args)]
pub(crate) struct DatabaseFlags {
    /// A database of PostgreSQL, postgres://USER@HOST:PORT/DATABASE, which several services may
    /// share. Default: XDFS_SERVICE_DATABASE, or SQLite in the folder of the service.
    ///
    /// Others could see a password here: write the URL with it to a file for --database-file or to
    /// XDFS_SERVICE_DATABASE, or the password to ~/.pgpass.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) database: Option<String>,

    /// A file with such a URL on its first line, for its owner alone.
    #[arg(long, value_name = "FILE", conflicts_with = "database",
        value_hint = ValueHint::FilePath)]
    pub(crate) database_file: Option<PathBuf>,
}

/// The folder of a service.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataFlag {
    /// The folder of the service: its database, its token, journals. Default: service in
    /// XDFS_STATE_DIR, or in ~/.local/state/xdfs.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
}

/// The way to the service, and the login there.
#[derive(Clone, Debug, Args)]
pub(crate) struct WayFlags {
    #[command(flatten)]
    pub(crate) data: DataFlag,

    /// The URL of the service. Default: that in its folder.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) service: Option<String>,

    /// The file whose first line is an API token. Default: the token in the folder of the service,
    /// which only its owner can read, for a service of this machine.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        env = "XDFS_SERVICE_TOKEN_FILE")]
    pub(crate) service_token: Option<PathBuf>,

    /// Log in as this user of the service, by a key that signs a challenge of the service. Default
    /// for a service of another machine without a token: the name of this user.
    #[arg(long, value_name = "NAME", conflicts_with = "service_token")]
    pub(crate) service_user: Option<String>,

    /// The private key for that, without a passphrase. Default: the key of 'xdfs keygen'.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        conflicts_with = "service_token")]
    pub(crate) service_key: Option<PathBuf>,

    /// Log in by the X.509 certificate chain in a PEM file, to a service that has TLS of its own
    /// and maps the name in the certificate to a user.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        requires_all = ["service_cert_key", "service"],
        conflicts_with_all = ["service_token", "service_user", "service_key"])]
    pub(crate) service_cert: Option<PathBuf>,

    /// The private key for --service-cert, as PEM.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        requires = "service_cert")]
    pub(crate) service_cert_key: Option<PathBuf>,
}

/// The way to the service, and the form of what it answers.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReachFlags {
    #[command(flatten)]
    pub(crate) way: WayFlags,

    /// Print JSON to standard output: one object for each job, token or secret.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Submit a copy to the service, which runs it.
///
/// The id of the job is printed. One of the places is on a server, as for 'xdfs cp'; a path of this
/// machine is read or written by the service. Its credentials are those of the user of the service,
/// and servers have to be known to that user already, since no one is there to ask.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs submit big.img xdfs://host/big.img
  xdfs submit -r runs lab:archive          a directory
  xdfs submit --sync runs lab:runs         only what differs
  xdfs submit --from-file list             many files as one job
  xdfs submit --wait -r runs lab:archive   until it ends, with the exit code of the job
  xdfs submit --sync --every '30 2 * * *' runs lab:runs    each night")]
pub(crate) struct SubmitFlags {
    /// The source: a local path, or a URL.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath,
        required_unless_present = "from_file")]
    pub(crate) source: Option<OsString>,

    /// The target: a local path, or a URL.
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath,
        required_unless_present = "from_file")]
    pub(crate) target: Option<OsString>,

    /// Submit what a list says (- for standard input) as one job.
    ///
    /// A source and a target on each line, as for 'xdfs cp --from-file', and at most 1,000,000
    /// lines. The list is sent while it is read. With a wrong line nothing is submitted. With
    /// --recursive, sources that are directories of this machine, and all on servers, are
    /// copied as directories.
    #[arg(long, value_name = "LIST", value_hint = ValueHint::FilePath,
        conflicts_with_all = ["source", "target", "every"])]
    pub(crate) from_file: Option<PathBuf>,

    /// Copy a directory with its contents.
    #[arg(short, long, conflicts_with = "sync")]
    pub(crate) recursive: bool,

    /// Make the directory TARGET equal to the directory SOURCE, as 'xdfs sync' does. Nothing is
    /// deleted.
    #[arg(long)]
    pub(crate) sync: bool,

    /// Replace what exists at the target.
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Limit in bytes per second, such as 400M (400,000,000). Default: none.
    #[arg(long, value_name = "RATE", value_parser = size::parse_rate)]
    pub(crate) limit_rate: Option<u64>,

    /// Number of retries in a row without progress, with growing pauses, of a job whose server is
    /// down or busy. Default: 150, which is about a day.
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,

    /// Log in with this secret of the service ('xdfs secret'), where it has none for the server;
    /// may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) secret: Vec<String>,

    /// A line for people that says what the job is for.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) label: String,

    /// From -10 to 10: jobs of a higher priority are taken first.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i8).range(-10..=10))]
    pub(crate) priority: i8,

    /// Start no earlier than at this time, such as '2026-05-01 03:00' (local), or after this
    /// duration, such as 6h.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) at: Option<Moment>,

    /// Submit such a job again and again: at an interval of a minute or more, such as 6h, or at
    /// times of cron, such as '30 2 * * 1-5' or '30 2 * * 1-5 Europe/Berlin'. The schedule's id is
    /// printed. A time at which the last job has not ended is skipped. Without --at the schedule
    /// begins at once; --deadline and --keep are durations then.
    #[arg(long, value_name = "RULE", conflicts_with = "wait")]
    pub(crate) every: Option<String>,

    /// Fail unless it is done by this time, or within this duration from now.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) deadline: Option<Moment>,

    /// Keep the job until this time, or for this duration from now, if it has ended before.
    /// Default: as long as the service keeps all.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) keep: Option<Moment>,

    /// Keep a list of the files with their BLAKE3, and make a signed manifest of it when all have
    /// arrived: 'xdfs job manifest ID'.
    #[arg(long)]
    pub(crate) manifest: bool,

    /// Send the end of the job to this URL, signed with the secret of the service.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) webhook: Option<String>,

    /// Wait until the job has ended, and end with its exit code.
    #[arg(long)]
    pub(crate) wait: bool,

    #[command(flatten)]
    pub(crate) reach: ReachFlags,
}

/// List the jobs of the service, the newest first.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs jobs
  xdfs jobs --state failed --json")]
pub(crate) struct JobsFlags {
    /// Only those in this state, such as queued, running, paused, succeeded, failed, cancelled.
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<StateName>,

    #[command(flatten)]
    pub(crate) reach: ReachFlags,
}

/// List the schedules of the service, the newest first.
///
/// A schedule submits a job whenever it is due; 'xdfs submit --every' makes one. Times that
/// pass while the service doesn't run are made up for by one job.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs schedules
  xdfs schedules --json")]
pub(crate) struct SchedulesFlags {
    #[command(flatten)]
    pub(crate) reach: ReachFlags,
}

/// The actions of `xdfs schedule`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Delete a schedule. Its jobs stay.
    Delete(ScheduleFlags),
}

/// A schedule, and how to reach it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScheduleFlags {
    /// The id of the schedule.
    #[arg(value_name = "ID")]
    pub(crate) id: ScheduleId,

    #[command(flatten)]
    pub(crate) reach: ReachFlags,
}

/// The actions of `xdfs job`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Show a job: its state, its transfers, and what has happened to it.
    Show(JobFlags),
    /// Wait until a job has ended, and end with its exit code.
    Wait(JobFlags),
    /// Cancel a job. What has arrived stays.
    Cancel(JobFlags),
    /// Stop a job until it is resumed.
    Pause(JobFlags),
    /// Continue a paused job.
    Resume(JobFlags),
    /// Try again what has failed or was cancelled.
    Retry(JobFlags),
    /// Set the priority, label, deadline or lifetime of a job.
    Set(SetFlags),
    /// Print the manifest of a job that was submitted with --manifest and has succeeded.
    Manifest(ManifestFlags),
    /// Delete a job that has ended. The service deletes such jobs by itself after some time.
    Delete(JobFlags),
}

/// The job of a manifest.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManifestFlags {
    /// The id of the job.
    #[arg(value_name = "ID")]
    pub(crate) id: JobId,

    #[command(flatten)]
    pub(crate) way: WayFlags,
}

/// Check files against the manifest of a job, changing nothing.
///
/// FILE is a manifest of the transfer service ('xdfs job manifest ID'). First its signature is
/// verified, by the key of the service: the file manifest-key.pub in the folder of the service.
/// Then the files that it lists are looked for in DIR, here or on a server, and their BLAKE3 is
/// computed where they are.
///
/// Prints a line for each file that isn't as listed: 'differs PATH' or 'missing PATH'. What is not
/// in the manifest isn't looked at. The exit code is 0 if there is no difference, and 18 if there
/// is one, unless something failed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs job manifest ID > runs.manifest
  xdfs verify-manifest runs.manifest xdfs://host/archive/runs
  xdfs verify-manifest --signer manifest-key.pub runs.manifest /archive/runs")]
pub(crate) struct VerifyFlags {
    /// The manifest: a file, which is read twice.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) manifest: PathBuf,

    /// The directory with its files, here or on a server.
    #[arg(value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) directory: OsString,

    /// The public key of the service, as a line of OpenSSH in a file. Default: manifest-key.pub in
    /// the folder of this user's service.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) signer: Option<PathBuf>,

    /// Only the files of this transfer of the job; 0 is the first one. Default: all.
    #[arg(long, value_name = "N")]
    pub(crate) transfer: Option<u32>,

    #[command(flatten)]
    pub(crate) data: DataFlag,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// The settings of a job to be changed.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("setting").required(true).multiple(true))]
pub(crate) struct SetFlags {
    /// From -10 to 10: jobs of a higher priority are taken first.
    #[arg(long, value_name = "N", group = "setting", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i8).range(-10..=10))]
    pub(crate) priority: Option<i8>,

    /// A line for people that says what the job is for.
    #[arg(long, value_name = "TEXT", group = "setting")]
    pub(crate) label: Option<String>,

    /// Let it fail unless it is done by this time, or within this duration from now; 'none' for no
    /// deadline.
    #[arg(long, value_name = "TIME", group = "setting", value_parser = moment_or_none)]
    pub(crate) deadline: Option<MomentOrNone>,

    /// Keep it until this time, or for this duration from now, if it has ended before; 'none' for
    /// as long as the service keeps all.
    #[arg(long, value_name = "TIME", group = "setting", value_parser = moment_or_none)]
    pub(crate) keep: Option<MomentOrNone>,

    #[command(flatten)]
    pub(crate) job: JobFlags,
}

/// A moment, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MomentOrNone(pub(crate) Option<Moment>);

fn moment_or_none(text: &str) -> Result<MomentOrNone, String> {
    match text {
        "none" => Ok(MomentOrNone(None)),
        text => moment(text).map(|moment| MomentOrNone(Some(moment))),
    }
}

/// The way to the service, for what a user has there.
#[derive(Clone, Debug, Args)]
pub(crate) struct AccountFlags {
    /// Log in as this user of the service, by a password that is asked for, or read from standard
    /// input.
    #[arg(long, value_name = "NAME",
        conflicts_with_all = ["service_token", "service_user", "service_key"])]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) reach: ReachFlags,
}

/// The actions of `xdfs token`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it, once. It needs a login by password, or the owner of the service.
    Create {
        /// What it may be used for: read, to see jobs; submit, to submit and change them too;
        /// admin, for all that the user may.
        #[arg(long, value_name = "SCOPE")]
        scope: Scope,

        /// A line for people that says what the token is for.
        #[arg(long, value_name = "TEXT", default_value = "")]
        label: String,

        /// Days until it ends, up to 366.
        #[arg(long, value_name = "N", default_value_t = 30)]
        days: u32,

        #[command(flatten)]
        account: AccountFlags,
    },
    /// List tokens: their ids, not their secret parts.
    List(AccountFlags),
    /// Revoke a token at once.
    Revoke {
        /// The id of the token.
        #[arg(value_name = "ID")]
        id: String,

        #[command(flatten)]
        account: AccountFlags,
    },
}

/// The actions of `xdfs secret`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Set a secret, which is asked for, or is the first line of standard input.
    Set {
        /// The name of the secret.
        #[arg(value_name = "NAME")]
        name: String,

        /// The kind: password, token, or key, which is a private key of OpenSSH.
        #[arg(long, value_name = "KIND", default_value = "password")]
        kind: SecretKind,

        /// The server that it is for, such as xdfs://alice@host: all of your jobs log in to it with
        /// this secret. Default: jobs name the secret, by 'xdfs submit --secret NAME'.
        #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
        server: Option<String>,

        /// The file with the secret, such as a private key.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,

        #[command(flatten)]
        account: AccountFlags,
    },
    /// List the names of your secrets.
    List(AccountFlags),
    /// Remove a secret.
    Remove {
        /// The name of the secret.
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        account: AccountFlags,
    },
}

/// A job, and how to reach it.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobFlags {
    /// The id of the job.
    #[arg(value_name = "ID")]
    pub(crate) id: JobId,

    #[command(flatten)]
    pub(crate) reach: ReachFlags,
}
