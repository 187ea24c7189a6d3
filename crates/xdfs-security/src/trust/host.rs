//! The names of servers.

use std::net::{IpAddr, Ipv6Addr};

use rustls::pki_types::ServerName;
use xdfs_proto::fault::{Code, Fault};

/// The name of a server in the known hosts file: `name:port`, `192.0.2.1:port` or
/// `[2001:db8::1]:port`. Names are in lower case and without a trailing dot, so that each server
/// has one.
///
/// # Errors
/// `InvalidArgument` if `host` is neither a name nor an address.
pub fn host_port(host: &str, port: u16) -> Result<String, Fault> {
    let (bare, zone) = split(host);
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) if zone.is_none() => Ok(format!("{address}:{port}")),
        Ok(IpAddr::V6(address)) => Ok(match zone {
            // The same address is another host on another link.
            Some(zone) if !is_plain(zone) => return Err(refuse(host)),
            Some(zone) => format!("[{address}%{zone}]:{port}"),
            None => format!("[{address}]:{port}"),
        }),
        _ => {
            let name = bare.strip_suffix('.').unwrap_or(bare);
            // 253 bytes: RFC 1035, section 3.1, in dotted form.
            if zone.is_some() || name.len() > 253 || !is_plain(name) {
                return Err(refuse(host));
            }
            Ok(format!("{}:{port}", name.to_ascii_lowercase()))
        }
    }
}

/// The name of a server for TLS.
///
/// # Errors
/// `InvalidArgument` if `host` is neither a name nor an address.
pub fn server_name(host: &str) -> Result<ServerName<'static>, Fault> {
    let (bare, zone) = split(host);
    if zone.is_some() && bare.parse::<Ipv6Addr>().is_err() {
        return Err(refuse(host));
    }
    ServerName::try_from(bare.to_owned()).map_err(|_| refuse(host))
}

/// A host without brackets, and the zone of an address (RFC 4007, section 11).
fn split(host: &str) -> (&str, Option<&str>) {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    match bare.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (bare, None),
    }
}

/// Whether it can be a word in the file.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
}

/// Whether it has the form of [`host_port`], ignoring case.
pub(super) fn is_host_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        port.bytes().all(|b| b.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| {
                host_port(host, port).is_ok_and(|made| made.eq_ignore_ascii_case(text))
            })
    })
}

fn refuse(host: &str) -> Fault {
    Fault::new(
        Code::InvalidArgument,
        "read the name of the server",
        "it is neither a name nor an address",
    )
    .path(host)
    .hint("write names of other scripts in their ASCII form (xn--)")
}
