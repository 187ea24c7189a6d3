//! The thread of a tunnel: takes connections, from local ports and from those at the server, opens
//! channels for them, and moves their bytes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use xdfs_engine::tunnel::{RelayEnd, Relays, TunnelDial, fault_of};
use xdfs_proto::Fault;
use xdfs_proto::frame::{TunnelPurpose, TunnelRequest};
use xdfs_proto::tunnel::Target;
use xdfs_sys::poll::{Event, Poller, Token};
use xdfs_xio::{Listener, Stream as _};

use super::dialing::{About, Dialing, Far, Near, Step};
use super::remote::{Remote, Turned};
use super::{TunnelNews, late, may_go_on};

/// News that the observer has not taken.
const NEWS_MAX: usize = 4096;
/// Time beyond the server's for its answer to arrive: it says what is wrong with the target.
const GRACE: Duration = Duration::from_secs(5);
/// Interval between checks of deadlines, and of a listener that has failed.
const TICK: Duration = Duration::from_millis(200);
/// The server decides how long a connection may be idle.
const IDLE: Duration = Duration::from_secs(u32::MAX as u64);

/// How a tunnel opens channels.
pub(super) struct Manner {
    pub(super) dial: Arc<TunnelDial>,
    /// Channels of each connection.
    pub(super) channels: u16,
    /// Channels that log in at once.
    pub(super) dials_max: usize,
    /// Maximum time to open one.
    pub(super) timeout: Duration,
}

/// What has happened, for the observer, which has a thread of its own: it may be slow, as whoever
/// reads what it prints may be. News beyond those that wait are dropped.
#[derive(Clone)]
pub(super) struct News(mpsc::SyncSender<TunnelNews>);

impl News {
    /// Starts the thread of the observer.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(super) fn start(mut observer: impl FnMut(TunnelNews) + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = mpsc::sync_channel(NEWS_MAX);
        let thread = std::thread::Builder::new().name("xdfs-tunnel-news".into());
        thread.spawn(move || receiver.into_iter().for_each(&mut observer))?;
        Ok(Self(sender))
    }

    fn tell(&self, news: TunnelNews) {
        if self.0.try_send(news).is_err() {
            tracing::debug!("nobody hears what happens to the tunnel");
        }
    }
}

/// State of the thread.
pub(super) struct Work {
    poller: Poller,
    manner: Manner,
    /// Their tokens are 3, 7, 11 and so on, and those of `remotes` follow.
    listeners: Vec<(Box<dyn Listener>, Target)>,
    remotes: Vec<Remote>,
    /// Listeners that may have connections.
    acceptable: VecDeque<usize>,
    accept_later: Option<Instant>,
    /// With the tokens 2, 6, 10 and so on.
    dialing: Vec<Option<Dialing>>,
    relays: Relays,
    news: News,
    stop: Arc<AtomicBool>,
    ticked_at: Instant,
}

impl Work {
    /// `listeners` are registered, `remotes` are not.
    pub(super) fn new(
        poller: Poller,
        manner: Manner,
        listeners: Vec<(Box<dyn Listener>, Target)>,
        remotes: Vec<Remote>,
        news: News,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            poller,
            acceptable: (0..listeners.len()).collect(),
            listeners,
            remotes,
            accept_later: None,
            dialing: (0..manner.dials_max).map(|_| None).collect(),
            manner,
            relays: Relays::new(IDLE, Instant::now()),
            news,
            stop,
            ticked_at: Instant::now(),
        }
    }

    /// Works until it is stopped.
    pub(super) fn run(mut self) {
        for number in 0..self.remotes.len() {
            let token = self.remote_token(number);
            if let Err(error) = self.remotes[number].register(&mut self.poller, token) {
                tracing::error!(%error, "the tunnel can't hear of connections at the server");
            }
            self.turn_remote(number);
        }
        let mut events: Vec<Event> = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.accept(now);
            if now - self.ticked_at >= TICK {
                self.ticked_at = now;
                self.check_deadlines(now);
                (0..self.remotes.len()).for_each(|number| self.turn_remote(number));
                self.accept(now);
            }
            let wait = self.relays.turn(&mut self.poller, now);
            let has_work = self.dialing.iter().any(Option::is_some)
                || self.accept_later.is_some()
                || !self.remotes.is_empty();
            let wait = wait.into_iter().chain(has_work.then_some(TICK)).min();
            if let Err(error) = self.poller.wait(&mut events, wait) {
                tracing::error!(%error, "the tunnel can't wait for events");
                std::thread::sleep(TICK);
            }
            for event in events.drain(..) {
                let number = event.token.0 / 4;
                match event.token.0 % 4 {
                    3 if number < self.listeners.len() => self.acceptable.push_back(number),
                    3 if number - self.listeners.len() < self.remotes.len() => {
                        self.turn_remote(number - self.listeners.len());
                    }
                    2 => self.advance(number),
                    0 | 1 => self.relays.event(&event),
                    // The stop, or an event of before.
                    _ => {}
                }
            }
        }
        // Whoever reads must not take the end of the tunnel for that of the bytes.
        let kind = ErrorKind::ConnectionAborted;
        self.relays.end_where(&mut self.poller, kind, |_| true);
        for dialing in self.dialing.drain(..).flatten() {
            dialing.near.abort(&mut self.poller);
            dialing.far.abort(&mut self.poller);
        }
    }

    fn remote_token(&self, number: usize) -> Token {
        Token((self.listeners.len() + number) * 4 + 3)
    }

    /// Hears of connections at the server.
    fn turn_remote(&mut self, number: usize) {
        let token = self.remote_token(number);
        let remote = &mut self.remotes[number];
        let at = (&mut self.poller, token);
        match remote.turn(&self.manner.dial, self.manner.timeout, at) {
            Some(Turned::Lost(fault)) => {
                let listen = remote.listen.clone();
                self.news.tell(TunnelNews::Lost { listen, fault });
            }
            Some(Turned::Back(address)) => {
                self.news.tell(TunnelNews::Back { address });
                // What came together with the answer.
                self.turn_remote(number);
            }
            None => {}
        }
    }

    /// Takes connections while there are places to open channels; others wait in the queue of the
    /// system, or at the server.
    fn accept(&mut self, now: Instant) {
        self.take();
        if self.accept_later.is_some_and(|at| now < at) {
            return;
        }
        self.accept_later = None;
        while let Some(&listener) = self.acceptable.front() {
            let Some(place) = self.dialing.iter().position(Option::is_none) else {
                return;
            };
            let (passive, target) = &mut self.listeners[listener];
            match passive.accept() {
                Ok(local) => {
                    let about = About {
                        request: TunnelRequest {
                            purpose: TunnelPurpose::Connect,
                            target: target.to_string(),
                            number: 0,
                            bundle: 0,
                        },
                        from: local.peer(),
                        target: target.clone(),
                    };
                    self.begin(place, Near::Open(local), about, 0);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.acceptable.pop_front();
                }
                Err(error) => {
                    // For instance, no descriptors are left: ended connections free some.
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.accept_later = Some(now + TICK);
                    return;
                }
            }
        }
    }

    /// Takes connections that the server has announced.
    fn take(&mut self) {
        for number in 0..self.remotes.len() {
            while !self.remotes[number].incoming.is_empty() {
                let Some(place) = self.dialing.iter().position(Option::is_none) else {
                    return;
                };
                let remote = &mut self.remotes[number];
                let Some(incoming) = remote.incoming.pop_front() else {
                    break;
                };
                let about = About {
                    request: TunnelRequest {
                        purpose: TunnelPurpose::Take,
                        target: remote.listen.to_string(),
                        number: incoming.number,
                        bundle: 0,
                    },
                    from: incoming.peer,
                    target: remote.target.clone(),
                };
                let at = (&mut self.poller, Token(place * 4 + 2));
                let near = Near::connect(&remote.stack, remote.endpoints.clone(), at);
                self.begin(place, near, about, 0);
            }
        }
    }

    /// Starts to open the channel of a connection.
    fn begin(&mut self, place: usize, near: Near, mut about: About, attempt: usize) {
        let dial = &self.manner.dial;
        let opened = bundle(self.manner.channels).and_then(|bundle| {
            about.request.bundle = bundle;
            let mut channel = dial.open(about.request.clone())?;
            channel.register(&mut self.poller, Token(place * 4 + 2))?;
            Ok(channel)
        });
        match opened {
            Ok(channel) => {
                self.dialing[place] = Some(Dialing {
                    near,
                    far: Far::Opens(Box::new(channel)),
                    about,
                    since: Instant::now(),
                    attempt,
                });
                self.advance(place);
            }
            Err(error) => self.failed(place, near, about, attempt, fault_of(error)),
        }
    }

    /// Continues to open a channel.
    fn advance(&mut self, place: usize) {
        let Some(dialing) = self.dialing.get_mut(place).and_then(Option::take) else {
            return;
        };
        let at = (&mut self.poller, Token(place * 4 + 2));
        match dialing.advance(&self.manner.dial, self.manner.channels, at) {
            Step::Waits(dialing) => self.dialing[place] = Some(dialing),
            Step::Done(dialing) => self.pair(dialing),
            Step::Failed(near, about, attempt, fault) => {
                self.failed(place, near, about, attempt, fault);
            }
            Step::Unreached(about, fault) => self.tell_failure(about, fault),
        }
    }

    /// Tries again, or gives a connection up.
    fn failed(&mut self, place: usize, near: Near, about: About, attempt: usize, fault: Fault) {
        if may_go_on(&self.manner.dial, &fault, attempt) {
            return self.begin(place, near, about, attempt + 1);
        }
        near.abort(&mut self.poller);
        self.tell_failure(about, fault);
    }

    fn tell_failure(&self, about: About, fault: Fault) {
        self.news.tell(TunnelNews::Failed {
            from: about.from,
            target: about.target,
            fault,
        });
    }

    /// Begins to move the bytes of a connection.
    fn pair(&mut self, dialing: Dialing) {
        let About { from, target, .. } = dialing.about;
        let (Near::Open(near), Far::Open(far, ahead)) = (dialing.near, dialing.far) else {
            return;
        };
        self.news.tell(TunnelNews::Opened {
            from: from.clone(),
            target: target.clone(),
        });
        let news = self.news.clone();
        let on_end = move |end: RelayEnd| {
            let fault = end.result.err();
            let closed = TunnelNews::Closed {
                from,
                target,
                sent: end.forth,
                received: end.back,
                fault: fault.map(|error| Fault::from_io("move bytes in the tunnel", "", &error)),
            };
            news.tell(closed);
        };
        let added = self.relays.add(
            &mut self.poller,
            [near, far],
            [Vec::new(), ahead],
            None,
            (0, Instant::now()),
            on_end,
        );
        if let Err(error) = added {
            tracing::warn!(%error, "a connection could not be watched");
        }
    }

    fn check_deadlines(&mut self, now: Instant) {
        for place in 0..self.dialing.len() {
            let Some(mut dialing) = self.dialing[place].take() else {
                continue;
            };
            if now - dialing.since < self.manner.timeout + GRACE {
                let at = (&mut self.poller, Token(place * 4 + 2));
                dialing.near = dialing.near.hurry(now, at);
                self.dialing[place] = Some(dialing);
                continue;
            }
            let Dialing {
                near,
                far,
                about,
                attempt,
                ..
            } = dialing;
            let fault = late(&far.peer(), self.manner.timeout + GRACE);
            far.abort(&mut self.poller);
            match near {
                Near::Open(_) => self.failed(place, near, about, attempt, fault),
                near => {
                    let fault = near.silent();
                    near.abort(&mut self.poller);
                    self.tell_failure(about, fault);
                }
            }
        }
    }
}

/// The number of a new bundle; 0 for a single channel.
fn bundle(channels: u16) -> io::Result<u64> {
    if channels <= 1 {
        return Ok(0);
    }
    let mut number = [0; 8];
    let filled = getrandom::fill(&mut number);
    filled.map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_be_bytes(number).max(1))
}
