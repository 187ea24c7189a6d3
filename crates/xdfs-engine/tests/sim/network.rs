//! The network of a simulation: channels with latency, bounded rate and little room, that stall,
//! break, and change bytes on the way.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use xdfs_proto::frame::{BLOCK_HEADER_BYTES, BlockHeader, kind};
use xdfs_sys::poll::{Event, Notifier, Poller, Token};
use xdfs_xio::{
    Capabilities, Driver, Endpoint, Form, Listener, Location, Property, Registry, Stack, Stream,
    Transport,
};

use crate::world::World;

/// How the network of a run behaves.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) latency: Duration,
    /// Bytes a second of a channel.
    pub(crate) rate: u64,
    /// Bytes that may be on the way in one direction.
    pub(crate) room: usize,
    /// Chances in a thousand, a write each.
    pub(crate) breaks: u64,
    pub(crate) stalls: u64,
    pub(crate) damages: u64,
    /// Chance in a thousand that a connection is refused.
    pub(crate) refusals: u64,
    /// The two ends are taken to be on one machine.
    pub(crate) local: bool,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(1),
            rate: 1 << 30,
            room: 1 << 20,
            breaks: 0,
            stalls: 0,
            damages: 0,
            refusals: 0,
            local: false,
        }
    }
}

#[derive(Default)]
pub(crate) struct Network(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    weather: Weather,
    /// Bad things that may still happen: what always breaks gets nowhere.
    faults_left: u64,
    faults_met: u64,
    links: Vec<Arc<Mutex<Link>>>,
    count: u64,
    /// Channels on their way to the listener.
    arriving: VecDeque<(Duration, SimStream)>,
    listener: Option<(Notifier, Token)>,
    is_listening: bool,
}

/// One channel.
#[derive(Default)]
struct Link {
    /// From the client to the server, and back.
    pipes: [Pipe; 2],
    is_broken: bool,
    watchers: [Option<(Notifier, Token)>; 2],
    open_at: Duration,
}

/// One direction of a channel.
#[derive(Default)]
struct Pipe {
    under_way: VecDeque<(Duration, Vec<u8>)>,
    arrived: VecDeque<u8>,
    bytes: usize,
    last_due: Duration,
    /// The writer ends it here.
    closes_at: Option<Duration>,
    /// Nobody reads it any more.
    is_abandoned: bool,
}

/// One end of a channel.
pub(crate) struct SimStream {
    world: Weak<World>,
    link: Arc<Mutex<Link>>,
    /// 0 for the client, 1 for the server.
    side: usize,
    number: u64,
}

impl std::fmt::Debug for SimStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimStream({}, {})", self.number, self.side)
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

    pub(crate) fn set_weather(&self, weather: Weather, faults: u64) {
        let mut inner = self.inner();
        inner.weather = weather;
        inner.faults_left = faults;
    }

    pub(crate) fn faults_met(&self) -> u64 {
        self.inner().faults_met
    }

    /// No further fault happens.
    pub(crate) fn clear_up(&self) {
        self.inner().faults_left = 0;
    }

    fn connect(world: &Arc<World>) -> io::Result<Box<dyn Stream>> {
        let mut inner = world.network.inner();
        let chance = inner.weather.refusals;
        let refused = inner.faults_left > 0 && world.choose(|random| random.permille(chance));
        if !inner.is_listening || refused {
            inner.faults_left = inner.faults_left.saturating_sub(1);
            inner.faults_met += 1;
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let latency = inner.weather.latency;
        let now = world.time();
        let link = Arc::new(Mutex::new(Link {
            open_at: now + 2 * latency,
            ..Link::default()
        }));
        let number = inner.count;
        inner.count += 1;
        inner.links.push(Arc::clone(&link));
        let end = |side| SimStream {
            world: Arc::downgrade(world),
            link: Arc::clone(&link),
            side,
            number,
        };
        inner.arriving.push_back((now + latency, end(1)));
        world.act(number);
        Ok(Box::new(end(0)))
    }

    /// Moves what has arrived by now to where it can be read.
    pub(crate) fn deliver(&self, world: &World) {
        let now = world.time();
        let mut inner = self.inner();
        if inner.arriving.front().is_some_and(|(due, _)| *due <= now)
            && let Some((notifier, token)) = &inner.listener
        {
            notify(notifier, *token, true, false);
        }
        inner.links.retain(|link| Arc::strong_count(link) > 1);
        for link in &inner.links {
            let link = &mut *link.lock().unwrap();
            if link.open_at > Duration::ZERO && link.open_at <= now {
                link.open_at = Duration::ZERO;
                link.wake(0, true, true);
                world.act(3);
            }
            for side in 0..2 {
                let pipe = &mut link.pipes[side];
                let before = pipe.arrived.len();
                while pipe.under_way.front().is_some_and(|(due, _)| *due <= now) {
                    let (_, bytes) = pipe.under_way.pop_front().unwrap();
                    pipe.arrived.extend(bytes);
                }
                let closes = pipe.closes_at.is_some_and(|at| at <= now);
                if closes {
                    pipe.closes_at = Some(Duration::ZERO);
                }
                let arrived = pipe.arrived.len() > before;
                if arrived || (closes && !link.is_broken) {
                    if arrived {
                        world.act(4);
                    }
                    link.wake(1 - side, true, false);
                }
            }
        }
    }

    /// When something arrives next.
    pub(crate) fn next(&self) -> Option<Duration> {
        let inner = self.inner();
        let mut next: Option<Duration> = inner.arriving.front().map(|(due, _)| *due);
        for link in &inner.links {
            let link = link.lock().unwrap();
            let open = (link.open_at > Duration::ZERO).then_some(link.open_at);
            let due = link.pipes.iter().flat_map(|pipe| {
                let first = pipe.under_way.front().map(|(due, _)| *due);
                let closes = pipe.closes_at.filter(|at| *at > Duration::ZERO);
                first.into_iter().chain(closes)
            });
            next = next.into_iter().chain(due).chain(open).min();
        }
        next
    }
}

fn notify(notifier: &Notifier, token: Token, readable: bool, writable: bool) {
    notifier.notify(Event {
        token,
        readable,
        writable,
    });
}

impl Link {
    fn wake(&self, side: usize, readable: bool, writable: bool) {
        if let Some((notifier, token)) = &self.watchers[side] {
            notify(notifier, *token, readable, writable);
        }
    }

    fn break_up(&mut self) {
        self.is_broken = true;
        for pipe in &mut self.pipes {
            pipe.under_way.clear();
            pipe.arrived.clear();
        }
        self.wake(0, true, true);
        self.wake(1, true, true);
    }
}

/// The bytes of a write, one of them changed where the check values have to show it: in a block or
/// in the header before it. The engine writes `[control, header, payload]`.
fn damaged(bufs: &[IoSlice<'_>], at: u64) -> Option<usize> {
    let [control, header, payload] = bufs else {
        return None;
    };
    let is_block = header.len() == BLOCK_HEADER_BYTES && header[0] == kind::BLOCK;
    let is_sound = header.first_chunk().is_some_and(BlockHeader::is_sound);
    let length = header.len() + payload.len();
    (is_block && is_sound).then(|| control.len() + (at % length as u64) as usize)
}

impl Stream for SimStream {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let world = self.world.upgrade().ok_or(ErrorKind::ConnectionReset)?;
        let mut link = self.link.lock().unwrap();
        if link.is_broken {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let pipe = &mut link.pipes[1 - self.side];
        if pipe.arrived.is_empty() {
            let has_ended = pipe.under_way.is_empty() && pipe.closes_at == Some(Duration::ZERO);
            return match has_ended {
                true => Ok(0),
                false => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let have = pipe.arrived.len();
        let limit = world.choose(|random| match random.permille(100) {
            true => random.range(1, have as u64) as usize,
            false => have,
        });
        let mut total = 0;
        for buf in bufs.iter_mut() {
            let count = buf.len().min(limit - total);
            for (to, from) in buf.iter_mut().zip(pipe.arrived.drain(..count)) {
                *to = from;
            }
            total += count;
        }
        pipe.bytes -= total;
        link.wake(1 - self.side, false, true);
        world.act(5 + total as u64);
        Ok(total)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let world = self.world.upgrade().ok_or(ErrorKind::ConnectionReset)?;
        let mut inner = world.network.inner();
        let weather = inner.weather.clone();
        let mut link = self.link.lock().unwrap();
        let side = self.side;
        if link.is_broken || link.pipes[side].is_abandoned || link.pipes[side].closes_at.is_some() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        let room = weather.room.saturating_sub(link.pipes[side].bytes);
        if room == 0 && total > 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut chance = |of: u64| {
            let happens = of > 0 && inner.faults_left > 0 && world.choose(|r| r.permille(of));
            inner.faults_left -= u64::from(happens);
            inner.faults_met += u64::from(happens);
            happens
        };
        if chance(weather.breaks) {
            link.break_up();
            world.act(6);
            return Err(ErrorKind::ConnectionReset.into());
        }
        let now = world.time();
        let stall = match chance(weather.stalls) {
            true => Duration::from_millis(world.choose(|random| random.range(1, 40_000))),
            false => Duration::ZERO,
        };
        let mut count = total.min(room);
        if world.choose(|random| random.permille(100)) {
            count = world.choose(|random| random.range(1, count.max(1) as u64)) as usize;
        }
        let mut bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        if chance(weather.damages)
            && let Some(at) = damaged(bufs, world.choose(|random| random.below(u64::MAX)))
        {
            bytes[at] ^= 1 << world.choose(|random| random.below(8));
        }
        bytes.truncate(count);
        let pipe = &mut link.pipes[side];
        pipe.bytes += count;
        let takes = Duration::from_nanos(count as u64 * 1_000_000_000 / weather.rate);
        pipe.last_due = pipe.last_due.max(now + weather.latency) + takes + stall;
        pipe.under_way.push_back((pipe.last_due, bytes));
        world.act(7 + count as u64);
        Ok(count)
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        let link = self.link.lock().unwrap();
        if link.is_broken {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        Ok(link.open_at == Duration::ZERO)
    }

    fn close(&mut self) -> io::Result<()> {
        let Some(world) = self.world.upgrade() else {
            return Ok(());
        };
        let mut link = self.link.lock().unwrap();
        let pipe = &mut link.pipes[self.side];
        let at = pipe.last_due.max(world.time());
        pipe.closes_at.get_or_insert(at + Duration::from_nanos(1));
        Ok(())
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let mut link = self.link.lock().unwrap();
        link.watchers[self.side] = Some((poller.notifier(), token));
        link.wake(self.side, true, true);
        Ok(())
    }

    fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
        self.link.lock().unwrap().watchers[self.side] = None;
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        let local = self
            .world
            .upgrade()
            .is_some_and(|world| world.network.inner().weather.local);
        Capabilities {
            integrity: false,
            local,
        }
    }

    fn peer(&self) -> String {
        format!("sim#{}", self.number)
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let _ = self.close();
        let mut link = self.link.lock().unwrap();
        link.watchers[self.side] = None;
        let other = 1 - self.side;
        let unread = link.pipes[other].bytes > 0;
        link.pipes[other].is_abandoned = true;
        if unread {
            // What the peer sent and nobody read resets the channel.
            link.break_up();
        }
        link.wake(other, true, true);
    }
}

/// The one place that a network leads to.
pub(crate) fn endpoint() -> Endpoint {
    Endpoint::new("sim", Location::Name("server".into()))
}

/// The stack whose channels go over the network of a world.
pub(crate) fn stack(world: &Arc<World>) -> Stack {
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

/// The one listener of a network.
#[derive(Debug)]
struct SimListener(Arc<World>);

impl Listener for SimListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        let now = self.0.time();
        let arriving = &mut self.0.network.inner().arriving;
        match arriving.pop_front_if(|(due, _)| *due <= now) {
            Some((_, stream)) => Ok(Box::new(stream)),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let mut inner = self.0.network.inner();
        inner.listener = Some((poller.notifier(), token));
        inner.is_listening = true;
        Ok(())
    }

    fn local_endpoint(&self) -> Endpoint {
        endpoint()
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut inner = self.0.network.inner();
        inner.is_listening = false;
        inner.listener = None;
        let arriving = std::mem::take(&mut inner.arriving);
        drop(inner);
        drop(arriving);
    }
}
