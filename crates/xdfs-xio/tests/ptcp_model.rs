//! Model check of the machine of a bundle: the interleavings of a tiny instance, breadth first.
//!
//! Two sides, two streams, one piece up and both ends; a stream breaks with all that was on its
//! way, at any time, and is replaced; and a stall is suspected at any time. From every state each
//! possible event is tried: bytes arrive in order and once, and nobody finds the other to lie. By
//! default only the first states are visited. With `XDFS_PTCP_MODEL` it is all of them, which
//! takes long, and that each leads to an end with everything arrived is checked as well. The
//! random schedules of the unit tests are larger, without being exhaustive.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::time::Duration;

use xdfs_xio::Room;
use xdfs_xio::ptcp::{Bundle, Sizes, Step};

/// States visited by default.
const STATES_MAX: usize = 15_000;

const STREAMS: usize = 2;
const TOTALS: [usize; 2] = [1, 0];

#[derive(Clone, Copy, Debug)]
enum Event {
    Break(usize),
    Join(usize),
    /// With a reader that waits or without one.
    Receive(usize, usize, bool),
    Send(usize, usize),
    Stall(usize),
    Write(usize),
}

#[derive(Clone, Debug)]
struct World {
    sides: [Bundle; 2],
    /// What is on its way on each stream, from each side.
    ways: [[Vec<u8>; 2]; STREAMS],
    written: [usize; 2],
    seen: [usize; 2],
    breaks: usize,
    stalls: usize,
}

fn byte(side: usize, at: usize) -> u8 {
    (side * 100 + at) as u8
}

impl World {
    fn new() -> Self {
        let side = || {
            let mut bundle = Bundle::new(Sizes {
                streams: STREAMS,
                piece: 1,
                window: 4,
                peer_window: 4,
            });
            (0..STREAMS).for_each(|index| bundle.attach(index));
            bundle
        };
        Self {
            sides: [side(), side()],
            ways: Default::default(),
            written: [0; 2],
            seen: [0; 2],
            breaks: 1,
            stalls: 1,
        }
    }

    fn is_over(&self) -> bool {
        let is_done = |side: &Bundle| side.is_ended() && side.is_done();
        self.sides.iter().all(is_done)
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for index in 0..STREAMS {
            if self.sides[0].has(index) {
                // The streams are alike, so one of them breaks.
                if self.breaks > 0 && index == 0 {
                    events.push(Event::Break(index));
                }
            } else {
                events.push(Event::Join(index));
            }
        }
        for side in 0..2 {
            if !self.sides[side].is_closed() {
                events.push(Event::Write(side));
            }
            if self.stalls > 0 {
                events.push(Event::Stall(side));
            }
            for index in 0..STREAMS {
                if self.sides[side].has_output() {
                    events.push(Event::Send(side, index));
                }
                if !self.ways[index][1 - side].is_empty() {
                    events.push(Event::Receive(side, index, true));
                    events.push(Event::Receive(side, index, false));
                }
            }
        }
        events
    }

    /// Performs an event; whether it changed anything.
    fn perform(&mut self, event: Event) {
        let now = Duration::ZERO;
        match event {
            Event::Break(index) => {
                self.breaks -= 1;
                self.ways[index] = Default::default();
                self.sides.iter_mut().for_each(|side| side.detach(index));
            }
            Event::Join(index) => self.sides.iter_mut().for_each(|side| side.attach(index)),
            Event::Receive(side, index, reads) => {
                let way = &mut self.ways[index][1 - side];
                let bundle = &mut self.sides[side];
                let mut space = [0; 8];
                let mut bufs = [IoSliceMut::new(&mut space)];
                let mut room = Room::new(&mut bufs);
                if reads {
                    bundle.deliver(&mut room);
                }
                let mut read = |bufs: &mut [IoSliceMut<'_>]| -> io::Result<usize> {
                    if way.is_empty() {
                        return Err(ErrorKind::WouldBlock.into());
                    }
                    let places = bufs.iter_mut().flat_map(|buf| buf.iter_mut());
                    let n = places.zip(way.iter()).map(|(to, from)| *to = *from).count();
                    way.drain(..n);
                    Ok(n)
                };
                // A header and its payload: what lies between them is in the random schedules.
                for _ in 0..2 {
                    let given = reads.then_some(&mut room);
                    let step = bundle.receive(index, given, now, &mut read);
                    if step.expect("nobody lies") != Step::Moved {
                        break;
                    }
                }
                // Whether more is on its way decides nothing but the number of states.
                bundle.settle();
                let n = room.filled();
                for got in &space[..n] {
                    assert_eq!(*got, byte(1 - side, self.seen[side]));
                    self.seen[side] += 1;
                }
            }
            Event::Send(side, index) => {
                let way = &mut self.ways[index][side];
                let mut write = |bufs: &[IoSlice<'_>]| {
                    let before = way.len();
                    bufs.iter().for_each(|buf| way.extend_from_slice(buf));
                    Ok(way.len() - before)
                };
                let _ = self.sides[side].send(index, now, &mut write);
            }
            Event::Stall(side) => {
                self.stalls -= 1;
                self.sides[side].check_stalls(Duration::from_secs(3600));
            }
            Event::Write(side) => {
                if self.written[side] == TOTALS[side] {
                    self.sides[side].finish();
                    return;
                }
                let next = [byte(side, self.written[side])];
                self.written[side] += self.sides[side].take(&[IoSlice::new(&next)], 0);
            }
        }
    }
}

fn digest(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{world:?}").as_bytes());
    hasher.finish()
}

#[test]
fn nobody_lies_and_nothing_is_lost_in_a_tiny_bundle() {
    let mut start = World::new();
    let is_whole = std::env::var_os("XDFS_PTCP_MODEL").is_some();
    start.stalls = usize::from(is_whole);
    let mut seen = HashMap::from([(digest(&start), 0_u32)]);
    let mut steps: Vec<(u32, u32)> = Vec::new();
    let mut ends = Vec::new();
    let mut queue = VecDeque::from([(0, start)]);
    while let Some((from, world)) = queue.pop_front() {
        if !is_whole && seen.len() > STATES_MAX {
            return;
        }
        if world.is_over() {
            assert_eq!(world.seen, [TOTALS[1], TOTALS[0]]);
            ends.push(from);
            continue;
        }
        for event in world.events() {
            let mut next = world.clone();
            next.perform(event);
            let number = seen.len() as u32;
            let to = *seen.entry(digest(&next)).or_insert(number);
            if to != from {
                steps.push((to, from));
            }
            if to == number {
                queue.push_back((to, next));
            }
        }
    }
    // Backwards from the ends, every state is reached.
    steps.sort_unstable();
    let mut leads = vec![false; seen.len()];
    ends.iter().for_each(|end| leads[*end as usize] = true);
    while let Some(to) = ends.pop() {
        let first = steps.partition_point(|(other, _)| *other < to);
        for (_, from) in steps[first..].iter().take_while(|(other, _)| *other == to) {
            if !std::mem::replace(&mut leads[*from as usize], true) {
                ends.push(*from);
            }
        }
    }
    let stuck = leads.iter().filter(|leads| !**leads).count();
    assert_eq!(stuck, 0, "of {} states, so many never end", seen.len());
}
