//! The flags of `xdfs xioperf`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use xdfs::drivers::StackSpec;
use xdfs::security::Fingerprint;

use super::perf::parse_seconds;
use super::{OutputFlags, parse_stack};
use xdfs::settings::size;

/// Measure stacks of drivers: bandwidth and latency.
///
/// Messages go one way, and to the other end and back, in sizes from 1 byte to 10 MB, over each
/// stack, and over plain TCP sockets beside them with --raw. Without CONTACT both ends are in this
/// process; with it, the other end is one that was started with --listen. Stacks take turns, so
/// that all see the same machine, and the medians of all turns are told, with the least and the
/// greatest. Nothing of the xDFS protocol takes part: see `xdfs perf` for that.
///
/// A stack with tls or quic uses a key that is made for this run. The end that listens prints its
/// fingerprint, which the other end needs for --pin.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs xioperf [OPTIONS] [CONTACT]\n       xdfs xioperf --listen CONTACT \
                      [--stack STACK | --raw] [OPTIONS]",
    after_help = "\
Contacts: HOST:PORT, unix:PATH or memory:NAME, as the transport of the stack takes them.
Sizes: 123, 64K, 1.5G; K, M, G, T are powers of 1024 (KiB too), kB, MB, GB powers of 1000.

Examples:
  xdfs xioperf --raw --stack tcp --stack tcp,tls
  xdfs xioperf --stack tcp,zstd --sizes 1,10MB --plot zstd.svg
  xdfs xioperf --listen 0.0.0.0:5000 --stack quic
  xdfs xioperf --stack quic --pin SHA256:... host:5000"
)]
pub(crate) struct XioperfFlags {
    /// The other end, which listens with the same stack.
    #[arg(value_name = "CONTACT", conflicts_with = "listen")]
    pub(crate) contact: Option<String>,

    /// Drivers of a connection, such as tcp,tls; may be repeated. Default: tcp.
    #[arg(long, value_name = "STACK", value_parser = parse_stack)]
    pub(crate) stack: Vec<StackSpec>,

    /// Plain TCP sockets too, without any driver: what the others are compared with.
    #[arg(long)]
    pub(crate) raw: bool,

    /// Be the other end: listen there, and answer measurements until the program is ended.
    #[arg(long, value_name = "CONTACT")]
    pub(crate) listen: Option<String>,

    /// What is measured. Default: both.
    #[arg(long, value_name = "PATTERN", value_enum, default_value_t = PatternFlag::Both,
        hide_default_value = true)]
    pub(crate) pattern: PatternFlag,

    /// Sizes of messages, up to 64M. Default: 1,1K,64K,1M,10MB.
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        default_value = "1,1K,64K,1M,10MB",
        hide_default_value = true,
        value_parser = parse_message
    )]
    pub(crate) sizes: Vec<usize>,

    /// Seconds for each measurement. Default: 0.5.
    #[arg(
        long,
        value_name = "S",
        default_value = "0.5",
        hide_default_value = true,
        value_parser = parse_seconds
    )]
    pub(crate) time: Duration,

    /// Number of turns. Default: 3.
    #[arg(long, value_name = "N", default_value_t = 3, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: u32,

    /// Fingerprint of the other end's key, as it printed it.
    #[arg(long, value_name = "FINGERPRINT", requires = "contact")]
    pub(crate) pin: Option<Fingerprint>,

    /// Draw bandwidth and latency over the size of messages, as SVG.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// The patterns of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PatternFlag {
    /// Both of them.
    Both,
    /// Messages one way: bandwidth.
    OneWay,
    /// Messages there and back: latency.
    PingPong,
}

fn parse_message(text: &str) -> Result<usize, String> {
    let size = size::parse_size_above_zero(text)?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    match size <= xdfs::MESSAGE_BYTES_MAX {
        true => Ok(size),
        false => Err("a message has 64M at most".into()),
    }
}
