//! The credentials of a user for a server, and the trust in it.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use xdfs_proto::{Code, Fault, Retry};

use super::folder::{UserFolder, make_user_key};
use super::login::Login;
use super::secrets::{LoginAnswer, Prompt, Secret};
use crate::client::Client;
use crate::paths::Call;
use crate::remote::{Address, DEFAULT_PORT, Invitation, RemotePlace};
#[cfg(feature = "gsi")]
use crate::scheme::LoginBy;
use crate::security::{
    ClientSecurity, Credential, Fingerprint, NewHosts, TrustPolicy, read_certificates, trusted,
};
use crate::session::ClientOptions;
use crate::ssh::options::SshOptions;

/// The user in a URL who presents no credentials.
const ANONYMOUS: &str = "anonymous";
/// Largest file with a secret, in bytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;
/// The operations in faults about secrets.
const READ_PASSWORD: &str = "read the password";
const READ_TICKET: &str = "read the ticket";

/// The variables with secrets that are used if nothing else was given for a login.
const TICKET_VARIABLE: &str = "XDFS_TICKET";
const TOKEN_VARIABLE: &str = "BEARER_TOKEN";
const TOKEN_FILE_VARIABLE: &str = "BEARER_TOKEN_FILE";
/// All of them.
pub const AMBIENT_SECRETS: [&str; 3] = [TICKET_VARIABLE, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE];

/// Whether one of them is set.
#[must_use]
pub fn has_ambient_secret() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    AMBIENT_SECRETS.into_iter().any(is_set)
}

/// Whether the URL names the user who presents no credentials.
#[must_use]
pub fn is_anonymous(place: &RemotePlace) -> bool {
    place.user.as_deref() == Some(ANONYMOUS)
}

/// Whether the user waits for the session, and can be asked.
#[derive(Clone, Copy)]
pub enum Attendance<'a> {
    /// The user can be asked; unknown servers may be remembered, and a key is made if there is
    /// none.
    Attended(&'a Prompt<'a>),
    /// The user didn't ask for the session: nothing is asked or written, no ticket is used up, and
    /// unknown servers are refused.
    Unattended,
    /// As [`Self::Unattended`], for a session that others use too: nothing comes from the
    /// environment.
    Shared,
}

impl fmt::Debug for Attendance<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attended(_) => "Attended",
            Self::Unattended => "Unattended",
            Self::Shared => "Shared",
        })
    }
}

impl<'a> Attendance<'a> {
    fn is_attended(self) -> bool {
        matches!(self, Self::Attended(_))
    }

    /// How the user is asked.
    ///
    /// # Errors
    /// Nobody attends to this `operation`.
    fn prompt(self, operation: &str) -> Result<&'a Prompt<'a>, Fault> {
        match self {
            Self::Attended(prompt) => Ok(prompt),
            Self::Shared | Self::Unattended => {
                let cause = "the user has to start the session";
                Err(Fault::new(Code::AuthenticationFailed, operation, cause))
            }
        }
    }
}

impl Login {
    /// The options of a session with the server of `place`: these ones, with trust and credentials.
    ///
    /// # Errors
    /// A named file can't be used, or without the user a ticket or a typed secret would be needed.
    pub fn options(
        &self,
        place: &RemotePlace,
        mut options: ClientOptions,
        attendance: Attendance<'_>,
    ) -> Result<ClientOptions, Fault> {
        if place.address.is_here() {
            options.security = None;
        } else if place.address.is_of_ssh() {
            let own: SshOptions = options.settings.get_or_default();
            let own = self.ssh_options(place, &own.servers)?;
            options.settings = options.settings.with(own);
            // Nothing but the level is of use: ssh logs in, and knows the hosts.
            options.security = (!self.insecure).then(|| ClientSecurity {
                trust: TrustPolicy {
                    known_hosts: PathBuf::new(),
                    pins: Vec::new(),
                    roots: Vec::new(),
                    system_roots: false,
                    new_hosts: NewHosts::Refuse,
                },
                credentials: Vec::new(),
                level: self.protect.unwrap_or_default(),
            });
        } else {
            options.security = self.security(place, attendance)?;
        }
        Ok(options)
    }

    /// Trust and credentials for the server of `place`; `None` for channels without protection.
    ///
    /// # Errors
    /// A named file can't be used, or without the user a ticket or a typed secret would be needed.
    pub fn security(
        &self,
        place: &RemotePlace,
        attendance: Attendance<'_>,
    ) -> Result<Option<ClientSecurity>, Fault> {
        let invitation = &place.invitation;
        if self.insecure {
            if invitation.ticket.is_some() || invitation.pin.is_some() {
                let cause = "a ticket or a pin can't be combined with --insecure";
                return Err(Fault::new(Code::InvalidArgument, "open the session", cause));
            }
            return Ok(None);
        }
        let folder = UserFolder::find()?;
        if attendance.is_attended() {
            folder.make()?;
        }
        let roots = match &self.ca {
            Some(path) => read_certificates(path)?,
            None => Vec::new(),
        };
        let found = self.credentials(place, &folder, attendance)?;
        // A server trusted on first use would get ambient credentials the next time.
        let new_hosts = match attendance {
            Attendance::Shared | Attendance::Unattended => NewHosts::Refuse,
            Attendance::Attended(_) if self.known_only => NewHosts::Refuse,
            Attendance::Attended(_) if found.is_ambient => NewHosts::RefuseAmbient,
            Attendance::Attended(_) => NewHosts::Accept,
        };
        let pin = self.pin.or(invitation.pin).or(found.pin);
        let trust = TrustPolicy {
            known_hosts: folder.known_hosts(),
            pins: pin.into_iter().collect(),
            roots,
            system_roots: self.ca.is_none(),
            new_hosts,
        };
        Ok(Some(ClientSecurity {
            trust,
            credentials: found.credentials,
            level: self.protect.unwrap_or_default(),
        }))
    }

    /// Like [`Self::security`], for another session of a program that has one with that server: the
    /// settings of that session, overridden by these.
    ///
    /// # Errors
    /// A named file can't be used; [`Self::insecure`] if that session verifies the server by a pin,
    /// a ticket or an authority.
    pub fn security_beside(
        &self,
        shell: Option<&ClientSecurity>,
        place: &RemotePlace,
        prompt: &Prompt<'_>,
    ) -> Result<Option<ClientSecurity>, Fault> {
        let attendance = Attendance::Attended(prompt);
        let Some(shell) = shell else {
            return if self.protects() {
                self.security(place, attendance)
            } else {
                Ok(None)
            };
        };
        if self.insecure {
            let trust = &shell.trust;
            let named = !trust.pins.is_empty() || !trust.roots.is_empty();
            if named || place.invitation.ticket.is_some() || trust.new_hosts == NewHosts::Refuse {
                let cause = "the trusted servers were given when the shell started";
                return Err(Fault::new(Code::InvalidArgument, "open the session", cause)
                    .hint("--insecure needs a shell of its own"));
            }
            return Ok(None);
        }
        let mut own = shell.clone();
        if let Some(pin) = self.pin {
            own.trust.pins = vec![pin];
        }
        if let Some(path) = &self.ca {
            own.trust.roots = read_certificates(path)?;
            own.trust.system_roots = false;
        }
        if self.known_only {
            own.trust.new_hosts = NewHosts::Refuse;
        }
        if self.names_credentials() {
            let mut uninvited = place.clone();
            uninvited.invitation.ticket = None;
            let found = self.credentials(&uninvited, &UserFolder::find()?, attendance)?;
            own.credentials = found.credentials;
            if let (None, Some(pin)) = (self.pin, found.pin) {
                own.trust.pins = vec![pin];
            }
        }
        if let Some(level) = self.protect {
            own.level = level;
        }
        Ok(Some(own))
    }

    /// Asks for secrets given as `-`, so that it isn't done later.
    ///
    /// # Errors
    /// What `prompt` says.
    pub fn ask_ahead(&self, place: &RemotePlace, prompt: &Prompt<'_>) -> Result<(), Fault> {
        let is_asked = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path == "-");
        let secret = match place.invitation.ticket {
            _ if self.insecure => return Ok(()),
            None if is_asked(&self.ticket_file) => ticket(),
            None if self.ticket_file.is_none() && is_asked(&self.password_file) => password(),
            _ => return Ok(()),
        };
        self.typed.ask(place, &secret, prompt).map(drop)
    }

    /// Logs in at the other members of a group with the password that was typed for the first one,
    /// which has named them, and asks for none there.
    pub fn share_password(&self, members: &[RemotePlace]) {
        if let Some((first, others)) = members.split_first() {
            let share = |to| self.typed.share(&password(), first, to);
            others.iter().for_each(share);
        }
    }

    /// Refuses one password for two servers, of which one speaks FTP: that sends the password
    /// itself, so each would know the other's.
    ///
    /// # Errors
    /// They are two servers or users.
    pub fn check_one_password(&self, places: [&RemotePlace; 2]) -> Result<(), Fault> {
        // One of them gets none.
        let is_for_one = self.clone().for_places(places).is_consent_to_clear;
        match &self.password_file {
            Some(file) if file.as_os_str() != "-" && !is_for_one => check_owners(file, places),
            _ => Ok(()),
        }
    }

    /// Whether a password may be asked for if the server refuses the keys, where somebody is there
    /// to ask: the URL names a user, and nothing else was given for the login.
    #[must_use]
    pub fn may_ask_password(&self, place: &RemotePlace) -> bool {
        let is_named = place.user.as_deref().is_some_and(|user| user != ANONYMOUS);
        let is_given = self.names_credentials() || place.invitation.ticket.is_some();
        // Such a user logs in by ssh.
        is_named && !is_given && !self.insecure && !place.address.is_of_ssh()
    }

    /// Asks for a password if the server has refused the login of `client`, and takes passwords;
    /// `ask` gets the question, and whether it comes again. Returns whether to open another
    /// session, with it or after a pause.
    ///
    /// # Errors
    /// What `ask` says.
    pub fn retry(
        &self,
        place: &RemotePlace,
        client: &Client,
        ask: impl FnOnce(&Secret, bool) -> Result<String, Fault>,
    ) -> Result<bool, Fault> {
        if !self.may_ask_password(place) {
            return Ok(false);
        }
        let answer = || {
            // The shortest call: only its answer shows whether the session is open.
            let call = Call::Stat {
                path: b"/".to_vec(),
                follow: true,
            };
            match client.call(call) {
                Err(fault)
                    if fault.code == Code::AuthenticationFailed && client.takes_password() =>
                {
                    LoginAnswer::Refused
                }
                Err(Fault {
                    code: Code::LimitExceeded,
                    retry: Retry::AfterMs(pause),
                    ..
                }) => LoginAnswer::Later(Duration::from_millis(pause.into())),
                _ => LoginAnswer::Final,
            }
        };
        self.typed.retype(place, answer, |is_again| {
            let user = place.user.as_deref().unwrap_or_default();
            let host = match &place.address {
                Address::Host { host, port } if *port == DEFAULT_PORT => host.clone(),
                address => address.to_string(),
            };
            let secret = Secret {
                prompt: format!("Password for {user}@{host}: "),
                operation: READ_PASSWORD,
            };
            ask(&secret, is_again)
        })
    }

    /// Credentials that are named take precedence over those found.
    fn credentials(
        &self,
        place: &RemotePlace,
        folder: &UserFolder,
        attendance: Attendance<'_>,
    ) -> Result<PresentedCredentials, Fault> {
        if place.invitation.ticket.is_some() {
            attendance.prompt(READ_TICKET)?;
            return Ok(PresentedCredentials::invited(
                place.invitation.clone(),
                false,
            ));
        }
        if let Some(path) = &self.ticket_file {
            let prompt = attendance.prompt(READ_TICKET)?;
            let text = if path.as_os_str() == "-" {
                self.typed.ask(place, &ticket(), prompt)?
            } else {
                read_secret(path, READ_TICKET)?
            };
            return Ok(PresentedCredentials::invited(text.parse()?, false));
        }
        let mut found = Vec::new();
        if let (Some(chain), Some(key)) = (&self.cert, &self.cert_key) {
            let (chain, key) = (chain.clone(), key.clone());
            found.push(Credential::Certificate { chain, key });
        }
        if let Some(path) = &self.token_file {
            found.push(Credential::Token(read_secret(path, "read the token")?));
        }
        if let Some(path) = &self.password_file {
            let password = if path.as_os_str() == "-" {
                let prompt = attendance.prompt(READ_PASSWORD)?;
                self.typed.ask(place, &password(), prompt)?
            } else {
                check_password_of(path, place)?;
                read_secret(path, READ_PASSWORD)?
            };
            found.push(Credential::Password(password));
        }
        if let Some(path) = &self.key {
            found.push(Credential::Key(path.clone()));
        }
        if self.agent {
            let socket = env::var_os("SSH_AUTH_SOCK").ok_or_else(|| {
                let cause = "SSH_AUTH_SOCK is not set";
                Fault::new(Code::NotFound, "contact the ssh-agent", cause)
                    .hint("start one, or use --key")
            })?;
            found.push(Credential::Agent(socket.into()));
        }
        if !found.is_empty() {
            return Ok(PresentedCredentials::named(found));
        }
        if self.anonymous || is_anonymous(place) {
            return Ok(PresentedCredentials::named(vec![Credential::Anonymous]));
        }
        if let Some(password) = self.typed.password(place) {
            return Ok(PresentedCredentials::named(vec![Credential::Password(
                password,
            )]));
        }
        #[cfg(feature = "gsi")]
        if place.address.login() == Some(LoginBy::Certificate) {
            let (chain, key) = crate::gsi::user_files();
            return Ok(PresentedCredentials::named(vec![Credential::Certificate {
                chain,
                key,
            }]));
        }
        // Keys, tickets and tokens are nothing for other servers.
        if !place.address.speaks_xdfs() {
            return Ok(PresentedCredentials::named(vec![Credential::Anonymous]));
        }
        let of_environment = |name| match attendance {
            Attendance::Shared => None,
            _ => env::var_os(name).filter(|value| !value.is_empty()),
        };
        let text_of = |name| of_environment(name).and_then(|value| value.into_string().ok());
        if let Some(text) = text_of(TICKET_VARIABLE) {
            attendance.prompt(READ_TICKET)?;
            return Ok(PresentedCredentials::invited(text.parse()?, true));
        }
        // WLCG bearer token discovery.
        if let Some(token) = text_of(TOKEN_VARIABLE) {
            found.push(Credential::Token(token.trim().to_owned()));
        } else if let Some(path) = of_environment(TOKEN_FILE_VARIABLE) {
            let token = read_secret(Path::new(&path), "read the token")?;
            found.push(Credential::Token(token));
        }
        let is_ambient = !found.is_empty();
        let key = folder.key();
        let exists = key.exists();
        if !exists && attendance.is_attended() {
            match make_user_key(&key) {
                Ok(_) => {}
                // Created by another command.
                Err(fault) if fault.code == Code::AlreadyExists => {}
                Err(fault) => return Err(fault),
            }
        }
        if exists || attendance.is_attended() {
            found.push(Credential::Key(key));
        }
        found.push(Credential::Anonymous);
        Ok(PresentedCredentials {
            is_ambient,
            ..PresentedCredentials::named(found)
        })
    }
}

fn password() -> Secret {
    Secret {
        prompt: "Password: ".into(),
        operation: READ_PASSWORD,
    }
}

fn ticket() -> Secret {
    Secret {
        prompt: "Ticket: ".into(),
        operation: READ_TICKET,
    }
}

/// The credentials to present to a server.
#[derive(Debug, Default)]
struct PresentedCredentials {
    credentials: Vec<Credential>,
    /// The pin of a ticket.
    pin: Option<Fingerprint>,
    /// One of the secrets comes from the environment, and would be sent to any server.
    is_ambient: bool,
}

impl PresentedCredentials {
    fn invited(invitation: Invitation, is_ambient: bool) -> Self {
        let ticket = invitation.ticket.map(Credential::Ticket);
        Self {
            credentials: ticket.into_iter().collect(),
            pin: invitation.pin,
            is_ambient,
        }
    }

    fn named(credentials: Vec<Credential>) -> Self {
        Self {
            credentials,
            ..Self::default()
        }
    }
}

fn check_owners(file: &Path, [one, other]: [&RemotePlace; 2]) -> Result<(), Fault> {
    let is_other = |place: &RemotePlace| !place.address.speaks_xdfs();
    let is_same = one.address == other.address && one.user == other.user;
    if is_same || !(is_other(one) || is_other(other)) {
        return Ok(());
    }
    let cause = format!(
        "one password would be told to {} and to {}",
        one.address, other.address
    );
    let fault = Fault::new(Code::InvalidArgument, "log in", cause);
    Err(fault.path(file.as_os_str().as_encoded_bytes()).hint(
        "use a command for each server, or servers with names, each with its own password_file",
    ))
}

/// The same for all places of this process, of which those of a list come one by one.
fn check_password_of(file: &Path, place: &RemotePlace) -> Result<(), Fault> {
    static OWNERS: Mutex<Vec<(PathBuf, RemotePlace)>> = Mutex::new(Vec::new());

    let mut owners = OWNERS.lock().unwrap_or_else(PoisonError::into_inner);
    match owners.iter().find(|(path, _)| path == file) {
        Some((_, owner)) => check_owners(file, [owner, place]),
        None => {
            owners.push((file.to_owned(), place.clone()));
            Ok(())
        }
    }
}

/// The first line of a file, which may be a pipe.
fn read_secret(path: &Path, operation: &str) -> Result<String, Fault> {
    let name = path.as_os_str().as_encoded_bytes();
    let bytes = trusted::read_any(operation, path, SECRET_BYTES_MAX)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Fault::new(Code::InvalidArgument, operation, "it isn't UTF-8").path(name))?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        let cause = "the first line is empty";
        return Err(Fault::new(Code::InvalidArgument, operation, cause).path(name));
    }
    Ok(line.to_owned())
}
