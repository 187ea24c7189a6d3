//! The front door of xDFS: turns the proofs of the opening exchange into evidence, and admissions
//! into grants for the engine.

use std::path::PathBuf;
use std::sync::Arc;

use xdfs_access::{Access, Admission, Evidence, PasswordExchange, Peer, Tickets};
use xdfs_engine::{Gate, PeerGuard, Proof, Verdict};
use xdfs_proto::frame::AuthRequest;
use xdfs_proto::{Code, Fault};
use xdfs_security::identity::{Fingerprint, Reloading};
use xdfs_security::{Method, Principal};
use xdfs_xio::Protection;
use xdfs_xio::tls::Configs;

use super::settings::ServerSecurity;

/// The gate of a server's acceptor.
#[derive(Debug)]
pub(crate) struct SecureGate {
    methods: Vec<u8>,
    takes_clear: bool,
    access: Arc<Access>,
    identity: Arc<Reloading>,
}

impl SecureGate {
    /// Loads or creates the files of the settings. `root` is served if there are no exports,
    /// restricted by `read_only`.
    pub(crate) fn new(
        settings: ServerSecurity,
        root: PathBuf,
        read_only: bool,
    ) -> Result<Self, Fault> {
        let takes_clear = settings.takes_clear;
        let (parts, identity) = settings.load(root, read_only)?;
        let access = Access::new(parts)?;
        let methods = access.methods().iter();
        Ok(Self {
            methods: methods.map(|method| method.number()).collect(),
            takes_clear,
            access: Arc::new(access),
            identity: Arc::new(identity),
        })
    }

    /// Configuration of the driver `tls` for channels of clients: each channel gets the current
    /// one.
    pub(crate) fn tls(&self) -> Configs {
        let identity = Arc::clone(&self.identity);
        Configs {
            client: None,
            server: Some(Arc::new(move || identity.current())),
        }
    }

    /// Fingerprint of the server's key.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.identity.fingerprint()
    }

    /// Issues tickets.
    pub(crate) fn tickets(&self) -> Tickets {
        self.access.tickets()
    }
}

impl Gate for SecureGate {
    fn methods(&self) -> &[u8] {
        &self.methods
    }

    fn takes_clear(&self) -> bool {
        self.takes_clear
    }

    fn admit_connection(&self, peer: &str) -> Result<PeerGuard, Fault> {
        let permit = self.access.admit_connection(&peer_of(peer))?;
        Ok(PeerGuard(Box::new(permit)))
    }

    fn join(&self, user: &str) -> Result<PeerGuard, Fault> {
        let permit = self.access.join(user).map_err(|fault| Fault {
            // With this code a client continues with the channels it has.
            code: Code::TooManyChannels,
            ..fault
        })?;
        Ok(PeerGuard(Box::new(permit)))
    }

    fn begin(
        &self,
        peer: &str,
        protection: &Protection,
        request: &AuthRequest,
    ) -> Result<Verdict, Fault> {
        let (access, peer) = (&self.access, peer_of(peer));
        let AuthRequest { method, user, body } = request;
        let binding = &protection.binding;
        let evidence = match Method::from_number(*method) {
            Some(Method::Anonymous) => Evidence::Anonymous,
            Some(Method::Certificate) => Evidence::Certificate(&protection.peer_certificates),
            Some(Method::Key) => Evidence::Key {
                proof: body,
                binding,
            },
            Some(Method::Ticket) => Evidence::Ticket {
                proof: body,
                binding,
            },
            Some(Method::Token) => Evidence::Token(body),
            Some(Method::Password) => {
                let (challenge, exchange) = access.challenge(&peer, user, binding, body)?;
                let access = Arc::clone(access);
                let proof = Box::new(PasswordProof {
                    access,
                    peer,
                    exchange,
                });
                return Ok(Verdict::Challenge(challenge, proof));
            }
            _ => {
                let cause = format!("the method {method} is not taken here");
                let fault = Fault::new(Code::AuthenticationFailed, "authenticate", cause);
                return Err(access.refuse(&peer, user, fault));
            }
        };
        let principal = access.authenticate(&peer, user, evidence)?;
        admit(access, &peer, &principal)
    }
}

fn admit(access: &Access, peer: &Peer, principal: &Principal) -> Result<Verdict, Fault> {
    let Admission {
        user,
        store,
        ids,
        rate,
        permit,
    } = access.admit(peer, principal)?;
    Ok(Verdict::Admitted(xdfs_engine::SessionGrant {
        user,
        store,
        guard: PeerGuard(Box::new(permit)),
        ids,
        rate,
    }))
}

/// A password proof in progress.
#[derive(Debug)]
struct PasswordProof {
    access: Arc<Access>,
    peer: Peer,
    exchange: PasswordExchange,
}

impl Proof for PasswordProof {
    fn step(self: Box<Self>, body: &[u8]) -> Result<Verdict, Fault> {
        let principal = self.exchange.finish(body)?;
        admit(&self.access, &self.peer, &principal)
    }
}

/// The audit log doesn't name this front door.
fn peer_of(peer: &str) -> Peer {
    Peer::new("", peer)
}

#[cfg(test)]
mod tests;
