//! Sets of replicas as a kind of place, which no URL names.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs_proto::{Code, Fault};
use xdfs_store::{Place, Traits};

use super::join::{Connect, Patience, Sources};
use super::place::ReplicaPlace;
use super::set::{ReplicaLog, ReplicaSet};
use super::striped::StripedPlace;
use crate::address::Address;
use crate::client::Client;
use crate::remote::RemotePlace;
use crate::scheme::{LoginBy, OpenPlace, Opening, Paths, PlaceRequest, RegisteredScheme, Scheme};
use crate::security::Level;

/// The schemes, which aren't registered: of sets with one file, and of groups with any.
static SET: SetScheme = SetScheme { is_group: false };
static GROUP: SetScheme = SetScheme { is_group: true };

/// Sets of replicas and groups of servers, as a setting of sessions: those of [`Replicas::place`]
/// and [`Replicas::group`] find theirs there. Clones share the groups.
#[derive(Clone)]
pub struct Replicas {
    sets: Vec<Set>,
    groups: Arc<Mutex<Vec<Set>>>,
    connect: Arc<Connect>,
    pub(super) patience: Patience,
}

/// A set with the place of its own.
type Set = (RemotePlace, Arc<ReplicaSet>, ReplicaLog);

impl Replicas {
    /// These sets. Whenever a source is needed, `connect` is called for the session with it, in
    /// whichever thread.
    #[must_use]
    pub fn new(
        sets: Vec<ReplicaSet>,
        connect: impl Fn(&RemotePlace) -> Result<Arc<Client>, Fault> + Send + Sync + 'static,
    ) -> Self {
        let sets = sets.into_iter().enumerate().map(|(number, set)| {
            let path = [b"/", set.name.as_slice()].concat();
            let place = place_of(&SET, number, path);
            let log = ReplicaLog::new(&set);
            (place, Arc::new(set), log)
        });
        Self {
            sets: sets.collect(),
            groups: Arc::default(),
            connect: Arc::new(connect),
            patience: Patience::default(),
        }
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Set>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the members of a group, as [`ReplicaSet::of_target`] has them. Returns their place,
    /// which has any files of theirs, with the path of the first one.
    #[must_use]
    pub fn group(&self, set: ReplicaSet) -> RemotePlace {
        let mut groups = self.groups();
        let path = set.places.first().map(|place| place.path.clone());
        let place = place_of(&GROUP, groups.len(), path.unwrap_or_default());
        let log = ReplicaLog::new(&set);
        groups.push((place.clone(), Arc::new(set), log));
        place
    }

    /// The place of the set of this number. Sessions with it need this value in their
    /// [settings](crate::ClientOptions::settings).
    #[must_use]
    pub fn place(&self, number: usize) -> Option<&RemotePlace> {
        self.sets.get(number).map(|(place, _, _)| place)
    }

    /// The set at a place, and the shares of its sources: of a group those in all files so far.
    #[must_use]
    pub fn at(&self, place: &RemotePlace) -> Option<(Arc<ReplicaSet>, ReplicaLog)> {
        let found = |sets: &[Set]| {
            let found = sets.iter().find(|(own, _, _)| own.shares_session(place));
            found.map(|(_, set, log)| (Arc::clone(set), log.clone()))
        };
        found(&self.sets).or_else(|| found(&self.groups()))
    }
}

/// The place of the set of this number: unlike the URLs, that has no secrets and no double.
fn place_of(scheme: &'static SetScheme, number: usize, path: Vec<u8>) -> RemotePlace {
    RemotePlace {
        user: None,
        address: Address::Place {
            scheme: RegisteredScheme::new(scheme),
            host: number.to_string(),
            port: None,
        },
        stack: None,
        path,
        invitation: Default::default(),
        profile: None,
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
struct SetScheme {
    is_group: bool,
}

impl Scheme for SetScheme {
    fn name(&self) -> &'static str {
        // No registered scheme has a hyphen.
        match self.is_group {
            true => "xdfs-group",
            false => "xdfs-replicas",
        }
    }

    fn traits(&self) -> Traits {
        match self.is_group {
            true => Traits {
                sessions: false,
                packs: false,
                ..Traits::FULL
            },
            false => Traits::NONE,
        }
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
        let found = replicas.zip(number).and_then(|(own, number)| {
            let set = match self.is_group {
                true => own.groups().get(number).cloned(),
                false => own.sets.get(number).cloned(),
            };
            Some((own, set?))
        });
        let Some((replicas, (_, set, log))) = found else {
            let cause = "the settings of the session have no such set of replicas";
            return Err(Fault::new(Code::InvalidArgument, "open a session", cause));
        };
        let connect = Arc::clone(&replicas.connect);
        let sources = Sources::new(set, log, connect, replicas.patience);
        Ok(match self.is_group {
            true => Arc::new(StripedPlace::new(sources)),
            false => Arc::new(ReplicaPlace::new(sources)),
        })
    }
}
