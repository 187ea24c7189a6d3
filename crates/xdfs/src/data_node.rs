//! A data node of GridFTP: moves files for the servers that it obeys, from and to their clients.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use xdfs_access::{DoorAddress, Findings, HostPort, SettingFault, SystemClock};
use xdfs_gridftp::door::{NodeRules, Options, Role, Sessions, SessionsConfig, SessionsControl};
use xdfs_gridftp::node::{ALPN, NODE_PORT};
use xdfs_proto::{Code, Fault};
use xdfs_security::export::{Exports, Rights};
use xdfs_security::identity::Fingerprint;
use xdfs_security::trust::mutual_server;
use xdfs_security::{Method, Principal};
use xdfs_store::{LocalStore, SharedStore};

use crate::doors::check_addresses;
use crate::security::{ServerSecurity, SettingsReport};
use crate::server::ServerBuilder;

const OPERATION: &str = "serve as a data node";
/// The settings with the address and with the keys of servers, as in the program's file.
const LISTEN: &str = "gridftp.data_node.listen";
const OBEYS: &str = "gridftp.data_node.obeys";

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

/// Without a key, everybody could have a data node do anything.
fn unprotected() -> Fault {
    let cause = "both ends have to prove who they are";
    Fault::new(Code::InvalidArgument, OPERATION, cause).hint("leave out insecure")
}

impl DataNodeSettings {
    /// The faults of these settings, beside those of its server's security.
    fn faults(&self, security: Option<&ServerSecurity>) -> Vec<SettingFault> {
        let refused = |cause: &str| Fault::new(Code::InvalidArgument, OPERATION, cause);
        let mut findings = Findings::default();
        if security.is_none() {
            findings.note::<()>("insecure", 0, Err(unprotected()));
        }
        if security.is_some_and(|own| own.accounts.is_some()) {
            let fault = refused("it can't act as the accounts of [accounts]");
            findings.note::<()>("accounts", 0, Err(fault));
        }
        if self.obeys.is_empty() {
            let hint = "name the key of the server, as it prints it, in `obeys`";
            let fault = refused("there is no server that it obeys").hint(hint);
            findings.note::<()>(OBEYS, 0, Err(fault));
        }
        findings.faults
    }

    fn cannot_listen(&self, error: &io::Error) -> Fault {
        let fault = Fault::from_io(format!("listen on {}", self.listen), "", error);
        match error.kind() {
            io::ErrorKind::AddrInUse => fault.hint("is another program listening there?"),
            _ => fault,
        }
    }
}

impl ServerBuilder {
    /// Checks the settings as [`bind_data_node`](Self::bind_data_node) would, and looks for the
    /// directories of exports. Creates nothing and opens no port; the host to listen on is looked
    /// up.
    #[must_use]
    pub fn check_data_node(&self, settings: &DataNodeSettings) -> SettingsReport {
        let mut report = SettingsReport::default();
        report
            .faults
            .extend(settings.faults(self.security.as_ref()));
        let found = settings.listen.resolve();
        let found = found.map_err(|error| settings.cannot_listen(&error));
        let found = report.note(LISTEN, 0, found).unwrap_or_default();
        let addresses = found.into_iter().map(|at| DoorAddress::tcp(LISTEN, at));
        check_addresses(addresses.collect(), &mut Vec::new(), &mut report);
        if let Some(security) = &self.security {
            if security.exports.is_none() {
                let root = LocalStore::rooted(&self.root, self.read_only);
                report.note("root", 0, root);
            }
            let private = self.private_paths();
            let private: Vec<&Path> = private.iter().map(PathBuf::as_path).collect();
            security.check_node(&self.root, &private, &mut report);
        }
        report
    }

    /// Listens as a data node, with the key, the exports, `sessions_max` and `grace` of these
    /// settings; nothing else of them is used.
    ///
    /// # Errors
    /// The address can't be used, or no server is named; or the settings have no security, or
    /// accounts, as whose users a data node can't act. [`Code::InvalidArgument`] if the node's own
    /// files would be served.
    pub fn bind_data_node(self, settings: &DataNodeSettings) -> Result<DataNode, Fault> {
        xdfs_sys::limit::raise_descriptor_limit();
        if let Some(found) = settings.faults(self.security.as_ref()).into_iter().next() {
            return Err(found.fault);
        }
        let private = self.private_paths();
        let mut security = self.security.ok_or_else(unprotected)?;
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
        let fault = |error| settings.cannot_listen(&error);
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
    /// The addresses on which it listens for control links.
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
