//! The flags of `xdfs status`, `wait`, `cancel` and `retry`, about copies that servers make by
//! themselves, and files that a relay delivers.

use clap::Args;

use super::{SecurityFlags, StackFlags};

/// A copy that a server continues by itself, after `xdfs cp --detach` or `xdfs cp --via`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  id=$(xdfs cp --detach xdfs://a/big.img xdfs://b/)
  xdfs status $id xdfs://b
  xdfs wait $id xdfs://b && echo done")]
pub(crate) struct DetachedFlags {
    /// The identifier that `xdfs cp` has printed.
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The server that has it, which `xdfs cp` has named too.
    #[arg(value_name = "URL")]
    pub(crate) server: String,

    /// Print a JSON object to standard output.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) stack: StackFlags,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,
}
