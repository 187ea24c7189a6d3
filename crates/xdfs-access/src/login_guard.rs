//! Limits on users, and the waits after wrong passwords.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};
use xdfs_security::Method;
use xdfs_security::audit::{Audit, Event, Kind};
use xdfs_security::guard::{Guard, Limits, Network, Slot};

use crate::clock::Clock;
use crate::peer::Peer;

#[derive(Debug)]
pub(crate) struct LoginGuard {
    guard: Guard,
    audit: Arc<Audit>,
    clock: Arc<dyn Clock>,
    started: Instant,
}

impl LoginGuard {
    pub(crate) fn new(limits: Limits, audit: Arc<Audit>, clock: Arc<dyn Clock>) -> Self {
        Self {
            guard: Guard::new(limits),
            audit,
            started: clock.instant(),
            clock,
        }
    }

    /// Changes the limits; what is counted stays.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.guard.set_limits(limits);
    }

    /// The time used by the guard.
    fn elapsed(&self) -> Duration {
        self.clock.instant().saturating_duration_since(self.started)
    }

    /// Takes the permits of a session and of its first channel.
    pub(crate) fn session(&self, user: &str, network: Network) -> Result<[Slot; 2], Fault> {
        let session = self.guard.session(user, network)?;
        Ok([session, self.guard.channel(user, network)?])
    }

    /// Takes the permit of a further channel.
    pub(crate) fn channel(&self, user: &str, network: Network) -> Result<Slot, Fault> {
        self.guard.channel(user, network)
    }

    /// Takes the permit of a connection through a tunnel.
    pub(crate) fn connection(&self, user: &str, network: Network) -> Result<Slot, Fault> {
        self.guard.connection(user, network)
    }

    /// Refuses passwords of a user who must wait at this address after wrong ones: an answer to a
    /// guess would be worth the wait.
    pub(crate) fn check_guesses(&self, peer: &Peer, user: &str) -> Result<(), Fault> {
        let now = self.elapsed();
        self.guard.may_guess(peer.address, user, now)
    }

    /// Clears the failures of a peer that requested the name `wanted` and was authenticated as
    /// `user`.
    pub(crate) fn succeeded(&self, peer: &Peer, wanted: &str, user: &str) {
        self.guard.succeeded(peer.address, wanted, user);
    }

    /// Counts a challenge that was never answered.
    pub(crate) fn abandoned(&self, peer: &Peer, user: &str) {
        let now = self.elapsed();
        self.guard.failed(peer.address, user, now);
        let method = Some(Method::Password);
        self.record_refusal(peer, user, method, "", Code::ConnectionLost);
    }

    /// Records why a peer that claims to be `user` is refused, and returns the fault. `key` is the
    /// fingerprint of the key that it has shown, or empty.
    pub(crate) fn refused(
        &self,
        peer: &Peer,
        user: &str,
        method: Option<Method>,
        key: &str,
        fault: Fault,
    ) -> Fault {
        // Faults of the server itself are no failed guesses, and nothing but a password can be
        // guessed.
        if fault.code == Code::AuthenticationFailed && method == Some(Method::Password) {
            let now = self.elapsed();
            self.guard.failed(peer.address, user, now);
            self.guard.guessed(user, now);
        }
        self.record_refusal(peer, user, method, key, fault.code);
        fault
    }

    pub(crate) fn record_refusal(
        &self,
        peer: &Peer,
        user: &str,
        method: Option<Method>,
        key: &str,
        code: Code,
    ) {
        // A name has no colon; what follows one is often a password, as in a URL.
        let shown = user.split_once(':').map(|(name, _)| format!("{name}:***"));
        let event = Event {
            door: peer.door,
            user: shown.as_deref().unwrap_or(user),
            method,
            key,
            from: &peer.name,
            result: Some(code),
            ..Event::new(self.clock.time(), Kind::Authenticate)
        };
        self.audit.record_refusal(&event, peer.address);
    }
}
