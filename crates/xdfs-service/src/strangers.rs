//! Connections of a listener for others that haven't logged in. When all places for them are taken,
//! one gives way to a newcomer, by the rule of all listeners ([`Crowd`]).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use xdfs::doors::{Crowd, Network};

/// The connections of a listener that haven't logged in.
#[derive(Debug)]
pub(crate) struct Strangers(Mutex<Places>);

#[derive(Debug)]
struct Places {
    crowd: Crowd<u64>,
    ends: HashMap<u64, Arc<Notify>>,
    next: u64,
}

/// A connection that has a place until it logs in or ends.
#[derive(Debug)]
pub(crate) struct Stranger {
    key: u64,
    end: Arc<Notify>,
    strangers: Arc<Strangers>,
}

impl Strangers {
    /// Room for so many.
    pub(crate) fn new(places: usize) -> Self {
        Self(Mutex::new(Places {
            crowd: Crowd::new(places),
            ends: HashMap::new(),
            next: 0,
        }))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a newcomer at the listener with this name.
    pub(crate) fn enter(self: &Arc<Self>, peer: SocketAddr, listener: &str) -> Stranger {
        let (now, end) = (Instant::now(), Arc::new(Notify::new()));
        let mut places = self.places();
        let key = places.next;
        places.next += 1;
        let network = Network::of_peer(&peer.to_string());
        let displaced = places.crowd.enter(key, network, &listener, now);
        if let Some(end) = displaced.and_then(|key| places.ends.remove(&key)) {
            end.notify_one();
        }
        places.ends.insert(key, Arc::clone(&end));
        places.crowd.tick(now);
        drop(places);
        Stranger {
            key,
            end,
            strangers: Arc::clone(self),
        }
    }

    /// Warns of those that gave way, if a warning is due.
    pub(crate) fn tick(&self) {
        self.places().crowd.tick(Instant::now());
    }
}

impl Stranger {
    /// Waits until it has to give way.
    pub(crate) async fn gives_way(&self) {
        self.end.notified().await;
    }

    /// It has sent something.
    pub(crate) fn speaks(&self) {
        self.strangers.places().crowd.speaks(self.key);
    }

    /// It has logged in, or has gone: it needn't give way any more.
    pub(crate) fn leave(&self) {
        let mut places = self.strangers.places();
        places.crowd.leave(self.key);
        places.ends.remove(&self.key);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_gives_way_to_a_newcomer_unless_it_has_logged_in() {
        let strangers = Arc::new(Strangers::new(2));
        let peer = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let enter = |port| strangers.enter(peer(port), "test");
        let known = enter(1);
        known.leave();
        let (first, second) = (enter(2), enter(3));
        let third = enter(4);
        first.gives_way().await;
        drop(second);
        let _fourth = enter(5);
        let places = strangers.places();
        assert!(places.ends.contains_key(&third.key));
        assert_eq!((places.crowd.len(), places.ends.len()), (2, 2));
    }
}
