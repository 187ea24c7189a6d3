//! The sources of files that several servers have, and what is reported of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs::{Fault, RemotePlace, ReplicaSet, Replicas};

use crate::client::SharedClient;
use crate::report::{Label, Reporter};

/// The sets of a command.
#[derive(Debug)]
pub(crate) struct SeveralSources {
    replicas: Replicas,
    /// Sessions with their sources.
    joined: Arc<Mutex<Vec<SharedClient>>>,
    /// Sources that were reported as dropped, by the places of their sets.
    dropped: Mutex<BTreeSet<(usize, usize)>>,
    count: usize,
    /// The group that writes the one target of the command.
    target: Option<RemotePlace>,
    /// Groups that move any files: the server that is named, and the place of its group.
    groups: Mutex<Vec<(RemotePlace, RemotePlace)>>,
}

impl SeveralSources {
    /// These sets, with sessions that `connect` opens.
    pub(crate) fn new(
        sets: Vec<ReplicaSet>,
        connect: impl Fn(&RemotePlace) -> Result<SharedClient, Fault> + Send + Sync + 'static,
    ) -> Self {
        let joined: Arc<Mutex<Vec<SharedClient>>> = Arc::default();
        let sessions = Arc::clone(&joined);
        let count = sets.len();
        let replicas = Replicas::new(sets, move |place| {
            let client = connect(place)?;
            let shared = Arc::clone(client.client());
            lock(&sessions).push(client);
            Ok(shared)
        });
        Self {
            replicas,
            joined,
            dropped: Mutex::default(),
            count,
            target: None,
            groups: Mutex::default(),
        }
    }

    /// The same, with servers that write the target together.
    pub(crate) fn writing(mut self, target: Option<ReplicaSet>) -> Self {
        self.target = target.map(|set| self.replicas.group(set));
        self
    }

    /// The place of the target that several servers write.
    pub(crate) fn target(&self) -> Option<&RemotePlace> {
        self.target.as_ref()
    }

    /// The place of the group of a server, with its path, if it is known already.
    pub(crate) fn group_of(&self, server: &RemotePlace) -> Option<RemotePlace> {
        let groups = lock(&self.groups);
        let found = groups.iter().find(|(own, _)| own.shares_session(server))?;
        Some(at(&found.1, server))
    }

    /// Adds the group of a server. Returns its place, with the path of the server.
    pub(crate) fn add_group(&self, server: &RemotePlace, set: ReplicaSet) -> RemotePlace {
        let group = self.replicas.group(set);
        let place = at(&group, server);
        lock(&self.groups).push((server.clone(), group));
        place
    }

    /// The server that is named for a group, if that is the place.
    pub(crate) fn named(&self, group: &RemotePlace) -> Option<RemotePlace> {
        let is_target = self.target().is_some_and(|own| own.shares_session(group));
        let (set, _) = self.replicas.at(group)?;
        let named = set.places.first().cloned();
        named.filter(|_| is_target || self.has_any_files(group))
    }

    /// Whether it is the place of a group that moves any files.
    fn has_any_files(&self, place: &RemotePlace) -> bool {
        let groups = lock(&self.groups);
        groups.iter().any(|(_, own)| own.shares_session(place))
    }

    /// The setting of sessions with the places of the sets.
    pub(crate) fn setting(&self) -> &Replicas {
        &self.replicas
    }

    /// The places of the sets, in their order.
    pub(crate) fn places(&self) -> impl Iterator<Item = &RemotePlace> {
        (0..self.count).filter_map(|number| self.replicas.place(number))
    }

    /// The sources of the set at a place; none if it is another place.
    pub(crate) fn sources(&self, place: &RemotePlace) -> Vec<RemotePlace> {
        let found = self.replicas.at(place);
        found.map_or(Vec::new(), |(set, _)| set.places.clone())
    }

    /// Calls `report` with each session.
    pub(crate) fn sessions(&self, mut report: impl FnMut(&SharedClient)) {
        lock(&self.joined).iter().for_each(&mut report);
    }

    /// Reports sources that were dropped since the last time.
    pub(crate) fn report_dropped(&self, reporter: &mut Reporter) {
        let mut known = lock(&self.dropped);
        let groups: Vec<_> = lock(&self.groups).iter().map(|own| own.1.clone()).collect();
        let places = self.places().chain(self.target()).chain(&groups);
        for (number, place) in places.enumerate() {
            let Some((_, log)) = self.replicas.at(place) else {
                continue;
            };
            for (source, share) in log.shares().iter().enumerate() {
                if let Some(fault) = &share.dropped
                    && known.insert((number, source))
                {
                    reporter.source_dropped(&share.place, fault);
                }
            }
        }
    }

    /// Reports what came from each source of the set at a place, if it is one with a file of the
    /// command.
    pub(crate) fn report_shares(&self, place: &RemotePlace, label: &Label, to: &mut Reporter) {
        if !self.has_any_files(place) {
            self.report_dropped(to);
            self.report_set(place, label, self.target() == Some(place), to);
        }
    }

    /// Reports what the members of groups have moved, of all files of the command.
    pub(crate) fn report_groups(&self, label: &Label, to: &mut Reporter) {
        self.report_dropped(to);
        let groups: Vec<_> = lock(&self.groups).iter().map(|own| own.1.clone()).collect();
        for group in groups {
            self.report_set(&group, label, true, to);
        }
    }

    fn report_set(&self, place: &RemotePlace, label: &Label, is_writer: bool, to: &mut Reporter) {
        let Some((_, log)) = self.replicas.at(place) else {
            return;
        };
        let shares = log.shares();
        let has_any = |share: &&xdfs::ReplicaShare| share.is_used || share.dropped.is_some();
        for share in shares.iter().filter(has_any) {
            to.source_share(label, share, is_writer);
        }
    }
}

/// The place of a group with the path of another one.
fn at(group: &RemotePlace, other: &RemotePlace) -> RemotePlace {
    RemotePlace {
        path: other.path.clone(),
        ..group.clone()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
