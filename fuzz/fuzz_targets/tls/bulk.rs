//! Both ends after the handshake, when the records are made without rustls: large and small pieces,
//! clear runs, and somebody in the middle who changes, repeats, drops and adds bytes.

use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, LazyLock};

use xdfs_security::trust::server_name;
use xdfs_xio::tls::TlsStream;
use xdfs_xio::{Protected, Stream};

use crate::{CONFIGS, Pieces, Shared, client_config, pipe, would_block};

/// Bytes that an end writes, at most.
const BYTES_MAX: usize = 500 << 10;
/// Protected bytes that may go along with a run, at most.
const HEAD_MAX: usize = 16 << 10;
/// Rounds without a step after which nothing comes any more.
const QUIET_MAX: usize = 12;

/// What is written at once.
#[derive(Clone, Copy)]
struct Item {
    protected: usize,
    clear: usize,
}

/// A direction's bytes, as both of its ends know them from the frames.
#[derive(Default)]
struct Script {
    items: Vec<Item>,
    /// Lengths of what is protected and of runs, in turn.
    parts: Vec<usize>,
    asks: Vec<usize>,
}

impl Script {
    fn add(&mut self, item: Item) {
        self.items.push(item);
        if self.parts.len() % 2 == 0 {
            self.parts.push(0);
        }
        *self.parts.last_mut().expect("one was added") += item.protected;
        if item.clear > 0 {
            self.parts.push(item.clear);
        }
    }

    fn is_clear(&self, part: usize) -> bool {
        part % 2 == 1 && part < self.parts.len()
    }
}

/// What is protected, and what is clear: another byte at each place near another.
static WRITTEN: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    let place = |i: usize| ((i * 31 + i / 251) % 256) as u8;
    [0, 0x5a].map(|odd| (0..3 * BYTES_MAX).map(|i| place(i) ^ odd).collect())
});

fn bytes(place: usize, len: usize, is_clear: bool) -> &'static [u8] {
    &WRITTEN[usize::from(is_clear)][place..place + len]
}

/// What the input says: pieces of both directions.
fn scripts(data: &[u8], bytes_max: usize) -> [Script; 2] {
    let mut scripts = [Script::default(), Script::default()];
    let mut all = [0, 0];
    for &[op, high, low, ask] in data.as_chunks().0.iter().take(32) {
        let side = usize::from(op & 1);
        let mut size = usize::from(u16::from_be_bytes([high, low]));
        if op & 0x40 != 0 {
            size *= 4;
        }
        let size = size.clamp(1, (bytes_max - all[side]).max(1));
        all[side] = (all[side] + size).min(bytes_max);
        let item = if op & 2 == 0 {
            Item {
                protected: size,
                clear: 0,
            }
        } else {
            let head = 1 + usize::from(op >> 2 & 7) * 24;
            let head = if op & 0x80 == 0 {
                head
            } else {
                HEAD_MAX - head
            };
            Item {
                protected: head,
                clear: size,
            }
        };
        scripts[side].add(item);
        scripts[side].asks.push(1 + usize::from(ask) * 300);
    }
    for script in &mut scripts {
        // Something comes after the last run, as a run shows only then that it is whole.
        script.add(Item {
            protected: 5,
            clear: 0,
        });
        script.asks.push(64);
    }
    scripts
}

/// What somebody does to a direction, once.
#[derive(Clone, Copy)]
struct Change {
    how: u8,
    at: usize,
    value: u8,
}

/// Moves what waits, changed where that is due. How many bytes.
fn carry(from: &Shared, to: &Shared, moved: &mut usize, change: &mut Option<Change>) -> usize {
    let (mut from, mut to) = (pipe(from), pipe(to));
    let mut chunk: Vec<u8> = from.bytes.drain(..).collect();
    let n = chunk.len();
    if to.ended {
        return n;
    }
    if let Some(c) = change.filter(|c| c.at < *moved + n) {
        let at = c.at.saturating_sub(*moved);
        *change = None;
        match c.how % 10 {
            0 => chunk[at] ^= c.value.max(1),
            1 => drop(chunk.remove(at)),
            2 => chunk.insert(at, c.value),
            3 => {
                chunk.truncate(at);
                to.ended = true;
            }
            4 => drop(chunk.splice(at..at, [0xcc, 0, 0, 0, 2, c.value, 0])),
            5 => chunk[at] = 0xcc,
            6 => chunk[at] = 23,
            // What is moved at once often begins or ends a record, or a run.
            7 => chunk.clear(),
            8 => chunk.extend_from_within(..),
            _ => {
                let len = usize::from(c.value).min(n - at);
                chunk.drain(at..at + len);
            }
        }
    }
    *moved += n;
    to.bytes.extend(chunk);
    to.ended |= from.ended;
    n
}

/// One end. `readable` and `writable` come by edges, as from the system.
struct End {
    stream: TlsStream,
    readable: bool,
    writable: bool,
    is_open: bool,
    /// The next item, and how much of it was taken.
    item: usize,
    taken: usize,
    /// Protected and clear bytes that were taken.
    written: [usize; 2],
    closed: bool,
    /// The next part to be read, and how much of it was.
    part: usize,
    done: usize,
    read: [usize; 2],
    reads: usize,
    /// How reading ended: in an orderly way or not.
    end: Option<bool>,
    /// The part at which the wrong call is made.
    wrong: Option<usize>,
}

impl End {
    fn new(stream: TlsStream, is_open: bool, wrong: Option<usize>) -> Self {
        Self {
            stream,
            readable: true,
            writable: true,
            is_open,
            item: 0,
            taken: 0,
            written: [0, 0],
            closed: false,
            part: 0,
            done: 0,
            read: [0, 0],
            reads: 0,
            end: None,
            wrong,
        }
    }

    /// Opens the channel, if it isn't; says whether something was done.
    fn open(&mut self) -> bool {
        if self.is_open || self.end.is_some() {
            return false;
        }
        match self.stream.finish_open() {
            Ok(is_open) => self.is_open = is_open,
            Err(e) => panic!("nobody touched the handshake: {e}"),
        }
        self.is_open
    }

    /// Writes once. Says whether something was done.
    fn write(&mut self, script: &Script, out: &Shared, touched: bool) -> bool {
        if !self.is_open || self.closed || self.end == Some(false) || !self.writable {
            return false;
        }
        let result = match script.items.get(self.item) {
            None if self.stream.has_unflushed() => self.stream.flush().map(|()| 0),
            None => {
                // Closing doesn't wait: without room its peer would see a channel cut off.
                pipe(out).is_wide = true;
                self.closed = true;
                assert!(self.stream.close().is_ok());
                return true;
            }
            Some(item) => {
                let mut head: &[u8] = &[];
                if self.taken < item.protected {
                    head = bytes(self.written[0], item.protected - self.taken, false);
                }
                let (a, b) = head.split_at(head.len() / 3);
                let slices = [IoSlice::new(a), IoSlice::new(b)];
                if item.clear == 0 {
                    self.stream.write_vectored(&slices)
                } else {
                    let slices = if head.is_empty() { &[] } else { &slices[..] };
                    let left = item.clear - self.taken.saturating_sub(item.protected);
                    let clear = bytes(self.written[1], left, true);
                    self.stream.write_cleartext(slices, clear)
                }
            }
        };
        match result {
            Ok(n) => {
                let Some(item) = script.items.get(self.item) else {
                    return true;
                };
                assert!(n > 0, "a caller would take it for the end");
                let protected = n.min(item.protected.saturating_sub(self.taken));
                self.written[0] += protected;
                self.written[1] += n - protected;
                self.taken += n;
                let whole = item.protected + item.clear;
                assert!(self.taken <= whole);
                assert!(item.clear == 0 || self.taken >= item.protected);
                if self.taken == whole {
                    (self.item, self.taken) = (self.item + 1, 0);
                }
                true
            }
            Err(e) if would_block(&e) => {
                // The transport tells when it takes more. Blocked for fun, it tells at once.
                let pipe = pipe(out);
                self.writable = pipe.room.is_none_or(|room| pipe.bytes.len() < room);
                false
            }
            Err(e) => {
                assert!(touched, "a write fails: {e}");
                self.end = Some(false);
                true
            }
        }
    }

    /// Reads once. Says whether something was done.
    fn read(&mut self, script: &Script, from: &Shared, peer: [usize; 2], touched: bool) -> bool {
        if self.end.is_some() || !self.readable {
            return false;
        }
        let ask = script.asks[self.reads % script.asks.len()];
        self.reads += 1;
        let due = script.part_at(self.part);
        let is_clear = script.is_clear(self.part) ^ (self.wrong == Some(self.part));
        let mut buf = vec![0; ask];
        let (a, b) = buf.split_at_mut(ask / 2);
        let mut bufs = [IoSliceMut::new(a), IoSliceMut::new(b)];
        let result = if is_clear {
            self.stream.read_cleartext(&mut bufs)
        } else {
            self.stream.read_vectored(&mut bufs)
        };
        match result {
            Ok(0) => {
                assert!(!is_clear, "a run has no end of its own");
                self.end = Some(true);
            }
            Ok(n) => {
                assert!(touched || self.wrong != Some(self.part), "the wrong bytes");
                let at = &mut self.read[usize::from(is_clear)];
                if !is_clear || !touched {
                    assert!(&buf[..n] == bytes(*at, n, is_clear), "not what was written");
                    assert!(
                        *at + n <= peer[usize::from(is_clear)],
                        "nobody wrote it yet"
                    );
                }
                *at += n;
                self.done += n;
                if self.done > due {
                    // A run was made longer, or is gone. The frames show it.
                    assert!(touched, "a read goes past a run");
                    self.end = Some(false);
                    return true;
                }
                self.is_open = true;
                if self.done == due {
                    (self.part, self.done) = (self.part + 1, 0);
                }
            }
            Err(e) if would_block(&e) => {
                let pipe = pipe(from);
                self.readable = !pipe.bytes.is_empty() || pipe.ended;
                return false;
            }
            Err(e) => {
                assert!(
                    touched || self.wrong == Some(self.part),
                    "a read fails: {e}"
                );
                self.end = Some(false);
                for _ in 0..2 {
                    let again = self.stream.read_vectored(&mut [IoSliceMut::new(&mut buf)]);
                    assert!(again.is_err(), "bytes, or an end, after what was wrong");
                }
            }
        }
        true
    }
}

impl Script {
    /// Bytes of a part; none after the last.
    fn part_at(&self, part: usize) -> usize {
        self.parts.get(part).copied().unwrap_or(0)
    }
}

/// Both ends, by what the input says.
pub(crate) fn run(data: &[u8], piece: usize, how: u8, has_wrong: bool) {
    let Some((&[at, at_middle, at_low, value, wrong, room], rest)) = data.split_first_chunk::<6>()
    else {
        return;
    };
    let at = u32::from_be_bytes([0, at, at_middle, at_low]) as usize;
    // Half of the inputs change something, in one direction.
    let change = (how & 8 != 0).then_some(Change {
        how: how >> 4,
        at,
        value,
    });
    let mut changes = [None, None];
    let piece = if how & 2 == 0 { piece } else { piece * 128 };
    // Not too many calls.
    let scripts = scripts(rest, (piece * 400).clamp(2000, BYTES_MAX));
    let changed = usize::from(how & 1);
    let items = scripts[changed].items.iter();
    let all: usize = items.map(|i| i.protected + i.clear + 30).sum();
    changes[changed] = change.map(|c| Change {
        at: c.at % all,
        ..c
    });
    let pipes: [Shared; 4] = std::array::from_fn(|_| Shared::default());
    let mut near = Pieces::new(&pipes[3], &pipes[0], piece, how & 4 != 0);
    let mut far = Pieces::new(&pipes[1], &pipes[2], piece, how & 4 != 0);
    (near.interrupts, far.interrupts) = (value & 1 != 0, value & 2 != 0);
    let name = server_name("host").expect("a name");
    let client = TlsStream::open(near, client_config(), name).expect("settings");
    let server = TlsStream::accept(far, Arc::clone(&CONFIGS.server)).expect("settings");
    let wrong = has_wrong.then_some(usize::from(wrong >> 1) % 8);
    let wrongs = |side| wrong.filter(|_| usize::from(at_low & 1) == side);
    let mut ends = [
        End::new(client, false, wrongs(0)),
        End::new(server, false, wrongs(1)),
    ];
    let mut moved = [0, 0];
    // The handshake is the matter of others: it goes through untouched.
    let mut none = None;
    let mut is_shaken = false;
    for _ in 0..100_000 {
        ends[0].open();
        let read = ends[1].stream.finish_open();
        is_shaken = ends[0].is_open && matches!(read, Ok(true));
        let mut moved_now = 0;
        for side in 0..2 {
            let _ = ends[side].stream.flush();
            moved_now += carry(&pipes[side * 2], &pipes[side * 2 + 1], &mut 0, &mut none);
        }
        if is_shaken && moved_now == 0 && !ends.iter().any(|end| end.stream.has_unflushed()) {
            break;
        }
    }
    assert!(is_shaken, "a handshake without an end");
    ends[1].is_open = true;
    for side in 0..2 {
        pipe(&pipes[side * 2]).room = Some(64 + usize::from(room) * 1024);
    }
    let (mut quiet, mut touched, mut taken) = (0, false, 0);
    while quiet < QUIET_MAX && ends.iter().any(|end| end.end.is_none()) {
        let mut steps = false;
        for side in 0..2 {
            let peer = ends[1 - side].written;
            let end = &mut ends[side];
            // Several steps in a turn, now and then.
            for _ in 0..=usize::from(value >> 6) {
                steps |= end.write(&scripts[side], &pipes[side * 2], touched);
            }
            let from = &pipes[3 - side * 2];
            steps |= end.read(&scripts[1 - side], from, peer, touched);
        }
        for side in 0..2 {
            let (from, to) = (&pipes[side * 2], &pipes[side * 2 + 1]);
            let change = &mut changes[side];
            let (was_due, had_ended) = (change.is_some(), pipe(to).ended);
            let n = carry(from, to, &mut moved[side], change);
            touched |= was_due && change.is_none();
            let ended = !had_ended && pipe(to).ended;
            if n > 0 || ended {
                steps = true;
                ends[side].writable = true;
                ends[1 - side].readable = true;
            }
        }
        if ends.iter().any(|end| end.end == Some(false)) && !touched {
            // One gave up; the other hears of it.
            touched = true;
            pipe(&pipes[1]).ended = true;
            pipe(&pipes[3]).ended = true;
            ends.iter_mut().for_each(|end| end.readable = true);
        }
        // What an end has taken and not yet given out shows in nothing else.
        let before = std::mem::replace(&mut taken, pipe(&pipes[1]).taken + pipe(&pipes[3]).taken);
        quiet = if steps || taken > before {
            0
        } else {
            quiet + 1
        };
    }
    for side in 0..2 {
        let (end, script) = (&ends[side], &scripts[1 - side]);
        if end.end == Some(true) {
            assert!(ends[1 - side].closed, "an end that nobody made");
            let all: usize = script.items.iter().map(|item| item.protected).sum();
            assert_eq!(end.read[0], all, "an end before the end");
        }
        if !touched {
            let (item, part) = (ends[1 - side].item, end.part);
            assert_eq!(end.end, Some(true), "{item} written, {part} read");
        }
    }
}
