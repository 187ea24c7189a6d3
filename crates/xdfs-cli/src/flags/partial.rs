//! The flags of `xdfs partial`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

use super::PathFlags;
use crate::paths::criteria::parse_age;

/// The actions of `xdfs partial`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PartialCommand {
    /// List unfinished transfers.
    ///
    /// Prints a line for each, with the bytes that have arrived, the size of the whole, the time
    /// since something arrived, and the path of the target. '-' is a size that isn't known.
    Ls(PartialLsFlags),
    /// Remove unfinished transfers that aren't running.
    ///
    /// What has arrived is deleted, so that the next copy to the same target starts over. Needs the
    /// right to delete. Running transfers stay.
    Rm(PartialRmFlags),
}

/// The flags of `xdfs partial ls`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs partial ls xdfs://host/
  xdfs partial ls --older-than 7d --json xdfs://host/runs
  xdfs partial ls .                              downloads into this directory")]
pub(crate) struct PartialLsFlags {
    #[command(flatten)]
    pub(crate) which: PartialFlags,
}

/// The flags of `xdfs partial rm`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs partial rm --older-than 7d xdfs://host/
  xdfs partial rm xdfs://host/runs/big.img       the one of this file
  xdfs partial rm 'xdfs://host/runs/*.img'       those of these files")]
pub(crate) struct PartialRmFlags {
    #[command(flatten)]
    pub(crate) which: PartialFlags,
}

/// Which unfinished transfers.
#[derive(Clone, Debug, Args)]
pub(crate) struct PartialFlags {
    /// Directories on servers or here, for all transfers into them and below, or targets of
    /// transfers on servers.
    #[arg(required = true, value_name = "PLACE", value_hint = ValueHint::DirPath)]
    pub(crate) places: Vec<OsString>,

    /// Only those to which nothing has arrived for so long: 90s, 30m, 12h, 7d.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) older_than: Option<Duration>,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}
