//! The acceptor's side: one thread connects and serves all tunnels of a server.
//!
//! It starts with the first tunnel. A request comes with its channel from the acceptor, which has
//! authenticated the peer. Here its target is looked up, each address is checked by itself, and the
//! first that answers is paired with the channel. A request to listen keeps its channel for
//! announcements; the peer takes each announced connection by a channel of its own, in time.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use xdfs_proto::frame::{Exception, Frame, Scope, TunnelAccept, TunnelPurpose, TunnelRequest};
use xdfs_proto::tunnel::{Action, Host, Target};
use xdfs_proto::{Code, Fault, Retry};
use xdfs_store::rate::SharedRate;
use xdfs_sys::poll::{Event, Notifier, Poller, Token};
use xdfs_xio::{Endpoint, Listener, Registry, Stack, Stream};

use super::bundle::Arrivals;
use super::dial::TunnelStream;
use super::passive::Listening;
use super::relay::{RelayEnd, Relays};
use super::resolver::{Resolved, Resolver};
use super::{OPEN_TUNNEL, TunnelEvent, TunnelLimits, TunnelOutcome, TunnelRights, forbidden};
use crate::command::WAKE;
use crate::environment::{self, Environment, Task, Turn};
use crate::security::{PeerGuard, Standing};

/// Maximum time to look a target up and to connect to it, over all of its addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to connect to one address while there are others.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);
/// Time in which the last bytes of a bundle may need other channels.
const LAST_BYTES: Duration = Duration::from_secs(30);
/// Bundles at once: each may hold some megabytes.
const BUNDLES_MAX: usize = 256;
/// Interval between checks of these.
const TICK: Duration = Duration::from_millis(200);

/// A channel whose peer asks for a tunnel.
pub(crate) struct HandedOver {
    pub(crate) stream: Box<dyn Stream>,
    /// Bytes read behind TUNNEL.
    pub(crate) input: Vec<u8>,
    /// Bytes of the opening exchange that aren't sent yet.
    pub(crate) output: Vec<u8>,
    pub(crate) rights: Arc<dyn TunnelRights>,
    pub(crate) standing: Option<Arc<dyn Standing>>,
    pub(crate) rate: Option<Arc<SharedRate>>,
    pub(crate) request: TunnelRequest,
}

impl HandedOver {
    /// Sends the reason to the peer and closes the channel.
    pub(super) fn refuse(self, fault: Fault) {
        refuse(self.stream, self.output, fault);
    }

    fn close(self) {
        close(self.stream, self.output);
    }

    pub(super) fn forbidden(&self) -> Fault {
        forbidden(action_of(self.request.purpose), &self.request.target)
    }

    /// Whether the settings, which may have changed since they were asked, still allow it.
    pub(super) fn is_allowed(
        &self,
        action: Action,
        target: &Target,
        address: Option<IpAddr>,
    ) -> bool {
        let standing = self.standing.as_ref();
        standing.is_none_or(|standing| standing.is_valid())
            && match address {
                Some(address) => self.rights.allows(action, target, address),
                None => self.rights.may_allow(action, target),
            }
    }

    pub(super) fn record(&self, outcome: TunnelOutcome) {
        self.rights.record(&TunnelEvent {
            action: action_of(self.request.purpose),
            target: &self.request.target,
            outcome,
        });
    }
}

/// All tunnels of an acceptor. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Tunnels(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    environment: Arc<dyn Environment>,
    limits: TunnelLimits,
    service: Mutex<Option<Service>>,
    live: Mutex<HashMap<u64, Live>>,
    /// Where channels join bundles, by the numbers of these, with their targets.
    bundles: Mutex<HashMap<u64, (Arrivals, String)>>,
    next_key: AtomicU64,
}

/// The running thread.
#[derive(Debug)]
struct Service {
    jobs: mpsc::Sender<Job>,
    notifier: Notifier,
}

/// What a tunnel rests on, to be asked again after a change of the settings.
#[derive(Clone, Debug)]
struct Live {
    rights: Arc<dyn TunnelRights>,
    standing: Option<Arc<dyn Standing>>,
    action: Action,
    target: Target,
    /// Where it leads, once it does.
    address: Option<IpAddr>,
}

impl Live {
    fn is_allowed(&self) -> bool {
        let is_valid = self
            .standing
            .as_ref()
            .is_none_or(|standing| standing.is_valid());
        is_valid
            && match self.address {
                Some(address) => self.rights.allows(self.action, &self.target, address),
                None => self.rights.may_allow(self.action, &self.target),
            }
    }
}

/// The place of a tunnel among all of them, given back when this is dropped.
pub(super) struct Place {
    shared: Arc<Shared>,
    key: u64,
    _guard: PeerGuard,
}

impl Place {
    /// The tunnel leads to this address, or listens there.
    pub(super) fn lead_to(&self, address: Option<IpAddr>) {
        if let Some(live) = self.shared.lock_live().get_mut(&self.key) {
            live.address = address;
        }
    }
}

/// The name of a bundle, which channels can join while this lives.
struct BundleName {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for BundleName {
    fn drop(&mut self) {
        self.shared.lock_bundles().remove(&self.number);
    }
}

/// A bundle of channels.
struct Bundle {
    listener: Box<dyn Listener>,
    _name: BundleName,
    stage: BundleStage,
}

enum BundleStage {
    /// The first channel hasn't begun it yet.
    Begins { stream: Box<dyn Stream>, link: Link },
    /// It leads to its target.
    Stands,
    /// It has ended. Until then its last bytes may need other channels.
    Ends(Instant),
}

/// What a connection that leads to its target rests on.
struct Link {
    rights: Arc<dyn TunnelRights>,
    rate: Option<Arc<SharedRate>>,
    request: TunnelRequest,
    place: Place,
    since: Instant,
}

impl Link {
    /// Records its end.
    fn close(self, [to_peer, from_peer]: [u64; 2], now: Instant, result: Option<Code>) {
        self.rights.record(&TunnelEvent {
            action: action_of(self.request.purpose),
            target: &self.request.target,
            outcome: TunnelOutcome::Closed {
                to_peer,
                from_peer,
                elapsed: now.saturating_duration_since(self.since),
                result,
            },
        });
        drop(self.place);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.lock_live().remove(&self.key);
    }
}

enum Job {
    Open(Box<Opening>),
    End(Vec<u64>),
    Drain(Duration),
}

/// A tunnel that isn't connected yet.
pub(super) struct Opening {
    pub(super) channel: HandedOver,
    pub(super) target: Target,
    pub(super) place: Place,
    since: Instant,
    stage: Stage,
}

enum Stage {
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

impl Shared {
    fn lock_live(&self) -> MutexGuard<'_, HashMap<u64, Live>> {
        // A panic elsewhere leaves the table consistent: each change is one insert or remove.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_bundles(&self) -> MutexGuard<'_, HashMap<u64, (Arrivals, String)>> {
        // As above.
        self.bundles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next tunnel start another thread: this one has ended.
    fn forget_service(&self) {
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        *service = None;
    }

    fn send(&self, job: Job) -> Result<(), Job> {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(service) = &*service else {
            return Err(job);
        };
        service.jobs.send(job).map_err(|mpsc::SendError(job)| job)?;
        environment::wake(&service.notifier);
        Ok(())
    }
}

impl Tunnels {
    /// None yet.
    pub(crate) fn new(environment: Arc<dyn Environment>, limits: TunnelLimits) -> Self {
        Self(Arc::new(Shared {
            environment,
            limits,
            service: Mutex::default(),
            live: Mutex::default(),
            bundles: Mutex::default(),
            next_key: AtomicU64::new(0),
        }))
    }

    /// Whether there are no tunnels.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock_live().is_empty()
    }

    /// Takes a channel over, or refuses it. The answer to the peer is sent in any case.
    pub(crate) fn take(&self, mut channel: HandedOver) {
        let opening = match self.admit(&channel) {
            Ok(None) => {
                accept(&mut channel.output, String::new());
                return channel.close();
            }
            Ok(Some((target, place))) => Opening {
                channel,
                target,
                place,
                since: self.0.environment.now(),
                stage: Stage::Resolving,
            },
            Err(fault) => {
                channel.record(TunnelOutcome::Refused(fault.code));
                return channel.refuse(fault);
            }
        };
        let started = self.start();
        let job = Job::Open(Box::new(opening));
        let sent = match started {
            Ok(()) => self.0.send(job),
            Err(_) => Err(job),
        };
        if let Err(Job::Open(opening)) = sent {
            self.0.forget_service();
            let cause = "the server can't serve tunnels at this moment";
            let fault = Fault::new(Code::LimitExceeded, OPEN_TUNNEL, cause);
            opening.refuse(fault.retry(Retry::AfterMs(1000)));
        }
    }

    /// Adds a channel to the bundle that it names, or refuses it. Its proof is that it knows the
    /// secret of the bundle, which `ptcp` asks for.
    pub(crate) fn join(
        &self,
        stream: Box<dyn Stream>,
        input: Vec<u8>,
        mut output: Vec<u8>,
        request: &TunnelRequest,
    ) {
        let found = self.0.lock_bundles().get(&request.bundle).cloned();
        let arrivals = found.filter(|(_, target)| *target == request.target);
        let fault = match arrivals {
            Some((arrivals, _)) => {
                accept(&mut output, String::new());
                let channel = TunnelStream::accepted(stream, input, output);
                if !arrivals.push(channel) {
                    tracing::debug!("a bundle has too many channels that wait");
                }
                return;
            }
            None => Fault::new(Code::NotFound, OPEN_TUNNEL, "there is no such bundle"),
        };
        refuse(stream, output, fault);
    }

    /// The target and the place of a tunnel; `None` if it was only asked for.
    fn admit(&self, channel: &HandedOver) -> Result<Option<(Target, Place)>, Fault> {
        let HandedOver {
            request, rights, ..
        } = channel;
        let target: Target = request.target.parse()?;
        let action = action_of(request.purpose);
        if matches!(&target, Target::Host { port: 0, .. }) && action == Action::Connect {
            let cause = "nothing listens on port 0";
            return Err(Fault::new(Code::InvalidArgument, OPEN_TUNNEL, cause).path(&request.target));
        }
        if !rights.may_allow(action, &target) {
            return Err(channel.forbidden());
        }
        if request.purpose == TunnelPurpose::Check {
            return Ok(None);
        }
        let guard = rights.connection()?;
        let live = Live {
            rights: Arc::clone(rights),
            standing: channel.standing.clone(),
            action,
            target: target.clone(),
            address: None,
        };
        let key = self.0.next_key.fetch_add(1, Ordering::Relaxed);
        let mut table = self.0.lock_live();
        let count = table.len();
        if count >= self.0.limits.connections_max {
            let cause = format!("the server has {count} tunnels already");
            let fault = Fault::new(Code::LimitExceeded, OPEN_TUNNEL, cause);
            return Err(fault.retry(Retry::AfterMs(1000)));
        }
        table.insert(key, live);
        drop(table);
        let place = Place {
            shared: Arc::clone(&self.0),
            key,
            _guard: guard,
        };
        Ok(Some((target, place)))
    }

    /// Starts the thread unless it runs.
    fn start(&self) -> io::Result<()> {
        let shared = &self.0;
        let mut service = shared
            .service
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if service.is_some() {
            return Ok(());
        }
        let poller = Poller::new()?;
        let (jobs, queue) = mpsc::channel();
        let (results, resolved) = mpsc::channel();
        let notifier = poller.notifier();
        let environment = &shared.environment;
        let loop_state = Loop {
            resolver: Resolver::start(&**environment, &results, &notifier)?,
            stacks: Stacks::new()?,
            relays: Relays::new(shared.limits.idle_timeout, environment.now()),
            environment: Arc::clone(environment),
            poller,
            events: Vec::new(),
            jobs: queue,
            resolved,
            openings: HashMap::new(),
            listening: HashMap::new(),
            bundles: HashMap::new(),
            ended: mpsc::channel(),
            ticked_at: environment.now(),
            drain_at: None,
            has_failed: false,
        };
        environment.start("xdfs-tunnels", Box::new(move || Box::new(loop_state)))?;
        *service = Some(Service { jobs, notifier });
        Ok(())
    }

    /// Ends the tunnels that the settings don't allow any more, and returns their number.
    pub(crate) fn review(&self) -> usize {
        // Without the lock, as the questions may read files.
        let live: Vec<(u64, Live)> = {
            let table = self.0.lock_live();
            table
                .iter()
                .map(|(key, live)| (*key, live.clone()))
                .collect()
        };
        let ended = live.into_iter().filter(|(_, live)| !live.is_allowed());
        let ended: Vec<u64> = ended.map(|(key, _)| key).collect();
        let count = ended.len();
        if count > 0 {
            // Without the thread there are none.
            let _ = self.0.send(Job::End(ended));
        }
        count
    }

    /// Ends all tunnels after `grace`, and takes no more.
    pub(crate) fn drain(&self, grace: Duration) {
        // Without the thread there are none.
        let _ = self.0.send(Job::Drain(grace));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The thread ends when nobody can send it jobs.
        let service = self
            .service
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(Service { jobs, notifier }) = service.take() {
            drop(jobs);
            environment::wake(&notifier);
        }
    }
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

/// The key of a connection over a bundle that has ended, and whether in order.
type Ended = (u64, bool);

/// State of the thread.
pub(super) struct Loop {
    pub(super) environment: Arc<dyn Environment>,
    pub(super) poller: Poller,
    events: Vec<Event>,
    jobs: mpsc::Receiver<Job>,
    resolver: Resolver,
    resolved: mpsc::Receiver<Resolved>,
    pub(super) stacks: Stacks,
    relays: Relays,
    /// By the keys of their places; the token of a stream is four times that plus 2, of a listener
    /// plus 3.
    pub(super) openings: HashMap<u64, Opening>,
    pub(super) listening: HashMap<u64, Listening>,
    bundles: HashMap<u64, Bundle>,
    ended: (mpsc::Sender<Ended>, mpsc::Receiver<Ended>),
    ticked_at: Instant,
    drain_at: Option<Instant>,
    /// Waiting for events has failed: all tunnels end, and the next one gets another thread.
    has_failed: bool,
}

impl Task for Loop {
    fn turn(&mut self) -> Turn {
        let now = self.environment.now();
        let mut is_over = self.has_failed;
        loop {
            match self.jobs.try_recv() {
                Ok(Job::Open(opening)) => self.begin(*opening),
                Ok(Job::End(keys)) => self.end(&keys),
                Ok(Job::Drain(grace)) => self.drain_at = Some(now + grace),
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
            let keys: Vec<u64> = self.listening.keys().copied().collect();
            keys.into_iter()
                .for_each(|key| self.end_listening(key, Some(Code::ShuttingDown)));
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
            self.looked_up(key, found);
        }
        if now - self.ticked_at >= TICK {
            self.ticked_at = now;
            self.check_deadlines(now);
            self.tick_listening();
        }
        let wait = self.relays.turn(&mut self.poller, now);
        while let Ok((key, in_order)) = self.ended.1.try_recv() {
            match self.bundles.get_mut(&key) {
                Some(bundle) if in_order => bundle.stage = BundleStage::Ends(now),
                _ => drop(self.bundles.remove(&key)),
            }
        }
        let waits = |bundle: &Bundle| !matches!(bundle.stage, BundleStage::Stands);
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
                    if let Err(error) = self.resolver.resolve(key, name) {
                        self.looked_up(key, Err(error));
                    }
                }
            },
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

    /// Grants a tunnel, which leads to `stream`.
    pub(super) fn lead(
        &mut self,
        opening: Opening,
        stream: Box<dyn Stream>,
        address: Option<IpAddr>,
    ) {
        let Opening {
            mut channel,
            target,
            place,
            ..
        } = opening;
        place.lead_to(address);
        let action = action_of(channel.request.purpose);
        if !channel.is_allowed(action, &target, address) {
            let fault = channel.forbidden();
            channel.record(TunnelOutcome::Refused(fault.code));
            return channel.refuse(fault);
        }
        let bundle = channel.request.bundle;
        let arrivals = match bundle {
            0 => None,
            number => match begin_bundle(&place.shared, number, &channel.request.target) {
                Ok(begun) => Some(begun),
                Err(fault) => {
                    channel.record(TunnelOutcome::Refused(fault.code));
                    return channel.refuse(fault);
                }
            },
        };
        channel.record(TunnelOutcome::Opened);
        accept(&mut channel.output, stream.peer());
        let HandedOver {
            stream: first,
            input,
            output,
            rights,
            rate,
            request,
            ..
        } = channel;
        let link = Link {
            rights,
            rate,
            request,
            place,
            since: self.environment.now(),
        };
        match arrivals {
            None => self.pair([first, stream], [input, output], link),
            Some((arrivals, listener, name)) => {
                // A bundle that has just begun has room for its first channel.
                arrivals.push(TunnelStream::accepted(first, input, output));
                let bundle = Bundle {
                    listener,
                    _name: name,
                    stage: BundleStage::Begins { stream, link },
                };
                self.add_bundle(bundle);
            }
        }
    }

    /// Moves bytes between a channel, or a bundle of them, and a target.
    fn pair(&mut self, streams: [Box<dyn Stream>; 2], ahead: [Vec<u8>; 2], link: Link) {
        let now = self.environment.now();
        let answer_bytes = ahead[1].len() as u64;
        let (key, rate) = (link.place.key, link.rate.clone());
        let environment = Arc::clone(&self.environment);
        let bundle = (link.request.bundle != 0).then(|| self.ended.0.clone());
        let on_end = move |end: RelayEnd| {
            if let Some(ended) = bundle {
                // The thread is here, or ends.
                let _ = ended.send((key, end.result.is_ok()));
            }
            let bytes = [end.back.saturating_sub(answer_bytes), end.forth];
            let result = end.result.err().map(|error| code_of(&error));
            link.close(bytes, environment.now(), result);
        };
        let added = self.relays.add(
            &mut self.poller,
            streams,
            ahead,
            rate.as_ref(),
            (key, now),
            on_end,
        );
        if let Err(error) = added {
            tracing::warn!(%error, "a tunnel could not be watched");
            self.bundles.remove(&key);
        }
    }

    /// Waits until the first channel has begun a bundle.
    fn add_bundle(&mut self, mut bundle: Bundle) {
        let BundleStage::Begins { link, .. } = &bundle.stage else {
            return;
        };
        let key = link.place.key;
        let registered = bundle.listener.register(&mut self.poller, token(key, 3));
        self.bundles.insert(key, bundle);
        match registered {
            Ok(()) => self.begun(key),
            Err(error) => self.end_bundles(|at| at == key, code_of(&error)),
        }
    }

    /// The bundle may have begun.
    fn begun(&mut self, key: u64) {
        let Some(bundle) = self.bundles.get_mut(&key) else {
            return;
        };
        match bundle.listener.accept() {
            Ok(first) => {
                let stage = std::mem::replace(&mut bundle.stage, BundleStage::Stands);
                if let BundleStage::Begins { stream, link } = stage {
                    self.pair([first, stream], [Vec::new(), Vec::new()], link);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.end_bundles(|at| at == key, code_of(&error)),
        }
    }

    /// Ends bundles that have not begun.
    fn end_bundles(&mut self, is_ended: impl Fn(u64) -> bool, result: Code) {
        let now = self.environment.now();
        let begins = |stage: &BundleStage| matches!(stage, BundleStage::Begins { .. });
        let ended = self
            .bundles
            .extract_if(|key, bundle| begins(&bundle.stage) && is_ended(*key));
        for (_, bundle) in ended {
            if let BundleStage::Begins { mut stream, link } = bundle.stage {
                stream.abort();
                link.close([0, 0], now, Some(result));
            }
        }
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
        let late: Vec<u64> = self
            .bundles
            .iter()
            .filter(|(_, bundle)| match &bundle.stage {
                BundleStage::Begins { link, .. } => now - link.since >= CONNECT_TIMEOUT,
                BundleStage::Stands | BundleStage::Ends(_) => false,
            })
            .map(|(key, _)| *key)
            .collect();
        self.end_bundles(|key| late.contains(&key), Code::DeadlineExceeded);
        self.bundles.retain(|_, bundle| match bundle.stage {
            BundleStage::Ends(at) => now - at < LAST_BYTES,
            BundleStage::Begins { .. } | BundleStage::Stands => true,
        });
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

/// Has channels join the bundle `number`.
fn begin_bundle(
    shared: &Arc<Shared>,
    number: u64,
    target: &str,
) -> Result<(Arrivals, Box<dyn Listener>, BundleName), Fault> {
    let arrivals = Arrivals::default();
    let listener = arrivals.listen();
    let listener = listener.map_err(|e| Fault::from_io(OPEN_TUNNEL, target, &e))?;
    let mut bundles = shared.lock_bundles();
    let count = bundles.len();
    if count >= BUNDLES_MAX {
        let cause = format!("the server has {count} tunnels of several channels already");
        let fault = Fault::new(Code::LimitExceeded, OPEN_TUNNEL, cause).path(target);
        return Err(fault.retry(Retry::AfterMs(1000)));
    }
    if bundles.contains_key(&number) {
        let cause = "another bundle has this number";
        return Err(Fault::new(Code::InvalidArgument, OPEN_TUNNEL, cause));
    }
    bundles.insert(number, (arrivals.clone(), target.to_owned()));
    drop(bundles);
    let shared = Arc::clone(shared);
    Ok((arrivals, listener, BundleName { shared, number }))
}

impl Opening {
    pub(super) fn refuse(self, fault: Fault) {
        self.channel.record(TunnelOutcome::Refused(fault.code));
        // The place is free before the peer can know.
        drop(self.place);
        self.channel.refuse(fault);
    }
}

fn action_of(purpose: TunnelPurpose) -> Action {
    match purpose {
        TunnelPurpose::Check | TunnelPurpose::Connect | TunnelPurpose::Join => Action::Connect,
        TunnelPurpose::Listen | TunnelPurpose::Take => Action::Listen,
    }
}

pub(super) fn accept(output: &mut Vec<u8>, address: String) {
    Frame::TunnelOk(TunnelAccept { address }).encode(output);
}

/// Sends the reason to the peer and closes the channel.
fn refuse(stream: Box<dyn Stream>, mut output: Vec<u8>, fault: Fault) {
    tracing::debug!(peer = %stream.peer(), %fault, "a tunnel is refused");
    Frame::Exception(Exception {
        scope: Scope::Channel,
        fault,
    })
    .encode(&mut output);
    close(stream, output);
}

fn close(mut stream: Box<dyn Stream>, mut output: Vec<u8>) {
    // A fresh connection takes these few bytes at once; otherwise the peer sees its end only.
    let _ = write(&mut *stream, &mut output);
    let _ = stream.close();
}

/// The token of a stream or listener of the tunnel `key`.
pub(super) fn token(key: u64, kind: usize) -> Token {
    Token(usize::try_from(key).unwrap_or(usize::MAX / 8) * 4 + kind)
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

/// The code of an error that ended a tunnel.
pub(super) fn code_of(error: &io::Error) -> Code {
    Fault::from_io(OPEN_TUNNEL, "", error).code
}

/// Writes as much as the stream takes.
pub(super) fn write(stream: &mut dyn Stream, output: &mut Vec<u8>) -> io::Result<()> {
    while !output.is_empty() {
        let n = stream.write_vectored(&[IoSlice::new(output)])?;
        output.drain(..n);
    }
    stream.flush()
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
