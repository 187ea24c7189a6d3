//! The front door of xDFS: turns the proofs of the opening exchange into evidence, and admissions
//! into grants for the engine.

use std::sync::Arc;

use xdfs_access::{Access, Admission, CurrentAccess, Evidence, Login, PasswordExchange, Peer};
use xdfs_engine::{Gate, PeerGuard, Proof, Standing, Verdict};
use xdfs_proto::frame::AuthRequest;
use xdfs_proto::{Code, Fault};
use xdfs_security::Method;
use xdfs_store::Store;
use xdfs_xio::Protection;
use xdfs_xio::tls::{Configs, StableSecret};

use super::tunnels::TunnelsByRules;
use crate::relay::{Relay, RelayStore};
use crate::third_party::{Copies, ThirdPartyStore};

/// The gate of a server's acceptor.
#[derive(Debug)]
pub(crate) struct SecureGate {
    current: Arc<dyn CurrentAccess>,
    errands: Errands,
}

/// What the server does for its users at other servers.
#[derive(Clone, Debug)]
struct Errands {
    copies: Arc<Copies>,
    relay: Option<Arc<Relay>>,
}

/// Configuration of the driver `tls` for channels of clients: each channel gets the certificate
/// that is current.
///
/// # Errors
/// The server's key can't be read.
pub(crate) fn server_tls(current: Arc<dyn CurrentAccess>) -> Result<Configs, Fault> {
    let secret = *current.identity()?.derived_secret();
    Ok(Configs {
        client: None,
        server: Some(Arc::new(move || current.tls())),
        secret: Some(StableSecret::new(secret)),
    })
}

impl SecureGate {
    /// Admits by these rules, to a server that may be a relay.
    pub(crate) fn new(current: Arc<dyn CurrentAccess>, relay: Option<Arc<Relay>>) -> Self {
        let copies = Arc::default();
        Self {
            current,
            errands: Errands { copies, relay },
        }
    }
}

impl Gate for SecureGate {
    fn methods(&self) -> Vec<u8> {
        let access = self.current.access();
        let methods = access.methods().iter();
        methods.map(|method| method.number()).collect()
    }

    fn takes_clear(&self) -> bool {
        self.current.takes_clear()
    }

    fn has_tunnels(&self) -> bool {
        !self.current.access().tunnels().is_empty()
    }

    fn join(&self, peer: &str, user: &str) -> Result<PeerGuard, Fault> {
        let access = self.current.access();
        let permit = access
            .join(&Peer::new("", peer), user)
            .map_err(|fault| Fault {
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
        let (access, peer) = (&self.current.access(), peer_of(peer));
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
                let current = Arc::clone(&self.current);
                let proof = Box::new(PasswordProof {
                    access,
                    current,
                    errands: self.errands.clone(),
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
        let login = access.authenticate(&peer, user, evidence)?;
        admit(access, &self.current, &self.errands, &peer, &login)
    }
}

fn admit(
    access: &Arc<Access>,
    current: &Arc<dyn CurrentAccess>,
    errands: &Errands,
    peer: &Peer,
    login: &Login,
) -> Result<Verdict, Fault> {
    let Admission {
        user,
        store,
        ids,
        rate,
        tunnels,
        third_party,
        standing,
        permit,
    } = access.admit(peer, login)?;
    let tunnels = TunnelsByRules::new(tunnels, Arc::clone(current));
    let relay_user = third_party.clone();
    let store = ThirdPartyStore::new(
        store,
        third_party,
        Arc::clone(current),
        Arc::clone(&errands.copies),
        rate.clone(),
    );
    let store: Arc<dyn Store> = match &errands.relay {
        Some(relay) => {
            let store = Arc::new(store);
            Arc::new(RelayStore::new(store, relay_user, Arc::clone(relay)))
        }
        None => Arc::new(store),
    };
    let standing = SessionStanding {
        standing,
        admitted_by: Arc::clone(access),
        current: Arc::clone(current),
    };
    Ok(Verdict::Admitted(xdfs_engine::SessionGrant {
        user,
        store,
        guard: PeerGuard(Box::new(permit)),
        standing: Some(Arc::new(standing)),
        ids,
        rate,
        tunnels: Some(Arc::new(tunnels)),
    }))
}

/// The credentials with which a session was admitted, and the settings at that time.
#[derive(Debug)]
struct SessionStanding {
    standing: xdfs_access::Standing,
    admitted_by: Arc<Access>,
    current: Arc<dyn CurrentAccess>,
}

impl Standing for SessionStanding {
    fn withdrawn(&self) -> Option<&'static str> {
        let access = self.current.access();
        match Arc::ptr_eq(&access, &self.admitted_by) {
            true => None,
            false => access.withdrawn(&self.standing),
        }
    }
}

/// A password proof in progress.
#[derive(Debug)]
struct PasswordProof {
    access: Arc<Access>,
    current: Arc<dyn CurrentAccess>,
    errands: Errands,
    peer: Peer,
    exchange: PasswordExchange,
}

impl Proof for PasswordProof {
    fn step(self: Box<Self>, body: &[u8]) -> Result<Verdict, Fault> {
        let login = self.exchange.finish(body)?;
        admit(
            &self.access,
            &self.current,
            &self.errands,
            &self.peer,
            &login,
        )
    }
}

/// The audit log doesn't name this front door.
fn peer_of(peer: &str) -> Peer {
    Peer::new("", peer)
}

#[cfg(test)]
mod tests;
