//! Finds out whether the port of a server that was started through ssh can be reached directly.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::alias::host_of_alias;

/// How long to try, at most. A lost first packet is sent again after a second.
const WAIT: Duration = Duration::from_millis(1500);
/// Most announced addresses that are tried: a server listens at one.
const ADDRESSES_MAX: usize = 4;

/// The first address that accepts a connection: of those that the server announced, and of `host`
/// with their ports, since a machine may not know the address by which others reach it. Where
/// `host` is no name on the network, `ask` prints what ssh takes it for.
pub(super) fn find(announced: &[String], host: &str, ask: Command) -> Option<SocketAddr> {
    let announced = announced.iter().filter_map(|text| text.parse().ok());
    let announced: Vec<SocketAddr> = announced.take(ADDRESSES_MAX).collect();
    let port = announced.first()?.port();
    let (sender, found) = mpsc::channel();
    for address in announced {
        if !address.ip().is_unspecified() {
            let sender = sender.clone();
            // Nobody waits for those that are not needed: they end by themselves.
            thread::spawn(move || sender.send(reach(address)));
        }
    }
    let host = host.to_owned();
    thread::spawn(move || {
        let named = |host: &str| (host, port).to_socket_addrs().ok();
        let addresses = named(&host).or_else(|| named(&host_of_alias(ask).ok()??));
        for address in addresses.into_iter().flatten() {
            // The receiver is gone once an address is found.
            let _ = sender.send(reach(address));
        }
    });
    let deadline = Instant::now() + WAIT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match found.recv_timeout(left) {
            Ok(Some(address)) => return Some(address),
            Ok(None) => {}
            // All have failed, or it takes too long.
            Err(_) => return None,
        }
    }
}

/// The address, if it accepts a connection. What answers there proves itself later.
fn reach(address: SocketAddr) -> Option<SocketAddr> {
    // They mean something only with the name of an interface.
    let is_link_local = match address.ip() {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if is_link_local {
        return None;
    }
    TcpStream::connect_timeout(&address, WAIT).ok()?;
    Some(address)
}
