//! The flags of the commands that look at paths on servers: `ls`, `stat`, `cat`, `find`, `sum`,
//! `df` and `du`.

use std::ffi::OsString;

use clap::{ArgAction, Args, ValueEnum, ValueHint};
use xdfs::DigestKind;

use super::{OutputFlags, SecurityFlags};
use crate::paths::criteria::{Days, FindKind, SizeTest, parse_days, parse_size_test};
use crate::size;

/// What all commands about paths on servers have in common.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PathFlags {
    /// Print JSON lines on standard output; docs/json.md describes them.
    ///
    /// An object for each thing found or done, `error` for each failure, and at the end exactly
    /// one `summary`.
    #[arg(long)]
    pub(crate) json: bool,

    /// Say more, on standard error: the log of the engine; twice or three times for more still.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,
}

impl PathFlags {
    /// The same, as the console and the log know it.
    pub(crate) fn output(&self) -> OutputFlags {
        OutputFlags {
            json: self.json,
            quiet: false,
            verbose: self.verbose,
        }
    }
}

/// List what is in directories on a server.
///
/// One name a line, in the order of the bytes of the names. What is named itself and is no
/// directory comes first, then each directory. Owners and groups are shown as numbers, since the
/// names of the server's accounts aren't known here.
///
/// Names with control characters or bytes that aren't UTF-8 are quoted as a shell takes them
/// ($'\n'); on a terminal so are names that a shell would take apart.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  xdfs ls xdfs://host/                     the names in the root of the server
  xdfs ls -l xdfs://host/runs
  xdfs ls -lhS xdfs://host/runs            the largest first
  xdfs ls -R -0 xdfs://host/ | xargs -0    names as they are, each ended by a zero byte
  xdfs ls --json xdfs://host/ | jq -r 'select(.type == \"entry\").path'"
)]
pub(crate) struct LsFlags {
    /// Directories or files on servers.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Show kind, permissions, links, owner, group, size and time, and where links point.
    #[arg(short)]
    pub(crate) long: bool,

    /// Show names that begin with a dot as well.
    #[arg(short, long)]
    pub(crate) all: bool,

    /// List directories in directories, too.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// Show directories themselves, not what is in them.
    #[arg(short, long)]
    pub(crate) directory: bool,

    /// Show sizes as 1.5K, 23M, 4.0G (powers of 1024).
    #[arg(short, long)]
    pub(crate) human_readable: bool,

    /// The newest first.
    #[arg(short = 't', conflicts_with = "by_size")]
    pub(crate) by_time: bool,

    /// The largest first.
    #[arg(short = 'S')]
    pub(crate) by_size: bool,

    /// The other way round.
    #[arg(short, long)]
    pub(crate) reverse: bool,

    /// End each line with a zero byte and write names as they are.
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) zero: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,

    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

/// Show what is known of paths on a server.
///
/// Symbolic links are shown themselves unless -L is given.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs stat xdfs://host/big.img
  xdfs stat --json xdfs://host/big.img | jq 'select(.type == \"entry\").size'")]
pub(crate) struct StatFlags {
    /// Paths on servers.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Follow symbolic links.
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Print files on a server.
///
/// They go to standard output one after the other, checked on their way as `xdfs cp` does it.
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

    /// First byte of each file to print.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::parse_size)]
    pub(crate) offset: u64,

    /// Number of bytes of each file; up to the end unless given.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_size)]
    pub(crate) length: Option<u64>,

    /// Say more, on standard error: the log of the engine; twice or three times for more still.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,
}

/// Find paths under directories on a server.
///
/// Prints the path on the server of all that passes every test, in the order of the server.
/// Symbolic links aren't followed. The tests may be written with one dash, as for find(1).
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A test with a number N takes +N for more and -N for less; a size is rounded up to its unit.

Examples:
  xdfs find xdfs://host/runs -name '*.dat'
  xdfs find xdfs://host/ -type f -size +1G
  xdfs find xdfs://host/ -type f -mtime -1          changed in the last 24 hours
  xdfs find xdfs://host/ -newer '2026-01-31 12:00'
  xdfs find xdfs://host/ -type d --maxdepth 1 --json")]
pub(crate) struct FindFlags {
    /// Where to begin, on servers.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// The last part of the path matches: * for any text, ? for a character, [a-z] for one of some.
    #[arg(long, value_name = "GLOB")]
    pub(crate) name: Option<OsString>,

    /// It is of a kind: f file, d directory, l symbolic link, p pipe, s socket, b or c device.
    #[arg(long = "type", value_name = "KIND", value_enum)]
    pub(crate) kind: Option<FindKind>,

    /// Its size: a number and c (bytes), k, M or G; without a letter, blocks of 512 bytes.
    #[arg(long, value_name = "[+-]N[ckMG]", value_parser = parse_size_test,
        allow_hyphen_values = true)]
    pub(crate) size: Option<SizeTest>,

    /// Its content was changed N days (of 24 hours, rounded down) ago.
    #[arg(long, value_name = "[+-]N", value_parser = parse_days, allow_hyphen_values = true)]
    pub(crate) mtime: Option<Days>,

    /// Its content was changed after a time, such as '2026-01-31 12:00' or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = crate::paths::time::parse)]
    pub(crate) newer: Option<i64>,

    /// Go down so many levels at most; 0 looks at what is named only.
    #[arg(long, value_name = "N")]
    pub(crate) maxdepth: Option<u32>,

    /// End each path with a zero byte and write it as it is.
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) print0: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Compute digests of files on a server, there.
///
/// Nothing but the digest travels. A line has the digest, two spaces and the path on the server.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs sum xdfs://host/big.img                      what b3sum prints there
  xdfs sum --digest crc64nvme xdfs://host/a xdfs://host/b")]
pub(crate) struct SumFlags {
    /// Files on servers.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Which digest.
    #[arg(long, value_name = "KIND", value_enum, default_value_t = SumDigest::Blake3)]
    pub(crate) digest: SumDigest,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// The digests that a server computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SumDigest {
    /// BLAKE3, cryptographic.
    Blake3,
    /// CRC-64/NVME, as S3 uses for full objects.
    #[value(alias = "crc64")]
    Crc64nvme,
}

impl From<SumDigest> for DigestKind {
    fn from(flag: SumDigest) -> Self {
        match flag {
            SumDigest::Blake3 => Self::Blake3,
            SumDigest::Crc64nvme => Self::Crc64Nvme,
        }
    }
}

/// Show the space of the file systems that hold paths on a server.
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

    /// Show sizes as 1.5K, 23M, 4.0G (powers of 1024) instead of KiB.
    #[arg(short, long)]
    pub(crate) human_readable: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,

    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

/// Show how much space trees on a server take.
///
/// Counts what is taken where it is stored, in KiB, for each directory with all that is in it. A
/// file with several names counts once.
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

    /// Show the sum of each URL only.
    #[arg(short, long)]
    pub(crate) summarize: bool,

    /// Show sizes as 1.5K, 23M, 4.0G (powers of 1024) instead of KiB.
    #[arg(short, long)]
    pub(crate) human_readable: bool,

    /// Count the bytes of the content, not the space that they take.
    #[arg(long)]
    pub(crate) apparent_size: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,

    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

/// Tests of `xdfs find` that people write with one dash.
const TESTS: [&str; 7] = [
    "-name",
    "-type",
    "-size",
    "-mtime",
    "-newer",
    "-maxdepth",
    "-print0",
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
