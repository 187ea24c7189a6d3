//! The blocks of compressed channels, from both sides and from hostile ones.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

use xdfs_sys::poll::{Poller, Token};

use super::{Codec, Compression};
use crate::filter::Filtered;
use crate::lz4::Lz4;
use crate::stream::{Capabilities, Stream};
use crate::zstd::Zstd;

/// One direction of bytes between two ends in one thread.
#[derive(Clone, Debug, Default)]
struct Pipe(Arc<Mutex<PipeState>>);

#[derive(Debug, Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    all: Vec<u8>,
    ended: bool,
    calls: usize,
}

/// A transport that moves at most `step` bytes a call, and holds at most `room`.
#[derive(Debug)]
struct Wire {
    from: Pipe,
    to: Pipe,
    step: usize,
    room: usize,
}

impl Stream for Wire {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut from = self.from.0.lock().unwrap();
        from.calls += 1;
        if from.bytes.is_empty() {
            return match from.ended {
                true => Ok(0),
                false => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let mut total = 0;
        for buf in bufs {
            for to in buf.iter_mut() {
                let Some(byte) = (total < self.step)
                    .then(|| from.bytes.pop_front())
                    .flatten()
                else {
                    return Ok(total);
                };
                *to = byte;
                total += 1;
            }
        }
        Ok(total)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut to = self.to.0.lock().unwrap();
        to.calls += 1;
        let mut left = self.step.min(self.room - to.bytes.len());
        if left == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut total = 0;
        for buf in bufs {
            let part = &buf[..buf.len().min(left)];
            to.bytes.extend(part);
            to.all.extend(part);
            left -= part.len();
            total += part.len();
        }
        Ok(total)
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn close(&mut self) -> io::Result<()> {
        self.to.0.lock().unwrap().ended = true;
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
            local: true,
        }
    }

    fn peer(&self) -> String {
        "test".to_owned()
    }
}

struct Pair<C> {
    near: Filtered<Compression<C>>,
    far: Filtered<Compression<C>>,
    there: Pipe,
    random: Random,
}

impl<C: Codec> Pair<C> {
    fn new(make: impl Fn() -> C, step: usize, room: usize) -> Self {
        let (there, back) = (Pipe::default(), Pipe::default());
        let wire = |from: &Pipe, to: &Pipe| {
            Box::new(Wire {
                from: from.clone(),
                to: to.clone(),
                step,
                room,
            })
        };
        let near = wire(&back, &there);
        let far = wire(&there, &back);
        Self {
            near: Filtered::new(near, Compression::new(make())),
            far: Filtered::new(far, Compression::new(make())),
            there,
            random: Random(7),
        }
    }

    /// Sends all of `content` in calls of up to `call_max` bytes and two slices, and returns what
    /// arrived.
    fn send(&mut self, content: &[u8], call_max: usize) -> Vec<u8> {
        let mut got = Vec::new();
        let mut sent = 0;
        let mut space = vec![0; 300_000];
        let mut idle = 0;
        while got.len() < content.len() {
            idle += 1;
            assert!(idle < 100_000, "it stopped at {}", got.len());
            let rest = &content[sent..];
            let len = rest.len().min(1 + self.random.below(call_max));
            let (a, b) = rest[..len].split_at(self.random.below(len + 1));
            match self
                .near
                .write_vectored(&[IoSlice::new(a), IoSlice::new(b)])
            {
                Ok(n) => sent += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            if sent == content.len() && self.near.has_unflushed() {
                let _ = self.near.flush();
            }
            let len = 1 + self.random.below(space.len());
            let (a, b) = space[..len].split_at_mut(self.random.below(len + 1));
            let mut bufs = [IoSliceMut::new(a), IoSliceMut::new(b)];
            match self.far.read_vectored(&mut bufs) {
                Ok(n) => {
                    got.extend_from_slice(&space[..n]);
                    idle = 0;
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        got
    }

    fn count(&self, name: &str) -> u64 {
        let near: &dyn Stream = &self.near;
        let name = format!("{}.{name}", C::NAME);
        near.control(&name).unwrap().to_string().parse().unwrap()
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

fn text(len: usize) -> Vec<u8> {
    let mut random = Random(99);
    let words = [
        "channel ",
        "block ",
        "of the ",
        "a session\n",
        "12345 ",
        "xyzzy ",
    ];
    let mut text = Vec::new();
    while text.len() < len {
        text.extend_from_slice(words[random.below(words.len())].as_bytes());
    }
    text.truncate(len);
    text
}

fn zstd() -> Zstd {
    Zstd { level: 3 }
}

/// Runs a case for both algorithms.
macro_rules! both {
    ($($case:ident)*) => {
        mod zstd_blocks {
            $(#[test]
            fn $case() {
                super::$case(super::zstd);
            })*
        }
        mod lz4_blocks {
            $(#[test]
            fn $case() {
                super::$case(|| crate::lz4::Lz4);
            })*
        }
    };
}

both! {
    any_content_arrives_over_any_wire
    a_byte_arrives_at_once
    what_shrinks_is_small_on_the_wire
    random_content_is_stored_after_few_trials
    text_after_random_content_is_compressed_again
    stored_content_takes_one_call_a_block
    what_is_no_block_is_refused
    a_block_of_another_length_is_refused
    a_cut_off_stream_is_no_end
    any_change_is_an_error_or_other_content
    a_silent_peer_costs_little
    nothing_is_written_after_the_close
}

fn any_content_arrives_over_any_wire<C: Codec>(make: impl Fn() -> C) {
    let mut random = Random(3);
    let mut content = text(700_000);
    content.extend(random.bytes(900_000));
    content.extend(vec![0; 900_000]);
    content.extend(random.bytes(10));
    content.extend(text(100_000));
    for (step, room, call_max) in [
        (usize::MAX, usize::MAX, 1 << 20),
        (1460, 1 << 20, 600_000),
        (100_000, 150_000, 1 << 20),
        (70_000, 70_001, 70_000),
        (usize::MAX, 5, 1 << 20),
    ] {
        let content = match room {
            5 => &content[650_000..750_000],
            _ => &content,
        };
        let mut pair = Pair::new(&make, step, room);
        assert!(pair.send(content, call_max) == content, "{step} {room}");
        assert_eq!(pair.count("in"), content.len() as u64);
        let on_wire = pair.there.0.lock().unwrap().all.len();
        assert_eq!(pair.count("out"), on_wire as u64);
        assert_eq!(pair.far.held_bytes(), 0, "nothing is left");
    }
    let mut pair = Pair::new(&make, 3, 1000);
    let content = &content[695_000..705_000];
    assert!(pair.send(content, 50) == content);
}

fn a_byte_arrives_at_once<C: Codec>(make: impl Fn() -> C) {
    let mut pair = Pair::new(make, usize::MAX, usize::MAX);
    for i in 0..100 {
        assert_eq!(pair.near.write_vectored(&[IoSlice::new(&[i])]).unwrap(), 1);
        let mut seen = [0; 10];
        let n = pair.far.read_vectored(&mut [IoSliceMut::new(&mut seen)]);
        assert_eq!((n.unwrap(), seen[0]), (1, i));
    }
    // One call of the transport for each call.
    assert_eq!(pair.there.0.lock().unwrap().calls, 200);
}

fn what_shrinks_is_small_on_the_wire<C: Codec>(make: impl Fn() -> C) {
    let mut pair = Pair::new(make, usize::MAX, usize::MAX);
    let content = text(4 << 20);
    assert!(pair.send(&content, 1 << 20) == content);
    assert!(pair.count("out") < (2 << 20), "{}", pair.count("out"));
}

fn random_content_is_stored_after_few_trials<C: Codec>(make: impl Fn() -> C) {
    let mut pair = Pair::new(make, usize::MAX, usize::MAX);
    let content = Random(5).bytes(8 << 20);
    assert!(pair.send(&content, 1 << 20) == content);
    let more = pair.count("out") - pair.count("in");
    assert_eq!(more, pair.count("stored") * 4);
    assert!(more < 1000, "{more}");
}

fn text_after_random_content_is_compressed_again<C: Codec>(make: impl Fn() -> C) {
    let mut pair = Pair::new(make, usize::MAX, usize::MAX);
    pair.send(&Random(5).bytes(3 << 20), 1 << 20);
    let before = pair.count("out");
    pair.send(&text(8 << 20), 1 << 20);
    let after = pair.count("out") - before;
    assert!(after < (6 << 20), "{after}");
}

fn stored_content_takes_one_call_a_block<C: Codec>(make: impl Fn() -> C) {
    let mut pair = Pair::new(make, usize::MAX, usize::MAX);
    let content = Random(5).bytes(256 << 10);
    let mut space = vec![0; 256 << 10];
    let mut passed = 0;
    for _ in 0..16 {
        let before = pair.there.0.lock().unwrap().calls;
        let mut sent = 0;
        while sent < content.len() {
            let rest = IoSlice::new(&content[sent..]);
            sent += pair.near.write_vectored(&[rest]).unwrap();
        }
        let mut got = 0;
        while got < content.len() {
            let rest = IoSliceMut::new(&mut space[got..]);
            got += pair.far.read_vectored(&mut [rest]).unwrap();
        }
        assert!(space == content);
        let calls = pair.there.0.lock().unwrap().calls - before;
        // The header is read on its own, for it comes after the end of the block before.
        passed += usize::from(calls <= 3);
    }
    // In the other rounds there were trials.
    assert!(passed >= 10, "{passed}");
}

/// What the reader says to `bytes` of a peer that then closes or falls silent.
fn says<C: Codec>(codec: C, bytes: &[u8], ends: bool, step: usize) -> (Vec<u8>, io::Error) {
    let from = Pipe::default();
    from.0.lock().unwrap().bytes.extend(bytes);
    from.0.lock().unwrap().ended = ends;
    let wire = Wire {
        from,
        to: Pipe::default(),
        step,
        room: 0,
    };
    let mut stream = Filtered::new(Box::new(wire), Compression::new(codec));
    let (mut all, mut space) = (Vec::new(), vec![0; 10_000]);
    loop {
        match stream.read_vectored(&mut [IoSliceMut::new(&mut space)]) {
            Ok(0) => return (all, io::Error::other("the end")),
            Ok(n) => all.extend_from_slice(&space[..n]),
            Err(e) => {
                // It stays so.
                let again = stream.read_vectored(&mut [IoSliceMut::new(&mut space)]);
                assert_eq!(again.unwrap_err().kind(), e.kind());
                return (all, e);
            }
        }
    }
}

fn what_is_no_block_is_refused<C: Codec>(make: impl Fn() -> C) {
    for (bytes, wanted) in [
        (&[2, 1, 0, 0][..], "there are no blocks of kind 2"),
        (&[0, 0, 0, 0], "declares 0 bytes where 1 to 262144"),
        (&[0, 1, 0, 4], "declares 262145 bytes"),
        (&[0, 255, 255, 255], "declares 16777215 bytes"),
        (&[1, 1, 0, 0, 0, 0, 0], "declares 0 bytes"),
        (&[1, 1, 0, 0, 1, 0, 4], "declares 262145 bytes"),
        (&[1, 0, 0, 0, 9, 0, 0], "declares 0 bytes where 1 to 8"),
        (&[1, 9, 0, 0, 9, 0, 0], "declares 9 bytes where 1 to 8"),
        (&[1, 4, 0, 0, 9, 0, 0, 1, 2, 3, 4], "doesn't hold 9 bytes"),
    ] {
        for step in [1, usize::MAX] {
            let (content, error) = says(make(), bytes, false, step);
            assert_eq!((content.len(), error.kind()), (0, ErrorKind::InvalidData));
            let text = error.to_string();
            assert!(text.contains(wanted) && text.contains(C::NAME), "{text}");
        }
    }
}

/// A block of zeros that declares `content` bytes and holds `real`.
fn bomb<C: Codec>(codec: &C, content: usize, real: usize) -> Vec<u8> {
    let mut room = vec![0; real + real / 8 + 64];
    let n = codec.compress(&vec![0; real], &mut room, false).unwrap();
    let [a, b, c, _] = u32::try_from(n).unwrap().to_le_bytes();
    let [d, e, f, _] = u32::try_from(content).unwrap().to_le_bytes();
    let mut bytes = vec![1, a, b, c, d, e, f];
    bytes.extend_from_slice(&room[..n]);
    bytes
}

fn a_block_of_another_length_is_refused<C: Codec>(make: impl Fn() -> C) {
    let (content, end) = says(make(), &bomb(&make(), 100_000, 100_000), true, 9);
    assert_eq!((content.len(), end.kind()), (100_000, ErrorKind::Other));
    for (declared, real) in [(100_000, 100_001), (100_000, 99_999), (50_000, 1 << 24)] {
        let bytes = bomb(&make(), declared, real);
        let (content, error) = says(make(), &bytes, false, usize::MAX);
        assert_eq!(content.len(), 0);
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{declared} {real}");
    }
}

fn a_cut_off_stream_is_no_end<C: Codec>(make: impl Fn() -> C) {
    let mut pair = Pair::new(&make, usize::MAX, usize::MAX);
    let content = text(3000);
    pair.send(&content, 3000);
    pair.send(&[1, 2, 3], 3);
    let all = pair.there.0.lock().unwrap().all.clone();
    let (mut ends, mut last) = (0, 0);
    for len in 0..=all.len() {
        let (seen, error) = says(make(), &all[..len], true, 1000);
        assert!(seen.len() >= last, "{len}");
        last = seen.len();
        match error.kind() {
            ErrorKind::Other => ends += 1,
            kind => assert_eq!(kind, ErrorKind::UnexpectedEof, "{len}"),
        }
    }
    let blocks = pair.there.0.lock().unwrap().calls;
    assert!((3..=blocks + 1).contains(&ends), "{ends} of {blocks}");
}

/// No change makes the reader panic, loop, or hold much.
fn any_change_is_an_error_or_other_content<C: Codec>(make: impl Fn() -> C) {
    let mut pair = Pair::new(&make, usize::MAX, usize::MAX);
    let mut content = text(5000);
    content.extend(Random(8).bytes(300));
    pair.send(&content, 2000);
    let all = pair.there.0.lock().unwrap().all.clone();
    let mut random = Random(77);
    let mut refused = 0;
    for _ in 0..3000 {
        let mut bytes = all.clone();
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        let (_, error) = says(make(), &bytes, true, 1 + random.below(3000));
        refused += usize::from(error.kind() != ErrorKind::Other);
    }
    assert!(refused > 300, "{refused}");
}

fn a_silent_peer_costs_little<C: Codec>(make: impl Fn() -> C) {
    for bytes in [&[0][..], &[1, 255, 255, 3, 0, 0, 4, 1, 2, 3]] {
        let from = Pipe::default();
        from.0.lock().unwrap().bytes.extend(bytes);
        let wire = Wire {
            from,
            to: Pipe::default(),
            step: usize::MAX,
            room: 0,
        };
        let mut stream = Filtered::new(Box::new(wire), Compression::new(make()));
        let read = stream.read_vectored(&mut [IoSliceMut::new(&mut [0; 100])]);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(stream.held_bytes() < 100, "{}", stream.held_bytes());
    }
}

fn nothing_is_written_after_the_close<C: Codec>(make: impl Fn() -> C) {
    let mut pair = Pair::new(make, usize::MAX, usize::MAX);
    pair.near.close().unwrap();
    let refused = pair.near.write_vectored(&[IoSlice::new(b"x")]);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::BrokenPipe);
    let end = pair.far.read_vectored(&mut [IoSliceMut::new(&mut [0])]);
    assert_eq!(end.unwrap(), 0);
}

/// The levels of one thread take turns, as those of several stacks do.
#[test]
fn levels_share_a_context() {
    let content = text(100_000);
    let (mut small, mut sizes) = (vec![0; 200_000], Vec::new());
    for level in [1, 19, 1, 19] {
        let codec = Zstd { level };
        let n = codec.compress(&content, &mut small, false).unwrap();
        let mut seen = vec![0; content.len()];
        assert_eq!(codec.decompress(&small[..n], &mut seen), Some(seen.len()));
        assert!(seen == content);
        sizes.push(n);
    }
    assert!(sizes[1] < sizes[0] && sizes[..2] == sizes[2..], "{sizes:?}");
    let n = Lz4.compress(&content, &mut small, false).unwrap();
    assert!(n < content.len() / 2);
}
