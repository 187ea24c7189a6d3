//! A data node of GridFTP: moves files for the servers that it obeys, from and to their clients.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use xdfs_access::{HostPort, SystemClock};
use xdfs_gridftp::door::{NodeRules, Options, Role, Sessions, SessionsConfig, SessionsControl};
use xdfs_gridftp::node::{ALPN, NODE_PORT};
use xdfs_proto::{Code, Fault};
use xdfs_security::export::{Exports, Rights};
use xdfs_security::identity::Fingerprint;
use xdfs_security::trust::mutual_server;
use xdfs_security::{Method, Principal};
use xdfs_store::SharedStore;

use crate::server::ServerBuilder;

const OPERATION: &str = "serve as a data node";

/// Settings of a data node. What it can reach is what the exports of its [`ServerBuilder`] have for
/// the user that a server names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataNodeSettings {
    /// Where to listen for control links of servers.
    pub listen: HostPort,
    /// The keys of the servers that it obeys.
    pub obeys: Vec<Fingerprint>,
    /// Ports of passive data connections; `None` for any free one.
    pub ports: Option<RangeInclusive<u16>>,
    /// The IPv4 address that clients are told for them; `None` for the one at which the server
    /// reached it.
    pub address: Option<Ipv4Addr>,
}

impl Default for DataNodeSettings {
    fn default() -> Self {
        Self {
            listen: HostPort {
                host: "127.0.0.1".into(),
                port: NODE_PORT,
            },
            obeys: Vec::new(),
            ports: None,
            address: None,
        }
    }
}

/// A listening data node.
#[derive(Debug)]
pub struct DataNode {
    sessions: Sessions,
    control: SessionsControl,
    addresses: Vec<SocketAddr>,
    fingerprint: Fingerprint,
    grace: Duration,
}

/// Ends a data node from another thread.
#[derive(Clone, Debug)]
pub struct DataNodeHandle {
    control: SessionsControl,
    grace: Duration,
}

/// Servers and what there is for them.
struct Duties {
    tls: Arc<ServerConfig>,
    exports: Exports,
}

impl NodeRules for Duties {
    fn tls(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.tls)
    }

    fn store(&self, user: Option<&str>) -> Result<Arc<dyn SharedStore>, Fault> {
        self.exports.store_for(&Principal {
            user: user.unwrap_or("anonymous").to_owned(),
            method: match user {
                // The server has checked the proof, whatever it was.
                Some(_) => Method::Key,
                None => Method::Anonymous,
            },
            scopes: Vec::new(),
        })
    }
}

impl fmt::Debug for Duties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duties").finish_non_exhaustive()
    }
}

impl ServerBuilder {
    /// Listens as a data node, with the key, the exports, `sessions_max` and `grace` of these
    /// settings; nothing else of them is used.
    ///
    /// # Errors
    /// The address can't be used, or no server is named; or the settings have no security, or
    /// accounts, as whose users a data node can't act. [`Code::InvalidArgument`] if the node's own
    /// files would be served.
    pub fn bind_data_node(self, settings: &DataNodeSettings) -> Result<DataNode, Fault> {
        let refused = |cause: &str| Fault::new(Code::InvalidArgument, OPERATION, cause);
        xdfs_sys::limit::raise_descriptor_limit();
        let private = self.private_paths();
        let Some(mut security) = self.security else {
            return Err(refused("both ends have to prove who they are").hint("leave out insecure"));
        };
        if security.accounts.is_some() {
            return Err(refused("it can't act as the accounts of [accounts]"));
        }
        if settings.obeys.is_empty() {
            let hint = "name the key of the server, as it prints it, in `obeys`";
            return Err(refused("there is no server that it obeys").hint(hint));
        }
        security.keep_apart(&self.root, &private)?;
        let identity = security.identity()?;
        let rights = match self.read_only {
            true => Rights::READ | Rights::LIST,
            false => Rights::ALL,
        };
        let exports = match security.exports {
            Some(config) => Exports::new(config)?,
            None => Exports::single(self.root, rights),
        };
        let tls = mutual_server(&identity, settings.obeys.clone(), ALPN)?;
        let fault = |error| {
            Fault::from_io(format!("listen on {}", settings.listen), "", &error)
                .hint("is another program listening there?")
        };
        let found = settings.listen.resolve().map_err(fault)?;
        let listeners = found.into_iter().map(TcpListener::bind);
        let listeners = listeners.collect::<Result<Vec<_>, _>>().map_err(fault)?;
        let addresses = listeners.iter().map(TcpListener::local_addr);
        let addresses = addresses.collect::<Result<_, _>>().map_err(fault)?;
        let (sessions, control) = Sessions::new(SessionsConfig {
            listeners,
            role: Role::Node(Arc::new(Duties { tls, exports })),
            sessions_max: self.sessions_max,
            options: Options {
                ports: settings.ports.clone(),
                address: settings.address,
                ..Options::default()
            },
            clock: Arc::new(SystemClock),
            #[cfg(feature = "gsi")]
            gsi: None,
            nodes: Vec::new(),
        })?;
        Ok(DataNode {
            sessions,
            control,
            addresses,
            fingerprint: identity.fingerprint(),
            grace: self.grace,
        })
    }
}

impl DataNode {
    /// Where it listens for control links.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The fingerprint of its key, which servers name.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Ends it from another thread.
    #[must_use]
    pub fn handle(&self) -> DataNodeHandle {
        DataNodeHandle {
            control: self.control.clone(),
            grace: self.grace,
        }
    }

    /// Serves until it is shut down.
    ///
    /// # Errors
    /// Waiting for connections failed.
    pub fn run(self) -> Result<(), Fault> {
        self.sessions.run()
    }
}

impl DataNodeHandle {
    /// Takes no more links, and ends those that move nothing; others have the grace period, or no
    /// time if `at_once` is set.
    pub fn shutdown(&self, at_once: bool) {
        let grace = match at_once {
            true => Duration::ZERO,
            false => self.grace,
        };
        self.control.drain(grace);
    }
}
