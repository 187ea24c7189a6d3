//! The thread of one session: MTEDP's pipeline.
//!
//! It owns its channels, sources, buffers and machines, and shares nothing that needs a lock. One
//! turn: commands, completions of the workers, outputs of the machines, readable channels, writable
//! channels, timers, wait.
//!
//! Its state is split into types, one per module:
//!
//! - `channels`: the channels, and queues of those that are ready for something.
//! - `dialer`: the channels that an initiator opens, and their endpoints.
//! - `parameters`: the parameters that the peers agreed on.
//! - `yielding`: the rate of a session that yields to others.
//! - `in_flight`: the bound on the bytes in flight within one machine.
//! - `network_path`: the round-trip time, and what is chosen for it.
//! - `channel_count`: the search for the number of channels that fills a long path.
//! - `transfers`: the state of each transfer.
//! - `ledger`: where the time of the session went.
//! - `source`: the sources of the files that are sent.
//! - `buffers`, `uniform`: memory for payload, and the block whose bytes are all zero.
//! - `timers`: the times of the next checks.
//! - `faults`: faults that several modules report.
//!
//! Its behaviour is in these modules:
//!
//! - `open`: channels join the session and leave it.
//! - `level`: whether payload is encrypted.
//! - `receive`: incoming frames and payload.
//! - `read`, `send`: outgoing blocks, read from their sources and given to channels.
//! - `control`: commands, control frames, outputs of the machines.
//! - `calls`, `store_jobs`: calls, and the jobs of the store workers, with their state.
//! - `transfer`: the start and the end of a transfer, its source and its sink.
//! - `deadline`: deadlines.
//! - `closing`: the end of the session.

mod buffers;
mod calls;
mod channel_count;
mod channels;
mod closing;
mod control;
mod deadline;
mod dialer;
mod ending;
mod faults;
mod in_flight;
mod ledger;
mod level;
mod network_path;
mod open;
mod parameters;
mod read;
mod receive;
mod send;
mod source;
mod store_jobs;
mod timers;
mod transfer;
mod transfers;
mod uniform;
mod yielding;

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use xdfs_proto::channel_set::ChannelSet;
use xdfs_proto::frame::{Frame, SessionAccept, SessionRequest};
use xdfs_proto::receiver::Receiver;
use xdfs_proto::sender::Sender;
use xdfs_proto::{ChannelIndex, Fault, Limits};
use xdfs_store::{Store, SyncGroup};
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Event;
use xdfs_xio::Stream;

use crate::call_workers::CallWorkers;
use crate::channel::{Channel, Phase};
use crate::command::{Command, Commands, WAKE};
use crate::environment::{self, Environment, Task, Turn};
use crate::files::{Files, SessionFiles};
use crate::kernel::Kernel;
use crate::memory::{Account, MemoryBudget};
use crate::path_decision::PathDecisions;
use crate::rate::Bounds;
use crate::security::{PeerGuard, SessionGrant, assume_ids};
use crate::storage::Storage;
use crate::store_workers::StoreWorkers;
use crate::tally::{ServerTally, SessionCounts, SessionTally};

pub(crate) use buffers::BLOCK_BYTES;
use buffers::Buffers;
use calls::Calls;
use channels::Channels;
use dialer::Dialer;
pub use dialer::{Dial, Route};
use ending::Ending;
use in_flight::InFlightBound;
use ledger::{Ledger, Spent, Waiting};
use network_path::NetworkPath;
pub(crate) use open::no_such_session;
use parameters::Parameters;
use source::SlowSources;
use store_jobs::StoreJobs;
use timers::Timers;
use transfers::Transfers;
use uniform::UniformBlock;
use yielding::Yielding;

/// The interval between two checks of the deadlines.
const TICK: Duration = Duration::from_millis(250);

/// The side of the session.
#[derive(Debug)]
enum Role {
    Initiator(Box<Dialer>),
    Acceptor {
        store: Arc<dyn Store>,
        /// Unencrypted payload is accepted.
        takes_clear: bool,
        /// Held while the session lives. The mutex makes it shareable.
        _guard: Arc<Mutex<PeerGuard>>,
    },
}

/// The stages of a session's life.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Before the first turn.
    Starting,
    /// Channels open, files and calls move.
    Running,
    /// The last frames are written, until this time.
    Flushing(Duration),
    /// Received data is made durable.
    Storing,
    /// The workers end, until this time.
    Joining(Duration),
}

/// Payload that a session has moved.
#[derive(Debug, Default)]
struct Moved {
    received_bytes: u64,
    /// Bytes given to channels.
    sent_bytes: u64,
    /// The part of the session in the figures of its server (acceptor).
    tally: Option<SessionTally>,
}

/// The session's thread. See the module documentation.
#[derive(Debug)]
pub struct Pipeline<K> {
    kernel: K,
    environment: Arc<dyn Environment>,
    stage: Stage,
    /// Buffer for events, kept to reuse its memory.
    events: Vec<Event>,
    role: Role,
    /// The user and group ids of the session's threads; `None` for those of the process.
    ids: Option<Ids>,
    limits: Limits,
    started: Instant,
    now: Duration,
    commands: mpsc::Receiver<Command>,
    channels: Channels,
    /// Channels may take blocks that the last turn didn't give them, so that another one has to
    /// follow at once: it stopped at its limit, or a channel has lost what others can send.
    sends_more: bool,
    sender: Sender,
    receiver: Receiver,
    transfers: Transfers,
    ledger: Ledger,
    slow_sources: SlowSources,
    storage: Storage,
    calls: Calls,
    store_jobs: StoreJobs,
    buffers: Buffers,
    bounds: Bounds,
    /// EOFR of files whose last blocks the rate limit still delays.
    delayed_ends: Vec<Frame>,
    uniform: UniformBlock,
    parameters: Parameters,
    /// As many channels have opened as the start mode requires.
    is_started: bool,
    /// The machine of open channels, of LEAVE and of EOFT.
    channel_set: ChannelSet,
    /// Largest number of channels open at once.
    open_channels_max: u32,
    moved: Moved,
    timers: Timers,
    ending: Ending,
    network_path: NetworkPath,
    in_flight_bound: InFlightBound,
    /// The bound that the sender has.
    in_flight_max: u64,
    /// Yields to others on the path.
    yielding: Option<Yielding>,
}

impl<K: Kernel> Pipeline<K> {
    /// A pipeline that registers a session with an acceptor.
    ///
    /// # Errors
    /// A setting has no meaning.
    pub fn initiate(kernel: K, dial: Dial, limits: Limits) -> Result<(Self, Commands), Fault> {
        let request = dialer::session_request(&**kernel.environment(), &dial, &limits)?;
        let parameters = Parameters::requested(&request);
        let (yields, rate) = (dial.yields, dial.rate.clone());
        let role = Role::Initiator(Box::new(Dialer::new(dial, request)));
        let calls = Calls::initiator(&limits);
        let (mut pipeline, commands) = Self::new(
            kernel,
            role,
            parameters,
            None,
            None,
            calls,
            MemoryBudget::unbounded(),
            limits,
        );
        pipeline.bounds = Bounds::new(rate, pipeline.started);
        if yields {
            pipeline.yield_to_others();
        }
        Ok((pipeline, commands))
    }

    /// A pipeline for a session that a peer registers on `stream` with the rights of `grant`.
    /// `files` is the server's table of open files, and `memory` its budget, which all its sessions
    /// share. `input` holds the bytes received after SESSION, `output` those of the opening
    /// exchange still to be written. `reports_time` says whether both sides report how they spend
    /// their time.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a part of one channel's opening"
    )]
    pub fn accept(
        kernel: K,
        grant: SessionGrant,
        files: &Arc<Files>,
        memory: &Arc<MemoryBudget>,
        takes_clear: bool,
        reports_time: bool,
        limits: Limits,
        request: &SessionRequest,
        accepted: &SessionAccept,
        stream: Box<dyn Stream>,
        output: &[u8],
        input: Vec<u8>,
    ) -> (Self, Commands) {
        let guard = Arc::new(Mutex::new(grant.guard));
        let sync_group = Arc::new(SyncGroup::new());
        let threads = CallWorkers::new(
            Arc::clone(kernel.environment()),
            Arc::clone(&grant.store),
            SessionFiles::new(Arc::clone(files), &grant.user),
            grant.ids.clone(),
            Arc::clone(&sync_group),
            grant.rate.clone(),
            Arc::clone(&guard),
            kernel.notifier(),
        );
        let calls = Calls::acceptor(&limits, threads);
        let role = Role::Acceptor {
            store: grant.store,
            takes_clear,
            _guard: guard,
        };
        let (ids, sync_group) = (grant.ids, Some(sync_group));
        let parameters = Parameters::accepted(request, accepted, reports_time);
        let memory = Arc::clone(memory);
        let (mut pipeline, commands) = Self::new(
            kernel, role, parameters, ids, sync_group, calls, memory, limits,
        );
        pipeline.bounds = Bounds::new(grant.rate, pipeline.started);
        let mut channel = Channel::new(ChannelIndex(0), stream, Phase::Open, pipeline.now);
        channel.input = input;
        channel.push_bytes(output);
        channel.push(&Frame::SessionOk(accepted.clone()));
        pipeline.admit(channel);
        (pipeline, commands)
    }

    #[expect(clippy::too_many_arguments, reason = "each is a part of a session")]
    fn new(
        kernel: K,
        role: Role,
        parameters: Parameters,
        ids: Option<Ids>,
        sync_group: Option<Arc<SyncGroup>>,
        calls: Calls,
        memory: Arc<MemoryBudget>,
        limits: Limits,
    ) -> (Self, Commands) {
        let (commands, receiver) = Commands::new(kernel.notifier());
        let environment = Arc::clone(kernel.environment());
        let outside = || Arc::clone(&environment);
        let storage = Storage::new(outside(), kernel.notifier(), ids.clone());
        let threads = || {
            let (ids, sync_group) = (ids.clone(), sync_group.clone());
            let account = || Account::new(&memory);
            StoreWorkers::new(outside(), ids, sync_group, kernel.notifier(), account)
        };
        let store_jobs = StoreJobs::new(threads(), threads());
        let started = environment.now();
        let mut pipeline = Self {
            kernel,
            environment,
            stage: Stage::Starting,
            events: Vec::with_capacity(1024),
            role,
            ids,
            started,
            now: Duration::ZERO,
            commands: receiver,
            channels: Channels::default(),
            sends_more: false,
            sender: Sender::new(limits.clone(), limits.in_flight_bytes_max),
            receiver: Receiver::new(limits.clone()),
            transfers: Transfers::default(),
            ledger: Ledger::default(),
            slow_sources: SlowSources::default(),
            storage,
            calls,
            store_jobs,
            buffers: Buffers::new(memory),
            bounds: Bounds::default(),
            delayed_ends: Vec::new(),
            uniform: UniformBlock::default(),
            parameters,
            is_started: false,
            channel_set: ChannelSet::new(limits.idle_timeout),
            open_channels_max: 0,
            moved: Moved::default(),
            timers: Timers::new(TICK, limits.stall_timeout),
            ending: Ending::default(),
            network_path: NetworkPath::default(),
            in_flight_bound: InFlightBound::default(),
            in_flight_max: limits.in_flight_bytes_max,
            yielding: None,
            limits,
        };
        pipeline.set_parameters(parameters);
        (pipeline, commands)
    }

    /// Has this side yield to others on the path from now on.
    pub fn yield_to_others(&mut self) {
        self.yielding.get_or_insert_default();
    }

    /// Sets the round-trip time, if the opening exchange measured it.
    pub fn learn_round_trip(&mut self, round_trip: Option<Duration>) {
        self.set_round_trip(round_trip);
    }

    /// Has the decisions about the network path told there, not only to the log.
    pub fn tell_decisions(&mut self, to: PathDecisions) {
        self.network_path.tell_to(to);
    }

    /// Counts the session in the figures of its server (acceptor).
    pub(crate) fn count_in(&mut self, tally: &Arc<ServerTally>) {
        let tally = SessionTally::begin(tally);
        tally.channel_opened();
        self.moved.tally = Some(tally);
    }

    /// Brings the figures of the server up to date.
    fn tally(&mut self) {
        if self.moved.tally.is_none() {
            return;
        }
        let counts = SessionCounts {
            channels: u64::from(self.count().live),
            received_bytes: self.moved.received_bytes,
            sent_bytes: self.moved.sent_bytes,
            receiving: self.transfers.sinks() as u64,
            sending: self.transfers.sources() as u64,
            activities: self.account().activities(),
        };
        if let Some(tally) = &mut self.moved.tally {
            tally.add(counts);
        }
    }

    fn set_parameters(&mut self, parameters: Parameters) {
        self.parameters = parameters;
        self.sender.set_block_size_max(parameters.block_size());
        self.buffers.set_block_size(parameters.block_size());
    }

    /// Drives the session to its end. Durable data stays for a later resume. If the session has ids
    /// of its own, the calling thread takes them on for good, so it must have been created for this
    /// session and end with it.
    ///
    /// # Errors
    /// The fault that ended the session.
    pub fn run(mut self) -> Result<(), Fault> {
        environment::run(&mut self);
        self.result()
    }

    /// The most channels that were open at once.
    #[must_use]
    pub fn most_channels(&self) -> u32 {
        self.open_channels_max
    }

    /// Does everything that can be done now.
    fn run_turn(&mut self) -> Turn {
        self.process_commands();
        self.process_completions();
        self.send_delayed_ends();
        self.pump_machines();
        self.serve_waiting_packs();
        self.receive_all();
        self.pump_machines();
        // Before blocks are sent: those of a channel that it closes go to others.
        if self.timers.is_tick_due(self.now) {
            self.tick();
            self.pump_machines();
        }
        self.send_all();
        self.calls.mark_due_if_waiting();
        self.pump_machines();
        self.end_if_drained();
        if self.ending.has_ended() {
            return self.begin_shutdown();
        }
        let timeout = self.wait_time();
        self.account();
        self.ledger.wait_for(self.waiting(timeout));
        Turn::Wait(timeout)
    }

    /// Brings the account of the session's time up to date.
    fn account(&mut self) -> Spent {
        self.ledger.wrote_target(self.storage.take_inline_time());
        self.ledger.spent_until(self.elapsed())
    }

    /// What has to happen before more payload can move.
    fn waiting(&self, timeout: Option<Duration>) -> Waiting {
        if timeout == Some(Duration::ZERO) {
            return Waiting::No;
        }
        let could_send = self.channels.are_any_idle();
        let has_delayed = self.channels.are_throttled()
            || !self.delayed_ends.is_empty()
            || (could_send && !self.sender.is_idle());
        let lacks_buffers = self.channels.are_starved() && self.buffers.are_at_storage();
        if has_delayed && self.bounds.delay(self.now) > Duration::ZERO {
            Waiting::ForRate
        } else if lacks_buffers || self.transfers.are_all_sinks_storing() {
            Waiting::ForTarget
        } else if self.lacks_memory() {
            Waiting::ForMemory
        } else if could_send && (self.transfers.is_preparing() || !self.slow_sources.is_empty()) {
            Waiting::ForSource
        } else if self.sender.in_flight() > 0 || self.receiver.is_receiving() {
            Waiting::ForPayload
        } else {
            Waiting::ForAnswer
        }
    }

    /// Whether something waits for memory that other sessions hold.
    fn lacks_memory(&self) -> bool {
        self.buffers.retry_delay(self.now) > Duration::ZERO
    }

    /// The time since the session began, read from the clock. (`now` is that of the turn's begin.)
    fn elapsed(&self) -> Duration {
        self.environment.now() - self.started
    }

    /// How long to wait if nothing becomes ready.
    fn wait_time(&self) -> Option<Duration> {
        let feeds = self.channels.are_starved() && self.buffers.free_to_receive() > 0;
        // In this turn the limit may have been lifted.
        let resumes = self.channels.are_throttled() && self.bounds.delay(self.now).is_zero();
        if self.channels.are_busy() || self.sends_more || feeds || resumes {
            return Some(Duration::ZERO);
        }
        let mut until = self.timers.left(self.now);
        let delay = self.bounds.delay(self.now);
        if delay > Duration::ZERO {
            until = until.min(delay.max(Duration::from_millis(1)));
        }
        let delay = self.buffers.retry_delay(self.now);
        if delay > Duration::ZERO {
            until = until.min(delay);
        }
        Some(until)
    }

    /// Queues the channel that became ready.
    fn on_event(&mut self, event: Event) {
        if event.token == WAKE {
            return;
        }
        let slot = event.token.0;
        let Some(channel) = self.channels.get_mut(slot) else {
            return;
        };
        if event.readable && !channel.readable {
            channel.readable = true;
        }
        if event.writable {
            channel.writable = true;
        }
        self.channels.queue(slot);
    }
}

impl<K: Kernel> Task for Pipeline<K> {
    fn turn(&mut self) -> Turn {
        self.now = self.elapsed();
        self.ledger.begin_turn(self.now);
        match self.stage {
            Stage::Starting => match assume_ids(self.ids.as_ref()) {
                Ok(()) => {
                    self.stage = Stage::Running;
                    self.dial_missing();
                    Turn::Again
                }
                Err(fault) => {
                    self.end(Err(fault));
                    self.begin_shutdown()
                }
            },
            Stage::Running => self.run_turn(),
            Stage::Flushing(until) => self.flush_channels(until),
            Stage::Storing => self.await_storage(),
            Stage::Joining(until) => self.join_workers(until),
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let mut events = std::mem::take(&mut self.events);
        if let Err(error) = self.kernel.wait(&mut events, timeout) {
            self.end(Err(Fault::from_io("wait for the channels", "", &error)));
        }
        let has_come = !events.is_empty() || self.ending.has_ended();
        for event in events.drain(..) {
            self.on_event(event);
        }
        self.events = events;
        has_come
    }
}
