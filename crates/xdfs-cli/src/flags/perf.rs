//! The flags of `xdfs perf`.

use std::time::Duration;

use clap::{Args, ValueHint};

use super::{OutputFlags, SessionFlags};
use xdfs::settings::size;

/// Measure the throughput to or from a server, memory to memory.
///
/// Works with any `xdfs serve`, without settings. Zeros generated in memory pass through the whole
/// protocol and engine: every block carries a CRC-32C that the other side checks. No disk is read
/// or written, and no digest of the whole is computed. The result measures the network, the
/// processors and this program.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs perf [OPTIONS] xdfs://HOST[:PORT]",
    after_help = "\
Sizes: 123, 64K, 1.5G; K, M, G, T are powers of 1024 (KiB too), kB, MB, GB powers of 1000.

Examples:
  xdfs perf xdfs://host                   upload for ten seconds
  xdfs perf xdfs://host --download -n 16  download over 16 channels
  xdfs perf xdfs://host --bytes 10G --json

To find the best number of channels: xdfs tune"
)]
pub(crate) struct PerfFlags {
    /// The server, as xdfs://HOST[:PORT], without a path.
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) server: String,

    /// Send to the server; this is the default.
    ///
    /// Memory to memory: no disk takes part on either side.
    #[arg(long, conflicts_with = "download")]
    pub(crate) upload: bool,

    /// Receive from the server.
    ///
    /// Memory to memory: no disk takes part on either side.
    #[arg(long)]
    pub(crate) download: bool,

    /// Stop after this many bytes.
    ///
    /// With several channels all of them together move this many.
    #[arg(
        long,
        value_name = "SIZE",
        conflicts_with = "seconds",
        value_parser = size::parse_size_above_zero
    )]
    pub(crate) bytes: Option<u64>,

    /// Stop after this many seconds, such as 0.5. Default: 10, unless --bytes is given.
    ///
    /// The rate is that of the whole time, the start included.
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub(crate) seconds: Option<Duration>,

    #[command(flatten)]
    pub(crate) session: SessionFlags,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// Reads a time in seconds, from a millisecond to a day.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err("it is from 0.001 to 86400 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}
