//! The flags of `xdfs whoami`, `keygen`, `trust` and `user`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use xdfs::security::Fingerprint;

use super::{SecurityFlags, StackFlags};

/// Show how a server identifies you.
///
/// Opens a session, and prints the name that the server knows you by and the fingerprint of its
/// key.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs whoami xdfs://host
  xdfs whoami --key ~/.ssh/id_ed25519 xdfs://alice@host
  xdfs whoami --json xdfs://host | jq -r .user")]
pub(crate) struct WhoamiFlags {
    /// The server, as a URL.
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

/// Create a key to authenticate with.
///
/// Writes an Ed25519 key in OpenSSH format, and next to it the public key, which the server needs.
/// `xdfs cp` creates one by itself if there is none.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs keygen                    then give the line that it prints to the owner of a server,
                                 who appends it to authorized_keys, or to keys/NAME
  xdfs keygen --file build.key")]
pub(crate) struct KeygenFlags {
    /// The file of the private key. Default: id_ed25519 in the folder of xdfs.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

/// The actions of `xdfs trust`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// List the known servers and the fingerprints of their keys.
    List,
    /// Trust a server with this key.
    Add {
        /// The server: HOST, HOST:PORT or [IPV6]:PORT.
        #[arg(value_name = "HOST")]
        host: String,
        /// The fingerprint of its key, as printed by `xdfs serve`.
        #[arg(value_name = "FINGERPRINT")]
        fingerprint: Fingerprint,
    },
    /// Remove the keys of a server.
    Remove {
        /// The server, as in the list.
        #[arg(value_name = "HOST")]
        host: String,
    },
}

/// The actions of `xdfs user`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user; prompts for the password, or reads it from standard input.
    Add {
        /// The name of the user.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List the users with passwords.
    List,
    /// Change a password; prompts for it, or reads it from standard input.
    Passwd {
        /// The name of the user.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Remove a user.
    Remove {
        /// The name of the user.
        #[arg(value_name = "NAME")]
        name: String,
    },
}
