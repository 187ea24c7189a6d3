//! A password proof in progress.

use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_security::password::PasswordServer;
use xdfs_security::{Binding, Method, Principal};

use crate::login::{Basis, Login};
use crate::login_guard::LoginGuard;
use crate::peer::Peer;

/// A password proof in progress, by challenge and response. If it is never finished, it counts as a
/// failure of the address: otherwise challenges would be free.
#[derive(Debug)]
pub struct PasswordExchange {
    server: PasswordServer,
    binding: Binding,
    claim: Claim,
}

/// The claimed identity.
#[derive(Debug)]
struct Claim {
    guard: Arc<LoginGuard>,
    peer: Peer,
    user: String,
    is_settled: bool,
}

impl PasswordExchange {
    pub(crate) fn new(
        server: PasswordServer,
        binding: Binding,
        guard: Arc<LoginGuard>,
        peer: Peer,
        user: String,
    ) -> Self {
        let claim = Claim {
            guard,
            peer,
            user,
            is_settled: false,
        };
        Self {
            server,
            binding,
            claim,
        }
    }

    /// Checks the response to the challenge.
    ///
    /// # Errors
    /// [`AuthenticationFailed`](xdfs_proto::Code::AuthenticationFailed), or
    /// [`LimitExceeded`](xdfs_proto::Code::LimitExceeded) with a time to wait after failures.
    pub fn finish(self, answer: &[u8]) -> Result<Login, Fault> {
        self.settle(|| Ok(answer.to_vec()))
    }

    /// Checks the response computed by `prove`.
    pub(crate) fn settle(
        self,
        prove: impl FnOnce() -> Result<Vec<u8>, Fault>,
    ) -> Result<Login, Fault> {
        let Self {
            server,
            binding,
            mut claim,
        } = self;
        claim.is_settled = true;
        let Claim {
            guard, peer, user, ..
        } = &claim;
        // Checked again: of many concurrent proofs, all but the first failures must wait.
        guard
            .check_guesses(peer, user)
            .and_then(|()| server.finish(&prove()?, &binding))
            .map_err(|fault| guard.refused(peer, user, Some(Method::Password), "", fault))?;
        guard.succeeded(peer, user, user);
        let principal = Principal {
            user: user.clone(),
            method: Method::Password,
            scopes: Vec::new(),
        };
        let basis = Basis::User;
        Ok(Login { principal, basis })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_settled {
            self.guard.abandoned(&self.peer, &self.user);
        }
    }
}
