//! Addresses of servers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use xdfs_proto::{Code, Fault, Machine};
use xdfs_store::Traits;
use xdfs_xio::{DriverSpec, SpecError, StackSpec};

use crate::scheme::{LoginBy, Paths, RegisteredScheme, ServerRoute};
use crate::security::{Level, check_of_xdfs, host_port};

/// The default port of xdfs servers.
pub const DEFAULT_PORT: u16 = 2799;

/// An address to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A host name or IP address and a port.
    Host {
        /// Name or address, an IPv6 address without its brackets.
        host: String,
        /// Port, of TCP or of what the driver stack uses instead.
        port: u16,
    },
    /// A server of a registered scheme.
    Place {
        /// How sessions with it begin, and what its places can do.
        scheme: RegisteredScheme,
        /// Name or address, an IPv6 address without its brackets; with ssh as that takes it.
        host: String,
        /// The port; `None` where the scheme has no default.
        port: Option<u16>,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// A listener in this process, by name. Only programs can create one; no text form is parsed.
    Memory(String),
}

/// An address to listen on, and the driver stack of the channels accepted there: `HOST:PORT`,
/// `unix:PATH`, or `STACK://` before a host and port (or a path, if the transport is `unix`), as in
/// `quic://0.0.0.0:2799` or `tcp,tls,zstd://0.0.0.0:2799`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The stack; `None` for the one that other settings choose.
    pub stack: Option<StackSpec>,
    /// The address.
    pub address: Address,
}

impl FromStr for Address {
    type Err = Fault;

    /// Parses `HOST`, `HOST:PORT`, `[IPV6]:PORT`, a bare IPv6 address, or `unix:PATH`.
    fn from_str(text: &str) -> Result<Self, Fault> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(bad_address("the path of the Unix socket is empty"));
            }
            return Ok(Self::Unix(path.into()));
        }
        if text == "unix" {
            return Err(bad_address("'unix' lacks the path of the Unix socket"));
        }
        let (host, port) = host_and_port(text)?;
        Ok(Self::Host {
            host: host.into(),
            port: port.unwrap_or(DEFAULT_PORT),
        })
    }
}

fn bad_address(cause: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, "read the address", cause)
        .hint("write HOST, HOST:PORT, [IPV6]:PORT or unix:PATH")
}

/// Splits `HOST`, `HOST:PORT`, `[IPV6]:PORT` or a bare IPv6 address.
pub(crate) fn host_and_port(text: &str) -> Result<(&str, Option<u16>), Fault> {
    let bad = |cause: String| bad_address(cause);
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| bad(format!("'{text}' lacks a ']'")))?;
        host.parse::<std::net::Ipv6Addr>()
            .map_err(|_| bad(format!("'{host}' is not an IPv6 address")))?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(bad(format!("'{rest}' follows the address"))),
        }
    } else if text.matches(':').count() > 1 {
        text.parse::<std::net::Ipv6Addr>()
            .map_err(|_| bad(format!("'{text}' is not an IPv6 address")))?;
        (text, None)
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(bad(format!("'{text}' names no host")));
    }
    if host.bytes().all(|b| b.is_ascii_digit()) {
        // Systems take it for an IPv4 address in one number.
        return Err(
            bad(format!("'{host}' is a number, and not a host")).hint(format!(
                "write a host before the port, such as localhost:{host}"
            )),
        );
    }
    // Characters that no host name has, and that could make the address parse as another one.
    let odd = |c: char| c.is_whitespace() || c.is_control() || "/@%?#\\".contains(c);
    if host.contains(odd) {
        let host = host.escape_default();
        return Err(bad(format!("'{host}' is not a name or an address")));
    }
    let port = port.map(|port| {
        port.parse()
            .map_err(|_| bad(format!("'{port}' is not a port (0 to 65535)")))
    });
    Ok((host, port.transpose()?))
}

impl From<Address> for Listen {
    fn from(address: Address) -> Self {
        let stack = None;
        Self { stack, address }
    }
}

impl Listen {
    /// The scheme of URLs of servers that listen there, such as `xdfs` or `xdfs+quic`.
    #[must_use]
    pub fn scheme(&self) -> String {
        scheme_name(self.stack.as_ref(), &self.address)
    }
}

impl FromStr for Listen {
    type Err = Fault;

    /// Parses `ADDRESS` or `STACK://ADDRESS`.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let Some((stack, address)) = text.split_once("://") else {
            return Ok(text.parse::<Address>()?.into());
        };
        let stack: StackSpec = stack.parse().map_err(|error: SpecError| {
            bad_address(format!(
                "'{stack}' names no drivers such as tcp,tls,zstd: {error}"
            ))
        })?;
        let is_unix = stack.transport().name() == "unix";
        Ok(Self {
            address: match is_unix && !address.is_empty() {
                true => Address::Unix(address.into()),
                false => address.parse()?,
            },
            stack: Some(stack),
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.stack, &self.address) {
            (None, address) => address.fmt(f),
            (Some(stack), Address::Unix(path)) => write!(f, "{stack}://{}", path.display()),
            (Some(stack), address) => write!(f, "{stack}://{address}"),
        }
    }
}

impl Address {
    /// The scheme of a server of a registered one; `None` for servers of xDFS that listen.
    #[must_use]
    pub fn scheme(&self) -> Option<RegisteredScheme> {
        match self {
            Self::Place { scheme, .. } => Some(*scheme),
            _ => None,
        }
    }

    /// The traits of the places on the server.
    #[must_use]
    pub fn traits(&self) -> Traits {
        self.scheme().map_or(Traits::FULL, |scheme| scheme.traits())
    }

    /// The server there, as messages name it: its port only if that isn't the usual one.
    #[must_use]
    pub fn machine(&self) -> Machine {
        let but = |usual: Option<u16>, port: Option<u16>| port.filter(|port| Some(*port) != usual);
        Machine::server(match self {
            Self::Host { host, port } => {
                Authority(host, but(Some(DEFAULT_PORT), Some(*port))).to_string()
            }
            Self::Place { scheme, .. } if scheme.is_here() => return Machine::here(),
            Self::Place { scheme, host, port } => {
                Authority(host, but(scheme.port(), *port)).to_string()
            }
            Self::Unix(_) | Self::Memory(_) => self.to_string(),
        })
    }

    /// Where paths of URLs begin.
    pub(crate) fn paths(&self) -> Paths {
        self.scheme().map_or(Paths::Root, |scheme| scheme.paths())
    }

    /// Whether paths with one slash begin in the directory of the login, and those with two at the
    /// root, as RFC 1738 and curl have it. Elsewhere paths begin at the root.
    #[must_use]
    pub fn begins_at_login(&self) -> bool {
        self.paths() == Paths::Login
    }

    /// Whether ssh leads to it, and logs the user in.
    #[must_use]
    pub fn is_of_ssh(&self) -> bool {
        self.login() == Some(LoginBy::Ssh)
    }

    /// Whether the server there speaks xDFS. Otherwise it is one of another protocol.
    #[must_use]
    pub fn speaks_xdfs(&self) -> bool {
        self.scheme().is_none_or(|scheme| scheme.speaks_xdfs())
    }

    /// How users log in to a server of a registered scheme; `None` for others, which offer several
    /// ways.
    #[must_use]
    pub fn login(&self) -> Option<LoginBy> {
        self.scheme().map(|scheme| scheme.login())
    }

    /// Whether it is this machine itself ([`RemotePlace::here`](crate::RemotePlace::here)), and no
    /// server.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.scheme().is_some_and(|scheme| scheme.is_here())
    }

    /// Refuses a level of protection that sessions with the server there can't have, before
    /// anything is sent.
    ///
    /// # Errors
    /// They can't have it.
    pub fn check_level(&self, level: Level) -> Result<(), Fault> {
        if let Self::Place { scheme, .. } = self {
            return scheme.check_level(level, &self.to_string());
        }
        check_of_xdfs(level, &self.to_string())
    }

    /// The name and the port of the server in trust decisions. A Unix socket has a name derived
    /// from its path.
    pub(crate) fn known_host(&self) -> (String, u16) {
        let local = |name: &[u8]| {
            let hash = blake3::hash(name).to_hex();
            (format!("local-{}", &hash.as_str()[..16]), 0)
        };
        match self {
            Self::Host { host, port } => (host.clone(), *port),
            Self::Place { host, port, .. } => (host.clone(), port.unwrap_or(0)),
            Self::Unix(path) => local(path.as_os_str().as_encoded_bytes()),
            Self::Memory(name) => local(name.as_bytes()),
        }
    }

    /// The name of the server in the known hosts file.
    ///
    /// # Errors
    /// The host is neither a name nor an address.
    pub fn known_name(&self) -> Result<String, Fault> {
        let (host, port) = self.known_host();
        host_port(&host, port)
    }
}

impl From<ServerRoute> for Address {
    fn from(route: ServerRoute) -> Self {
        match route {
            ServerRoute::Socket(address) => Self::Host {
                host: address.ip().to_string(),
                port: address.port(),
            },
            ServerRoute::Unix(path) => Self::Unix(path),
        }
    }
}

/// The host and the port in a URL.
pub(crate) struct Authority<'a>(pub(crate) &'a str, pub(crate) Option<u16>);

impl fmt::Display for Authority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(host, port) = self;
        match host.contains(':') {
            true => write!(f, "[{host}]")?,
            false => f.write_str(host)?,
        }
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port } => Authority(host, Some(*port)).fmt(f),
            Self::Place { scheme, host, port } => {
                // Without a default nothing else sets it apart from a host and a port.
                if scheme.port().is_none() {
                    write!(f, "{}:", scheme.name())?;
                }
                Authority(host, *port).fmt(f)
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Memory(name) => write!(f, "memory:{name}"),
        }
    }
}

/// The scheme of a URL with this stack. Attributes have no place in it.
pub(crate) fn scheme_name(stack: Option<&StackSpec>, address: &Address) -> String {
    let names = stack.map(|stack| {
        let all = std::iter::once(stack.transport()).chain(stack.transforms());
        all.map(DriverSpec::name).collect::<Vec<_>>().join("+")
    });
    match (names, address) {
        (Some(names), _) => format!("xdfs+{names}"),
        (None, Address::Unix(_)) => "xdfs+unix".to_owned(),
        (None, Address::Place { scheme, .. }) => scheme.name().to_owned(),
        (None, _) => "xdfs".to_owned(),
    }
}
