//! The servers that sessions share.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs_proto::Fault;

use super::server::{Launch, Observer, SshNews, SshServer};

/// The servers that were started through ssh. Clones share them. A server runs as long as one of
/// them, and as the sessions with it.
#[derive(Clone)]
pub struct SshServers {
    shared: Arc<Shared>,
}

struct Shared {
    running: Mutex<Vec<Arc<SshServer>>>,
    observer: Observer,
}

impl SshServers {
    /// None yet. `observer` is called by the thread that opens a session, or by one of its own.
    pub fn new(observer: impl Fn(&SshNews) + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                running: Mutex::default(),
                observer: Arc::new(observer),
            }),
        }
    }

    /// Ends the servers without sessions, and waits for that.
    pub fn close(&self) {
        let closed = std::mem::take(&mut *self.running());
        // Without the lock.
        drop(closed);
    }

    /// The server of such a launch: the running one, or another one that `probe` can reach. Its
    /// messages name it by this address.
    ///
    /// # Errors
    /// It can't be started or reached.
    pub(super) fn reach(
        &self,
        address: &str,
        launch: Launch,
        probe: &dyn Fn(&SshServer) -> Result<(), Fault>,
    ) -> Result<Arc<SshServer>, Fault> {
        // One after the other: each may ask for a password.
        let mut running = self.running();
        running.retain(|server| !server.has_ended());
        if let Some(server) = running.iter().find(|server| server.is_of(&launch)) {
            return Ok(Arc::clone(server));
        }
        let observer = Arc::clone(&self.shared.observer);
        let server = Arc::new(SshServer::start(address, launch, observer, probe)?);
        running.push(Arc::clone(&server));
        Ok(server)
    }

    fn running(&self) -> MutexGuard<'_, Vec<Arc<SshServer>>> {
        let running = self.shared.running.lock();
        running.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SshServers {
    /// None yet. What happens to them is in the log.
    fn default() -> Self {
        Self::new(|news| tracing::info!("{news}"))
    }
}

impl fmt::Debug for SshServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshServers")
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}
