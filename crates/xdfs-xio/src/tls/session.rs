//! One end of TLS on one channel, without I/O: rustls for the handshake and the small frames of the
//! opening, and then the records of this crate.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

use rustls::{Connection, ProtocolVersion};

use super::records::{CLEAR, Records, cut_off, out_of_place};
use crate::stream::{Capabilities, Offload, Protection};
use crate::transform::{Output, Room, Transform};
use xdfs_tls::record::{APPLICATION_DATA, BODY_BYTES, CONTENT_BYTES, HEADER_BYTES};

/// Label of the exporter for [`Protection::binding`].
const BINDING_LABEL: &[u8] = b"EXPORTER-xdfs-channel";
/// The lowest record type; the highest is that of application data.
const CHANGE_CIPHER_SPEC: u8 = 20;
/// Bytes read at once during the opening.
const READ_BYTES: usize = 4 << 10;

/// The owner of the record layer.
pub(super) enum Session {
    /// rustls: the handshake and the small frames of the opening.
    Opening(Opening),
    /// This crate, once the channel moves more.
    Moving(Box<Records>, Protection),
    /// None: the change from the one to the other failed.
    Broken,
}

/// The phase in which rustls owns the record layer. It gets only complete records: a partial one
/// would be lost at the handover.
pub(super) struct Opening {
    connection: Box<Connection>,
    /// Bytes given to rustls during the handshake: it keeps those of incomplete messages.
    given: usize,
    /// close_notify has arrived, and everything before it was read.
    ended: bool,
}

impl Opening {
    /// Moves the output of rustls to `out`.
    fn write_out(&mut self, out: &mut Output) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Out(out))?;
        }
        Ok(())
    }

    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        let mut taken = 0;
        for slice in content {
            taken += self.connection.writer().write(slice)?;
        }
        self.write_out(out)?;
        Ok(taken)
    }

    fn decode(
        &mut self,
        encoded: &[u8],
        room: &mut Room<'_, '_>,
        out: &mut Output,
    ) -> io::Result<usize> {
        let mut used = 0;
        loop {
            if !self.connection.is_handshaking() {
                self.take_content(room)?;
                if self.ended || room.left() == 0 {
                    break;
                }
            }
            let Some(length) = self.record_length(&encoded[used..]) else {
                break;
            };
            let mut record = &encoded[used..used + length];
            used += length;
            self.given = self.given.saturating_add(length);
            while !record.is_empty() {
                self.connection.read_tls(&mut record)?;
                if let Err(error) = self.connection.process_new_packets() {
                    // Sends the alert, as far as the transport accepts it.
                    let _ = self.write_out(out);
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
                self.check_version()?;
            }
        }
        // The next handshake flight, tickets, or the response to a key update.
        self.write_out(out)?;
        let is_stuck = !self.connection.is_handshaking() && room.left() > 0 && room.filled() == 0;
        if is_stuck && !self.ended && encoded[used..].first() == Some(&CLEAR) {
            return Err(out_of_place());
        }
        Ok(used)
    }

    /// Records are those of TLS 1.3, whatever a caller's configuration would take.
    fn check_version(&self) -> io::Result<()> {
        match self.connection.protocol_version() {
            None | Some(ProtocolVersion::TLSv1_3) => Ok(()),
            Some(_) => {
                let cause = "the peer speaks an older version than TLS 1.3";
                Err(io::Error::new(ErrorKind::InvalidData, cause))
            }
        }
    }

    /// The length of the record at the front of `bytes`, if it is complete. Anything else than a
    /// record is passed to rustls, which refuses it.
    fn record_length(&self, bytes: &[u8]) -> Option<usize> {
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

    /// Reads content decrypted by rustls.
    fn take_content(&mut self, room: &mut Room<'_, '_>) -> io::Result<()> {
        while room.left() > 0 {
            match self.connection.reader().read(room.slice()) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(n) => room.advance(n),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
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

    /// Takes over the keys and the unread content from rustls.
    fn into_records(mut self, out: &mut Output) -> io::Result<(Records, Protection)> {
        let protection = self.protection().ok_or(ErrorKind::NotConnected)?;
        let mut content = Vec::new();
        let ended = match self.connection.reader().read_to_end(&mut content) {
            Ok(_) => true,
            Err(e) if e.kind() == ErrorKind::WouldBlock => false,
            Err(e) => return Err(e),
        };
        self.write_out(out)?;
        let is_client = matches!(*self.connection, Connection::Client(_));
        let secrets = self.connection.dangerous_extract_secrets();
        let secrets = secrets.map_err(io::Error::other)?;
        let records = Records::new(secrets, content, ended, is_client)?;
        Ok((records, protection))
    }
}

impl Session {
    /// Starts the handshake.
    pub(super) fn new(mut connection: Connection) -> Self {
        // Bounded by the size of a call's output.
        connection.set_buffer_limit(None);
        Self::Opening(Opening {
            connection: Box::new(connection),
            given: 0,
            ended: false,
        })
    }

    /// The record layer of this crate, taking over if necessary. The handshake must be over.
    pub(super) fn records(&mut self, out: &mut Output) -> io::Result<&mut Records> {
        if let Self::Opening(opening) = self {
            if opening.connection.is_handshaking() {
                return Err(ErrorKind::NotConnected.into());
            }
            if let Self::Opening(opening) = std::mem::replace(self, Self::Broken) {
                let (records, protection) = opening.into_records(out)?;
                *self = Self::Moving(Box::new(records), protection);
            }
        }
        self.moving().ok_or_else(|| ErrorKind::BrokenPipe.into())
    }

    /// The record layer of this crate, if it has taken over.
    pub(super) fn moving(&mut self) -> Option<&mut Records> {
        match self {
            Self::Moving(records, _) => Some(records),
            _ => None,
        }
    }

    /// Whether the keys should be replaced.
    pub(super) fn is_worn(&self) -> bool {
        matches!(self, Self::Moving(records, _) if records.is_worn())
    }

    /// The directions protected by the kernel.
    pub(super) fn offloaded(&self) -> Offload {
        match self {
            Self::Moving(records, _) => Offload {
                sending: records.seal.is_offloaded(),
                receiving: records.open.is_offloaded(),
            },
            _ => Offload::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn change_keys(&mut self, out: &mut Output) {
        if let Self::Opening(opening) = self {
            let _ = opening.connection.refresh_traffic_keys();
            let _ = opening.write_out(out);
        }
    }
}

impl Transform for Session {
    fn is_open(&self) -> bool {
        !matches!(self, Self::Opening(opening) if opening.connection.is_handshaking())
    }

    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        let len: usize = content.iter().map(|slice| slice.len()).sum();
        if let Self::Opening(opening) = self
            && len <= CONTENT_BYTES
        {
            return opening.encode(content, out);
        }
        self.records(out)?.encode(content, out)
    }

    fn decode(
        &mut self,
        encoded: &[u8],
        room: &mut Room<'_, '_>,
        out: &mut Output,
    ) -> io::Result<usize> {
        if let Self::Opening(opening) = self
            && room.left() <= CONTENT_BYTES
        {
            return opening.decode(encoded, room, out);
        }
        self.records(out)?.decode(encoded, room, out)
    }

    fn wants(&self, held: &[u8], room: usize) -> usize {
        match self {
            Self::Moving(records, _) => records.wants(held, room),
            _ => READ_BYTES,
        }
    }

    fn is_ended(&self) -> bool {
        match self {
            Self::Opening(opening) => opening.ended,
            Self::Moving(records, _) => records.is_ended(),
            Self::Broken => false,
        }
    }

    fn end(&mut self, _: &[u8]) -> io::Result<()> {
        match self {
            Self::Opening(opening) if opening.connection.is_handshaking() => Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "the peer closed the connection during the TLS handshake",
            )),
            Self::Moving(records, _) => records.end(),
            _ => Err(cut_off()),
        }
    }

    fn close(&mut self, out: &mut Output) {
        match self {
            Self::Opening(opening) => {
                opening.connection.send_close_notify();
                // Without the alert the peer sees a truncated connection, which it distinguishes
                // from an end.
                let _ = opening.write_out(out);
            }
            Self::Moving(records, _) => records.close(out),
            Self::Broken => {}
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            // A growing buffer has up to twice the necessary capacity.
            Self::Opening(opening) if opening.connection.is_handshaking() => 2 * opening.given,
            Self::Moving(records, _) => records.held_bytes(),
            _ => 0,
        }
    }

    fn capabilities(&self, below: Capabilities) -> Capabilities {
        Capabilities {
            integrity: true,
            ..below
        }
    }

    fn protection(&self) -> Option<Protection> {
        match self {
            Self::Opening(opening) => opening.protection(),
            Self::Moving(_, protection) => Some(protection.clone()),
            Self::Broken => None,
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Opening(_) => "opening",
            Self::Moving(..) => "moving",
            Self::Broken => "broken",
        })
    }
}

/// Adapts [`Output`] for rustls.
struct Out<'a>(&'a mut Output);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        bufs.iter()
            .try_fold(0, |all, buf| Ok(all + self.write(buf)?))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
