//! The network of a simulation: channels with latency, bounded rate and little room, that stall,
//! break at any byte, fall silent, and change bytes on the way. Bytes of one channel stay in order;
//! those of different channels overtake each other.

mod link;
mod stream;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use xdfs_sys::poll::{Event, Notifier, Token};
use xdfs_xio::{
    Driver, Endpoint, Form, Listener, Location, Property, Registry, Stack, Stream, Transport,
};

use crate::world::World;
use link::Link;
use stream::{SimListener, SimStream};

/// How the network of a run behaves.
#[derive(Clone, Debug)]
pub struct Weather {
    /// Time from one host to the other.
    pub latency: Duration,
    /// Up to how much longer that is for a channel, which draws it once.
    pub jitter: Duration,
    /// Bytes a second of a channel.
    pub rate: u64,
    /// Chance in a thousand that a channel has a twentieth of that.
    pub slow_channels: u64,
    /// Bytes that may be on the way in one direction.
    pub room: usize,
    /// Chance in a thousand, of each write, that the channel breaks in the middle of it.
    pub breaks: u64,
    /// The same for a channel that carries nothing from then on, and of which nobody is told. Also
    /// the chance that a connection is never answered.
    pub silences: u64,
    /// The same for a pause of up to 40 s.
    pub stalls: u64,
    /// The same for a bit of a block that changes on the way.
    pub damages: u64,
    /// The same for a bit that changes where the check of the block doesn't show it.
    pub forgeries: u64,
    /// Chance in a thousand that a connection is refused.
    pub refusals: u64,
    /// The two ends are taken to be on one machine.
    pub local: bool,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(1),
            jitter: Duration::ZERO,
            rate: 1 << 30,
            slow_channels: 0,
            room: 1 << 20,
            breaks: 0,
            silences: 0,
            stalls: 0,
            damages: 0,
            forgeries: 0,
            refusals: 0,
            local: false,
        }
    }
}

/// The network of a world, with one place that a server listens at.
#[derive(Default)]
pub struct Network(Mutex<Inner>);

#[derive(Default)]
pub(crate) struct Inner {
    weather: Weather,
    /// Bad things that may still happen: what always breaks gets nowhere.
    faults_left: u64,
    /// The channel that is used after so many further writes breaks.
    breaks_after: Option<u64>,
    links: Vec<Arc<Mutex<Link>>>,
    count: u64,
    /// Channels on their way to the listener.
    arriving: VecDeque<(Duration, SimStream)>,
    listener: Option<(Notifier, Token)>,
    is_listening: bool,
}

impl Inner {
    /// Whether a fault of this chance happens now.
    fn happens(&mut self, world: &World, permille: u64, fault: &'static str) -> bool {
        let may = permille > 0 && self.faults_left > 0;
        let happens = may && world.choose(|random| random.permille(permille));
        if happens {
            self.faults_left -= 1;
            world.count(fault);
        }
        happens
    }

    /// Whether the channel that is written to breaks now.
    fn breaks(&mut self, world: &World) -> bool {
        match &mut self.breaks_after {
            Some(0) => {
                self.breaks_after = None;
                world.count("channel broken");
                return true;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.happens(world, self.weather.breaks, "channel broken")
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner().weather.fmt(f)
    }
}

impl Network {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Sets how it behaves, and how many faults it may have.
    pub fn set_weather(&self, weather: Weather, faults: u64) {
        let mut inner = self.inner();
        inner.weather = weather;
        inner.faults_left = faults;
    }

    /// No further fault happens. What is broken or silent stays so.
    pub fn clear_up(&self) {
        let mut inner = self.inner();
        inner.faults_left = 0;
        inner.breaks_after = None;
    }

    /// Breaks whichever channel is used after so many further writes.
    pub fn break_after(&self, writes: u64) {
        self.inner().breaks_after.get_or_insert(writes);
    }

    /// All channels of now carry nothing more, and nobody is told: a host lost its power.
    pub fn silence(&self, now: Duration) {
        for link in &self.inner().links {
            link.lock().unwrap().fall_silent(now);
        }
    }

    /// Channels of which an end is open.
    #[must_use]
    pub fn open_channels(&self) -> usize {
        let inner = self.inner();
        let open = inner
            .links
            .iter()
            .filter(|link| Arc::strong_count(link) > 1);
        open.count()
    }

    fn connect(world: &Arc<World>) -> io::Result<Box<dyn Stream>> {
        let mut inner = world.network().inner();
        let chance = inner.weather.refusals;
        let refused = match inner.is_listening {
            true => inner.happens(world, chance, "connection refused"),
            false => {
                world.count("nobody listens");
                true
            }
        };
        if refused {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let chance = inner.weather.silences;
        let is_silent = inner.happens(world, chance, "connection not answered");
        let weather = inner.weather.clone();
        let jitter = u64::try_from(weather.jitter.as_micros()).unwrap();
        let jitter = world.choose(|random| random.range(0, jitter));
        let latency = weather.latency + Duration::from_micros(jitter);
        let is_slow = world.choose(|random| random.permille(weather.slow_channels));
        let now = world.time();
        let link = Arc::new(Mutex::new(Link {
            open_at: Some(now + 2 * latency),
            latency,
            rate: (weather.rate / if is_slow { 20 } else { 1 }).max(1),
            room: weather.room,
            ..Link::default()
        }));
        if is_silent {
            link.lock().unwrap().fall_silent(now);
        }
        let number = inner.count;
        inner.count += 1;
        inner.links.push(Arc::clone(&link));
        let end = |side| SimStream {
            world: Arc::downgrade(world),
            link: Arc::clone(&link),
            side,
            number,
        };
        if !is_silent {
            inner.arriving.push_back((now + latency, end(1)));
        }
        world.act(number);
        Ok(Box::new(end(0)))
    }

    /// Moves what has arrived by now to where it can be read.
    pub(crate) fn deliver(&self, world: &World) {
        let now = world.time();
        let mut inner = self.inner();
        if inner.arriving.iter().any(|(due, _)| *due <= now)
            && let Some((notifier, token)) = &inner.listener
        {
            notify(notifier, *token, true, false);
        }
        inner.links.retain(|link| Arc::strong_count(link) > 1);
        for link in &inner.links {
            if link.lock().unwrap().deliver(now) {
                world.act(4);
            }
        }
    }

    /// When something arrives next.
    pub(crate) fn next(&self) -> Option<Duration> {
        let inner = self.inner();
        let arriving = inner.arriving.iter().map(|(due, _)| *due);
        let links = inner
            .links
            .iter()
            .filter_map(|link| link.lock().unwrap().next());
        arriving.chain(links).min()
    }
}

fn notify(notifier: &Notifier, token: Token, readable: bool, writable: bool) {
    notifier.notify(Event {
        token,
        readable,
        writable,
    });
}

/// The one place that a network leads to.
#[must_use]
pub fn endpoint() -> Endpoint {
    Endpoint::new("sim", Location::Name("server".into()))
}

/// The stack whose channels go over the network of a world.
#[must_use]
pub fn stack(world: &Arc<World>) -> Stack {
    let world = Arc::clone(world);
    let make = move |()| SimTransport(Arc::clone(&world));
    let driver = Driver::transport("sim", Form::Name, &[], make).gives(&[Property::Order]);
    let registry = Registry::standard().with(driver);
    registry.build(&"sim".parse().unwrap()).unwrap()
}

#[derive(Debug)]
struct SimTransport(Arc<World>);

impl Transport for SimTransport {
    fn open(&self, _: &Endpoint) -> io::Result<Box<dyn Stream>> {
        Network::connect(&self.0)
    }

    fn listen(&self, _: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(SimListener(Arc::clone(&self.0))))
    }
}
