//! One channel over TLS: the stream of its [`Session`], cleartext runs, and records of the kernel.
//!
//! Where nothing will be clear, the kernel may make the records ([`Protected::offload`]). Each
//! direction changes over at the boundary of a record: sending when all that was encrypted here is
//! written, receiving when all that was read is used, for which a reader asks for no byte beyond
//! the record it is in. Reads give content into the caller's buffers then, and the few records of
//! TLS itself are taken as before.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use socket2::SockRef;
use xdfs_sys::poll::{Poller, Token};

use super::kernel::{self, Way};
use super::records::{BAD_RECORD_MAC, CLOSE_NOTIFY, Records, cut_off};
use super::seal::{ALERT, APPLICATION_DATA, CONTENT_BYTES, Direction};
use super::session::Session;
use crate::stream::{Capabilities, Extension, Offload, Protected, Protection, Stream};
use crate::transform::{End, Room, Transform, Transformed, read_once, write_once};

/// Bytes read beyond a cleartext run: the next record, if it is small.
const TAIL_BYTES: usize = 256;
/// Content of a record that the kernel received, for the count of records: a sender may make them
/// smaller than they could be.
const COUNTED_BYTES: usize = CONTENT_BYTES / 4;

/// A channel over TLS 1.3.
#[derive(Debug)]
pub struct TlsStream {
    flow: Transformed<Session>,
    offload: Asked,
}

/// Whether the kernel makes the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Nobody wants that.
    No,
    /// It is to be asked when the records are made here.
    Due,
    /// It was asked.
    Done,
}

impl TlsStream {
    /// Begins TLS as its client above an active open. The handshake ends before
    /// [`Stream::finish_open`] does. The configuration has to allow the extraction of secrets.
    ///
    /// # Errors
    /// The configuration can't be used.
    pub fn open(
        below: Box<dyn Stream>,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let session = Session::new(connection.into());
        Ok(Self::new(below, End::Initiator, session))
    }

    /// Begins TLS as its server above a channel that was accepted. The configuration has to allow
    /// the extraction of secrets.
    ///
    /// # Errors
    /// The configuration can't be used.
    pub fn accept(below: Box<dyn Stream>, config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        let session = Session::new(connection.into());
        Ok(Self::new(below, End::Acceptor, session))
    }

    fn new(below: Box<dyn Stream>, end: End, session: Session) -> Self {
        Self {
            flow: Transformed::new(below, end, session),
            offload: Asked::No,
        }
    }

    /// The records, which from now on are made here; `WouldBlock` while the handshake isn't done.
    fn records(&mut self) -> io::Result<&mut Records> {
        if !self.flow.transform.is_open() {
            self.flow.shake_hands()?;
        }
        self.flow.transform.records(&mut self.flow.out)
    }

    /// Asks the kernel whether it can make records, if that is due.
    fn attach(&mut self) {
        let Some(records) = self.flow.transform.moving() else {
            return;
        };
        if self.offload != Asked::Due {
            return;
        }
        self.offload = Asked::Done;
        let result = match self.flow.below.tcp_socket() {
            Some(socket) => kernel::attach(&socket),
            None => Err(ErrorKind::Unsupported.into()),
        };
        records.to_boundary = result.is_ok();
        if let Err(error) = result {
            tracing::debug!(%error, "the kernel doesn't make the TLS records of a channel");
            records.seal.keep();
            records.open.keep();
        }
    }

    /// Whether the kernel makes the records that are sent. Nothing waits to be written.
    fn kernel_sends(&mut self) -> bool {
        self.attach();
        let Some(records) = self.flow.transform.moving() else {
            return false;
        };
        if self.offload == Asked::Done
            && records.seal.may_offload()
            && let Some(socket) = self.flow.below.tcp_socket()
        {
            hand_over(&mut records.seal, &socket, Way::Sending);
        }
        records.seal.is_offloaded()
    }

    /// Whether the kernel opens the records that come next.
    fn kernel_receives(&mut self) -> bool {
        self.attach();
        let Some(records) = self.flow.transform.moving() else {
            return false;
        };
        if !records.reads_on() || !self.flow.held.is_empty() {
            return false;
        }
        if self.offload == Asked::Done
            && records.open.may_offload()
            && let Some(socket) = self.flow.below.tcp_socket()
        {
            hand_over(&mut records.open, &socket, Way::Receiving);
        }
        records.open.is_offloaded()
    }

    /// Reads what the kernel has decrypted.
    fn read_from_kernel(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some(records) = self.flow.transform.moving() else {
            return Err(ErrorKind::BrokenPipe.into());
        };
        while !records.is_ended() {
            let received = match self.flow.below.tcp_socket() {
                Some(socket) => kernel::receive(&socket, bufs),
                None => Err(ErrorKind::NotConnected.into()),
            };
            let received = match received {
                Ok(received) => received,
                Err(error) => {
                    if error.kind() == ErrorKind::InvalidData {
                        records.alert(BAD_RECORD_MAC, &mut self.flow.out);
                    }
                    return Err(error);
                }
            };
            let len = received.len;
            records.open.count(1 + len / COUNTED_BYTES);
            match received.kind {
                None => return records.end().map(|()| 0),
                Some(APPLICATION_DATA) => {
                    records.count_content(len)?;
                    if len > 0 {
                        return Ok(len);
                    }
                }
                Some(kind) => {
                    let content = bufs.iter().flat_map(|b| b.iter().copied()).take(len);
                    records.take_piece(kind, content, received.complete)?;
                }
            }
        }
        Ok(0)
    }

    /// Writes what the kernel encrypts.
    fn write_to_kernel(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(records) = self.flow.transform.moving() else {
            return Err(ErrorKind::BrokenPipe.into());
        };
        records.seal.check()?;
        if bufs.iter().all(|b| b.is_empty()) {
            return Ok(0);
        }
        let taken = write_once(&mut *self.flow.below, bufs)?;
        // A record may end with each slice.
        records.seal.count(taken / CONTENT_BYTES + bufs.len());
        Ok(taken)
    }

    /// Tells the peer of a record that was wrong, as far as the transport takes it.
    fn tell_damage(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        if matches!(&result, Err(e) if e.kind() == ErrorKind::InvalidData)
            && let Some(records) = self.flow.transform.moving()
        {
            if records.take_alert_due() {
                self.alert_by_kernel(BAD_RECORD_MAC);
            } else {
                let _ = self.flow.flush();
            }
        }
        result
    }

    /// Sends an alert where the kernel makes the records, as far as the transport takes it.
    fn alert_by_kernel(&mut self, alert: [u8; 2]) {
        if let Some(records) = self.flow.transform.moving()
            && let Some(socket) = self.flow.below.tcp_socket()
            && records.seal.check().is_ok()
        {
            records.seal.count(1);
            // The kernel refuses to send while it has an error of receiving to tell.
            let _ = socket.take_error();
            let _ = kernel::send(&socket, ALERT, &alert);
        }
    }

    /// Reads bytes of a cleartext run.
    fn read_run(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let flow = &mut self.flow;
        let records = flow.transform.records(&mut flow.out)?;
        let mut want = loop {
            let (run, missing) = records.decode_run(&mut flow.held)?;
            if run > 0 {
                break run;
            }
            let mut header = [0; 8];
            let header = &mut header[..missing.min(8)];
            let n = read_once(&mut *flow.below, &mut [IoSliceMut::new(header)])?;
            if n == 0 {
                return Err(cut_off());
            }
            flow.held.extend_from_slice(&header[..n]);
        };
        if !flow.held.is_empty() {
            let n = want.min(flow.held.len());
            let n = Room::new(bufs).put(&flow.held[..n]);
            flow.held.drain(..n);
            if flow.held.is_empty() {
                flow.held = Vec::new();
            }
            records.read_run(n);
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
        let n = read_once(&mut *flow.below, &mut slices)?;
        if n == 0 {
            return Err(cut_off());
        }
        let payload = n.min(asked);
        records.read_run(payload);
        flow.held.extend_from_slice(&tail[..n - payload]);
        Ok(payload)
    }
}

/// Has the kernel make the records of one way from the next one on, if it will.
fn hand_over(direction: &mut Direction, socket: &SockRef<'_>, way: Way) {
    let take_over = |sequence, secrets: &_| kernel::take_over(socket, way, sequence, secrets);
    match direction.hand_over(take_over) {
        Ok(()) => tracing::debug!(?way, "the kernel makes the TLS records of a channel"),
        Err(error) => tracing::debug!(?way, %error, "the kernel doesn't make TLS records"),
    }
}

#[cfg(test)]
impl TlsStream {
    /// Lowers what the keys may protect.
    pub(super) fn wear(&mut self, records_max: u64) {
        if let Some(records) = self.flow.transform.moving() {
            records.wear(records_max);
        }
    }

    /// Sends a record without content.
    pub(super) fn send_empty_record(&mut self) {
        while self.flush().is_err() {}
        if let Some(records) = self.flow.transform.moving() {
            records.seal_empty(&mut self.flow.out);
        }
        while self.flush().is_err() {}
    }

    /// Changes the keys, which rustls can.
    pub(super) fn change_keys(&mut self) {
        self.flow.transform.change_keys(&mut self.flow.out);
    }
}

impl Stream for TlsStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.offload != Asked::No {
            let room: usize = bufs.iter().map(|b| b.len()).sum();
            if room > CONTENT_BYTES {
                self.records()?;
            }
            if room > 0 && self.kernel_receives() {
                let result = self.read_from_kernel(bufs);
                let result = match self.flow.transform.moving() {
                    Some(records) => records.note(result),
                    None => result,
                };
                return self.tell_damage(result);
            }
        }
        let result = self.flow.read_vectored(bufs);
        self.tell_damage(result)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(records) = self.flow.transform.moving()
            && records.run_out() > 0
        {
            return Err(ErrorKind::InvalidInput.into());
        }
        if self.offload != Asked::No {
            self.flow.begin_write()?;
            if self.kernel_sends() {
                return self.write_to_kernel(bufs);
            }
        }
        self.flow.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flow.flush()
    }

    fn has_unflushed(&self) -> bool {
        self.flow.has_unflushed()
    }

    fn held_bytes(&self) -> usize {
        self.flow.held_bytes()
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        self.flow.finish_open()
    }

    fn close(&mut self) -> io::Result<()> {
        if self.offloaded().sending {
            self.alert_by_kernel(CLOSE_NOTIFY);
        }
        self.flow.close()
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.flow.register(poller, token)
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        self.flow.deregister(poller)
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        self.flow.set_window(bytes)
    }

    fn capabilities(&self) -> Capabilities {
        self.flow.capabilities()
    }

    fn protection(&self) -> Option<Protection> {
        self.flow.protection()
    }

    fn peer(&self) -> String {
        self.flow.peer()
    }

    fn extension(&mut self) -> Extension<'_> {
        Extension::Protected(self)
    }
}

impl Protected for TlsStream {
    fn read_cleartext(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.records()?.check()?;
        if bufs.iter().all(|b| b.is_empty()) {
            return Ok(0);
        }
        let result = self.read_run(bufs);
        self.records()?.note(result)
    }

    fn write_cleartext(
        &mut self,
        protected: &[IoSlice<'_>],
        cleartext: &[u8],
    ) -> io::Result<usize> {
        if self.flow.is_closed() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let len: usize = protected.iter().map(|b| b.len()).sum();
        let records = self.records()?;
        if records.seal.is_offloaded() {
            return Err(ErrorKind::Unsupported.into());
        }
        records.check_run(len, cleartext.len())?;
        if records.run_out() == 0 {
            self.flow.begin_write()?;
        }
        let flow = &mut self.flow;
        let records = flow.transform.records(&mut flow.out)?;
        let taken = records.encode_run(protected, cleartext.len(), &mut flow.out)?;
        // A call that only writes what was taken before would have nothing to tell: it goes on.
        loop {
            let waiting = flow.out.waiting();
            let slices = [IoSlice::new(waiting), IoSlice::new(cleartext)];
            let n = match write_once(&mut *flow.below, &slices) {
                Err(e) if e.kind() == ErrorKind::WouldBlock && taken > 0 => return Ok(taken),
                done => done?,
            };
            let encoded = n.min(waiting.len());
            flow.out.consume(encoded);
            records.wrote_run(n - encoded);
            if taken + n - encoded > 0 {
                return Ok(taken + n - encoded);
            }
        }
    }

    fn offload(&mut self) {
        if self.offload == Asked::No {
            self.offload = Asked::Due;
        }
        self.attach();
    }

    fn offloaded(&self) -> Offload {
        self.flow.transform.offloaded()
    }

    fn is_worn(&self) -> bool {
        self.flow.transform.is_worn()
    }
}
