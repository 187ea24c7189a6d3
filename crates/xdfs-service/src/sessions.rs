//! The sessions of jobs with servers: each is opened when it is first needed, and used by all jobs
//! for the server until it ends.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use xdfs::settings::{Attendance, ClientConfig, Login};
use xdfs::ssh::SshServers;
use xdfs::{Client, ClientOptions, Fault, RemotePlace};

/// Most sessions that are kept. The oldest goes; jobs that use it keep it open.
const SESSIONS_MAX: usize = 32;

/// Opens a session with the server of a place.
type Open = Box<dyn Fn(&RemotePlace) -> Result<Client, Fault> + Send + Sync>;

/// The sessions of a service.
pub struct Sessions {
    open: Open,
    kept: Mutex<Vec<(RemotePlace, Arc<Client>)>>,
}

impl Sessions {
    /// Sessions that this function opens.
    pub fn new(
        open: impl Fn(&RemotePlace) -> Result<Client, Fault> + Send + Sync + 'static,
    ) -> Self {
        Self {
            open: Box::new(open),
            kept: Mutex::default(),
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

    /// A session with the server of a place.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn get(&self, place: &RemotePlace) -> Result<Arc<Client>, Fault> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let ended: Vec<_> = kept
            .extract_if(.., |(_, client)| client.ended().is_some())
            .collect();
        let found = kept.iter().find(|(server, _)| server.shares_session(place));
        let found = found.map(|(_, client)| Arc::clone(client));
        drop(kept);
        drop(ended);
        if let Some(client) = found {
            return Ok(client);
        }
        // Without the lock: ssh may take a while.
        let client = Arc::new((self.open)(place)?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = (kept.len() >= SESSIONS_MAX).then(|| kept.remove(0));
        kept.push((place.clone(), Arc::clone(&client)));
        drop(kept);
        // Without the lock, since this waits for its threads.
        drop(oldest);
        Ok(client)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}
