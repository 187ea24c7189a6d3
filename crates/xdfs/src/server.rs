//! The server: listeners, the acceptor, and one pipeline per session.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use xdfs_engine::tunnel::{TunnelLimits, TunnelRights};
use xdfs_engine::{Acceptor, AcceptorConfig, AcceptorControl, AccessPolicy};
use xdfs_gridftp::door::{DoorControl, Policy};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_security::export::{Exports, Rights};
use xdfs_security::guard::{Guard, Limits as GuardLimits};
use xdfs_security::tunnel::{TunnelRules, TunnelsConfig};
use xdfs_store::{LocalStore, ServerStore, Store};
use xdfs_xio::tls::Configs;
use xdfs_xio::{Endpoint, ListeningSocket, Location};

use crate::drivers::Drivers;
use crate::expiry::{Expiry, Served};
use crate::gridftp::{GridftpDoor, GridftpSettings};
use crate::local_path::path_bytes;
use crate::metrics::{MetricsListener, MetricsSettings, ServerFigures};
use crate::remote::{Address, DEFAULT_PORT, Listen};
use crate::security::{
    Fingerprint, PersonalGate, SecureGate, ServerSecurity, SettingFault, SettingsReport, Tickets,
    TunnelsWithoutUsers, keep_apart,
};
use crate::stack::{address_of, adopting_stack, endpoint, listening_stack, resolve};

/// The default bound on the memory of sessions is this part of what there is: the kernel's buffers
/// of their sockets, the page cache and other programs have the rest.
const MEMORY_PART: u64 = 4;
/// The smallest default bound in bytes: two sessions with all the buffers that they use.
const MEMORY_BYTES_LEAST: u64 = 256 << 20;
/// The default bound in bytes where the system doesn't tell how much there is.
const MEMORY_BYTES_UNKNOWN: u64 = 1 << 30;

/// Settings of a server before it listens.
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    /// Where to listen, and over which driver stacks; TCP on 127.0.0.1:2799 if empty.
    pub listen: Vec<Listen>,
    /// The served directory; the kernel resolves paths of clients beneath it.
    pub root: PathBuf,
    /// Nobody changes anything, whatever rights exports give.
    pub read_only: bool,
    /// Listen on addresses other than loopback even without authentication.
    pub insecure: bool,
    /// Largest number of concurrent sessions.
    pub sessions_max: usize,
    /// Largest size in bytes of the payload buffers of all sessions together; `None` for a quarter
    /// of the machine's memory (of that of its control group on Linux, if that is less), but at
    /// least 256 MiB. When it is used up, transfers wait for each other. Each session may hold a
    /// few buffers in any case, so that it goes on.
    pub memory_bytes_max: Option<u64>,
    /// Grace period of running sessions after a shutdown request.
    pub grace: Duration,
    /// Discard unfinished transfers that haven't changed for so long and aren't running; `None` for
    /// never. Everything that is served is looked through at the start, and then after a quarter of
    /// this time, at most a day.
    pub partial_expiry: Option<Duration>,
    /// The targets of tunnels, and where clients may have the server listen; nothing by default.
    /// Without `security`, only rules that are public count.
    pub tunnels: TunnelsConfig,
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
    /// Serve GridFTP too; not by [`bind_personal`](Self::bind_personal) and
    /// [`bind_forwarding`](Self::bind_forwarding).
    pub gridftp: Option<GridftpSettings>,
    /// Serve metrics to readers; not by [`bind_personal`](Self::bind_personal).
    pub metrics: Option<MetricsSettings>,
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    acceptor: Acceptor,
    listening: Vec<Listen>,
    handle: ServerHandle,
    guard: Option<(Fingerprint, Tickets)>,
    expiry: Option<(Served, Duration)>,
    gridftp: Option<GridftpDoor>,
    metrics: Option<MetricsListener>,
}

/// The result of [`ServerHandle::reload`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// Settings, named as in the configuration file of `xdfs serve`, that differ from those of the
    /// server and take effect at its next start only.
    pub unchanged: Vec<&'static str>,
    /// Number of sessions that were ended, since the new settings don't admit them.
    pub sessions_ended: usize,
    /// Number of tunnels that were ended, since the new settings don't allow them.
    pub tunnels_ended: usize,
}

/// Shuts a server down, or reloads its settings, from another thread.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    control: AcceptorControl,
    grace: Duration,
    asked: Arc<AtomicBool>,
    /// The server's own, so that its audit log is complete when it ends.
    gate: Option<Weak<SecureGate>>,
    gridftp: Option<DoorControl>,
    /// The settings that it was started with.
    original: Arc<ServerBuilder>,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            root: PathBuf::from("."),
            read_only: false,
            insecure: false,
            sessions_max: 256,
            memory_bytes_max: None,
            grace: Duration::from_secs(10),
            partial_expiry: None,
            tunnels: TunnelsConfig::default(),
            limits: Limits::default(),
            private: Vec::new(),
            security: None,
            drivers: Drivers::default(),
            gridftp: None,
            metrics: None,
        }
    }
}

impl ServerBuilder {
    /// Where it will listen.
    #[must_use]
    pub fn listens(&self) -> Vec<Listen> {
        if self.listen.is_empty() {
            let host = "127.0.0.1".into();
            let port = DEFAULT_PORT;
            return vec![Address::Host { host, port }.into()];
        }
        self.listen.clone()
    }

    /// Checks the settings as [`bind`](Self::bind) would, and more: reads all files that they name,
    /// users and lists of keys included, and looks for the directories of exports. Creates nothing
    /// and opens no port; host names to listen on are looked up.
    #[must_use]
    pub fn check(&self) -> SettingsReport {
        let mut report = SettingsReport::default();
        // Text is enough to tell whether a stack can be built.
        let tls = self.security.as_ref().map(|_| Configs::default());
        let mut taken: Vec<Endpoint> = Vec::new();
        for (number, listen) in self.listens().iter().enumerate() {
            let stack = listening_stack(listen, &self.drivers, tls.as_ref());
            let Some(stack) = report.note("listen", number, stack) else {
                continue;
            };
            let locations = report.note("listen", number, resolve(&listen.address));
            let endpoints = locations.unwrap_or_default();
            let endpoints: Vec<_> = endpoints.iter().map(|at| endpoint(&stack, at)).collect();
            if let Some(own) = endpoints
                .iter()
                .find(|own| taken.iter().any(|at| clash(at, own)))
            {
                report.note::<()>("listen", number, Err(listened_twice(own)));
            }
            taken.extend(endpoints.iter().cloned());
            for endpoint in endpoints {
                let is_protected = self.insecure || self.security.is_some();
                report.note("listen", number, check_loopback(&endpoint, is_protected));
                report.note("listen", number, check_folder(&endpoint));
                report
                    .unfit
                    .extend(check_is_here(&endpoint, "listen", number));
            }
        }
        if let Some(gridftp) = &self.gridftp {
            let is_protected = self.insecure || self.security.is_some();
            let addresses = report.note("gridftp", 0, gridftp.addresses(is_protected));
            for address in addresses.unwrap_or_default() {
                let own = Endpoint::new("tcp".to_owned(), Location::Socket(address));
                report.unfit.extend(check_is_here(&own, "gridftp", 0));
                if taken.iter().any(|at| clash(at, &own)) {
                    report.note::<()>("gridftp", 0, Err(listened_twice(&own)));
                    break;
                }
            }
            let has_certificate = self.security.is_some();
            report.note("gridftp.tls", 0, gridftp.check_tls(has_certificate));
            let nodes = gridftp.check_nodes(self.security.as_ref());
            report.note("gridftp.node", 0, nodes);
        }
        if let Some(metrics) = &self.metrics {
            let endpoints = report.note("metrics", 0, metrics.endpoints());
            for own in endpoints.unwrap_or_default() {
                report.unfit.extend(check_is_here(&own, "metrics", 0));
                let at_gridftp = self.gridftp.as_ref().map(|own| own.addresses(true));
                let at_gridftp = at_gridftp.and_then(Result::ok).unwrap_or_default();
                let mut others = at_gridftp.into_iter().map(Endpoint::tcp);
                if taken.iter().any(|at| clash(at, &own)) || others.any(|at| clash(&at, &own)) {
                    report.note::<()>("metrics", 0, Err(listened_twice(&own)));
                    break;
                }
            }
        }
        let root = LocalStore::rooted(&self.root, self.read_only);
        report.note("root", 0, root);
        report.note("tunnel", 0, self.tunnel_rules());
        let private: Vec<&Path> = self.private.iter().map(PathBuf::as_path).collect();
        match &self.security {
            Some(security) => security.check(&self.root, &private, &mut report),
            None => {
                report.note("root", 0, keep_apart([self.root.as_path()], private));
            }
        }
        report.warnings.extend(self.beyond_the_machine());
        report
    }

    /// Limits that are above what the machine has.
    fn beyond_the_machine(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let memory = xdfs_sys::memory::memory_bytes();
        if let Some((wanted, all)) = self.memory_bytes_max.zip(memory)
            && wanted > all
        {
            warnings.push(format!(
                "memory_max is {wanted} bytes, and this machine has {all}: transfers could use up \
                 all of it"
            ));
        }
        if let Some(most) = xdfs_sys::limit::descriptor_limit_max()
            && self.sessions_max as u64 > most
        {
            warnings.push(format!(
                "sessions_max is {}, and the process may open {most} files and connections, of \
                 which each session needs one at least (ulimit -n, LimitNOFILE)",
                self.sessions_max
            ));
        }
        warnings
    }

    /// The checked rules about tunnels. Their groups are those of the exports.
    fn tunnel_rules(&self) -> Result<TunnelRules, Fault> {
        let exports = self.security.as_ref().and_then(|own| own.exports.as_ref());
        let none = BTreeMap::new();
        self.tunnels
            .check(exports.map_or(&none, |exports| &exports.groups))
    }

    /// Opens the root and all listeners.
    ///
    /// # Errors
    /// The root can't be opened, or an address can't be bound, or isn't a loopback address although
    /// `insecure` isn't set. [`Code::InvalidArgument`] if the server's own files would be served.
    pub fn bind(self) -> Result<Server, Fault> {
        self.bind_with(Vec::new())
    }

    /// Opens the root and uses sockets that listen already, such as those of a service manager.
    /// Only without any it listens on `listen` by itself, but for the addresses of QUIC: they can't
    /// be handed over.
    ///
    /// # Errors
    /// Those of [`bind`](Self::bind).
    pub fn bind_with(mut self, sockets: Vec<ListeningSocket>) -> Result<Server, Fault> {
        xdfs_sys::limit::raise_descriptor_limit();
        match &mut self.security {
            Some(security) => security.keep_apart(&self.root, &self.private)?,
            None => {
                let private = self.private.iter().map(PathBuf::as_path);
                keep_apart([self.root.as_path()], private)?;
            }
        }
        let original = self.clone();
        let tunnels = self.tunnel_rules()?;
        let gsi = self.security.as_mut().and_then(|own| own.gsi.clone());
        let nodes = match &self.gridftp {
            Some(settings) => settings.peers(self.security.as_ref())?,
            None => Vec::new(),
        };
        let gate = match self.security.take() {
            Some(security) => {
                let root = open_root(&self.root, self.read_only)?;
                Some(Arc::new(SecureGate::new(
                    security,
                    root,
                    self.read_only,
                    tunnels.clone(),
                )?))
            }
            None => None,
        };
        let served = match &gate {
            Some(gate) => Served::ByGate(Arc::downgrade(gate)),
            None => Served::Root(Exports::single(self.root.clone(), Rights::ALL)),
        };
        let expiry = self.partial_expiry.filter(|_| !self.read_only);
        let policy = match &gate {
            Some(gate) => Policy::Guarded(gate.gridftp()),
            None => {
                let store = LocalStore::rooted(&self.root, self.read_only)?;
                Policy::Open(Arc::new(store))
            }
        };
        let gridftp = self.gridftp.take().map(|settings| {
            let is_protected = self.insecure || gate.is_some();
            settings.open(is_protected, policy, gsi.as_ref(), nodes, self.sessions_max)
        });
        let metrics = self.metrics.as_ref().map(MetricsListener::bind);
        let entrance = Entrance {
            gridftp: gridftp.transpose()?,
            metrics: metrics.transpose()?,
            guard: gate
                .as_ref()
                .map(|gate| (gate.fingerprint(), gate.tickets())),
            tls: gate.as_ref().map(|gate| gate.tls()),
            gate: gate.as_ref().map(Arc::downgrade),
            expiry: expiry.map(|age| (served, age)),
            access: match gate {
                Some(gate) => AccessPolicy::Guarded(gate),
                None => {
                    let store = LocalStore::rooted(&self.root, self.read_only)?;
                    let tunnels = (!tunnels.is_empty()).then(|| {
                        let guard = Guard::new(GuardLimits::default());
                        Arc::new(TunnelsWithoutUsers::public(tunnels, guard))
                            as Arc<dyn TunnelRights>
                    });
                    AccessPolicy::Open(Arc::new(ServerStore::new(store)), tunnels)
                }
            },
        };
        self.listen(entrance, sockets, original)
    }

    /// Opens all listeners of a personal server, which serves every file that this process can
    /// access, by its own paths, to whoever has one of its tickets ([`Server::tickets`]): a ticket
    /// is worth what a login as the user of this process is. Relative paths begin in the current
    /// directory of the process. The key of the server is in memory only, and ends with it.
    ///
    /// `user` is the name that clients are told. With `takes_clear`, they may ask for unencrypted
    /// payload. The settings about what is served and to whom (`root`, `read_only`, `insecure`,
    /// `private`, `security`) are not used, and they can't be reloaded.
    ///
    /// # Errors
    /// An address can't be bound.
    pub fn bind_personal(self, user: String, takes_clear: bool) -> Result<Server, Fault> {
        xdfs_sys::limit::raise_descriptor_limit();
        let gate = PersonalGate::new(user, takes_clear, GuardLimits::default())?;
        let entrance = Entrance {
            guard: Some((gate.fingerprint(), gate.tickets())),
            tls: Some(gate.tls()),
            gate: None,
            gridftp: None,
            metrics: None,
            expiry: None,
            access: AccessPolicy::Guarded(Arc::new(gate)),
        };
        let original = self.clone();
        self.listen(entrance, Vec::new(), original)
    }

    /// Opens all listeners of a server whose every client reaches `store`, without a login.
    ///
    /// # Errors
    /// An address can't be bound, or isn't a loopback address although `insecure` isn't set.
    pub(crate) fn bind_store(self, store: Arc<dyn Store>) -> Result<Server, Fault> {
        let entrance = Entrance {
            guard: None,
            tls: None,
            gate: None,
            gridftp: None,
            metrics: None,
            expiry: None,
            access: AccessPolicy::Open(store, None),
        };
        let original = self.clone();
        self.listen(entrance, Vec::new(), original)
    }

    /// Opens all listeners. `original` has the settings as they were given.
    fn listen(
        self,
        entrance: Entrance,
        sockets: Vec<ListeningSocket>,
        original: Self,
    ) -> Result<Server, Fault> {
        let Entrance {
            access,
            guard,
            tls,
            gate,
            gridftp,
            metrics,
            expiry,
        } = entrance;
        let is_protected = self.insecure || tls.is_some();
        let mut listeners = Vec::new();
        let mut listening = Vec::new();
        let mut listen = original.listens();
        if !sockets.is_empty() {
            // No socket of a service manager replaces those of QUIC.
            listen.retain(|wanted| {
                let stack = wanted.stack.as_ref();
                stack.is_some_and(|stack| stack.transport().name() == "quic")
            });
        }
        for socket in sockets {
            let stack = adopting_stack(socket.transport(), &self.drivers, tls.as_ref())?;
            let listener = stack
                .adopt(socket)
                .map_err(|e| Fault::from_io("listen on a socket handed over", "", &e))?;
            check_loopback(&listener.local_endpoint(), is_protected)?;
            listening.push(address_of(&listener.local_endpoint()).into());
            listeners.push(listener);
        }
        for wanted in &listen {
            let stack = listening_stack(wanted, &self.drivers, tls.as_ref())?;
            for location in resolve(&wanted.address)? {
                let endpoint = endpoint(&stack, &location);
                check_loopback(&endpoint, is_protected)?;
                let listener = stack.listen(&endpoint).map_err(|e| {
                    let mut fault = Fault::from_io(format!("listen on {endpoint}"), "", &e);
                    if e.kind() == std::io::ErrorKind::AddrInUse {
                        fault.hint = "is another server running there?".into();
                    }
                    fault
                })?;
                listening.push(Listen {
                    stack: wanted.stack.clone(),
                    address: address_of(&listener.local_endpoint()),
                });
                listeners.push(listener);
            }
        }
        let config = AcceptorConfig {
            listeners,
            access,
            sessions_max: self.sessions_max,
            memory_bytes_max: memory_bytes(self.memory_bytes_max),
            tunnels: tunnel_limits(&self.tunnels),
            limits: self.limits,
        };
        let (acceptor, control) = Acceptor::new(config)?;
        let asked = Arc::new(AtomicBool::new(false));
        let handle = ServerHandle {
            control,
            grace: self.grace,
            asked,
            gate,
            gridftp: gridftp.as_ref().map(|door| door.control.clone()),
            original: Arc::new(original),
        };
        Ok(Server {
            acceptor,
            listening,
            handle,
            guard,
            expiry,
            gridftp,
            metrics,
        })
    }
}

/// Who may enter a server, and what keeps its channels and its files in order.
struct Entrance {
    access: AccessPolicy,
    guard: Option<(Fingerprint, Tickets)>,
    /// Of a protected server.
    tls: Option<Configs>,
    /// Whose settings can be reloaded.
    gate: Option<Weak<SecureGate>>,
    gridftp: Option<GridftpDoor>,
    metrics: Option<MetricsListener>,
    expiry: Option<(Served, Duration)>,
}

/// The limits on all tunnels.
fn tunnel_limits(config: &TunnelsConfig) -> TunnelLimits {
    let default = TunnelLimits::default();
    let idle = config.idle_seconds;
    TunnelLimits {
        idle_timeout: idle.map_or(default.idle_timeout, |s| {
            Duration::from_secs(s.get().into())
        }),
        ..default
    }
}

/// The bound on the memory of all sessions, in bytes.
fn memory_bytes(wanted: Option<u64>) -> usize {
    let bytes = wanted.unwrap_or_else(|| {
        let all = xdfs_sys::memory::memory_bytes();
        all.map_or(MEMORY_BYTES_UNKNOWN, |all| all / MEMORY_PART)
            .max(MEMORY_BYTES_LEAST)
    });
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The absolute path of a root that can be opened. Sessions open it on first use.
fn open_root(root: &Path, read_only: bool) -> Result<PathBuf, Fault> {
    LocalStore::rooted(root, read_only)?;
    std::path::absolute(root).map_err(|e| Fault::from_io("open the root", path_bytes(root), &e))
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

/// The fault of an address that this machine doesn't have.
fn check_is_here(
    endpoint: &Endpoint,
    setting: &'static str,
    number: usize,
) -> Option<SettingFault> {
    let mut address = endpoint.socket()?;
    // The system tells it by binding. Nobody can connect to a port of UDP that is closed at once,
    // and any port will do.
    address.set_port(0);
    let error = UdpSocket::bind(address).err()?;
    let operation = format!("listen on {endpoint}");
    let fault = match error.kind() {
        std::io::ErrorKind::AddrNotAvailable => {
            let cause = "this machine doesn't have the address";
            Fault::new(Code::InvalidArgument, operation, cause)
                .hint("name one of its addresses, or all of them: 0.0.0.0 or [::]")
        }
        _ => Fault::from_io(operation, "", &error),
    };
    Some(SettingFault {
        setting,
        number,
        fault,
    })
}

/// Whether the system refuses to listen at both: at the same path, or at the same port of addresses
/// of which one is the other or all of its kind.
fn clash(one: &Endpoint, other: &Endpoint) -> bool {
    let is_of_udp = |endpoint: &Endpoint| matches!(endpoint.transport(), "quic" | "udp");
    match (one.socket(), other.socket()) {
        (Some(a), Some(b)) => {
            let is_any = a.ip().is_unspecified() || b.ip().is_unspecified();
            a.port() != 0
                && a.port() == b.port()
                && is_of_udp(one) == is_of_udp(other)
                && (a.ip() == b.ip() || (is_any && a.is_ipv4() == b.is_ipv4()))
        }
        _ => one.path().is_some() && one.path() == other.path(),
    }
}

fn listened_twice(endpoint: &Endpoint) -> Fault {
    let cause = "another listener of these settings has the address";
    Fault::new(
        Code::InvalidArgument,
        format!("listen on {endpoint}"),
        cause,
    )
    .hint("give each listener a port of its own")
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
        let addresses = self.listening.iter().map(|listen| listen.address.clone());
        addresses.collect()
    }

    /// The same with the stacks that were chosen for them.
    #[must_use]
    pub fn listening(&self) -> &[Listen] {
        &self.listening
    }

    /// The addresses at which it listens for GridFTP.
    #[must_use]
    pub fn gridftp_addresses(&self) -> &[SocketAddr] {
        self.gridftp.as_ref().map_or(&[], |door| &door.addresses)
    }

    /// The addresses at which it has metrics for readers.
    #[must_use]
    pub fn metrics_addresses(&self) -> &[Address] {
        let metrics = self.metrics.as_ref();
        metrics.map_or(&[], |metrics| &metrics.addresses)
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
        let expiry = self.expiry;
        let _expiry = expiry
            .map(|(served, age)| Expiry::start(served, age))
            .transpose()?;
        let figures = ServerFigures {
            acceptor: self.handle.control.clone(),
            gridftp: self.handle.gridftp.clone(),
        };
        let metrics = self.metrics.map(|own| own.start(move || figures.text()));
        // Also while sessions end.
        let _metrics = metrics.transpose()?;
        let gridftp = self.gridftp.map(GridftpDoor::start).transpose()?;
        let result = self.acceptor.run();
        let finished = gridftp.map_or(Ok(()), |door| door.finish(result.is_err()));
        result.and(finished)
    }
}

impl ServerHandle {
    /// Uses the settings of `builder` from now on, without interrupting sessions and transfers: new
    /// sessions get what the new settings give. Sessions whose user or credential is refused now,
    /// or whose user has less rights, another account or another directory, are ended at once in a
    /// resumable state; a client whose user is still admitted can reconnect. Other sessions keep
    /// the exports, quotas and rates that they began with.
    ///
    /// Some settings can't change while the server runs; the result names those that differ.
    ///
    /// # Errors
    /// The settings can't be used: see [`ServerBuilder::check`], which finds more errors. The old
    /// ones stay in effect.
    pub fn reload(&self, mut builder: ServerBuilder) -> Result<Reloaded, Fault> {
        let old = &*self.original;
        let mut unchanged = Vec::new();
        let mut compare = |name, differs| unchanged.extend(Some(name).filter(|_| differs));
        compare("listen", builder.listen != old.listen);
        compare("drivers", builder.drivers.files() != old.drivers.files());
        compare(
            "insecure",
            builder.security.is_some() != old.security.is_some(),
        );
        compare("sessions_max", builder.sessions_max != old.sessions_max);
        compare(
            "memory_max",
            builder.memory_bytes_max != old.memory_bytes_max,
        );
        compare("grace_seconds", builder.grace != old.grace);
        compare(
            "partial_expiry",
            builder.partial_expiry != old.partial_expiry,
        );
        if let (Some(new), Some(old)) = (&mut builder.security, &old.security) {
            compare("folder", new.folder != old.folder);
            compare("audit", new.audit != old.audit);
            new.folder.clone_from(&old.folder);
            compare("gridftp.gsi", new.gsi != old.gsi);
            new.gsi.clone_from(&old.gsi);
        }
        compare("gridftp", builder.gridftp != old.gridftp);
        compare("metrics", builder.metrics != old.metrics);
        let old_idle = old.tunnels.idle_seconds;
        let new_idle = builder.tunnels.idle_seconds;
        compare("tunnel.idle_seconds", new_idle != old_idle);
        let tunnels = builder.tunnel_rules()?;
        let (mut sessions_ended, mut tunnels_ended) = (0, 0);
        match (&self.gate, builder.security) {
            (Some(gate), Some(mut security)) => {
                security.keep_apart(&builder.root, &builder.private)?;
                let root = open_root(&builder.root, builder.read_only)?;
                let gate = gate.upgrade().ok_or_else(|| {
                    Fault::new(
                        Code::ShuttingDown,
                        "reload the settings",
                        "the server has ended",
                    )
                })?;
                gate.reload(security, root, builder.read_only, tunnels)?;
                let at_gridftp = self.gridftp.as_ref().map_or(0, DoorControl::review);
                sessions_ended = self.control.review() + at_gridftp;
                tunnels_ended = self.control.review_tunnels();
            }
            (None, _) => {
                let (new, old) = (&builder.root, &old.root);
                let differs = new != old || builder.read_only != self.original.read_only;
                unchanged.extend(Some("root").filter(|_| differs));
                let old = &self.original.tunnels;
                let differs = builder.tunnels != *old && new_idle == old_idle;
                unchanged.extend(Some("tunnel").filter(|_| differs));
            }
            (Some(_), None) => {}
        }
        Ok(Reloaded {
            unchanged,
            sessions_ended,
            tunnels_ended,
        })
    }

    /// Starts to drain. A second call ends running sessions at once; their durable ranges stay.
    pub fn shutdown(&self) {
        let again = self.asked.swap(true, Ordering::Relaxed);
        let grace = if again { Duration::ZERO } else { self.grace };
        self.control.drain(grace);
        if let Some(gate) = self.gate.as_ref().and_then(Weak::upgrade) {
            gate.ongoing().end(grace);
        }
        if let Some(gridftp) = &self.gridftp {
            gridftp.drain(grace);
        }
    }
}
