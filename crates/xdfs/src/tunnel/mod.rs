//! Tunnels: local ports whose connections travel through a server to targets beyond it.
//!
//! ```text
//! program --> local port -- Tunnel ==channels== server --> target
//! ```
//!
//! Each connection has a channel of its own. One thread serves all of them.

mod forward;
mod work;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::Identity;
use xdfs_engine::tunnel::{TunnelDial, TunnelStream, fault_of};
use xdfs_proto::frame::{TunnelPurpose, TunnelRequest};
use xdfs_proto::tunnel::Target;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_sys::poll::{Notifier, Poller, Token};
use xdfs_xio::{Endpoint, Listener, Registry, Stream as _};

pub use forward::Forward;
pub use xdfs_proto::tunnel::{Host, Target as TunnelTarget};

use crate::remote::{Address, RemotePlace};
use crate::security::{Credential, FirstUse, Level, SecureIdentity};
use crate::session::ClientOptions;
use crate::stack::{address_of, resolve, routes, stacks_for};
use work::Work;

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

/// Local ports whose connections travel through a server. They are closed, with all connections,
/// when this is dropped.
pub struct Tunnel {
    listening: Vec<(Address, Target)>,
    identity: Option<Arc<SecureIdentity>>,
    stop: Arc<AtomicBool>,
    notifier: Notifier,
    thread: Option<thread::JoinHandle<()>>,
}

impl Tunnel {
    /// Asks the server of `place` whether it would connect to all targets, and listens. `observer`
    /// is called in the thread of the tunnel, and must not block.
    ///
    /// # Errors
    /// The server can't be reached, refuses this user or a target ([`Code::PermissionDenied`]) or
    /// has no tunnels ([`Code::FeatureUnsupported`]); an address can't be listened on.
    pub fn open(
        place: &RemotePlace,
        options: ClientOptions,
        forwards: &[Forward],
        observer: impl FnMut(TunnelNews) + Send + 'static,
    ) -> Result<Self, Fault> {
        xdfs_sys::limit::raise_descriptor_limit();
        let limits = options.limits.clone();
        let (dial, identity, dials_max) = dial(place, options)?;
        for forward in forwards {
            check(&dial, &forward.target, limits.opening_timeout)?;
        }
        let io = |error: std::io::Error| Fault::from_io(LISTEN, "", &error);
        let mut poller = Poller::new().map_err(io)?;
        let mut listeners = Vec::new();
        let mut listening = Vec::new();
        for forward in forwards {
            for mut listener in listen(&forward.listen)? {
                let token = Token(listeners.len() * 4 + 3);
                listener.register(&mut poller, token).map_err(io)?;
                let address = address_of(&listener.local_endpoint());
                listening.push((address, forward.target.clone()));
                listeners.push((listener, forward.target.clone()));
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let notifier = poller.notifier();
        let work = Work::new(
            poller,
            dial,
            listeners,
            Box::new(observer),
            Arc::clone(&stop),
            (dials_max, limits.opening_timeout),
        );
        let thread = thread::Builder::new()
            .name("xdfs-tunnel".into())
            .spawn(move || work.run())
            .map_err(|e| Fault::from_io("start the thread of the tunnel", "", &e))?;
        Ok(Self {
            listening,
            identity,
            stop,
            notifier,
            thread: Some(thread),
        })
    }

    /// The addresses that it listens on, with their actual ports, and their targets.
    #[must_use]
    pub fn listening(&self) -> &[(Address, Target)] {
        &self.listening
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
            .field("listening", &self.listening)
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
            if security.level == Level::Clear {
                let cause = "tunnels are always encrypted";
                return Err(Fault::new(Code::InvalidArgument, "open the tunnel", cause)
                    .hint("leave out --protect clear"));
            }
            // A proof of two steps is one at a time.
            let is_password = |own: &Credential| matches!(own, Credential::Password(_));
            if security.credentials.iter().any(is_password) {
                dials_max = 1;
            }
            let user = place.user.as_deref();
            Some(Arc::new(SecureIdentity::new(security, address, user)?))
        }
        None => None,
    };
    let chosen = match &place.stack {
        Some(stack) => std::slice::from_ref(&**stack),
        None => &options.drivers.stacks,
    };
    let tls = identity.as_ref().map(|own| own.tls());
    let stacks = stacks_for(address, chosen, &options.drivers.registry, tls.as_ref())?;
    let own = identity.clone().map(|own| own as Arc<dyn Identity>);
    let dial = TunnelDial::new(routes(address, stacks)?, own, options.limits);
    Ok((dial, identity, dials_max))
}

/// Asks whether the server would connect to a target.
fn check(dial: &TunnelDial, target: &Target, timeout: Duration) -> Result<(), Fault> {
    let mut attempt = 0;
    loop {
        let request = TunnelRequest {
            purpose: TunnelPurpose::Check,
            target: target.to_string(),
            number: 0,
        };
        let asked = dial.open(request).map_err(fault_of);
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
fn wait_for(mut stream: TunnelStream, timeout: Duration) -> Result<(), Fault> {
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
    Ok(())
}

/// The fault of a server that doesn't answer.
fn late(peer: &str, timeout: Duration) -> Fault {
    let cause = format!("{peer} did not answer within {} s", timeout.as_secs_f32());
    Fault::new(Code::DeadlineExceeded, "open the tunnel", cause)
        .hint("is an xdfs server listening there?")
}

/// Listens at all addresses of a name.
fn listen(at: &Target) -> Result<Vec<Box<dyn Listener>>, Fault> {
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
    let fault = |cause: String| Fault::new(Code::InvalidArgument, LISTEN, cause);
    let spec = driver.parse();
    let spec = spec.map_err(|e: xdfs_xio::SpecError| fault(e.to_string()))?;
    let stack = Registry::standard().build(&spec);
    let stack = stack.map_err(|e| fault(e.to_string()))?;
    let listeners = resolve(&address)?.into_iter().map(|location| {
        let listener = stack.listen(&Endpoint::new(driver, location));
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
