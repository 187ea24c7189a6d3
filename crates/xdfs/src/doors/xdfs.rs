//! The door of xDFS: the listeners of the engine's acceptor.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use xdfs_access::{
    Admit, Door, DoorAddress, DoorControl, Ended, Findings, HostPort, ListensAt, OpenDoor, Site,
};
use xdfs_engine::tunnel::{TunnelLimits, TunnelRights};
use xdfs_engine::{Acceptor, AcceptorConfig, AcceptorControl, AccessPolicy};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_security::guard::{Guard, Limits as GuardLimits};
use xdfs_security::tunnel::{TunnelRules, TunnelsConfig};
use xdfs_store::tally::Tally;
use xdfs_store::{ServerStore, Store};
use xdfs_xio::tls::Configs;
use xdfs_xio::{Endpoint, ListeningSocket};

use crate::drivers::Drivers;
use crate::local_path::path_bytes;
use crate::relay::Relay;
use crate::remote::{Address, Listen};
use crate::security::{SecureGate, TunnelsWithoutUsers, server_tls};
use crate::stack::{address_of, adopting_stack, endpoint, listening_stack, resolve};

/// The default bound on the memory of sessions is this part of what there is: the kernel's buffers
/// of their sockets, the page cache and other programs have the rest.
const MEMORY_PART: u64 = 4;
/// The smallest default bound in bytes: two sessions with all the buffers that they use.
const MEMORY_BYTES_LEAST: u64 = 256 << 20;
/// The default bound in bytes where the system doesn't say how much there is.
const MEMORY_BYTES_UNKNOWN: u64 = 1 << 30;

/// The name of the door.
pub(crate) const XDFS: &str = "xdfs";
/// The setting with the addresses.
const LISTEN: &str = "listen";

/// The settings of xDFS's own door.
#[derive(Clone, Debug)]
pub(crate) struct XdfsDoor {
    /// Where to listen, and over which driver stacks.
    pub(crate) listen: Vec<Listen>,
    pub(crate) drivers: Drivers,
    /// Largest size in bytes of the payload buffers of all sessions together.
    pub(crate) memory_bytes_max: Option<u64>,
    pub(crate) tunnels: TunnelsConfig,
    pub(crate) limits: Limits,
}

/// Who comes in by xDFS, and the certificate of a protected server.
pub(crate) struct Entrance {
    pub(crate) access: AccessPolicy,
    pub(crate) tls: Option<Configs>,
}

impl Entrance {
    /// Everybody has this store, and what `tunnels` allow everybody.
    pub(crate) fn open(store: Arc<dyn Store>, tunnels: TunnelRules) -> Self {
        let tunnels = (!tunnels.is_empty()).then(|| {
            let guard = Guard::new(GuardLimits::default());
            Arc::new(TunnelsWithoutUsers::public(tunnels, guard)) as Arc<dyn TunnelRights>
        });
        Self {
            access: AccessPolicy::Open(store, tunnels),
            tls: None,
        }
    }

    /// The same users and files as at all doors, and the built-in paths too. `tunnels` are those
    /// without users; with users their rules have them. With users it may be a `relay`.
    ///
    /// # Errors
    /// The server's key can't be read.
    pub(crate) fn of(
        admit: Admit,
        tunnels: TunnelRules,
        relay: Option<Arc<Relay>>,
    ) -> Result<Self, Fault> {
        Ok(match admit {
            Admit::Open(store) => Self::open(Arc::new(ServerStore::from(store)), tunnels),
            Admit::Guarded(current) => Self {
                tls: Some(server_tls(Arc::clone(&current))?),
                access: AccessPolicy::Guarded(Arc::new(SecureGate::new(current, relay))),
            },
        })
    }
}

impl XdfsDoor {
    /// Listens on its addresses, or at `sockets` that listen already: then only on those of its own
    /// addresses that are of QUIC, which can't be handed over. Returns the addresses too, with
    /// their actual ports and stacks, and the acceptor, which has figures of its own.
    ///
    /// # Errors
    /// An address can't be bound, or may not be.
    pub(crate) fn open_at(
        &self,
        site: &Site,
        entrance: Entrance,
        sockets: Vec<ListeningSocket>,
    ) -> Result<(OpenDoor, Vec<Listen>, AcceptorControl), Fault> {
        let Entrance { access, tls } = entrance;
        let mut listeners = Vec::new();
        let mut listening = Vec::new();
        let mut listen = self.listen.clone();
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
            check_loopback(&listener.local_endpoint(), site)?;
            listening.push(address_of(&listener.local_endpoint()).into());
            listeners.push(listener);
        }
        for wanted in &listen {
            let stack = listening_stack(wanted, &self.drivers, tls.as_ref())?;
            for location in resolve(&wanted.address)? {
                let endpoint = endpoint(&stack, &location);
                check_loopback(&endpoint, site)?;
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
            sessions_max: site.sessions_max,
            memory_bytes_max: memory_bytes(self.memory_bytes_max),
            tunnels: tunnel_limits(&self.tunnels),
            limits: self.limits.clone(),
        };
        let (acceptor, control) = Acceptor::new(config)?;
        let door = OpenDoor {
            addresses: listening.iter().map(Listen::to_string).collect(),
            control: Arc::new(Control {
                control: control.clone(),
                settings: self.clone(),
            }),
            run: Box::new(move || acceptor.run()),
        };
        Ok((door, listening, control))
    }
}

impl Door for XdfsDoor {
    fn name(&self) -> &'static str {
        XDFS
    }

    fn title(&self) -> &'static str {
        "xDFS"
    }

    fn listens(&self) -> Vec<HostPort> {
        let host_port = |listen: &Listen| match &listen.address {
            Address::Host { host, port } => Some(HostPort {
                host: host.clone(),
                port: *port,
            }),
            _ => None,
        };
        self.listen.iter().filter_map(host_port).collect()
    }

    fn private(&self) -> Vec<&Path> {
        Vec::new()
    }

    fn check(&self, site: &Site, findings: &mut Findings) -> Vec<DoorAddress> {
        // Text is enough to know whether a stack can be built.
        let tls = site.has_users.then(Configs::default);
        let mut addresses = Vec::new();
        for (number, listen) in self.listen.iter().enumerate() {
            let stack = listening_stack(listen, &self.drivers, tls.as_ref());
            let Some(stack) = findings.note(LISTEN, number, stack) else {
                continue;
            };
            let locations = findings.note(LISTEN, number, resolve(&listen.address));
            for location in locations.unwrap_or_default() {
                let endpoint = endpoint(&stack, &location);
                findings.note(LISTEN, number, check_loopback(&endpoint, site));
                findings.note(LISTEN, number, check_folder(&endpoint));
                addresses.push(DoorAddress {
                    setting: LISTEN,
                    number,
                    shown: endpoint.to_string(),
                    at: listens_at(&endpoint),
                });
            }
        }
        addresses
    }

    fn open(&self, site: &Site, admit: Admit) -> Result<OpenDoor, Fault> {
        let tunnels = match &admit {
            Admit::Open(_) => self.tunnels.check(&BTreeMap::new())?,
            Admit::Guarded(_) => TunnelRules::default(),
        };
        let entrance = Entrance::of(admit, tunnels, None)?;
        let (door, ..) = self.open_at(site, entrance, Vec::new())?;
        Ok(door)
    }
}

/// Controls the acceptor.
#[derive(Debug)]
struct Control {
    control: AcceptorControl,
    /// The settings that it was opened with.
    settings: XdfsDoor,
}

impl DoorControl for Control {
    fn reload(&self, door: &dyn Door) -> Vec<&'static str> {
        let mut unchanged = Vec::new();
        if let Some(new) = door.downcast_ref::<XdfsDoor>() {
            let own = &self.settings;
            let compared = [
                (LISTEN, new.listen != own.listen),
                ("drivers", new.drivers.files() != own.drivers.files()),
                ("memory_max", new.memory_bytes_max != own.memory_bytes_max),
                (
                    "tunnel.idle_seconds",
                    new.tunnels.idle_seconds != own.tunnels.idle_seconds,
                ),
            ];
            let differs = compared.into_iter().filter(|(_, differs)| *differs);
            unchanged.extend(differs.map(|(setting, _)| setting));
        }
        unchanged
    }

    fn review(&self) -> Ended {
        Ended {
            sessions: self.control.review(),
            tunnels: self.control.review_tunnels(),
        }
    }

    fn tally(&self) -> Option<Arc<Tally>> {
        // It has more figures than those of any door.
        None
    }

    fn drain(&self, grace: Duration) {
        self.control.drain(grace);
    }
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

fn listens_at(endpoint: &Endpoint) -> ListensAt {
    let is_of_udp = matches!(endpoint.transport(), "quic" | "udp");
    match (endpoint.socket(), endpoint.path()) {
        (Some(address), _) if is_of_udp => ListensAt::Udp(address),
        (Some(address), _) => ListensAt::Tcp(address),
        (None, Some(path)) => ListensAt::Path(path.to_owned()),
        (None, None) => ListensAt::Process,
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

fn check_loopback(endpoint: &Endpoint, site: &Site) -> Result<(), Fault> {
    match endpoint.socket() {
        Some(address) if !site.may_listen_at(address.ip()) => Err(Fault::new(
            Code::InvalidArgument,
            format!("listen on {address}"),
            "it is not a loopback address, and peers are not authenticated",
        )
        .hint("listen on 127.0.0.1, [::1] or unix:PATH, or accept the risk with --insecure")),
        _ => Ok(()),
    }
}
