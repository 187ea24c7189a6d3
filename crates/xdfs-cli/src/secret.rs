//! Passwords and tickets typed by the user.

use std::collections::HashMap;
use std::fmt;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use xdfs::{Code, Fault, RemotePlace};

use crate::interrupt::read_hidden_line;

/// How often a user may type a password for a login.
const TRIES_MAX: u32 = 3;
/// How often, and how long, a login is put off because the server lets it wait.
const PAUSES_MAX: u32 = 3;
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The secrets typed for each server, so that reopening a session doesn't ask again.
#[derive(Clone, Default)]
pub(crate) struct TypedSecrets(Arc<Mutex<Typed>>);

#[derive(Default)]
struct Typed {
    secrets: HashMap<String, String>,
    logins: HashMap<String, Login>,
}

/// A user at a server, for whom a password may be typed.
#[derive(Default)]
struct Login {
    password: Option<String>,
    tries: u32,
    pauses: u32,
    /// The user was let in, or gave up.
    is_settled: bool,
}

/// The server's answer to a login.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LoginAnswer {
    /// Another password may do.
    Refused,
    /// It has to wait before it is looked at.
    Later(Duration),
    /// Anything else.
    Final,
}

impl TypedSecrets {
    fn lock(&self) -> MutexGuard<'_, Typed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The password that was typed for a login.
    pub(crate) fn password(&self, place: &RemotePlace) -> Option<String> {
        self.lock().logins.get(&login(place))?.password.clone()
    }

    /// Asks for the password of a login if the server refuses it, or waits if the server wants
    /// that. The server's `answer` is found out only as long as it matters. Returns whether to log
    /// in again.
    ///
    /// # Errors
    /// Nothing can be read, or nothing was typed.
    pub(crate) fn retype(
        &self,
        place: &RemotePlace,
        answer: impl FnOnce() -> LoginAnswer,
        ask: impl FnOnce(bool) -> Result<String, Fault>,
    ) -> Result<bool, Fault> {
        // Held meanwhile: one question after the other.
        let mut typed = self.lock();
        let login = typed.logins.entry(login(place)).or_default();
        // Whatever comes of this, unless there is another login.
        if std::mem::replace(&mut login.is_settled, true) {
            return Ok(false);
        }
        match answer() {
            LoginAnswer::Refused if login.tries < TRIES_MAX => {
                login.password = Some(ask(login.tries > 0)?);
                login.tries += 1;
            }
            LoginAnswer::Later(pause) if login.pauses < PAUSES_MAX && pause <= PAUSE_MAX => {
                login.pauses += 1;
                thread::sleep(pause);
            }
            _ => return Ok(false),
        }
        login.is_settled = false;
        Ok(true)
    }

    /// The secret for the server of `place`, typed earlier or now.
    ///
    /// # Errors
    /// Nothing can be read, or nothing was typed.
    pub(crate) fn ask(
        &self,
        place: &RemotePlace,
        prompt: &str,
        operation: &str,
    ) -> Result<String, Fault> {
        let mut typed = self.lock();
        let server = format!("{} {prompt}", login(place));
        if let Some(secret) = typed.secrets.get(&server) {
            return Ok(secret.clone());
        }
        let secret = ask(prompt, operation)?;
        typed.secrets.insert(server, secret.clone());
        Ok(secret)
    }
}

/// A user at a server, as a key.
fn login(place: &RemotePlace) -> String {
    format!("{:?} {:?}", place.user, place.address)
}

impl fmt::Debug for TypedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedSecrets").finish_non_exhaustive()
    }
}

/// Asks on the terminal without echo, or reads a line of standard input.
///
/// # Errors
/// Nothing can be read, or nothing was typed.
pub(crate) fn ask(prompt: &str, operation: &str) -> Result<String, Fault> {
    let fault = |e: std::io::Error| Fault::from_io(operation, "", &e);
    let line = if std::io::stdin().is_terminal() {
        read_hidden_line(prompt)
    } else {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    };
    let password = line.map_err(fault)?;
    let password = password.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() {
        return Err(Fault::new(Code::InvalidArgument, operation, "it is empty"));
    }
    Ok(password)
}
