//! A session's links to data nodes, which move files in MODE E in its place.
//!
//! A link is made when it is needed, and what was begun on it ends when it is closed. While a
//! request is answered, the thread of the session waits, for a bounded time; while files move, it
//! doesn't.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mio::Interest;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{SockRef, TcpKeepalive};
use xdfs_access::Clock;
use xdfs_proto::{Code, Fault};
use xdfs_security::trust::client_fault;
use xdfs_sys::poll::Poller;

use super::channels::connections_each;
use super::locked;
use crate::node::{ALPN, Lines, NODES_MAX, Report, Request, SendOrder, StoreOrder, Watch};
use crate::stripe::Stripe;
use crate::wire::{Demand, Wire};

/// The first token of links.
const FIRST: usize = 1 << 40;
/// Time to connect to a node, and to prove both keys.
const REACH: Duration = Duration::from_secs(5);
/// Time to answer a request.
const ANSWER: Duration = Duration::from_secs(15);
/// Time in which a node that moves a file has to say something.
const SILENCE: Duration = Duration::from_secs(30);
/// Time to confirm that nothing of an upload that failed goes on.
const ENDING: Duration = Duration::from_secs(5);
/// Time after which a node that could not be reached is tried again.
const AWAY: Duration = Duration::from_secs(30);
/// Bytes that are read from a link at once, and reports that are taken in a row.
const READ_BYTES: usize = 16 << 10;
const REPORTS_MAX: usize = 64;

/// A data node that the settings name.
#[derive(Clone, Debug)]
pub struct NodePeer {
    /// `HOST:PORT`.
    pub address: String,
    /// TLS that takes only the key of this node, and shows the server's.
    pub tls: Arc<ClientConfig>,
}

/// All data nodes.
#[derive(Debug)]
pub(super) struct Nodes(Vec<Node>);

#[derive(Debug)]
struct Node {
    peer: NodePeer,
    away_until: Mutex<Option<Instant>>,
}

/// What the nodes of a session are there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    None,
    /// They listen, or have connections of the client.
    Receive,
    /// They have so many connections to each address of the client.
    Send(u32),
}

/// The links of a session.
#[derive(Debug, Default)]
pub(super) struct Stripes {
    links: Vec<NodeLink>,
    role: Role,
    /// Files have moved over the present connections.
    is_used: bool,
}

/// A link to a node.
#[derive(Debug)]
struct NodeLink {
    name: String,
    wire: Wire,
    lines: Lines,
    watch: Watch,
    heard_at: Instant,
    /// The link failed without an end that the node, or the system of its machine, has sent. After
    /// that the system tells an end, which means nothing.
    is_lost: bool,
}

/// What a node has told while files move.
#[derive(Debug)]
pub(super) struct Heard {
    /// Its number.
    pub(super) index: usize,
    pub(super) report: Report,
    /// Bytes of payload that are new.
    pub(super) fresh: u64,
}

impl Nodes {
    pub(super) fn new(peers: Vec<NodePeer>) -> Self {
        let nodes = peers.into_iter().take(NODES_MAX).map(|peer| Node {
            peer,
            away_until: Mutex::default(),
        });
        Self(nodes.collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Links to all nodes that can be reached by addresses of the same kind as the client's.
    fn reach(&self, clock: &dyn Clock, client: IpAddr) -> Vec<NodeLink> {
        let now = clock.instant();
        let is_there = |node: &&Node| locked(&node.away_until).is_none_or(|until| now >= until);
        let nodes: Vec<_> = self.0.iter().filter(is_there).collect();
        let reached: Vec<_> = thread::scope(|scope| {
            let begun: Vec<_> = nodes
                .iter()
                .map(|node| scope.spawn(|| NodeLink::reach(&node.peer, now, client)))
                .collect();
            begun.into_iter().map(|own| own.join().ok()).collect()
        });
        let mut links = Vec::new();
        for (node, reached) in nodes.into_iter().zip(reached) {
            match reached {
                Some(Ok(link)) => {
                    *locked(&node.away_until) = None;
                    links.push(link);
                }
                Some(Err(fault)) => {
                    tracing::warn!(%fault, hint = fault.hint, "a data node is left out");
                    // Others may have addresses of the other kind.
                    if fault.code != Code::Unsupported {
                        *locked(&node.away_until) = Some(clock.instant() + AWAY);
                    }
                }
                None => {}
            }
        }
        links
    }
}

impl NodeLink {
    /// # Errors
    /// The node can't be reached, or isn't the one that is meant.
    fn reach(peer: &NodePeer, now: Instant, client: IpAddr) -> Result<Self, Fault> {
        let name = &peer.address;
        let fault = |error: io::Error| fault_of(name, "reach", &error);
        let started = Instant::now();
        let left = || {
            let left = REACH.checked_sub(started.elapsed());
            let left = left.filter(|left| !left.is_zero());
            left.ok_or_else(|| fault(io::ErrorKind::TimedOut.into()))
        };
        let found = name.to_socket_addrs().map_err(fault)?;
        let is_alike = |own: &SocketAddr| own.ip().to_canonical().is_ipv4() == client.is_ipv4();
        let alike: Vec<_> = found.filter(is_alike).collect();
        if alike.is_empty() {
            let kind = if client.is_ipv4() { "IPv4" } else { "IPv6" };
            let cause = format!("it has no {kind} address, and the client has one");
            return Err(node_fault(name, "reach", Code::Unsupported, &cause));
        }
        let mut stream = Err(io::ErrorKind::NotFound.into());
        for address in alike {
            stream = TcpStream::connect_timeout(&address, left()?);
            if stream.is_ok() {
                break;
            }
        }
        let mut stream = stream.map_err(fault)?;
        keep_alive(&stream);
        // The key of the certificate counts, whatever its name.
        let shown = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        let tls = ClientConnection::new(Arc::clone(&peer.tls), shown);
        let mut tls = tls.map_err(|error| fault(io::Error::other(error)))?;
        while tls.is_handshaking() || tls.wants_write() {
            stream.set_read_timeout(Some(left()?)).map_err(fault)?;
            stream.set_write_timeout(Some(left()?)).map_err(fault)?;
            if tls.wants_write() {
                tls.write_tls(&mut stream).map_err(fault)?;
                continue;
            }
            if tls.read_tls(&mut stream).map_err(fault)? == 0 {
                return Err(fault(io::ErrorKind::UnexpectedEof.into()));
            }
            let read = tls.process_new_packets();
            read.map_err(|error| fault(io::Error::other(error)))?;
        }
        if tls.alpn_protocol() != Some(ALPN) {
            let cause = "it doesn't speak the protocol of data nodes";
            return Err(node_fault(name, "reach", Code::ProtectionRefused, cause));
        }
        let mut wire = Wire::new(mio::net::TcpStream::from_std(stream));
        wire.protect(tls, Demand::None);
        let mut link = Self {
            name: name.clone(),
            wire,
            lines: Lines::default(),
            watch: Watch::default(),
            heard_at: now,
            is_lost: false,
        };
        // It comes once the node has seen the server's key.
        while link.next_report()?.is_none() {
            let socket = SockRef::from(link.wire.stream());
            socket.set_read_timeout(Some(left()?)).map_err(fault)?;
            link.read().map_err(fault)?;
        }
        Ok(link)
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    /// The node refuses, or the link is broken.
    fn ask(&mut self, request: &Request) -> Result<Report, Fault> {
        let answered = self.ask_waiting(request, Instant::now() + ANSWER);
        let socket = SockRef::from(self.wire.stream());
        let restored = socket.set_nonblocking(true);
        let report = answered?;
        restored.map_err(|error| fault_of(&self.name, "ask", &error))?;
        match report {
            Report::Failed { code, cause } => Err(node_fault(&self.name, "ask", code, &cause)),
            report => Ok(report),
        }
    }

    fn ask_waiting(&mut self, request: &Request, until: Instant) -> Result<Report, Fault> {
        let name = self.name.clone();
        let fault = |error: &io::Error| fault_of(&name, "ask", error);
        let late = || fault(&io::ErrorKind::TimedOut.into());
        SockRef::from(self.wire.stream())
            .set_nonblocking(false)
            .map_err(|error| fault(&error))?;
        self.watch.requested(request);
        let line = request.encode();
        let (mut sent, mut is_flushed) = (0, false);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            let socket = SockRef::from(self.wire.stream());
            let set = socket.set_read_timeout(Some(left));
            set.and_then(|()| socket.set_write_timeout(Some(left)))
                .map_err(|error| fault(&error))?;
            let done = if sent < line.len() {
                self.wire.write(&line[sent..]).map(|bytes| sent += bytes)
            } else if !is_flushed {
                self.wire.flush().map(|()| is_flushed = true)
            } else if let Some((report, _)) = self.next_report()? {
                return Ok(report);
            } else {
                self.read().map(|_| ())
            };
            match done {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_lost |= !is_end(&error);
                    return Err(fault(&error));
                }
                Ok(()) => {}
            }
        }
    }

    /// Reads once.
    fn read(&mut self) -> io::Result<usize> {
        let mut bytes = [0; READ_BYTES];
        let room = self.lines.room().min(READ_BYTES);
        match self.wire.read(&mut bytes[..room]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.lines.push(&bytes[..read]);
                Ok(read)
            }
            Err(error) => {
                self.is_lost |= !is_end(&error);
                Err(error)
            }
        }
    }

    /// Tells the node to end what it does.
    fn end(&mut self) {
        if let Err(error) = self.wire.end() {
            self.is_lost |= !is_end(&error);
            let _ = SockRef::from(self.wire.stream()).shutdown(std::net::Shutdown::Write);
        }
    }

    /// Waits until the node, or the system of its machine after its death, has closed the link:
    /// it does so after it has closed the file. Returns whether it has.
    fn has_ended(&mut self, until: Instant) -> bool {
        let socket = SockRef::from(self.wire.stream());
        if self.is_lost || socket.set_nonblocking(false).is_err() {
            return false;
        }
        let mut bytes = [0; READ_BYTES];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let socket = SockRef::from(self.wire.stream());
            let waits = socket.set_read_timeout(Some(left.max(Duration::from_millis(1))));
            if waits.is_err() {
                return false;
            }
            match self.wire.stream_mut().read(&mut bytes) {
                Ok(0) => return true,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return true,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return false,
                _ if left.is_zero() => return false,
                _ => {}
            }
        }
    }

    /// The next report that has come, and the bytes of payload that it adds.
    ///
    /// # Errors
    /// The node says what makes no sense, or what can't be true.
    fn next_report(&mut self) -> Result<Option<(Report, u64)>, Fault> {
        let violation = |error: &dyn std::error::Error| {
            let cause = error.to_string();
            node_fault(&self.name, "follow", Code::ProtocolViolation, &cause)
        };
        let Some(line) = self.lines.next_line().map_err(|e| violation(&e))? else {
            return Ok(None);
        };
        let report = Report::decode(&line).map_err(|e| violation(&e))?;
        let fresh = self.watch.reported(&report).map_err(|e| violation(&e))?;
        Ok(Some((report, fresh)))
    }

    fn address(&self) -> Option<IpAddr> {
        let address = self.wire.stream().peer_addr().ok()?;
        Some(address.ip().to_canonical())
    }
}

impl Stripes {
    /// Closes all links, and so ends what was begun on them.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Closes all links after an upload has failed. Returns whether no node has the file open any
    /// more; those that don't tell it in time may write into it later.
    pub(super) fn end(&mut self) -> bool {
        let mut busy = std::mem::take(self).links;
        busy.retain(|link| link.watch.is_busy());
        busy.iter_mut().for_each(NodeLink::end);
        let until = Instant::now() + ENDING;
        let mut have_all = true;
        for link in &mut busy {
            if !link.has_ended(until) {
                tracing::warn!(
                    node = link.name,
                    "a data node doesn't tell that it has ended an upload, whose unfinished file \
                     can't be gone on with"
                );
                have_all = false;
            }
        }
        have_all
    }

    /// Has the nodes listen for connections of `peer`, or `from` any host; `None` if there is no
    /// node that it can reach.
    pub(super) fn listen(
        &mut self,
        nodes: &Nodes,
        clock: &dyn Clock,
        poller: &Poller,
        from: Option<IpAddr>,
        peer: IpAddr,
    ) -> Option<Vec<SocketAddr>> {
        self.clear();
        let mut addresses = Vec::new();
        let request = Request::Listen { from };
        for mut link in nodes.reach(clock, peer) {
            let answer = link.ask(&request).and_then(|report| match report {
                // Nor are clients sent to services of the system.
                Report::Listening(address)
                    if is_usable(address.ip(), peer, from) && address.port() >= 1024 =>
                {
                    Ok(address)
                }
                _ => {
                    let cause = "the client can't reach the address at which it listens";
                    Err(node_fault(
                        &link.name,
                        "use",
                        Code::ConnectionRefused,
                        cause,
                    ))
                }
            });
            match answer.and_then(|address| self.add(poller, link).map(|()| address)) {
                Ok(address) => addresses.push(address),
                Err(fault) => {
                    tracing::warn!(%fault, hint = fault.hint, "a data node is left out");
                }
            }
        }
        self.role = Role::Receive;
        (!addresses.is_empty()).then_some(addresses)
    }

    fn add(&mut self, poller: &Poller, mut link: NodeLink) -> Result<(), Fault> {
        let token = mio::Token(FIRST + self.links.len());
        let stream = link.wire.stream_mut();
        let watched = poller
            .registry()
            .register(stream, token, Interest::READABLE);
        watched.map_err(|error| fault_of(&link.name, "watch", &error))?;
        self.links.push(link);
        Ok(())
    }

    /// Whether the client was told the addresses of nodes.
    pub(super) fn is_listening(&self) -> bool {
        self.role == Role::Receive && !self.links.is_empty()
    }

    /// Whether nodes have connections to the client.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.role, Role::Send(_)) && !self.links.is_empty()
    }

    /// Whether files have moved over the present connections. From now on they have.
    fn uses(&mut self) -> bool {
        std::mem::replace(&mut self.is_used, true)
    }

    /// Has the nodes write what comes. Returns whether their connections were used before.
    ///
    /// # Errors
    /// A node doesn't.
    pub(super) fn store(&mut self, order: StoreOrder, now: Instant) -> Result<bool, Fault> {
        let request = Request::Store(order);
        for link in &mut self.links {
            link.ask(&request)?;
            link.heard_at = now;
        }
        Ok(self.uses())
    }

    /// Makes links for nodes that can connect to these addresses. Returns whether there are any.
    pub(super) fn reach(
        &mut self,
        nodes: &Nodes,
        clock: &dyn Clock,
        poller: &Poller,
        to: &[SocketAddr],
        parallelism: u32,
    ) -> bool {
        self.clear();
        let is_here = to.iter().any(|to| to.ip().to_canonical().is_loopback());
        let Some(first) = to.first() else {
            return false;
        };
        for link in nodes.reach(clock, first.ip().to_canonical()) {
            // The loopback address of another machine is another one.
            if is_here && !link.address().is_some_and(|own| own.is_loopback()) {
                continue;
            }
            if let Err(fault) = self.add(poller, link) {
                tracing::warn!(%fault, "a data node is left out");
            }
        }
        let ends = self.links.len().saturating_mul(to.len());
        self.role = Role::Send(parallelism.min(connections_each(ends)));
        !self.links.is_empty()
    }

    /// Has each node send its stripe of what is ordered; `to` has the addresses if the nodes have
    /// no connections. Returns whether their connections were used before.
    ///
    /// # Errors
    /// A node doesn't.
    pub(super) fn send(
        &mut self,
        order: &SendOrder,
        to: &[SocketAddr],
        block_bytes: impl Fn(u64) -> u64,
        now: Instant,
    ) -> Result<bool, Fault> {
        let Role::Send(parallelism) = self.role else {
            return Ok(false);
        };
        let count = self.links.len() as u64;
        for (index, link) in (0..).zip(&mut self.links) {
            let order = SendOrder {
                to: to.to_vec(),
                parallelism,
                stripe: Stripe {
                    index,
                    count,
                    block_bytes: block_bytes(count),
                },
                eods: (index == 0).then_some(count * u64::from(parallelism)),
                ..order.clone()
            };
            link.ask(&Request::Send(order))?;
            link.heard_at = now;
        }
        Ok(self.uses())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.links.len()
    }

    /// Bytes of payload that a node has moved.
    pub(super) fn bytes(&self, index: usize) -> u64 {
        self.links.get(index).map_or(0, |link| link.watch.bytes())
    }

    /// Takes what the nodes have told.
    ///
    /// # Errors
    /// A node has failed, tells what can't be true, or nothing for too long.
    pub(super) fn hear(&mut self, now: Instant) -> Result<Vec<Heard>, Fault> {
        let mut heard = Vec::new();
        for (index, link) in self.links.iter_mut().enumerate() {
            if !link.watch.is_busy() {
                continue;
            }
            for _ in 0..REPORTS_MAX {
                let Some((report, fresh)) = link.next_report()? else {
                    match link.read() {
                        Ok(_) => continue,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        Err(error) => return Err(fault_of(&link.name, "follow", &error)),
                    }
                };
                link.heard_at = now;
                if let Report::Failed { code, cause } = &report {
                    return Err(node_fault(&link.name, "move a file by", *code, cause));
                }
                heard.push(Heard {
                    index,
                    report,
                    fresh,
                });
                if !link.watch.is_busy() {
                    break;
                }
            }
            if link.watch.is_busy() && now >= link.heard_at + SILENCE {
                let cause = format!("it has said nothing for {} s", SILENCE.as_secs());
                let code = Code::DeadlineExceeded;
                return Err(node_fault(&link.name, "follow", code, &cause));
            }
        }
        Ok(heard)
    }

    /// Whether no node has anything left to do.
    pub(super) fn is_done(&self) -> bool {
        self.links.iter().all(|link| !link.watch.is_busy())
    }
}

/// Whether an error of a link says that the other end has ended, or nothing of it.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
    )
}

/// Whether `peer` can connect to this address of a node, which takes connections `from` there.
fn is_usable(node: IpAddr, peer: IpAddr, from: Option<IpAddr>) -> bool {
    let node = node.to_canonical();
    let is_one = match node {
        IpAddr::V4(own) => !own.is_unspecified() && !own.is_multicast() && !own.is_broadcast(),
        IpAddr::V6(own) => !own.is_unspecified() && !own.is_multicast(),
    };
    is_one && node.is_ipv4() == peer.is_ipv4() && is_near(node, peer, from)
}

/// Whether `peer` reaches this address of a node, which takes connections `from` there.
fn is_near(node: IpAddr, peer: IpAddr, from: Option<IpAddr>) -> bool {
    match (node.to_canonical().is_loopback(), peer.is_loopback()) {
        (true, is_here) => is_here,
        // It comes from another address than the one that is seen here.
        (false, true) => from.is_none(),
        (false, false) => true,
    }
}

/// Lets the system find out that the other machine is gone.
pub(super) fn keep_alive<'a>(socket: impl Into<SockRef<'a>>) {
    let socket: SockRef<'_> = socket.into();
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5));
    // Hints: a system may refuse them.
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(20)));
}

fn node_fault(name: &str, verb: &str, code: Code, cause: &str) -> Fault {
    Fault::new(code, format!("{verb} the data node {name}"), cause)
}

fn fault_of(name: &str, verb: &str, error: &io::Error) -> Fault {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    if let Some(error) = inner {
        let fault = client_fault(error);
        let own = node_fault(name, verb, Code::ServerUntrusted, &fault.cause);
        return own.hint(fault.hint);
    }
    let code = match verb {
        "reach" => Code::ConnectionRefused,
        _ => Code::ConnectionLost,
    };
    let fault = Fault::from_io(format!("{verb} the data node {name}"), "", error);
    let cause = match error.kind() {
        io::ErrorKind::TimedOut => "it doesn't answer in time".to_owned(),
        io::ErrorKind::UnexpectedEof => "the link is closed".to_owned(),
        _ => fault.cause,
    };
    Fault::new(code, fault.operation, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_those_of_one_machine() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (here, node, client) = (ip("127.0.0.2"), ip("192.0.2.1"), ip("192.0.2.9"));
        assert!(is_near(here, ip("127.0.0.1"), Some(ip("127.0.0.1"))));
        assert!(!is_near(here, client, Some(client)));
        assert!(!is_near(here, client, None));
        assert!(is_near(node, client, Some(client)));
        assert!(is_near(node, here, None));
        assert!(!is_near(node, here, Some(here)));
    }

    #[test]
    fn clients_are_told_addresses_to_which_they_can_connect() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let usable = |node, peer| is_usable(ip(node), ip(peer), Some(ip(peer)));
        assert!(usable("192.0.2.1", "192.0.2.9"));
        assert!(usable("::ffff:192.0.2.1", "192.0.2.9"));
        assert!(usable("2001:db8::1", "2001:db8::9"));
        for node in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "2001:db8::1"] {
            assert!(!usable(node, "192.0.2.9"), "{node}");
        }
        for node in ["::", "ff02::1", "192.0.2.1"] {
            assert!(!usable(node, "2001:db8::9"), "{node}");
        }
    }
}
