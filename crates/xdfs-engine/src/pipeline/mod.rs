//! The thread of one session: MTEDP's pipeline.
//!
//! It owns its channels, its sources, its buffers and the two machines, and shares nothing that
//! needs a lock. One turn of [`Pipeline::run`] is: orders, completions of the storage side, what
//! the machines want, channels that can be read, channels that can be written, timers, wait.
//!
//! - `open`: channels on their way into the session.
//! - `receive`: frames and payload that come in.
//! - `send`: blocks that go out.
//! - `control`: orders, frames that aren't payload, what the machines want.
//! - `calls`: path calls.
//! - `transfer`: transfers, their sources and sinks.
//! - `deadline`: what depends on time alone.
//! - `closing`: the end of the session.

mod calls;
mod closing;
mod control;
mod deadline;
mod level;
mod open;
mod packs;
mod receive;
mod send;
mod transfer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use xdfs_proto::channel_set::ChannelSet;
use xdfs_proto::frame::{Frame, Level, SessionAccept, SessionRequest, Start};
use xdfs_proto::receiver::Receiver;
use xdfs_proto::sender::Sender;
use xdfs_proto::{ChannelIndex, Fault, FileId, Limits};
use xdfs_store::{Party, Store};
use xdfs_sys::ids::Ids;
use xdfs_sys::poll::Event;
use xdfs_xio::{Endpoint, Stream};

use crate::channel::{Channel, Phase};
use crate::command::{Command, Commands, WAKE};
use crate::files::{Files, SessionFiles};
use crate::kernel::Kernel;
use crate::packs::PackThreads;
use crate::paths::PathThreads;
use crate::pool::BufferPool;
use crate::rate::Bounds;
use crate::security::{Admission, Identity, Place, take_on};
use crate::storage::Storage;

use calls::Calls;
use open::Dialer;
pub(crate) use open::no_such_session;
use packs::Packs;
use send::OpenSource;
use transfer::Transfer;

/// Payload of a block in bytes, unless said otherwise. Each block ends in a segment that isn't
/// full, and loopback carries blocks of this size half again as fast as those of 256 KiB.
pub(crate) const BLOCK_BYTES: u32 = 2 << 20;
/// The same where many channels share the buffers.
const BLOCK_BYTES_MIN: u32 = 256 << 10;
/// Size of a buffer that receives payload in bytes, and of what is read and hashed at once: with
/// its copy it fits the second level cache.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes of buffers for payload that a session may use to send.
const SEND_POOL_BYTES: usize = 32 << 20;
/// The same to receive.
const RECEIVE_POOL_BYTES: usize = 16 << 20;
/// Buffers that channels may keep in the middle of a block; beyond it they pass on what they have.
const PIECES_HELD_MAX: usize = 32;
/// Bytes a channel may read before the others get their turn.
const TURN_BYTES: usize = 1 << 20;
/// Round-trip time under which a path is short: its bandwidth-delay product is small.
const SHORT_PATH: Duration = Duration::from_millis(2);
/// How long acknowledgements may wait for company.
const ACK_DELAY: Duration = Duration::from_millis(1);
/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(250);

/// How an initiator opens its session.
#[derive(Clone, Debug)]
pub struct Dial {
    /// Where the acceptor listens: one after the other is tried until one answers.
    pub endpoints: Vec<Endpoint>,
    /// Number of channels; `None` picks it for each file.
    pub channels: Option<u32>,
    /// Payload of a block in bytes, a power of two; `None` for the default.
    pub block_size: Option<u32>,
    /// Socket buffer of a channel in bytes; `None` leaves it to the system.
    pub window: Option<u32>,
    /// Wait for all channels before the first block.
    pub start: Start,
    /// Name of the user; may be empty.
    pub user: String,
    /// Opens channels that are protected, and proves who this side is; `None` for plain ones.
    pub identity: Option<Arc<dyn Identity>>,
    /// How payload travels on protected channels.
    pub level: Level,
}

impl Dial {
    /// Whether the acceptor is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.endpoints.iter().all(|endpoint| match endpoint {
            Endpoint::Tcp(address) => address.ip().is_loopback(),
            _ => true,
        })
    }
}

/// Who opened the session.
#[derive(Debug)]
enum Role {
    Initiator(Box<Dialer>),
    Acceptor {
        store: Arc<dyn Store>,
        /// Payload may travel in the clear.
        takes_clear: bool,
        /// Held as long as the session lives. Only the mutex makes it shareable.
        _place: Arc<Mutex<Place>>,
    },
}

/// The session's thread. See the module documentation.
#[derive(Debug)]
pub struct Pipeline<K> {
    kernel: K,
    role: Role,
    /// What the threads of the session run with; `None` for the ids of the process.
    ids: Option<Ids>,
    limits: Limits,
    started: Instant,
    now: Duration,
    commands: mpsc::Receiver<Command>,
    channels: Vec<Option<Channel>>,
    free_slots: Vec<usize>,
    /// Slots of the open channels.
    slots: BTreeMap<ChannelIndex, usize>,
    used_indexes: BTreeSet<ChannelIndex>,
    read_queue: VecDeque<usize>,
    write_queue: VecDeque<usize>,
    idle_queue: VecDeque<usize>,
    /// Channels that wait for a buffer, those that have waited longest first.
    starved: VecDeque<usize>,
    /// Channels that wait for the bound on the rate.
    throttled: Vec<usize>,
    /// Files whose sinks take bytes only in order.
    ordered: BTreeSet<FileId>,
    /// Files whose sinks are open, and what ACCEPT will say of them once what an earlier attempt
    /// has left was read again: path and block size.
    unverified: BTreeMap<FileId, (Vec<u8>, u32)>,
    /// The last turn ended with channels that could take more blocks.
    more_to_send: bool,
    /// Frames for whichever channel is open first.
    homeless: VecDeque<Frame>,
    sender: Sender,
    receiver: Receiver,
    sources: BTreeMap<FileId, OpenSource>,
    transfers: BTreeMap<FileId, Transfer>,
    /// Files whose end is known and that aren't complete: since when nothing came, and how many
    /// bytes were held then.
    incomplete: BTreeMap<FileId, (Duration, u64)>,
    /// Channels that were given up because a header came damaged.
    damaged: u32,
    storage: Storage,
    calls: Calls,
    packs: Packs,
    send_pool: BufferPool,
    receive_pool: BufferPool,
    /// Buffers of `receive_pool` that the storage side has.
    at_storage: usize,
    bounds: Bounds,
    uniform: Option<send::UniformBlock>,
    channels_max: u32,
    block_size: u32,
    window: u32,
    strict: bool,
    strict_met: bool,
    /// A channel was to leave before one was open: the first one does.
    leave_due: bool,
    /// The open channels, and the end of the session.
    set: ChannelSet,
    live_max: u32,
    last_heard: Duration,
    last_said: Duration,
    acks_since: Option<Duration>,
    next_tick: Duration,
    /// When what has no answer is said again.
    next_ask: Duration,
    /// No further file is taken; ends when idle or at the time.
    draining: Option<Option<Duration>>,
    ended: Option<Result<(), Fault>>,
    /// What was started before the path was known.
    unpicked: Vec<transfer::Moved>,
    /// Of the path, once it is measured.
    round_trip: Option<Duration>,
    /// The file whose answer measures it, and when it was offered.
    offered_at: Option<(FileId, Duration)>,
    /// Both ends are on one machine.
    local: bool,
    last_transfer_end: Duration,
}

impl<K: Kernel> Pipeline<K> {
    /// A pipeline that registers a session with an acceptor.
    ///
    /// # Errors
    /// A setting has no meaning.
    pub fn initiate(kernel: K, dial: Dial, limits: Limits) -> Result<(Self, Commands), Fault> {
        let request = open::session_request(&dial, &limits)?;
        let (block_size, channels) = (request.block_size, request.channels);
        let strict = dial.start == Start::Strict;
        let window = request.window;
        let role = Role::Initiator(Box::new(Dialer::new(dial, request)));
        let calls = Calls::initiator(&limits);
        let (mut pipeline, commands) = Self::new(kernel, role, None, None, calls, limits);
        pipeline.set_parameters(channels, block_size, window, strict);
        Ok((pipeline, commands))
    }

    /// A pipeline for a session that a peer registers on `stream`, and that `admission` was given
    /// to. `files` is what it has in common with the other sessions of the server. `input` came
    /// after SESSION; `output` of the opening exchange still waits to be written.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a part of one channel's opening"
    )]
    pub fn accept(
        kernel: K,
        admission: Admission,
        files: &Arc<Files>,
        takes_clear: bool,
        limits: Limits,
        request: &SessionRequest,
        accepted: &SessionAccept,
        stream: Box<dyn Stream>,
        output: &[u8],
        input: Vec<u8>,
    ) -> (Self, Commands) {
        let place = Arc::new(Mutex::new(admission.place));
        let party = Arc::new(Party::new());
        let threads = PathThreads::new(
            Arc::clone(&admission.store),
            SessionFiles::new(Arc::clone(files), &admission.user),
            admission.ids.clone(),
            Arc::clone(&party),
            admission.rate.clone(),
            Arc::clone(&place),
            kernel.notifier(),
        );
        let calls = Calls::acceptor(&limits, threads);
        let role = Role::Acceptor {
            store: admission.store,
            takes_clear,
            _place: place,
        };
        let (mut pipeline, commands) =
            Self::new(kernel, role, admission.ids, Some(party), calls, limits);
        pipeline.bounds = Bounds::new(admission.rate, pipeline.started);
        let strict = request.start == Start::Strict;
        pipeline.set_parameters(
            accepted.channels,
            accepted.block_size,
            accepted.window,
            strict,
        );
        let mut channel = Channel::new(ChannelIndex(0), stream, Phase::Open, pipeline.now);
        channel.input = input;
        channel.push_bytes(output);
        channel.push(&Frame::SessionOk(accepted.clone()));
        pipeline.admit(channel);
        (pipeline, commands)
    }

    fn new(
        kernel: K,
        role: Role,
        ids: Option<Ids>,
        party: Option<Arc<Party>>,
        calls: Calls,
        limits: Limits,
    ) -> (Self, Commands) {
        let (commands, receiver) = Commands::new(kernel.notifier());
        let storage = Storage::new(kernel.notifier(), ids.clone());
        let packs = Packs::new(PackThreads::new(ids.clone(), party, kernel.notifier()));
        let pipeline = Self {
            kernel,
            role,
            ids,
            started: Instant::now(),
            now: Duration::ZERO,
            commands: receiver,
            channels: Vec::new(),
            free_slots: Vec::new(),
            slots: BTreeMap::new(),
            used_indexes: BTreeSet::new(),
            read_queue: VecDeque::new(),
            write_queue: VecDeque::new(),
            idle_queue: VecDeque::new(),
            starved: VecDeque::new(),
            throttled: Vec::new(),
            ordered: BTreeSet::new(),
            unverified: BTreeMap::new(),
            more_to_send: false,
            homeless: VecDeque::new(),
            sender: Sender::new(limits.clone(), limits.in_flight_bytes_max),
            receiver: Receiver::new(limits.clone()),
            sources: BTreeMap::new(),
            transfers: BTreeMap::new(),
            incomplete: BTreeMap::new(),
            damaged: 0,
            storage,
            calls,
            packs,
            send_pool: BufferPool::new(0, 0),
            receive_pool: BufferPool::new(PIECE_BYTES, RECEIVE_POOL_BYTES / PIECE_BYTES),
            at_storage: 0,
            bounds: Bounds::default(),
            uniform: None,
            channels_max: 1,
            block_size: BLOCK_BYTES,
            window: 0,
            strict: false,
            strict_met: false,
            leave_due: false,
            set: ChannelSet::new(limits.idle_timeout),
            live_max: 0,
            last_heard: Duration::ZERO,
            last_said: Duration::ZERO,
            acks_since: None,
            next_tick: TICK,
            next_ask: limits.stall_timeout,
            draining: None,
            ended: None,
            unpicked: Vec::new(),
            round_trip: None,
            offered_at: None,
            local: false,
            last_transfer_end: Duration::ZERO,
            limits,
        };
        (pipeline, commands)
    }

    /// Tells the round-trip time of the path, if the opening exchange showed it.
    pub fn learn_round_trip(&mut self, round_trip: Option<Duration>) {
        self.set_round_trip(round_trip);
    }

    fn set_parameters(&mut self, channels: u32, block_size: u32, window: u32, strict: bool) {
        self.channels_max = channels;
        self.block_size = block_size;
        self.sender.set_block_size_max(block_size);
        self.window = window;
        self.strict = strict;
        let size = block_size as usize;
        self.send_pool = BufferPool::new(size, (SEND_POOL_BYTES / size).max(2));
    }

    /// Drives the session to its end. What it had durable stays for a later resume. If the session
    /// has ids of its own, the calling thread takes them on for good: it has to be a thread that
    /// was made for this session and ends with it.
    ///
    /// # Errors
    /// The fault that ended the session.
    pub fn run(mut self) -> Result<(), Fault> {
        if let Err(fault) = take_on(self.ids.as_ref()) {
            return self.finish(Err(fault));
        }
        let mut events = Vec::with_capacity(1024);
        self.dial_missing();
        let result = loop {
            self.now = self.started.elapsed();
            self.obey();
            self.complete();
            self.drive();
            self.receive_all();
            self.drive();
            self.send_all();
            self.calls.look_again();
            self.drive();
            if self.now >= self.next_tick {
                self.tick();
                self.drive();
            }
            if let Some(result) = self.ended.take() {
                break result;
            }
            let timeout = self.wait_time();
            if let Err(error) = self.kernel.wait(&mut events, timeout) {
                break Err(Fault::from_io("wait for the channels", "", &error));
            }
            for event in events.drain(..) {
                self.note(event);
            }
        };
        self.finish(result)
    }

    /// How long nothing can be done unless something becomes ready.
    fn wait_time(&self) -> Option<Duration> {
        let busy = !self.read_queue.is_empty() || !self.write_queue.is_empty() || self.more_to_send;
        if busy {
            return Some(Duration::ZERO);
        }
        let mut until = self.next_tick.saturating_sub(self.now);
        if let Some(since) = self.acks_since {
            until = until.min((since + ACK_DELAY).saturating_sub(self.now));
        }
        let delay = self.bounds.delay(self.now);
        if delay > Duration::ZERO {
            until = until.min(delay.max(Duration::from_millis(1)));
        }
        Some(until)
    }

    /// Notes what became ready.
    fn note(&mut self, event: Event) {
        if event.token == WAKE {
            return;
        }
        let slot = event.token.0;
        let Some(Some(channel)) = self.channels.get_mut(slot) else {
            return;
        };
        if event.readable && !channel.readable {
            channel.readable = true;
        }
        if event.writable {
            channel.writable = true;
        }
        self.queue(slot);
    }

    /// Puts a channel where it belongs after its state changed.
    fn queue(&mut self, slot: usize) {
        let Some(Some(channel)) = self.channels.get_mut(slot) else {
            return;
        };
        let wants_read = channel.readable || (channel.is_open() && !channel.input.is_empty());
        if wants_read && !channel.read_queued && !channel.starved && !channel.throttled {
            channel.read_queued = true;
            self.read_queue.push_back(slot);
        }
        if !channel.writable {
            return;
        }
        let connecting = matches!(channel.phase, Phase::Connecting(_));
        if connecting || channel.has_pending() {
            if !channel.write_queued {
                channel.write_queued = true;
                self.write_queue.push_back(slot);
            }
        } else if channel.is_open() && !channel.idle_queued {
            channel.idle_queued = true;
            self.idle_queue.push_back(slot);
        }
    }

    /// Slots of the channels that are open.
    fn open_slots(&self) -> impl Iterator<Item = usize> {
        self.channels
            .iter()
            .enumerate()
            .filter(|(_, c)| c.as_ref().is_some_and(Channel::is_open))
            .map(|(slot, _)| slot)
    }
}
