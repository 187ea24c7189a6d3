//! Passwords and tickets typed by the user.

use std::collections::HashMap;
use std::fmt;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};

use xdfs::{Code, Fault, RemotePlace};

use crate::interrupt::read_hidden_line;

/// The secrets typed for each server, so that reopening a session doesn't ask again.
#[derive(Clone, Default)]
pub(crate) struct TypedSecrets(Arc<Mutex<HashMap<String, String>>>);

impl TypedSecrets {
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
        let mut typed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let server = format!("{:?} {:?} {prompt}", place.user, place.address);
        if let Some(secret) = typed.get(&server) {
            return Ok(secret.clone());
        }
        let secret = ask(prompt, operation)?;
        typed.insert(server, secret.clone());
        Ok(secret)
    }
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
