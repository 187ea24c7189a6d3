//! The ssh of `sshftp://` places, by which each of their control connections is opened.
//!
//! What is started there is what every client of GridFTP starts.

use xdfs_gridftp::client::Carrier;
use xdfs_proto::Fault;

use super::alias::host_of_alias;
use super::command::{Ssh, leave_out_settings};

/// How the control connections with the server of an `sshftp://` place are opened.
///
/// # Errors
/// The settings of ssh take too long.
pub(super) fn carrier(ssh: &Ssh, program: Option<&str>) -> Result<Carrier, Fault> {
    let mut command = ssh.command();
    leave_out_settings(&mut command);
    // Another connection may be used, and none is opened for others: it ends with this session.
    for option in ["ClearAllForwardings=yes", "ControlMaster=no"] {
        command.args(["-o", option]);
    }
    ssh.name_host(&mut command);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    Ok(Carrier {
        command: words.map(ToOwned::to_owned).collect(),
        host: host_of_alias(ssh.ask_settings())?.unwrap_or_else(|| ssh.host.clone()),
        program: program.map(str::to_owned),
    })
}
