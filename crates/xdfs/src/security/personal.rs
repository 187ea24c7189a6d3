//! The gate of a personal server: one user, who serves everything to themselves for a while.
//!
//! It knows nothing but tickets, and keeps nothing: key, certificate and tickets are in memory and
//! end with the server. Whoever has a ticket acts as the process of the server, on paths as that
//! process sees them; the kernel is the only judge. So a ticket is worth what a login as that user
//! is.

use std::sync::Arc;

use rustls::ServerConfig;
use xdfs_access::{SystemClock, Tickets};
use xdfs_engine::tunnel::TunnelRights;
use xdfs_engine::{Gate, PeerGuard, SessionGrant, Verdict};
use xdfs_proto::frame::AuthRequest;
use xdfs_proto::{Code, Fault};
use xdfs_security::Method;
use xdfs_security::guard::{Guard, Limits, Network};
use xdfs_security::identity::{ClientCertificates, Fingerprint, ServerIdentity};
use xdfs_security::ticket::Redeemed;
use xdfs_store::{LocalStore, ServerStore, Store};
use xdfs_xio::Protection;
use xdfs_xio::tls::Configs;

use super::tunnels::TunnelsWithoutUsers;

/// The gate of an acceptor without users.
#[derive(Debug)]
pub(crate) struct PersonalGate {
    takes_clear: bool,
    tickets: Tickets,
    guard: Guard,
    store: Arc<dyn Store>,
    /// To every target: whoever could log in there could connect from there.
    tunnels: Arc<TunnelsWithoutUsers>,
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
}

impl PersonalGate {
    /// Creates the key. `user` is the name that clients are told.
    pub(crate) fn new(user: String, takes_clear: bool, limits: Limits) -> Result<Self, Fault> {
        let identity = ServerIdentity::temporary(&["localhost".to_owned()])?;
        let guard = Guard::new(limits);
        Ok(Self {
            takes_clear,
            tunnels: Arc::new(TunnelsWithoutUsers::personal(user.clone(), guard.clone())),
            tickets: Tickets::new(user, Arc::new(SystemClock)),
            guard,
            store: Arc::new(ServerStore::new(LocalStore::unrooted())),
            config: identity.config(ClientCertificates::None)?,
            fingerprint: identity.fingerprint(),
        })
    }

    /// Configuration of the driver `tls` for channels of clients.
    pub(crate) fn tls(&self) -> Configs {
        let config = Arc::clone(&self.config);
        Configs {
            client: None,
            server: Some(Arc::new(move || Arc::clone(&config))),
            secret: None,
        }
    }

    /// Fingerprint of the server's key.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Issues tickets.
    pub(crate) fn tickets(&self) -> Tickets {
        self.tickets.clone()
    }
}

impl Gate for PersonalGate {
    fn methods(&self) -> Vec<u8> {
        vec![Method::Ticket.number()]
    }

    fn takes_clear(&self) -> bool {
        self.takes_clear
    }

    fn has_tunnels(&self) -> bool {
        true
    }

    fn join(&self, peer: &str, user: &str) -> Result<PeerGuard, Fault> {
        let network = Network::of_peer(peer);
        let slot = self.guard.channel(user, network).map_err(|fault| Fault {
            // With this code a client continues with the channels it has.
            code: Code::TooManyChannels,
            ..fault
        })?;
        Ok(PeerGuard(Box::new(slot)))
    }

    fn begin(
        &self,
        peer: &str,
        protection: &Protection,
        request: &AuthRequest,
    ) -> Result<Verdict, Fault> {
        if request.method != Method::Ticket.number() {
            let cause = "this server takes nothing but its tickets";
            return Err(Fault::new(
                Code::AuthenticationFailed,
                "authenticate",
                cause,
            ));
        }
        // Its own tickets have no scopes, and it issues no capabilities.
        let Redeemed { user, .. } = self.tickets.redeem(&request.body, &protection.binding)?;
        let network = Network::of_peer(peer);
        let session = self.guard.session(&user, network)?;
        let slots = [session, self.guard.channel(&user, network)?];
        Ok(Verdict::Admitted(SessionGrant {
            user,
            store: Arc::clone(&self.store),
            guard: PeerGuard(Box::new(slots)),
            ids: None,
            rate: None,
            standing: None,
            tunnels: Some(Arc::clone(&self.tunnels) as Arc<dyn TunnelRights>),
        }))
    }
}
