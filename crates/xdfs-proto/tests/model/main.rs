//! Model checks of the machines: every interleaving of tiny instances.
//!
//! A world is the machines of both sides, what is on its way between them, and what each side has
//! noticed. From every state every event that is possible is tried; states are told apart by a hash
//! of all that they are. The checks are within the worlds: a broken rule panics there. Here it is
//! shown besides that no state is stuck, and that from each of them an end can be reached.
//!
//! [`files`] has several files, with whatever may go wrong with them.
//! [`transfer`] has the machines of one file, and looks at it closely. [`modes`] has a file, path
//! calls and calls about files in one session, on channels that break, leave and join.
//!
//! What neither has: the digest is CRC-64 of zeros, time stands still, and payload is no more than
//! its length. The random schedules of the `pair` and `path_calls` tests have all that, without
//! being exhaustive.

mod drawings;
mod files;
mod modes;
mod transfer;

use std::collections::{HashMap, HashSet};
use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::time::Duration;

use xdfs_proto::FileId;
use xdfs_proto::digest::{BlockHasher, DigestKind, Fragment};
use xdfs_proto::frame::BlockHeader;

const BLOCK: u64 = 1024;
const FILE: FileId = FileId(1);
const NOW: Duration = Duration::ZERO;
const CHANNELS: usize = 2;

/// An instance in one of its states. What tells states apart is what `Debug` shows.
trait World: Clone + Debug {
    /// What may come next.
    type Event: Copy + Debug;

    /// Whether nothing has to follow.
    fn is_over(&self) -> bool;

    /// Of a world that is over, whether all was done that had to be.
    fn is_finished(&self) -> bool;

    fn events(&self) -> Vec<Self::Event>;

    fn perform(&mut self, event: Self::Event);
}

/// A hash of everything that decides what can come next.
fn digest(world: &impl Debug, text: &mut String) -> u64 {
    text.clear();
    write!(text, "{world:?}").expect("a string takes everything");
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Visits every state; returns how many there are, and how many of them are ends with all done.
fn explore<W: World>(start: W) -> (usize, usize) {
    let mut text = String::new();
    let mut seen = HashMap::from([(digest(&start, &mut text), 0)]);
    let mut steps: Vec<(u32, u32)> = Vec::new();
    let mut ends = Vec::new();
    let mut queue = vec![(0, start)];
    let mut finished = 0;
    // Depth first: the worlds that wait are few then.
    while let Some((from, world)) = queue.pop() {
        if world.is_over() {
            finished += usize::from(world.is_finished());
            ends.push(from);
            continue;
        }
        let events = world.events();
        assert!(!events.is_empty(), "stuck: {world:#?}");
        for event in events {
            let mut next = world.clone();
            next.perform(event);
            let number = seen.len() as u32;
            let to = *seen.entry(digest(&next, &mut text)).or_insert(number);
            steps.push((to, from));
            if to == number {
                queue.push((to, next));
            }
        }
    }
    let ending = backwards(seen.len(), steps, ends);
    assert_eq!(ending, seen.len(), "some states go round and never end");
    (seen.len(), finished)
}

/// Visits every state of some worlds, and shows each step: before it, what comes, and after it.
fn watch<W: World>(starts: Vec<W>, mut step: impl FnMut(&W, W::Event, &W)) {
    let mut text = String::new();
    let mut seen: HashSet<u64> = starts.iter().map(|w| digest(w, &mut text)).collect();
    let mut queue = starts;
    while let Some(world) = queue.pop() {
        if world.is_over() {
            continue;
        }
        for event in world.events() {
            let mut next = world.clone();
            next.perform(event);
            step(&world, event, &next);
            if seen.insert(digest(&next, &mut text)) {
                queue.push(next);
            }
        }
    }
}

/// How many of the states lead to one of the ends. A step is where to, and where from.
fn backwards(states: usize, mut steps: Vec<(u32, u32)>, mut queue: Vec<u32>) -> usize {
    steps.sort_unstable();
    let mut leads = vec![false; states];
    for &end in &queue {
        leads[end as usize] = true;
    }
    while let Some(to) = queue.pop() {
        let first = steps.partition_point(|step| step.0 < to);
        for &(_, from) in steps[first..].iter().take_while(|step| step.0 == to) {
            if !std::mem::replace(&mut leads[from as usize], true) {
                queue.push(from);
            }
        }
    }
    leads.iter().filter(|leads| **leads).count()
}

/// The digest state of a block of zeros.
fn fragment(offset: u64) -> Fragment {
    let mut hasher = BlockHasher::new(DigestKind::Crc64Nvme, false, offset);
    hasher.update(&[0; BLOCK as usize]);
    hasher.finish(FILE).1
}

fn header(offset: u64) -> BlockHeader {
    BlockHeader {
        file: FILE,
        check: 0,
        clear: false,
        offset,
        length: BLOCK as u32,
    }
}
