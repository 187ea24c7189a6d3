//! Sets of replicas as a kind of place, which no URL names.

use std::fmt;
use std::sync::Arc;

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

/// The schemes, which aren't registered: of sets that are read, and of the one that is written.
static SET: SetScheme = SetScheme { writes: false };
static TARGET: SetScheme = SetScheme { writes: true };

/// Sets of replicas, as a setting of sessions: those of [`Replicas::place`] find their set there.
#[derive(Clone)]
pub struct Replicas {
    sets: Vec<(RemotePlace, Arc<ReplicaSet>, ReplicaLog)>,
    /// The set that is written together.
    target: Option<(RemotePlace, Arc<ReplicaSet>, ReplicaLog)>,
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
            target: None,
            connect: Arc::new(connect),
            patience: Patience::default(),
        }
    }

    /// The same, with a [set](ReplicaSet::of_target) of servers that write a file together.
    #[must_use]
    pub fn writing(mut self, set: ReplicaSet) -> Self {
        let path = set.places.first().map(|place| place.path.clone());
        let place = RemotePlace {
            user: None,
            address: Address::Place {
                scheme: RegisteredScheme::new(&TARGET),
                host: "0".to_owned(),
                port: None,
            },
            stack: None,
            path: path.unwrap_or_default(),
            invitation: Default::default(),
            profile: None,
        };
        let log = ReplicaLog::new(&set);
        self.target = Some((place, Arc::new(set), log));
        self
    }

    /// The place of the set that is written, as [`Self::place`] has those that are read.
    #[must_use]
    pub fn target(&self) -> Option<&RemotePlace> {
        self.target.as_ref().map(|(place, _, _)| place)
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
        let mut sets = self.sets.iter().chain(&self.target);
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
struct SetScheme {
    writes: bool,
}

impl Scheme for SetScheme {
    fn name(&self) -> &'static str {
        match self.writes {
            true => "group",
            false => "replicas",
        }
    }

    fn traits(&self) -> Traits {
        match self.writes {
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
        let found = replicas.and_then(|own| {
            let set = match self.writes {
                true => own.target.as_ref()?,
                false => own.sets.get(number?)?,
            };
            Some((own, set))
        });
        let Some((replicas, (_, set, log))) = found else {
            let cause = "the settings of the session have no such set of replicas";
            return Err(Fault::new(Code::InvalidArgument, "open a session", cause));
        };
        let connect = Arc::clone(&replicas.connect);
        let sources = Sources::new(Arc::clone(set), log.clone(), connect, replicas.patience);
        Ok(match self.writes {
            true => Arc::new(StripedPlace::new(sources.writing())),
            false => Arc::new(ReplicaPlace::new(sources)),
        })
    }
}
