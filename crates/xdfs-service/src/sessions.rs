//! The sessions of jobs with servers: each is opened when it is first needed, and has one transfer
//! at a time, since the rate limit of a transfer is that of its session.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use xdfs::settings::{Attendance, ClientConfig, Login};
use xdfs::ssh::SshServers;
use xdfs::{Client, ClientOptions, Fault, RemotePlace};

/// Most sessions that are kept while no transfer uses them. The oldest is closed.
const SESSIONS_MAX: usize = 32;

/// Opens a session with the server of a place.
type Open = Box<dyn Fn(&RemotePlace) -> Result<Client, Fault> + Send + Sync>;

/// An open session, and a place on its server.
type Opened = (RemotePlace, Arc<Client>);

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
            options.ssh.servers = ssh.clone();
            config.load_drivers(&mut options.drivers)?;
            Client::connect(
                place,
                login.options(place, options, Attendance::Unattended)?,
            )
        })
    }

    /// A session that no transfer uses, or a new one.
    fn take(&self, place: &RemotePlace) -> Result<Arc<Client>, Fault> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let ended: Vec<_> = free
            .extract_if(.., |(_, client)| has_ended(client))
            .collect();
        let found = free
            .iter()
            .position(|(server, _)| server.shares_session(place));
        let found = found.map(|at| free.remove(at));
        drop(free);
        // Without the lock: this waits for its threads, and ssh may take a while.
        drop(ended);
        match found {
            Some((_, client)) => Ok(client),
            None => Ok(Arc::new((self.open)(place)?)),
        }
    }
}

fn has_ended(client: &Client) -> bool {
    client.ended().is_some()
}

/// The sessions of one transfer, which returns them when it has ended.
pub(crate) struct TransferSessions {
    all: Arc<Sessions>,
    own: Mutex<Vec<Opened>>,
}

impl TransferSessions {
    pub(crate) fn new(all: Arc<Sessions>) -> Self {
        let own = Mutex::default();
        Self { all, own }
    }

    /// A session with the server of a place: the same one each time, until it ends.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn get(&self, place: &RemotePlace) -> Result<Arc<Client>, Fault> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.retain(|(_, client)| !has_ended(client));
        let found = own.iter().find(|(server, _)| server.shares_session(place));
        if let Some((_, client)) = found {
            return Ok(Arc::clone(client));
        }
        let client = self.all.take(place)?;
        own.push((place.clone(), Arc::clone(&client)));
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
