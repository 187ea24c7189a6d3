//! The machines of both sides over simulated streams that break, stall and are replaced, in random
//! schedules from seeds.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _};
use std::rc::Rc;
use std::time::Duration;

use xdfs_sys::poll::{Poller, Token};

use super::bundle::{Bundle, Sizes, Step};
use super::core::{Core, First};
use super::wire::FRAME_BYTES;
use crate::stream::{Capabilities, Stream};
use crate::transform::Room;

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        // Neighbouring seeds are to differ from the start.
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// One connection, with what is on its way in each direction.
#[derive(Debug, Default)]
struct Link {
    ways: [VecDeque<u8>; 2],
    is_broken: bool,
    is_stalled: bool,
}

type Shared = Rc<RefCell<Link>>;

const ROOM: usize = 300;

/// Writes up to `most` bytes from the side `from`.
fn write(link: &Shared, from: usize, most: usize, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut link = link.borrow_mut();
    if link.is_broken {
        return Err(ErrorKind::BrokenPipe.into());
    }
    let room = ROOM.saturating_sub(link.ways[from].len()).min(most);
    if room == 0 || link.is_stalled {
        return Err(ErrorKind::WouldBlock.into());
    }
    let bytes = bufs.iter().flat_map(|buf| buf.iter().copied());
    let before = link.ways[from].len();
    link.ways[from].extend(bytes.take(room));
    Ok(link.ways[from].len() - before)
}

/// Reads up to `most` bytes at the side `to`.
fn read(link: &Shared, to: usize, most: usize, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let mut link = link.borrow_mut();
    let (is_broken, is_stalled) = (link.is_broken, link.is_stalled);
    let way = &mut link.ways[1 - to];
    if way.is_empty() {
        return if is_broken {
            Ok(0)
        } else {
            Err(ErrorKind::WouldBlock.into())
        };
    }
    if is_stalled {
        return Err(ErrorKind::WouldBlock.into());
    }
    let mut n = 0;
    for byte in bufs.iter_mut().flat_map(|buf| buf.iter_mut()) {
        if n == most {
            break;
        }
        let Some(next) = way.pop_front() else {
            break;
        };
        *byte = next;
        n += 1;
    }
    Ok(n)
}

/// The byte at an offset of what a side writes.
fn byte(side: usize, offset: u64) -> u8 {
    let mixed = (offset + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    mixed as u8 ^ (side as u8 * 0x55)
}

struct Side {
    bundle: Bundle,
    window: u64,
    links: Vec<Option<Shared>>,
    written: u64,
    total: u64,
    read: u64,
    is_ended: bool,
    has_left: bool,
}

struct World {
    sides: [Side; 2],
    now: Duration,
    random: Random,
    breaks: usize,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let streams = 1 + random.below(4);
        let windows = [(); 2].map(|()| 1 + random.below(400) as u64);
        let piece = 1 + random.below(60);
        let side = |total, [window, peer_window]: [u64; 2]| Side {
            bundle: Bundle::new(Sizes {
                streams,
                piece,
                window,
                peer_window,
            }),
            window,
            links: vec![None; streams],
            written: 0,
            total,
            read: 0,
            is_ended: false,
            has_left: false,
        };
        let totals = [random.below(3000) as u64, random.below(1000) as u64];
        let mut world = Self {
            sides: [
                side(totals[0], windows),
                side(totals[1], [windows[1], windows[0]]),
            ],
            now: Duration::ZERO,
            breaks: random.below(30),
            random,
            seed,
        };
        world.join(0);
        world
    }

    fn streams(&self) -> usize {
        self.sides[0].links.len()
    }

    /// A new connection takes a place at the acceptor, and then at the opener.
    fn join(&mut self, index: usize) {
        let link = Shared::default();
        for side in [1, 0] {
            self.sides[side].links[index] = Some(Rc::clone(&link));
            self.sides[side].bundle.attach(index);
        }
    }

    /// The acceptor's answer to a join is lost.
    fn join_in_vain(&mut self, index: usize) {
        let link = Shared::default();
        self.sides[1].links[index] = Some(Rc::clone(&link));
        self.sides[1].bundle.attach(index);
        if self.random.one_in(2) {
            link.borrow_mut().is_broken = true;
        }
    }

    fn cut(&mut self, index: usize) {
        let side = self.random.below(2);
        if let Some(link) = &self.sides[side].links[index] {
            let mut link = link.borrow_mut();
            link.is_broken = true;
            for way in &mut link.ways {
                let kept = self.random.below(way.len() + 1);
                way.truncate(kept);
            }
        }
    }

    fn lose(&mut self, side: usize, index: usize) {
        self.sides[side].bundle.detach(index);
        self.sides[side].links[index] = None;
    }

    fn send(&mut self, side: usize, index: usize) -> Step {
        let most = 1 + self.random.below(120);
        let Some(link) = self.sides[side].links[index].clone() else {
            return Step::Idle;
        };
        let bundle = &mut self.sides[side].bundle;
        let step = bundle.send(index, self.now, &mut |bufs| write(&link, side, most, bufs));
        if step == Step::Lost {
            self.lose(side, index);
        }
        step
    }

    fn receive(&mut self, side: usize, index: usize) -> Step {
        let most = 1 + self.random.below(120);
        let Some(link) = self.sides[side].links[index].clone() else {
            return Step::Idle;
        };
        let mut space = vec![0; self.random.below(100)];
        let mut bufs = [IoSliceMut::new(&mut space)];
        let mut room = Room::new(&mut bufs);
        let reads = self.random.one_in(2) && !self.sides[side].has_left;
        let bundle = &mut self.sides[side].bundle;
        if reads {
            bundle.deliver(&mut room);
        }
        let given = reads.then_some(&mut room);
        let step = bundle
            .receive(index, given, self.now, &mut |bufs| {
                read(&link, side, most, bufs)
            })
            .unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
        let n = room.filled();
        self.got(side, &space[..n]);
        if step == Step::Lost {
            self.lose(side, index);
        }
        step
    }

    fn got(&mut self, side: usize, bytes: &[u8]) {
        for got in bytes {
            let at = self.sides[side].read;
            assert_eq!(*got, byte(1 - side, at), "seed {}, byte {at}", self.seed);
            self.sides[side].read += 1;
        }
    }

    fn deliver(&mut self, side: usize) {
        let mut space = vec![0; 1 + self.random.below(200)];
        let mut bufs = [IoSliceMut::new(&mut space)];
        let mut room = Room::new(&mut bufs);
        self.sides[side].bundle.deliver(&mut room);
        let n = room.filled();
        self.got(side, &space[..n]);
        self.sides[side].is_ended |= self.sides[side].bundle.is_ended();
    }

    fn write(&mut self, side: usize) {
        let most = self.random.below(150) as u64;
        let from = &mut self.sides[side];
        let n = most.min(from.total - from.written);
        let bytes: Vec<u8> = (0..n).map(|i| byte(side, from.written + i)).collect();
        from.written += from.bundle.take(&[IoSlice::new(&bytes)], 0) as u64;
        if from.written == from.total && self.random.one_in(4) {
            from.bundle.finish();
        }
    }

    fn check(&self) {
        for side in &self.sides {
            let held = side.bundle.held_bytes() as u64;
            // One piece of each stream may come on top of the window.
            let most = side.window * (1 + self.streams() as u64);
            assert!(held <= most, "seed {}: {held}", self.seed);
            assert!(side.bundle.unacknowledged_bytes() <= side.window);
        }
    }

    /// One random event.
    fn step(&mut self) {
        let side = self.random.below(2);
        let index = self.random.below(self.streams());
        match self.random.below(24) {
            0..5 => drop(self.send(side, index)),
            5..10 => drop(self.receive(side, index)),
            10..13 => self.deliver(side),
            13..17 => self.write(side),
            17 => self.sides[side].bundle.settle(),
            18 => {
                self.now += Duration::from_millis(self.random.below(2000) as u64);
                self.sides[side].bundle.check_stalls(self.now);
            }
            19 if self.breaks > 0 => {
                self.breaks -= 1;
                self.cut(index);
            }
            20 if self.breaks > 0 && self.sides[0].links[index].is_none() => self.join(index),
            21 if self.breaks > 0 => {
                self.breaks -= 1;
                match self.random.below(3) {
                    0 => self.join_in_vain(index),
                    // Doubled: the place has a stream.
                    1 => self.join(index),
                    // One side closes it.
                    _ => {
                        self.cut(index);
                        self.lose(side, index);
                    }
                }
            }
            22 => {
                if let Some(link) = &self.sides[side].links[index] {
                    let mut link = link.borrow_mut();
                    link.is_stalled = !link.is_stalled;
                }
            }
            _ => {}
        }
    }

    /// Nothing breaks any more: everything arrives, over all streams or but one that stalls.
    fn finish(&mut self) {
        let stalled = self.streams() > 1 && self.random.one_in(2);
        for index in 0..self.streams() {
            let ends = self.sides.each_ref().map(|side| side.links[index].clone());
            let is_whole = match ends {
                [Some(a), Some(b)] => Rc::ptr_eq(&a, &b) && !a.borrow().is_broken,
                _ => false,
            };
            if !is_whole {
                self.join(index);
            }
            if let Some(link) = &self.sides[0].links[index] {
                link.borrow_mut().is_stalled = stalled && index == 0;
            }
        }
        for round in 0.. {
            assert!(
                round < 200_000,
                "seed {}: {:?}",
                self.seed,
                self.sides.each_ref().map(|side| &side.bundle)
            );
            if self.sides.iter().all(|s| s.is_ended && s.bundle.is_done()) {
                break;
            }
            for side in 0..2 {
                self.write(side);
                if self.sides[side].written == self.sides[side].total {
                    self.sides[side].bundle.finish();
                }
                for index in 0..self.streams() {
                    while self.send(side, index) == Step::Moved {}
                    while self.receive(side, index) == Step::Moved {}
                    self.deliver(side);
                    self.check();
                }
                self.sides[side].bundle.settle();
                self.now += Duration::from_millis(100);
                self.sides[side].bundle.check_stalls(self.now);
            }
        }
        for side in 0..2 {
            let read = self.sides[1 - side].read;
            assert_eq!(read, self.sides[side].total, "seed {}", self.seed);
        }
    }

    /// Both users leave, one after the other: both sides come to an end.
    fn leave(&mut self) {
        let first = self.random.below(2);
        for side in [first, 1 - first] {
            self.sides[side].bundle.leave();
            self.sides[side].has_left = true;
            for _ in 0..20 {
                for at in 0..2 * self.streams() {
                    let (side, index) = (at % 2, at / 2);
                    while self.send(side, index) == Step::Moved {}
                    while self.receive(side, index) == Step::Moved {}
                }
            }
            assert!(self.sides[1 - side].bundle.is_alone(), "seed {}", self.seed);
        }
        assert!(self.sides.iter().all(|side| side.bundle.is_over()));
    }
}

/// A stream that takes nothing, and from which `left` can still be read before it ends.
#[derive(Debug)]
struct Halved {
    left: VecDeque<u8>,
}

impl Stream for Halved {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.left.read_vectored(bufs)
    }

    fn write_vectored(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(ErrorKind::BrokenPipe.into())
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn register(&mut self, _: &mut Poller, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: false,
            local: false,
        }
    }

    fn peer(&self) -> String {
        String::new()
    }
}

/// A side that writes before it reads finds the stream broken on which the peer said that it left.
/// It would wait for other streams then, for as long as its patience lasts.
#[test]
fn a_peer_that_left_is_heard_on_a_stream_that_takes_nothing() {
    let sizes = Sizes {
        streams: 4,
        piece: 100,
        window: 1000,
        peer_window: 1000,
    };
    for aborts in [false, true] {
        let mut peer = Bundle::new(sizes);
        peer.attach(0);
        match aborts {
            true => peer.abort(),
            false => peer.leave(),
        }
        let mut left = VecDeque::new();
        let mut write = |bufs: &[IoSlice<'_>]| {
            let before = left.len();
            bufs.iter().for_each(|buf| left.extend(buf.iter()));
            Ok(left.len() - before)
        };
        while peer.send(0, Duration::ZERO, &mut write) == Step::Moved {}
        for has_heard in [false, true] {
            let left = match has_heard {
                true => left.clone(),
                false => VecDeque::new(),
            };
            let stream = Halved { left };
            let patience = Duration::from_secs(3600);
            let mut core = Core::new(First::of(&stream), None, patience);
            core.begin(Bundle::new(sizes), Box::new(stream));
            let _ = core.write(&[IoSlice::new(b"answer")]);
            // Without a word it waits for other streams.
            assert!(has_heard || core.needs_service());
            let mut bytes = [0; 10];
            let read = core.read(&mut [IoSliceMut::new(&mut bytes)]);
            let expected = match (has_heard, aborts) {
                (false, _) => Err(ErrorKind::WouldBlock),
                (true, false) => Ok(0),
                (true, true) => Err(ErrorKind::ConnectionReset),
            };
            assert_eq!(read.map_err(|error| error.kind()), expected);
        }
    }
}

/// A place without a stream can't be the one that tells the peer what has arrived.
#[test]
fn a_lost_stream_owes_no_acknowledgement() {
    let sizes = Sizes {
        streams: 2,
        piece: 100,
        window: 1000,
        peer_window: 1000,
    };
    let mut bundle = Bundle::new(sizes);
    bundle.attach(0);
    bundle.attach(1);
    assert_eq!(bundle.take(&[IoSlice::new(&[7; 10])], 0), 10);
    let mut written = 0;
    let mut send = |bundle: &mut Bundle, index| {
        bundle.send(index, Duration::ZERO, &mut |bufs| {
            let n = bufs.iter().map(|buf| buf.len()).sum();
            written += n;
            Ok(n)
        })
    };
    assert_eq!(send(&mut bundle, 0), Step::Moved);
    assert_eq!(bundle.turn(), 1);
    bundle.detach(1);
    assert_eq!(bundle.turn(), 0);
    // An acknowledgement may have been on the lost one.
    assert_eq!(send(&mut bundle, 0), Step::Moved);
    assert_eq!(send(&mut bundle, 0), Step::Idle);
    assert_eq!(written, 2 * FRAME_BYTES + 10);
}

/// The number of schedules: 10,000 with `XDFS_PTCP_RUNS=10000`.
fn runs() -> u64 {
    let given = std::env::var("XDFS_PTCP_RUNS");
    given.ok().and_then(|n| n.parse().ok()).unwrap_or(1500)
}

#[test]
fn everything_arrives_once_and_in_order_whatever_breaks() {
    let mut resent = 0;
    for seed in 0..runs() {
        let mut world = World::new(seed);
        for _ in 0..world.random.below(1500) {
            world.step();
            world.check();
        }
        world.finish();
        resent += world.sides[0].bundle.resent_bytes();
        world.leave();
    }
    assert!(resent > 0, "no schedule sent anything again");
}
