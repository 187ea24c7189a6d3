//! This user's keys and known servers, and the credentials that a command presents to a server.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "gsi")]
use xdfs::FtpProtection;
use xdfs::security::{
    ClientSecurity, Credential, Fingerprint, NewHosts, TrustPolicy, make_key, read_certificates,
    trusted,
};
#[cfg(unix)]
use xdfs::security::{KnownHosts, known_name};
use xdfs::{Address, Call, Client, Code, DEFAULT_PORT, Fault, Invitation, RemotePlace, Retry};

use crate::console::{Console, printable};
use crate::flags::{OutputFlags, SecurityFlags};
use crate::secret::{self, LoginAnswer};
use crate::user_name::user_name;

/// Name of the directory of this user's keys and known servers, unless XDFS_CONFIG_DIR is set.
const FOLDER: &str = "xdfs";
/// The user in a URL who presents no credentials.
const ANONYMOUS: &str = "anonymous";
/// Largest file with a secret, in bytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The directory of this user's keys and known servers.
///
/// # Errors
/// The user has no home.
pub(crate) fn folder() -> Result<PathBuf, Fault> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = set("XDFS_CONFIG_DIR") {
        return Ok(folder.into());
    }
    if let Some(folder) = set("XDG_CONFIG_HOME").map(PathBuf::from)
        && folder.is_absolute()
    {
        return Ok(folder.join(FOLDER));
    }
    let home = set("HOME").or_else(|| set("USERPROFILE"));
    home.map(|home| Path::new(&home).join(".config").join(FOLDER))
        .ok_or_else(|| {
            let cause = "neither XDFS_CONFIG_DIR nor HOME is set";
            Fault::new(Code::NotFound, "find the key directory", cause)
                .hint("set XDFS_CONFIG_DIR to a directory of your own")
        })
}

/// The default key.
pub(crate) fn own_key(folder: &Path) -> PathBuf {
    folder.join("id_ed25519")
}

/// The known hosts file.
pub(crate) fn known_hosts(folder: &Path) -> PathBuf {
    folder.join("known_hosts")
}

/// The keys by which this user knows the server of `place`.
///
/// # Errors
/// The file of them can't be read, or isn't to be believed.
#[cfg(unix)]
pub(crate) fn known_keys(place: &RemotePlace) -> Result<Vec<Fingerprint>, Fault> {
    let hosts = KnownHosts::load(&known_hosts(&folder()?))?;
    Ok(hosts.lookup(&known_name(&place.address)?))
}

/// Creates a key with this user's name as its comment.
///
/// # Errors
/// It can't be written, or exists already.
pub(crate) fn make_own_key(path: &Path) -> Result<xdfs::security::PublicKey, Fault> {
    if let Some(parent) = path.parent() {
        trusted::make_folder("create the key directory", parent)?;
    }
    make_key(path, &format!("{} xdfs", user_name()))
}

/// Trust and credentials for the server of `place`; `None` for channels without protection.
///
/// # Errors
/// A named file can't be used.
pub(crate) fn security(
    flags: &SecurityFlags,
    place: &RemotePlace,
) -> Result<Option<ClientSecurity>, Fault> {
    security_with(flags, place, Attendance::Attended)
}

/// Like [`security`], for a session that the user didn't ask for: nothing is asked or written, no
/// ticket is used up, and unknown servers are refused.
///
/// # Errors
/// A named file can't be used, or a ticket or a typed secret would be needed.
pub(crate) fn unattended_security(
    flags: &SecurityFlags,
    place: &RemotePlace,
) -> Result<Option<ClientSecurity>, Fault> {
    security_with(flags, place, Attendance::Unattended)
}

/// Like [`unattended_security`], for a session of the agent, which other commands use too: nothing
/// comes from the environment.
///
/// # Errors
/// As [`unattended_security`].
#[cfg(unix)]
pub(crate) fn agent_security(
    flags: &SecurityFlags,
    place: &RemotePlace,
) -> Result<Option<ClientSecurity>, Fault> {
    security_with(flags, place, Attendance::Agent)
}

/// Whether the user waits for the session, and can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attendance {
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no agent"))]
    Agent,
    Attended,
    Unattended,
}

impl Attendance {
    /// # Errors
    /// Nobody attends to this `operation`.
    fn need(self, operation: &str) -> Result<(), Fault> {
        match self {
            Self::Attended => Ok(()),
            Self::Agent | Self::Unattended => {
                let cause = "the user has to start the session";
                Err(Fault::new(Code::AuthenticationFailed, operation, cause))
            }
        }
    }
}

fn security_with(
    flags: &SecurityFlags,
    place: &RemotePlace,
    attendance: Attendance,
) -> Result<Option<ClientSecurity>, Fault> {
    let invitation = &place.invitation;
    if flags.insecure {
        if invitation.ticket.is_some() || invitation.pin.is_some() {
            let cause = "a ticket or a pin can't be combined with --insecure";
            return Err(Fault::new(Code::InvalidArgument, "open the session", cause));
        }
        return Ok(None);
    }
    let folder = folder()?;
    if attendance == Attendance::Attended {
        trusted::make_folder("create the key directory", &folder)?;
    }
    let roots = match &flags.ca {
        Some(path) => read_certificates(path)?,
        None => Vec::new(),
    };
    let found = credentials(flags, place, &folder, attendance)?;
    // A server trusted on first use would get ambient credentials the next time.
    let new_hosts = match attendance {
        Attendance::Agent | Attendance::Unattended => NewHosts::Refuse,
        Attendance::Attended if flags.known_only => NewHosts::Refuse,
        Attendance::Attended if found.is_ambient => NewHosts::RefuseAmbient,
        Attendance::Attended => NewHosts::Accept,
    };
    let pin = flags.pin.or(invitation.pin).or(found.pin);
    let trust = TrustPolicy {
        known_hosts: known_hosts(&folder),
        pins: pin.into_iter().collect(),
        roots,
        system_roots: flags.ca.is_none(),
        new_hosts,
    };
    Ok(Some(ClientSecurity {
        trust,
        credentials: found.credentials,
        level: flags.protect.unwrap_or_default().into(),
    }))
}

/// Like [`security`], for a command in a shell with a session to that server: the shell's settings,
/// overridden by the flags of the command.
///
/// # Errors
/// A named file can't be used; `--insecure` if the shell verifies the server by a pin, a ticket or
/// an authority.
pub(crate) fn security_of_command(
    shell: Option<&ClientSecurity>,
    flags: &SecurityFlags,
    place: &RemotePlace,
) -> Result<Option<ClientSecurity>, Fault> {
    let Some(shell) = shell else {
        return if flags.protects() {
            security(flags, place)
        } else {
            Ok(None)
        };
    };
    if flags.insecure {
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
    if let Some(pin) = flags.pin {
        own.trust.pins = vec![pin];
    }
    if let Some(path) = &flags.ca {
        own.trust.roots = read_certificates(path)?;
        own.trust.system_roots = false;
    }
    if flags.known_only {
        own.trust.new_hosts = NewHosts::Refuse;
    }
    if flags.names_credentials() {
        let mut uninvited = place.clone();
        uninvited.invitation.ticket = None;
        let found = credentials(flags, &uninvited, &folder()?, Attendance::Attended)?;
        own.credentials = found.credentials;
        if let (None, Some(pin)) = (flags.pin, found.pin) {
            own.trust.pins = vec![pin];
        }
    }
    if let Some(level) = flags.protect {
        own.level = level.into();
    }
    Ok(Some(own))
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

/// The variables with secrets that are used if nothing else was given for a login.
const TICKET_VARIABLE: &str = "XDFS_TICKET";
const TOKEN_VARIABLE: &str = "BEARER_TOKEN";
const TOKEN_FILE_VARIABLE: &str = "BEARER_TOKEN_FILE";
/// All of them.
pub(crate) const AMBIENT_SECRETS: [&str; 3] =
    [TICKET_VARIABLE, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE];

/// Whether one of them is set.
#[cfg(unix)]
pub(crate) fn has_ambient_secret() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    AMBIENT_SECRETS.into_iter().any(is_set)
}

/// Whether the URL names the user who presents no credentials.
pub(crate) fn is_anonymous(place: &RemotePlace) -> bool {
    place.user.as_deref() == Some(ANONYMOUS)
}

/// The prompts for secrets, and the operations in faults.
const PASSWORD: (&str, &str) = ("Password: ", "read the password");
const TICKET: (&str, &str) = ("Ticket: ", "read the ticket");

/// Asks for secrets given as `-`, before progress is drawn.
///
/// # Errors
/// Nothing can be read, or nothing was typed.
pub(crate) fn ask_ahead(flags: &SecurityFlags, place: &RemotePlace) -> Result<(), Fault> {
    let is_asked = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path == "-");
    let prompt = match place.invitation.ticket {
        _ if flags.insecure => return Ok(()),
        None if is_asked(&flags.ticket_file) => TICKET,
        None if flags.ticket_file.is_none() && is_asked(&flags.password_file) => PASSWORD,
        _ => return Ok(()),
    };
    flags.typed.ask(place, prompt.0, prompt.1).map(drop)
}

/// Refuses one password for two servers of a command, of which one speaks FTP: that sends the
/// password itself, so each would know the other's.
///
/// # Errors
/// They are two servers or users.
pub(crate) fn check_one_password(
    flags: &SecurityFlags,
    places: [&RemotePlace; 2],
) -> Result<(), Fault> {
    // One of them gets none.
    let is_for_one = flags.clone().for_places(places).is_consent_to_ftp;
    match &flags.password_file {
        Some(file) if file.as_os_str() != "-" && !is_for_one => check_owners(file, places),
        _ => Ok(()),
    }
}

fn check_owners(file: &Path, [one, other]: [&RemotePlace; 2]) -> Result<(), Fault> {
    let is_of_ftp = |place: &RemotePlace| place.address.is_ftp();
    let is_same = one.address == other.address && one.user == other.user;
    if is_same || !(is_of_ftp(one) || is_of_ftp(other)) {
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

/// Whether a password may be asked for if the server refuses the keys: somebody is there to ask,
/// the URL names a user, and nothing else was given for the login.
pub(crate) fn may_ask_password(flags: &SecurityFlags, place: &RemotePlace) -> bool {
    let is_named = place.user.as_deref().is_some_and(|user| user != ANONYMOUS);
    let is_given = flags.names_credentials() || place.invitation.ticket.is_some();
    // Such a user logs in by ssh.
    let is_of_ssh = place.address.is_of_ssh();
    is_named && !is_given && !flags.insecure && !is_of_ssh && Console::can_ask()
}

/// Asks for a password if the server has refused the login of `client`, and takes passwords.
/// Returns whether to open another session, with it or after a pause.
///
/// # Errors
/// Nothing can be read, or nothing was typed.
pub(crate) fn asks_password(
    flags: &SecurityFlags,
    place: &RemotePlace,
    client: &Client,
) -> Result<bool, Fault> {
    if !may_ask_password(flags, place) {
        return Ok(false);
    }
    let answer = || {
        // The shortest call: only its answer shows whether the session is open.
        let call = Call::Stat {
            path: b"/".to_vec(),
            follow: true,
        };
        match client.call(call) {
            Err(fault) if fault.code == Code::AuthenticationFailed && client.takes_password() => {
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
    let ask = |is_again: bool| {
        let mut console = Console::new(OutputFlags::default());
        // The user should know to whom the password goes.
        if let Some(server) = client.first_use() {
            console.first_use(&server, true);
        }
        if is_again {
            console.info("the login was refused: try again");
        }
        let user = place.user.as_deref().unwrap_or_default();
        let host = match &place.address {
            Address::Host { host, port } if *port == DEFAULT_PORT => host.clone(),
            address => address.to_string(),
        };
        let prompt = format!("Password for {user}@{host}: ");
        secret::ask(&printable(&prompt), PASSWORD.1)
    };
    flags.typed.retype(place, answer, ask)
}

/// Credentials named by flags take precedence over those found.
fn credentials(
    flags: &SecurityFlags,
    place: &RemotePlace,
    folder: &Path,
    attendance: Attendance,
) -> Result<PresentedCredentials, Fault> {
    if place.invitation.ticket.is_some() {
        attendance.need(TICKET.1)?;
        return Ok(PresentedCredentials::invited(
            place.invitation.clone(),
            false,
        ));
    }
    if let Some(path) = &flags.ticket_file {
        attendance.need(TICKET.1)?;
        let text = if path.as_os_str() == "-" {
            flags.typed.ask(place, TICKET.0, TICKET.1)?
        } else {
            read_secret(path, "read the ticket")?
        };
        return Ok(PresentedCredentials::invited(text.parse()?, false));
    }
    let mut found = Vec::new();
    if let (Some(chain), Some(key)) = (&flags.cert, &flags.cert_key) {
        let (chain, key) = (chain.clone(), key.clone());
        found.push(Credential::Certificate { chain, key });
    }
    if let Some(path) = &flags.token_file {
        found.push(Credential::Token(read_secret(path, "read the token")?));
    }
    if let Some(path) = &flags.password_file {
        let password = if path.as_os_str() == "-" {
            attendance.need(PASSWORD.1)?;
            flags.typed.ask(place, PASSWORD.0, PASSWORD.1)?
        } else {
            check_password_of(path, place)?;
            read_secret(path, "read the password")?
        };
        found.push(Credential::Password(password));
    }
    if let Some(path) = &flags.key {
        found.push(Credential::Key(path.clone()));
    }
    if flags.agent {
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
    if flags.anonymous || is_anonymous(place) {
        return Ok(PresentedCredentials::named(vec![Credential::Anonymous]));
    }
    if let Some(password) = flags.typed.password(place) {
        return Ok(PresentedCredentials::named(vec![Credential::Password(
            password,
        )]));
    }
    #[cfg(feature = "gsi")]
    if let Address::Ftp { protection, .. } = &place.address
        && *protection == FtpProtection::Gsi
    {
        let (chain, key) = crate::proxy::found();
        return Ok(PresentedCredentials::named(vec![Credential::Certificate {
            chain,
            key,
        }]));
    }
    // Keys, tickets and tokens are nothing for other servers.
    if place.address.is_ftp() {
        return Ok(PresentedCredentials::named(vec![Credential::Anonymous]));
    }
    let of_environment = |name| match attendance {
        Attendance::Agent => None,
        _ => env::var_os(name).filter(|value| !value.is_empty()),
    };
    let text_of = |name| of_environment(name).and_then(|value| value.into_string().ok());
    if let Some(text) = text_of(TICKET_VARIABLE) {
        attendance.need(TICKET.1)?;
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
    let key = own_key(folder);
    let exists = key.exists();
    if !exists && attendance == Attendance::Attended {
        match make_own_key(&key) {
            Ok(_) => {}
            // Created by another command.
            Err(fault) if fault.code == Code::AlreadyExists => {}
            Err(fault) => return Err(fault),
        }
    }
    if exists || attendance == Attendance::Attended {
        found.push(Credential::Key(key));
    }
    found.push(Credential::Anonymous);
    Ok(PresentedCredentials {
        is_ambient,
        ..PresentedCredentials::named(found)
    })
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

/// Asks on the terminal without echo, or reads a line of standard input.
pub(crate) fn ask_password(prompt: &str) -> Result<String, Fault> {
    secret::ask(prompt, PASSWORD.1)
}
