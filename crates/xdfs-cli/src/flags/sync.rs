//! The flags of `xdfs sync`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use xdfs::Compare;

use super::cp::{BetweenFlag, DigestFlag};
use super::{
    DurabilityFlag, FilterFlags, METADATA, OUTPUT, OutputFlags, RetryFlags, SessionFlags,
    StripeFlags,
};
use xdfs::settings::size;

/// Make one directory equal to another, transferring only differences.
///
/// Each side is a local directory, or xdfs://[user@]host[:port]/path or another URL (see
/// `xdfs cp --help`). The contents of SOURCE go into TARGET, which is created if missing; a slash
/// at the end of either changes nothing. So 'xdfs sync tree xdfs://host/' fills the root of the
/// server, where 'xdfs cp -r tree xdfs://host/' makes /tree: name the directory itself, as in
/// 'xdfs sync tree xdfs://host/tree'.
///
/// Symbolic links stay links and are compared by their text, unless --copy-links is given. Modes
/// and modification times are preserved; where only these differ, no content is sent.
///
/// Failures are reported and counted, and the rest goes on, but then nothing is deleted. What lies
/// below a directory of SOURCE that can't be listed is never deleted from the target.
///
/// Ctrl-C stops in an orderly way; a second Ctrl-C stops at once.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs sync [OPTIONS] SOURCE TARGET",
    after_help = "\
Examples:
  xdfs sync tree xdfs://host/tree                  send what differs
  xdfs sync xdfs://host/tree tree                  fetch what differs
  xdfs sync --delete --dry-run tree xdfs://host/tree
                                                   say what would be done, deletions too
  xdfs sync --delete --max-delete 500 tree xdfs://host/tree
                                                   delete up to 500 names without asking
  xdfs sync --delete --backup-dir ../old tree xdfs://host/tree
                                                   what goes is kept in /old
  xdfs sync --exclude '*.o' --exclude /target/ tree xdfs://host/tree
  xdfs sync --filter-file .gitignore tree xdfs://host/tree
  xdfs sync --compare digest --delete tree xdfs://host/tree
                                                   by content; renamed files are renamed there
  xdfs sync --delta images xdfs://host/images      send the changed parts of large files
  xdfs sync -a --delete tree /mnt/backup/tree      to another disk
  xdfs sync ftps://one/data/run ftps://two/data/run
                                                   from one server to another
  xdfs sync --json tree xdfs://host/tree | jq 'select(.type == \"sync\")'"
)]
pub(crate) struct SyncFlags {
    /// The directory to copy from: a local path, or a URL.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::DirPath)]
    pub(crate) source: OsString,

    /// The directory to make equal to it.
    #[arg(value_name = "TARGET", value_hint = ValueHint::DirPath)]
    pub(crate) target: OsString,

    /// How to compare files that are on both sides.
    ///
    /// By size and time is fast; by digest both sides read every file that has the same size on
    /// both. An FTP server that computes no digest that the other side has is read through.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CompareFlag::SizeTime)]
    pub(crate) compare: CompareFlag,

    /// Delete what is in TARGET and not in SOURCE, once everything else has succeeded.
    ///
    /// What the filter excludes stays, and so do the directories above it. Files and directories
    /// replace each other only with this flag. An empty SOURCE is refused without --force, a
    /// missing one always. Unfinished transfers into directories that are deleted are discarded,
    /// unless they are running; others stay ('xdfs partial' lists them).
    ///
    /// Before it deletes, it says how many names, and gives some. It asks on a terminal, and
    /// refuses without one or with --json, if these are more than 100 and more than a tenth of the
    /// names in TARGET, or if TARGET is the root of a server, of an export or of a file system;
    /// and, before anything is copied, if TARGET seems to be the wrong one: it has directories and
    /// nothing in common with SOURCE, or a directory with the name of SOURCE, which SOURCE lacks.
    /// --max-delete and --force agree in advance. A refusal deletes nothing and ends with exit code
    /// 6, a no with 130.
    #[arg(long)]
    pub(crate) delete: bool,

    /// Delete nothing if more names than this would be deleted, even with --force.
    ///
    /// Up to that number nothing is asked and TARGET isn't questioned, so this is the flag for
    /// scripts: a wrong SOURCE or TARGET costs no more than N names.
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) max_delete: Option<u64>,

    /// With --delete, delete as many names as it takes without asking, and accept an empty SOURCE:
    /// TARGET becomes empty.
    ///
    /// Without it, a deletion of more than a share of TARGET, or at the root of a server, asks on a
    /// terminal and is refused elsewhere. --max-delete holds all the same.
    #[arg(short, long, requires = "delete")]
    pub(crate) force: bool,

    /// Move what is replaced or deleted to this directory on TARGET's side, under the same names.
    ///
    /// DIR is relative to TARGET, or absolute on its machine; for a server also a URL. It has to be
    /// in the same file system (and export), since nothing is copied: what is deleted is renamed,
    /// and what is replaced gets a hard link until the new content takes its place. Files that an
    /// earlier run kept under the same names are replaced; a directory for each run, such as
    /// ../old/$(date +%F), keeps all. Directories are made as needed; deleted directories leave
    /// their contents. A DIR in TARGET takes no part in the comparison, and gets an entry
    /// .xdfs-backup, by which later runs know it: they never delete it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) backup_dir: Option<OsString>,

    /// For large files that changed, send only the differences.
    ///
    /// This applies to files of 1 MiB and more that are on both sides, if at least a quarter of the
    /// new version is found somewhere in the old one. Both sides read their version, and the target
    /// copies what it already has. It pays off where sending takes longer than reading, as on most
    /// wide-area links and few local ones. A digest is checked even with --digest none.
    #[arg(long)]
    pub(crate) delta: bool,

    #[command(flatten)]
    pub(crate) filter: FilterFlags,

    /// How files get from one server to another, if both sides are servers.
    ///
    /// As in 'xdfs cp'. --delta is refused between servers; owners, extended attributes and hard
    /// links are, with an FTP server on either side.
    #[arg(long, value_name = "WAY", value_enum, default_value_t = BetweenFlag::Any)]
    pub(crate) between: BetweenFlag,

    /// Print one line for each step that would be done, and write nothing.
    ///
    /// The lines name copies, replacements, renames, deletions and changes of metadata. Nothing is
    /// asked.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Archive mode: --owner --xattrs --hard-links. It leaves out what --xattrs does, and access
    /// times.
    ///
    /// It keeps what the other side allows. Where that isn't root, files belong to its user: a
    /// warning says how many lost their owner.
    #[arg(short, long)]
    pub(crate) archive: bool,

    /// Preserve owner and group, compared by number.
    ///
    /// Only root may give files to others. Another user keeps the groups that it is in, and a
    /// warning says how many files lost their owner; what it can't set isn't compared.
    ///
    /// Without it everything belongs to the user of the target, set-user-id and set-group-id bits
    /// are left out, and the sticky bit isn't compared. Permissions that come from a server are
    /// cut by the umask, and compared so, unless this or --xattrs is given.
    #[arg(long, help_heading = METADATA)]
    pub(crate) owner: bool,

    /// Preserve extended attributes ('user.*') and access control lists of what is transferred.
    /// System attributes are left out silently: security.*, which includes file capabilities, and
    /// trusted.*.
    ///
    /// They are not compared: a file of which only these changed stays as it is.
    #[arg(long, help_heading = METADATA)]
    pub(crate) xattrs: bool,

    /// Preserve hard links among what is transferred.
    ///
    /// Links among what is already the same on both sides are neither made nor broken.
    #[arg(long, help_heading = METADATA)]
    pub(crate) hard_links: bool,

    /// Compare and copy what symbolic links in SOURCE lead to, instead of the links.
    ///
    /// A link to a file becomes a file with the content, mode and time of that file, and a link to
    /// a directory a directory with its contents, wherever it leads: here also out of SOURCE, on a
    /// server as far as you may read there. A link that leads nowhere, or to a directory that it is
    /// in, is a failure: the rest is copied, and nothing is deleted; --exclude leaves it out.
    ///
    /// Links in TARGET are never followed: one with the name of a file is replaced, one with the
    /// name of a directory only with --delete. A server of an older version can't do it for
    /// downloads, and says so.
    #[arg(short = 'L', long, help_heading = METADATA)]
    pub(crate) copy_links: bool,

    /// When the transferred data is made durable.
    ///
    /// The target is synchronised once at the end, whatever was moved.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = DurabilityFlag::Batch)]
    pub(crate) durability: DurabilityFlag,

    /// Digest of large files in transit, and for --compare digest (BLAKE3 if none).
    ///
    /// Default: crc64nvme, or blake3 in transit with --protect clear. To compare with an FTP
    /// server, one that it computes.
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) digest: Option<DigestFlag>,

    /// Limit in bytes per second over all channels, such as 400M (400,000,000). Default: none.
    ///
    /// K, M and G are powers of 1000 here. Listings and digests are not limited.
    #[arg(long, value_name = "RATE", value_parser = size::parse_rate)]
    pub(crate) limit_rate: Option<u64>,

    /// When resuming large files, verify the data that arrived earlier, and resend what differs.
    ///
    /// This always happens if the target's machine has rebooted since.
    #[arg(long)]
    pub(crate) verify_resumed: bool,

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

/// How to compare files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFlag {
    /// By size and modification time.
    #[value(name = "size+time")]
    SizeTime,
    /// By size and a digest of the content, computed by each side.
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
