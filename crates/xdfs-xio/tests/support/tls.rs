//! The driver `tls` with a configuration for both ends.

use std::sync::LazyLock;

use certified::{NAME, configs_for};
use xdfs_xio::Driver;
use xdfs_xio::tls::{self, Configs};

mod certified;

/// The driver `tls`.
pub(crate) fn tls() -> Driver {
    tls::driver(configs())
}

/// The configurations, for other drivers.
pub(crate) fn configs() -> Configs {
    TLS.clone()
}

static TLS: LazyLock<Configs> = LazyLock::new(|| configs_for(vec![NAME.to_owned()]));
