//! Limits on unauthenticated peers, and penalties for failed proofs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};
use xdfs_security::Method;
use xdfs_security::audit::{Audit, Event, Kind};
use xdfs_security::guard::{Guard, Handshake, Limits, Slot};

use crate::clock::Clock;
use crate::peer::Peer;

#[derive(Debug)]
pub(crate) struct LoginGuard {
    /// Counts the permits held by peers and users.
    places: Guard,
    /// Counts failed proofs. Separate from the permits, because only proofs must wait for failures:
    /// the channels of running sessions come from the same addresses.
    failures: Guard,
    audit: Arc<Audit>,
    clock: Arc<dyn Clock>,
    started: Instant,
}

impl LoginGuard {
    pub(crate) fn new(limits: Limits, audit: Arc<Audit>, clock: Arc<dyn Clock>) -> Self {
        Self {
            places: Guard::new(limits),
            failures: Guard::new(Limits {
                handshakes_max: usize::MAX,
                handshakes_per_address_max: usize::MAX,
                ..limits
            }),
            audit,
            started: clock.instant(),
            clock,
        }
    }

    /// Changes the limits; what is counted stays.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.places.set_limits(limits);
    }

    /// The time used by the guards.
    fn elapsed(&self) -> Duration {
        self.clock.instant().saturating_duration_since(self.started)
    }

    /// Takes the permit of an unauthenticated peer.
    pub(crate) fn handshake(&self, peer: &Peer) -> Result<Handshake, Fault> {
        self.places.begin(peer.address, self.elapsed())
    }

    /// Takes the permits of a session and of its first channel.
    pub(crate) fn session(&self, user: &str) -> Result<[Slot; 2], Fault> {
        Ok([self.places.session(user)?, self.places.channel(user)?])
    }

    /// Takes the permit of a further channel.
    pub(crate) fn channel(&self, user: &str) -> Result<Slot, Fault> {
        self.places.channel(user)
    }

    /// Takes the permit of a connection through a tunnel.
    pub(crate) fn connection(&self, user: &str) -> Result<Slot, Fault> {
        self.places.connection(user)
    }

    /// Refuses any evidence from an address that must wait after failures: an answer to a guess
    /// would be worth the wait.
    pub(crate) fn check_failures(&self, peer: &Peer) -> Result<(), Fault> {
        let begun = self.failures.begin(peer.address, self.elapsed());
        begun.map(drop)
    }

    /// Likewise for passwords of a user with too many failed guesses.
    pub(crate) fn check_guesses(&self, peer: &Peer, user: &str) -> Result<(), Fault> {
        self.check_failures(peer)?;
        let now = self.elapsed();
        self.failures.may_guess(peer.address, user, now)
    }

    /// Clears the failures of a peer that requested the name `wanted` and was authenticated as
    /// `user`.
    pub(crate) fn succeeded(&self, peer: &Peer, wanted: &str, user: &str) {
        self.failures.succeeded(peer.address, wanted, user);
    }

    /// Counts a proof that was begun and never finished.
    pub(crate) fn abandoned(&self, peer: &Peer, user: &str) {
        let now = self.elapsed();
        self.failures.failed(peer.address, user, now);
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
        // Faults of the server itself are no failed guesses.
        if fault.code == Code::AuthenticationFailed {
            let now = self.elapsed();
            self.failures.failed(peer.address, user, now);
            if method == Some(Method::Password) {
                self.failures.guessed(user, now);
            }
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
