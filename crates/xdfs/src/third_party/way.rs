//! The way to the other server of a copy, which the user's order names.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;

use xdfs_access::{Access, ThirdPartyUser};
use xdfs_proto::third_party::CopyState;
use xdfs_proto::tunnel::Host;
use xdfs_proto::{Code, Fault};
use xdfs_security::identity::{Fingerprint, ServerIdentity};
use xdfs_security::trust::{NewHosts, TrustPolicy};
use xdfs_store::rate::SharedRate;

use super::state::Copy;
use crate::address::Address;
use crate::client::{Client, ClientOptions};
use crate::remote::{Invitation, RemotePlace};
use crate::security::{ClientSecurity, Credential, Level};

const CONNECT: &str = "connect to the other server";

/// The other server, and the user for whom this one connects to it.
pub(super) struct Way {
    pub(super) user: ThirdPartyUser,
    pub(super) access: Arc<Access>,
    pub(super) identity: Arc<ServerIdentity>,
    pub(super) rate: Option<Arc<SharedRate>>,
    pub(super) sends: bool,
    pub(super) channels: u16,
    pub(super) key: [u8; 32],
    pub(super) capability: String,
    pub(super) addresses: Vec<String>,
}

impl Way {
    /// Makes a copy by each of the addresses until one of them is reached.
    pub(super) fn try_each<T>(
        &self,
        copy: &Copy,
        by: impl Fn(SocketAddr) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut last = None;
        for address in self.addresses(copy)? {
            copy.check()?;
            let fault = match by(address) {
                Ok(outcome) => return Ok(outcome),
                Err(fault) => fault,
            };
            if copy.status().state != CopyState::Connecting {
                return Err(fault);
            }
            last = Some(fault);
        }
        Err(last.unwrap_or_else(|| {
            let cause = "the order has no address";
            Fault::new(Code::ConnectionRefused, CONNECT, cause)
        }))
    }

    /// The addresses of the other server that may be connected to.
    fn addresses(&self, copy: &Copy) -> Result<Vec<SocketAddr>, Fault> {
        let mut found: Vec<SocketAddr> = Vec::new();
        let mut refused = None;
        for text in &self.addresses {
            copy.check()?;
            let Ok(Address::Host { host, port }) = text.parse::<Address>() else {
                continue;
            };
            // Whatever the system would take for an address is one, in this form alone.
            let Some(named) = Host::parse(&host) else {
                continue;
            };
            let resolved: Vec<IpAddr> = match &named {
                Host::Address(address) => vec![*address],
                Host::Name(name) => match (name.as_str(), port).to_socket_addrs() {
                    Ok(addresses) => addresses.map(|address| address.ip()).collect(),
                    Err(error) => {
                        let cause = format!("the name {host} isn't known here: {error}");
                        refused = Some(Fault::new(Code::ConnectionRefused, CONNECT, cause));
                        continue;
                    }
                },
            };
            for address in resolved {
                let (user, sends) = (&self.user, self.sends);
                let socket = SocketAddr::new(address, port);
                if !self.access.may_copy(user, sends, (&named, port), address) {
                    let cause = format!("its settings don't allow connections to {socket}");
                    refused = Some(
                        Fault::new(Code::PermissionDenied, CONNECT, cause)
                            .hint("its administrator allows them with --connect-to"),
                    );
                } else if !found.contains(&socket) {
                    found.push(socket);
                }
            }
        }
        match (found.is_empty(), refused) {
            (true, Some(fault)) => Err(fault),
            _ => Ok(found),
        }
    }

    /// The other server, at this address.
    pub(super) fn place(&self, address: SocketAddr) -> RemotePlace {
        RemotePlace {
            user: None,
            address: Address::Host {
                host: address.ip().to_string(),
                port: address.port(),
            },
            stack: None,
            path: Vec::new(),
            invitation: Invitation::default(),
            profile: None,
        }
    }

    /// Starts to open a session with it.
    pub(super) fn connect(&self, address: SocketAddr) -> Result<Client, Fault> {
        let options = ClientOptions {
            channels: (self.channels > 0).then(|| self.channels.into()),
            security: Some(ClientSecurity {
                trust: TrustPolicy {
                    known_hosts: PathBuf::new(),
                    pins: vec![Fingerprint(self.key)],
                    roots: Vec::new(),
                    system_roots: false,
                    new_hosts: NewHosts::Refuse,
                },
                credentials: vec![Credential::Capability {
                    text: self.capability.clone(),
                    holder: Arc::clone(&self.identity),
                }],
                level: Level::Private,
            }),
            rate: self.rate.clone(),
            ..ClientOptions::default()
        };
        Client::connect(&self.place(address), options)
    }
}
