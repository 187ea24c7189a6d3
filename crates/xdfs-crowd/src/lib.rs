//! The places of a listener for connections that haven't logged in: strangers.
//!
//! Every listener that takes strangers has a [`Crowd`], with a bounded number of places that are
//! not those of sessions. All of them keep one rule:
//!
//! - A newcomer is always taken. When all places are taken, one stranger gives way: of the network
//!   with the most places, a silent one before others, and the oldest of those. So a network that
//!   opens connections without end displaces only its own, and who logs in at its usual speed
//!   comes in.
//! - An IPv6 network is the upper 64 bits of an address. When all places are taken, those of the
//!   same upper 48 bits are compared first, since one customer has that many networks of 64 bits.
//! - When half of the places are taken, strangers that are silent have to say something within
//!   [`HURRY`].
//! - What happened is one warning a minute, with the name of the listener, the network and the
//!   number. The owner calls [`Crowd::tick`] for it, at [`Crowd::wakes_at`] at the latest.
//!
//! Nothing here does input or output, and time is an argument. The owner of the connections closes
//! those that give way.

#![forbid(unsafe_code)]

mod folded;
mod network;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::hash::Hash;
use std::time::{Duration, Instant};

pub use folded::{Folded, set_warning_interval};
pub use network::Network;

/// The time that a silent stranger has when half of the places are taken: enough for a few round
/// trips on a long path with one lost packet.
pub const HURRY: Duration = Duration::from_secs(3);

/// The strangers of a listener, by a key that its owner chooses.
#[derive(Debug)]
pub struct Crowd<K> {
    places: usize,
    strangers: HashMap<K, Stranger>,
    /// The same by wide network.
    wide: HashMap<Network, Wide<K>>,
    /// With the listener and the network.
    displaced: Folded<(String, Network)>,
}

/// The strangers of a wide network.
#[derive(Debug)]
struct Wide<K> {
    count: usize,
    /// In the order in which they give way: silent ones first, then the oldest.
    networks: HashMap<Network, BTreeSet<(bool, Instant, K)>>,
}

#[derive(Clone, Copy, Debug)]
struct Stranger {
    network: Network,
    since: Instant,
    /// It has to say something, and since when.
    silent_since: Option<Instant>,
}

impl Stranger {
    /// Its place among those of its network.
    fn order<K>(&self, key: K) -> (bool, Instant, K) {
        (self.silent_since.is_none(), self.since, key)
    }
}

impl<K: Copy + Hash + Ord> Crowd<K> {
    /// An empty crowd with room for `places` strangers, at least one.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self {
            places: places.max(1),
            strangers: HashMap::new(),
            wide: HashMap::new(),
            displaced: Folded::new(warn_of_displaced),
        }
    }

    /// Takes a newcomer of `network`, silent so far, at `listener`. Returns the stranger that gives
    /// way to it, if there is no other place: it isn't in the crowd any more, and its connection is
    /// to be closed.
    pub fn enter(
        &mut self,
        key: K,
        network: Network,
        listener: &dyn Display,
        now: Instant,
    ) -> Option<K> {
        let is_full = self.strangers.len() >= self.places;
        let displaced = is_full.then(|| self.to_give_way(network)).flatten();
        if let Some(stranger) = displaced.and_then(|key| self.take(key)) {
            let event = (listener.to_string(), stranger.network);
            self.displaced.count(event, now);
        }
        self.leave(key);
        let stranger = Stranger {
            network,
            since: now,
            silent_since: Some(now),
        };
        self.put(key, stranger);
        displaced
    }

    /// Warns of the strangers that gave way since the last warning, if one is due.
    pub fn tick(&mut self, now: Instant) {
        self.displaced.tick(now);
    }

    /// When [`Self::tick`] has something to say, if it has.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Instant> {
        self.displaced.wakes_at()
    }

    /// A stranger has sent bytes that continue its opening.
    pub fn speaks(&mut self, key: K) {
        self.change(key, None);
    }

    /// A stranger has to say something: a handshake begins.
    pub fn falls_silent(&mut self, key: K, now: Instant) {
        self.change(key, Some(now));
    }

    fn change(&mut self, key: K, silent_since: Option<Instant>) {
        if let Some(stranger) = self.take(key) {
            let changed = Stranger {
                silent_since,
                ..stranger
            };
            self.put(key, changed);
        }
    }

    /// A stranger has logged in, or has gone. Returns whether it was there.
    pub fn leave(&mut self, key: K) -> bool {
        self.take(key).is_some()
    }

    fn put(&mut self, key: K, stranger: Stranger) {
        let network = stranger.network;
        let wide = self.wide.entry(network.wide()).or_insert_with(|| Wide {
            count: 0,
            networks: HashMap::new(),
        });
        wide.count += 1;
        let of_network = wide.networks.entry(network).or_default();
        of_network.insert(stranger.order(key));
        self.strangers.insert(key, stranger);
    }

    fn take(&mut self, key: K) -> Option<Stranger> {
        let stranger = self.strangers.remove(&key)?;
        let network = stranger.network;
        if let Some(wide) = self.wide.get_mut(&network.wide()) {
            wide.count -= 1;
            if let Some(of_network) = wide.networks.get_mut(&network) {
                of_network.remove(&stranger.order(key));
                if of_network.is_empty() {
                    wide.networks.remove(&network);
                }
            }
            if wide.count == 0 {
                self.wide.remove(&network.wide());
            }
        }
        Some(stranger)
    }

    /// No stranger is left.
    pub fn clear(&mut self) {
        self.strangers.clear();
        self.wide.clear();
    }

    /// The number of strangers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.strangers.len()
    }

    /// Whether there are no strangers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strangers.is_empty()
    }

    /// Whether half of the places are taken, so that silent strangers have [`HURRY`].
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.strangers.len() >= self.places.div_ceil(2)
    }

    /// The strangers whose time is over, with the time that they had; `usual` is that of all from
    /// their coming on. They stay in the crowd until they [`leave`](Self::leave).
    #[must_use]
    pub fn late(&self, now: Instant, usual: Duration) -> Vec<(K, Duration)> {
        let hurry = match self.is_crowded() {
            true => HURRY.min(usual),
            false => usual,
        };
        let is_over = |since, time| now.saturating_duration_since(since) >= time;
        let of_all = self.strangers.iter();
        of_all
            .filter_map(|(key, stranger)| {
                if is_over(stranger.since, usual) {
                    return Some((*key, usual));
                }
                let silent_since = stranger.silent_since?;
                is_over(silent_since, hurry).then_some((*key, hurry))
            })
            .collect()
    }

    /// The stranger that gives way to a newcomer of `network`.
    fn to_give_way(&self, network: Network) -> Option<K> {
        let of_wide = self
            .wide
            .iter()
            .map(|(network, wide)| (*network, wide.count));
        let wide = Most::of(of_wide, network.wide());
        let chosen = self.wide.iter();
        let chosen = chosen.filter(|(network, of)| wide.includes(**network, of.count));
        let networks = || chosen.clone().flat_map(|(_, wide)| &wide.networks);
        let of_network = networks().map(|(network, of)| (*network, of.len()));
        let most = Most::of(of_network, network);
        let chosen = networks().filter(|(network, of)| most.includes(**network, of.len()));
        let first = chosen.filter_map(|(_, of)| of.first()).min();
        first.map(|&(_, _, key)| key)
    }
}

fn warn_of_displaced(closed: u64, (listener, network): &(String, Network)) {
    tracing::warn!(
        %listener,
        %network,
        closed,
        "more connections are being opened than there are places for: the oldest of the networks \
         with most of them are closed"
    );
}

/// Which networks have the most strangers.
enum Most {
    /// This one, with the newcomer.
    Own(Network),
    /// The networks with so many.
    With(usize),
}

impl Most {
    /// The networks that have the most, with one more of `own`.
    fn of(counts: impl Iterator<Item = (Network, usize)>, own: Network) -> Self {
        let (mut most, mut of_own) = (0, 0);
        for (network, count) in counts {
            most = most.max(count);
            if network == own {
                of_own = count;
            }
        }
        // Otherwise networks with equally many would only take turns.
        match of_own > 0 && of_own + 1 >= most {
            true => Self::Own(own),
            false => Self::With(most),
        }
    }

    fn includes(&self, network: Network, count: usize) -> bool {
        match self {
            Self::Own(own) => *own == network,
            Self::With(most) => count == *most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str) -> Network {
        Network::of(address.parse().unwrap())
    }

    /// Strangers with these keys, each a second after the other.
    fn crowd(places: usize, of: &[&str]) -> (Crowd<usize>, Instant) {
        let (mut crowd, mut now) = (Crowd::new(places), Instant::now());
        for (key, address) in of.iter().enumerate() {
            assert_eq!(crowd.enter(key, network(address), &"here", now), None);
            now += Duration::from_secs(1);
        }
        (crowd, now)
    }

    #[test]
    fn the_network_with_most_gives_way_and_of_it_the_oldest() {
        let (mut crowd, now) = crowd(4, &["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"]);
        assert_eq!(crowd.enter(4, network("10.0.0.3"), &"here", now), Some(1));
        assert_eq!(crowd.enter(5, network("10.0.0.4"), &"here", now), Some(2));
        assert_eq!(crowd.len(), 4);
        // All have one: the oldest.
        assert_eq!(crowd.enter(6, network("10.0.0.5"), &"here", now), Some(0));
        // Its own network has the most then.
        assert_eq!(crowd.enter(7, network("10.0.0.4"), &"here", now), Some(5));
    }

    #[test]
    fn a_network_that_has_the_most_displaces_only_its_own() {
        let (mut crowd, now) = crowd(4, &["10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.1"]);
        let mut mine = vec![1, 2, 3];
        for key in 4..100 {
            let gone = crowd.enter(key, network("10.0.0.1"), &"here", now).unwrap();
            assert!(mine.contains(&gone), "{gone}");
            mine.retain(|key| *key != gone);
            mine.push(key);
        }
        assert!(crowd.leave(0));
    }

    #[test]
    fn silent_strangers_give_way_before_others() {
        let (mut crowd, now) = crowd(3, &["10.0.0.1"; 3]);
        crowd.speaks(0);
        crowd.speaks(1);
        assert_eq!(crowd.enter(3, network("10.0.0.2"), &"here", now), Some(2));
        crowd.falls_silent(1, now);
        assert_eq!(crowd.enter(4, network("10.0.0.3"), &"here", now), Some(1));
    }

    #[test]
    fn networks_of_one_customer_count_together_when_all_places_are_taken() {
        let of: Vec<_> = (0..8).map(|i| format!("2001:db8:0:{i}::1")).collect();
        let of: Vec<_> = of.iter().map(String::as_str).collect();
        let (mut crowd, now) = crowd(8, &of);
        // Others come in, however many networks the customer has, ...
        for (key, address) in [(8, "2001:db8:1:1::1"), (9, "10.0.0.1")] {
            let gone = crowd.enter(key, network(address), &"here", now).unwrap();
            assert!(gone < 8, "{gone}");
        }
        // ... and so do those of the same upper 48 bits, at the expense of one of them.
        let own = network("2001:db8:0:9::1");
        let gone = crowd.enter(10, own, &"here", now).unwrap();
        assert!(gone < 8, "{gone}");
    }

    #[test]
    fn silent_strangers_have_less_time_when_half_of_the_places_are_taken() {
        let usual = Duration::from_secs(10);
        let (mut crowd, now) = crowd(4, &["10.0.0.1"]);
        // It came a second before.
        let later = now + HURRY;
        assert!(crowd.late(later, usual).is_empty());
        crowd.enter(1, network("10.0.0.2"), &"here", now);
        assert_eq!(crowd.late(now, usual), []);
        let mut late = crowd.late(later, usual);
        late.sort_unstable();
        assert_eq!(late, [(0, HURRY), (1, HURRY)]);
        crowd.speaks(0);
        assert_eq!(crowd.late(later, usual), [(1, HURRY)]);
        crowd.leave(1);
        assert_eq!(crowd.late(now + usual, usual), [(0, usual)]);
        crowd.clear();
        assert!(crowd.is_empty() && crowd.late(now + usual, usual).is_empty());
    }

    #[test]
    fn counts_follow_those_that_are_there() {
        let (mut crowd, now) = crowd(2, &["10.0.0.1", "10.0.0.1"]);
        assert!(crowd.leave(0) && crowd.leave(1) && !crowd.leave(1));
        assert!(crowd.wide.is_empty());
        // The same key again is the same place.
        crowd.enter(7, network("10.0.0.1"), &"here", now);
        crowd.enter(7, network("10.0.0.1"), &"here", now);
        let wide = &crowd.wide[&network("10.0.0.1")];
        assert_eq!((crowd.len(), wide.count, wide.networks.len()), (1, 1, 1));
    }
}
