//! The flags of `xdfs tune`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::perf::parse_seconds;
use super::{OutputFlags, SessionFlags};
use xdfs::settings::size;

/// Find the number of channels and the window that suit the path to a server.
///
/// Measures the throughput from memory to memory, as `xdfs perf` does, at a few settings of -n and
/// -w: nine that span the range, then neighbours of the fastest one until none gains more than
/// noise. In the end the default and the fastest setting take turns, so that the gain is told with
/// its noise. What limits of the kernels stand in the way is told too, with the command that lifts
/// them. Each sample opens a session of its own, so a ticket that is good for one is not enough.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs tune [OPTIONS] xdfs://HOST[:PORT]",
    after_help = "\
Sizes: 123, 64K, 1.5G; K, M, G, T are powers of 1024 (KiB too), kB, MB, GB powers of 1000.

Examples:
  xdfs tune xdfs://host                         for uploads, within 4 GiB and a minute
  xdfs tune xdfs://host --download --max-bytes 500M
  xdfs tune xdfs://host --csv tune.csv --plot tune.svg --plot tune.png
  xdfs tune xdfs://host -w 1M                   only the number of channels"
)]
pub(crate) struct TuneFlags {
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

    /// Move at most this many bytes, over all samples. Default: 4G.
    ///
    /// Payload is counted, also where it is sent again. Fewer bytes make shorter samples, which
    /// tell less about long paths.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "4G",
        hide_default_value = true,
        value_parser = size::parse_size_above_zero
    )]
    pub(crate) max_bytes: u64,

    /// Measure for at most this many seconds in all. Default: 60.
    ///
    /// A sample takes 60 round trips, from 0.7 to 3 seconds, and less where the time doesn't
    /// suffice for about 22 of them.
    #[arg(
        long,
        value_name = "S",
        default_value = "60",
        hide_default_value = true,
        value_parser = parse_seconds
    )]
    pub(crate) max_time: Duration,

    /// Write the samples to a file, as comma-separated values.
    ///
    /// The first line names the columns; `auto` stands for an automatic number or window. An
    /// existing file is replaced. Samples that were taken before a failure are written too.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<PathBuf>,

    /// Draw the rate over channels and windows; may be repeated.
    ///
    /// The picture is a heat map, with the surface beside it in three dimensions. The name of the
    /// file ends in .svg or .png. An existing file is replaced.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        value_parser = parse_picture
    )]
    pub(crate) plot: Vec<Picture>,

    #[command(flatten)]
    pub(crate) session: SessionFlags,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// A picture to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) path: PathBuf,
    pub(crate) format: PictureFormat,
}

/// The format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PictureFormat {
    Png,
    Svg,
}

fn parse_picture(text: &str) -> Result<Picture, String> {
    let path = PathBuf::from(text);
    let extension = path.extension().map(|ext| ext.to_ascii_lowercase());
    let format = match extension.as_ref().and_then(|ext| ext.to_str()) {
        Some("png") => PictureFormat::Png,
        Some("svg") => PictureFormat::Svg,
        _ => return Err("the name of a picture ends in .svg or .png".into()),
    };
    Ok(Picture { path, format })
}
