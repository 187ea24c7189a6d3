//! Sets of replicas as a kind of place, which no URL names.

use std::fmt;
use std::sync::Arc;

use xdfs_proto::{Code, Fault};
use xdfs_store::{Place, Traits};

use super::join::{Connect, Patience, Sources};
use super::place::ReplicaPlace;
use super::set::{ReplicaLog, ReplicaSet};
use crate::address::Address;
use crate::client::Client;
use crate::remote::RemotePlace;
use crate::scheme::{LoginBy, OpenPlace, Opening, Paths, PlaceRequest, RegisteredScheme, Scheme};
use crate::security::Level;

/// The scheme, which isn't registered.
static SET: SetScheme = SetScheme;

/// Sets of replicas, as a setting of sessions: those of [`Replicas::place`] find their set there.
#[derive(Clone)]
pub struct Replicas {
    sets: Vec<(RemotePlace, Arc<ReplicaSet>, ReplicaLog)>,
    connect: Arc<Connect>,
    pub(super) patience: Patience,
}

impl Replicas {
    /// These sets. Whenever a source is needed, `connect` is called for the session with it, in
    /// whichever thread.
    #[must_use]
    pub fn new(
        sets: Vec<ReplicaSet>,
        connect: impl Fn(&RemotePlace) -> Result<Arc<Client>, Fault> + Send + Sync + 'static,
    ) -> Self {
        let sets = (0_usize..).zip(sets).map(|(number, set)| {
            let place = RemotePlace {
                user: None,
                address: Address::Place {
                    scheme: RegisteredScheme::new(&SET),
                    // Unlike the URLs, the number has no secrets and no double.
                    host: number.to_string(),
                    port: None,
                },
                stack: None,
                path: [b"/", set.name.as_slice()].concat(),
                invitation: Default::default(),
                profile: None,
            };
            let log = ReplicaLog::new(&set);
            (place, Arc::new(set), log)
        });
        Self {
            sets: sets.collect(),
            connect: Arc::new(connect),
            patience: Patience::default(),
        }
    }

    /// The place of the set of this number. Sessions with it need this value in their
    /// [settings](crate::ClientOptions::settings).
    #[must_use]
    pub fn place(&self, number: usize) -> Option<&RemotePlace> {
        self.sets.get(number).map(|(place, _, _)| place)
    }

    /// The set at a place, and the shares of its sources.
    #[must_use]
    pub fn at(&self, place: &RemotePlace) -> Option<(&ReplicaSet, &ReplicaLog)> {
        let mut sets = self.sets.iter();
        let found = sets.find(|(own, _, _)| own.shares_session(place));
        found.map(|(_, set, log)| (&**set, log))
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicas")
            .field("sets", &self.sets.len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct SetScheme;

impl Scheme for SetScheme {
    fn name(&self) -> &'static str {
        "replicas"
    }

    fn traits(&self) -> Traits {
        Traits::NONE
    }

    fn port(&self) -> Option<u16> {
        None
    }

    fn paths(&self) -> Paths {
        Paths::Root
    }

    fn login(&self) -> LoginBy {
        LoginBy::Nothing
    }

    fn check_level(&self, _: Level, _: &str) -> Result<(), Fault> {
        // Each source has a session of its own.
        Ok(())
    }

    fn is_here(&self) -> bool {
        true
    }

    fn opening(&self) -> Opening<'_> {
        Opening::Place(self)
    }
}

impl OpenPlace for SetScheme {
    fn open(&self, request: &PlaceRequest<'_>) -> Result<Arc<dyn Place>, Fault> {
        let replicas = request.settings.get::<Replicas>();
        let number = request.host.parse::<usize>().ok();
        let found = replicas.and_then(|own| Some((own, own.sets.get(number?)?)));
        let Some((replicas, (_, set, log))) = found else {
            let cause = "the settings of the session have no such set of replicas";
            return Err(Fault::new(Code::InvalidArgument, "open a session", cause));
        };
        let connect = Arc::clone(&replicas.connect);
        let sources = Sources::new(Arc::clone(set), log.clone(), connect, replicas.patience);
        Ok(Arc::new(ReplicaPlace::new(sources)))
    }
}
