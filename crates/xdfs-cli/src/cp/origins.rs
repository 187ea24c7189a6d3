//! The servers of sources that are copied to other servers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs::{Answer, Call, Code, Fault, RemotePlace, ServerFile, Way};

use crate::client::SharedClient;
use crate::report::Reporter;
use crate::session::{Connector, report_session};

/// The sessions with them, each opened when it is needed first.
#[derive(Clone)]
pub(crate) struct Origins {
    connector: Connector,
    way: Way,
    open: Arc<Mutex<Vec<(RemotePlace, SharedClient)>>>,
}

impl Origins {
    /// No sessions yet, for files that are copied in this way.
    pub(crate) fn new(connector: &Connector, way: Way) -> Self {
        Self {
            connector: connector.clone(),
            way,
            open: Arc::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<(RemotePlace, SharedClient)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session with a server.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn connect(&self, place: &RemotePlace) -> Result<SharedClient, Fault> {
        let mut open = self.open();
        let is_it = |(server, client): &(RemotePlace, SharedClient)| {
            server.shares_session(place) && client.ended().is_none()
        };
        if let Some((_, client)) = open.iter().find(|open| is_it(open)) {
            return Ok(client.clone());
        }
        let client = self.connector.connect(place)?;
        open.push((place.clone(), client.clone()));
        Ok(client)
    }

    /// The bytes of a file; `None` if it can't be looked at, so that its copy says why.
    pub(crate) fn bytes_of(&self, place: &RemotePlace) -> Option<u64> {
        let client = self.connect(place).ok()?;
        let look = Call::Stat {
            path: place.path.clone(),
            follow: true,
        };
        match client.call(look) {
            Ok(Answer::Attributes(found)) => Some(found.size),
            _ => None,
        }
    }

    /// A file or a tree of a server, as a source.
    pub(crate) fn file(&self, place: &RemotePlace) -> ServerFile {
        let origins = self.clone();
        let connect = move |place: &RemotePlace| {
            let client = origins.connect(place)?;
            Ok(Arc::clone(client.client()))
        };
        ServerFile::new(place.clone(), connect).by(self.way)
    }

    /// Reports servers that were trusted on first use, and decisions about network paths.
    pub(crate) fn report(&self, reporter: &mut Reporter) {
        for (_, client) in &*self.open() {
            report_session(client, reporter);
        }
    }
}

/// Refuses to remove sources at a server if nothing shows that the target is another file: it could
/// be the same one by another URL.
///
/// # Errors
/// The source is to be removed, and one of the servers identifies no files.
pub(super) fn check_removal(is_wanted: bool, servers: [&RemotePlace; 2]) -> Result<(), Fault> {
    let identifies = |server: &&RemotePlace| server.address.traits().identities;
    if !is_wanted || servers.iter().all(identifies) {
        return Ok(());
    }
    let cause = "one of the servers doesn't tell whether source and target are one file";
    Err(
        Fault::new(Code::InvalidArgument, "remove the source", cause)
            .hint("copy without --remove-source, and remove the source with 'xdfs rm'"),
    )
}
