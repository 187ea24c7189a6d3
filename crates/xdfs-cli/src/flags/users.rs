//! The flags of `xdfs whoami`, `keygen`, `trust` and `user`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use xdfs::security::Fingerprint;

use super::SecurityFlags;

/// Say who you are at a server.
///
/// Opens a session and prints the name that the server knows you by, and what is seen of its key.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs whoami xdfs://host
  xdfs whoami --key ~/.ssh/id_ed25519 xdfs://alice@host")]
pub(crate) struct WhoamiFlags {
    /// The server, as a URL.
    #[arg(value_name = "URL")]
    pub(crate) server: String,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,
}

/// Make a key to show who you are.
///
/// Writes an Ed25519 key in the form of OpenSSH, and the public key beside it, which is what a
/// server has to get. `xdfs cp` makes one by itself where there is none.
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

/// What to do with the servers that are believed.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// Print the servers that are known, and what is seen of their keys.
    List,
    /// Believe a server with this key.
    Add {
        /// The server: HOST, HOST:PORT or [IPV6]:PORT.
        #[arg(value_name = "HOST")]
        host: String,
        /// What is seen of its key, as printed by `xdfs serve`.
        #[arg(value_name = "FINGERPRINT")]
        fingerprint: Fingerprint,
    },
    /// Forget the keys of a server.
    Remove {
        /// The server, as in the list.
        #[arg(value_name = "HOST")]
        host: String,
    },
}

/// What to do with users who have passwords.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user; the password is asked for, or read from standard input.
    Add {
        /// The name of the user.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Print the names of the users who have passwords.
    List,
    /// Change a password; it is asked for, or read from standard input.
    Passwd {
        /// The name of the user.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Remove a user and the password.
    Remove {
        /// The name of the user.
        #[arg(value_name = "NAME")]
        name: String,
    },
}
