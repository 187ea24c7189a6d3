//! Networks, and the addresses to which no name may lead.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: the addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpAddr, u8);

impl From<IpAddr> for Network {
    /// One address.
    fn from(address: IpAddr) -> Self {
        Self(address, if address.is_ipv4() { 32 } else { 128 })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

impl Network {
    /// Reads `ADDRESS/BITS`, or an address.
    ///
    /// # Errors
    /// Why it is no network.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const NONE: &str = "this is no network";
        let Some((address, bits)) = text.split_once('/') else {
            return text.parse::<IpAddr>().map(Self::from).map_err(|_| NONE);
        };
        let address: IpAddr = address.parse().map_err(|_| NONE)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| *bits <= most);
        let bits = bits.ok_or("a network has up to 32 bits, or 128 for IPv6")?;
        match prefix(address, bits) == prefix(address, most) {
            true => Ok(Self(address, bits)),
            false => Err("the network has bits set behind its prefix"),
        }
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let Self(network, bits) = *self;
        network.is_ipv4() == address.is_ipv4() && prefix(network, bits) == prefix(address, bits)
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
const OF_PROVIDERS: [Network; 7] = [
    // Shared by a provider and its customers (RFC 6598); Alibaba's service is 100.100.100.200.
    Network(IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    // For protocols (RFC 6890); Oracle's is 192.0.0.192.
    Network(IpAddr::V4(Ipv4Addr::new(192, 0, 0, 0)), 24),
    // Azure's.
    Network(IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), 32),
    // By IPv6: AWS' (fd00:ec2::254), Google's (fd20:ce::254), Alibaba's (fd00:100:100::200) and
    // Scaleway's (fd00:42::42).
    Network(local_network(0xfd00, 0xec2, 0), 32),
    Network(local_network(0xfd20, 0xce, 0), 32),
    Network(local_network(0xfd00, 0x100, 0x100), 48),
    Network(local_network(0xfd00, 0x42, 0), 32),
];

const fn local_network(first: u16, second: u16, third: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0))
}

/// Whether an address has a meaning of its own: the server itself, its link or its provider's
/// network (where clouds keep their metadata services), or no single host.
#[must_use]
pub fn is_special(address: IpAddr) -> bool {
    if OF_PROVIDERS.iter().any(|network| network.contains(address)) {
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

/// Networks that are reached from within an organisation only, and the tunnel of RFC 4380.
const PRIVATE: [Network; 6] = [
    Network(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    Network(IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    Network(IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    // For measurements (RFC 2544).
    Network(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), 15),
    // Unique local addresses (RFC 4193).
    Network(local_network(0xfc00, 0, 0), 7),
    Network(local_network(0x2001, 0, 0), 32),
];

/// Whether an address is one of the public internet, and so neither special nor of a private
/// network.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    let address = address.to_canonical();
    !is_special(address) && !PRIVATE.iter().any(|network| network.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_those_of_the_internet() {
        for (text, expected) in [
            ("93.184.216.34", true),
            ("172.15.255.255", true),
            ("172.32.0.0", true),
            ("2606:2800:220:1::1", true),
            ("0.0.0.0", false),
            ("10.1.2.3", false),
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("169.254.169.254", false),
            ("172.31.0.1", false),
            ("192.168.0.1", false),
            ("198.19.0.1", false),
            ("100.64.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("::127.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("2002:7f00:1::", false),
            ("2001:0:7f00:1::", false),
            ("fe80::1", false),
            ("fc00::1", false),
            ("fd12::1", false),
            ("ff02::1", false),
        ] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(is_public(address), expected, "{text}");
        }
    }
}
