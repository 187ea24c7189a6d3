//! The lines between commands and the agent: one question and one answer on a connection, in JSON.
//!
//! The fields of [`Question`] other than `session`, and the questions `status` and `stop`, are the
//! same in every version, so that any program can end an agent of another one.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use xdfs::security::Fingerprint;
use xdfs::settings::{Login, UserFolder, has_ambient_secret, is_anonymous};
use xdfs::{Address, Code, Fault, Machine, RemotePlace, Retry, Side};

/// The version of these messages.
const VERSION: u32 = 1;
/// This program: sessions are shared between equal ones only.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");
/// Longest line in bytes: some paths and a URL.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What a command wants.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Question {
    agent: u32,
    program: String,
    pub(super) ask: Ask,
    /// Of another version it may have another form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<serde_json::Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ask {
    /// A session. The connection stays open while it is used.
    Session,
    /// What the agent does.
    Status,
    /// The end of the agent.
    Stop,
}

/// The answer to a question.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Reply {
    agent: u32,
    pub(super) program: String,
    #[serde(flatten)]
    pub(super) answer: Answer,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub(super) enum Answer {
    /// The session is at this socket.
    Session {
        socket: PathBuf,
    },
    /// The command has to open a session of its own.
    Own {
        reason: String,
    },
    /// The session can't be opened.
    Failed(FaultText),
    Status(Status),
    /// The agent ends, which closes the connection.
    Stopping,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Status {
    pub(super) process: u32,
    pub(super) idle_s: u64,
    pub(super) sessions: Vec<SessionStatus>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SessionStatus {
    pub(super) url: String,
    /// Number of commands.
    pub(super) users: usize,
}

/// A fault of a session, which has no path.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct FaultText {
    code: u16,
    machine: Option<String>,
    is_remote: bool,
    operation: String,
    cause: String,
    hint: String,
    /// In milliseconds; `None` for never.
    retry_ms: Option<u32>,
    fails_login: bool,
}

/// All that makes sessions differ.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionWish {
    /// The directory of the user's keys and known servers.
    folder: PathBuf,
    /// The server and the user.
    pub(super) url: String,
    pin: Option<String>,
    key: Option<PathBuf>,
    /// The socket of the ssh-agent whose first key is used.
    ssh_agent: Option<PathBuf>,
    cert: Option<PathBuf>,
    cert_key: Option<PathBuf>,
    ca: Option<PathBuf>,
    anonymous: bool,
    insecure: bool,
}

impl Question {
    pub(super) fn new(ask: Ask) -> Self {
        Self {
            agent: VERSION,
            program: PROGRAM.into(),
            ask,
            session: None,
        }
    }

    /// Asks for a session; `None` if a path in the wish is not UTF-8.
    pub(super) fn session(wish: &SessionWish) -> Option<Self> {
        Some(Self {
            session: Some(serde_json::to_value(wish).ok()?),
            ..Self::new(Ask::Session)
        })
    }

    /// The wish for a session.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn wish(self) -> Result<SessionWish, String> {
        if (self.agent, self.program.as_str()) != (VERSION, PROGRAM) {
            return Err(format!("the agent is xdfs {PROGRAM}"));
        }
        let wish = self.session.unwrap_or_default();
        serde_json::from_value(wish).map_err(|e| format!("the question can't be read: {e}"))
    }
}

impl Reply {
    pub(super) fn new(answer: Answer) -> Self {
        Self {
            agent: VERSION,
            program: PROGRAM.into(),
            answer,
        }
    }

    /// Whether the agent is the same program as this one.
    pub(super) fn is_of_this_version(&self) -> bool {
        (self.agent, self.program.as_str()) == (VERSION, PROGRAM)
    }
}

impl SessionWish {
    /// A session with the server of `place`.
    ///
    /// # Errors
    /// Why such a session can't be shared.
    pub(super) fn new(place: &RemotePlace, login: &Login) -> Result<Self, &'static str> {
        const SECRET: &str = "a secret is used to log in";
        match &place.address {
            Address::Host { .. } => {}
            Address::Unix(path) if path.is_absolute() => {}
            _ => return Err("the server is only known to this command"),
        }
        let has_secret = [&login.password_file, &login.token_file, &login.ticket_file]
            .iter()
            .any(|file| file.is_some());
        if has_secret || place.invitation.ticket.is_some() {
            return Err(SECRET);
        }
        let folder = UserFolder::find().map_err(|_| "this user has no home")?;
        let is_default = !login.names_credentials() && !login.insecure;
        if is_default && !is_anonymous(place) {
            if has_ambient_secret() {
                return Err(SECRET);
            }
            if !folder.key().exists() {
                return Err("this user has no key yet");
            }
        }
        let ssh_agent = match login.agent {
            true => Some(std::env::var_os("SSH_AUTH_SOCK").ok_or("SSH_AUTH_SOCK is not set")?),
            false => None,
        };
        let absolute = |path: &Option<PathBuf>| match path {
            Some(path) => std::path::absolute(path).map(Some),
            None => Ok(None),
        };
        let wish = || -> io::Result<Self> {
            Ok(Self {
                folder: std::path::absolute(folder.path())?,
                url: place.at(b"/".to_vec()).to_string(),
                pin: login
                    .pin
                    .or(place.invitation.pin)
                    .map(|pin| pin.to_string()),
                key: absolute(&login.key)?,
                ssh_agent: ssh_agent.map(PathBuf::from),
                cert: absolute(&login.cert)?,
                cert_key: absolute(&login.cert_key)?,
                ca: absolute(&login.ca)?,
                anonymous: login.anonymous,
                insecure: login.insecure,
            })
        };
        wish().map_err(|_| "there is no current directory")
    }

    /// The place and the login of the session, as the agent opens it.
    ///
    /// # Errors
    /// Why the agent can't.
    pub(super) fn login(&self) -> Result<(RemotePlace, Login), String> {
        let own = UserFolder::find().and_then(|folder| {
            std::path::absolute(folder.path())
                .map_err(|e| Fault::from_io("find the folder", "", &e))
        });
        if own.is_err() || own.is_ok_and(|own| own != self.folder) {
            return Err("the agent uses another folder of keys".into());
        }
        if let Some(socket) = &self.ssh_agent
            && std::env::var_os("SSH_AUTH_SOCK").as_deref() != Some(socket.as_os_str())
        {
            return Err("the agent uses another ssh-agent".into());
        }
        let place: RemotePlace = self.url.parse().map_err(|fault: Fault| fault.cause)?;
        let pin = self.pin.as_ref().map(|pin| pin.parse::<Fingerprint>());
        let login = Login {
            pin: pin.transpose().map_err(|fault| fault.cause)?,
            key: self.key.clone(),
            agent: self.ssh_agent.is_some(),
            cert: self.cert.clone(),
            cert_key: self.cert_key.clone(),
            ca: self.ca.clone(),
            anonymous: self.anonymous,
            insecure: self.insecure,
            ..Login::default()
        };
        Ok((place, login))
    }
}

impl From<Fault> for FaultText {
    fn from(fault: Fault) -> Self {
        Self {
            code: fault.code.number(),
            machine: fault
                .machine
                .as_ref()
                .map(|machine| machine.name().to_owned()),
            is_remote: fault.side == Side::Remote,
            operation: fault.operation,
            cause: fault.cause,
            hint: fault.hint,
            retry_ms: match fault.retry {
                Retry::Never => None,
                Retry::Now => Some(0),
                Retry::AfterMs(pause) => Some(pause),
            },
            fails_login: fault.fails_login,
        }
    }
}

impl From<FaultText> for Fault {
    fn from(text: FaultText) -> Self {
        let retry = match text.retry_ms {
            None => Retry::Never,
            Some(0) => Retry::Now,
            Some(pause) => Retry::AfterMs(pause),
        };
        let fault = Self::new(Code::from_number(text.code), text.operation, text.cause)
            .hint(text.hint)
            .retry(retry);
        Self {
            machine: text.machine.map(Machine::server),
            side: match text.is_remote {
                true => Side::Remote,
                false => Side::Local,
            },
            fails_login: text.fails_login,
            ..fault
        }
    }
}

/// Writes a message as one line.
///
/// # Errors
/// The other end doesn't read, or has gone.
pub(super) fn write(stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
    line.push(b'\n');
    let mut stream = stream;
    stream.write_all(&line)
}

/// Reads a message, which is one line. Nothing follows it.
///
/// # Errors
/// The line isn't complete in time, is too long, or is no such message.
pub(super) fn read<T: for<'de> Deserialize<'de>>(
    stream: &UnixStream,
    time: Duration,
) -> io::Result<T> {
    let end = Instant::now() + time;
    let mut stream = stream;
    let mut line = Vec::new();
    let mut piece = [0; 4096];
    while line.last() != Some(&b'\n') {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || line.len() > LINE_BYTES_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => line.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    stream.set_read_timeout(None)?;
    serde_json::from_slice(&line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}
