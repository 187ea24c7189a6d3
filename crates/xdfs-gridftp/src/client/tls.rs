//! TLS of one control connection and its data connections (RFC 4217): in all of them this side is
//! the client.
//!
//! Data connections resume the session of the control connection, which many servers require, and
//! this side too where the server gives tickets, since it proves whose they are. Each takes a
//! ticket that nobody has used before: so those that come are kept, and a connection that has none
//! left is given up for a new one.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::{
    ClientSessionStore, Resumption, TicketRequest, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, NamedGroup};

use crate::wire::{Demand, Wire};

/// The name of FTP in handshakes (registered by IANA for ALPN), so that no server of another
/// protocol is led to answer.
const ALPN: &[u8] = b"ftp";
/// Most tickets that are kept of one control connection.
const TICKETS_MAX: usize = 128;
/// Tickets that are asked for beside one for each of the most data connections of a transfer.
const SPARE_TICKETS: u8 = 4;

/// How a server proves itself in TLS.
#[derive(Clone)]
pub struct Tls {
    /// Whom to trust, and which versions to speak. Names of protocols, tickets and sessions are
    /// chosen here.
    pub config: Arc<ClientConfig>,
    /// The name that the server has to prove.
    pub name: ServerName<'static>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct SessionTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    tickets: Arc<Tickets>,
    /// That of the control connection.
    certificate: Option<CertificateDer<'static>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish()
    }
}

impl SessionTls {
    /// TLS for a new control connection, whose transfers have at most so many data connections.
    pub(super) fn new(tls: &Tls, channels: u32) -> Self {
        let tickets = Arc::<Tickets>::default();
        let mut config = ClientConfig::clone(&tls.config);
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::store(Arc::clone(&tickets) as Arc<dyn ClientSessionStore>);
        let wanted = u8::try_from(channels).unwrap_or(u8::MAX);
        config.send_ticket_request = Some(TicketRequest {
            new_session_count: wanted.saturating_add(SPARE_TICKETS),
            resumption_count: 2,
        });
        config.enable_early_data = false;
        config.enable_secret_extraction = false;
        Self {
            config: Arc::new(config),
            name: tls.name.clone(),
            tickets,
            certificate: None,
        }
    }

    fn connection(&self) -> io::Result<ClientConnection> {
        let made = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        made.map_err(io::Error::other)
    }

    /// Protects the control connection.
    ///
    /// # Errors
    /// The configuration can't be used.
    pub(super) fn protect_control(&self, wire: &mut Wire) -> io::Result<()> {
        wire.protect(self.connection()?, Demand::None);
        Ok(())
    }

    /// Takes note of what the control connection has proved.
    pub(super) fn established(&mut self, control: &Wire) {
        self.certificate = control.certificate().cloned();
    }

    /// Protects a data connection, whose server has to be that of the control connection: with a
    /// ticket of it that connection has to resume its session, as one of another user's session
    /// with the same server can't. From a server that gives none, the same certificate has to do.
    ///
    /// # Errors
    /// The configuration can't be used, or nothing is proved yet.
    pub(super) fn protect_data(&self, wire: &mut Wire) -> io::Result<()> {
        let certificate = self.certificate.clone();
        let certificate = certificate
            .ok_or_else(|| io::Error::other("the control connection has shown no certificate"))?;
        let demand = match self.tickets.state().kept.is_empty() {
            true => Demand::Shown(certificate),
            false => Demand::Resumed,
        };
        wire.protect(self.connection()?, demand);
        Ok(())
    }

    /// Whether the server has given tickets, and none is left.
    pub(super) fn is_used_up(&self) -> bool {
        let state = self.tickets.state();
        state.has_come && state.kept.is_empty()
    }
}

/// The tickets of one server. Whoever has one can resume its session, and none is used twice.
#[derive(Default)]
struct Tickets(Mutex<State>);

#[derive(Default)]
struct State {
    kept: VecDeque<Tls13ClientSessionValue>,
    has_come: bool,
    group: Option<NamedGroup>,
}

impl Tickets {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tickets({})", self.state().kept.len())
    }
}

/// There is one server, so its name doesn't matter, and TLS 1.2 isn't spoken.
impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.state().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.state().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut state = self.state();
        state.has_come = true;
        if state.kept.len() == TICKETS_MAX {
            state.kept.pop_front();
        }
        state.kept.push_back(ticket);
    }

    /// The newest, which the server knows for the longest time to come.
    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.state().kept.pop_back()
    }
}
