//! Patterns of hosts and ports.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use xdfs_proto::tunnel::Host;

use super::network::{Network, is_special};

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
    Network(Network),
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
        if text.contains('/') {
            return Network::parse(text).map(Self::Network);
        }
        let (is_beneath, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        match (Host::parse(name), is_beneath) {
            (Some(Host::Name(name)), true) => Ok(Self::Beneath(format!(".{name}"))),
            (Some(Host::Name(name)), false) => Ok(Self::Name(name)),
            (Some(Host::Address(address)), false) => Ok(Self::Network(address.into())),
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
            Self::Network(network) => network.contains(address),
            Self::Socket(_) => false,
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
