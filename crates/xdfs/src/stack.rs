//! The driver stacks of sessions, and the ways to a server.

use std::net::ToSocketAddrs;

use xdfs_engine::Route;
use xdfs_proto::{Code, Fault};
use xdfs_xio::tls::{self, Configs};
use xdfs_xio::{
    DriverSpec, Endpoint, Form, Location, Property, Registry, SpecError, Stack, StackSpec, quic,
};

use crate::drivers::Drivers;
use crate::remote::{Address, Listen, RemotePlace};
use crate::scheme::RegisteredScheme;

const BUILD: &str = "set up the drivers of a channel";

/// The stacks for `address`: the `chosen` ones, or the transport of the address alone. TLS is added
/// above a stack that doesn't protect, if there are configurations of it.
fn stacks_for(
    address: &Address,
    chosen: &[StackSpec],
    registry: &Registry,
    tls: Option<&Configs>,
) -> Result<Vec<Stack>, Fault> {
    if chosen.is_empty() {
        return Ok(vec![stack_of(default_spec(address)?, registry, tls)?]);
    }
    let stacks = chosen.iter().map(|spec| {
        let stack = stack_of(spec.clone(), registry, tls)?;
        check_form(&stack, address)?;
        Ok(stack)
    });
    stacks.collect()
}

/// The ways to the server of `place` at `address`, by the stacks of the place or else those of
/// `drivers`.
pub(crate) fn routes_to(
    place: &RemotePlace,
    address: &Address,
    drivers: &Drivers,
    tls: Option<&Configs>,
) -> Result<Vec<Route>, Fault> {
    let chosen = match &place.stack {
        Some(stack) => std::slice::from_ref(&**stack),
        None => &drivers.stacks,
    };
    routes(
        address,
        stacks_for(address, chosen, &drivers.registry, tls)?,
    )
}

/// The stack of a listener.
pub(crate) fn listening_stack(
    listen: &Listen,
    drivers: &Drivers,
    tls: Option<&Configs>,
) -> Result<Stack, Fault> {
    let chosen = listen.stack.as_ref();
    let chosen = chosen.or_else(|| drivers.stacks.first()).into_iter();
    let chosen: Vec<StackSpec> = chosen.cloned().collect();
    let mut stacks = stacks_for(&listen.address, &chosen, &drivers.registry, tls)?;
    stacks.pop().ok_or_else(|| invalid("there is none"))
}

/// The stack of a listener that another program has opened: the first of the `drivers` if it has
/// this transport, or the transport alone.
pub(crate) fn adopting_stack(
    transport: &str,
    drivers: &Drivers,
    tls: Option<&Configs>,
) -> Result<Stack, Fault> {
    let first = drivers.stacks.first();
    let spec = match first.filter(|spec| spec.transport().name() == transport) {
        Some(spec) => spec.clone(),
        None => StackSpec::new(driver(transport)?),
    };
    stack_of(spec, &drivers.registry, tls)
}

/// Builds a stack for channels of sessions.
fn stack_of(
    mut spec: StackSpec,
    registry: &Registry,
    tls: Option<&Configs>,
) -> Result<Stack, Fault> {
    let text = spec.to_string();
    let is_named = |property| {
        let mut names = std::iter::once(spec.transport()).chain(spec.transforms());
        names.any(|named| {
            let driver = registry.driver(named.name());
            driver.is_ok_and(|driver| driver.given().contains(&property))
        })
    };
    let registry = match (tls, is_named(Property::Protection)) {
        (None, true) => {
            let cause = format!("the stack {text} protects its bytes, and the session is not to");
            return Err(invalid(cause).hint("leave out --insecure, or choose another stack"));
        }
        (None, false) => registry.clone(),
        (Some(configs), is_protected) => {
            if !is_protected {
                spec = spec.with(driver("tls")?);
            }
            with_configs(registry, configs)
        }
    };
    let stack = registry.build(&spec).map_err(unusable)?;
    if !stack.gives(Property::Order) {
        let cause = format!("the stack {text} doesn't keep the order of bytes");
        return Err(invalid(cause).hint("channels need a stack that does, such as tcp"));
    }
    Ok(stack)
}

/// The registry with these configurations for the drivers that need them.
pub(crate) fn with_configs(registry: &Registry, configs: &Configs) -> Registry {
    let registry = registry.clone().with(tls::driver(configs.clone()));
    registry.with(quic::driver(configs.clone()))
}

fn default_spec(address: &Address) -> Result<StackSpec, Fault> {
    let transport = match address {
        Address::Memory(_) => "memory",
        Address::Place { scheme, host, .. } => return Err(not_listening(*scheme, host)),
        Address::Host { .. } => "tcp",
        Address::Unix(_) => "unix",
    };
    Ok(StackSpec::new(driver(transport)?))
}

fn driver(name: &str) -> Result<DriverSpec, Fault> {
    DriverSpec::new(name).map_err(unusable)
}

fn unusable(error: SpecError) -> Fault {
    invalid(error.to_string())
}

fn invalid(cause: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, BUILD, cause)
}

/// Checks that the transport of `stack` takes such an address.
fn check_form(stack: &Stack, address: &Address) -> Result<(), Fault> {
    let form = match address {
        Address::Memory(_) => Form::Name,
        Address::Place { scheme, host, .. } => return Err(not_listening(*scheme, host)),
        Address::Host { .. } => Form::Socket,
        Address::Unix(_) => Form::Path,
    };
    if stack.form() == form {
        return Ok(());
    }
    let cause = format!(
        "the stack {} takes {}, and {address} is {form}",
        stack.spec(),
        stack.form()
    );
    Err(invalid(cause))
}

/// The ways to a server at `address`, in the order of `stacks`, and then in that in which the
/// system prefers its addresses.
fn routes(address: &Address, stacks: Vec<Stack>) -> Result<Vec<Route>, Fault> {
    let locations = resolve(address)?;
    let mut routes = Vec::new();
    for stack in stacks {
        routes.extend(locations.iter().map(|location| Route {
            endpoint: endpoint(&stack, location),
            stack: stack.clone(),
        }));
    }
    Ok(routes)
}

/// A location for the transport of `stack`.
pub(crate) fn endpoint(stack: &Stack, location: &Location) -> Endpoint {
    let transport = stack.spec().transport().name();
    Endpoint::new(transport.to_owned(), location.clone())
}

/// The locations of an address, in the order in which the system prefers them.
pub(crate) fn resolve(address: &Address) -> Result<Vec<Location>, Fault> {
    match address {
        Address::Memory(name) => Ok(vec![Location::Name(name.clone())]),
        Address::Place { scheme, host, .. } => Err(not_listening(*scheme, host)),
        Address::Unix(path) => Ok(vec![Location::Path(path.clone())]),
        Address::Host { host, port } => {
            let fault = |cause: String| {
                Fault::new(Code::ConnectionRefused, format!("look up '{host}'"), cause)
                    .hint("check the name of the host")
            };
            let found: Vec<Location> = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|e| fault(e.to_string()))?
                .map(Location::Socket)
                .collect();
            if found.is_empty() {
                Err(fault("it has no address".into()))
            } else {
                Ok(found)
            }
        }
    }
}

/// The fault of channels to a server of another protocol, or one that wasn't started.
fn not_listening(scheme: RegisteredScheme, host: &str) -> Fault {
    let name = scheme.name();
    if !scheme.speaks_xdfs() {
        return invalid(format!(
            "{host} is a server of {name}://, which has no channels"
        ));
    }
    let cause = format!("a server there has to be started through {name} first");
    Fault::new(Code::InvalidArgument, "open a session", cause)
        .path(host)
        .hint("name a server that listens: xdfs://HOST/PATH")
}

/// The address of a listener.
pub(crate) fn address_of(endpoint: &Endpoint) -> Address {
    match (endpoint.socket(), endpoint.path()) {
        (Some(address), _) => Address::Host {
            host: address.ip().to_string(),
            port: address.port(),
        },
        (None, Some(path)) => Address::Unix(path.to_owned()),
        (None, None) => Address::Memory(endpoint.name().unwrap_or_default().to_owned()),
    }
}
