//! Datagrams to and from one peer.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mio::Interest;
use mio::net::UdpSocket;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use xdfs_sys::poll::{Poller, Token};

use super::options::UdpOptions;
use crate::control::Control;
use crate::queue::Queue;
use crate::socket::{set_buffers, uninterrupted};
use crate::stream::{Capabilities, Stream};
use crate::transform::Room;

thread_local! {
    /// Room for any datagram: it is received whole, so that a lack of room is noticed.
    static SPACE: RefCell<Box<[u8]>> = RefCell::new(vec![0; 1 << 16].into());
}

/// A socket that is connected to its peer.
#[derive(Debug)]
pub struct UdpStream {
    socket: UdpSocket,
    peer: SocketAddr,
    options: UdpOptions,
    /// Datagrams that its listener has received.
    early: Option<Arc<Queue<Vec<u8>>>>,
    is_closed: bool,
}

impl UdpStream {
    /// A socket at any port, whose peer is `peer`. The peer isn't asked.
    ///
    /// # Errors
    /// No route, no descriptors left, or an option that the system doesn't support.
    pub fn open(peer: SocketAddr, options: UdpOptions) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
        options.set(&socket)?;
        let any = match peer {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        socket.bind(&any.into())?;
        socket.connect(&peer.into())?;
        Ok(Self::new(socket, peer, options, None))
    }

    pub(super) fn new(
        socket: Socket,
        peer: SocketAddr,
        options: UdpOptions,
        early: Option<Arc<Queue<Vec<u8>>>>,
    ) -> Self {
        Self {
            socket: UdpSocket::from_std(socket.into()),
            peer,
            options,
            early,
            is_closed: false,
        }
    }

    /// Gives one datagram to the reader.
    fn deliver(&self, datagram: &[u8], bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut room = Room::new(bufs);
        let size = datagram.len();
        let limit = room.left().min(self.options.size);
        if size > limit {
            let why = format!("a datagram of {size} bytes was lost, as there was room for {limit}");
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        Ok(room.put(datagram))
    }
}

/// Receives one datagram, and its sender, into space that lasts for the call.
pub(super) fn receive<T>(
    socket: &UdpSocket,
    take: impl FnOnce(&[u8], SocketAddr) -> T,
) -> io::Result<T> {
    SPACE.with_borrow_mut(|space| {
        let (size, from) = uninterrupted(|| socket.recv_from(space))?;
        Ok(take(&space[..size], from))
    })
}

impl Stream for UdpStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(0);
        }
        if let Some(early) = &self.early
            && let Some(datagram) = early.pop()
        {
            return self.deliver(&datagram, bufs);
        }
        loop {
            let delivered = receive(&self.socket, |datagram, from| {
                // The socket may have received from others before it was connected.
                let is_ours = from == self.peer && !datagram.is_empty();
                is_ours.then(|| self.deliver(datagram, bufs))
            })?;
            if let Some(delivered) = delivered {
                return delivered;
            }
        }
    }

    /// Sends all of `bufs` as one datagram.
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let size: usize = bufs.iter().map(|buf| buf.len()).sum();
        if size == 0 {
            return Ok(0);
        }
        if size > self.options.size {
            let why = format!(
                "a datagram of {size} bytes is larger than {}",
                self.options.size
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        uninterrupted(|| SockRef::from(&self.socket).send_vectored(bufs))
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn close(&mut self) -> io::Result<()> {
        self.is_closed = true;
        Ok(())
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        if let Some(early) = &self.early {
            early.register(poller.notifier(), token);
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        poller
            .registry()
            .register(&mut self.socket, mio::Token(token.0), interest)
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        if let Some(early) = &self.early {
            early.deregister();
        }
        poller.registry().deregister(&mut self.socket)
    }

    /// Not of an accepted stream, whose listener may have datagrams for it.
    #[cfg(unix)]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.early.is_none().then(|| self.socket.as_fd())
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        set_buffers(&SockRef::from(&self.socket), bytes)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: false,
            local: self.peer.ip().to_canonical().is_loopback(),
        }
    }

    fn peer(&self) -> String {
        format!("udp:{}", self.peer)
    }

    fn controls(&self, out: &mut Vec<Control>) {
        let size = self.options.size as u64;
        out.push(Control::new("udp", "size", size));
    }
}
