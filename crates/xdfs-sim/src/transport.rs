//! The transport over the network of a simulation: the ends of its channels, as the engine sees
//! them.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use xdfs_proto::digest::BlockHasher;
use xdfs_proto::frame::{BLOCK_HEADER_BYTES, BlockHeader, FRAME_HEADER_BYTES, FrameHeader, kind};
use xdfs_proto::{DigestKind, Limits};
use xdfs_sys::poll::{Poller, Token};
use xdfs_xio::{
    Capabilities, Driver, Endpoint, Form, Listener, Location, Property, Registry, Stack, Stream,
    Transport,
};

use crate::network::Link;
use crate::world::World;

/// Longest pause of a channel that stalls, in milliseconds.
const STALL_MS_MAX: u64 = 40_000;

/// One end of a channel.
struct SimStream {
    world: Weak<World>,
    link: Arc<Mutex<Link>>,
    /// 0 for the client, 1 for the server.
    side: usize,
    number: u64,
}

impl fmt::Debug for SimStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStream({}, {})", self.number, self.side)
    }
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
            return match pipe.is_over() {
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
        let mut inner = world.network().inner();
        let weather = inner.weather.clone();
        let mut link = self.link.lock().unwrap();
        let side = self.side;
        if link.is_broken || link.pipes[side].is_abandoned || link.pipes[side].is_closed() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        let room = link.room.saturating_sub(link.pipes[side].bytes);
        if room == 0 && total > 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut count = total.min(room);
        if world.choose(|random| random.permille(100)) {
            count = world.choose(|random| random.range(1, count.max(1) as u64)) as usize;
        }
        if !link.is_silent && inner.happens(&world, weather.silences, "channel silent") {
            link.fall_silent(world.time());
        }
        if link.is_silent || link.pipes[side].is_cut {
            // Until the buffer of the system is full.
            link.pipes[side].bytes += count;
            world.act(7 + count as u64);
            return Ok(count);
        }
        let mut bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let now = world.time();
        if inner.breaks(&world) {
            // The writer may learn of it later than of what is lost by it.
            let arrives = world.choose(|random| random.range(0, count as u64)) as usize;
            bytes.truncate(arrives);
            world.act(6);
            if world.choose(|random| random.permille(500)) {
                link.break_up();
                return Err(ErrorKind::ConnectionReset.into());
            }
            let at = link.send(side, bytes, now);
            link.pipes[side].is_cut = true;
            link.cut_at.get_or_insert(at);
            return Ok(count);
        }
        let stall = match inner.happens(&world, weather.stalls, "channel stalled") {
            true => Duration::from_millis(world.choose(|random| random.range(1, STALL_MS_MAX))),
            false => Duration::ZERO,
        };
        if let Some(block) = Block::find(bufs) {
            let is_whole = count == total;
            if inner.happens(&world, weather.damages, "block damaged") {
                block.flip(&mut bytes, &world, 0);
            } else if is_whole && inner.happens(&world, weather.forgeries, "block forged") {
                block.flip(&mut bytes, &world, BLOCK_HEADER_BYTES);
                block.sign(&mut bytes);
            }
        }
        bytes.truncate(count);
        link.send(side, bytes, now + stall);
        world.act(7 + count as u64);
        Ok(count)
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        let link = self.link.lock().unwrap();
        if link.is_broken {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        Ok(link.open_at.is_none())
    }

    fn close(&mut self) -> io::Result<()> {
        if let Some(world) = self.world.upgrade() {
            let mut link = self.link.lock().unwrap();
            link.pipes[self.side].close(world.time());
        }
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
        let world = self.world.upgrade();
        Capabilities {
            integrity: false,
            local: world.is_some_and(|world| world.network().inner().weather.local),
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
        if link.is_silent {
            return;
        }
        link.pipes[other].is_abandoned = true;
        if unread {
            // What the peer sent and nobody read resets the channel.
            link.break_up();
        }
        link.wake(other, true, true);
    }
}

/// Where the one block of a write stands. The engine writes `[control, header, payload]`.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    length: usize,
}

impl Block {
    fn find(bufs: &[IoSlice<'_>]) -> Option<Self> {
        let [control, header, payload] = bufs else {
            return None;
        };
        let is_block = header.len() == BLOCK_HEADER_BYTES && header[0] == kind::BLOCK;
        let is_sound = header.first_chunk().is_some_and(BlockHeader::is_sound);
        (is_block && is_sound && !payload.is_empty()).then(|| Self {
            start: control.len(),
            length: header.len() + payload.len(),
        })
    }

    /// Changes a bit, of which the first `spared` bytes have none.
    fn flip(self, bytes: &mut [u8], world: &World, spared: usize) {
        let at = world.choose(|random| random.below((self.length - spared) as u64));
        let bit = world.choose(|random| random.below(8));
        bytes[self.start + spared + at as usize] ^= 1 << bit;
    }

    /// Gives the block the check values of the content that it has now.
    fn sign(self, bytes: &mut [u8]) {
        let block = &mut bytes[self.start..self.start + self.length];
        let (header, payload) = block.split_first_chunk_mut::<BLOCK_HEADER_BYTES>().unwrap();
        let (frame, rest) = header.split_first_chunk::<FRAME_HEADER_BYTES>().unwrap();
        let frame = FrameHeader::decode(*frame, &Limits::default()).unwrap();
        let rest = rest.try_into().unwrap();
        let mut decoded = BlockHeader::decode(frame, rest).unwrap();
        let mut hasher = BlockHasher::new(DigestKind::None, true, decoded.offset);
        hasher.update(payload);
        decoded.check = hasher.finish(decoded.file).0;
        *header = decoded.encode();
    }
}

/// The one listener of a network.
#[derive(Debug)]
struct SimListener(Arc<World>);

impl Listener for SimListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        let now = self.0.time();
        let arriving = &mut self.0.network().inner().arriving;
        let due = arriving.iter().position(|(due, ..)| *due <= now);
        match due.and_then(|at| arriving.remove(at)) {
            Some((_, link, number)) => Ok(Box::new(SimStream {
                world: Arc::downgrade(&self.0),
                link,
                side: 1,
                number,
            })),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        let mut inner = self.0.network().inner();
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
        let mut inner = self.0.network().inner();
        inner.is_listening = false;
        inner.listener = None;
        let arriving = std::mem::take(&mut inner.arriving);
        drop(inner);
        drop(arriving);
    }
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
        connect(&self.0)
    }

    fn listen(&self, _: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(SimListener(Arc::clone(&self.0))))
    }
}

/// Opens a channel to whoever listens.
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
    if !is_silent {
        inner
            .arriving
            .push_back((now + latency, Arc::clone(&link), number));
    }
    world.act(number);
    Ok(Box::new(SimStream {
        world: Arc::downgrade(world),
        link,
        side: 0,
        number,
    }))
}
