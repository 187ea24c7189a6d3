//! Parallel streams as one. Fixed-size messages have one encoding. A bundle that reads any bytes
//! from any of its streams takes bounded memory, and says something bounded. Two bundles whose
//! streams move, stall, break and are replaced in any order deliver what was written, in order and
//! once.
#![no_main]

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use xdfs_xio::Room;
use xdfs_xio::ptcp::wire::{ANSWER_BYTES, Answer, FRAME_BYTES, Frame, HELLO_BYTES, Hello};
use xdfs_xio::ptcp::{Bundle, Sizes, Step};

const STREAMS: usize = 3;
const WINDOW: u64 = 4096;
const PIECE_MAX: usize = 256 << 10;

type Pipe = VecDeque<u8>;

fn read(pipe: &mut Pipe, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let mut n = 0;
    for byte in bufs.iter_mut().flat_map(|buf| buf.iter_mut()) {
        let Some(next) = pipe.pop_front() else {
            break;
        };
        *byte = next;
        n += 1;
    }
    match n {
        0 => Err(ErrorKind::WouldBlock.into()),
        n => Ok(n),
    }
}

fn write(pipe: &mut Pipe, most: usize, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    let before = pipe.len();
    pipe.extend(bufs.iter().flat_map(|buf| buf.iter().copied()).take(most));
    match pipe.len() - before {
        0 => Err(ErrorKind::WouldBlock.into()),
        n => Ok(n),
    }
}

fn bundle() -> Bundle {
    let mut bundle = Bundle::new(Sizes {
        streams: STREAMS,
        piece: 100,
        window: WINDOW,
        peer_window: WINDOW,
    });
    (0..STREAMS).for_each(|index| bundle.attach(index));
    bundle
}

fn codec(data: &[u8]) {
    if let Some((bytes, _)) = data.split_first_chunk::<HELLO_BYTES>()
        && let Ok(Some(hello)) = Hello::decode(bytes)
    {
        assert_eq!(hello.encode(), *bytes);
    }
    if let Some((bytes, _)) = data.split_first_chunk::<ANSWER_BYTES>()
        && let Ok(answer) = Answer::decode(bytes)
    {
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
    if let Some((bytes, _)) = data.split_first_chunk::<FRAME_BYTES>()
        && let Ok(frame) = Frame::decode(bytes)
    {
        assert_eq!(frame.encode(), *bytes);
    }
}

/// Bytes from nowhere on all streams.
fn lies(data: &[u8]) {
    let mut bundle = bundle();
    let mut space = [0; 64];
    for (at, part) in data.chunks(40).enumerate() {
        let index = usize::from(part[0]) % STREAMS;
        let mut pipe: Pipe = part[1..].iter().copied().collect();
        loop {
            let mut bufs = [IoSliceMut::new(&mut space)];
            let mut room = Room::new(&mut bufs);
            let given = (at % 2 == 0).then_some(&mut room);
            let mut from = |bufs: &mut [IoSliceMut<'_>]| read(&mut pipe, bufs);
            match bundle.receive(index, given, Duration::ZERO, &mut from) {
                Ok(Step::Moved) => {}
                Ok(_) => break,
                Err(_) => return,
            }
        }
        bundle.settle();
        let mut out = Pipe::new();
        let mut to = |bufs: &[IoSlice<'_>]| write(&mut out, 1000, bufs);
        while bundle.send(index, Duration::ZERO, &mut to) == Step::Moved {}
        assert!(out.len() <= 2 * FRAME_BYTES);
        assert!(bundle.held_bytes() <= WINDOW as usize + STREAMS * PIECE_MAX);
    }
}

/// Two bundles, and a list of events.
fn schedule(data: &[u8]) {
    let mut sides = [bundle(), bundle()];
    let mut pipes: Vec<[Pipe; 2]> = vec![Default::default(); STREAMS];
    let (mut written, mut seen) = ([0_usize; 2], [0_usize; 2]);
    let byte = |side: usize, at: usize| (at * 7 + side * 91) as u8;
    for (now, event) in data.chunks_exact(2).enumerate() {
        let [what, amount] = [event[0], event[1]];
        let (side, index) = (usize::from(what & 1), usize::from(what >> 1 & 3) % STREAMS);
        let now = Duration::from_millis(now as u64 * 50);
        let most = usize::from(amount) + 1;
        match what >> 3 & 7 {
            0 | 1 => {
                let pipe = &mut pipes[index][side];
                let _ = sides[side].send(index, now, &mut |bufs| write(pipe, most, bufs));
            }
            2 | 3 => {
                let pipe = &mut pipes[index][1 - side];
                let mut space = vec![0; most];
                let mut bufs = [IoSliceMut::new(&mut space)];
                let mut room = Room::new(&mut bufs);
                sides[side].deliver(&mut room);
                let given = (what >> 6 == 0).then_some(&mut room);
                sides[side]
                    .receive(index, given, now, &mut |bufs| read(pipe, bufs))
                    .expect("nobody lies");
                let n = room.filled();
                for got in &space[..n] {
                    assert_eq!(*got, byte(1 - side, seen[side]));
                    seen[side] += 1;
                }
            }
            4 => {
                let bytes: Vec<u8> = (0..most).map(|i| byte(side, written[side] + i)).collect();
                written[side] += sides[side].take(&[IoSlice::new(&bytes)], 0);
            }
            5 => {
                // Both ends of a stream break, and another one takes its place.
                pipes[index] = Default::default();
                sides.iter_mut().for_each(|side| side.attach(index));
            }
            6 => sides[side].settle(),
            _ => drop(sides[side].check_stalls(now)),
        }
        for side in &sides {
            assert!(side.unacknowledged_bytes() <= WINDOW);
            assert!(side.held_bytes() as u64 <= WINDOW * (1 + STREAMS as u64));
        }
    }
    assert!(seen[0] <= written[1] && seen[1] <= written[0]);
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    match kind % 3 {
        0 => codec(data),
        1 => lies(data),
        _ => schedule(data),
    }
});
