//! Addresses from which users have been authenticated, limited to the most recent ones.
//!
//! Only authenticated users get an entry, so strangers can't evict others.

use std::collections::{HashSet, VecDeque};

use xdfs_crowd::Network;

use super::failures::UserHash;

#[derive(Debug)]
pub(super) struct Familiar {
    most: usize,
    known: HashSet<(Network, UserHash)>,
    /// The same in order of arrival.
    order: VecDeque<(Network, UserHash)>,
}

impl Familiar {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            known: HashSet::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn contains(&self, network: Network, user: UserHash) -> bool {
        self.known.contains(&(network, user))
    }

    pub(super) fn add(&mut self, network: Network, user: UserHash) {
        if self.most == 0 || !self.known.insert((network, user)) {
            return;
        }
        self.order.push_back((network, user));
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}
