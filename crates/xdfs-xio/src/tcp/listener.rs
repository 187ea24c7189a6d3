//! A passive open over TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::Interest;
use mio::net;
use socket2::SockRef;
use xdfs_sys::poll::{Poller, Token};

use super::options::TcpOptions;
use super::stream::TcpStream;
use crate::endpoint::Endpoint;
use crate::socket::BACKLOG;
use crate::stream::{Listener, Stream};

/// Listens on one address. An IPv6 listener accepts only IPv6, so that `[::]` and `0.0.0.0` can
/// coexist and mean the same on every system.
#[derive(Debug)]
pub struct TcpListener {
    inner: net::TcpListener,
    local: SocketAddr,
    options: Arc<TcpOptions>,
}

impl TcpListener {
    /// Listens on `addr`; port 0 requests a free one.
    ///
    /// # Errors
    /// The address is in use or not local, or the system doesn't support an option.
    pub fn listen(addr: SocketAddr, options: &Arc<TcpOptions>) -> io::Result<Self> {
        let socket = options.socket(addr)?;
        // A restarted server must not wait until its predecessor's connections are forgotten.
        // Windows needs no option for this, and there the option would let others take the port.
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        if addr.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        Self::of(socket.into(), options)
    }

    /// Listens on a socket that is open already.
    pub(super) fn adopt(
        socket: std::net::TcpListener,
        options: &Arc<TcpOptions>,
    ) -> io::Result<Self> {
        options.set(&SockRef::from(&socket), socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        // Its opener may have chosen a queue too short for a session's channels.
        SockRef::from(&socket).listen(BACKLOG)?;
        Self::of(socket, options)
    }

    fn of(socket: std::net::TcpListener, options: &Arc<TcpOptions>) -> io::Result<Self> {
        options.set_listening(&SockRef::from(&socket))?;
        let inner = net::TcpListener::from_std(socket);
        let local = inner.local_addr()?;
        Ok(Self {
            inner,
            local,
            options: Arc::clone(options),
        })
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        loop {
            let (stream, peer) = match self.inner.accept() {
                Ok(accepted) => accepted,
                Err(e) if is_passing(&e) => continue,
                Err(e) => return Err(e),
            };
            // Options fail only on a connection that its peer has already reset: skip it.
            if let Ok(stream) = TcpStream::accepted(stream, peer, &self.options) {
                return Ok(Box::new(stream));
            }
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        poller
            .registry()
            .register(&mut self.inner, mio::Token(token.0), Interest::READABLE)
    }

    fn local_endpoint(&self) -> Endpoint {
        Endpoint::tcp(self.local)
    }
}

/// Whether the error concerns only one connection or a signal, so that accepting can continue.
fn is_passing(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}
