//! Connections by the standard streams of an ssh, each with a program of its own at the other end:
//! the control connections of `sshftp://` places.

use std::ffi::OsString;

use xdfs_proto::Fault;

use super::alias::host_of_alias;
use super::command::{Ssh, leave_out_settings};

/// The command up to the name of the program there, and the host to which it leads.
///
/// # Errors
/// The settings of ssh take too long.
pub(super) fn through(ssh: &Ssh) -> Result<(Vec<OsString>, String), Fault> {
    let mut command = ssh.command();
    leave_out_settings(&mut command);
    // Another connection may be used, and none is opened for others: it ends with this session.
    for option in ["ClearAllForwardings=yes", "ControlMaster=no"] {
        command.args(["-o", option]);
    }
    ssh.name_host(&mut command);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let host = host_of_alias(ssh.ask_settings())?.unwrap_or_else(|| ssh.host.clone());
    Ok((words.map(ToOwned::to_owned).collect(), host))
}
