//! How ssh is run for `ssh://` and `sshftp://` places.

use std::ffi::OsString;
use std::sync::Arc;

use xdfs_proto::Fault;

use super::command::Ssh;
use super::connection;
use super::server::{Launch, SshServer};
use super::servers::SshServers;
use crate::scheme::PlaceRequest;
use crate::security::Level;

/// Characters that ssh refuses in names of hosts and users: it may pass both to a shell.
const REFUSED: &str = "'`\"$\\;&<>|(){}";

/// How ssh is run for `ssh://` and `sshftp://` places.
#[derive(Clone, Debug, Default)]
pub struct SshOptions {
    /// The program and arguments of its own, such as `ssh -i KEY`; empty for `ssh`. It has to take
    /// the options of OpenSSH. The user, the port and the host of a place are added.
    pub command: Vec<OsString>,
    /// The program to start there, as the shell of the user there reads it; `None` for `xdfs`. For
    /// `sshftp://` places it serves GridFTP, and `None` stands for `~/.globus/sshftp`, or else
    /// `/etc/grid-security/sshftp`.
    pub remote_program: Option<String>,
    /// The servers of `ssh://` places, which sessions with clones of these options share.
    pub servers: SshServers,
}

impl SshOptions {
    /// The server on the machine of a place: the running one, or another one that `probe` can
    /// reach.
    ///
    /// # Errors
    /// It can't be started or reached.
    pub(crate) fn reach(
        &self,
        request: &PlaceRequest<'_>,
        level: Level,
        probe: &dyn Fn(&SshServer) -> Result<(), Fault>,
    ) -> Result<Arc<SshServer>, Fault> {
        let launch = Launch {
            ssh: self.ssh(request),
            program: self.remote_program.clone().unwrap_or_else(|| "xdfs".into()),
            level,
        };
        self.servers.reach(request.address, launch, probe)
    }

    /// The command that connects its standard streams to those of a program there, whose name has
    /// to follow; and the host to which it leads.
    ///
    /// # Errors
    /// The settings of ssh take too long.
    pub(crate) fn connection(
        &self,
        request: &PlaceRequest<'_>,
    ) -> Result<(Vec<OsString>, String), Fault> {
        connection::through(&self.ssh(request))
    }

    fn ssh(&self, request: &PlaceRequest<'_>) -> Ssh {
        Ssh {
            words: self.command.clone(),
            user: request.user.map(str::to_owned),
            host: request.host.to_owned(),
            port: request.port,
        }
    }

    /// Checks the names of the host and the user in a URL.
    ///
    /// # Errors
    /// ssh refuses them.
    pub(crate) fn check_names(host: &str, user: Option<&str>) -> Result<(), String> {
        let is_odd = |name: &str| {
            name.starts_with('-') || name.contains(|c: char| c.is_control() || REFUSED.contains(c))
        };
        match is_odd(host) || user.is_some_and(is_odd) {
            true => Err("ssh takes no such name of a host or a user".into()),
            false => Ok(()),
        }
    }
}
