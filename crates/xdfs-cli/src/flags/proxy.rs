//! The flags of `xdfs proxy`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};

use crate::paths::criteria::parse_age;

/// The actions of `xdfs proxy`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ProxyCommand {
    Init(ProxyInitFlags),
    /// Show a proxy: whose it is, of which kind, and how long it is valid.
    ///
    /// Nothing of it is verified. The exit code is that of failed authentication if it has expired.
    Info {
        #[command(flatten)]
        file: ProxyFile,
    },
    /// Remove a proxy.
    Destroy {
        #[command(flatten)]
        file: ProxyFile,
    },
}

/// Where the proxy is.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProxyFile {
    /// The file of the proxy. Default: x509up_uUID in /tmp, where the tools of
    /// Globus look for it.
    #[arg(short, long, value_name = "FILE", env = "X509_USER_PROXY",
        value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

/// Make a proxy from your certificate.
///
/// It stands for you for some hours, so that programs need no password for your key. Whoever has
/// the file can do what you can; only you can read it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProxyInitFlags {
    #[command(flatten)]
    pub(crate) file: ProxyFile,

    /// Your certificate (PEM), or a proxy. Default: ~/.globus/usercert.pem.
    #[arg(long, value_name = "FILE", env = "X509_USER_CERT", value_hint = ValueHint::FilePath)]
    pub(crate) cert: Option<PathBuf>,

    /// Its key (PEM). Default: ~/.globus/userkey.pem.
    #[arg(long, value_name = "FILE", env = "X509_USER_KEY", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<PathBuf>,

    /// How long it is valid, such as 30m, 12h, 7d; never longer than the certificate.
    #[arg(long, value_name = "AGE", value_parser = parse_age, default_value = "12h")]
    pub(crate) valid: Duration,

    /// Bits of its RSA key, from 2048 to 8192.
    #[arg(long, value_name = "BITS", default_value = "2048")]
    pub(crate) bits: u32,

    /// Make a limited proxy, which may move files and not start programs.
    #[arg(long)]
    pub(crate) limited: bool,

    /// How many proxies may be made from it, one from the other. Default: any number.
    #[arg(long, value_name = "N", conflicts_with = "legacy")]
    pub(crate) path_length: Option<u32>,

    /// Make a proxy of the form before RFC 3820.
    #[arg(long)]
    pub(crate) legacy: bool,
}
