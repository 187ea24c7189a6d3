//! The target of a parcel: which server, and how this one connects to it.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use xdfs_access::Access;
use xdfs_proto::tunnel::Host;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_security::trust::NewHosts;

use super::attempt::Failed;
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
    let place: RemotePlace = text.parse()?;
    let invalid = |cause: &str| Fault::new(Code::InvalidArgument, OPERATION, cause);
    if !matches!(place.address, Address::Host { .. }) || place.stack.is_some() {
        let hint = "write xdfs://HOST/PATH";
        return Err(invalid("a relay delivers to servers of xdfs over TCP").hint(hint));
    }
    if place.user.is_some() || place.profile.is_some() || place.invitation != Invitation::default()
    {
        let cause = "the relay logs in at the target by itself";
        return Err(invalid(cause).hint("leave user and ticket out of the URL of the target"));
    }
    if place.path.iter().all(|byte| *byte == b'/') {
        return Err(invalid("the URL of the target has no path"));
    }
    Ok(place)
}

/// The name of the target's server among others.
pub(super) fn server_of(place: &RemotePlace) -> String {
    place.address.to_string()
}

/// The addresses of a target that may be connected to for a user.
fn addresses(access: &Access, user: &str, place: &RemotePlace) -> Result<Vec<SocketAddr>, Failed> {
    let never = |code, cause: String| Failed::Never(Fault::new(code, CONNECT, cause));
    let Address::Host { host, port } = &place.address else {
        let cause = "it has no address".to_owned();
        return Err(never(Code::InvalidArgument, cause));
    };
    let (host, port) = (host.as_str(), *port);
    let named = Host::parse(host)
        .ok_or_else(|| never(Code::InvalidArgument, format!("{host} is no host")))?;
    let found: Vec<IpAddr> = match &named {
        Host::Address(address) => vec![*address],
        Host::Name(name) => match (name.as_str(), port).to_socket_addrs() {
            Ok(found) => found.map(|at| at.ip()).collect(),
            Err(error) => {
                let cause = format!("the name {host} isn't known here: {error}");
                let fault = Fault::new(Code::ConnectionRefused, CONNECT, cause);
                return Err(Failed::Unreached(fault));
            }
        },
    };
    let mut allowed = found;
    allowed.retain(|address| access.may_deliver(user, (&named, port), *address));
    if allowed.is_empty() {
        let cause = format!("its settings don't allow connections to {host}:{port}");
        let fault = Fault::new(Code::PermissionDenied, CONNECT, cause);
        let hint = "its administrator allows them with --connect-to";
        return Err(Failed::Never(fault.hint(hint)));
    }
    Ok(allowed
        .into_iter()
        .map(|ip| SocketAddr::new(ip, port))
        .collect())
}

/// Opens sessions with a target until one of its addresses answers.
///
/// # Errors
/// It can't be reached, or this server may not connect to it, or doesn't know its key.
pub(super) fn connect(access: &Access, user: &str, place: &RemotePlace) -> Result<Client, Failed> {
    let addresses = addresses(access, user, place)?;
    let mut last = None;
    for address in addresses {
        // The settings may be written at this moment; all parcels for the target wait for them.
        let options = options(place, address).map_err(Failed::Unreached)?;
        let client = Client::connect(place, options).map_err(Failed::Later)?;
        // It doesn't wait for the server; a call does.
        match client.call(crate::paths::Call::Stat {
            path: b"/".to_vec(),
            follow: true,
        }) {
            Ok(_) => return Ok(client),
            Err(_) if client.user().is_some() && client.ended().is_none() => return Ok(client),
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

/// The options of a session with a target at an address that was checked, which are otherwise those
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
