//! One channel over TLS.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use xdfs_sys::poll::{Poller, Token};

use super::records::{CLEAR, Records, cut_off, out_of_place, read_once, write_once};
use super::seal::{APPLICATION_DATA, BODY_BYTES, CONTENT_BYTES, HEADER_BYTES};
use crate::{Capabilities, Offload, Protection, Stream};

/// What the bytes of [`Protection::binding`] are derived for.
const BINDING_LABEL: &[u8] = b"EXPORTER-xdfs-channel";
/// The lowest type of a record; the highest is that of application data.
const CHANGE_CIPHER_SPEC: u8 = 20;
/// Bytes read at once during the opening.
const READ_BYTES: usize = 4 << 10;

/// A channel over TLS 1.3.
pub struct TlsStream {
    inner: Box<dyn Stream>,
    layer: Layer,
    /// The transport is connected.
    connected: bool,
    /// This end was closed.
    closed: bool,
    /// The kernel may make the records.
    offload: bool,
}

/// Who makes the records.
enum Layer {
    /// rustls: the handshake, and the small frames of the opening.
    Opening(Opening),
    /// This crate, once the channel moves more.
    Moving(Box<Records>, Protection),
    /// Nobody: the change from the one to the other failed.
    Broken,
}

/// The part of a channel's life in which rustls makes the records.
struct Opening {
    connection: Box<Connection>,
    /// Bytes that were read and not yet given to rustls, which gets complete records only: what it
    /// had taken of others would be lost when the records change hands.
    left: Vec<u8>,
    /// Bytes that rustls got during the handshake: it keeps those of a message that isn't complete.
    given: usize,
    /// The transport ended.
    ended: bool,
}

impl Opening {
    /// Writes what is encrypted. `WouldBlock` if the transport doesn't take all of it.
    fn write_out(&mut self, inner: &mut dyn Stream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Out(inner))?;
        }
        Ok(())
    }

    /// Reads once from the transport, unless complete records are left, and decrypts records as
    /// long as `take` wants more. `WouldBlock` when nothing came.
    fn read_in(
        &mut self,
        inner: &mut dyn Stream,
        mut take: impl FnMut(&mut Connection) -> io::Result<bool>,
    ) -> io::Result<()> {
        if self.record_length(0).is_none() {
            let have = self.left.len();
            // Not twice as much as there was: what a stranger costs counts.
            self.left.reserve_exact(READ_BYTES);
            self.left.resize(have + READ_BYTES, 0);
            let result = read_once(inner, &mut [IoSliceMut::new(&mut self.left[have..])]);
            self.left.truncate(have + *result.as_ref().unwrap_or(&0));
            if self.left.is_empty() {
                // A channel that waits holds no buffer.
                self.left = Vec::new();
            }
            if result? == 0 {
                self.ended = true;
                return Ok(());
            }
        }
        let mut used = 0;
        while let Some(length) = self.record_length(used)
            && take(&mut self.connection)?
        {
            let mut record = &self.left[used..used + length];
            used += length;
            self.given = self.given.saturating_add(length);
            while !record.is_empty() {
                self.connection.read_tls(&mut record)?;
                if let Err(error) = self.connection.process_new_packets() {
                    // The alert that says why goes out as far as the transport takes it.
                    let _ = self.write_out(inner);
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
        take(&mut self.connection)?;
        self.left = self.left.split_off(used);
        Ok(())
    }

    /// The length of the record after `used` bytes of what is left, if all of it is there. What
    /// begins like no record is given to rustls as it is, which refuses it.
    fn record_length(&self, used: usize) -> Option<usize> {
        let bytes = &self.left[used..];
        let &kind = bytes.first()?;
        if kind == CLEAR && !self.connection.is_handshaking() {
            return None;
        }
        if !(CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(&kind) {
            return Some(bytes.len());
        }
        let &[_, _, _, high, low] = bytes.first_chunk::<HEADER_BYTES>()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > BODY_BYTES {
            return Some(bytes.len());
        }
        (bytes.len() >= HEADER_BYTES + length).then_some(HEADER_BYTES + length)
    }

    /// Goes on with the handshake. `WouldBlock` while it isn't done.
    fn shake_hands(&mut self, inner: &mut dyn Stream) -> io::Result<()> {
        while self.connection.is_handshaking() {
            self.write_out(inner)?;
            if !self.connection.is_handshaking() {
                break;
            }
            self.read_in(inner, |connection| Ok(connection.is_handshaking()))?;
            if self.ended {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "the peer closed the connection during the TLS handshake",
                ));
            }
        }
        // The last flight, or tickets: they may wait for company.
        match self.write_out(inner) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }

    fn read(&mut self, inner: &mut dyn Stream, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.connection.is_handshaking() {
            self.shake_hands(inner)?;
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
            if self.left.first() == Some(&CLEAR) {
                return Err(out_of_place());
            }
            if self.ended {
                return Err(cut_off());
            }
            self.read_in(inner, |connection| {
                take_plaintext(connection, bufs, &mut done)?;
                Ok(done < room)
            })?;
            if self.connection.wants_write() {
                // An answer to a change of keys.
                match self.write_out(inner) {
                    Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
                    _ => {}
                }
            }
        }
    }

    fn write(&mut self, inner: &mut dyn Stream, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.connection.is_handshaking() {
            self.shake_hands(inner)?;
        }
        self.write_out(inner)?;
        let mut taken = 0;
        for buf in bufs {
            taken += self.connection.writer().write(buf)?;
        }
        match self.write_out(inner) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(taken),
            done => done.map(|()| taken),
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

    /// Takes the keys out of rustls, and what it has encrypted and not written: a reader doesn't
    /// wait for a transport that takes nothing.
    fn into_records(mut self) -> io::Result<(Records, Protection)> {
        let protection = self.protection().ok_or(ErrorKind::NotConnected)?;
        let mut content = Vec::new();
        let ended = match self.connection.reader().read_to_end(&mut content) {
            Ok(_) => true,
            Err(e) if e.kind() == ErrorKind::WouldBlock => false,
            Err(e) => return Err(e),
        };
        let mut waiting = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut waiting)?;
        }
        let secrets = self.connection.dangerous_extract_secrets();
        let secrets = secrets.map_err(io::Error::other)?;
        let records = Records::new(secrets, self.left, content, ended, waiting)?;
        Ok((records, protection))
    }
}

impl TlsStream {
    /// Begins TLS as its client above an active open. The handshake ends before
    /// [`Stream::finish_open`] does. The configuration has to allow the extraction of secrets.
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

    /// Begins TLS as its server above a channel that was accepted. The configuration has to allow
    /// the extraction of secrets.
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
            layer: Layer::Opening(Opening {
                connection: Box::new(connection),
                left: Vec::new(),
                given: 0,
                ended: false,
            }),
            connected,
            closed: false,
            offload: false,
        }
    }

    /// The records, which from now on are made here; `WouldBlock` while the handshake isn't done.
    fn records(&mut self) -> io::Result<(&mut Records, &mut dyn Stream)> {
        if let Layer::Opening(opening) = &mut self.layer {
            if opening.connection.is_handshaking() {
                opening.shake_hands(self.inner.as_mut())?;
            }
            if opening.ended {
                return Err(cut_off());
            }
            if let Layer::Opening(opening) = std::mem::replace(&mut self.layer, Layer::Broken) {
                let (mut records, protection) = opening.into_records()?;
                if self.offload {
                    records.offload(self.inner.as_ref());
                }
                self.layer = Layer::Moving(Box::new(records), protection);
            }
        }
        match &mut self.layer {
            Layer::Moving(records, _) => Ok((records, self.inner.as_mut())),
            _ => Err(ErrorKind::BrokenPipe.into()),
        }
    }
}

#[cfg(test)]
impl TlsStream {
    /// Lowers what the keys may protect.
    pub(super) fn wear(&mut self, records_max: u64) {
        if let Layer::Moving(records, _) = &mut self.layer {
            records.wear(records_max);
        }
    }

    /// Sends a record without content.
    pub(super) fn send_empty_record(&mut self) {
        if let Layer::Moving(records, _) = &mut self.layer {
            records.send_empty(self.inner.as_mut());
        }
    }

    /// Changes the keys, which rustls can.
    pub(super) fn change_keys(&mut self) {
        if let Layer::Opening(opening) = &mut self.layer {
            let _ = opening.connection.refresh_traffic_keys();
        }
    }
}

/// The transport as rustls wants it.
struct Out<'a>(&'a mut dyn Stream);

impl Write for Out<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        write_once(self.0, &[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        write_once(self.0, bufs)
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
        let room: usize = bufs.iter().map(|b| b.len()).sum();
        if let Layer::Opening(opening) = &mut self.layer
            && room <= CONTENT_BYTES
        {
            return opening.read(self.inner.as_mut(), bufs);
        }
        let (records, inner) = self.records()?;
        records.read(inner, bufs)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        if let Layer::Opening(opening) = &mut self.layer
            && len <= CONTENT_BYTES
        {
            return opening.write(self.inner.as_mut(), bufs);
        }
        let (records, inner) = self.records()?;
        records.write(inner, bufs)
    }

    fn read_clear(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let (records, inner) = self.records()?;
        records.read_clear(inner, bufs)
    }

    fn write_beside(&mut self, protected: &[IoSlice<'_>], clear: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let (records, inner) = self.records()?;
        records.write_beside(inner, protected, clear)
    }

    fn offload(&mut self) {
        self.offload = true;
        if let Layer::Moving(records, _) = &mut self.layer {
            records.offload(self.inner.as_ref());
        }
    }

    fn offloaded(&self) -> Offload {
        match &self.layer {
            Layer::Moving(records, _) => records.offloaded(),
            _ => Offload::default(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.layer {
            Layer::Opening(opening) => opening.write_out(self.inner.as_mut()),
            Layer::Moving(records, _) => records.flush(self.inner.as_mut()),
            Layer::Broken => Ok(()),
        }
    }

    fn has_unflushed(&self) -> bool {
        self.connected
            && match &self.layer {
                Layer::Opening(opening) => opening.connection.wants_write(),
                Layer::Moving(records, _) => records.has_pending(),
                Layer::Broken => false,
            }
    }

    fn held_bytes(&self) -> usize {
        match &self.layer {
            // A buffer that grows has up to twice the room that it needs.
            Layer::Opening(opening) if opening.connection.is_handshaking() => {
                opening.left.capacity() + 2 * opening.given
            }
            Layer::Opening(opening) => opening.left.capacity(),
            Layer::Moving(records, _) => records.held_bytes(),
            Layer::Broken => 0,
        }
    }

    fn is_worn(&self) -> bool {
        matches!(&self.layer, Layer::Moving(records, _) if records.is_worn())
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        if !self.connected {
            if !self.inner.finish_open()? {
                return Ok(false);
            }
            self.connected = true;
        }
        let Layer::Opening(opening) = &mut self.layer else {
            return Ok(true);
        };
        match opening.shake_hands(self.inner.as_mut()) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn close(&mut self) -> io::Result<()> {
        self.closed = true;
        match &mut self.layer {
            Layer::Opening(opening) => {
                opening.connection.send_close_notify();
                // A peer that takes nothing any more is cut off, which it will tell from an end.
                let _ = opening.write_out(self.inner.as_mut());
            }
            Layer::Moving(records, _) => records.close(self.inner.as_mut()),
            Layer::Broken => {}
        }
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
        match &self.layer {
            Layer::Opening(opening) => opening.protection(),
            Layer::Moving(_, protection) => Some(protection.clone()),
            Layer::Broken => None,
        }
    }

    fn peer(&self) -> String {
        self.inner.peer()
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = match &self.layer {
            Layer::Opening(_) => "opening",
            Layer::Moving(..) => "moving",
            Layer::Broken => "broken",
        };
        f.debug_struct("TlsStream")
            .field("inner", &self.inner)
            .field("layer", &layer)
            .finish_non_exhaustive()
    }
}
