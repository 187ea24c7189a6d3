//! An open TCP channel.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mio::Interest;
use mio::net;
use socket2::SockRef;
use xdfs_sys::poll::{Poller, Token};

use super::options::{TcpOptions, congestion};
use crate::control::{Control, ControlValue};
use crate::socket::{connected, set_buffers, shut_writing, uninterrupted};
use crate::stream::{Capabilities, Extension, PathSample, Stream};

/// A TCP connection, established or pending.
#[derive(Debug)]
pub struct TcpStream {
    inner: net::TcpStream,
    peer: SocketAddr,
    options: Arc<TcpOptions>,
    local: bool,
    ready: bool,
}

impl TcpStream {
    /// Starts to connect to `peer`.
    ///
    /// # Errors
    /// An immediate error of the system, for instance that no route exists.
    pub fn open(peer: SocketAddr, options: &Arc<TcpOptions>) -> io::Result<Self> {
        let socket = options.socket(peer)?;
        if let Some(address) = options.bind {
            socket.bind(&SocketAddr::new(address, 0).into())?;
        }
        options.set_connecting(&socket)?;
        let is_pending = match socket.connect(&peer.into()) {
            Ok(()) => false,
            Err(e) if is_pending(&e) => true,
            Err(e) => return Err(e),
        };
        let mut stream = Self {
            inner: net::TcpStream::from_std(socket.into()),
            peer,
            options: Arc::clone(options),
            local: is_loopback(peer),
            ready: false,
        };
        // With fast open, the first write connects: there is no peer to ask for until then.
        if options.fastopen && !is_pending {
            stream.prepare()?;
        }
        Ok(stream)
    }

    /// Wraps a connection accepted by a listener.
    pub(super) fn accepted(
        inner: net::TcpStream,
        peer: SocketAddr,
        options: &Arc<TcpOptions>,
    ) -> io::Result<Self> {
        let mut stream = Self {
            inner,
            peer,
            options: Arc::clone(options),
            local: is_loopback(peer),
            ready: false,
        };
        stream.prepare()?;
        Ok(stream)
    }

    /// Sets the options of an established connection.
    fn prepare(&mut self) -> io::Result<()> {
        // A connection from the same address never leaves the machine, whatever the address.
        let own = self
            .inner
            .local_addr()
            .is_ok_and(|own| own.ip() == self.peer.ip());
        self.local |= own;
        let socket = SockRef::from(&self.inner);
        self.options.set_connected(&socket, self.local)?;
        self.ready = true;
        Ok(())
    }
}

impl Stream for TcpStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let count = uninterrupted(|| self.inner.read_vectored(bufs))?;
        self.options.acknowledge(&self.inner);
        Ok(count)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match uninterrupted(|| self.inner.write_vectored(bufs)) {
            // With fast open, a write connects, and takes nothing if there is more to learn first.
            Err(e) if is_pending(&e) => Err(io::ErrorKind::WouldBlock.into()),
            done => done,
        }
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        if !self.ready && connected(self.inner.take_error()?, self.inner.peer_addr())?.is_some() {
            self.prepare()?;
        }
        Ok(self.ready)
    }

    fn close(&mut self) -> io::Result<()> {
        shut_writing(self.inner.shutdown(Shutdown::Write))
    }

    /// Its drop resets the connection.
    fn abort(&mut self) {
        // It is dropped next in any case.
        let _ = SockRef::from(&self.inner).set_linger(Some(std::time::Duration::ZERO));
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

    #[cfg(unix)]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inner.as_fd())
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        set_buffers(&SockRef::from(&self.inner), bytes)
    }

    fn measure(&self) -> Option<PathSample> {
        let info = xdfs_sys::tcp::info(&self.inner).ok()?;
        Some(PathSample {
            round_trip: info.round_trip,
            round_trip_deviation: info.round_trip_deviation,
            round_trip_min: info.round_trip_min,
            sent_bytes: info.sent_bytes,
            resent_bytes: info.resent_bytes,
            congestion: congestion(&SockRef::from(&self.inner)),
            path_mtu: info.path_mtu,
            busy: info.busy,
            window_limited: info.window_limited,
            buffer_limited: info.buffer_limited,
        })
    }

    fn suit_long_path(&mut self) -> io::Result<()> {
        self.options.suit_long_path(&SockRef::from(&self.inner))
    }

    fn set_pace(&mut self, bytes_per_s: Option<u64>) -> io::Result<()> {
        xdfs_sys::tcp::set_pace(&self.inner, bytes_per_s)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: false,
            local: self.local,
        }
    }

    fn peer(&self) -> String {
        self.peer.to_string()
    }

    fn controls(&self, out: &mut Vec<Control>) {
        let mut add = |name, value: ControlValue| out.push(Control::new("tcp", name, value));
        add("local", self.local.into());
        if let Some(path) = self.measure() {
            add("rtt", path.round_trip.into());
            add("rtt_min", path.round_trip_min.into());
            add("sent", path.sent_bytes.into());
            add("resent", path.resent_bytes.into());
            add("congestion", path.congestion.into());
            add("mtu", u64::from(path.path_mtu).into());
            add("busy", path.busy.into());
            add("window_limited", path.window_limited.into());
            add("buffer_limited", path.buffer_limited.into());
        }
    }

    fn extension(&mut self) -> Extension<'_> {
        Extension::TcpSocket(SockRef::from(&self.inner))
    }
}

/// Whether connecting goes on without the call.
fn is_pending(e: &io::Error) -> bool {
    #[cfg(unix)]
    let is_pending = e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error());
    #[cfg(not(unix))]
    let is_pending = e.kind() == io::ErrorKind::WouldBlock;
    is_pending
}

fn is_loopback(addr: SocketAddr) -> bool {
    // The IPv4 peer of an IPv6 socket has a mapped address.
    addr.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        pair_with(TcpOptions::default())
    }

    fn pair_with(options: TcpOptions) -> (TcpStream, TcpStream) {
        let options = Arc::new(options);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::open(listener.local_addr().unwrap(), &options).unwrap();
        let (server, peer) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let server = TcpStream::accepted(net::TcpStream::from_std(server), peer, &options).unwrap();
        while !client.finish_open().unwrap() {
            std::thread::yield_now();
        }
        (client, server)
    }

    #[test]
    fn both_ends_have_the_options_of_a_local_path() {
        let (client, server) = pair();
        for end in [&client, &server] {
            assert!(end.inner.nodelay().unwrap());
            assert!(end.capabilities().local);
            assert!(!end.capabilities().integrity);
        }
    }

    #[test]
    fn the_window_reaches_the_socket() {
        let (mut client, _server) = pair();
        let socket = |s: &TcpStream| SockRef::from(&s.inner).recv_buffer_size().unwrap();
        client.set_window(32 * 1024).unwrap();
        let small = socket(&client);
        client.set_window(128 * 1024).unwrap();
        assert!(small >= 32 * 1024);
        assert!(socket(&client) > small);
    }

    /// Whether the server's last read left its kernel with nothing to acknowledge later. After an
    /// exchange a kernel waits with acknowledgements, in case an answer can carry them.
    #[cfg(target_os = "linux")]
    #[test]
    fn reads_acknowledge_at_once_if_asked() {
        for quickack in [false, true] {
            let options = TcpOptions {
                quickack,
                ..TcpOptions::default()
            };
            let (mut client, mut server) = pair_with(options);
            for _ in 0..4 {
                for (from, to) in [(0, 1), (1, 0)] {
                    let ends = [&mut client, &mut server];
                    exchange(ends, from, to);
                }
            }
            exchange([&mut client, &mut server], 0, 1);
            let is_quick = rustix::net::sockopt::tcp_quickack(&server.inner).unwrap();
            assert_eq!(is_quick, quickack);
        }
    }

    /// One byte from one of the ends to the other.
    #[cfg(target_os = "linux")]
    fn exchange(ends: [&mut TcpStream; 2], from: usize, to: usize) {
        assert_eq!(ends[from].write_vectored(&[IoSlice::new(&[7])]).unwrap(), 1);
        let mut byte = [0];
        loop {
            match ends[to].read_vectored(&mut [IoSliceMut::new(&mut byte)]) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                count => break assert_eq!(count.unwrap(), 1),
            }
        }
    }

    #[test]
    fn loopback_is_known_in_each_form() {
        for text in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_loopback(text.parse().unwrap()), "{text}");
        }
        for text in ["192.0.2.1:1", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"] {
            assert!(!is_loopback(text.parse().unwrap()), "{text}");
        }
    }
}
