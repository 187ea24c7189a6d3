//! The flags of `xdfs remotes`.

use clap::Args;

/// List the servers that have a name.
///
/// Names come from config.toml in ~/.config/xdfs, or in XDFS_CONFIG_DIR. Every command takes
/// NAME:PATH where it takes a URL: `lab:runs` is below the path of the server's URL, `lab:/runs` is
/// from the root of the server, and `lab:` is the path of the URL itself. Nothing in it is
/// percent-encoded. A local file of such a name is written ./lab:runs.
///
/// A [remote.NAME] has `url` (xdfs://, xdfs+unix://, ssh:// or ftp://), and what the flags of the
/// same names say: `key`, `agent`, `password_file`, `token_file`, `ticket_file`, `cert` and
/// `cert_key`, or `anonymous`, for the login; `pin` or `ca`, and `known_only`, for trust;
/// `protect`; `channels`, `block_size`, `window`, `retries` and `limit_rate`; `share` (see `xdfs
/// agent`); and for ssh:// and sshftp:// URLs `ssh` and `remote_program`.
/// [defaults] has channels, block_size, window, retries, limit_rate and share for all servers.
/// Flags override [remote.NAME], and that overrides [defaults]. `drivers`, before any table, is a
/// directory of shared libraries with drivers, which are all loaded.
///
/// Files are relative to the folder of config.toml, and ~/ is the home. What can't be honoured is
/// an error, and so is a file that others could have written.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs remotes                             each name with its URL

In ~/.config/xdfs/config.toml:
  [remote.lab]
  url = \"xdfs://alice@lab.example.org/data\"
  key = \"~/.ssh/id_ed25519\"
  channels = 8

Then:
  xdfs cp -r runs lab:archive              to /data/archive
  xdfs ls lab:
  xdfs shell lab:")]
pub(crate) struct RemotesFlags {}
