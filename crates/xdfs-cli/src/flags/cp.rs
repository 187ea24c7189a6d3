//! The flags of `xdfs cp`.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum, ValueHint, value_parser,
};
use xdfs::{DigestKind, Durability};

use super::{FilterFlags, OutputFlags, SessionFlags};
use crate::size;

/// Copy files to or from a server.
///
/// A place is a local path, '-' for standard input or output, or
/// xdfs://[user@]host[:port]/path. A server on a Unix socket is written xdfs+unix://SOCKET/path
/// with the slashes of SOCKET as %2F. Exactly one side is a server. Several files go back to back
/// in one session; then the target is a directory, and each file keeps its name in it.
///
/// The target appears under its name only when all bytes have arrived, have been verified and are
/// durable. Until then a hidden partial file beside it holds them, so that the same command goes
/// on after an interruption of any kind. A source that has changed meanwhile starts over.
///
/// Ctrl-C stops in an orderly way; a second one stops at once.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs cp [OPTIONS] SOURCE... TARGET",
    after_help = "\
Sizes: 123, 64K, 1.5G; K, M, G, T are powers of 1024 (KiB too), kB, MB, GB powers of 1000.
Rates: bytes a second; K, M, G are powers of 1000 (kB, MB too), KiB, MiB, GiB powers of 1024.

Examples:
  xdfs cp big.img xdfs://host/            upload, the name is kept
  xdfs cp xdfs://host/big.img .           download into this directory
  xdfs cp *.dat xdfs://host/runs/         many files, one session
  xdfs cp -r tree xdfs://host/            a whole tree, as tree on the server
  xdfs cp -n 16 --limit-rate 400M big.img xdfs://host/big.img
  tar -c tree | xdfs cp - xdfs://host/tree.tar
  xdfs cp --offset 1G --length 64M xdfs://host/big.img part.bin
  xdfs cp --json big.img xdfs://host/ | jq 'select(.type == \"result\")'"
)]
pub(crate) struct CpFlags {
    #[command(flatten)]
    pub(crate) places: Places,

    #[command(flatten)]
    pub(crate) session: SessionFlags,

    /// First byte of the source to copy.
    ///
    /// An offset past the end of the source is an error.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::parse_size)]
    pub(crate) offset: u64,

    /// Number of bytes to copy; up to the end of the source unless given.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_size)]
    pub(crate) length: Option<u64>,

    /// Most bytes a second over all channels, such as 400M (400,000,000); no bound unless given.
    #[arg(long, value_name = "RATE", value_parser = size::parse_rate)]
    pub(crate) limit_rate: Option<u64>,

    /// Start over, even if a part of the file, or of the directory, has arrived earlier.
    ///
    /// What stands at the target by then is replaced with --force only.
    #[arg(long)]
    pub(crate) no_resume: bool,

    /// Read again what has arrived earlier, and send again what isn't as it was.
    ///
    /// What was durable is trusted to be so unless the machine of the target was started anew
    /// since: then it is read again in any case. Reading takes as long as its disk takes. Of a
    /// directory that concerns the files that are sent one by one, from half a MiB on.
    #[arg(long, conflicts_with = "no_resume")]
    pub(crate) verify_resumed: bool,

    /// Digest of the whole file that both sides compute and compare.
    ///
    /// Unless given it is crc64nvme, and blake3 with --protect clear. Whatever is chosen, each
    /// block is checked on its way: by TLS, or with CRC-32C.
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) digest: Option<DigestFlag>,

    /// Copy directories with all that is in them.
    ///
    /// Into the target if that is a directory, as 'cp -r' does; with a slash at the end of the
    /// source only what is in it. Symbolic links stay links. Modes and times of the last change
    /// are kept. What can't be copied is reported and counted, and the rest goes on; what may pass
    /// is tried again at the end.
    ///
    /// After an interruption of any kind the same command goes on: what was finished is neither
    /// looked at again nor sent again. A file that changes meanwhile in a directory that was
    /// finished isn't noticed: 'xdfs sync' does. After a run that came to its end with failures
    /// everything is looked at again, and what isn't there in the same size and time is sent. What
    /// is finished is remembered in XDFS_STATE_DIR (~/.local/state/xdfs unless set) until nothing
    /// is left to do.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Copy directories and keep all that can be kept: --recursive --owner --xattrs --hard-links.
    /// That leaves out what --xattrs does, and the times of the last read.
    #[arg(short, long)]
    pub(crate) archive: bool,

    #[command(flatten)]
    pub(crate) filter: FilterFlags,

    /// Keep owner and group, by name where the other side knows it; that takes rights there.
    #[arg(long)]
    pub(crate) owner: bool,

    /// Keep extended attributes of users ('user.*') and access control lists. Those of the system
    /// are left out without a word: security.*, file capabilities among them, and trusted.*.
    #[arg(long)]
    pub(crate) xattrs: bool,

    /// Keep the times of the last read.
    #[arg(long)]
    pub(crate) read_times: bool,

    /// Keep several names of one file as such.
    #[arg(long)]
    pub(crate) hard_links: bool,

    /// When what was copied of a tree is durable.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = DurabilityFlag::Batch)]
    pub(crate) durability: DurabilityFlag,

    /// Replace a target that exists; it stays as it is until the new content is complete.
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Ask both sides what would be done, print it, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// What is copied, and where to.
///
/// One list of words for the parser, which takes options between them so: it wouldn't between a
/// list of sources and a target of its own.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Local files, '-' for standard input, or URLs of files on servers; at least one.
    pub(crate) sources: Vec<OsString>,
    /// A URL, a local file or directory, or '-' for standard output.
    pub(crate) target: OsString,
}

impl Args for Places {
    fn augment_args(command: Command) -> Command {
        command.arg(
            Arg::new("places")
                .value_name("SOURCE... TARGET")
                .required(true)
                .action(ArgAction::Append)
                .value_parser(value_parser!(OsString))
                .value_hint(ValueHint::AnyPath)
                .help("What to copy, and at the end where to: local files, URLs, or '-'")
                .long_help(
                    "What to copy: local files, '-' for standard input, or URLs of files on \
                     servers. The last word says where to: a URL, a local file or directory, or \
                     '-' for standard output. If that is a directory, or ends in '/', the file \
                     keeps its name in it.",
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
            Some(target) if !sources.is_empty() => Ok(Self { sources, target }),
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

/// When what was copied of a tree is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityFlag {
    /// What a file has before it gets its name, many files at once: after a power cut each is the
    /// old one, the new one or missing, and the same command goes on. All names before the end is
    /// reported, or before they are remembered as finished, every few seconds.
    Batch,
    /// Likewise, and each name before the file counts as copied: slow.
    Full,
    /// Files of up to half a MiB, and other names, when the system comes to it: after a power
    /// cut files may be empty or have holes, and a later run takes some of them for finished.
    None,
}

/// The digests of a whole file, by the names that the command line takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DigestFlag {
    /// CRC-64/NVME, as S3 uses for full objects: finds every accident, costs nearly nothing.
    #[value(alias = "crc64")]
    Crc64nvme,
    /// BLAKE3, cryptographic: finds intent as well, costs some processor time.
    Blake3,
    /// No digest of the whole.
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
