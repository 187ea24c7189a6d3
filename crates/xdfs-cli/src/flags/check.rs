//! The flags of `xdfs check`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::FilterFlags;
use super::look::{PathFlags, SumDigest};

/// Compare two directories or files by content, changing nothing.
///
/// SOURCE and TARGET are paths here or on servers, both on the same side or not. Names, kinds,
/// sizes, the content of files and the targets of symbolic links are compared; modes, times and
/// owners are not. Contents are compared by digests that each side computes: nothing of them is
/// transferred.
///
/// Prints a line for each difference, sorted by path: 'differs PATH', 'missing PATH' for what
/// TARGET lacks, and 'extra PATH' for what only TARGET has. The exit code is 0 if there is no
/// difference, and 18 if there is one, unless something failed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs check tree xdfs://host/tree
  xdfs check xdfs://host/tree xdfs://other/tree
  xdfs check --exclude '*.o' tree xdfs://host/tree      what a sync with this filter copies
  xdfs check --json tree xdfs://host/tree | jq -r 'select(.type == \"difference\").path'")]
pub(crate) struct CheckFlags {
    /// A directory or file, here or on a server.
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: OsString,

    /// What to compare it with.
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub(crate) target: OsString,

    /// The digest to compare files by.
    #[arg(long, value_name = "KIND", value_enum, default_value_t = SumDigest::Blake3)]
    pub(crate) digest: SumDigest,

    #[command(flatten)]
    pub(crate) filter: FilterFlags,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}
