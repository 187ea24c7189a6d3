//! A TCP connection of a client, in clear or with TLS, of which this side is the server.
//!
//! Nothing here waits: what can't go on returns [`io::ErrorKind::WouldBlock`]. With TLS, reading
//! may wait for room to send and the other way round, so news of either kind are news for both.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::{HandshakeKind, ServerConfig, ServerConnection};

/// Bytes that a connection with TLS holds for a peer that doesn't read, beside one record.
const SEND_BYTES_MAX: usize = 64 << 10;
/// Reads in a row that bring nothing of the content: empty records could keep a thread busy.
const EMPTY_READS_MAX: usize = 1024;

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
        let mut silent = config.clone();
        (silent.send_tls13_tickets, silent.max_tls13_tickets) = (0, 0);
        Ok(Self {
            config: Arc::new(config),
            silent: Arc::new(silent),
            resumption,
        })
    }
}

/// A connection. See the module documentation.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    tls: Option<Box<ServerConnection>>,
    #[cfg(feature = "gsi")]
    gsi: Option<super::gsi::Layer>,
    resumption: bool,
}

impl Wire {
    /// A connection in clear.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            tls: None,
            #[cfg(feature = "gsi")]
            gsi: None,
            resumption: false,
        }
    }

    /// What is read and written from now on is protected, by a handshake that the peer begins.
    ///
    /// # Errors
    /// The configuration can't be used.
    pub(super) fn protect_control(&mut self, tls: &SessionTls) -> io::Result<()> {
        self.protect(&tls.config)
    }

    /// The same for a data connection in this direction.
    ///
    /// # Errors
    /// The configuration can't be used.
    pub(super) fn protect_data(
        &mut self,
        tls: &SessionTls,
        direction: Direction,
    ) -> io::Result<()> {
        self.resumption = tls.resumption;
        match direction {
            Direction::Send => self.protect(&tls.config),
            // A client that only sends doesn't read tickets. They would be there when it closes the
            // connection, which would then be reset, with what it has sent.
            Direction::Receive => self.protect(&tls.silent),
        }
    }

    fn protect(&mut self, config: &Arc<ServerConfig>) -> io::Result<()> {
        let connection = ServerConnection::new(Arc::clone(config));
        let mut connection = connection.map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(SEND_BYTES_MAX));
        self.tls = Some(Box::new(connection));
        Ok(())
    }

    /// What is read and written from now on passes through this layer.
    #[cfg(feature = "gsi")]
    pub(super) fn protect_by(&mut self, layer: super::gsi::Layer) {
        self.gsi = Some(layer);
    }

    /// Goes on with the proof of the other end, if it has to give one before anything else.
    ///
    /// # Errors
    /// Those of the connection, `WouldBlock` if more has to come; the other end is somebody else.
    #[cfg_attr(
        not(feature = "gsi"),
        expect(
            clippy::needless_pass_by_ref_mut,
            reason = "only GSI has something to prove"
        )
    )]
    pub(super) fn prove(&mut self) -> io::Result<()> {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &mut self.gsi {
            return layer.prove(&mut self.stream);
        }
        Ok(())
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whether there is TLS.
    pub(super) fn is_protected(&self) -> bool {
        #[cfg(feature = "gsi")]
        if self.gsi.is_some() {
            return true;
        }
        self.tls.is_some()
    }

    /// Reads once; 0 at the end. With TLS the end is that which the peer has told: a connection
    /// that was cut off is an error.
    ///
    /// # Errors
    /// Those of the connection, and of TLS.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &mut self.gsi {
            return layer.read(&mut self.stream, buffer);
        }
        for _ in 0..EMPTY_READS_MAX {
            let Some(tls) = &mut self.tls else {
                return self.stream.read(buffer);
            };
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.advance()?,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    let cause = "the connection was cut off: there was no end of TLS";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, cause));
                }
                other => return other,
            }
        }
        Err(too_many())
    }

    /// Whether the peer has told within a security context that nothing more comes.
    pub(super) fn has_told_end(&self) -> bool {
        #[cfg(feature = "gsi")]
        return self
            .gsi
            .as_ref()
            .is_some_and(super::gsi::Layer::has_told_end);
        #[cfg(not(feature = "gsi"))]
        false
    }

    /// Writes what can be written. With TLS, all that was written is on its way once
    /// [`Self::flush`] succeeds.
    ///
    /// # Errors
    /// Those of the connection, and of TLS.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &mut self.gsi {
            return layer.write(&mut self.stream, bytes);
        }
        if self.tls.is_none() {
            return self.stream.write(bytes);
        }
        self.finish_handshake()?;
        self.flush()?;
        let Some(tls) = &mut self.tls else {
            return Ok(0);
        };
        let taken = tls.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends what is held.
    ///
    /// # Errors
    /// Those of the connection; `WouldBlock` if something is left.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &mut self.gsi {
            return layer.flush(&mut self.stream);
        }
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.wants_write() {
            match tls.write_tls(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether nothing is held.
    pub(super) fn is_flushed(&self) -> bool {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &self.gsi {
            return layer.is_flushed();
        }
        self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }

    /// Tells the peer that nothing more comes.
    ///
    /// # Errors
    /// Those of the connection; `WouldBlock` if something is left to be sent.
    pub(super) fn end(&mut self) -> io::Result<()> {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &mut self.gsi {
            layer.end(&mut self.stream)?;
        }
        if self.tls.is_some() {
            // Otherwise the peer couldn't tell an empty file from one that was cut off.
            self.finish_handshake()?;
        }
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.flush()?;
        // If it fails, the end comes with the closing.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        Ok(())
    }

    fn finish_handshake(&mut self) -> io::Result<()> {
        for _ in 0..EMPTY_READS_MAX {
            match &self.tls {
                Some(tls) if tls.is_handshaking() => self.advance()?,
                _ => return Ok(()),
            }
        }
        Err(too_many())
    }

    /// Takes records from the connection.
    fn advance(&mut self) -> io::Result<()> {
        // Flights of the handshake may have waited for room.
        self.flush_some()?;
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        let was_handshaking = tls.is_handshaking();
        let read = match tls.read_tls(&mut self.stream) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            read => read?,
        };
        if read == 0 && was_handshaking {
            let cause = "the client closed the connection during the TLS handshake";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, cause));
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert tells the peer why, if the connection takes it.
            let _ = self.flush();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        let is_new = was_handshaking && !tls.is_handshaking();
        if is_new && self.resumption && tls.handshake_kind() != Some(HandshakeKind::Resumed) {
            let cause = "the data connection doesn't resume the TLS session of the control \
                         connection, as this server requires";
            return Err(io::Error::new(ErrorKind::PermissionDenied, cause));
        }
        self.flush_some()
    }

    /// Sends what can be sent.
    fn flush_some(&mut self) -> io::Result<()> {
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

fn too_many() -> io::Error {
    let cause = "the client sends TLS records without content";
    io::Error::new(ErrorKind::InvalidData, cause)
}
