//! Passwords and tickets typed by the user.
//!
//! How they are asked for is up to the program.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use xdfs_proto::Fault;

use crate::remote::RemotePlace;

/// How often a user may type a password for a login.
const TRIES_MAX: u32 = 3;
/// How often, and how long, a login is put off because the server lets it wait.
const PAUSES_MAX: u32 = 3;
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A secret that a user may be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// The prompt, with a blank at its end. It may have text of a URL.
    pub prompt: String,
    /// The operation in faults.
    pub operation: &'static str,
}

/// Asks the user, without showing what is typed.
pub type Prompt<'a> = dyn Fn(&Secret) -> Result<String, Fault> + 'a;

/// The secrets typed for each server, so that reopening a session doesn't ask again. Clones share
/// them.
#[derive(Clone, Default)]
pub struct TypedSecrets(Arc<Mutex<Typed>>);

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
pub(super) enum LoginAnswer {
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
    pub(super) fn password(&self, place: &RemotePlace) -> Option<String> {
        self.lock().logins.get(&login(place))?.password.clone()
    }

    /// Has this secret and the password that were typed for one server count for another one with
    /// the same users, whose password isn't asked for.
    pub(super) fn share(&self, secret: &Secret, from: &RemotePlace, to: &RemotePlace) {
        let mut typed = self.lock();
        let [from, to] = [login(from), login(to)];
        let [key, other] = [&from, &to].map(|login| format!("{login} {}", secret.prompt));
        if let Some(secret) = typed.secrets.get(&key).cloned() {
            typed.secrets.insert(other, secret);
        }
        let password = typed.logins.get(&from);
        let password = password.and_then(|login| login.password.clone());
        typed.logins.entry(to).or_insert_with(|| Login {
            password,
            is_settled: true,
            ..Login::default()
        });
    }

    /// Asks for the password of a login if the server refuses it, or waits if the server wants
    /// that. The server's `answer` is found out only as long as it matters. Returns whether to log
    /// in again.
    ///
    /// # Errors
    /// Nothing can be read, or nothing was typed.
    pub(super) fn retype(
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
    pub(super) fn ask(
        &self,
        place: &RemotePlace,
        secret: &Secret,
        ask: &Prompt<'_>,
    ) -> Result<String, Fault> {
        let mut typed = self.lock();
        let server = format!("{} {}", login(place), secret.prompt);
        if let Some(secret) = typed.secrets.get(&server) {
            return Ok(secret.clone());
        }
        let typed_now = ask(secret)?;
        typed.secrets.insert(server, typed_now.clone());
        Ok(typed_now)
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
