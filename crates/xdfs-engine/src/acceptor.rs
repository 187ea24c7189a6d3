//! The thread that listens: it opens channels until they belong to a session, and gives each new
//! session a pipeline thread.
//!
//! A peer that has not registered or joined a session costs a few kilobytes (most of them TLS's)
//! and a bounded time here, however slow or hostile it is. What frames and messages of TLS need
//! beyond that, until they are complete, is bounded for all such peers together: when it is used
//! up, those that have been at it longest are closed. When places become few, peers that have said
//! nothing yet have less time. The table of sessions is the one thing that is shared; it is touched
//! once a channel, never for a block.

use std::collections::HashMap;
use std::fmt;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use xdfs_proto::frame::{Exception, Frame, JoinRequest, Scope, SessionAccept, SessionRequest};
use xdfs_proto::handshake::{self, AcceptorStep};
use xdfs_proto::{Code, Fault, Limits, Retry, SessionId, SessionSecret};
use xdfs_store::Store;
use xdfs_sys::poll::{Event, Notifier, Poller, Token};
use xdfs_xio::{Listener, Stream};

use crate::command::{Command, Commands, WAKE};
use crate::environment::{self, Environment, System, Task, Turn};
use crate::files::Files;
use crate::kernel::Readiness;
use crate::pipeline::{BLOCK_BYTES, Pipeline, no_such_session};
use crate::security::{Gate, PeerGuard, Proof, SessionGrant, Verdict};

/// Channels that may be on their way into a session at once.
const PENDING_MAX: usize = 4096;
/// From here on places are few, and peers that have said nothing have [`HURRY`] instead of the
/// deadline of the opening.
const PENDING_FEW: usize = PENDING_MAX / 4 * 3;
/// Enough for a few round trips on a long path, with a packet lost.
const HURRY: Duration = Duration::from_secs(3);
/// Bytes of what isn't complete yet that a channel on its way into a session may hold without being
/// counted: the greetings of usual peers, and a signature.
const HELD_FREE: usize = 2 << 10;
/// Most bytes that are counted of all these channels together: long proofs come in one go, so that
/// they are held for a moment only.
const HELD_MAX: usize = 4 << 20;
/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(100);
/// Time after the grace period in which sessions make durable what they have.
const LAST_SYNC: Duration = Duration::from_secs(30);
/// The operation of faults before a channel is open.
const OPEN_CHANNEL: &str = "open the channel";

/// What an acceptor serves, and within which bounds.
#[derive(Debug)]
pub struct AcceptorConfig {
    /// Where channels come from.
    pub listeners: Vec<Box<dyn Listener>>,
    /// Who may connect, and what they see.
    pub access: AccessPolicy,
    /// Most sessions at once.
    pub sessions_max: usize,
    /// What a peer may cost.
    pub limits: Limits,
}

/// Whether peers must authenticate, and the store that they see.
#[derive(Debug)]
pub enum AccessPolicy {
    /// No authentication and no protection: all peers see this store.
    Open(Arc<dyn Store>),
    /// The gate authenticates each peer and chooses its store. All channels must be protected.
    Guarded(Arc<dyn Gate>),
}

#[derive(Debug)]
struct Session {
    secret: SessionSecret,
    commands: Commands,
    /// The address that its first channel came from, without the port.
    host: String,
    /// Whose it is; empty without protection.
    user: String,
}

#[derive(Clone, Debug, Default)]
struct Sessions(Arc<Mutex<HashMap<SessionId, Session>>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        // A panic elsewhere leaves the table whole: each change is one insert or remove.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a session off the table when its thread ends, also by a panic.
struct Registration {
    sessions: Sessions,
    id: SessionId,
    notifier: Notifier,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.id);
        environment::wake(&self.notifier);
    }
}

/// Counts a session as long as anything of it runs, also a thread that a file system holds after
/// the session's end.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A channel that isn't in a session yet.
struct Pending {
    stream: Box<dyn Stream>,
    machine: handshake::Acceptor,
    input: Vec<u8>,
    output: Vec<u8>,
    since: Instant,
    answered: Option<Instant>,
    /// Bytes of it that are counted against [`HELD_MAX`].
    held: usize,
    /// Its permit among the channels that are being opened.
    _guard: Option<PeerGuard>,
    proof: Option<Box<dyn Proof>>,
    grant: Option<SessionGrant>,
}

/// Ends an acceptor from another thread.
#[derive(Clone)]
pub struct AcceptorControl {
    sender: mpsc::Sender<Duration>,
    notifier: Notifier,
}

/// The listening thread's state. See the module documentation.
pub struct Acceptor {
    config: AcceptorConfig,
    environment: Arc<dyn Environment>,
    poller: Poller,
    /// What became ready; kept for its memory.
    events: Vec<Event>,
    /// Waiting for channels failed.
    failure: Option<Fault>,
    /// It was told to drain, and gives the sessions up at this time.
    give_up: Option<Instant>,
    looked_at: Instant,
    orders: mpsc::Receiver<Duration>,
    sessions: Sessions,
    /// What the sessions have in common about open files.
    files: Arc<Files>,
    /// Sessions of which anything runs.
    running: Arc<AtomicUsize>,
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    /// The sum of what the pending channels hold.
    held: usize,
    accept_later: bool,
}

impl Acceptor {
    /// Watches the listeners.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(config: AcceptorConfig) -> Result<(Self, AcceptorControl), Fault> {
        Self::within(System::shared(), config)
    }

    /// Likewise, in another environment than that of the system.
    ///
    /// # Errors
    /// Likewise.
    pub fn within(
        environment: Arc<dyn Environment>,
        mut config: AcceptorConfig,
    ) -> Result<(Self, AcceptorControl), Fault> {
        let fault = |e: std::io::Error| Fault::from_io("watch the listeners", "", &e);
        let mut poller = Poller::new().map_err(fault)?;
        for (i, listener) in config.listeners.iter_mut().enumerate() {
            listener.register(&mut poller, Token(i)).map_err(fault)?;
        }
        let (sender, orders) = mpsc::channel();
        let control = AcceptorControl {
            sender,
            notifier: poller.notifier(),
        };
        let acceptor = Self {
            config,
            poller,
            events: Vec::new(),
            failure: None,
            give_up: None,
            looked_at: environment.now(),
            orders,
            sessions: Sessions::default(),
            files: Arc::new(Files::new(Arc::clone(&environment))?),
            environment,
            running: Arc::default(),
            pending: Vec::new(),
            free: Vec::new(),
            held: 0,
            accept_later: true,
        };
        Ok((acceptor, control))
    }

    /// Serves until told to drain, and then until the last session has ended.
    ///
    /// # Errors
    /// Waiting for the listeners failed.
    pub fn run(mut self) -> Result<(), Fault> {
        environment::run(&mut self);
        self.failure.map_or(Ok(()), Err)
    }

    /// Takes no further channel, and ends the sessions within the grace period.
    fn begin_drain(&mut self, grace: Duration) {
        self.config.listeners.clear();
        self.pending.clear();
        self.free.clear();
        self.held = 0;
        self.give_up = Some(self.environment.now() + grace + LAST_SYNC);
        for session in self.sessions.lock().values() {
            // A session that has ended needs no order.
            let _ = session.commands.send(Command::Drain(grace));
        }
    }

    fn accept(&mut self, listener: usize) {
        loop {
            if self.pending.len() - self.free.len() >= PENDING_MAX {
                self.accept_later = true;
                return;
            }
            match self.config.listeners[listener].accept() {
                Ok(stream) => self.begin(stream),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    // For instance no descriptors left: others may end and free some.
                    tracing::warn!(%error, "a channel could not be accepted");
                    self.accept_later = true;
                    return;
                }
            }
        }
    }

    fn begin(&mut self, mut stream: Box<dyn Stream>) {
        let (machine, guard) = match &self.config.access {
            AccessPolicy::Open(_) => (handshake::Acceptor::new(), None),
            AccessPolicy::Guarded(gate) => match gate.admit_connection(&stream.peer()) {
                Ok(guard) => {
                    let (methods, clear) = (gate.methods(), gate.takes_clear());
                    (handshake::Acceptor::protected(methods, clear), Some(guard))
                }
                Err(fault) => {
                    // Without a word: an answer would cost more than the question.
                    tracing::info!(peer = %stream.peer(), %fault, "a channel is refused");
                    return;
                }
            },
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
        self.pending[slot] = Some(Pending {
            stream,
            machine,
            input: Vec::new(),
            output: Vec::new(),
            since: self.environment.now(),
            answered: None,
            held: 0,
            _guard: guard,
            proof: None,
            grant: None,
        });
        self.go_on(slot);
    }

    fn take(&mut self, slot: usize) -> Option<Pending> {
        let mut pending = self.pending.get_mut(slot).and_then(Option::take)?;
        self.free.push(slot);
        self.held -= pending.held;
        // The stream is dropped or watched by its session next.
        let _ = pending.stream.deregister(&mut self.poller);
        Some(pending)
    }

    /// Goes on with the opening exchange of a channel as far as its bytes go, and sees to what it
    /// holds then.
    fn go_on(&mut self, slot: usize) {
        self.exchange(slot);
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

    fn exchange(&mut self, slot: usize) {
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
                Ok((step @ (AcceptorStep::Auth(_) | AcceptorStep::Proof(_)), used)) => {
                    // A proof may have been long, and little follows it.
                    pending.input = pending.input.split_off(used);
                    if let Err(fault) = self.authenticate(slot, &step) {
                        self.turn_away(slot, fault);
                        return;
                    }
                    continue;
                }
                Err(fault) => {
                    tracing::info!(peer = %pending.stream.peer(), %fault, "a channel is refused");
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
                    // It grows by what came: twice as much would be for strangers.
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

    /// Takes a step of a proof.
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
            AcceptorStep::Wait | AcceptorStep::Session(_) | AcceptorStep::Join(_) => return Ok(()),
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

    /// Says why a channel isn't taken, and closes it.
    fn turn_away(&mut self, slot: usize, fault: Fault) {
        if let Some(mut pending) = self.take(slot) {
            tracing::info!(peer = %pending.stream.peer(), %fault, "a channel is refused");
            pending.refuse(fault);
            pending.close();
        }
    }

    /// Closes channels that did not open in time.
    fn drop_late(&mut self) {
        let limit = self.config.limits.opening_timeout;
        let is_full = self.pending.len() - self.free.len() >= PENDING_FEW;
        let hurried = if is_full { HURRY.min(limit) } else { limit };
        let limit_of = |pending: &Pending| match pending.answered {
            Some(_) => limit,
            None => hurried,
        };
        let now = self.environment.now();
        let is_late = |pending: &&Pending| now - pending.since >= limit_of(pending);
        for slot in self.slots(is_late) {
            let limit = self.pending[slot].as_ref().map_or(limit, limit_of);
            let cause = format!("it was not open after {} s", limit.as_secs_f32());
            let fault = Fault::new(Code::DeadlineExceeded, OPEN_CHANNEL, cause);
            self.dismiss(slot, fault);
        }
    }

    /// Closes channels that hold what isn't complete, those first that began first, until they are
    /// well below the bound. Who comes with a long proof in one go isn't among them.
    fn drop_holders(&mut self) {
        let mut slots = self.slots(|pending| pending.held > 0);
        slots.sort_by_key(|&slot| self.pending[slot].as_ref().map(|pending| pending.since));
        for slot in slots {
            if self.held <= HELD_MAX / 4 * 3 {
                return;
            }
            let cause = "too many channels wait with what isn't complete";
            let fault = Fault::new(Code::LimitExceeded, OPEN_CHANNEL, cause);
            self.dismiss(slot, fault.retry(Retry::AfterMs(1000)));
        }
    }

    /// The places of the channels of which `is` is true.
    fn slots(&self, is: impl Fn(&&Pending) -> bool) -> Vec<usize> {
        let all = self.pending.iter().enumerate();
        all.filter(|(_, pending)| pending.as_ref().is_some_and(|pending| is(&pending)))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// Closes a channel at whatever point it is, and says why if that can be said.
    fn dismiss(&mut self, slot: usize, fault: Fault) {
        let Some(mut pending) = self.take(slot) else {
            return;
        };
        tracing::info!(peer = %pending.stream.peer(), %fault, "a channel is refused");
        if pending.answered.is_some() {
            pending.refuse(fault);
        } else {
            pending.answer_refusal(fault);
        }
        pending.close();
    }

    /// Starts the pipeline of a new session.
    fn register(&self, mut pending: Pending, request: SessionRequest) {
        let limits = &self.config.limits;
        let round_trip = match &self.config.access {
            // A proof of who asks comes in answer to WELCOME, and what needs none before it.
            AccessPolicy::Guarded(_) => pending.answered.map(|t| self.environment.now() - t),
            AccessPolicy::Open(_) => None,
        };
        let mut secret = [0; 16];
        let refusal = {
            let sessions = self.sessions.lock();
            let count = sessions.len().max(self.running.load(Ordering::Relaxed));
            if count >= self.config.sessions_max {
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
                    .map(|e| Fault::new(Code::Internal, "draw a secret", e.to_string()))
            }
        };
        if let Some(fault) = refusal {
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
        let rate = pending.grant.as_ref().and_then(|a| a.rate.as_ref());
        let size = rate.map_or(size, |rate| size.min(rate.block_bytes_max()));
        let accepted = SessionAccept {
            secret: SessionSecret(secret),
            channels: request.channels.min(limits.channels_max),
            // The largest power of two that isn't more.
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
            (AccessPolicy::Open(store), _) => SessionGrant {
                user: String::new(),
                store: Arc::clone(store),
                guard: PeerGuard(Box::new(())),
                ids: None,
                rate: None,
            },
            (AccessPolicy::Guarded(_), Some(grant)) => {
                tracing::info!(session = %request.id, user = %grant.user, "a user is known");
                grant
            }
            (AccessPolicy::Guarded(_), None) => {
                pending.refuse(unprotected());
                pending.close();
                return;
            }
        };
        grant.guard = PeerGuard(Box::new((Counted::new(&self.running), grant.guard)));
        let peer = pending.stream.peer();
        let (host, user) = (host_of(&peer), grant.user.clone());
        let takes_clear = match &self.config.access {
            AccessPolicy::Open(_) => false,
            AccessPolicy::Guarded(gate) => gate.takes_clear(),
        };
        let (mut pipeline, commands) = Pipeline::accept(
            kernel,
            grant,
            &self.files,
            takes_clear,
            limits.clone(),
            &request,
            &accepted,
            pending.stream,
            &pending.output,
            pending.input,
        );
        pipeline.learn_round_trip(round_trip);
        let id = request.id;
        self.sessions.lock().insert(
            id,
            Session {
                secret: accepted.secret,
                commands,
                host,
                user,
            },
        );
        let registration = Registration {
            sessions: self.sessions.clone(),
            id,
            notifier: self.poller.notifier(),
        };
        // A thread of its own, and never one that another session had: it may take on other ids.
        let make = move || {
            let channels = accepted.channels;
            tracing::info!(session = %id, %peer, channels, "a session begins");
            Box::new(SessionTask {
                pipeline,
                peer,
                registration,
            }) as Box<dyn Task>
        };
        // A thread of its own, and never one that another session had: it may take on other ids.
        let spawned = self.environment.start("xdfs-session", Box::new(make));
        if let Err(error) = spawned {
            // The registration went with the closure, and the channel with the pipeline.
            tracing::error!(%error, "the thread of a session could not be started");
        }
    }

    /// Hands a channel to the session that it wants to join.
    fn join(&self, mut pending: Pending, request: &JoinRequest) {
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
            // A secret that got out is of no use elsewhere.
            .filter(|s| !guarded || s.host == host)
            .map(|s| (s.commands.clone(), s.user.clone()));
        let Some((commands, user)) = commands else {
            pending.refuse(no_such_session());
            pending.close();
            return;
        };
        let guard = match &self.config.access {
            AccessPolicy::Open(_) => None,
            AccessPolicy::Guarded(gate) => match gate.join(&user) {
                Ok(guard) => Some(guard),
                Err(fault) => {
                    pending.refuse(fault);
                    pending.close();
                    return;
                }
            },
        };
        let command = Command::Join {
            stream: pending.stream,
            channel: request.channel,
            input: pending.input,
            output: pending.output,
            guard,
        };
        if let Err(Command::Join { stream, output, .. }) = commands.send(command) {
            // The session ended between the look and the order.
            let mut pending = Pending {
                stream,
                machine: pending.machine,
                input: Vec::new(),
                output,
                since: pending.since,
                answered: pending.answered,
                held: 0,
                _guard: None,
                proof: None,
                grant: None,
            };
            pending.refuse(no_such_session());
            pending.close();
        }
    }
}

/// The thread of a session.
struct SessionTask {
    pipeline: Pipeline<Readiness>,
    peer: String,
    /// Dropped after the pipeline.
    registration: Registration,
}

impl Task for SessionTask {
    fn turn(&mut self) -> Turn {
        let turn = self.pipeline.turn();
        if turn == Turn::Ended {
            let (id, peer) = (self.registration.id, &self.peer);
            match self.pipeline.result() {
                Ok(()) => tracing::info!(session = %id, %peer, "a session ends"),
                Err(fault) => tracing::warn!(session = %id, %peer, %fault, "a session ends"),
            }
        }
        turn
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.pipeline.wait(timeout)
    }
}

fn unprotected() -> Fault {
    let cause = "a proof needs a channel that is protected, and has to come first";
    Fault::new(Code::ProtectionRefused, "open the channel", cause)
}

/// The address of a peer without its port, which differs from channel to channel.
fn host_of(peer: &str) -> String {
    let host = peer.rsplit_once([':', '#']).map_or(peer, |(host, _)| host);
    host.to_owned()
}

impl Task for Acceptor {
    fn turn(&mut self) -> Turn {
        while let Ok(grace) = self.orders.try_recv() {
            self.begin_drain(grace);
        }
        let now = self.environment.now();
        let given_up = |until| self.sessions.lock().is_empty() || until <= now;
        if self.failure.is_some() || self.give_up.is_some_and(given_up) {
            return Turn::Ended;
        }
        if self.accept_later && self.give_up.is_none() {
            self.accept_later = false;
            (0..self.config.listeners.len()).for_each(|i| self.accept(i));
        }
        // Not in each turn: opening a thousand channels would pay for it a million times.
        if now - self.looked_at >= TICK {
            self.looked_at = now;
            self.drop_late();
        }
        let idle = self.pending.len() == self.free.len();
        let ticks = !idle || self.accept_later || self.give_up.is_some();
        Turn::Wait(ticks.then_some(TICK))
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
            } else if self.give_up.is_none() {
                self.go_on(event.token.0 - listeners);
            }
        }
        self.events = events;
        has_come
    }
}

impl Pending {
    /// Writes what waits, as far as the stream takes it.
    fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write_vectored(&[IoSlice::new(&self.output)]) {
                Ok(n) => {
                    self.output.drain(..n);
                }
                // The rest goes along with what follows; a peer that is gone is seen on reading.
                Err(_) => return,
            }
        }
    }

    fn refuse(&mut self, fault: Fault) {
        Frame::Exception(Exception {
            scope: Scope::Channel,
            fault,
        })
        .encode(&mut self.output);
    }

    fn answer_refusal(&mut self, fault: Fault) {
        xdfs_proto::opening::Answer::Refused(fault).encode(&mut self.output);
    }

    fn close(mut self) {
        self.flush();
        // The peer reads the reason before the end; its socket does the rest.
        let _ = self.stream.close();
    }
}

impl AcceptorControl {
    /// Takes no further channel, and ends when the sessions have ended; those that run get
    /// `grace`, after which they end in a resumable state.
    pub fn drain(&self, grace: Duration) {
        // An acceptor that has ended needs no order.
        let _ = self.sender.send(grace);
        environment::wake(&self.notifier);
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
