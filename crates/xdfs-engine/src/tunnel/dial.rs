//! The initiator's side: opens channels that are tunnels, each as a stream.
//!
//! ```text
//! connect (TCP, TLS) -> HELLO, AUTH, TUNNEL -> WELCOME, AUTH-OK -> TUNNEL-OK -> bytes
//! ```
//!
//! Opening takes the round trips of the stack and of the proof, and the acceptor's connection to
//! the target.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use xdfs_proto::frame::{TunnelPurpose, TunnelRequest};
use xdfs_proto::handshake::{Initiator, InitiatorStep, Purpose};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_sys::poll::{Poller, Token};
use xdfs_xio::{Capabilities, Control, Extension, PathSample, Protection, Stream};

use super::OPEN_TUNNEL;
use super::request::write;
use crate::pipeline::Route;
use crate::security::Identity;

/// Bytes read at once before the tunnel is open. What is read beyond TUNNEL-OK is kept.
const INPUT_BYTES: usize = 512;

/// Opens tunnels to one acceptor.
#[derive(Debug)]
pub struct TunnelDial {
    /// The ways to the acceptor.
    routes: Vec<Route>,
    /// Credentials of this side; `None` for unprotected channels.
    identity: Option<Arc<dyn Identity>>,
    limits: Limits,
    /// The route that is used, until it fails.
    route_index: AtomicUsize,
    /// The acceptor has refused a proof that went ahead of its methods.
    awaits_methods: Arc<AtomicBool>,
}

/// A channel that is a tunnel, or will be once [`Stream::finish_open`] has returned `true`.
#[derive(Debug)]
pub struct TunnelStream {
    stream: Box<dyn Stream>,
    opening: Option<Opening>,
    /// The acceptor's part of the opening exchange, as far as it isn't sent.
    answer: Vec<u8>,
    /// Bytes of the tunnel that were read together with the answer.
    ahead: VecDeque<u8>,
    address: String,
}

/// The opening exchange.
#[derive(Debug)]
struct Opening {
    request: TunnelRequest,
    identity: Option<Arc<dyn Identity>>,
    limits: Limits,
    awaits_methods: Arc<AtomicBool>,
    /// `None` before the stack is open.
    exchange: Option<Exchange>,
}

#[derive(Debug)]
struct Exchange {
    machine: Initiator,
    protection: Option<Protection>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl TunnelDial {
    /// Uses the first of the `routes` that answers. All stacks must provide protection if there is
    /// an `identity`.
    #[must_use]
    pub fn new(routes: Vec<Route>, identity: Option<Arc<dyn Identity>>, limits: Limits) -> Self {
        Self {
            routes,
            identity,
            limits,
            route_index: AtomicUsize::new(0),
            awaits_methods: Arc::default(),
        }
    }

    /// The number of routes.
    #[must_use]
    pub fn routes(&self) -> usize {
        self.routes.len()
    }

    /// Uses the next route from now on: the present one doesn't lead to the acceptor.
    pub fn next_route(&self) {
        self.route_index.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts to open a tunnel, and returns at once; see [`xdfs_xio::Transport::open`].
    ///
    /// # Errors
    /// Those of the transport.
    pub fn open(&self, request: TunnelRequest) -> io::Result<TunnelStream> {
        let number = self.route_index.load(Ordering::Relaxed) % self.routes.len().max(1);
        let Some(route) = self.routes.get(number) else {
            return Err(io::Error::new(
                ErrorKind::AddrNotAvailable,
                "the host has no address",
            ));
        };
        let opened = route.stack.open(&route.endpoint);
        let stream = opened.map_err(|error| explained(self.identity.as_ref(), error))?;
        Ok(TunnelStream {
            stream,
            opening: Some(Opening {
                request,
                identity: self.identity.clone(),
                limits: self.limits.clone(),
                awaits_methods: Arc::clone(&self.awaits_methods),
                exchange: None,
            }),
            answer: Vec::new(),
            ahead: VecDeque::new(),
            address: String::new(),
        })
    }
}

/// The fault inside an error of [`TunnelStream`], or one made of the error.
#[must_use]
pub fn fault_of(error: io::Error) -> Fault {
    match error.downcast::<Fault>() {
        Ok(fault) => fault,
        Err(error) => Fault::from_io(OPEN_TUNNEL, "", &error),
    }
}

/// The fault of the identity for an error of the transport, if it knows more.
fn explained(identity: Option<&Arc<dyn Identity>>, error: io::Error) -> io::Error {
    match identity.and_then(|identity| identity.explain(&error)) {
        Some(fault) => io::Error::other(fault),
        None => error,
    }
}

impl TunnelStream {
    /// The acceptor's end, which has to send `answer` before it is open. `ahead` are bytes that
    /// were read from it already.
    pub(super) fn accepted(stream: Box<dyn Stream>, ahead: Vec<u8>, answer: Vec<u8>) -> Self {
        Self {
            stream,
            opening: None,
            answer,
            ahead: ahead.into(),
            address: String::new(),
        }
    }

    /// Sends the rest of the answer. Whether all of it is with the transport.
    fn finish_answer(&mut self) -> io::Result<bool> {
        match write(&mut *self.stream, &mut self.answer) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The address that the acceptor has connected to, or listens on, as it says.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The stream itself, and the bytes of the tunnel that were read from it already: once it is
    /// open, nothing is left to do here.
    #[must_use]
    pub fn into_parts(self) -> (Box<dyn Stream>, Vec<u8>) {
        (self.stream, self.ahead.into())
    }
}

impl Opening {
    /// Begins the opening exchange on an open stack.
    fn greet(&self, stream: &dyn Stream) -> Result<Exchange, Fault> {
        let protection = stream.protection();
        let joins = self.request.purpose == TunnelPurpose::Join;
        let purpose = Purpose::Tunnel(self.request.clone());
        let mut output = Vec::new();
        let machine = match (&self.identity, &protection) {
            (None, _) => Initiator::new(purpose, false, &mut output),
            (Some(_), None) => {
                let cause = "the channel has no protection, though it was requested";
                return Err(Fault::new(Code::ProtectionRefused, OPEN_TUNNEL, cause));
            }
            (Some(identity), Some(protection)) => {
                let mut machine = Initiator::protected(purpose, false, &mut output);
                let may_go_ahead = !self.awaits_methods.load(Ordering::Relaxed);
                if may_go_ahead
                    && !joins
                    && let Some(request) = identity.prove_ahead(protection)
                {
                    machine.prove_ahead(request, &mut output);
                }
                machine
            }
        };
        Ok(Exchange {
            machine,
            protection,
            input: Vec::new(),
            output,
        })
    }
}

impl Exchange {
    /// Continues with the bytes that have come. The address, once the tunnel is open.
    fn advance(&mut self, opening: &OpeningContext<'_>) -> Result<Option<String>, Fault> {
        let OpeningContext {
            identity, limits, ..
        } = opening;
        loop {
            let step = self
                .machine
                .receive(&self.input, limits, &mut self.output)
                .map_err(|fault| match identity {
                    Some(identity) => {
                        identity.supported(self.machine.methods());
                        identity.refused(fault)
                    }
                    None => fault,
                });
            let (step, used) = step?;
            self.input.drain(..used);
            let (Some(identity), Some(protection)) = (identity, &self.protection) else {
                match step {
                    InitiatorStep::Wait if used > 0 => continue,
                    InitiatorStep::Tunnel(accept) => return Ok(Some(accept.address)),
                    _ => return Ok(None),
                }
            };
            match step {
                InitiatorStep::Wait if used > 0 => {}
                InitiatorStep::Wait | InitiatorStep::Open(_) => return Ok(None),
                InitiatorStep::Tunnel(accept) => {
                    if let Some(user) = self.machine.user() {
                        identity.admitted(user);
                    }
                    return Ok(Some(accept.address));
                }
                InitiatorStep::Prove(methods) => {
                    let (request, only) = identity.prove(protection, &methods)?;
                    self.machine.prove(request, only, &mut self.output);
                }
                InitiatorStep::Challenge(challenge) => {
                    let proof = identity.answer(protection, &challenge)?;
                    self.machine.answer(proof, &mut self.output);
                }
                InitiatorStep::Mistaken => {
                    opening.awaits_methods.store(true, Ordering::Relaxed);
                    let cause = "the proof went ahead, by a method that the server doesn't take";
                    let fault = Fault::new(Code::AuthenticationFailed, OPEN_TUNNEL, cause);
                    return Err(fault.retry(xdfs_proto::Retry::Now));
                }
            }
        }
    }
}

/// What the exchange needs of the tunnel.
struct OpeningContext<'a> {
    identity: Option<&'a Arc<dyn Identity>>,
    limits: &'a Limits,
    awaits_methods: &'a AtomicBool,
}

impl Stream for TunnelStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self.ahead.is_empty() {
            true => self.stream.read_vectored(bufs),
            false => self.ahead.read_vectored(bufs),
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }

    fn has_unflushed(&self) -> bool {
        self.stream.has_unflushed()
    }

    fn held_bytes(&self) -> usize {
        self.ahead.len() + self.stream.held_bytes()
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        let Some(opening) = &mut self.opening else {
            return self.finish_answer();
        };
        let identity = opening.identity.as_ref();
        if opening.exchange.is_none() {
            let opened = self.stream.finish_open();
            if !opened.map_err(|error| explained(identity, error))? {
                return Ok(false);
            }
            let exchange = opening.greet(&*self.stream).map_err(io::Error::other)?;
            opening.exchange = Some(exchange);
        }
        let Some(exchange) = &mut opening.exchange else {
            return Ok(false);
        };
        let context = OpeningContext {
            identity: opening.identity.as_ref(),
            limits: &opening.limits,
            awaits_methods: &opening.awaits_methods,
        };
        loop {
            if let Some(address) = exchange.advance(&context).map_err(io::Error::other)? {
                self.address = address;
                self.ahead = std::mem::take(&mut exchange.input).into();
                self.opening = None;
                return Ok(true);
            }
            while !exchange.output.is_empty() {
                match self
                    .stream
                    .write_vectored(&[IoSlice::new(&exchange.output)])
                {
                    Ok(n) => drop(exchange.output.drain(..n)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(explained(identity, error)),
                }
            }
            if self.stream.has_unflushed() {
                match self.stream.flush() {
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
            let mut chunk = [0; INPUT_BYTES];
            let mut bufs = [IoSliceMut::new(&mut chunk)];
            match self.stream.read_vectored(&mut bufs) {
                Ok(0) => {
                    let cause = "the server closed the channel during the opening exchange";
                    let fault = Fault::new(Code::ConnectionLost, OPEN_TUNNEL, cause);
                    return Err(io::Error::other(fault));
                }
                Ok(n) => exchange.input.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(explained(identity, error)),
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.stream.finish()
    }

    fn close(&mut self) -> io::Result<()> {
        self.stream.close()
    }

    fn abort(&mut self) {
        self.stream.abort();
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        self.stream.register(poller, token)
    }

    fn deregister(&mut self, poller: &mut Poller) -> io::Result<()> {
        self.stream.deregister(poller)
    }

    fn set_window(&mut self, bytes: u32) -> io::Result<()> {
        self.stream.set_window(bytes)
    }

    fn measure(&self) -> Option<PathSample> {
        self.stream.measure()
    }

    fn suit_long_path(&mut self) -> io::Result<()> {
        self.stream.suit_long_path()
    }

    fn set_pace(&mut self, bytes_per_s: Option<u64>) -> io::Result<()> {
        self.stream.set_pace(bytes_per_s)
    }

    fn capabilities(&self) -> Capabilities {
        self.stream.capabilities()
    }

    fn peer(&self) -> String {
        self.stream.peer()
    }

    fn protection(&self) -> Option<Protection> {
        self.stream.protection()
    }

    fn controls(&self, out: &mut Vec<Control>) {
        self.stream.controls(out);
    }

    fn extension(&mut self) -> Extension<'_> {
        Extension::None
    }
}
