//! Addresses at which transports listen and to which they connect.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The address of a listener: the name of a transport, and a location in its form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    transport: Cow<'static, str>,
    location: Location,
    resource: Option<Resource>,
}

/// What a transform asks for at the other end, as an HTTP server has many resources.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resource {
    /// The host, and the port if it was given: `example.org:8080`.
    pub authority: String,
    /// The path and the query, from the first `/`.
    pub path: String,
}

/// A location in one of the forms used by transports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// A program and its arguments, as one line.
    Command(String),
    /// A name within this process.
    Name(String),
    /// Nothing: the transport reaches only one place.
    Nothing,
    /// A file on this machine.
    Path(PathBuf),
    /// A resolved IPv4 or IPv6 address with a port.
    Socket(SocketAddr),
}

/// The forms of a [`Location`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// [`Location::Command`].
    Command,
    /// [`Location::Name`].
    Name,
    /// [`Location::Nothing`].
    Nothing,
    /// [`Location::Path`].
    Path,
    /// [`Location::Socket`].
    Socket,
}

impl Endpoint {
    /// The endpoint of the driver `transport` at `location`.
    pub fn new(transport: impl Into<Cow<'static, str>>, location: Location) -> Self {
        let transport = transport.into();
        Self {
            transport,
            location,
            resource: None,
        }
    }

    /// The same location, for a resource there.
    #[must_use]
    pub(crate) fn with_resource(mut self, resource: Option<Resource>) -> Self {
        self.resource = resource;
        self
    }

    /// The resource, if the contact has named one.
    #[must_use]
    pub fn resource(&self) -> Option<&Resource> {
        self.resource.as_ref()
    }

    /// A name in this process, for the driver `memory`.
    pub fn memory(name: impl Into<String>) -> Self {
        Self::new("memory", Location::Name(name.into()))
    }

    /// A TCP address, for the driver `tcp`.
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Self {
        Self::new("tcp", Location::Socket(address))
    }

    /// A socket file, for the driver `unix`.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::new("unix", Location::Path(path.into()))
    }

    /// The name of its transport.
    #[must_use]
    pub fn transport(&self) -> &str {
        &self.transport
    }

    /// Its location.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.location {
            Location::Name(name) => Some(name),
            _ => None,
        }
    }

    /// The path, if it has one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.location {
            Location::Path(path) => Some(path),
            _ => None,
        }
    }

    /// The address and port, if it has them.
    #[must_use]
    pub fn socket(&self) -> Option<SocketAddr> {
        match self.location {
            Location::Socket(address) => Some(address),
            _ => None,
        }
    }
}

impl Location {
    /// Its form.
    #[must_use]
    pub fn form(&self) -> Form {
        match self {
            Self::Command(_) => Form::Command,
            Self::Name(_) => Form::Name,
            Self::Nothing => Form::Nothing,
            Self::Path(_) => Form::Path,
            Self::Socket(_) => Form::Socket,
        }
    }
}

impl fmt::Display for Endpoint {
    /// A TCP address is printed alone, others with the name of their transport.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.transport != "tcp" {
            write!(f, "{}:", self.transport)?;
        }
        match &self.location {
            Location::Command(line) => f.write_str(line),
            Location::Name(name) => f.write_str(name),
            Location::Nothing => Ok(()),
            Location::Path(path) => write!(f, "{}", path.display()),
            Location::Socket(address) => write!(f, "{address}"),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Command => "a command line",
            Self::Name => "a name",
            Self::Nothing => "no location",
            Self::Path => "a path",
            Self::Socket => "an address and port",
        })
    }
}
