//! A listener at the server, as this side sees it: its channel, on which the server announces
//! connections, and its return after a loss.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use xdfs_engine::tunnel::{TunnelDial, TunnelStream, fault_of};
use xdfs_proto::frame::{
    FRAME_HEADER_BYTES, Frame, FrameHeader, Incoming, TunnelPurpose, TunnelRequest,
};
use xdfs_proto::tunnel::Target;
use xdfs_proto::{Code, Fault, Limits, Side};
use xdfs_sys::poll::{Poller, Token};
use xdfs_xio::{Endpoint, Stack, Stream};

/// Silence of the server after which the channel counts as lost: it says something four times a
/// minute.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A listener that stood for less is not asked for again at once.
const STOOD: Duration = Duration::from_secs(60);
/// Waits before attempts to listen again: doubled from the first to the last.
const WAIT_MIN: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Announced connections that wait here; the server ends those of which it hears nothing.
const INCOMING_MAX: usize = 1024;
/// Bytes read at once, and in one turn.
const CHUNK: usize = 4096;
const TURN: usize = 16 * CHUNK;

/// A listener at the server.
pub(super) struct Remote {
    /// Where the server listens, as this side asks for it.
    pub(super) listen: Target,
    /// The same at the port that it has given, if any would have done.
    pinned: Option<Target>,
    /// Of what was asked for at first and the same at a given port, the one that isn't `listen`.
    other: Option<Target>,
    /// `listen` has the given port.
    is_pinned: bool,
    /// What was told of the attempts to listen again.
    told: String,
    /// Where connections go on this side.
    pub(super) target: Target,
    pub(super) stack: Stack,
    /// In the order in which they are tried, from the end.
    pub(super) endpoints: Vec<Endpoint>,
    state: State,
    /// Announced connections that nobody looked at yet.
    pub(super) incoming: VecDeque<Incoming>,
    wait: Duration,
}

enum State {
    Listens {
        channel: TunnelStream,
        input: Vec<u8>,
        /// Answers to the server's signs of life.
        output: Vec<u8>,
        heard: Instant,
        since: Instant,
    },
    /// The channel was lost.
    Waits(Instant),
    Opens {
        channel: TunnelStream,
        since: Instant,
    },
}

/// What has become of a listener.
pub(super) enum Turned {
    /// The server doesn't listen, or not again.
    Lost(Fault),
    /// It listens again, at this address.
    Back(String),
}

/// The request to listen at `target`.
pub(super) fn request(target: &Target) -> TunnelRequest {
    TunnelRequest {
        purpose: TunnelPurpose::Listen,
        target: target.to_string(),
        number: 0,
        bundle: 0,
    }
}

impl Remote {
    /// One whose channel is open and not registered.
    pub(super) fn new(
        (listen, target): (Target, Target),
        (stack, endpoints): (Stack, Vec<Endpoint>),
        channel: TunnelStream,
    ) -> Self {
        Self {
            pinned: pinned(&listen, channel.address()),
            listen,
            other: None,
            is_pinned: false,
            told: String::new(),
            target,
            stack,
            endpoints,
            state: State::Listens {
                channel,
                input: Vec::new(),
                output: Vec::new(),
                heard: Instant::now(),
                since: Instant::now(),
            },
            incoming: VecDeque::new(),
            wait: WAIT_MIN,
        }
    }

    /// Registers its channel.
    ///
    /// # Errors
    /// Any error of the system call.
    pub(super) fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        match &mut self.state {
            State::Listens { channel, .. } | State::Opens { channel, .. } => {
                channel.register(poller, token)
            }
            State::Waits(_) => Ok(()),
        }
    }

    /// Does what can be done: after an event, and once in a while.
    pub(super) fn turn(
        &mut self,
        dial: &TunnelDial,
        timeout: Duration,
        (poller, token): (&mut Poller, Token),
    ) -> Option<Turned> {
        let now = Instant::now();
        match &mut self.state {
            State::Listens {
                channel,
                input,
                output,
                heard,
                since,
            } => {
                let result = read(channel, (input, output), heard, now, &mut self.incoming);
                let fault = match result {
                    Err(fault) => fault,
                    Ok(()) if now - *heard > SILENCE_MAX => {
                        let cause = "the server is silent";
                        Fault::new(Code::ConnectionLost, "listen at the server", cause)
                    }
                    Ok(()) => return None,
                };
                let fault = fault.hint("this side asks again until the server listens");
                // It is dropped next.
                let _ = channel.deregister(poller);
                if now - *since >= STOOD {
                    self.wait = WAIT_MIN;
                }
                self.state = State::Waits(now + self.wait);
                self.wait = (self.wait * 2).min(WAIT_MAX);
                if let Some(pinned) = self.pinned.take() {
                    self.other = Some(std::mem::replace(&mut self.listen, pinned));
                    self.is_pinned = true;
                }
                return Some(Turned::Lost(fault));
            }
            State::Waits(until) if now < *until => return None,
            State::Waits(_) => {
                let opened = dial.open(request(&self.listen)).and_then(|mut channel| {
                    channel.register(poller, token)?;
                    Ok(channel)
                });
                match opened {
                    Ok(channel) => {
                        self.state = State::Opens {
                            channel,
                            since: now,
                        }
                    }
                    Err(error) => return self.try_later(fault_of(error), now),
                }
            }
            State::Opens { .. } => {}
        }
        let State::Opens { channel, since } = &mut self.state else {
            return None;
        };
        match channel.finish_open() {
            Ok(false) if now - *since < timeout => return None,
            Ok(false) => {
                // It is dropped next.
                let _ = channel.deregister(poller);
                let fault = super::late(&channel.peer(), timeout);
                return self.try_later(fault, now);
            }
            Err(error) => {
                let _ = channel.deregister(poller);
                let fault = fault_of(error);
                if fault.side == Side::Local {
                    dial.next_route();
                }
                return self.try_later(fault, now);
            }
            Ok(true) => {}
        }
        let State::Opens { channel, .. } = std::mem::replace(&mut self.state, State::Waits(now))
        else {
            return None;
        };
        let address = channel.address().to_owned();
        if !self.is_pinned {
            self.other = None;
            self.pinned = pinned(&self.listen, &address);
        }
        self.state = State::Listens {
            channel,
            input: Vec::new(),
            output: Vec::new(),
            heard: now,
            since: now,
        };
        self.told.clear();
        Some(Turned::Back(address))
    }

    /// The attempt has failed; the fault if it is another than before.
    fn try_later(&mut self, fault: Fault, now: Instant) -> Option<Turned> {
        let is_refused = fault.side == Side::Remote;
        if is_refused && let Some(other) = &mut self.other {
            std::mem::swap(&mut self.listen, other);
            self.is_pinned = !self.is_pinned;
        }
        if is_refused && self.other.is_some() && !self.is_pinned {
            // The port may be taken, or be none that the rules name: any will do.
            self.state = State::Waits(now);
        } else {
            self.state = State::Waits(now + self.wait);
            self.wait = (self.wait * 2).min(WAIT_MAX);
        }
        let cause = format!("{} {}", fault.code, fault.cause);
        (self.told != cause).then(|| {
            self.told = cause;
            Turned::Lost(fault)
        })
    }
}

/// `listen` at the port of `address`, if it says that any port does.
fn pinned(listen: &Target, address: &str) -> Option<Target> {
    let (Target::Host { host, port: 0 }, Ok(Target::Host { port, .. })) =
        (listen, address.parse::<Target>())
    else {
        return None;
    };
    let host = host.clone();
    Some(Target::Host { host, port })
}

/// Reads announcements.
fn read(
    channel: &mut TunnelStream,
    (input, output): (&mut Vec<u8>, &mut Vec<u8>),
    heard: &mut Instant,
    now: Instant,
    incoming: &mut VecDeque<Incoming>,
) -> Result<(), Fault> {
    let mut room = TURN;
    // More is read at the next tick: whoever sends so much can wait.
    while room > 0 {
        send(channel, output)?;
        let mut chunk = [0; CHUNK];
        let mut bufs = [IoSliceMut::new(&mut chunk)];
        match channel.read_vectored(&mut bufs) {
            Ok(0) => {
                let cause = "the server has ended the listener";
                return Err(Fault::new(
                    Code::ConnectionLost,
                    "listen at the server",
                    cause,
                ));
            }
            Ok(n) => {
                room -= n.min(room);
                input.extend_from_slice(&chunk[..n]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(Fault::from_io("listen at the server", "", &error)),
        }
        *heard = now;
        while let Some((frame, used)) = frame(input)? {
            input.drain(..used);
            match frame {
                Frame::Incoming(one) if one.number == 0 => return Err(unexpected("number 0")),
                Frame::Incoming(one) if incoming.len() < INCOMING_MAX => incoming.push_back(one),
                Frame::Incoming(_) => {}
                Frame::Noop if output.is_empty() => Frame::Noop.encode(output),
                // One answer is enough.
                Frame::Noop => {}
                Frame::Exception(exception) => return Err(exception.fault.remote()),
                other => return Err(unexpected(other.name())),
            }
        }
    }
    Ok(())
}

/// Sends the answer to a sign of life.
fn send(channel: &mut TunnelStream, output: &mut Vec<u8>) -> Result<(), Fault> {
    let sent = loop {
        match output.as_slice() {
            [] => break channel.flush(),
            rest => match channel.write_vectored(&[IoSlice::new(rest)]) {
                Ok(n) => drop(output.drain(..n)),
                Err(error) => break Err(error),
            },
        }
    };
    match sent {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
            Err(Fault::from_io("listen at the server", "", &error))
        }
        _ => Ok(()),
    }
}

/// The first frame of `input`, if all of it is there, and its length.
fn frame(input: &[u8]) -> Result<Option<(Frame, usize)>, Fault> {
    let limits = Limits::default();
    let Some(header) = input.first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let header = FrameHeader::decode(*header, &limits).map_err(|e| e.fault())?;
    let length = usize::try_from(header.length).unwrap_or(usize::MAX);
    if length > CHUNK {
        return Err(unexpected("a long frame"));
    }
    let Some(body) = input[FRAME_HEADER_BYTES..].get(..length) else {
        return Ok(None);
    };
    let frame = Frame::decode(header, body, &limits).map_err(|e| e.fault())?;
    Ok(Some((frame, FRAME_HEADER_BYTES + length)))
}

fn unexpected(what: &str) -> Fault {
    let cause = format!("{what} came on the channel of a listener");
    Fault::new(Code::ProtocolViolation, "listen at the server", cause)
}
