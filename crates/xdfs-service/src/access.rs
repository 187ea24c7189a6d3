//! Who may use the service: holders of the token in the state folder, and browsers that came with a
//! link of one use. Everybody else is refused.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, Method};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use xdfs::security::trusted::{self, Secrecy};
use xdfs::{Code, Fault};

use crate::store::Store;
use crate::time::Time;

/// The file of the token.
pub(crate) const TOKEN_FILE: &str = "token";
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;
const TOKEN_BYTES_MAX: u64 = 1024;
/// Time in which a link can be used.
const LINK_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// Time until a browser needs another link.
const SESSION_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Most links that wait to be used.
const LINKS_MAX: usize = 16;
const BEARER: &str = "Bearer ";

/// The user of a request.
#[derive(Clone, Debug)]
pub(crate) struct User(pub(crate) String);

/// Who may use the service.
#[derive(Debug)]
pub(crate) struct Access {
    /// The user of the process, who owns all jobs.
    owner: String,
    token: Secret,
    /// The digests of links that wait to be used.
    links: Mutex<HashMap<String, Instant>>,
    cookie: String,
}

/// Text that can't be guessed, and is shown by no debug output.
pub(crate) struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    fn new() -> Result<Self, Fault> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|error| Fault::new(Code::Internal, "make a secret", error.to_string()))?;
        Ok(Self(hex(&bytes)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn is(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// Reads the token of a state folder.
///
/// # Errors
/// There is none, it isn't one, or other users could have written or may read it.
pub(crate) fn read_token(folder: &Path) -> Result<Secret, Fault> {
    const OPERATION: &str = "read the token of the service";
    let path = folder.join(TOKEN_FILE);
    let name = path.as_os_str().as_encoded_bytes();
    let text = trusted::read(OPERATION, &path, TOKEN_BYTES_MAX, Secrecy::Secret)?;
    let text = str::from_utf8(&text).unwrap_or_default().trim_end();
    let is_token = text.len() == 2 * SECRET_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit());
    match is_token {
        true => Ok(Secret(text.to_owned())),
        false => Err(Fault::new(Code::InvalidArgument, OPERATION, "it is none")
            .path(name)
            .hint("remove the file and start the service again")),
    }
}

/// Makes the token of a state folder, for this user only. It is there with all of its text, or not.
fn make_token(folder: &Path) -> Result<Secret, Fault> {
    let path = folder.join(TOKEN_FILE);
    let unfinished = folder.join("token.new");
    let secret = Secret::new()?;
    let write = || {
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&unfinished)?;
        file.write_all(format!("{}\n", secret.as_str()).as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)
    };
    write().map_err(|error| {
        let name = path.as_os_str().as_encoded_bytes();
        Fault::from_io("write the token of the service", name, &error)
    })?;
    Ok(secret)
}

impl Access {
    /// The access to a service with this state folder and port: browsers send the cookies of one
    /// port to others.
    ///
    /// # Errors
    /// The token can't be read or made.
    pub(crate) fn new(folder: &Path, port: u16) -> Result<Self, Fault> {
        let token = match read_token(folder) {
            Err(fault) if fault.code == Code::NotFound => make_token(folder),
            token => token,
        };
        Ok(Self {
            owner: xdfs::settings::user_name(),
            token: token?,
            links: Mutex::default(),
            cookie: format!("xdfs-service-{port}"),
        })
    }

    /// The secret of a link that logs in a browser once.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn link(&self) -> Result<Secret, Fault> {
        let secret = Secret::new()?;
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, made| made.elapsed() < LINK_LIFE);
        if links.len() >= LINKS_MAX {
            links.clear();
        }
        links.insert(digest(secret.as_str()), Instant::now());
        Ok(secret)
    }

    /// Uses a link up. Returns the value of the header that gives the browser its cookie; `None` if
    /// it is no link, or was used.
    ///
    /// # Errors
    /// The session can't be stored.
    pub(crate) async fn log_in(
        &self,
        store: &Store,
        secret: &str,
    ) -> Result<Option<String>, Fault> {
        let made = {
            let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            links.remove(&digest(secret))
        };
        if made.is_none_or(|made| made.elapsed() >= LINK_LIFE) {
            return Ok(None);
        }
        let cookie = Secret::new()?;
        let life = SESSION_LIFE.as_secs();
        let life_us = i64::try_from(SESSION_LIFE.as_micros()).unwrap_or(i64::MAX);
        let now = Time::now().microseconds();
        let ends_at = Time::from_microseconds(now.saturating_add(life_us));
        store
            .add_session(&digest(cookie.as_str()), &self.owner, ends_at)
            .await?;
        let (name, value) = (&self.cookie, cookie.as_str());
        let header = format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={life}");
        Ok(Some(header))
    }

    /// The user of a request; `None` if it has no right to be answered.
    ///
    /// # Errors
    /// The sessions can't be read.
    pub(crate) async fn user(
        &self,
        store: &Store,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Option<String>, Fault> {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(authorization) = header(AUTHORIZATION) {
            let token = authorization.strip_prefix(BEARER);
            let is_right = token.is_some_and(|token| self.token.is(token));
            return Ok(is_right.then(|| self.owner.clone()));
        }
        let cookies = header(COOKIE).unwrap_or_default().split(';');
        let mut cookies = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        let Some((_, cookie)) = cookies.find(|(name, _)| *name == self.cookie) else {
            return Ok(None);
        };
        // Pages of another port are of the same site, whatever the cookie says about sites.
        let is_own = match (header(ORIGIN), header(HOST)) {
            (Some(origin), Some(host)) => origin.strip_prefix("http://") == Some(host),
            _ => false,
        };
        if !method.is_safe() && !is_own {
            return Ok(None);
        }
        store.session(&digest(cookie)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let token = |access: &Access| access.token.as_str().to_owned();
        let first = Access::new(folder.path(), 1).map(|access| token(&access));
        let again = Access::new(folder.path(), 1).map(|access| token(&access));
        assert_eq!(first, again);
        assert_eq!(first.map(|token| token.len()), Ok(64));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(folder.path().join(TOKEN_FILE)).map(|m| m.permissions().mode());
            assert_eq!(mode.ok().map(|mode| mode & 0o777), Some(0o600));
        }
        let _ = fs::write(folder.path().join(TOKEN_FILE), "short");
        assert!(Access::new(folder.path(), 1).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_token_that_others_know_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        assert!(make_token(folder.path()).is_ok());
        assert!(read_token(folder.path()).is_ok());
        for mode in [0o640, 0o604, 0o620] {
            let path = folder.path().join(TOKEN_FILE);
            assert!(fs::set_permissions(path, fs::Permissions::from_mode(mode)).is_ok());
            let code = read_token(folder.path()).err().map(|fault| fault.code);
            assert_eq!(code, Some(Code::PermissionDenied), "{mode:o}");
        }
    }
}
