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
        }
    }

    /// The same, with servers that write the target together.
    pub(crate) fn writing(mut self, target: Option<ReplicaSet>) -> Self {
        if let Some(set) = target {
            self.replicas = self.replicas.writing(set);
        }
        self
    }

    /// The place of the target that several servers write.
    pub(crate) fn target(&self) -> Option<&RemotePlace> {
        self.replicas.target()
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
    pub(crate) fn sources(&self, place: &RemotePlace) -> &[RemotePlace] {
        let found = self.replicas.at(place);
        found.map_or(&[], |(set, _)| &set.places)
    }

    /// Calls `report` with each session.
    pub(crate) fn sessions(&self, mut report: impl FnMut(&SharedClient)) {
        lock(&self.joined).iter().for_each(&mut report);
    }

    /// Reports sources that were dropped since the last time.
    pub(crate) fn report_dropped(&self, reporter: &mut Reporter) {
        let mut known = lock(&self.dropped);
        for (number, place) in self.places().chain(self.target()).enumerate() {
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

    /// Reports what came from each source of the set at a place, if it is one.
    pub(crate) fn report_shares(&self, place: &RemotePlace, label: &Label, to: &mut Reporter) {
        if let Some((_, log)) = self.replicas.at(place) {
            self.report_dropped(to);
            let is_writer = self.target() == Some(place);
            let shares = log.shares();
            let has_any = |share: &&xdfs::ReplicaShare| share.is_used || share.dropped.is_some();
            for share in shares.iter().filter(has_any) {
                to.source_share(label, share, is_writer);
            }
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
