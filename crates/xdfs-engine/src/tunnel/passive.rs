//! Listening for peers: connections to a port of this side that go to the initiator.
//!
//! A request to listen keeps its channel. Each connection that comes waits here, is announced there
//! by INCOMING, and leads to the channel by which the peer takes it. A peer that ends the channel
//! of its listener, says anything but the answers to signs of life, or is silent, ends the
//! listener.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use xdfs_proto::frame::{Frame, Incoming};
use xdfs_proto::tunnel::{Action, Target};
use xdfs_proto::{Code, Fault};
use xdfs_sys::poll::Poller;
use xdfs_xio::{Endpoint, Listener, Location, Stream};

use super::service::{HandedOver, Opening, Place, accept, code_of, token, write};
use super::work::Loop;
use super::{OPEN_TUNNEL, TunnelOutcome};
use crate::environment::Environment;

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
pub(super) struct Listening {
    channel: HandedOver,
    place: Place,
    listener: Box<dyn Listener>,
    /// Where it listens, of the addresses of the target.
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

impl Loop {
    /// Listens at an address of the target, or if that fails at the last of the others.
    pub(super) fn listen(&mut self, key: u64, first: Option<IpAddr>, mut others: Vec<IpAddr>) {
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
        let listener = match opened {
            Ok(listener) => listener,
            Err(error) => {
                let target = &opening.channel.request.target;
                let fault = Fault::from_io("listen for the tunnel", target, &error).hint("");
                return opening.refuse(fault);
            }
        };
        let Opening {
            mut channel,
            target,
            place,
            ..
        } = opening;
        place.lead_to(address);
        if !channel.is_allowed(Action::Listen, &target, address) {
            let fault = channel.forbidden();
            channel.record(TunnelOutcome::Refused(fault.code));
            return channel.refuse(fault);
        }
        if !channel.input.is_empty() {
            let cause = "bytes came behind the request to listen";
            let fault = Fault::new(Code::ProtocolViolation, OPEN_TUNNEL, cause);
            channel.record(TunnelOutcome::Refused(fault.code));
            return channel.refuse(fault);
        }
        if let Err(error) = channel.stream.register(&mut self.poller, token(key, 2)) {
            let fault = Fault::from_io(OPEN_TUNNEL, "", &error);
            channel.record(TunnelOutcome::Refused(fault.code));
            return channel.refuse(fault);
        }
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
        self.listening.insert(key, listening);
        self.advance_listening(key);
    }

    /// Takes new connections of a listener, and looks after its channel.
    pub(super) fn advance_listening(&mut self, key: u64) {
        let Some(listening) = self.listening.get_mut(&key) else {
            return;
        };
        if let Err(error) = listening.advance(&*self.environment) {
            let is_orderly = error.kind() == ErrorKind::UnexpectedEof;
            self.end_listening(key, (!is_orderly).then(|| code_of(&error)));
        }
    }

    /// The listener has connections.
    pub(super) fn has_connections(&mut self, key: u64) {
        if let Some(listening) = self.listening.get_mut(&key) {
            listening.has_more = true;
            self.advance_listening(key);
        }
    }

    /// Looks at all listeners, for what time brings.
    pub(super) fn tick_listening(&mut self) {
        let keys: Vec<u64> = self.listening.keys().copied().collect();
        keys.into_iter().for_each(|key| self.advance_listening(key));
    }

    pub(super) fn end_all_listening(&mut self) {
        let keys: Vec<u64> = self.listening.keys().copied().collect();
        keys.into_iter()
            .for_each(|key| self.end_listening(key, Some(Code::ShuttingDown)));
    }

    pub(super) fn end_listening(&mut self, key: u64, result: Option<Code>) {
        if let Some(listening) = self.listening.remove(&key) {
            listening.end(&mut self.poller, self.environment.now(), result);
        }
    }

    /// Gives an announced connection to the channel that asks for it.
    pub(super) fn take(&mut self, opening: Opening) {
        let request = &opening.channel.request;
        let found = self.listening.iter_mut().find_map(|(key, listening)| {
            let is_own = listening.channel.request.target == request.target;
            let waiting = listening.waiting.remove_entry(&request.number)?;
            match is_own {
                true => Some((*key, waiting.1.stream, listening.address)),
                false => {
                    listening.waiting.insert(waiting.0, waiting.1);
                    None
                }
            }
        });
        let Some((key, stream, address)) = found else {
            let cause = "no such connection waits; it may have been given up";
            let fault = Fault::new(Code::NotFound, OPEN_TUNNEL, cause).path(&request.target);
            return opening.refuse(fault);
        };
        self.lead(opening, stream, address);
        // There is room for another one.
        self.advance_listening(key);
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
