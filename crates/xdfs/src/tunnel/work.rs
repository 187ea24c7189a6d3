//! The thread of a tunnel: accepts connections, opens channels for them, and moves their bytes.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use xdfs_engine::tunnel::{RelayEnd, Relays, TunnelDial, TunnelStream, fault_of};
use xdfs_proto::Fault;
use xdfs_proto::frame::{TunnelPurpose, TunnelRequest};
use xdfs_proto::tunnel::Target;
use xdfs_sys::poll::{Event, Poller, Token};
use xdfs_xio::{Extension, Listener, Stream};

use super::{TunnelNews, late, may_go_on};

/// Interval between checks of deadlines, and of a listener that has failed.
const TICK: Duration = Duration::from_millis(200);
/// The server decides how long a connection may be idle.
const IDLE: Duration = Duration::from_secs(u32::MAX as u64);

/// State of the thread.
pub(super) struct Work {
    poller: Poller,
    dial: TunnelDial,
    /// With the tokens 3, 7, 11 and so on.
    listeners: Vec<(Box<dyn Listener>, Target)>,
    /// Listeners that may have connections.
    acceptable: VecDeque<usize>,
    accept_later: Option<Instant>,
    /// With the tokens 2, 6, 10 and so on.
    dialing: Vec<Option<Dialing>>,
    relays: Relays,
    observer: Box<dyn FnMut(TunnelNews) + Send>,
    news: (mpsc::Sender<TunnelNews>, mpsc::Receiver<TunnelNews>),
    stop: Arc<AtomicBool>,
    timeout: Duration,
}

/// A connection whose channel is being opened.
struct Dialing {
    local: Box<dyn Stream>,
    channel: TunnelStream,
    target: Target,
    since: Instant,
    attempt: usize,
}

impl Work {
    pub(super) fn new(
        poller: Poller,
        dial: TunnelDial,
        listeners: Vec<(Box<dyn Listener>, Target)>,
        observer: Box<dyn FnMut(TunnelNews) + Send>,
        stop: Arc<AtomicBool>,
        (dials_max, timeout): (usize, Duration),
    ) -> Self {
        Self {
            poller,
            dial,
            acceptable: (0..listeners.len()).collect(),
            listeners,
            accept_later: None,
            dialing: (0..dials_max).map(|_| None).collect(),
            relays: Relays::new(IDLE, Instant::now()),
            observer,
            news: mpsc::channel(),
            stop,
            timeout,
        }
    }

    /// Works until it is stopped.
    pub(super) fn run(mut self) {
        let mut events: Vec<Event> = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.accept(now);
            self.check_deadlines(now);
            let wait = self.relays.turn(&mut self.poller, now);
            while let Ok(news) = self.news.1.try_recv() {
                (self.observer)(news);
            }
            let has_work = self.dialing.iter().any(Option::is_some) || self.accept_later.is_some();
            let wait = wait.into_iter().chain(has_work.then_some(TICK)).min();
            if let Err(error) = self.poller.wait(&mut events, wait) {
                tracing::error!(%error, "the tunnel can't wait for events");
                std::thread::sleep(TICK);
            }
            for event in events.drain(..) {
                let number = event.token.0 / 4;
                match event.token.0 % 4 {
                    3 if number < self.listeners.len() => self.acceptable.push_back(number),
                    2 => self.advance(number),
                    0 | 1 => self.relays.event(&event),
                    // The stop, or an event of before.
                    _ => {}
                }
            }
        }
    }

    /// Accepts connections while there are places to open channels; others wait in the queue of
    /// the system.
    fn accept(&mut self, now: Instant) {
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
                    let target = target.clone();
                    self.begin(place, local, target, 0);
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

    /// Starts to open the channel of a connection.
    fn begin(&mut self, place: usize, local: Box<dyn Stream>, target: Target, attempt: usize) {
        let request = TunnelRequest {
            purpose: TunnelPurpose::Connect,
            target: target.to_string(),
            number: 0,
        };
        let opened = self.dial.open(request).and_then(|mut channel| {
            channel.register(&mut self.poller, Token(place * 4 + 2))?;
            Ok(channel)
        });
        match opened {
            Ok(channel) => {
                self.dialing[place] = Some(Dialing {
                    local,
                    channel,
                    target,
                    since: Instant::now(),
                    attempt,
                });
                self.advance(place);
            }
            Err(error) => self.failed(place, local, target, attempt, fault_of(error)),
        }
    }

    /// Continues to open a channel.
    fn advance(&mut self, place: usize) {
        let Some(Some(dialing)) = self.dialing.get_mut(place) else {
            return;
        };
        let opened = match dialing.channel.finish_open() {
            Ok(false) => return,
            Ok(true) => Ok(()),
            Err(error) => Err(fault_of(error)),
        };
        let Some(mut dialing) = self.dialing[place].take() else {
            return;
        };
        // It is registered anew, or dropped.
        let _ = dialing.channel.deregister(&mut self.poller);
        match opened {
            Ok(()) => self.pair(dialing),
            Err(fault) => {
                let Dialing {
                    local,
                    target,
                    attempt,
                    ..
                } = dialing;
                self.failed(place, local, target, attempt, fault);
            }
        }
    }

    /// Tries again, or gives a connection up.
    fn failed(
        &mut self,
        place: usize,
        mut local: Box<dyn Stream>,
        target: Target,
        attempt: usize,
        fault: Fault,
    ) {
        if may_go_on(&self.dial, &fault, attempt) {
            return self.begin(place, local, target, attempt + 1);
        }
        let from = local.peer();
        if let Extension::TcpSocket(socket) = local.extension() {
            // An end that looked orderly would be an empty answer.
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
        (self.observer)(TunnelNews::Failed {
            from,
            target,
            fault,
        });
    }

    /// Begins to move the bytes of a connection.
    fn pair(&mut self, dialing: Dialing) {
        let Dialing {
            local,
            channel,
            target,
            ..
        } = dialing;
        let from = local.peer();
        (self.observer)(TunnelNews::Opened {
            from: from.clone(),
            target: target.clone(),
        });
        let (channel, ahead) = channel.into_parts();
        let news = self.news.0.clone();
        let on_end = move |end: RelayEnd| {
            let fault = end.result.err();
            let closed = TunnelNews::Closed {
                from,
                target,
                sent: end.forth,
                received: end.back,
                fault: fault.map(|error| Fault::from_io("move bytes in the tunnel", "", &error)),
            };
            // Its receiver is there as long as the thread.
            let _ = news.send(closed);
        };
        let added = self.relays.add(
            &mut self.poller,
            [local, channel],
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
            let is_late = |dialing: &mut Dialing| now - dialing.since >= self.timeout;
            if let Some(mut dialing) = self.dialing[place].take_if(is_late) {
                // It is dropped next.
                let _ = dialing.channel.deregister(&mut self.poller);
                let fault = late(&dialing.channel.peer(), self.timeout);
                let Dialing {
                    local,
                    target,
                    attempt,
                    ..
                } = dialing;
                self.failed(place, local, target, attempt, fault);
            }
        }
    }
}
