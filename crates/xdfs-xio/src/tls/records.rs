//! The channel after the handshake: records encrypted from and decrypted into the caller's buffers,
//! without further copies.
//!
//! rustls performs the handshake and hands its keys over here as soon as a channel moves more than
//! the small frames of its opening: its own interface copies each byte twice more. The bytes on the
//! wire are the same, so the peer can't tell the difference.
//!
//! ## Cleartext runs
//!
//! Where both sides have agreed, payload may travel unprotected. A run of cleartext then stands
//! between two records: the byte 0xcc, which begins no record, a length of four bytes, and that
//! number of bytes. Protected bytes and cleartext are read and written by different calls, and a
//! reader that expects one and meets the other gets an error: an attacker can't pass one off as the
//! other.
//!
//! Nothing here does I/O: bytes are arguments and results.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};

use rustls::ExtractedSecrets;

use crate::transform::{Output, Room};
use xdfs_tls::record::{
    ALERT, APPLICATION_DATA, BODY_BYTES, CONTENT_BYTES, Direction, HANDSHAKE, HEADER_BYTES,
    OVERHEAD_BYTES, TAG_BYTES, damaged,
};

/// Number of records encrypted at once, so that their output is still in the cache when it is
/// written.
const BATCH_RECORDS: usize = 32;
/// Slices up to this size are gathered into one record.
const SMALL_BYTES: usize = 2048;
/// Minimum number of bytes to read from the transport.
const READ_BYTES_MIN: usize = 4 << 10;
/// Bytes needed to classify a handshake message or alert.
const MESSAGE_BYTES: usize = 3;
/// Maximum number of consecutive empty records.
const EMPTY_RECORDS_MAX: u32 = 32;
/// The first byte of a cleartext run.
pub(super) const CLEAR: u8 = 0xcc;
/// The alert that ends a direction in an orderly way.
pub(super) const CLOSE_NOTIFY: [u8; 2] = [1, 0];
/// The alert for a damaged record.
pub(super) const BAD_RECORD_MAC: [u8; 2] = [2, 20];
/// The handshake message with a ticket for a later connection.
const NEW_SESSION_TICKET: u8 = 4;

thread_local! {
    /// Buffer for records that don't fit into the caller's buffers as a whole.
    static RECORD: RefCell<Box<[u8]>> = RefCell::default();
}

/// Both directions of a channel after its handshake. Contains payload and secrets, so it can't be
/// printed.
pub(super) struct Records {
    pub(super) seal: Direction,
    pub(super) open: Direction,
    /// Content of a record that didn't fit into the caller's buffers.
    content: Vec<u8>,
    /// Remaining bytes of the cleartext runs being written and read, respectively.
    run_out: usize,
    run_in: usize,
    /// The peer ended its direction with close_notify.
    ended: bool,
    /// A read failed. The invalid record has been consumed, so the next one must not take its
    /// place.
    broken: bool,
    empty_records: u32,
    /// Reads must not go beyond the end of the current record.
    pub(super) to_boundary: bool,
    /// Beginning of a handshake message or alert that is incomplete.
    message: Vec<u8>,
    /// An alert to be sent by the kernel, since it has the keys.
    alert_due: bool,
    /// The peer is a server, which may send tickets.
    takes_tickets: bool,
}

impl Records {
    /// Takes over from rustls. `content` is what rustls has decrypted and nobody has read; `ended`
    /// tells whether close_notify has arrived, `takes_tickets` whether the peer is a server.
    pub(super) fn new(
        secrets: ExtractedSecrets,
        content: Vec<u8>,
        ended: bool,
        takes_tickets: bool,
    ) -> io::Result<Self> {
        Ok(Self {
            seal: Direction::new(secrets.tx)?,
            open: Direction::new(secrets.rx)?,
            content,
            run_out: 0,
            run_in: 0,
            ended,
            broken: false,
            empty_records: 0,
            to_boundary: false,
            message: Vec::new(),
            alert_due: false,
            takes_tickets,
        })
    }

    /// Bytes received and not yet returned to a caller.
    pub(super) fn held_bytes(&self) -> usize {
        self.content.capacity() + self.message.capacity()
    }

    /// Whether the next bytes to read come from the transport and begin a record.
    pub(super) fn reads_on(&self) -> bool {
        !self.broken && !self.ended && self.content.is_empty() && self.run_in == 0
    }

    /// Remaining bytes of the cleartext run being written.
    pub(super) fn run_out(&self) -> usize {
        self.run_out
    }

    /// Whether the peer has ended its direction, and all content was returned.
    pub(super) fn is_ended(&self) -> bool {
        self.ended && self.content.is_empty()
    }

    /// Whether the keys, and therefore the channel, should be replaced soon.
    pub(super) fn is_worn(&self) -> bool {
        self.seal.is_worn() || self.open.is_worn()
    }

    /// Lowers the limit of the keys, for tests.
    #[cfg(test)]
    pub(super) fn wear(&mut self, records_max: u64) {
        self.seal.wear(records_max);
        self.open.wear(records_max);
    }

    /// Appends a record of any type, for tests.
    #[cfg(test)]
    pub(super) fn put(&mut self, kind: u8, content: &[u8], out: &mut Output) {
        let sealed = self.seal.seal(kind, content, out.room());
        out.advance(sealed.unwrap_or(0));
    }

    /// Encrypts from `bufs` in order, at most a batch, and returns the number of bytes.
    fn seal(&mut self, kind: u8, bufs: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        let room = out.room();
        let mut end = 0;
        let result = self.seal_into(kind, bufs, room, &mut end);
        out.advance(end);
        result
    }

    fn seal_into(
        &mut self,
        kind: u8,
        bufs: &[IoSlice<'_>],
        out: &mut [u8],
        end: &mut usize,
    ) -> io::Result<usize> {
        let (mut small, mut gathered) = ([0; SMALL_BYTES], 0);
        let (mut records, mut taken) = (0, 0);
        let mut one = |content: &[u8]| {
            let room = &mut out[*end..];
            if content.is_empty() || room.len() < content.len() + OVERHEAD_BYTES {
                return Ok(content.is_empty());
            }
            *end += self.seal.seal(kind, content, room)?;
            taken += content.len();
            Ok::<_, io::Error>(true)
        };
        'all: {
            for buf in bufs {
                if buf.len() <= SMALL_BYTES - gathered {
                    small[gathered..gathered + buf.len()].copy_from_slice(buf);
                    gathered += buf.len();
                    continue;
                }
                if !one(&small[..std::mem::take(&mut gathered)])? {
                    break 'all;
                }
                for content in buf.chunks(CONTENT_BYTES) {
                    if records == BATCH_RECORDS || !one(content)? {
                        break 'all;
                    }
                    records += 1;
                }
            }
            one(&small[..gathered])?;
        }
        Ok(taken)
    }

    /// Encrypts from the front of `bufs`, and returns the number of bytes.
    pub(super) fn encode(&mut self, bufs: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        if self.run_out > 0 {
            return Err(ErrorKind::InvalidInput.into());
        }
        self.seal(APPLICATION_DATA, bufs, out)
    }

    /// Encrypts `protected`, at most [`CONTENT_BYTES`], and begins a cleartext run of `bytes` after
    /// it, or continues one with that many bytes left. Returns the number of bytes accepted. `out`
    /// must be empty if a run begins.
    pub(super) fn encode_run(
        &mut self,
        protected: &[IoSlice<'_>],
        bytes: usize,
        out: &mut Output,
    ) -> io::Result<usize> {
        let len: usize = protected.iter().map(|b| b.len()).sum();
        self.check_run(len, bytes)?;
        if self.run_out > 0 {
            return Ok(0);
        }
        // Fits in any case, since the output is empty.
        let taken = self.seal(APPLICATION_DATA, protected, out)?;
        let room = out.room().first_chunk_mut::<HEADER_BYTES>();
        let run = u32::try_from(bytes).map_err(io::Error::other)?;
        let (true, Some([kind, length @ ..])) = (taken == len, room) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        *kind = CLEAR;
        *length = run.to_be_bytes();
        out.advance(HEADER_BYTES);
        self.run_out = bytes;
        Ok(taken)
    }

    /// Refuses anything but a new run of `bytes` after `len` protected ones, or the rest of one.
    pub(super) fn check_run(&self, len: usize, bytes: usize) -> io::Result<()> {
        let is_right = if self.run_out > 0 {
            len == 0 && bytes == self.run_out
        } else {
            (1..=CONTENT_BYTES).contains(&len) && bytes > 0 && u32::try_from(bytes).is_ok()
        };
        if is_right {
            Ok(())
        } else {
            Err(ErrorKind::InvalidInput.into())
        }
    }

    /// Counts bytes of the cleartext run as written.
    pub(super) fn wrote_run(&mut self, bytes: usize) {
        self.run_out -= bytes;
    }

    /// Sends close_notify.
    pub(super) fn close(&mut self, out: &mut Output) {
        // Within a cleartext run it would be taken for payload.
        if !self.seal.is_offloaded() {
            self.alert(CLOSE_NOTIFY, out);
        }
    }

    pub(super) fn alert(&mut self, alert: [u8; 2], out: &mut Output) {
        if self.seal.is_offloaded() {
            self.alert_due = true;
        } else if self.run_out == 0 {
            // If it can't be encrypted, the end of the transport still shows it.
            let _ = self.seal(ALERT, &[IoSlice::new(&alert)], out);
        }
    }

    /// Whether the kernel is to send the alert for a damaged record; true once.
    pub(super) fn take_alert_due(&mut self) -> bool {
        std::mem::take(&mut self.alert_due)
    }

    /// Decrypts from the front of `encoded`, and returns the number of bytes used.
    pub(super) fn decode(
        &mut self,
        encoded: &[u8],
        room: &mut Room<'_, '_>,
        out: &mut Output,
    ) -> io::Result<usize> {
        self.check()?;
        let result = self.decode_protected(encoded, room, out);
        self.note(result)
    }

    /// Fails after an error that can't be recovered from.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.broken {
            return Err(damaged("the channel broke before"));
        }
        Ok(())
    }

    /// Records whether the result of a read is an error that can't be recovered from.
    pub(super) fn note(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        let error = result.as_ref().err();
        self.broken = error.is_some_and(|e| e.kind() != ErrorKind::WouldBlock);
        result
    }

    fn decode_protected(
        &mut self,
        encoded: &[u8],
        room: &mut Room<'_, '_>,
        out: &mut Output,
    ) -> io::Result<usize> {
        if room.left() == 0 {
            return Ok(0);
        }
        if !self.content.is_empty() {
            let n = room.put(&self.content);
            self.content.drain(..n);
            if self.content.is_empty() {
                self.content = Vec::new();
            }
            return Ok(0);
        }
        if self.ended {
            return Ok(0);
        }
        if self.run_in > 0 {
            return Err(out_of_place());
        }
        self.open_records(encoded, room, out)
    }

    /// Number of bytes to read after `held` when there is room for `room` bytes of content.
    pub(super) fn wants(&self, held: &[u8], room: usize) -> usize {
        if self.to_boundary && self.open.may_offload() {
            return to_boundary(held);
        }
        let records = room / CONTENT_BYTES + 2;
        (room + records * OVERHEAD_BYTES).max(READ_BYTES_MIN)
    }

    /// Handles the end of the transport.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.broken = true;
        Err(cut_off())
    }

    /// Handles a piece of a handshake message or alert decrypted by the kernel.
    pub(super) fn take_piece(
        &mut self,
        kind: u8,
        piece: impl Iterator<Item = u8>,
        is_last: bool,
    ) -> io::Result<()> {
        let missing = MESSAGE_BYTES.saturating_sub(self.message.len());
        self.message.extend(piece.take(missing));
        if is_last {
            let message = std::mem::take(&mut self.message);
            self.take_message(kind, &message)?;
        }
        Ok(())
    }

    /// Decrypts the complete records at the front of `bytes` that fit, and returns their size. The
    /// first record is taken even if it doesn't fit.
    fn open_records(
        &mut self,
        bytes: &[u8],
        cursor: &mut Room<'_, '_>,
        out: &mut Output,
    ) -> io::Result<usize> {
        let mut used = 0;
        while !self.ended && self.content.is_empty() && cursor.left() > 0 {
            let rest = &bytes[used..];
            match rest.first() {
                None => break,
                Some(&APPLICATION_DATA) => {}
                Some(&CLEAR) if cursor.filled() > 0 => break,
                Some(&CLEAR) => return Err(out_of_place()),
                Some(_) => return Err(damaged("the peer sent something else than a TLS record")),
            }
            let Some(&header) = rest.first_chunk::<HEADER_BYTES>() else {
                break;
            };
            let [_, _, _, high, low] = header;
            let length = usize::from(u16::from_be_bytes([high, low]));
            if length > BODY_BYTES {
                return Err(damaged("a record is too long"));
            }
            let Some(body) = rest.get(HEADER_BYTES..HEADER_BYTES + length) else {
                break;
            };
            if cursor.filled() > 0 && length.saturating_sub(TAG_BYTES + 1) > cursor.left() {
                break;
            }
            used += HEADER_BYTES + length;
            if let Err(error) = self.open_record(header, body, cursor) {
                if error.kind() == ErrorKind::InvalidData {
                    self.alert(BAD_RECORD_MAC, out);
                }
                return Err(error);
            }
        }
        Ok(used)
    }

    fn open_record(
        &mut self,
        header: [u8; HEADER_BYTES],
        body: &[u8],
        cursor: &mut Room<'_, '_>,
    ) -> io::Result<()> {
        let direct = cursor.slice();
        if direct.len() >= body.len().saturating_sub(TAG_BYTES) {
            let (kind, len) = self.open.open(header, body, direct)?;
            if kind == APPLICATION_DATA {
                cursor.advance(len);
                return self.count_content(len);
            }
            return self.take_message(kind, &direct[..len]);
        }
        RECORD.with_borrow_mut(|record| {
            if record.is_empty() {
                *record = vec![0; BODY_BYTES].into();
            }
            let (kind, len) = self.open.open(header, body, record)?;
            let content = &record[..len];
            if kind == APPLICATION_DATA {
                let n = cursor.put(content);
                self.content = content[n..].to_vec();
                return self.count_content(len);
            }
            self.take_message(kind, content)
        })
    }

    /// Handles a handshake message or alert.
    fn take_message(&mut self, kind: u8, content: &[u8]) -> io::Result<()> {
        match (kind, content) {
            (ALERT, [_, 0]) => {
                self.ended = true;
                Ok(())
            }
            (ALERT, [_, number]) => Err(io::Error::new(
                ErrorKind::ConnectionAborted,
                format!("the peer ended TLS with the alert {number}"),
            )),
            (HANDSHAKE, [NEW_SESSION_TICKET, ..]) if !self.takes_tickets => {
                Err(damaged("a client sends a ticket, as only a server may"))
            }
            // Nothing else may come between its parts (RFC 8446, section 5.1), and none is so long.
            (HANDSHAKE, &[NEW_SESSION_TICKET, a, b, c, ref body @ ..])
                if body.len() < u32::from_be_bytes([0, a, b, c]) as usize =>
            {
                Err(damaged("a ticket is longer than a record"))
            }
            // Unused: the opening's tickets suffice.
            (HANDSHAKE, [NEW_SESSION_TICKET, ..]) => self.count_content(0),
            (HANDSHAKE, _) => Err(io::Error::new(
                ErrorKind::Unsupported,
                "the peer changes the keys of the channel, which this side doesn't do",
            )),
            _ => Err(damaged("a record has an unknown type")),
        }
    }

    /// Bounds the number of consecutive empty records.
    pub(super) fn count_content(&mut self, len: usize) -> io::Result<()> {
        self.empty_records = if len > 0 { 0 } else { self.empty_records + 1 };
        if self.empty_records > EMPTY_RECORDS_MAX {
            return Err(damaged("too many records without content"));
        }
        Ok(())
    }

    /// Reads the header of a cleartext run from the front of `held`, unless a run is being read.
    /// Returns the bytes left in the run or, if that is 0, the bytes missing of the header.
    pub(super) fn decode_run(&mut self, held: &mut Vec<u8>) -> io::Result<(usize, usize)> {
        if self.open.is_offloaded() || !self.content.is_empty() {
            return Err(out_of_place());
        }
        if self.ended {
            return Err(cut_off());
        }
        if self.run_in == 0 {
            if held.first().is_some_and(|&b| b != CLEAR) {
                return Err(out_of_place());
            }
            let Some((&[_, length @ ..], rest)) = held.split_first_chunk::<HEADER_BYTES>() else {
                // Not beyond the header: what follows is read into the caller's buffers.
                return Ok((0, HEADER_BYTES - held.len()));
            };
            self.run_in = u32::from_be_bytes(length) as usize;
            if self.run_in == 0 {
                return Err(damaged("a cleartext run is empty"));
            }
            *held = rest.to_vec();
        }
        Ok((self.run_in, 0))
    }

    /// Counts bytes of the cleartext run as read.
    pub(super) fn read_run(&mut self, bytes: usize) {
        self.run_in -= bytes;
    }
}

/// Bytes missing of the record, or of its header, at the front of `bytes`.
fn to_boundary(bytes: &[u8]) -> usize {
    let length = match bytes.first_chunk::<HEADER_BYTES>() {
        Some(&[_, _, _, high, low]) => {
            HEADER_BYTES + usize::from(u16::from_be_bytes([high, low])).min(BODY_BYTES)
        }
        None => HEADER_BYTES,
    };
    length.saturating_sub(bytes.len()).max(1)
}

pub(super) fn cut_off() -> io::Error {
    io::Error::new(
        ErrorKind::UnexpectedEof,
        "the connection was cut off without a TLS close_notify",
    )
}

pub(super) fn out_of_place() -> io::Error {
    damaged("cleartext and protected bytes came in another order than the frames say")
}
