//! The people of a service: its owner, its users and administrators.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use xdfs::security::{Access as UserAccess, Evidence, Peer, ServerSecurity};
use xdfs::{Code, Fault, Retry};

use super::secret::{hex, is_same};

/// The front door in the audit log.
const DOOR: &str = "service";
/// Most passwords that are checked or wait to be: one after the other, each takes a moment.
const PASSWORDS_MAX: usize = 32;
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
    /// The users with passwords of a server with these settings, which share its limits and its
    /// audit log. Its owner is that of the service, and an administrator.
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
    passwords: Arc<Semaphore>,
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
                    passwords: Arc::new(Semaphore::new(PASSWORDS_MAX)),
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
        let Some(users) = &self.users else {
            return Ok(None);
        };
        let Ok(turn) = Arc::clone(&users.passwords).try_acquire_owned() else {
            let fault = Fault::new(Code::Busy, "log in", "too many passwords are being checked");
            return Err(fault.retry(Retry::AfterMs(BUSY_MS)));
        };
        let access = Arc::clone(&users.access);
        let check = move || {
            let peer = Peer::new(DOOR, peer.to_string());
            // Before the check: a session by a password that is changed meanwhile is none.
            let version = access.password_version(&user)?;
            let checked = access.authenticate(&peer, &user, Evidence::Password(&password));
            drop(turn);
            match checked {
                Ok(login) => {
                    access.record_login(&peer, &login);
                    Ok(version.map(|version| hex(&version)))
                }
                // No password, or one that is too long, is a wrong one.
                Err(fault)
                    if matches!(
                        fault.code,
                        Code::AuthenticationFailed | Code::InvalidArgument
                    ) =>
                {
                    Ok(None)
                }
                Err(fault) => Err(fault),
            }
        };
        spawn_blocking(check)
            .await
            .map_err(|error| Fault::new(Code::Internal, "log in", error.to_string()))?
    }
}
