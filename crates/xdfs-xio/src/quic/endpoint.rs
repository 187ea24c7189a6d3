//! The thread of an endpoint: a UDP socket, and all connections over it.
//!
//! It waits for datagrams, for the users of its streams, and for its earliest timer, and then works
//! on the connections that have something to do. Each gets a bounded share of a turn.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{ClientConfig, ConnectionHandle, DatagramEvent, EndpointEvent, Event, Incoming};
use quinn_proto::{Dir, StreamEvent, Transmit};
use xdfs_crowd::{Crowd, Folded, Network};
use xdfs_sys::poll::{Event as Ready, Notifier, Poller, Token};

use super::channel::{Channel, Failure};
use super::configs::Configs;
use super::connection::{Connection, Opened};
use super::stream::QuicStream;
use super::udp::{self, Sent, Udp};
use super::undelivered::Undelivered;
use crate::endpoint::{Endpoint, Location};
use crate::queue::Queue;

const SOCKET: Token = Token(0);
/// Requests of a [`Remote`].
const REQUESTS: Token = Token(1);
/// The first key of a stream.
const FIRST_KEY: usize = 2;

/// System calls that receive, in one turn.
const RECEIVES: usize = 8;
/// System calls that send, of one connection in one turn.
const SENDS: usize = 32;
/// Places for accepted connections whose peers aren't admitted yet: guests.
const GUESTS_MAX: usize = 1024;
/// Handshakes from which on an address has to prove itself first (RFC 9000, section 8.1.2).
const HANDSHAKES_UNPROVEN_MAX: usize = 64;
/// Connections of one listener; more are refused.
const CONNECTIONS_MAX: usize = 16_384;
/// Interval of looks at silent guests while places are scarce.
const HURRY_INTERVAL: Duration = Duration::from_millis(500);
/// Time that the drop of a stack or a listener waits for the acknowledgement of what was sent last.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

/// The way from other threads to an endpoint. Dropping it lets the thread end, with the last of its
/// streams.
#[derive(Debug)]
pub(super) struct Remote {
    shared: Arc<Shared>,
    ended: Mutex<Receiver<Ending>>,
}

/// What a thread tells when its owner is gone. When it has ended, it drops the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It goes on with the connections that it has.
    Connected,
    /// It goes on for streams that users hold.
    Used,
    /// The peers of all connections were told of their end.
    Told,
}

#[derive(Debug)]
struct Shared {
    notifier: Notifier,
    next_key: AtomicUsize,
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    opens: Vec<Open>,
    /// The listener or the stack is gone.
    end: bool,
    /// The thread has ended by itself.
    failure: Option<Failure>,
}

/// A stream to be opened.
#[derive(Debug)]
struct Open {
    peer: SocketAddr,
    config: ClientConfig,
    name: String,
    channel: Arc<Channel>,
}

/// Starts an endpoint at `local`, which accepts streams into `backlog`, if given. Also returns its
/// address.
pub(super) fn start(
    local: SocketAddr,
    configs: Arc<Configs>,
    backlog: Option<Arc<Queue<QuicStream>>>,
) -> io::Result<(SocketAddr, Remote)> {
    let (local, engine) = build(local, configs, backlog)?;
    let shared = Arc::clone(&engine.shared);
    let (sender, ended) = mpsc::channel();
    thread::Builder::new()
        .name("xdfs-quic".to_owned())
        .spawn(move || engine.run(&sender))?;
    let ended = Mutex::new(ended);
    Ok((local, Remote { shared, ended }))
}

/// An endpoint whose thread isn't started, and its address.
fn build(
    local: SocketAddr,
    configs: Arc<Configs>,
    backlog: Option<Arc<Queue<QuicStream>>>,
) -> io::Result<(SocketAddr, Engine)> {
    let poller = Poller::new()?;
    let udp = Udp::bind(local, &poller, SOCKET)?;
    udp.report_unreachable();
    let server = match backlog {
        Some(_) => Some(configs.server()?),
        None => None,
    };
    let local = udp.local_addr()?;
    let config = configs.endpoint(server.is_some().then_some(local))?;
    let proto = quinn_proto::Endpoint::new(config, server, !udp.may_fragment(), None);
    let shared = Arc::new(Shared {
        notifier: poller.notifier(),
        next_key: AtomicUsize::new(FIRST_KEY),
        requests: Mutex::default(),
    });
    let engine = Engine {
        poller,
        udp,
        proto,
        configs,
        backlog,
        shared,
        is_ending: false,
        connections: HashMap::new(),
        by_peer: HashMap::new(),
        by_key: HashMap::new(),
        handshakes: 0,
        local: Endpoint::new("quic", Location::Socket(local)),
        guests: Crowd::new(GUESTS_MAX),
        refused: Folded::new(|refused, listener| {
            tracing::warn!(
                %listener,
                connections = CONNECTIONS_MAX,
                refused,
                "connections are refused: as many as may be are there"
            );
        }),
        hurried_at: Instant::now(),
        queue: VecDeque::new(),
        timers: BTreeSet::new(),
        unsent: None,
        buffer: Vec::new(),
    };
    Ok((local, engine))
}

impl Shared {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wake(&self) {
        self.notifier.notify(Ready {
            token: REQUESTS,
            readable: true,
            writable: false,
        });
    }

    fn channel(&self) -> Arc<Channel> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        Arc::new(Channel::new(key, self.notifier.clone()))
    }
}

impl Remote {
    /// Why the thread has ended, if it has.
    pub(super) fn failure(&self) -> Option<io::Error> {
        let requests = self.shared.requests();
        requests.failure.as_ref().map(Failure::error)
    }

    /// Starts to open a stream to `peer`.
    pub(super) fn open(&self, peer: SocketAddr, config: ClientConfig, name: String) -> QuicStream {
        let channel = self.shared.channel();
        let mut requests = self.shared.requests();
        match &requests.failure {
            Some(failure) => channel.fail(failure.clone()),
            None => requests.opens.push(Open {
                peer,
                config,
                name,
                channel: Arc::clone(&channel),
            }),
        }
        drop(requests);
        self.shared.wake();
        let endpoint = Endpoint::new("quic", Location::Socket(peer));
        QuicStream::new(channel, endpoint.to_string())
    }

    fn end(&self) {
        self.shared.requests().end = true;
        self.shared.wake();
    }
}

/// Lets the thread end. Unless streams are still in use, it waits until the peers were told: the
/// program may end with the next step, and the thread with it, which would leave the peers waiting.
/// Without connections, the port is free afterwards.
impl Drop for Remote {
    fn drop(&mut self) {
        self.end();
        let ended = self.ended.get_mut().unwrap_or_else(|e| e.into_inner());
        let until = Instant::now() + LEAVE_PATIENCE;
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(Ending::Connected) = ended.recv_timeout(left()) {}
    }
}

/// The state of the thread.
struct Engine {
    poller: Poller,
    udp: Udp,
    proto: quinn_proto::Endpoint,
    configs: Arc<Configs>,
    backlog: Option<Arc<Queue<QuicStream>>>,
    shared: Arc<Shared>,
    /// No further streams will be opened or accepted.
    is_ending: bool,
    connections: HashMap<ConnectionHandle, Connection>,
    /// The connections that take further streams.
    by_peer: HashMap<SocketAddr, ConnectionHandle>,
    /// The connections of streams.
    by_key: HashMap<usize, ConnectionHandle>,
    /// Accepted connections that aren't open yet.
    handshakes: usize,
    local: Endpoint,
    guests: Crowd<ConnectionHandle>,
    /// Connections that were refused since there are as many as may be.
    refused: Folded<Endpoint>,
    /// The last look at silent guests.
    hurried_at: Instant,
    /// Connections with something to do.
    queue: VecDeque<ConnectionHandle>,
    timers: BTreeSet<(Instant, usize)>,
    /// Datagrams for which the socket had no room.
    unsent: Option<(Transmit, Vec<u8>)>,
    /// For datagrams that are being made.
    buffer: Vec<u8>,
}

impl Engine {
    fn run(mut self, ended: &Sender<Ending>) {
        let failure = loop {
            match self.turn(ended) {
                Ok(true) => {}
                Ok(false) => break Failure::new(ErrorKind::NotConnected, "the endpoint has ended"),
                Err(e) => break Failure::new(e.kind(), format!("the UDP socket failed: {e}")),
            }
        };
        self.fail(&failure);
    }

    /// Fails all streams, and those that are still requested, and tells the peers as far as
    /// datagrams can still be sent.
    fn fail(&mut self, failure: &Failure) {
        let now = Instant::now();
        self.send_unsent();
        for (_, mut connection) in std::mem::take(&mut self.connections) {
            connection.fail(now, failure);
            if !connection.proto.is_closed() {
                connection
                    .proto
                    .close(now, super::code::ABANDONED, Default::default());
                self.send(&mut connection);
            }
        }
        let opens = {
            let mut requests = self.shared.requests();
            requests.failure = Some(failure.clone());
            std::mem::take(&mut requests.opens)
        };
        for open in opens {
            open.channel.fail(failure.clone());
        }
        if let Some(backlog) = &self.backlog {
            backlog.wake();
        }
    }

    /// One wait and the work after it; `false` at the end.
    fn turn(&mut self, ended: &Sender<Ending>) -> io::Result<bool> {
        let can_work = !self.queue.is_empty() && self.udp.is_writable();
        let timeout = if can_work || self.udp.is_readable() {
            Some(Duration::ZERO)
        } else {
            let next = self.timers.first().map(|(time, _)| *time);
            let hurry = self.guests.is_crowded();
            let hurry = hurry.then(|| self.hurried_at + HURRY_INTERVAL);
            let warnings = [self.guests.wakes_at(), self.refused.wakes_at()];
            let warnings = warnings.into_iter().flatten();
            let next = next.into_iter().chain(hurry).chain(warnings).min();
            next.map(|time| time.saturating_duration_since(Instant::now()))
        };
        let mut events = Vec::new();
        self.poller.wait(&mut events, timeout)?;
        let now = Instant::now();
        for event in events {
            match event.token {
                SOCKET => self.udp.note(&event),
                REQUESTS => self.take_requests(now, ended),
                Token(key) => self.attend(key),
            }
        }
        self.receive(now)?;
        while let Some(&(time, index)) = self.timers.first()
            && time <= now
        {
            self.timers.pop_first();
            let handle = ConnectionHandle(index);
            if let Some(connection) = self.connections.get_mut(&handle) {
                connection.timer = None;
                connection.proto.handle_timeout(now);
                self.enqueue(handle);
            }
        }
        if now >= self.hurried_at + HURRY_INTERVAL {
            self.hurried_at = now;
            for (handle, _) in self.guests.late(now, Duration::MAX) {
                self.displace(handle, now);
            }
        }
        self.guests.tick(now);
        self.refused.tick(now);
        self.send_unsent();
        for _ in 0..self.queue.len() {
            if let Some(handle) = self.queue.pop_front() {
                self.work(handle, now);
            }
        }
        if self.is_ending && self.connections.is_empty() {
            return Ok(false);
        }
        let has_sent = self.is_ending && self.unsent.is_none();
        if has_sent && self.connections.values().all(|c| c.proto.is_closed()) {
            let _ = ended.send(Ending::Told);
        }
        Ok(true)
    }

    fn enqueue(&mut self, handle: ConnectionHandle) {
        if let Some(connection) = self.connections.get_mut(&handle)
            && !std::mem::replace(&mut connection.is_queued, true)
        {
            self.queue.push_back(handle);
        }
    }

    /// Makes the connection of a stream look at it.
    fn attend(&mut self, key: usize) {
        let Some(&handle) = self.by_key.get(&key) else {
            return;
        };
        match self.connections.get_mut(&handle) {
            Some(connection) => {
                connection.due.push(key);
                self.enqueue(handle);
            }
            None => drop(self.by_key.remove(&key)),
        }
    }

    fn take_requests(&mut self, now: Instant, ended: &Sender<Ending>) {
        let (opens, end) = {
            let mut requests = self.shared.requests();
            (std::mem::take(&mut requests.opens), requests.end)
        };
        for open in opens {
            self.open(open, now);
        }
        if end && !self.is_ending {
            self.is_ending = true;
            // An owner that is gone has no use for it either.
            if self.connections.values().any(Connection::has_user) {
                let _ = ended.send(Ending::Used);
            } else if !self.connections.is_empty() {
                let _ = ended.send(Ending::Connected);
            }
            for handle in self.connections.keys().copied().collect::<Vec<_>>() {
                self.enqueue(handle);
            }
        }
    }

    fn open(&mut self, open: Open, now: Instant) {
        let handle = match self.by_peer.get(&open.peer) {
            Some(&handle) => handle,
            None => match self.proto.connect(now, open.config, open.peer, &open.name) {
                Ok((handle, proto)) => {
                    let connection = Connection::new(proto, &self.configs.options, now);
                    self.connections.insert(handle, connection);
                    self.by_peer.insert(open.peer, handle);
                    handle
                }
                Err(e) => {
                    let failure = Failure::new(ErrorKind::InvalidInput, e.to_string());
                    open.channel.fail(failure);
                    return;
                }
            },
        };
        if let Some(connection) = self.connections.get_mut(&handle) {
            self.by_key.insert(open.channel.key(), handle);
            connection.want(open.channel, now);
            self.enqueue(handle);
        }
    }

    /// Receives datagrams.
    fn receive(&mut self, now: Instant) -> io::Result<()> {
        // Each report that waits makes a system call fail.
        self.take_reports(now);
        for _ in 0..RECEIVES {
            if !self.udp.is_readable() {
                break;
            }
            // To here: a time from before the wait for a processor would make them too short.
            let now = Instant::now();
            let (proto, buffer) = (&mut self.proto, &mut self.buffer);
            let mut events = Vec::new();
            let mut responses = Vec::new();
            self.udp.receive(|meta, datagram| {
                buffer.clear();
                let (addr, ip, ecn) = (meta.addr, meta.dst_ip, udp::ecn(meta));
                let datagram = BytesMut::from(datagram);
                match proto.handle(now, addr, ip, ecn, datagram, buffer) {
                    Some(DatagramEvent::Response(transmit)) => {
                        responses.push((transmit, buffer.clone()));
                    }
                    Some(event) => events.push((event, addr)),
                    None => {}
                }
            })?;
            for (transmit, bytes) in responses {
                self.respond(&transmit, &bytes);
            }
            for (event, from) in events {
                match event {
                    DatagramEvent::ConnectionEvent(handle, event) => {
                        if let Some(connection) = self.connections.get_mut(&handle)
                            && connection.may_come_from(from, now)
                        {
                            connection.proto.handle_event(event);
                            connection.received(now);
                            self.enqueue(handle);
                        }
                    }
                    DatagramEvent::NewConnection(incoming) => self.accept(incoming, now),
                    DatagramEvent::Response(_) => {}
                }
            }
        }
        self.take_reports(now);
        Ok(())
    }

    /// Takes the reports of datagrams that nobody got.
    fn take_reports(&mut self, now: Instant) {
        for report in self.udp.undelivered() {
            self.refused(&report, now);
        }
    }

    /// Sends a datagram that belongs to no connection; if there is no room, it is lost.
    fn respond(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let _ = self.udp.send(transmit, bytes);
    }

    /// Accepts, or doesn't, a connection.
    fn accept(&mut self, incoming: Incoming, now: Instant) {
        let mut bytes = Vec::new();
        let network = Network::of(incoming.remote_address().ip());
        let is_full = self.connections.len() >= CONNECTIONS_MAX;
        if is_full {
            self.refused.count(self.local.clone(), now);
        }
        if self.is_ending || is_full {
            let transmit = self.proto.refuse(incoming, &mut bytes);
            return self.respond(&transmit, &bytes);
        }
        let is_proven = incoming.remote_address_validated();
        let is_crowded = self.handshakes >= HANDSHAKES_UNPROVEN_MAX || self.guests.is_crowded();
        if is_crowded && !is_proven {
            if let Ok(transmit) = self.proto.retry(incoming, &mut bytes) {
                self.respond(&transmit, &bytes);
            }
            return;
        }
        let config = match self.configs.server() {
            Ok(config) => config,
            Err(e) => {
                tracing::warn!("a QUIC connection was refused: {e}");
                let transmit = self.proto.refuse(incoming, &mut bytes);
                return self.respond(&transmit, &bytes);
            }
        };
        match self.proto.accept(incoming, now, &mut bytes, Some(config)) {
            Ok((handle, proto)) => {
                let mut connection = Connection::new(proto, &self.configs.options, now);
                connection.is_counted = true;
                self.handshakes += 1;
                connection.is_guest = true;
                self.connections.insert(handle, connection);
                self.enqueue(handle);
                let displaced = self.guests.enter(handle, network, &self.local, now);
                if let Some(displaced) = displaced {
                    self.displace(displaced, now);
                }
            }
            Err(e) => {
                tracing::debug!("a QUIC connection failed: {}", e.cause);
                if let Some(transmit) = e.response {
                    self.respond(&transmit, &bytes);
                }
            }
        }
    }

    /// Ends a guest's connection at once, and tells the peer by one datagram. Nothing of it stays,
    /// as it would in the closing of RFC 9000, section 10.2: guests come without end.
    fn displace(&mut self, handle: ConnectionHandle, now: Instant) {
        self.guests.leave(handle);
        let Some(mut connection) = self.connections.remove(&handle) else {
            return;
        };
        let cause = "too many connections are being opened";
        connection.close(now, super::code::REFUSED, cause.as_bytes());
        self.send(&mut connection);
        if connection.is_counted {
            self.handshakes -= 1;
        }
        if let Some(time) = connection.timer.take() {
            self.timers.remove(&(time, handle.0));
        }
        for key in connection.forgotten.drain(..) {
            self.by_key.remove(&key);
        }
        self.proto.handle_event(handle, EndpointEvent::drained());
    }

    /// A datagram was refused. That ends the connection that sent it while it opens. Such reports
    /// aren't authentic (RFC 9000, section 14.2.1), so the peers of others are asked.
    fn refused(&mut self, report: &Undelivered, now: Instant) {
        let failure = Failure::new(
            ErrorKind::ConnectionRefused,
            "the host reports that nobody listens at this UDP port",
        );
        let meant = self.connections.iter().find(|(_, c)| c.is_refused(report));
        if let Some(handle) = meant.map(|(handle, _)| *handle) {
            return self.give_up(handle, &failure, now);
        }
        let open = self.connections.iter_mut();
        let doubted = open.filter_map(|(handle, c)| c.is_doubted(report, now).then_some(*handle));
        for handle in doubted.collect::<Vec<_>>() {
            self.enqueue(handle);
        }
    }

    /// Ends a connection that isn't open.
    fn give_up(&mut self, handle: ConnectionHandle, failure: &Failure, now: Instant) {
        if let Some(connection) = self.connections.get_mut(&handle) {
            connection.fail(now, failure);
            connection
                .proto
                .close(now, super::code::DONE, Default::default());
            self.enqueue(handle);
        }
    }

    /// Works on a connection.
    fn work(&mut self, handle: ConnectionHandle, now: Instant) {
        let Some(mut connection) = self.connections.remove(&handle) else {
            return;
        };
        connection.is_queued = false;
        let mut opened = Vec::new();
        // A reader is told of an end only after it is known whether the peer read everything, and
        // the two may have come together.
        let is_stop = |e: &mut Event| matches!(e, Event::Stream(StreamEvent::Stopped { .. }));
        let mut events: Vec<_> = std::iter::from_fn(|| connection.proto.poll()).collect();
        for stop in events.extract_if(.., is_stop) {
            Self::take_event(&mut connection, stop, now, &mut opened);
        }
        for key in std::mem::take(&mut connection.due) {
            if connection.is_guest && connection.has_admitted(key) {
                connection.admit();
                self.guests.leave(handle);
            }
            connection.attend(key, now, &mut opened);
            if !connection.has_key(key) {
                self.by_key.remove(&key);
            }
        }
        for event in events {
            Self::take_event(&mut connection, event, now, &mut opened);
        }
        let mut is_drained = self.exchange(handle, &mut connection);
        while let Some(event) = connection.proto.poll() {
            Self::take_event(&mut connection, event, now, &mut opened);
        }
        if connection.may_accept {
            self.accept_streams(handle, &mut connection, now, &mut opened);
        }
        self.hand_over(handle, &mut connection, opened);
        connection.send_paced(now);
        connection.count();
        if let Some(failure) = connection.tick(now, self.is_ending) {
            connection.fail(now, &failure);
            connection
                .proto
                .close(now, super::code::DONE, Default::default());
        }
        let is_over = self.send(&mut connection);
        is_drained |= self.exchange(handle, &mut connection);

        let is_over_with = connection.is_connected() || connection.proto.is_closed();
        if is_over_with && std::mem::take(&mut connection.is_counted) {
            self.handshakes -= 1;
        }
        if connection.proto.is_closed() && self.by_peer.get(&connection.peer) == Some(&handle) {
            self.by_peer.remove(&connection.peer);
        }
        if let Some(time) = connection.timer.take() {
            self.timers.remove(&(time, handle.0));
        }
        for key in connection.forgotten.drain(..) {
            self.by_key.remove(&key);
        }
        if is_drained {
            self.guests.leave(handle);
            return;
        }
        let time = connection.next_time();
        connection.timer = Some(time);
        self.timers.insert((time, handle.0));
        self.connections.insert(handle, connection);
        if !is_over {
            self.enqueue(handle);
        }
    }

    /// Exchanges events of a connection with the endpoint; `true` once nothing is left of it.
    fn exchange(&mut self, handle: ConnectionHandle, connection: &mut Connection) -> bool {
        let mut is_drained = false;
        while let Some(event) = connection.proto.poll_endpoint_events() {
            is_drained |= event.is_drained();
            if let Some(event) = self.proto.handle_event(handle, event) {
                connection.proto.handle_event(event);
            }
        }
        is_drained
    }

    /// Accepts the streams that the peer has opened.
    fn accept_streams(
        &mut self,
        handle: ConnectionHandle,
        connection: &mut Connection,
        now: Instant,
        opened: &mut Vec<Opened>,
    ) {
        let Self {
            shared,
            backlog,
            by_key,
            is_ending,
            ..
        } = self;
        let has_room = backlog.as_ref().is_some_and(|b| b.has_room());
        let next = || {
            let channel = (has_room && !*is_ending).then(|| shared.channel())?;
            by_key.insert(channel.key(), handle);
            Some(channel)
        };
        connection.accept(now, next, opened);
    }

    fn take_event(
        connection: &mut Connection,
        event: Event,
        now: Instant,
        opened: &mut Vec<Opened>,
    ) {
        match event {
            Event::Connected => connection.connected(now),
            Event::ConnectionLost { reason } => {
                tracing::debug!(
                    "the QUIC connection with {} ended: {reason}",
                    connection.peer
                );
                let failure = connection.failure(&reason);
                connection.fail(now, &failure);
            }
            Event::Stream(event) => match event {
                StreamEvent::Opened { dir: Dir::Bi } => connection.may_accept = true,
                StreamEvent::Readable { id } => connection.receive(id, now, opened),
                StreamEvent::Writable { id } => {
                    connection.send(id, now);
                    connection.forget_ended(id);
                }
                StreamEvent::Stopped { id, error_code } => {
                    connection.stopped(id, error_code);
                    connection.forget_ended(id);
                }
                StreamEvent::Available { dir: Dir::Bi } => connection.open_wanted(now),
                StreamEvent::Opened { .. }
                | StreamEvent::Available { .. }
                | StreamEvent::Finished { .. } => {}
            },
            Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {}
        }
    }

    /// Gives streams of the peer to the listener.
    fn hand_over(
        &mut self,
        handle: ConnectionHandle,
        connection: &mut Connection,
        opened: Vec<Opened>,
    ) {
        for Opened { id, channel } in opened {
            self.guests.speaks(handle);
            match &self.backlog {
                Some(backlog) if backlog.has_room() => {
                    let peer = SocketAddr::new(
                        connection.peer.ip().to_canonical(),
                        connection.peer.port(),
                    );
                    // The listener may go meanwhile; then the stream is dropped.
                    let _ = backlog.push(QuicStream::new(channel, peer.to_string()));
                }
                _ => connection.refuse(id),
            }
        }
    }

    /// Sends what a connection has to send; `false` if it has more.
    fn send(&mut self, connection: &mut Connection) -> bool {
        for _ in 0..SENDS {
            if !self.udp.is_writable() {
                return false;
            }
            // Round trips are measured from here.
            let now = Instant::now();
            self.buffer.clear();
            let segments = self.udp.segments();
            let made = connection
                .proto
                .poll_transmit(now, segments, &mut self.buffer);
            let Some(transmit) = made else {
                return true;
            };
            connection.note_sent(&self.buffer);
            match self.udp.send(&transmit, &self.buffer) {
                Sent::Done => {}
                Sent::Full => {
                    self.unsent = Some((transmit, std::mem::take(&mut self.buffer)));
                    return false;
                }
                Sent::Failed(e) => {
                    tracing::debug!("a datagram to {} wasn't sent: {e}", connection.peer);
                    if !connection.is_connected() && !connection.proto.is_closed() {
                        let cause = format!("UDP to {} failed: {e}", connection.peer);
                        connection.fail(now, &Failure::new(e.kind(), cause));
                        connection
                            .proto
                            .close(now, super::code::DONE, Default::default());
                    }
                }
            }
        }
        false
    }

    /// Sends the datagrams for which the socket had no room.
    fn send_unsent(&mut self) {
        if !self.udp.is_writable() {
            return;
        }
        if let Some((transmit, bytes)) = self.unsent.take()
            && let Sent::Full = self.udp.send(&transmit, &bytes)
        {
            self.unsent = Some((transmit, bytes));
        }
    }
}

#[cfg(test)]
mod tests;
