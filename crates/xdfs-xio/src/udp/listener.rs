//! Passive opens over UDP: a stream for each peer that sends a datagram.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use mio::Interest;
use mio::net::UdpSocket;
use socket2::{Domain, Protocol, Socket, Type};
use xdfs_sys::poll::{Poller, Token};

use super::options::UdpOptions;
use super::stream::{UdpStream, receive};
use crate::endpoint::{Endpoint, Location};
use crate::queue::Queue;
use crate::stream::{Listener, Stream};

/// Datagrams of peers without a stream that are kept; more stay in the socket.
const WAITING_MAX: usize = 64;
/// Datagrams that may wait for a stream whose socket was not connected when they arrived.
const EARLY_MAX: usize = 64;

/// Datagrams of one peer that its listener has received. When it is full, more are lost, as in a
/// full socket.
type Early = Queue<Vec<u8>>;

/// Receives the first datagrams of new peers.
#[derive(Debug)]
pub struct UdpListener {
    socket: UdpSocket,
    local: SocketAddr,
    options: UdpOptions,
    /// The peers with a stream.
    peers: HashMap<SocketAddr, Weak<Early>>,
    /// First datagrams of peers without a stream.
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    /// The number of peers at which those without a stream are removed.
    sweep_at: usize,
}

impl UdpListener {
    /// Listens at `address`; port 0 requests a free one.
    ///
    /// # Errors
    /// The address is in use (also by streams of an earlier listener), not local, or stands for
    /// all addresses; a system other than Linux.
    pub fn listen(address: SocketAddr, options: UdpOptions) -> io::Result<Self> {
        if address.ip().is_unspecified() {
            let why = "udp listens at one address; answers would come from another";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        options.set(&socket)?;
        socket.bind(&address.into())?;
        // After the bind, which so finds out whether somebody else has the address.
        share(&socket)?;
        let socket = UdpSocket::from_std(socket.into());
        let local = socket.local_addr()?;
        Ok(Self {
            socket,
            local,
            options,
            peers: HashMap::new(),
            waiting: VecDeque::new(),
            sweep_at: 64,
        })
    }

    /// Receives a datagram, and gives it to the stream of its peer, or keeps it for a new one.
    fn receive(&mut self) -> io::Result<()> {
        receive(&self.socket, |datagram, from| {
            if datagram.is_empty() {
                return;
            }
            match self.peers.get(&from).and_then(Weak::upgrade) {
                Some(early) => drop(early.push(datagram.to_vec())),
                None => self.waiting.push_back((from, datagram.to_vec())),
            }
        })
    }

    /// A stream for a new peer.
    fn welcome(&mut self, peer: SocketAddr) -> io::Result<(UdpStream, Arc<Early>)> {
        let domain = Domain::for_address(self.local);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        self.options.set(&socket)?;
        share(&socket)?;
        socket.bind(&self.local.into())?;
        socket.connect(&peer.into())?;
        if self.peers.len() >= self.sweep_at {
            self.peers.retain(|_, early| early.strong_count() > 0);
            self.sweep_at = 64.max(2 * self.peers.len());
        }
        let early = Arc::new(Early::new(EARLY_MAX));
        self.peers.insert(peer, Arc::downgrade(&early));
        let stream = UdpStream::new(socket, peer, self.options, Some(Arc::clone(&early)));
        Ok((stream, early))
    }
}

/// Allows sockets of this user at one address, among which the kernel looks for the connected one.
#[cfg(target_os = "linux")]
fn share(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

#[cfg(not(target_os = "linux"))]
fn share(_: &Socket) -> io::Result<()> {
    let why = "the transport udp can listen only on Linux";
    Err(io::Error::new(ErrorKind::Unsupported, why))
}

impl Listener for UdpListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        loop {
            if self.waiting.is_empty() {
                self.receive()?;
            }
            let Some((from, datagram)) = self.waiting.pop_front() else {
                continue;
            };
            let (stream, early) = self.welcome(from)?;
            let _ = early.push(datagram);
            // Others of the same peer, which would otherwise be there only with the next call.
            while self.waiting.len() < WAITING_MAX && self.receive().is_ok() {}
            self.waiting.retain(|(other, datagram)| {
                let is_of_peer = *other == from;
                if is_of_peer {
                    let _ = early.push(datagram.clone());
                }
                !is_of_peer
            });
            return Ok(Box::new(stream));
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        poller
            .registry()
            .register(&mut self.socket, mio::Token(token.0), Interest::READABLE)
    }

    fn local_endpoint(&self) -> Endpoint {
        Endpoint::new("udp", Location::Socket(self.local))
    }
}
