//! Limits on unauthenticated peers, and on what users may hold open.
//!
//! A [`Guard`] counts four things: handshakes in progress (in total, and per address), failed
//! proofs of an address, password guesses for a user, and the sessions and channels of a user.
//! Dropping a [`Handshake`] or [`Slot`] decrements its count, so no code path can forget to.
//!
//! After [`Limits::failures_free`] failures an address must wait: one second, then two, then four,
//! up to five minutes. Fifteen minutes without a failure clear them. Successful authentication
//! clears the failures of this address for this user, and not those for others: one's own account
//! must not help to guess those of others. A login without a user name clears nothing. An IPv6
//! address counts as its /64 network, since whoever has one address there has them all.
//!
//! After [`Limits::guesses_free`] wrong passwords from any addresses, a user must wait before the
//! next one is checked: eight seconds at most, so that nobody is locked out for good. This applies
//! only to passwords, and not to addresses from which this user has logged in before
//! ([`Guard::succeeded`]).
//!
//! It doesn't limit the duration of a handshake: its owner has a deadline for that.

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

use xdfs_proto::{Code, Fault, Retry};

use crate::AUTHENTICATE;
pub(crate) use failures::Network;
use failures::{Failures, UserHash};
use familiar::Familiar;

/// Suggested retry delay when a limit is reached, in milliseconds.
const FULL_RETRY_MS: u32 = 1000;
/// Maximum delay of an address.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Maximum delay of a user: at most ten thousand guesses a day, and only a nuisance for a user at a
/// new address.
const USER_WAIT_MAX: Duration = Duration::from_secs(8);

/// The limits of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent handshakes.
    pub handshakes_max: usize,
    /// Maximum number of concurrent handshakes per address.
    pub handshakes_per_address_max: usize,
    /// Failures of an address without a delay, including the one that causes the first delay.
    pub failures_free: u32,
    /// Wrong passwords for a user, from all addresses, before the user must wait.
    pub guesses_free: u32,
    /// Number of addresses with remembered failures; also of users, and of familiar pairs of both.
    pub addresses_max: usize,
    /// Maximum number of concurrent sessions per user.
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
            handshakes_max: 256,
            handshakes_per_address_max: 32,
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
    handshakes: usize,
    by_network: HashMap<Network, usize>,
    failures: Failures<Network>,
    guesses: Failures<UserHash>,
    familiar: Familiar,
    sessions: HashMap<String, usize>,
    channels: HashMap<String, usize>,
    connections: HashMap<String, usize>,
}

impl Guard {
    /// A guard without any counts.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let state = GuardCounts {
            limits,
            handshakes: 0,
            by_network: HashMap::new(),
            failures: Failures::new(limits.failures_free, limits.addresses_max, WAIT_MAX),
            guesses: Failures::new(limits.guesses_free, limits.addresses_max, USER_WAIT_MAX),
            familiar: Familiar::new(limits.addresses_max),
            sessions: HashMap::new(),
            channels: HashMap::new(),
            connections: HashMap::new(),
        };
        Self {
            shared: Arc::new(Shared {
                names: RandomState::new(),
                state: Mutex::new(state),
            }),
        }
    }

    /// Changes the numbers of concurrent handshakes, sessions and channels. Whoever is above them
    /// keeps what it has. Failures are counted and remembered as before.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.lock().limits = limits;
    }

    /// Takes a slot for a handshake with a peer at `address`; `now` is monotonic time since some
    /// fixed moment.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with the time to wait: the address has failed too often, or too many
    /// handshakes are in progress.
    pub fn begin(&self, address: IpAddr, now: Duration) -> Result<Handshake, Fault> {
        let network = Network::of(address);
        let mut state = self.shared.lock();
        let limits = state.limits;
        if let Some(wait) = state.failures.wait(network, now) {
            let cause = "too many attempts from this address failed";
            return Err(refusal(AUTHENTICATE, cause, milliseconds(wait)));
        }
        if state.handshakes >= limits.handshakes_max {
            let cause = "too many peers are authenticating at this moment";
            return Err(refusal(AUTHENTICATE, cause, FULL_RETRY_MS));
        }
        if !raise(
            &mut state.by_network,
            network,
            limits.handshakes_per_address_max,
        ) {
            let cause = "too many handshakes from this address are running";
            return Err(refusal(AUTHENTICATE, cause, FULL_RETRY_MS));
        }
        state.handshakes += 1;
        drop(state);
        Ok(Handshake {
            shared: Arc::clone(&self.shared),
            network,
        })
    }

    /// Records that a peer at `address` failed to prove that it is `user`, and returns the
    /// resulting delay of the address; zero while failures are free.
    pub fn failed(&self, address: IpAddr, user: &str, now: Duration) -> Duration {
        let (network, user) = (Network::of(address), self.shared.names.hash_one(user));
        let mut state = self.shared.lock();
        state.failures.add(network, user, now);
        state.failures.wait(network, now).unwrap_or_default()
    }

    /// Records a wrong password for `user`, beside the failure of the address.
    pub fn guessed(&self, user: &str, now: Duration) {
        let user = self.shared.names.hash_one(user);
        self.shared.lock().guesses.add(user, user, now);
    }

    /// Checks whether a password for `user` from `address` may be verified now.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with the time to wait: there were too many wrong passwords from any
    /// addresses, and the user has never logged in from this one.
    pub fn may_guess(&self, address: IpAddr, user: &str, now: Duration) -> Result<(), Fault> {
        let (network, user) = (Network::of(address), self.shared.names.hash_one(user));
        let state = self.shared.lock();
        match state.guesses.wait(user, now) {
            Some(wait) if !state.familiar.contains(network, user) => {
                let cause = "too many wrong passwords of this user came in";
                let mut fault = refusal(AUTHENTICATE, cause, milliseconds(wait));
                fault.hint += ", or come with a key";
                Err(fault)
            }
            _ => Ok(()),
        }
    }

    /// Records that a peer at `address` that requested `wanted` (possibly empty) was authenticated
    /// as `user`: clears the failures of this address for them, and makes the user familiar there.
    /// Not to be called for anonymous peers.
    pub fn succeeded(&self, address: IpAddr, wanted: &str, user: &str) {
        let network = Network::of(address);
        let hash = |name: &str| self.shared.names.hash_one(name);
        let mut state = self.shared.lock();
        state.failures.forgive(network, hash(wanted));
        state.failures.forgive(network, hash(user));
        state.familiar.add(network, hash(user));
    }

    /// Takes a slot for a session of `user`.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait.
    pub fn session(&self, user: &str) -> Result<Slot, Fault> {
        self.slot(Kind::Session, user)
    }

    /// Takes a slot for a channel of `user`.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait.
    pub fn channel(&self, user: &str) -> Result<Slot, Fault> {
        self.slot(Kind::Channel, user)
    }

    /// Takes a slot for a connection of `user` through a tunnel.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait.
    pub fn connection(&self, user: &str) -> Result<Slot, Fault> {
        self.slot(Kind::Connection, user)
    }

    fn slot(&self, kind: Kind, user: &str) -> Result<Slot, Fault> {
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
        if !raise(state.counts(kind), user.to_owned(), most) {
            let cause = format!("this user has {most} {what} already, which is the maximum");
            return Err(refusal(operation, cause, FULL_RETRY_MS));
        }
        drop(state);
        Ok(Slot {
            shared: Arc::clone(&self.shared),
            kind,
            user: user.to_owned(),
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

#[derive(Clone, Copy, Debug)]
enum Kind {
    Channel,
    Connection,
    Session,
}

/// The slot of a handshake in progress. Dropping it releases the slot.
#[must_use = "the place is free again when this is dropped"]
pub struct Handshake {
    shared: Arc<Shared>,
    network: Network,
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.handshakes = state.handshakes.saturating_sub(1);
        lower(&mut state.by_network, self.network);
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handshake").field(&self.network).finish()
    }
}

/// The slot of a user's session or channel. Dropping it releases the slot.
#[must_use = "the place is free again when this is dropped"]
pub struct Slot {
    shared: Arc<Shared>,
    kind: Kind,
    user: String,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let user = std::mem::take(&mut self.user);
        lower(self.shared.lock().counts(self.kind), user);
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
