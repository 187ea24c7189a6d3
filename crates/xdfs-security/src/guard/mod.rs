//! Limits on unauthenticated peers, and on what users may hold open.
//!
//! A [`Guard`] counts three things: wrong passwords of a user at an address, those of a user from
//! all addresses, and the sessions and channels of a user; those of anonymous users also by
//! network, of which each has a share, so that one doesn't keep out all others. Dropping a [`Slot`]
//! decrements its count, so no code path can forget to. Strangers have their places at each
//! listener (`xdfs-crowd`).
//!
//! Only passwords wait: no other proof can be guessed. After [`Limits::failures_free`] wrong ones,
//! a user must wait at this address: one second, then two, then four, up to five minutes. Fifteen
//! minutes without a failure clear them, and so does a successful login of this user there. Others
//! at the same address don't wait, until passwords of ten users were wrong: then
//! all users who haven't logged in there before wait likewise, or an address would have a few
//! guesses at each of any number of users. One's own account doesn't help to guess those of others,
//! and a login without a user name clears nothing. An IPv6 address counts as its /64 network, since
//! a peer that has one address there has them all.
//!
//! After [`Limits::guesses_free`] wrong passwords from any addresses, a user must wait before the
//! next one is checked: eight seconds at most, so that nobody is locked out for good. This doesn't
//! apply to addresses from which this user has logged in before ([`Guard::succeeded`]).

mod failures;
mod familiar;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use xdfs_crowd::Network;
use xdfs_proto::{Code, Fault, Retry};

use crate::AUTHENTICATE;
use failures::{Failures, UserHash};
use familiar::Familiar;

/// Suggested retry delay when a limit is reached, in milliseconds.
const FULL_RETRY_MS: u32 = 1000;
/// Users of an address who have had wrong passwords when others there must wait too: more than one
/// broken job behind a shared address.
const USERS_PER_ADDRESS: usize = 10;
/// The user of everybody who proves nothing: what is held open is bounded for each network too.
const ANONYMOUS: &str = "anonymous";
/// The part of the places of anonymous users that one network may have, ...
const NETWORK_SHARE: usize = 4;
/// ... and how many it may have of a few.
const NETWORK_MIN: usize = 4;
/// Maximum delay of a user at an address, and of an address.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Maximum delay of a user: at most ten thousand guesses a day, and only a nuisance for a user at a
/// new address.
const USER_WAIT_MAX: Duration = Duration::from_secs(8);

/// The limits of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wrong passwords of a user at an address without a delay, including the one that causes the
    /// first delay.
    pub failures_free: u32,
    /// Wrong passwords for a user, from all addresses, before the user must wait.
    pub guesses_free: u32,
    /// Number of addresses with remembered failures; also of users, and of familiar pairs of both.
    pub addresses_max: usize,
    /// Maximum number of concurrent sessions per user. Of those of anonymous users one network has
    /// a quarter, or four, as of the following.
    pub sessions_per_user_max: usize,
    /// Maximum number of concurrent channels per user, over all sessions.
    pub channels_per_user_max: usize,
    /// Maximum number of concurrent connections through tunnels per user.
    pub connections_per_user_max: usize,
    /// Rate limit per user in bytes per second, for payload of all sessions in both directions, and
    /// what calls read, write and compute on the server; `None` for no limit. The guard doesn't see
    /// payload: whoever moves it enforces this.
    pub bytes_per_second_per_user_max: Option<NonZeroU64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            failures_free: 3,
            guesses_free: 10,
            addresses_max: 65_536,
            sessions_per_user_max: 64,
            channels_per_user_max: 4096,
            connections_per_user_max: 2048,
            bytes_per_second_per_user_max: None,
        }
    }
}

/// Counts the resources used by peers, and enforces limits. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Guard {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Hashes names unpredictably for outsiders.
    names: RandomState,
    state: Mutex<GuardCounts>,
}

#[derive(Debug)]
struct GuardCounts {
    limits: Limits,
    failures: Failures<(Network, UserHash), 1>,
    /// The users of an address with any failure; all failures there once others wait too.
    at_address: Failures<Network, USERS_PER_ADDRESS>,
    guesses: Failures<UserHash, 1>,
    familiar: Familiar,
    sessions: HashMap<String, usize>,
    channels: HashMap<String, usize>,
    connections: HashMap<String, usize>,
    /// The places of anonymous users by network.
    of_networks: HashMap<(Kind, Network), usize>,
}

impl Guard {
    /// A guard without any counts.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let state = GuardCounts {
            limits,
            failures: Failures::new(limits.failures_free, limits.addresses_max, WAIT_MAX),
            at_address: Failures::new(USERS_PER_ADDRESS as u32, limits.addresses_max, WAIT_MAX),
            guesses: Failures::new(limits.guesses_free, limits.addresses_max, USER_WAIT_MAX),
            familiar: Familiar::new(limits.addresses_max),
            sessions: HashMap::new(),
            channels: HashMap::new(),
            connections: HashMap::new(),
            of_networks: HashMap::new(),
        };
        Self {
            shared: Arc::new(Shared {
                names: RandomState::new(),
                state: Mutex::new(state),
            }),
        }
    }

    /// Changes the numbers of concurrent sessions and channels. Users above them keep
    /// what they have. Failures are counted and remembered as before.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.lock().limits = limits;
    }

    /// Records that a peer at `address` failed to prove by a password that it is `user`, and
    /// returns the resulting delay of this user there; zero while failures are free. `now` is
    /// monotonic time since some fixed moment.
    pub fn failed(&self, address: IpAddr, user: &str, now: Duration) -> Duration {
        let (network, user) = (Network::of(address), self.shared.names.hash_one(user));
        let mut state = self.shared.lock();
        state.failures.add((network, user), user, now);
        // A user counts once, so that one broken job doesn't make others wait.
        let at_address = &mut state.at_address;
        if at_address.has_failed(network, user) && !at_address.is_delayed(network) {
            at_address.remember(network, now);
        } else {
            at_address.add(network, user, now);
        }
        let wait = state.failures.wait((network, user), now);
        wait.unwrap_or_default()
    }

    /// Records a wrong password for `user`, beside the failure of the address.
    pub fn guessed(&self, user: &str, now: Duration) {
        let user = self.shared.names.hash_one(user);
        self.shared.lock().guesses.add(user, user, now);
    }

    /// Checks whether a password for `user` from `address` may be verified now.
    ///
    /// # Errors [`Code::LimitExceeded`] with the time to wait: there were too many wrong passwords
    /// of this user at this address; or the user has never logged in from there, and there were too
    /// many of others at this address, or of this user from any addresses.
    pub fn may_guess(&self, address: IpAddr, user: &str, now: Duration) -> Result<(), Fault> {
        let (network, user) = (Network::of(address), self.shared.names.hash_one(user));
        let state = self.shared.lock();
        let is_stranger = !state.familiar.contains(network, user);
        let of_strangers = |wait: Option<Duration>| wait.filter(|_| is_stranger);
        let waits = [
            (
                state.failures.wait((network, user), now),
                "too many wrong passwords of this user came from this address",
            ),
            (
                of_strangers(state.at_address.wait(network, now)),
                "too many wrong passwords came from this address",
            ),
            (
                of_strangers(state.guesses.wait(user, now)),
                "too many wrong passwords of this user came in",
            ),
        ];
        let longest = waits
            .into_iter()
            .filter_map(|(wait, cause)| Some((wait?, cause)));
        match longest.max_by_key(|(wait, _)| *wait) {
            Some((wait, cause)) => {
                let mut fault = refusal(AUTHENTICATE, cause, milliseconds(wait));
                fault.hint += ", or come with a key";
                Err(fault)
            }
            None => Ok(()),
        }
    }

    /// Records that a peer at `address` that requested `wanted` (possibly empty) was authenticated
    /// as `user`: clears their failures at this address, and makes the user familiar there.
    /// Not to be called for anonymous peers.
    pub fn succeeded(&self, address: IpAddr, wanted: &str, user: &str) {
        let network = Network::of(address);
        let hash = |name: &str| self.shared.names.hash_one(name);
        let mut state = self.shared.lock();
        for user in [hash(wanted), hash(user)] {
            state.failures.forgive((network, user), user);
            state.at_address.forgive(network, user);
        }
        state.familiar.add(network, hash(user));
    }

    /// Takes a slot for a session of `user`, who comes from `network`.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait.
    pub fn session(&self, user: &str, network: Network) -> Result<Slot, Fault> {
        self.slot(Kind::Session, user, network)
    }

    /// Takes a slot for a channel of `user`, who comes from `network`.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait.
    pub fn channel(&self, user: &str, network: Network) -> Result<Slot, Fault> {
        self.slot(Kind::Channel, user, network)
    }

    /// Takes a slot for a connection of `user`, who comes from `network`, through a tunnel.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait.
    pub fn connection(&self, user: &str, network: Network) -> Result<Slot, Fault> {
        self.slot(Kind::Connection, user, network)
    }

    fn slot(&self, kind: Kind, user: &str, network: Network) -> Result<Slot, Fault> {
        let network = (user == ANONYMOUS).then(|| network.wide());
        let mut state = self.shared.lock();
        let limits = state.limits;
        let (most, operation, what) = match kind {
            Kind::Session => (limits.sessions_per_user_max, "open the session", "sessions"),
            Kind::Channel => (limits.channels_per_user_max, "open a channel", "channels"),
            Kind::Connection => {
                let most = limits.connections_per_user_max;
                (most, "open the tunnel", "connections")
            }
        };
        let full = |who: &str, most: usize| {
            let cause = format!("{who} {most} {what} already, which is the maximum");
            Err(refusal(operation, cause, FULL_RETRY_MS))
        };
        let share = most.div_ceil(NETWORK_SHARE).max(NETWORK_MIN);
        if let Some(network) = network
            && !raise(&mut state.of_networks, (kind, network), share)
        {
            return full("anonymous users of this network have", share);
        }
        if !raise(state.counts(kind), user.to_owned(), most) {
            if let Some(network) = network {
                lower(&mut state.of_networks, (kind, network));
            }
            return full("this user has", most);
        }
        drop(state);
        Ok(Slot {
            shared: Arc::clone(&self.shared),
            kind,
            user: user.to_owned(),
            network,
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, GuardCounts> {
        // Counts are changed in one step, so a panic elsewhere leaves them consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GuardCounts {
    fn counts(&mut self, kind: Kind) -> &mut HashMap<String, usize> {
        match kind {
            Kind::Session => &mut self.sessions,
            Kind::Channel => &mut self.channels,
            Kind::Connection => &mut self.connections,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Channel,
    Connection,
    Session,
}

/// The slot of a user's session or channel. Dropping it releases the slot.
#[must_use = "the place is free again when this is dropped"]
pub struct Slot {
    shared: Arc<Shared>,
    kind: Kind,
    user: String,
    /// Of an anonymous user.
    network: Option<Network>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let user = std::mem::take(&mut self.user);
        let mut state = self.shared.lock();
        lower(state.counts(self.kind), user);
        if let Some(network) = self.network {
            lower(&mut state.of_networks, (self.kind, network));
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, user, .. } = self;
        f.debug_tuple("Slot").field(kind).field(user).finish()
    }
}

/// Increments the count for `key`, unless it is `most`. The tables contain only what is in use.
fn raise<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K, most: usize) -> bool {
    match counts.entry(key) {
        Entry::Occupied(mut count) if *count.get() < most => *count.get_mut() += 1,
        Entry::Vacant(place) if most > 0 => {
            place.insert(1);
        }
        _ => return false,
    }
    true
}

fn lower<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        if *count.get() > 1 {
            *count.get_mut() -= 1;
        } else {
            count.remove();
        }
    }
}

fn refusal(operation: &str, cause: impl Into<String>, wait_ms: u32) -> Fault {
    Fault::new(Code::LimitExceeded, operation, cause)
        .hint(format!("try again in {} s", wait_ms.div_ceil(1000)))
        .retry(Retry::AfterMs(wait_ms))
}

/// Rounded up, so that whoever waits as long as told isn't refused again.
fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
