//! The flags of `xdfs demo`.

use clap::Args;

use xdfs::settings::size;

/// Run a self-contained demonstration on this machine.
///
/// Starts a server on a free loopback port in a temporary directory, creates a small tree with one
/// large file, uploads it over encrypted channels, breaks a channel in the middle of the large
/// file, continues, downloads everything, compares every byte, and prints the rates and what
/// limited them. The directory is removed at the end, even after Ctrl-C. Exits with a failure if
/// anything differs.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = "\
It needs three times SIZE of space in the temporary directory (TMPDIR).

Examples:
  xdfs demo
  xdfs demo --size 4G -n 16")]
pub(crate) struct DemoFlags {
    /// Size of the large file; K, M, G, T are powers of 1024.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256M",
        value_parser = size::parse_size_above_zero
    )]
    pub(crate) size: u64,

    /// Number of parallel channels, 2 to 4096.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(2..=4096)
    )]
    pub(crate) channels: u32,
}
