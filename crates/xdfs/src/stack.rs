//! The driver stacks of sessions, and their endpoints.

use std::net::ToSocketAddrs;

use xdfs_proto::{Code, Fault};
use xdfs_xio::tls::{self, Configs};
use xdfs_xio::{DriverSpec, Endpoint, SpecError, Stack, StackSpec};

use crate::drivers::Drivers;
use crate::remote::Address;

/// The stack for `address`: its transport, the transforms of `drivers`, and TLS if configured.
pub(crate) fn stack_for(
    address: &Address,
    drivers: &Drivers,
    tls: Option<Configs>,
) -> Result<Stack, Fault> {
    let transport = match address {
        Address::Memory(_) => "memory",
        Address::Ssh { host, .. } => return Err(not_started(host)),
        Address::Tcp { .. } => "tcp",
        Address::Unix(_) => "unix",
    };
    stack_of(transport, drivers, tls)
}

/// The same for a transport by its name.
pub(crate) fn stack_of(
    transport: &str,
    drivers: &Drivers,
    tls: Option<Configs>,
) -> Result<Stack, Fault> {
    let build = || {
        let mut spec = StackSpec::new(DriverSpec::new(transport)?);
        for transform in &drivers.transforms {
            spec = spec.with(transform.clone());
        }
        let mut registry = drivers.registry.clone();
        if let Some(configs) = tls {
            spec = spec.with(DriverSpec::new("tls")?);
            registry = registry.with(tls::driver(configs));
        }
        registry.build(&spec)
    };
    build().map_err(|error: SpecError| {
        let operation = "build the driver stack of a channel";
        Fault::new(Code::InvalidArgument, operation, error.to_string())
    })
}

/// The endpoints of an address, in the order in which the system prefers them.
pub(crate) fn resolve(address: &Address) -> Result<Vec<Endpoint>, Fault> {
    match address {
        Address::Memory(name) => Ok(vec![Endpoint::memory(name.as_str())]),
        Address::Ssh { host, .. } => Err(not_started(host)),
        Address::Unix(path) => Ok(vec![Endpoint::unix(path.as_path())]),
        Address::Tcp { host, port } => {
            let fault = |cause: String| {
                Fault::new(Code::ConnectionRefused, format!("look up '{host}'"), cause)
                    .hint("check the name of the host")
            };
            let found: Vec<Endpoint> = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|e| fault(e.to_string()))?
                .map(Endpoint::tcp)
                .collect();
            if found.is_empty() {
                Err(fault("it has no address".into()))
            } else {
                Ok(found)
            }
        }
    }
}

/// The fault of a connection to a server that nobody has started.
fn not_started(host: &str) -> Fault {
    let cause = "a server there has to be started through ssh first";
    Fault::new(Code::InvalidArgument, "open a session", cause)
        .path(host)
        .hint("name a server that listens: xdfs://HOST/PATH")
}

/// The address of a listener.
pub(crate) fn address_of(endpoint: &Endpoint) -> Address {
    match (endpoint.socket(), endpoint.path()) {
        (Some(address), _) => Address::Tcp {
            host: address.ip().to_string(),
            port: address.port(),
        },
        (None, Some(path)) => Address::Unix(path.to_owned()),
        (None, None) => Address::Memory(endpoint.name().unwrap_or_default().to_owned()),
    }
}
