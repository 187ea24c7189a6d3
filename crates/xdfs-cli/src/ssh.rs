//! The flags of `ssh://` and `sshftp://` places, as options of the library.

use std::ffi::OsString;

use xdfs::security::{ClientSecurity, NewHosts, TrustPolicy};
use xdfs::ssh::{SshOptions, SshServers};
use xdfs::{Address, Code, Fault, RemotePlace};

use crate::console::Console;
use crate::flags::{OutputFlags, SecurityFlags};
use crate::shell::words;

/// The operation in faults about `ssh://` places, and about `sshftp://` places.
const OPERATIONS: [&str; 2] = ["start the server through ssh", "run ssh"];

/// The servers that a command starts. What happens to them is printed unless it is `quiet`.
pub(crate) fn servers(quiet: bool) -> SshServers {
    SshServers::new(move |news| {
        let flags = OutputFlags {
            quiet,
            ..OutputFlags::default()
        };
        Console::new(flags).info(&news.to_string());
    })
}

/// The options of ssh for the server of `place`, which is one of `servers` if it has to be started.
///
/// # Errors
/// The flags are not for such places, or the ssh command is none.
pub(crate) fn options(
    place: &RemotePlace,
    flags: &SecurityFlags,
    servers: &SshServers,
) -> Result<SshOptions, Fault> {
    check_for(place, flags)?;
    let program = flags.ssh.remote_program.as_deref();
    Ok(SshOptions {
        command: command(flags)?,
        remote_program: match place.address {
            Address::SshFtp { .. } => program.map(str::to_owned),
            _ => setting(program, "XDFS_REMOTE_PROGRAM"),
        },
        servers: servers.clone(),
    })
}

/// The security of sessions with servers that ssh leads to: nothing but the level is of use, since
/// ssh logs in and knows the hosts.
pub(crate) fn security(flags: &SecurityFlags) -> Option<ClientSecurity> {
    (!flags.insecure).then(|| ClientSecurity {
        trust: TrustPolicy {
            known_hosts: std::path::PathBuf::new(),
            pins: Vec::new(),
            roots: Vec::new(),
            system_roots: false,
            new_hosts: NewHosts::Refuse,
        },
        credentials: Vec::new(),
        level: flags.protect.unwrap_or_default().into(),
    })
}

/// Refuses flags that would be ignored with the server of a place that ssh leads to.
pub(crate) fn check_for(place: &RemotePlace, flags: &SecurityFlags) -> Result<(), Fault> {
    let [start, run] = OPERATIONS;
    let (operation, is_refused) = match place.address {
        Address::SshFtp { .. } => (run, false),
        _ => (start, flags.insecure),
    };
    let trusts = flags.ca.is_some() || flags.pin.is_some() || flags.known_only;
    if !is_refused && !flags.names_credentials() && !trusts {
        return Ok(());
    }
    let cause = "with ssh:// and sshftp:// URLs, ssh logs in and knows the hosts";
    Err(Fault::new(Code::InvalidArgument, operation, cause).hint(
        "leave out the flags about keys, passwords and trusted servers; those of ssh go into \
         --ssh, such as --ssh 'ssh -i KEY'",
    ))
}

/// The value of a flag, or of its environment variable.
fn setting(flag: Option<&str>, variable: &str) -> Option<String> {
    let set = || std::env::var(variable).ok().filter(|text| !text.is_empty());
    flag.map(str::to_owned).or_else(set)
}

/// The ssh command, with flags of its own; empty for the usual one.
fn command(flags: &SecurityFlags) -> Result<Vec<OsString>, Fault> {
    let Some(text) = setting(flags.ssh.ssh.as_deref(), "XDFS_SSH") else {
        return Ok(Vec::new());
    };
    const READ: &str = "read the ssh command";
    let words = words::split(text.as_bytes()).map_err(|fault| Fault {
        operation: READ.into(),
        ..fault
    })?;
    let words: Vec<OsString> = words
        .into_iter()
        // What was split is text.
        .map(|word| String::from_utf8_lossy(&word.bytes).into_owned().into())
        .collect();
    match words.is_empty() {
        true => Err(Fault::new(Code::InvalidArgument, READ, "it is empty")),
        false => Ok(words),
    }
}
