//! The thread of the service: looks targets up, connects to them, and moves the bytes.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use xdfs_proto::frame::TunnelPurpose;
use xdfs_proto::tunnel::{Host, Target};
use xdfs_proto::{Code, Fault};
use xdfs_sys::poll::{Event, Notifier, Poller};
use xdfs_xio::{Endpoint, Listener, Registry, Stack, Stream};

use super::OPEN_TUNNEL;
use super::links::Links;
use super::listeners::Listeners;
use super::opening::{Opening, Stage};
use super::request::token;
use super::resolver::{Lookups, Resolved};
use crate::command::WAKE;
use crate::environment::{Environment, Task, Turn};
use crate::security::host_of;

/// Maximum time to look a target up and to connect to it, over all of its addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to connect to one address while there are others.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval between checks of these.
const TICK: Duration = Duration::from_millis(200);

/// Work for the thread.
pub(super) enum Job {
    Open(Box<Opening>),
    /// Ends tunnels that the settings don't allow any more.
    End(Vec<u64>),
    Drain(Duration),
}

/// The transports of targets.
struct Stacks {
    tcp: Stack,
    #[cfg(unix)]
    unix: Stack,
}

impl Stacks {
    fn new() -> io::Result<Self> {
        let build = |name: &str| {
            let spec = name.parse().map_err(io::Error::other)?;
            Registry::standard().build(&spec).map_err(io::Error::other)
        };
        Ok(Self {
            tcp: build("tcp")?,
            #[cfg(unix)]
            unix: build("unix")?,
        })
    }

    /// Listens.
    fn listen(&self, target: &Target, address: Option<IpAddr>) -> io::Result<Box<dyn Listener>> {
        match (target, address) {
            (Target::Host { port, .. }, Some(address)) => self
                .tcp
                .listen(&Endpoint::tcp(SocketAddr::new(address, *port))),
            #[cfg(unix)]
            (Target::Unix(path), _) => self.unix.listen(&Endpoint::unix(path)),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Starts to connect.
    fn open(&self, target: &Target, address: Option<IpAddr>) -> io::Result<Box<dyn Stream>> {
        match (target, address) {
            (Target::Host { port, .. }, Some(address)) => self
                .tcp
                .open(&Endpoint::tcp(SocketAddr::new(address, *port))),
            #[cfg(unix)]
            (Target::Unix(path), _) => self.unix.open(&Endpoint::unix(path)),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }
}

/// State of the thread.
pub(super) struct Loop {
    environment: Arc<dyn Environment>,
    poller: Poller,
    events: Vec<Event>,
    jobs: mpsc::Receiver<Job>,
    lookups: Lookups,
    resolved: mpsc::Receiver<Resolved>,
    stacks: Stacks,
    /// By the keys of their places; the token of a stream is four times that plus 2, of a listener
    /// plus 3.
    openings: HashMap<u64, Opening>,
    listeners: Listeners,
    links: Links,
    ticked_at: Instant,
    drain_at: Option<Instant>,
    /// Waiting for events has failed: all tunnels end, and the next one gets another thread.
    has_failed: bool,
}

impl Loop {
    /// Works at `jobs`.
    pub(super) fn new(
        environment: &Arc<dyn Environment>,
        jobs: mpsc::Receiver<Job>,
        idle_timeout: Duration,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let (results, resolved) = mpsc::channel();
        Ok(Self {
            lookups: Lookups::start(&**environment, &results, &poller.notifier())?,
            resolved,
            stacks: Stacks::new()?,
            openings: HashMap::new(),
            listeners: Listeners::new(Arc::clone(environment)),
            links: Links::new(Arc::clone(environment), idle_timeout),
            environment: Arc::clone(environment),
            poller,
            events: Vec::new(),
            jobs,
            ticked_at: environment.now(),
            drain_at: None,
            has_failed: false,
        })
    }

    /// Wakes it when there are jobs.
    pub(super) fn notifier(&self) -> Notifier {
        self.poller.notifier()
    }
}

impl Task for Loop {
    fn turn(&mut self) -> Turn {
        let now = self.environment.now();
        let mut is_over = self.has_failed;
        loop {
            match self.jobs.try_recv() {
                Ok(Job::Open(opening)) => self.begin(*opening),
                Ok(Job::End(keys)) => self.end(&keys),
                Ok(Job::Drain(grace)) => {
                    self.drain_at = Some(now + grace);
                    self.listeners.end_all(&mut self.poller, Code::ShuttingDown);
                }
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => {
                    is_over = true;
                    break;
                }
            }
        }
        if is_over || self.drain_at.is_some_and(|at| at <= now) {
            self.links
                .end_where(&mut self.poller, ErrorKind::ConnectionAborted, |_| true);
            self.listeners.end_all(&mut self.poller, Code::ShuttingDown);
            for (_, opening) in self.openings.drain() {
                let cause = "the server is shutting down";
                opening.refuse(Fault::new(Code::ShuttingDown, OPEN_TUNNEL, cause));
            }
            if is_over {
                return Turn::Ended;
            }
        }
        while let Ok((key, found)) = self.resolved.try_recv() {
            let failed = self
                .lookups
                .done(key, |key| self.openings.contains_key(&key));
            self.looked_up(key, found);
            self.not_looked_up(failed);
        }
        if now - self.ticked_at >= TICK {
            self.ticked_at = now;
            self.check_deadlines(now);
            self.links.check_deadlines(now);
            self.listeners.tick(&mut self.poller);
        }
        let wait = self.links.turn(&mut self.poller, now);
        let ticks = !self.openings.is_empty() || !self.listeners.is_empty() || self.links.begins();
        let tick = ticks.then_some(TICK);
        let drain = self.drain_at.map(|at| at.saturating_duration_since(now));
        let drain = drain.filter(|wait| !wait.is_zero());
        Turn::Wait(wait.into_iter().chain(tick).chain(drain).min())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let mut events = std::mem::take(&mut self.events);
        if let Err(error) = self.poller.wait(&mut events, timeout) {
            tracing::error!(%error, "the thread of tunnels can't wait for events");
            self.has_failed = true;
        }
        let has_come = !events.is_empty();
        for event in events.drain(..) {
            if event.token == WAKE {
                continue;
            }
            let key = (event.token.0 / 4) as u64;
            match event.token.0 % 4 {
                2 if self.listeners.has(key) => self.listeners.advance(&mut self.poller, key),
                2 => self.connected(key),
                3 if self.links.has_bundle(key) => self.links.begun(&mut self.poller, key),
                3 => self.listeners.has_connections(&mut self.poller, key),
                _ => self.links.event(&event),
            }
        }
        self.events = events;
        has_come
    }
}

impl Loop {
    /// Begins to look a target up, or to connect to it.
    fn begin(&mut self, opening: Opening) {
        let key = opening.place.key();
        if self.drain_at.is_some() {
            let cause = "the server is shutting down";
            return opening.refuse(Fault::new(Code::ShuttingDown, OPEN_TUNNEL, cause));
        }
        if opening.channel.request.purpose == TunnelPurpose::Take {
            return self.take(opening);
        }
        let target = opening.target.clone();
        self.openings.insert(key, opening);
        match target {
            Target::Unix(_) => self.reach(key, None, Vec::new()),
            Target::Host { host, .. } => match host {
                Host::Address(address) => self.reach(key, Some(address), Vec::new()),
                Host::Name(name) => {
                    let peer = self.openings.get(&key).map(|o| o.channel.stream.peer());
                    let host = host_of(&peer.unwrap_or_default());
                    let is_wanted = |key| self.openings.contains_key(&key);
                    let failed = self.lookups.add(host, (key, name), is_wanted);
                    self.not_looked_up(failed);
                }
            },
        }
    }

    /// Gives an announced connection to the channel that asks for it.
    fn take(&mut self, opening: Opening) {
        let request = &opening.channel.request;
        let Some((stream, listener, address)) = self.listeners.take(request) else {
            let cause = "no such connection waits; it may have been given up";
            let fault = Fault::new(Code::NotFound, OPEN_TUNNEL, cause).path(&request.target);
            return opening.refuse(fault);
        };
        self.links.lead(&mut self.poller, opening, stream, address);
        // There is room for another one.
        self.listeners.advance(&mut self.poller, listener);
    }

    fn not_looked_up(&mut self, failed: Vec<(u64, io::Error)>) {
        for (key, error) in failed {
            self.looked_up(key, Err(error));
        }
    }

    /// Takes the addresses of a name, as far as they are allowed.
    fn looked_up(&mut self, key: u64, found: io::Result<Vec<IpAddr>>) {
        let Some(opening) = self.openings.get(&key) else {
            return;
        };
        let (channel, target) = (&opening.channel, &opening.target);
        let name = &channel.request.target;
        let fault = match found {
            Ok(addresses) if !addresses.is_empty() => {
                let action = channel.action();
                let allowed = |address: &IpAddr| channel.rights.allows(action, target, *address);
                let mut allowed: Vec<IpAddr> = addresses.into_iter().filter(allowed).collect();
                if !allowed.is_empty() {
                    // Taken from the end.
                    allowed.reverse();
                    let first = allowed.pop();
                    return self.reach(key, first, allowed);
                }
                channel.forbidden()
            }
            // An answer that is the same whether the name exists tells less, and also helps less.
            Ok(_) => unreached(name, "the name has no address"),
            Err(error) => unreached(name, &format!("the name can't be looked up: {error}")),
        };
        self.fail(key, fault);
    }

    /// Connects to the target, or listens there.
    fn reach(&mut self, key: u64, first: Option<IpAddr>, others: Vec<IpAddr>) {
        match self.openings.get(&key).map(|o| o.channel.request.purpose) {
            Some(TunnelPurpose::Listen) => self.listen(key, first, others),
            _ => self.connect(key, first, others),
        }
    }

    /// Listens at an address of the target, or if that fails at the last of the others.
    fn listen(&mut self, key: u64, first: Option<IpAddr>, mut others: Vec<IpAddr>) {
        let Some(opening) = self.openings.remove(&key) else {
            return;
        };
        let mut address = first;
        let opened = loop {
            let opened = self.stacks.listen(&opening.target, address);
            match (opened, others.pop()) {
                (Err(_), Some(next)) => address = Some(next),
                (opened, _) => break opened,
            }
        };
        let opened = opened.and_then(|mut listener| {
            listener.register(&mut self.poller, token(key, 3))?;
            Ok(listener)
        });
        match opened {
            Ok(listener) => self
                .listeners
                .add(&mut self.poller, opening, listener, address),
            Err(error) => {
                let target = &opening.channel.request.target;
                let hint = match error.kind() {
                    ErrorKind::AddrInUse => "choose another port, or 0 for any",
                    _ => "",
                };
                let fault = Fault::from_io("listen for the tunnel", target, &error);
                opening.refuse(fault.hint(hint));
            }
        }
    }

    /// Connects to an address, and if that fails to the last of the others.
    fn connect(&mut self, key: u64, first: Option<IpAddr>, mut others: Vec<IpAddr>) {
        let Some(opening) = self.openings.get_mut(&key) else {
            return;
        };
        let mut address = first;
        loop {
            let opened = self
                .stacks
                .open(&opening.target, address)
                .and_then(|mut stream| {
                    stream.register(&mut self.poller, token(key, 2))?;
                    Ok(stream)
                });
            match opened {
                Ok(stream) => {
                    opening.stage = Stage::Connecting {
                        stream,
                        address,
                        since: self.environment.now(),
                        others,
                    };
                    return self.connected(key);
                }
                Err(error) => {
                    address = others.pop();
                    if address.is_none() {
                        let fault = connect_fault(&opening.channel.request.target, &error);
                        return self.fail(key, fault);
                    }
                }
            }
        }
    }

    /// Goes on with a connection that may be established.
    fn connected(&mut self, key: u64) {
        let Some(opening) = self.openings.get_mut(&key) else {
            return;
        };
        let Stage::Connecting { stream, .. } = &mut opening.stage else {
            return;
        };
        match stream.finish_open() {
            Ok(false) => {}
            Ok(true) => {
                if let Some(opening) = self.openings.remove(&key) {
                    self.established(opening);
                }
            }
            Err(error) => self.next_address(key, &error),
        }
    }

    fn next_address(&mut self, key: u64, error: &io::Error) {
        let Some(opening) = self.openings.get_mut(&key) else {
            return;
        };
        let mut left = Vec::new();
        if let Stage::Connecting { stream, others, .. } = &mut opening.stage {
            // It is dropped next.
            let _ = stream.deregister(&mut self.poller);
            left = std::mem::take(others);
        }
        match left.pop() {
            Some(next) => self.connect(key, Some(next), left),
            None => {
                let fault = connect_fault(&opening.channel.request.target, error);
                self.fail(key, fault);
            }
        }
    }

    /// The target has answered.
    fn established(&mut self, mut opening: Opening) {
        let stage = std::mem::replace(&mut opening.stage, Stage::Resolving);
        let Stage::Connecting {
            mut stream,
            address,
            ..
        } = stage
        else {
            return;
        };
        // It is registered anew next.
        let _ = stream.deregister(&mut self.poller);
        self.links.lead(&mut self.poller, opening, stream, address);
    }

    fn fail(&mut self, key: u64, fault: Fault) {
        if let Some(mut opening) = self.openings.remove(&key) {
            if let Stage::Connecting { stream, .. } = &mut opening.stage {
                // It is dropped next.
                let _ = stream.deregister(&mut self.poller);
            }
            opening.refuse(fault);
        }
    }

    fn end(&mut self, keys: &[u64]) {
        let is_ended = |key| keys.contains(&key);
        self.links
            .end_where(&mut self.poller, ErrorKind::PermissionDenied, is_ended);
        for key in keys {
            self.listeners
                .end(&mut self.poller, *key, Some(Code::PermissionDenied));
            if let Some(opening) = self.openings.get(key) {
                let fault = opening.channel.forbidden();
                self.fail(*key, fault);
            }
        }
    }

    fn check_deadlines(&mut self, now: Instant) {
        self.lookups.retain(|key| self.openings.contains_key(&key));
        let is_late = |opening: &Opening| now - opening.since >= CONNECT_TIMEOUT;
        let is_slow = |opening: &Opening| match &opening.stage {
            Stage::Connecting { since, others, .. } => {
                !others.is_empty() && now - *since >= ADDRESS_TIMEOUT
            }
            Stage::Resolving => false,
        };
        let due = self
            .openings
            .iter()
            .filter(|(_, o)| is_late(o) || is_slow(o));
        let due: Vec<(u64, bool)> = due.map(|(key, o)| (*key, is_late(o))).collect();
        for (key, is_late) in due {
            let error = io::Error::from(ErrorKind::TimedOut);
            if !is_late {
                self.next_address(key, &error);
            } else if let Some(opening) = self.openings.get(&key) {
                let fault = connect_fault(&opening.channel.request.target, &error);
                self.fail(key, fault);
            }
        }
    }
}

fn unreached(target: &str, cause: &str) -> Fault {
    Fault::new(Code::ConnectionRefused, "connect to the target", cause).path(target)
}

/// The fault of a target that doesn't answer.
fn connect_fault(target: &str, error: &io::Error) -> Fault {
    match error.kind() {
        ErrorKind::TimedOut => {
            let cause = format!("it did not answer within {} s", CONNECT_TIMEOUT.as_secs());
            Fault::new(Code::DeadlineExceeded, "connect to the target", cause).path(target)
        }
        _ => Fault::from_io("connect to the target", target, error).hint(""),
    }
}
