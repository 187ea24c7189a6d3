//! The sessions of jobs with servers: each is opened when it is first needed, and has one transfer
//! at a time, since the rate limit of a transfer is that of its session.
//!
//! The jobs of administrators have the settings and the credentials of the user of the process. A
//! session for the job of another user has nothing of them but the known servers. Either uses a
//! secret of the job's user where there is one for the server.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use xdfs::security::Credential;
use xdfs::settings::{Attendance, ClientConfig, Login};
use xdfs::ssh::{SshOptions, SshServers};
use xdfs::{Client, ClientOptions, Code, Fault, RemotePlace};

use crate::secret::Keyring;
use crate::whose::{Whose, check_server_of_user};

/// Most sessions that are kept while no transfer uses them. The oldest is closed.
const SESSIONS_MAX: usize = 32;

/// Opens a session with the server of a place.
type Open = Box<dyn Fn(&RemotePlace) -> Result<Client, Fault> + Send + Sync>;

/// An open session.
#[derive(Debug)]
struct Opened {
    /// A place on its server.
    place: RemotePlace,
    whose: Whose,
    /// The id of the secret that it was opened with.
    secret: Option<String>,
    client: Arc<Client>,
}

/// The sessions of a service.
pub struct Sessions {
    open: Open,
    /// Those that no transfer uses.
    free: Mutex<Vec<Opened>>,
}

impl Sessions {
    /// Sessions that this function opens.
    pub fn new(
        open: impl Fn(&RemotePlace) -> Result<Client, Fault> + Send + Sync + 'static,
    ) -> Self {
        Self {
            open: Box::new(open),
            free: Mutex::default(),
        }
    }

    /// Sessions with the settings and credentials of this user, as commands have them. No user is
    /// asked, and unknown servers are refused.
    #[must_use]
    pub fn of_user() -> Self {
        let ssh = SshServers::new(|news| tracing::info!("{news}"));
        Self::new(move |place| {
            let config = ClientConfig::read()?;
            let login = config.login(place, &Login::default())?;
            let mut options = config.session(place).options(ClientOptions::default());
            let started = SshOptions {
                servers: ssh.clone(),
                ..options.settings.get_or_default()
            };
            options.settings = options.settings.with(started);
            config.load_drivers(&mut options.drivers)?;
            Client::connect(
                place,
                login.options(place, options, Attendance::Unattended)?,
            )
        })
    }

    fn open(&self, place: &RemotePlace, keyring: &Keyring) -> Result<Client, Fault> {
        match (&keyring.whose, keyring.credential(place)?) {
            (Whose::Own, None) => (self.open)(place),
            (Whose::Own, Some(credential)) => open_with(place, credential),
            (Whose::User(_), credential) => open_for_user(place, credential),
        }
    }

    /// A session that no transfer uses, or a new one.
    fn take(&self, place: &RemotePlace, keyring: &Keyring) -> Result<Arc<Client>, Fault> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let ended: Vec<_> = free.extract_if(.., |opened| opened.has_ended()).collect();
        let found = free.iter().position(|opened| opened.serves(place, keyring));
        let found = found.map(|at| free.remove(at));
        drop(free);
        // Without the lock: this waits for its threads, and ssh may take a while.
        drop(ended);
        match found {
            Some(opened) => Ok(opened.client),
            None => Ok(Arc::new(self.open(place, keyring)?)),
        }
    }
}

impl Opened {
    fn has_ended(&self) -> bool {
        self.client.ended().is_some()
    }

    fn serves(&self, place: &RemotePlace, keyring: &Keyring) -> bool {
        self.whose == keyring.whose
            && self.secret.as_deref() == keyring.secret_id(place)
            && self.place.shares_session(place)
    }
}

/// A login without credentials, to a server that is known.
fn without_credentials() -> Login {
    Login {
        anonymous: true,
        known_only: true,
        ..Login::default()
    }
}

/// Opens a session without the settings and the credentials of the user of the process.
fn open_for_user(place: &RemotePlace, credential: Option<Credential>) -> Result<Client, Fault> {
    check_server_of_user(place)?;
    let login = without_credentials();
    let mut options = login.options(place, ClientOptions::default(), Attendance::Shared)?;
    if let Some(credential) = credential {
        log_in_with(place, &mut options, credential)?;
    }
    Client::connect(place, options)
}

/// Opens a session with the settings of the user of the process, and a credential instead of those
/// that it has there.
fn open_with(place: &RemotePlace, credential: Credential) -> Result<Client, Fault> {
    let config = ClientConfig::read()?;
    let login = config.login(place, &without_credentials())?;
    let mut options = config.session(place).options(ClientOptions::default());
    config.load_drivers(&mut options.drivers)?;
    let mut options = login.options(place, options, Attendance::Shared)?;
    log_in_with(place, &mut options, credential)?;
    Client::connect(place, options)
}

fn log_in_with(
    place: &RemotePlace,
    options: &mut ClientOptions,
    credential: Credential,
) -> Result<(), Fault> {
    let Some(security) = &mut options.security else {
        let cause = "a secret isn't sent over a connection without protection";
        let fault = Fault::new(Code::ProtectionRefused, "open the session", cause);
        return Err(fault.path(place.to_string()));
    };
    security.credentials = vec![credential];
    Ok(())
}

/// The sessions of one transfer, which returns them when it has ended.
pub(crate) struct TransferSessions {
    all: Arc<Sessions>,
    keyring: Keyring,
    own: Mutex<Vec<Opened>>,
}

impl TransferSessions {
    /// Those of a transfer with these credentials.
    pub(crate) fn of(all: Arc<Sessions>, keyring: Keyring) -> Self {
        let own = Mutex::default();
        Self { all, keyring, own }
    }

    /// A session with the server of a place: the same one each time, until it ends.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn get(&self, place: &RemotePlace) -> Result<Arc<Client>, Fault> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.retain(|opened| !opened.has_ended());
        let found = own
            .iter()
            .find(|opened| opened.serves(place, &self.keyring));
        if let Some(opened) = found {
            return Ok(Arc::clone(&opened.client));
        }
        let client = self.all.take(place, &self.keyring)?;
        own.push(Opened {
            place: place.clone(),
            whose: self.keyring.whose.clone(),
            secret: self.keyring.secret_id(place).map(str::to_owned),
            client: Arc::clone(&client),
        });
        Ok(client)
    }
}

impl Drop for TransferSessions {
    fn drop(&mut self) {
        let own = self.own.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.all.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.append(own);
        let surplus = free.len().saturating_sub(SESSIONS_MAX);
        let oldest: Vec<_> = free.drain(..surplus).collect();
        drop(free);
        // Without the lock, since this waits for their threads.
        drop(oldest);
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}
