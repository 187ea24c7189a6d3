//! The flags of `xdfs sync`.

use std::ffi::OsString;

use clap::{Args, ValueEnum, ValueHint};
use xdfs::Compare;

use super::cp::DigestFlag;
use super::{DurabilityFlag, FilterFlags, OutputFlags, SessionFlags};
use crate::size;

/// Make one directory equal to another: move what differs, and no more.
///
/// One side is a directory on this machine, the other xdfs://[user@]host[:port]/path. What is in
/// SOURCE goes into TARGET, which is made if it is missing; a slash at the end of either changes
/// nothing. Symbolic links stay links and are compared by what they say. Modes and times of the
/// last change are kept; where only they differ nothing else is sent.
///
/// What fails is reported and counted, and the rest goes on; but then nothing is deleted. What is
/// beneath a directory of SOURCE that can't be listed stays at the target in any case.
///
/// Ctrl-C stops in an orderly way; a second one stops at once.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs sync [OPTIONS] SOURCE TARGET",
    after_help = "\
Examples:
  xdfs sync tree xdfs://host/tree                  send what differs
  xdfs sync xdfs://host/tree tree                  fetch what differs
  xdfs sync --delete --dry-run tree xdfs://host/tree
                                                   say what would be done, deletions too
  xdfs sync --delete --max-delete 100 tree xdfs://host/tree
  xdfs sync --exclude '*.o' --exclude /target/ tree xdfs://host/tree
  xdfs sync --filter-file .gitignore tree xdfs://host/tree
  xdfs sync --compare digest --delete tree xdfs://host/tree
                                                   by content; renamed files are renamed there
  xdfs sync --delta images xdfs://host/images      send the changed parts of large files
  xdfs sync --json tree xdfs://host/tree | jq 'select(.type == \"sync\")'"
)]
pub(crate) struct SyncFlags {
    /// The directory that is right: a local one, or the URL of one on a server.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::DirPath)]
    pub(crate) source: OsString,

    /// The directory that is to become equal to it.
    #[arg(value_name = "TARGET", value_hint = ValueHint::DirPath)]
    pub(crate) target: OsString,

    /// How files are compared that are on both sides.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CompareFlag::SizeTime)]
    pub(crate) compare: CompareFlag,

    /// Delete what is in TARGET and not in SOURCE, when everything else succeeded.
    ///
    /// What the filter leaves out stays, and the directories above it. Files and directories
    /// replace each other only with this flag. An empty or missing SOURCE is refused.
    #[arg(long)]
    pub(crate) delete: bool,

    /// Delete nothing at all if more names than this would be deleted.
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) max_delete: Option<u64>,

    /// With --delete, take an empty or missing SOURCE for what it is: TARGET becomes empty.
    #[arg(short, long, requires = "delete")]
    pub(crate) force: bool,

    /// Of large files that changed, send only what their old version hasn't.
    ///
    /// For files of 1 MiB and more that are on both sides, if a quarter of the new one is found in
    /// the old one, wherever it is there. Both sides read their version for that, and the target
    /// copies what it has: it pays where sending takes longer than reading, as on most wide-area
    /// links and on few local ones. A digest is checked also with --digest none.
    #[arg(long)]
    pub(crate) delta: bool,

    #[command(flatten)]
    pub(crate) filter: FilterFlags,

    /// Print one line for each thing that would be done, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Keep all that can be kept: --owner --xattrs --hard-links. That leaves out what --xattrs
    /// does, and the times of the last read.
    #[arg(short, long)]
    pub(crate) archive: bool,

    /// Keep owner and group; that takes rights there. Compared by their numbers.
    #[arg(long)]
    pub(crate) owner: bool,

    /// Keep extended attributes of users ('user.*') and access control lists of what is moved.
    /// Those of the system are left out without a word: security.*, file capabilities among them,
    /// and trusted.*.
    #[arg(long)]
    pub(crate) xattrs: bool,

    /// Keep several names of one file as such among what is moved.
    #[arg(long)]
    pub(crate) hard_links: bool,

    /// When what was moved is durable.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = DurabilityFlag::Batch)]
    pub(crate) durability: DurabilityFlag,

    /// Digest of large files on their way, and of --compare digest (BLAKE3 if none).
    ///
    /// Unless given it is crc64nvme, and blake3 on their way with --protect clear.
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) digest: Option<DigestFlag>,

    /// Most bytes a second over all channels, such as 400M (400,000,000); no bound unless given.
    #[arg(long, value_name = "RATE", value_parser = size::parse_rate)]
    pub(crate) limit_rate: Option<u64>,

    /// Read again what has arrived earlier of large files, and send again what isn't as it was.
    ///
    /// That happens in any case if the machine of the target was started anew since.
    #[arg(long)]
    pub(crate) verify_resumed: bool,

    #[command(flatten)]
    pub(crate) session: SessionFlags,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// How files are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFlag {
    /// By size and time of the last change.
    #[value(name = "size+time")]
    SizeTime,
    /// By size and a digest of the content, which each side computes.
    Digest,
}

impl From<CompareFlag> for Compare {
    fn from(flag: CompareFlag) -> Self {
        match flag {
            CompareFlag::SizeTime => Self::SizeAndTime,
            CompareFlag::Digest => Self::Digest,
        }
    }
}
