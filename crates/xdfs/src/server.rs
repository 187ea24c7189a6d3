//! The server: listeners, the acceptor, and one pipeline per session.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use xdfs_engine::{Acceptor, AcceptorConfig, AcceptorControl, AccessPolicy};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_store::{LocalStore, ServerStore};
use xdfs_xio::Endpoint;

use crate::client::path_bytes;
use crate::drivers::Drivers;
use crate::remote::{Address, DEFAULT_PORT};
use crate::security::{
    Fingerprint, SecureGate, ServerSecurity, SettingsReport, Tickets, keep_apart,
};
use crate::stack::{address_of, resolve, stack_for};

/// Settings of a server before it listens.
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    /// Where to listen; 127.0.0.1:2799 if empty.
    pub listen: Vec<Address>,
    /// The served directory; the kernel resolves paths of clients beneath it.
    pub root: PathBuf,
    /// Refuse uploads.
    pub read_only: bool,
    /// Listen on addresses other than loopback even without authentication.
    pub insecure: bool,
    /// Largest number of concurrent sessions.
    pub sessions_max: usize,
    /// Grace period of running sessions after a shutdown request.
    pub grace: Duration,
    /// Limits for the resources that a peer may use.
    pub limits: Limits,
    /// Paths that must not lie beneath a served directory, in addition to the server's own files:
    /// for example keys and settings of the user who runs it.
    pub private: Vec<PathBuf>,
    /// Authentication and access control, over TLS 1.3 only; `None` for a server without
    /// protection.
    pub security: Option<ServerSecurity>,
    /// The drivers of channels; clients need the same ones.
    pub drivers: Drivers,
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    acceptor: Acceptor,
    addresses: Vec<Address>,
    handle: ServerHandle,
    guard: Option<(Fingerprint, Tickets)>,
}

/// Shuts a server down from another thread.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    control: AcceptorControl,
    grace: Duration,
    asked: Arc<AtomicBool>,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            root: PathBuf::from("."),
            read_only: false,
            insecure: false,
            sessions_max: 256,
            grace: Duration::from_secs(10),
            limits: Limits::default(),
            private: Vec::new(),
            security: None,
            drivers: Drivers::default(),
        }
    }
}

impl ServerBuilder {
    /// Where it will listen.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        if self.listen.is_empty() {
            let host = "127.0.0.1".into();
            let port = DEFAULT_PORT;
            return vec![Address::Tcp { host, port }];
        }
        self.listen.clone()
    }

    /// Checks the settings as [`bind`](Self::bind) would, and more: reads all files that they name,
    /// users and lists of keys included, and looks for the directories of exports. Creates nothing
    /// and opens no port; host names to listen on are looked up.
    #[must_use]
    pub fn check(&self) -> SettingsReport {
        let mut report = SettingsReport::default();
        for (number, address) in self.listen.iter().enumerate() {
            let endpoints = report.note("listen", number, resolve(address));
            for endpoint in endpoints.unwrap_or_default() {
                let is_protected = self.insecure || self.security.is_some();
                report.note("listen", number, check_loopback(&endpoint, is_protected));
                report.note("listen", number, check_folder(&endpoint));
            }
        }
        let root = LocalStore::rooted(&self.root, self.read_only);
        report.note("root", 0, root);
        let private: Vec<&Path> = self.private.iter().map(PathBuf::as_path).collect();
        match &self.security {
            Some(security) => security.check(&self.root, &private, &mut report),
            None => {
                report.note("root", 0, keep_apart([self.root.as_path()], private));
            }
        }
        report
    }

    /// Opens the root and all listeners.
    ///
    /// # Errors
    /// The root can't be opened, or an address can't be bound, or isn't a loopback address although
    /// `insecure` isn't set. [`Code::InvalidArgument`] if the server's own files would be served.
    pub fn bind(mut self) -> Result<Server, Fault> {
        xdfs_sys::limit::raise_descriptor_limit();
        match &mut self.security {
            Some(security) => security.keep_apart(&self.root, &self.private)?,
            None => {
                let private = self.private.iter().map(PathBuf::as_path);
                keep_apart([self.root.as_path()], private)?;
            }
        }
        let listen = self.addresses();
        let gate = match self.security {
            Some(security) => {
                // It is opened on first use; this only checks that it exists.
                LocalStore::rooted(&self.root, self.read_only)?;
                let root = std::path::absolute(&self.root)
                    .map_err(|e| Fault::from_io("open the root", path_bytes(&self.root), &e))?;
                Some(Arc::new(SecureGate::new(security, root, self.read_only)?))
            }
            None => None,
        };
        let is_protected = self.insecure || gate.is_some();
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in &listen {
            let stack = stack_for(address, &self.drivers, gate.as_ref().map(|gate| gate.tls()))?;
            for endpoint in resolve(address)? {
                check_loopback(&endpoint, is_protected)?;
                let listener = stack.listen(&endpoint).map_err(|e| {
                    let mut fault = Fault::from_io(format!("listen on {endpoint}"), "", &e);
                    if e.kind() == std::io::ErrorKind::AddrInUse {
                        fault.hint = "is another server running there?".into();
                    }
                    fault
                })?;
                addresses.push(address_of(&listener.local_endpoint()));
                listeners.push(listener);
            }
        }
        let guard = gate
            .as_ref()
            .map(|gate| (gate.fingerprint(), gate.tickets()));
        let access = match gate {
            Some(gate) => AccessPolicy::Guarded(gate),
            None => AccessPolicy::Open(Arc::new(ServerStore::new(LocalStore::rooted(
                &self.root,
                self.read_only,
            )?))),
        };
        let config = AcceptorConfig {
            listeners,
            access,
            sessions_max: self.sessions_max,
            limits: self.limits,
        };
        let (acceptor, control) = Acceptor::new(config)?;
        let asked = Arc::new(AtomicBool::new(false));
        let handle = ServerHandle {
            control,
            grace: self.grace,
            asked,
        };
        Ok(Server {
            acceptor,
            addresses,
            handle,
            guard,
        })
    }
}

/// Checks that the folder of a Unix socket is there.
fn check_folder(endpoint: &Endpoint) -> Result<(), Fault> {
    let Some(folder) = endpoint.path().and_then(Path::parent) else {
        return Ok(());
    };
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    let found = std::fs::read_dir(folder).map(drop);
    found.map_err(|e| Fault::from_io(format!("listen on {endpoint}"), path_bytes(folder), &e))
}

fn check_loopback(endpoint: &Endpoint, anywhere: bool) -> Result<(), Fault> {
    match endpoint.socket() {
        Some(address) if !address.ip().is_loopback() && !anywhere => Err(Fault::new(
            Code::InvalidArgument,
            format!("listen on {address}"),
            "it is not a loopback address, and peers are not authenticated",
        )
        .hint("listen on 127.0.0.1, [::1] or unix:PATH, or accept the risk with --insecure")),
        _ => Ok(()),
    }
}

impl Server {
    /// The listening addresses, with their actual ports.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.addresses.clone()
    }

    /// The fingerprint of the server's key; `None` without protection.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.guard.as_ref().map(|(fingerprint, _)| *fingerprint)
    }

    /// Issues tickets; `None` without protection.
    #[must_use]
    pub fn tickets(&self) -> Option<Tickets> {
        self.guard.as_ref().map(|(_, tickets)| tickets.clone())
    }

    /// A handle to shut the server down.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Serves until [`ServerHandle::shutdown`], then drains: new sessions are refused, and running
    /// ones get the grace period, after which they are ended in a resumable state.
    ///
    /// # Errors
    /// The listeners failed.
    pub fn run(self) -> Result<(), Fault> {
        self.acceptor.run()
    }
}

impl ServerHandle {
    /// Starts to drain. A second call ends running sessions at once; their durable ranges stay.
    pub fn shutdown(&self) {
        let again = self.asked.swap(true, Ordering::Relaxed);
        self.control
            .drain(if again { Duration::ZERO } else { self.grace });
    }
}
