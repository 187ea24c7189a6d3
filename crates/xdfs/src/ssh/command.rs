//! The command line of ssh, for places of every kind to which it leads.

use std::ffi::OsString;
use std::process::Command;

/// The ssh of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ssh {
    /// The program and its first arguments.
    pub(super) words: Vec<OsString>,
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

impl Ssh {
    /// The program.
    pub(super) fn program(&self) -> OsString {
        self.words.first().cloned().unwrap_or_else(|| "ssh".into())
    }

    /// The command, without its host.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(self.program());
        command.args(self.words.iter().skip(1));
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

    /// The command that prints the settings for the host.
    pub(super) fn ask_settings(&self) -> Command {
        let mut ask = self.command();
        ask.arg("-G");
        self.name_host(&mut ask);
        ask
    }
}

/// As scp does: what the user set up for logins isn't for this.
pub(super) fn leave_out_settings(command: &mut Command) {
    command.args(["-T", "-a", "-x"]);
    for option in ["PermitLocalCommand=no", "RemoteCommand=none"] {
        command.args(["-o", option]);
    }
}
