//! Tunnels: local ports whose connections travel through a server to targets beyond it, and ports
//! at the server whose connections come to this side.
//!
//! ```text
//! program --> local port -- Tunnel ==channels== server --> target
//! target <-- Tunnel ==channels== server <-- port at the server <-- program
//! ```
//!
//! Each connection has a channel of its own, or a bundle of several. One thread serves all of them.

mod dialing;
mod forward;
mod remote;
mod work;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::Identity;
use xdfs_engine::tunnel::{CHANNELS_MAX, TunnelDial, TunnelStream, fault_of};
use xdfs_proto::frame::{TunnelPurpose, TunnelRequest};
use xdfs_proto::tunnel::Target;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_sys::poll::{Notifier, Poller, Token};
use xdfs_xio::{Endpoint, Listener, Stack, Stream as _};

pub use forward::Forward;
pub use xdfs_proto::tunnel::{Host, Target as TunnelTarget};

use crate::remote::{Address, RemotePlace};
use crate::scheme::StartedServer;
use crate::security::{Credential, FirstUse, Level, SecureIdentity};
use crate::session::{ClientOptions, start_server};
use crate::stack::{address_of, endpoint, resolve, routes_to};
use remote::Remote;
use work::{Manner, News, Work};

/// Channels that are opened at once.
const DIALS_MAX: usize = 64;
/// The operation of faults of local listeners.
const LISTEN: &str = "listen for the tunnel";

/// Something that happened to a tunnel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TunnelNews {
    /// A connection came, and leads to its target.
    Opened {
        /// The peer of this side.
        from: String,
        /// Where it goes.
        target: Target,
    },
    /// A connection came, and could not be led on. It was closed.
    Failed {
        /// The peer of this side.
        from: String,
        /// Where it was to go.
        target: Target,
        /// Why.
        fault: Fault,
    },
    /// The server doesn't listen any more, or refuses to do so again for another reason than told
    /// before. This side asks it until it does.
    Lost {
        /// Where the server was to listen.
        listen: Target,
        /// Why.
        fault: Fault,
    },
    /// The server listens again.
    Back {
        /// Where, as the server says.
        address: String,
    },
    /// A connection has ended.
    Closed {
        /// The peer of this side.
        from: String,
        /// Where it went.
        target: Target,
        /// Bytes sent to the target.
        sent: u64,
        /// Bytes received from it.
        received: u64,
        /// Why it ended before both of its sides did.
        fault: Option<Fault>,
    },
}

/// What leads where.
#[derive(Clone, Debug)]
pub struct TunnelPlan {
    /// This side listens, and the server connects to the targets.
    pub local: Vec<Forward>,
    /// The server listens, and this side connects to the targets.
    pub remote: Vec<Forward>,
    /// Channels of each connection, from 1 to 64. With several, the connection is faster on paths
    /// that lose packets, and survives the loss of channels.
    pub channels: u16,
}

/// A port of a tunnel.
#[derive(Clone, Debug)]
pub struct TunnelPort {
    /// The address, with the actual port, as text; that of a server as it says.
    pub address: String,
    /// Where its connections go.
    pub target: Target,
    /// The server listens there.
    pub at_server: bool,
}

/// Ports whose connections travel through a server. They are closed, with all connections, when
/// this is dropped.
pub struct Tunnel {
    ports: Vec<TunnelPort>,
    identity: Option<Arc<SecureIdentity>>,
    stop: Arc<AtomicBool>,
    notifier: Notifier,
    thread: Option<thread::JoinHandle<()>>,
    /// The server, if it was started: it runs as long as this value.
    _server: Option<Arc<dyn StartedServer>>,
}

impl Tunnel {
    /// Asks the server of `place` whether it would connect to all targets, has it listen, and
    /// listens. `observer` is called in a thread of its own; while it is slow, news may be dropped.
    ///
    /// # Errors
    /// The server can't be reached, refuses this user, a target or a port
    /// ([`Code::PermissionDenied`]) or has no tunnels ([`Code::FeatureUnsupported`]); an address
    /// can't be listened on, at this side or at the server; a name of this side can't be looked up.
    pub fn open(
        place: &RemotePlace,
        mut options: ClientOptions,
        plan: &TunnelPlan,
        observer: impl FnMut(TunnelNews) + Send + 'static,
    ) -> Result<Self, Fault> {
        xdfs_sys::limit::raise_descriptor_limit();
        if !(1..=CHANNELS_MAX).contains(&plan.channels) {
            let cause = format!("a connection has 1 to {CHANNELS_MAX} channels");
            return Err(Fault::new(Code::InvalidArgument, "open the tunnel", cause));
        }
        let server = start_server(place, &mut options)?;
        let timeout = options.limits.opening_timeout;
        let (dial, identity, dials_max) = dial(place, options)?;
        for forward in &plan.local {
            let request = TunnelRequest {
                purpose: TunnelPurpose::Check,
                target: forward.target.to_string(),
                number: 0,
                bundle: 0,
            };
            ask(&dial, &request, timeout)?;
        }
        let io = |error: std::io::Error| Fault::from_io(LISTEN, "", &error);
        let mut poller = Poller::new().map_err(io)?;
        let mut listeners = Vec::new();
        let mut ports = Vec::new();
        for forward in &plan.local {
            for mut listener in listen(&forward.listen)? {
                let token = Token(listeners.len() * 4 + 3);
                listener.register(&mut poller, token).map_err(io)?;
                ports.push(TunnelPort {
                    address: place_of(&address_of(&listener.local_endpoint())),
                    target: forward.target.clone(),
                    at_server: false,
                });
                listeners.push((listener, forward.target.clone()));
            }
        }
        let mut remotes = Vec::new();
        for forward in &plan.remote {
            let near = reach(&forward.target)?;
            let channel = ask(&dial, &remote::request(&forward.listen), timeout)?;
            ports.push(TunnelPort {
                address: channel.address().to_owned(),
                target: forward.target.clone(),
                at_server: true,
            });
            let ends = (forward.listen.clone(), forward.target.clone());
            remotes.push(Remote::new(ends, near, channel));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let notifier = poller.notifier();
        let manner = Manner {
            dial: Arc::new(dial),
            channels: plan.channels,
            dials_max,
            timeout,
        };
        let news = News::start(observer);
        let news = news.map_err(|e| Fault::from_io("start the thread of the tunnel", "", &e))?;
        let work = Work::new(poller, manner, listeners, remotes, news, Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("xdfs-tunnel".into())
            .spawn(move || work.run())
            .map_err(|e| Fault::from_io("start the thread of the tunnel", "", &e))?;
        Ok(Self {
            ports,
            identity,
            stop,
            notifier,
            thread: Some(thread),
            _server: server,
        })
    }

    /// Its ports, in the order of the plan.
    #[must_use]
    pub fn ports(&self) -> &[TunnelPort] {
        &self.ports
    }

    /// The server, if it was trusted for the first time.
    #[must_use]
    pub fn first_use(&self) -> Option<FirstUse> {
        self.identity.as_ref()?.first_use()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.notifier.notify(xdfs_sys::poll::Event {
            token: Token(usize::MAX - 1),
            readable: false,
            writable: false,
        });
        if let Some(thread) = self.thread.take() {
            // After a panic there is nothing left to wait for.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel")
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

/// How channels to the server of `place` are opened, and how many at once.
fn dial(
    place: &RemotePlace,
    options: ClientOptions,
) -> Result<(TunnelDial, Option<Arc<SecureIdentity>>, usize), Fault> {
    let address = options.via.as_ref().unwrap_or(&place.address);
    let mut dials_max = DIALS_MAX;
    let identity = match options.security {
        Some(security) => {
            if security.level != Level::Private {
                let cause = "tunnels are always encrypted";
                return Err(Fault::new(Code::InvalidArgument, "open the tunnel", cause)
                    .hint("leave out --protect"));
            }
            // A proof of two steps is one at a time.
            let is_password = |own: &Credential| matches!(own, Credential::Password(_));
            if security.credentials.iter().any(is_password) {
                dials_max = 1;
            }
            let user = place.user.as_deref();
            Some(Arc::new(SecureIdentity::new(
                security,
                &address.known_host(),
                user,
            )?))
        }
        None => None,
    };
    let tls = identity.as_ref().map(|own| own.tls());
    let routes = routes_to(place, address, &options.drivers, tls.as_ref())?;
    let own = identity.clone().map(|own| own as Arc<dyn Identity>);
    let dial = TunnelDial::new(routes, own, options.limits);
    Ok((dial, identity, dials_max))
}

/// Asks something of the server.
fn ask(
    dial: &TunnelDial,
    request: &TunnelRequest,
    timeout: Duration,
) -> Result<TunnelStream, Fault> {
    let mut attempt = 0;
    loop {
        let asked = dial.open(request.clone()).map_err(fault_of);
        match asked.and_then(|stream| wait_for(stream, timeout)) {
            Err(fault) if may_go_on(dial, &fault, attempt) => attempt += 1,
            result => return result,
        }
    }
}

/// Whether another attempt makes sense, by another route if this one doesn't lead to the server.
fn may_go_on(dial: &TunnelDial, fault: &Fault, attempt: usize) -> bool {
    if fault.retry == Retry::Now && attempt == 0 {
        return true;
    }
    let is_own = fault.side == xdfs_proto::Side::Local;
    let is_unreached = matches!(fault.code, Code::ConnectionRefused | Code::DeadlineExceeded);
    let may = is_own && is_unreached && attempt + 1 < dial.routes();
    if may {
        dial.next_route();
    }
    may
}

/// Waits until a channel is open.
fn wait_for(mut stream: TunnelStream, timeout: Duration) -> Result<TunnelStream, Fault> {
    let io = |error: std::io::Error| Fault::from_io("wait for the server", "", &error);
    let mut poller = Poller::new().map_err(io)?;
    stream.register(&mut poller, Token(0)).map_err(io)?;
    let deadline = Instant::now() + timeout;
    let mut events = Vec::new();
    while !stream.finish_open().map_err(fault_of)? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(&stream.peer(), timeout));
        }
        events.clear();
        poller.wait(&mut events, Some(left)).map_err(io)?;
    }
    stream.deregister(&mut poller).map_err(io)?;
    Ok(stream)
}

/// The fault of a server that doesn't answer.
fn late(peer: &str, timeout: Duration) -> Fault {
    let cause = format!("{peer} did not answer within {} s", timeout.as_secs_f32());
    Fault::new(Code::DeadlineExceeded, "open the tunnel", cause)
        .hint("is an xdfs server listening there?")
}

/// The stack for a target on this machine, and its address.
fn stack_of(at: &Target) -> Result<(Stack, Address), Fault> {
    let (driver, address) = match at {
        Target::Host { host, port } => {
            let host = match host {
                Host::Address(address) => address.to_string(),
                Host::Name(name) => name.clone(),
            };
            ("tcp", Address::Host { host, port: *port })
        }
        Target::Unix(path) => ("unix", Address::Unix(path.into())),
    };
    let stack = Stack::parse(driver);
    let fault = |cause: String| Fault::new(Code::InvalidArgument, LISTEN, cause);
    Ok((stack.map_err(|e| fault(e.to_string()))?, address))
}

/// How this side connects to a target; its addresses are tried from the end.
fn reach(target: &Target) -> Result<(Stack, Vec<Endpoint>), Fault> {
    let (stack, address) = stack_of(target)?;
    let locations = resolve(&address)?;
    let endpoints = locations.iter().rev().map(|at| endpoint(&stack, at));
    let endpoints = endpoints.collect();
    Ok((stack, endpoints))
}

/// An address as text.
fn place_of(address: &Address) -> String {
    match address {
        Address::Host { host, port } if host.contains(':') => format!("[{host}]:{port}"),
        Address::Host { host, port } => format!("{host}:{port}"),
        other => other.to_string(),
    }
}

/// Listens at all addresses of a name.
fn listen(at: &Target) -> Result<Vec<Box<dyn Listener>>, Fault> {
    let (stack, address) = stack_of(at)?;
    let listeners = resolve(&address)?.into_iter().map(|location| {
        let listener = stack.listen(&endpoint(&stack, &location));
        listener.map_err(|e| {
            let fault = Fault::from_io(LISTEN, at.to_string(), &e);
            match e.kind() {
                std::io::ErrorKind::AddrInUse => fault.hint("choose another port, or 0 for any"),
                _ => fault,
            }
        })
    });
    listeners.collect()
}
