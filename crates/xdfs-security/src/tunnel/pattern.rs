//! Patterns of hosts and ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use xdfs_proto::tunnel::Host;

/// Hosts, or one Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostPattern {
    /// `*`: every host, except special addresses.
    Any,
    /// `NAME`: this name, at any address that isn't special. `localhost` may also be loopback.
    Name(String),
    /// `*.NAME`: the names beneath this one, kept with the dot, likewise.
    Beneath(String),
    /// `ADDRESS` or `ADDRESS/BITS`: these addresses, by whatever name.
    Network(IpAddr, u8),
    /// `unix:PATH`.
    Socket(String),
}

impl HostPattern {
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') && !path.contains('*') {
                true => Ok(Self::Socket(path.to_owned())),
                false => Err("a socket is unix: and its absolute path, without patterns"),
            };
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| "this is no network")?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse().ok().filter(|bits| *bits <= most);
            let bits = bits.ok_or("a network has up to 32 bits, or 128 for IPv6")?;
            return match prefix(address, bits) == prefix(address, most) {
                true => Ok(Self::Network(address, bits)),
                false => Err("the network has bits set behind its prefix"),
            };
        }
        let (is_beneath, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        match (Host::parse(name), is_beneath) {
            (Some(Host::Name(name)), true) => Ok(Self::Beneath(format!(".{name}"))),
            (Some(Host::Name(name)), false) => Ok(Self::Name(name)),
            (Some(Host::Address(address)), false) => Ok(Self::Network(
                address,
                if address.is_ipv4() { 32 } else { 128 },
            )),
            _ => Err("a host is a name, *.NAME, *, an address, a network or unix:PATH"),
        }
    }

    /// Whether it is about addresses, so that names have to be looked up first.
    pub(super) fn is_of_addresses(&self) -> bool {
        matches!(self, Self::Network(..))
    }

    pub(super) fn is_socket(&self, path: &str) -> bool {
        matches!(self, Self::Socket(socket) if socket == path)
    }

    pub(super) fn has_name(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Name(own) => own == name,
            Self::Beneath(end) => name.len() > end.len() && name.ends_with(end.as_str()),
            Self::Network(..) | Self::Socket(_) => false,
        }
    }

    /// Whether it allows `address`, which was given or is one of `name`.
    pub(super) fn allows(&self, name: Option<&str>, address: IpAddr) -> bool {
        match self {
            Self::Any => !is_special(address),
            Self::Name(_) | Self::Beneath(_) => {
                let is_own = name.is_some_and(|name| self.has_name(name));
                let is_localhost = *self == Self::Name("localhost".into()) && address.is_loopback();
                is_own && (is_localhost || !is_special(address))
            }
            Self::Network(network, bits) => {
                network.is_ipv4() == address.is_ipv4()
                    && prefix(*network, *bits) == prefix(address, *bits)
            }
            Self::Socket(_) => false,
        }
    }
}

/// The first `bits` of an address, the others cleared.
fn prefix(address: IpAddr, bits: u8) -> u128 {
    // At the upper end, so that one mask serves both families.
    let value = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    let cleared = 128 - u32::from(bits.min(128));
    value & u128::MAX.checked_shl(cleared).unwrap_or(0)
}

/// Networks of providers, in which clouds keep their metadata services besides the link.
const OF_PROVIDERS: [(IpAddr, u8); 7] = [
    // Shared by a provider and its customers (RFC 6598); Alibaba's service is 100.100.100.200.
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    // For protocols (RFC 6890); Oracle's is 192.0.0.192.
    (IpAddr::V4(Ipv4Addr::new(192, 0, 0, 0)), 24),
    // Azure's.
    (IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), 32),
    // By IPv6: AWS' (fd00:ec2::254), Google's (fd20:ce::254), Alibaba's (fd00:100:100::200) and
    // Scaleway's (fd00:42::42).
    (local_network(0xfd00, 0xec2, 0), 32),
    (local_network(0xfd20, 0xce, 0), 32),
    (local_network(0xfd00, 0x100, 0x100), 48),
    (local_network(0xfd00, 0x42, 0), 32),
];

const fn local_network(first: u16, second: u16, third: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0))
}

/// Whether an address has a meaning of its own: the server itself, its link or its provider's
/// network (where clouds keep their metadata services), or no single host.
fn is_special(address: IpAddr) -> bool {
    let is_in = |(network, bits): &(IpAddr, u8)| {
        network.is_ipv4() == address.is_ipv4() && prefix(*network, *bits) == prefix(address, *bits)
    };
    if OF_PROVIDERS.iter().any(is_in) {
        return true;
    }
    match address {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_multicast()
                || v4.is_broadcast()
                // "This network" (RFC 1122, section 3.2.1.3): Linux takes it for itself.
                || v4.octets()[0] == 0
                // Reserved (RFC 1112, section 4).
                || v4.octets()[0] >= 240
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            let start = &v6.segments()[..6];
            // Those that hold an IPv4 address: NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056) and SIIT
            // (RFC 2765).
            let is_translated = *start == [0x64, 0xff9b, 0, 0, 0, 0]
                || start[..3] == [0x64, 0xff9b, 1]
                || first == 0x2002
                || *start == [0, 0, 0, 0, 0xffff, 0];
            // IPv4-compatible (RFC 4291, section 2.5.5.1), the unspecified address and loopback.
            let is_compatible = v6.segments()[..6] == [0; 6];
            // Link-local and the former site-local ones (RFC 4291, section 2.5.6; RFC 3879).
            first & 0xff80 == 0xfe80 || v6.is_multicast() || is_translated || is_compatible
        }
    }
}

/// Ports, of which a rule has any number of ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ports(Vec<RangeInclusive<u16>>);

impl Ports {
    /// Reads `5432`, `8000-8100`, several with commas, or `*`.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "ports are numbers up to 65535, ranges such as 8000-8100, or *";
        if text == "*" {
            return Ok(Self(vec![0..=u16::MAX]));
        }
        let number = |text: &str| {
            let text = text.trim();
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u16>().ok().filter(|_| digits).ok_or(WRONG)
        };
        let range = |text: &str| match text.split_once('-') {
            Some((first, last)) => Ok(number(first)?..=number(last)?),
            None => number(text).map(|port| port..=port),
        };
        let ranges: Vec<_> = text.split(',').map(range).collect::<Result<_, &str>>()?;
        match ranges.iter().any(RangeInclusive::is_empty) {
            true => Err("a range of ports ends before it begins"),
            false => Ok(Self(ranges)),
        }
    }

    pub(super) fn contain(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }
}
