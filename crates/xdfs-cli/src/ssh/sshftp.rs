//! The ssh of `sshftp://` places, by which the library opens each of their control connections.
//!
//! What is started there is what every client of GridFTP starts, and not this program.

use xdfs::security::{ClientSecurity, NewHosts, TrustPolicy};
use xdfs::{Address, Carrier, ClientOptions, Code, Fault, RemotePlace};

use super::command::{Ssh, check_login, leave_out_settings, ssh_words};
use super::direct::host_of_alias;
use crate::flags::SecurityFlags;

/// The operation in faults.
const RUN: &str = "run ssh";

/// Refuses flags that would be ignored.
pub(crate) fn check(flags: &SecurityFlags) -> Result<(), Fault> {
    check_login(flags, RUN)
}

/// The options of a session with the server of `place`.
///
/// # Errors
/// The flags are not for such places.
pub(super) fn options(
    place: &RemotePlace,
    options: ClientOptions,
    flags: &SecurityFlags,
) -> Result<ClientOptions, Fault> {
    let Address::SshFtp { host, port } = &place.address else {
        let cause = "it isn't an sshftp:// URL";
        return Err(Fault::new(Code::Internal, RUN, cause));
    };
    check(flags)?;
    let ssh = Ssh {
        words: ssh_words(flags)?,
        user: place.user.clone(),
        host: host.clone(),
        port: *port,
    };
    let mut ask = ssh.command();
    ask.arg("-G");
    ssh.name_host(&mut ask);
    let mut command = ssh.command();
    leave_out_settings(&mut command);
    // Another connection may be used, and none is opened for others: it ends with this command.
    for option in ["ClearAllForwardings=yes", "ControlMaster=no"] {
        command.args(["-o", option]);
    }
    ssh.name_host(&mut command);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let carrier = Carrier {
        command: words.map(ToOwned::to_owned).collect(),
        host: host_of_alias(ask)?.unwrap_or_else(|| host.clone()),
        program: flags.ssh.remote_program.clone(),
    };
    // Nothing but the level is of use: ssh logs in, and knows the hosts.
    let security = ClientSecurity {
        trust: TrustPolicy {
            known_hosts: std::path::PathBuf::new(),
            pins: Vec::new(),
            roots: Vec::new(),
            system_roots: false,
            new_hosts: NewHosts::Refuse,
        },
        credentials: Vec::new(),
        level: flags.protect.unwrap_or_default().into(),
    };
    Ok(ClientOptions {
        security: (!flags.insecure).then_some(security),
        carrier: Some(carrier),
        ..options
    })
}
