//! What the system reports of datagrams that nobody got: the error queue of a UDP socket.
//!
//! Such reports (ICMP) aren't authentic. Each quotes the beginning of the datagram that it is
//! about, which tells a report by somebody who saw that datagram from one that was made up: a
//! connection that opens begins with an identifier that nobody can guess (RFC 9000, section 7.2).

use std::io;
use std::net::SocketAddr;

use mio::net::UdpSocket;

/// Bytes that are kept of a datagram, and looked at in a report.
const QUOTED_BYTES: usize = 32;
/// The first byte differs from packet to packet; a version, a length and an identifier follow (RFC
/// 8999, section 5.1).
const VERSION_AT: usize = 1;
const LENGTH_AT: usize = 5;
const ID_AT: usize = 6;
/// Bytes of the identifier that have to be quoted: it has as many at least.
const ID_BYTES: usize = 8;

/// A report that a host or a network on the way refuses datagrams to an address.
#[derive(Debug)]
pub(super) struct Undelivered {
    /// The address to which the datagram was sent.
    pub(super) destination: SocketAddr,
    quoted: Beginning,
}

/// How a datagram begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beginning {
    bytes: [u8; QUOTED_BYTES],
    length: usize,
}

impl Beginning {
    pub(super) fn of(datagram: &[u8]) -> Self {
        let length = datagram.len().min(QUOTED_BYTES);
        let mut bytes = [0; QUOTED_BYTES];
        bytes[..length].copy_from_slice(&datagram[..length]);
        Self { bytes, length }
    }

    /// What a connection's packets have in common while it opens.
    fn identifier(&self) -> Option<&[u8]> {
        let bytes = &self.bytes[..self.length];
        let end = ID_AT + usize::from(*bytes.get(LENGTH_AT)?);
        let identifier = &bytes[VERSION_AT..end.min(bytes.len())];
        (identifier.len() >= ID_AT - VERSION_AT + ID_BYTES).then_some(identifier)
    }
}

impl Undelivered {
    /// Whether it quotes a packet of the connection of which this one was sent.
    pub(super) fn is_about(&self, sent: &Beginning) -> bool {
        match (self.quoted.identifier(), sent.identifier()) {
            (Some(quoted), Some(sent)) => sent.starts_with(quoted),
            _ => false,
        }
    }

    /// The next report in the queue of a socket: `None` if it is empty, `Some(None)` for one that
    /// says something else.
    #[cfg(target_os = "linux")]
    pub(super) fn next(socket: &UdpSocket) -> io::Result<Option<Option<Self>>> {
        use std::os::fd::AsRawFd as _;

        use nix::errno::Errno;
        use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};

        let mut quoted = [0; QUOTED_BYTES];
        let mut slices = [io::IoSliceMut::new(&mut quoted)];
        let mut control = nix::cmsg_space!([u8; CONTROL_BYTES]);
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<SockaddrStorage>(
            socket.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            flags,
        ) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let refuses = message.cmsgs()?.any(|control| match control {
            ControlMessageOwned::Ipv4RecvErr(error, _) => {
                error.ee_origin == ORIGIN_ICMP
                    && error.ee_type == UNREACHABLE
                    && REFUSALS.contains(&error.ee_code)
            }
            ControlMessageOwned::Ipv6RecvErr(error, _) => {
                error.ee_origin == ORIGIN_ICMP6
                    && error.ee_type == UNREACHABLE_V6
                    && REFUSALS_V6.contains(&error.ee_code)
            }
            _ => false,
        });
        let length = message.bytes;
        let destination = message.address.and_then(|address| {
            let v4 = address
                .as_sockaddr_in()
                .map(|a| SocketAddr::V4((*a).into()));
            v4.or_else(|| {
                address
                    .as_sockaddr_in6()
                    .map(|a| SocketAddr::V6((*a).into()))
            })
        });
        Ok(Some(destination.filter(|_| refuses).map(|destination| {
            Self {
                destination,
                quoted: Beginning::of(&quoted[..length.min(QUOTED_BYTES)]),
            }
        })))
    }

    /// There is no such queue.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn next(_: &UdpSocket) -> io::Result<Option<Option<Self>>> {
        Ok(None)
    }
}

#[cfg(target_os = "linux")]
use linux::{
    CONTROL_BYTES, ORIGIN_ICMP, ORIGIN_ICMP6, REFUSALS, REFUSALS_V6, UNREACHABLE, UNREACHABLE_V6,
};

/// Numbers of Linux (linux/errqueue.h), and of ICMP (RFC 792, RFC 1122, RFC 1812, RFC 4443).
#[cfg(target_os = "linux")]
mod linux {
    /// Room for the report, the address of its sender, and what else the socket asks for.
    pub(super) const CONTROL_BYTES: usize = 256;
    pub(super) const ORIGIN_ICMP: u8 = 2;
    pub(super) const ORIGIN_ICMP6: u8 = 3;
    /// Destination unreachable.
    pub(super) const UNREACHABLE: u8 = 3;
    pub(super) const UNREACHABLE_V6: u8 = 1;
    /// Codes of what doesn't pass by itself: no such protocol, no such port, prohibited. With TCP,
    /// Linux ends an open for the same ones. A network or host that can't be reached may be soon.
    pub(super) const REFUSALS: [u8; 5] = [2, 3, 9, 10, 13];
    pub(super) const REFUSALS_V6: [u8; 2] = [1, 4];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(first: u8, id: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first, 0, 0, 0, 1, id.len() as u8];
        bytes.extend(id);
        bytes.resize(1200, 0);
        bytes
    }

    fn report(quoted: &[u8]) -> Undelivered {
        Undelivered {
            destination: ([127, 0, 0, 1], 9).into(),
            quoted: Beginning::of(quoted),
        }
    }

    #[test]
    fn a_report_has_to_quote_the_identifier() {
        let id: Vec<u8> = (1..=20).collect();
        let bytes = datagram(0xc1, &id);
        let sent = Beginning::of(&bytes);
        for length in [14, 20, 26, 32, 1200] {
            assert!(report(&bytes[..length]).is_about(&sent), "{length}");
        }
        // The next packet of the same connection.
        assert!(report(&datagram(0xc7, &id)).is_about(&sent));
        for length in [0, 1, 5, 6, 13] {
            assert!(!report(&bytes[..length]).is_about(&sent), "{length}");
        }
        for at in 6..26 {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(!report(&other).is_about(&sent), "{at}");
        }
        // A shorter identifier with the same beginning.
        assert!(!report(&datagram(0xc1, &id[..8])).is_about(&sent));
        assert!(!report(&datagram(0xc1, &[])).is_about(&Beginning::of(&datagram(0xc1, &[]))));
        assert!(!report(&bytes).is_about(&Beginning::default()));
    }
}
