//! How a user logs in to servers, and which ones are trusted: the settings before any file is read.

use std::ffi::OsString;
use std::path::PathBuf;

use xdfs_proto::{Code, Fault};

use super::secrets::TypedSecrets;
use crate::remote::RemotePlace;
use crate::scheme::LoginBy;
use crate::security::{Fingerprint, Level};
use crate::ssh::{SshOptions, SshServers};
use crate::words;

/// The operations in faults about `ssh://` places, and about `sshftp://` places.
const OPERATIONS: [&str; 2] = ["start the server through ssh", "run ssh"];
const READ_SSH: &str = "read the ssh command";

/// How a user logs in to servers, and which ones are trusted. A file `-` stands for what the user
/// is asked for.
#[derive(Clone, Debug, Default)]
pub struct Login {
    /// The OpenSSH private key.
    pub key: Option<PathBuf>,
    /// The first key in the ssh-agent.
    pub agent: bool,
    /// The file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// The file with the bearer token.
    pub token_file: Option<PathBuf>,
    /// The file whose first line is the ticket.
    pub ticket_file: Option<PathBuf>,
    /// No credentials are presented, for public data.
    pub anonymous: bool,
    /// The certificate chain, as PEM. It needs `cert_key`.
    pub cert: Option<PathBuf>,
    /// The private key of the certificate, as PEM.
    pub cert_key: Option<PathBuf>,
    /// The authorities of trusted servers, as PEM.
    pub ca: Option<PathBuf>,
    /// The key of the only trusted server.
    pub pin: Option<Fingerprint>,
    /// Unknown servers are refused, rather than remembered.
    pub known_only: bool,
    /// Protection of the payload; `None` for [`Level::Private`].
    pub protect: Option<Level>,
    /// Channels are neither encrypted nor authenticated.
    pub insecure: bool,
    /// `insecure` is the consent to places that can't be protected ([`LoginBy::ClearPassword`]),
    /// and concerns no other place: see [`Self::for_places`].
    pub is_consent_to_clear: bool,
    /// The ssh command, quoted as in a shell; `None` for XDFS_SSH, or `ssh`.
    pub ssh: Option<String>,
    /// The program that ssh starts: [`SshOptions::remote_program`]. `None` for XDFS_REMOTE_PROGRAM,
    /// with `ssh://` places.
    pub remote_program: Option<String>,
    /// What `-` stood for, once it was typed, and passwords that were asked for.
    pub typed: TypedSecrets,
}

impl Login {
    /// Whether a credential was given.
    #[must_use]
    pub fn names_credentials(&self) -> bool {
        let files = [
            &self.key,
            &self.password_file,
            &self.token_file,
            &self.ticket_file,
            &self.cert,
        ];
        self.agent || self.anonymous || files.iter().any(|file| file.is_some())
    }

    /// Whether sessions without protection would break what was asked for.
    #[must_use]
    pub fn protects(&self) -> bool {
        self.names_credentials()
            || self.ca.is_some()
            || self.pin.is_some()
            || self.known_only
            || self.protect.is_some()
    }

    /// The files that are named.
    pub(super) fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let files = [
            &mut self.key,
            &mut self.password_file,
            &mut self.token_file,
            &mut self.ticket_file,
            &mut self.cert,
            &mut self.cert_key,
            &mut self.ca,
        ];
        files.into_iter().flatten()
    }

    /// The login for sessions with places that are used together.
    ///
    /// A copy between a place that can't be protected, such as one of `ftp://`, and another server
    /// needs the user's consent to that alone: the other session stays protected.
    #[must_use]
    pub fn for_places<'a>(self, places: impl IntoIterator<Item = &'a RemotePlace>) -> Self {
        let (mut has_clear, mut has_other) = (false, false);
        for place in places {
            match sends_in_clear(place) {
                true => has_clear = true,
                false => has_other = true,
            }
        }
        Self {
            is_consent_to_clear: self.is_consent_to_clear || has_clear && has_other,
            ..self
        }
    }

    /// The login for a session with the server of `place`.
    ///
    /// # Errors
    /// It wants protection, and none.
    pub fn for_place(self, place: &RemotePlace) -> Result<Self, Fault> {
        let is_clear = sends_in_clear(place);
        if self.is_consent_to_clear && is_clear {
            // The flags of protection are about the other place.
            return Ok(Self {
                insecure: self.insecure,
                ..Self::default()
            });
        }
        // It can do without protection too, and gives no other way to say so beside this flag.
        let is_of_sshftp = place.address.is_of_ssh() && !place.address.speaks_xdfs();
        let insecure = self.insecure && (!self.is_consent_to_clear || is_of_sshftp);
        if insecure && self.protects() {
            let cause = "--insecure can't be combined with flags that protect the session";
            let fault = Fault::new(Code::InvalidArgument, "open the session", cause);
            return Err(fault.hint(
                "leave out --insecure, or the flags that say how to log in, whom to trust or what \
                 to protect",
            ));
        }
        Ok(Self { insecure, ..self })
    }

    /// Whether this says how to run ssh.
    pub(super) fn names_ssh(&self) -> bool {
        self.ssh.is_some() || self.remote_program.is_some()
    }

    /// Refuses settings that would be ignored with the server of a place that ssh leads to.
    ///
    /// # Errors
    /// They say how to log in, or whom to trust.
    pub fn check_for_ssh(&self, place: &RemotePlace) -> Result<(), Fault> {
        let [start, run] = OPERATIONS;
        let (operation, is_refused) = match place.address.speaks_xdfs() {
            true => (start, self.insecure),
            false => (run, false),
        };
        let trusts = self.ca.is_some() || self.pin.is_some() || self.known_only;
        if !is_refused && !self.names_credentials() && !trusts {
            return Ok(());
        }
        let cause = "with ssh:// and sshftp:// URLs, ssh logs in and knows the hosts";
        Err(Fault::new(Code::InvalidArgument, operation, cause).hint(
            "leave out the flags about keys, passwords and trusted servers; those of ssh go into \
             --ssh, such as --ssh 'ssh -i KEY'",
        ))
    }

    /// How ssh is run for `place`, whose server is one of `servers` if it has to be started.
    ///
    /// # Errors
    /// The command of ssh can't be read, or there are settings that would be ignored.
    pub(super) fn ssh_options(
        &self,
        place: &RemotePlace,
        servers: &SshServers,
    ) -> Result<SshOptions, Fault> {
        self.check_for_ssh(place)?;
        let program = self.remote_program.as_deref();
        let command = match setting(self.ssh.as_deref(), "XDFS_SSH") {
            Some(text) => ssh_words(&text)?,
            None => Vec::new(),
        };
        Ok(SshOptions {
            command,
            remote_program: match place.address.speaks_xdfs() {
                true => setting(program, "XDFS_REMOTE_PROGRAM"),
                false => program.map(str::to_owned),
            },
            servers: servers.clone(),
        })
    }
}

/// A setting, or that of the environment.
fn setting(own: Option<&str>, variable: &str) -> Option<String> {
    let set = || std::env::var(variable).ok().filter(|text| !text.is_empty());
    own.map(str::to_owned).or_else(set)
}

fn ssh_words(text: &str) -> Result<Vec<OsString>, Fault> {
    let words = words::split(text.as_bytes()).map_err(|fault| Fault {
        operation: READ_SSH.into(),
        ..fault
    })?;
    let words: Vec<OsString> = words
        .into_iter()
        // What was split is text.
        .map(|word| String::from_utf8_lossy(&word.bytes).into_owned().into())
        .collect();
    match words.is_empty() {
        true => Err(Fault::new(Code::InvalidArgument, READ_SSH, "it is empty")),
        false => Ok(words),
    }
}

/// Whether the server of a place gets everything unencrypted.
fn sends_in_clear(place: &RemotePlace) -> bool {
    place.address.login() == Some(LoginBy::ClearPassword)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consent_to_ftp_concerns_no_other_place() {
        let place = |text: &str| text.parse::<RemotePlace>().unwrap();
        let insecure = || Login {
            insecure: true,
            ..Login::default()
        };
        let pinned = || Login {
            anonymous: true,
            ..insecure()
        };
        let [ftp, xdfs, ftps, ssh] =
            ["ftp://h/", "xdfs://h/", "ftps://h/", "sshftp://h/"].map(place);
        for (one, other, wanted) in [
            (&ftp, &xdfs, [true, false]),
            (&xdfs, &ftp, [false, true]),
            (&ftps, &ftp, [false, true]),
            (&ssh, &ftp, [true, true]),
            (&ftp, &ftp, [true, true]),
            (&xdfs, &xdfs, [true, true]),
            (&ftps, &xdfs, [true, true]),
        ] {
            let flags = insecure().for_places([one, other]);
            let found = [one, other].map(|place| flags.clone().for_place(place).unwrap().insecure);
            assert_eq!(found, wanted, "{one} {other}");
        }
        let flags = pinned().for_places([&ftp, &xdfs]);
        assert!(!flags.clone().for_place(&ftp).unwrap().anonymous);
        let there = flags.for_place(&xdfs).unwrap();
        assert!(there.anonymous && !there.insecure);
        for places in [[&ftp, &ftp], [&xdfs, &xdfs]] {
            let flags = pinned().for_places(places);
            let fault = flags.for_place(places[0]).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument);
        }
    }
}
