//! The listening thread: opens channels, hands them to their sessions, and starts a pipeline thread
//! for each new session.
//!
//! Until a peer has registered or joined a session, it costs a few kilobytes (most of them for TLS)
//! and a bounded time, however slow or hostile it is. Memory for incomplete frames and TLS messages
//! is bounded for all such peers together; at the bound, the oldest are closed. Their places are
//! those of a [`Crowd`]. The table of sessions is the only shared state; it is accessed once per
//! channel, never per block.

mod pending;
mod session_task;
mod sessions;

use std::fmt;
use std::io::{ErrorKind, IoSliceMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use xdfs_crowd::{Crowd, Folded, Network};
use xdfs_proto::frame::{JoinRequest, SessionAccept, SessionRequest, TunnelPurpose, TunnelRequest};
use xdfs_proto::handshake::{self, AcceptorStep};
use xdfs_proto::{Code, Fault, Limits, Retry, SessionSecret};
use xdfs_store::Store;
use xdfs_store::tally::Failing;
use xdfs_sys::poll::{Event, Notifier, Poller, Token};
use xdfs_xio::{Listener, Stream};

use crate::command::{Command, WAKE};
use crate::environment::{self, Environment, System, Task, Turn};
use crate::files::Files;
use crate::kernel::Readiness;
use crate::memory::MemoryBudget;
use crate::pipeline::{BLOCK_BYTES, Pipeline, no_such_session};
use crate::security::{Gate, PeerGuard, SessionGrant, TunnelRights, Verdict, host_of};
use crate::tally::ServerTally;
use crate::tunnel::{HandedOver, TunnelLimits, Tunnels};

use pending::PendingChannel;
use session_task::SessionTask;
use sessions::{Registration, RunningSession, Session, Sessions};

/// Places for channels that do not belong to a session yet.
const PENDING_MAX: usize = 4096;
/// Channels that are accepted in a row, before those that are open already get their turn.
const ACCEPTS: usize = 64;
/// Late channels that are closed in a row: the rest has to wait for the next look.
const DROPS: usize = 256;
/// Bytes of incomplete input that a pending channel may hold uncounted: enough for the usual
/// opening exchange with a signature.
const HELD_FREE: usize = 2 << 10;
/// Bound on the counted bytes of all pending channels. Long proofs usually arrive in one go, so
/// they are held only briefly.
const HELD_MAX: usize = 4 << 20;
/// Interval between checks of the deadlines.
const TICK: Duration = Duration::from_millis(100);
/// Time after the grace period in which sessions make their data durable.
const LAST_SYNC: Duration = Duration::from_secs(30);
/// Operation named in faults before a channel is open.
const OPEN_CHANNEL: &str = "open the channel";

/// Configuration of an acceptor.
#[derive(Debug)]
pub struct AcceptorConfig {
    /// Sources of new channels.
    pub listeners: Vec<Box<dyn Listener>>,
    /// Authentication, and the stores of the peers.
    pub access: AccessPolicy,
    /// Maximum number of concurrent sessions.
    pub sessions_max: usize,
    /// Maximum bytes of payload buffers that all sessions hold together, beside the few of each
    /// that it needs to go on.
    pub memory_bytes_max: usize,
    /// Limits on tunnels.
    pub tunnels: TunnelLimits,
    /// Limits on the resources used by a peer.
    pub limits: Limits,
}

/// Whether peers must authenticate, and which store they get.
#[derive(Debug)]
pub enum AccessPolicy {
    /// No authentication and no protection: all peers use this store, and have these rights to
    /// tunnels.
    Open(Arc<dyn Store>, Option<Arc<dyn TunnelRights>>),
    /// The gate authenticates each peer and chooses its store. All channels must be protected.
    Guarded(Arc<dyn Gate>),
}

/// Shuts an acceptor down from another thread.
#[derive(Clone)]
pub struct AcceptorControl {
    sender: mpsc::Sender<Duration>,
    notifier: Notifier,
    sessions: Sessions,
    tunnels: Tunnels,
    tally: Arc<ServerTally>,
}

/// State of the listening thread. See the module documentation.
pub struct Acceptor {
    config: AcceptorConfig,
    environment: Arc<dyn Environment>,
    poller: Poller,
    /// Events of the last wait; kept to reuse the allocation.
    events: Vec<Event>,
    /// Set when waiting for channels has failed.
    failure: Option<Fault>,
    /// While draining: when to stop waiting for the sessions.
    drain_until: Option<Instant>,
    deadlines_checked_at: Instant,
    drains: mpsc::Receiver<Duration>,
    sessions: Sessions,
    tunnels: Tunnels,
    /// Open files and locks of all sessions.
    files: Arc<Files>,
    /// Memory of all sessions.
    memory: Arc<MemoryBudget>,
    /// Number of sessions with a running thread.
    running: Arc<AtomicUsize>,
    tally: Arc<ServerTally>,
    pending: Vec<Option<PendingChannel>>,
    free: Vec<usize>,
    /// The pending channels by their slots.
    crowd: Crowd<usize>,
    /// Sum of [`PendingChannel::held`].
    held: usize,
    /// Accepting has failed and is tried again after [`TICK`].
    accept_later: bool,
    /// More channels may wait to be accepted.
    is_behind: bool,
    /// Sessions that were refused since there are as many as may be.
    sessions_refused: Folded<usize>,
}

impl Acceptor {
    /// Registers the listeners with a new poller.
    ///
    /// # Errors
    /// The poller can't be created, or a listener can't be registered.
    pub fn new(config: AcceptorConfig) -> Result<(Self, AcceptorControl), Fault> {
        Self::within(System::shared(), config)
    }

    /// Like [`Self::new`], in another environment than the system's.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn within(
        environment: Arc<dyn Environment>,
        mut config: AcceptorConfig,
    ) -> Result<(Self, AcceptorControl), Fault> {
        let fault = |e: std::io::Error| Fault::from_io("watch the listeners", "", &e);
        let mut poller = Poller::new().map_err(fault)?;
        for (i, listener) in config.listeners.iter_mut().enumerate() {
            listener.register(&mut poller, Token(i)).map_err(fault)?;
        }
        let (sender, drains) = mpsc::channel();
        let sessions = Sessions::default();
        let tunnels = Tunnels::new(Arc::clone(&environment), config.tunnels);
        let (memory, running) = (MemoryBudget::new(config.memory_bytes_max), Arc::default());
        let tally = Arc::new(ServerTally::new(config.sessions_max, &running, &memory));
        let control = AcceptorControl {
            sender,
            notifier: poller.notifier(),
            sessions: sessions.clone(),
            tunnels: tunnels.clone(),
            tally: Arc::clone(&tally),
        };
        let acceptor = Self {
            memory,
            config,
            poller,
            events: Vec::new(),
            failure: None,
            drain_until: None,
            deadlines_checked_at: environment.now(),
            drains,
            sessions,
            tunnels,
            files: Arc::new(Files::new(Arc::clone(&environment))?),
            environment,
            running,
            tally,
            pending: Vec::new(),
            free: Vec::new(),
            crowd: Crowd::new(PENDING_MAX),
            held: 0,
            accept_later: true,
            is_behind: false,
            sessions_refused: Folded::new(|refused, sessions| {
                tracing::warn!(
                    sessions,
                    refused,
                    "sessions are refused: as many as may be are there"
                );
            }),
        };
        Ok((acceptor, control))
    }

    /// Serves until it is drained and the last session has ended.
    ///
    /// # Errors
    /// Waiting for events failed.
    pub fn run(mut self) -> Result<(), Fault> {
        environment::run(&mut self);
        self.failure.map_or(Ok(()), Err)
    }

    /// Stops accepting channels, and ends the sessions within the grace period.
    fn begin_drain(&mut self, grace: Duration) {
        // Before the listeners: they wait until the peers of what nobody holds any more were told.
        for slot in self.slots(|_| true) {
            let cause = "the server is shutting down";
            self.dismiss(slot, Fault::new(Code::ShuttingDown, OPEN_CHANNEL, cause));
        }
        self.config.listeners.clear();
        self.pending.clear();
        self.free.clear();
        self.crowd.clear();
        self.held = 0;
        self.drain_until = Some(self.environment.now() + grace + LAST_SYNC);
        self.tunnels.drain(grace);
        for session in self.sessions.lock().values() {
            // Fails only if the session has already ended.
            let _ = session.commands.send(Command::Drain(grace));
        }
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            match self.config.listeners[listener].accept() {
                Ok(stream) => self.begin(stream, listener),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    // For instance, no descriptors are left: closed channels free some.
                    tracing::warn!(%error, "a channel could not be accepted");
                    self.accept_later = true;
                    return;
                }
            }
        }
        self.is_behind = true;
    }

    fn begin(&mut self, mut stream: Box<dyn Stream>, listener: usize) {
        let machine = match &self.config.access {
            AccessPolicy::Open(_, tunnels) => {
                let machine = handshake::Acceptor::new();
                match tunnels {
                    Some(_) => machine.with_tunnels(),
                    None => machine,
                }
            }
            AccessPolicy::Guarded(gate) => {
                let (methods, clear) = (gate.methods(), gate.takes_clear());
                let machine = handshake::Acceptor::protected(&methods, clear);
                match gate.has_tunnels() {
                    true => machine.with_tunnels(),
                    false => machine,
                }
            }
        };
        let slot = self.free.pop().unwrap_or(self.pending.len());
        if slot == self.pending.len() {
            self.pending.push(None);
        }
        let token = Token(self.config.listeners.len() + slot);
        if let Err(error) = stream.register(&mut self.poller, token) {
            tracing::warn!(%error, "a channel could not be watched");
            self.free.push(slot);
            return;
        }
        let now = self.environment.now();
        let network = Network::of_peer(&stream.peer());
        let at = self.config.listeners[listener].local_endpoint();
        if let Some(displaced) = self.crowd.enter(slot, network, &at, now) {
            let cause = "too many channels are being opened";
            let fault = Fault::new(Code::LimitExceeded, OPEN_CHANNEL, cause);
            self.dismiss(displaced, fault.retry(Retry::AfterMs(1000)));
        }
        self.pending[slot] = Some(PendingChannel {
            stream,
            machine,
            input: Vec::new(),
            output: Vec::new(),
            since: now,
            answered: None,
            held: 0,
            proof: None,
            grant: None,
        });
        self.continue_opening(slot);
    }

    fn take(&mut self, slot: usize) -> Option<PendingChannel> {
        let mut pending = self.pending.get_mut(slot).and_then(Option::take)?;
        self.free.push(slot);
        self.held -= pending.held;
        self.crowd.leave(slot);
        // The stream is dropped or registered by its session next.
        let _ = pending.stream.deregister(&mut self.poller);
        Some(pending)
    }

    /// Continues the opening exchange as far as the available bytes allow, and updates the memory
    /// accounting.
    fn continue_opening(&mut self, slot: usize) {
        self.run_opening(slot);
        if let Some(Some(pending)) = self.pending.get_mut(slot) {
            let holds = pending.input.capacity() + pending.stream.held_bytes();
            let counted = holds.saturating_sub(HELD_FREE);
            self.held = self.held - pending.held + counted;
            pending.held = counted;
        }
        if self.held > HELD_MAX {
            self.drop_holders();
        }
    }

    fn run_opening(&mut self, slot: usize) {
        loop {
            let Some(Some(pending)) = self.pending.get_mut(slot) else {
                return;
            };
            let before = pending.output.len();
            let step =
                pending
                    .machine
                    .receive(&pending.input, &self.config.limits, &mut pending.output);
            if pending.output.len() > before {
                self.crowd.speaks(slot);
                pending
                    .answered
                    .get_or_insert_with(|| self.environment.now());
            }
            pending.flush();
            match step {
                Ok((AcceptorStep::Wait, used)) => {
                    pending.input.drain(..used);
                    if used > 0 {
                        continue;
                    }
                }
                Ok((AcceptorStep::Session(request), used)) => {
                    pending.input.drain(..used);
                    if let Some(pending) = self.take(slot) {
                        self.register(pending, request);
                    }
                    return;
                }
                Ok((AcceptorStep::Join(request), used)) => {
                    pending.input.drain(..used);
                    if let Some(pending) = self.take(slot) {
                        self.join(pending, &request);
                    }
                    return;
                }
                Ok((AcceptorStep::Tunnel(request), used)) => {
                    pending.input.drain(..used);
                    if let Some(pending) = self.take(slot) {
                        self.tunnel(pending, request);
                    }
                    return;
                }
                Ok((step @ (AcceptorStep::Auth(_) | AcceptorStep::Proof(_)), used)) => {
                    // A proof may have been long, and little follows it.
                    pending.input = pending.input.split_off(used);
                    if let Err(fault) = self.authenticate(slot, &step) {
                        self.refuse_proof(slot, fault);
                        return;
                    }
                    continue;
                }
                Err(fault) => {
                    tracing::debug!(peer = %pending.stream.peer(), %fault, "a channel is refused");
                    self.count_refusal(Failing::Opening, &fault);
                    if let Some(pending) = self.take(slot) {
                        pending.close();
                    }
                    return;
                }
            }
            let mut chunk = [0; 512];
            match pending
                .stream
                .read_vectored(&mut [IoSliceMut::new(&mut chunk)])
            {
                Ok(0) => break,
                Ok(n) => {
                    // Grows only by the bytes that arrived: unauthenticated peers must not cause
                    // overallocation.
                    pending.input.reserve_exact(n);
                    pending.input.extend_from_slice(&chunk[..n]);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        drop(self.take(slot));
    }

    /// Performs one step of the authentication.
    fn authenticate(&mut self, slot: usize, step: &AcceptorStep) -> Result<(), Fault> {
        let AccessPolicy::Guarded(gate) = &self.config.access else {
            return Err(unprotected());
        };
        let Some(Some(pending)) = self.pending.get_mut(slot) else {
            return Ok(());
        };
        let verdict = match step {
            AcceptorStep::Auth(request) => {
                let protection = pending.stream.protection().ok_or_else(unprotected)?;
                gate.begin(&pending.stream.peer(), &protection, request)?
            }
            AcceptorStep::Proof(body) => {
                pending.proof.take().ok_or_else(unprotected)?.step(body)?
            }
            AcceptorStep::Wait
            | AcceptorStep::Session(_)
            | AcceptorStep::Join(_)
            | AcceptorStep::Tunnel(_) => return Ok(()),
        };
        match verdict {
            Verdict::Admitted(grant) => {
                let user = grant.user.clone();
                pending.machine.proved(user, &mut pending.output);
                pending.grant = Some(grant);
            }
            Verdict::Challenge(body, proof) => {
                pending.machine.challenge(body, &mut pending.output);
                pending.proof = Some(proof);
            }
        }
        pending.flush();
        Ok(())
    }

    /// Sends the reason to the peer and closes the channel.
    fn refuse_proof(&mut self, slot: usize, fault: Fault) {
        if let Some(mut pending) = self.take(slot) {
            tracing::debug!(peer = %pending.stream.peer(), %fault, "a channel is refused");
            self.count_refusal(Failing::Login, &fault);
            pending.refuse(fault);
            pending.close();
        }
    }

    fn count_refusal(&self, what: Failing, fault: &Fault) {
        self.tally.door.failures.count(what, fault.code);
    }

    /// Closes channels that did not open in time.
    fn drop_late(&mut self) {
        let limit = self.config.limits.opening_timeout;
        let late = self.crowd.late(self.environment.now(), limit);
        for (slot, limit) in late.into_iter().take(DROPS) {
            let cause = format!("it was not open after {} s", limit.as_secs_f32());
            let fault = Fault::new(Code::DeadlineExceeded, OPEN_CHANNEL, cause);
            self.dismiss(slot, fault);
        }
    }

    /// Closes channels with incomplete input, oldest first, until the total is well below the
    /// bound. Channels whose long proofs arrived in one go are not affected.
    fn drop_holders(&mut self) {
        let mut slots = self.slots(|pending| pending.held > 0);
        slots.sort_by_key(|&slot| self.pending[slot].as_ref().map(|pending| pending.since));
        for slot in slots {
            if self.held <= HELD_MAX / 4 * 3 {
                return;
            }
            let cause = "too many channels have incomplete input";
            let fault = Fault::new(Code::LimitExceeded, OPEN_CHANNEL, cause);
            self.dismiss(slot, fault.retry(Retry::AfterMs(1000)));
        }
    }

    /// Slots of the pending channels that satisfy `is`.
    fn slots(&self, is: impl Fn(&&PendingChannel) -> bool) -> Vec<usize> {
        let all = self.pending.iter().enumerate();
        all.filter(|(_, pending)| pending.as_ref().is_some_and(|pending| is(&pending)))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// Closes a channel in any state of the opening exchange, with the reason in the form that the
    /// peer expects.
    fn dismiss(&mut self, slot: usize, fault: Fault) {
        let Some(mut pending) = self.take(slot) else {
            return;
        };
        tracing::debug!(peer = %pending.stream.peer(), %fault, "a channel is refused");
        self.count_refusal(Failing::Opening, &fault);
        if pending.answered.is_some() {
            pending.refuse(fault);
        } else {
            pending.answer_refusal(fault);
        }
        pending.close();
    }

    /// Starts the pipeline of a new session.
    fn register(&mut self, mut pending: PendingChannel, request: SessionRequest) {
        let limits = &self.config.limits;
        let round_trip = match &self.config.access {
            // The time from WELCOME to the peer's request includes a proof of identity, hence a
            // round trip. Without authentication the request does not wait for WELCOME.
            AccessPolicy::Guarded(_) => pending.answered.map(|t| self.environment.now() - t),
            AccessPolicy::Open(..) => None,
        };
        let mut secret = [0; 16];
        let refusal = {
            let sessions = self.sessions.lock();
            let count = sessions.len().max(self.running.load(Ordering::Relaxed));
            if count >= self.config.sessions_max {
                let now = self.environment.now();
                self.sessions_refused.count(count, now);
                let cause = format!("the server has {count} sessions already");
                Some(
                    Fault::new(Code::LimitExceeded, "open a session", cause)
                        .retry(Retry::AfterMs(1000)),
                )
            } else if sessions.contains_key(&request.id) {
                let cause = "the session exists already";
                Some(Fault::new(Code::ProtocolViolation, "open a session", cause))
            } else {
                let drawn = self.environment.fill_random(&mut secret);
                drawn
                    .err()
                    .map(|e| Fault::new(Code::Internal, "make a secret", e.to_string()))
            }
        };
        if let Some(fault) = refusal {
            self.count_refusal(Failing::Opening, &fault);
            pending.refuse(fault);
            pending.close();
            return;
        }
        let size = if request.block_size == 0 {
            BLOCK_BYTES
        } else {
            request.block_size
        };
        let size = size.min(limits.block_bytes_max);
        let size = size.min(self.memory.block_bytes_max());
        let rate = pending.grant.as_ref().and_then(|a| a.rate.as_ref());
        let size = rate.map_or(size, |rate| size.min(rate.block_bytes_max()));
        let accepted = SessionAccept {
            secret: SessionSecret(secret),
            channels: request.channels.min(limits.channels_max),
            // Rounds down to a power of two.
            block_size: 1 << size.ilog2(),
            window: request.window,
        };
        let kernel = match Readiness::within(Arc::clone(&self.environment)) {
            Ok(kernel) => kernel,
            Err(error) => {
                pending.refuse(Fault::from_io("open a session", "", &error));
                pending.close();
                return;
            }
        };
        let mut grant = match (&self.config.access, pending.grant.take()) {
            (AccessPolicy::Open(store, _), _) => SessionGrant {
                user: String::new(),
                store: Arc::clone(store),
                guard: PeerGuard(Box::new(())),
                standing: None,
                ids: None,
                rate: None,
                tunnels: None,
            },
            (AccessPolicy::Guarded(_), Some(grant)) => grant,
            (AccessPolicy::Guarded(_), None) => {
                pending.refuse(unprotected());
                pending.close();
                return;
            }
        };
        grant.guard = PeerGuard(Box::new((RunningSession::new(&self.running), grant.guard)));
        let peer = pending.stream.peer();
        let (host, user) = (host_of(&peer), grant.user.clone());
        let (standing, name) = (grant.standing.take(), user.clone());
        let takes_clear = match &self.config.access {
            AccessPolicy::Open(..) => false,
            AccessPolicy::Guarded(gate) => gate.takes_clear(),
        };
        let yields = pending.machine.yields();
        pending.stream.admit();
        let (mut pipeline, commands) = Pipeline::accept(
            kernel,
            grant,
            &self.files,
            &self.memory,
            takes_clear,
            pending.machine.reports_time(),
            limits.clone(),
            &request,
            &accepted,
            pending.stream,
            &pending.output,
            pending.input,
        );
        if yields {
            pipeline.yield_to_others();
        }
        pipeline.learn_round_trip(round_trip);
        pipeline.count_in(&self.tally);
        let id = request.id;
        self.sessions.lock().insert(
            id,
            Session {
                secret: accepted.secret,
                commands: commands.clone(),
                host,
                user,
                standing: standing.clone(),
            },
        );
        // A review between the proof and this moment has missed it.
        if let Some(why) = standing.and_then(|standing| standing.withdrawn()) {
            Session::end(&commands, why);
        }
        let registration = Registration {
            sessions: self.sessions.clone(),
            id,
            notifier: self.poller.notifier(),
        };
        let make = move || {
            tracing::info!(session = %id, user = name, %peer, "a session begins");
            Box::new(SessionTask {
                pipeline,
                user: name,
                peer,
                registration,
            }) as Box<dyn Task>
        };
        // A fresh thread, never one used by another session: it may assume other ids.
        let spawned = self.environment.start("xdfs-session", Box::new(make));
        if let Err(error) = spawned {
            // The closure owned the registration and the pipeline, so both were dropped.
            tracing::error!(%error, "the thread of a session could not be started");
        }
    }

    /// Hands a channel over to the thread of tunnels.
    fn tunnel(&self, mut pending: PendingChannel, request: TunnelRequest) {
        if request.purpose == TunnelPurpose::Join {
            let PendingChannel {
                stream,
                input,
                output,
                ..
            } = pending;
            return self.tunnels.join(stream, input, output, &request);
        }
        let grant = pending.grant.take();
        let (rights, standing, rate) = match (&self.config.access, grant) {
            (AccessPolicy::Open(_, rights), _) => (rights.clone(), None, None),
            // Its place among the sessions of the user is free again: a tunnel is none.
            (AccessPolicy::Guarded(_), Some(grant)) => (grant.tunnels, grant.standing, grant.rate),
            (AccessPolicy::Guarded(_), None) => (None, None, None),
        };
        let Some(rights) = rights else {
            pending.refuse(unprotected());
            pending.close();
            return;
        };
        pending.stream.admit();
        self.tunnels.take(HandedOver {
            stream: pending.stream,
            input: pending.input,
            output: pending.output,
            rights,
            standing,
            rate,
            request,
        });
    }

    /// Hands a channel over to the session that it asks to join.
    fn join(&self, mut pending: PendingChannel, request: &JoinRequest) {
        let guarded = matches!(self.config.access, AccessPolicy::Guarded(_));
        let protection = pending.stream.protection();
        let host = host_of(&pending.stream.peer());
        let commands = self
            .sessions
            .lock()
            .get(&request.id)
            .filter(|s| match &protection {
                Some(protection) => s
                    .secret
                    .bound_to(&protection.binding, request.channel)
                    .matches(&request.secret),
                None => !guarded && s.secret.matches(&request.secret),
            })
            // A leaked secret is useless from another host.
            .filter(|s| !guarded || s.host == host)
            .map(|s| (s.commands.clone(), s.user.clone()));
        let Some((commands, user)) = commands else {
            self.count_refusal(Failing::Opening, &no_such_session());
            pending.refuse(no_such_session());
            pending.close();
            return;
        };
        let guard = match &self.config.access {
            AccessPolicy::Open(..) => None,
            AccessPolicy::Guarded(gate) => match gate.join(&pending.stream.peer(), &user) {
                Ok(guard) => Some(guard),
                Err(fault) => {
                    tracing::debug!(peer = %pending.stream.peer(), %fault, "a channel is refused");
                    self.count_refusal(Failing::Opening, &fault);
                    pending.refuse(fault);
                    pending.close();
                    return;
                }
            },
        };
        pending.stream.admit();
        let command = Command::Join {
            stream: pending.stream,
            channel: request.channel,
            input: pending.input,
            output: pending.output,
            guard,
        };
        if let Err(Command::Join { stream, output, .. }) = commands.send(command) {
            // The session ended between the lookup and the command.
            let mut pending = PendingChannel {
                stream,
                machine: pending.machine,
                input: Vec::new(),
                output,
                since: pending.since,
                answered: pending.answered,
                held: 0,
                proof: None,
                grant: None,
            };
            pending.refuse(no_such_session());
            pending.close();
        }
    }
}

fn unprotected() -> Fault {
    let cause = "a proof needs a channel that is protected, and has to come first";
    Fault::new(Code::ProtectionRefused, "open the channel", cause)
}

impl Task for Acceptor {
    fn turn(&mut self) -> Turn {
        while let Ok(grace) = self.drains.try_recv() {
            self.begin_drain(grace);
        }
        let now = self.environment.now();
        let is_idle = || self.sessions.lock().is_empty() && self.tunnels.is_empty();
        let has_drained = |until| is_idle() || until <= now;
        if self.failure.is_some() || self.drain_until.is_some_and(has_drained) {
            return Turn::Ended;
        }
        if (self.accept_later || self.is_behind) && self.drain_until.is_none() {
            (self.accept_later, self.is_behind) = (false, false);
            (0..self.config.listeners.len()).for_each(|i| self.accept(i));
        }
        // Not in every turn: with a thousand channels opening, the check would run a million times.
        if now - self.deadlines_checked_at >= TICK {
            self.deadlines_checked_at = now;
            self.drop_late();
            self.crowd.tick(now);
            self.sessions_refused.tick(now);
        }
        self.tally.door.strangers.set(self.crowd.len() as u64);
        let idle = self.pending.len() == self.free.len();
        let ticks = !idle || self.accept_later || self.drain_until.is_some();
        match self.is_behind {
            true => Turn::Wait(Some(Duration::ZERO)),
            false if ticks => Turn::Wait(Some(TICK)),
            false => {
                let warnings = [self.crowd.wakes_at(), self.sessions_refused.wakes_at()];
                let next = warnings.into_iter().flatten().min();
                Turn::Wait(next.map(|at| at.saturating_duration_since(now).max(TICK)))
            }
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let mut events = std::mem::take(&mut self.events);
        if let Err(error) = self.poller.wait(&mut events, timeout) {
            self.failure = Some(Fault::from_io("wait for channels", "", &error));
        }
        let has_come = !events.is_empty() || self.failure.is_some();
        for event in events.drain(..) {
            let listeners = self.config.listeners.len();
            if event.token == WAKE {
                continue;
            } else if event.token.0 < listeners {
                self.accept(event.token.0);
            } else if self.drain_until.is_none() {
                self.continue_opening(event.token.0 - listeners);
            }
        }
        self.events = events;
        has_come
    }
}

impl AcceptorControl {
    /// Stops accepting channels and ends after the last session. Running sessions get `grace`;
    /// after that they end in a resumable state.
    pub fn drain(&self, grace: Duration) {
        // Fails only if the acceptor has already ended.
        let _ = self.sender.send(grace);
        environment::wake(&self.notifier);
    }

    /// The figures of the sessions.
    #[must_use]
    pub fn tally(&self) -> &Arc<ServerTally> {
        self.tally.tunnels.set(self.tunnels.len() as u64);
        &self.tally
    }

    /// Ends the tunnels that the settings don't allow any more, at once. Returns their number.
    pub fn review_tunnels(&self) -> usize {
        self.tunnels.review()
    }

    /// Ends the sessions whose [standing](crate::security::Standing) isn't valid any more, at once
    /// and in a resumable state. Returns their number.
    pub fn review(&self) -> usize {
        // Without the lock, as the question may read files.
        let sessions: Vec<_> = self
            .sessions
            .lock()
            .iter()
            .map(|(id, session)| session.reviewed(*id))
            .collect();
        let mut ended = 0;
        for (id, user, commands, standing) in sessions {
            if let Some(why) = standing.and_then(|standing| standing.withdrawn()) {
                ended += 1;
                tracing::info!(session = %id, user, why, "a session is ended");
                Session::end(&commands, why);
            }
        }
        ended
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AcceptorControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptorControl").finish_non_exhaustive()
    }
}
