//! An open channel over a Unix socket.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use mio::Interest;
use mio::net;
use socket2::SockRef;
use xdfs_sys::poll::{Poller, Token};

use crate::endpoint::Endpoint;
use crate::socket::{connected, set_buffers, shut_writing, uninterrupted};
use crate::stream::{Capabilities, Stream};

/// A connection over a Unix socket.
#[derive(Debug)]
pub struct UnixStream {
    inner: net::UnixStream,
    /// The socket file; connecting ends have no name of their own.
    path: PathBuf,
    ready: bool,
}

impl UnixStream {
    /// Connects to the socket file at `path`.
    ///
    /// # Errors
    /// No such file, no listener, no permission, or the listener's queue is full.
    pub fn open(path: &Path) -> io::Result<Self> {
        let inner = net::UnixStream::connect(path).map_err(|e| match e.kind() {
            // The connection was not even started, so no readiness event would follow.
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "the listener's queue is full")
            }
            _ => e,
        })?;
        Ok(Self {
            inner,
            path: path.to_owned(),
            ready: false,
        })
    }

    /// Wraps a connection accepted by a listener at `path`.
    pub(super) fn accepted(inner: net::UnixStream, path: &Path) -> Self {
        Self {
            inner,
            path: path.to_owned(),
            ready: true,
        }
    }
}

impl Stream for UnixStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        uninterrupted(|| self.inner.read_vectored(bufs))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        uninterrupted(|| self.inner.write_vectored(bufs))
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        if !self.ready {
            self.ready = connected(self.inner.take_error()?, self.inner.peer_addr())?.is_some();
        }
        Ok(self.ready)
    }

    fn close(&mut self) -> io::Result<()> {
        shut_writing(self.inner.shutdown(Shutdown::Write))
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        poller
            .registry()
            .register(&mut self.inner, mio::Token(token.0), interest)
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        poller.registry().deregister(&mut self.inner)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inner.as_fd())
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        set_buffers(&SockRef::from(&self.inner), bytes)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: false,
            local: true,
        }
    }

    fn peer(&self) -> String {
        Endpoint::unix(self.path.as_path()).to_string()
    }
}
