//! GridFTP beside the listeners of xDFS: settings, and the door with the same users and stores.

use std::fmt;
#[cfg(unix)]
use std::net::IpAddr;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::ops::RangeInclusive;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use xdfs_access::SystemClock;
use xdfs_gridftp::door::{Door, DoorConfig, DoorControl, NodePeer, Options, Policy};
use xdfs_gridftp::node::{ALPN, NODE_PORT, NODES_MAX};
use xdfs_proto::{Code, Fault};
use xdfs_security::identity::Fingerprint;
use xdfs_security::trust::mutual_client;
#[cfg(unix)]
use xdfs_store::{LocalStore, ServerStore};

use crate::security::{GsiFiles, ServerSecurity};

/// The port of GridFTP.
pub const GRIDFTP_PORT: u16 = 2811;

/// Where a server listens for GridFTP: a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridftpAddress {
    /// A name or an address.
    pub host: String,
    /// The port; 0 for any free one.
    pub port: u16,
}

impl Default for GridftpAddress {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: GRIDFTP_PORT,
        }
    }
}

impl FromStr for GridftpAddress {
    type Err = Fault;

    /// Reads `HOST`, `HOST:PORT`, `IPV6` or `[IPV6]:PORT`.
    fn from_str(text: &str) -> Result<Self, Fault> {
        Self::read(text, GRIDFTP_PORT)
    }
}

impl GridftpAddress {
    /// Reads the address of a [data node](crate::DataNodeSettings), whose default port is another
    /// one.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is none.
    pub fn of_node(text: &str) -> Result<Self, Fault> {
        Self::read(text, NODE_PORT)
    }

    fn read(text: &str, default_port: u16) -> Result<Self, Fault> {
        let (host, port) = host_and_port(text, default_port, "GridFTP")?;
        Ok(Self { host, port })
    }
}

/// Reads `HOST`, `HOST:PORT`, `IPV6` or `[IPV6]:PORT`, an address for `what`.
///
/// # Errors
/// [`Code::InvalidArgument`]: it is none.
pub(crate) fn host_and_port(
    text: &str,
    default_port: u16,
    what: &str,
) -> Result<(String, u16), Fault> {
    let refused = || {
        let cause = format!("'{text}' is no address for {what}");
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
    Ok((host.to_owned(), port))
}

impl fmt::Display for GridftpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Settings of GridFTP. Users, exports, rights, quotas, limits and the audit log are those of the
/// server, and so is its certificate for TLS. Without TLS users can only be anonymous: they reach
/// public exports, or with [`insecure`](crate::ServerBuilder::insecure), where there is no TLS,
/// what is served to everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GridftpSettings {
    /// Where to listen for control connections.
    pub listen: GridftpAddress,
    /// Ports of passive data connections; `None` for any free one.
    pub ports: Option<RangeInclusive<u16>>,
    /// The IPv4 address that clients are told for passive data connections, if a translation of
    /// addresses stands between; `None` for the one at which they reached the server.
    pub address: Option<Ipv4Addr>,
    /// Data connections may go to, and come from, other hosts than the client's, as transfers
    /// between two servers need it.
    pub third_party: bool,
    /// Every control connection has to be protected by TLS before anybody logs in, anonymous users
    /// included.
    pub requires_tls: bool,
    /// Protected data connections have to resume the TLS session of their control connection, which
    /// proves that they are of the same client. Not every client does it.
    pub requires_resumption: bool,
    /// The data nodes, which send and take files in MODE E in place of this server.
    pub nodes: Vec<GridftpNode>,
}

/// A data node of a server: `docs/gridftp/data-node.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridftpNode {
    /// Where it listens for control links.
    pub address: GridftpAddress,
    /// Its key.
    pub key: Fingerprint,
}

impl GridftpSettings {
    /// Checks that what is required of TLS can be had: there is a certificate unless
    /// [`insecure`](crate::ServerBuilder::insecure) is set.
    ///
    /// # Errors
    /// It can't.
    pub(crate) fn check_tls(&self, has_certificate: bool) -> Result<(), Fault> {
        if has_certificate || !(self.requires_tls || self.requires_resumption) {
            return Ok(());
        }
        let cause = "TLS is required of clients, and the server has no certificate";
        let fault = Fault::new(Code::InvalidArgument, "serve GridFTP", cause);
        Err(fault.hint("leave out either --insecure or what [gridftp] says of TLS"))
    }

    /// Checks that data nodes can be used: the server has a key, which `security` tells, and does
    /// everything as its own user.
    ///
    /// # Errors
    /// They can't.
    pub(crate) fn check_nodes(&self, security: Option<&ServerSecurity>) -> Result<(), Fault> {
        let refused = |cause: &str| Fault::new(Code::InvalidArgument, "use data nodes", cause);
        match security {
            _ if self.nodes.is_empty() => Ok(()),
            None => {
                let cause = "nobody proves who they are with --insecure";
                Err(refused(cause).hint("leave out either --insecure or [[gridftp.node]]"))
            }
            Some(security) if security.accounts.is_some() => {
                let cause = "they can't act as the accounts of [accounts]";
                Err(refused(cause).hint("leave out either [accounts] or [[gridftp.node]]"))
            }
            Some(_) if self.nodes.len() > NODES_MAX => {
                Err(refused(&format!("there may be {NODES_MAX} of them")))
            }
            Some(_) => match self.nodes.iter().enumerate().find(|(at, node)| {
                let earlier = &self.nodes[..*at];
                earlier.iter().any(|own| own.address == node.address)
            }) {
                Some((_, node)) => Err(refused(&format!("{} is there twice", node.address))),
                None => Ok(()),
            },
        }
    }

    /// The data nodes, with TLS to each.
    ///
    /// # Errors
    /// The server's key can't be read, or they can't be used.
    pub(crate) fn peers(&self, security: Option<&ServerSecurity>) -> Result<Vec<NodePeer>, Fault> {
        self.check_nodes(security)?;
        let (Some(security), false) = (security, self.nodes.is_empty()) else {
            return Ok(Vec::new());
        };
        let identity = security.identity()?;
        let peer = |node: &GridftpNode| {
            Ok(NodePeer {
                address: node.address.to_string(),
                tls: mutual_client(&identity, node.key, ALPN)?,
            })
        };
        self.nodes.iter().map(peer).collect()
    }

    /// The addresses to listen on.
    ///
    /// # Errors
    /// The host isn't known; or it isn't this machine only, although peers can do everything there
    /// (`is_protected` isn't set).
    pub(crate) fn addresses(&self, is_protected: bool) -> Result<Vec<SocketAddr>, Fault> {
        let GridftpAddress { host, port } = &self.listen;
        let found = (host.as_str(), *port).to_socket_addrs();
        let operation = || format!("listen for GridFTP on {}", self.listen);
        let found = found.map_err(|error| Fault::from_io(operation(), "", &error))?;
        let addresses: Vec<_> = found.collect();
        if !is_protected && addresses.iter().any(|address| !address.ip().is_loopback()) {
            let cause = "it is not a loopback address, and peers are not authenticated";
            let fault = Fault::new(Code::InvalidArgument, operation(), cause);
            return Err(fault.hint("listen on 127.0.0.1, or accept the risk with --insecure"));
        }
        Ok(addresses)
    }

    /// Listens.
    ///
    /// # Errors
    /// An address can't be used, or the settings ask for TLS and there is no certificate.
    pub(crate) fn open(
        &self,
        is_protected: bool,
        policy: Policy,
        gsi: Option<&GsiFiles>,
        nodes: Vec<NodePeer>,
        sessions_max: usize,
    ) -> Result<GridftpDoor, Fault> {
        self.check_tls(matches!(policy, Policy::Guarded(_)))?;
        gsi.map_or(Ok(()), GsiFiles::check)?;
        let mut listeners = Vec::new();
        for address in self.addresses(is_protected)? {
            let listener = TcpListener::bind(address).map_err(|error| {
                let fault = Fault::from_io(format!("listen for GridFTP on {address}"), "", &error);
                match error.kind() {
                    std::io::ErrorKind::AddrInUse => fault.hint("is another server running there?"),
                    _ => fault,
                }
            })?;
            listeners.push(listener);
        }
        let fault = |error| Fault::from_io("listen for GridFTP", "", &error);
        let addresses = listeners.iter().map(TcpListener::local_addr);
        let addresses = addresses.collect::<Result<_, _>>().map_err(fault)?;
        let options = Options {
            ports: self.ports.clone(),
            address: self.address,
            third_party: self.third_party,
            requires_tls: self.requires_tls,
            requires_resumption: self.requires_resumption,
            ..Options::default()
        };
        let (door, control) = Door::new(DoorConfig {
            listeners,
            policy,
            sessions_max,
            options,
            clock: Arc::new(SystemClock),
            #[cfg(feature = "gsi")]
            gsi: gsi.map(GsiFiles::host),
            nodes,
        })?;
        Ok(GridftpDoor {
            door,
            control,
            addresses,
        })
    }
}

/// A client that came through ssh, which has admitted it as the user of this process.
#[cfg(unix)]
#[derive(Debug)]
pub struct GridftpOverSsh {
    /// Its control connection: a stream socket of any kind.
    pub control: OwnedFd,
    /// Where its passive data connections come to.
    pub local: IpAddr,
    /// Where its data connections come from, and the only place where they go to.
    pub peer: IpAddr,
}

#[cfg(unix)]
impl GridftpOverSsh {
    /// Serves all files that this process reaches until the session ends. The first current
    /// directory is that of the process.
    ///
    /// # Errors
    /// The connection can't be used.
    pub fn serve(self) -> Result<(), Fault> {
        xdfs_sys::limit::raise_descriptor_limit();
        let home = std::env::current_dir()
            .map_err(|error| Fault::from_io("find the current directory", "", &error))?;
        let (door, _control) = Door::new(DoorConfig {
            listeners: Vec::new(),
            policy: Policy::Open(Arc::new(ServerStore::new(LocalStore::unrooted()))),
            sessions_max: 1,
            options: Options::default(),
            clock: Arc::new(SystemClock),
            #[cfg(feature = "gsi")]
            gsi: None,
            nodes: Vec::new(),
        })?;
        let home = home.into_os_string().into_encoded_bytes();
        door.serve_one(self.control.into(), self.local, self.peer, home)
    }
}

/// An open door.
#[derive(Debug)]
pub(crate) struct GridftpDoor {
    door: Door,
    pub(crate) control: DoorControl,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// A door that serves in a thread of its own.
#[derive(Debug)]
pub(crate) struct RunningDoor {
    control: DoorControl,
    thread: JoinHandle<Result<(), Fault>>,
}

impl GridftpDoor {
    /// Starts to serve.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn start(self) -> Result<RunningDoor, Fault> {
        let (control, door) = (self.control, self.door);
        let thread = thread::Builder::new().name("xdfs-gridftp".into());
        let thread = thread.spawn(move || door.run());
        let thread = thread.map_err(|error| Fault::from_io("serve GridFTP", "", &error))?;
        Ok(RunningDoor { control, thread })
    }
}

impl RunningDoor {
    /// Waits until it is drained; at once if the rest of the server has `failed`.
    ///
    /// # Errors
    /// Its listeners failed.
    pub(crate) fn finish(self, failed: bool) -> Result<(), Fault> {
        if failed {
            self.control.drain(Duration::ZERO);
        }
        self.thread.join().unwrap_or_else(|_| {
            let cause = "the thread of the listeners has panicked";
            Err(Fault::new(Code::Internal, "serve GridFTP", cause))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_of_their_own() {
        for (text, shown) in [
            ("host", "host:2811"),
            ("10.0.0.1:0", "10.0.0.1:0"),
            ("::1", "[::1]:2811"),
            ("[::1]", "[::1]:2811"),
            ("[::1]:5", "[::1]:5"),
        ] {
            let address: GridftpAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse::<GridftpAddress>().unwrap(), address);
        }
        for text in ["", ":5", "a:b", "a:65536", "a b", "unix:/x"] {
            assert!(text.parse::<GridftpAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn without_authentication_only_this_machine_is_served() {
        let mut settings = GridftpSettings::default();
        assert!(settings.addresses(false).is_ok());
        settings.listen.host = "0.0.0.0".into();
        assert!(settings.addresses(false).is_err());
        assert!(settings.addresses(true).is_ok());
    }
}
