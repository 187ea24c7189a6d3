//! The channel after the handshake: records from and to the caller's buffers, with no copy between.
//!
//! rustls does the handshake and hands its keys over here as soon as a channel moves more than the
//! small frames of its opening. Its own interface copies each byte twice more than is needed. The
//! bytes on the wire are the same, so that the peer can't tell.
//!
//! ## Clear runs
//!
//! Payload may also travel beside the protection, where both sides agreed on that. Between two
//! records stands a run of clear bytes then: the byte 0xcc, which no record begins with, a length
//! of four bytes, and as many bytes. Protected bytes are read and written by other calls than clear
//! ones, and a reader that asks for one and meets the other gets an error: who changes the bytes on
//! the way can't make one pass for the other.
//!
//! ## Records of the kernel
//!
//! Where nothing will be clear, the kernel may make the records ([`Records::offload`]). Each
//! direction changes over at the boundary of a record: sending when all that was encrypted here is
//! written, receiving when all that was read is used, for which a reader asks for no byte beyond
//! the record it is in. Reads give content into the caller's buffers then, and the few records of
//! TLS itself are taken as before.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use rustls::ExtractedSecrets;

use super::kernel::{self, Way};
use super::seal::{
    ALERT, APPLICATION_DATA, BODY_BYTES, CONTENT_BYTES, Direction, HANDSHAKE, HEADER_BYTES,
    OVERHEAD_BYTES, TAG_BYTES, damaged,
};
use crate::{Offload, Stream};

/// Content that is encrypted at once, in records: what is written then is still in the cache.
const BATCH_RECORDS: usize = 32;
/// Slices up to this many bytes are gathered into one record.
const SMALL_BYTES: usize = 2048;
/// Room for a batch and for two records of gathered slices.
const OUT_BYTES: usize =
    BATCH_RECORDS * (CONTENT_BYTES + OVERHEAD_BYTES) + 2 * (SMALL_BYTES + OVERHEAD_BYTES);
/// Fewest bytes that are asked of the transport.
const READ_BYTES_MIN: usize = 4 << 10;
/// Most bytes that are asked of the transport, and a record that isn't complete before them.
const IN_BYTES: usize = BATCH_RECORDS * (CONTENT_BYTES + OVERHEAD_BYTES) + 2 * BODY_BYTES;
/// Bytes read beyond a clear run: the next record, if it is small.
const TAIL_BYTES: usize = 256;
/// Content of a record that the kernel received, for the count of records: a sender may make them
/// smaller than they could be.
const COUNTED_BYTES: usize = CONTENT_BYTES / 4;
/// Bytes by which a record of TLS itself is told from others.
const MESSAGE_BYTES: usize = 3;
/// Records without content that may follow each other.
const EMPTY_RECORDS_MAX: u32 = 32;
/// Buffers that a thread keeps for reuse.
const SPARE_MAX: usize = 4;
/// The first byte of a clear run.
pub(super) const CLEAR: u8 = 0xcc;
/// The alert that ends a direction in order.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
/// The alert that a record was damaged.
const BAD_RECORD_MAC: [u8; 2] = [2, 20];
/// The message of the handshake with a ticket for a later connection.
const NEW_SESSION_TICKET: u8 = 4;

thread_local! {
    /// Where encrypted bytes are read to. One a thread: what is left over stays with its stream, so
    /// that a thousand idle channels hold no buffers.
    static INPUT: RefCell<Box<[u8]>> = RefCell::default();
    /// Buffers for encrypted bytes on their way out.
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    /// A record that doesn't go into the caller's buffers as a whole.
    static RECORD: RefCell<Box<[u8]>> = RefCell::default();
}

/// Encrypted bytes that the transport didn't take yet.
struct Pending {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Both directions of a channel after its handshake. It has payload and secrets within, so that it
/// can't be printed.
pub(super) struct Records {
    seal: Direction,
    open: Direction,
    /// Bytes read from the transport and not yet used.
    left: Vec<u8>,
    /// Content of a record that had no room in the caller's buffers.
    content: Vec<u8>,
    pending: Option<Pending>,
    /// Bytes of the clear run that is being written, and of the one that is being read.
    run_out: usize,
    run_in: usize,
    /// The peer ended its direction with close_notify.
    ended: bool,
    /// A read failed. The record that was wrong is used up, so that the next one would be taken for
    /// what follows it.
    broken: bool,
    empty_records: u32,
    /// The kernel may make the records.
    offload: bool,
    /// The front of a record of TLS itself that the kernel hasn't given to its end.
    message: Vec<u8>,
}

impl Records {
    /// Goes on after rustls. `left` was read from the transport and not given to rustls, `content`
    /// was decrypted by it and not read, `ended` tells whether close_notify came, and `waiting` was
    /// encrypted by it and not written.
    pub(super) fn new(
        secrets: ExtractedSecrets,
        left: Vec<u8>,
        content: Vec<u8>,
        ended: bool,
        waiting: Vec<u8>,
    ) -> io::Result<Self> {
        let end = waiting.len();
        Ok(Self {
            seal: Direction::new(secrets.tx)?,
            open: Direction::new(secrets.rx)?,
            left,
            content,
            pending: (end > 0).then(|| Pending {
                bytes: waiting.into(),
                start: 0,
                end,
            }),
            run_out: 0,
            run_in: 0,
            ended,
            broken: false,
            empty_records: 0,
            offload: false,
            message: Vec::new(),
        })
    }

    /// Bytes that were read from the transport and not given to a caller.
    pub(super) fn held_bytes(&self) -> usize {
        self.left.capacity() + self.content.capacity() + self.message.capacity()
    }

    /// Lets the kernel make the records, if it can and there is a socket for it. From now on
    /// nothing may be clear.
    pub(super) fn offload(&mut self, inner: &dyn Stream) {
        if self.offload || !self.seal.may_offload() {
            return;
        }
        let result = match inner.tcp_socket() {
            Some(socket) => kernel::attach(&socket),
            None => Err(ErrorKind::Unsupported.into()),
        };
        self.offload = result.is_ok();
        if let Err(error) = result {
            tracing::debug!(%error, "the kernel doesn't make the TLS records of a channel");
            self.seal.keep();
            self.open.keep();
        }
    }

    /// Which directions the kernel has.
    pub(super) fn offloaded(&self) -> Offload {
        Offload {
            sending: self.seal.is_offloaded(),
            receiving: self.open.is_offloaded(),
        }
    }

    /// Whether the kernel makes the records that are sent. Nothing is pending.
    fn kernel_sends(&mut self, inner: &dyn Stream) -> bool {
        if self.offload
            && self.seal.may_offload()
            && let Some(socket) = inner.tcp_socket()
        {
            self.seal.offload(&socket, Way::Sending);
        }
        self.seal.is_offloaded()
    }

    /// Whether the kernel opens the records that come.
    fn kernel_receives(&mut self, inner: &dyn Stream) -> bool {
        if self.offload
            && self.left.is_empty()
            && self.open.may_offload()
            && let Some(socket) = inner.tcp_socket()
        {
            self.open.offload(&socket, Way::Receiving);
        }
        self.open.is_offloaded()
    }

    /// Whether the keys should be replaced soon, which means: the channel.
    pub(super) fn is_worn(&self) -> bool {
        self.seal.is_worn() || self.open.is_worn()
    }

    /// Lowers what the keys may protect, for tests.
    #[cfg(test)]
    pub(super) fn wear(&mut self, records_max: u64) {
        self.seal.wear(records_max);
        self.open.wear(records_max);
    }

    /// Sends a record without content, for tests.
    #[cfg(test)]
    pub(super) fn send_empty(&mut self, inner: &mut dyn Stream) {
        while self.flush(inner).is_err() {}
        let mut bytes = vec![0; 100].into_boxed_slice();
        let end = self.seal.seal(APPLICATION_DATA, &[], &mut bytes);
        self.pending = end.ok().map(|end| Pending {
            bytes,
            start: 0,
            end,
        });
        while self.flush(inner).is_err() {}
    }

    pub(super) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Writes what is encrypted. `WouldBlock` if the transport doesn't take all of it.
    pub(super) fn flush(&mut self, inner: &mut dyn Stream) -> io::Result<()> {
        while let Some(pending) = &mut self.pending {
            let rest = &pending.bytes[pending.start..pending.end];
            pending.start += write_once(inner, &[IoSlice::new(rest)])?;
            self.drop_written();
        }
        Ok(())
    }

    /// Gives the buffer of written bytes back.
    fn drop_written(&mut self) {
        if let Some(done) = self.pending.take_if(|p| p.start == p.end) {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_MAX && done.bytes.len() == OUT_BYTES {
                    spare.push(done.bytes);
                }
            });
        }
    }

    /// Encrypts from `bufs` in order, at most a batch, and returns how many bytes that were.
    fn seal(&mut self, kind: u8, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut out = match self.pending.take() {
            Some(pending) => pending,
            None => Pending {
                bytes: SPARE
                    .with_borrow_mut(Vec::pop)
                    .unwrap_or_else(|| vec![0; OUT_BYTES].into()),
                start: 0,
                end: 0,
            },
        };
        let result = self.seal_into(kind, bufs, &mut out);
        self.pending = Some(out);
        // Nothing was sealed: there is nothing to write.
        self.drop_written();
        result
    }

    fn seal_into(
        &mut self,
        kind: u8,
        bufs: &[IoSlice<'_>],
        out: &mut Pending,
    ) -> io::Result<usize> {
        let (mut small, mut gathered) = ([0; SMALL_BYTES], 0);
        let (mut records, mut taken) = (0, 0);
        let mut one = |content: &[u8]| {
            let room = &mut out.bytes[out.end..];
            if content.is_empty() || room.len() < content.len() + OVERHEAD_BYTES {
                return Ok(content.is_empty());
            }
            out.end += self.seal.seal(kind, content, room)?;
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

    /// Writes protected bytes.
    pub(super) fn write(
        &mut self,
        inner: &mut dyn Stream,
        bufs: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        if self.run_out > 0 {
            return Err(ErrorKind::InvalidInput.into());
        }
        self.flush(inner)?;
        if self.kernel_sends(inner) {
            self.seal.check()?;
            if bufs.iter().all(|b| b.is_empty()) {
                return Ok(0);
            }
            let taken = write_once(inner, bufs)?;
            // A record may end with each slice.
            self.seal.count(taken / CONTENT_BYTES + bufs.len());
            return Ok(taken);
        }
        let taken = self.seal(APPLICATION_DATA, bufs)?;
        match self.flush(inner) {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ => Ok(taken),
        }
    }

    /// Writes `protected`, at most [`CONTENT_BYTES`], and then `clear` as a clear run, or as the
    /// rest of one that was begun.
    pub(super) fn write_beside(
        &mut self,
        inner: &mut dyn Stream,
        protected: &[IoSlice<'_>],
        clear: &[u8],
    ) -> io::Result<usize> {
        if self.seal.is_offloaded() {
            return Err(ErrorKind::Unsupported.into());
        }
        let mut taken = 0;
        if self.run_out == 0 {
            let len: usize = protected.iter().map(|b| b.len()).sum();
            let run = u32::try_from(clear.len()).ok().filter(|&n| n > 0);
            // So much fits whatever its slices are like, as nothing else waits.
            let (Some(run), 1..=CONTENT_BYTES) = (run, len) else {
                return Err(ErrorKind::InvalidInput.into());
            };
            self.flush(inner)?;
            taken = self.seal(APPLICATION_DATA, protected)?;
            let room = self.pending.as_mut().and_then(|p| {
                let room = p.bytes.get_mut(p.end..p.end + HEADER_BYTES)?;
                p.end += HEADER_BYTES;
                Some(room)
            });
            let (true, Some(room)) = (taken == len, room) else {
                return Err(ErrorKind::InvalidInput.into());
            };
            room[0] = CLEAR;
            room[1..].copy_from_slice(&run.to_be_bytes());
            self.run_out = clear.len();
        } else if self.run_out != clear.len() || !protected.is_empty() {
            return Err(ErrorKind::InvalidInput.into());
        }
        // A call that only writes what was taken before would have nothing to tell: it goes on.
        loop {
            let (bytes, waiting) = match &self.pending {
                Some(p) => (&p.bytes[p.start..p.end], p.end - p.start),
                None => (&[][..], 0),
            };
            let slices = [IoSlice::new(bytes), IoSlice::new(clear)];
            let n = match write_once(inner, &slices) {
                Err(e) if e.kind() == ErrorKind::WouldBlock && taken > 0 => return Ok(taken),
                done => done?,
            };
            if let Some(pending) = &mut self.pending {
                pending.start += n.min(waiting);
            }
            self.drop_written();
            let clear_written = n.saturating_sub(waiting);
            self.run_out -= clear_written;
            if taken + clear_written > 0 {
                return Ok(taken + clear_written);
            }
        }
    }

    /// Says that nothing follows, as far as the transport takes it.
    pub(super) fn close(&mut self, inner: &mut dyn Stream) {
        // Within a clear run it would be taken for payload; a peer that takes nothing any more is
        // cut off, which it will tell from an end.
        if self.run_out == 0 && self.flush(inner).is_ok() {
            self.alert(inner, CLOSE_NOTIFY);
        }
    }

    fn alert(&mut self, inner: &mut dyn Stream, alert: [u8; 2]) {
        if self.seal.is_offloaded() {
            if let Some(socket) = inner.tcp_socket()
                && self.seal.check().is_ok()
            {
                self.seal.count(1);
                // The kernel refuses to send while it has an error of receiving to tell.
                let _ = socket.take_error();
                // As below: as far as the transport takes it.
                let _ = kernel::send(&socket, ALERT, &alert);
            }
            return;
        }
        if self.run_out == 0 && self.seal(ALERT, &[IoSlice::new(&alert)]).is_ok() {
            let _ = self.flush(inner);
        }
    }

    /// Reads protected bytes.
    pub(super) fn read(
        &mut self,
        inner: &mut dyn Stream,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        self.check()?;
        let result = self.read_protected(inner, bufs);
        self.note(result)
    }

    /// Refuses to go on after what can't be put right.
    fn check(&self) -> io::Result<()> {
        if self.broken {
            return Err(damaged("the channel broke before"));
        }
        Ok(())
    }

    fn note(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        let error = result.as_ref().err();
        self.broken = error.is_some_and(|e| e.kind() != ErrorKind::WouldBlock);
        result
    }

    fn read_protected(
        &mut self,
        inner: &mut dyn Stream,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let room: usize = bufs.iter().map(|b| b.len()).sum();
        if room == 0 {
            return Ok(0);
        }
        if !self.content.is_empty() {
            let mut cursor = Cursor::new(bufs);
            let n = cursor.put(&self.content);
            self.content.drain(..n);
            if self.content.is_empty() {
                self.content = Vec::new();
            }
            return Ok(n);
        }
        if self.ended {
            return Ok(0);
        }
        if self.run_in > 0 {
            return Err(out_of_place());
        }
        if self.kernel_receives(inner) {
            return self.read_from_kernel(inner, bufs);
        }
        let mut cursor = Cursor::new(bufs);
        loop {
            // What is left may hold complete records.
            let left = std::mem::take(&mut self.left);
            let used = self.open_records(inner, &left, &mut cursor)?;
            if cursor.done > 0 || self.ended {
                self.left = if used == 0 {
                    left
                } else {
                    left[used..].to_vec()
                };
                return Ok(cursor.done);
            }
            INPUT.with_borrow_mut(|input| {
                if input.is_empty() {
                    *input = vec![0; IN_BYTES].into();
                }
                let before = left.len() - used;
                input[..before].copy_from_slice(&left[used..]);
                let records = room / CONTENT_BYTES + 2;
                let want = if self.offload && self.open.may_offload() {
                    to_boundary(&input[..before])
                } else {
                    (room + records * OVERHEAD_BYTES).max(READ_BYTES_MIN)
                };
                let end = input.len().min(before + want);
                let n = match read_once(inner, &mut [IoSliceMut::new(&mut input[before..end])]) {
                    Ok(0) => Err(cut_off()),
                    done => done,
                };
                let n = match n {
                    Ok(n) => n,
                    Err(e) => {
                        self.left = input[..before].to_vec();
                        return Err(e);
                    }
                };
                let used = self.open_records(inner, &input[..before + n], &mut cursor)?;
                self.left = input[used..before + n].to_vec();
                Ok(())
            })?;
            if cursor.done > 0 || self.ended {
                return Ok(cursor.done);
            }
        }
    }

    /// Reads what the kernel has decrypted.
    fn read_from_kernel(
        &mut self,
        inner: &mut dyn Stream,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        while !self.ended {
            let received = match inner.tcp_socket() {
                Some(socket) => kernel::receive(&socket, bufs),
                None => Err(ErrorKind::NotConnected.into()),
            };
            let received = received.inspect_err(|error| {
                if error.kind() == ErrorKind::InvalidData {
                    self.alert(inner, BAD_RECORD_MAC);
                }
            })?;
            let len = received.len;
            self.open.count(1 + len / COUNTED_BYTES);
            match received.kind {
                None => return Err(cut_off()),
                Some(APPLICATION_DATA) => {
                    self.count_content(len)?;
                    if len > 0 {
                        return Ok(len);
                    }
                }
                Some(kind) => {
                    let content = bufs.iter().flat_map(|b| b.iter()).take(len);
                    let missing = MESSAGE_BYTES.saturating_sub(self.message.len());
                    self.message.extend(content.take(missing));
                    if received.complete {
                        let message = std::mem::take(&mut self.message);
                        self.take_message(kind, &message)?;
                    }
                }
            }
        }
        Ok(0)
    }

    /// Decrypts the complete records at the front of `bytes` that fit, and returns how many bytes
    /// they took. A record that doesn't fit is taken if it is the first.
    fn open_records(
        &mut self,
        inner: &mut dyn Stream,
        bytes: &[u8],
        cursor: &mut Cursor<'_, '_>,
    ) -> io::Result<usize> {
        let mut used = 0;
        while !self.ended && self.content.is_empty() && cursor.room() > 0 {
            let rest = &bytes[used..];
            match rest.first() {
                None => break,
                Some(&APPLICATION_DATA) => {}
                Some(&CLEAR) if cursor.done > 0 => break,
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
            if cursor.done > 0 && length.saturating_sub(TAG_BYTES + 1) > cursor.room() {
                break;
            }
            used += HEADER_BYTES + length;
            if let Err(error) = self.open_record(header, body, cursor) {
                if error.kind() == ErrorKind::InvalidData {
                    self.alert(inner, BAD_RECORD_MAC);
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
        cursor: &mut Cursor<'_, '_>,
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

    /// Takes a record of TLS itself.
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
            // Of no use here: the tickets of the opening are enough.
            (HANDSHAKE, [NEW_SESSION_TICKET, ..]) => self.count_content(0),
            (HANDSHAKE, _) => Err(io::Error::new(
                ErrorKind::Unsupported,
                "the peer changes the keys of the channel, which this side doesn't do",
            )),
            _ => Err(damaged("a record has an unknown type")),
        }
    }

    /// A peer that sends records without content for ever gets nowhere.
    fn count_content(&mut self, len: usize) -> io::Result<()> {
        self.empty_records = if len > 0 { 0 } else { self.empty_records + 1 };
        if self.empty_records > EMPTY_RECORDS_MAX {
            return Err(damaged("too many records without content"));
        }
        Ok(())
    }

    /// Reads bytes of a clear run.
    pub(super) fn read_clear(
        &mut self,
        inner: &mut dyn Stream,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        self.check()?;
        let result = self.read_run(inner, bufs);
        self.note(result)
    }

    fn read_run(
        &mut self,
        inner: &mut dyn Stream,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        if bufs.iter().all(|b| b.is_empty()) {
            return Ok(0);
        }
        if self.open.is_offloaded() {
            return Err(out_of_place());
        }
        if !self.content.is_empty() {
            return Err(out_of_place());
        }
        if self.ended {
            return Err(cut_off());
        }
        if self.run_in == 0 {
            self.begin_run(inner)?;
        }
        let mut want = self.run_in;
        if !self.left.is_empty() {
            let n = want.min(self.left.len());
            let n = Cursor::new(bufs).put(&self.left[..n]);
            self.left.drain(..n);
            if self.left.is_empty() {
                self.left = Vec::new();
            }
            self.run_in -= n;
            return Ok(n);
        }
        let mut tail = [0; TAIL_BYTES];
        let mut slices: Vec<IoSliceMut<'_>> = Vec::with_capacity(bufs.len() + 1);
        let mut asked = 0;
        for buf in bufs.iter_mut() {
            let n = want.min(buf.len());
            want -= n;
            asked += n;
            slices.push(IoSliceMut::new(&mut buf[..n]));
        }
        if want == 0 {
            slices.push(IoSliceMut::new(&mut tail));
        }
        let n = read_once(inner, &mut slices)?;
        if n == 0 {
            return Err(cut_off());
        }
        let payload = n.min(asked);
        self.run_in -= payload;
        self.left.extend_from_slice(&tail[..n - payload]);
        Ok(payload)
    }

    /// Reads the header of a clear run.
    fn begin_run(&mut self, inner: &mut dyn Stream) -> io::Result<()> {
        loop {
            if self.left.first().is_some_and(|&b| b != CLEAR) {
                return Err(out_of_place());
            }
            if let Some((&[_, length @ ..], rest)) = self.left.split_first_chunk::<HEADER_BYTES>() {
                self.run_in = u32::from_be_bytes(length) as usize;
                if self.run_in == 0 {
                    return Err(damaged("a clear run is empty"));
                }
                self.left = rest.to_vec();
                return Ok(());
            }
            // No further than the header: what follows goes to the caller's buffers.
            let mut rest = [0; HEADER_BYTES];
            let missing = HEADER_BYTES - self.left.len();
            let n = read_once(inner, &mut [IoSliceMut::new(&mut rest[..missing])])?;
            if n == 0 {
                return Err(cut_off());
            }
            self.left.extend_from_slice(&rest[..n]);
        }
    }
}

/// Bytes that are missing of the record, or of its header, that `bytes` begin.
fn to_boundary(bytes: &[u8]) -> usize {
    let length = match bytes.first_chunk::<HEADER_BYTES>() {
        Some(&[_, _, _, high, low]) => {
            HEADER_BYTES + usize::from(u16::from_be_bytes([high, low])).min(BODY_BYTES)
        }
        None => HEADER_BYTES,
    };
    length.saturating_sub(bytes.len()).max(1)
}

/// The caller's buffers, from the first byte that isn't filled.
struct Cursor<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    index: usize,
    offset: usize,
    done: usize,
}

impl<'a, 'b> Cursor<'a, 'b> {
    fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Self {
        Self {
            bufs,
            index: 0,
            offset: 0,
            done: 0,
        }
    }

    /// Bytes that still go in.
    fn room(&self) -> usize {
        let all: usize = self.bufs[self.index..].iter().map(|b| b.len()).sum();
        all - self.offset
    }

    /// The rest of the buffer that is being filled.
    fn slice(&mut self) -> &mut [u8] {
        while let Some(buf) = self.bufs.get(self.index)
            && self.offset == buf.len()
        {
            self.index += 1;
            self.offset = 0;
        }
        match self.bufs.get_mut(self.index) {
            Some(buf) => &mut buf[self.offset..],
            None => &mut [],
        }
    }

    fn advance(&mut self, n: usize) {
        self.offset += n;
        self.done += n;
    }

    /// Copies as much of `bytes` as there is room for.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let slice = self.slice();
            let n = slice.len().min(bytes.len() - taken);
            if n == 0 {
                break;
            }
            slice[..n].copy_from_slice(&bytes[taken..taken + n]);
            self.advance(n);
            taken += n;
        }
        taken
    }
}

/// Writes what the transport takes at once. An interruption isn't passed on: what was encrypted
/// can't be given back, and the caller would write it again. A transport that takes nothing has
/// ended.
pub(super) fn write_once(inner: &mut dyn Stream, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match inner.write_vectored(bufs) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Reads what the transport gives at once, whatever interrupts it.
pub(super) fn read_once(inner: &mut dyn Stream, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    loop {
        match inner.read_vectored(bufs) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

pub(super) fn cut_off() -> io::Error {
    io::Error::new(
        ErrorKind::UnexpectedEof,
        "the connection was cut off without a TLS close_notify",
    )
}

pub(super) fn out_of_place() -> io::Error {
    damaged("clear and protected bytes came in another order than the frames say")
}
