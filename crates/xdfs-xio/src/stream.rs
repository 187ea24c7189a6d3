//! The engine's view of an open stack ([`Stream`]) and of a passive open ([`Listener`]).
//!
//! Features of single drivers are in an [`Extension`], which a stream returns on request, so that
//! they are no part of the common calls.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use xdfs_sys::poll::{Poller, Token};

use crate::control::{Control, ControlValue};
use crate::endpoint::Endpoint;

/// Properties of a stack, queried once per session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Bytes are protected against changes in transit (by an authenticated transform, or because
    /// they stay in one process), so blocks need no check values.
    pub integrity: bool,
    /// Both ends are on one machine, so the round-trip time is meaningless and large socket buffers
    /// only pollute the caches.
    pub local: bool,
}

/// The system's measurements of the network path of one stream, since it began unless stated
/// otherwise. Payload counts include what transforms add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSample {
    /// Smoothed round-trip time; zero before the first measurement.
    pub round_trip: Duration,
    /// Mean deviation of the round-trip time; zero before the first measurement.
    pub round_trip_deviation: Duration,
    /// Shortest round-trip time of the last minutes; zero before the first measurement.
    pub round_trip_min: Duration,
    /// Bytes sent, including those sent again.
    pub sent_bytes: u64,
    /// Bytes sent again.
    pub resent_bytes: u64,
    /// Name of the congestion control; empty if unknown.
    pub congestion: String,
    /// Largest packet that the path is known to take, in bytes; zero if unknown.
    pub path_mtu: u32,
    /// Time during which bytes of this side were in flight.
    pub busy: Duration,
    /// The part of `busy` in which the peer's receive buffer was the limit.
    pub window_limited: Duration,
    /// The part of `busy` in which the send buffer of this side was the limit.
    pub buffer_limited: Duration,
}

/// The protection of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// Bytes known only to both ends of this channel, and different for each channel: the TLS
    /// exporter (RFC 8446, section 7.5). A proof that covers them is useless elsewhere.
    pub binding: [u8; 32],
    /// The certificates that the peer has proved to own, its own first, in DER; empty if it has
    /// none.
    pub peer_certificates: Vec<Vec<u8>>,
}

/// The directions of a channel that the kernel protects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Sending.
    pub sending: bool,
    /// Receiving.
    pub receiving: bool,
}

/// An open stack. Dropping it closes it at once.
pub trait Stream: Send + fmt::Debug {
    /// Reads into `bufs` in order. `Ok(0)` is the orderly end of the peer's stream.
    ///
    /// # Errors
    /// `WouldBlock`, or any error of the transport.
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Writes from `bufs` in order, and returns the number of bytes accepted.
    ///
    /// # Errors
    /// `WouldBlock`, or any error of the transport.
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Writes `first`, and then bytes that the peer reads from `memory` itself, without a copy on
    /// the way. Returns the number of bytes accepted of both. Only streams within one process can;
    /// `None` from others, which have accepted nothing.
    ///
    /// # Errors
    /// As [`Stream::write_vectored`].
    fn lend(
        &mut self,
        first: &[IoSlice<'_>],
        memory: &Arc<Vec<u8>>,
        range: Range<usize>,
    ) -> io::Result<Option<usize>> {
        let _ = (first, memory, range);
        Ok(None)
    }

    /// Writes the output that a transform still holds.
    ///
    /// # Errors
    /// `WouldBlock` if the transport doesn't accept all of it, or any error of the transport.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether [`Stream::flush`] has something to write.
    fn has_unflushed(&self) -> bool {
        false
    }

    /// Bytes received and held until they can be read, because a transform waits for the rest of a
    /// unit. The fixed memory of a stream isn't counted.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Continues an active open: `Ok(true)` when connected, `Ok(false)` to be called again at the
    /// next readiness event.
    ///
    /// # Errors
    /// The reason why the connection failed.
    fn finish_open(&mut self) -> io::Result<bool>;

    /// Sends all that was written, and what ends it for the transforms of the peer, such as the
    /// close_notify of TLS. Nothing can be written afterwards. To be called again at the next
    /// event after `WouldBlock`; [`Stream::close`] sends it too, but can't wait for room.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or that the channel has failed.
    fn finish(&mut self) -> io::Result<()> {
        self.flush()
    }

    /// Ends the writing side in an orderly way; bytes already written still arrive.
    ///
    /// # Errors
    /// Any error of the transport.
    fn close(&mut self) -> io::Result<()>;

    /// Breaks the stream off: it is dropped next, and the peer reads an error in the place of an
    /// orderly end, as far as the transport can tell it.
    fn abort(&mut self) {}

    /// Registers for edge-triggered readiness under `token`.
    ///
    /// # Errors
    /// Any error of the system call.
    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()>;

    /// Withdraws the registration.
    ///
    /// # Errors
    /// Any error of the system call.
    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()>;

    /// The one descriptor whose readiness decides whether this stream can read and write; `None` if
    /// there is no such descriptor, or it doesn't decide alone at present. A thread may then wait
    /// on a copy of it by poll(2): for writing after a write that would block, and for reading
    /// after a read that would block, and for both if there is also something to flush.
    #[cfg(unix)]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Sets both socket buffers, in bytes, where the transport has them.
    ///
    /// # Errors
    /// Any error of the system call.
    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// The system's measurements of the network path; `None` if the transport has none.
    fn measure(&self) -> Option<PathSample> {
        None
    }

    /// Sets the transport's options for a long path, unless they were configured. A transport
    /// without such options does nothing.
    ///
    /// # Errors
    /// The system lacks an option or forbids it; the stream works as before, only slower.
    fn suit_long_path(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sets the rate at which the transport sends at most, in bytes per second, without bursts;
    /// `None` for no limit.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the transport has no such option, or any error of the
    /// system call.
    fn set_pace(&mut self, bytes_per_s: Option<u64>) -> io::Result<()> {
        let _ = bytes_per_s;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Tells the transport that this program has accepted the peer, for instance after a login. A
    /// transport that keeps resources for the peers of a listener gives few of them before.
    fn admit(&mut self) {}

    /// The properties of the stack.
    fn capabilities(&self) -> Capabilities;

    /// The channel's protection, once it is open; `None` for a transport without protection.
    fn protection(&self) -> Option<Protection> {
        None
    }

    /// The peer's address, for messages and logs.
    fn peer(&self) -> String;

    /// Appends the controls of its drivers, the topmost first.
    fn controls(&self, out: &mut Vec<Control>) {
        let _ = out;
    }

    /// The extension of the topmost driver.
    fn extension(&mut self) -> Extension<'_> {
        Extension::None
    }
}

impl dyn Stream + '_ {
    /// The value of the control called `name`, as in `tcp.rtt`; `None` if no driver of the stack
    /// has it. Of several drivers of that name, the topmost answers.
    #[must_use]
    pub fn control(&self, name: &str) -> Option<ControlValue> {
        let mut all = Vec::new();
        self.controls(&mut all);
        let found = all.into_iter().find(|control| control.is_called(name))?;
        Some(found.value)
    }

    /// The extension of a protected channel; `None` if the topmost driver provides no protection.
    pub fn protected(&mut self) -> Option<&mut dyn Protected> {
        match self.extension() {
            Extension::Protected(protected) => Some(protected),
            _ => None,
        }
    }

    /// The socket, if this is plain TCP.
    pub(crate) fn tcp_socket(&mut self) -> Option<SockRef<'_>> {
        match self.extension() {
            Extension::TcpSocket(socket) => Some(socket),
            _ => None,
        }
    }
}

/// The features of a driver beside the common calls.
#[derive(Debug)]
#[non_exhaustive]
pub enum Extension<'a> {
    /// None.
    None,
    /// Protection, with clear payload, protection by the kernel, and the age of the keys.
    Protected(&'a mut dyn Protected),
    /// The socket of a TCP connection, for a transform that offloads its work to the kernel. Its
    /// bytes are read and written only through the stream.
    TcpSocket(SockRef<'a>),
}

/// The features of a protected channel beside [`Stream`].
pub trait Protected: fmt::Debug {
    /// Reads bytes of a cleartext run into `bufs` in order: those that the peer wrote unprotected
    /// with [`Protected::write_cleartext`]. Never reads beyond the run.
    ///
    /// # Errors
    /// `WouldBlock`; [`io::ErrorKind::InvalidData`] if a protected byte comes next or the stream
    /// ends within the run.
    fn read_cleartext(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Writes `protected`, 1 byte to 16 KiB accepted as a whole or not at all, followed by
    /// `cleartext` without protection, as one run. The rest of `cleartext` must be written next, by
    /// the same call with an empty `protected`. Returns the number of bytes of both that were
    /// accepted, at least 1.
    ///
    /// # Errors
    /// `WouldBlock`, any error of the transport, [`io::ErrorKind::InvalidInput`] for anything but
    /// the rest of an unfinished run, [`io::ErrorKind::Unsupported`] once the kernel protects the
    /// sending direction.
    fn write_cleartext(&mut self, protected: &[IoSlice<'_>], cleartext: &[u8])
    -> io::Result<usize>;

    /// Requests protection by the kernel, where available: for an open channel on which nothing
    /// will be read or written in cleartext. Whether it succeeds makes no difference to the bytes.
    /// It may take effect during later calls; see [`Protected::offloaded`].
    fn offload(&mut self);

    /// The directions protected by the kernel at present.
    fn offloaded(&mut self) -> Offload;

    /// Whether the keys have protected so much data that the channel should be replaced.
    fn is_worn(&mut self) -> bool;
}

/// A passive open.
pub trait Listener: Send + fmt::Debug {
    /// The next channel, or `WouldBlock`.
    ///
    /// # Errors
    /// Any error of the transport.
    fn accept(&mut self) -> io::Result<Box<dyn Stream>>;

    /// Registers for readiness under `token`.
    ///
    /// # Errors
    /// Any error of the system call.
    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()>;

    /// The listening address, with the actual port.
    fn local_endpoint(&self) -> Endpoint;
}
