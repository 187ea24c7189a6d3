//! Bundles: connections that `ptcp` carries over several channels.
//!
//! To `ptcp`, channels that are tunnels are a transport: the initiator's opens them, the first with
//! the request for the connection and the others to join it; the acceptor's hands over those that
//! have come.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs_proto::frame::{TunnelPurpose, TunnelRequest};
use xdfs_sys::poll::{Event, Notifier, Poller, Token};
use xdfs_xio::{
    Driver, Endpoint, Form, Listener, Location, Property, Registry, Stack, Stream, Transport,
};

use super::dial::{TunnelDial, TunnelStream};

/// The most channels of a bundle.
pub const CHANNELS_MAX: u16 = 64;
/// Bytes of a direction that aren't acknowledged, and those that wait for others before them: what
/// a path of 640 Mbit/s and 100 ms holds.
const WINDOW: usize = 8 << 20;
/// Channels that `ptcp` has not taken yet.
const WAITING_MAX: usize = CHANNELS_MAX as usize;
/// The name of the transport.
const CHANNEL: &str = "channel";

/// A stack of `ptcp` over `transport`.
fn stack(transport: impl Transport + Clone + 'static, channels: u16) -> io::Result<Stack> {
    let driver =
        Driver::transport::<(), _>(CHANNEL, Form::Nothing, &[], move |()| transport.clone())
            .gives(&[Property::Order]);
    let text = format!("{CHANNEL},ptcp:n={channels}:window={WINDOW}");
    let spec = text.parse().map_err(io::Error::other)?;
    let registry = Registry::standard().with(driver);
    registry.build(&spec).map_err(io::Error::other)
}

/// Where the channels of a bundle lead; there is but one place.
fn endpoint() -> Endpoint {
    Endpoint::new(CHANNEL, Location::Nothing)
}

fn one_way() -> io::Error {
    io::Error::new(
        ErrorKind::Unsupported,
        "channels are opened by the initiator",
    )
}

/// Starts to open the initiator's end of the bundle that `request` has begun with the open channel
/// `first`. The other channels are opened, and replaced when they break, through `dial`.
///
/// # Errors
/// The threads of `ptcp` can't be started.
pub fn open_bundle(
    dial: &Arc<TunnelDial>,
    first: TunnelStream,
    request: &TunnelRequest,
    channels: u16,
) -> io::Result<Box<dyn Stream>> {
    let transport = Opener {
        dial: Arc::clone(dial),
        join: TunnelRequest {
            purpose: TunnelPurpose::Join,
            target: request.target.clone(),
            number: 0,
            bundle: request.bundle,
        },
        first: Arc::new(Mutex::new(Some(first))),
    };
    stack(transport, channels.clamp(1, CHANNELS_MAX))?.open(&endpoint())
}

/// Opens the channels of one bundle.
#[derive(Clone, Debug)]
struct Opener {
    dial: Arc<TunnelDial>,
    join: TunnelRequest,
    first: Arc<Mutex<Option<TunnelStream>>>,
}

impl Transport for Opener {
    fn open(&self, _: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let first = { first }.take();
        match first {
            Some(first) => Ok(Box::new(first)),
            None => Ok(Box::new(self.dial.open(self.join.clone())?)),
        }
    }

    fn listen(&self, _: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Err(one_way())
    }
}

/// Where the channels of one bundle arrive at the acceptor. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    channels: VecDeque<TunnelStream>,
    taker: Option<(Notifier, Token)>,
}

impl Arrivals {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A panic elsewhere leaves it consistent: each change is one push or pop.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a channel to the bundle; `false` if too many wait.
    pub(super) fn push(&self, channel: TunnelStream) -> bool {
        let mut queue = self.queue();
        if queue.channels.len() >= WAITING_MAX {
            return false;
        }
        queue.channels.push_back(channel);
        queue.tell();
        true
    }

    /// A listener whose first stream is the bundle. Channels join it while the listener lives.
    pub(super) fn listen(&self) -> io::Result<Box<dyn Listener>> {
        stack(self.clone(), CHANNELS_MAX)?.listen(&endpoint())
    }
}

impl Queue {
    fn tell(&self) {
        if let Some((notifier, token)) = &self.taker {
            notifier.notify(Event {
                token: *token,
                readable: true,
                writable: false,
            });
        }
    }
}

impl Transport for Arrivals {
    fn open(&self, _: &Endpoint) -> io::Result<Box<dyn Stream>> {
        Err(one_way())
    }

    fn listen(&self, _: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(self.clone()))
    }
}

impl Listener for Arrivals {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        match self.queue().channels.pop_front() {
            Some(channel) => Ok(Box::new(channel)),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let mut queue = self.queue();
        queue.taker = Some((poller.notifier(), token));
        queue.tell();
        Ok(())
    }

    fn local_endpoint(&self) -> Endpoint {
        endpoint()
    }
}
