//! One channel over TLS.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use xdfs_sys::poll::{Poller, Token};

use crate::{Capabilities, Protection, Stream};

/// What the bytes of [`Protection::binding`] are derived for.
const BINDING_LABEL: &[u8] = b"EXPORTER-xdfs-channel";
/// Plaintext that is encrypted at once, in bytes: fits the second level cache with its copy.
const BATCH_BYTES: usize = 256 << 10;
/// Largest plaintext of a record, and what a record costs beside it, in bytes.
const RECORD_BYTES: usize = 16 << 10;
const RECORD_OVERHEAD_BYTES: usize = 5 + 1 + 16;
/// Encrypted bytes read at once.
const READ_BYTES: usize = BATCH_BYTES + (BATCH_BYTES / RECORD_BYTES + 1) * RECORD_OVERHEAD_BYTES;

thread_local! {
    /// Where encrypted bytes are read to. One a thread: what a record leaves over stays with its
    /// stream, so that a thousand idle channels hold no buffers.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A channel over TLS 1.3.
pub struct TlsStream {
    inner: Box<dyn Stream>,
    connection: Connection,
    /// Encrypted bytes that were read and not yet decrypted.
    left: Vec<u8>,
    /// The transport ended.
    ended: bool,
    /// The transport is connected.
    connected: bool,
    /// This end was closed.
    closed: bool,
}

impl TlsStream {
    /// Begins TLS as its client above an active open. The handshake ends before
    /// [`Stream::finish_open`] does.
    ///
    /// # Errors
    /// The configuration can't be used.
    pub fn open(
        inner: Box<dyn Stream>,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Self::new(inner, connection.into(), false))
    }

    /// Begins TLS as its server above a channel that was accepted.
    ///
    /// # Errors
    /// The configuration can't be used.
    pub fn accept(inner: Box<dyn Stream>, config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self::new(inner, connection.into(), true))
    }

    fn new(inner: Box<dyn Stream>, mut connection: Connection, connected: bool) -> Self {
        // Bounded by `write_vectored`, which takes nothing while something waits.
        connection.set_buffer_limit(None);
        Self {
            inner,
            connection,
            left: Vec::new(),
            ended: false,
            connected,
            closed: false,
        }
    }

    /// Writes what is encrypted. `WouldBlock` if the transport doesn't take all of it.
    fn write_out(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            let mut out = Out(self.inner.as_mut());
            self.connection.write_tls(&mut out)?;
        }
        Ok(())
    }

    /// Reads once from the transport, unless bytes are left, and decrypts as far as `take` wants.
    /// `WouldBlock` when nothing came.
    fn read_in(
        &mut self,
        mut take: impl FnMut(&mut Connection) -> io::Result<bool>,
    ) -> io::Result<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            let (source, n) = if self.left.is_empty() {
                scratch.resize(READ_BYTES, 0);
                let n = self
                    .inner
                    .read_vectored(&mut [IoSliceMut::new(scratch.as_mut_slice())])?;
                if n == 0 {
                    self.ended = true;
                    return Ok(());
                }
                (scratch.as_slice(), n)
            } else {
                std::mem::swap(scratch, &mut self.left);
                let n = scratch.len();
                self.left = Vec::new();
                (scratch.as_slice(), n)
            };
            let mut rest = &source[..n];
            while !rest.is_empty() {
                if !take(&mut self.connection)? {
                    self.left = rest.to_vec();
                    break;
                }
                self.connection.read_tls(&mut rest)?;
                if let Err(error) = self.connection.process_new_packets() {
                    // The alert that says why goes out as far as the transport takes it.
                    let _ = self.write_out();
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
            Ok(())
        })
    }

    /// Goes on with the handshake. `WouldBlock` while it isn't done.
    fn shake_hands(&mut self) -> io::Result<()> {
        while self.connection.is_handshaking() {
            self.write_out()?;
            if !self.connection.is_handshaking() {
                break;
            }
            self.read_in(|connection| Ok(connection.is_handshaking()))?;
            if self.ended {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "the peer closed the connection during the TLS handshake",
                ));
            }
        }
        // The last flight, or tickets: they may wait for company.
        match self.write_out() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }
}

/// The transport as rustls wants it.
struct Out<'a>(&'a mut dyn Stream);

impl Write for Out<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads plaintext that is there into `bufs`; `None` if there is none yet.
fn take_plaintext(
    connection: &mut Connection,
    bufs: &mut [IoSliceMut<'_>],
    done: &mut usize,
) -> io::Result<Option<()>> {
    let mut skip = *done;
    for buf in bufs.iter_mut() {
        if skip >= buf.len() {
            skip -= buf.len();
            continue;
        }
        while skip < buf.len() {
            match connection.reader().read(&mut buf[skip..]) {
                Ok(0) => return Ok(Some(())),
                Ok(n) => {
                    skip += n;
                    *done += n;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        skip = 0;
    }
    Ok(Some(()))
}

impl Stream for TlsStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.connection.is_handshaking() {
            self.shake_hands()?;
        }
        let room: usize = bufs.iter().map(|b| b.len()).sum();
        let mut done = 0;
        loop {
            let over = take_plaintext(&mut self.connection, bufs, &mut done)?;
            if done > 0 || room == 0 {
                return Ok(done);
            }
            if over.is_some() {
                // close_notify.
                return Ok(0);
            }
            if self.ended {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "the connection was cut off without a TLS close_notify",
                ));
            }
            self.read_in(|connection| {
                take_plaintext(connection, bufs, &mut done)?;
                Ok(done < room)
            })?;
            if self.connection.wants_write() {
                // An answer to a change of keys.
                match self.write_out() {
                    Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
                    _ => {}
                }
            }
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if self.connection.is_handshaking() {
            self.shake_hands()?;
        }
        self.write_out()?;
        let mut taken = 0;
        for buf in bufs {
            let len = buf.len().min(BATCH_BYTES - taken);
            taken += self.connection.writer().write(&buf[..len])?;
        }
        match self.write_out() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(taken),
            done => done.map(|()| taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_out()
    }

    fn has_unflushed(&self) -> bool {
        self.connected && self.connection.wants_write()
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        if !self.connected {
            if !self.inner.finish_open()? {
                return Ok(false);
            }
            self.connected = true;
        }
        match self.shake_hands() {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn close(&mut self) -> io::Result<()> {
        self.closed = true;
        self.connection.send_close_notify();
        // A peer that takes nothing any more is cut off, which it will tell from an end.
        let _ = self.write_out();
        self.inner.close()
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.inner.register(poller, token)
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        self.inner.deregister(poller)
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        self.inner.set_window(bytes)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: true,
            ..self.inner.capabilities()
        }
    }

    fn protection(&self) -> Option<Protection> {
        let binding = self
            .connection
            .export_keying_material([0; 32], BINDING_LABEL, None)
            .ok()?;
        let peer_certificates = self
            .connection
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|certificate| certificate.to_vec())
            .collect();
        Some(Protection {
            binding,
            peer_certificates,
        })
    }

    fn peer(&self) -> String {
        self.inner.peer()
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("inner", &self.inner)
            .field("handshaking", &self.connection.is_handshaking())
            .finish_non_exhaustive()
    }
}
