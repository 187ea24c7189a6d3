//! A connection that is being led through the server: its own end, and its channel or bundle.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xdfs_engine::tunnel::{TunnelDial, TunnelStream, fault_of, open_bundle};
use xdfs_proto::Fault;
use xdfs_proto::frame::TunnelRequest;
use xdfs_proto::tunnel::Target;
use xdfs_sys::poll::{Poller, Token};
use xdfs_xio::{Endpoint, Stack, Stream};

/// Maximum time to connect to one address while there are others.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection between the first and the last step of its opening.
pub(super) struct Dialing {
    pub(super) near: Near,
    pub(super) far: Far,
    pub(super) about: About,
    pub(super) since: Instant,
    pub(super) attempt: usize,
}

/// What a connection is for.
#[derive(Clone)]
pub(super) struct About {
    pub(super) request: TunnelRequest,
    /// Whoever connected.
    pub(super) from: String,
    /// What it leads to.
    pub(super) target: Target,
}

/// The end on this machine.
pub(super) enum Near {
    Open(Box<dyn Stream>),
    /// It is being connected, or else to the next one of the others.
    Connects {
        stream: Box<dyn Stream>,
        since: Instant,
        stack: Stack,
        others: Vec<Endpoint>,
    },
    /// Nobody answers here.
    Failed(Fault),
}

/// The way through the server.
pub(super) enum Far {
    /// The channel, or the first one of a bundle, is being opened.
    Opens(Box<TunnelStream>),
    /// A bundle is being begun.
    Begins(Box<dyn Stream>),
    /// It is open, and these bytes were read from it.
    Open(Box<dyn Stream>, Vec<u8>),
}

impl Near {
    /// Begins to connect to the last of `endpoints`, which are tried from the end.
    pub(super) fn connect(
        stack: &Stack,
        mut endpoints: Vec<Endpoint>,
        (poller, token): (&mut Poller, Token),
    ) -> Self {
        let mut last = None;
        while let Some(endpoint) = endpoints.pop() {
            let opened = stack.open(&endpoint).and_then(|mut stream| {
                stream.register(poller, token)?;
                Ok(stream)
            });
            match opened {
                Ok(stream) => {
                    return Self::Connects {
                        stream,
                        since: Instant::now(),
                        stack: stack.clone(),
                        others: endpoints,
                    };
                }
                Err(error) => last = Some(error),
            }
        }
        let error = last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
        Self::Failed(unreached(&error))
    }

    /// Goes on with it.
    fn advance(self, (poller, token): (&mut Poller, Token)) -> Self {
        let Self::Connects {
            mut stream,
            since,
            stack,
            others,
        } = self
        else {
            return self;
        };
        match stream.finish_open() {
            Ok(false) => Self::Connects {
                stream,
                since,
                stack,
                others,
            },
            Ok(true) => {
                // It is registered anew with its pair.
                let _ = stream.deregister(poller);
                Self::Open(stream)
            }
            Err(error) => {
                // It is dropped next.
                let _ = stream.deregister(poller);
                match others.is_empty() {
                    true => Self::Failed(unreached(&error)),
                    false => Self::connect(&stack, others, (poller, token)),
                }
            }
        }
    }

    /// Goes on to the next address if one is silent and there are others.
    pub(super) fn hurry(self, now: Instant, (poller, token): (&mut Poller, Token)) -> Self {
        match self {
            Self::Connects {
                mut stream,
                since,
                stack,
                others,
            } if !others.is_empty() && now - since >= ADDRESS_TIMEOUT => {
                // It is dropped next.
                let _ = stream.deregister(poller);
                Self::connect(&stack, others, (poller, token))
            }
            near => near,
        }
    }

    /// The fault of an end that isn't open in time.
    pub(super) fn silent(&self) -> Fault {
        match self {
            Self::Failed(fault) => fault.clone(),
            _ => unreached(&io::ErrorKind::TimedOut.into()),
        }
    }

    /// Breaks it off: an end that looked orderly would be an empty answer.
    pub(super) fn abort(self, poller: &mut Poller) {
        match self {
            Self::Open(mut stream) => stream.abort(),
            Self::Connects { mut stream, .. } => {
                // It is dropped next.
                let _ = stream.deregister(poller);
            }
            Self::Failed(_) => {}
        }
    }
}

fn unreached(error: &io::Error) -> Fault {
    Fault::from_io("connect to the target on this side", "", error)
}

impl Far {
    /// Goes on with it.
    ///
    /// # Errors
    /// The server can't be reached, or refuses.
    fn advance(
        self,
        about: &About,
        dial: &Arc<TunnelDial>,
        channels: u16,
        (poller, token): (&mut Poller, Token),
    ) -> Result<Self, Fault> {
        match self {
            Self::Opens(mut channel) => {
                match channel.finish_open() {
                    Ok(false) => return Ok(Self::Opens(channel)),
                    result => {
                        // It is registered anew, or dropped.
                        let _ = channel.deregister(poller);
                        result.map_err(fault_of)?;
                    }
                }
                if about.request.bundle == 0 {
                    let (stream, ahead) = channel.into_parts();
                    return Ok(Self::Open(stream, ahead));
                }
                let begun = open_bundle(dial, *channel, &about.request, channels);
                let begun = begun.and_then(|mut bundle| {
                    bundle.register(poller, token)?;
                    Ok(bundle)
                });
                let begun = Self::Begins(begun.map_err(fault_of)?);
                begun.advance(about, dial, channels, (poller, token))
            }
            Self::Begins(mut bundle) => match bundle.finish_open() {
                Ok(false) => Ok(Self::Begins(bundle)),
                result => {
                    // It is registered anew, or dropped.
                    let _ = bundle.deregister(poller);
                    result.map_err(fault_of)?;
                    Ok(Self::Open(bundle, Vec::new()))
                }
            },
            Self::Open(..) => Ok(self),
        }
    }

    /// Its name in messages.
    pub(super) fn peer(&self) -> String {
        match self {
            Self::Opens(channel) => channel.peer(),
            Self::Begins(stream) | Self::Open(stream, _) => stream.peer(),
        }
    }

    /// Breaks it off.
    pub(super) fn abort(self, poller: &mut Poller) {
        match self {
            Self::Opens(mut channel) => {
                // It is dropped next.
                let _ = channel.deregister(poller);
            }
            Self::Begins(mut bundle) => {
                let _ = bundle.deregister(poller);
                bundle.abort();
            }
            Self::Open(mut stream, _) => stream.abort(),
        }
    }
}

/// What came of a step.
pub(super) enum Step {
    /// It goes on at the next event.
    Waits(Dialing),
    /// Both ends are open.
    Done(Dialing),
    /// The way through the server failed.
    Failed(Near, About, usize, Fault),
    /// The end on this machine failed; the other one was broken off.
    Unreached(About, Fault),
}

impl Dialing {
    /// Goes on with both ends.
    pub(super) fn advance(
        self,
        dial: &Arc<TunnelDial>,
        channels: u16,
        (poller, token): (&mut Poller, Token),
    ) -> Step {
        let Self {
            near,
            far,
            about,
            since,
            attempt,
        } = self;
        let near = near.advance((&mut *poller, token));
        let far = match far.advance(&about, dial, channels, (&mut *poller, token)) {
            Ok(far) => far,
            Err(fault) => return Step::Failed(near, about, attempt, fault),
        };
        let dialing = Self {
            near,
            far,
            about,
            since,
            attempt,
        };
        match (&dialing.near, &dialing.far) {
            (Near::Open(_), Far::Open(..)) => Step::Done(dialing),
            (Near::Failed(fault), Far::Open(..)) => {
                let fault = fault.clone();
                dialing.far.abort(poller);
                Step::Unreached(dialing.about, fault)
            }
            _ => Step::Waits(dialing),
        }
    }
}
