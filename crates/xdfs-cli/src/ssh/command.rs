//! The command line of ssh, for places of every kind to which it leads.

use std::ffi::OsString;
use std::process::Command;

use xdfs::{Code, Fault};

use crate::flags::SecurityFlags;
use crate::shell::words;

/// The ssh of a place.
pub(super) struct Ssh {
    pub(super) words: Vec<OsString>,
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

impl Ssh {
    /// The command, without its host.
    pub(super) fn command(&self) -> Command {
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().cloned().unwrap_or_else(|| "ssh".into()));
        command.args(words);
        if let Some(user) = &self.user {
            command.args(["-l", user]);
        }
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        command
    }

    pub(super) fn name_host(&self, command: &mut Command) {
        command.args(["--", &self.host]);
    }
}

/// The value of a flag, or of its environment variable.
pub(super) fn setting(flag: Option<&str>, variable: &str) -> Option<String> {
    let set = || std::env::var(variable).ok().filter(|text| !text.is_empty());
    flag.map(str::to_owned).or_else(set)
}

/// The ssh command, with flags of its own.
///
/// # Errors
/// It is no command.
pub(super) fn ssh_words(flags: &SecurityFlags) -> Result<Vec<OsString>, Fault> {
    let Some(text) = setting(flags.ssh.ssh.as_deref(), "XDFS_SSH") else {
        return Ok(vec!["ssh".into()]);
    };
    let words = words::split(text.as_bytes()).map_err(|fault| Fault {
        operation: "read the ssh command".into(),
        ..fault
    })?;
    let words: Vec<OsString> = words
        .into_iter()
        // What was split is text.
        .map(|word| String::from_utf8_lossy(&word.bytes).into_owned().into())
        .collect();
    match words.is_empty() {
        true => Err(Fault::new(
            Code::InvalidArgument,
            "read the ssh command",
            "it is empty",
        )),
        false => Ok(words),
    }
}

/// As scp does: what the user set up for logins isn't for this.
pub(super) fn leave_out_settings(command: &mut Command) {
    command.args(["-T", "-a", "-x"]);
    for option in ["PermitLocalCommand=no", "RemoteCommand=none"] {
        command.args(["-o", option]);
    }
}

/// Refuses flags about logins and hosts, which are those of ssh.
pub(super) fn check_login(flags: &SecurityFlags, operation: &str) -> Result<(), Fault> {
    let trusts = flags.ca.is_some() || flags.pin.is_some() || flags.known_only;
    match flags.names_credentials() || trusts {
        true => Err(by_ssh(operation)),
        false => Ok(()),
    }
}

/// The fault of such flags.
pub(super) fn by_ssh(operation: &str) -> Fault {
    let cause = "with ssh:// and sshftp:// URLs, ssh logs in and knows the hosts";
    Fault::new(Code::InvalidArgument, operation, cause).hint(
        "leave out the flags about keys, passwords and trusted servers; those of ssh go into \
         --ssh, such as --ssh 'ssh -i KEY'",
    )
}
