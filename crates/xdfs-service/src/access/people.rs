//! The people of a service: its owner, its users and administrators.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use xdfs::security::{
    Access as UserAccess, Evidence, HttpsTls, Peer, PublicKey, ServerSecurity, claimed_key,
};
use xdfs::{Code, Fault, Retry};

use super::secret::{hex, is_same};
use crate::channel::Chain;

/// The front door in the audit log.
const DOOR: &str = "service";
/// Most logins that are checked or wait to be: passwords one after the other, each takes a moment.
const CHECKS_MAX: usize = 32;
/// Pause until the next attempt, if more come in.
const BUSY_MS: u32 = 1000;

/// The users who may log in to a service, beside its owner: those of a server.
#[derive(Debug)]
pub struct ServiceUsers {
    owner: String,
    administrators: BTreeSet<String>,
    access: UserAccess,
}

impl ServiceUsers {
    /// The same as [`Self::new`] makes, and by certificates too, with the TLS of these settings,
    /// over which they come.
    ///
    /// # Errors
    /// Those of [`Self::new`]; or the certificate, the authorities of clients or the grid map can't
    /// be used.
    pub fn with_certificates(
        security: ServerSecurity,
        administrators: impl IntoIterator<Item = String>,
    ) -> Result<(Self, HttpsTls), Fault> {
        let owner = security.owner.clone();
        let (access, tls) = security.access_over_https()?;
        let users = Self {
            owner,
            administrators: administrators.into_iter().collect(),
            access,
        };
        Ok((users, tls))
    }

    /// The users with passwords or keys of a server with these settings, which share its limits and
    /// its audit log. Its owner is that of the service, and an administrator.
    ///
    /// # Errors
    /// The folder or a file in it can't be made or read, or other users could have written it.
    pub fn new(
        security: ServerSecurity,
        administrators: impl IntoIterator<Item = String>,
    ) -> Result<Self, Fault> {
        Ok(Self {
            owner: security.owner.clone(),
            administrators: administrators.into_iter().collect(),
            access: security.access_without_files()?,
        })
    }
}

/// The people of a service.
#[derive(Debug)]
pub(crate) struct People {
    /// The user of the process.
    pub(crate) owner: String,
    administrators: BTreeSet<String>,
    users: Option<Users>,
}

#[derive(Debug)]
struct Users {
    access: Arc<UserAccess>,
    checks: Arc<Semaphore>,
}

impl People {
    /// The owner alone without users.
    pub(crate) fn new(users: Option<ServiceUsers>) -> Self {
        match users {
            None => Self {
                owner: xdfs::settings::user_name(),
                administrators: BTreeSet::new(),
                users: None,
            },
            Some(ServiceUsers {
                owner,
                administrators,
                access,
            }) => Self {
                owner,
                administrators,
                users: Some(Users {
                    access: Arc::new(access),
                    checks: Arc::new(Semaphore::new(CHECKS_MAX)),
                }),
            },
        }
    }

    /// Whether users log in by passwords.
    pub(crate) fn has_users(&self) -> bool {
        self.users.is_some()
    }

    /// Whether a user may see and change the jobs of all, and use the files and the credentials of
    /// the user of the process.
    pub(crate) fn is_administrator(&self, user: &str) -> bool {
        user == self.owner || self.administrators.contains(user)
    }

    /// Whether there is such a user still.
    ///
    /// # Errors
    /// The users file can't be read.
    pub(super) fn knows(&self, user: &str) -> Result<bool, Fault> {
        match &self.users {
            Some(users) => users.access.knows(user),
            None => Ok(user == self.owner),
        }
    }

    /// Whether a session that a password began is good still: the password is the same.
    ///
    /// # Errors
    /// The users file can't be read.
    pub(super) fn has_password(&self, user: &str, version: &str) -> Result<bool, Fault> {
        let Some(users) = &self.users else {
            return Ok(false);
        };
        let current = users.access.password_version(user)?;
        Ok(current.is_some_and(|current| is_same(&hex(&current), version)))
    }

    /// Whether a session that a key began is good still: the user may log in by the key.
    pub(super) fn has_key(&self, user: &str, key: &[u8]) -> bool {
        let key = PublicKey::from_bytes(key);
        match (&self.users, key) {
            (Some(users), Ok(key)) => users.access.lists_key(user, &key),
            _ => false,
        }
    }

    /// Checks the proof of a key from this address. Returns the user and the key; `None` if it
    /// proves nothing, or there are no users.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(super) async fn check_key(
        &self,
        peer: SocketAddr,
        user: String,
        proof: Vec<u8>,
        binding: [u8; 32],
    ) -> Result<Option<(String, Vec<u8>)>, Fault> {
        let check = move |access: &UserAccess, peer: &Peer| {
            let evidence = Evidence::Key {
                proof: &proof,
                binding: &binding,
            };
            let login = access.authenticate(peer, &user, evidence)?;
            access.record_login(peer, &login);
            let key = claimed_key(&proof).map(|key| key.as_bytes().to_vec());
            Ok(key.map(|key| (login.user.clone(), key)))
        };
        self.checked(peer, check).await
    }

    /// Logs in the user of certificates that TLS has verified, from this address: the first one
    /// that the grid map has for them. `None` if it has none, or there are no users.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(super) async fn check_certificate(
        &self,
        peer: SocketAddr,
        chain: Chain,
    ) -> Result<Option<String>, Fault> {
        let check = move |access: &UserAccess, peer: &Peer| {
            let login = access.authenticate(peer, "", Evidence::Certificate(&chain))?;
            access.record_login(peer, &login);
            Ok(Some(login.user.clone()))
        };
        self.checked(peer, check).await
    }

    /// Whether certificates that have logged in a user would do so now: they are valid still, and
    /// the grid map has them.
    pub(super) fn has_certificate(&self, user: &str, chain: &[Vec<u8>]) -> bool {
        let users = self.users.as_ref();
        users.is_some_and(|users| users.access.maps_now(user, chain))
    }

    /// Checks a password from this address. Returns its version; `None` if it is wrong, or there
    /// are no users.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait, after wrong ones; [`Code::Busy`]; or the users
    /// file can't be read.
    pub(super) async fn check(
        &self,
        peer: SocketAddr,
        user: String,
        password: String,
    ) -> Result<Option<String>, Fault> {
        let check = move |access: &UserAccess, peer: &Peer| {
            // Before the check: a session by a password that is changed meanwhile is none.
            let version = access.password_version(&user)?;
            let login = access.authenticate(peer, &user, Evidence::Password(&password))?;
            access.record_login(peer, &login);
            Ok(version.map(|version| hex(&version)))
        };
        self.checked(peer, check).await
    }

    /// Runs a check in a thread that may block, a bounded number at a time.
    async fn checked<T: Send + 'static>(
        &self,
        peer: SocketAddr,
        check: impl FnOnce(&UserAccess, &Peer) -> Result<Option<T>, Fault> + Send + 'static,
    ) -> Result<Option<T>, Fault> {
        let Some(users) = &self.users else {
            return Ok(None);
        };
        let Ok(turn) = Arc::clone(&users.checks).try_acquire_owned() else {
            let fault = Fault::new(Code::Busy, "log in", "too many logins are being checked");
            return Err(fault.retry(Retry::AfterMs(BUSY_MS)));
        };
        let access = Arc::clone(&users.access);
        let check = move || {
            let checked = check(&access, &Peer::new(DOOR, peer.to_string()));
            drop(turn);
            match checked {
                // No password, or one that is too long, is a wrong one.
                Err(fault)
                    if matches!(
                        fault.code,
                        Code::AuthenticationFailed | Code::InvalidArgument
                    ) =>
                {
                    Ok(None)
                }
                checked => checked,
            }
        };
        spawn_blocking(check)
            .await
            .map_err(|error| Fault::new(Code::Internal, "log in", error.to_string()))?
    }
}
