//! The thread of the service: looks targets up, connects to them, and moves the bytes.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use xdfs_proto::frame::TunnelPurpose;
use xdfs_proto::tunnel::{Host, Target};
use xdfs_proto::{Code, Fault};
use xdfs_sys::poll::{Event, Poller};
use xdfs_xio::{Endpoint, Listener, Registry, Stack, Stream};

use super::OPEN_TUNNEL;
use super::link::{Bundle, BundleStage};
use super::passive::Listening;
use super::relay::Relays;
use super::resolver::{Resolved, Resolver};
use super::service::{Job, Opening, action_of, token};
use crate::acceptor::host_of;
use crate::command::WAKE;
use crate::environment::{Environment, Task, Turn};

/// Maximum time to look a target up and to connect to it, over all of its addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to connect to one address while there are others.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);
/// Names of one peer's host that are looked up at once: half of the resolver's threads.
const LOOKUPS_MAX: usize = 2;
/// Interval between checks of these.
const TICK: Duration = Duration::from_millis(200);

pub(super) enum Stage {
    /// Its name is looked up.
    Resolving,
    /// The first of the addresses is tried.
    Connecting {
        stream: Box<dyn Stream>,
        address: Option<IpAddr>,
        since: Instant,
        others: Vec<IpAddr>,
    },
}

/// The transports of targets.
pub(super) struct Stacks {
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
    pub(super) fn listen(
        &self,
        target: &Target,
        address: Option<IpAddr>,
    ) -> io::Result<Box<dyn Listener>> {
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

/// The names that the peers of one host want to be looked up: a name server that is silent, or
/// one that a peer has made so, must not stop those of others.
#[derive(Default)]
struct Lookups {
    running: Vec<u64>,
    waiting: VecDeque<(u64, String)>,
}

/// State of the thread.
pub(super) struct Loop {
    pub(super) environment: Arc<dyn Environment>,
    pub(super) poller: Poller,
    events: Vec<Event>,
    jobs: mpsc::Receiver<Job>,
    resolver: Resolver,
    resolved: mpsc::Receiver<Resolved>,
    /// By the hosts of the peers.
    lookups: HashMap<String, Lookups>,
    pub(super) stacks: Stacks,
    pub(super) relays: Relays,
    /// By the keys of their places; the token of a stream is four times that plus 2, of a listener
    /// plus 3.
    pub(super) openings: HashMap<u64, Opening>,
    pub(super) listening: HashMap<u64, Listening>,
    pub(super) bundles: HashMap<u64, Bundle>,
    /// The keys of connections over bundles that have ended.
    pub(super) ended: (mpsc::Sender<u64>, mpsc::Receiver<u64>),
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
            resolver: Resolver::start(&**environment, &results, &poller.notifier())?,
            stacks: Stacks::new()?,
            relays: Relays::new(idle_timeout, environment.now()),
            environment: Arc::clone(environment),
            poller,
            events: Vec::new(),
            jobs,
            resolved,
            lookups: HashMap::new(),
            openings: HashMap::new(),
            listening: HashMap::new(),
            bundles: HashMap::new(),
            ended: mpsc::channel(),
            ticked_at: environment.now(),
            drain_at: None,
            has_failed: false,
        })
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
                    self.end_all_listening();
                }
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => {
                    is_over = true;
                    break;
                }
            }
        }
        if is_over || self.drain_at.is_some_and(|at| at <= now) {
            self.relays
                .end_where(&mut self.poller, ErrorKind::ConnectionAborted, |_| true);
            self.end_all_listening();
            self.end_bundles(|_| true, Code::ShuttingDown);
            for (_, opening) in self.openings.drain() {
                let cause = "the server is shutting down";
                opening.refuse(Fault::new(Code::ShuttingDown, OPEN_TUNNEL, cause));
            }
            if is_over {
                return Turn::Ended;
            }
        }
        while let Ok((key, found)) = self.resolved.try_recv() {
            self.look_up_next(key);
            self.looked_up(key, found);
        }
        if now - self.ticked_at >= TICK {
            self.ticked_at = now;
            self.check_deadlines(now);
            self.tick_listening();
        }
        let wait = self.relays.turn(&mut self.poller, now);
        while let Ok(key) = self.ended.1.try_recv() {
            self.bundles.remove(&key);
        }
        let waits = |bundle: &Bundle| matches!(bundle.stage, BundleStage::Begins { .. });
        let ticks = !self.openings.is_empty()
            || !self.listening.is_empty()
            || self.bundles.values().any(waits);
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
                2 if self.listening.contains_key(&key) => self.advance_listening(key),
                2 => self.connected(key),
                3 if self.bundles.contains_key(&key) => self.begun(key),
                3 => self.has_connections(key),
                _ => self.relays.event(&event),
            }
        }
        self.events = events;
        has_come
    }
}

impl Loop {
    /// Begins to look a target up, or to connect to it.
    fn begin(&mut self, opening: Opening) {
        let key = opening.place.key;
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
                    self.lookups
                        .entry(host.clone())
                        .or_default()
                        .waiting
                        .push_back((key, name));
                    self.look_up(&host);
                }
            },
        }
    }

    /// Hands names of a peer's host to the resolver, as many as are its share.
    fn look_up(&mut self, host: &str) {
        let mut failed = Vec::new();
        if let Some(lookups) = self.lookups.get_mut(host) {
            while lookups.running.len() < LOOKUPS_MAX
                && let Some((key, name)) = lookups.waiting.pop_front()
            {
                // Nobody waits for it any more.
                if !self.openings.contains_key(&key) {
                    continue;
                }
                match self.resolver.resolve(key, name) {
                    Ok(()) => lookups.running.push(key),
                    Err(error) => failed.push((key, error)),
                }
            }
            if lookups.running.is_empty() && lookups.waiting.is_empty() {
                self.lookups.remove(host);
            }
        }
        for (key, error) in failed {
            self.looked_up(key, Err(error));
        }
    }

    /// The resolver is done with a name: there is room for another one.
    fn look_up_next(&mut self, key: u64) {
        let is_own = |(_, lookups): &(&String, &mut Lookups)| lookups.running.contains(&key);
        if let Some((host, lookups)) = self.lookups.iter_mut().find(is_own) {
            lookups.running.retain(|running| *running != key);
            let host = host.clone();
            self.look_up(&host);
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
                let action = action_of(channel.request.purpose);
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
        self.lead(opening, stream, address);
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
        self.relays
            .end_where(&mut self.poller, ErrorKind::PermissionDenied, |key| {
                keys.contains(&key)
            });
        self.end_bundles(|key| keys.contains(&key), Code::PermissionDenied);
        for key in keys {
            self.end_listening(*key, Some(Code::PermissionDenied));
            if let Some(opening) = self.openings.get(key) {
                let fault = opening.channel.forbidden();
                self.fail(*key, fault);
            }
        }
    }

    fn check_deadlines(&mut self, now: Instant) {
        let openings = &self.openings;
        for lookups in self.lookups.values_mut() {
            lookups
                .waiting
                .retain(|(key, _)| openings.contains_key(key));
        }
        let late: Vec<u64> = self
            .bundles
            .iter()
            .filter(|(_, bundle)| match &bundle.stage {
                BundleStage::Begins { link, .. } => now - link.since >= CONNECT_TIMEOUT,
                BundleStage::Stands => false,
            })
            .map(|(key, _)| *key)
            .collect();
        self.end_bundles(|key| late.contains(&key), Code::DeadlineExceeded);
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
pub(super) fn connect_fault(target: &str, error: &io::Error) -> Fault {
    match error.kind() {
        ErrorKind::TimedOut => {
            let cause = format!("it did not answer within {} s", CONNECT_TIMEOUT.as_secs());
            Fault::new(Code::DeadlineExceeded, "connect to the target", cause).path(target)
        }
        _ => Fault::from_io("connect to the target", target, error).hint(""),
    }
}
