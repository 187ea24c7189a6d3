//! The flags of `xdfs cp`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum, ValueHint, value_parser,
};
use xdfs::{DigestKind, Durability, Resume, Skip, Way};

use super::relay::ViaFlags;
use super::{
    FILTERS, FilterFlags, METADATA, OUTPUT, OutputFlags, RetryFlags, SessionFlags, StripeFlags,
};
use xdfs::settings::size;

/// Copy files to or from a server, from one to another, or within this machine.
///
/// A place is a local path, '-' for standard input or output, or a URL:
/// xdfs://[user@]host[:port]/path. A server on a Unix socket is written xdfs+unix://SOCKET/path,
/// with the slashes in SOCKET as %2F. With ssh://[user@]host[:port]/path, a server is started on
/// that machine through ssh, for this command only; /~/path begins in the user's home there.
/// FTP and GridFTP servers are reached by ftps://[user@]host[:port]/path with TLS, by
/// gsiftp://[user@]host[:port]/path with GSI, and by ftp://[user[:password]@]host[:port]/path and
/// --insecure without either. With sshftp://[user@]host[:port]/path such a server is started
/// through ssh, which protects commands and replies; content and names in listings need --protect
/// clear. With ftp:// and ftps://, /path begins in the directory of the login, and //path at the
/// root; with gsiftp:// and sshftp://, /path begins at the root, and /~/path in the directory of
/// the login. NAME:path is on a server with a name: see `xdfs remotes --help`. If both sides are
/// servers, files go from one to the other (--between). If neither is, they are copied within this
/// machine, with the same guarantees; a standard stream needs a server. With several sources, the
/// target is an existing directory in which each keeps its name; they are copied back to back in
/// one session.
///
/// A file that several servers have is copied from all of them at once if its URLs are one word
/// with commas between them: more from the faster ones, and nothing on whose digest they don't
/// agree. A source that stalls, fails or differs is named and no longer used. A comma separates
/// only before a URL; %2C stands for one that would.
///
/// In the URL of a source, *, ? and [a-z] match names on the server, unless a path exists as it is
/// written; quote them for your shell. %2A, %3F and %5B stand for these characters themselves. A
/// pattern that matches nothing is an error.
///
/// The target appears under its name only once all its bytes have arrived, have been verified and
/// are durable. Until then they are in a hidden partial file beside it, so that the same command
/// resumes after an interruption of any kind. If the source has changed in the meantime, or one of
/// the sides is an FTP server without checksums, the copy starts over.
///
/// Ctrl-C stops in an orderly way; a second Ctrl-C stops at once.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs cp [OPTIONS] SOURCE... TARGET\n       \
        xdfs cp [OPTIONS] --from-file LIST\n       \
        xdfs cp [OPTIONS] --mirrors LIST TARGET",
    after_help = "\
Sizes: 123, 64K, 1.5G; K, M, G, T are powers of 1024 (KiB too), kB, MB, GB powers of 1000.
Rates: bytes a second; K, M, G are powers of 1000 (kB, MB too), KiB, MiB, GiB powers of 1024.

Examples:
  xdfs cp big.img xdfs://host/            upload, the name is kept
  xdfs cp xdfs://host/big.img .           download into this directory
  xdfs cp xdfs://one/f,xdfs://other/f .   one file, from two servers at once
  xdfs cp --mirrors big.img.meta4 .       what a list of mirrors names
  xdfs cp *.dat xdfs://host/runs/         many files, one session
  xdfs cp 'xdfs://host/runs/*.dat' data/  what matches there
  xdfs cp -r tree xdfs://host/            a whole tree, as tree on the server
  xdfs cp -a tree /mnt/backup/            to another disk; resumes after an interruption
  xdfs cp -r --max-size 10M --min-age 1d tree xdfs://host/
  git ls-files -z | xdfs cp -0 --files-from - ./ xdfs://host/src/
  xdfs cp --from-file pairs               what a list says, a source and a target a line
  xdfs cp big.img ssh://host/~/runs/      over ssh, with no server there before
  xdfs cp --password-file - ftps://me@host/pub/big.img .
  xdfs cp --insecure ftp://host/pub/big.img .
  xdfs cp --protect clear sshftp://me@host/big.img .   GridFTP, which ssh starts there
  xdfs cp -r --insecure ftp://one/data/ ftp://other/data/   from server to server
  xdfs cp -n 16 --limit-rate 400M big.img xdfs://host/big.img
  xdfs cp -r --remove-source runs xdfs://host/   move the files
  tar -c tree | xdfs cp - xdfs://host/tree.tar
  xdfs cp --offset 1G --length 64M xdfs://host/big.img part.bin
  xdfs cp --json big.img xdfs://host/ | jq 'select(.type == \"result\")'"
)]
pub(crate) struct CpFlags {
    #[command(flatten)]
    pub(crate) places: Places,

    /// Offset of the first byte to copy.
    ///
    /// An offset past the end of the source is an error.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::parse_size)]
    pub(crate) offset: u64,

    /// Number of bytes to copy. Default: to the end of the source.
    ///
    /// It is refused for directories. Together with --offset it copies a part of a file.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_size)]
    pub(crate) length: Option<u64>,

    /// Limit in bytes per second over all channels, such as 400M (400,000,000). Default: none.
    ///
    /// K, M and G are powers of 1000 here. The limit holds for all sources of the command together,
    /// one after the other.
    #[arg(long, value_name = "RATE", value_parser = size::parse_rate)]
    pub(crate) limit_rate: Option<u64>,

    /// Start over instead of resuming.
    ///
    /// An existing target is still replaced with --force only.
    #[arg(long)]
    pub(crate) no_resume: bool,

    /// When resuming, verify the data that arrived earlier, and resend what differs.
    ///
    /// Data that was durable is normally trusted, unless the target's machine has rebooted since;
    /// then it is always verified. Verifying takes as long as the target's disk takes to read it.
    /// In a directory this applies to the files that are sent one by one, from half a MiB on.
    #[arg(long, conflicts_with = "no_resume")]
    pub(crate) verify_resumed: bool,

    /// Digest of the whole file that both sides compute and compare.
    ///
    /// Default: crc64nvme, or blake3 with --protect clear. Whatever is chosen, each block is
    /// checked in transit by TLS or with CRC-32C.
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) digest: Option<DigestFlag>,

    /// Copy directories recursively.
    ///
    /// As with 'cp -r', a directory is copied into the target if that is a directory; with a slash
    /// at the end of the source, only its contents are. ('xdfs sync' always takes the contents.)
    /// Symbolic links stay links, unless --copy-links is given. Modes and modification times are
    /// preserved. Files that are at the target with the same size and time
    /// are skipped and counted. What can't be copied is reported and counted, and the rest goes on;
    /// failures that may be temporary are retried at the end.
    ///
    /// To resume after an interruption of any kind, run the same command again: what was finished
    /// is neither rescanned nor resent. A file that changes later in a directory that was finished
    /// goes unnoticed; 'xdfs sync' finds it. After a run that ended with failures, everything is
    /// rescanned, and what differs in size or modification time is sent. The record of finished
    /// work is kept in XDFS_STATE_DIR (default: ~/.local/state/xdfs) until nothing is left to do.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Archive mode: --recursive --owner --xattrs --hard-links. It leaves out what --xattrs does,
    /// and access times.
    ///
    /// It keeps what the other side allows. Where that isn't root, files belong to its user: a
    /// warning says how many lost their owner.
    #[arg(short, long)]
    pub(crate) archive: bool,

    #[command(flatten)]
    pub(crate) servers: ServersFlags,

    #[command(flatten)]
    pub(crate) filter: FilterFlags,

    /// Copy only the paths listed in a file (- for standard input), relative to SOURCE.
    ///
    /// One path per line; blank lines are ignored, and there are no comments. A './' or '/' before
    /// a path changes nothing. SOURCE is a single directory, and is copied as with --recursive:
    /// with its name, unless there is a slash at its end. Of a listed directory everything is
    /// copied, so '.' stands for all of SOURCE; of the directories above a listed path nothing else
    /// is. A listed path that doesn't exist or has '..' in it is a failure, as is one that leads
    /// through a symbolic link without --copy-links; the others are copied. --exclude and the other
    /// filters apply too.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = FILTERS)]
    pub(crate) files_from: Option<PathBuf>,

    /// Copy what a list says (- for standard input), a source and a target on each line.
    ///
    /// As `globus-url-copy -f` has it: `SOURCE TARGET`, separated by spaces, those with spaces in
    /// double quotes; blank lines and lines that begin with # are ignored. Places are what they are
    /// on the command line, and file:///PATH is a local one. Each line is a copy of its own with
    /// the flags of the command, directories with --recursive. A failure is that of its line: the
    /// others are copied, and the exit code is that of the first failure. Sessions are used again
    /// from line to line. Several lines are under way at once, so that none can need what another
    /// one makes. Lists may have any length, and are copied while they are written.
    #[arg(
        long,
        value_name = "LIST",
        value_hint = ValueHint::FilePath,
        conflicts_with = "files_from"
    )]
    pub(crate) from_file: Option<PathBuf>,

    /// The paths of --files-from end in NUL bytes instead of line ends.
    ///
    /// So that names with line ends can be listed, as by `find -print0` and `git ls-files -z`.
    #[arg(short = '0', long, requires = "files_from", help_heading = FILTERS)]
    pub(crate) null: bool,

    /// Preserve owner and group, by name where the other side knows it.
    ///
    /// Only root may give files to others. Another user keeps the groups that it is in, and a
    /// warning says how many files lost their owner. set-user-id and set-group-id stay with the
    /// owner.
    ///
    /// Without it everything belongs to the user of the target, and set-user-id and set-group-id
    /// bits are left out. Permissions that come from a server are cut by the umask, unless this or
    /// --xattrs is given.
    #[arg(long, help_heading = METADATA)]
    pub(crate) owner: bool,

    /// Preserve extended attributes ('user.*') and access control lists. System attributes are left
    /// out silently: security.*, which includes file capabilities, and trusted.*.
    ///
    /// A target that can't keep them reports that for each entry; the content is copied all the
    /// same.
    #[arg(long, help_heading = METADATA)]
    pub(crate) xattrs: bool,

    /// Preserve access times.
    ///
    /// Reading a file to copy it may change its access time at the source, as the file system there
    /// is mounted.
    #[arg(long, help_heading = METADATA)]
    pub(crate) read_times: bool,

    /// Preserve hard links.
    ///
    /// Names of one file within the tree become names of one file at the target. Without it each
    /// becomes a file of its own.
    #[arg(long, help_heading = METADATA)]
    pub(crate) hard_links: bool,

    /// Copy what symbolic links in directories lead to, instead of the links.
    ///
    /// A link to a file becomes a file with the content, mode and time of that file, and a link to
    /// a directory a directory with its contents, wherever it leads: here also out of the source,
    /// on a server as far as you may read there. A link that leads nowhere, or to a directory that
    /// it is in, which would go on for ever, is reported and counted, and the rest is copied.
    ///
    /// Without it they stay links. A SOURCE that is itself a link is always followed. Not together
    /// with --remove-source, which would have to decide between the link and what it leads to. A
    /// server of an older version can't do it for downloads, and says so.
    #[arg(short = 'L', long, help_heading = METADATA)]
    pub(crate) copy_links: bool,

    /// When a copied tree is made durable.
    ///
    /// A single file is always durable when the command ends with 0.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = DurabilityFlag::Batch)]
    pub(crate) durability: DurabilityFlag,

    /// Replace what exists at the target; it stays intact until the new content is complete.
    ///
    /// A file with the size and modification time of its source is skipped and counted, with or
    /// without this flag: repeating a copy costs next to nothing, and ends with 0. The other flags
    /// of this group decide otherwise. Parts of files (--offset, --length) are skipped only if
    /// their content is the same too.
    #[arg(short, long, help_heading = EXISTING)]
    pub(crate) force: bool,

    /// Skip whatever exists at the target, the same or not.
    ///
    /// Neither size nor time nor content is looked at. The files are counted, and the exit code is
    /// 0.
    #[arg(
        long,
        help_heading = EXISTING,
        conflicts_with_all = ["force", "update", "checksum", "ignore_times"]
    )]
    pub(crate) skip_existing: bool,

    /// Replace what is older at the target than its source, and skip the rest.
    ///
    /// Times are modification times. A target with the same time is up to date, whatever its size.
    #[arg(
        short,
        long,
        help_heading = EXISTING,
        conflicts_with_all = ["checksum", "ignore_times"]
    )]
    pub(crate) update: bool,

    /// Skip what has the size and content of its source, whatever its time.
    ///
    /// Each side reads its file and computes a BLAKE3 digest. What differs is refused, or replaced
    /// with --force.
    #[arg(long, help_heading = EXISTING, conflicts_with = "ignore_times")]
    pub(crate) checksum: bool,

    /// Skip nothing for its size and time: with --force send everything again.
    ///
    /// Without --force only a file with the same content, time and mode is skipped, which both
    /// sides read for that; in directories by content and time.
    #[arg(short = 'I', long, help_heading = EXISTING)]
    pub(crate) ignore_times: bool,

    /// Remove each source file once its target is verified and durable: a move.
    ///
    /// After the copy, source and target are compared by BLAKE3, for which each side reads its
    /// content again, also of files that were at the target already; then the target is made
    /// durable. Files and symbolic links that are the same there, and have not changed meanwhile,
    /// are removed from the source; all others stay and are reported. Directories and named pipes
    /// stay.
    #[arg(long, conflicts_with_all = ["offset", "length", "copy_links"])]
    pub(crate) remove_source: bool,

    /// Print what would be done, as far as both sides can tell, and write nothing.
    ///
    /// Both sides are asked whether the copy could be done: existing targets, rights and free
    /// space. Of directories, each name that would be copied is printed.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) session: SessionFlags,

    #[command(flatten)]
    pub(crate) retry: RetryFlags,

    #[command(flatten)]
    pub(crate) stripe: StripeFlags,

    /// End with a small table: counts, bytes, time, rate, retries, and what limited it.
    ///
    /// It goes to standard error. What limited the run is what limited its transfers for the
    /// longest time: reading the source, writing the target, the rate limit, or the network and the
    /// CPU. With --json the lines have the same facts.
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) stats: bool,

    /// Append a line for each file that was transferred to FILE.
    ///
    /// It has the time (UTC), the bytes of the file, its digest, and source and target, quoted as
    /// in a shell where that is needed; a '-' stands for a digest that isn't known. Files of
    /// directories are in it one by one. FILE is created if missing, readable by its owner only.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) transfer_log: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// Heading of the flags for what exists at the target.
const EXISTING: &str = "What exists at the target";

impl CpFlags {
    /// Whether what exists at the target is replaced.
    pub(crate) fn overwrites(&self) -> bool {
        self.force || self.update
    }

    /// Whether it resumes from what an earlier copy left there.
    pub(crate) fn resume(&self) -> Resume {
        match self {
            Self {
                no_resume: true, ..
            } => Resume::Never,
            Self {
                verify_resumed: true,
                ..
            } => Resume::Verify,
            _ => Resume::Trust,
        }
    }

    /// What is skipped there.
    pub(crate) fn skip(&self) -> Skip {
        match self {
            Self {
                skip_existing: true,
                ..
            } => Skip::All,
            Self { update: true, .. } => Skip::NotOlder,
            Self { checksum: true, .. } => Skip::Content,
            Self {
                ignore_times: true,
                force: true,
                ..
            } => Skip::Never,
            Self {
                ignore_times: true, ..
            } => Skip::Identical,
            _ => Skip::SizeAndTime,
        }
    }
}

/// The sources and the target.
///
/// They are one list for the parser, because clap accepts options between the words of one list but
/// not between a list of sources and a separate target.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Local files, '-' for standard input, or URLs of files on servers; at least one, unless
    /// there is a list.
    pub(crate) sources: Vec<OsString>,
    /// A URL, a local file or directory, or '-' for standard output.
    pub(crate) target: OsString,
}

impl Args for Places {
    fn augment_args(command: Command) -> Command {
        command.arg(
            Arg::new("places")
                .value_name("SOURCE... TARGET")
                .required_unless_present("from_file")
                .conflicts_with("from_file")
                .num_args(1..)
                .action(ArgAction::Append)
                .value_parser(value_parser!(OsString))
                .value_hint(ValueHint::AnyPath)
                .help("The sources, and last the target: local files, URLs, or '-'")
                .long_help(
                    "The sources: local files, '-' for standard input, or URLs. The last word is \
                     the target: a URL, a local file or directory, or '-' for standard output. If \
                     it is a directory, or ends in '/', a file keeps its name in it.",
                ),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Places {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let words = matches.get_many::<OsString>("places");
        let mut sources: Vec<_> = words.into_iter().flatten().cloned().collect();
        match sources.pop() {
            None if matches.contains_id("from_file") => Ok(Self {
                sources,
                target: OsString::new(),
            }),
            Some(target) if !sources.is_empty() || matches.contains_id("mirrors") => {
                Ok(Self { sources, target })
            }
            _ => Err(clap::Error::raw(
                ErrorKind::MissingRequiredArgument,
                "a source and a target are needed: xdfs cp [OPTIONS] SOURCE... TARGET\n",
            )),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Copies from several servers, from one server to another, and by a relay.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServersFlags {
    /// Copy the files of a list of mirrors (- for standard input), each from several servers.
    ///
    /// The list is Metalink 4 (RFC 5854, a .meta4 file), or text with a URL on each line: all of
    /// them are sources of one file, as on the command line with commas between them. URLs of
    /// protocols that xdfs doesn't speak are left out, with a warning. `size BYTES`, `sha256 HEX`
    /// and `blake3 HEX` on lines of the text say what is known of the file, as Metalink does: such
    /// a digest decides between sources that differ, and a file with another one isn't published.
    #[arg(
        long,
        value_name = "LIST",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["files_from", "from_file"]
    )]
    pub(crate) mirrors: Option<PathBuf>,

    /// How files get from one server to another, if both sides are servers.
    ///
    /// Within one server, straight from one server to another, or through this machine. A server
    /// connects to another one only if its settings allow that (--connect-to), and FTP servers may
    /// refuse it. With --offset and --length, between servers of different kinds, and with
    /// --limit-rate between FTP servers, files go through this machine. -v says why, and --json
    /// which way each file and tree took. A directory whose symbolic links are followed goes
    /// through this machine. A directory within one server goes through this machine to keep
    /// owners, extended attributes or access times. With an FTP server on either side these, and
    /// hard links, are refused.
    #[arg(long, value_name = "WAY", value_enum, default_value_t = BetweenFlag::Any)]
    pub(crate) between: BetweenFlag,

    /// Leave a copy between two servers to them, and end at once.
    ///
    /// Prints an identifier for each file, which `xdfs status`, `wait` and `cancel` take with the
    /// server that has it. One of the servers has to be allowed to connect to the other
    /// (--connect-to). A server forgets its copies when it restarts: the same command, with or
    /// without --detach, resumes them.
    #[arg(long, conflicts_with_all = ["recursive", "archive", "files_from", "from_file", "offset",
        "length", "remove_source", "dry_run", "transfer_log"])]
    pub(crate) detach: bool,

    #[command(flatten)]
    pub(crate) via: ViaFlags,
}

/// How files get from one server to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BetweenFlag {
    /// Without this machine where that is possible, otherwise through it.
    Any,
    /// Without this machine, or the copy fails.
    Direct,
    /// Through this machine.
    Client,
}

impl From<BetweenFlag> for Way {
    fn from(flag: BetweenFlag) -> Self {
        match flag {
            BetweenFlag::Any => Self::Any,
            BetweenFlag::Direct => Self::Direct,
            BetweenFlag::Client => Self::Client,
        }
    }
}

/// When a copied tree is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityFlag {
    /// Content before a file gets its name, many files at a time: after a power cut each file is
    /// the old one, the new one or missing, and the same command resumes. Names before the end is
    /// reported, and every few seconds before they are recorded as finished.
    Batch,
    /// The same, and each name before its file counts as copied; slow.
    Full,
    /// Files of up to half a MiB, and other names, whenever the system writes them: after a power
    /// cut, files may be empty or have holes, and a later run takes some of them as finished.
    None,
}

/// The digests of a whole file, by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DigestFlag {
    /// CRC-64/NVME, as S3 uses for full objects; detects accidental changes at almost no cost.
    #[value(alias = "crc64")]
    Crc64nvme,
    /// BLAKE3, cryptographic; detects tampering too, at some CPU cost.
    Blake3,
    /// No digest of the whole file, and no checksum of an FTP server's.
    None,
}

impl From<DurabilityFlag> for Durability {
    fn from(flag: DurabilityFlag) -> Self {
        match flag {
            DurabilityFlag::Batch => Self::Batch,
            DurabilityFlag::Full => Self::Full,
            DurabilityFlag::None => Self::None,
        }
    }
}

impl From<DigestFlag> for DigestKind {
    fn from(flag: DigestFlag) -> Self {
        match flag {
            DigestFlag::Crc64nvme => Self::Crc64Nvme,
            DigestFlag::Blake3 => Self::Blake3,
            DigestFlag::None => Self::None,
        }
    }
}
