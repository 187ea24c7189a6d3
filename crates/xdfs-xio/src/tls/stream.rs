//! A channel over TLS: the stream of its [`Session`], cleartext runs, and protection by the kernel.
//!
//! On channels without clear payload the kernel may protect the records ([`Protected::offload`]).
//! Each direction is handed over at a record boundary: sending once everything encrypted here is
//! written, receiving once everything read is consumed, for which reads stop at the end of the
//! current record. From then on, reads go directly into the caller's buffers, and the few handshake
//! messages and alerts are handled as before.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
#[cfg(unix)]
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use socket2::SockRef;
use xdfs_sys::poll::{Poller, Token};

use super::kernel::{self, KernelDirection};
use super::records::{BAD_RECORD_MAC, CLOSE_NOTIFY, Records, cut_off};
use super::session::Session;
use crate::control::Control;
use crate::stream::{Capabilities, Extension, Offload, PathSample, Protected, Protection, Stream};
use crate::transform::{End, Room, Transform, Transformed, read_once, write_once};
use xdfs_tls::record::{ALERT, APPLICATION_DATA, CONTENT_BYTES, Direction};

/// Bytes read beyond a cleartext run: the next record, if it is small.
const TAIL_BYTES: usize = 256;
/// Assumed content of a record received by the kernel, to count records: the sender may make them
/// smaller than the maximum.
const COUNTED_BYTES: usize = CONTENT_BYTES / 4;

/// A channel over TLS 1.3.
#[derive(Debug)]
pub struct TlsStream {
    flow: Transformed<Session>,
    offload: OffloadState,
}

/// State of the request for protection by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OffloadState {
    /// Not requested.
    No,
    /// Requested, once this crate owns the record layer.
    Due,
    /// The kernel was asked.
    Done,
}

impl TlsStream {
    /// Starts TLS as the client on an active open. [`Stream::finish_open`] includes the handshake.
    /// The configuration must allow the extraction of secrets.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn open(
        below: Box<dyn Stream>,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let session = Session::new(connection.into());
        Ok(Self::new(below, End::Initiator, session))
    }

    /// Starts TLS as the server on an accepted channel. The configuration must allow the extraction
    /// of secrets.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn accept(below: Box<dyn Stream>, config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        let session = Session::new(connection.into());
        Ok(Self::new(below, End::Acceptor, session))
    }

    fn new(below: Box<dyn Stream>, end: End, session: Session) -> Self {
        Self {
            flow: Transformed::new(below, end, session),
            offload: OffloadState::No,
        }
    }

    /// The record layer of this crate, taking over if necessary; `WouldBlock` before the end of the
    /// handshake.
    fn records(&mut self) -> io::Result<&mut Records> {
        if !self.flow.transform.is_open() {
            self.flow.shake_hands()?;
        }
        self.flow.transform.records(&mut self.flow.out)
    }

    /// Asks the kernel for protection, if that is due.
    fn attach(&mut self) {
        let Some(records) = self.flow.transform.moving() else {
            return;
        };
        if self.offload != OffloadState::Due {
            return;
        }
        self.offload = OffloadState::Done;
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

    /// Whether the kernel protects sent records. If so, no output is pending.
    fn kernel_sends(&mut self) -> bool {
        self.attach();
        let Some(records) = self.flow.transform.moving() else {
            return false;
        };
        if self.offload == OffloadState::Done
            && records.seal.may_offload()
            && let Some(socket) = self.flow.below.tcp_socket()
        {
            hand_over(&mut records.seal, &socket, KernelDirection::Sending);
        }
        records.seal.is_offloaded()
    }

    /// Whether the kernel opens the next records.
    fn kernel_receives(&mut self) -> bool {
        self.attach();
        let Some(records) = self.flow.transform.moving() else {
            return false;
        };
        if !records.reads_on() || !self.flow.held.is_empty() {
            return false;
        }
        if self.offload == OffloadState::Done
            && records.open.may_offload()
            && let Some(socket) = self.flow.below.tcp_socket()
        {
            hand_over(&mut records.open, &socket, KernelDirection::Receiving);
        }
        records.open.is_offloaded()
    }

    /// Reads content decrypted by the kernel.
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

    /// Writes content for encryption by the kernel.
    fn write_to_kernel(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(records) = self.flow.transform.moving() else {
            return Err(ErrorKind::BrokenPipe.into());
        };
        records.seal.check()?;
        if bufs.iter().all(|b| b.is_empty()) {
            return Ok(0);
        }
        let taken = write_once(&mut *self.flow.below, bufs)?;
        // Each slice may end in a partial record.
        records.seal.count(taken / CONTENT_BYTES + bufs.len());
        Ok(taken)
    }

    /// Alerts the peer to a damaged record, as far as the transport accepts it.
    fn alert_damage(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        if matches!(&result, Err(e) if e.kind() == ErrorKind::InvalidData)
            && let Some(records) = self.flow.transform.moving()
        {
            if records.take_alert_due() {
                // If it can't be sent, the end of the transport still shows it.
                let _ = self.alert_by_kernel(BAD_RECORD_MAC);
            } else {
                let _ = self.flow.flush();
            }
        }
        result
    }

    /// Sends an alert through the kernel.
    fn alert_by_kernel(&mut self, alert: [u8; 2]) -> io::Result<()> {
        if let Some(records) = self.flow.transform.moving()
            && let Some(socket) = self.flow.below.tcp_socket()
        {
            records.seal.check()?;
            records.seal.count(1);
            // The kernel refuses to send while an error of receiving is pending.
            let _ = socket.take_error();
            kernel::send(&socket, ALERT, &alert)?;
        }
        Ok(())
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

fn fingerprint(certificate: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, certificate);
    digest.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// Offers one direction to the kernel, from the next record on.
fn hand_over(direction: &mut Direction, socket: &SockRef<'_>, way: KernelDirection) {
    let take_over = |sequence, secrets: &_| kernel::take_over(socket, way, sequence, secrets);
    match direction.hand_over(take_over) {
        Ok(()) => tracing::debug!(?way, "the kernel makes the TLS records of a channel"),
        Err(error) => tracing::debug!(?way, %error, "the kernel doesn't make TLS records"),
    }
}

#[cfg(test)]
impl TlsStream {
    /// Lowers the limit of the keys.
    pub(super) fn wear(&mut self, records_max: u64) {
        if let Some(records) = self.flow.transform.moving() {
            records.wear(records_max);
        }
    }

    /// Sends a record of any type.
    pub(super) fn send_record(&mut self, kind: u8, content: &[u8]) {
        while self.flush().is_err() {}
        if let Some(records) = self.flow.transform.moving() {
            records.put(kind, content, &mut self.flow.out);
        }
        while self.flush().is_err() {}
    }

    /// Updates the keys by rustls.
    pub(super) fn change_keys(&mut self) {
        self.flow.transform.change_keys(&mut self.flow.out);
    }
}

impl Stream for TlsStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.offload != OffloadState::No {
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
                return self.alert_damage(result);
            }
        }
        let result = self.flow.read_vectored(bufs);
        self.alert_damage(result)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(records) = self.flow.transform.moving()
            && records.run_out() > 0
        {
            return Err(ErrorKind::InvalidInput.into());
        }
        if self.offload != OffloadState::No {
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

    fn finish(&mut self) -> io::Result<()> {
        if self.offloaded().sending && !self.flow.is_closed() {
            self.alert_by_kernel(CLOSE_NOTIFY)?;
        }
        self.flow.finish()
    }

    fn close(&mut self) -> io::Result<()> {
        if self.offloaded().sending && !self.flow.is_closed() {
            let _ = self.alert_by_kernel(CLOSE_NOTIFY);
        }
        self.flow.close()
    }

    fn abort(&mut self) {
        self.flow.abort();
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.flow.register(poller, token)
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        self.flow.deregister(poller)
    }

    #[cfg(unix)]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.flow.descriptor()
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        self.flow.set_window(bytes)
    }

    fn measure(&self) -> Option<PathSample> {
        self.flow.measure()
    }

    fn suit_long_path(&mut self) -> io::Result<()> {
        self.flow.suit_long_path()
    }

    fn set_pace(&mut self, bytes_per_s: Option<u64>) -> io::Result<()> {
        self.flow.set_pace(bytes_per_s)
    }

    fn admit(&mut self) {
        self.flow.admit();
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

    /// `peer` is the SHA-256 digest of the peer's certificate, in hex; empty if it has shown none.
    fn controls(&self, out: &mut Vec<Control>) {
        if let Some(protection) = self.protection() {
            let certificate = protection.peer_certificates.first();
            let peer = certificate
                .map(|bytes| fingerprint(bytes))
                .unwrap_or_default();
            out.push(Control::new("tls", "peer", peer));
        }
        let Offload { sending, receiving } = self.flow.transform.offloaded();
        out.push(Control::new("tls", "kernel_sends", sending));
        out.push(Control::new("tls", "kernel_receives", receiving));
        self.flow.below.controls(out);
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
        // A call that only writes earlier output would return 0: continue.
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
        if self.offload == OffloadState::No {
            self.offload = OffloadState::Due;
        }
        self.attach();
    }

    fn offloaded(&mut self) -> Offload {
        self.flow.transform.offloaded()
    }

    fn is_worn(&mut self) -> bool {
        self.flow.transform.is_worn()
    }
}
