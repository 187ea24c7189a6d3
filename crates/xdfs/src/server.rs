//! The server: listeners, the acceptor, and one pipeline per session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use xdfs_access::{Admit, Door, DoorAddress, DoorControl, Ended, Site};
use xdfs_engine::{AcceptorControl, AccessPolicy};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_security::export::{Exports, Rights};
use xdfs_security::guard::Limits as GuardLimits;
use xdfs_security::third_party::ThirdPartyRules;
use xdfs_security::tunnel::{TunnelRules, TunnelsConfig};
use xdfs_store::{LocalStore, Store};
use xdfs_xio::{Endpoint, ListeningSocket};

use crate::doors::{self, Entrance, Opened, XdfsDoor};
use crate::drivers::Drivers;
use crate::expiry::{Expiry, Served};
use crate::local_path::path_bytes;
use crate::metrics::{MetricsListener, MetricsSettings, ServerFigures};
use crate::relay::{Deliverer, Relay, RelaySettings, Routes};
use crate::remote::{Address, DEFAULT_PORT, Listen};
use crate::security::{
    CurrentRules, Fingerprint, PersonalGate, Reach, ServerSecurity, SettingsReport, Tickets,
    keep_apart,
};

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
    /// The targets of tunnels, where clients may have the server listen, and other servers to which
    /// this one connects in order to copy files for its users; nothing by default. Without
    /// `security`, only rules of tunnels that are public count.
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
    /// Further protocols by which the same is served to the same users, each at most once; not by
    /// [`bind_personal`](Self::bind_personal) and [`bind_forwarding`](Self::bind_forwarding).
    pub doors: Vec<Arc<dyn Door>>,
    /// Serve metrics to readers; not by [`bind_personal`](Self::bind_personal).
    pub metrics: Option<MetricsSettings>,
    /// Take files of users, and deliver them to the servers of `tunnels` that they may be sent to;
    /// only with `security`, and not by [`bind_personal`](Self::bind_personal).
    pub relay: Option<RelaySettings>,
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    /// That of xDFS is the first one.
    doors: Vec<Opened>,
    listening: Vec<Listen>,
    handle: ServerHandle,
    guard: Option<(Fingerprint, Tickets)>,
    expiry: Option<(Served, Duration)>,
    acceptor: AcceptorControl,
    metrics: Option<MetricsListener>,
    relay: Option<Arc<Relay>>,
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
    /// The open doors by their names.
    doors: Vec<(&'static str, Arc<dyn DoorControl>)>,
    grace: Duration,
    asked: Arc<AtomicBool>,
    /// The server's own, so that its audit log is complete when it ends.
    rules: Option<Weak<CurrentRules>>,
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
            doors: Vec::new(),
            metrics: None,
            relay: None,
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
        let site = self.site();
        let mut taken = Vec::new();
        let doors = self.all_doors();
        let twice = doors::check_names(&doors).err();
        report.faults.extend(twice.map(|twice| *twice));
        for door in doors {
            let addresses = door.check(&site, &mut report);
            doors::check_addresses(addresses, &mut taken, &mut report);
        }
        if let Some(metrics) = &self.metrics {
            let endpoints = report.note("metrics", 0, metrics.endpoints());
            let sockets = endpoints.iter().flatten().filter_map(Endpoint::socket);
            let addresses = sockets.map(|at| DoorAddress::tcp("metrics", at));
            doors::check_addresses(addresses.collect(), &mut taken, &mut report);
        }
        let root = LocalStore::rooted(&self.root, self.read_only);
        report.note("root", 0, root);
        report.note("tunnel", 0, self.tunnel_rules());
        report.note("tunnel", 0, self.third_party_rules());
        if let Some(relay) = &self.relay {
            report.note("relay", 0, relay.check(self.export_names()));
        }
        let private = self.private_paths();
        let private: Vec<&Path> = private.iter().map(PathBuf::as_path).collect();
        match &self.security {
            Some(security) => security.check(&self.root, &private, &mut report),
            None => {
                report.note("root", 0, keep_apart([self.root.as_path()], private));
            }
        }
        report.warnings.extend(self.beyond_the_machine());
        report
    }

    /// The settings that concern doors.
    fn site(&self) -> Site {
        let security = self.security.as_ref();
        Site {
            has_users: security.is_some(),
            is_insecure: self.insecure,
            has_accounts: security.is_some_and(|own| own.accounts.is_some()),
            has_client_certificates: security.is_some_and(|own| own.client_authorities.is_some()),
            sessions_max: self.sessions_max,
        }
    }

    /// The door of xDFS.
    fn xdfs_door(&self) -> XdfsDoor {
        XdfsDoor {
            listen: self.listens(),
            drivers: self.drivers.clone(),
            memory_bytes_max: self.memory_bytes_max,
            tunnels: self.tunnels.clone(),
            limits: self.limits.clone(),
        }
    }

    /// All doors, that of xDFS first.
    fn all_doors(&self) -> Vec<Arc<dyn Door>> {
        let mut doors: Vec<Arc<dyn Door>> = vec![Arc::new(self.xdfs_door())];
        doors.extend(self.doors.iter().cloned());
        doors
    }

    /// Paths that must not be served, besides those of `security`.
    pub(crate) fn private_paths(&self) -> Vec<PathBuf> {
        let of_doors = self.doors.iter().flat_map(|door| door.private());
        let private = self.private.iter().map(PathBuf::as_path);
        let spool = self.relay.iter().map(|relay| relay.spool.as_path());
        private
            .chain(of_doors)
            .chain(spool)
            .map(Path::to_owned)
            .collect()
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
        self.tunnels.check(&self.groups())
    }

    /// The checked rules about other servers, likewise.
    fn third_party_rules(&self) -> Result<ThirdPartyRules, Fault> {
        self.tunnels.check_third_party(&self.groups())
    }

    fn export_names(&self) -> impl Iterator<Item = &str> {
        let exports = self.security.as_ref().and_then(|own| own.exports.as_ref());
        let exports = exports.into_iter().flat_map(|own| &own.export);
        exports.map(|export| export.name.as_str())
    }

    fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let exports = self.security.as_ref().and_then(|own| own.exports.as_ref());
        exports.map_or_else(BTreeMap::new, |exports| exports.groups.clone())
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
        let private = self.private_paths();
        match &mut self.security {
            Some(security) => security.keep_apart(&self.root, &private)?,
            None => {
                let private = private.iter().map(PathBuf::as_path);
                keep_apart([self.root.as_path()], private)?;
            }
        }
        doors::check_names(&self.all_doors()).map_err(|twice| twice.fault)?;
        let original = self.clone();
        let site = self.site();
        let tunnels = self.tunnel_rules()?;
        let third_party = self.third_party_rules()?;
        let rules = match self.security.take() {
            Some(security) => {
                let root = open_root(&self.root, self.read_only)?;
                let reach = Reach {
                    tunnels: tunnels.clone(),
                    third_party,
                };
                let rules = CurrentRules::new(security, root, self.read_only, reach)?;
                Some(Arc::new(rules))
            }
            None => None,
        };
        let served = match &rules {
            Some(rules) => Served::ByRules(Arc::downgrade(rules)),
            None => Served::Root(Exports::single(self.root.clone(), Rights::ALL)),
        };
        let expiry = self.partial_expiry.filter(|_| !self.read_only);
        let admit = match &rules {
            Some(rules) => Admit::Guarded(Arc::<CurrentRules>::clone(rules)),
            None => Admit::Open(Arc::new(LocalStore::rooted(&self.root, self.read_only)?)),
        };
        let relay = match (&self.relay, &rules) {
            (None, _) => None,
            (Some(settings), Some(rules)) => {
                settings.check(original.export_names())?;
                let current = Arc::<CurrentRules>::clone(rules);
                let relay = Arc::new(Relay::open(settings, current)?);
                if !settings.routes.is_empty() {
                    rules.lay(Arc::new(Routes::new(&relay, &settings.routes)));
                }
                Some(relay)
            }
            (Some(_), None) => {
                let cause = "a relay has to know its users";
                let fault = Fault::new(Code::InvalidArgument, "open the spool", cause);
                return Err(fault.hint("leave out `insecure`"));
            }
        };
        let entrance = Entrance::of(admit.clone(), tunnels, relay.clone())?;
        let mut server = self.listen(&site, entrance, sockets, original)?;
        for settings in self.doors {
            let door = settings.open(&site, admit.clone())?;
            let control = (settings.name(), Arc::clone(&door.control));
            server.handle.doors.push(control);
            server.doors.push((settings, door));
        }
        server.guard = rules
            .as_ref()
            .map(|rules| (rules.fingerprint(), rules.tickets()));
        server.handle.rules = rules.as_ref().map(Arc::downgrade);
        server.expiry = expiry.map(|age| (served, age));
        let metrics = self.metrics.as_ref().map(MetricsListener::bind);
        server.metrics = metrics.transpose()?;
        server.relay = relay;
        Ok(server)
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
        let guard = (gate.fingerprint(), gate.tickets());
        let entrance = Entrance {
            tls: Some(gate.tls()),
            access: AccessPolicy::Guarded(Arc::new(gate)),
        };
        let site = Site {
            has_users: true,
            ..self.site()
        };
        let mut server = self.listen(&site, entrance, Vec::new(), self.clone())?;
        server.guard = Some(guard);
        Ok(server)
    }

    /// Opens all listeners of a server whose every client reaches `store`, without a login.
    ///
    /// # Errors
    /// An address can't be bound, or isn't a loopback address although `insecure` isn't set.
    pub(crate) fn bind_store(self, store: Arc<dyn Store>) -> Result<Server, Fault> {
        let site = Site {
            has_users: false,
            ..self.site()
        };
        let entrance = Entrance::open(store, TunnelRules::default());
        self.listen(&site, entrance, Vec::new(), self.clone())
    }

    /// Opens the listeners of xDFS. `original` has the settings as they were given.
    fn listen(
        &self,
        site: &Site,
        entrance: Entrance,
        sockets: Vec<ListeningSocket>,
        original: Self,
    ) -> Result<Server, Fault> {
        let settings = original.xdfs_door();
        let (door, listening, acceptor) = settings.open_at(site, entrance, sockets)?;
        let handle = ServerHandle {
            doors: vec![(settings.name(), Arc::clone(&door.control))],
            grace: self.grace,
            asked: Arc::new(AtomicBool::new(false)),
            rules: None,
            original: Arc::new(original),
        };
        let settings: Arc<dyn Door> = Arc::new(settings);
        Ok(Server {
            doors: vec![(settings, door)],
            listening,
            handle,
            guard: None,
            expiry: None,
            acceptor,
            metrics: None,
            relay: None,
        })
    }
}

/// The absolute path of a root that can be opened. Sessions open it on first use.
fn open_root(root: &Path, read_only: bool) -> Result<PathBuf, Fault> {
    LocalStore::rooted(root, read_only)?;
    std::path::absolute(root).map_err(|e| Fault::from_io("open the root", path_bytes(root), &e))
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

    /// The addresses at which it listens for further protocols, each with the protocol's name for
    /// people.
    pub fn further_addresses(&self) -> impl Iterator<Item = (&str, &str)> {
        self.doors.iter().skip(1).flat_map(|(settings, door)| {
            let addresses = door.addresses.iter();
            addresses.map(move |address| (settings.title(), address.as_str()))
        })
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
        let mut further = self.handle.doors.clone();
        further.retain(|(name, _)| *name != doors::XDFS);
        // It ends after the sessions, which add to it.
        let relay = self.relay.clone();
        let _deliverer = self.relay.map(Deliverer::start).transpose()?;
        let figures = ServerFigures {
            acceptor: self.acceptor,
            further,
            relay,
        };
        let metrics = self.metrics.map(|own| own.start(move || figures.text()));
        // Also while sessions end.
        let _metrics = metrics.transpose()?;
        let mut doors = self.doors.into_iter();
        let (_, first) = doors
            .next()
            .ok_or_else(|| Fault::new(Code::Internal, "serve", "there is no door"))?;
        doors::run(first, doors.collect())
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
        compare(
            "insecure",
            builder.security.is_some() != old.security.is_some(),
        );
        compare("sessions_max", builder.sessions_max != old.sessions_max);
        compare("grace_seconds", builder.grace != old.grace);
        compare("metrics", builder.metrics != old.metrics);
        compare("relay", builder.relay != old.relay);
        compare(
            "partial_expiry",
            builder.partial_expiry != old.partial_expiry,
        );
        if let (Some(new), Some(old)) = (&mut builder.security, &old.security) {
            compare("folder", new.folder != old.folder);
            compare("audit", new.audit != old.audit);
            new.folder.clone_from(&old.folder);
            // The door that verifies the certificates stays as it is.
            new.grid_map.clone_from(&old.grid_map);
        }
        let tunnels = builder.tunnel_rules()?;
        let third_party = builder.third_party_rules()?;
        let doors = builder.all_doors();
        doors::check_names(&doors).map_err(|twice| twice.fault)?;
        let mut private = builder.private_paths();
        // The open doors keep their files.
        private.extend(
            old.doors
                .iter()
                .flat_map(|door| door.private())
                .map(Path::to_owned),
        );
        let mut ended = Ended::default();
        match (&self.rules, builder.security) {
            (Some(rules), Some(mut security)) => {
                security.keep_apart(&builder.root, &private)?;
                let root = open_root(&builder.root, builder.read_only)?;
                let rules = rules.upgrade().ok_or_else(|| {
                    Fault::new(
                        Code::ShuttingDown,
                        "reload the settings",
                        "the server has ended",
                    )
                })?;
                let reach = Reach {
                    tunnels,
                    third_party,
                };
                rules.reload(security, root, builder.read_only, reach)?;
                for (_, control) in &self.doors {
                    let Ended { sessions, tunnels } = control.review();
                    ended.sessions += sessions;
                    ended.tunnels += tunnels;
                }
            }
            (None, _) => {
                let (new, old) = (&builder.root, &old.root);
                let differs = new != old || builder.read_only != self.original.read_only;
                unchanged.extend(Some("root").filter(|_| differs));
                let old = &self.original.tunnels;
                let has_old_idle = builder.tunnels.idle_seconds == old.idle_seconds;
                let differs = builder.tunnels != *old && has_old_idle;
                unchanged.extend(Some("tunnel").filter(|_| differs));
            }
            (Some(_), None) => {}
        }
        for (name, control) in &self.doors {
            match doors.iter().find(|door| door.name() == *name) {
                Some(door) => unchanged.extend(control.reload(&**door)),
                None => unchanged.push(*name),
            }
        }
        let is_open = |name: &str| self.doors.iter().any(|(open, _)| *open == name);
        let names = doors.iter().map(|door| door.name());
        unchanged.extend(names.filter(|name| !is_open(name)));
        Ok(Reloaded {
            unchanged,
            sessions_ended: ended.sessions,
            tunnels_ended: ended.tunnels,
        })
    }

    /// Starts to drain. A second call ends running sessions at once; their durable ranges stay.
    pub fn shutdown(&self) {
        let again = self.asked.swap(true, Ordering::Relaxed);
        let grace = if again { Duration::ZERO } else { self.grace };
        for (_, door) in &self.doors {
            door.drain(grace);
        }
        if let Some(rules) = self.rules.as_ref().and_then(Weak::upgrade) {
            rules.ongoing().end(grace);
        }
    }
}
