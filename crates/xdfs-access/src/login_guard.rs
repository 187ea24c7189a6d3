//! What peers cost that aren't known yet, and what failing costs them.

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
    /// Counts what peers and users hold open.
    places: Guard,
    /// Counts failed proofs. Apart from the other, because only proofs have to wait for them: the
    /// channels of sessions that run come from the same addresses.
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

    /// The time by which the guards count.
    fn elapsed(&self) -> Duration {
        self.clock.instant().saturating_duration_since(self.started)
    }

    /// Takes the place of a peer that isn't known yet.
    pub(crate) fn handshake(&self, peer: &Peer) -> Result<Handshake, Fault> {
        self.places.begin(peer.address, self.elapsed())
    }

    /// Takes the places of a session and of its first channel.
    pub(crate) fn session(&self, user: &str) -> Result<[Slot; 2], Fault> {
        Ok([self.places.session(user)?, self.places.channel(user)?])
    }

    /// Takes the place of a further channel.
    pub(crate) fn channel(&self, user: &str) -> Result<Slot, Fault> {
        self.places.channel(user)
    }

    /// Refuses a peer whose address has to wait after failures, whatever it comes with: an answer
    /// to a guess would be worth the wait.
    pub(crate) fn check_failures(&self, peer: &Peer) -> Result<(), Fault> {
        let begun = self.failures.begin(peer.address, self.elapsed());
        begun.map(drop)
    }

    /// Likewise a password of a user at whom too many were guessed.
    pub(crate) fn check_guesses(&self, peer: &Peer, user: &str) -> Result<(), Fault> {
        self.check_failures(peer)?;
        let now = self.elapsed();
        self.failures.may_guess(peer.address, user, now)
    }

    /// Forgives a peer that asked for the name `wanted` and proved to be `user`.
    pub(crate) fn succeeded(&self, peer: &Peer, wanted: &str, user: &str) {
        self.failures.succeeded(peer.address, wanted, user);
    }

    /// Notes that a proof was begun and never finished.
    pub(crate) fn abandoned(&self, peer: &Peer, user: &str) {
        let now = self.elapsed();
        self.failures.failed(peer.address, user, now);
        let method = Some(Method::Password);
        self.record_refusal(peer, user, method, Code::ConnectionLost);
    }

    /// Notes why a peer that claims to be `user` is refused, and returns that.
    pub(crate) fn refused(
        &self,
        peer: &Peer,
        user: &str,
        method: Option<Method>,
        fault: Fault,
    ) -> Fault {
        // Faults of the server itself are no guesses of the peer.
        if fault.code == Code::AuthenticationFailed {
            let now = self.elapsed();
            self.failures.failed(peer.address, user, now);
            if method == Some(Method::Password) {
                self.failures.guessed(user, now);
            }
        }
        self.record_refusal(peer, user, method, fault.code);
        fault
    }

    pub(crate) fn record_refusal(
        &self,
        peer: &Peer,
        user: &str,
        method: Option<Method>,
        code: Code,
    ) {
        let event = Event {
            door: peer.door,
            user,
            method,
            from: &peer.name,
            result: Some(code),
            ..Event::new(self.clock.time(), Kind::Authenticate)
        };
        self.audit.record_refusal(&event, peer.address);
    }
}
