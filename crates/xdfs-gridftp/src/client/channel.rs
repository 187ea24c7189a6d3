//! A data connection: what arrives, what is on its way, and its end.

use std::io::{self, IoSlice, Write as _};
use std::net::SocketAddr;

use xdfs_proto::{Code, Fault};
use xdfs_sys::poll::{Event as Ready, Token};

use super::fault::lost;
use crate::block::BlockReader;
use crate::wire::Wire;

/// Content of the longest record of TLS (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;

/// Which way payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the server, which has listings itself where data nodes have files.
    List,
    /// From the server.
    Receive,
    /// To the server.
    Send,
}

/// How payload travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// MODE X.
    Exchange,
    /// MODE E.
    Extended,
    /// MODE S: the end of the connection is the end of the file.
    Stream,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Channel {
    wire: Wire,
    pub(super) token: Token,
    /// In MODE X, why it is of no use.
    pub(super) broken: Option<Fault>,
    /// The number of the stripe to which it leads, from 0.
    pub(super) stripe: usize,
    /// The data node at the other end, if files are striped.
    pub(super) node: Option<SocketAddr>,
    is_open: bool,
    can_read: bool,
    can_write: bool,
    /// What arrives in MODE E.
    pub(super) blocks: BlockReader,
    /// What is on its way to the server, and how much of it is sent.
    pub(super) out: Vec<u8>,
    sent: usize,
    /// The end has to be told once everything is sent.
    ends: bool,
}

impl Channel {
    /// A connection that is open, or is being opened.
    pub(super) fn new(wire: Wire, token: Token, is_open: bool) -> Self {
        if is_open {
            wire.suit_path();
        }
        Self {
            wire,
            token,
            broken: None,
            stripe: 0,
            node: None,
            is_open,
            can_read: is_open,
            can_write: is_open,
            blocks: BlockReader::new(),
            out: Vec::new(),
            sent: 0,
            ends: false,
        }
    }

    /// A fault of this connection, with the node.
    pub(super) fn named(&self, fault: Fault) -> Fault {
        match self.node {
            Some(node) => Fault {
                operation: format!("{} (data node {node})", fault.operation),
                ..fault
            },
            None => fault,
        }
    }

    /// Takes note of what the connection is ready for.
    ///
    /// # Errors
    /// It could not be opened.
    pub(super) fn note(&mut self, ready: &Ready) -> Result<(), Fault> {
        // TLS may have to read to go on writing, and the other way round.
        let either = self.wire.is_protected() && (ready.readable || ready.writable);
        self.can_read |= ready.readable || either;
        self.can_write |= ready.writable || either;
        if !self.is_open {
            self.check_open()?;
        }
        if self.is_open && self.wire.shakes_early() {
            // What fails here fails again where the connection is used, unless the server says why.
            // But a connection of somebody else would be waited for.
            if let Err(error) = self.wire.handshake()
                && let Some(fault) = error.get_ref().and_then(|cause| cause.downcast_ref())
            {
                let fault: &Fault = fault;
                if fault.code == Code::AuthenticationFailed {
                    return Err(lost("open a data connection", &error));
                }
            }
        }
        Ok(())
    }

    fn check_open(&mut self) -> Result<(), Fault> {
        let operation = "open a data connection";
        if let Some(error) = self.wire.stream().take_error().ok().flatten() {
            return Err(lost(operation, &error));
        }
        match self.wire.stream().peer_addr() {
            Ok(_) => {
                self.is_open = true;
                self.wire.suit_path();
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => self.can_write = false,
            Err(error) => return Err(lost(operation, &error)),
        }
        Ok(())
    }

    /// Gets ready for the next transfer. Returns whether the server hasn't closed the connection.
    pub(super) fn restart(&mut self) -> bool {
        self.blocks.restart();
        self.can_read = true;
        !self.wire.is_closed()
    }

    /// Reads once; `None` if nothing is there now, and 0 at the end, which is told back.
    ///
    /// # Errors
    /// The connection is broken. With TLS, that is also one that ended without being told to.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Fault> {
        while self.is_open && self.can_read {
            match self.wire.read(buffer) {
                Ok(0) if self.wire.is_protected() && !buffer.is_empty() => {
                    // Some servers wait for it. If it can't be sent, the closing says the same.
                    let _ = self.wire.end();
                    return Ok(Some(0));
                }
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.can_read = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost("receive", &error)),
            }
        }
        Ok(None)
    }

    /// Whether it has resumed the TLS session of the control connection.
    pub(super) fn has_resumed(&self) -> bool {
        self.wire.has_resumed()
    }

    /// Whether what came may have been cut off by somebody on the way.
    pub(super) fn lacks_end(&self) -> bool {
        self.wire.lacks_end()
    }

    /// Whether the end of a protected connection is still to come, and with it tickets; they would
    /// be lost, and the server could lose what is on its way to it, if it were closed before.
    pub(super) fn awaits_end(&mut self) -> bool {
        self.wire.is_protected() && matches!(self.receive(&mut [0]), Ok(None))
    }

    /// Whether everything in `out` is sent, and the end if there is one.
    pub(super) fn is_free(&self) -> bool {
        // Before the handshake is through, nothing of `out` can have been taken.
        let is_flushed = self.wire.is_handshaking() || self.wire.is_flushed();
        self.sent == self.out.len() && !self.ends && is_flushed
    }

    /// Sends a header and the bytes behind it, for which the connection is free. What it doesn't
    /// take at once is copied. Returns whether any of it is sent.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(super) fn put(&mut self, header: &[u8], bytes: &[u8]) -> Result<bool, Fault> {
        let sent = match self.wire.is_protected() {
            false => self.put_clear(header, bytes)?,
            true => self.put_protected(header, bytes)?,
        };
        let header_sent = sent.min(header.len());
        self.out.extend_from_slice(&header[header_sent..]);
        self.out.extend_from_slice(&bytes[sent - header_sent..]);
        Ok(sent > 0)
    }

    /// Sends what can be sent at once. Returns how much of both that is.
    fn put_clear(&mut self, header: &[u8], bytes: &[u8]) -> Result<usize, Fault> {
        let slices = [IoSlice::new(header), IoSlice::new(bytes)];
        match self.can_write {
            true => self.wire.stream_mut().write_vectored(&slices),
            false => Ok(0),
        }
        .or_else(|error| self.unsent(error))
    }

    /// The same with protection. The header goes into one record with what follows it.
    fn put_protected(&mut self, header: &[u8], bytes: &[u8]) -> Result<usize, Fault> {
        let together = RECORD_BYTES.saturating_sub(header.len()).min(bytes.len());
        let first = [header, &bytes[..together]].concat();
        let mut sent = 0;
        while self.can_write && sent < header.len() + bytes.len() {
            let left = match first.get(sent..) {
                Some(left @ [_, ..]) => left,
                _ => &bytes[sent - header.len()..],
            };
            let written = self.wire.write(left);
            sent += written.or_else(|error| self.unsent(error))?;
        }
        Ok(sent)
    }

    /// What an error of sending means, which may say that it can go on later.
    fn unsent(&mut self, error: io::Error) -> Result<usize, Fault> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.can_write = false,
            io::ErrorKind::Interrupted => {}
            _ => {
                // What came before may still be there.
                self.can_read = true;
                return Err(lost("send", &error));
            }
        }
        Ok(0)
    }

    /// Sends what can be sent. Returns whether anything was.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn send(&mut self) -> Result<bool, Fault> {
        let mut has_sent = false;
        while self.is_open && self.can_write && !self.is_free() {
            let step = match &self.out[self.sent..] {
                [] if self.ends => self.wire.end().map(|()| self.ends = false),
                [] => self.wire.flush(),
                rest => self.wire.write(rest).map(|count| self.sent += count),
            };
            match step {
                Ok(()) => has_sent = true,
                Err(error) => drop(self.unsent(error)?),
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        Ok(has_sent)
    }

    /// Whether it may be written to.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Has the end of a file in stream mode sent after what is in `out`.
    pub(super) fn end(&mut self) {
        self.ends = true;
    }
}
