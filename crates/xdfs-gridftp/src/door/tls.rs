//! TLS of the control connection of one client, and then of its data connections: in all of them
//! this side is the server.

use std::io;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::{ServerConfig, ServerConnection};

use crate::wire::{Demand, Wire};

/// Most tickets that a client gets at once, if it asks for them: one for each of the most data
/// connections of a transfer.
const TICKETS_MAX: usize = 64;

/// Which way payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// To the peer.
    Send,
    /// From the peer.
    Receive,
}

/// TLS on the control connection of one client, and then on its data connections.
#[derive(Clone, Debug)]
pub(super) struct SessionTls {
    config: Arc<ServerConfig>,
    /// The same without tickets.
    silent: Arc<ServerConfig>,
    /// Data connections have to resume the session of the control connection.
    resumption: bool,
}

impl SessionTls {
    /// TLS with the certificate and the rules of `server`, and with tickets of its own: only who
    /// has this control connection can resume its session.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(super) fn new(server: &ServerConfig, resumption: bool) -> io::Result<Self> {
        let mut config = server.clone();
        // Clients of FTP offer names of their own, such as `ftp`, or none.
        config.alpn_protocols.clear();
        config.ticketer = Ticketer::new().map_err(io::Error::other)?;
        config.enable_secret_extraction = false;
        // Clients that use a ticket once need one for each data connection.
        config.send_tls13_tickets = config.max_tls13_tickets;
        config.max_tls13_tickets = TICKETS_MAX;
        let mut silent = config.clone();
        (silent.send_tls13_tickets, silent.max_tls13_tickets) = (0, 0);
        Ok(Self {
            config: Arc::new(config),
            silent: Arc::new(silent),
            resumption,
        })
    }

    /// Protects the control connection.
    ///
    /// # Errors
    /// The configuration can't be used.
    pub(super) fn protect_control(&self, wire: &mut Wire) -> io::Result<()> {
        wire.protect(connection(&self.config)?, Demand::None);
        Ok(())
    }

    /// Protects a data connection in this direction.
    ///
    /// # Errors
    /// The configuration can't be used.
    pub(super) fn protect_data(&self, wire: &mut Wire, direction: Direction) -> io::Result<()> {
        let config = match direction {
            Direction::Send => &self.config,
            // A client that only sends doesn't read tickets. They would be there when it closes the
            // connection, which would then be reset, with what it has sent.
            Direction::Receive => &self.silent,
        };
        let demand = match self.resumption {
            true => Demand::Resumed { was_resumed: false },
            false => Demand::None,
        };
        wire.protect(connection(config)?, demand);
        Ok(())
    }
}

fn connection(config: &Arc<ServerConfig>) -> io::Result<ServerConnection> {
    ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)
}
