//! The client's configuration: `config.toml` in the folder of this user's keys. It gives names to
//! servers, with the settings of sessions with them, and has defaults for all sessions.
//!
//! Settings belong to the place that a name stands for, which carries the name
//! ([`RemotePlace::profile`]), so that no other place of a command gets its credentials. Flags
//! override them. Nothing in the file is ignored: what can't be honoured is an error.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use xdfs_proto::{Code, Fault};

use super::file::ConfigText;
use super::folder::UserFolder;
use super::login::Login;
use super::remote::{self, RemoteText};
use crate::drivers::Drivers;
use crate::registry;
use crate::remote::RemotePlace;
use crate::retry::RetryPolicy;
use crate::security::Level;
use crate::session::ClientOptions;

/// The operation in faults.
const READ: &str = "read the configuration";
/// The hint of faults.
pub(super) const HINT: &str = "`xdfs remotes --help` lists the settings";
/// Names that would make a word mean something else, beside those of the registry.
pub(super) const SCHEMES: [&str; 8] = [
    "file", "http", "https", "mem", "memory", "sftp", "unix", "xdfs",
];
/// Most names in a hint.
const NAMES_SHOWN_MAX: usize = 8;

/// The settings of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    pub(super) defaults: SessionSettings,
    /// The directory of libraries of drivers.
    drivers: Option<PathBuf>,
    #[serde(rename = "remote")]
    remotes: BTreeMap<Name, Remote>,
}

/// The name of a server: letters, digits, `-`, `_` and `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct Name(String);

/// A named server, and the settings of sessions with it.
#[derive(Debug, Deserialize)]
#[serde(try_from = "RemoteText")]
struct Remote {
    place: RemotePlace,
    login: Login,
    session: SessionSettings,
}

/// Options of sessions and of copies in them. What isn't set is `None`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionSettings {
    #[serde(deserialize_with = "remote::channels")]
    channels: Option<u32>,
    #[serde(deserialize_with = "remote::block_size")]
    block_size: Option<u32>,
    #[serde(deserialize_with = "remote::window")]
    window: Option<u32>,
    retries: Option<u32>,
    #[serde(deserialize_with = "remote::rate")]
    limit_rate: Option<u64>,
    share: Option<bool>,
}

impl ClientConfig {
    /// The file; `None` if the user has no folder for it.
    #[must_use]
    pub fn path() -> Option<PathBuf> {
        Some(UserFolder::find().ok()?.client_config())
    }

    /// Reads the file. Without one nothing is set.
    ///
    /// # Errors
    /// It can't be read, other users could have written it, or it has a mistake.
    pub fn read() -> Result<Self, Fault> {
        let Some(path) = Self::path() else {
            return Ok(Self::default());
        };
        let text = match ConfigText::read(&path, HINT) {
            Ok(text) => text,
            Err(fault) if fault.code == Code::NotFound => return Ok(Self::default()),
            Err(fault) => return Err(fault),
        };
        let mut config: Self = text.parse().map_err(|mut faults| faults.remove(0))?;
        let folder = path.parent().unwrap_or(&path);
        for remote in config.remotes.values_mut() {
            for file in remote.login.files_mut() {
                *file = located(file, folder)?;
            }
        }
        config.drivers = config
            .drivers
            .map(|drivers| located(&drivers, folder))
            .transpose()?;
        Ok(config)
    }

    /// Adds the drivers of its libraries.
    ///
    /// # Errors
    /// One can't be loaded.
    pub fn load_drivers(&self, drivers: &mut Drivers) -> Result<(), Fault> {
        match &self.drivers {
            Some(folder) => drivers.load_all(folder),
            None => Ok(()),
        }
    }

    /// The names of all servers, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.remotes.keys().map(|Name(name)| name.as_str())
    }

    /// All servers, sorted by name.
    pub fn remotes(&self) -> impl Iterator<Item = (&str, &RemotePlace)> {
        let remotes = self.remotes.iter();
        remotes.map(|(Name(name), remote)| (name.as_str(), &remote.place))
    }

    /// Whether a word is meant as a place on a server: by a URL or by a name.
    #[must_use]
    pub fn is_remote(&self, word: &OsStr) -> bool {
        RemotePlace::is_remote(&word.to_string_lossy()) || self.find(word).is_some()
    }

    /// The place that `NAME:PATH` stands for; `None` if no server has that name. The path is
    /// relative to that of the server's URL, or begins with a slash and takes its place.
    #[must_use]
    pub fn place(&self, word: &OsStr) -> Option<RemotePlace> {
        let (name, remote, path) = self.find(word)?;
        let path = match path {
            [b'/', ..] => path.to_vec(),
            _ => {
                let mut joined = remote.place.url_path();
                if !joined.ends_with(b"/") {
                    joined.push(b'/');
                }
                joined.extend_from_slice(path);
                joined
            }
        };
        Some(RemotePlace {
            profile: Some(name.to_owned()),
            ..remote.place.at(path)
        })
    }

    fn find<'a>(&'a self, word: &'a OsStr) -> Option<(&'a str, &'a Remote, &'a [u8])> {
        let (name, path) = name_and_path(word)?;
        Some((name, self.remotes.get(name)?, path))
    }

    /// A fault about words, with what is meant perhaps if one of them looks like `HOST:PATH` or
    /// `NAME:PATH`.
    #[must_use]
    pub fn hinted<'w>(&self, fault: Fault, words: impl IntoIterator<Item = &'w OsStr>) -> Fault {
        let hint = words.into_iter().find_map(|word| self.hint_about(word));
        match (hint, fault.hint.is_empty()) {
            (Some(hint), true) => fault.hint(hint),
            (Some(hint), false) => {
                let hint = format!("{}; {hint}", fault.hint);
                fault.hint(hint)
            }
            (None, _) => fault,
        }
    }

    fn hint_about(&self, word: &OsStr) -> Option<String> {
        let (name, path) = name_and_path(word)?;
        let host = name.rsplit_once('@').map_or(name, |(_, host)| host);
        check_name(host).ok()?;
        if self.remotes.contains_key(name) || Path::new(word).exists() {
            return None;
        }
        // Where the path begins with a slash, the fault has this hint already.
        let path = String::from_utf8_lossy(path);
        let url = (!path.starts_with('/')).then(|| {
            format!("for the machine '{host}' write xdfs://{name}/{path} or ssh://{name}/~/{path}")
        });
        let hints: Vec<String> = url.into_iter().chain(self.hint_about_name(name)).collect();
        (!hints.is_empty()).then(|| hints.join("; "))
    }

    /// The names that there are, since `name` isn't one.
    fn hint_about_name(&self, name: &str) -> Option<String> {
        if self.remotes.is_empty() {
            return None;
        }
        let mut names: Vec<&str> = self.names().take(NAMES_SHOWN_MAX).collect();
        if self.remotes.len() > names.len() {
            names.push("...");
        }
        let names = names.join(", ");
        Some(format!("no remote is named '{name}'; there are: {names}"))
    }

    /// The settings for sessions with the server of `place`: its own, and the defaults.
    #[must_use]
    pub fn session(&self, place: &RemotePlace) -> SessionSettings {
        let own = self.remote(place).map(|remote| remote.session);
        own.unwrap_or_default().or(self.defaults)
    }

    /// The login to the server of `place`, completed by the settings of that.
    ///
    /// # Errors
    /// The login is to be without protection, and the settings have some, or the other way round.
    pub fn login(&self, place: &RemotePlace, login: &Login) -> Result<Login, Fault> {
        let login = login.clone().for_place(place)?;
        let Some(Remote { login: own, .. }) = self.remote(place) else {
            return Ok(login);
        };
        if own.insecure && login.protects() {
            let name = place.profile.as_deref().unwrap_or_default();
            let cause = format!("the settings of '{name}' say that its sessions are insecure");
            return Err(
                Fault::new(Code::InvalidArgument, "open the session", cause).hint(
                    "leave out the flags for a protected session, or name the server by its URL",
                ),
            );
        }
        if login.insecure && own.protects() {
            let name = place.profile.as_deref().unwrap_or_default();
            let cause = format!("the settings of '{name}' protect its sessions");
            return Err(Fault::new(Code::InvalidArgument, "open the session", cause)
                .hint("with --insecure, name the server by its URL"));
        }
        let mut all = login.clone();
        all.insecure |= own.insecure;
        // Credentials are replaced as a whole, and so is what the server has to prove.
        if !login.names_credentials() {
            all.key = own.key.clone();
            all.agent = own.agent;
            all.password_file = own.password_file.clone();
            all.token_file = own.token_file.clone();
            all.ticket_file = own.ticket_file.clone();
            all.anonymous = own.anonymous;
            all.cert = own.cert.clone();
            all.cert_key = own.cert_key.clone();
        }
        if login.ca.is_none() && login.pin.is_none() {
            all.ca = own.ca.clone();
            all.pin = own.pin;
        }
        all.known_only |= own.known_only;
        all.protect = login.protect.or(own.protect);
        all.ssh = login.ssh.or_else(|| own.ssh.clone());
        all.remote_program = login.remote_program.or_else(|| own.remote_program.clone());
        Ok(all)
    }

    fn remote(&self, place: &RemotePlace) -> Option<&Remote> {
        self.remotes.get(place.profile.as_deref()?)
    }
}

impl SessionSettings {
    /// These settings, and `others` where they have none.
    fn or(self, others: Self) -> Self {
        Self {
            channels: self.channels.or(others.channels),
            block_size: self.block_size.or(others.block_size),
            window: self.window.or(others.window),
            retries: self.retries.or(others.retries),
            limit_rate: self.limit_rate.or(others.limit_rate),
            share: self.share.or(others.share),
        }
    }

    /// The options of a command, completed by these settings.
    #[must_use]
    pub fn options(self, options: ClientOptions) -> ClientOptions {
        ClientOptions {
            channels: options.channels.or(self.channels),
            block_size: options.block_size.or(self.block_size),
            window: options.window.or(self.window),
            ..options
        }
    }

    /// The retries of a command, completed by these settings.
    #[must_use]
    pub fn retry(self, retries: Option<u32>) -> RetryPolicy {
        let default = RetryPolicy::default();
        let retries = retries.or(self.retries);
        RetryPolicy {
            retries_max: retries.unwrap_or(default.retries_max),
            ..default
        }
    }

    /// Whether commands share sessions by an agent, and start one for that; `None` to use one that
    /// runs.
    #[must_use]
    pub fn share(self) -> Option<bool> {
        self.share
    }

    /// The limit of a command in bytes per second, completed by these settings.
    #[must_use]
    pub fn rate(self, flag: Option<u64>) -> Option<u64> {
        flag.or(self.limit_rate)
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        check_name(&name).map(|()| Self(name))
    }
}

impl TryFrom<RemoteText> for Remote {
    type Error = String;

    /// Refuses what the command line refuses too.
    fn try_from(text: RemoteText) -> Result<Self, String> {
        let place = text.url;
        let login = Login {
            key: text.key,
            agent: text.agent,
            password_file: text.password_file,
            token_file: text.token_file,
            ticket_file: text.ticket_file,
            anonymous: text.anonymous,
            cert: text.cert,
            cert_key: text.cert_key,
            ca: text.ca,
            pin: text.pin,
            known_only: text.known_only,
            protect: text.protect.map(Level::from),
            insecure: text.insecure,
            ssh: text.ssh,
            remote_program: text.remote_program,
            ..Login::default()
        };
        if login.cert.is_some() != login.cert_key.is_some() {
            return Err("`cert` and `cert_key` need each other".into());
        }
        if login.agent && login.key.is_some() {
            return Err("`agent` and `key` exclude each other".into());
        }
        let others = Login {
            anonymous: false,
            ..login.clone()
        };
        if login.anonymous && others.names_credentials() {
            return Err("`anonymous` excludes other credentials".into());
        }
        if login.insecure && login.protects() {
            return Err("`insecure` excludes credentials, and all that protects a session".into());
        }
        if login.pin.is_some() && login.ca.is_some() {
            return Err("`pin` and `ca` exclude each other: nothing counts beside a pin".into());
        }
        if let Some(text) = &login.remote_program {
            read_program(text).map_err(|cause| format!("`remote_program`: {cause}"))?;
        }
        if place.address.is_of_ssh() {
            login.check_for_ssh(&place).map_err(|fault| fault.cause)?;
        } else if login.names_ssh() {
            return Err("`ssh` and `remote_program` are for ssh:// and sshftp:// URLs".into());
        }
        Ok(Self {
            place,
            login,
            session: SessionSettings {
                channels: text.channels,
                block_size: text.block_size,
                window: text.window,
                retries: text.retries,
                limit_rate: text.limit_rate,
                share: text.share,
            },
        })
    }
}

/// The parts of `NAME:PATH`.
fn name_and_path(word: &OsStr) -> Option<(&str, &[u8])> {
    let word = word.as_encoded_bytes();
    let at = word.iter().position(|&b| b == b':')?;
    Some((std::str::from_utf8(&word[..at]).ok()?, &word[at + 1..]))
}

/// Whether a server may have this name: that of no drive, and no scheme of a URL.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if name.len() < 2 || !begins_well || !name.chars().all(fits) {
        return Err(format!(
            "'{}' can't be the name of a remote: a name needs at least 2 characters: letters, \
             digits, '-', '_' and '.', of which the first is a letter or a digit",
            name.escape_default()
        ));
    }
    let lower = name.to_ascii_lowercase();
    if SCHEMES.contains(&lower.as_str()) || registry::is_registered(&lower) {
        return Err(format!("'{name}' is the scheme of a URL"));
    }
    Ok(())
}

/// Reads the name of a program. Nothing but blanks would be another command for the shell there.
///
/// # Errors
/// A message for the user.
pub fn read_program(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("it names no program".into()),
        false => Ok(text.to_owned()),
    }
}

/// A file that is named in `folder`; `-` stands for a prompt.
pub(super) fn located(file: &Path, folder: &Path) -> Result<PathBuf, Fault> {
    if file == "-" {
        return Ok(file.to_owned());
    }
    let Ok(below) = file.strip_prefix("~") else {
        return Ok(folder.join(file));
    };
    let home = env::var_os("HOME").or_else(|| env::var_os("USERPROFILE"));
    let home = home.filter(|home| !home.is_empty()).ok_or_else(|| {
        let cause = "HOME is not set, and a file is in it";
        Fault::new(Code::NotFound, READ, cause).path(file.as_os_str().as_encoded_bytes())
    })?;
    Ok(Path::new(&home).join(below))
}
