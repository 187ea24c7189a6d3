//! A UDP socket with many datagrams in one system call.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use mio::Interest;
use mio::net::UdpSocket;
use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use socket2::SockRef;
use xdfs_sys::poll::{Event, Poller, Token};

use super::undelivered::Undelivered;

/// Most system calls deliver one buffer of coalesced datagrams, which UDP limits to 64 KiB.
const BUFFER_BYTES: usize = 64 << 10;
/// Buffers filled by one system call.
const BUFFERS: usize = 16;
/// Requested size of each socket buffer in bytes; the system may give less.
const SOCKET_BYTES: usize = 4 << 20;
/// Datagrams in one system call. Larger trains fill the queues on the path.
const SEGMENTS_MAX: usize = 10;
/// Errors of earlier datagrams that prevent one from being sent.
const ERRORS_MAX: usize = 8;
/// Reports that are taken at once, so that they hold up nothing else.
const REPORTS_MAX: usize = 64;
/// Failures to receive, one after the other, from which on the socket counts as broken. Reports of
/// earlier datagrams are none.
const FAILURES_MAX: u32 = 1000;

/// The socket of an endpoint.
#[derive(Debug)]
pub(super) struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
    buffers: Vec<u8>,
    readable: bool,
    writable: bool,
    /// The system may have reports for it.
    may_report: bool,
    /// Failures to receive since the last datagram.
    failures: u32,
}

/// The fate of a datagram.
#[derive(Debug)]
pub(super) enum Sent {
    /// With the system, or lost.
    Done,
    /// The socket has no room; try again when it is writable.
    Full,
    /// The system refused it.
    Failed(io::Error),
}

impl Udp {
    /// A socket bound to `address`, registered under `token`.
    pub(super) fn bind(address: SocketAddr, poller: &Poller, token: Token) -> io::Result<Self> {
        let mut socket = UdpSocket::bind(address)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        renounce_timestamps(&socket);
        let options = SockRef::from(&socket);
        // Smaller buffers lose datagrams in bursts, which costs speed only.
        let _ = options.set_recv_buffer_size(SOCKET_BYTES);
        let _ = options.set_send_buffer_size(SOCKET_BYTES);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poller
            .registry()
            .register(&mut socket, mio::Token(token.0), interest)?;
        Ok(Self {
            socket,
            state,
            buffers: vec![0; BUFFERS * BUFFER_BYTES],
            readable: true,
            writable: true,
            may_report: false,
            failures: 0,
        })
    }

    /// Makes the system report that a peer's host or port is unreachable, where it can (Linux).
    pub(super) fn report_unreachable(&self) {
        let _ = self
            .state
            .enable_transport_errors(UdpSockRef::from(&self.socket));
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub(super) fn note(&mut self, event: &Event) {
        self.readable |= event.readable;
        self.writable |= event.writable;
        self.may_report = true;
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// The system fragments datagrams that the path doesn't take.
    pub(super) fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// Datagrams that one call of [`Udp::send`] takes.
    pub(super) fn segments(&self) -> usize {
        self.state.max_gso_segments().clamp(1, SEGMENTS_MAX)
    }

    /// Receives what one system call gives, and hands over each datagram.
    pub(super) fn receive(&mut self, mut each: impl FnMut(&RecvMeta, &[u8])) -> io::Result<()> {
        let mut metas = [RecvMeta::default(); BUFFERS];
        let mut chunks = self.buffers.chunks_exact_mut(BUFFER_BYTES);
        let mut slices: [io::IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| io::IoSliceMut::new(chunks.next().unwrap_or_default()));
        let (socket, state) = (&self.socket, &self.state);
        let result =
            socket.try_io(|| state.recv(UdpSockRef::from(socket), &mut slices, &mut metas));
        let count = match result {
            Ok(count) => count,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(());
            }
            // Of an earlier datagram, and not authentic (RFC 9000, section 14.2.1).
            Err(e) if is_report(&e) => {
                self.may_report = true;
                return Ok(());
            }
            // A broken socket fails each time.
            Err(e) => {
                self.failures += 1;
                return if self.failures < FAILURES_MAX {
                    Ok(())
                } else {
                    Err(e)
                };
            }
        };
        self.failures = 0;
        for (meta, buffer) in metas.iter().zip(&slices).take(count) {
            let bytes = &buffer[..meta.len.min(buffer.len())];
            for datagram in bytes.chunks(meta.stride.max(1)) {
                each(meta, datagram);
            }
        }
        Ok(())
    }

    /// Sends the datagrams of `transmit`.
    pub(super) fn send(&mut self, transmit: &Transmit, bytes: &[u8]) -> Sent {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(udp_ecn),
            contents: &bytes[..transmit.size.min(bytes.len())],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let (socket, state) = (&self.socket, &self.state);
        // An error of an earlier datagram prevents this one.
        let mut failed = None;
        for _ in 0..ERRORS_MAX {
            match socket.try_io(|| state.try_send(UdpSockRef::from(socket), &transmit)) {
                Ok(()) => return Sent::Done,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Sent::Full;
                }
                // A probe of the path's MTU is larger than the interface takes.
                Err(e) if quinn_udp::is_msg_size_err(&e) => return Sent::Done,
                Err(e) => failed = Some(e),
            }
        }
        match failed {
            Some(e) if e.kind() != ErrorKind::ConnectionRefused => Sent::Failed(e),
            _ => Sent::Done,
        }
    }

    /// What the system reports of datagrams that nobody got.
    pub(super) fn undelivered(&mut self) -> Vec<Undelivered> {
        let mut reports = Vec::new();
        for _ in 0..REPORTS_MAX {
            if !self.may_report {
                break;
            }
            let Ok(Some(report)) = Undelivered::next(&self.socket) else {
                self.may_report = false;
                break;
            };
            reports.extend(report);
        }
        reports
    }
}

/// Has the system leave out the time at which a datagram came. quinn-udp asks for it, but has no
/// room for it beside the rest: the ECN of datagrams that come as a batch would be cut off, and
/// what it says of congestion.
fn renounce_timestamps(socket: &UdpSocket) {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::socket::setsockopt(
        socket,
        nix::sys::socket::sockopt::ReceiveTimestampns,
        &false,
    );
    #[cfg(not(target_os = "linux"))]
    let _ = socket;
}

/// Whether an error to receive can come from a report by ICMP of an earlier datagram, as anybody
/// can send them.
fn is_report(error: &io::Error) -> bool {
    #[cfg(target_os = "linux")]
    if let Some(code) = error.raw_os_error() {
        use nix::errno::Errno as E;

        // Those that Linux makes of the types and codes of ICMP and ICMPv6.
        return matches!(
            E::from_raw(code),
            E::EACCES
                | E::ECONNREFUSED
                | E::EHOSTDOWN
                | E::EHOSTUNREACH
                | E::EMSGSIZE
                | E::ENETUNREACH
                | E::ENONET
                | E::ENOPROTOOPT
                | E::EOPNOTSUPP
                | E::EPROTO
        );
    }
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
    )
}

fn udp_ecn(ecn: EcnCodepoint) -> Option<quinn_udp::EcnCodepoint> {
    quinn_udp::EcnCodepoint::from_bits(ecn as u8)
}

/// The ECN of a received datagram.
pub(super) fn ecn(meta: &RecvMeta) -> Option<EcnCodepoint> {
    meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1200;
    const COUNT: usize = 8;

    #[test]
    fn each_datagram_of_a_batch_has_its_ecn() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            let mut poller = Poller::new().unwrap();
            let Ok(mut to) = Udp::bind(address, &poller, Token(1)) else {
                return xdfs_testkit::skip::part("there is no IPv6");
            };
            let mut from = Udp::bind(address, &poller, Token(2)).unwrap();
            let count = COUNT.min(from.segments());
            let transmit = Transmit {
                destination: to.local_addr().unwrap(),
                ecn: Some(EcnCodepoint::Ect0),
                size: count * BYTES,
                segment_size: Some(BYTES),
                src_ip: None,
            };
            let sent = from.send(&transmit, &[7; COUNT * BYTES]);
            assert!(matches!(sent, Sent::Done), "{sent:?}");
            let mut seen = Vec::new();
            while seen.len() < count {
                let mut events = Vec::new();
                let patience = std::time::Duration::from_secs(60);
                poller.wait(&mut events, Some(patience)).unwrap();
                assert!(!events.is_empty(), "{seen:?}");
                for event in events.iter().filter(|event| event.token == Token(1)) {
                    to.note(event);
                }
                while to.is_readable() {
                    to.receive(|meta, _| seen.push(ecn(meta))).unwrap();
                }
            }
            assert_eq!(seen, vec![Some(EcnCodepoint::Ect0); count]);
        }
    }
}
