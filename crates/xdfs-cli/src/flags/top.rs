//! The flags of `xdfs top`.

use std::num::NonZeroU32;

use clap::{Args, ValueHint};

use super::jobs::DataFlag;

/// Watch a server or the transfer service: what runs, how fast, and what limits it.
///
/// Of a server, its metrics are read ('xdfs serve --metrics'): sessions, channels, transfers,
/// rates, what transfers wait for, failures. Of the service, its jobs too, by the token in its
/// folder. Without URL it is the running service of this user, or else a server at
/// http://127.0.0.1:2798.
///
/// Key q ends it. Where standard output is no terminal, one report is printed in plain lines.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs top
  xdfs top http://127.0.0.1:2798           a server with 'xdfs serve --metrics'
  xdfs top | head                          one report, as text")]
pub(crate) struct TopFlags {
    /// The URL of metrics: http://HOST:PORT, with or without /metrics.
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) url: Option<String>,

    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    pub(crate) interval: NonZeroU32,

    #[command(flatten)]
    pub(crate) data: DataFlag,
}
