//! The flags of the commands that look at paths on servers: `ls`, `stat`, `cat`, `find`, `sum`,
//! `df` and `du`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum, ValueHint};
use xdfs::ChecksumKind;
use xdfs::operations::{DaysTest, SizeTest};

use super::{OutputFlags, SecurityFlags, StackFlags};
use crate::paths::criteria::{FindKind, parse_days, parse_size_test};
use crate::paths::format::StatFormat;
use xdfs::settings::size;

/// The flags that all commands about paths on servers share.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PathFlags {
    /// Print JSON lines to standard output.
    ///
    /// One object for each result, `error` for each failure, and exactly one `summary` at the end.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the engine's log to standard error; repeat for more.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Open a session of this command's own, even if an agent shares one (xdfs agent --help).
    #[arg(long)]
    pub(crate) own_session: bool,

    #[command(flatten)]
    pub(crate) stack: StackFlags,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,
}

impl PathFlags {
    /// The same, for the console and the log.
    pub(crate) fn output(&self) -> OutputFlags {
        OutputFlags {
            json: self.json,
            quiet: false,
            verbose: self.verbose,
        }
    }
}

/// List directories on a server.
///
/// Prints one name per line, in byte order. Operands that aren't directories come first, then each
/// directory. Owners and groups have the names that they have on the server; where it knows or
/// tells none, they are numbers.
///
/// Names with control characters or bytes that aren't UTF-8 are quoted for a shell ($'\n'); on a
/// terminal so are names that a shell would split or expand.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  xdfs ls xdfs://host/                     the names in the root of the server
  xdfs ls -l xdfs://host/runs
  xdfs ls -n xdfs://host/runs              with owners and groups as numbers
  xdfs ls -lhS xdfs://host/runs            the largest first
  xdfs ls -F xdfs://host/runs              directories as runs/, links as latest@
  xdfs ls -R -0 xdfs://host/ | xargs -0    names as they are, each ended by a zero byte
  xdfs ls --json xdfs://host/ | jq -r 'select(.type == \"entry\").path'"
)]
pub(crate) struct LsFlags {
    /// Directories or files on servers.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Long format: kind, permissions, links, owner, group, size, time, and link targets.
    #[arg(short)]
    pub(crate) long: bool,

    /// Like -l, with the numbers of owners and groups instead of their names.
    #[arg(short, long)]
    pub(crate) numeric: bool,

    /// One name per line, as always; accepted for scripts.
    #[arg(short = '1')]
    pub(crate) one: bool,

    /// Append a mark to each name: / directory, * executable, @ link, | named pipe, = socket.
    ///
    /// In the long format, links have no mark: their names are followed by an arrow.
    #[arg(short = 'F', long)]
    pub(crate) classify: bool,

    /// Colour names by their kind: auto, always (the same as no WHEN), or never.
    ///
    /// Directories are blue, links cyan, executable files green, pipes, sockets and devices yellow.
    /// 'auto' colours on a terminal, unless NO_COLOR is set or TERM is dumb. LS_COLORS has no
    /// effect.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ColorFlag::Auto,
        num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    pub(crate) color: ColorFlag,

    /// Include names that begin with a dot.
    #[arg(short, long)]
    pub(crate) all: bool,

    /// List subdirectories recursively.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// List directories themselves, not their contents.
    #[arg(short, long)]
    pub(crate) directory: bool,

    /// Print sizes as 1.5K, 23M, 4.0G (powers of 1024).
    #[arg(short, long)]
    pub(crate) human_readable: bool,

    /// Sort by modification time, newest first.
    #[arg(short = 't', conflicts_with = "by_size")]
    pub(crate) by_time: bool,

    /// Sort by size, largest first.
    #[arg(short = 'S')]
    pub(crate) by_size: bool,

    /// Reverse the order.
    #[arg(short, long)]
    pub(crate) reverse: bool,

    /// End each line with a NUL byte, and print names unquoted.
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) zero: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,

    /// Print help.
    #[arg(long, action = ArgAction::Help, help_heading = None::<&'static str>)]
    pub(crate) help: Option<bool>,
}

impl LsFlags {
    /// Whether the long format is wanted.
    pub(crate) fn is_long(&self) -> bool {
        self.long || self.numeric
    }
}

/// When names are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorFlag {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Show the attributes of paths on a server.
///
/// Symbolic links are not followed unless -L is given.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs stat xdfs://host/big.img
  xdfs stat -c '%s %n' xdfs://host/big.img
  xdfs stat --json xdfs://host/big.img | jq 'select(.type == \"entry\").size'")]
pub(crate) struct StatFlags {
    /// Paths on servers.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Follow symbolic links.
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,

    /// Print a line of this format for each path, with fields as in GNU stat.
    ///
    /// %n path, %N path and link target, %F kind, %s size in bytes, %b allocated blocks of 512
    /// bytes, %a permissions in octal, %A permissions as in ls -l, %f kind and permissions in hex,
    /// %u owner and %g group as numbers, %U and %G by their names on the server (UNKNOWN if it
    /// knows or tells none), %h hard links, %i inode, %d device; %x access, %y modification and %z
    /// change time, and the same in seconds since 1970 as %X, %Y and %Z; %% a percent sign.
    #[arg(short = 'c', long, value_name = "FORMAT", value_parser = StatFormat::parse,
        conflicts_with = "json")]
    pub(crate) format: Option<StatFormat>,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Print files on a server to standard output.
///
/// They are printed one after the other, and checked in transit as by `xdfs cp`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs cat xdfs://host/log.txt | grep error
  xdfs cat xdfs://host/part.1 xdfs://host/part.2 > whole
  xdfs cat --offset 1G --length 1M xdfs://host/big.img | hexdump -C")]
pub(crate) struct CatFlags {
    /// Files on servers.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Offset of the first byte of each file to print.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::parse_size)]
    pub(crate) offset: u64,

    /// Number of bytes of each file to print. Default: to the end.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_size)]
    pub(crate) length: Option<u64>,

    /// Print the engine's log to standard error; repeat for more.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(flatten)]
    pub(crate) stack: StackFlags,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,
}

/// Search directory trees on a server.
///
/// Prints the server path of everything that passes all tests, in the server's order. Symbolic
/// links aren't followed. Tests may be written with one dash, as for find(1), and so may -print0
/// and -delete.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A test with a number N takes +N for more and -N for less; a size is rounded up to its unit.

Examples:
  xdfs find xdfs://host/runs -name '*.dat'
  xdfs find xdfs://host/ -type f -size +1G
  xdfs find xdfs://host/ -type f -mtime -1          changed in the last 24 hours
  xdfs find xdfs://host/ -newer '2026-01-31 12:00'
  xdfs find xdfs://host/ -type d --maxdepth 1 --json
  xdfs find xdfs://host/runs -name '*.tmp' -delete")]
pub(crate) struct FindFlags {
    /// Where to start, on servers.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// The file name matches a pattern: *, ?, [a-z] and [[:digit:]].
    #[arg(long, value_name = "GLOB")]
    pub(crate) name: Option<OsString>,

    /// The kind: f file, d directory, l symbolic link, p pipe, s socket, b or c device.
    #[arg(long = "type", value_name = "KIND", value_enum)]
    pub(crate) kind: Option<FindKind>,

    /// The size: a number and c (bytes), k, M or G; without a letter, blocks of 512 bytes.
    #[arg(long, value_name = "[+-]N[ckMG]", value_parser = parse_size_test,
        allow_hyphen_values = true)]
    pub(crate) size: Option<SizeTest>,

    /// Modified N days ago (of 24 hours, rounded down).
    #[arg(long, value_name = "[+-]N", value_parser = parse_days, allow_hyphen_values = true)]
    pub(crate) mtime: Option<DaysTest>,

    /// Modified after a time, such as '2026-01-31 12:00' or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = crate::paths::time::parse)]
    pub(crate) newer: Option<i64>,

    /// Descend at most this many levels; 0 tests the operands only.
    #[arg(long, value_name = "N")]
    pub(crate) maxdepth: Option<u32>,

    /// End each path with a NUL byte, and print it unquoted.
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) print0: bool,

    /// Remove what passes all tests instead of printing it, directories after their contents.
    ///
    /// A directory that isn't empty by then stays, which is an error. The root of a server is never
    /// removed, and without any test nothing in it is.
    #[arg(long, conflicts_with = "print0")]
    pub(crate) delete: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Compute digests of files, where they are.
///
/// Digests of files on a server are computed there: no content is transferred. Each line has the
/// digest, two spaces and the path, as sha256sum and b3sum write and check them: a name with a
/// backslash or a line break is escaped, and its line begins with a backslash. On a terminal, names
/// are quoted for a shell instead.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs sum xdfs://host/big.img                      what b3sum prints there
  xdfs sum --digest sha256 xdfs://host/a b          one there, one here
  xdfs sum -r --digest sha256 xdfs://host/tree > SHA256SUMS
  sha256sum -c SHA256SUMS                           the copy here, with lines such as tree/a
  xdfs sum -c SHA256SUMS --digest sha256 xdfs://other/      tree there
  xdfs sum xdfs://host/f > sums; xdfs sum -c sums xdfs://host/")]
pub(crate) struct SumFlags {
    /// Files on servers or here.
    #[arg(required_unless_present = "check", value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub(crate) places: Vec<OsString>,

    /// The digest to compute.
    #[arg(long, value_name = "KIND", value_enum, default_value_t = SumDigest::Blake3)]
    pub(crate) digest: SumDigest,

    /// All files in one directory, sorted by name.
    ///
    /// Their paths begin with the directory as it was written, so that they are found from where
    /// the command runs; with its last part if it is on a server. Symbolic links and special files
    /// in it are left out.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Check the digests in a file (- for standard input) instead of printing them.
    ///
    /// Relative paths in it are taken from PLACE, a directory here or on a server; without it from
    /// the current directory. Each path is printed with OK or FAILED. If a digest differs, the exit
    /// code is 18.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath,
        conflicts_with = "recursive")]
    pub(crate) check: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// The digests that `sum` can compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SumDigest {
    /// BLAKE3, cryptographic.
    Blake3,
    /// SHA-256.
    Sha256,
    /// MD5, which detects accidental changes only.
    Md5,
    /// CRC-64/NVME, as S3 uses for full objects.
    #[value(alias = "crc64")]
    Crc64nvme,
}

impl From<SumDigest> for ChecksumKind {
    fn from(flag: SumDigest) -> Self {
        match flag {
            SumDigest::Blake3 => Self::Blake3,
            SumDigest::Sha256 => Self::Sha256,
            SumDigest::Md5 => Self::Md5,
            SumDigest::Crc64nvme => Self::Crc64Nvme,
        }
    }
}

/// Show the free space of file systems on a server.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  xdfs df -h xdfs://host/"
)]
pub(crate) struct DfFlags {
    /// Paths on servers.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Print sizes as 1.5K, 23M, 4.0G (powers of 1024) instead of KiB.
    #[arg(short, long)]
    pub(crate) human_readable: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,

    /// Print help.
    #[arg(long, action = ArgAction::Help, help_heading = None::<&'static str>)]
    pub(crate) help: Option<bool>,
}

/// Show the disk usage of files and directories on a server.
///
/// Prints the allocated space in KiB of each directory with everything in it. A file with several
/// hard links counts once. What has arrived of unfinished transfers counts too, although 'ls'
/// doesn't show it; 'xdfs partial ls' does. FTP tells no allocated space: there, file sizes count.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  xdfs du -sh xdfs://host/runs
  xdfs du --apparent-size xdfs://host/"
)]
pub(crate) struct DuFlags {
    /// Directories or files on servers.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Print only the total of each operand.
    #[arg(short, long)]
    pub(crate) summarize: bool,

    /// Print sizes as 1.5K, 23M, 4.0G (powers of 1024) instead of KiB.
    #[arg(short, long)]
    pub(crate) human_readable: bool,

    /// Count file sizes instead of allocated space.
    #[arg(long)]
    pub(crate) apparent_size: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,

    /// Print help.
    #[arg(long, action = ArgAction::Help, help_heading = None::<&'static str>)]
    pub(crate) help: Option<bool>,
}

/// Tests and actions of `xdfs find` that may be written with one dash.
const TESTS: [&str; 8] = [
    "-name",
    "-type",
    "-size",
    "-mtime",
    "-newer",
    "-maxdepth",
    "-print0",
    "-delete",
];

/// Whether a word is a test of `find` that is written with one dash.
pub(crate) fn is_find_test(word: &[u8]) -> bool {
    TESTS.iter().any(|test| test.as_bytes() == word)
}

/// The words of the command line, with the tests of `find` in the form of long flags.
pub(crate) fn words(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.get(1).is_some_and(|command| command == "find") {
        for word in words.iter_mut().skip(2) {
            if is_find_test(word.as_encoded_bytes()) {
                let mut long = OsString::from("-");
                long.push(&*word);
                *word = long;
            }
        }
    }
    words
}
