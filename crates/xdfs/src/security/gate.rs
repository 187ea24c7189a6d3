//! The front door of xDFS: turns the proofs of the opening exchange into evidence, and admissions
//! into grants for the engine.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use xdfs_access::{Access, Admission, Evidence, Login, PasswordExchange, Peer, Tickets};
use xdfs_engine::{Gate, PeerGuard, Proof, Standing, Verdict};
use xdfs_proto::frame::AuthRequest;
use xdfs_proto::{Code, Fault};
use xdfs_security::Method;
use xdfs_security::export::Exports;
use xdfs_security::identity::{Fingerprint, Reloading};
use xdfs_security::tunnel::TunnelRules;
use xdfs_xio::Protection;
use xdfs_xio::tls::{Configs, StableSecret};

use super::settings::ServerSecurity;
use super::tunnels::{CurrentAccess, TunnelsByRules};

/// The gate of a server's acceptor.
#[derive(Debug)]
pub(crate) struct SecureGate {
    current: CurrentRules,
}

/// The current settings; [`SecureGate::reload`] replaces them.
type CurrentRules = Arc<RwLock<Arc<Rules>>>;

impl CurrentAccess for CurrentRules {
    fn access(&self) -> Arc<Access> {
        Arc::clone(&rules(self).access)
    }
}

/// Finds the current settings and the certificate for the door of GridFTP.
#[derive(Debug)]
struct GridftpAccess(CurrentRules);

impl xdfs_gridftp::door::CurrentAccess for GridftpAccess {
    fn access(&self) -> Arc<Access> {
        Arc::clone(&rules(&self.0).access)
    }

    fn takes_clear(&self) -> bool {
        rules(&self.0).takes_clear
    }

    fn tls(&self) -> Arc<rustls::ServerConfig> {
        rules(&self.0).identity.current()
    }
}

/// The settings in use.
#[derive(Debug)]
struct Rules {
    methods: Vec<u8>,
    takes_clear: bool,
    access: Arc<Access>,
    exports: Exports,
    identity: Reloading,
}

impl Rules {
    fn new(takes_clear: bool, exports: Exports, access: Access, identity: Reloading) -> Arc<Self> {
        let methods = access.methods().iter();
        Arc::new(Self {
            methods: methods.map(|method| method.number()).collect(),
            takes_clear,
            access: Arc::new(access),
            exports,
            identity,
        })
    }
}

fn rules(current: &CurrentRules) -> Arc<Rules> {
    // It is replaced in one step, so a panic elsewhere leaves it consistent.
    Arc::clone(&current.read().unwrap_or_else(PoisonError::into_inner))
}

impl SecureGate {
    /// Loads or creates the files of the settings. `root` is served if there are no exports,
    /// restricted by `read_only`.
    pub(crate) fn new(
        settings: ServerSecurity,
        root: PathBuf,
        read_only: bool,
        tunnels: TunnelRules,
    ) -> Result<Self, Fault> {
        let takes_clear = settings.takes_clear;
        let (mut parts, identity) = settings.load(root, read_only)?;
        parts.tunnels = tunnels;
        let exports = parts.exports.clone();
        let rules = Rules::new(takes_clear, exports, Access::new(parts)?, identity);
        Ok(Self {
            current: Arc::new(RwLock::new(rules)),
        })
    }

    /// What is served now.
    pub(crate) fn exports(&self) -> Exports {
        rules(&self.current).exports.clone()
    }

    /// Uses other settings from now on, with the folder and the audit log of before. Sessions stay
    /// as they are: their [`Standing`]s tell which ones the new settings admit.
    ///
    /// # Errors
    /// The settings can't be used. The old ones stay in effect.
    pub(crate) fn reload(
        &self,
        mut settings: ServerSecurity,
        root: PathBuf,
        read_only: bool,
        tunnels: TunnelRules,
    ) -> Result<(), Fault> {
        settings.audit = None;
        let takes_clear = settings.takes_clear;
        let (mut parts, identity) = settings.load(root, read_only)?;
        parts.tunnels = tunnels;
        let exports = parts.exports.clone();
        let access = rules(&self.current).access.renewed(parts)?;
        let renewed = Rules::new(takes_clear, exports, access, identity);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = renewed;
        Ok(())
    }

    /// Configuration of the driver `tls` for channels of clients: each channel gets the current
    /// one.
    pub(crate) fn tls(&self) -> Configs {
        let current = Arc::clone(&self.current);
        let secret = *rules(&current).identity.derived_secret();
        Configs {
            client: None,
            server: Some(Arc::new(move || rules(&current).identity.current())),
            secret: Some(StableSecret::new(secret)),
        }
    }

    /// The same users and rules for the door of GridFTP.
    pub(crate) fn gridftp(&self) -> Arc<dyn xdfs_gridftp::door::CurrentAccess> {
        Arc::new(GridftpAccess(Arc::clone(&self.current)))
    }

    /// Fingerprint of the server's key.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        rules(&self.current).identity.fingerprint()
    }

    /// Issues tickets.
    pub(crate) fn tickets(&self) -> Tickets {
        rules(&self.current).access.tickets()
    }

    /// The calls of file systems that are going on.
    pub(crate) fn ongoing(&self) -> Arc<xdfs_access::Ongoing> {
        rules(&self.current).access.ongoing()
    }
}

impl Gate for SecureGate {
    fn methods(&self) -> Vec<u8> {
        rules(&self.current).methods.clone()
    }

    fn takes_clear(&self) -> bool {
        rules(&self.current).takes_clear
    }

    fn has_tunnels(&self) -> bool {
        !rules(&self.current).access.tunnels().is_empty()
    }

    fn join(&self, peer: &str, user: &str) -> Result<PeerGuard, Fault> {
        let access = &rules(&self.current).access;
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
        let rules = rules(&self.current);
        let (access, peer) = (&rules.access, peer_of(peer));
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
        admit(access, &self.current, &peer, &login)
    }
}

fn admit(
    access: &Arc<Access>,
    current: &CurrentRules,
    peer: &Peer,
    login: &Login,
) -> Result<Verdict, Fault> {
    let Admission {
        user,
        store,
        ids,
        rate,
        tunnels,
        standing,
        permit,
    } = access.admit(peer, login)?;
    let current_access: Box<dyn CurrentAccess> = Box::new(Arc::clone(current));
    let tunnels = TunnelsByRules::new(tunnels, current_access);
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
    current: CurrentRules,
}

impl Standing for SessionStanding {
    fn withdrawn(&self) -> Option<&'static str> {
        let access = &rules(&self.current).access;
        match Arc::ptr_eq(access, &self.admitted_by) {
            true => None,
            false => access.withdrawn(&self.standing),
        }
    }
}

/// A password proof in progress.
#[derive(Debug)]
struct PasswordProof {
    access: Arc<Access>,
    current: CurrentRules,
    peer: Peer,
    exchange: PasswordExchange,
}

impl Proof for PasswordProof {
    fn step(self: Box<Self>, body: &[u8]) -> Result<Verdict, Fault> {
        let login = self.exchange.finish(body)?;
        admit(&self.access, &self.current, &self.peer, &login)
    }
}

/// The audit log doesn't name this front door.
fn peer_of(peer: &str) -> Peer {
    Peer::new("", peer)
}

#[cfg(test)]
mod tests;
