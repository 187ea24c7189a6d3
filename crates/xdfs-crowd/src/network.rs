//! The networks that strangers come from.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses that one peer can have: an IPv4 address, or the upper 64 bits of an IPv6 address.
/// An IPv4-mapped IPv6 address is an IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Network {
    /// Peers without an address: they are on this machine.
    Here,
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// The upper 64 bits of IPv6 addresses.
    V6([u16; 4]),
    /// The upper 48 bits of IPv6 addresses: what one customer of a provider has at most.
    Wide([u16; 3]),
}

impl Network {
    /// The network of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }

    /// The network of a peer by its name: `address:port`, or anything else for a peer without an
    /// address.
    #[must_use]
    pub fn of_peer(name: &str) -> Self {
        let address = name.parse::<SocketAddr>();
        address.map_or(Self::Here, |address| Self::of(address.ip()))
    }

    /// The widest network that may belong to the same peer.
    #[must_use]
    pub fn wide(self) -> Self {
        match self {
            Self::V6([a, b, c, _]) => Self::Wide([a, b, c]),
            other => other,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let upper = |[a, b, c, d]: [u16; 4]| Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0);
        match *self {
            Self::Here => f.write_str("this machine"),
            Self::V4(address) => address.fmt(f),
            Self::V6(segments) => write!(f, "{}/64", upper(segments)),
            Self::Wide([a, b, c]) => write!(f, "{}/48", upper([a, b, c, 0])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_peer_are_one_network() {
        for (peer, network, wide) in [
            ("192.0.2.7:4000", "192.0.2.7", "192.0.2.7"),
            ("[::ffff:192.0.2.7]:4000", "192.0.2.7", "192.0.2.7"),
            (
                "[2001:db8:0:1:2::3]:9",
                "2001:db8:0:1::/64",
                "2001:db8::/48",
            ),
            (
                "[2001:db8:0:1:ff::]:1",
                "2001:db8:0:1::/64",
                "2001:db8::/48",
            ),
            ("memory#12", "this machine", "this machine"),
        ] {
            let of = Network::of_peer(peer);
            assert_eq!(of.to_string(), network);
            assert_eq!(of.wide().to_string(), wide);
        }
    }
}
