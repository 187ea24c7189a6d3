//! The server to which a parcel goes from here: its target or the next relay, and how this one
//! connects to it.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use xdfs_access::Access;
use xdfs_proto::tunnel::Host;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_security::trust::NewHosts;

use super::attempt::Failed;
use super::links::{Link, Links};
use crate::client::{Client, ClientOptions};
use crate::remote::{Address, Invitation, RemotePlace};
use crate::settings::{Attendance, ClientConfig, Login};

const OPERATION: &str = "open the parcel";
const CONNECT: &str = "connect to the target";

/// The place that a user has named as a target.
///
/// # Errors
/// It isn't one of a server of xDFS by host and port, or has secrets in it.
pub(super) fn parse(text: &str) -> Result<RemotePlace, Fault> {
    let place = parse_server(text)?;
    if is_root(&place) {
        return Err(invalid("the URL of the target has no path"));
    }
    Ok(place)
}

/// The relay that a user, or another relay, has named as the next one.
///
/// # Errors
/// As of [`parse`], or it has a path.
pub(super) fn parse_relay(text: &str) -> Result<RemotePlace, Fault> {
    let place = parse_server(text)?;
    match is_root(&place) {
        true => Ok(place),
        false => Err(invalid("the URL of a relay has a path").hint("write xdfs://HOST")),
    }
}

fn invalid(cause: &str) -> Fault {
    Fault::new(Code::InvalidArgument, OPERATION, cause)
}

fn is_root(place: &RemotePlace) -> bool {
    place.path.iter().all(|byte| *byte == b'/')
}

fn parse_server(text: &str) -> Result<RemotePlace, Fault> {
    let place: RemotePlace = text.parse()?;
    check_server(&place)?;
    Ok(place)
}

/// Checks whether a relay can deliver to the server of a place.
///
/// # Errors
/// It isn't one of xDFS by host and port, or the place has secrets in it.
pub(super) fn check_server(place: &RemotePlace) -> Result<(), Fault> {
    if !matches!(place.address, Address::Host { .. }) || place.stack.is_some() {
        let hint = "write xdfs://HOST/PATH";
        return Err(invalid("a relay delivers to servers of xdfs over TCP").hint(hint));
    }
    if place.user.is_some() || place.profile.is_some() || place.invitation != Invitation::default()
    {
        let cause = "the relay logs in at the target by itself";
        return Err(invalid(cause).hint("leave user and ticket out of the URL of the target"));
    }
    Ok(())
}

/// The name of the target's server among others.
pub(super) fn server_of(place: &RemotePlace) -> String {
    place.address.to_string()
}

/// The host and the port of a server.
///
/// # Errors
/// It has none.
pub(super) fn host_of(place: &RemotePlace) -> Result<(Host, u16), Fault> {
    let Address::Host { host, port } = &place.address else {
        return Err(invalid("it has no address"));
    };
    let named = Host::parse(host).ok_or_else(|| invalid(&format!("{host} is no host")))?;
    Ok((named, *port))
}

/// The addresses of a server that may be connected to for a user.
fn addresses(access: &Access, user: &str, place: &RemotePlace) -> Result<Vec<SocketAddr>, Failed> {
    let (named, port) = host_of(place).map_err(Failed::Never)?;
    let found: Vec<IpAddr> = match &named {
        Host::Address(address) => vec![*address],
        Host::Name(name) => match (name.as_str(), port).to_socket_addrs() {
            Ok(found) => found.map(|at| at.ip()).collect(),
            Err(error) => {
                let cause = format!("the name {name} isn't known here: {error}");
                let fault = Fault::new(Code::ConnectionRefused, CONNECT, cause);
                return Err(Failed::Unreached(fault));
            }
        },
    };
    let mut allowed = found;
    allowed.retain(|address| access.may_deliver(user, (&named, port), *address));
    if allowed.is_empty() {
        return Err(Failed::Never(Access::forbidden(CONNECT, (&named, port))));
    }
    Ok(allowed
        .into_iter()
        .map(|ip| SocketAddr::new(ip, port))
        .collect())
}

/// Does something in a session with a server, which is a new one or one that has waited.
///
/// # Errors
/// It can't be reached, or this server may not connect to it for the user, or doesn't know its key.
pub(super) fn with<T>(
    links: &Links,
    access: &Access,
    (user, place): (&str, &RemotePlace),
    run: impl FnOnce(&Client) -> Result<T, Failed>,
) -> Result<T, Failed> {
    let server = server_of(place);
    let link = match earlier(links, access, (user, place), &server) {
        Some(link) => link,
        None => connect(access, user, place)?,
    };
    let result = run(&link.client);
    links.put(server, link);
    result
}

/// A session that has waited, if it may be used and answers.
fn earlier(
    links: &Links,
    access: &Access,
    (user, place): (&str, &RemotePlace),
    server: &str,
) -> Option<Link> {
    let (named, port) = host_of(place).ok()?;
    let link = links.take(server)?;
    let is_allowed = access.may_deliver(user, (&named, port), link.address.ip());
    (is_allowed && answers(&link.client).is_ok()).then_some(link)
}

/// Asks a server for anything.
fn answers(client: &Client) -> Result<(), Fault> {
    let stat = crate::paths::Call::Stat {
        path: b"/".to_vec(),
        follow: true,
    };
    match client.call(stat) {
        Ok(_) => Ok(()),
        // It has refused the question, but not the session.
        Err(_) if client.user().is_some() && client.ended().is_none() => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// Opens sessions with a server until one of its addresses answers.
fn connect(access: &Access, user: &str, place: &RemotePlace) -> Result<Link, Failed> {
    let addresses = addresses(access, user, place)?;
    let mut last = None;
    for address in addresses {
        // The settings may be written at this moment; all parcels for the target wait for them.
        let options = options(place, address).map_err(Failed::Unreached)?;
        let client = Client::connect(place, options).map_err(Failed::Later)?;
        // It doesn't wait for the server; a call does.
        match answers(&client) {
            Ok(()) => return Ok(Link { client, address }),
            // A login that was put off wasn't checked.
            Err(fault)
                if (fault.fails_login && fault.retry == Retry::Never) || is_of_trust(&fault) =>
            {
                return Err(Failed::Never(fault.remote()));
            }
            Err(fault) => last = Some(fault),
        }
    }
    let cause = "it has no address";
    let none = || Fault::new(Code::ConnectionRefused, CONNECT, cause);
    Err(Failed::Unreached(last.unwrap_or_else(none)))
}

fn is_of_trust(fault: &Fault) -> bool {
    let code = fault.code;
    matches!(
        code,
        Code::ServerUntrusted | Code::ProtectionRefused | Code::VersionUnsupported
    )
}

/// The options of a session with a server at an address that was checked, which are otherwise those
/// of the user who runs this.
fn options(place: &RemotePlace, address: SocketAddr) -> Result<ClientOptions, Fault> {
    let config = ClientConfig::read()?;
    let login = config.login(place, &Login::default())?;
    let options = config.session(place).options(ClientOptions::default());
    let mut options = login.options(place, options, Attendance::Unattended)?;
    options.via = Some(Address::Host {
        host: address.ip().to_string(),
        port: address.port(),
    });
    if let Some(security) = &mut options.security {
        // There is no user here to look at the key of a new server.
        security.trust.new_hosts = NewHosts::Refuse;
    }
    Ok(options)
}
