//! Tickets issued while a server runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xdfs_proto::Fault;
use xdfs_security::Binding;
use xdfs_security::ticket::{Capability, Redeemed, TicketBox};

use crate::clock::Clock;

/// Issues tickets: secrets with which a peer can log in a limited number of times.
#[derive(Clone)]
pub struct Tickets {
    tickets: Arc<Mutex<TicketBox>>,
    owner: String,
    clock: Arc<dyn Clock>,
}

impl Tickets {
    /// An issuer without tickets, for the user `owner`.
    #[must_use]
    pub fn new(owner: String, clock: Arc<dyn Clock>) -> Self {
        Self {
            tickets: Arc::default(),
            owner,
            clock,
        }
    }

    /// Issues a ticket for the owner of the server, valid for `uses` sessions within `life`.
    ///
    /// # Errors
    /// `life` is not between a second and 30 days, or too many tickets are outstanding.
    pub fn issue(&self, life: Duration, uses: u32) -> Result<String, Fault> {
        let (now, life_s) = (self.clock.unix_s(), life.as_secs());
        let mut tickets = self.lock();
        let text = tickets.issue_for_uses(&self.owner, Vec::new(), now, life_s, uses)?;
        Ok(text.as_str().to_owned())
    }

    /// Issues a capability of `user`, valid for one session within `life`.
    ///
    /// # Errors
    /// Those of [`issue`](Self::issue).
    pub fn issue_capability(
        &self,
        user: &str,
        capability: Capability,
        life: Duration,
    ) -> Result<String, Fault> {
        let (now, life_s) = (self.clock.unix_s(), life.as_secs());
        let text = self
            .lock()
            .issue_capability(user, capability, now, life_s)?;
        Ok(text.as_str().to_owned())
    }

    /// Checks the proof of a ticket on the channel with this `binding`, and consumes one use.
    /// Returns its rights.
    ///
    /// # Errors
    /// [`Code::AuthenticationFailed`](xdfs_proto::Code::AuthenticationFailed), always with the same
    /// text.
    pub fn redeem(&self, proof: &[u8], binding: &Binding) -> Result<Redeemed, Fault> {
        let now = self.clock.unix_s();
        self.lock().redeem(proof, binding, now)
    }

    fn lock(&self) -> MutexGuard<'_, TicketBox> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}
