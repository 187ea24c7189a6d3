//! Listeners of passive data connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU16, Ordering};

use mio::net::TcpListener;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Connections that may wait to be accepted before there is a transfer: a session that never begins
/// one keeps no more.
const BACKLOG: i32 = 16;
/// The same during a transfer over many connections.
const BACKLOG_OF_MANY: i32 = 256;

/// Listens at `ip`, on a port of the range if there is one. `next` is where to look first, so that
/// sessions don't all try the same ports.
pub(super) fn listen(
    ip: IpAddr,
    ports: Option<&RangeInclusive<u16>>,
    next: &AtomicU16,
) -> io::Result<TcpListener> {
    let Some(ports) = ports else {
        return bind(SocketAddr::new(ip, 0));
    };
    let (first, count) = (u32::from(*ports.start()), ports.len() as u32);
    let start = u32::from(next.fetch_add(1, Ordering::Relaxed));
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for number in 0..count {
        let port = first + (start + number) % count;
        match bind(SocketAddr::new(ip, u16::try_from(port).unwrap_or(u16::MAX))) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Lets as many connections wait as a transfer in MODE E may have.
pub(super) fn expect_many(listener: &TcpListener) {
    // A hint: with a shorter queue connections come about later.
    let _ = SockRef::from(listener).listen(BACKLOG_OF_MANY);
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    // Otherwise a range of ports would be used up by closed connections.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_the_range_are_used_until_none_is_left() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        let next = AtomicU16::new(u16::MAX);
        // Two neighbours that are free now.
        let (first, taken) = loop {
            let free = listen(ip, None, &next).unwrap();
            let port = free.local_addr().unwrap().port();
            if port < u16::MAX
                && let Ok(second) = bind(SocketAddr::new(ip, port + 1))
            {
                drop(free);
                break (port, second);
            }
        };
        drop(taken);
        let range = first..=first + 1;
        let held: Vec<_> = (0..2)
            .map(|_| listen(ip, Some(&range), &next).unwrap())
            .collect();
        let mut ports: Vec<_> = held
            .iter()
            .map(|l| l.local_addr().unwrap().port())
            .collect();
        ports.sort_unstable();
        assert_eq!(ports, [first, first + 1]);
        assert!(listen(ip, Some(&range), &next).is_err());
    }
}
