//! Metrics: figures with documented names, as Prometheus and others read them over HTTP in the text
//! format of OpenMetrics.
//!
//! - [`Family`] is a metric with its samples, and [`text`] the text of several. Programs with
//!   figures of their own use them too.
//! - [`Scrape`] reads such a text.
//! - A server has a listener for readers if [`MetricsSettings`] ask for it. They need no login, so
//!   it takes addresses of this machine only unless the settings say more.
//!
//! `docs/metrics.md` has the names. No label has a value that clients choose: a server with many
//! clients has as many samples as one that has none.

mod family;
mod http;
mod listener;
mod scrape;
mod server;

pub use family::{CONTENT_TYPE, Family, Value, text};
pub use listener::{METRICS_PORT, MetricsSettings};
pub use scrape::{Sample, Scrape};
pub use server::of_process;
pub use xdfs_store::tally::Counter;

pub(crate) use listener::MetricsListener;
pub(crate) use server::ServerFigures;
