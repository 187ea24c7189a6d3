//! The flags of commands with `ssh://` and `sshftp://` URLs.

use clap::Args;
use xdfs::settings::read_program;

/// How commands reach the machines of `ssh://` and `sshftp://` URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct SshFlags {
    /// The ssh command for ssh:// and sshftp:// URLs. Default: XDFS_SSH, or ssh.
    ///
    /// With flags of its own, such as 'ssh -i key -J gateway', quoted as in a shell. It has to take
    /// the options of OpenSSH. The user and the port in a URL are added to it, and count unless it
    /// names others.
    #[arg(long, help_heading = "Over ssh", value_name = "COMMAND")]
    pub(crate) ssh: Option<String>,

    /// The program to start there for ssh:// URLs. Default: XDFS_REMOTE_PROGRAM, or xdfs.
    ///
    /// The shell of the user there reads it as it is, so that '~/.cargo/bin/xdfs' and 'sudo xdfs'
    /// work. A plain name has to be in the PATH of commands that ssh runs, which may be shorter
    /// than that of a login. With sshftp:// URLs it is what is started instead of ~/.globus/sshftp
    /// and /etc/grid-security/sshftp, such as 'xdfs serve --gridftp-over-ssh', and only this flag
    /// counts.
    #[arg(long, help_heading = "Over ssh", value_name = "PROGRAM", value_parser = read_program)]
    pub(crate) remote_program: Option<String>,
}
