//! Parts of all orders to servers that copy by themselves.

use std::net::ToSocketAddrs as _;
use std::time::Duration;

use xdfs_proto::third_party::ADDRESSES_MAX;
use xdfs_proto::{Code, Fault};

use crate::address::Address;
use crate::client::Client;

pub(super) const OPERATION: &str = "copy";
/// Life of a capability: one server connects to the other at once.
pub(crate) const LIFE: Duration = Duration::from_secs(120);
/// Pauses between two looks at a copy: the first, and the longest.
pub(crate) const LOOK_MIN: Duration = Duration::from_millis(2);
pub(crate) const LOOK_MAX: Duration = Duration::from_millis(200);

/// Why a copy didn't succeed.
pub(crate) enum Failed {
    /// The server does this for no file: another way may work.
    Way(Fault),
    /// Another way may work for this file.
    Once(Fault),
    /// The file itself.
    File(Fault),
}

/// Why a file has to go through this process.
pub(crate) fn impossible(cause: &str) -> Fault {
    Fault::new(Code::Unsupported, OPERATION, cause)
}

/// The addresses of a server, as the other one may reach it: the name first, since it may have
/// others there, and those that it has here.
pub(crate) fn addresses(of: &Client) -> Vec<String> {
    let Address::Host { host, port } = &of.place().address else {
        return Vec::new();
    };
    let shown = |host: &str| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let mut addresses = vec![shown(host)];
    for found in (host.as_str(), *port)
        .to_socket_addrs()
        .into_iter()
        .flatten()
    {
        let address = shown(&found.ip().to_string());
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

pub(crate) fn random() -> Result<[u8; 16], Failed> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| {
        let cause = "the system has no randomness";
        Failed::File(Fault::new(Code::Internal, "copy", cause))
    })?;
    Ok(bytes)
}
