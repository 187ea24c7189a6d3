//! Addresses at which doors listen: as they are written, and as the system knows them.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::PathBuf;

use xdfs_proto::{Code, Fault};

use crate::site::Site;

/// A host and a port, as they are written in settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an address.
    pub host: String,
    /// The port; 0 for any free one.
    pub port: u16,
}

impl HostPort {
    /// Reads `HOST`, `HOST:PORT`, `IPV6` or `[IPV6]:PORT`. `protocol` is for messages.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is no address.
    pub fn read(text: &str, protocol: &str, default_port: u16) -> Result<Self, Fault> {
        let refused = || {
            let cause = format!("'{text}' is no address for {protocol}");
            Fault::new(Code::InvalidArgument, "read an address", cause)
                .hint("write HOST, HOST:PORT or [IPV6]:PORT")
        };
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().map_err(|_| refused())?)
            }
            _ => (text, default_port),
        };
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            return Err(refused());
        }
        let host = host.to_owned();
        Ok(Self { host, port })
    }

    /// The addresses of the host, in the order in which the system prefers them.
    ///
    /// # Errors
    /// The host isn't known.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let found = (self.host.as_str(), self.port).to_socket_addrs()?;
        Ok(found.collect())
    }

    /// The addresses at which a door of TCP is to listen. `protocol` is for messages.
    ///
    /// # Errors
    /// The host isn't known; or it isn't this machine only, although peers could do everything
    /// there.
    pub fn addresses(&self, protocol: &str, site: &Site) -> Result<Vec<SocketAddr>, Fault> {
        let operation = || format!("listen for {protocol} on {self}");
        let found = self.resolve();
        let addresses = found.map_err(|error| Fault::from_io(operation(), "", &error))?;
        if addresses.iter().any(|at| !site.may_listen_at(at.ip())) {
            let cause = "it is not a loopback address, and peers are not authenticated";
            let fault = Fault::new(Code::InvalidArgument, operation(), cause);
            return Err(fault.hint("listen on 127.0.0.1, or accept the risk with --insecure"));
        }
        Ok(addresses)
    }

    /// Listens at all of its [`addresses`](Self::addresses).
    ///
    /// # Errors
    /// Faults as of [`addresses`](Self::addresses); or an address that can't be used.
    pub fn listen(&self, protocol: &str, site: &Site) -> Result<Vec<TcpListener>, Fault> {
        let listen = |address: SocketAddr| {
            TcpListener::bind(address).map_err(|error| {
                let operation = format!("listen for {protocol} on {address}");
                let fault = Fault::from_io(operation, "", &error);
                match error.kind() {
                    io::ErrorKind::AddrInUse => fault.hint("is another server running there?"),
                    _ => fault,
                }
            })
        };
        let addresses = self.addresses(protocol, site)?;
        addresses.into_iter().map(listen).collect()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// An address at which a door is to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorAddress {
    /// Name of the setting that has it, as in [`SettingFault`](crate::SettingFault).
    pub setting: &'static str,
    /// The number of the setting.
    pub number: usize,
    /// The address as messages have it.
    pub shown: String,
    /// The address.
    pub at: ListensAt,
}

/// The kinds of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListensAt {
    /// A port of TCP.
    Tcp(SocketAddr),
    /// A port of UDP.
    Udp(SocketAddr),
    /// The path of a Unix socket.
    Path(PathBuf),
    /// A place within this process.
    Process,
}

impl DoorAddress {
    /// The address of a door that listens at a port of TCP.
    #[must_use]
    pub fn tcp(setting: &'static str, address: SocketAddr) -> Self {
        Self {
            setting,
            number: 0,
            shown: address.to_string(),
            at: ListensAt::Tcp(address),
        }
    }

    /// The address and the port, if it has any.
    #[must_use]
    pub fn socket(&self) -> Option<SocketAddr> {
        match self.at {
            ListensAt::Tcp(address) | ListensAt::Udp(address) => Some(address),
            ListensAt::Path(_) | ListensAt::Process => None,
        }
    }

    /// Whether the system refuses to listen at both: at the same path, or at the same port of
    /// addresses of which one is the other or all of its kind.
    #[must_use]
    pub fn clashes(&self, other: &Self) -> bool {
        let is_same = |a: SocketAddr, b: SocketAddr| {
            let is_any = a.ip().is_unspecified() || b.ip().is_unspecified();
            a.port() != 0
                && a.port() == b.port()
                && (a.ip() == b.ip() || (is_any && a.is_ipv4() == b.is_ipv4()))
        };
        match (&self.at, &other.at) {
            (ListensAt::Tcp(a), ListensAt::Tcp(b)) | (ListensAt::Udp(a), ListensAt::Udp(b)) => {
                is_same(*a, *b)
            }
            (ListensAt::Path(a), ListensAt::Path(b)) => a == b,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_of_their_own() {
        let read = |text: &str| HostPort::read(text, "GridFTP", 2811);
        for (text, shown) in [
            ("host", "host:2811"),
            ("10.0.0.1:0", "10.0.0.1:0"),
            ("::1", "[::1]:2811"),
            ("[::1]", "[::1]:2811"),
            ("[::1]:5", "[::1]:5"),
        ] {
            let address = read(text).unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(read(shown).unwrap(), address);
        }
        for text in ["", ":5", "a:b", "a:65536", "a b", "unix:/x"] {
            let fault = read(text).unwrap_err();
            assert!(fault.cause.ends_with("is no address for GridFTP"), "{text}");
        }
    }

    #[test]
    fn without_authentication_only_this_machine_is_served() {
        let here = Site {
            has_users: false,
            is_insecure: false,
            has_accounts: false,
            has_client_certificates: false,
            sessions_max: 1,
        };
        let all = HostPort::read("0.0.0.0:0", "X", 1).unwrap();
        let loopback = HostPort::read("127.0.0.1:0", "X", 1).unwrap();
        assert!(loopback.addresses("X", &here).is_ok());
        let fault = all.listen("X", &here).unwrap_err();
        assert_eq!(fault.operation, "listen for X on 0.0.0.0:0");
        for (has_users, is_insecure) in [(true, false), (false, true)] {
            let site = Site {
                has_users,
                is_insecure,
                ..here
            };
            assert!(all.addresses("X", &site).is_ok());
        }
    }

    #[test]
    fn only_what_the_system_refuses_clashes() {
        let at = |at: ListensAt| DoorAddress {
            setting: "listen",
            number: 0,
            shown: String::new(),
            at,
        };
        let tcp = |text: &str| at(ListensAt::Tcp(text.parse().unwrap()));
        let udp = |text: &str| at(ListensAt::Udp(text.parse().unwrap()));
        let path = |text: &str| at(ListensAt::Path(text.into()));
        for (one, other, is_clash) in [
            (tcp("127.0.0.1:5"), tcp("127.0.0.1:5"), true),
            (tcp("127.0.0.1:5"), tcp("0.0.0.0:5"), true),
            (tcp("127.0.0.1:5"), tcp("127.0.0.2:5"), false),
            (tcp("127.0.0.1:5"), tcp("[::]:5"), false),
            (tcp("127.0.0.1:0"), tcp("127.0.0.1:0"), false),
            (tcp("127.0.0.1:5"), udp("127.0.0.1:5"), false),
            (udp("127.0.0.1:5"), udp("127.0.0.1:5"), true),
            (path("/s"), path("/s"), true),
            (path("/s"), path("/t"), false),
            (path("/s"), tcp("127.0.0.1:5"), false),
            (at(ListensAt::Process), at(ListensAt::Process), false),
        ] {
            assert_eq!(one.clashes(&other), is_clash, "{one:?} {other:?}");
            assert_eq!(other.clashes(&one), is_clash, "{one:?} {other:?}");
        }
    }
}
