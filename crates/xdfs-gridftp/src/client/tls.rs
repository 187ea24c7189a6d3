//! TLS of one control connection and its data connections (RFC 4217): in all of them this side is
//! the client.
//!
//! Data connections resume the session of the control connection, which many servers require, and
//! this side too where the server gives tickets, since it proves whose they are. With TLS 1.3 each
//! takes a ticket that nobody has used before: so those that come are kept, and a connection that
//! has none left is given up for a new one. With TLS 1.2 all of them resume the session of the
//! control connection itself, until it is old.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
/// Age up to which a session of TLS 1.2 is resumed: servers keep them for half an hour or longer.
const SESSION_AGE_MAX: Duration = Duration::from_secs(600);
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
        self.tickets.state().is_established = true;
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
        let state = self.tickets.state();
        let (has_any, was_resumed) = (state.has_any(), state.was_resumed);
        drop(state);
        let demand = match has_any {
            true => Demand::Resumed { was_resumed },
            false => Demand::Shown(certificate),
        };
        wire.protect(self.connection()?, demand);
        Ok(())
    }

    /// A data connection has resumed the session.
    pub(super) fn note_resumed(&self) {
        self.tickets.state().was_resumed = true;
    }

    /// Whether the server has given tickets, and none is left, or its session is old.
    pub(super) fn is_used_up(&self) -> bool {
        let state = self.tickets.state();
        match &state.session {
            Some((_, came)) => came.elapsed() > SESSION_AGE_MAX,
            None => state.has_come && state.kept.is_empty(),
        }
    }
}

/// The tickets of one control connection, or its session of TLS 1.2. Whoever has one can resume its
/// session, and no ticket of TLS 1.3 is used twice.
#[derive(Default)]
struct Tickets(Mutex<State>);

#[derive(Default)]
struct State {
    kept: VecDeque<Tls13ClientSessionValue>,
    has_come: bool,
    /// That of TLS 1.2, and when it began.
    session: Option<(Tls12ClientSessionValue, Instant)>,
    /// The handshake of the control connection is through.
    is_established: bool,
    /// A data connection has resumed the session.
    was_resumed: bool,
    group: Option<NamedGroup>,
}

impl State {
    /// Whether data connections can resume the session.
    fn has_any(&self) -> bool {
        !self.kept.is_empty() || self.session.is_some()
    }
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

/// There is one server, so its name doesn't matter.
impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.state().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.state().group
    }

    /// Only that of the control connection counts: a data connection that doesn't resume it begins
    /// one of its own before it is refused, which may be somebody else's.
    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        let mut state = self.state();
        if !state.is_established {
            state.session = Some((session, Instant::now()));
        }
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let state = self.state();
        state.session.as_ref().map(|(session, _)| session.clone())
    }

    /// It stays, so that data connections have to resume it: whoever breaks a handshake could
    /// otherwise have the next one prove less.
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

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::version::TLS12;
    use rustls::{Connection, HandshakeKind, ServerConfig, ServerConnection};
    use xdfs_security::identity::{ServerIdentity, read_certificates, read_key};
    use xdfs_security::trust::{NewHosts, TrustPolicy, server_name};

    use super::*;

    const NAME: &str = "server.example";

    /// The kind of a handshake with a server.
    fn shake(client: &SessionTls, server: &Arc<ServerConfig>) -> Option<HandshakeKind> {
        let mut ends = [
            Connection::from(client.connection().unwrap()),
            ServerConnection::new(Arc::clone(server)).unwrap().into(),
        ];
        for _ in 0..3 {
            for from in [0, 1] {
                let mut bytes = Vec::new();
                while ends[from].wants_write() {
                    ends[from].write_tls(&mut bytes).unwrap();
                }
                let (mut rest, to) = (bytes.as_slice(), &mut ends[1 - from]);
                while !rest.is_empty() {
                    to.read_tls(&mut rest).unwrap();
                    to.process_new_packets().unwrap();
                }
            }
        }
        assert!(!ends[0].is_handshaking());
        ends[0].handshake_kind()
    }

    /// A data connection of somebody else's session with the same server is refused only behind its
    /// handshake, in which that session was told.
    #[test]
    fn only_the_session_of_the_control_connection_is_resumed() {
        let folder = tempfile::tempdir().unwrap();
        ServerIdentity::load_or_make(folder.path(), &[NAME.to_owned()]).unwrap();
        let (chain, key) = ServerIdentity::files(folder.path());
        let server = || {
            let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
            let config = config.with_protocol_versions(&[&TLS12]).unwrap();
            let chain = read_certificates(&chain).unwrap();
            let config = config.with_no_client_auth();
            Arc::new(
                config
                    .with_single_cert(chain, read_key(&key).unwrap())
                    .unwrap(),
            )
        };
        let policy = TrustPolicy {
            known_hosts: folder.path().join("known_hosts"),
            pins: Vec::new(),
            roots: read_certificates(&chain).unwrap(),
            system_roots: false,
            new_hosts: NewHosts::Refuse,
        };
        let (config, _) = policy.ftp_client_config(NAME, 21, None).unwrap();
        let name = server_name(NAME).unwrap();
        let client = SessionTls::new(&Tls { config, name }, 4);
        let (own, other) = (server(), server());
        assert_eq!(shake(&client, &own), Some(HandshakeKind::Full));
        client.tickets.state().is_established = true;
        for _ in 0..2 {
            assert_eq!(shake(&client, &own), Some(HandshakeKind::Resumed));
            assert_eq!(shake(&client, &other), Some(HandshakeKind::Full));
        }
        assert!(client.tickets.state().has_any() && !client.is_used_up());
        let old = Instant::now().checked_sub(2 * SESSION_AGE_MAX).unwrap();
        if let Some((_, came)) = &mut client.tickets.state().session {
            *came = old;
        }
        assert!(client.is_used_up());
    }
}
