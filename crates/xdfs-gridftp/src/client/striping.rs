//! Files that go to several data nodes of a server at once, and come from them (SPAS and SPOR,
//! GFD.20), in MODE E.
//!
//! A server tells where its nodes listen. Data goes to an address, and is taken from it, only if it
//! is the server's own, as with PASV, or one that the user has named: so no server can make this
//! machine, or the other server of a transfer, connect to a third host.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use mio::net::TcpStream;
use xdfs_proto::{Code, Fault};

use super::channel::Direction;
use super::fault::{lost, refused, violation};
use super::features::Features;
use super::link::Link;
use crate::address::{format_host_port, parse_host_port};
use crate::command::ADDRESSES_MAX;
use crate::receiver::CONNECTIONS_MAX;
use crate::reply::Reply;
use crate::stripe::Layout;

/// Lowest port of a data node: those below are of other services.
const PORT_MIN: u16 = 1024;

/// How files are striped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stripes {
    /// Bytes of the blocks that the stripes have in turn, at least 16 KiB; `None` leaves it to a
    /// server that sends, and is 1 MiB to a server.
    pub block_bytes: Option<u64>,
    /// The data nodes that have another address than their server.
    pub nodes: Vec<NodeAddresses>,
    /// Files aren't read from their beginning on, which is an error with servers that leave bytes
    /// out then, as the Globus server does.
    pub is_part: bool,
}

/// An address, or all that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAddresses {
    address: IpAddr,
    bits: u32,
}

impl NodeAddresses {
    fn contains(self, other: IpAddr) -> bool {
        let same = |width: u32, a: u128, b: u128| {
            // All bits of it are shifted out where none is to be the same.
            let shift = width - self.bits.min(width);
            a.checked_shr(shift) == b.checked_shr(shift)
        };
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(32, a.to_bits().into(), b.to_bits().into()),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(128, a.to_bits(), b.to_bits()),
            _ => false,
        }
    }
}

impl FromStr for NodeAddresses {
    type Err = String;

    /// Reads `192.0.2.1`, or `192.0.2.0/24` with the number of bits that are the same.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: Result<IpAddr, _> = address.parse();
        let address = address.map_err(|_| "write an address such as 192.0.2.1".to_owned())?;
        let address = address.to_canonical();
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= width),
            None => Some(width),
        };
        let bits = bits.ok_or_else(|| format!("a network ends in /0 to /{width}"))?;
        Ok(Self { address, bits })
    }
}

/// What a connection with a server knows of its stripes.
#[derive(Debug)]
pub(super) struct Striping {
    wanted: Stripes,
    /// To how many addresses of this machine files come, once that is known.
    arrivals: Option<usize>,
    /// The server, for messages.
    server: String,
    /// Others who have tried to connect, by the number of the address of this machine.
    strangers: BTreeMap<usize, IpAddr>,
}

impl Striping {
    pub(super) fn new(wanted: Stripes, server: String) -> Self {
        Self {
            wanted,
            arrivals: None,
            server,
            strangers: BTreeMap::new(),
        }
    }

    /// What the server has, as far as stripes go with it: they are in MODE E, which is asked for
    /// whatever the server says about it.
    pub(super) fn limit(features: &mut Features) {
        features.extended = true;
        features.exchange = None;
        features.segments.clear();
    }
}

/// So many connections to each address, or fewer if there would be more in all than a transfer may
/// have.
fn each(connections: u32, addresses: usize) -> u32 {
    let most = CONNECTIONS_MAX / addresses.max(1) as u64;
    connections
        .min(u32::try_from(most).unwrap_or(u32::MAX))
        .max(1)
}

/// The stripes of an upload, which have blocks in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    block_bytes: u64,
    count: u64,
}

impl Turns {
    /// The number of the stripe that has the byte at an offset.
    pub(super) fn at(self, offset: u64) -> usize {
        usize::try_from(offset / self.block_bytes % self.count).unwrap_or_default()
    }

    /// Bytes from an offset on that are of its block.
    pub(super) fn left(self, offset: u64) -> u64 {
        self.block_bytes - offset % self.block_bytes
    }
}

/// The addresses in the reply to SPAS, a line for each stripe.
///
/// # Errors
/// There is none, or something else, or one at which no data node listens: without a host, or with
/// a port of the system's services. There are too many, or the same one twice. It is told as the
/// cause of a fault.
pub fn striped_addresses(reply: &Reply) -> Result<Vec<SocketAddr>, String> {
    let between = match reply.lines.as_slice() {
        [_, between @ .., _] => between,
        _ => &[],
    };
    if between.is_empty() {
        return Err("the reply to SPAS has no address".to_owned());
    }
    if between.len() > ADDRESSES_MAX {
        let count = between.len();
        return Err(format!(
            "the reply to SPAS has {count} addresses, more than {ADDRESSES_MAX}"
        ));
    }
    let mut addresses = Vec::with_capacity(between.len());
    for line in between {
        let is_for_data = |own: &SocketAddr| own.port() >= PORT_MIN && !own.ip().is_unspecified();
        let address = parse_host_port(line.trim_ascii()).filter(is_for_data);
        let Some(address) = address else {
            let line = line.trim_ascii().escape_ascii();
            return Err(format!(
                "'{line}' in the reply to SPAS is no address for data"
            ));
        };
        if addresses.contains(&address) {
            return Err(format!("the reply to SPAS has {address} twice"));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// The command that has a server connect to addresses, with its argument.
pub(super) fn connect_to(addresses: &[SocketAddr]) -> (&'static str, String) {
    let texts: Option<Vec<_>> = addresses.iter().map(|own| format_host_port(*own)).collect();
    match (addresses, texts) {
        ([one], None) => ("EPRT", format!("|2|{}|{}|", one.ip(), one.port())),
        ([_], Some(texts)) => ("PORT", texts.concat()),
        (_, texts) => ("SPOR", texts.unwrap_or_default().join(" ")),
    }
}

impl Link {
    /// Nobody else has tried to connect.
    pub(super) fn forget_strangers(&mut self) {
        if let Some(striping) = &mut self.striping {
            striping.strangers.clear();
        }
    }

    /// Somebody else has tried to connect to an address of this machine, by its number.
    pub(super) fn note_stranger(&mut self, stripe: usize, stranger: IpAddr) {
        if let Some(striping) = &mut self.striping {
            striping.strangers.insert(stripe, stranger.to_canonical());
        }
    }

    /// Whether what the server sends may begin in the middle of a file. With stripes only xDFS
    /// sends all bytes then; the Globus server leaves some out.
    pub(super) fn begins_anywhere(&self) -> bool {
        self.striping.is_none() || self.features.unstriped
    }

    /// Fails if a part of a file is asked for that the server can't send.
    ///
    /// # Errors
    /// It is so.
    pub(super) fn check_part(&self, path: &[u8]) -> Result<(), Fault> {
        match &self.striping {
            Some(striping) if striping.wanted.is_part && !self.begins_anywhere() => {
                let server = &striping.server;
                let cause = format!("{server} leaves bytes out of parts of files with stripes");
                let fault = Fault::new(Code::Unsupported, "resume", cause);
                Err(fault.path(path).hint("leave out --stripe"))
            }
            _ => Ok(()),
        }
    }

    /// The options of RETR for so many connections, to each address.
    pub(super) fn send_options(&self, connections: u32) -> String {
        let Some(striping) = &self.striping else {
            return self.features.send_options(None, connections);
        };
        let wanted = striping.wanted.block_bytes;
        let layout = wanted.map(|bytes| format!("StripeLayout=Blocked;BlockSize={bytes};"));
        let connections = each(connections, striping.arrivals.unwrap_or(1));
        let layout = layout.unwrap_or_default();
        self.features.send_options(Some(&layout), connections)
    }

    /// A direction of data connections, as far as it differs from others.
    pub(super) fn striped_direction(&self, direction: Direction) -> Direction {
        match direction {
            Direction::List if self.striping.is_none() => Direction::Receive,
            direction => direction,
        }
    }

    /// To how many addresses of this machine data comes, so that all data nodes take part. Those of
    /// the Globus server share the addresses, and those of xDFS connect to each.
    ///
    /// # Errors
    /// The server has no stripes, or names an address that isn't to be believed.
    pub(super) fn receiving_stripes(&mut self, direction: Direction) -> Result<usize, Fault> {
        let known = match &self.striping {
            Some(striping) if direction == Direction::Receive => striping.arrivals,
            _ => Some(1),
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let nodes = self.passive_addresses()?.len();
        let arrivals = if self.features.unstriped { 1 } else { nodes };
        if let Some(striping) = &mut self.striping {
            striping.arrivals = Some(arrivals);
        }
        Ok(arrivals)
    }

    /// The stripes of an upload over its channels: one, if files aren't striped.
    pub(super) fn stripes(&self) -> Turns {
        let Some(striping) = &self.striping else {
            let (block_bytes, count) = (u64::MAX, 1);
            return Turns { block_bytes, count };
        };
        let layout = striping.wanted.block_bytes.map(Layout::Blocked);
        let last = self.channels.iter().map(|channel| channel.stripe).max();
        let count = last.unwrap_or_default() as u64 + 1;
        let block_bytes = layout.unwrap_or_default().block_bytes(0, count);
        Turns { block_bytes, count }
    }

    /// Whether data may come from an address, and go there.
    pub(super) fn takes(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let mut named = self.striping.iter().flat_map(|own| &own.wanted.nodes);
        address == self.peer || named.any(|nodes| nodes.contains(address))
    }

    /// A fault, which may be that a data node wasn't taken for one: then nobody else has come where
    /// it was refused.
    pub(super) fn explained(&self, fault: Fault, has_moved: bool) -> Fault {
        let mut strangers = self.striping.iter().flat_map(|own| &own.strangers);
        let is_met = |stripe| self.channels.iter().any(|channel| channel.stripe == stripe);
        let stranger = strangers.find(|(stripe, _)| !is_met(**stripe));
        let may_be_it = matches!(
            fault.code,
            Code::Busy
                | Code::ConnectionLost
                | Code::ConnectionRefused
                | Code::DeadlineExceeded
                | Code::Unsupported
        );
        let Some((_, stranger)) = stranger.filter(|_| may_be_it) else {
            return fault;
        };
        let cause = format!(
            "{}; data connections from {stranger} were refused, which isn't the server",
            fault.cause
        );
        // Anybody can connect, so that this isn't the place to tell whom to trust.
        let hint = "if it is one of the server's data nodes, --stripe-nodes names it";
        let fault = match has_moved {
            true => Fault { cause, ..fault },
            // Another attempt would end in the same way.
            false => Fault::new(Code::ServerUntrusted, fault.operation, cause).path(fault.path),
        };
        fault.hint(hint)
    }

    /// A fault of a command that a server without stripes doesn't know.
    pub(super) fn lacking_stripes(&self, fault: Fault) -> Fault {
        match &self.striping {
            Some(striping) if fault.code == Code::Unsupported => {
                let cause = format!("{} has no stripes: {}", striping.server, fault.cause);
                Fault { cause, ..fault }.hint(match self.peer {
                    IpAddr::V4(_) => "leave out --stripe",
                    IpAddr::V6(_) => {
                        "leave out --stripe, or name the server by an IPv4 address: the \
                         protocol has no stripes over IPv6"
                    }
                })
            }
            _ => fault,
        }
    }

    /// Asks the server to listen, with all its data nodes if files are striped. Returns where.
    ///
    /// # Errors
    /// It doesn't listen, or names an address that isn't its own and that nobody has named.
    pub(super) fn passive_addresses(&mut self) -> Result<Vec<SocketAddr>, Fault> {
        let operation = "open striped data connections";
        let Some(striping) = &self.striping else {
            return Ok(vec![self.passive()?]);
        };
        let server = striping.server.clone();
        let reply = self.exchange("SPAS", b"")?;
        if reply.code != 229 {
            return Err(self.lacking_stripes(refused(operation, b"", &reply)));
        }
        let addresses = striped_addresses(&reply);
        let addresses =
            addresses.map_err(|cause| violation(operation, format!("{server}: {cause}")))?;
        let count = addresses.len();
        tracing::debug!(count, "stripes of {server}");
        let mut others: Vec<_> = addresses.iter().map(SocketAddr::ip).collect();
        others.retain(|ip| !self.takes(*ip));
        others.dedup();
        if others.is_empty() {
            return Ok(addresses);
        }
        let others: Vec<_> = others.iter().map(IpAddr::to_string).collect();
        let others = others.join(",");
        let cause = format!(
            "{server} names {others} for its data, and is at {}",
            self.peer
        );
        Err(violation(operation, cause).hint(format!(
            "if its data nodes are there, --stripe-nodes {others} takes them"
        )))
    }

    /// Opens so many connections to each address where the server listens.
    ///
    /// # Errors
    /// There is no way to it.
    pub(super) fn connect_each(
        &mut self,
        addresses: &[SocketAddr],
        connections: u32,
    ) -> Result<(), Fault> {
        for (stripe, &address) in addresses.iter().enumerate() {
            for _ in 0..each(connections, addresses.len()) {
                let operation = format!("open a data connection to {address}");
                let stream = TcpStream::connect(address);
                let stream = stream.map_err(|error| lost(&operation, &error))?;
                self.add(stream, false)?;
                if let Some(channel) = self.channels.last_mut() {
                    channel.stripe = stripe;
                    channel.node = self.striping.is_some().then_some(address);
                }
            }
        }
        Ok(())
    }

    /// The stripe of each channel.
    pub(super) fn groups(&self) -> Vec<usize> {
        self.channels.iter().map(|channel| channel.stripe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(between: &[&str]) -> Result<Vec<SocketAddr>, String> {
        let between = between.iter().map(|line| line.as_bytes().to_vec());
        striped_addresses(&Reply::of_lines(229, "Entering", between, "End"))
    }

    #[test]
    fn addresses_of_stripes_are_read() {
        let wanted: [SocketAddr; 2] =
            ["127.0.0.1:1026", "10.0.0.2:2051"].map(|a| a.parse().unwrap());
        let found = told(&[" 127,0,0,1,4,2", "10,0,0,2,8,3"]).unwrap();
        assert_eq!(found, wanted);
        assert_eq!(
            connect_to(&found),
            ("SPOR", "127,0,0,1,4,2 10,0,0,2,8,3".to_owned())
        );
        let port = ("PORT", "127,0,0,1,4,2".to_owned());
        assert_eq!(connect_to(&found[..1]), port);
        let six = "[::1]:9".parse().unwrap();
        assert_eq!(connect_to(&[six]), ("EPRT", "|2|::1|9|".to_owned()));
    }

    #[test]
    fn what_tells_no_stripes_is_refused() {
        let many: Vec<_> = (1..=10_000)
            .map(|n| format!("10,0,0,1,{},{}", 4 + n / 256, n % 256))
            .collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        for (between, cause) in [
            (&[][..], "has no address"),
            (&["127,0,0,1,4,2", "x"], "'x'"),
            (&["127,0,0,1,0,0"], "is no address"),
            (&["127,0,0,1,3,255"], "is no address for data"),
            (&["0,0,0,0,4,0"], "is no address for data"),
            (&["127,0,0,1,4,2", " 127,0,0,1,4,2"], "twice"),
            (&many, "10000 addresses"),
        ] {
            assert!(told(between).unwrap_err().contains(cause), "{cause}");
        }
        let one = Reply::new(229, "Entering Extended Passive Mode (|||9|)");
        assert!(striped_addresses(&one).is_err());
    }

    #[test]
    fn addressess_contain_addresses() {
        let has = |addresses: &str, address: &str| {
            let addresses: NodeAddresses = addresses.parse().unwrap();
            addresses.contains(address.parse().unwrap())
        };
        assert!(has("192.0.2.1", "192.0.2.1") && !has("192.0.2.1", "192.0.2.2"));
        assert!(has("192.0.2.0/24", "192.0.2.255") && !has("192.0.2.0/24", "192.0.3.0"));
        assert!(has("192.0.2.0/24", "::ffff:192.0.2.9"));
        assert!(has("0.0.0.0/0", "8.8.8.8") && !has("0.0.0.0/0", "::1"));
        assert!(has("2001:db8::/32", "2001:db8:1::1") && !has("2001:db8::/32", "2001:db9::"));
        assert!(has("::/0", "::1") && !has("::/0", "127.0.0.1"));
        for text in [
            "",
            "x",
            "192.0.2.0/33",
            "192.0.2.0/",
            "::/129",
            "1.2.3.4/x",
            "1.2.3.4/-1",
        ] {
            assert!(text.parse::<NodeAddresses>().is_err(), "{text}");
        }
    }
}
