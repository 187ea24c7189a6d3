//! A TCP connection between a client and a server, in clear or protected, at either side.
//!
//! Nothing here waits: what can't go on returns [`io::ErrorKind::WouldBlock`]. With TLS, reading
//! may wait for room to send and the other way round, so news of either kind are news for both.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::time::Duration;

use mio::net::TcpStream;
use rustls::pki_types::CertificateDer;
use rustls::{Connection, HandshakeKind};

/// Bytes that a connection with TLS holds for a peer that doesn't read, beside one record.
const SEND_BYTES_MAX: usize = 64 << 10;
/// Round-trip time from which on a path is long.
pub(crate) const LONG_PATH: Duration = Duration::from_millis(2);
/// Reads in a row that bring nothing of the content: empty records could keep a thread busy.
const EMPTY_READS_MAX: usize = 1024;

/// What the handshake of a connection has to prove beside what its configuration says, before
/// anything is read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Nothing, or it is proved.
    None,
    /// The peer resumes the session of the control connection. It has done so before if
    /// `was_resumed`: then it may have forgotten it.
    Resumed { was_resumed: bool },
    /// The peer shows this certificate, which is that of the control connection, or resumes a
    /// session in which it has shown it.
    Shown(CertificateDer<'static>),
}

/// A connection. See the module documentation.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    tls: Option<Box<Connection>>,
    demand: Demand,
    #[cfg(feature = "gsi")]
    gsi: Option<crate::layer::Layer>,
}

impl Wire {
    /// A connection in clear.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            tls: None,
            demand: Demand::None,
            #[cfg(feature = "gsi")]
            gsi: None,
        }
    }

    /// What is read and written from now on is protected, by a handshake that the client begins
    /// with its first step here, and that has to prove what is demanded.
    pub(crate) fn protect(&mut self, tls: impl Into<Connection>, demand: Demand) {
        let mut tls = tls.into();
        tls.set_buffer_limit(Some(SEND_BYTES_MAX));
        self.tls = Some(Box::new(tls));
        self.demand = demand;
    }

    /// What is read and written from now on passes through this layer.
    #[cfg(feature = "gsi")]
    pub(crate) fn protect_by(&mut self, layer: crate::layer::Layer) {
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
    pub(crate) fn prove(&mut self) -> io::Result<()> {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &mut self.gsi {
            return layer.finish_handshake(&mut self.stream);
        }
        Ok(())
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Has an open data connection over a long path sent as such a path needs it. The system may
    /// not be able to, or not allow it; then only the rate is lower.
    pub(crate) fn suit_path(&self) {
        let path = xdfs_sys::tcp::info(&self.stream);
        if path.is_ok_and(|path| path.round_trip >= LONG_PATH) {
            match xdfs_sys::tcp::prefer_paced(&self.stream) {
                Ok(()) => tracing::debug!("a data connection suits a long path"),
                Err(error) => tracing::debug!(%error, "no data connection is paced here"),
            }
        }
    }

    pub(crate) fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whether there is TLS.
    pub(crate) fn is_protected(&self) -> bool {
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
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &mut self.gsi {
            return layer.read(&mut self.stream, buffer);
        }
        for _ in 0..EMPTY_READS_MAX {
            self.check_demand()?;
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
    pub(crate) fn has_told_end(&self) -> bool {
        #[cfg(feature = "gsi")]
        return self
            .gsi
            .as_ref()
            .is_some_and(crate::layer::Layer::has_told_end);
        #[cfg(not(feature = "gsi"))]
        false
    }

    /// Writes what can be written. With TLS, all that was written is on its way once
    /// [`Self::flush`] succeeds.
    ///
    /// # Errors
    /// Those of the connection, and of TLS.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &mut self.gsi {
            return layer.write(&mut self.stream, bytes);
        }
        if self.tls.is_none() {
            return self.stream.write(bytes);
        }
        self.handshake()?;
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
    pub(crate) fn flush(&mut self) -> io::Result<()> {
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
    pub(crate) fn is_flushed(&self) -> bool {
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
    pub(crate) fn end(&mut self) -> io::Result<()> {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &mut self.gsi {
            layer.end(&mut self.stream)?;
        }
        if self.tls.is_some() {
            // Otherwise the peer couldn't tell an empty file from one that was cut off.
            self.handshake()?;
        }
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.flush()?;
        // If it fails, the end comes with the closing.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        Ok(())
    }

    /// Brings the handshake of TLS to its end; nothing is left to do in clear.
    ///
    /// # Errors
    /// Those of the connection, and of TLS; `WouldBlock` if it goes on later.
    pub(crate) fn handshake(&mut self) -> io::Result<()> {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &mut self.gsi {
            return layer.finish_handshake(&mut self.stream);
        }
        for _ in 0..EMPTY_READS_MAX {
            match &self.tls {
                Some(tls) if tls.is_handshaking() => self.advance()?,
                _ => return self.check_demand(),
            }
        }
        Err(too_many())
    }

    /// Whether content is protected, and may have been cut off, since its end was not told.
    pub(crate) fn lacks_end(&self) -> bool {
        #[cfg(feature = "gsi")]
        return self
            .gsi
            .as_ref()
            .is_some_and(crate::layer::Layer::lacks_end);
        // Without GSI that is an error already.
        #[cfg(not(feature = "gsi"))]
        false
    }

    /// Whether there is a handshake to be brought on before the transfer is announced: the Globus
    /// server announces it once data connections are proved.
    pub(crate) fn shakes_early(&self) -> bool {
        #[cfg(feature = "gsi")]
        return self.gsi.is_some() && self.is_handshaking();
        #[cfg(not(feature = "gsi"))]
        false
    }

    /// Whether a handshake is not yet through.
    pub(crate) fn is_handshaking(&self) -> bool {
        #[cfg(feature = "gsi")]
        if let Some(layer) = &self.gsi {
            return layer.is_handshaking();
        }
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// # Errors
    /// The handshake is through and doesn't prove what it has to. That stays so.
    fn check_demand(&mut self) -> io::Result<()> {
        let Some(tls) = self.tls.as_ref().filter(|tls| !tls.is_handshaking()) else {
            return Ok(());
        };
        let is_resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
        let (is_proved, cause) = match &self.demand {
            Demand::None => return Ok(()),
            Demand::Resumed { was_resumed: true } if !is_resumed => {
                let cause = "the server resumes the TLS session of the control connection no more";
                return Err(io::Error::new(ErrorKind::ConnectionAborted, cause));
            }
            Demand::Resumed { .. } => (
                is_resumed,
                "the data connection doesn't resume the TLS session of the control connection, so \
                 it may be somebody else's",
            ),
            Demand::Shown(wanted) => (
                self.certificate() == Some(wanted),
                "the data connection shows another certificate than the control connection",
            ),
        };
        match is_proved {
            true => self.demand = Demand::None,
            false => return Err(io::Error::new(ErrorKind::PermissionDenied, cause)),
        }
        Ok(())
    }

    /// Whether the session of another connection was resumed in TLS.
    pub(crate) fn has_resumed(&self) -> bool {
        let kind = self.tls.as_ref().and_then(|tls| tls.handshake_kind());
        kind == Some(HandshakeKind::Resumed)
    }

    /// The protocol that was agreed on in TLS.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.alpn_protocol()
    }

    /// The certificate that the peer has shown, in this session or in the one that it resumes.
    pub(crate) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.tls.as_ref()?.peer_certificates()?.first()
    }

    /// Whether the peer has closed it, while nothing is awaited. What came too early counts as
    /// open.
    pub(crate) fn is_closed(&mut self) -> bool {
        let Some(tls) = &mut self.tls else {
            return matches!(self.stream.peek(&mut [0]), Ok(0));
        };
        for _ in 0..EMPTY_READS_MAX {
            match tls.process_new_packets() {
                Ok(state) if state.peer_has_closed() => return true,
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return false,
                Ok(_) => {}
                Err(_) => return true,
            }
            match tls.read_tls(&mut self.stream) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
        true
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
            let cause = "the connection was closed during the TLS handshake";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, cause));
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert tells the peer why, if the connection takes it.
            let _ = self.flush();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
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
    let cause = "the peer sends TLS records without content";
    io::Error::new(ErrorKind::InvalidData, cause)
}
