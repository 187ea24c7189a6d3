//! Listening for peers: connections to a port of this side that go to the initiator.
//!
//! A request to listen keeps its channel. Each connection that comes waits here, is announced there
//! by INCOMING, and leads to the channel by which the peer takes it. A peer that ends the channel
//! of its listener, says anything but the answers to signs of life, or is silent, ends the
//! listener.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_proto::frame::{Frame, Incoming, TunnelRequest};
use xdfs_proto::tunnel::Target;
use xdfs_proto::{Code, Fault};
use xdfs_sys::poll::Poller;
use xdfs_xio::{Endpoint, Listener, Location, Stream};

use super::OPEN_TUNNEL;
use super::opening::Opening;
use super::request::{HandedOver, accept, code_of, token, write};
use super::table::Place;
use crate::environment::Environment;
use crate::security::TunnelOutcome;

/// Connections that the peer of one listener has not taken yet; more wait in the system's queue.
const WAITING_MAX: usize = 256;
/// Maximum time until the peer takes a connection.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of announcements that the peer has not read.
const UNREAD_MAX: usize = 64 << 10;
/// Interval at which the peer hears that the listener stands, and says that it is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Silence after which the peer counts as gone, and its port is free.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A listener for a peer.
struct Listening {
    channel: HandedOver,
    place: Place,
    listener: Box<dyn Listener>,
    /// The address on which it listens, of those of the target.
    address: Option<IpAddr>,
    /// Connections may be there.
    has_more: bool,
    waiting: HashMap<u64, Waiting>,
    since: Instant,
    /// The last sign of life, and how many were not answered.
    told_at: Instant,
    unanswered: u32,
    heard_at: Instant,
}

struct Waiting {
    stream: Box<dyn Stream>,
    since: Instant,
}

impl Listening {
    /// Announces what has come, as far as the peer reads it.
    ///
    /// # Errors
    /// The channel has ended, or the peer says something on it.
    fn advance(&mut self, environment: &dyn Environment) -> io::Result<()> {
        let now = environment.now();
        self.waiting.retain(|_, waiting| {
            let is_late = now - waiting.since >= TAKE_TIMEOUT;
            if is_late {
                waiting.stream.abort();
            }
            !is_late
        });
        while self.has_more
            && self.waiting.len() < WAITING_MAX
            && self.channel.output.len() < UNREAD_MAX
        {
            let stream = match self.listener.accept() {
                Ok(stream) => stream,
                Err(error) => {
                    // Without descriptors, for instance, later ones may be taken.
                    self.has_more = error.kind() != ErrorKind::WouldBlock;
                    break;
                }
            };
            let mut number = [0; 8];
            environment.fill_random(&mut number)?;
            let number = u64::from_be_bytes(number).max(1);
            let peer = stream.peer();
            Frame::Incoming(Incoming { number, peer }).encode(&mut self.channel.output);
            self.waiting.insert(number, Waiting { stream, since: now });
        }
        if now - self.told_at >= SIGN_OF_LIFE && self.channel.output.is_empty() {
            Frame::Noop.encode(&mut self.channel.output);
            self.told_at = now;
            self.unanswered += 1;
        }
        match write(&mut *self.channel.stream, &mut self.channel.output) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        self.hear(now)?;
        match now - self.heard_at > SILENCE_MAX {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    /// Reads the answers to signs of life, and nothing else.
    fn hear(&mut self, now: Instant) -> io::Result<()> {
        loop {
            let mut part = [0; 64];
            let mut bufs = [IoSliceMut::new(&mut part)];
            match self.channel.stream.read_vectored(&mut bufs) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.channel.input.extend_from_slice(&part[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            let mut answer = Vec::new();
            Frame::Noop.encode(&mut answer);
            while self.channel.input.len() >= answer.len() {
                let heard: Vec<u8> = self.channel.input.drain(..answer.len()).collect();
                if heard != answer || self.unanswered == 0 {
                    return Err(ErrorKind::InvalidData.into());
                }
                self.unanswered -= 1;
                self.heard_at = now;
            }
            if !answer.starts_with(&self.channel.input) {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }

    /// Ends it, with the connections that nobody took.
    fn end(mut self, poller: &mut Poller, now: Instant, result: Option<Code>) {
        // It is dropped next.
        let _ = self.channel.stream.deregister(poller);
        self.waiting
            .values_mut()
            .for_each(|waiting| waiting.stream.abort());
        self.channel.record(TunnelOutcome::Closed {
            to_peer: 0,
            from_peer: 0,
            elapsed: now - self.since,
            result,
        });
        drop(self.place);
        // Its end tells the peer.
        let _ = self.channel.stream.close();
    }
}

/// All listeners, by the keys of their tunnels.
pub(super) struct Listeners {
    environment: Arc<dyn Environment>,
    all: HashMap<u64, Listening>,
}

impl Listeners {
    pub(super) fn new(environment: Arc<dyn Environment>) -> Self {
        Self {
            environment,
            all: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.all.contains_key(&key)
    }

    /// Grants a request to listen, with a listener that is registered.
    pub(super) fn add(
        &mut self,
        poller: &mut Poller,
        mut opening: Opening,
        listener: Box<dyn Listener>,
        address: Option<IpAddr>,
    ) {
        let key = opening.place.key();
        if !opening.place.lead_to(address) {
            let fault = opening.channel.forbidden();
            return opening.refuse(fault);
        }
        if !opening.channel.input.is_empty() {
            let cause = "bytes came behind the request to listen";
            return opening.refuse(Fault::new(Code::ProtocolViolation, OPEN_TUNNEL, cause));
        }
        if let Err(error) = opening.channel.stream.register(poller, token(key, 2)) {
            return opening.refuse(Fault::from_io(OPEN_TUNNEL, "", &error));
        }
        let Opening {
            mut channel, place, ..
        } = opening;
        channel.record(TunnelOutcome::Opened);
        accept(&mut channel.output, place_of(&listener.local_endpoint()));
        let now = self.environment.now();
        let listening = Listening {
            channel,
            place,
            listener,
            address,
            has_more: true,
            waiting: HashMap::new(),
            since: now,
            told_at: now,
            unanswered: 0,
            heard_at: now,
        };
        self.all.insert(key, listening);
        self.advance(poller, key);
    }

    /// Takes new connections of a listener, and looks after its channel.
    pub(super) fn advance(&mut self, poller: &mut Poller, key: u64) {
        let Some(listening) = self.all.get_mut(&key) else {
            return;
        };
        if let Err(error) = listening.advance(&*self.environment) {
            let is_orderly = error.kind() == ErrorKind::UnexpectedEof;
            self.end(poller, key, (!is_orderly).then(|| code_of(&error)));
        }
    }

    /// The listener has connections.
    pub(super) fn has_connections(&mut self, poller: &mut Poller, key: u64) {
        if let Some(listening) = self.all.get_mut(&key) {
            listening.has_more = true;
            self.advance(poller, key);
        }
    }

    fn keys(&self) -> Vec<u64> {
        self.all.keys().copied().collect()
    }

    /// Looks at all listeners, for what time brings.
    pub(super) fn tick(&mut self, poller: &mut Poller) {
        for key in self.keys() {
            self.advance(poller, key);
        }
    }

    pub(super) fn end_all(&mut self, poller: &mut Poller, result: Code) {
        for key in self.keys() {
            self.end(poller, key, Some(result));
        }
    }

    pub(super) fn end(&mut self, poller: &mut Poller, key: u64, result: Option<Code>) {
        if let Some(listening) = self.all.remove(&key) {
            listening.end(poller, self.environment.now(), result);
        }
    }

    /// The announced connection that a channel asks for, the key of its listener, and where that
    /// listens.
    pub(super) fn take(
        &mut self,
        request: &TunnelRequest,
    ) -> Option<(Box<dyn Stream>, u64, Option<IpAddr>)> {
        let is_asked = |listening: &&mut Listening| {
            listening.channel.request.target == request.target
                && listening.waiting.contains_key(&request.number)
        };
        let listening = self.all.values_mut().find(is_asked)?;
        let waiting = listening.waiting.remove(&request.number)?;
        Some((waiting.stream, listening.place.key(), listening.address))
    }
}

/// The address of a listener, as the target of a tunnel is written.
fn place_of(endpoint: &Endpoint) -> String {
    match endpoint.location() {
        Location::Socket(address) => address.to_string(),
        Location::Path(path) => Target::Unix(path.display().to_string()).to_string(),
        _ => String::new(),
    }
}
